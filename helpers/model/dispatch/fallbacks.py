"""Operators whose gradient gets lost without an error: those with a kernel and no Autograd kernel.

For such an operator the dispatcher runs autograd's fallback, which calls the kernel and then looks at the results. One
that the kernel computed with torch operations has a graph already, and all is well. To one that came from elsewhere
(NumPy, C++, detach) it gives a node that passes nothing. What was written in place gets no node at all.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from helpers.model.adapter import (
    Seen,
    at_end_of_backward,
    kernel_table,
    operator_schema,
    passes_nothing,
    plain_access,
    registrations,
    unwatched,
)
from helpers.model.autograd.nodes import grad_fn_of
from helpers.model.dispatch.kernels import is_backend
from helpers.model.dispatch.measure import Slopes, measure_slopes
from helpers.model.owners import names_in
from helpers.model.source import place_of, reader_frame
from helpers.model.watch import READER, tensors_in

MOST_CALLS = 8  # that are looked at: a loop repeats the same
FALLBACK = "backend fallback"  # the kind of kernel that serves every operator
NODE, IN_PLACE, OUT = "node", "in place", "out"  # how a result lost its gradient


@dataclass
class Input:
    """A tensor that required grad: `name` is the reader's variable or "", `argument` the operator's name for it.

    `identity` tells it from other tensors while it lives. `missing` is what its gradient lacks, in float64, None where
    it is not known. `filled`: the backward wrote into `.grad`, and `grad` is what a leaf had there when it was over.
    """

    name: str
    argument: str
    is_leaf: bool
    shape: torch.Size
    identity: int
    reference: weakref.ref
    missing: torch.Tensor | None = None
    filled: bool = False
    grad: torch.Tensor | None = None


@dataclass
class Dropped:
    """One call whose kernel left autograd. `kernels` are the keys that it has kernels for, `at` the reader's line.

    `how` is "node", "in place" or "out". `slopes` are the derivatives, None where they could not be measured.
    `reached`: a backward has passed here.
    """

    operator: str
    kernels: tuple[str, ...]
    at: str
    how: str
    inputs: list[Input]
    slopes: Slopes | None = None
    reached: bool = False

    @property
    def harmless(self) -> bool:
        """Whether nothing is lost: the derivatives were measured, and they are what the graph passes on anyway.

        That is 0 past a node that passes nothing, and 1 where a write in place is not recorded.
        """
        if self.reached and all(one.missing is not None and not one.missing.any() for one in self.inputs):
            return True  # the gradient that arrived was 0
        if self.slopes is None:
            return False
        if self.how == IN_PLACE:
            slope = self.slopes[0][0]
            alone = len(self.slopes) == len(self.slopes[0]) == 1 and slope.shape[0] == slope.shape[1]
            return alone and torch.allclose(slope, torch.eye(len(slope), dtype=slope.dtype), atol=1e-4)
        return not any(slope.any() for row in self.slopes for slope in row)

    def note(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Take down what the inputs lack, when these gradients arrive at the results."""
        for one, row in zip(self.inputs, self.slopes or (), strict=False):
            shares = [g.double().flatten() @ slope for g, slope in zip(gradients, row, strict=True) if g is not None]
            if shares:
                one.missing = sum(shares).reshape(one.shape)


@dataclass
class Fallbacks:
    """Watches dispatches for operators that go through autograd's fallback. Give `visit` to `watch_dispatches`."""

    found: list[Dropped] = field(default_factory=list)
    fills: Callable[[], bool] = lambda: True  # whether the backward that runs fills `.grad`
    _first: bool = True  # no backward has ended yet
    _handles: list[Any] = field(default_factory=list)

    def close(self) -> None:
        """Take our hooks off the reader's graphs."""
        while self._handles:
            self._handles.pop().remove()

    def visit(self, seen: Seen, go: Callable[[], Any]) -> Any:
        before = None
        with suppress(Exception), unwatched(), plain_access():  # a look of ours must not disturb the reader's run
            before = self._before(seen)
        result = go()
        if before is not None:
            with suppress(Exception), unwatched(), plain_access():
                self._after(before, result)
        return result

    def _before(self, seen: Seen) -> _Call | None:
        """Take down a call that goes through autograd's fallback with a tensor that requires grad."""
        if not (seen.key.startswith("Autograd") and torch.is_grad_enabled()) or len(self.found) == MOST_CALLS:
            return None
        kernel = kernel_table(seen.name).get(seen.key)
        if kernel is None or kernel.kind != FALLBACK or kernel.fallthrough:
            return None
        inputs = list({id(t): t for t in tensors_in((seen.args, seen.kwargs)) if t.requires_grad}.values())
        return _Call(seen, inputs, _written(seen)) if inputs else None

    def _after(self, call: _Call, result: Any) -> None:
        """Note the call if a result of it, or what it wrote, has lost the gradient."""
        results = [t for t in tensors_in([result]) if t.is_floating_point() or t.is_complex()]
        lost, how = [i for i, t in enumerate(results) if passes_nothing(grad_fn_of(t))], NODE
        if not lost:
            lost = call.unrecorded(result)
            how = IN_PLACE if any(call.written[i].requires_grad for i in lost) else OUT
        if not lost:
            return
        frame = reader_frame(sys._getframe(1), READER)
        names = names_in(frame) if frame else {}
        inputs = [
            Input(_name(t, names), call.argument(t), t.is_leaf, t.shape, id(t), weakref.ref(t)) for t in call.inputs
        ]
        kernels = tuple(key for key in registrations(call.seen.name) if is_backend(key) or key.startswith("Composite"))
        slopes = call.slopes(lost, results if how == NODE else None)
        dropped = Dropped(call.seen.name, kernels, f" ({place_of(frame)})" if frame else "", how, inputs, slopes)
        self.found.append(dropped)
        if how == NODE:
            self._follow(dropped, [results[i] for i in lost])

    def _follow(self, dropped: Dropped, lost: list[torch.Tensor]) -> None:
        """Have the gradients that arrive at the lost results noted when the first backward comes by."""
        numbers = [t.output_nr for t in lost]

        def arrived(gradients: Sequence[torch.Tensor | None]) -> None:
            with suppress(Exception), unwatched(), plain_access(), torch.no_grad():
                if self._first and not dropped.reached:
                    dropped.reached = True
                    dropped.note([gradients[number] for number in numbers])
                    at_end_of_backward(ended)

        def ended() -> None:
            with suppress(Exception), unwatched(), plain_access():
                self._first = False
                for one in dropped.inputs:
                    t, one.filled = one.reference(), self.fills()
                    if one.filled and t is not None and t.is_leaf and t.grad is not None:
                        one.grad = t.grad.detach().double().clone()

        self._handles.append(lost[0].grad_fn.register_prehook(arrived))


