"""`show_op`: compared with torchgen's own reading of the yaml files, with PyYAML, with the dispatcher and with runs."""

from __future__ import annotations

import html
import re
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path

import pytest
import torch
import torchgen
import yaml
from torch.overrides import get_overridable_functions
from torchgen.api.autograd import match_differentiability_info
from torchgen.gen import parse_native_yaml
from torchgen.packaged.autograd.gen_variable_type import DONT_REQUIRE_DERIVATIVE
from torchgen.packaged.autograd.load_derivatives import load_derivatives

from helpers.model.adapter import all_keys, kernel_table, operator_names, registrations
from helpers.model.adapter.dispatch import file_name
from helpers.model.dispatch import packaged
from helpers.model.dispatch.aliases import Sharing, read_aliases
from helpers.model.dispatch.operators import Operator, show_op
from helpers.model.finding import HelperError

FOLDER = Path(torchgen.__file__).parent / "packaged"
NATIVE = FOLDER / "ATen/native/native_functions.yaml"
TAGS = FOLDER / "ATen/native/tags.yaml"
OTHER_CODE = "a kernel registered for {}, as `register_autograd` does it; its code alone says what it does"
DERIVATIVES = FOLDER / "autograd/derivatives.yaml"


@cache
def native() -> dict[str, dict]:
    return {entry["func"].partition("(")[0]: entry for entry in load(NATIVE)}


@cache
def derivatives() -> dict[str, dict]:
    return {entry["name"].strip().partition("(")[0]: entry for entry in load(DERIVATIVES)}


