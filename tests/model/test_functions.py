"""Checking a custom backward: every reason for which derivatives differ is told apart, on copies of the inputs."""

from __future__ import annotations

import random
import time
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from helpers import check_function
from helpers.model.finding import HelperError


def real(*values: float, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def function(name: str, forward, backward) -> type[Function]:
    return type(name, (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def cubed(ctx, x):
    ctx.save_for_backward(x)
    return x**3


def cube_with(backward) -> type[Function]:
    """A Function for x³ whose backward is `backward(x, incoming gradient)`."""
    return function("Cube", cubed, lambda ctx, g: backward(ctx.saved_tensors[0], g))


Cube = cube_with(lambda x, g: 3 * x**2 * g)


class Sign(Function):
    @staticmethod
    def forward(ctx, x, training):
        return x.sign()

    @staticmethod
    def backward(ctx, g):
        return g


class Repeat(Function):
    @staticmethod
    def forward(ctx, x, mark):
        out = x.repeat_interleave(2)
        if mark:
            ctx.mark_dirty(out)
        return out

    @staticmethod
    def backward(ctx, g):
        return g.view(-1, 2).sum(1), None


class MyReLU(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        g = g.clone()
        g[x < 0] = 0
        return g


class Power(Function):
    """The newer style: forward without ctx, and setup_context."""

    @staticmethod
    def forward(x, n):
        return x**n

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.n = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return ctx.n * x ** (ctx.n - 1) * g, None


# Passing


PASSING = {
    "cube": (Cube.apply, real(1.0, -2.0)),
    "the class itself": (Cube, real(1.0, -2.0)),
    "setup_context": (Power.apply, real(1.0, 2.0), 3),
    "relu away from 0": (torch.relu, real(0.5, -0.5)),
    "no dimension": (torch.sin, torch.tensor(3.0, dtype=torch.float64, requires_grad=True)),
    "several outputs": (lambda x: (x * 2, {"cube": x**3}), real(1.0, 2.0)),
    "several inputs": (torch.mul, real(1.0, 2.0), real(3.0, 4.0)),
    "integers beside": (F.embedding, torch.tensor([0, 1, 1]), torch.eye(3, dtype=torch.float64).requires_grad_()),
    "broadcast": (torch.add, torch.ones(2, 3, dtype=torch.float64, requires_grad=True), real(1.0, 2.0, 3.0)),
    "complex": (lambda z: z * z.conj(), torch.tensor([1 + 2j, 3 - 1j], dtype=torch.cdouble, requires_grad=True)),
    "an unused input": (lambda x, w: x * 2, real(1.0), real(2.0)),
    "softmax": (lambda x: x.softmax(0), real(1.0, 2.0, 3.0)),
    "tracked in place": (lambda x: x.mul_(2).sum(), real(1.0, 2.0)),
    "tiny inputs": (torch.log, real(1e-9, 1e-5)),
    "large inputs": (torch.square, real(1e6, 1e9)),
    "fast for its size": (torch.sin, real(1e7, -3e7)),
    "flat": (torch.floor, real(0.5, 1.5)),
    "a slice": (torch.square, real(1.0, 2.0, 3.0)[::2]),
    "a product with zeros": (torch.prod, real(1.0, 0.0, 0.0)),
}


@pytest.mark.parametrize("case", PASSING)
def test_a_right_backward_passes(case):
    found = check_function(*PASSING[case])
    assert found.verdict == "passes", found.text
    assert "first and second derivatives agree" in found.text
    assert found.complete


def test_a_pass_says_how_much_was_compared():
    found = check_function(torch.mul, real(1.0, 2.0, 3.0), real(4.0))
    assert "(2 inputs, 4 elements)" in found.text
    assert found.elements == 4


def test_a_module_is_checked_on_a_copy():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Tanh())
    before = [t.clone() for t in model.state_dict().values()]
    found = check_function(model, torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).requires_grad_())
    assert found.verdict == "float32"
    assert "agree with the numerical ones" in found.text
    assert all(torch.equal(a, b) for a, b in zip(before, model.state_dict().values(), strict=True))
    assert all(p.grad is None and p.dtype == torch.float32 for p in model.parameters())


def test_large_inputs_are_compared_in_random_directions():
    start = time.perf_counter()
    found = check_function(torch.sin, torch.linspace(0.1, 3, 200_000, dtype=torch.float64).requires_grad_())
    assert found.verdict == "passes"
    assert not found.complete
    assert "in random directions (1 input, 200,000 elements)" in found.text
    assert time.perf_counter() - start < 30


@pytest.mark.parametrize(
    ("case", "agrees"),
    [
        ((torch.sin, real(1.0, 2.0)), True),
        ((Cube.apply, real(1.0, 2.0)), True),
        ((MyReLU.apply, real(0.0, 1.0)), False),
        ((cube_with(lambda x, g: 2 * x**2 * g).apply, real(1.0)), False),
        ((cube_with(lambda x, g: 3 * x.detach() ** 2 * g).apply, real(1.0)), False),
        ((lambda a: torch.linalg.inv(a), torch.tensor([[2.0, 1], [1, 3]], dtype=torch.float64).requires_grad_()), True),
    ],
)
def test_the_verdict_agrees_with_torch_s_own_checks(case, agrees):
    fn, *inputs = case
    own = torch.autograd.gradcheck(fn, inputs, raise_exception=False)
    own = own and torch.autograd.gradgradcheck(fn, inputs, raise_exception=False)
    assert own == agrees
    assert (check_function(fn, *inputs).verdict == "passes") == agrees


# A wrong formula


def test_a_wrong_formula_is_told_with_its_input_its_element_and_both_numbers():
    found = check_function(cube_with(lambda x, g: 2 * x**2 * g).apply, real(0.0, 2.0))
    assert found.verdict == "wrong formula"
    assert (found.argument, found.element) == ("x", (1,))
    assert (found.analytical, found.numerical) == (8, pytest.approx(12))
    assert "`out[1]` by `x[1]` at 2 Cube.backward gives 8 and the numerical slope is 12" in found.text


@pytest.mark.parametrize(
    ("backward", "words"),
    [
        (lambda x, g: -3 * x**2 * g, "the sign is reversed"),
        (lambda x, g: 6 * x**2 * g, "each is 2 times the slope"),
        (lambda x, g: 3 * x**2 * g + 1, "with an incoming gradient of 0 it still gives 1"),
        (lambda x, g: 3 * x * g, "2 of 4 derivatives differ"),
        (lambda x, g: 3 * x**2 * g * float("nan"), "gives nan"),
    ],
)
def test_a_wrong_formula_is_described_by_its_pattern(backward, words):
    found = check_function(cube_with(backward).apply, real(2.0, 3.0))
    assert found.verdict == "wrong formula"
    assert words in found.text


def test_the_second_of_two_inputs_is_named():
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    wrong = function("Scale", forward, lambda ctx, g: (g * ctx.saved_tensors[1], g))
    found = check_function(wrong.apply, real(2.0), real(5.0))
    assert (found.verdict, found.argument) == ("wrong formula", "weight")


@pytest.mark.parametrize(
    ("backward", "words"),
    [
        (lambda x, g: 3 * x**2, "for an incoming gradient of 0 it gives 12"),
        (lambda x, g: 3 * x**2 * g * g, "for twice the incoming gradient"),
    ],
)
def test_a_backward_must_multiply_by_the_incoming_gradient(backward, words):
    found = check_function(cube_with(backward).apply, real(2.0))
    assert found.verdict == "wrong formula"
    assert words in found.text


def test_a_straight_through_gradient_is_recognised_as_one():
    straight = function("Sign", lambda ctx, x: x.sign(), lambda ctx, g: g)
    for x in (real(1.0, -2.0), real(0.0, -2.0), torch.linspace(1, 2, 1000, dtype=torch.float64).requires_grad_()):
        found = check_function(straight.apply, x)
        assert found.verdict == "straight-through or wrong formula"
        assert "The result of `Sign` does not change with `x` near these inputs" in found.text
        assert "A straight-through gradient differs from the derivative on purpose" in found.text


def test_a_gradient_where_only_a_part_of_forward_is_constant_is_a_wrong_formula():
    passed_on = function("Relu", lambda ctx, x: x.relu(), lambda ctx, g: g)
    found = check_function(passed_on, real(0.3, -2.0))
    assert (found.verdict, found.element) == ("wrong formula", (1,))
    assert "straight-through" not in str(found)


def test_a_straight_through_gradient_is_recognised_beside_an_input_that_counts():
    straight = function("Sign", lambda ctx, x: x.sign(), lambda ctx, g: g)
    found = check_function(lambda weight, x: straight.apply(weight) @ x, real(0.5, -0.7), real(1.0, 2.0))
    assert (found.verdict, found.argument) == ("straight-through or wrong formula", "weight")
    assert "does not change with `weight`" in found.text


def test_a_constant_forward_whose_backward_ignores_the_incoming_gradient_is_a_wrong_formula():
    found = check_function(function("Sign", lambda ctx, x: x.sign(), lambda ctx, g: torch.ones_like(g)), real(1.0, 2.0))
    assert found.verdict == "wrong formula"
    assert "with an incoming gradient of 0 it still gives 1" in found.text


@pytest.mark.parametrize(
    "backward", [lambda x, g: g.mul_(3 * x**2), lambda x, g: g.mul_(x), lambda x, g: g.data.mul_(3 * x**2)]
)
def test_a_backward_that_overwrites_the_incoming_gradient_is_found(backward):
    cube = cube_with(backward)
    for fn in (cube, cube.apply, lambda x: cube.apply(x)):
        found = check_function(fn, real(0.3, -2.0))
        assert found.verdict == "overwrites the incoming gradient"
        assert "overwrites the incoming gradient in place" in found.text
        assert "`g * …`" in found.remedy


def test_a_complex_formula_without_the_conjugate_is_wrong():
    z = torch.tensor([1 + 2j], dtype=torch.cdouble, requires_grad=True)
    found = check_function(cube_with(lambda z, g: 3 * z**2 * g).apply, z)
    assert found.verdict == "wrong formula"
    assert check_function(cube_with(lambda z, g: 3 * (z**2).conj() * g).apply, z).verdict == "passes"


def test_one_wrong_element_of_a_large_input_is_found():
    def backward(x, g):
        factor = torch.full_like(x, 3.0)
        factor[4321] = 30
        return factor * x**2 * g

    x = torch.linspace(1, 2, 10_000, dtype=torch.float64).requires_grad_()
    found = check_function(cube_with(backward).apply, x)
    assert (found.verdict, found.element) == ("wrong formula", (4321,))


# float32


def test_float32_is_judged_in_float64_and_the_steps_are_told():
    x = torch.tensor([1.1, 1.3, 0.7], requires_grad=True)  # the sum of the cubes lies between 2 and 4
    found = check_function(lambda t: (t**3).sum() * 2, x)  # and twice that between 4 and 8
    assert found.verdict == "float32"
    assert "`t` is float32: a numerical slope moves in steps of 0.24" in found.text
    assert "in float64 first and second derivatives agree" in found.text
    assert "float64" in found.remedy


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.complex64])
def test_a_wrong_formula_in_low_precision_is_still_a_wrong_formula(dtype):
    found = check_function(cube_with(lambda x, g: 2 * x**2 * g).apply, real(1.5, 2.0, dtype=dtype))
    assert found.verdict == "wrong formula"
    assert str(dtype).removeprefix("torch.") in found.text


