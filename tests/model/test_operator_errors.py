"""`explain_error` on operators of your own: kernels, fake kernels, derivatives and rules that do not fit."""

from __future__ import annotations

import re

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode  # a supported name with a private path
from torch.library import Library

from helpers import explain_dispatch, explain_error
from helpers.model.finding import HelperError
from tests.model.registering import doubled, healthy, known, operators


def itself(x: torch.Tensor) -> torch.Tensor:
    return x


def copied(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def test_a_custom_operator_returns_memory_of_its_own(custom):
    bad, good = custom(itself), custom(copied)
    finding = known(lambda: bad(torch.ones(2)))
    assert "returned one of its inputs, a view of one, or one tensor twice" in finding.text
    healthy(lambda: good(torch.ones(2)))


def test_a_custom_operator_without_a_derivative_raises_in_backward(custom):
    op = custom()
    x = torch.ones(2, requires_grad=True)
    name = op._qualname
    finding = known(lambda: op(x).sum().backward())
    assert f"came to {name}, a custom operator without a derivative" in finding.text
    assert f'register_autograd("{name}"' in finding.remedy
    torch.library.register_autograd(name, lambda ctx, g: g * 2)
    healthy(lambda: op(x).sum().backward())


def test_a_custom_operator_without_a_fake_kernel_has_no_shape(custom):
    op, meta = custom(), torch.ones(2, device="meta")
    finding = known(lambda: op(meta))
    assert f"{op._qualname} has no fake kernel" in finding.text
    torch.library.register_fake(op._qualname, lambda x: torch.empty_like(x))
    healthy(lambda: op(meta))


def test_the_same_is_said_of_an_operator_of_a_library(library):
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", doubled, "CPU")
    name = f"{library.ns}::f has no fake kernel"
    assert name in known(lambda: operators(library).f(torch.ones(2, device="meta"))).text

    def fake():
        with FakeTensorMode() as mode:
            return operators(library).f(mode.from_tensor(torch.ones(2)))

    assert name in known(fake).text
    torch.library.register_fake(f"{library.ns}::f", lambda x: torch.empty_like(x), lib=library)
    assert explain_error(fake).error == ""


# Kernels and derivatives that do not fit


@pytest.mark.parametrize(
    ("schema", "kernel", "said"),
    [
        ("f(Tensor x) -> Tensor", lambda x: 3, "the kernel returned 3, and its schema promises a Tensor"),
        ("f(Tensor x) -> Tensor", lambda x: x.numpy(), "the kernel returned [1. 1.], and"),
        ("f(Tensor x) -> (Tensor, Tensor)", lambda x: x * 1, "returned one Tensor, and its schema promises several"),
        ("f(Tensor x) -> ()", lambda x: x * 1, "promises no result, -> (), and its kernel returned one"),
        ("f(Tensor x) -> Tensor", lambda x, n: x * 1, "called a kernel (<lambda>) that got 1 too few"),
        ("f(Tensor x) -> Tensor", lambda: 1, "called a kernel (<lambda>) that takes 0 and torch gave it 1"),
    ],
)
def test_a_kernel_that_does_not_fit_its_schema(library, schema, kernel, said):
    library.define(schema)
    library.impl("f", kernel, "CPU")
    finding = explain_error(lambda: operators(library).f(torch.ones(2)))
    assert finding.known, finding
    assert said in finding.text
    assert finding.text == explain_dispatch(lambda: operators(library).f(torch.ones(2))).text


def test_keyword_arguments_have_the_names_of_the_schema(library):
    library.define("f(Tensor x, *, int n) -> Tensor")
    library.impl("f", lambda x, m: x * m, "CPU")
    assert (
        "without an argument named n, as its schema calls it"
        in known(lambda: operators(library).f(torch.ones(2), n=2)).text
    )
    library.define("g(Tensor x, *, int n) -> Tensor")
    library.impl("g", lambda x, n: x * n, "CPU")
    healthy(lambda: operators(library).g(torch.ones(2), n=2))


@pytest.mark.parametrize(
    ("backward", "setup", "said"),
    [
        (lambda g: g, None, r"called a backward \(<lambda>\) that takes 1 and torch gave it 2"),
        (
            lambda ctx, g: (g, g),
            None,
            "returned (a gradient as value 2|2 values)",
        ),
        (
            lambda ctx, g: g,
            lambda ctx, x: None,
            r"called a setup_context \(<lambda>\) without an argument named inputs",
        ),
    ],
)
def test_a_derivative_that_does_not_fit_its_operator(custom, backward, setup, said):
    op, x = custom(), torch.ones(2, requires_grad=True)
    torch.library.register_autograd(op._qualname, backward, setup_context=setup)
    assert re.search(said, known(lambda: op(x).sum().backward()).text)


def scaled(x: torch.Tensor, s: float) -> torch.Tensor:
    return x * s


def first_times(xs: list[torch.Tensor], y: torch.Tensor) -> torch.Tensor:
    return xs[0] * y


def test_a_wrong_number_of_gradients_names_the_operator_and_counts_as_the_reader_does(custom):
    op, x = custom(scaled), torch.ones(2, requires_grad=True)
    name = op._qualname

    def call():
        op(x, 2.0).sum().backward()

    for wrong in (lambda ctx, g: g, lambda ctx, g: [g * 2, None]):
        op.register_autograd(wrong)
        finding = known(call)
        assert f"{name} takes 2 arguments (x and s), and the backward that was registered" in finding.text
        assert "returned 1 value; a list counts as one value" in finding.text
        assert "Return a tuple of 2" in finding.remedy
        assert "None for `s`" in finding.remedy
    op.register_autograd(lambda ctx, g: (torch.ones(3), None))
    assert f"registered for {name} returned a gradient of shape (3) for `x`, whose shape is (2)" in known(call).text
    op.register_autograd(lambda ctx, g: (g * 2, None))
    healthy(call)


def test_a_list_of_tensors_gets_a_list_of_gradients(custom):
    op, x, y = custom(first_times), torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)

    def call():
        op([x], y).sum().backward()

    op.register_autograd(lambda ctx, g: (g, g))
    finding = known(call)
    assert f"registered for {op._qualname} returned another structure than the operator takes: `xs` is" in finding.text
    op.register_autograd(lambda ctx, g: ([g], torch.ones(3)))
    assert "a gradient of shape (3) for tensor 1 (those in lists are counted)" in known(call).text
    op.register_autograd(lambda ctx, g: ([g], g))
    healthy(call)


