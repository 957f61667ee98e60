"""`explain_dispatch`: why this kernel, why none, and which operator drops a gradient without an error."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from helpers import explain_dispatch, explain_error, explain_grad
from helpers.model.dispatch.trace import trace_dispatch
from helpers.model.finding import HelperError
from tests.model.dispatch_programs import PROGRAMS

pytestmark = pytest.mark.filterwarnings("ignore:.*an autograd kernel was not registered:UserWarning")
_numbers = itertools.count()


@pytest.fixture
def library():
    """A library in a namespace that no other test has; its registrations end with the test."""
    with torch.library._scoped_library(f"course_dispatch_{next(_numbers)}", "DEF") as lib:
        yield lib


def operators(library):
    return getattr(torch.ops, library.ns)


def tripled(x):
    return torch.from_numpy(x.detach().numpy() * 3)


def scale(library, kernel=tripled, key="CPU"):
    library.define("scale(Tensor x) -> Tensor")
    library.impl("scale", kernel, key)
    return operators(library).scale


def registered(library, operator, factor=3):
    """Follow the remedy: give the operator a derivative."""
    torch.library.register_autograd(f"{library.ns}::{operator}", lambda ctx, g: g * factor, lib=library)


# Why this kernel?


def test_a_plain_call_says_who_won_and_why_the_key_above_did_not():
    x = torch.ones(2, requires_grad=True)
    finding = explain_dispatch(lambda: x + x)
    assert finding.cause == "a kernel ran"
    assert (finding.operator, finding.path, finding.calls) == ("aten::add.Tensor", "AutogradCPU → CPU", 1)
    assert finding.text == (
        "In aten::add.Tensor, the tensor arguments have the keys AutocastCPU, AutogradCPU, ADInplaceOrView and CPU; "
        "AutogradCPU won, because AutocastCPU is left out by this thread. Its autograd kernel handed the call on to "
        "its kernel for CPU."
    )


def test_a_math_kernel_names_the_operators_that_it_is_made_of():
    finding = explain_dispatch(F.linear, torch.ones(2, 3), torch.ones(4, 3))
    assert "Its math kernel (CompositeImplicitAutograd: made of other operators) called aten::t and" in finding.text


def test_autocast_wins_where_it_is_on():
    x = torch.ones(2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        finding = explain_dispatch(lambda: x @ x)
    assert "AutocastCPU won, the highest of all" in finding.text
    assert "Its kernel for AutocastCPU called" in finding.text


def test_a_factory_says_that_no_tensor_chose_its_kernel_and_that_the_last_step_is_inferred():
    text = explain_dispatch(torch.empty, 2).text
    assert "got no tensor, so only the keys count that this thread adds: BackendSelect won" in text
    assert "its kernel for CPU (inferred from the result)" in text


def test_an_inference_tensor_has_no_autograd_key():
    with torch.inference_mode():
        x = torch.ones(2)
        text = explain_dispatch(x.sin).text
    assert "`self` has the keys AutocastCPU and CPU; CPU won" in text
    assert "BackendSelect is a fallthrough" in text


def test_of_several_calls_the_one_of_your_own_operator_is_explained(library):
    op = scale(library, lambda x: x * 3, "CompositeImplicitAutograd")
    finding = explain_dispatch(lambda: op(torch.ones(2).exp()) + 1)
    assert finding.operator == f"{library.ns}::scale"
    assert "called 4 operators itself, and this was number 3" in finding.text
    plain = explain_dispatch(lambda: torch.ones(2).exp() + 1)
    assert (plain.operator, plain.calls) == ("aten::exp", 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_the_dtype_changes_no_word(dtype):
    t = torch.ones(2, dtype=dtype)
    assert explain_dispatch(torch.mul, t, t).text == explain_dispatch(torch.mul, torch.ones(2), torch.ones(2)).text


def test_the_trace_is_the_one_that_trace_dispatch_gives():
    def fn():
        return F.linear(torch.ones(2, 3), torch.ones(4, 3)).sum()

    assert repr(explain_dispatch(fn).trace) == repr(trace_dispatch(fn))


def test_a_function_without_operators_says_so():
    finding = explain_dispatch(lambda: 3)
    assert finding.cause == "no operator"
    assert finding.text == "The lambda called no operator in this thread, so the dispatcher chose no kernel."


def test_an_error_that_is_not_of_torch_is_told_as_explain_error_tells_it():
    def broken():
        return {}["key"]

    finding = explain_dispatch(broken)
    assert (finding.cause, finding.error) == ("raised", "KeyError")
    assert finding.text == explain_error(broken).text


@pytest.mark.parametrize("value", [3, None, torch.ones(2), torch.nn.Linear, "add"])
def test_something_else_than_a_function_is_one_sentence(value):
    with pytest.raises(HelperError, match="explain_dispatch takes a function to run"):
        explain_dispatch(value)


def test_a_generator_has_run_nothing():
    def lines():
        yield torch.ones(2)

    with pytest.raises(HelperError, match="nothing of it has run"):
        explain_dispatch(lines)


def test_the_result_and_the_gradients_are_those_of_a_plain_run(library):
    op, seen = scale(library), []

    def fn():
        x = torch.ones(2, requires_grad=True)
        y = op(x) + x
        y.sum().backward()
        seen.append((y.detach(), x.grad))

    fn()
    explain_dispatch(fn)
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))


# A gradient that gets lost without an error


def test_a_kernel_that_leaves_autograd_is_named_with_what_the_gradient_lacks(library):
    op = scale(library)

    def broken():
        x = torch.ones(2, requires_grad=True)
        (op(x) + x).sum().backward()
        return x.grad

    finding = explain_dispatch(broken)
    assert finding.cause == "no Autograd kernel"
    assert finding.text == (
        f"{library.ns}::scale (line 3 of broken()) has a kernel for CPU and no Autograd kernel: autograd's fallback "
        "added a graph node that passes nothing, so `x.grad` lacks its contribution (1 instead of 4)."
    )
    assert finding.facts["kernels"] == ["CPU"]
    assert finding.facts["grad"] == {"x": [1.0, 1.0]}
    assert finding.facts["missing"]["x"] == pytest.approx([3.0, 3.0])
    assert "register_autograd" in finding.remedy
    registered(library, "scale")
    assert broken().tolist() == [4, 4]
    assert explain_dispatch(broken).cause == "a kernel ran"


def test_the_other_remedy_works_too(library):
    op = scale(library, lambda x: x * 3)

    def fine():
        x = torch.ones(2, requires_grad=True)
        (op(x) + x).sum().backward()
        return x.grad

    assert fine().tolist() == [4, 4]
    finding = explain_dispatch(fine)
    assert (finding.cause, finding.remedy) == ("a kernel ran", "")
    assert "The fallback of AutogradCPU" in finding.text


def test_every_input_and_the_gradient_that_arrived_count(library):
    library.define("times(Tensor x, Tensor y) -> (Tensor, Tensor)")
    library.impl("times", lambda x, y: (torch.from_numpy(x.detach().numpy() * y.detach().numpy()), x + y), "CPU")

    def broken():
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        y = torch.tensor([3.0, 4.0], requires_grad=True)
        product, total = operators(library).times(x, y)
        (2 * product + total).sum().backward()

    text = explain_dispatch(broken).text
    assert "`x.grad` lacks its contribution (1 instead of [7, 9])" in text
    assert "`y.grad` lacks its contribution (1 instead of [3, 5])" in text


def test_two_calls_on_one_leaf_are_added(library):
    op = scale(library)

    def broken():
        x = torch.ones(2, requires_grad=True)
        (op(x) + op(x) + x).sum().backward()

    text = explain_dispatch(broken).text
    assert "(called 2 times)" in text
    assert "(1 instead of 7)" in text


def test_the_only_way_to_a_leaf_leaves_none(library):
    op = scale(library)

    def broken():
        w = torch.ones(2, requires_grad=True)
        op(w).sum().backward()

    assert "`w.grad` lacks its contribution (None instead of 3)" in explain_dispatch(broken).text


def test_an_intermediate_result_is_called_by_its_name_or_by_the_argument(library):
    op = scale(library)

    def named():
        x = torch.ones(2, requires_grad=True)
        h = x * 2
        op(h).sum().backward()

    assert "the gradient of `h` lacks its contribution (3)" in explain_dispatch(named).text
    x = torch.ones(2, requires_grad=True)
    assert "the gradient of its argument `x` lacks its contribution (3)" in (
        explain_dispatch(lambda: op(x * 2).sum().backward()).text
    )


def test_two_results_of_one_name_are_not_added(library):
    op = scale(library)

    def broken():
        x = torch.ones(2, requires_grad=True)
        parts = []
        for factor in (1, 2):
            h = x * factor
            parts.append(op(h))
        sum(parts).sum().backward()

    text = explain_dispatch(broken).text
    assert text.endswith("so the gradient of `h` lacks its contribution (3).")


def test_gradients_that_are_returned_leave_the_grad_out_of_the_sentence(library):
    op = scale(library)
    x = torch.ones(2, requires_grad=True)
    text = explain_dispatch(lambda: torch.autograd.grad((op(x) + x).sum(), x)).text
    assert "the gradient of `x` lacks its contribution (3)" in text
    assert "x.grad" not in text


def test_in_a_loop_the_numbers_are_those_of_the_first_backward(library):
    op = scale(library)

    def broken():
        x = torch.ones(2, requires_grad=True)
        for _ in range(12):
            (op(x) + x).sum().backward()

    assert "(1 instead of 4)" in explain_dispatch(broken).text


def test_a_forward_alone_says_what_a_backward_will_lack(library):
    op = scale(library)
    x = torch.ones(2, requires_grad=True)
    text = explain_dispatch(lambda: op(x)).text
    assert "so backward will give `x` nothing from here (measured here, " in text
    assert "the derivative 3 by `x`)" in text


def test_one_kernel_for_all_backends_leaves_autograd_in_the_same_way(library):
    op = scale(library, lambda x: torch.from_numpy(x.detach().numpy() ** 2), "CompositeExplicitAutograd")
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    text = explain_dispatch(lambda: (op(x) + x).sum().backward()).text
    assert "has one kernel for all backends (CompositeExplicitAutograd) and no Autograd kernel" in text
    assert "(1 instead of [3, 5])" in text


def write_tripled(x):
    x.detach().numpy()[...] *= 3
    return x


def test_a_write_in_place_that_autograd_does_not_see(library):
    library.define("triple_(Tensor(a!) x) -> Tensor(a!)")
    library.impl("triple_", write_tripled, "CPU")
    x = torch.ones(2, requires_grad=True)
    finding = explain_dispatch(lambda: operators(library).triple_(x * 1).sum().backward())
    assert x.grad.tolist() == [1, 1]
    assert (
        "as if nothing had been written (measured here, what was written has the derivative 3, not 1)" in finding.text
    )
    op = scale(library)
    registered(library, "scale")  # the remedy: a new tensor, with a derivative
    x.grad = None
    assert explain_dispatch(lambda: op(x * 1).sum().backward()).cause == "a kernel ran"
    assert x.grad.tolist() == [3, 3]


def write_into(x, out):
    out.numpy()[...] = x.detach().numpy() * 3
    return out


def test_a_result_written_into_out_has_no_graph(library):
    library.define("triple.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
    library.impl("triple.out", write_into, "CPU")
    x = torch.ones(2, requires_grad=True)
    finding = explain_dispatch(lambda: operators(library).triple.out(x, out=torch.zeros(2)))
    assert "so what it wrote has no graph (measured here, " in finding.text


@pytest.mark.parametrize(
    "kernel",
    [
        lambda x: torch.from_numpy(x.detach().numpy() * np.random.rand(2).astype("float32")),
        lambda x: torch.from_numpy(np.abs(x.detach().numpy() - 1)),
        lambda x: torch.from_numpy(np.maximum(x.detach().numpy(), 1)),
        lambda x: torch.from_numpy(np.floor(x.detach().numpy())),
    ],
    ids=["random", "kink", "one-sided kink", "jump"],
)
def test_no_number_is_told_where_the_derivative_is_not_certain(library, kernel):
    op = scale(library, kernel)
    x = torch.ones(2, requires_grad=True)
    finding = explain_dispatch(lambda: (op(x) + x).sum().backward())
    assert finding.cause == "no Autograd kernel"
    assert finding.text.endswith("`x.grad` lacks its contribution.")


def test_a_kernel_for_one_dtype_alone_is_measured_in_it(library):
    def kernel(x):
        assert x.dtype == torch.float32
        return torch.from_numpy(np.sin(x.detach().numpy()))

    op = scale(library, kernel)
    x = torch.zeros(2, requires_grad=True)
    assert "(1 instead of 2)" in explain_dispatch(lambda: (op(x) + x).sum().backward()).text


def test_no_number_is_told_for_a_large_tensor_and_its_kernel_runs_once(library):
    calls = []
    op = scale(library, lambda x: calls.append(1) or tripled(x))
    x = torch.ones(1000, requires_grad=True)
    finding = explain_dispatch(lambda: (op(x) + x).sum().backward())
    assert not re.search(r"\d instead of", finding.text)
    assert len(calls) == 1


def test_what_a_kernel_prints_is_printed_once(library, capsys):
    op = scale(library, lambda x: print("kernel") or tripled(x))
    x = torch.ones(2, requires_grad=True)
    assert "lacks" in explain_dispatch(lambda: (op(x) + x).sum().backward()).text
    assert capsys.readouterr().out == "kernel\n"


def test_a_measured_kernel_leaves_the_random_numbers_alone(library):
    op = scale(library, lambda x: torch.from_numpy(x.detach().numpy()) + 0 * torch.rand(2))
    x = torch.ones(2, requires_grad=True)
    torch.manual_seed(0)
    op(x)
    after = torch.rand(1)
    torch.manual_seed(0)
    explain_dispatch(lambda: op(x))
    assert torch.equal(after, torch.rand(1))


# A gradient that gets lost without a graph, an error and a warning


def beside(op):
    """Return a program whose loss has a graph besides that of an operator."""

    def program():
        w = torch.ones(2, requires_grad=True)
        (op(w) + w).sum().backward()
        return w.grad

    return program


@pytest.mark.parametrize(
    ("key", "kernel"),
    [
        ("CompositeImplicitAutograd", "math kernel (registered without a key, which is CompositeImplicitAutograd)"),
        ("Autograd", "kernel for Autograd"),
        ("AutogradCPU", "kernel for AutogradCPU"),
    ],
)
def test_a_kernel_in_the_place_of_autograd_that_leaves_it_is_named_with_the_numbers(library, key, kernel):
    broken = beside(scale(library, key=key))
    assert broken().tolist() == [1, 1]
    finding = explain_dispatch(broken)
    assert finding.cause == "no Autograd kernel"
    assert finding.text == (
        f"{library.ns}::scale (line 3 of program()): its {kernel} left autograd, so its result has no graph and "
        "`w.grad` lacks its contribution (1 instead of 4)."
    )
    assert finding.facts["missing"]["w"] == pytest.approx([3.0, 3.0])
    assert 'lib.impl("scale", fn, "CPU")' in finding.remedy
    with torch.library._scoped_library(f"{library.ns}_mended", "FRAGMENT") as lib:
        mended = beside(scale(lib))
        registered(lib, "scale")
        assert mended().tolist() == [4, 4]
        assert not accused(mended)


def test_a_kernel_of_torch_operations_keeps_its_graph_at_every_key(library):
    assert not accused(beside(scale(library, lambda x: x * 3, "CompositeImplicitAutograd")))
    library.define("again(Tensor x) -> Tensor")
    library.impl("again", lambda x: x * 3, "Autograd")
    assert not accused(beside(operators(library).again))


def test_the_gradient_that_never_came_is_followed_through_later_calls(library):
    op = scale(library, key="CompositeImplicitAutograd")

    def broken():
        w, v = torch.ones(2, requires_grad=True), torch.full((2,), 5.0, requires_grad=True)
        later = (op(w) * 2).exp().log().view(1, 2)
        (F.linear(later, torch.eye(2)) * v + w).sum().backward()
        return v.grad, w.grad

    plain = broken()
    finding = explain_dispatch(broken)
    assert "`w.grad` lacks its contribution (1 instead of 31)" in finding.text
    assert all(torch.equal(a, b) for a, b in zip(broken(), plain, strict=True))


def test_two_ways_to_the_loss_bring_two_gradients(library):
    op = scale(library, key="CompositeImplicitAutograd")

    def broken():
        w = torch.ones(2, requires_grad=True)
        y = op(w)
        (y + w).sum().add((y * 10 + w).sum()).backward()

    assert "(2 instead of 35)" in explain_dispatch(broken).text


def test_an_operator_on_its_own_result_loses_the_gradient_too_and_no_number_is_told(library):
    op = scale(library, key="CompositeImplicitAutograd")

    def broken():
        w = torch.ones(2, requires_grad=True)
        (op(op(w)) + w).sum().backward()

    finding = explain_dispatch(broken)
    assert finding.text.endswith("its result has no graph and `w.grad` lacks its contribution.")
    assert finding.facts["missing"] == {}


def test_a_random_call_between_gives_the_reader_the_same_numbers(library):
    op, seen = scale(library, key="CompositeImplicitAutograd"), []

    def fn():
        torch.manual_seed(0)
        w = torch.ones(8, requires_grad=True)
        seen.append(F.dropout(op(w)) + w)
        seen[-1].sum().backward()

    fn()
    assert accused(fn)
    assert torch.equal(seen[0], seen[1])


def test_what_a_later_kernel_prints_is_printed_once(library, capsys):
    op = scale(library, key="CompositeImplicitAutograd")
    library.define("show(Tensor x) -> Tensor")
    library.impl("show", lambda x: (print("shown"), x * 1)[1], "CompositeImplicitAutograd")
    assert accused(lambda: operators(library).show(op(torch.ones(2, requires_grad=True))))
    assert capsys.readouterr().out == "shown\n"


def test_a_result_without_a_graph_that_no_loss_uses_is_not_accused(library):
    op = scale(library, key="CompositeImplicitAutograd")
    w = torch.ones(2, requires_grad=True)

    def logged():
        op(w).sum().item()
        (w * 2).sum().backward()

    def cut():
        (op(w).detach() * w).sum().backward()
        with torch.no_grad():
            op(w)

    assert not accused(logged)
    assert accused(lambda: (op(w) * w).sum().backward())
    assert not accused(lambda: op(torch.ones(2)))
    with torch.no_grad():
        assert not accused(lambda: op(w))
    assert not accused(cut)


def test_a_constant_result_has_no_derivative_to_lose(library):
    op = scale(library, torch.zeros_like, "CompositeImplicitAutograd")
    for size in (2, 100):
        w = torch.ones(size, requires_grad=True)
        assert not accused(lambda w=w: (op(w) + w).sum().backward())
    library.define("step(Tensor x) -> Tensor")
    library.impl("step", lambda x: x.detach().round(), "CompositeImplicitAutograd")
    w = torch.linspace(0, 30, 1000, requires_grad=True)
    assert not accused(lambda: (operators(library).step(w) + w).sum().backward())
    library.define("order(Tensor x) -> Tensor")
    library.impl("order", lambda x: x.detach().argsort(), "CompositeImplicitAutograd")
    assert not accused(lambda: (operators(library).order(w) + w).sum().backward())


def test_a_large_tensor_loses_its_gradient_too(library):
    op = scale(library, key="CompositeImplicitAutograd")

    def broken():
        w = torch.rand(100, requires_grad=True)
        (op(w) + w).sum().backward()

    assert explain_dispatch(broken).text.endswith("its result has no graph and `w.grad` lacks its contribution.")


def test_a_forward_alone_and_a_loss_without_a_graph_are_told(library):
    op = scale(library, key="CompositeImplicitAutograd")
    w = torch.ones(2, requires_grad=True)
    text = explain_dispatch(lambda: op(w)).text
    assert text.endswith("backward will give `w` nothing from here (measured here, the sum of its result has the "
                         "derivative 3 by `w`).")  # fmt: skip
    finding = explain_dispatch(lambda: op(w).sum().backward())
    assert finding.cause == "raised"
    assert "the graph ends at `op(w)`" in finding.text
    assert "register_autograd" in finding.remedy


# Healthy twins


def accused(fn) -> bool:
    return explain_dispatch(fn).cause == "no Autograd kernel"


def test_inputs_without_a_gradient_lose_none(library):
    op = scale(library)
    x = torch.ones(2, requires_grad=True)
    assert not accused(lambda: op(torch.ones(2)))
    assert not accused(lambda: op(x.detach()) + x)
    with torch.no_grad():
        assert not accused(lambda: op(x))


def test_a_result_of_whole_numbers_has_no_gradient_to_lose(library):
    op = scale(library, lambda x: torch.from_numpy(x.detach().numpy().argsort()))
    x = torch.ones(2, requires_grad=True)
    assert not accused(lambda: (op(x) + x).sum().backward())


def test_a_derivative_that_is_zero_is_not_missed(library):
    op = scale(library, lambda x: torch.from_numpy(np.sign(x.detach().numpy())))
    x = torch.ones(2, requires_grad=True)
    assert not accused(lambda: (op(x) + x).sum().backward())


def test_a_gradient_of_zero_that_is_not_passed_on_is_not_missed(library):
    op = scale(library)
    x = torch.ones(2, requires_grad=True)
    assert not accused(lambda: (0 * op(x) + x).sum().backward())


def test_a_number_for_the_log_beside_the_loss_is_not_accused(library):
    op = scale(library)

    def step():
        x = torch.ones(2, requires_grad=True)
        op(x)
        x.sum().backward()

    assert not accused(step)


def test_a_buffer_that_is_updated_needs_no_gradient(library):
    library.define("update(Tensor(a!) mean, Tensor x) -> ()")

    def update(mean, x):
        mean.numpy()[...] = 0.9 * mean.numpy() + 0.1 * x.detach().numpy()

    library.impl("update", update, "CPU")
    mean, x = torch.zeros(2), torch.ones(2, requires_grad=True)
    assert not accused(lambda: operators(library).update(mean, x))
    assert mean.tolist() == pytest.approx([0.1, 0.1])


def test_composite_kernels_and_fallthroughs_are_not_accused(library):
    op = scale(library, lambda x: x * 3, "CompositeImplicitAutograd")
    x = torch.ones(2, requires_grad=True)
    assert not accused(lambda: op(x).sum().backward())
    library.define("flat(Tensor x) -> Tensor")
    library.impl("flat", tripled, "CPU")
    library.impl("flat", torch.library.fallthrough_kernel, "Autograd")
    finding = explain_dispatch(lambda: operators(library).flat(x))
    assert finding.cause == "a kernel ran"
    assert "AutogradCPU on purpose: the operator is marked as one without a derivative" in finding.text


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_no_healthy_program_is_accused_and_none_is_traced_in_another_way(program):
    PROGRAMS[program]()  # what happens only once is over
    torch.manual_seed(0)
    finding = explain_dispatch(PROGRAMS[program])
    assert (finding.cause, finding.remedy) == ("a kernel ran", "")
    assert ",," not in finding.text
    torch.manual_seed(0)
    assert repr(finding.trace) == repr(trace_dispatch(PROGRAMS[program]))


def test_our_hooks_leave_the_graph_with_the_run(library):
    op, kept = scale(library), []

    def fn():
        x = torch.ones(2, requires_grad=True)
        kept.append(op(x) + x)

    finding = explain_dispatch(fn)
    before = str(finding)
    kept[0].sum().backward()
    assert str(finding) == before


def test_operators_of_torch_are_not_accused():
    net = torch.nn.Sequential(torch.nn.Conv1d(1, 2, 3), torch.nn.BatchNorm1d(2), torch.nn.Flatten(), torch.nn.ReLU())
    assert not accused(lambda: net(torch.ones(2, 1, 5)).sum().backward())


# explain_grad says the same


def test_explain_grad_names_the_node_that_passes_nothing(library):
    op = scale(library)
    x = torch.ones(2, requires_grad=True)
    for loss in ((op(x) + x).sum(), lambda: (op(x) + x).sum()):
        finding = explain_grad(x, loss)
        assert finding.cause == "no Autograd kernel"
        assert "autograd's fallback added a graph node that passes nothing" in finding.text
    assert "the operator in `op(x)`" in finding.text
    step = explain_grad(lambda: (op(x) + x).sum().backward())
    assert (step.cause, step.line) == ("no Autograd kernel", 1)
    registered(library, "scale")
    x.grad = None
    assert explain_grad(x, (op(x) + x).sum()).cause == "no backward yet"
    assert explain_grad(lambda: (op(x) + x).sum().backward()).cause == "right"


# Calls that fail: the same sentence from both tools


@pytest.mark.parametrize(
    "fn",
    [
        lambda: torch.ones(2).to_sparse().cumsum(0),
        lambda: torch.ones(2).int_repr(),
        lambda: torch.ones(2) @ torch.ones(3),
    ],
)
def test_a_failing_call_is_explained_as_explain_error_does(fn):
    finding, error = explain_dispatch(fn), explain_error(fn)
    assert (finding.cause, finding.text, finding.remedy) == ("raised", error.text, error.remedy)
    assert finding.error == error.error
    assert finding.trace.calls[-1].failed


def test_an_error_that_was_caught_is_mentioned():
    def careful():
        try:
            torch.ones(2).to_sparse().cumsum(0)
        except NotImplementedError:
            return torch.ones(2).cumsum(0)

    finding = explain_dispatch(careful)
    assert finding.cause == "a kernel ran"
    assert finding.text.endswith("A call of aten::cumsum raised, and `careful` caught the error.")


def test_an_interrupt_passes():
    def interrupted():
        torch.ones(2).sin()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explain_dispatch(interrupted)


def test_modules_and_operators_are_functions_too():
    x = torch.ones(2, 2)
    assert explain_dispatch(torch.nn.Linear(2, 2), x).operator == "aten::linear"
    assert explain_dispatch(torch.ops.aten.add.Tensor, x, x).operator == "aten::add.Tensor"


def test_the_operator_that_failed_innermost_is_named():
    finding = explain_dispatch(lambda: torch.ones(2) @ torch.ones(3))
    assert finding.operator == "aten::dot"