def test_the_steps_are_those_that_torch_s_numerical_column_moves_in():
    x = torch.tensor([1.1, 1.3, 0.7], requires_grad=True)
    with pytest.warns(UserWarning, match="double precision"), pytest.raises(RuntimeError, match="Jacobian") as raised:
        torch.autograd.gradcheck(lambda t: (t**3).sum() * 2, x)
    printed = str(raised.value).split("analytical")[0]
    numbers = [float(n) for n in printed.replace("[", " ").replace("]", " ").replace(",", " ").split() if "." in n]
    step = 2**-21 / 2e-6
    assert numbers
    assert all(abs(n / step - round(n / step)) < 1e-2 for n in numbers)


def test_a_function_that_does_not_run_in_float64_is_not_judged():
    weight = torch.eye(2)
    found = check_function(lambda x: x @ weight, torch.ones(1, 2, requires_grad=True))
    assert found.verdict == "float32"
    assert "does not run in float64" in found.text
    assert not found.complete


def test_float32_inside_of_a_function_is_found():
    found = check_function(lambda x: (x.float() ** 3).double(), real(1.1, 2.3))
    assert found.verdict == "float32"
    assert "computes in float32 inside" in found.text


# Kinks


def test_a_kink_is_no_wrong_formula_and_torch_s_own_choice_is_told():
    found = check_function(MyReLU.apply, real(0.0, 0.0))
    assert found.verdict == "kink"
    assert "slopes 0 and 1 on its two sides, numerical 0.5" in found.text
    assert "this backward gives 1 there while F.relu gives 0" in found.text
    assert (found.analytical, found.numerical) == (1, pytest.approx(0.5))