def load(file: Path) -> list[dict]:
    return yaml.load(file.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@cache
def torchgens() -> dict[str, tuple]:
    """Return torchgen's own reading of each registered aten operator, with the formula that it matched to it."""
    functions = parse_native_yaml(str(NATIVE), str(TAGS)).native_functions
    infos, _ = load_derivatives(str(DERIVATIVES), str(NATIVE), str(TAGS))
    names = set(operator_names())
    read = {f"aten::{m.func.func.name}": (m.func, m.info) for m in match_differentiability_info(functions, infos)}
    return {name: both for name, both in read.items() if name in names}


@cache
def shown(name: str) -> Operator:
    return show_op(name)


def parsed(lines: str) -> dict:
    return yaml.safe_load(lines)[0]


# The files


def test_every_entry_of_native_functions_is_found_whole():
    for name, entry in native().items():
        lines = packaged.find_entry(packaged.NATIVE, name)
        assert parsed(lines) == entry, name
        assert lines in NATIVE.read_text(encoding="utf-8")


def test_every_entry_of_derivatives_is_found_whole():
    assert len(derivatives()) > 600
    for name, entry in derivatives().items():
        assert parsed(packaged.find_entry(packaged.DERIVATIVES, name)) == entry, name


def test_an_entry_ends_where_the_comments_of_the_next_begin():
    for file in (packaged.NATIVE, packaged.DERIVATIVES):
        for name in packaged._entries(file):
            entry = packaged.find_entry(file, name)
            assert entry == entry.rstrip()
            assert not entry.splitlines()[-1].startswith("#")


def test_the_keys_declared_are_those_that_yaml_reads():
    seen = 0
    for name, entry in native().items():
        dispatch = entry.get("dispatch", {})
        expected = {key.strip(): function for keys, function in dispatch.items() for key in keys.split(",")}
        assert packaged.read_dispatch(packaged.find_entry(packaged.NATIVE, name)) == expected, name
        seen += len(expected)
    assert seen > 3000


def test_structured_operators_are_those_of_torchgen():
    kinds = set()
    for name, (function, _) in torchgens().items():
        delegate = function.structured_delegate
        expected = "itself" if function.structured else str(delegate) if delegate else ""
        assert shown(name).structured == expected, name
        kinds.add(expected)
    assert {"", "itself", "add.out"} <= kinds


def test_composite_operators_are_those_of_torchgen():
    for name, (function, _) in torchgens().items():
        composite = shown(name).composite
        assert ("CompositeImplicitAutograd" in composite) == function.has_composite_implicit_autograd_kernel, name
        assert ("CompositeExplicitAutograd" in composite) == function.has_composite_explicit_autograd_kernel, name


def test_generated_operators_show_the_entry_of_their_source():
    generated = {name for name, (function, _) in torchgens().items() if "generated" in function.tags}
    assert len(generated) > 400
    for name in generated:
        operator = shown(name)
        assert operator.declared == {}, name
        assert name.removeprefix("aten::") in re.split("[, ]+", native()[operator.made_from]["autogen"]), name
    assert "(generated from the entry of zero_)" in repr(shown("aten::zero.out"))


# Memory


def test_alias_annotations_are_those_of_torchgen():
    for name, (function, _) in torchgens().items():
        arguments = [a for a in function.func.arguments.flat_all if a.annotation]
        writes = tuple(a.name for a in arguments if a.annotation.is_write)
        sharing = {
            (place, a.name, result.annotation.is_write, result.type.is_list_like() is not None)
            for place, result in enumerate(function.func.returns)
            for a in arguments
            if result.annotation and set(result.annotation.alias_set) & set(a.annotation.alias_set)
        }
        aliases = shown(name).aliases
        assert aliases.writes == writes, name
        assert {(s.result, s.argument, s.itself, s.each) for s in aliases.sharing} == sharing, name
        assert aliases.results == len(function.func.returns), name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("add.Tensor", "writes to no argument; no result shares memory with an argument"),
        ("add_.Tensor", "writes to `self`; the result is `self` itself"),
        ("add.out", "writes to `out`; the result is `out` itself"),
        ("max.dim_max", "writes to `max` and `max_values`; result 0 is `max` itself; result 1 is `max_values` itself"),
        ("transpose.int", "writes to no argument; the result is a view of `self`"),
        ("split.Tensor", "writes to no argument; each tensor of the result is a view of `self`"),
        ("reshape", "writes to no argument; the result may share the memory of `self`"),
        ("contiguous", "writes to no argument; the result may share the memory of `self`"),
        ("_foreach_add_.Scalar", "writes to `self`"),
        (
            "_fused_moving_avg_obs_fq_helper",
            "writes to `running_min`, `running_max`, `scale` and `zero_point`; "
            "no result shares memory with an argument",
        ),
        (
            "dropout",
            "writes to no argument; no result shares memory with an argument; "
            "the tag maybe_aliasing_or_mutating says that there may be more",
        ),
    ],
)
def test_the_annotations_in_words(name, words):
    assert shown(name).memory == words


def test_some_results_share_and_others_do_not():
    aliases = read_aliases("x::f(Tensor(a) p, Tensor(b!) q) -> (Tensor(a), Tensor, Tensor(b!) q)")
    assert aliases.writes == ("q",)
    assert aliases.sharing == (Sharing(0, "p", False, False), Sharing(2, "q", True, False))
    assert aliases.results == 3


def test_what_is_called_a_view_each_time_is_one():
    x = torch.arange(6.0).view(2, 3)
    for name, args in {
        "transpose.int": (x, 0, 1),
        "select.int": (x, 0, 1),
        "unsqueeze": (x, 0),
        "view": (x, (6,)),
        "expand": (x, (4, 2, 3)),
        "detach": (x,),
        "as_strided": (x, (2,), (1,)),
    }.items():
        space, _, overload = name.partition(".")
        result = getattr(getattr(torch.ops.aten, space), overload or "default")(*args)
        assert "is a view of `self`" in shown(name).memory
        assert result.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert x.t().reshape(6).untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


# Gradients


