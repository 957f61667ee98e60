"""The memory of tensors, arrays and buffers as plain numbers: where it lies, and which ranges of it belong together."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from helpers.model.adapter import plain_access, storage_key, unwrapped
from helpers.model.layout import Layout, no_strides


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
    def lacks_bytes(self) -> bool:
        """Whether the storage was made smaller than the tensor needs: reading such a tensor may end Python."""
        return self.end > self.start + self.nbytes and self.numel > 0

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