def test_a_function_of_yours_that_is_called_wrongly_is_no_kernel():
    finding = explain_error(lambda: doubled(torch.ones(2), 3))
    assert not finding.known
    assert "in plain Python" in finding.text


def writes(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x.clone()


@pytest.mark.filterwarnings("ignore:Dynamo")
def test_a_compiled_function_that_can_not_be_watched_is_not_accused():
    compiled = torch.compile(doubled, fullgraph=True, backend="eager")
    finding = explain_error(compiled, torch.ones(2))
    assert finding.error == "Unsupported"
    assert "the compiler met the code that watches the run" in finding.text
    assert "says nothing about the function" in finding.text
    assert "without this tool" in finding.remedy
    assert compiled(torch.ones(2)).tolist() == [2, 2]  # the remedy: nothing is raised
    assert explain_error(torch.compile(doubled, backend="eager"), torch.ones(2)).error == ""


def test_a_compiled_function_that_fails_alone_is_explained_from_its_exception():
    def prints(x):
        print(x)
        return x * 2

    with pytest.raises(RuntimeError) as raised:
        torch.compile(prints, fullgraph=True, backend="eager")(torch.ones(2))
    finding = explain_error(raised.value)
    assert finding.error == "Unsupported"
    assert "watches the run" not in finding.text


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (lambda x, d: (x, 0), r"called a rule for vmap \(<lambda>\) that takes 2 and torch gave it 3: info, in_dims"),
        (lambda info, dims, x: x * 2, r"the rule for vmap returned a Tensor, and a pair \(result, out_dim\) is wanted"),
        (lambda info, dims, x: None, "the rule for vmap returned None, and a pair"),
        (lambda info, dims, x: (x, 0, 1), "the rule for vmap returned 3 values, and a pair"),
        (lambda info, dims, x: (x * 2, 5), "returned 5 as out_dim, and the result has the dimensions 0 to 1: a pair"),
        (lambda info, dims, x: (x * 2, "a"), "the rule for vmap returned a str as out_dim"),
        (lambda info, dims, x: (x * 2, (0,)), r"the rule for vmap returned \(0,\) as out_dim, which does not fit"),
    ],
)
def test_a_rule_for_vmap_gets_three_arguments_and_returns_a_pair(custom, rule, said):
    op = custom()
    op.register_vmap(rule)
    finding = known(lambda: torch.vmap(op)(torch.ones(3, 2)))
    assert re.search(said, finding.text)
    assert "def rule(info, in_dims, *args)" in finding.remedy
    op.register_vmap(lambda info, in_dims, *args: (doubled(*args), 0))
    healthy(lambda: torch.vmap(op)(torch.ones(3, 2)))


