"""Operators whose gradient gets lost without an error: those whose kernel leaves autograd.

For such an operator the dispatcher runs autograd's fallback, which calls the kernel and then looks at the results. One
that the kernel computed with torch operations has a graph already, and all is well. To one that came from elsewhere
(NumPy, C++, detach) it gives a node that passes nothing. What was written in place gets no node at all.

A kernel that stands where autograd does, registered without a key or for "Autograd", has no fallback before it. When it
leaves autograd, its results have no graph, and torch warns of nothing.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from helpers.model.adapter import (
    Seen,
    at_end_of_backward,
    custom_op_has_backward,
    kernel_table,
    operator_schema,
    passes_nothing,
    plain_access,
    registrations,
    unwatched,
)
from helpers.model.autograd.nodes import grad_fn_of
from helpers.model.dispatch.kernels import is_backend, is_of_torch
from helpers.model.dispatch.measure import Kernel, Slopes, depends, measure_slopes
from helpers.model.dispatch.shadows import Shadows
from helpers.model.owners import names_in
from helpers.model.source import place_of, reader_frame
from helpers.model.watch import READER, tensors_in

MOST_CALLS = 8  # that are looked at: a loop repeats the same
FALLBACK = "backend fallback"  # the kind of kernel that serves every operator
NODE, IN_PLACE, OUT, NO_GRAPH = "node", "in place", "out", "no graph"  # how a result lost its gradient


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

    `how` is "node", "in place", "out" or "no graph". `slopes` are the derivatives, None where they could not be
    measured; `changes`: the results follow the inputs, measured in another way. `reached`: a backward has passed here,
    or would have. `serves` is the key for which the kernel that ran was registered.
    """

    operator: str
    kernels: tuple[str, ...]
    at: str
    how: str
    inputs: list[Input]
    slopes: Slopes | None = None
    reached: bool = False
    changes: bool = False
    serves: str = ""

    @property
    def harmless(self) -> bool:
        """Whether nothing is lost: the derivatives were measured, and they are what the graph passes on anyway.

        That is 0 past a node that passes nothing, and 1 where a write in place is not recorded.
        """
        if self.reached and all(one.missing is not None and not one.missing.any() for one in self.inputs):
            return True  # the gradient that arrived was 0
        if self.slopes is None:
            return self.how == NO_GRAPH and not self.changes
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
    _shadows: Shadows = field(default_factory=Shadows)
    _followed: bool = False  # a call runs that has shadows, and so do those that it makes itself

    def close(self) -> None:
        """Take our hooks off the reader's graphs."""
        while self._handles:
            self._handles.pop().remove()
        self._shadows.close()

    def visit(self, seen: Seen, go: Callable[[], Any]) -> Any:
        before = shadows = None
        with suppress(Exception), unwatched(), plain_access():  # a look of ours must not disturb the reader's run
            before = self._before(seen)
        if not self._followed:
            with suppress(Exception), unwatched(), plain_access():
                shadows = self._shadows.before(seen)
        if shadows is None:
            result = go()
        else:
            self._followed = True
            try:
                result = go()
            finally:
                self._followed = False
            with suppress(Exception), unwatched(), plain_access():
                self._shadows.after(shadows, result)
        if before is not None:
            with suppress(Exception), unwatched(), plain_access():
                self._after(before, result)
        return result

    def _before(self, seen: Seen) -> _Call | None:
        """Take down a call with a tensor that requires grad, if autograd's fallback or a kernel in its place runs."""
        if not (seen.key.startswith("Autograd") and torch.is_grad_enabled()) or len(self.found) == MOST_CALLS:
            return None
        kernel = kernel_table(seen.name).get(seen.key)
        if kernel is None or kernel.fallthrough or not (kernel.kind == FALLBACK or _is_readers(seen.name)):
            return None
        inputs = list({id(t): t for t in tensors_in((seen.args, seen.kwargs)) if t.requires_grad}.values())
        serves = "" if kernel.kind == FALLBACK else kernel.alias or seen.key
        return _Call(seen, inputs, _written(seen), serves) if inputs else None

    def _after(self, call: _Call, result: Any) -> None:
        """Note the call if a result of it, or what it wrote, has lost the gradient."""
        results = [t for t in tensors_in([result]) if t.is_floating_point() or t.is_complex()]
        lost, how = [i for i, t in enumerate(results) if passes_nothing(grad_fn_of(t))], NODE
        if call.serves:
            mine = {id(t) for t in tensors_in((call.seen.args, call.seen.kwargs))}
            lost, how = [i for i, t in enumerate(results) if not (t.requires_grad or id(t) in mine)], NO_GRAPH
        elif not lost:
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
        made = results if how in (NODE, NO_GRAPH) else None
        slopes = call.slopes(lost, made)
        dropped = Dropped(call.seen.name, kernels, f" ({place_of(frame)})" if frame else "", how, inputs, slopes)
        dropped.serves, dropped.changes = call.serves, how == NO_GRAPH and slopes is None and call.changes(lost, made)
        self.found.append(dropped)
        if how == NODE:
            self._follow(dropped, [results[i] for i in lost])
        elif how == NO_GRAPH and not dropped.harmless:
            self._shadow(dropped, [results[i] for i in lost])

    def _follow(self, dropped: Dropped, lost: list[torch.Tensor]) -> None:
        """Have the gradients that arrive at the lost results noted when the first backward comes by."""
        numbers = [t.output_nr for t in lost]

        def arrived(gradients: Sequence[torch.Tensor | None]) -> None:
            with suppress(Exception), unwatched(), plain_access(), torch.no_grad():
                if self._first and not dropped.reached:
                    self._reach(dropped)
                    dropped.note([gradients[number] for number in numbers])

        self._handles.append(lost[0].grad_fn.register_prehook(arrived))

    def _shadow(self, dropped: Dropped, lost: list[torch.Tensor]) -> None:
        """Have the gradients noted that would have arrived at results without a graph, in the first backward."""
        gradients: list[torch.Tensor | None] = [None] * len(lost)

        def add(i: int, share: torch.Tensor) -> None:
            if self._first:
                if not dropped.reached:
                    self._reach(dropped)
                gradients[i] = share if gradients[i] is None else gradients[i] + share
                if self._shadows.exact:
                    dropped.note(gradients)

        self._shadows.lossy.add(dropped.operator)
        for i, t in enumerate(lost):
            self._shadows.add(t, partial(add, i))

    def _reach(self, dropped: Dropped) -> None:
        """Take down that a backward has come to a call, and what the leaves have when it is over."""

        def ended() -> None:
            with suppress(Exception), unwatched(), plain_access():
                self._first = False
                for one in dropped.inputs:
                    t, one.filled = one.reference(), self.fills()
                    if one.filled and t is not None and t.is_leaf and t.grad is not None:
                        one.grad = t.grad.detach().double().clone()

        dropped.reached = True
        at_end_of_backward(ended)


