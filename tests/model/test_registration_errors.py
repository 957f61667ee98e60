"""`explain_error` on the dispatcher and on registration: what is missing, what was given twice, what can't be read."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode  # a supported name with a private path
from torch.library import Library, custom_op

from helpers import explain_dispatch, explain_error, show_op
from helpers.model.dispatch.kernels import Table, from_plain, is_backend, tensors_of, to_plain
from helpers.model.finding import HelperError

_numbers = itertools.count()
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def library():
    """A library in a namespace that no other test has; its registrations end with the test."""
    with torch.library._scoped_library(f"course_errors_{next(_numbers)}", "FRAGMENT") as lib:
        yield lib


@pytest.fixture
def made():
    """A list for the libraries that a program makes; they are destroyed in the end."""
    libraries: list[Library] = []
    yield libraries
    for lib in libraries:
        if lib.m is not None:
            lib._destroy()


def operators(library):
    return getattr(torch.ops, library.ns)


def known(fn):
    """Return the finding of an error that must be known, the same from both tools and from the caught exception."""
    try:
        fn()
    except Exception as error:
        caught = explain_error(error)
    finding, dispatch = explain_error(fn), explain_dispatch(fn)
    assert finding.known, finding
    assert caught.known, caught
    assert (dispatch.text, dispatch.remedy) == (finding.text, finding.remedy)
    assert "\n" not in finding.text
    return finding


def healthy(fn):
    finding = explain_error(fn)
    assert finding.error == "", finding
    assert explain_dispatch(fn).cause == "a kernel ran"


# No kernel for a key


def test_a_missing_kernel_tells_real_kernels_from_the_many_keys_of_the_message(library):
    library.define("nms(Tensor boxes) -> Tensor")
    library.impl("nms", lambda boxes: boxes * 2, "CUDA")
    boxes = torch.ones(2)

    def call():
        return operators(library).nms(boxes)

    finding = known(call)
    assert (
        f"came to {library.ns}::nms with CPU tensors (`boxes`), so the dispatcher looked for the key CPU"
        in finding.text
    )
    assert f"{library.ns}::nms has a kernel for CUDA only (" in finding.text
    assert "keys in torch's message are fallbacks and layers such as Autograd)" in finding.text
    assert 'lib.impl("nms", fn, "CPU")' in finding.remedy
    library.impl("nms", lambda boxes: boxes * 2, "CPU")
    healthy(call)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    ("keys", "remedy"),
    [
        (["CUDA", "Meta"], "or move the tensors to CUDA."),
        (["CUDA", "XPU"], "or move the tensors to CUDA or XPU."),
        (["SparseCPU"], "or make sparse CPU tensors of them, t.to_sparse()."),
        (["Meta"], 'lib.impl("f", fn, "CPU").'),
    ],
)
def test_tensors_are_only_moved_to_devices_that_have_a_kernel(library, keys, remedy):
    library.define("f(Tensor x) -> Tensor")
    for key in keys:
        library.impl("f", doubled, key)
    finding = known(lambda: operators(library).f(torch.ones(2)))
    assert finding.remedy.endswith(remedy)
    assert "to Meta" not in finding.remedy


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_of_another_layout_are_converted_not_moved(library):
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", doubled, "CPU")
    nested = torch.nested.nested_tensor([torch.ones(2)])
    finding = known(lambda: operators(library).f(nested))
    assert "with nested CPU tensors (`nested`)" in finding.text
    assert 'lib.impl("f", fn, "NestedTensorCPU"), or convert the tensors, t.to_padded_tensor(0.0)' in finding.remedy
    healthy(lambda: operators(library).f(nested.to_padded_tensor(0.0)))
    sparse = torch.ones(2).to_sparse()
    assert "or convert the tensors, t.to_dense()" in known(lambda: operators(library).f(sparse)).remedy
    healthy(lambda: operators(library).f(sparse.to_dense()))


def test_a_custom_operator_for_another_device_gets_a_kernel_by_its_own_method(custom):
    op = custom(doubled, device_types="cuda")
    finding = known(lambda: op(torch.ones(2)))
    assert f'Register one: {op._qualname.partition("::")[2]}.register_kernel("cpu"), or move' in finding.remedy
    op.register_kernel("cpu")(doubled)
    healthy(lambda: op(torch.ones(2)))


def test_an_operator_without_any_kernel_is_said_to_have_none(library):
    library.define("f(Tensor x) -> Tensor")
    assert "has no kernel at all (all " in known(lambda: operators(library).f(torch.ones(2))).text


def test_an_operator_of_a_package_means_that_two_builds_do_not_match():
    with torch.library._scoped_library("torchaudio", "FRAGMENT") as lib:
        lib.define("course_only(Tensor x) -> Tensor")
        lib.impl("course_only", lambda x: x * 1, "CUDA")
        finding = known(lambda: torch.ops.torchaudio.course_only(torch.ones(2)))
    assert "the builds of torch and torchaudio do not match" in finding.text
    assert "Install torch and torchaudio together" in finding.remedy


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_a_layout_without_a_kernel_is_converted_first():
    sparse = torch.ones(2).to_sparse()
    finding = known(lambda: sparse.cumsum(0))
    assert "with sparse CPU tensors (`sparse`), so the dispatcher looked for the key SparseCPU" in finding.text
    assert "and none for SparseCPU" in finding.text
    assert finding.remedy.startswith("Convert first, t.to_dense()")
    healthy(lambda: sparse.to_dense().cumsum(0))
    compressed = torch.ones(2, 2).to_sparse_csr()
    assert "compressed sparse CPU tensors" in known(lambda: compressed.cumsum(0)).text


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:.*quantize_per_tensor")
def test_nested_and_quantized_tensors_have_conversions_of_their_own():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    finding = known(lambda: nested.cumsum(1))
    assert "nested CPU tensors" in finding.text
    assert "to_padded_tensor" in finding.remedy
    healthy(lambda: nested.to_padded_tensor(0.0).cumsum(1))
    finding = known(lambda: torch.ones(2).int_repr())
    assert "for QuantizedCPU" in finding.text
    assert "This operator is for quantized CPU tensors" in finding.remedy
    healthy(lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8).int_repr())


def test_the_table_of_a_message_is_the_one_of_the_dispatcher():
    with pytest.raises(NotImplementedError) as raised:
        torch.ones(2).to_sparse().cumsum(0)
    table = Table.read(str(raised.value))
    registered = [key for key in ("CPU", "CUDA", "Meta", "SparseCPU", "QuantizedCPU") if key in table.own]
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    assert registered == [key for key in ("CPU", "CUDA", "Meta", "SparseCPU") if has("aten::cumsum", key)]
    assert "VE" in table.shared
    assert not has("aten::cumsum", "VE")


def test_every_key_of_a_tensor_has_words():
    assert tensors_of("SparseCPU") == "sparse CPU tensors"
    assert tensors_of("Meta") == "meta tensors"
    assert (to_plain("CPU"), from_plain("CPU")) == ("", "")
    assert [is_backend(k) for k in ("CPU", "NestedTensorCPU", "AutogradCPU", "ADInplaceOrView")] == [
        True,
        True,
        False,
        False,
    ]


def test_a_call_without_tensors_reaches_no_backend(library):
    library.define("first(Tensor[] xs) -> Tensor")
    library.impl("first", lambda xs: xs[0] * 1, "CPU")
    library.define("ones(int n) -> Tensor")
    library.impl("ones", lambda n: torch.ones(n), "CPU")
    op = operators(library)
    assert "an empty list of tensors came" in known(lambda: op.first([])).text
    healthy(lambda: op.first([torch.ones(2)]))
    finding = known(lambda: op.ones(3))
    assert "no argument is a tensor" in finding.text
    assert 'lib.impl("ones", fn, "CompositeExplicitAutograd")' in finding.remedy
    library.impl("ones", lambda n: torch.ones(n), "CompositeExplicitAutograd")
    healthy(lambda: op.ones(3))


def test_none_for_a_tensor_is_said(library):
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", lambda x: x * 1, "CPU")
    assert "None came where a tensor was wanted" in explain_error(lambda: operators(library).f(None)).text


def test_a_device_that_this_build_lacks_is_named():
    error = AssertionError("Torch not compiled with CUDA enabled")  # raised only where a build lacks it
    assert "asks for a device of CUDA, and this build of torch was made without it" in explain_error(error).text


def test_tensors_on_two_devices_are_told_apart():
    x, y = torch.ones(2), torch.ones(2, device="meta")
    finding = explain_error(lambda: x + y)
    assert finding.known
    assert "got `x` on cpu and `y` on meta: tensors on meta have no values" in finding.text
    listed = explain_error(lambda: torch.cat([x, y]))
    assert "tensor 0 of `[x, y]` on cpu and tensor 1 of `[x, y]` on meta" in listed.text
    healthy(lambda: x + torch.ones_like(y, device="cpu"))
    assert "asks for the values of a tensor on meta" in known(lambda: y.cpu()).text


# Registered twice


def test_a_cell_that_is_run_twice_registers_its_namespace_twice(made):
    space = f"course_errors_{next(_numbers)}"

    def cell():
        made.append(Library(space, "DEF"))

    def broken():
        for _ in range(2):
            cell()

    finding = explain_error(broken)
    assert f'The namespace {space} already has a library of kind "DEF", registered at line ' in finding.text
    assert "of test_registration_errors.py" in finding.text
    assert "the same line ran again, as when a cell is run twice" in finding.text
    made[0]._destroy()
    made.clear()

    def destroyed_first():
        for _ in range(2):
            while made:
                made.pop()._destroy()
            cell()
        made[0].define("f(Tensor x) -> Tensor")
        made[0].impl("f", lambda x: x * 1, "CPU")
        return getattr(torch.ops, space).f(torch.ones(2))

    healthy(destroyed_first)

    def repeated():
        for _ in range(2):
            f = custom_op(f"{space}_again::f", mutates_args=())(doubled)
        return f(torch.ones(2))

    healthy(repeated)


def test_a_second_place_that_defines_the_namespace_is_no_repetition(made):
    space = f"course_errors_{next(_numbers)}"

    def broken():
        made.append(Library(space, "DEF"))
        made.append(Library(space, "DEF"))

    text = explain_error(broken).text
    assert "may have only one in a process" in text
    assert "the same line ran again" not in text
    made.append(Library(space, "FRAGMENT"))  # the remedy
    made[-1].define("g(Tensor x) -> Tensor")
    assert hasattr(getattr(torch.ops, space), "g")


def test_a_place_in_a_notebook_is_a_line_of_a_cell():
    message = (
        "Only a single TORCH_LIBRARY can be used to register the namespace mine; please put all of your definitions. "
        "Previous registration of TORCH_LIBRARY was registered at /tmp/ipykernel_12/345.py:7; latest registration was "
        "registered at /tmp/ipykernel_12/345.py:7"
    )
    text = explain_error(RuntimeError(message)).text
    assert "registered at line 7 of a cell" in text
    assert "ipykernel" not in text


def test_an_operator_is_defined_once(library):
    def broken():
        for _ in range(2):
            library.define("f(Tensor x) -> Tensor")

    finding = known(broken)
    assert f"{library.ns}::f is defined already, and an operator is defined once" in finding.text
    assert "f.other(…)" in finding.remedy
    library.define("f.other(Tensor x, int n) -> Tensor")  # the remedy


def test_the_remedy_of_a_second_definition_fits_what_was_called(library, custom):
    library.define("f(Tensor x) -> Tensor")
    finding = known(lambda: custom_op(f"{library.ns}::f", mutates_args=())(doubled))
    assert "custom_op replaces only what custom_op made" in finding.remedy
    healthy(lambda: custom_op(f"{library.ns}::other", mutates_args=())(doubled)(torch.ones(2)))
    finding = known(lambda: torch.library.define(f"{library.ns}::f", "(Tensor x) -> Tensor"))
    assert "_destroy() on" not in finding.remedy  # there is no object at hand
    assert "restart the kernel" in finding.remedy
    op = custom()
    finding = known(lambda: torch.library.define(op._qualname, "(Tensor x) -> Tensor"))
    assert "is defined already, by torch.library.custom_op, and" in finding.text
    assert "running its torch.library.custom_op anew" in finding.remedy
    healthy(lambda: custom_op(op._qualname, mutates_args=())(doubled)(torch.ones(2)))
    with torch.library._scoped_library("aten", "FRAGMENT") as lib:
        finding = known(lambda: lib.define("sin(Tensor self) -> Tensor"))
    assert "aten::sin is defined already, by torch itself" in finding.text
    assert "in a namespace of your own" in finding.remedy


def test_a_line_that_defined_an_operator_before_is_said(made):
    def broken():
        space = f"course_errors_{next(_numbers)}"
        for _ in range(2):
            made.append(Library(space, "FRAGMENT"))
            made[-1].define("f(Tensor x) -> Tensor")

    text = explain_error(broken).text
    assert re.search(r"by the library made at line \d+ of test_\w+\.py, now or when this line ran before, and", text)


def test_the_library_that_defined_an_operator_first_is_found(made):
    space = f"course_errors_{next(_numbers)}"

    def broken():
        made.append(Library(space, "FRAGMENT"))
        made[-1].define("f(Tensor x) -> Tensor")
        made.append(Library(space, "FRAGMENT"))
        made[-1].define("f(Tensor x) -> Tensor")

    text = explain_error(broken).text
    assert "by a library made at line " in text
    assert "of test_registration_errors.py, and" in text
    made[0]._destroy()  # the remedy
    made[1].define("f(Tensor x) -> Tensor")


def test_a_kernel_that_may_not_be_replaced(library):
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", lambda x: x * 1, "CPU")
    finding = known(lambda: library.impl("f", lambda x: x * 2, "CPU", allow_override=False))
    assert f"{library.ns}::f has a kernel for CPU from Python already" in finding.text


def test_a_key_has_one_fallback(made):
    def broken():
        for _ in range(2):
            made.append(Library("_", "IMPL"))
            made[-1].fallback(lambda op, *args, **kwargs: None, "PrivateUse3")

    text = explain_error(broken).text
    assert "the key PrivateUse3 has a fallback already, by a library made at line " in text
    made[0]._destroy()  # the remedy
    made.append(Library("_", "IMPL"))
    made[-1].fallback(lambda op, *args, **kwargs: None, "PrivateUse3")


def test_a_fallback_belongs_to_all_namespaces(library):
    finding = known(lambda: library.fallback(lambda op: None, "PrivateUse3"))
    assert "a fallback serves the operators of all namespaces" in finding.text


# Operators that are not there


def test_a_library_that_died_took_its_operators_along():
    space = f"course_errors_{next(_numbers)}"

    def forgotten():
        lib = Library(space, "DEF")
        lib.define("f(Tensor x) -> Tensor")
        lib.impl("f", lambda x: x * 1, "CPU")

    forgotten()
    finding = known(lambda: getattr(torch.ops, space).f(torch.ones(2)))
    assert f"no operator is registered in the namespace {space} now" in finding.text
    assert "keep the Library object" in finding.remedy


def test_a_misspelt_operator_gets_a_near_name(library):
    library.define("scale(Tensor x) -> Tensor")
    finding = known(lambda: operators(library).scael(torch.ones(2)))
    assert "has no operator scael now; it has `scale`" in finding.text
    assert finding.remedy == f"Did you mean torch.ops.{library.ns}.scale?"


def test_a_name_without_its_last_letter_comes_first():
    assert known(lambda: torch.ops.aten.ad).remedy == "Did you mean torch.ops.aten.add?"
    assert "near names: add, " in explain_error(lambda: show_op("ad")).text


def test_a_kernel_without_a_definition_is_found(library):
    library.impl("f", lambda x: x * 1, "CPU")
    finding = known(lambda: operators(library).f(torch.ones(2)))
    assert "has a kernel for CPU and was never defined" in finding.text
    library.define("f(Tensor x) -> Tensor")
    healthy(lambda: operators(library).f(torch.ones(2)))


def test_an_overload_that_is_not_there_is_told_with_those_that_are(library):
    library.define("f(Tensor x) -> Tensor")
    assert f"{library.ns}::f has no overload out; it has `default`" in known(lambda: operators(library).f.out).text


# Calls that do not fit the schema


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda op: op(torch.ones(2)), "leaves out the argument n of"),
        (lambda op: op(torch.ones(2), 1, 2.0), "gives 3 arguments, and"),
        (lambda op: op(torch.ones(2), 1, b=3), "gives an argument b, and"),
        (lambda op: op(torch.ones(2), 1.5), "gives `1.5` of type float as `n`, and the schema wants int"),
        (lambda op: op(np.ones(2), 1), "gives `np.ones(2)` of type ndarray as `x`, and the schema wants Tensor"),
    ],
)
def test_a_call_that_does_not_fit_its_schema(library, call, said):
    library.define("f(Tensor x, int n, *, float a=1.0) -> Tensor")
    library.impl("f", lambda x, n, a=1.0: x * n * a, "CPU")
    finding = explain_error(lambda: call(operators(library).f))
    assert finding.known
    assert said in finding.text
    healthy(lambda: operators(library).f(torch.ones(2), 1, a=2.0))


def test_a_call_that_fits_no_overload_counts_them():
    finding = explain_error(lambda: torch.ops.aten.relu(torch.ones(2), "a", 3))
    assert finding.known
    assert "overloads of aten::relu takes these types (a tensor, str, int)" in finding.text or "gives 3" in finding.text


# Schemas


@pytest.mark.parametrize(
    ("schema", "said", "remedy"),
    [
        ("f(Tensor x)", "it has no -> with what the operator returns", ""),
        ("f(Tensor x -> Tensor", "a closing bracket is missing before `-> Tensor`", ""),
        ("f(Tensor x, int) -> Tensor", "a name was expected at `) -> Tensor`", ""),
        ("f(Tensor x) -> Tensor, Tensor", "several results stand in brackets", ""),
        ("def f(Tensor x) -> Tensor", "it begins with a word of Python", ""),
        ("", "has no ->", ""),
        (
            "f(tensor x) -> Tensor",
            "names the type tensor, which schemas do not have",
            "Write Tensor in place of tensor",
        ),
        ("f(Tensor x) -> Tenso", "names the type Tenso", "Write Tensor in place of Tenso"),
        ("f(x: Tensor) -> Tensor", "names the type x", "the type stands before the name"),
        ("f(list[int] n) -> Tensor", "names the type list[int]", "Write int[]"),
        ("f(Tensor x, double y) -> Tensor", "names the type double", "Write float in place of double"),
        ("f(Tensor x, bool b=true) -> Tensor", "the default true of `b` can't be read", "True, False, None"),
        ("f(Tensor x, str s=abc) -> Tensor", "the default abc of `s`, which is a text without quotes", 's="abc"'),
        ("f(Tensor x, str s='abc) -> Tensor", "the quote before `abc` is never closed", "a second '"),
        ('f(Tensor x, str s="abc) -> Tensor', "the quote before `abc` is never closed", 'a second "'),
        ("f(Tensor x, int64_t n) -> Tensor", "names the type int64_t", "Write int in place of int64_t"),
        ("f Tensor x -> Tensor", "the opening one after `f` is missing", "Write f(Tensor x) -> Tensor"),
        ("f(Tensor(!) x) -> ()", "the mark (!) of an argument that is written to has no letter", "Tensor(a!)"),
        ("my-f(Tensor x) -> Tensor", "the name `my-f` has a hyphen in it", "Write my_f"),
        ("f(Tensor x, int n=1, Tensor y) -> Tensor", "the argument y has no default and follows one", ""),
        ("other::f(Tensor x) -> Tensor", "defines an operator of the namespace other", "Leave the namespace out"),
    ],
)
def test_a_schema_that_can_not_be_read_says_where(library, schema, said, remedy):
    finding = known(lambda: library.define(schema))
    assert said in finding.text
    assert remedy in finding.remedy


@pytest.mark.parametrize(
    "schema",
    [
        "f(Tensor x, str s='a', int n=1) -> Tensor",
        "f(Tensor(a!) x) -> ()",
        "f(Tensor[] xs, int[] n, float y, bool b=True) -> (Tensor, Tensor)",
    ],
)
def test_the_schemas_of_the_remedies_are_read(library, schema):
    assert explain_error(lambda: library.define(schema)).error == ""


# torch.library


def plain(x):
    return x * 2


def no_result(x: torch.Tensor):
    return x * 2


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def with_dict(x: torch.Tensor, options: dict) -> torch.Tensor:
    return x * 2


def with_array(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(x)


def with_rest(x: torch.Tensor, *rest: int) -> torch.Tensor:
    return x * 2


def with_list(x: torch.Tensor, sizes: list[int] = [1]) -> torch.Tensor:  # noqa: B006  # the fault that is told
    return x * 2


def to_list(x: torch.Tensor) -> list:
    return [x]


def unknown_name(x: torch.Tensor) -> Imaginary:  # noqa: F821  # the fault that is told
    return x


NAME = "course_errors_custom::f"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (lambda: custom_op(NAME, mutates_args=())(plain), "the argument `x` has no type annotation"),
        (lambda: custom_op(NAME, mutates_args=())(no_result), "no annotation of what it returns"),
        (lambda: custom_op(NAME, mutates_args=())(with_dict), "the argument `options` has the type dict"),
        (lambda: custom_op(NAME, mutates_args=())(with_array), "the argument `x` has the type np.ndarray"),
        (lambda: custom_op(NAME, mutates_args=())(with_rest), "the function has *args"),
        (lambda: custom_op(NAME, mutates_args=())(with_list), "the default of `sizes` is a list"),
        (lambda: custom_op(NAME, mutates_args=())(to_list), "the function returns the type list"),
        (lambda: custom_op(NAME, mutates_args=())(unknown_name), "the annotation Imaginary names nothing"),
        (lambda: custom_op(NAME, mutates_args=("y",))(doubled), "mutates_args names 'y', and the function has no such"),
        (lambda: custom_op(NAME, mutates_args="x")(doubled), "mutates_args is a string"),
        (lambda: custom_op(NAME)(doubled), "has no mutates_args"),
        (lambda: custom_op("f", mutates_args=())(doubled), "the name of the operator has no namespace"),
        (lambda: custom_op("my-ops::f", mutates_args=())(doubled), "the name `my-ops::f` has a hyphen in it"),
        (lambda: custom_op("my_ops::a b", mutates_args=())(doubled), "the name `a b` has a space in it"),
        (lambda: Library("course_errors_kind", "DEFINE"), "names the kind DEFINE"),
        (lambda: Library("prim", "DEF"), "the namespace prim belongs to torch"),
        (lambda: torch.library.define("course_errors_custom::g", "g(Tensor x)"), "takes a schema without the name"),
        (lambda: torch.library.register_fake("course_errors_none::g", doubled), "no operator is registered"),
        (lambda: torch.library.register_fake(doubled), "was given a function, and the name of an operator is wanted"),
        (
            lambda: torch.library.register_autograd("aten::add_.Tensor", lambda ctx, g: g),
            "takes only operators that make new tensors",
        ),
        (lambda: torch.ops.load_library("no_such_file.so"), "torch can't load no_such_file.so: there is no such file"),
    ],
)
@pytest.mark.filterwarnings("ignore:Passed invalid type")
def test_what_torch_library_refuses_is_known(program, said):
    assert said in known(program).text


def test_a_device_is_no_key(library):
    library.define("f(Tensor x) -> Tensor")
    finding = known(lambda: library.impl("f", doubled, "cpu"))
    assert finding.remedy == 'Write "CPU".'
    library.impl("f", doubled, "CPU")
    healthy(lambda: operators(library).f(torch.ones(2)))


def test_a_destroyed_library_registers_nothing():
    library = Library(f"course_errors_{next(_numbers)}", "FRAGMENT")
    library._destroy()
    assert "uses a Library after its _destroy()" in known(lambda: library.define("f(Tensor x) -> Tensor")).text


@pytest.fixture
def custom():
    """A custom operator of its own for each test, with what must not outlive it."""

    def make(function=doubled, **options):
        return custom_op(f"course_errors_{next(_numbers)}::f", mutates_args=(), **options)(function)

    return make


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
    for finding in (explain_error(compiled, torch.ones(2)), explain_dispatch(compiled, torch.ones(2))):
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


# A backend of your own: one name a process, so each program has a process of its own

PRELUDE = """
import torch
from torch.library import Library
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend as set_up
from helpers import explain_dispatch, explain_error

