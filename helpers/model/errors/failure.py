"""A torch call that failed, and the table of functions that explain such failures."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from helpers.model.source import Place
from helpers.model.watch import Call, tensors_in

Answer = tuple[str, str]  # the sentence without its full stop, and the remedy


@dataclass
class Failure:
    """A torch call that raised, with its live arguments. It is dropped when the sentence is made."""

    error: BaseException
    call: Call
    args: tuple
    kwargs: dict[str, Any]
    run: Any = None  # the `Run` that saw it, with its record; None where the call was not seen

    @property
    def name(self) -> str:
        return self.call.name

    def operand(self, position: int, otherwise: str) -> str:
        """Return the source text of one positional argument, or `otherwise`."""
        return self.call.operand(position, otherwise)

    def grouped(self, by: Callable[[torch.Tensor], str]) -> dict[str, list[str]]:
        """Return the names of the tensors that were given, also of those in lists, grouped by a property."""
        groups: dict[str, list[str]] = {}
        for i, value in enumerate(self.args):
            for j, t in enumerate(tensors_in([value])):
                name = self.operand(i, "its parameters" if isinstance(t, torch.nn.Parameter) else f"argument {i}")
                names = groups.setdefault(by(t), [])
                names += [said for said in (name if t is value else f"tensor {j} of {name}",) if said not in names]
        for key, value in self.kwargs.items():
            if isinstance(value, torch.Tensor):
                groups.setdefault(by(value), []).append(self.call.keyword(key, f"`{key}`"))
        return groups


Explainer = Callable[[re.Match, Failure], Answer | None]
# Pattern of a message -> the function that explains it. It may return None: then the next one is asked.
EXPLAINERS: list[tuple[re.Pattern, Explainer]] = []


# Messages of torch's argument parser; the second kind has the same words as those of Python's own functions.
_PARSER = re.compile(
    r"^(?:TensorBase\.)?(\w+)\(\)(?: received an invalid combination of arguments|"
    r": argument '\w+' .*(?:must be|failed to unpack)|"
    r" missing \d+ required positional arguments?: \")|^TensorBase\.(\w+)\(\) takes "
)
_LIKE_PYTHON = re.compile(
    r"^(?:Tensor\.)?(\w+)\(\) (?:got an unexpected keyword argument|takes \d+ positional arguments? but)"
)


def refused_by_parser(error: BaseException, place: Place | None) -> str:
    """Return the name of the torch function that did not take its arguments; "" for any other error."""
    if not isinstance(error, TypeError):
        return ""
    if match := _PARSER.search(str(error)):
        return match[1] or match[2]
    match = _LIKE_PYTHON.search(str(error))
    if match is None or place is None or not place.receiver:
        return ""
    # A method or a function of torch, written after a dot, and no function of that name of the reader's own.
    known = place.called == match[1] and hasattr(torch.Tensor, match[1])
    return match[1] if known else ""


def explains(pattern: str) -> Callable[[Explainer], Explainer]:
    """Add the decorated function to the table, for messages that contain the regular expression."""

    def add(function: Explainer) -> Explainer:
        EXPLAINERS.append((re.compile(pattern, re.DOTALL), function))
        return function

    return add


def explains_plainly(pattern: str, text: str, remedy: str) -> None:
    """Add an explainer whose sentence needs only the call: `{call}`, `{operand}` and the groups `{0}`, `{1}` …"""

    @explains(pattern)
    def explainer(match: re.Match, failure: Failure) -> Answer:
        fill = {"call": failure.call.at, "operand": failure.operand(0, "the tensor")}
        return text.format(*match.groups(), **fill), remedy


def numbers_in(listing: str) -> tuple[int, ...]:
    """Return the sizes that torch lists in a message as "2, -1"."""
    return tuple(int(size) for size in listing.split(",") if size.strip())


def none_given(undefined: tuple[str, Call]) -> Answer:
    """Say that a kernel returned None: torch hands it on without an error."""
    operator, call = undefined
    return (
        f"{call.at} gave None: the kernel of {operator} returned None where its schema promises a Tensor, and torch "
        "raises no error for that",
        "End the kernel with return and the tensor; an operator that returns nothing has the schema f(Tensor(a!) x) -> "
        "().",
    )
