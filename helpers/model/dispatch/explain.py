"""Why this kernel, why no kernel, and why no gradient? `explain_dispatch`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from helpers.model.adapter import unwatched, watch_dispatches
from helpers.model.dispatch.fallbacks import Fallbacks
from helpers.model.dispatch.fallbackwords import CAUSE, explain_dropped
from helpers.model.dispatch.kernels import is_of_torch
from helpers.model.dispatch.trace import Dispatch, DispatchTrace, trace_dispatch
from helpers.model.dispatch.words import why
from helpers.model.errors.explain import explain_failure
from helpers.model.errors.failure import none_given
from helpers.model.finding import Finding
from helpers.model.runs.run import Run
from helpers.model.watch import Call, NotRunError, name_of, require_callable, run_reader, uncompiled
from helpers.model.words import counted, sentence_case

RAN, FAILED, GAVE_NONE, NOTHING = "a kernel ran", "raised", "None for a tensor", "no operator"


@dataclass(frozen=True, kw_only=True, repr=False)
class DispatchFinding(Finding):
    """Which kernels ran, and why these.

    `cause` is "a kernel ran", "raised", "no Autograd kernel", "None for a tensor" or "no operator". `operator` is the
    one that the answer is about, with its overload, `path` the keys whose kernels ran for it, and `calls` how many
    operators the function called itself. `error` is the name of the exception, or "". `trace` holds every dispatch.
    """

    cause: str
    operator: str = ""
    path: str = ""
    calls: int = 0
    error: str = ""
    trace: DispatchTrace


def explain_dispatch(fn: Callable, *args: Any, **kwargs: Any) -> DispatchFinding:
    """Run `fn(*args, **kwargs)` once and say which kernel ran for its call of an operator, and why that one.

    A call that raises is explained as `explain_error` does it: which key was looked for, which kernels there are, and
    what to register. An operator whose kernel drops the gradient without an error is named, with what is missing: for
    that, its kernel is called some more times, and where its result has no graph, each call that takes it once more,
    with copies and without output. Of several calls one is explained: the first of an operator of your own, or else the
    first that computes with a tensor. What was compiled runs as it was written.
    Raises HelperError when `fn` is not a function.
    """
    require_callable(fn, "explain_dispatch")
    run, fallbacks, raised = _Run(), Fallbacks(), list[Exception]()
    fallbacks.fills = lambda: run.fills

    def watched() -> None:
        try:
            with uncompiled(), run, watch_dispatches(fallbacks.visit):
                run_reader(fn, args, kwargs)
        except NotRunError:  # nothing of the function has run, so nothing can be said about it
            raise
        except Exception as error:  # the error is a part of the answer
            raised.append(error)

    try:
        trace = replace(trace_dispatch(watched), function=name_of(fn))
        return _finding(fn, trace, run, fallbacks, raised)
    finally:
        fallbacks.close()
        run.failure = None  # it holds the error, whose traceback holds the tensors of its frames
        raised.clear()


class _Run(Run):
    """Also knows the backwards: how many ran, and whether the one that runs fills `.grad`."""

    def __init__(self) -> None:
        super().__init__()
        self.backwards = 0
        self.fills = False

    def _before(self, *call: Any) -> Any:
        with unwatched():  # what is noted here is no call of the reader's
            return super()._before(*call)

    def _after(self, *call: Any) -> None:
        with unwatched():
            super()._after(*call)

    def around(self, call: Call, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        if call.name == "backward" or (call.name == "grad" and call.count > 1):
            self.backwards += 1
            self.fills = call.name == "backward"
        return super().around(call, func, args, kwargs)


def _finding(
    fn: Callable, trace: DispatchTrace, run: _Run, fallbacks: Fallbacks, raised: list[Exception]
) -> DispatchFinding:
    calls = len(trace.roots)
    if raised:
        found = _of_error(fn, trace, run, raised[0])
        lost = explain_dropped([d for d in fallbacks.found if d.at and d.at in found.text], 0)
        return replace(found, remedy=lost.remedy) if lost and "has no graph" in found.text else found
    if run.undefined:
        text, remedy = none_given(run.undefined[0])
        first = next(d for d in trace.calls if d.operator.partition(".")[0] == run.undefined[0][0].partition(".")[0])
        return DispatchFinding(
            text=f"{text}.", remedy=remedy, cause=GAVE_NONE, operator=first.operator, path=first.path,
            calls=calls, trace=trace,
        )  # fmt: skip
    if lost := explain_dropped(fallbacks.found, run.backwards):
        first = next(d for d in trace.calls if d.operator == lost.operator)
        return DispatchFinding(
            text=f"{lost.text}.", remedy=lost.remedy, cause=CAUSE, operator=first.operator, path=first.path,
            calls=calls, trace=trace, facts=lost.facts,
        )  # fmt: skip
    if not calls:
        text = f"{name_of(fn)} called no operator in this thread, so the dispatcher chose no kernel."
        return DispatchFinding(text=text, cause=NOTHING, trace=trace)
    chosen = _chosen(trace)
    number = trace.roots.index(chosen) + 1
    more = f"{name_of(fn)} called {counted(calls, 'operator')} itself, and this was number {number}"
    text = f"{why(chosen)}.{f' {sentence_case(more)}.' if calls > 1 else ''}"
    if run.caught() and (failed := [call.operator for call in trace.calls if call.failed]):
        text += f" A call of {failed[-1]} raised, and {name_of(fn)} caught the error."
    facts = {"keys": [step.key for step in chosen.steps], "dispatches": len(trace.dispatches)}
    return DispatchFinding(
        text=text, cause=RAN, operator=chosen.operator, path=chosen.path, calls=calls, trace=trace, facts=facts
    )


# What a tensor that is being made or taken over calls before the call that a reader means.
_MAKING = ("aten::to", "aten::detach", "aten::detach_", "aten::lift_fresh", "aten::alias", "aten::zeros_like")


def _chosen(trace: DispatchTrace) -> Dispatch:
    """Return the call to explain: the first of an operator that is not torch's own, or else the first with a tensor."""
    with_tensor = [call for call in trace.roots if call.arguments]
    own = (call for call in trace.roots if not is_of_torch(call.operator))
    main = (call for call in with_tensor if call.name not in _MAKING)
    return next(own, None) or next(main, None) or next(iter(with_tensor), trace.roots[0])


def _of_error(fn: Callable, trace: DispatchTrace, run: _Run, error: Exception) -> DispatchFinding:
    """Explain an error as `explain_error` does, and name the operator whose call failed innermost."""
    told = explain_failure(fn, error, run.failure, run)
    failed = [call for call in trace.calls if call.failed]
    trace = replace(trace, error=f"{type(error).__name__}: {told.facts.get('message', '')}".removesuffix(": "))
    return DispatchFinding(
        text=told.text,
        remedy=told.remedy,
        cause=FAILED,
        operator=failed[-1].operator if failed else "",
        path=failed[-1].path if failed else "",
        calls=len(trace.roots),
        error=told.error,
        trace=trace,
        facts=told.facts,
    )