def test_the_formula_is_the_one_that_torchs_generator_takes():
    checked = 0
    for name, (function, infos) in torchgens().items():
        entry = shown(name).formula
        if infos is None:
            assert entry == "", name
        elif function.func.kind().name != "out":
            info = infos.get("Default") or next(iter(infos.values()))
            formulas = packaged.read_formulas(entry)
            constant = {argument for argument, text in formulas.items() if text == "non_differentiable"}
            wanted = {argument for derivative in info.derivatives for argument in derivative.var_names}
            if "_foreach_" in name:  # the generator renames arguments after those of the lists
                assert len(wanted) == len(formulas.keys() - constant), name
                assert packaged.read_name(entry).partition(".")[0].strip("_") in name, name
            elif "Default" in infos:
                assert formulas.keys() - constant == wanted, name
                assert constant == set(info.non_differentiable_arg_names), name
                assert [bool(yes) for yes in info.output_differentiability or []] == (
                    packaged.read_differentiability(entry)
                ), name
            checked += 1
    assert checked > 900


def test_an_entry_that_gives_no_gradient_says_so_as_torchs_generator_reads_it():
    kinds = set()
    for name, (function, infos) in torchgens().items():
        text = shown(name).gradient.text
        if infos is None or "Default" not in infos or function.func.kind().name == "out" or "composition" in text:
            continue
        info = infos["Default"]
        formulas = [d.formula for d in info.derivatives]
        nothing = not formulas or not any(info.output_differentiability or [True])
        missing = bool(formulas) and all(f.startswith("not_implemented(") for f in formulas)
        assert text.startswith("none: ") == (nothing or missing), name
        assert ("says not_implemented" in text) == (missing and not nothing), name
        kinds.add((nothing, missing))
    assert kinds >= {(True, False), (False, True), (False, False)}


def test_operators_without_a_formula_are_told_apart_as_in_torchs_generator():
    for name, (function, info) in torchgens().items():
        text = shown(name).gradient.text
        if text.startswith("none: torch lists it"):
            assert function.func.name.name.base in DONT_REQUIRE_DERIVATIVE, name
        if text.startswith("none: no formula"):
            assert info is None, name
            assert function.func.name.name.base not in DONT_REQUIRE_DERIVATIVE, name
        if "an out= variant" in text:
            assert function.func.kind().name == "out", name


@pytest.mark.parametrize(
    ("name", "text", "entry"),
    [
        ("add.Tensor", "the formula in its own entry", "add.Tensor"),
        ("add_.Tensor", "the formula in the entry of add.Tensor (the same operator in another form)", "add.Tensor"),
        (
            "pow_.Tensor",
            "the formula in the entry of pow.Tensor_Tensor (the same operator in another form)",
            "pow.Tensor_Tensor",
        ),
        ("select_copy.int", "the formula in the entry of select.int (the same operator in another form)", "select.int"),
        ("uniform", "the formula in the entry of uniform_ (the same operator in another form)", "uniform_"),
        (
            "_native_batch_norm_legit_functional",
            "the formula in the entry of _native_batch_norm_legit (the same operator in another form)",
            "_native_batch_norm_legit",
        ),
        ("_foreach_add.List", "the formula in the entry of add.Tensor (tensor by tensor)", "add.Tensor"),
        ("_foreach_zero_", "the formula in the entry of zero_ (tensor by tensor)", "zero_"),
        (
            "eq.Tensor",
            "none: its own entry says that no result is differentiable (output_differentiability)",
            "eq.Tensor",
        ),
        ("isnan", "none: its own entry says that no argument is differentiable", "isnan"),
        ("geqrf", "none: its own entry says not_implemented, so a backward raises an error", "geqrf"),
        ("lstm_mps_backward", "none: its own entry has no formula", "lstm_mps_backward"),
        ("igamma", "the formula in its own entry; not implemented for `self`", "igamma"),
        ("gather", "the formula in its own entry; not differentiable: `index`", "gather"),
        ("sort.stable", "the formula in its own entry; not differentiable: result 1", "sort.stable"),
        ("sum", "the formula in its own entry", "sum"),
        ("add.out", "none: an out= variant refuses inputs that require a gradient", ""),
        ("argmax", "none: torch lists it as not differentiable (DONT_REQUIRE_DERIVATIVE)", ""),
        ("floor_divide", "none: no formula exists, so a backward through it raises an error", ""),
        ("_foreach_copy", "none: no formula exists, so a backward through it raises an error", ""),
        ("_foreach_copy_", "none: no formula exists, so a backward through it raises an error", ""),
        ("_foreach_add_.Scalar", "the formula in the entry of add.Scalar (tensor by tensor)", "add.Scalar"),
        ("_print", "none: no result is a tensor", ""),
        ("arange.start_step", "none: no argument is a tensor", ""),
        ("copy_", "its Autograd kernel is written by hand in C++, without a formula", ""),
        ("reshape", "composition: the operators that its math kernel calls bring their own gradients", ""),
        ("one_hot", "composition: the operators that its math kernel calls bring their own gradients", "one_hot"),
    ],
)
def test_where_the_gradient_comes_from(name, text, entry):
    operator = shown(name)
    assert operator.gradient.text == text
    assert packaged.read_name(operator.formula) == entry
    assert f"gradient: {text}" in repr(operator)


