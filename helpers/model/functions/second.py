"""The second derivative of the reader's function, for `check_function`.

It is taken in two ways: by a backward through backward, and by nudging the inputs of the first backward. Backward
may compute with values that have no graph. Then the first derivative is right and the second one is lost in silence.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

import torch

from helpers.model.functions.numbers import central, differs, first_wrong, sides, weights
from helpers.model.functions.runs import STEP, OnceError, Trial, kept_on_ctx, nodes, shares
from helpers.model.functions.words import FunctionFinding, Subject, number
from helpers.model.watch import first_line, tensors_in


def second_lost(
    subject: Subject, trial: Trial, jacobian: torch.Tensor | None, whole: bool, extra: dict
) -> FunctionFinding | None:
    """Compare the second derivatives; `jacobian` holds the first ones, shape (M, N), or is None in large inputs."""
    lost = {"verdict": "second derivative lost", **extra}
    size, outputs = len(trial.x), len(trial.value(trial.x))
    ones = torch.ones(outputs, dtype=torch.float64), torch.ones(size, dtype=torch.float64)
    for v, u in (ones, (weights(outputs, subject.random), weights(size, subject.random))):
        try:
            by_x, by_v = trial.second(v, u)
        except OnceError:
            return FunctionFinding(
                text=f"First derivatives agree, and a second derivative is refused: {subject.backward} is marked "
                "once_differentiable.",
                remedy="Keep the mark when no second derivative is wanted; otherwise remove it and let backward use "
                "operations of torch only.",
                **lost,
            )
        except Exception as error:  # the reader's error is the answer
            return FunctionFinding(
                text=f"First derivatives agree, and the second backward raises {type(error).__name__}: "
                f"{first_line(error)}.",
                remedy="Let backward use operations of torch that have a derivative of their own.",
                facts={"error": type(error).__name__},
                **lost,
            )
        slope = _along(trial, u) if jacobian is None else jacobian @ u
        if differs(by_v, slope).any() and float((by_v - slope).abs().max()) > 1e-4 * float(slope.abs().max()):
            i = int(differs(by_v, slope).nonzero()[0])
            return FunctionFinding(
                text=f"First derivatives agree, and the second backward loses the incoming gradient: the derivative "
                f"by it is {number(float(slope[i]))} by numbers and {number(float(by_v[i]))} by backward.",
                remedy="Use the incoming gradient as it comes in backward, without detach, .data, .numpy() or no_grad; "
                "a torch.autograd.grad in it needs create_graph=True.",
                analytical=float(by_v[i]),
                numerical=float(slope[i]),
                argument="the incoming gradient",
                **lost,
            )
        found = _second_spot(subject, trial, by_x, v, u, whole)
        if found is not None:
            j, numerical = found
            k, index, _ = trial.place(j)
            return FunctionFinding(
                text=f"First derivatives agree, and second ones are lost: at {subject.label(trial, j)} = "
                f"{number(float(trial.x[j]))} the gradient changes at a rate of {number(numerical)} by numbers, and "
                f"the second backward gives {number(float(by_x[j]))}{_why_lost(trial)}.",
                remedy="Save the inputs or outputs of forward with ctx.save_for_backward, and compute from them in "
                "backward with operations of torch.",
                analytical=float(by_x[j]),
                numerical=numerical,
                argument=subject.argument(k),
                element=index,
                **lost,
            )
    return None


def _along(trial: Trial, u: torch.Tensor) -> torch.Tensor:
    """Return the slopes of the outputs along a direction."""
    step = STEP * max(1.0, float(trial.x.abs().mean()))
    return (trial.value(trial.x + step * u) - trial.value(trial.x - step * u)) / (2 * step)


def _second_spot(
    subject: Subject, trial: Trial, by_x: torch.Tensor, v: torch.Tensor, u: torch.Tensor, whole: bool
) -> tuple[int, float] | None:
    """Return the first input number at which the second derivative differs, and its value by numbers."""

    def pulled(x: torch.Tensor) -> torch.Tensor:
        return trial.pull(x, v) @ u

    places: Any = range(len(trial.x))
    if not whole:
        j = first_wrong(trial, pulled, by_x, weights(len(trial.x), subject.random))
        places = () if j is None else (j,)
    for j in places:
        slope, noise = central(pulled, trial, j, trial.step(j))
        if not bool(differs(by_x[j], slope, noise)) or not isfinite(float(slope)):
            continue
        kind, _, _ = sides(lambda by, j=j: float(pulled(trial.nudged(j, by))), trial.step(j))
        if kind == "smooth":
            return j, float(slope)
    return None


def _why_lost(trial: Trial) -> str:
    """Name a tensor that forward keeps without a graph and that is no constant."""
    _, args, results = trial.run()
    constants = tensors_in([a for k, a in enumerate(args) if k not in trial.which])
    known = [*tensors_in(args), *results]
    for _, name, t in kept_on_ctx(results):
        if t.is_floating_point() and not t.requires_grad and not any(shares(t, c) for c in constants):
            return f": `ctx.{name}` carries no graph"
    for node in nodes(results):
        for k, t in enumerate(getattr(node, "saved_tensors", ())):
            if t is not None and t.is_floating_point() and not any(shares(t, other) for other in known):
                return f": `ctx.saved_tensors[{k}]` is neither an input nor an output of forward and carries no graph"
    return ""
