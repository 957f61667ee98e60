"""The `grad_fn` of a tensor, also where torch refuses to tell it."""

from __future__ import annotations

from typing import Any

import torch

STALE = (
    "is a view that was made under no_grad, and its memory was written to since: torch refuses to tell the graph of "
    "such a view"
)


def grad_fn_of(t: torch.Tensor) -> Any:
    """Return the node that made a tensor; None for a leaf, and for a view of which torch refuses to tell it."""
    try:
        return t.grad_fn
    except RuntimeError:  # a view made under no_grad, written to since: merely reading the attribute raises
        return None


def is_stale_view(t: torch.Tensor) -> bool:
    """Say whether torch refuses to tell the grad_fn of a tensor."""
    try:
        _ = t.grad_fn
    except RuntimeError:
        return True
    return False