def test_linear_has_a_formula_that_the_cpu_does_not_use():
    operator = shown("linear")
    assert packaged.read_name(operator.formula) == "linear"
    assert re.search(
        r"^composition: .*; the formula serves .*AutogradNestedTensor.*, whose backends have a kernel of their own$",
        operator.gradient.text,
    )
    assert "AutogradCPU" not in operator.gradient.text
    x = torch.ones(2, 3, requires_grad=True)
    assert "Addmm" in torch.nn.functional.linear(x, torch.ones(4, 3), torch.ones(4)).grad_fn.name()


def test_the_words_on_missing_gradients_are_true_when_run():
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="not implemented"):
        torch.floor_divide(x, 2).sum().backward()
    with pytest.raises(RuntimeError, match="not implemented"):
        torch.geqrf(torch.eye(2, requires_grad=True))[0].sum().backward()
    with pytest.raises(RuntimeError, match="out="):
        torch.add(x, x, out=torch.empty(3))
    assert not torch.argmax(x).requires_grad
    assert not torch.eq(x, x).requires_grad
    assert not torch.isnan(x).requires_grad


# Operators of the reader


@pytest.fixture
def library():
    with torch.library._scoped_library("shown_ops", "FRAGMENT") as made:
        yield made


def test_a_custom_operator_without_a_backward_says_so():
    @torch.library.custom_op("shown_custom::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    for given in (twice, "shown_custom::twice", torch.ops.shown_custom.twice, torch.ops.shown_custom.twice.default):
        operator = show_op(given)
        assert operator.name == "shown_custom::twice"
        assert operator.gradient.text == "none: register_autograd was not called, so a backward raises an error"
    assert operator.composite == ("CompositeExplicitAutograd",)
    assert operator.entry == operator.formula == ""
    assert "native_functions.yaml: no entry: the operator is registered by other code" in repr(operator)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        twice(torch.ones(2, requires_grad=True)).sum().backward()

    twice.register_autograd(lambda ctx, grad: grad * 2)
    assert show_op(twice).gradient.text == "the function that was given to register_autograd"
    x = torch.ones(2, requires_grad=True)
    twice(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_a_custom_operator_that_writes_names_the_argument():
    @torch.library.custom_op("shown_custom::fill", mutates_args=("x",))
    def fill(x: torch.Tensor, value: float) -> None:
        x.fill_(value)

    assert show_op(fill).memory == "writes to `x`"


def test_an_operator_of_a_library_shows_each_registration_as_it_comes(library):
    library.define("f(Tensor x) -> Tensor")
    empty = show_op("shown_ops::f")
    assert empty.registered == {}
    assert "kernels registered: none" in repr(empty)
    assert empty.resolved["CPU"] == "none"
    assert "\n    CPU: none\n" in repr(empty)
    assert empty.form == "neither composite nor structured: each backend needs a kernel of its own"

    library.impl("f", lambda x: x.detach() * 2, "CPU")
    operator = show_op("shown_ops::f")
    assert operator.registered == {"CPU": "library.py"}  # where the library was made
    assert operator.resolved["CPU"] == "kernel of its own"
    assert operator.gradient.text == (
        "none is registered for Autograd: a backward through it warns, and may give a wrong gradient or none"
    )
    x = torch.ones(2, requires_grad=True)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        torch.ops.shown_ops.f(x).sum().backward()
    assert any("not registered to the Autograd key" in str(w.message) for w in warned)
    assert x.grad is None

    torch.library.register_autograd("shown_ops::f", lambda ctx, grad: grad * 2, lib=library)
    assert show_op("shown_ops::f").gradient.text == OTHER_CODE.format("Autograd")


def test_a_kernel_of_the_readers_own_at_autograd_is_named_by_its_key(library):
    library.define("g(Tensor x) -> Tensor")
    library.impl("g", lambda x: x * 2, "Autograd")
    assert show_op("shown_ops::g").gradient.text == OTHER_CODE.format("Autograd")
    library.define("h(Tensor x) -> Tensor")
    library.impl("h", lambda x: x * 2, "AutogradCPU")
    operator = show_op("shown_ops::h")
    assert operator.gradient.text == OTHER_CODE.format("AutogradCPU")
    assert operator.groups == {"autograd": ("AutogradCPU",)}


def test_a_fallthrough_at_autograd_is_no_gradient(library):
    library.define("k(Tensor x) -> Tensor")
    library.impl("k", torch.library.fallthrough_kernel, "AutogradCPU")
    library.impl("k", lambda x: x.sin(), "CPU")
    operator = show_op("shown_ops::k")
    assert operator.gradient.text == (
        "AutogradCPU is a fallthrough: only operators that the next kernel calls can give one"
    )
    assert operator.resolved["AutogradCPU"] == "fallthrough (kernel of its own)"
    assert "autograd: AutogradCPU (fallthrough)" in repr(operator)
    assert torch.ops.shown_ops.k(torch.ones(2, requires_grad=True)).grad_fn.name() == "SinBackward0"


def test_a_composition_of_the_readers_own_follows_its_operators(library):
    library.define("c(Tensor x) -> Tensor")
    library.impl("c", lambda x: x.sin(), "CompositeImplicitAutograd")
    operator = show_op("shown_ops::c")
    assert operator.gradient.text.startswith("composition: ")
    assert operator.resolved["AutogradCPU"] == "math kernel (CompositeImplicitAutograd)"
    assert operator.form.startswith("composite implicit: ")


def test_an_operator_of_another_namespace_gets_no_entry_of_aten():
    operator = shown("prims::sin")
    assert operator.entry == operator.formula == operator.structured == ""


# Kernels


def test_the_keys_and_files_are_those_of_the_dispatcher():
    for name in ("aten::add.Tensor", "aten::linear", "aten::conv2d", "aten::split.Tensor", "prims::sin"):
        operator = shown(name)
        assert operator.registered.keys() == registrations(name).keys()
        for key, file in operator.registered.items():
            assert re.fullmatch(r"[\w.]+\.(cpp|h|py|cu)", file), file
            assert file in registrations(name)[key]
        assert sorted(key for keys in operator.groups.values() for key in keys) == sorted(operator.registered)


@pytest.mark.parametrize("name", ["aten::add.Tensor", "aten::linear", "aten::relu", "aten::split.Tensor", "aten::mm"])
def test_what_a_call_runs_is_what_the_table_says(name):
    table = kernel_table(name)
    for key, words in shown(name).resolved.items():
        kernel = table.get(key)
        if kernel is None:
            assert words.startswith("none")
        elif kernel.kind == "kernel":
            assert words == "kernel of its own"
        else:
            assert words.startswith(f"{kernel.kind} ({kernel.alias})")


def test_cuda_says_when_the_build_has_none():
    words = shown("relu").resolved["CUDA"]
    assert words == ("kernel of its own" if torch.backends.cuda.is_built() else "none; this build of torch has no CUDA")


@pytest.mark.parametrize(
    ("name", "group", "key"),
    [
        ("add.Tensor", "backends", "CPU"),
        ("add.Tensor", "backends", "SparseCsrMeta"),
        ("add.Tensor", "for all backends", "CompositeExplicitAutogradNonFunctional"),
        ("add.Tensor", "autograd", "Autograd"),
        ("add_.Tensor", "autograd", "ADInplaceOrView"),
        ("add.Tensor", "functorch", "FuncTorchBatched"),
        ("add.Tensor", "functorch", "Batched"),
        ("add.Tensor", "others", "ZeroTensor"),
        ("linear", "autocast", "AutocastCPU"),
        ("native_dropout", "functorch", "FuncTorchVmapMode"),
        ("empty.memory_format", "others", "BackendSelect"),
    ],
)
def test_keys_stand_in_their_group(name, group, key):
    assert key in shown(name).groups[group]


def test_the_groups_are_those_of_the_dispatchers_own_key_sets():
    def covers(alias: str, key: str) -> bool:
        parse = torch._C._dispatch_key_parse
        return torch._C._dispatch_is_included_in_alias(parse(key), parse(alias))

    groups = {key: group for name in torchgens() for group, keys in shown(name).groups.items() for key in keys}
    runtime = groups.keys() & set(all_keys()) - {"QuantizedMeta"}  # torch cannot parse this one
    assert len(runtime) > 25
    for key in runtime:
        backend = covers("CompositeExplicitAutograd", key) or key.startswith("NestedTensor")
        assert (groups[key] == "backends") == backend, key
        assert (groups[key] == "autograd") == (covers("Autograd", key) or key == "ADInplaceOrView"), key
    assert {groups[key] for key in groups if key.startswith("Composite")} == {"for all backends"}


# Structured and composite in words


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("add.Tensor", "structured_delegate: the structured kernel of add.out does its work; composite explicit, non-"),
        ("add.out", "structured: a meta function finds the result's shape, a kernel of each backend fills it"),
        ("linear", "composite implicit: one kernel, made of other operators"),
        ("split.Tensor", "composite explicit: one kernel for all backends; a gradient needs an Autograd kernel"),
        ("relu", "neither composite nor structured: each backend needs a kernel of its own"),
    ],
)
def test_the_form_in_words(name, start):
    assert shown(name).form.startswith(start)
    assert f"\nform: {shown(name).form}\n" in repr(shown(name))


