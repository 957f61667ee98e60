"""Where the gradient of an operator comes from, as far as its registrations and torch's own lists say it."""

from __future__ import annotations

from dataclasses import dataclass

from helpers.model.adapter import Kernel, custom_op_has_backward, find_operator, kernel_table, operator_schema
from helpers.model.dispatch.aliases import read_aliases
from helpers.model.dispatch.opnames import writes_to_out
from helpers.model.dispatch.packaged import (
    DERIVATIVES,
    NATIVE,
    find_entry,
    find_overloads,
    has_file,
    names_without_derivative,
    read_arguments,
    read_differentiability,
    read_formulas,
    read_name,
)
from helpers.model.words import listed, quoted


@dataclass(frozen=True)
class Gradient:
    """`text`: a sentence on the source of the gradient. `formula`: the lines of `derivatives.yaml` for it, or ""."""

    text: str
    formula: str = ""


def find_gradient(name: str) -> Gradient:
    """Return where the gradient of an operator comes from, for tensors on the CPU.

    The kernel that the dispatcher calls at AutogradCPU decides. What its code does is not read: for a kernel that was
    generated, `derivatives.yaml` and the rules of torch's generator say it.
    """
    table = kernel_table(name)
    kernel = table.get("AutogradCPU")
    if kernel is None:
        return Gradient("none: there is no kernel for AutogradCPU")
    if kernel.fallthrough:
        return Gradient("AutogradCPU is a fallthrough: only operators that the next kernel calls can give one")
    if kernel.kind == "math kernel":
        return _of_a_composition(name, table)
    if kernel.kind == "backend fallback":
        return Gradient(
            "none is registered for Autograd: a backward through it warns, and may give a wrong gradient or none"
        )
    has_backward = custom_op_has_backward(name)
    if has_backward is not None:
        return Gradient(
            "the function that was given to register_autograd"
            if has_backward
            else "none: register_autograd was not called, so a backward raises an error"
        )
    if not kernel.file.startswith("VariableType"):  # torch's generator writes these files only
        key = kernel.alias or "AutogradCPU"
        return Gradient(
            f"a kernel registered for {key}, as `register_autograd` does it; its code alone says what it does"
        )
    if kernel.file == "VariableTypeManual.cpp":
        return Gradient("its Autograd kernel is written by hand in C++, without a formula")
    return _of_a_generated_kernel(name)


def _of_a_composition(name: str, table: dict[str, Kernel]) -> Gradient:
    text = "composition: the operators that its math kernel calls bring their own gradients"
    formula = find_entry(DERIVATIVES, _base(name))
    users = [key for key, kernel in table.items() if kernel.kind == "autograd kernel"]
    if formula and users:
        text += f"; the formula serves {listed(users)}, whose backends have a kernel of their own"
    return Gradient(text, formula)


def _of_a_generated_kernel(name: str) -> Gradient:
    """Say from what torch's generator made an Autograd kernel (the rules of `match_differentiability_info`)."""
    short = _base(name)
    if formula := find_entry(DERIVATIVES, short):
        return Gradient(_in_words(formula, "its own entry"), formula)
    if not has_file(DERIVATIVES):
        return Gradient("a generated kernel, whose formula is not in this installation")
    if writes_to_out(name):
        return Gradient("none: an out= variant refuses inputs that require a gradient")
    base = short.partition(".")[0]
    foreach = base.startswith("_foreach_")
    schema = str(operator_schema(find_operator(name)))
    if formula := (_formula_for_each if foreach else _formula_of_other_form)(short, schema):
        relation = "tensor by tensor" if foreach else "the same operator in another form"
        return Gradient(_in_words(formula, f"the entry of {read_name(formula)} ({relation})"), formula)
    if base.removesuffix("_") in names_without_derivative():  # so does the generator: no `__and__` is found
        return Gradient("none: torch lists it as not differentiable (DONT_REQUIRE_DERIVATIVE)")
    return Gradient(_without_formula(schema))


def _in_words(entry: str, whose: str) -> str:
    """Say what an entry of `derivatives.yaml` gives: formulas, or that there is nothing to give."""
    results, said = read_differentiability(entry), read_formulas(entry)
    constant = [name for name, text in said.items() if text == "non_differentiable"]
    missing = [name for name, text in said.items() if text.strip("'\"").startswith("not_implemented(")]
    if results and not any(results):
        return f"none: {whose} says that no result is differentiable (output_differentiability)"
    if len(constant) == len(said):
        return f"none: {whose} says that no argument is differentiable" if said else f"none: {whose} has no formula"
    if len(constant) + len(missing) == len(said):
        return f"none: {whose} says not_implemented, so a backward raises an error"
    text = f"the formula in {whose}"
    if missing:
        text += f"; not implemented for {quoted(missing, None)}"
    others = [f"`{name}`" for name in constant] + [f"result {i}" for i, yes in enumerate(results) if not yes]
    return f"{text}; not differentiable: {', '.join(others)}" if others else text


def _without_formula(schema: str) -> str:
    arguments, _, results = schema.rpartition(" -> ")
    if "Tensor" not in results and not read_aliases(schema).writes:
        return "none: no result is a tensor"
    if "Tensor" not in arguments:
        return "none: no argument is a tensor"
    return "none: no formula exists, so a backward through it raises an error"


def _formula_of_other_form(short: str, schema: str) -> str:
    """Return the entry that serves a form of an operator without its own, or "".

    An in-place operator takes the entry of the out-of-place one with the same types of arguments (`pow_.Tensor` that of
    `pow.Tensor_Tensor`), a copying view that of the view, and a generated operator that of the one that writes.
    """
    base, dot, overload = short.partition(".")
    if base.endswith("_"):
        same = (e for e in find_overloads(DERIVATIVES, base[:-1]) if _types(e) == _types(schema))
        return next(same, "")
    if base.endswith("_copy"):
        return find_entry(DERIVATIVES, f"{base.removesuffix('_copy')}{dot}{overload}")
    if find_entry(NATIVE, short):
        return ""  # not generated from another's entry
    writing = base.removesuffix("_functional") if base.endswith("_functional") else f"{base}_"
    return find_entry(DERIVATIVES, f"{writing}{dot}{overload}")


def _formula_for_each(short: str, schema: str) -> str:
    """Return the entry of the operator that a `_foreach_` operator runs on each tensor, or "".

    Its types of arguments are the same or those in the lists, and what it takes beyond them has a default.
    """
    base = short.partition(".")[0]
    plain, own = base.removeprefix("_foreach_").removesuffix("_"), _types(schema)
    candidates = find_overloads(DERIVATIVES, plain)
    if base.endswith("_"):
        candidates += find_overloads(DERIVATIVES, f"{plain}_")
    for entry in candidates:
        theirs = read_arguments(entry)
        fits = all(a.kind in (mine, mine.removesuffix("[]")) for mine, a in zip(own, theirs, strict=False))
        if fits and len(own) <= len(theirs) and all(a.has_default for a in theirs[len(own) :]):
            return entry
    return ""


def _types(schema: str) -> list[str]:
    return [argument.kind for argument in read_arguments(schema)]


def _base(name: str) -> str:
    """Return the name as the yaml files have it; an operator of another namespace has no entry there."""
    return name.removeprefix("aten::")
