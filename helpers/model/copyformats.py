"""Which copies lose a channels_last format that only the tensor behind their views had? `Formats`.

A channel shuffle reads a channels_last tensor through `view` and `transpose`: what `reshape` or `contiguous` is given
has five dimensions and no memory format, and the four-dimensional result is in the default order. So the format is
remembered with the storage.
"""

from __future__ import annotations

from typing import Any

import torch

from helpers.model.adapter import storage_key, weak_storage
from helpers.model.layout import CHANNELS_LAST, Layout

NDIM = {str(f).removeprefix("torch."): len(order) for f, order in CHANNELS_LAST.items()}


class Formats:
    """The storages that hold a tensor in a channels_last format, and the copies that were made of them.

    Each is kept with a reference that does not keep the storage alive, but keeps its number from being used again.
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[Any, str]] = {}
        self._copied: dict[int, tuple[Any, str, int]] = {}

    def see(self, t: torch.Tensor, layout: Layout | None) -> None:
        """Note the format of a tensor, where it has one with channels last and no other."""
        if layout is not None and len(names := layout.memory_formats) == 1 and names[0] in NDIM:
            self._held[storage_key(t)] = weak_storage(t), names[0]

    def copied(self, number: int, source: torch.Tensor, read: Layout, result: torch.Tensor) -> None:
        """Note that copy `number` wrote `result` in the default order, if its source lies behind a format.

        Where the channels are the last dimension of what was read, as after permute(0, 2, 3, 1), they stay
        together in memory: the reader has put them there, and nothing is lost.
        """
        held = self._held.get(storage_key(source))
        steps = [s for n, s in zip(read.shape, read.stride, strict=True) if n > 1]
        if held is not None and held[1] not in read.memory_formats and steps and steps[-1] != 1:
            self._copied[storage_key(result)] = weak_storage(result), held[1], number

    def lost(self, t: torch.Tensor, layout: Layout) -> tuple[int, str] | None:
        """Return the number of the copy through which `t` lost a format, and that format; or None."""
        copied = self._copied.get(storage_key(t))
        if copied is None or layout.ndim != NDIM[copied[1]] or layout.memory_formats != ("contiguous",):
            return None
        return copied[2], copied[1]
