"""The explainers of `explain_error` for the dispatcher: no kernel for a key, no operator, no fake kernel."""

from __future__ import annotations

import re
from os.path import basename, exists

import torch

from helpers.model.adapter import (
    custom_op_has_backward,
    device_of_private_key,
    kernels_without_operator,
    operator_names,
    registrations,
)
from helpers.model.dispatch.kernels import (
    Table,
    backend_of,
    from_plain,
    in_words,
    layout_of,
    tensors_of,
    to_plain,
    without_overload,
)
from helpers.model.dispatch.opnames import nearest
from helpers.model.errors.failure import Answer, Failure, explains, explains_plainly
from helpers.model.watch import tensors_in
from helpers.model.words import listed, quoted

# What a backend in Python needs before a tensor can be made on it and moved, and who calls each of these.
MINIMAL = {
    "aten::empty.memory_format": "makes the memory for torch.empty, torch.ones and most results",
    "aten::empty_strided": "makes the memory for .to() and torch.tensor",
    "aten::_copy_from": "copies between this device and the CPU",
}
_PACKAGES = ("torchvision", "torchaudio", "torchtext")


@explains(r"Could not run '([\w:.]+)' with arguments from the '(\w+)' backend")
def _no_kernel(match: re.Match, failure: Failure) -> Answer:
    """The dispatcher came to a backend's key for which the operator has no kernel."""
    operator, backend = match.groups()
    if backend == "AutogradNestedTensor":  # torch names the layer above the backend
        backend = next((backend_of(t) for t in tensors_in(failure.args) if t.is_nested), backend)
    table = Table.read(str(failure.error))
    space, name = without_overload(operator)
    if backend in ("PrivateUse1", device_of_private_key()):
        return _private(operator, failure)
    came = f"{failure.call.at} came to {operator} with {_came(backend, failure)}"
    text = f"{came}, and {operator} has {_kernels(table, backend)}"
    if space in _PACKAGES:
        return (
            f"{text}: the builds of torch and {space} do not match",
            f"Install torch and {space} together, from the same index and for the same device (CPU or the same CUDA).",
        )
    if space == "aten":
        return text, _for_aten(backend, table)
    if custom_op_has_backward(operator) is not None:
        device = layout_of(backend)[1].lower()
        return text, f'Register one: {name}.register_kernel("{device}"){_elsewhere(backend, table)}.'
    return text, f'Register one for this key, lib.impl("{name}", fn, "{backend}"){_elsewhere(backend, table)}.'


def _elsewhere(backend: str, table: Table) -> str:
    """Say with which other tensors the operator has a kernel of its own: on another device, or of another layout."""
    layout, device = layout_of(backend)
    plain = [key for key in table.own if not layout_of(key)[0] and key != "Meta"]
    if layout:
        return f", or convert the tensors, t.{to_plain(backend)}" if device in plain else ""
    if devices := [f"`{device_of_private_key()}`" if key == "PrivateUse1" else key for key in plain if key != device]:
        named = f"{', '.join(devices[:-1])} or {devices[-1]}" if len(devices) > 1 else devices[0]
        return f", or move the tensors to {named}"
    made = [(key, how) for key in table.own if layout_of(key)[1] == device and (how := from_plain(key))]
    if not made:
        return ""
    key, how = made[0]
    return f", or make {tensors_of(key)} of them, {how if how.startswith('torch') else f't.{how}'}"


def _came(backend: str, failure: Failure) -> str:
    """Say what tensors came, and which argument of the call it was, where that is known."""
    given = [(i, t) for i, t in enumerate(failure.args) if isinstance(t, torch.Tensor)]
    names = [failure.operand(i, "") for i, t in given if backend_of(t) == backend]
    named = listed([name for name in names if name], 3)
    return f"{tensors_of(backend)}{f' ({named})' if named else ''}, so the dispatcher looked for the key {backend}"


def _kernels(table: Table, backend: str) -> str:
    """Say which kernels there are, and what the many other keys of the message are."""
    have = in_words(table.own)
    if table.shared:
        have = f"{have.removesuffix(' only')} and one shared by {len(table.shared)} other keys, and none for {backend}"
    other = table.keys - len(table.own) - len(table.shared)
    which = f"all {table.keys}" if other == table.keys else f"{other} of the {table.keys}"
    return f"{have} ({which} keys in torch's message are fallbacks and layers such as Autograd)"


