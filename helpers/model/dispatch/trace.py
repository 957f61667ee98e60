"""What the dispatcher does while a function runs: `trace_dispatch` and the `DispatchTrace` that it returns.

Every dispatch of the function is seen while it happens, in a release build of torch: which keys the call had, which
were passed over, which one won, and what its kernel called in turn. No tensor is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch

from helpers.model.adapter import (
    Kernel,
    Seen,
    all_keys,
    kernel_table,
    merged_keys,
    operator_schema,
    tensor_keys,
    thread_keys,
    watch_dispatches,
)
from helpers.model.watch import NotRunError, first_line, name_of, require_callable, run_reader, tensors_in

# The verdict on one key of a call.
EXCLUDED = "excluded"  # this thread leaves it out
FALLTHROUGH = "fallthrough"  # its kernel is marked as nothing to run: the dispatcher skips it
MASKED = "masked"  # the kernel before asked for keys below this one
WINS = "wins"
BELOW = "below"  # lower than the winner: not asked yet

# The kernels at these keys hand the same call on to the keys below. Others make calls of their own.
_HANDS_ON = ("Autograd", "ADInplaceOrView", "BackendSelect", "Tracer", "PythonTLSSnapshot", "Conj", "Neg", "ZeroT")


@dataclass(frozen=True)
class Rung:
    """One key that a dispatch considered. `verdict`: "excluded", "fallthrough", "masked", "wins" or "below"."""

    key: str
    verdict: str


@dataclass(frozen=True)
class Dispatch:
    """One dispatch: one operator, one winning key, and all that its kernel dispatched in turn.

    `operator` has its overload ("aten::add.Tensor"). `arguments` are the tensor arguments by name, each with its keys.
    `included` and `excluded` are the keys that the thread added and left out. `rungs` are the keys in the dispatcher's
    order, the highest first. `kernel` is None where the winner has none. `redispatch`: the kernel of the call before
    handed the same call on. `inferred`: it was not seen, but follows from the result. `failed`: it raised.
    """

    operator: str
    key: str
    kernel: Kernel | None
    arguments: tuple[tuple[str, tuple[str, ...]], ...]
    included: tuple[str, ...]
    excluded: tuple[str, ...]
    rungs: tuple[Rung, ...]
    inner: tuple[Dispatch, ...] = ()
    redispatch: bool = False
    inferred: bool = False
    failed: bool = False

    @property
    def name(self) -> str:
        """The operator without its overload, as the profiler calls it: "aten::add"."""
        return self.operator.partition(".")[0]

    @property
    def merged(self) -> tuple[str, ...]:
        """The keys that took part: those of the arguments and the thread, without the excluded ones."""
        return tuple(rung.key for rung in self.rungs if rung.verdict != EXCLUDED)

    @property
    def steps(self) -> tuple[Dispatch, ...]:
        """This dispatch and the redispatches of the same call, in order: one step for each key whose kernel ran."""
        further = next((d for d in self.inner if d.redispatch), None)
        return (self, *(further.steps if further else ()))

    @property
    def calls(self) -> tuple[Dispatch, ...]:
        """The calls that the kernels of this call made, in order; its own redispatches are not among them."""
        return tuple(call for d in self.inner for call in (d.calls if d.redispatch else (d,)))

    @property
    def path(self) -> str:
        """The keys whose kernels ran: "AutogradCPU → CPU"."""
        return " → ".join(_shown(step) for step in self.steps)

    def walk(self) -> Iterator[Dispatch]:
        """Give this dispatch and all inside it, in the order in which they began."""
        yield self
        for d in self.inner:
            yield from d.walk()


def _shown(step: Dispatch) -> str:
    note = ""
    if step.inferred:
        note = " (inferred)"
    elif step.kernel is None:
        note = " (no kernel)"
    elif step.kernel.kind in ("math kernel", "nested kernel"):
        note = " (math kernel)"
    return step.key + note


@dataclass(frozen=True, repr=False)
class DispatchTrace:
    """All dispatches of one run of a function. `error` is what it raised, in one line, or ""."""

    function: str
    roots: tuple[Dispatch, ...]
    error: str = ""

    MOST_LINES = 60

    @property
    def dispatches(self) -> tuple[Dispatch, ...]:
        """Every dispatch and redispatch, in the order in which they began."""
        return tuple(d for root in self.roots for d in root.walk())

    @property
    def calls(self) -> tuple[Dispatch, ...]:
        """Every call of an operator, in the order in which they began; redispatches are not counted."""
        return tuple(d for d in self.dispatches if not d.redispatch)

    @property
    def operators(self) -> tuple[str, ...]:
        """The name of each call's operator, without the overload."""
        return tuple(d.name for d in self.calls)

    def __repr__(self) -> str:
        lines = [f"{'  ' * depth}{call.operator}  {call.path}" for depth, call in self.outline()]
        hidden = len(lines) - self.MOST_LINES
        if hidden > 0:
            lines[self.MOST_LINES :] = [f"… {hidden:,} more calls"]
        if self.error:
            lines.append(f"raised {self.error.partition('. ')[0]}")
        return "\n".join(lines) or f"{self.function} called no operator in this thread"

    def outline(self) -> Iterator[tuple[int, Dispatch]]:
        """Give each call with its depth: 0 for a call of the function, 1 for one of its kernels, and so on."""
        waiting = [(0, root) for root in reversed(self.roots)]
        while waiting:
            depth, call = waiting.pop()
            yield depth, call
            waiting.extend((depth + 1, inner) for inner in reversed(call.calls))

    @staticmethod
    def keys_that_ran(calls: Iterable[Dispatch]) -> tuple[str, ...]:
        """Return the keys whose kernels ran in these calls, in the dispatcher's order."""
        ran = {step.key for call in calls for step in call.steps}
        return tuple(key for key in key_order() if key in ran)


