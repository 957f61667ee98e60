"""One operation of a chain such as `x.transpose(0, 1)[:, 1:3]`: how it is written, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from helpers.model.layout import Layout

# Where a copy would have more elements than this, its layout is computed without data.
MOST_COPIED = 100_000


@dataclass(frozen=True)
class Step:
    """A tensor method with its arguments; `slice` stands for brackets, with (dim, start, stop, step)."""

    name: str
    args: tuple[Any, ...]

    @property
    def code(self) -> str:
        """Return the Python text to put behind the tensor's name."""
        if self.name == "slice":
            dim, start, stop, step = self.args
            return f"[{':, ' * dim}{start}:{stop}{'' if step == 1 else f':{step}'}]"
        return f".{self.name}({', '.join(_literal(arg) for arg in self.args)})"

    def apply(self, t: torch.Tensor) -> torch.Tensor:
        """Return what torch gives. A copy of more than `MOST_COPIED` elements is a meta tensor instead."""
        here = Layout.of(t)
        if self.copies(here) and t.numel() > MOST_COPIED:
            if self.name == "flip":
                return torch.empty_strided(here.shape, kept_order(here), dtype=t.dtype, device="meta")
            order = self.args[0] if self.args else torch.contiguous_format
            return torch.empty(here.shape, dtype=t.dtype, device="meta", memory_format=order)
        if self.name == "slice":
            dim, start, stop, step = self.args
            return t[(slice(None),) * dim + (slice(start, stop, step),)]
        if self.name == "contiguous" and self.args:
            return t.contiguous(memory_format=self.args[0])
        return getattr(t, self.name)(*self.args)

    def copies(self, before: Layout) -> bool:
        """Say whether the result has a storage of its own. Of the operations here, only two may copy."""
        if self.name == "contiguous":
            return not before.is_contiguous(*self.args)
        return self.name == "flip"


def kept_order(layout: Layout) -> tuple[int, ...]:
    """Return the strides that torch gives a copy which keeps the order of the dimensions, as `flip` does.

    The rule is that of `torch.preserve_format`: without gaps and overlaps the strides stay as they are;
    otherwise the dimensions are packed in the order of their strides. (`infer_dense_strides` in
    aten/src/ATen/ExpandUtils.cpp; torch's own meta kernels differ from it where a size is 1.)
    """
    shape, stride = layout.shape, layout.stride
    packed = 1
    for step, size in sorted((step, size) for size, step in zip(shape, stride, strict=True) if size != 1):
        packed = packed * size if step == packed else -1
    if packed == layout.numel:
        return stride
    order = list(reversed(range(layout.ndim)))  # fastest dimension first
    for last in range(1, layout.ndim):
        moving = last
        for place in reversed(range(last)):
            slow, fast = order[place], order[moving]
            if 0 in (stride[slow], stride[fast]) or (stride[slow], shape[slow]) == (stride[fast], shape[fast]):
                continue  # their strides don't tell which comes first
            if stride[slow] < stride[fast]:
                break
            if stride[slow] > stride[fast] or shape[slow] > shape[fast]:
                order[place], order[moving] = fast, slow
                moving = place
    strides, packed = [0] * layout.ndim, 1
    for dim in order:
        strides[dim] = packed
        packed *= max(shape[dim], 1)
    return tuple(strides)


def _literal(arg: Any) -> str:
    return f"memory_format={arg}" if isinstance(arg, torch.memory_format) else repr(arg)