def test_the_tags_are_those_of_the_operator():
    assert shown("add.Tensor").tags == tuple(sorted(tag.name for tag in torch.ops.aten.add.Tensor.tags))
    assert "pointwise" in shown("add.Tensor").tags
    untagged = next(name for name in operator_names() if not shown(name).tags)
    assert "\ntags: none\n" in repr(shown(untagged))


# The claims of the course


def test_the_entry_of_add_names_no_cpu_kernel():
    add = show_op("add.Tensor")
    assert add.structured == "add.out"
    assert not {"CPU", "CUDA"} & add.declared.keys()
    assert {"SparseCPU", "MkldnnCPU", "NestedTensorCPU"} <= add.declared.keys()
    assert {"CPU", "CUDA"} <= show_op("relu").declared.keys()


def test_gradients_come_from_formulas_or_from_composition():
    assert "grad" in show_op("add.Tensor").formula
    assert show_op("reshape").gradient.text.startswith("composition")


# What is shown


@pytest.mark.parametrize("name", ["add.Tensor", "linear", "argmax", "zero.out", "prims::sin"])
@pytest.mark.parametrize("where", [False, True])
def test_the_html_says_what_the_text_says(name, where):
    operator = show_op(name, where=where)
    words = re.sub(r"<[^>]+>", " ", operator._repr_html_())
    assert html.unescape(words).split() == repr(operator).replace("`", " ").split()


