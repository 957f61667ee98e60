"""Where the elements of a tensor lie in its storage: `Layout`.

A storage is one flat row of slots. A tensor is a rule that turns an index into a slot:

    slot = storage_offset + index[0] * stride[0] + index[1] * stride[1] + …

Everything here follows from that one line. No value is ever read, so a tensor without data (on
the meta device) serves as well as any. Strides, offsets and slots count elements; only
`element_size` and what ends in `nbytes` count bytes. PyTorch allows no negative stride.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, islice
from math import prod
from operator import index as as_int

import torch
from torch.nn.parameter import is_lazy

from helpers.model.adapter import plain_access, unwrapped
from helpers.model.finding import HelperError, in_short, kind_of
from helpers.model.notensor import tensor_hint
from helpers.model.sums import count_sums, solve, span
from helpers.model.words import counted, dtype_name, listed

# The dimensions from the fastest to the slowest, for the formats that fix their number (c10/core/Contiguity.h).
CHANNELS_LAST = {torch.channels_last: (1, 3, 2, 0), torch.channels_last_3d: (1, 4, 3, 2, 0)}

FEW = 1_000  # solutions that are cheap to sort
MOST_INDICES = 2**20  # indices of one slot that are listed

# Quantized types with two or four elements in a byte; a release without them has nothing to refuse.
PACKED = {getattr(torch, name) for name in ("quint4x2", "quint2x4") if hasattr(torch, name)}


@dataclass(frozen=True)
class Layout:
    """Where a tensor's elements lie: sizes, strides and offset; no values.

    `element_size` and `storage_nbytes` are bytes, everything else counts elements.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    storage_offset: int
    dtype: torch.dtype
    element_size: int
    storage_nbytes: int

    @classmethod
    def of(cls, t: torch.Tensor | Layout) -> Layout:
        """Read the layout off a live tensor; a layout comes back as it is.

        Inside `torch.vmap` or `torch.func.grad` it is the layout that the function sees: the mapped
        dimension is not part of it.
        Raises HelperError for what has no strides: sparse, mkldnn and nested tensors, lists, arrays, modules.
        """
        if isinstance(t, cls):
            return t
        with plain_access():  # a subclass answers with its memory, not with code of its own
            if (obstacle := no_strides(t)) is not None:
                raise HelperError(f"a layout needs a tensor with strides, but {obstacle}")
            storage_nbytes = unwrapped(t).untyped_storage().nbytes()
            return cls(tuple(t.shape), t.stride(), t.storage_offset(), t.dtype, t.element_size(), storage_nbytes)

    @property
    def ndim(self) -> int:
        """The number of dimensions; 0 for a single number."""
        return len(self.shape)

    @property
    def numel(self) -> int:
        """The number of elements: the product of the sizes, which is 1 when there are no dimensions."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes that the elements take when each has a slot of its own: `numel * element_size`."""
        return self.numel * self.element_size

    @property
    def storage_numel(self) -> int:
        """The number of slots in the storage. Bytes at its end that are too few for an element are no slot."""
        return self.storage_nbytes // self.element_size

    @property
    def _steps(self) -> list[tuple[int, int]]:
        """(size, stride) of the dimensions that move to another slot, from the smallest stride to the largest."""
        steps = [(n, s) for n, s in zip(self.shape, self.stride, strict=True) if n > 1 and s > 0]
        return sorted(steps, key=lambda step: step[1])

    @property
    def last_slot(self) -> int | None:
        """The highest slot that the tensor reads, or None if it has no elements; the lowest is `storage_offset`."""
        return None if self.numel == 0 else self.storage_offset + span(self._steps)

    @property
    def fits(self) -> bool:
        """Whether the storage holds every slot that the tensor reads; not so after a storage was made smaller."""
        return self.last_slot is None or self.last_slot < self.storage_numel

    def slot(self, *at: int) -> int:
        """Return the slot that `t[at]` reads, counted from the start of the storage.

        One number for each dimension; a negative one counts from the end, as in PyTorch.
        """
        if len(at) != self.ndim:
            came = "1 index" if len(at) == 1 else f"{len(at)} indices"
            raise HelperError(f"shape {self.shape} has {counted(self.ndim, 'dimension')}, but {came} came")
        slot = self.storage_offset
        for d, (i, size, stride) in enumerate(zip(at, self.shape, self.stride, strict=True)):
            i = whole_number(i, "an index", f" for dimension {d}")
            if not -size <= i < size:
                raise HelperError(f"index {i} is out of range for dimension {d} of size {size}")
            slot += i % size * stride
        return slot

    def slots(self) -> Iterator[int]:
        """Yield the slot of every element, in row-major order: the last index counts fastest."""

        def walk(d: int, slot: int) -> Iterator[int]:
            if d == self.ndim:
                yield slot
            else:
                for i in range(self.shape[d]):
                    yield from walk(d + 1, slot + i * self.stride[d])

        return walk(0, self.storage_offset)

    def indices(self, slot: int, limit: int | None = None) -> list[tuple[int, ...]]:
        """Return every index that reads `slot`, in row-major order: none, one or many.

        At most `limit` of them: a dimension of stride 0 and size 1000000 makes a million.
        Raises HelperError without a limit where more than a million read the slot.
        """
        slot = whole_number(slot, "a slot")
        free = [stride == 0 for stride in self.stride]
        # Large strides first: the rest that the smaller ones must still make up is then soon out of their reach.
        order = sorted((d for d in range(self.ndim) if not free[d]), key=lambda d: -self.stride[d])
        steps = [(self.shape[d], self.stride[d]) for d in order]
        most = MOST_INDICES + 1 if limit is None else limit
        solutions = list(islice(solve(slot - self.storage_offset, steps), most if limit is None else FEW))
        if len(solutions) > MOST_INDICES and limit is None:
            raise _too_many(slot)
        if limit is not None and len(solutions) == FEW:
            # So many solutions are not sorted: in the order of the dimensions, the first ones are found first.
            order.sort()
            steps = [(self.shape[d], self.stride[d]) for d in order]
            solutions = list(islice(solve(slot - self.storage_offset, steps), limit))
        found = []
        for solution in solutions:
            index = [0] * self.ndim
            for d, i in zip(order, solution, strict=True):
                index[d] = i
            found.append(tuple(index))

        def spread(d: int, group: list[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
            """Yield the indices from dimension d on; along a free dimension every number will do."""
            if d == self.ndim:
                yield ()
            elif free[d]:
                yield from ((i, *rest) for i in range(self.shape[d]) for rest in spread(d + 1, group))
            else:
                for i, same in groupby(group, key=lambda index: index[d]):
                    yield from ((i, *rest) for rest in spread(d + 1, list(same)))

        indices = list(islice(spread(0, sorted(found)), most)) if found else []
        if limit is None and len(indices) > MOST_INDICES:
            raise _too_many(slot)
        return indices

    def is_contiguous(self, memory_format: torch.memory_format = torch.contiguous_format) -> bool:
        """Say whether the elements fill neighbouring slots in the order of `memory_format`, as PyTorch judges.

        A dimension of size 1 may have any stride: it never takes a step. A tensor without elements
        is contiguous in the default format; the two channels_last formats make no such exception.
        """
        if not isinstance(memory_format, torch.memory_format):
            raise HelperError(
                f"a memory format such as torch.channels_last is needed, but {in_short(memory_format)} came"
            )
        order = CHANNELS_LAST.get(memory_format)
        if order is None:
            if self.numel == 0:
                return True
            order = tuple(reversed(range(self.ndim)))
        if len(order) != self.ndim:
            return False
        expected = 1
        for d in order:
            if self.shape[d] != 1:
                if self.stride[d] != expected:
                    return False
                expected *= self.shape[d]
        return True

    @property
    def memory_formats(self) -> tuple[str, ...]:
        """The names of the memory formats in which the tensor is contiguous: several where size-1 dimensions allow."""
        formats = {torch.contiguous_format: "contiguous"} | {f: str(f).removeprefix("torch.") for f in CHANNELS_LAST}
        return tuple(name for memory_format, name in formats.items() if self.is_contiguous(memory_format))

    @cached_property
    def reached(self) -> int:
        """The number of different slots that the tensor reads; exact, without visiting the elements.

        Raises HelperError where the count would need more than 128 MiB (see `count_sums`).
        """
        return count_sums(self._steps) if self.numel else 0

    @property
    def shared(self) -> bool:
        """Whether two different indices read the same slot."""
        return self.reached < self.numel

    def describe(self) -> str:
        """Return the layout as one sentence."""
        name = dtype_name(self.dtype)
        head = f"A tensor of dtype {name}, shape {self.shape} and strides {self.stride}"
        if self.numel == 0:
            return f"{head} has no element and reads no slot."
        formats = " and ".join(self.memory_formats) or "not contiguous"
        where = f"slot {self.storage_offset}"
        if self.reached > 1:
            where = f"from slot {self.storage_offset} to slot {self.last_slot}"
        held = counted(self.storage_numel, "slot")
        if not self.fits:
            return f"{head} needs {counted(self.reached, 'slot')} ({where}), but its storage holds {held}."
        return (
            f"{head} reads {counted(self.numel, 'element')} from {self.reached:,} of {held} ({where}); it is {formats}."
        )


def _too_many(slot: int) -> HelperError:
    return HelperError(f"more than {MOST_INDICES:,} indices read slot {slot}: give a limit, such as limit=10")


def stride_zero(dims: Sequence[int]) -> str:
    """Return `dimension 2 has stride 0` or `dimensions 0 and 2 have stride 0`."""
    return f"dimension {dims[0]} has stride 0" if len(dims) == 1 else f"dimensions {listed(dims)} have stride 0"


def whole_number(value: object, noun: str, place: str = "", wanted: str = "a whole number") -> int:
    """Return `value` as an int, or raise HelperError: "an index is a whole number, but 1.5 came for dimension 0"."""
    try:
        if isinstance(value, bool):  # Python would take True for 1
            raise TypeError
        return as_int(value)
    except (TypeError, ValueError):  # ValueError: a lazy parameter has no values yet
        came = repr(value) if isinstance(value, (bool, float, complex, str, type(None))) else kind_of(value)
        raise HelperError(f"{noun} is {wanted}, but {came} came{place}") from None


def no_strides(t: object) -> str | None:
    """Say what keeps `t` from having one stride for each dimension, or return None if nothing does."""
    if not isinstance(t, torch.Tensor):
        return f"{'None' if t is None else f'an object of type {type(t).__name__}'} came{tensor_hint(t)}"
    if is_lazy(t):
        return "this parameter has no shape yet: run its module once, then it has one"
    if t.is_nested:
        return "a nested tensor came: each of its parts has a shape of its own"
    kind = str(t.layout).removeprefix("torch.").lstrip("_")
    if t.layout != torch.strided:
        return f"a tensor with the layout {kind} came: it keeps its elements in another way"
    if t.dtype in PACKED:
        return f"a {str(t.dtype).removeprefix('torch.')} tensor came: it packs several elements into one byte"
    if any(isinstance(n, torch.SymInt) for n in (*t.shape, *t.stride(), t.storage_offset())):
        return f"a tensor of shape ({', '.join(map(str, t.shape))}) came: its sizes or strides are symbols, not numbers"
    return None
