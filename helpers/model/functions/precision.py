"""Is a derivative judged in a precision that allows it? `check_function` judges in float64, and says what float32 does.

A numerical slope is the difference of two results over 2e-6. Results in float32 lie a spacing apart, so the slope moves
in steps of that spacing over 2e-6, which is 0.24 for results between 4 and 8: rounding, and no fault of backward.
"""

from __future__ import annotations

import copy
import math

import torch

from helpers.model.functions.faults import probe_backward
from helpers.model.functions.judge import judge
from helpers.model.functions.runs import STEP, Trial, fresh
from helpers.model.functions.words import FunctionFinding, Subject, number
from helpers.model.layout import Layout
from helpers.model.watch import first_line
from helpers.model.words import counted, dtype_name

_LOW = (torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex32)


def copied(subject: Subject, dtype: torch.dtype | None = None) -> Trial:
    """Return a trial with copies of the inputs, and with a copy of a module; with `dtype`, all of them in it."""
    fn = subject.fn
    if isinstance(fn, torch.nn.Module):
        fn = _module_copy(fn, dtype)
    args = [fresh(a, dtype) for a in subject.args]
    for k in subject.which:
        args[k] = args[k].contiguous()
    return Trial(fn, tuple(args), subject.which)


def _module_copy(module: torch.nn.Module, dtype: torch.dtype | None) -> torch.nn.Module:
    made = copy.deepcopy(module)
    return made.to(dtype) if dtype else made


def precise(subject: Subject, trial: Trial) -> FunctionFinding:
    """Judge in float64, and put before the sentence what kept the given inputs from being judged as they are."""
    overlapping = [k for k in subject.which if Layout.of(subject.args[k]).shared]
    low = [k for k in subject.which if subject.args[k].dtype in _LOW]
    low_outputs = [t.dtype for t in trial.outputs()[1] if t.dtype in _LOW]
    if not overlapping and not low and not low_outputs:
        return _inside_low(subject, trial, judge(subject, trial))
    before, verdict, remedy, name = "", "", "", ""
    if low or low_outputs:
        before, verdict, name = _steps(subject, trial, low, low_outputs)
        remedy = "Check in float64, and compare float32 with that by torch.allclose."
    if overlapping:
        name, verdict = subject.names[overlapping[0]], "overlapping input"
        layout = Layout.of(subject.args[overlapping[0]])
        zero = [d for d, (n, s) in enumerate(zip(layout.shape, layout.stride, strict=True)) if n > 1 and s == 0]
        why = f" (dimension {zero[0]} has stride 0)" if zero else ""
        before = (
            f"the {counted(layout.numel, 'element')} of `{name}` lie in {counted(layout.reached, 'slot')}{why}, so a "
            f"nudge of one element moves others too{'; ' + before if before else ''}"
        )
        remedy = f"Give gradcheck a copy, `{name}.clone(memory_format=torch.contiguous_format)`."
    how = " and ".join(([f"on a copy of `{name}`"] if overlapping else []) + (["in float64"] if low else []))
    how = how or "with all arguments in float64"
    try:
        double = copied(subject, torch.float64)
        double.outputs()
    except Exception as error:  # a weight in float32, for example
        if not low:
            raise
        text = f"{before}; {subject.name} does not run in float64 ({first_line(error)}), so it is not judged."
        return FunctionFinding(verdict=verdict, text=text, remedy=remedy, argument=name, complete=False)
    still = next((t.dtype for t in double.outputs()[1] if t.dtype in _LOW), None)
    if still is not None:
        text = f"{before}; {subject.name} gives {dtype_name(still)} for float64 too: it is not judged."
        return FunctionFinding(
            verdict=verdict, text=text, remedy="Compute in the dtype of the input.", argument=name, complete=False
        )
    found = probe_backward(subject, double) or judge(subject, double)
    passed = found.verdict == "passes"
    said = found.text.partition(" passes: ")[2] if passed else found.text
    said = f"{said[0].lower()}{said[1:]}" if said.startswith(("The ", "At ")) else said
    text = f"{before}; {how} {said}"
    fields = {**vars(found), "text": text}
    if passed:
        fields |= {"verdict": verdict, "remedy": remedy, "argument": name}
    return FunctionFinding(**fields)


def _steps(subject: Subject, trial: Trial, low: list[int], low_outputs: list) -> tuple[str, str, str]:
    """Return the clause about the steps in which numerical slopes move in the given dtype."""
    outputs = trial.outputs()[1]
    dtype = subject.args[low[0]].dtype if low else low_outputs[0]
    name = subject.names[low[0]] if low else subject.argument(0)
    size = max((float(t.detach().abs().max()) for t in outputs if t.numel()), default=1.0)
    size = size if 0 < size < math.inf else 1.0
    spacing = torch.finfo(dtype).eps * 2.0 ** math.floor(math.log2(size))
    step = spacing / (2 * STEP)
    what = f"`{name}` is {dtype_name(dtype)}" if low else f"{subject.name} returns {dtype_name(dtype)}"
    return (
        f"{what}: a numerical slope moves in steps of {step:.2g} (the spacing {spacing:.2g} of {dtype_name(dtype)} at "
        f"{number(float(f'{size:.2g}'))}, over 2e-06), too coarse to judge a backward",
        "float32",
        name,
    )


def _inside_low(subject: Subject, trial: Trial, found: FunctionFinding) -> FunctionFinding:
    """Find out whether float64 inputs are computed with in float32 inside, which makes slopes move in steps too."""
    if found.verdict not in ("wrong formula", "straight-through or wrong formula", "kink", "edge of the domain"):
        return found
    j = int(trial.x.abs().argmax())
    rows = torch.stack([trial.value(trial.nudged(j, k * trial.step(j))) for k in range(-3, 4)])
    if not rows.isfinite().all():
        return found
    exact = torch.equal(rows, rows.float().double())
    if not exact or torch.equal(rows, rows.round()) or (trial.x.equal(trial.x.round()) and rows.std(0).max() == 0):
        return found
    ones = torch.ones(rows.shape[1], dtype=torch.float64)
    gradient, coarse = trial.pull(trial.x, ones), 1e-2 * max(1.0, abs(float(trial.x[j])))
    slope = (trial.value(trial.nudged(j, coarse)) - trial.value(trial.nudged(j, -coarse))).sum() / (2 * coarse)
    near = abs(float(slope - gradient[j])) <= 1e-2 * max(1.0, abs(float(slope)))
    size = float(rows.abs().max())
    spacing = torch.finfo(torch.float32).eps * 2.0 ** math.floor(math.log2(size))
    judged = "agrees with the gradient" if near else "does not agree with the gradient"
    text = (
        f"{subject.name} computes in float32 inside although its input is float64: a numerical slope moves in steps of "
        f"{spacing / (2 * STEP):.2g}; over a step of {coarse:.2g} the slope by {subject.label(trial, j)}, "
        f"{number(float(f'{float(slope):.3g}'))}, {judged}, {number(float(gradient[j]))}."
    )
    remedy = "Compute in the dtype of the input while you check."
    return FunctionFinding(**{**vars(found), "verdict": "float32", "text": text, "remedy": remedy})
