"""Two gradients side by side: the one that a tensor has, and the one that a loss gives now."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from helpers.model.autograd.values import flat
from helpers.model.gradients.reasons import Reason

MOST_CALLS = 100  # a gradient that is a larger multiple was scaled: a GradScaler begins with 65536


def compared(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], what: str, are: str = "is") -> Reason:
    """Say how the gradients that tensors have go with those that this loss gives, one pair for each tensor.

    `what` names them, such as "`w.grad`", with "is" or "are".
    """
    grad = torch.cat([flat(old.detach()) for old, _ in pairs])
    fresh = torch.cat([flat(new.detach()) for _, new in pairs]).to(grad)
    same = len(grad) == len(fresh)
    if same and torch.allclose(grad, fresh, rtol=1e-4, equal_nan=True):
        return Reason("right", f"{what} {are} what this loss gives: nothing is wrong with {_it(are)}")
    ratio = _ratio(grad, fresh) if same else 0
    times = round(ratio) if isinstance(ratio, float) and abs(ratio) < 1e9 else 0
    if 1 < times <= MOST_CALLS and torch.allclose(grad, times * fresh, rtol=1e-4):
        return _added(what, are, times)
    if ratio and torch.allclose(grad, ratio * fresh, rtol=1e-3):
        return Reason(
            "scaled",
            f"{what} {are} {ratio:,.6g} times the gradient of this loss: either parameters have changed since that "
            "backward, as optimizer.step() changes them, or something scaled it, such as a GradScaler, gradient "
            "clipping, or a loss divided by a number of steps",
            "Compare before optimizer.step() and before clipping, and after unscale_().",
        )
    return Reason(
        "other gradients",
        f"{what} {are} not what this loss gives: either parameters or inputs have changed since that backward, as "
        "optimizer.step() changes parameters, or gradients of other losses were added, or a hook changed "
        f"{_it(are)}",
        "Compare before optimizer.step(); or set it to None, call backward once on this loss, and compare again.",
    )


def _it(are: str) -> str:
    return "it" if are == "is" else "them"


def _ratio(grad: torch.Tensor, fresh: torch.Tensor) -> float | complex:
    ratio = (grad @ fresh / (fresh @ fresh)).item()
    if isinstance(ratio, complex) and abs(ratio.imag) <= 1e-4 * abs(ratio.real):
        return ratio.real
    return ratio


def _added(what: str, are: str, times: int) -> Reason:
    return Reason(
        "accumulated",
        f"{what} {are} {times} times the gradient of this loss: {times} backward calls have added to {_it(are)}, and "
        f"nothing set {_it(are)} to None between them, or backward ran on a loss {times} times as large",
        "Call optimizer.zero_grad() before each backward, or w.grad = None; where gradients are added up on "
        f"purpose, compare with {times} times this loss.",
    )
