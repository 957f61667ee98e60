"""The sentence for an operator without an Autograd kernel, with the numbers that a gradient lacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch

from helpers.model.dispatch.fallbacks import IN_PLACE, MOST_CALLS, NO_GRAPH, NODE, OUT, Dropped, Input
from helpers.model.dispatch.kernels import without_overload
from helpers.model.gradients.reasons import attribute
from helpers.model.words import listed

CAUSE = "no Autograd kernel"


class Lost(NamedTuple):
    """What was lost, for a finding: `text` without its full stop."""

    operator: str
    text: str
    remedy: str
    facts: dict[str, Any]


def explain_dropped(found: list[Dropped], backwards: int) -> Lost | None:
    """Return what is to be said of the calls that lost a gradient; None where nothing is lost.

    `backwards` is how many backwards ran: after one, only a call that it passed has lost something.
    """
    lost = [d for d in found if not d.harmless and (d.reached or not backwards or d.how in (IN_PLACE, OUT))]
    if not lost:
        return None
    first, same = lost[0], [d for d in lost if d.operator == lost[0].operator]
    subject = f"{first.operator}{first.at}" if first.how == NO_GRAPH else without_autograd(first)
    text = f"{subject}{_times(same)}: {_consequence(first, same)}"
    return Lost(first.operator, text, remedy_for(first.operator, first.how), _facts(first, same))


def _facts(first: Dropped, same: list[Dropped]) -> dict[str, Any]:
    """Return the numbers behind the sentence: of each input with a name what its gradient was, and what it lacks."""
    inputs = [one for one in _merged(same) if one.name and one.missing is not None]
    return {
        "kernels": list(first.kernels),
        "grad": {one.name: one.grad.tolist() if one.grad is not None else None for one in inputs if one.filled},
        "missing": {one.name: one.missing.tolist() for one in inputs},
    }


def without_autograd(dropped: Dropped) -> str:
    """Say which kernels an operator has, and that none is for Autograd."""
    kernels = dropped.kernels
    if kernels == ("CompositeExplicitAutograd",):
        have = "one kernel for all backends (CompositeExplicitAutograd)"
    else:
        have = f"{'a kernel' if len(kernels) == 1 else 'kernels'} for {listed(kernels)}"
    return f"{dropped.operator}{dropped.at} has {have} and no Autograd kernel"


def remedy_for(operator: str, how: str) -> str:
    """Say how an operator gets its derivative."""
    if how == NO_GRAPH:
        return (
            f'Register the kernel for the device, lib.impl("{without_overload(operator)[1]}", fn, "CPU"), and the '
            f'derivative, torch.library.register_autograd("{operator}", backward, setup_context=…, lib=lib); or write '
            "the kernel with torch operations alone, which record themselves."
        )
    if how == NODE:
        return (
            f'Register the derivative: torch.library.register_autograd("{operator}", backward, setup_context=…); or '
            "write the kernel with torch operations alone, which record themselves."
        )
    return (
        "Make it an operator that returns a new tensor, and give that one a derivative with "
        "torch.library.register_autograd, which takes no operator that writes into its arguments."
    )


def _times(same: list[Dropped]) -> str:
    more = " or more" if len(same) == MOST_CALLS else ""
    return f" (called {len(same)} times{more})" if len(same) > 1 else ""


def _consequence(first: Dropped, same: list[Dropped]) -> str:
    if first.how == IN_PLACE:
        return (
            "its kernel wrote into an argument unseen by autograd, so a gradient passes on as if nothing had been "
            f"written{_slope_in_place(first)}"
        )
    if first.how == NO_GRAPH:
        no_graph = f"its {_kernel(first.serves)} left autograd, so its result has no graph"
        if not first.reached:
            return f"{no_graph}, and backward will give {_inputs(first)} nothing from here{_forward(first)}"
        parts = dict.fromkeys(part for one in _merged(same) if (part := _lack(one)))
        return f"{no_graph} and {listed(parts, 3)}"
    node = "autograd's fallback added a graph node that passes nothing"
    if first.how == OUT:
        return f"its kernel wrote into an argument unseen by autograd, so what it wrote has no graph{_forward(first)}"
    if not first.reached:
        return f"{node}, so backward will give {_inputs(first)} nothing from here{_forward(first)}"
    parts = dict.fromkeys(part for one in _merged(same) if (part := _lack(one)))
    return f"{node}, so {listed(parts, 3)}"


def _kernel(serves: str) -> str:
    if serves == "CompositeImplicitAutograd":
        return "math kernel (registered without a key, which is CompositeImplicitAutograd)"
    return f"kernel for {serves}"


def _inputs(dropped: Dropped) -> str:
    return listed([_called(one) for one in dropped.inputs], 3)


def _called(one: Input) -> str:
    return f"`{one.name}`" if one.name else f"its argument `{one.argument}`" if one.argument else "an input"


def _merged(same: list[Dropped]) -> list[Input]:
    """Return the inputs of all these calls, each once, with the sum of what it lacks."""
    found: dict[tuple[str, int], Input] = {}
    for one in (one for dropped in same if dropped.reached for one in dropped.inputs):
        key = (one.name, one.identity) if one.is_leaf else (one.name, len(found))
        before = found.get(key)
        if before is not None and before.missing is not None and one.missing is not None:
            one = replace(one, missing=before.missing + one.missing)
        found[key] = one
    return list(found.values())


def _lack(one: Input) -> str:
    """Say what the gradient of one input lacks; "" where it lacks nothing."""
    if one.missing is not None and not one.missing.any():
        return ""
    if not (one.name and one.is_leaf and one.filled):
        amount = f" ({_numbers(one.missing)})" if one.missing is not None else ""
        return f"the gradient of {_called(one)} lacks its contribution{amount}"
    grad = attribute(f"`{one.name}`", "grad")
    if one.missing is None:
        return f"{grad} lacks its contribution"
    right = one.missing if one.grad is None else one.grad + one.missing
    was = "None" if one.grad is None else _numbers(one.grad)
    return f"{grad} lacks its contribution ({was} instead of {_numbers(right)})"


def _forward(dropped: Dropped) -> str:
    """Say what the derivative by the first input is, where it was measured: no more is known without a backward."""
    if dropped.slopes is None:
        return ""
    of = _called(dropped.inputs[0])
    return f" (measured here, the sum of its result has the derivative {_numbers(_sums(dropped, 0))} by {of})"


def _slope_in_place(dropped: Dropped) -> str:
    if dropped.slopes is None:
        return ""
    return f" (measured here, what was written has the derivative {_numbers(_sums(dropped, 0))}, not 1)"


def _sums(dropped: Dropped, i: int) -> torch.Tensor:
    return sum(slope.sum(dim=0) for slope in dropped.slopes[i])


def _numbers(t: torch.Tensor) -> str:
    """Return "4" where every element is 4, otherwise at most four elements: "[1, 2.5]"."""
    values = [f"{v:.3g}".replace("-0", "0") if abs(v) < 1e-9 else f"{v:.3g}" for v in t.flatten().tolist()]
    if len(set(values)) == 1:
        return values[0]
    return f"[{', '.join(values[:4])}{', …' if len(values) > 4 else ''}]"