def test_the_text_names_no_file_unless_asked():
    plain, full = repr(show_op("add.Tensor")), repr(show_op("add.Tensor", where=True))
    assert ".cpp" not in plain
    assert "Meta (_meta_registrations.py)" in full
    assert re.search(r"CPU \(RegisterCPU\w*\.cpp\)", full)
    assert "0x" not in full
    assert not re.search(r"\.(cpp|py):\d", full)
    assert show_op("add.Tensor") == show_op("add.Tensor", where=True)


def test_a_fallthrough_and_its_file_stand_in_one_bracket():
    assert "Conjugate (fallthrough, ConjugateFallback.cpp)" in repr(show_op("mm", where=True))


@pytest.mark.parametrize("place", ["/a/b/library.py:12", r"C:\a\b\library.py:12", "library.py:12"])
def test_a_file_name_has_neither_folder_nor_line(place):
    assert file_name(place) == "library.py"


# Names


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("add.Tensor", "aten::add.Tensor"),
        (" aten::add.Tensor ", "aten::add.Tensor"),
        ("aten.add.Tensor", "aten::add.Tensor"),
        ("torch.ops.aten.add.Tensor", "aten::add.Tensor"),
        ("aten.relu.default", "aten::relu"),
        ("prims::sin", "prims::sin"),
        ("prims.sin.default", "prims::sin"),
        (torch.ops.aten.add.Tensor, "aten::add.Tensor"),
        (torch.ops.aten.relu.default, "aten::relu"),
        (torch.ops.aten.relu, "aten::relu"),
        ("sum", "aten::sum"),  # one of its overloads has no name
        ("add_relu_", ""),
        ("rand_like", "aten::rand_like"),
        ("__ior__.Tensor", "aten::__ior__.Tensor"),
        ("fill_diagonal_", "aten::fill_diagonal_"),
        ("_copy_from", "aten::_copy_from"),
        ("searchsorted", ""),
        ("mse_loss_backward.grad_input", "aten::mse_loss_backward.grad_input"),
        ("copysign.Tensor", "aten::copysign.Tensor"),
        ("select_copy", "aten::select_copy.int"),  # the other is an out= variant
        (torch.relu, "aten::relu"),
        (torch.Tensor.relu, "aten::relu"),
        (torch.nn.functional.linear, "aten::linear"),
        (torch.linalg.inv, "aten::linalg_inv"),
        (torch.fft.fft, "aten::fft_fft"),
        (torch.special.expit, "aten::special_expit"),
    ],
)
def test_an_operator_may_be_named_in_many_ways(given, name):
    if name:
        assert show_op(given).name == name
    else:
        with pytest.raises(HelperError):
            show_op(given)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("add.Tenso", r"^no operator add\.Tenso; near names: add\.Tensor"),
        ("linaer", r"^no operator linaer; near names: .*linear"),
        ("add", r"^add has 4 overloads; give the name of one: add\.Scalar, add\.Scalar_out, add\.Tensor and add\.out$"),
        (torch.ops.aten.add, r"^aten\.add has 4 overloads; give the name of one: "),
        (torch.add, r"^torch\.add has 4 overloads; give the name of one: "),
        (torch.Tensor.add, r"^torch\.Tensor\.add has 4 overloads"),
        ("aten::add.t", r"^no operator aten::add\.t; near names: "),
        ("", r"^no operator without a name"),
        ("zqxv", r"^no operator zqxv$"),
        (
            "nowhere::f",
            r"^no operator nowhere::f: nothing is registered in the namespace nowhere, so import the library",
        ),
        ("prims::sine", r"^no operator prims::sine; near names: prims::sin"),
        (torch.einsum, r"^torch\.functional\.einsum is written in Python .* trace_dispatch shows which"),
        (torch.Tensor.numpy, r"^torch\.Tensor\.numpy has no operator of its name"),
        (3, r"and 3 came$"),
        (None, r"and None came$"),
        (torch.ones(2), r"and a tensor of shape \(2,\) came$"),
        (torch.nn.Linear, r"^show_op takes an operator or its name"),
        (print, r"^show_op takes an operator or its name"),
        (torch.ops.higher_order.cond, r"^show_op takes an operator or its name"),
    ],
)
def test_what_names_no_operator_is_refused_in_one_sentence(given, sentence):
    with pytest.raises(HelperError, match=sentence) as refused:
        show_op(given)
    assert "\n" not in str(refused.value)