def test_a_kink_that_the_inputs_miss_is_a_remark():
    found = check_function(MyReLU.apply, real(0.5, -0.5))
    assert found.verdict == "passes"
    assert "kink at `x[0]` = 0 (no input lies there)" in found.text
    assert "this backward gives 1 while F.relu gives 0" in found.text


def test_torch_is_not_named_for_a_function_that_is_not_its_own():
    class Clamp(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clamp(0, 1)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * ((x >= 0) & (x <= 1))

    found = check_function(Clamp.apply, real(0.0, 0.5))
    assert found.verdict == "kink"
    assert "F.relu" not in found.text


def test_a_wrong_formula_beside_a_kink_is_reported_first():
    wrong = function("Relu", lambda ctx, x: MyReLU.forward(ctx, x), lambda ctx, g: 3 * MyReLU.backward(ctx, g))
    found = check_function(wrong.apply, real(0.0, 2.0))
    assert (found.verdict, found.element) == ("wrong formula", (1,))


def test_a_value_outside_of_the_two_slopes_is_wrong_at_a_kink_too():
    wrong = function("Relu", lambda ctx, x: MyReLU.forward(ctx, x), lambda ctx, g: 5 * MyReLU.backward(ctx, g))
    found = check_function(wrong.apply, real(0.0))
    assert found.verdict == "wrong formula"
    assert "outside of the slopes 0 and 1" in found.text


@pytest.mark.parametrize("fn", [torch.abs, torch.norm, lambda x: x.amax()])
def test_a_kink_whose_slopes_backward_averages_does_not_lose_the_second_derivative(fn):
    assert check_function(fn, real(0.0, 0.0)).verdict == "passes"


def test_the_values_of_a_step_jump():
    found = check_function(torch.sign, real(0.0, 1.0))
    assert found.verdict == "kink"
    assert "jump" in found.text


def test_zeros_in_a_large_input_are_a_kink():
    x = torch.linspace(-1, 1, 20_001, dtype=torch.float64).relu().requires_grad_()
    assert check_function(torch.relu, x).verdict == "kink"


def test_the_edge_of_the_domain_is_no_wrong_formula():
    found = check_function(torch.sqrt, real(0.0, 1.0))
    assert found.verdict == "edge of the domain"
    assert "it is not defined on the left, and the slope grows without bound on the right" in found.text
    assert "nan" not in found.text


@pytest.mark.parametrize(
    ("fn", "values", "words"),
    [
        (torch.asin, (1.0, 0.0), "the slope grows without bound on the left, and it is not defined on the right"),
        (lambda x: x.sqrt() ** 3, (0.0, 1.0), "it is not defined on the left, and the slope is 0.001 on the right"),
        (lambda x: x.sign() * x.abs().sqrt(), (0.0, 1.0), "the slope grows without bound on both sides"),
    ],
)
def test_what_lies_on_each_side_of_an_edge_is_said(fn, values, words):
    found = check_function(fn, real(*values))
    assert (found.verdict, found.element) == ("edge of the domain", (0,))
    assert words in found.text


@pytest.mark.parametrize("fn", [lambda x: x**2 + 1e9, lambda x: 1e6 * torch.sin(1e3 * x), lambda x: x * x.abs()])
def test_rounding_and_a_fast_turn_are_no_edge(fn):
    assert check_function(fn, real(0.0, 0.3)).verdict == "passes"


def log_with_zeros(ctx, x):
    ctx.save_for_backward(x)
    return x.log()


LogOrZero = function(
    "LogOrZero", log_with_zeros, lambda ctx, g: torch.where(ctx.saved_tensors[0] > 0, g / ctx.saved_tensors[0], 0)
)


@pytest.mark.parametrize("fn", [LogOrZero, torch.log, lambda x: x.log().sum()])
@pytest.mark.parametrize("count", [2, 3000])
def test_the_element_outside_of_the_domain_is_the_one_that_is_named(fn, count):
    x = torch.full((count,), 0.5, dtype=torch.float64)
    x[count - 1] = -0.7
    found = check_function(fn, x.requires_grad_())
    assert (found.verdict, found.element) == ("edge of the domain", (count - 1,))
    assert f"[{count - 1}]` = -0.7" in found.text
    assert "is nan (this input lies outside of its domain)" in found.text


def test_an_input_that_is_nan_and_a_result_that_is_nan_everywhere_are_told_apart():
    assert "`x[0]` is nan" in check_function(lambda x: x * 2, real(float("nan"), 1.0)).text
    found = check_function(lambda x: x * float("nan"), real(1.0, 2.0))
    assert found.verdict == "edge of the domain"
    assert "is nan at these inputs" in found.text
    found = check_function(lambda x: 1 / x.sum(), real(0.7, -0.7))  # neither element is to blame alone
    assert "is inf at these inputs" in found.text


def test_how_much_is_compared_follows_from_the_sizes_and_not_from_the_load(monkeypatch):
    ticks = iter(range(10**9))
    monkeypatch.setattr("helpers.model.functions.judge.perf_counter", lambda: 0.04 * next(ticks))
    assert check_function(torch.sin, torch.linspace(0, 1, 500, dtype=torch.float64).requires_grad_()).complete
    assert not check_function(torch.sin, torch.linspace(0, 1, 501, dtype=torch.float64).requires_grad_()).complete
    monkeypatch.setattr("helpers.model.functions.judge.perf_counter", lambda: 0.06 * next(ticks))
    assert not check_function(torch.sin, torch.linspace(0, 1, 100, dtype=torch.float64).requires_grad_()).complete
    assert check_function(torch.sin, real(1.0, 2.0)).complete


# Inputs and results that cannot be judged as they are


def test_an_expanded_input_is_judged_on_a_copy():
    found = check_function(torch.square, real(1.0, 2.0, 3.0).expand(4, 3))
    assert found.verdict == "overlapping input"
    assert "12 elements" in found.text
    assert "3 slots (dimension 0 has stride 0)" in found.text
    assert "agree with the numerical ones" in found.text


def test_an_input_that_overlaps_itself_without_stride_0_is_judged_on_a_copy():
    found = check_function(torch.square, real(1.0, 2.0, 3.0).as_strided((2, 2), (1, 1)))
    assert found.verdict == "overlapping input"
    assert "4 elements" in found.text


@pytest.mark.parametrize(
    "fn",
    [lambda x: F.dropout(x, 0.5), lambda x: x * random.random(), lambda x: x * np.random.rand(), nn.Dropout(0.5)],
)
def test_random_numbers_in_forward_are_found(fn):
    found = check_function(fn, torch.ones(10, dtype=torch.float64, requires_grad=True))
    assert found.verdict == "non-deterministic"
    assert "it draws random numbers" in found.text


def test_a_state_between_runs_is_found():
    runs = []

    def count(x):
        runs.append(1)
        return x * len(runs)

    found = check_function(count, real(1.0))
    assert found.verdict == "non-deterministic"
    assert "keeps something between runs" in found.text


def test_random_numbers_in_backward_are_found():
    found = check_function(cube_with(lambda x, g: 3 * x**2 * g * torch.rand_like(g)).apply, real(1.0))
    assert found.verdict == "non-deterministic"
    assert "backward" in found.text


@pytest.mark.parametrize("cut", [torch.detach, lambda x: x.data, lambda x: torch.tensor(x.tolist(), dtype=x.dtype)])
def test_a_result_without_a_graph_is_told(cut):
    found = check_function(lambda x: cut(x) * 2, real(1.0, 2.0))
    assert found.verdict == "returns a result without a graph"
    assert "no gradient reaches `x`" in found.text


def test_an_integer_result_has_no_gradient():
    found = check_function(torch.argmax, real(1.0, 2.0))
    assert found.verdict == "returns a result without a graph"
    assert "int64" in found.text


def test_one_input_that_is_cut_off_is_named():
    found = check_function(lambda x, w: x * w.detach(), real(2.0), real(3.0))
    assert (found.verdict, found.argument) == ("returns a result without a graph", "w")


# How the Function is written


def test_a_missing_none_is_told_with_the_name_of_its_argument():
    found = check_function(Sign.apply, real(1.0, -2.0), True)
    assert found.verdict == "wrong number of gradients"
    assert found.text == (
        "Sign.forward takes 2 arguments (x, training) but backward returned 1 value: append None for `training`."
    )


def test_the_arguments_are_named_also_behind_a_lambda():
    found = check_function(lambda t: Sign.apply(t, True), real(1.0))
    assert "(x, training)" in found.text


def test_too_many_gradients_are_told():
    found = check_function(function("Two", lambda ctx, x: x * 2, lambda ctx, g: (g, g)).apply, real(1.0))
    assert found.verdict == "wrong number of gradients"
    assert "takes 1 argument (x) but backward returned 2 values: remove" in found.text


def test_a_missing_gradient_of_a_tensor_is_not_called_none():
    found = check_function(function("Mul", lambda ctx, x, w, n: x * w, lambda ctx, g: g).apply, real(1.0), real(2.0), 3)
    assert "append the gradient of `w` and None for `n`" in found.text


@pytest.mark.parametrize("backward", [lambda ctx, g: g[:2], lambda ctx, g: g.sum()])
def test_a_gradient_of_another_shape_is_told(backward):
    found = check_function(function("Double", lambda ctx, x: x * 2, backward).apply, real(1.0, 2.0, 3.0))
    assert found.verdict == "wrong shape of gradient"
    assert "for `x`, which has the shape (3,)" in found.text


@pytest.mark.parametrize(
    ("backward", "dtype"), [(lambda ctx, g: (2 * g).float(), "float32"), (lambda ctx, g: 2 * g + 0j, "complex128")]
)
def test_a_gradient_of_another_dtype_is_told(backward, dtype):
    found = check_function(function("Double", lambda ctx, x: x * 2, backward).apply, real(1.0))
    assert found.verdict == "gradient dtype"
    assert dtype in found.text


def test_none_for_an_input_that_needs_a_gradient_is_told():
    def forward(ctx, x, w):
        ctx.save_for_backward(w)
        return x * w

    found = check_function(
        function("Mul", forward, lambda ctx, g: (g * ctx.saved_tensors[0], None)).apply, *[real(3.0)] * 2
    )
    assert found.verdict == "returns None for an input that needs a gradient"
    assert "returns None for `w`" in found.text
    assert found.numerical == pytest.approx(3)


@pytest.mark.parametrize(
    ("backward", "words"),
    [
        (lambda ctx, g: 1 / 0, "raises ZeroDivisionError: division by zero"),
        (lambda ctx, g: g.view(7), "raises RuntimeError: shape '[7]' is invalid"),
        (lambda ctx, g: 2.0, "returns a float where a tensor or None is wanted"),
    ],
)
def test_an_error_in_backward_is_told_in_a_sentence(backward, words):
    found = check_function(function("Double", lambda ctx, x: x * 2, backward).apply, real(1.0))
    assert found.verdict == "backward raises"
    assert words in found.text


def test_an_output_that_is_not_used_gives_backward_none():
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    found = check_function(function("Two", forward, lambda ctx, a, b: 2 * a + 3 * b).apply, real(1.0))
    assert found.verdict == "backward raises"
    assert "when only output 0 is used" in found.text


def test_a_function_without_a_backward_is_told():
    bare = type("Bare", (Function,), {"forward": staticmethod(lambda ctx, x: x * 2)})
    assert check_function(bare.apply, real(1.0)).text == "`Bare` has no backward."


def test_an_error_beside_the_inputs_is_told_in_a_sentence():
    def positive(x):
        if x.min() < 1:
            raise ValueError("x must be at least 1")
        return x * 2

    found = check_function(positive, real(1.0, 2.0))
    assert found.verdict == "forward raises"
    assert "a small step beside the inputs" in found.text
    assert "ValueError: x must be at least 1" in found.text
    assert check_function(positive, real(1.5, 2.0)).verdict == "passes"


def test_an_error_in_forward_is_part_of_the_answer():
    found = check_function(lambda x: x.view(7), real(1.0))
    assert found.verdict == "forward raises"
    assert "RuntimeError" in found.text


@pytest.mark.parametrize("fn", [Repeat.apply, Repeat, lambda x, mark: Repeat.apply(x, mark)])
def test_mark_dirty_on_an_output_is_told_with_its_name(fn):
    found = check_function(fn, real(1.0, 2.0), True)
    assert found.verdict == "mark_dirty on a non-input"
    assert found.text == (
        "ctx.mark_dirty received `out`, which is not an input of `Repeat`: remove the call (nothing was modified in "
        "place)."
    )
    assert check_function(Repeat.apply, real(1.0, 2.0), False).verdict == "passes"


def test_mark_dirty_that_torch_only_warns_of_is_told_too():
    def forward(ctx, x):
        result = x * 2
        ctx.mark_dirty(result)
        return result

    found = check_function(function("Double", forward, lambda ctx, g: 2 * g).apply, real(1.0))
    assert found.verdict == "mark_dirty on a non-input"
    assert "`result`" in found.text


def test_mark_dirty_is_told_without_the_source():
    names: dict = {}
    exec(
        "def forward(ctx, x):\n    out = x.repeat_interleave(2)\n    ctx.mark_dirty(out)\n    return out\n",
        names,
    )
    found = check_function(function("Hidden", names["forward"], lambda ctx, g: g).apply, real(1.0))
    assert found.text.startswith("ctx.mark_dirty received a tensor, which is not an input of `Hidden`")


def test_a_missing_mark_dirty_is_told_with_the_version():
    found = check_function(function("Double", lambda ctx, x: x.mul_(2), lambda ctx, g: 2 * g).apply, real(3.0))
    assert (found.verdict, found.argument) == ("missing mark_dirty", "x")
    assert "3 → 6, version 0 → 1" in found.text


def test_an_input_marked_dirty_must_be_returned():
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2) + 0

    found = check_function(function("Double", forward, lambda ctx, g: 2 * g).apply, real(3.0))
    assert found.verdict == "missing mark_dirty"
    assert "does not return `x`" in found.text