class _Call:
    """A call before its kernel runs: the inputs that require grad, what it may write, and copies of both."""

    def __init__(self, seen: Seen, inputs: list[torch.Tensor], written: list[torch.Tensor]) -> None:
        self.seen, self.inputs, self.written = seen, inputs, written
        self.values = [t.detach().clone() for t in inputs]
        self.old = [t.detach().clone() for t in written]
        self.nodes = [grad_fn_of(t) for t in written]

    def argument(self, t: torch.Tensor) -> str:
        """Return the operator's own name for a tensor argument."""
        return next((name for name, value in _named(self.seen).items() if _holds(value, t)), "")

    def unrecorded(self, result: Any) -> list[int]:
        """Return which of the written arguments were changed and have the same history as before.

        One that requires no grad counts if it was returned, as `out` is: a buffer that is only updated needs none.
        """
        returned = tensors_in([result])
        together = enumerate(zip(self.written, self.nodes, self.old, strict=True))
        return [
            i
            for i, (t, node, old) in together
            if t.is_floating_point() and grad_fn_of(t) is node and not torch.equal(t.detach(), old)
            if t.requires_grad or any(t is one for one in returned)
        ]

    def slopes(self, lost: list[int], results: list[torch.Tensor] | None) -> Slopes | None:
        """Measure the derivatives of the lost results, or of what was written, by the inputs as they were."""

        def kernel(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            dtype = values[0].dtype
            fresh = {id(t): old.to(dtype, copy=True) for t, old in zip(self.written, self.old, strict=True)}
            fresh |= {id(t): value for t, value in zip(self.inputs, values, strict=True)}
            args, kwargs = _swapped((self.seen.args, self.seen.kwargs), fresh, dtype)
            made = [t for t in tensors_in([self.seen.operator(*args, **kwargs)]) if t.is_floating_point()]
            return [made[i] if results is not None else fresh[id(self.written[i])] for i in lost]

        return measure_slopes(kernel, self.values, [(results or self.written)[i].detach() for i in lost])


def _written(seen: Seen) -> list[torch.Tensor]:
    """Return the arguments that an operator may write to, by its schema."""
    arguments, given = operator_schema(seen.operator).arguments, _named(seen)
    return tensors_in([given.get(a.name) for a in arguments if a.alias_info is not None and a.alias_info.is_write])


def _named(seen: Seen) -> dict[str, Any]:
    """Return the arguments of a call by their names in the schema."""
    names = [a.name for a in operator_schema(seen.operator).arguments]
    return dict(zip(names, seen.args, strict=False)) | seen.kwargs


def _holds(value: Any, t: torch.Tensor) -> bool:
    return any(one is t for one in tensors_in([value]))


def _swapped(values: Any, fresh: dict[int, torch.Tensor], dtype: torch.dtype) -> Any:
    """Return arguments with other tensors in place of some, and every real number in one dtype."""
    if isinstance(values, torch.Tensor):
        return fresh[id(values)] if id(values) in fresh else _as(values.detach(), dtype)
    if isinstance(values, list | tuple):
        return type(values)(_swapped(value, fresh, dtype) for value in values)
    return {k: _swapped(v, fresh, dtype) for k, v in values.items()} if isinstance(values, dict) else values


def _as(t: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return t.to(dtype) if t.is_floating_point() else t


def _name(t: torch.Tensor, names: dict[str, Any]) -> str:
    """Return the reader's variable for a tensor, or ""."""
    return next((name for name, value in names.items() if value is t), "")
