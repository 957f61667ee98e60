"""The bytes that tensors take in memory: which of them, how many, and how many in common.

All arithmetic here counts units: the largest number of bytes that divides every element size and every
address at hand, mostly one element. A tensor marks its units in a row of booleans, through the same
strides by which it reads, so the counts are exact for every layout.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from helpers.model.adapter import plain_access, storage_key, unwrapped
from helpers.model.finding import HelperError
from helpers.model.layout import Layout, no_strides
from helpers.model.sums import count_sums, merged, span

DIRECT = 2**24  # so many marks are set one by one, however short the row
MOST_UNITS = 2**28  # a row of booleans that long takes 256 MiB; longer ones are counted only where no row is needed


@dataclass(frozen=True)
class Block:
    """The memory of one tensor as plain numbers; nothing of the tensor is kept.

    `space` tells address spaces apart: a device, or a single storage when it has no memory of its own.
    `start` is the address of the storage's first byte, `first` that of the tensor's first element.
    `nbytes` is the size of the storage in bytes. `key` is equal for tensors on one storage. `foreign` memory was not
    allocated by torch: it belongs to a NumPy array, a buffer or a file.
    """

    key: int
    space: str
    start: int
    nbytes: int
    first: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    itemsize: int
    foreign: bool = False

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def end(self) -> int:
        """The address behind the last byte that the tensor reads; `first` when it has no elements."""
        if self.numel == 0:
            return self.first
        reach = sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True))
        return self.first + (reach + 1) * self.itemsize

    @property
    def offset(self) -> int:
        """The storage offset, in elements."""
        return (self.first - self.start) // self.itemsize

    @property
    def dense(self) -> bool:
        """Whether the elements fill one range without gap or repetition: torch's "non-overlapping and dense"."""
        expected = 1
        sizes = [(s, n) for n, s in zip(self.shape, self.stride, strict=True) if n != 1]
        if self.numel == 0:
            return True
        for stride, size in sorted(sizes):
            if stride != expected:
                return False
            expected *= size
        return True

    @property
    def zero_strides(self) -> tuple[int, ...]:
        """The dimensions of two or more elements that have stride 0."""
        return tuple(d for d, (n, s) in enumerate(zip(self.shape, self.stride, strict=True)) if n > 1 and s == 0)

    def same_memory(self, other: Block) -> bool:
        """Say whether the two storages have at least one byte in common."""
        if self.space != other.space or not self.nbytes or not other.nbytes:
            return False
        return self.start < other.start + other.nbytes and other.start < self.start + self.nbytes


def block_of(t: torch.Tensor) -> Block | None:
    """Return the memory of a tensor, or None for one without strides or storage (sparse, nested, …)."""
    with plain_access():
        if is_lazy(t) or t.layout is not torch.strided or t.is_nested:
            return None
        try:
            t = unwrapped(t)
            storage, key = t.untyped_storage(), storage_key(t)
            nbytes, stride, offset = storage.nbytes(), t.stride(), t.storage_offset()
            foreign = not storage.resizable()
            start = 0 if storage.device.type == "meta" else storage.data_ptr()  # fake tensors have a meta storage
        except (NotImplementedError, RuntimeError):  # torch's answer for a tensor that has no storage
            return None
        size = t.element_size()
        space = str(t.device) if start else f"storage {key}"
        first, shape = start + offset * size, tuple(torch.Tensor.size(t))
        return Block(key, space, start, nbytes, first, shape, stride, size, foreign)


def layout_of(t: Any) -> Layout | None:
    """Return the layout of a tensor, or None for anything that has no strides or no storage."""
    return Layout.of(t) if isinstance(t, torch.Tensor) and block_of(t) is not None and no_strides(t) is None else None