def test_a_dimension_that_is_not_there_is_no_fault_of_a_rule():
    finding = known(lambda: torch.vmap(lambda t: t.sum(5))(torch.ones(3, 2)))
    assert "rule" not in finding.text


def test_a_kernel_that_returns_none_for_a_tensor_is_named(library, custom):
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", lambda x: None, "CPU")
    library.define("pair(Tensor x) -> (Tensor, Tensor)")
    library.impl("pair", lambda x: (x * 2, None), "CPU")
    forgets = custom(lambda x: None, schema="(Tensor x) -> Tensor")
    f, pair, x = operators(library).f, operators(library).pair, torch.ones(2)
    for broken, name in [
        (lambda: f(x) + 1, f"{library.ns}::f"),
        (lambda: torch.sin(f.default(x)), f"{library.ns}::f"),
        (lambda: f(x).backward(), f"{library.ns}::f"),
        (lambda: pair(x)[1].sum(), f"{library.ns}::pair"),
        (lambda: forgets(x).sum(), forgets._qualname),
        (lambda: f(x), f"{library.ns}::f"),
    ]:
        finding = explain_error(broken)
        assert f"the kernel of {name} returned None where its schema promises a Tensor" in finding.text
        assert f"the kernel of {name} returned None" in explain_dispatch(broken).text
        assert "End the kernel with return" in finding.remedy
    assert explain_dispatch(lambda: f(x)).cause == "None for a tensor"
    library.define("mended(Tensor x) -> Tensor")
    library.impl("mended", doubled, "CPU")
    healthy(lambda: operators(library).mended(x) + 1)


def test_a_none_that_the_schema_allows_is_not_accused(library):
    library.define("maybe(Tensor x) -> Tensor?")
    library.impl("maybe", lambda x: None, "CPU")
    library.define("nothing(Tensor x) -> ()")
    library.impl("nothing", lambda x: None, "CPU")
    x = torch.ones(2)
    healthy(lambda: (operators(library).maybe(x), operators(library).nothing(x)))
    finding = explain_error(lambda: operators(library).maybe(x) + 1)
    assert not finding.known
    assert finding.remedy == ""


@pytest.mark.filterwarnings("ignore:.*an autograd kernel was not registered")
def test_a_run_without_an_error_points_to_a_gradient_that_may_be_lost(library):
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", lambda x: x.detach() * 2, "CPU")
    w = torch.ones(2, requires_grad=True)

    def call():
        (operators(library).f(w) + w).sum().backward()

    finding = explain_error(call)
    assert finding.error == ""
    assert finding.text == f"`call` raised no error; {library.ns}::f has no derivative and left autograd."
    assert "explain_dispatch" in finding.remedy
    torch.library.register_autograd(f"{library.ns}::f", lambda ctx, g: g * 2, lib=library)  # the remedy of that
    assert explain_error(call).text == "`call` raised no error."


def test_an_operator_that_calls_itself_is_named(library, custom):
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", lambda x: operators(library).f(x), "CPU")
    finding = known(lambda: operators(library).f(torch.ones(2)))
    assert f"the kernel of {library.ns}::f calls {library.ns}::f itself" in finding.text
    library.define("g(Tensor x) -> Tensor")
    library.impl("g", lambda x: x * 2, "CPU")
    healthy(lambda: operators(library).g(torch.ones(2)))

    def deeper(x):
        return deeper(x)

    library.define("h(Tensor x) -> Tensor")
    library.impl("h", deeper, "CPU")
    assert "the kernel of" not in explain_error(lambda: operators(library).h(torch.ones(2))).text