def _for_aten(backend: str, table: Table) -> str:
    """Say what to do with tensors for which torch itself has no kernel."""
    if plain := to_plain(backend):
        return f"Convert first, t.{plain}, and back after it where you need that."
    if backend == "Meta":
        return "A meta tensor has no values; run this on a real tensor, such as torch.empty_like(t, device='cpu')."
    made = next((made for key in table.own if (made := from_plain(key))), "")
    if made:
        kind = tensors_of(table.own[0])
        return f"This operator is for {kind}: make one first, {made if made[0:5] == 'torch' else f't.{made}'}."
    return f"Move the tensors to a device that has it, such as {listed(table.own[:1])}." if table.own else ""


def _private(operator: str, failure: Failure) -> Answer:
    """A backend that is being built at the key PrivateUse1 lacks a kernel."""
    device = device_of_private_key()
    known = f"PrivateUse1 (the device `{device}`)" if device != "privateuseone" else "PrivateUse1"
    missing = [name for name in MINIMAL if "PrivateUse1" not in registrations(name)]
    there = [name for name in MINIMAL if name not in missing]
    short = [name.removeprefix("aten::") for name in missing]
    have = f", of which {listed([n.removeprefix('aten::') for n in there])} {'is' if len(there) == 1 else 'are'} there"
    space, name = without_overload(operator)
    impl = f'torch.library.Library("{space}", "IMPL").impl("{name}", fn, "PrivateUse1")'
    if operator in MINIMAL:
        text = (
            f"{known} has no kernel for {operator}, the first operator behind {failure.call.at} that it lacks: it "
            f"{MINIMAL[operator]}; the minimal set is {_names(MINIMAL)}{have if there else ', and none is there'}"
        )
        rest = [n for n in short if n != name]
        return text, f"Register it, {impl}{f', and then {listed(rest)}' if rest else ''}. Keep the Library object."
    lacks = f"; of the minimal set, {listed(short)} {'is' if len(short) == 1 else 'are'} missing too" if short else ""
    text = f"{known} has no kernel for {operator}, the next operator behind {failure.call.at}{lacks}"
    boxed = (
        'A boxed fallback, torch.library.Library("_", "IMPL").fallback(fn, "PrivateUse1"), can serve the rest by '
        "copying to the CPU and back; views, such as view and as_strided, need kernels of their own"
    )
    return text, f"Register it, {impl}. {boxed}."


def _names(operators: object) -> str:
    return listed([name.removeprefix("aten::") for name in operators])


@explains(r"There were no tensor arguments to this function.*?registered for schema ([\w:.]+?)\.\s")
def _no_tensors(match: re.Match, failure: Failure) -> Answer:
    """An operator that is chosen by its tensors was called without one."""
    operator = match[1]
    table = Table.read(str(failure.error))
    name = without_overload(operator)[1]
    given = [*failure.args, *failure.kwargs.values()]
    why = "no argument is a tensor"
    if any(value is None for value in given):
        why = "None came where a tensor was wanted"
    elif any(isinstance(value, list | tuple) and not value for value in given):
        why = "an empty list of tensors came"
    return (
        f"{failure.call.at} calls {operator}, and {why}: the dispatcher chooses by the keys of tensors, and {operator} "
        f"has {in_words(table.own)}",
        "Give it a tensor. An operator without tensor arguments, such as one that makes a tensor, gets its kernel as "
        f'lib.impl("{name}", fn, "CompositeExplicitAutograd").',
    )


@explains(
    r"Expected all tensors to be on the same device|is not on the expected device (\S+)!|"
    r"Input and parameter tensors are not at the same device"
)
def _devices(match: re.Match, failure: Failure) -> Answer | None:
    """Tensors of different devices met in one call."""
    places = failure.grouped(lambda t: str(t.device))
    if len(places) < 2:
        return None
    said = [f"{listed(names, 4)} on {device}" for device, names in places.items()]
    if "meta" in places:
        return (
            f"{failure.call.at} got {listed(said)}: tensors on meta have no values to compute with",
            f"Make {listed(places['meta'], 3)} on the device of the others, with values; .to() can't bring back what "
            "meta never had.",
        )
    target = max(places, key=lambda device: (len(places[device]), device != "cpu"))
    others = [name for device, names in places.items() if device != target for name in names]
    return (
        f"{failure.call.at} got {listed(said)}: a kernel runs on one device, and torch moves no tensor by itself",
        f"Move {listed(others, 3)} first, with .to({target!r}); a module moves its parameters in the same way.",
    )


explains_plainly(
    r"We found a fake tensor in the exported program constant's list",
    "{call} fails only while it is watched: torch.export follows the program itself, and meets the watching",
    "Call it without this tool; what it exported can be watched: give the tool exported.module().",
)
explains_plainly(
    r"Torch not compiled with (\w+) enabled",
    "{call} asks for a device of {0}, and this build of torch was made without it",
    'Use another device, such as "cpu", or install the build of torch for your hardware.',
)


# Operators that are asked for, and are not there


