"""Which operator a reader means: by its name, by the operator itself, or by a function of torch that calls it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from difflib import get_close_matches
from types import FunctionType
from typing import Any

import torch
from torch.overrides import resolve_name

from helpers.model.adapter import custom_op_name, find_operator, kernel_table, operator_names, operator_schema
from helpers.model.finding import HelperError, in_short
from helpers.model.words import listed

_OVERLOAD, _PACKET = type(torch.ops.aten.add.Tensor), type(torch.ops.aten.add)


def name_operator(given: Any, helper: str = "show_op") -> str:
    """Return the full name, such as "aten::add.Tensor", of the operator that was given.

    `given` is a name, an operator, a function of torch or a method of `torch.Tensor`. Of several overloads the one
    without an overload's name is meant, or the only one that is no out= variant. Raises HelperError where there is no
    operator, with the nearest names, and where there are several, with the overloads. `helper` is who asks.
    """
    if isinstance(given, str):
        return _find(_full_name(given), given)
    if isinstance(given, _OVERLOAD):
        return _find(given.name(), given.name())
    if isinstance(given, _PACKET):
        return _find(str(given).replace(".", "::", 1), str(given))
    if isinstance(given, torch.library.CustomOpDef):
        return custom_op_name(given)
    function = resolve_name(given) if callable(given) and isinstance(given, Hashable) else None
    if function is None:
        raise HelperError(
            f"{helper} takes an operator or its name, such as 'add.Tensor' or torch.ops.aten.add.Tensor, "
            f"and {in_short(given)} came"
        )
    if isinstance(given, FunctionType):
        raise HelperError(
            f"{function} is written in Python and calls operators of its own: trace_dispatch shows which; "
            f"{helper} takes one of these"
        )
    name = f"aten::{given.__name__}"
    if not _overloads(name):
        raise HelperError(f"{function} has no operator of its name, so {helper} cannot tell which one it calls")
    return _find(name, function)


def is_operator(function: object) -> bool:
    """Say whether a called function is an operator, as `torch.ops.aten.add` and its overloads are."""
    return isinstance(function, _OVERLOAD | _PACKET)


def none_for_tensor(operator: Any, result: object) -> bool:
    """Say whether an operator gave None where its schema promises a Tensor; False where several overloads differ."""
    given = list(result) if isinstance(result, tuple) else [result]
    if all(one is not None for one in given):
        return False
    returns = operator_schema(find_operator(name_operator(operator))).returns
    return len(returns) == len(given) and any(
        one is None and str(promised.type) == "Tensor" for one, promised in zip(given, returns, strict=True)
    )


def _full_name(text: str) -> str:
    """Return a reader's spelling in the form that the dispatcher uses."""
    name = text.strip().removeprefix("torch.ops.").removeprefix("torch.").removesuffix(".default")
    space, dot, rest = name.partition(".")
    if "::" not in name and dot and any(known.startswith(f"{space}::") for known in operator_names()):
        return f"{space}::{rest}"  # as torch prints an operator: aten.add.Tensor
    return name if "::" in name else f"aten::{name}"


def _find(name: str, given: str) -> str:
    if _is_registered(name):
        return name  # of several overloads the one without an overload's name
    overloads = _overloads(name)
    usable = [n for n in overloads if not writes_to_out(n)]
    if len(usable) == 1:
        return usable[0]
    if overloads:
        raise HelperError(
            f"{given} has {len(overloads)} overloads; give the name of one: {listed(_short(n) for n in overloads)}"
        )
    if name in operator_names():
        raise HelperError(
            f"{name} is no operator yet: kernels are registered for it, but no library defines its schema"
        )
    raise HelperError(f"no operator {given.strip() or 'without a name'}{_near(name)}")


def _is_registered(name: str) -> bool:
    """Say whether the dispatcher has the operator: it does not know those of TorchScript alone, such as aten::add.t."""
    try:
        find_operator(name)
    except KeyError:
        return False  # also for a name that only kernels were registered for
    return bool(kernel_table(name))


def _overloads(name: str) -> list[str]:
    """Return the operators whose name without the overload is this one."""
    return sorted(n for n in operator_names() if n.partition(".")[0] == name and _is_registered(n))


def writes_to_out(name: str) -> bool:
    """Say whether an operator is an out= variant: it writes to an argument that can only be given by its name."""
    arguments = operator_schema(find_operator(name)).arguments
    return any(a.kwarg_only and a.alias_info is not None and a.alias_info.is_write for a in arguments)


def _short(name: str) -> str:
    return name.removeprefix("aten::")


def _near(name: str) -> str:
    """Return the end of the sentence: names that are spelled nearly so, or that the namespace is empty."""
    space = name.partition("::")[0]
    known = operator_names()
    if not space:
        return ""
    if not any(n.startswith(f"{space}::") for n in known):
        return f": nothing is registered in the namespace {space}, so import the library that defines it first"
    names = {_short(n) for n in known} | {_short(n.partition(".")[0]) for n in known}
    near = nearest(_short(name), sorted(names), 4)
    return f"; near names: {listed(near)}" if near else ""


def nearest(name: str, known: Sequence[str], most: int) -> list[str]:
    """Return the known names that are spelled nearly so, first those to which only the last letter is missing."""
    longer = [n for n in known if n.startswith(name) and len(n) == len(name) + 1]
    return list(dict.fromkeys([*longer, *get_close_matches(name, known, n=most)]))[:most]
