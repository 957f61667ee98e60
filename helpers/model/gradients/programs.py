"""`explain_grad` for a whole training step: the function runs once, watched, and the first fault found is told."""

from __future__ import annotations

from collections.abc import Callable

from helpers.model.errors.explain import explain_failure
from helpers.model.finding import HelperError
from helpers.model.gradients.cuts import find_first_cut
from helpers.model.gradients.gradrun import GradRun
from helpers.model.gradients.hidden import PLAIN_TENSOR
from helpers.model.gradients.kept import growing_sum, of_results
from helpers.model.gradients.parameters import not_reached, optimizer_mismatch
from helpers.model.gradients.reasons import Reason
from helpers.model.gradients.steps import not_finite
from helpers.model.watch import name_of, require_callable, run_reader, uncompiled, with_unjudged
from helpers.model.words import quoted

_SCALER = ("_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_")  # it steps only where all is finite


_ALL_ZERO = (
    "every gradient that a backward of this run has filled is zero, so nothing can be learned from it",
    "Ask explain_grad(t, loss) with one of the parameters and the loss before its backward: it names the operator.",
)


def explain_program(fn: Callable) -> Reason:
    """Run `fn()` and tell the first thing that is wrong with a gradient in it.

    Looked for, in this order: an error; a loss that is a leaf; values that backward read although they were changed
    since; a `.grad` that was read and is None; gradients that are not finite, that were cleared before a step, or that
    a step uses twice; parameters that no backward reached, or that no optimizer holds since a part of the model was
    replaced; leaves that no backward reached; gradients that are all zero; an optimizer without any gradient; graphs
    that are kept from one iteration to the next. A parameter that no optimizer holds is otherwise taken to be left out
    on purpose, where an optimizer made a step.
    """
    require_callable(fn, "explain_grad")
    run = GradRun()
    try:
        with uncompiled(), run:
            run_reader(fn, ())
            _finish(run)
    except HelperError:
        raise
    except Exception as error:  # the reader's own error is the answer, told by the tool for errors
        found = explain_failure(fn, error, run.failure, run)
        return Reason("raised", found.text.removesuffix("."), found.remedy, found.facts.get("line"))
    finally:
        run.failure = None
    if run.reasons:
        return min(run.reasons, key=lambda pair: pair[0])[1]
    if not run.backwards:
        return Reason(
            "no backward", f"{name_of(fn)} ran no backward, so it gave no tensor a gradient", "Call loss.backward()."
        )
    return Reason("right", with_unjudged(_all_clear(run, name_of(fn)), run.unjudged).removesuffix("."))


def _all_clear(run: GradRun, name: str) -> str:
    """Return what was found right, and which parameters no step can change."""
    left = [path for path in run.got if path in run.named and id(run.named[path]) not in run.steps.held]
    if not run.steps.optimizers:
        return f"every parameter and every leaf in {name} that requires grad was reached by a backward"
    rest = sum(number not in run.reached for number in run.steps.held)
    part = " and whose module ran" if rest else ""
    text = f"every parameter that an optimizer of {name} holds{part} was reached by a backward"
    if rest and run.hidden:
        text = f"nothing wrong was seen in {name}, a part of whose graph a checkpoint hides"
    it, gets = ("it", "gets a gradient") if len(left) == 1 else ("them", "get gradients")
    if left:
        text += f"; {quoted(left)} {gets} and no optimizer holds {it}: no step changes {it}"
    return text


def _finish(run: GradRun) -> None:
    """Look at what can be judged only at the end of the run: the parameters that no backward reached."""
    held = run.steps.held
    run.reasons += [(3, reason) for reason in run.steps.reasons]
    if run.bad and not any(run.record.calls(*_SCALER)):
        names = list(map(run.name_of, run.bad.values()))
        at, line = run.filled_at
        run.reasons.append((3, not_finite(names, len(run.states), f"after {at}", line)))
    for reason, lost in run.lost:
        if (held or reason.cause != PLAIN_TENSOR) and any(id(p) in run.reached and id(p) not in held for p in lost):
            run.reasons.append((4, reason))
    known = {name: p for name, p in run.known.items() if not held or id(p) in held}
    missing = {name: p for name, p in known.items() if name not in (run.filled if held else run.got)}
    if missing and not run.hidden:
        run.reasons.append((4, not_reached(missing, list(known), "", run.cut)))
    if reason := _replaced(run):
        run.reasons.append((4, reason))
    if not run.hidden and (reason := _unreached_leaf(run)):
        run.reasons.append((4, reason))
    if run.states and all(state == "zero" for state in run.states.values()):
        run.reasons.append((4, _all_zero(run)))
    if run.steps.idle and run.backwards and not run.hidden:
        run.reasons.append((4, _idle(run)))
    if run.kept is not None:
        run.reasons.append((5, of_results(*run.kept)))
    if reason := growing_sum(run.record, run.used):
        run.reasons.append((5, reason))