def test_a_right_in_place_function_passes():
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    assert check_function(function("Double", forward, lambda ctx, g: 2 * g).apply, real(3.0)).verdict == "passes"


# Second derivatives


def keeping(**kept) -> Function:
    """A cube that keeps the results of functions of x on ctx, with backward 3 · kept² · g."""
    ((name, make),) = kept.items()

    def forward(ctx, x):
        setattr(ctx, name, make(x))
        return x**3

    return function("Cube", forward, lambda ctx, g: 3 * getattr(ctx, name) ** 2 * g)


@pytest.mark.parametrize("make", [torch.detach, lambda x: x.data, lambda x: x.clone()])
def test_a_detached_save_loses_the_second_derivative(make):
    found = check_function(keeping(x=make).apply, real(1.0, 2.0))
    assert found.verdict == "second derivative lost"
    assert (found.analytical, found.numerical) == (0, pytest.approx(6))
    assert ": `ctx.x` carries no graph" in found.text


def test_a_saved_intermediate_loses_a_part_of_the_second_derivative():
    def forward(ctx, x):
        exp = x.exp()
        ctx.save_for_backward(x, exp)
        return x * exp

    lossy = function("XExp", forward, lambda ctx, g: (1 + ctx.saved_tensors[0]) * ctx.saved_tensors[1] * g)
    found = check_function(lossy.apply, real(1.0))
    assert found.verdict == "second derivative lost"
    assert found.numerical == pytest.approx(3 * np.e, rel=1e-4)
    assert found.analytical == pytest.approx(np.e)
    assert "`ctx.saved_tensors[1]` is neither an input nor an output" in found.text


