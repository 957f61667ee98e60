"""Points at which a function has no finite derivative, for `check_function`: which input it is, and what lies beside.

A result that is nan or infinite makes every numerical slope of it nan, whichever input is nudged. So the input behind
it is looked for by putting the others on values at which the result is finite.
"""

from __future__ import annotations

from math import isfinite

import torch

from helpers.model.functions.numbers import Spot, halve
from helpers.model.functions.runs import Trial, place_in
from helpers.model.functions.words import FunctionFinding, Subject, number, slope


def both_sides(trial: Trial, spot: Spot) -> str:
    """Say what there is left and right of a point without a finite derivative: "the slope grows without bound"."""
    step = trial.short_step(spot.j)

    def one(by: float, near: float) -> str:
        at, beside, far = (float(trial.value(trial.nudged(spot.j, k * by))[spot.i]) for k in (0, 1, 100))
        if beside != beside:
            return "it is not defined"
        if not isfinite(beside):
            return f"its value is {number(beside)}"
        if abs(near) > 3 * abs((far - at) / (100 * by)) + 1:
            return "the slope grows without bound"
        return f"the slope is {slope(near)}"

    left, right = one(-step, spot.left), one(step, spot.right)
    if left == right:
        return f"{left} on both sides"
    return f"{left} on the left, and {right} on the right"


def undefined(subject: Subject, trial: Trial, extra: dict) -> FunctionFinding | None:
    """Find an output number that is nan or infinite at the inputs themselves, and the input number behind it."""
    values = trial.value(trial.x)
    if bool(values.isfinite().all()):
        return None
    i = int((~values.isfinite()).nonzero()[0])
    result, name = number(float(values[i])), output_name(trial, i)
    j = _culprit(trial, i)
    if j is None:
        return FunctionFinding(
            verdict="edge of the domain",
            text=f"`{name}` of {subject.name} is {result} at these inputs, so it has no slope to compare.",
            remedy="Check with inputs for which every element of the result is finite.",
            **extra,
        )
    label, at, given = subject.label(trial, j), float(trial.x[j]), float(trial.jacobian([i])[0, j])
    if not isfinite(at):
        text = f"{label} is {number(at)}, and `{name}` of {subject.name} is {result}: there is no slope to compare."
    else:
        outside = " (this input lies outside of its domain)" if result == "nan" else ""
        text = (
            f"At {label} = {number(at)} `{name}` of {subject.name} is {result}{outside}, and there is no slope to "
            f"compare; {subject.backward} gives {number(given)}."
        )
    k, index, _ = trial.place(j)
    return FunctionFinding(
        verdict="edge of the domain",
        text=text,
        remedy="Check with inputs inside of the domain.",
        argument=subject.argument(k),
        element=index,
        analytical=given,
        facts={"at": at, "value": float(values[i])},
        **extra,
    )


def _culprit(trial: Trial, i: int) -> int | None:
    """Return the first input number that alone makes an output number what it is, nan or infinite, or None."""
    wanted = str(float(trial.value(trial.x)[i]))
    for filling in (1.0, 0.5, 2.0, 0.0, -0.5, 10.0):

        def result(chosen: torch.Tensor, filling: float = filling) -> str:
            x = torch.full_like(trial.x, filling)
            x[chosen] = trial.x[chosen]
            return str(float(trial.value(x)[i]))

        try:
            if not isfinite(float(result(torch.arange(0)))):
                continue
            j = halve(len(trial.x), lambda chosen, result=result: result(chosen) == wanted)
            if j is not None and result(torch.tensor([j])) == wanted:
                return j
        except Exception:  # the reader's function may refuse other inputs
            continue
    return None


def output_name(trial: Trial, i: int) -> str:
    """Return what to call an output number: "out[0]", or "out[1][0]" where there are several outputs."""
    outputs = trial.outputs()[1]
    k, index, part = place_in(outputs, i)
    name = "out" if len(outputs) == 1 else f"out[{k}]"
    return f"{name}{list(index) if index else ''}{part}"