def trace_dispatch(fn: Callable, *args: Any, **kwargs: Any) -> DispatchTrace:
    """Run `fn(*args, **kwargs)` once and return every dispatch that it caused, as a `DispatchTrace`.

    Results stay as they are, and torch stays as it was. An error of `fn` ends the trace, which says so in `error`.
    Not seen: C++ code that calls other C++ code without the dispatcher, such as compiled functions; what wraps a tensor
    as a parameter or a subclass; and dispatches of other threads. The step after
    BackendSelect in a function that makes tensors is not seen either; it is added from the result, marked `inferred`.
    Each dispatch takes 50 to 300 times as long as usual. Raises HelperError when `fn` is not a function.
    """
    require_callable(fn, "trace_dispatch")
    recorder = _Recorder()
    error = ""
    try:
        with watch_dispatches(recorder.visit):
            run_reader(fn, args, kwargs)
    except NotRunError:
        raise
    except Exception as raised:  # what a call that failed did before is the answer to many questions
        error = f"{type(raised).__name__}: {first_line(raised)}"
    return DispatchTrace(name_of(fn), tuple(recorder.done), error)


@cache
def key_order() -> tuple[str, ...]:
    """Return every key, the highest priority first; last stands the key of a call without any tensor."""
    return (*all_keys(), "Undefined")


@dataclass
class _Open:
    """A dispatch whose kernel is running."""

    seen: Seen
    inner: list[Dispatch] = field(default_factory=list)


class _Recorder:
    """Takes down one `Dispatch` for each that `watch_dispatches` shows."""

    def __init__(self) -> None:
        self.done: list[Dispatch] = []
        self.open: list[_Open] = []
        self.order = {key: place for place, key in enumerate(key_order())}

    def visit(self, seen: Seen, go: Callable[[], Any]) -> Any:
        before = self.open[-1] if self.open else None
        outer = before.inner if before else self.done
        noted = self.note(seen, before)
        entry = _Open(seen)
        self.open.append(entry)
        try:
            result = go()
        except BaseException:
            outer.append(replace(noted, inner=tuple(entry.inner), failed=True))
            raise
        finally:
            self.open.pop()
        outer.append(_with_inferred(replace(noted, inner=tuple(entry.inner)), result))
        return result

    def note(self, seen: Seen, before: _Open | None) -> Dispatch:
        """Return what is known of a dispatch before its kernel runs."""
        named = list(_named_tensors(seen))
        own = [t for _, t in named]
        redispatch = before is not None and self.is_handed_on(before.seen, seen)
        included, excluded = thread_keys()
        arguments = tuple((name, tensor_keys(t)) for name, t in named)
        possible = {key for _, keys in arguments for key in keys} | set(included) | {seen.key}
        if redispatch:
            possible = {key for key in possible if self.order[key] > self.order[before.seen.key]}
        table, merged = kernel_table(seen.name), set(merged_keys(own))
        ordered = sorted(possible, key=self.order.__getitem__)
        rungs = tuple(Rung(key, self.verdict(key, seen.key, merged, table)) for key in ordered)
        return Dispatch(
            seen.name, seen.key, table.get(seen.key), arguments, included, excluded, rungs, redispatch=redispatch
        )

    def is_handed_on(self, before: Seen, seen: Seen) -> bool:
        """Say whether the kernel that runs handed its own call on to a lower key."""
        lower = self.order[seen.key] > self.order[before.key]
        return lower and before.name == seen.name and before.key.startswith(_HANDS_ON)

    def verdict(self, key: str, winner: str, merged: set[str], table: dict[str, Kernel]) -> str:
        if key == winner:
            return WINS
        if key not in merged:
            return EXCLUDED
        if self.order[key] > self.order[winner]:
            return BELOW
        return FALLTHROUGH if key in table and table[key].fallthrough else MASKED


def _named_tensors(seen: Seen) -> Iterator[tuple[str, torch.Tensor]]:
    """Give each tensor argument with its name in the schema; those in a list as `tensors[0]`."""
    names = [argument.name for argument in operator_schema(seen.operator).arguments]
    for name, value in [*zip(names, seen.args, strict=False), *seen.kwargs.items()]:
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, list | tuple):
            yield from ((f"{name}[{i}]", t) for i, t in enumerate(value) if isinstance(t, torch.Tensor))


def _with_inferred(done: Dispatch, result: Any) -> Dispatch:
    """Add the step that follows BackendSelect in a function that makes a tensor: the backend of what was made."""
    made = tensors_in([result])
    if done.key != "BackendSelect" or any(d.redispatch for d in done.inner) or not made:
        return done
    key = tensor_keys(made[0])[-1]
    kernel = kernel_table(done.operator).get(key)
    step = replace(
        done, key=key, kernel=kernel, rungs=(Rung(key, WINS),), redispatch=True, inferred=True, inner=done.inner
    )
    return replace(done, inner=(step,))