class _Call:
    """A call before its kernel runs: the inputs that require grad, what it may write, and copies of both."""

    def __init__(self, seen: Seen, inputs: list[torch.Tensor], written: list[torch.Tensor], serves: str) -> None:
        self.seen, self.inputs, self.written, self.serves = seen, inputs, written, serves
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
        seen = [(results or self.written)[i].detach() for i in lost]
        return measure_slopes(self._kernel(lost, results is None), self.values, seen)

    def changes(self, lost: list[int], results: list[torch.Tensor]) -> bool:
        """Say whether the lost results follow the inputs, where the derivatives are too many to be measured."""
        return depends(self._kernel(lost, written=False), self.values, [results[i].detach() for i in lost])

    def _kernel(self, lost: list[int], written: bool) -> Kernel:
        """Return the call as a function from its inputs to the lost results, or to what it has written."""

        def kernel(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            dtype = values[0].dtype
            fresh = {id(t): old.to(dtype, copy=True) for t, old in zip(self.written, self.old, strict=True)}
            fresh |= {id(t): value for t, value in zip(self.inputs, values, strict=True)}
            args, kwargs = _swapped((self.seen.args, self.seen.kwargs), fresh, dtype)
            made = [t for t in tensors_in([self.seen.operator(*args, **kwargs)]) if t.is_floating_point()]
            return [fresh[id(self.written[i])] if written else made[i] for i in lost]

        return kernel


def _is_readers(operator: str) -> bool:
    """Say whether an operator is neither of torch nor of `custom_op`, which cares for autograd itself."""
    return not is_of_torch(operator) and custom_op_has_backward(operator) is None


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
