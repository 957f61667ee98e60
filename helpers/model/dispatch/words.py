"""Why this kernel? One call of a trace in two plain sentences."""

from __future__ import annotations

from helpers.model.dispatch.trace import EXCLUDED, FALLTHROUGH, WINS, Dispatch
from helpers.model.words import listed

_KINDS = {
    "autograd kernel": "its autograd kernel",
    "math kernel": "its math kernel (CompositeImplicitAutograd: made of other operators)",
    "nested kernel": "its math kernel for nested tensors (made of other operators)",
    "batched kernel": "its decomposition for vmap",
    "default backend kernel": "its one kernel for all backends (CompositeExplicitAutograd)",
}


def why(call: Dispatch) -> str:
    """Say which key won a call and why no higher one did, and what its kernels did; without the last full stop."""
    return f"{_contest(call)}. {_run(call)}"


def _contest(call: Dispatch) -> str:
    """Say which keys took part and which one won."""
    carried = {key for _, keys in call.arguments for key in keys}
    if call.key == "Undefined":
        return f"{call.operator} got no tensor, so it is called at a key of its own, Undefined"
    if not carried:
        text = f"{call.operator} got no tensor, so only the keys count that this thread adds: {call.key} won"
    else:
        keys = [rung.key for rung in call.rungs if rung.key in carried]
        owner = "the tensor arguments" if len(call.arguments) > 1 else f"`{call.arguments[0][0]}`"
        verb = "have" if len(call.arguments) > 1 else "has"
        text = f"in {call.operator}, {owner} {verb} the keys {listed(keys)}; {call.key} won"
        if call.key not in carried:
            text += ", which this thread adds to every call"
    return text + _passed_over(call)


def _passed_over(call: Dispatch) -> str:
    """Say why the keys above the winner did not win."""
    above = call.rungs[: next(i for i, rung in enumerate(call.rungs) if rung.verdict == WINS)]
    left_out = [rung.key for rung in above if rung.verdict == EXCLUDED]
    skipped = [rung.key for rung in above if rung.verdict == FALLTHROUGH]
    marked = [key for key in skipped if key.startswith("Autograd")]
    said = []
    if left_out:
        said.append(f"{listed(left_out, 3)} {'is' if len(left_out) == 1 else 'are'} left out by this thread")
    if skipped:
        said.append(f"{listed(skipped, 3)} {'is a fallthrough' if len(skipped) == 1 else 'are fallthroughs'}, no code")
    if marked:  # the fallback of autograd is code: a fallthrough here was registered for this very operator
        said[-1] += f" ({marked[0]} on purpose: the operator is marked as one without a derivative)"
    return f", because {listed(said)}" if said else ", the highest of all" if len(call.rungs) > 1 else ""


def _run(call: Dispatch) -> str:
    """Say what the kernel at each key did."""
    first, *rest = call.steps
    if not rest:
        text = f"{_kernel(first)} {_did(first) or 'ran'}"
    else:
        also = f" {_did(first)} and" if _did(first) else ""
        text = (
            f"{_kernel(first)}{also} handed the call on to {', and that one to '.join(_later(step) for step in rest)}"
        )
    return text[0].upper() + text[1:]


def _later(step: Dispatch) -> str:
    """Name the kernel to which a call was handed on, and say what it did."""
    return _kernel(step) + (" (inferred from the result)" if step.inferred else "") + (
        f", which {_did(step)}" if _did(step) else ""
    )  # fmt: skip


def _kernel(step: Dispatch) -> str:
    """Name the kernel at a key."""
    if step.kernel is None:
        return f"{step.key}, which has no kernel" if step.redispatch else f"no kernel for {step.key}"
    if step.kernel.kind == "backend fallback":
        return f"the fallback of {step.key} (it serves every operator that has no kernel there)"
    return _KINDS.get(step.kernel.kind, f"its kernel for {step.key}")


def _did(step: Dispatch) -> str:
    """Say which operators the kernel of a step called itself, and whether it raised; "" where it did neither."""
    called = list(dict.fromkeys(inner.operator for inner in step.inner if not inner.redispatch))
    raised = step.failed and step.kernel is not None and not any(inner.failed for inner in step.inner)
    return listed([*([f"called {listed(called, 4)}"] if called else []), *(["raised the error"] if raised else [])])
