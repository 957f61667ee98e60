"""Checks of chapter 01: slots, strides and views. Each asks torch for the truth, on the same layouts in every run.

A check returns `right(...)` or `wrong(...)`; what a wrong answer gets names the misconception. A
reader's function may raise: `check` catches that and names the input.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import torch

from helpers.model.finding import in_short

from ..quiz import Outcome, list_fault, number_of, numbers_of, right, same, truth_of, wrong
from .asking import unchanged


def write_through(answer: Any) -> Outcome:
    a = torch.arange(6)
    a.view(2, 3)[1] = 0
    if same(a.tolist(), answer):
        return right("b is a view, so the zeros stand in the memory of a.")
    if same(list(range(6)), answer):
        return wrong("That is a before the write. b is no copy: b[1] = 0 writes into the storage that a reads.")
    if same([0, 0, 0, 3, 4, 5], answer):
        return wrong("Those are the slots of b[0]. Rows are counted from 0, so b[1] is the second row.")
    if fault := list_fault(answer):
        return wrong(fault)
    return wrong("Draw six slots. Row 0 of b is slots 0 to 2, row 1 is slots 3 to 5.")


def slot(answer: Callable) -> Outcome:
    cases = [
        ((1, 2), (4, 1), 0),
        ((1, 2), (4, 1), 5),
        ((2,), (3,), 1),
        ((1, 0, 3), (12, 4, 1), 0),
        ((1, 2, 3), (12, 4, 1), 0),
        ((), (), 7),
    ]
    for index, stride, offset in cases:
        t = torch.arange(100).as_strided([i + 1 for i in index], stride, offset)
        truth = int(t[index])
        given = answer(index, stride, offset)
        if number_of(given) == truth:
            continue
        call = f"slot({index}, {stride}, {offset}) gave {in_short(given)}"
        if number_of(given) is None:
            return wrong(f"{call}; one whole number is wanted.")
        if offset and same(truth - offset, given):
            return wrong(f"{call}: the storage offset is missing, torch reads slot {truth}.")
        return wrong(f"{call}, torch reads slot {truth}. Multiply each index by its own stride, then add all.")
    return right("One line of arithmetic: this is all that indexing does.")


def same_storage(answer: Callable) -> Outcome:
    a = torch.arange(12)
    z = torch.zeros(3, dtype=torch.complex64)
    pairs = [
        (a, a.view(3, 4), True, "a tensor and its view."),
        (a, a[1:], True, "a tensor and its slice: do you compare the first elements?"),
        (a[:2], a[6:], True, "two slices that have no element in common, on one storage."),
        (a, a[1:].detach(), True, "a tensor and a detached slice: they share the storage, and no _base tells that."),
        (a, a.data, True, "a tensor and a.data: they share the storage, and no _base tells that."),
        (z, z.imag, True, "a complex tensor and its imaginary part, which have two dtypes."),
        (a, a.clone(), False, "a tensor and its clone: neither equal values nor equal sizes mean shared memory."),
        (a, torch.zeros(12, dtype=a.dtype), False, "two tensors made one by one."),
        (*_neighbours(), False, "a slice of one tensor and another tensor right behind it in memory."),
    ]
    for left, other, truth, name in pairs:
        before = left.clone(), other.clone()
        given = answer(left, other)
        if not (unchanged(left, before[0]) and unchanged(other, before[1])):
            return wrong(f"Your function writes into its tensors. It should only compare them: {name}")
        if (says := truth_of(given)) is None:
            return wrong(f"same_storage returned {in_short(given)}; True or False is wanted.")
        if says != truth:
            return wrong(f"It says {says} for {name}")
    return right("You ask the block of memory, not the first element.")


def _neighbours() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the end of one tensor, and a tensor with a storage of its own that begins where the first one ends."""
    memory = bytearray(96)
    first, second = (torch.frombuffer(memory, dtype=torch.float32, count=12, offset=48 * i) for i in (0, 1))
    return first[10:], second


