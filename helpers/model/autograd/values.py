"""`Gradient`: what is kept of one gradient that passed, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from helpers.model.adapter import plain_access

MOST_VALUES = 16  # of one gradient, that are kept


@dataclass(frozen=True)
class Gradient:
    """What was seen of one gradient: its shape, its first 16 values, and whether all are zero, finite, or the same.

    The shape of a nested tensor is given as ().
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    values: tuple[float | complex, ...]
    zero: bool
    finite: bool
    same: bool = False

    @classmethod
    def of(cls, t: torch.Tensor | None) -> Gradient | None:
        """Note a gradient tensor; None, an undefined gradient that counts as zeros, stays None."""
        if t is None:
            return None
        with plain_access(), torch.no_grad():
            t = t.detach()
            values = flat(t)
            first = values[:MOST_VALUES].tolist()
            zero, finite = not bool(values.count_nonzero()), bool(values.isfinite().all())
            same = bool((values == values[:1]).all())
            return cls(() if t.is_nested else tuple(t.shape), t.dtype, tuple(first), zero, finite, same)


def flat(t: torch.Tensor) -> torch.Tensor:
    """Return the numbers of any tensor as one dimension."""
    if t.is_nested:
        return torch.cat([part.reshape(-1) for part in t.unbind()])
    return (t if t.layout == torch.strided else t.to_dense()).reshape(-1)
