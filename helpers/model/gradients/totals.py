"""All gradients of a module at once: are they numbers, are they zero, and what this loss gives?"""

from __future__ import annotations

import torch

from helpers.model.autograd.flow import MOST_NODES, not_ready
from helpers.model.autograd.graph import Graph
from helpers.model.autograd.reading import Live
from helpers.model.autograd.retained import grads_kept
from helpers.model.gradients.compare import compared
from helpers.model.gradients.reasons import Reason, all_of
from helpers.model.gradients.steps import not_finite, state_of


def explain_gradients(
    wanted: dict[str, torch.Tensor], name: str, loss: torch.Tensor, graph: Graph, live: Live, also: str
) -> Reason:
    """Say what is so of the gradients of parameters that all have one. `also` ends the sentence."""
    states = {path: state_of(p.grad) for path, p in wanted.items()}
    bad = [path for path, state in states.items() if state == "not finite"]
    if bad:
        return not_finite(bad, len(wanted), "now")
    zero = sum(state == "zero" for state in states.values())
    one = len(wanted) == 1
    text = f"the loss reaches {all_of(len(wanted))} of {name}, and"
    if zero == len(wanted):
        remedy = "Ask explain_grad(t, loss) with one of the parameters: it names the operator."
        return Reason("zero", f"{text} {'its gradient is' if one else 'all their gradients are'} zero{also}", remedy)
    text += " it has a gradient" if one else " all have a gradient"
    text += f"; {zero} of them {'is' if zero == 1 else 'are'} zero" if zero else ""
    reason = _compared(list(wanted.values()), name, loss, graph, live)
    if reason is not None and reason.cause in ("accumulated", "scaled"):
        return reason._replace(text=f"{reason.text}{also}")
    if reason is not None and reason.cause != "right":
        text += f"; this loss would give {'another' if one else 'others'} now, as parameters, inputs or random numbers "
        text += "have changed since that backward (optimizer.step() changes parameters), or it was not the only loss"
    return Reason("right", f"{text}{also}")


def _compared(parameters: list[torch.Tensor], name: str, loss: torch.Tensor, graph: Graph, live: Live) -> Reason | None:
    """Compare with the gradients that this loss gives, where its graph is still whole."""
    if loss.numel() != 1 or loss.is_complex() or loss.is_meta or len(graph.nodes) > MOST_NODES:
        return None
    if not_ready(graph, live.nodes):
        return None
    try:
        with grads_kept():
            fresh = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    except Exception:  # of the reader's hook or Function: that backward has run once is all that is known
        return None
    pairs = [(p.grad, new) for p, new in zip(parameters, fresh, strict=True) if new is not None]
    try:
        return compared(pairs, f"the gradients of {name}", "are")
    except RuntimeError:  # on several devices, or in layouts that don't go together
        return None
