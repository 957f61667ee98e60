"""Derivatives by numbers: the slopes of a function, and where they differ from what backward gives.

The numerical derivative is the central difference over a step of 1e-6, as `torch.autograd.gradcheck` takes it, with its
tolerances. The step grows with large inputs and shrinks with tiny ones, and the rounding of the values is allowed for,
so that neither is taken for a wrong formula.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch

from helpers.model.functions.runs import STEP, Trial

ATOL, RTOL = 1e-5, 1e-3  # those of torch.autograd.gradcheck
_ROUNDING = 16 * torch.finfo(torch.float64).eps


@dataclass(frozen=True)
class Spot:
    """One derivative on which backward and the numbers differ.

    `j` counts in the row of the inputs and `i` in the row of the outputs. `at` is the value of the input element.
    `kind` is "smooth", "kink" (the slopes left and right differ), "jump" (the values do) or "edge" (no finite slope).
    """

    j: int
    i: int
    at: float
    analytical: float
    numerical: float
    kind: str
    left: float
    right: float


def differs(a: Any, b: Any, noise: Any = 0.0) -> Any:
    """Say where `a` is not `b` within gradcheck's tolerances, the rounding of the values added; nan differs."""
    a, b = torch.as_tensor(a, dtype=torch.float64), torch.as_tensor(b, dtype=torch.float64)
    return ~((a - b).abs() <= ATOL + RTOL * b.abs() + noise)


def central(f: Callable[[torch.Tensor], torch.Tensor], trial: Trial, j: int, step: float) -> tuple[Any, Any]:
    """Return the slope of `f` along one input number, and how large the rounding of that slope may be."""
    above, below = trial.nudged(j, step), trial.nudged(j, -step)
    up, down = f(above), f(below)
    return (up - down) / (above[j] - below[j]), _ROUNDING * torch.maximum(up.abs(), down.abs()) / step


def spots(trial: Trial, jacobian: torch.Tensor) -> list[Spot]:
    """Compare every derivative: `jacobian` has shape (M, N). Return those that differ."""
    found = []
    for j in range(len(trial.x)):
        slope, noise = central(trial.value, trial, j, trial.step(j))
        off = differs(jacobian[:, j], slope, noise)
        if off.any() and trial.short_step(j) < trial.step(j):  # a function that turns fast for the size of its input
            off &= differs(jacobian[:, j], *central(trial.value, trial, j, trial.short_step(j)))
        for i in off.nonzero().flatten().tolist():
            found.append(_spot(trial, j, i, float(jacobian[i, j]), float(slope[i])))
    return found


def _spot(trial: Trial, j: int, i: int, analytical: float, numerical: float) -> Spot:
    kind, left, right = sides(lambda by: float(trial.value(trial.nudged(j, by))[i]), trial.short_step(j))
    return Spot(j, i, float(trial.x[j]), analytical, numerical, kind, left, right)


def first_spot(trial: Trial, random: torch.Generator, others: torch.Tensor) -> Spot | None:
    """Compare in random directions, which takes few runs for inputs of any size; halve them to find an element.

    `others` holds 1 for the input numbers that are to be moved, and 0 for the rest.
    """
    outputs = len(trial.value(trial.x))
    v, u = weights(outputs, random), weights(len(trial.x), random) * others
    gradient = trial.pull(trial.x, v)
    j = first_wrong(trial, lambda x: trial.value(x) @ v, gradient, u)
    if j is None:
        return None
    slope, noise = central(trial.value, trial, j, trial.step(j))

    def output_wrong(chosen: torch.Tensor) -> bool:
        w = torch.zeros_like(v)
        w[chosen] = v[chosen]
        return bool(differs(trial.pull(trial.x, w)[j], slope @ w, (noise * w.abs()).sum()))

    i = halve(outputs, output_wrong)
    if i is None:  # the difference of one element is within the tolerance
        return None
    return _spot(trial, j, i, float(trial.jacobian([i])[0, j]), float(slope[i]))


def first_wrong(
    trial: Trial, f: Callable[[torch.Tensor], torch.Tensor], gradient: torch.Tensor, u: torch.Tensor
) -> int | None:
    """Return an input number at which the gradient of the number `f` is wrong, looking along the direction `u`."""
    scale = STEP * max(1.0, float(trial.x.abs().mean()))

    def wrong(chosen: torch.Tensor) -> bool:
        way = torch.zeros_like(u)
        way[chosen] = u[chosen]
        up, down = f(trial.x + scale * way), f(trial.x - scale * way)
        return bool(differs(gradient @ way, (up - down) / (2 * scale), _ROUNDING * (up.abs() + down.abs()) / scale))

    return halve(len(trial.x), wrong)


def halve(count: int, wrong: Callable[[torch.Tensor], bool]) -> int | None:
    """Return one number below `count` for which `wrong` holds, asking about half of the rest at a time."""
    chosen = torch.arange(count)
    if not wrong(chosen):
        return None
    while len(chosen) > 1:
        half = len(chosen) // 2
        chosen = chosen[:half] if wrong(chosen[:half]) else chosen[half:]
    return int(chosen[0])


def weights(count: int, random: torch.Generator) -> torch.Tensor:
    """Return random numbers between 0.5 and 1.5 with random signs."""
    sign = torch.randint(0, 2, (count,), generator=random) * 2 - 1
    return sign * (0.5 + torch.rand(count, generator=random, dtype=torch.float64))


def grows(value: Callable[[float], float], near: float, far: float, step: float) -> bool:
    """Say whether twice the slope at 0 grows without bound: from `far` (100 steps) to `near` (1 step), and on."""
    if not abs(near) > 3 * abs(far) + 1:
        return False
    nearest = (value(step / 100) - value(-step / 100)) / (step / 100)
    return isfinite(nearest) and abs(nearest) > 3 * abs(near)


def sides(value: Callable[[float], float], step: float) -> tuple[str, float, float]:
    """Return the kind of a point and its slopes left and right; `value` takes the distance from the point.

    Over a step a hundred times as long, the two slopes of a smooth function move a hundred times as far apart, those
    of a kink stay where they are, those of a jump fall to a hundredth, and those that grow without bound near the
    point, as for a root at 0, fall in between.
    """
    at, far = value(0.0), 100 * step
    left, right = (at - value(-step)) / step, (value(step) - at) / step
    if not (isfinite(left) and isfinite(right)):
        return "edge", left, right
    far_left, far_right = (at - value(-far)) / far, (value(far) - at) / far
    near_gap, far_gap = abs(right - left), abs(far_right - far_left)
    if abs(left + right) > 30 * abs(far_left + far_right) + 1:
        return "jump", left, right
    if abs(left + right) > 4 * _ROUNDING * abs(at) / step and grows(value, left + right, far_left + far_right, step):
        return "edge", left, right
    if near_gap <= 1e-4 * max(1.0, abs(left), abs(right)) + 4 * _ROUNDING * abs(at) / step:
        return "smooth", left, right
    if not isfinite(far_gap) or 0.3 <= near_gap / max(far_gap, 1e-300) <= 3:
        return "kink", left, right
    return ("smooth" if near_gap < far_gap else "jump" if near_gap > 30 * far_gap else "edge"), left, right