def test_a_constant_that_is_kept_is_not_blamed_for_a_lost_second_derivative():
    def forward(ctx, x, w):
        exp = x.exp()
        ctx.save_for_backward(exp, w)
        return w * exp

    lossy = function("Scaled", forward, lambda ctx, g: (ctx.saved_tensors[0] * ctx.saved_tensors[1] * g, None))
    found = check_function(lossy.apply, real(1.0), torch.tensor([3.0], dtype=torch.float64))
    assert found.verdict == "second derivative lost"
    assert "`ctx.saved_tensors[1]`" not in found.text


@pytest.mark.parametrize(
    "use", [lambda g: g.data, lambda g: g.detach(), lambda g: torch.from_numpy(g.detach().numpy())]
)
def test_a_detached_incoming_gradient_loses_the_second_derivative(use):
    found = check_function(cube_with(lambda x, g: 3 * x**2 * use(g)).apply, real(1.0))
    assert found.verdict == "second derivative lost"
    assert found.argument == "the incoming gradient"
    assert found.numerical == pytest.approx(3)


def test_once_differentiable_is_told_as_such():
    once = function("Once", cubed, once_differentiable(lambda ctx, g: 3 * ctx.saved_tensors[0] ** 2 * g))
    for fn in (once.apply, lambda x: once.apply(x) * 2):
        found = check_function(fn, real(1.0))
        assert found.verdict == "second derivative lost"
        assert "is marked once_differentiable" in found.text


