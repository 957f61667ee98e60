"""Judging a function in float64: is the formula wrong, or is the point a special one?

Every verdict is found by experiment. A derivative that differs is looked at from both sides of its point: slopes that
differ there show a kink, which says nothing of the formula.
"""

from __future__ import annotations

from math import isfinite
from time import perf_counter

import torch
import torch.nn.functional as F

from helpers.model.functions.edges import both_sides, output_name, undefined
from helpers.model.functions.hints import in_each_others_place, pattern, writes_into_saved
from helpers.model.functions.numbers import Spot, differs, first_spot, sides, spots, weights
from helpers.model.functions.runs import STEP, Trial, row
from helpers.model.functions.second import second_lost
from helpers.model.functions.words import FunctionFinding, Subject, number, slope
from helpers.model.words import counted

MOST_INPUTS, MOST_OUTPUTS, MOST_SECOND = 500, 500, 300  # numbers; beyond them random directions are compared
SLOW, MOST_SLOW_RUNS = 0.05, 80  # seconds for a run forward and backward; how many such runs are worth the wait
# What a reader may have written anew: torch's own functions with a kink.
TWINS = {
    "F.relu": F.relu, "torch.abs": torch.abs, "F.leaky_relu": F.leaky_relu, "F.relu6": F.relu6,
    "F.hardtanh": F.hardtanh, "F.softshrink": F.softshrink, "F.hardshrink": F.hardshrink,
    "F.hardsigmoid": F.hardsigmoid, "F.hardswish": F.hardswish, "torch.sign": torch.sign, "F.elu": F.elu,
}  # fmt: skip


def judge(subject: Subject, trial: Trial) -> FunctionFinding:
    """Compare the first and the second derivatives of a function in float64."""
    outputs, full, whole = _plan(trial)
    zero = trial.pull(trial.x, torch.zeros(outputs, dtype=torch.float64))
    jacobian = trial.jacobian() if full else None
    extra = {"elements": sum(t.numel() for t in trial.given), "complete": full}
    if not full and (finding := undefined(subject, trial, extra)):
        return finding
    found = spots(trial, jacobian) if full else _some_spots(subject, trial)
    if finding := _mismatch(subject, trial, found, jacobian, zero, extra):
        return finding
    if finding := _incoming(subject, trial, zero, outputs, extra):
        return finding
    if finding := second_lost(subject, trial, jacobian, whole, extra):
        return finding
    tensors = counted(extra["elements"], "element")
    how = "first and second derivatives agree with the numerical ones"
    if not full or not whole:
        how = (
            f"{how} in random directions"
            if not full
            else "first derivatives agree with the numerical ones, second ones in random directions"
        )
    which = counted(len(trial.which), "input")
    remark = "" if subject.slow else _probe(subject, trial)
    text = f"{subject.name} passes: {how} ({which}, {tensors}){remark}."
    return FunctionFinding(verdict="passes", text=text, **extra)


def _plan(trial: Trial) -> tuple[int, bool, bool]:
    """Return M, and whether every first and every second derivative is taken.

    The sizes decide, so that a busy machine says the same. Only a function that is slow in each of three runs is
    compared in random directions at smaller sizes.
    """
    size, outputs = len(trial.x), len(trial.value(trial.x))
    full = size <= MOST_INPUTS and outputs <= MOST_OUTPUTS
    whole = size <= MOST_SECOND
    if (full or whole) and 4 * size + outputs > MOST_SLOW_RUNS and _slow(trial, outputs):
        full, whole = full and 2 * size + outputs <= MOST_SLOW_RUNS, 4 * size <= MOST_SLOW_RUNS
    return outputs, full, whole


def _slow(trial: Trial, outputs: int) -> bool:
    for _ in range(3):
        start = perf_counter()
        trial.pull(trial.x, torch.ones(outputs, dtype=torch.float64))
        if perf_counter() - start <= SLOW:
            return False
    return True


