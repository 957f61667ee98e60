"""What `check_function` says: the finding, the reader's function as it is named in a sentence, and number formats."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import torch
from torch.autograd import Function

from helpers.model.finding import Finding
from helpers.model.functions.numbers import Spot
from helpers.model.functions.runs import Trial
from helpers.model.source import caller_arguments
from helpers.model.watch import name_of


@dataclass(frozen=True, kw_only=True, repr=False)
class FunctionFinding(Finding):
    """What comparing a function's backward with numbers has shown.

    `verdict` is one of: "passes", "wrong formula", "straight-through or wrong formula", "float32", "kink", "edge of the
    domain", "overlapping input", "non-deterministic", "missing mark_dirty", "mark_dirty on a non-input", "wrong number
    of gradients", "wrong shape of gradient", "gradient dtype", "returns None for an input that needs a gradient",
    "returns a result without a graph", "forward raises", "backward raises", "overwrites the incoming gradient",
    "changes a saved tensor", "second derivative lost", "unchecked save".

    `argument` names the input that it is about, `element` is the index in it (elements, from 0); `analytical` is what
    backward gives there, `numerical` the slope by numbers. `elements` counts the input elements that were compared,
    all of them where `complete` is true; in large inputs random directions are compared. `also` holds further faults.
    """

    verdict: str
    argument: str = ""
    element: tuple[int, ...] | None = None
    analytical: float | complex | None = None
    numerical: float | complex | None = None
    elements: int = 0
    complete: bool = True
    also: tuple[str, ...] = ()


@dataclass
class Subject:
    """The reader's function, its arguments, and what to call both.

    `cls` is the autograd.Function behind it, or None. `names` are the names of the arguments as forward calls them,
    `which` the positions of those that are differentiated. A `slow` function is run less often.
    """

    fn: Callable
    cls: type[Function] | None
    args: tuple
    names: list[str]
    which: tuple[int, ...]
    name: str
    slow: bool = False
    random: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))

    @property
    def backward(self) -> str:
        """How to call the backward: "Square.backward", or "the backward of `f`"."""
        return f"{self.cls.__name__}.{backward_name(self.cls)}" if self.cls else f"the backward of {self.name}"

    def argument(self, k: int) -> str:
        """Return the name of the k-th differentiated input."""
        return self.names[self.which[k]]

    def label(self, trial: Trial, j: int) -> str:
        """Return one input number in backquotes: "`x[0, 1]`", or "`x`" for a tensor without dimensions."""
        k, index, part = trial.place(j)
        return f"`{self.argument(k)}{list(index) if index else ''}{part}`"

    def about(self, trial: Trial, spot: Spot) -> dict[str, Any]:
        """Return the fields of a finding about one derivative."""
        k, index, _ = trial.place(spot.j)
        return {
            "argument": self.argument(k),
            "element": index,
            "analytical": spot.analytical,
            "numerical": spot.numerical,
            "facts": {"left": spot.left, "right": spot.right, "at": spot.at},
        }


def subject_of(fn: Callable, cls: type[Function] | None, args: tuple, which: tuple[int, ...]) -> Subject:
    if cls is not None:
        name, signed = f"`{cls.__name__}`", cls.forward
    else:
        name, signed = name_of(fn), (fn.forward if isinstance(fn, torch.nn.Module) else fn)
    return Subject(fn, cls, args, argument_names(signed, len(args), cls), which, name)


def argument_names(signed: Callable, count: int, cls: type[Function] | None = None) -> list[str]:
    """Return what the function calls its first `count` arguments, or all (0), without ctx; "input_0" where unknown."""
    names: list[str] = []
    try:
        for p in inspect.signature(signed).parameters.values():
            if p.kind is p.VAR_POSITIONAL:
                names += [f"{p.name}[{k}]" for k in range(count + 1)]
            elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                names.append(p.name)
    except Exception:  # a builtin has none, and a __getattr__ of the reader's may raise anything
        pass
    if cls is not None and not sets_up(cls):
        names = names[1:]
    if not names and count:  # then as the reader called them
        names = [text if text.isidentifier() else f"input_{k}" for k, text in enumerate(caller_arguments()[1:])]
    return (names + [f"input_{k}" for k in range(len(names), count)])[: count or None]


def sets_up(cls: type[Function]) -> bool:
    """Say whether a Function has setup_context; then its forward takes no ctx."""
    return cls.setup_context is not Function.setup_context


def backward_name(cls: type[Function]) -> str:
    """Return "backward", or "vjp" where the class defines that in its place."""
    return "vjp" if cls.vjp is not Function.vjp else "backward"


def class_called(fn: Callable, wanted: str = "") -> type[Function] | None:
    """Return the Function class that a plain function names in its code, the one called `wanted` or the only one."""
    try:
        code = fn.__code__
    except Exception:  # no plain function, and a __getattr__ of the reader's may raise anything
        return None
    cells = zip(code.co_freevars, fn.__closure__ or (), strict=False)
    known = {**fn.__globals__, **{n: c.cell_contents for n, c in cells if not _empty(c)}}
    found = [known[n] for n in (*code.co_names, *code.co_freevars) if n in known]
    found = [c for c in found if isinstance(c, type) and issubclass(c, Function)]
    named = [c for c in found if c.__name__ == wanted] if wanted else found
    return named[0] if len(set(named)) == 1 else None


def _empty(cell: Any) -> bool:
    try:
        return cell.cell_contents is cell
    except ValueError:  # the name has no value yet
        return True


def dirty_names(cls: type[Function] | None) -> list[str]:
    """Return the code of what ctx.mark_dirty is given in forward or setup_context; empty where there is no source."""
    found = []
    for method in (cls.forward, cls.setup_context) if cls else ():
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
        except (OSError, TypeError, SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "mark_dirty":
                found += [ast.unparse(argument) for argument in node.args]
    return found


def number(value: float | complex) -> str:
    """Return a number with four digits, without a sign for zero."""
    if isinstance(value, complex):
        return f"{value:.4g}" if value.imag else number(value.real)
    if value == 0 or not isfinite(value):
        return "0" if value == 0 else f"{value:g}"
    nearest = round(value)
    if abs(value - nearest) <= 1e-6 * max(1.0, abs(value)) and abs(nearest) < 1e6:
        return str(nearest) if nearest or abs(value) < 1e-9 else f"{value:.2g}"
    return f"{value:.4g}"


def slope(value: float) -> str:
    """Return a slope taken on one side of a point; it is exact to about the length of its step."""
    return number(round(value, 4) if abs(value) < 1000 else value)


def values(count: int) -> str:
    """Return "1 value" or "3 values"."""
    return f"{count} value" if count == 1 else f"{count} values"
