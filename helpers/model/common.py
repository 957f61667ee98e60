"""How many different bytes tensors read, and how many they have in common.

All arithmetic here counts units: the largest number of bytes that divides every element size and every
address at hand, mostly one element. A tensor marks its units in a row of booleans, through the same
strides by which it reads, so the counts are exact for every layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, prod

import torch

from helpers.model.finding import HelperError
from helpers.model.memory import Block
from helpers.model.sums import count_sums, merged, span

DIRECT = 2**24  # so many marks are set one by one, however short the row
MOST_UNITS = 2**28  # a row of booleans that long takes 256 MiB; longer ones are counted only where no row is needed


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
