"""The explainers of `explain_error` for registration: namespaces, operators, kernels and fallbacks given twice."""

from __future__ import annotations

import re
from os.path import basename

from helpers.model.adapter import custom_op_has_backward, device_of_private_key
from helpers.model.dispatch.kernels import is_of_torch
from helpers.model.errors.failure import Answer, Failure, explains, explains_plainly
from helpers.model.source import is_library


def _registered_at(place: str) -> str:
    """Say where a library was made, from "…/file.py:29"; "" for code that is not the reader's.

    The place that torch tells is the line of `Library(…)`, also for what was defined through it later.
    """
    file, _, line = place.rpartition(":")
    if not file.endswith(".py") or is_library(file):
        return ""
    return f" at line {line} of a cell" if "ipykernel" in file else f" at line {line} of {basename(file)}"


@explains(
    r"Only a single TORCH_LIBRARY can be used to register the namespace (\w+);.*?"
    r"Previous registration of TORCH_LIBRARY was registered at (\S+?); latest registration was registered at (\S+)"
)
def _namespace_twice(match: re.Match, failure: Failure) -> Answer:
    """A second Library of kind "DEF" for one namespace."""
    space, first, second = match.groups()
    where = _registered_at(first).replace(" at ", ", registered at ", 1)
    twice = "; the same line ran again, as when a cell is run twice" if first == second else ""
    return (
        f'the namespace {space} already has a library of kind "DEF"{where}, and a namespace may have only one in a '
        f"process{twice}",
        "In a cell that you run again, use torch.library.custom_op, which may be repeated, or keep the Library object "
        'and call lib._destroy() before you make it anew. In a second place, use kind "FRAGMENT".',
    )


@explains(
    r"Tried to register an operator \(([\w:.]+)\(.*?with the same name and overload name multiple times.*?"
    r"Duplicate registration: registered at (\S+?)\. Original registration: registered at (\S+)"
)
def _operator_twice(match: re.Match, failure: Failure) -> Answer:
    """A second definition of one operator."""
    operator, second, first = match.groups()
    where = _registered_at(first)
    by = f", by a library made{where}" if where else ""
    if where and first == second:
        by = f", by the library made{where}, now or when this line ran before"
    elif is_of_torch(operator):
        by = ", by torch itself"
    elif custom_op_has_backward(operator) is not None:
        by = ", by torch.library.custom_op"
    return (
        f"{failure.call.at}: {operator} is defined already{by}, and an operator is defined once",
        _instead(operator, failure.call.place.expression if failure.call.place else ""),
    )


def _instead(operator: str, expression: str) -> str:
    """Say what to do in place of a second definition, by what the reader called and who defined the operator first."""
    name = operator.partition("::")[2]
    if is_of_torch(operator):
        return (
            "Define yours in a namespace of your own; for another kernel of torch's operator, use "
            f'torch.library.Library("aten", "IMPL").impl("{name}", fn, key).'
        )
    if custom_op_has_backward(operator) is not None:
        return "Give this one another name, or change the first by running its torch.library.custom_op anew."
    if "custom_op(" in expression:
        return (
            "custom_op replaces only what custom_op made: give this one another name, or call lib._destroy() on the "
            "Library that defined the first."
        )
    if re.match(r"(torch\.library\.)?define\(", expression):
        return (
            "torch.library.define keeps its definition for the whole process: restart the kernel, or use "
            "torch.library.custom_op, which may be repeated, or a Library object, whose _destroy() ends it."
        )
    return (
        "Call lib._destroy() on the Library that defined it before you define it anew, use torch.library.custom_op, "
        f"which may be repeated, or give another overload: {name.partition('.')[0]}.other(…)."
    )


explains_plainly(
    r"already a kernel registered from python overriding (\S+)'s behavior for (\S*) dispatch key and (\w+) namespace",
    "{call}: {2}::{0} has a kernel for {1} from Python already",
    "Call lib._destroy() on the Library that registered it first, or pass allow_override=True to replace it.",
)


@explains(
    r"Tried to register multiple backend fallbacks for the same dispatch key (\w+); previous registration registered "
    r"at (\S+),"
)
def _fallback_twice(match: re.Match, failure: Failure) -> Answer:
    """A second fallback for one key."""
    key, first = match.groups()
    where = _registered_at(first)
    by = f"a library made{where}" if where else "another library"
    return (
        f"{failure.call.at}: the key {key} has a fallback already, by {by}, and a key may have only one",
        "Keep the Library object of the first one and call lib._destroy() on it before you register another.",
    )


