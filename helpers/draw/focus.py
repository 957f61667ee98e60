"""What a reader asks to see in orange: `Focus`, an index such as `1`, `(None, 2)` or `(0, slice(1, 3))`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from operator import index as as_int

import torch

from helpers.model.finding import HelperError, kind_of
from helpers.model.layout import Layout

MOST_LISTED = 12


@dataclass(frozen=True)
class Focus:
    """The part of a tensor that is shown in orange.

    `ranges` holds, for each dimension, the indices in focus; `fixed` says where one number was given, `partial` where
    some indices are left out;
    `slots` are the first slots that this part reads, in row-major order, and `numel` is how many elements it has.
    """

    ranges: tuple[range, ...]
    fixed: tuple[bool, ...]
    partial: tuple[bool, ...]
    slots: tuple[int, ...]
    numel: int

    @classmethod
    def of(cls, t: torch.Tensor, wanted: object) -> Focus:
        """Read a focus: a number or a slice for dimension 0, or a tuple of them; None means a whole dimension.

        Raises HelperError for what is no index, or lies outside of the tensor.
        """
        entries = wanted if isinstance(wanted, tuple) else (wanted,)
        if len(entries) > t.dim():
            raise HelperError(f"focus has {_count(len(entries))}, and a tensor of shape {tuple(t.shape)} has {t.dim()}")
        entries = entries + (None,) * (t.dim() - len(entries))
        ranges = tuple(_range(d, entry, size) for d, (entry, size) in enumerate(zip(entries, t.shape, strict=True)))
        fixed = tuple(entry is not None and not isinstance(entry, slice) for entry in entries)
        # PyTorch itself says where this part lies: it is a view too. A tensor without data has the same strides, and
        # indexing it works for every dtype, and where the storage of `t` was made smaller.
        index = tuple(r.start if one else slice(r.start, r.stop, r.step) for r, one in zip(ranges, fixed, strict=True))
        blank = torch.empty_strided(tuple(t.shape), t.stride(), dtype=torch.bool, device="meta")
        part = Layout.of(blank[index])
        part = replace(part, storage_offset=part.storage_offset + t.storage_offset())
        partial = tuple(len(r) < size for r, size in zip(ranges, t.shape, strict=True))
        return cls(ranges, fixed, partial, tuple(islice(part.slots(), MOST_LISTED + 1)), part.numel)

    def holds(self, index: tuple[int, ...]) -> bool:
        """Say whether this element, or a part of this block when only the first indices are given, is in focus."""
        return all(i in wanted for i, wanted in zip(index, self.ranges, strict=False))

    def cells(self, shown: Sequence[Sequence[int | None]]) -> set[tuple[int, ...]]:
        """Return the elements in focus among those shown, which are given by the indices of each dimension."""
        pairs = zip(shown, self.ranges, strict=True)
        return set(product(*([i for i in some if i in wanted] for some, wanted in pairs)))

    def picks(self, d: int, i: int) -> bool:
        """Say whether the focus chooses index `i` of dimension `d` and leaves others out."""
        return self.partial[d] and i in self.ranges[d]

    def partial_before(self, d: int) -> bool:
        """Say whether the focus leaves something out in one of the dimensions before `d`."""
        return any(self.partial[:d])

    def name(self) -> str:
        """Return what is in focus in words: "row 1", "column 2", "element 3", or an index such as "[0, :, 2:4]"."""
        if self.fixed == (True,):
            return f"element {self.ranges[0].start}"
        if self.fixed == (True, False) and not self.partial[1]:
            return f"row {self.ranges[0].start}"
        if self.fixed == (False, True) and not self.partial[0]:
            return f"column {self.ranges[1].start}"
        parts = []
        for d, (r, one) in enumerate(zip(self.ranges, self.fixed, strict=True)):
            whole = ":" if not self.partial[d] else f"{r.start}:{r.stop}" + (f":{r.step}" * (r.step > 1))
            parts.append(str(r.start) if one else whole)
        return "part [" + ", ".join(parts) + "]" if parts else "the one element"


def _count(n: int) -> str:
    return "1 index" if n == 1 else f"{n} indices"


def _range(d: int, entry: object, size: int) -> range:
    """Return the indices of dimension `d` that one entry of a focus stands for."""
    if entry is None:
        return range(size)
    if isinstance(entry, slice):
        try:
            start, stop, step = entry.indices(size)
        except (TypeError, ValueError) as error:
            raise HelperError(f"focus has {entry} for dimension {d}: {error}") from None
        if step < 1:
            raise HelperError(f"focus has step {step} for dimension {d}, and PyTorch takes only steps of 1 and more")
        return range(start, max(start, stop), step)
    try:
        if isinstance(entry, bool):
            raise TypeError
        i = as_int(entry)
    except TypeError:
        raise HelperError(
            f"focus takes a number, a slice or None for dimension {d}, and {kind_of(entry)} came"
        ) from None
    if not -size <= i < size:
        raise HelperError(f"index {i} is out of range for dimension {d} of size {size}")
    return range(i % size, i % size + 1)
