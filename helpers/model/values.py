"""The values of a tensor, a few at a time: what its storage holds, and what the tensor reads there.

The two differ for a conjugated, a negated and a quantized tensor. Nothing here copies a whole tensor: a picture
of a tensor with a thousand million elements reads the few that it shows. Slots and offsets count elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from math import gcd, prod

import torch

from helpers.model.adapter import unwrapped
from helpers.model.layout import Layout

# The type whose numbers a quantized type keeps in its storage.
QUANTIZED = {torch.quint8: torch.uint8, torch.qint8: torch.int8, torch.qint32: torch.int32}

# Up to this many elements are shown in full.
MOST_CELLS = 256

# A summary of more dimensions than two shows about this many: enough to see the steps, few enough to be read.
MOST_SUMMARISED = 64


def has_values(t: torch.Tensor) -> bool:
    """Say whether there is anything to read: meta and fake tensors have a layout, but no data."""
    return unwrapped(t).untyped_storage().device.type != "meta"


def reads_as_stored(t: torch.Tensor) -> bool:
    """Say whether reading an element gives what its slot holds.

    A lazily conjugated or negated tensor keeps the original in its storage and changes each value when it is
    read; a quantized tensor keeps whole numbers and scales them.
    """
    return not (t.is_conj() or t.is_neg() or t.is_quantized)


def stored_values(t: torch.Tensor, slots: Sequence[int]) -> list[object]:
    """Return what the storage of `t` holds in these slots, read as the dtype of `t`.

    None stands for a slot that cannot be read: a tensor without data, a storage that was shrunk. A dtype that
    PyTorch cannot turn into numbers gives its bytes as text, such as `0x3f`.
    """
    layout = Layout.of(t)
    if not has_values(t):
        return [None] * len(slots)
    readable = [slot for slot in slots if 0 <= slot < layout.storage_numel]
    numbers = dict(zip(readable, _gather(t, readable, layout.element_size), strict=True))
    return [numbers.get(slot) for slot in slots]


def _gather(t: torch.Tensor, slots: list[int], size: int) -> list[object]:
    """Read the bytes of these slots and turn them into Python numbers. Works for every dtype and device."""
    if not slots:
        return []
    storage = unwrapped(t).untyped_storage()
    with torch.no_grad():
        # A tensor of bytes over the whole storage: nothing is copied until the slots are picked.
        everything = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        if slots[-1] - slots[0] == len(slots) - 1 and slots == list(range(slots[0], slots[-1] + 1)):
            picked = everything[slots[0] * size : (slots[-1] + 1) * size].cpu()
        else:
            first = torch.tensor(slots, dtype=torch.int64, device=storage.device).mul_(size)
            picked = everything[first[:, None] + torch.arange(size, device=storage.device)].cpu()
        dtype = QUANTIZED.get(t.dtype, t.dtype)
        try:
            return picked.view(dtype).flatten().tolist()
        except (RuntimeError, NotImplementedError):  # a dtype without numbers: four-bit floats, raw bits
            return ["0x" + bytes(reversed(row)).hex() for row in picked.view(-1, size).tolist()]


def read_values(t: torch.Tensor, indices: Sequence[tuple[int, ...]]) -> list[object]:
    """Return what `t` reads at these indices, as Python numbers; None where there is no data."""
    if not has_values(t):
        return [None] * len(indices)
    if reads_as_stored(t):
        layout = Layout.of(t)
        return stored_values(t, [layout.slot(*index) for index in indices])
    with torch.no_grad():
        picked = [t[index] for index in indices]
        return [(one.dequantize() if one.is_quantized else one).item() for one in picked]


def visible_indices(
    layout: Layout, focus: Sequence[range] | None = None, most: int = MOST_CELLS
) -> list[list[int | None]]:
    """Choose the indices of each dimension that a picture shows; None stands for those left out between two.

    All of them, when the tensor has at most `most` elements. Otherwise the first and the last of each
    dimension, and the ends of `focus` (one range for each dimension).
    """
    if layout.numel <= most:
        return [list(range(size)) for size in layout.shape]
    chosen = []
    for d, size in enumerate(layout.shape):
        inner = layout.ndim - 1 - d  # 0 for the columns, 1 for the rows, 2 and more for the blocks
        head, tail = (5, 2) if layout.ndim == 1 else (3, 2) if layout.ndim == 2 else (2, 1) if inner < 4 else (1, 0)
        shown = set(range(size)) if size <= head + tail + 1 else {*range(head), *range(size - tail, size)}
        wanted = focus[d] if focus else range(size)
        if len(wanted) < size:
            shown |= {*wanted[:2], *wanted[-1:]}
        chosen.append(sorted(shown))
    # Too many still, in many dimensions: the outer ones give way first.
    for d in range(max(layout.ndim - 2, 0)):
        if prod(map(len, chosen)) > min(most, MOST_SUMMARISED):
            wanted = focus[d] if focus and len(focus[d]) < layout.shape[d] else range(1)
            chosen[d] = sorted({*wanted[:1]})
    return [_with_gaps(shown, size) for shown, size in zip(chosen, layout.shape, strict=True)]


def _with_gaps(shown: list[int], size: int) -> list[int | None]:
    """Put None wherever one or more numbers below `size` are left out."""
    result: list[int | None] = []
    following = 0
    for i in shown:
        if i > following:
            result.append(None)
        result.append(i)
        following = i + 1
    return result if following == size else [*result, None]


def visible_cells(visible: Iterable[list[int | None]]) -> list[tuple[int, ...]]:
    """Return the indices that a picture shows, in row-major order."""
    return list(product(*([i for i in shown if i is not None] for shown in visible)))


def visible_slots(layout: Layout, wanted: Iterable[int], most: int = MOST_CELLS) -> list[tuple[int, int]]:
    """Choose the slots that a picture shows: pairs (first, last); a pair of two different numbers is a gap.

    All of them, when the storage has at most `most` slots. Otherwise the `wanted` ones and the ends of the
    storage. A gap of one or two slots is not worth a gap: its slots are shown.
    """
    total = layout.storage_numel
    if total <= most:
        return [(slot, slot) for slot in range(total)]
    shown = sorted({slot for slot in wanted if 0 <= slot < total} | {0, 1, total - 1})
    result: list[tuple[int, int]] = []
    following = 0
    for slot in shown:
        if slot - following > 2:
            result.append((following, slot - 1))
        else:
            result += [(between, between) for between in range(following, slot)]
        result.append((slot, slot))
        following = slot + 1
    return result


def readers(layout: Layout, slot: int, limit: int = 10_000) -> int:
    """Return how many indices read this slot, without listing those that a stride of 0 repeats.

    Counting stops at `limit` different ways to reach the slot by strides other than 0.
    """
    if layout.numel == 0:
        return 0
    standing = prod(n for n, s in zip(layout.shape, layout.stride, strict=True) if s == 0)
    moving = sorted(((s, n) for n, s in zip(layout.shape, layout.stride, strict=True) if s and n > 1), reverse=True)
    spans = [sum((n - 1) * s for s, n in moving[d:]) for d in range(len(moving) + 1)]
    steps = [gcd(*(s for s, _ in moving[d:])) for d in range(len(moving) + 1)]

    def ways(d: int, rest: int, limit: int) -> int:
        if not 0 <= rest <= spans[d] or (steps[d] and rest % steps[d]):
            return 0
        if d >= len(moving) - 1:
            return 1
        stride, size = moving[d]
        count = 0
        for i in range(max(0, -((spans[d + 1] - rest) // stride)), min(size - 1, rest // stride) + 1):
            count += ways(d + 1, rest - i * stride, limit - count)
            if count >= limit:
                break
        return count

    return standing * ways(0, slot - layout.storage_offset, limit)


def first_reached(layout: Layout, slot: int) -> int | None:
    """Return the smallest slot from `slot` on that the tensor reads, or None when it reads none there."""
    steps = sorted(((s, n) for n, s in zip(layout.shape, layout.stride, strict=True) if s and n > 1), reverse=True)
    spans = [sum((n - 1) * s for s, n in steps[d:]) for d in range(len(steps) + 1)]

    def least(d: int, wanted: int) -> int | None:
        """Return the smallest reachable distance that is at least `wanted`, using dimensions d, d+1, …"""
        if wanted <= 0:
            return 0
        divisor = gcd(*(s for s, _ in steps[d:]))
        wanted = -(-wanted // divisor) * divisor if divisor else wanted
        if wanted > spans[d]:
            return None
        stride, size = steps[d]
        best = None
        for i in range(max(0, -((spans[d + 1] - wanted) // stride)), size):
            if best is not None and i * stride >= best:
                break
            rest = least(d + 1, wanted - i * stride)
            if rest is not None and (best is None or i * stride + rest < best):
                best = i * stride + rest
            if best == wanted:
                break
        return best

    if layout.numel == 0:
        return None
    distance = least(0, slot - layout.storage_offset)
    return None if distance is None else layout.storage_offset + distance