def _some_spots(subject: Subject, trial: Trial) -> list[Spot]:
    """Return a few derivatives that differ; after one at a kink, inputs of the same value are left out."""
    found, others = [], torch.ones(len(trial.x), dtype=torch.float64)
    while len(found) < 4 and (spot := first_spot(trial, subject.random, others)) is not None:
        found.append(spot)
        if spot.kind == "smooth":
            break
        others[trial.x == spot.at] = 0
    return found


def _mismatch(
    subject: Subject, trial: Trial, found: list[Spot], jacobian: torch.Tensor | None, zero: torch.Tensor, extra: dict
) -> FunctionFinding | None:
    if not found:
        return None
    edges = {s.j for s in found if s.kind == "edge"}  # there, 0 times an infinite slope is nan
    found = [s for s in found if s.j not in edges or s.kind == "edge" or isfinite(s.analytical)]
    wrong = [s for s in found if s.kind == "smooth" and isfinite(s.numerical)]
    wrong = wrong or [s for s in found if s.kind == "kink" and not _between(s)]
    if not wrong:
        return _special(subject, trial, found, extra)
    spot = next((s for s in wrong if s.analytical or s.numerical), wrong[0])
    label = subject.label(trial, spot.j)
    about = {**subject.about(trial, spot), **extra}
    k = trial.place(spot.j)[0]
    count = f"; {len(found)} of {jacobian.numel()} derivatives differ" if jacobian is not None else ""
    if spot.analytical == 0 and _untracked(trial, k):
        return _cut(subject, spot, label, k, about)
    side = f", outside of the slopes {slope(spot.left)} and {slope(spot.right)} on its two sides"
    by_numbers = f" and the numerical slope is {number(spot.numerical)}" if spot.kind == "smooth" else side
    text = (
        f"The formula is wrong: for {_derivative(trial, spot, label)} at {number(spot.at)} "
        f"{subject.backward} gives {number(spot.analytical)}{by_numbers}{count}"
    )
    hint = pattern(wrong) if len(wrong) > 1 or spot.analytical == -spot.numerical else ""
    remedy = "Correct the formula in backward: the derivative, times the incoming gradient."
    if zero.abs().max() == 0 and _constant(subject, trial, wrong, found):
        text = (
            f"The result of {subject.name} does not change with `{subject.argument(k)}` near these inputs, so the "
            f"derivative is 0, and for {_derivative(trial, spot, label)} at {number(spot.at)} {subject.backward} gives "
            f"{number(spot.analytical)}{count}. A straight-through gradient differs from the derivative on purpose; "
            "if none is meant, the formula is wrong."
        )
        remedy = "Leave it where a straight-through gradient is meant; otherwise return zeros."
        return FunctionFinding(verdict="straight-through or wrong formula", text=text, remedy=remedy, **about)
    if zero.abs().max() > 0:
        hint = f"; with an incoming gradient of 0 it still gives {number(float(zero[zero != 0][0]))}"
        remedy = "Multiply by the incoming gradient in backward."
    if swapped := in_each_others_place(subject, trial, wrong, jacobian):
        hint, remedy = swapped, "Return the gradients in the order of forward's arguments."
    hint = hint or writes_into_saved(trial)
    return FunctionFinding(verdict="wrong formula", text=f"{text}{hint}.", remedy=remedy, **about)


def _constant(subject: Subject, trial: Trial, wrong: list[Spot], found: list[Spot]) -> bool:
    """Say whether the outputs stay the same near the inputs whose derivatives are wrong, apart from jumps."""
    if not all(s.numerical == 0 and s.kind == "smooth" for s in wrong):
        return False
    tensors, jumps = {trial.place(s.j)[0] for s in wrong}, {s.j for s in found if s.kind == "jump"}
    size = trial.x.abs()
    way = weights(len(size), subject.random) * torch.where(size < 1e-3, 1e-4 * size, STEP * size.clamp(min=1))
    way *= torch.cat([torch.full_like(row([t]), float(k in tensors)) for k, t in enumerate(trial.given)])
    way[sorted(jumps)] = 0
    at = trial.value(trial.x)
    return torch.equal(trial.value(trial.x + way), at) and torch.equal(trial.value(trial.x - way), at)