def new_strides(answer: Callable) -> Outcome:
    for shape in [(4,), (2, 3), (2, 3, 4), (5, 1, 2), (2, 3, 4, 5), ()]:
        truth, given = torch.empty(shape).stride(), answer(shape)
        if same(truth, given):
            continue
        call = f"new_strides({shape}) gave {in_short(given)}"
        if fault := list_fault(given, "a tuple of strides"):
            return wrong(f"new_strides({shape}): {fault}")
        if len(shape) > 1 and same(tuple(reversed(truth)), given):
            return wrong(f"{call}: the right numbers backwards. The last dimension has stride 1.")
        if same(shape, given):
            return wrong(f"{call}: those are the sizes. A stride is the number of slots that one step moves.")
        return wrong(f"{call}, torch has {truth}: a stride is the product of all sizes after its dimension.")
    return right("The product rule, from right to left.")


def transposed(answer: Callable) -> Outcome:
    cases = [
        (torch.empty(3, 4), 0, 1),
        (torch.empty(2, 3, 4), 0, 2),
        (torch.empty(2, 3, 4)[:, ::2], 1, 2),
        (torch.empty(5, 2), 1, 1),
    ]
    for t, i, j in cases:
        shape, stride = tuple(t.shape), t.stride()
        truth = tuple(t.transpose(i, j).shape), t.transpose(i, j).stride()
        given = answer(shape, stride, i, j)
        if same(truth, given):
            continue
        call = f"transposed({shape}, {stride}, {i}, {j})"
        if not isinstance(given, (list, tuple)) or len(given) != 2:
            return wrong(f"{call} gave {in_short(given)}; a pair is wanted: the shape and the stride.")
        if same(truth[::-1], given):
            return wrong(f"{call}: both are right, in the wrong order. The shape comes first, then the stride.")
        if same(shape, given[0]) and same(truth[1], given[1]):
            return wrong(f"{call}: the strides moved and the sizes stayed. A size moves with its dimension too.")
        if same(truth[0], given[0]) and same(stride, given[1]):
            return wrong(f"{call}: the sizes moved and the strides stayed. A stride moves with its dimension.")
        if same(truth[0], given[0]) and same(torch.empty(truth[0]).stride(), given[1]):
            return wrong(
                f"{call}: those are the strides of a new tensor. A transpose keeps the old memory and its steps."
            )
        return wrong(f"{call} gave {in_short(given)}, torch has {truth}.")
    return right("Two pairs of numbers trade places, and no element moves.")