class Tensor(torch.Tensor):
    @staticmethod
    def __new__(cls, real):
        made = torch._C._acc.create_empty_tensor(list(real.shape), real.dtype)
        made.__class__ = cls
        return made

    def __init__(self, real):
        self.real_one = real

def empty_strided(size, stride, *, dtype=None, **rest):
    return Tensor(torch.empty_strided(size, stride, dtype=dtype))

def empty(size, *, dtype=None, **rest):
    return Tensor(torch.empty(size, dtype=dtype))

def copy_from(source, target, non_blocking=False):
    if source.device.type == "cpu":
        target.real_one.copy_(source)
    else:
        target.copy_(source.real_one)
    return target

def say(fn):
    finding, error = explain_dispatch(fn), explain_error(fn)
    assert finding.text == error.text and error.known, (finding, error)
    print(finding)
"""


@pytest.fixture
def run(tmp_path):
    """A function: program -> the lines that it prints, in a process of its own."""
    return lambda program: lines_of(tmp_path / "program.py", program)


def lines_of(path, program: str) -> list[str]:
    path.write_text(PRELUDE + textwrap.dedent(program), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_backend_needs_three_kernels_before_a_tensor_can_move_there(run):
    lines = run(
        """
        set_up()
        move = lambda: torch.ones(2).to("privateuseone")
        say(move)
        library = Library("aten", "IMPL")
        library.impl("empty_strided", empty_strided, "PrivateUse1")
        say(move)
        library.impl("_copy_from", copy_from, "PrivateUse1")
        x = move()
        print(x.device, x.real_one.tolist())
        say(lambda: torch.empty(2, device="privateuseone"))
        library.impl("empty.memory_format", empty, "PrivateUse1")
        print(torch.empty(2, device="privateuseone").device)
        """
    )
    first, remedy, second, then, moved, third, last, made = lines
    assert (
        'PrivateUse1 has no kernel for aten::empty_strided, the first operator behind `torch.ones(2).to("priv' in first
    )
    assert "the minimal set is empty.memory_format, empty_strided and _copy_from, and none is there" in first
    assert 'impl("empty_strided", fn, "PrivateUse1"), and then empty.memory_format and _copy_from' in remedy
    assert "no kernel for aten::_copy_from" in second
    assert "of which empty_strided is there" in second
    assert "and then empty.memory_format" in then
    assert moved == "privateuseone:0 [1.0, 1.0]"
    assert "of which empty_strided and _copy_from are there" in third
    assert "and then" not in last
    assert made == "privateuseone:0"


def test_a_renamed_backend_is_called_by_its_name_and_the_next_operator_is_named(run):
    lines = run(
        """
        set_up("npu")
        library = Library("aten", "IMPL")
        library.impl("empty_strided", empty_strided, "PrivateUse1")
        library.impl("_copy_from", copy_from, "PrivateUse1")
        x = torch.ones(2).to("npu")
        say(lambda: torch.relu(x))
        say(lambda: x.view(2, 1))
        say(lambda: x + torch.ones(2))
        say(lambda: torch.utils.rename_privateuse1_backend("tpu"))
        say(lambda: set_up("npu"))

        def on_cpu(operator, *args, **kwargs):
            from torch.utils._pytree import tree_map_only
            real = operator(*tree_map_only(Tensor, lambda t: t.real_one, args), **kwargs)
            return tree_map_only(torch.Tensor, Tensor, real)

        rest = Library("_", "IMPL")
        rest.fallback(on_cpu, "PrivateUse1")
        print(torch.relu(x).real_one.tolist(), explain_dispatch(torch.relu, x).text)
        """
    )
    relu, boxed, view, _, devices, move, renamed, _, again, _, served = lines
    assert (
        "PrivateUse1 (the device `npu`) has no kernel for aten::relu, the next operator behind `torch.relu(x)`" in relu
    )
    assert "of the minimal set, empty.memory_format is missing too" in relu
    assert 'torch.library.Library("_", "IMPL").fallback(fn, "PrivateUse1")' in boxed
    assert "no kernel for aten::view" in view
    assert "got `x` on npu:0 and `torch.ones(2)` on cpu" in devices
    assert "Move `torch.ones(2)` first, with .to('npu:0')" in move
    assert "belongs to the device `npu` already" in renamed
    assert "the device `npu` is set up already" in again
    assert served.startswith("[1.0, 1.0] In aten::relu")
    assert "the fallback of PrivateUse1" in served


def test_a_device_that_was_never_set_up_is_told(run):
    lines = run('say(lambda: torch.ones(2).to("privateuseone"))')
    assert "no backend is set up for it in this process" in lines[0]


def test_a_renamed_device_without_a_module_is_told(run):
    lines = run("""
        torch.utils.rename_privateuse1_backend("npu")
        say(lambda: torch.ones(2).to("npu"))

        set_up("npu")
        say(lambda: torch.ones(2).to("npu"))
    """)
    assert "names the device `npu`, to which PrivateUse1 was renamed, and torch has no module torch.npu" in lines[0]
    assert '_setup_privateuseone_for_python_backend("npu")' in lines[1]
    assert "PrivateUse1 (the device `npu`) has no kernel for aten::" in lines[2]  # the remedy: one step further


def test_a_module_alone_makes_no_backend(run):
    lines = run("""
        class Module:
            is_available = staticmethod(lambda: True)
            current_device = staticmethod(lambda: 0)

        torch.utils.rename_privateuse1_backend("npu")
        torch._register_device_module("npu", Module)
        say(lambda: torch.ones(2).to("npu"))
    """)
    assert "needs a device guard, which sets the current device, and none is registered for `npu`" in lines[0]