def _derivative(trial: Trial, spot: Spot, label: str) -> str:
    """Return "`x[0]`" where there is one output number, and "out[1] by `x[0]`" otherwise."""
    return f"`{output_name(trial, spot.i)}` by {label}"


def _untracked(trial: Trial, k: int) -> bool:
    """Say whether backward gives nothing at all for one input."""
    leaves, outputs = trial.outputs()
    ones = [torch.ones_like(t) for t in outputs]
    return torch.autograd.grad(outputs, leaves, ones, allow_unused=True)[k] is None


def _cut(subject: Subject, spot: Spot, label: str, k: int, about: dict) -> FunctionFinding:
    name, rate = subject.argument(k), number(spot.numerical)
    if subject.cls:
        return FunctionFinding(
            verdict="returns None for an input that needs a gradient",
            text=f"{subject.backward} returns None for `{name}`, which needs a gradient: the numerical slope by "
            f"{label} is {rate}.",
            remedy=f"Return the gradient of `{name}` at its place in the order of forward's arguments.",
            **about,
        )
    return FunctionFinding(
        verdict="returns a result without a graph",
        text=f"No graph leads from the result of {subject.name} to `{name}`, although the numerical slope by {label} "
        f"is {rate}.",
        remedy=f"Leave out what cuts `{name}` off the graph: detach, .data, .item(), .numpy() or torch.no_grad.",
        **about,
    )


def _between(spot: Spot) -> bool:
    low, high = sorted((spot.left, spot.right))
    room = 1e-3 * max(1.0, abs(low), abs(high))
    return low - room <= spot.analytical <= high + room


def _special(subject: Subject, trial: Trial, found: list[Spot], extra: dict) -> FunctionFinding:
    """Describe derivatives that differ only where there is none."""
    if any(s.kind == "edge" for s in found) and (finding := undefined(subject, trial, extra)):
        return finding
    spot = found[0]
    label, about = subject.label(trial, spot.j), {**subject.about(trial, spot), **extra}
    if spot.kind not in ("kink", "jump"):
        return FunctionFinding(
            verdict="edge of the domain",
            text=f"At {label} = {number(spot.at)} {subject.name} has no finite derivative: {both_sides(trial, spot)}; "
            f"{subject.backward} gives {number(spot.analytical)}.",
            remedy="Check with inputs inside of the domain, where the derivative is finite.",
            **about,
        )
    points = sorted({s.j for s in found})
    where = f" and at {counted(len(points) - 1, 'other element')}" if len(points) > 1 else ""
    twin = _twin(subject, trial, spot.j, spot.i)
    what = f"slopes {slope(spot.left)} and {slope(spot.right)} on its two sides, numerical {number(spot.numerical)}"
    if spot.kind == "jump":
        what = "the values jump, so there is no slope"
    text = (
        f"The derivatives differ only at a {spot.kind}, at {label} = {number(spot.at)}{where} ({what}): this is no "
        f"evidence of a wrong formula, but this backward gives {number(spot.analytical)} there"
        f"{_compared(twin, spot.analytical)}."
    )
    remedy = "Check with inputs away from it, and decide which slope backward is to give there."
    return FunctionFinding(verdict="kink", text=text, remedy=remedy, **about)