explains_plainly(
    r"Fallback can only be registered using library fragment on the global namespace \"_\" but it is (\w+)",
    "{call} would register a fallback in the namespace {0}, and a fallback serves the operators of all namespaces",
    'Make the library for it as torch.library.Library("_", "IMPL").',
)
explains_plainly(
    r"register_privateuse1_backend\(\) has already been set! Current backend: (\w+)",
    "{call}: the key PrivateUse1 belongs to the device `{0}` already, and it is named once in a process",
    "Use that name, or restart the kernel.",
)
explains_plainly(
    r"The custom device module of .*? has already been registered with is_(\w+)",
    "{call}: the device `{0}` is set up already, and that is done once in a process",
    "Leave the call out, or restart the kernel.",
)


@explains(r"No module named 'torch\.(\w+)'")
def _no_device_module(match: re.Match, failure: Failure) -> Answer | None:
    """A renamed backend has no module of its name."""
    device = match[1]
    if device == "privateuseone" or device != device_of_private_key():
        return None
    return (
        f"{failure.call.at} names the device `{device}`, to which PrivateUse1 was renamed, and torch has no module "
        f"torch.{device} for it",
        f'Call torch.utils.backend_registration._setup_privateuseone_for_python_backend("{device}"), which registers a '
        "module, hooks and a device guard for a backend in Python; a backend in C++ registers its own, the module "
        f'with torch._register_device_module("{device}", module).',
    )


@explains(r"PyTorch is not linked with support for (\w+) devices|No module named 'torch\.(hpu)'")
def _no_guard(match: re.Match, failure: Failure) -> Answer:
    """A device that this build of torch does not have, or a new one that registered a module and nothing else."""
    device = match[1] or match[2]
    if device != device_of_private_key():
        return (
            f"{failure.call.at} asks for the device {device}, and this build of torch was made without it",
            'Use another device, such as "cpu", or install the build of torch, or the package, for your hardware.',
        )
    return (
        f"{failure.call.at} needs a device guard, which sets the current device, and none is registered for "
        f"`{device}`: a module alone makes no backend",
        "Restart the kernel, and leave the registration of a module to "
        'torch.utils.backend_registration._setup_privateuseone_for_python_backend("name"); a backend in C++ registers '
        "its guard there.",
    )


explains_plainly(
    r"No module named 'torch\.privateuseone'",
    "{call} names the device of the key PrivateUse1, and no backend is set up for it in this process",
    "Set one up first: torch.utils.rename_privateuse1_backend and a module by torch._register_device_module, or in "
    "Python alone torch.utils.backend_registration._setup_privateuseone_for_python_backend().",
)
explains_plainly(
    r"Unsupported kind: (?:', ')?(\w*)",
    '{call} names the kind {0}, and a Library has the kind "DEF", "FRAGMENT" or "IMPL"',
    'Use "DEF" to define operators of a new namespace, "FRAGMENT" to add some, "IMPL" to add kernels only.',
)
explains_plainly(
    r"(\w+)(?:', ')? is a reserved namespace\. Please try creating a library with another name",
    "{call}: the namespace {0} belongs to torch",
    "Choose a name of your own.",
)
explains_plainly(
    r"Library object has been destroyed",
    "{call} uses a Library after its _destroy(), with which its registrations ended",
    "Make a new Library.",
)


@explains(r"could not parse dispatch key: (\w+)")
def _no_key(match: re.Match, failure: Failure) -> Answer:
    """A dispatch key that does not exist, such as a device in small letters."""
    name = match[1]
    known = {key.lower(): key for key in _KEYS}
    right = known.get(name.lower())
    return (
        f"{failure.call.at}: {name} is no dispatch key",
        f'Write "{right}".' if right else f"Keys are {', '.join(_KEYS[:5])} and others; a device is no key.",
    )


_KEYS = ("CPU", "CUDA", "Meta", "Autograd", "CompositeExplicitAutograd", "CompositeImplicitAutograd", "PrivateUse1",
         "AutogradCPU", "AutogradCUDA", "SparseCPU", "QuantizedCPU", "MPS", "XPU", "XLA")  # fmt: skip
