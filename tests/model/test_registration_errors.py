"""`explain_error` on the dispatcher and on registration: what is missing, what was given twice, what can't be read."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch.library import Library, custom_op

from helpers import explain_error, show_op
from helpers.model.dispatch.kernels import Table, from_plain, is_backend, tensors_of, to_plain
from tests.model.registering import doubled, fresh_space, healthy, known, operators

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
    space = fresh_space()

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
    space = fresh_space()

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
        space = fresh_space()
        for _ in range(2):
            made.append(Library(space, "FRAGMENT"))
            made[-1].define("f(Tensor x) -> Tensor")

    text = explain_error(broken).text
    assert re.search(r"by the library made at line \d+ of test_\w+\.py, now or when this line ran before, and", text)


def test_the_library_that_defined_an_operator_first_is_found(made):
    space = fresh_space()

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
    space = fresh_space()

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
    library = Library(fresh_space(), "FRAGMENT")
    library._destroy()
    assert "uses a Library after its _destroy()" in known(lambda: library.define("f(Tensor x) -> Tensor")).text