def reached_nbytes(blocks: Sequence[Block]) -> int | None:
    """Return how many different bytes the given tensors read together.

    None when that needs a row of more than 2**28 units: then only an upper bound is cheap.
    """
    blocks = [b for b in blocks if b.numel]
    if all(b.dense for b in blocks):
        return _length([(b.first, b.end) for b in blocks])
    low, high, unit = _extent(blocks)
    if (high - low) // unit > MOST_UNITS:
        return None
    if len(blocks) == 1 and unit == blocks[0].itemsize:
        return count_sums(_steps(blocks[0])) * unit
    row = _row(low, high, unit)
    for block in blocks:
        _mark(row, block, low, unit)
    return int(row.sum()) * unit


def overlap(a: Block, b: Block) -> tuple[int, int]:
    """Return how many elements of `a` share a byte with `b`, and how many bytes both read.

    Each element of `a` is looked at: it must have bytes of its own, as what torch writes to has. Raises HelperError
    when the common range is longer than 2**28 units and one of the two has gaps.
    """
    nbytes = _both_read(a, b)
    if not nbytes:
        return 0, 0
    low, high = max(a.first, b.first), min(a.end, b.end)
    if a.dense and b.dense:
        return (high - a.first + a.itemsize - 1) // a.itemsize - (low - a.first) // a.itemsize, nbytes
    low, high, unit = _extent([a, b])
    theirs = _row(low, high, unit)
    _mark(theirs, b, low, unit)
    return int(_through(theirs, a, low, unit).any(dim=-1).sum()), nbytes


def _both_read(a: Block, b: Block) -> int:
    """Return how many bytes both read, with work and memory bounded by the range that they spread over."""
    low, high = max(a.first, b.first), min(a.end, b.end)
    if not a.numel or not b.numel or a.space != b.space or low >= high:
        return 0
    if a.dense and b.dense:
        return high - low
    low, high, unit = _extent([a, b])
    if (high - low) // unit > MOST_UNITS:
        raise HelperError(
            f"the two tensors spread over {high - low:,} bytes, and an overlap is counted up to {MOST_UNITS * unit:,}"
        )
    mine, theirs = _row(low, high, unit), _row(low, high, unit)
    _mark(mine, a, low, unit)
    _mark(theirs, b, low, unit)
    return int((mine & theirs).sum()) * unit


def in_common(a: Block, b: Block) -> int | None:
    """Return how many bytes both read; None where that cannot be counted (see `overlap`)."""
    try:
        return _both_read(_forwards(a), _forwards(b))
    except HelperError:
        return None


def any_in_common(blocks: Sequence[Block]) -> bool | None:
    """Say whether two of the blocks read one byte; None where that cannot be counted."""
    forwards = [_forwards(b) for b in blocks]
    alone, together = [reached_nbytes([b]) for b in forwards], reached_nbytes(forwards)
    return None if together is None or None in alone else sum(n for n in alone if n) > together


def _forwards(b: Block) -> Block:
    """Return a block that reads the same bytes with no negative stride, as a reversed array has."""
    if all(s >= 0 for s in b.stride):
        return b
    low = sum((n - 1) * s for n, s in zip(b.shape, b.stride, strict=True) if s < 0)
    return replace(b, first=b.first + low * b.itemsize, stride=tuple(map(abs, b.stride)))


def _length(ranges: list[tuple[int, int]]) -> int:
    """Return the length of the union of ranges."""
    total, reached = 0, 0
    for low, high in sorted(ranges):
        low = max(low, reached)
        total += max(0, high - low)
        reached = max(reached, high)
    return total


def _extent(blocks: Sequence[Block]) -> tuple[int, int, int]:
    """Return the first and the end address of all blocks, and the bytes of one unit."""
    low, high = min(b.first for b in blocks), max(b.end for b in blocks)
    return low, high, gcd(*(b.itemsize for b in blocks), *(b.first - low for b in blocks))