def test_an_operator_without_a_second_derivative_is_told():
    def margin(x):
        return torch.nn.functional.multi_margin_loss(x, torch.tensor([0, 1]))

    found = check_function(margin, real(0.1, 0.4, 0.9, 0.3, 0.2, 0.7).view(2, 3))
    assert found.verdict == "second derivative lost"
    assert "raises RuntimeError" in found.text


def test_a_linear_function_has_no_second_derivative_to_lose():
    assert (
        check_function(function("Double", lambda ctx, x: x * 2, lambda ctx, g: 2 * g).apply, real(1.0)).verdict
        == "passes"
    )


# Saves that autograd does not check


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.x * g


def test_an_input_on_ctx_is_found_by_changing_it():
    found = check_function(Square.apply, real(3.0))
    assert found.verdict == "unchecked save"
    assert found.text == (
        "Square reads its input `x` from `ctx.x`, which autograd does not check: after an in-place change of `x` "
        "(version 0 → 1) the gradient is 206 where 6 is right."
    )
    assert "save_for_backward" in found.remedy


@pytest.mark.parametrize("keep", [lambda x: [x], lambda x: {"it": x}, lambda x: (1, x)])
def test_an_input_in_a_container_on_ctx_is_found(keep):
    def forward(ctx, x):
        ctx.kept = keep(x)
        return x * x

    def backward(ctx, g):
        held = list(ctx.kept.values()) if isinstance(ctx.kept, dict) else list(ctx.kept)
        return 2 * held[-1] * g

    found = check_function(function("Square", forward, backward).apply, real(3.0))
    assert found.verdict == "unchecked save"
    assert found.facts["attribute"] == "kept"