def expand(answer: Any) -> Outcome:
    c = torch.arange(3).view(3, 1)
    wide = c.expand(3, 5)
    truth = (wide.stride(), wide.untyped_storage().nbytes() // wide.element_size())
    if same(truth, answer):
        return right("Fifteen elements are read from three slots.")
    if not isinstance(answer, (list, tuple)) or len(answer) != 2:
        return wrong("A pair is wanted: the stride, and the number of slots.")
    if same(truth[::-1], answer):
        return wrong("Both are right, in the wrong order: the stride comes first, then the number of slots.")
    if number_of(answer[1]) is None:
        return wrong(f"The second part is the number of slots, a whole number, and not {in_short(answer[1])}.")
    if same((5, 1), answer[0]):
        return wrong("(5, 1) is the stride of a copy with 15 slots. expand makes no copy.")
    if same((0, 1), answer[0]):
        return wrong("The 0 stands in the wrong place: dimension 1 is the one that was expanded.")
    if same(truth[0], answer[0]):
        return wrong(f"The stride is right. Count the slots again: expand adds none to the {truth[1]} that c has.")
    return wrong("c has stride (1, 1). The dimension that is expanded gets stride 0, the other one keeps its stride.")


def antidiagonal(answer: Any) -> Outcome:
    x = torch.arange(12).view(3, 4)
    truth = x.flip(1).diagonal().tolist()
    if list_fault(answer) or len(answer) != 3:
        return wrong("Three things are wanted: the size, the stride, and the storage offset.")
    size, stride = (numbers_of([part] if number_of(part) is not None else part) for part in answer[:2])
    if size is None or stride is None:
        name, given = ("size", answer[0]) if size is None else ("stride", answer[1])
        return wrong(f"The {name} is a tuple of one number, such as (2,), and {in_short(given)} is none.")
    if (offset := number_of(answer[2])) is None:
        return wrong(f"The storage offset is a number of slots, not {in_short(answer[2])}.")
    try:
        view = torch.as_strided(x, size, stride, offset)
        if view.numel() > x.numel():
            return wrong(f"That reads {view.numel():,} elements, and the other diagonal has {len(truth)}.")
        read = view.tolist()
    except (RuntimeError, TypeError, ValueError) as error:
        if "out of bounds" in str(error) or "Overflow" in str(error):
            return wrong(
                "With these numbers the last element would lie behind the end of the storage, which has 12 slots."
            )
        return wrong(f"torch.as_strided refuses this: {str(error).splitlines()[0].rstrip('.')}.")
    if read == truth:
        return right("One row down and one column back is 4 − 1 = 3 slots.")
    if read == x.diagonal().tolist():
        return wrong(f"That reads {read}, the main diagonal. The other one starts at x[0, 3].")
    if isinstance(read, list) and 0 < len(read) < len(truth) and read == truth[: len(read)]:
        return wrong(
            f"That reads {read}. These are right, and {len(truth)} elements are wanted: the size is too small."
        )
    if isinstance(read, list) and read[:1] == truth[:1]:
        return wrong(f"That reads {read}. The start is right. A step is one row down (4 slots) and one column *back*.")
    return wrong(f"That reads {read}, and {truth} is wanted.")


def channels_last_strides(answer: Callable) -> Outcome:
    for shape in [(2, 3, 4, 5), (2, 8, 2, 2), (4, 3, 7, 6)]:
        truth = torch.empty(shape).to(memory_format=torch.channels_last).stride()
        given = answer(*shape)
        if same(truth, given):
            continue
        call = f"For {shape} you gave {in_short(given)}"
        if fault := list_fault(given, "a tuple of four strides"):
            return wrong(f"For {shape}: {fault}")
        if same(torch.empty(shape).stride(), given):
            return wrong(f"{call}, the default order. In channels_last one step in C is one slot.")
        if same([truth[d] for d in (0, 2, 3, 1)], given):
            return wrong(
                f"{call}, in the order N, H, W, C. The shape stays (N, C, H, W), and so does the order of strides."
            )
        return wrong(f"{call}, torch has {truth}.")
    return right("The shape stays (N, C, H, W), the order in memory is N, H, W, C.")


def is_viewable(answer: Callable) -> Outcome:
    rng = random.Random(1)
    cases = [
        (torch.empty(3, 4), (12,)),
        (torch.empty(4, 3).t(), (12,)),
        (torch.empty(2, 3, 4).transpose(0, 1), (3, 2, 2, 2)),
    ]
    cases += [(t, _random_shape(t.numel(), rng)) for t in _random_views(400, rng)]
    for t, new_shape in cases:
        truth = _torch_views(t, new_shape)
        shape, stride = tuple(t.shape), t.stride()
        given = answer(shape, stride, new_shape)
        call = f"is_viewable({shape}, {stride}, {new_shape})"
        if (says := truth_of(given)) is None:
            return wrong(f"{call} returned {in_short(given)}; True or False is wanted.")
        if says and not truth:
            return wrong(
                f"{call} says True, and view raises there: a new dimension crosses a place where the step changes."
            )
        if truth and not says:
            return wrong(f"{call} says False, and view works there: only the dimensions that are merged must fit.")
    return right(f"Your rule agrees with torch on {len(cases)} layouts.")


def _torch_views(t: torch.Tensor, shape: tuple[int, ...]) -> bool:
    try:
        t.view(shape)
    except RuntimeError:
        return False
    return True


def _random_views(count: int, rng: random.Random) -> Iterator[torch.Tensor]:
    """Yield views of many kinds: transposed, sliced with steps, expanded, with sizes of 1."""
    for _ in range(count):
        t = torch.empty([rng.choice((1, 2, 3, 4, 6)) for _ in range(rng.randint(1, 4))])
        if rng.random() < 0.6:
            t = t.permute(rng.sample(range(t.ndim), t.ndim))
        if rng.random() < 0.4:
            t = t[(slice(None),) * rng.randrange(t.ndim) + (slice(None, None, 2),)]
        if rng.random() < 0.3:
            t = t.unsqueeze(0).expand(rng.randint(1, 3), *t.shape)
        yield t


def _random_shape(numel: int, rng: random.Random) -> tuple[int, ...]:
    """Return a random shape with `numel` elements, with a size of 1 here and there."""
    sizes = []
    while numel > 1:
        sizes.append(rng.choice([size for size in range(2, numel + 1) if numel % size == 0]))
        numel //= sizes[-1]
    if rng.random() < 0.2:
        sizes.insert(rng.randint(0, len(sizes)), 1)
    return tuple(sizes)