@explains(r"'_OpNamespace' '(\w+)' object has no attribute '(\w+)'|operator (\w+)::(\w+) does not exist")
def _no_operator(match: re.Match, failure: Failure) -> Answer:
    """`torch.ops.space.name` where no such operator is defined now."""
    space, name = match[1] or match[3], match[2] or match[4]
    asked = f"{space}::{name}"
    waiting = kernels_without_operator().get(asked)
    if waiting is not None:
        return (
            f"{failure.call.at}: {asked} has {in_words(waiting).removesuffix(' only')} and was never defined, so it "
            "has no schema and can't be called",
            f'Define it before its kernels: lib.define("{name}(Tensor x) -> Tensor").',
        )
    known = sorted({n.partition("::")[2].partition(".")[0] for n in operator_names() if n.startswith(f"{space}::")})
    if not known:
        return (
            f"{failure.call.at}: no operator is registered in the namespace {space} now, so there is no {asked}",
            "Import the package, or run torch.ops.load_library(path), before this line; for a torch.library.Library of "
            "your own, run its cell, and keep the Library object: when it dies, its operators go with it.",
        )
    close = nearest(name, known, 1)
    there = f"it has {quoted(known)}" if len(known) < 5 else f"it has {len(known):,} others"
    return (
        f"{failure.call.at}: the namespace {space} has no operator {name} now; {there}",
        f"Did you mean torch.ops.{space}.{close[0]}?" if close else "Define it first, or import what defines it.",
    )


@explains(r"The underlying op of '(\w+)\.(\w+)' has no overload name '(\w+)'")
def _no_overload(match: re.Match, failure: Failure) -> Answer:
    """An overload that an operator does not have."""
    space, name, overload = match.groups()
    full = f"{space}::{name}"
    known = [n.partition(".")[2] or "default" for n in operator_names() if n == full or n.startswith(f"{full}.")]
    return (
        f"{failure.call.at}: {full} has no overload {overload}; it has {quoted(sorted(known), 8)}",
        f"Use one of these, or call torch.ops.{space}.{name}, which chooses by the arguments.",
    )


@explains(r"Could not load this library: (.*)")
def _no_library(match: re.Match, failure: Failure) -> Answer:
    """A file of compiled operators that can't be loaded."""
    why = "the file is there, and was built for another release of torch or lacks a library that it needs"
    if not exists(match[1]):
        why = "there is no such file"
    return (
        f"{failure.call.at}: torch can't load {basename(match[1])}: {why}",
        "Check the path, and build it again with the torch that is installed.",
    )


# Fake kernels and derivatives of custom operators


@explains(
    r"There was no fake impl registered for <CustomOpDef\(([\w:]+)\)>|"
    r"([\w:.]+): attempted to run this operator with Meta tensors, but there was no fake impl|"
    r"unsupported operator: (\w+\.\w+)\.\w+"
)
def _no_fake(match: re.Match, failure: Failure) -> Answer:
    """An operator was asked for the shape of its result, without values."""
    return _fake(next(filter(None, match.groups())).replace(".", "::", not match[2]), failure)


@explains(r"^(\w+)\.(\w+)\.(\w+)$")
def _unsupported(match: re.Match, failure: Failure) -> Answer | None:
    """The same from FakeTensorMode: the message is nothing but the operator."""
    if type(failure.error).__name__ != "UnsupportedOperatorException":
        return None
    return _fake(f"{match[1]}::{match[2]}", failure)


def _fake(operator: str, failure: Failure) -> Answer:
    return (
        f"{failure.call.at} asks {operator} for the shape of its result without values (on meta, under FakeTensorMode "
        f"or while torch.compile traces), and {operator} has no fake kernel",
        f'Register one that returns an empty tensor of the right shape: torch.library.register_fake("{operator}", '
        "lambda x: torch.empty_like(x)).",
    )


@explains(r"Trying to backward through ([\w.]+)\.\w+ but no autograd formula was registered")
def _no_formula(match: re.Match, failure: Failure) -> Answer:
    """Backward came to an operator of `torch.library.custom_op` without a derivative."""
    operator = match[1].replace(".", "::", 1)
    return (
        f"{failure.call.at} came to {operator}, a custom operator without a derivative: its Autograd kernel was made "
        "by custom_op only to say so",
        f'Register the derivative: torch.library.register_autograd("{operator}", backward, setup_context=…).',
    )


explains_plainly(
    r"(\w+) \(with implementation in .*?The output of this custom operator \(1\) must not also be an input",
    "{call}: the custom operator {0} returned one of its inputs, a view of one, or one tensor twice, and its results "
    "must have memory of their own",
    "Return a copy, such as x.clone(); to change an argument in place, name it in mutates_args and return None.",
)