def test_a_constant_tensor_on_ctx_is_found_too():
    def forward(ctx, x, w):
        ctx.w = w
        return x * w

    scale = function("Scale", forward, lambda ctx, g: (g * ctx.w, None))
    found = check_function(scale.apply, real(2.0), torch.tensor([3.0], dtype=torch.float64))
    assert (found.verdict, found.argument) == ("unchecked save", "w")
    assert "the gradient is 103 where 3 is right" in found.text


def test_an_output_on_ctx_is_unchecked_and_keeps_itself_alive():
    def forward(ctx, x):
        ctx.out = x.exp()
        return ctx.out

    found = check_function(function("Exp", forward, lambda ctx, g: ctx.out * g).apply, real(0.0))
    assert found.verdict == "unchecked save"
    assert "the gradient is 101 where 1 is right" in found.text
    assert found.facts["cycle"]


@pytest.mark.parametrize("fn", [Cube.apply, torch.exp, lambda x: x.view(-1) * x, MyReLU.apply])
def test_saves_that_torch_checks_are_no_fault(fn):
    assert check_function(fn, real(1.0, 2.0)).verdict == "passes"


# What is refused


def two(x):
    return x * 2


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((two,), "needs the inputs too"),
        ((3, real(1.0)), "and 3 came"),
        ((nn.Linear, real(1.0)), "a class came"),
        ((two, torch.ones(2)), r"call requires_grad_\(\) on x first"),
        ((two, torch.ones(2, dtype=torch.int32)), "x is int32"),
        ((two, torch.ones(0, requires_grad=True)), "it is empty"),
        ((two, "text"), "no input is a tensor: 'text' came"),
        ((lambda x: x[0], [real(1.0)]), "arguments of their own"),
        ((lambda x: 3.0, real(1.0)), "returned no tensor"),
        ((lambda x: None, real(1.0)), "returned no tensor"),
        ((two, torch.eye(2).to_sparse().requires_grad_()), "dense tensors"),
        ((two, torch.ones(2, device="meta", requires_grad=True)), "meta tensor"),
    ],
)
def test_wrong_input_gets_one_sentence(args, words):
    with pytest.raises(HelperError, match=words) as raised:
        check_function(*args)
    assert "\n" not in str(raised.value)


