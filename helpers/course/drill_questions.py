"""Fresh questions about strides, each computed by the torch that is installed.

A question is a short program: `x` and a chain of operations that gives `y`. The program shown is the
program that runs; every answer is read off the tensors it makes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, TypeVar

import torch

from helpers.explore.steps import Step
from helpers.model.layout import Layout
from helpers.model.views import explain_view

T = TypeVar("T")


@dataclass(frozen=True)
class Level:
    """What a level asks: numbers of dimensions of `x`, lengths of the chain, operations and kinds of question."""

    ranks: tuple[int, ...]
    lengths: tuple[int, ...]
    operations: tuple[str, ...]
    kinds: tuple[str, ...]


FIRST = ("transpose", "narrow", "slice", "view")
SECOND = (*FIRST, "permute", "expand", "diagonal", "broadcast_to")
THIRD = (*SECOND, "unfold", "flip", "contiguous")
LEVELS = {
    1: Level((2,), (1,), FIRST, ("stride", "storage_offset", "contiguous")),
    2: Level((2, 3), (2,), SECOND, ("stride", "storage_offset", "contiguous", "slot")),
    3: Level((2, 3), (2, 3), THIRD, ("stride", "storage_offset", "contiguous", "slot", "shares", "view")),
    4: Level((3, 4), (3, 4), (*THIRD, "as_strided"), ("stride", "storage_offset", "slot", "shares", "view")),
}


class Dice:
    """Random choices that are the same for one seed on every machine and every Python.

    Python promises that only for `random()`, so everything here is made from it.
    """

    def __init__(self, seed: int | None):
        self._random = random.Random(seed).random

    def below(self, count: int) -> int:
        """Return a whole number from 0 to count - 1."""
        return int(self._random() * count)

    def between(self, low: int, high: int) -> int:
        """Return a whole number from low to high."""
        return low + self.below(high - low + 1)

    def pick(self, choices: Sequence[T]) -> T:
        """Return one of the choices."""
        return choices[self.below(len(choices))]


@dataclass(frozen=True)
class Question:
    """One question: the program, what is asked about `y`, the right answer, and the way there.

    `way` holds rows of texts: the operation, then shape, stride, storage_offset and whose storage.
    `reason` is one sentence that tells why the answer is what it is.
    """

    code: str
    text: str
    kind: str
    truth: tuple[int, ...] | int | bool
    way: tuple[tuple[str, ...], ...]
    reason: str
    y: torch.Tensor


def fresh_question(level: int, dice: Dice) -> Question:
    """Make the next question of a level. Chains that end in a dull tensor are thrown away."""
    rules = LEVELS[level]
    while True:
        shape = _shape(rules, dice)
        x = torch.arange(prod(shape)).view(shape)
        steps = _chain(x, rules, dice)
        if steps is not None:
            return _ask(shape, steps, dice.pick(rules.kinds), dice)


def _shape(rules: Level, dice: Dice) -> tuple[int, ...]:
    rank = dice.pick(rules.ranks)
    most = {2: 5, 3: 4, 4: 3}[rank]
    shape = [dice.between(2, most) for _ in range(rank)]
    if "expand" in rules.operations and dice.below(3) == 0:
        shape[dice.below(rank)] = 1  # something to expand
    return tuple(shape)


def _chain(x: torch.Tensor, rules: Level, dice: Dice) -> list[Step] | None:
    """Return steps from x on, no operation twice, or None if one leads nowhere."""
    steps: list[Step] = []
    y = x
    for _ in range(dice.pick(rules.lengths)):
        used = {step.name for step in steps}
        name = dice.pick([name for name in rules.operations if name not in used])
        step = _step(name, y, dice)
        if step is None:
            return None
        y = step.apply(y)
        if not (1 <= y.ndim <= 4 and 3 <= y.numel() <= 72):
            return None
        steps.append(step)
    return steps


def _step(name: str, t: torch.Tensor, dice: Dice) -> Step | None:
    """Return one step with random parameters, or None if the operation would do nothing here."""
    rank, shape = t.ndim, tuple(t.shape)
    dim = dice.below(rank)
    long = shape[dim] > 1
    if name == "transpose" and rank > 1:
        other = (dim + 1 + dice.below(rank - 1)) % rank
        return Step(name, (min(dim, other), max(dim, other)))
    if name == "narrow" and long:
        length = dice.between(1, shape[dim] - 1)
        return Step(name, (dim, dice.between(0, shape[dim] - length), length))
    if name == "slice" and long:
        start = dice.between(0, shape[dim] - 2)
        stop = dice.between(start + 1, shape[dim])
        step = dice.between(1, min(3, stop - start - 1)) if stop - start > 2 else 1
        return Step(name, (dim, start, stop, step)) if stop - start < shape[dim] or step > 1 else None
    if name == "view":
        shapes = [new for new in _shapes(t.numel()) if new != shape and explain_view(t, new).possible]
        return Step(name, dice.pick(shapes)) if shapes else None
    if name == "permute" and rank > 2:
        dims = list(range(rank))
        order = tuple(dims.pop(dice.below(len(dims))) for _ in range(rank))
        return Step(name, order) if order != tuple(range(rank)) else None
    if name == "expand" and 1 in shape:
        sizes = dice.between(2, 4)
        return Step(name, tuple(sizes if size == 1 else size for size in shape))
    if name == "broadcast_to" and rank < 4:
        return Step(name, ((dice.between(2, 3), *shape),))
    if name == "diagonal" and rank > 1:
        return Step(name, (dice.between(-1, 1), 0, 1))
    if name == "unfold" and shape[dim] > 2 and rank < 4:
        return Step(name, (dim, 2, dice.between(1, 2)))
    if name == "flip":
        return Step(name, (dim,))
    if name == "contiguous":
        return Step(name, ())
    if name == "as_strided":
        size, stride = (dice.between(2, 3), dice.between(2, 3)), (dice.between(0, 4), dice.between(0, 3))
        reach = sum((n - 1) * s for n, s in zip(size, stride, strict=True))
        room = Layout.of(t).storage_numel - 1 - reach
        return Step(name, (size, stride, dice.between(0, min(room, 5)))) if room >= 0 else None
    return None


def _shapes(numel: int) -> list[tuple[int, ...]]:
    """Return the shapes of one to three dimensions, none of size 1, that hold this many elements."""
    parts = [n for n in range(2, numel) if numel % n == 0]
    twos = [(n, numel // n) for n in parts]
    return [(numel,), *twos, *[(a, n, b // n) for a, b in twos for n in range(2, b) if b % n == 0]]


def _ask(shape: tuple[int, ...], steps: list[Step], kind: str, dice: Dice) -> Question:
    code = f"x = torch.arange({prod(shape)}).view{shape}\ny = x{''.join(step.code for step in steps)}"
    names: dict[str, Any] = {"torch": torch}
    exec(code, names)
    x, y = names["x"], names["y"]
    layout = Layout.of(y)
    way = _way(x, steps)
    plain = torch.empty(layout.shape, device="meta").stride()
    if kind == "stride":
        text, truth = "What is y.stride()?", layout.stride
        reason = f"A contiguous tensor of shape {layout.shape} would have stride {plain}."
        if layout.is_contiguous():
            reason = "y is contiguous: each stride is the product of the sizes after it, where a size is not 1."
    elif kind == "storage_offset":
        text, truth = "What is y.storage_offset()?", layout.storage_offset
        moved = [row[0] for before, row in pairwise(way[1:]) if before[3] != row[3]]
        movers = f"{' and '.join(moved)} moved the start" if moved else "no operation moved the start"
        reason = f"The first element of y lies in slot {layout.storage_offset} of its storage: {movers}."
    elif kind == "contiguous":
        text, truth = "Is y contiguous (y.is_contiguous())?", y.is_contiguous()
        reason = f"A contiguous tensor of shape {layout.shape} has stride {plain}, and y has {layout.stride}."
        if truth and plain != layout.stride:
            reason += " They differ only where the size is 1, and there the stride does not matter."
    elif kind == "slot":
        index = tuple(dice.below(size) for size in layout.shape)
        text = f"Which slot of its storage does y[{', '.join(map(str, index))}] read?"
        truth = y[index].storage_offset()
        products = " + ".join(f"{i} * {stride}" for i, stride in zip(index, layout.stride, strict=True))
        reason = f"storage_offset + index * stride = {layout.storage_offset} + {products} = {truth}."
    elif kind == "shares":
        text = "Does y share the storage of x?"
        truth = x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
        copying = next((row[0] for row in way if row[-1] == "a copy"), "")
        reason = f"{copying} makes a copy." if copying else "None of these operations copies here."
    else:
        new = _new_shape(y, dice)
        text, finding = f"Does y.view{new if len(new) > 1 else f'({new[0]})'} work?", explain_view(y, new)
        truth, reason = finding.possible, finding.text
    return Question(code, text, kind, truth, way, reason, y)


def _new_shape(y: torch.Tensor, dice: Dice) -> tuple[int, ...]:
    """Return a shape to ask about; as often one that works as one that does not, where there are both."""
    shapes = [new for new in _shapes(y.numel()) if new != tuple(y.shape)] or [(1, y.numel())]
    wanted = dice.below(2) == 0
    return dice.pick([new for new in shapes if explain_view(y, new).possible == wanted] or shapes)


def _way(x: torch.Tensor, steps: list[Step]) -> tuple[tuple[str, ...], ...]:
    rows = [("operation", "shape", "stride", "storage_offset", "storage")]
    t, whose = x, "that of x"
    rows.append(("x", str(tuple(t.shape)), str(t.stride()), str(t.storage_offset()), whose))
    for step in steps:
        now = "a copy" if step.copies(Layout.of(t)) else whose.replace("a copy", "that copy")
        t, whose = step.apply(t), now
        rows.append((step.code, str(tuple(t.shape)), str(t.stride()), str(t.storage_offset()), whose))
    return tuple(rows)
