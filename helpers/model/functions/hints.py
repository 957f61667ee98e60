"""What a wrong formula looks like: a factor, gradients in each other's place, or a write into what was saved."""

from __future__ import annotations

from math import isfinite

import torch

from helpers.model.adapter import version_of
from helpers.model.functions.numbers import Spot
from helpers.model.functions.runs import Trial, nodes, shares
from helpers.model.functions.words import Subject, number


def in_each_others_place(subject: Subject, trial: Trial, wrong: list[Spot], jacobian: torch.Tensor | None) -> str:
    """Say it where the gradients of two inputs of one shape would be right the other way round; "" otherwise."""
    inputs = sorted({trial.place(s.j)[0] for s in wrong})
    if jacobian is None or len(inputs) != 2:
        return ""
    a, b = inputs
    if trial.given[a].shape != trial.given[b].shape or any(t.is_complex() for t in trial.given):
        return ""
    shift = sum(t.numel() for t in trial.given[a:b])
    for spot in wrong:
        other = spot.j + shift if trial.place(spot.j)[0] == a else spot.j - shift
        if abs(float(jacobian[spot.i, other]) - spot.numerical) > 1e-4 * max(1.0, abs(spot.numerical)):
            return ""
    return f"; the gradients of `{subject.argument(a)}` and `{subject.argument(b)}` stand in each other's place"


def writes_into_saved(trial: Trial) -> str:
    """Say it where forward wrote in place into a result that it also saves."""
    _, args, results = trial.run()
    written = [t for t in results if version_of(t) and not any(t is a for a in args)]
    for node in nodes(results):
        for k, t in enumerate(getattr(node, "saved_tensors", ())):
            if t is not None and any(shares(t, result) for result in written):
                return (
                    f"; forward writes in place into what it saves as ctx.saved_tensors[{k}], and backward reads the "
                    "values after that"
                )
    return ""


def pattern(wrong: list[Spot]) -> str:
    """Say it where backward differs by the same factor everywhere."""
    if any(s.numerical == 0 or not isfinite(s.analytical) for s in wrong):
        return ""
    factors = [s.analytical / s.numerical for s in wrong]
    if max(factors) - min(factors) > 1e-4 * abs(factors[0]) or factors[0] == 0:
        return ""
    if abs(factors[0] + 1) < 1e-4:
        return "; the sign is reversed"
    return f"; each is {number(round(factors[0], 4))} times the slope"