def test_a_fallback_that_comes_back_to_itself_is_named(made):
    made.append(Library("_", "IMPL"))
    made[0].fallback(lambda op, *args, **kwargs: op(*args, **kwargs), "PrivateUse3")

    def broken():
        with torch._C._IncludeDispatchKeyGuard(torch._C._dispatch_key_parse("PrivateUse3")):
            return torch.ones(2)

    assert "the fallback calls aten::fill_.Scalar with tensors of the same key" in known(broken).text
    made[0]._destroy()
    made.append(Library("_", "IMPL"))
    made[1].fallback(lambda op, *args, **kwargs: args[0], "PrivateUse3")  # an answer without another call
    healthy(broken)


def test_an_error_of_a_helper_inside_a_kernel_keeps_its_own_words(library):
    def kernel(x):
        raise HelperError("index 3 is out of range")

    library.define("f(Tensor x) -> Tensor")
    library.impl("f", kernel, "CPU")
    assert explain_error(lambda: operators(library).f(torch.ones(2))).text == (
        "Index 3 is out of range (line 2 of kernel())."
    )


def opcheck(op, *args):
    return torch.library.opcheck(op, args)


@pytest.mark.parametrize(
    ("kernel", "fake", "said"),
    [
        (lambda x: x[:1].clone(), torch.empty_like, "shape (2,), and the kernel returned shape (1,)"),
        (lambda x: x.double(), torch.empty_like, "dtype float32, and the kernel returned dtype float64"),
        (doubled, lambda x: torch.empty_like(x, device="meta"), "device meta, and the kernel returned device cpu"),
    ],
)
def test_a_fake_kernel_that_opcheck_refuses_is_told_with_both_results(library, kernel, fake, said):
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", kernel, "CPU")
    torch.library.register_fake(f"{library.ns}::f", fake, lib=library)
    finding = known(lambda: opcheck(operators(library).f.default, torch.ones(2)))
    assert f"the fake kernel of {library.ns}::f promises a result of {said}" in finding.text
    assert "OpCheckError" not in finding.text


def test_what_opcheck_finds_is_one_sentence(library):
    library.define("view(Tensor x) -> Tensor")
    library.impl("view", lambda x: x[:1], "CPU")
    library.impl("view", lambda x: x[:1], "Meta")
    text = known(lambda: opcheck(operators(library).view.default, torch.ones(2))).text
    assert text.endswith("the result shares memory with the argument `x`, and the schema does not say so.")
    library.define("mended(Tensor(a) x) -> Tensor(a)")
    library.impl("mended", lambda x: x.view(-1), "CompositeImplicitAutograd")
    healthy(lambda: opcheck(operators(library).mended.default, torch.ones(2)))
    library.define("inside(Tensor x) -> Tensor")
    library.impl("inside", doubled, "CPU")
    library.impl("inside", torch.empty_like, "Meta")
    w = torch.ones(2, requires_grad=True)
    assert "has no derivative at an Autograd key" in known(lambda: opcheck(operators(library).inside.default, w)).text
    library.define("bare(Tensor x) -> Tensor")
    library.impl("bare", doubled, "CPU")
    assert "has no fake kernel" in known(lambda: opcheck(operators(library).bare.default, torch.ones(2))).text


def test_a_write_that_the_schema_hides_is_found_by_opcheck(custom):
    op = custom(writes)
    op.register_fake(lambda x: torch.empty_like(x))
    text = explain_error(lambda: torch.library.opcheck(op, (torch.ones(2),))).text
    assert "the kernel writes into its argument `x`, and its schema does not say so" in text


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (lambda lib: lib.impl("f", 3, "CPU"), "was given an int as the kernel"),
        (lambda lib: lib.impl("g", doubled, "Meta"), "whose CompositeImplicitAutograd kernel already serves every key"),
        (
            lambda lib: torch.library.register_autograd(f"{lib.ns}::h", lambda ctx, g: g, lib=lib),
            "has a tensor among the arguments after *",
        ),
        (lambda lib: torch.library.register_fake("f", doubled), "the name f has no namespace"),
        (lambda lib: torch.ones(2, device="gpu"), "names the device gpu, which this torch does not know"),
    ],
)
def test_more_that_torch_library_refuses_is_known(library, program, said):
    library.define("f(Tensor x) -> Tensor")
    library.define("g(Tensor x) -> Tensor")
    library.impl("g", doubled, "CompositeImplicitAutograd")
    library.define("h(Tensor x, *, Tensor y) -> Tensor")
    assert said in known(lambda: program(library)).text
