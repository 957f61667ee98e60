"""Tensors that retain their grad: every backward adds to it, also one that only looks, so it is put back afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from helpers.model.adapter import plain_access
from helpers.model.owners import Walk, names_in
from helpers.model.source import caller_frame, is_library


@contextmanager
def grads_kept() -> Iterator[None]:
    """Put back the `.grad` of every tensor that retains it and that the reader's running code can reach by a name.

    Python's garbage collector is not asked for its objects: that breaks tuples which other threads are building.
    """
    kept = [(t, t.grad) for t in _retaining()]
    try:
        yield
    finally:
        with plain_access():
            for t, grad in kept:
                t.grad = grad


def _retaining() -> list[torch.Tensor]:
    """Return the tensors that retain their grad, from all functions of the reader that are running."""
    found: dict[int, torch.Tensor] = {}
    walk, frame = Walk(), caller_frame()
    while frame is not None:
        if not is_library(frame.f_code.co_filename):
            for held in walk.names(names_in(frame)):
                if issubclass(type(held.thing), torch.Tensor):
                    with plain_access():
                        if held.thing.retains_grad:
                            found[id(held.thing)] = held.thing
        frame = frame.f_back
    walk.close()
    return list(found.values())
