"""Where a tensor without a graph goes, and which gradient would have come back to it.

Such a tensor has a shadow with the same values, which requires grad. Each call of torch that takes the tensor is made
once more with the shadow, beside the reader's own. Where a result has a graph, the gradient that arrives there in
backward is carried back along the shadows.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from helpers.model.adapter import Seen, operator_arguments
from helpers.model.dispatch.measure import quiet
from helpers.model.watch import tensors_in

Arrived = Callable[[torch.Tensor], None]  # is given the gradient of a tensor that was added


@dataclass
class Shadows:
    """Follows tensors through the calls that take them. Ask `before` and `after` around each call.

    `lossy` are operators that give no graph to the shadows either. Past one of these a gradient still arrives, but its
    values are not known: `exact` is False from then on.
    """

    lossy: set[str] = field(default_factory=set)
    exact: bool = True
    _of: dict[int, tuple[weakref.ref, torch.Tensor]] = field(default_factory=dict)
    _sources: list[tuple[torch.Tensor, Arrived]] = field(default_factory=list)
    _handles: list[Any] = field(default_factory=list)

    def add(self, t: torch.Tensor, arrived: Arrived) -> None:
        """Follow a tensor from here on; `arrived` gets what each backward through a later result would bring to it."""
        shadow = t.detach().clone().requires_grad_()
        self._of[id(t)] = (weakref.ref(t), shadow)
        self._sources.append((shadow, arrived))

    def close(self) -> None:
        """Take our hooks off the reader's graphs, and drop the shadows."""
        while self._handles:
            self._handles.pop().remove()
        self._of.clear()
        self._sources.clear()

    def before(self, seen: Seen) -> list[torch.Tensor] | None:
        """Return the results of a call with shadows in place of the tensors that have one; None where none has.

        It comes before the reader's own call: what that writes is not written yet, and random numbers are the same.
        """
        if not self._of or not torch.is_grad_enabled():
            return None
        taken = [s for t in tensors_in((seen.args, seen.kwargs)) if (s := self._shadow(t)) is not None]
        if not taken:
            return None
        written = {
            id(t)
            for value, writes in operator_arguments(seen.operator, seen.args, seen.kwargs)
            if writes
            for t in tensors_in([value])
        }
        with torch.random.fork_rng(devices=[]), quiet():
            args, kwargs = self._swapped((seen.args, seen.kwargs), written)
            results = tensors_in([seen.operator(*args, **kwargs)])
        if seen.name in self.lossy and not any(t.requires_grad for t in results):
            self.exact = False
            link = sum(0 * s.sum() for s in taken)
            results = [t + link if t.is_floating_point() else t for t in results]
        return results

    def after(self, shadows: list[torch.Tensor], result: Any) -> None:
        """Give the results of a call their shadows; where one has a graph, wait there for its gradient."""
        for t, shadow in zip(tensors_in([result]), shadows, strict=True):
            if not shadow.requires_grad:
                self._of.pop(id(t), None)
            elif t.requires_grad and t.grad_fn is not None:
                self._wait(t, shadow)
            else:
                self._of[id(t)] = (weakref.ref(t), shadow)

    def _wait(self, t: torch.Tensor, shadow: torch.Tensor) -> None:
        number = t.output_nr

        def come(gradients: tuple[torch.Tensor | None, ...]) -> None:
            if (gradient := gradients[number]) is not None:
                self._carry(shadow, gradient.detach())

        self._handles.append(t.grad_fn.register_prehook(come))

    def _carry(self, shadow: torch.Tensor, gradient: torch.Tensor) -> None:
        sources = list(self._sources)
        leaves = [source for source, _ in sources]
        came = torch.autograd.grad(shadow, leaves, gradient, retain_graph=True, allow_unused=True)
        for (_, arrived), share in zip(sources, came, strict=True):
            if share is not None:
                arrived(share)

    def _shadow(self, t: torch.Tensor) -> torch.Tensor | None:
        reference, shadow = self._of.get(id(t), (None, None))
        return shadow if reference is not None and reference() is t else None

    def _swapped(self, value: Any, written: set[int]) -> Any:
        if isinstance(value, torch.Tensor):
            shadow = self._shadow(value)
            mine = value.detach() if shadow is None else shadow
            return mine.clone() if id(value) in written else mine
        if isinstance(value, list | tuple):
            return type(value)(self._swapped(one, written) for one in value)
        return {k: self._swapped(v, written) for k, v in value.items()} if isinstance(value, dict) else value