# What stays as it was


@pytest.mark.parametrize("fn", [Cube.apply, Square.apply, MyReLU.apply, lambda x: F.dropout(x.mul_(2)), torch.square])
def test_nothing_of_the_reader_s_is_changed(fn):
    x = real(1.0, 2.0)
    x.grad = torch.tensor([7.0, 8.0], dtype=torch.float64)
    version, grad = x._version, x.grad
    seeds = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    check_function(fn, x)
    assert x.tolist() == [1, 2]
    assert x._version == version
    assert x.grad is grad
    assert grad.tolist() == [7, 8]
    assert x.requires_grad
    assert torch.equal(torch.get_rng_state(), seeds[0])
    assert random.getstate() == seeds[1]
    assert (np.random.get_state()[1] == seeds[2]).all()


def test_the_check_is_quiet(capsys):
    def loud(x):
        print("a line")
        warnings.warn("a warning", stacklevel=1)
        return x * 2

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_function(loud, real(1.0)).verdict == "passes"
        assert check_function(torch.square, real(1.0, dtype=torch.float32)).verdict == "float32"
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_caller_s_grad_mode_does_not_matter(mode):
    x = real(1.0, 2.0)
    with mode():
        assert check_function(Cube.apply, x).verdict == "passes"


def test_a_slow_function_does_not_hang():
    x = torch.ones(1500, dtype=torch.float64, requires_grad=True)
    start = time.perf_counter()

    def slow(x):
        time.sleep(0.02)
        return x * 2

    found = check_function(slow, x)
    assert found.verdict == "passes"
    assert not found.complete
    assert time.perf_counter() - start < 30


def test_the_finding_reads_as_a_sentence_with_a_remedy():
    found = check_function(Square.apply, real(3.0))
    assert str(found) == f"{found.text}\n→ {found.remedy}"
    assert found.text.endswith(".")


# Properties


def polynomial(coefficients: list[int], scale: float = 1.0) -> type[Function]:
    """The Function c0 + c1 x + c2 x² + …, with its derivative times `scale` as backward."""

    def value(x, shift):
        powers = range(len(coefficients) - shift)
        return sum(((k + 1) if shift else 1) * coefficients[k + shift] * x**k for k in powers) + 0 * x

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return value(x, 0)

    return function("Polynomial", forward, lambda ctx, g: scale * value(ctx.saved_tensors[0], 1) * g)


COEFFICIENTS = st.lists(st.integers(-4, 4), min_size=2, max_size=5)
POINTS = st.lists(st.integers(-8, 8).map(lambda n: n / 4), min_size=1, max_size=4)
PROPERTY = settings(settings.get_profile("model"), max_examples=60)


@PROPERTY
@given(COEFFICIENTS, POINTS)
def test_every_right_polynomial_passes(coefficients, points):
    found = check_function(polynomial(coefficients).apply, real(*points))
    assert found.verdict == "passes", found.text


@PROPERTY
@given(COEFFICIENTS, POINTS, st.sampled_from([-1.0, 0.0, 0.5, 1.1, 2.0, 10.0]))
def test_every_scaled_derivative_is_a_wrong_formula(coefficients, points, scale):
    slopes = [sum(k * c * x ** (k - 1) for k, c in enumerate(coefficients) if k) for x in points]
    if all(abs(s) < 0.01 for s in slopes):
        return  # nothing to scale
    found = check_function(polynomial(coefficients, scale).apply, real(*points))
    assert found.verdict == "wrong formula", found.text
    at = found.element[0]
    assert found.numerical == pytest.approx(slopes[at], abs=1e-5, rel=1e-4)
    assert found.analytical == pytest.approx(scale * slopes[at], abs=1e-9)
