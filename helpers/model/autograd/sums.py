"""What the nodes of a backward run send, added up, so that a hook is seen: something else then arrives."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import torch

from helpers.model.adapter import plain_access, version_of
from helpers.model.autograd.graph import Graph
from helpers.model.autograd.values import Gradient, flat

_TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 5e-2}  # the engine may add in another order


class _Sent(NamedTuple):
    """One gradient on its way: the tensor at its version then, and as plain data, as a hook may write to the tensor."""

    tensor: torch.Tensor
    version: int | None
    noted: Gradient | None


class Sums:
    """The gradients on their way to each node. They are dropped as soon as they have arrived."""

    def __init__(self, graph: Graph, loss: torch.Tensor) -> None:
        self._graph = graph
        root = graph.roots[0]
        with plain_access(), torch.no_grad():
            one = torch.ones_like(loss)
            self._sent = {(root.to, root.output): _Sent(one, version_of(one), Gradient.of(one))}

    def add(self, number: int, left: Sequence[torch.Tensor | None], noted: Sequence[Gradient | None]) -> None:
        """Note what leaves a node."""
        with plain_access(), torch.no_grad():
            for edge, t, gradient in zip(self._graph.nodes[number].edges, left, noted, strict=False):
                if edge is not None and t is not None:
                    self._add((edge.to, edge.output), t.detach(), gradient)

    def _add(self, where: tuple[int, int], t: torch.Tensor, noted: Gradient | None) -> None:
        before = self._sent.get(where)
        if before is None:  # no copy is needed: the engine adds in place only to what nobody else holds
            self._sent[where] = _Sent(t, version_of(t), noted)
            return
        with suppress(RuntimeError):  # a layout that can't be added: what arrives is then not judged
            self._sent[where] = _Sent(before.tensor + t, None, None)

    def changed(self, number: int, arrived: Sequence[torch.Tensor | None]) -> tuple[Gradient | None, ...]:
        """Return what was sent to a node where something else arrives, otherwise nothing."""
        sent = [self._sent.pop((number, output), None) for output in range(len(arrived))]
        with plain_access(), torch.no_grad():
            if any(_differ(s, a) for s, a in zip(sent, arrived, strict=True)):
                return tuple([(s.noted or Gradient.of(s.tensor)) if s else None for s in sent])
        return ()


def _differ(sent: _Sent | None, arrived: torch.Tensor | None) -> bool:
    if sent is None or arrived is None or sent.tensor.is_nested or arrived.is_nested:
        return False
    if sent.version is not None and version_of(sent.tensor) != sent.version:
        return True
    if _is_same(sent.tensor, arrived):
        return False
    a, b = flat(sent.tensor), flat(arrived.detach())
    if a.shape != b.shape:
        return False
    tolerance = _TOLERANCE.get(b.dtype, 1e-4)
    return not torch.allclose(a.to(b), b, rtol=tolerance, atol=tolerance * _largest(b), equal_nan=True)


def _is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Say whether two tensors are one and the same memory, so that their values need no look."""
    if a.layout != torch.strided or b.layout != torch.strided:
        return False
    return (a.data_ptr(), a.shape, a.stride(), a.dtype) == (b.data_ptr(), b.shape, b.stride(), b.dtype)


def _largest(values: torch.Tensor) -> float:
    finite = values[values.isfinite()]
    return float(finite.abs().max()) if len(finite) else 0.0