def _twin(subject: Subject, trial: Trial, j: int, i: int) -> tuple[str, float] | None:
    """Return torch's own function that gives the same values here and around, with its gradient at one place."""
    if len(trial.which) != 1 or trial.given[0].is_complex():
        return None
    count = len(trial.x)
    tries = [trial.x, trial.x + 1e-3, trial.x - 1e-3]
    tries += [8 * torch.randn(count, generator=subject.random, dtype=torch.float64) for _ in range(3)]
    tries += [torch.linspace(-8, 8, count + 2, dtype=torch.float64)[1:-1].roll(k) for k in range(min(count, 3))]
    try:
        known = [trial.value(x) for x in tries]
    except Exception:  # what the reader's function does elsewhere is no matter here
        return None
    for name, torchs in TWINS.items():
        twin = Trial(torchs, (trial.given[0],), (0,))
        others = (twin.value(x) for x in tries)
        if subject.fn is not torchs and all(
            a.shape == b.shape and torch.allclose(a, b) for a, b in zip(known, others, strict=True)
        ):
            v = torch.zeros(len(twin.value(trial.x)), dtype=torch.float64)
            v[i] = 1
            return name, float(twin.pull(trial.x, v)[j])
    return None


def _compared(twin: tuple[str, float] | None, given: float) -> str:
    if twin is None:
        return ""
    return f", as {twin[0]} does" if abs(twin[1] - given) < 1e-9 else f" while {twin[0]} gives {number(twin[1])}"


def _incoming(subject: Subject, trial: Trial, zero: torch.Tensor, outputs: int, extra: dict) -> FunctionFinding | None:
    """Say it where backward does not multiply by the incoming gradient: it has to be linear in that."""
    v = torch.rand(outputs, generator=subject.random, dtype=torch.float64) + 0.5
    once, twice = trial.pull(trial.x, v), trial.pull(trial.x, 2 * v)
    off = zero.abs() > 1e-9
    if not off.any() and not (off := differs(twice, 2 * once)).any():
        return None
    j = int(off.nonzero()[0])
    k, index, _ = trial.place(j)
    label = subject.label(trial, j)
    about = {"argument": subject.argument(k), "element": index, **extra}
    if zero.abs().max() > 1e-9:
        text = f"for an incoming gradient of 0 it gives {number(float(zero[j]))} for {label} where 0 is right"
        about |= {"analytical": float(zero[j]), "numerical": 0.0}
    else:
        text = (
            f"for twice the incoming gradient it gives {number(float(twice[j]))} for {label} where "
            f"{number(2 * float(once[j]))} is right"
        )
        about |= {"analytical": float(twice[j]), "numerical": 2 * float(once[j])}
    return FunctionFinding(
        verdict="wrong formula",
        text=f"The formula is wrong: {subject.backward} does not multiply by the incoming gradient: {text}.",
        remedy="Return the derivative times the incoming gradient.",
        **about,
    )


def _probe(subject: Subject, trial: Trial) -> str:
    """Look for a kink that the inputs miss, at 0, 1 and -1 in place of the first element; return it as a remark."""
    for at in (0.0, 1.0, -1.0):
        try:
            x = trial.x.clone()
            x[0] = at
            probed = Trial(trial.fn, tuple(trial.args), trial.which)
            probed.given, probed.x = trial.points(x), x
            apart = (probed.value(probed.nudged(0, 1e-6)) + probed.value(probed.nudged(0, -1e-6))) - 2 * probed.value(x)
            i = int(apart.nan_to_num().abs().argmax())
            kind, left, right = sides(lambda by, p=probed, i=i: float(p.value(p.nudged(0, by))[i]), 1e-6)
            if kind != "kink":
                continue
            given = float(probed.jacobian([i])[0, 0])
            twin = _compared(_twin(subject, probed, 0, i), given)
        except Exception:  # what the function does elsewhere is a remark at most
            continue
        label = subject.label(probed, 0)
        none = "no input lies there" if not bool((row(trial.given) == at).any()) else "such an input came"
        return (
            f"; it has a kink at {label} = {number(at)} ({none}): the slopes on the two sides are {slope(left)} and "
            f"{slope(right)}, and this backward gives {number(given)}{twin}"
        )
    return ""