def test_what_cannot_be_looked_up_is_refused_as_well():
    class Callable:
        __hash__ = None

        def __call__(self):
            return 1

    with pytest.raises(HelperError, match="show_op takes an operator"):
        show_op(Callable())


def test_an_operator_that_was_taken_away_is_unknown():
    with torch.library._scoped_library("shown_gone", "FRAGMENT") as library:
        library.define("f(Tensor x) -> Tensor")
        operator = torch.ops.shown_gone.f.default
    with pytest.raises(HelperError, match="no operator shown_gone::f: nothing is registered in the namespace"):
        show_op(operator)


def test_kernels_without_an_operator_are_no_operator():
    with torch.library._scoped_library("shown_dangling", "FRAGMENT") as library:
        library.impl("f", lambda x: x, "CPU")
        with pytest.raises(HelperError, match="shown_dangling::f is no operator yet: kernels are registered"):
            show_op("shown_dangling::f")


def test_every_function_of_torch_gets_an_operator_or_a_sentence():
    named = 0
    for functions in get_overridable_functions().values():
        for function in functions:
            try:
                named += show_op(function).name.startswith("aten::")
            except HelperError:
                continue
    assert named > 800


def test_every_operator_can_be_shown():
    for name in operator_names():
        operator = shown(name)
        assert operator.name == name
        assert repr(operator).startswith(name)


