"""The operations that `explore_layout` offers, with the controls of their parameters.

Each operation is a function of a layout and of what the reader has set so far. It declares its
controls one by one; the bounds of each follow from those before it, so that a slider reaches only
what is legal. It returns the step, or raises HelperError with the sentence for what was typed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations, permutations
from math import prod
from typing import Any

import torch

from helpers.explore.panel import Control, Select, Slider, Text, control_number
from helpers.explore.steps import Step
from helpers.model.finding import HelperError, in_short
from helpers.model.layout import Layout
from helpers.model.views import explain_view


@dataclass
class Form:
    """What the reader has set, by name, and the controls declared so far."""

    given: dict[str, Any] = field(default_factory=dict)
    controls: list[Control] = field(default_factory=list)

    def number(self, name: str, low: int, high: int, default: int, shown: dict[int, str] | None = None) -> int:
        """Declare a slider; return its value, moved into the bounds."""
        value = min(max(control_number(self.given.get(name, default)), low), max(low, high))
        self.given[name] = value
        self.controls.append(Slider(name, name, low, max(low, high), value, (shown or {}).get(value, "")))
        return value

    def choice(self, name: str, options: dict[str, Any]) -> Any:
        """Declare a drop-down list; return what stands behind the chosen text, at first the first."""
        text = self.given.get(name)
        if not isinstance(text, str) or text not in options:
            text = next(iter(options))
        self.given[name] = text
        self.controls.append(Select(name, name, tuple(options), text))
        return options[text]

    def text(self, name: str, default: str) -> str:
        """Declare a text field; return what is typed in it."""
        value = self.given.setdefault(name, default)
        if not isinstance(value, str):
            self.given[name] = value = default
        self.controls.append(Text(name, name, value))
        return value


def whole_numbers(text: str, what: str) -> tuple[int, ...]:
    """Read "3, 4", "(3, 4)", "[3, 4]" or "3 4". Anything else raises HelperError; nothing means ()."""
    bare = re.sub(r"^\s*[(\[](.*)[)\]]\s*$", r"\1", text)
    parts = [part for part in re.split(r"[,\s]+", bare.strip()) if part]
    if not all(re.fullmatch(r"[+-]?\d{1,15}", part) for part in parts):
        raise HelperError(
            f"{what} is whole numbers with commas between them, such as 3, 4; {in_short(text.strip())} came"
        )
    return tuple(int(part) for part in parts)


def written(numbers: tuple[int, ...]) -> str:
    """Return numbers as one types them: "3, 4"."""
    return ", ".join(map(str, numbers))


def _view(here: Layout, form: Form) -> Step:
    shape = whole_numbers(form.text("shape", written(here.shape)), "a shape")
    finding = explain_view(here, shape)
    if not finding.possible:
        raise HelperError(finding.text)
    return Step("view", shape or ((),))


def _transpose(here: Layout, form: Form) -> Step:
    last = here.ndim - 1
    return Step("transpose", (form.number("dim0", 0, last, 0), form.number("dim1", 0, last, 1)))


def _permute(here: Layout, form: Form) -> Step:
    dims = whole_numbers(form.text("permutation", written(tuple(reversed(range(here.ndim))))), "a permutation")
    if len(dims) != here.ndim:
        raise HelperError(f"permutation {dims} has length {len(dims)}; the tensor has {here.ndim} dimensions")
    for dim in dims:
        if not -here.ndim <= dim < here.ndim:
            raise HelperError(f"permutation {dims} names dimension {dim}; there are only 0 to {here.ndim - 1}")
    real = [dim % here.ndim for dim in dims]
    twice = next((dim for dim in real if real.count(dim) > 1), None)
    if twice is not None:
        raise HelperError(f"permutation {dims} repeats dimension {twice}")
    return Step("permute", dims)


def _expand(here: Layout, form: Form) -> Step:
    ones = [dim for dim, size in enumerate(here.shape) if size == 1]
    front = form.number("new first dimension", 0, 6, 0 if ones else 2, {0: "none"})
    shape = list(here.shape)
    for dim in ones:
        shape[dim] = form.number(f"size of dimension {dim}", 1, 6, 3)
    return Step("expand", ((front,) if front else ()) + tuple(shape) or ((),))


def _narrow(here: Layout, form: Form) -> Step:
    dim = form.number("dim", 0, here.ndim - 1, 0)
    size = here.shape[dim]
    start = form.number("start", 0, size - 1, 1)
    return Step("narrow", (dim, start, form.number("length", min(1, size), size - start, size - start)))


def _slice(here: Layout, form: Form) -> Step:
    dim = form.number("dim", 0, here.ndim - 1, here.ndim - 1)
    size = here.shape[dim]
    start = form.number("start", 0, size, 0)
    stop = form.number("stop", start, size, size)
    return Step("slice", (dim, start, stop, form.number("step", 1, size, 2)))


def _unfold(here: Layout, form: Form) -> Step:
    dim = form.number("dimension", 0, here.ndim - 1, here.ndim - 1)
    size = here.shape[dim]
    window = form.number("size", min(1, size), size, 2)
    return Step("unfold", (dim, window, form.number("step", 1, size, 1)))


def _diagonal(here: Layout, form: Form) -> Step:
    pairs = {f"{a}, {b}": (a, b) for a, b in permutations(range(here.ndim), 2)}
    rows, columns = form.choice("dimensions", pairs)
    offset = form.number("offset", min(0, 1 - here.shape[rows]), max(0, here.shape[columns] - 1), 0)
    return Step("diagonal", (offset, rows, columns))


def _flip(here: Layout, form: Form) -> Step:
    some = [dims for count in range(1, here.ndim + 1) for dims in combinations(range(here.ndim), count)]
    return Step("flip", form.choice("dimensions", {written(dims): dims for dims in some}))


def _as_strided(here: Layout, form: Form) -> Step:
    size_text, stride_text = form.text("size", written(here.shape)), form.text("stride", written(here.stride))
    reach = 0
    try:
        size, stride = whole_numbers(size_text, "a size"), whole_numbers(stride_text, "a stride")
        if len(size) != len(stride):
            raise HelperError(f"size {size} has length {len(size)} and stride {stride} has length {len(stride)}")
        if min(size, default=0) < 0 or min(stride, default=0) < 0:
            raise HelperError(f"size {size} and stride {stride} may hold no negative number")
        if prod(size) >= 2**62:
            raise HelperError(f"size {size} is more elements than a tensor can count")
        if 0 not in size:
            reach = sum((n - 1) * s for n, s in zip(size, stride, strict=True))
        if 0 not in size and reach >= here.storage_numel:
            raise HelperError(
                f"size {size} with stride {stride} spans {reach + 1} slots; the storage has {here.storage_numel}"
            )
    except HelperError:
        form.number("storage_offset", 0, here.storage_numel - 1, here.storage_offset)
        raise
    offset = form.number("storage_offset", 0, here.storage_numel - 1 - reach, here.storage_offset)
    return Step("as_strided", (size, stride, offset))


def _contiguous(here: Layout, form: Form) -> Step:
    if here.ndim != 4:
        return Step("contiguous", ())
    formats = {"contiguous_format": (), "channels_last": (torch.channels_last,)}
    return Step("contiguous", form.choice("memory_format", formats))


def _nothing(here: Layout, form: Form) -> None:
    return None


Operation = Callable[[Layout, Form], Step | None]
NOTHING = "nothing yet"

# Name -> (operation, the fewest dimensions with which it makes sense).
OPERATIONS: dict[str, tuple[Operation, int]] = {
    NOTHING: (_nothing, 0),
    "view": (_view, 0),
    "transpose": (_transpose, 2),
    "permute": (_permute, 2),
    "expand": (_expand, 0),
    "narrow": (_narrow, 1),
    "slice": (_slice, 1),
    "unfold": (_unfold, 1),
    "diagonal": (_diagonal, 2),
    "flip": (_flip, 1),
    "as_strided": (_as_strided, 0),
    "contiguous": (_contiguous, 0),
}