def _row(low: int, high: int, unit: int) -> torch.Tensor:
    return torch.zeros((high - low) // unit, dtype=torch.bool, device="cpu")


def _through(row: torch.Tensor, block: Block, low: int, unit: int) -> torch.Tensor:
    """Return the row seen through a tensor's own strides; the last dimension runs inside one element."""
    per = block.itemsize // unit
    return row.as_strided((*block.shape, per), (*(s * per for s in block.stride), 1), (block.first - low) // unit)


def _mark(row: torch.Tensor, block: Block, low: int, unit: int) -> None:
    """Mark what the block reads. The work is bounded by the row: indices that repeat a unit do not add to it."""
    per = block.itemsize // unit
    steps = merged([(per, 1)] * (per > 1) + [(n, s * per) for n, s in _steps(block)])
    offset = (block.first - low) // unit
    reach = span(steps) + 1
    if prod(n for n, _ in steps) <= max(4 * reach, DIRECT):
        row.as_strided(tuple(n for n, _ in steps), tuple(s for _, s in steps), offset).fill_(True)
        return
    own = torch.zeros(reach, dtype=torch.bool, device="cpu")
    own[0] = True
    for n, s in steps:
        done = 1
        while done < n:  # each pass doubles the number of steps along this dimension
            more = min(done, n - done)
            own[more * s :] |= own[: -more * s].clone()
            done += more
    row[offset : offset + reach] |= own


def _steps(block: Block) -> list[tuple[int, int]]:
    """Return (size, stride) of the dimensions that move, from the smallest stride to the largest."""
    steps = [(n, s) for n, s in zip(block.shape, block.stride, strict=True) if n > 1 and s > 0]
    return sorted(steps, key=lambda step: step[1])


def memory_of(thing: Any) -> Block | None:
    """Return the memory of a tensor, a NumPy array or a buffer such as a bytearray; None if it has none."""
    if issubclass(type(thing), torch.Tensor):
        return block_of(thing)
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    try:
        array = thing if issubclass(type(thing), numpy.ndarray) else numpy.frombuffer(thing, dtype=numpy.uint8)
    except (ValueError, TypeError, BufferError):  # closed, empty, or not one row of bytes
        return None
    steps = [
        (n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)
    ]  # bytes, and negative for reversed arrays
    size = array.dtype.itemsize
    if size == 0 or array.size == 0:
        return None
    first = numpy.ndarray.__array_interface__.__get__(array)["data"][0]
    low = first + sum(s for s in steps if s < 0)
    high = first + sum(s for s in steps if s > 0) + size
    if any(s % size for s in array.strides):  # a field of packed records: only its whole range can be told
        return Block(-1, "cpu", low, high - low, low, (high - low,), (1,), 1)
    return Block(-1, "cpu", low, high - low, first, tuple(array.shape), tuple(s // size for s in array.strides), size)


def array_base(thing: Any) -> Any:
    """Return what a NumPy array took its memory from: for one made by `.numpy()`, a tensor. None for anything else."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not issubclass(type(thing), numpy.ndarray):
        return None
    return numpy.ndarray.base.__get__(thing)


class Ranges:
    """The ranges of memory that some storages cover, joined where they touch one another's bytes."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._spaces: dict[str, list[tuple[int, int]]] = {}
        for block in sorted((b for b in blocks if b.nbytes), key=lambda b: (b.space, b.start)):
            ranges = self._spaces.setdefault(block.space, [])
            end = block.start + block.nbytes
            if ranges and block.start < ranges[-1][1]:
                ranges[-1] = ranges[-1][0], max(end, ranges[-1][1])
            else:
                ranges.append((block.start, end))

    def find(self, block: Block) -> tuple[str, int] | None:
        """Return which range a storage has a byte in common with, or None."""
        ranges = self._spaces.get(block.space)
        if not ranges or not block.nbytes:
            return None
        position = bisect_left(ranges, (block.start + block.nbytes,)) - 1
        if position >= 0 and ranges[position][1] > block.start:
            return block.space, position
        return None

    @property
    def nbytes(self) -> int:
        """The bytes of all ranges together."""
        return sum(high - low for ranges in self._spaces.values() for low, high in ranges)
