"""Tensors that have no memory of their own to compare, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from helpers.model.adapter import plain_access
from helpers.model.finding import kind_of


def nothing_held(obj: Any, skipped: Mapping[str, torch.Tensor]) -> str:
    """Return what came in place of tensors with memory: "an empty dict came", "a list without a tensor came"."""
    if issubclass(type(obj), torch.Tensor):
        return f"a tensor without strides came ({_why(obj)})"
    if skipped:
        those = "its tensor has" if len(skipped) == 1 else f"its {len(skipped):,} tensors have"
        return f"{kind_of(obj)} came, but {those} no strides: {_named(skipped)}"
    if not is_container(obj):
        return f"{kind_of(obj)} came"
    return f"{kind_of(obj, 'empty')} came" if not len(obj) else f"{kind_of(obj)} without a tensor came"


def is_container(obj: Any) -> bool:
    """Say whether a thing is a list, a dict, a set or their like: one that can be empty."""
    return isinstance(obj, Sequence | Mapping | Set) and not isinstance(obj, str | bytes | bytearray)


def left_out(skipped: Mapping[str, torch.Tensor]) -> str:
    """Return "; `t[1]` (sparse_coo) has no strides and is left out", or nothing where nothing was skipped."""
    if not skipped:
        return ""
    return f"; {_named(skipped)} {'has no strides and is' if len(skipped) == 1 else 'have no strides and are'} left out"


def _named(skipped: Mapping[str, torch.Tensor]) -> str:
    shown = [f"`{name}` ({_why(t)})" for name, t in list(skipped.items())[:2]]
    more = len(skipped) - len(shown)
    return f"{', '.join(shown)} and {more:,} more" if more else " and ".join(shown)


def _why(t: torch.Tensor) -> str:
    """Return one word or two for a tensor without strides or storage: "sparse_coo", "nested"."""
    with plain_access():
        if is_lazy(t):
            return "no shape yet"
        if t.is_nested:
            return "nested"
        kind = str(t.layout).removeprefix("torch.").lstrip("_")
        return kind if t.layout != torch.strided else "no storage"
