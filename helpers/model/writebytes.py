"""Did the bytes of a tensor change while a function ran? `Snapshot`.

The version counter of a tensor does not count what is written through NumPy, `.data` or `untyped_storage()`. So the
bytes of the tensors that the reader's function can reach at its start are kept, and compared at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import CodeType
from typing import Any

import torch

from helpers.model.adapter import plain_access, unwrapped
from helpers.model.memory import block_of
from helpers.model.watch import tensors_in

MOST_BYTES = 2**26  # so much is copied in all; a tensor beyond that is judged by its version counter alone


class Snapshot:
    """The bytes of the storages that a function is given, or that its own code names, before it runs."""

    def __init__(self, fn: Callable, args: tuple, kwargs: Mapping[str, Any]) -> None:
        self._kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        left = MOST_BYTES
        with plain_access():
            for t in _reachable(fn, args, kwargs):
                block = block_of(t)
                if block is None or not block.start or block.key in self._kept or block.nbytes > left:
                    continue
                left -= block.nbytes
                now = torch.empty(0, dtype=torch.uint8, device=t.device).set_(unwrapped(t).untyped_storage())
                self._kept[block.key] = now, now.clone()

    def holds(self, key: int) -> bool:
        """Say whether the bytes of a storage were kept."""
        return key in self._kept

    def changed(self, key: int) -> bool:
        """Say whether the bytes of a kept storage are others now."""
        now, before = self._kept[key]
        return now.untyped_storage().nbytes() != before.nbytes or not torch.equal(now, before)


def _reachable(fn: Callable, args: tuple, kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors among the arguments and among what the code of the function names."""
    while isinstance(fn, partial):
        args, kwargs, fn = (*fn.args, *args), {**fn.keywords, **kwargs}, fn.func
    things = [*args, *kwargs.values(), getattr(fn, "__self__", None), fn]
    function = getattr(fn, "__func__", fn)
    for cell in getattr(function, "__closure__", None) or ():
        try:
            things.append(cell.cell_contents)
        except ValueError:  # not assigned yet
            continue
    code = getattr(function, "__code__", None)
    if isinstance(code, CodeType):
        scope = function.__globals__
        things.extend(scope[name] for name in _names(code) if name in scope)
    for thing in things:
        if isinstance(thing, torch.nn.Module):
            yield from (*thing.parameters(), *thing.buffers())
        else:
            yield from tensors_in([thing])


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a piece of code looks up, and those of the functions written inside it."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