# Installations without the files


@pytest.fixture
def without_files(monkeypatch):
    def forget():
        for cached in (packaged._text, packaged._entries, packaged._generated, packaged.names_without_derivative):
            cached.cache_clear()

    monkeypatch.setattr(packaged, "find_spec", lambda _: None)
    forget()
    yield
    monkeypatch.undo()
    forget()


def test_a_torch_without_its_yaml_files_says_so_in_their_place(without_files):
    operator = show_op("add.Tensor")
    assert operator.entry == operator.formula == ""
    assert "native_functions.yaml: this installation has no native_functions.yaml: the package torchgen" in repr(
        operator
    )
    assert operator.gradient.text == "a generated kernel, whose formula is not in this installation"
    assert operator.resolved["CPU"] == "kernel of its own"
    assert operator.schema.startswith("aten::add.Tensor(Tensor self")


def test_a_torchgen_without_packaged_files_is_the_same_as_none(without_files, monkeypatch, tmp_path):
    spec = type("Spec", (), {"submodule_search_locations": [str(tmp_path)]})
    monkeypatch.setattr(packaged, "find_spec", lambda _: spec)
    assert not packaged.has_file(packaged.NATIVE)
    assert packaged.names_without_derivative() == frozenset()
    assert "this installation has no native_functions.yaml" in repr(show_op("add.Tensor"))


def test_neither_torchgen_nor_yaml_is_imported():
    program = (
        "import sys; from helpers.model.dispatch.operators import show_op; before = set(sys.modules); "
        "repr(show_op('add.Tensor')); "
        "print([name for name in set(sys.modules) - before if name.startswith(('torchgen', 'yaml'))])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