def _all_zero(run: GradRun) -> Reason:
    """Say that all gradients are zero, and which operators alone can have made them so."""
    if not run.flat:
        return Reason("zero", *_ALL_ZERO)
    name, at = next(iter(run.flat.items()))
    text = f"every gradient that a backward of this run has filled is zero: the derivative of `{name}`, in {at}, is 0"
    remedy = f"Use a smooth function in its place, or a gradient that passes by: x + (x.{name}() - x).detach()."
    return Reason("zero", f"{text} everywhere", remedy)


def _idle(run: GradRun) -> Reason:
    """Tell an optimizer that had no gradient at any step: what it holds is not what the loss is computed from."""
    idle = run.steps.idle
    names = [path for path, p in run.named.items() if id(p) in idle]
    held = f"none of the {len(idle)} parameters" if len(idle) > 1 else "the parameter"
    had = "had" if len(idle) > 1 else "never had"
    text = f"{held} that the optimizer holds {had} a gradient when it made a step, so no step changes anything"
    text += f" ({quoted(names)})" if names else ""
    others = [path for path in run.got if path in run.named and id(run.named[path]) not in run.steps.held]
    if not others and (cut := next((found for p in idle.values() if (found := run.cut(p))), None)):
        return Reason("no gradient to use", f"{text}; {cut.text}", cut.remedy, cut.line)
    if others:
        text += f"; {quoted(others)} {'gets a gradient' if len(others) == 1 else 'get gradients'}, and no optimizer "
        text += f"holds {'it' if len(others) == 1 else 'them'}"
    remedy = "Give the optimizer the parameters of the model that the loss is computed from."
    return Reason("no gradient to use", text, remedy)


def _replaced(run: GradRun) -> Reason | None:
    """Tell parameters that took the place of others: an optimizer still holds these, and nothing else does."""
    held, orphans = run.steps.held, run.steps.orphans
    roots = {path.partition(".")[0] for path, p in run.named.items() if id(p) in held}
    shapes = {tuple(p.shape) for p in orphans.values()}
    lacking = [p for p in run.got if p in run.named and id(run.named[p]) not in held]
    lacking = [p for p in lacking if p.partition(".")[0] in roots or tuple(run.named[p].shape) in shapes]
    if not orphans or not lacking:
        return None
    own = {id(p): p for p in run.named.values() if id(p) in held}
    return optimizer_mismatch(run.named, own | orphans, lacking, len(run.steps.optimizers))


def _unreached_leaf(run: GradRun) -> Reason | None:
    """Find a leaf that the reader made or used before the last backward and that no backward reached."""
    filled = any(event.name == "backward" for event in run.record.events)
    numbers = {run.number(p) for p in run.known.values()} | run.numbers
    held = {run.number(p) for p in run.steps.held.values()}
    for event in run.record.events[: run.last + 1] if filled else ():
        used = (*event.outputs, *(event.kept if event.grad_mode else ())) if event.call.direct else ()
        for number in used:
            seen = run.record.tensors[number]
            if seen.requires_grad and seen.is_leaf and number not in numbers and (not held or number in held):
                return _of_leaf(run, number, event.call.at)
    return None


def _of_leaf(run: GradRun, number: int, at: str) -> Reason:
    name = run.record.shown(number, at)
    cut = find_first_cut(run.record, number)
    if cut is None:
        text = f"no backward reached {name}, a leaf that requires grad: no loss was computed from it"
        return Reason("not used", text, "Use it in the forward, or make it without requires_grad.")
    doubt = "" if cut.sure else "either no loss was computed from it, or "
    return Reason(cut.cause, f"no backward reached {name}: {doubt}{cut.text}", cut.remedy, cut.line)
