"""Why the gradient of a tensor that the loss does reach is None, zero, not finite, or a multiple of another."""

from __future__ import annotations

import torch

from helpers.model.autograd.flow import MOST_NODES, Flow, not_ready, require_number
from helpers.model.autograd.graph import Graph, Node
from helpers.model.autograd.reading import Live
from helpers.model.autograd.retained import grads_kept
from helpers.model.autograd.values import Gradient
from helpers.model.gradients.compare import compared
from helpers.model.gradients.hooks import hooks_on_way
from helpers.model.gradients.reasons import Reason, attribute
from helpers.model.gradients.steps import state_of
from helpers.model.gradients.zeros import explain_zero, too_large
from helpers.model.watch import first_line

# Operators whose derivative is infinite or undefined at a value, and what to do before them.
_BORN = {
    "Sqrt": "Add a small number inside, such as (x + 1e-8).sqrt()",
    "Log": "Add a small number inside, such as (x + 1e-8).log()",
    "Rsqrt": "Add a small number inside, such as (x + 1e-8).rsqrt()",
    "Div": "Add a small number to the divisor",
    "LinalgVectorNorm": "Add a small number inside: (x * x + 1e-8).sum().sqrt()",
}


def explain_values(t: torch.Tensor, name: str, loss: torch.Tensor, graph: Graph, live: Live, target: int) -> Reason:
    """Compare the gradient that a tensor has with the one that this loss gives. `target` is the number of its node.

    Raises HelperError for a loss that is not one real number.
    """
    if graph.freed:
        return _freed(t.grad, name)
    require_number(loss, "the loss")
    if why := not_ready(graph, live.nodes):
        return Reason(
            "can't be computed", f"{name} is reached from the loss, and its gradient can't be computed: {why}"
        )
    try:
        with grads_kept():
            (fresh,) = torch.autograd.grad(loss, t, retain_graph=True, allow_unused=True)
    except Exception as error:  # of the reader's hook or Function, or of torch about what one of them gave
        text = f"{name} can be reached from the loss, and backward raises {type(error).__name__}: {first_line(error)}"
        return Reason("raised", text, "explain_error(loss.backward) tells more.")
    seen = Gradient.of(fresh)
    if seen is None:
        return Reason("undefined", f"{name} is in the graph, and the backward of its consumer returns None for it")
    if not seen.values:
        return Reason("empty", f"{name} has no elements, and so has its gradient")
    if not seen.finite:
        return _born(name, loss, graph)
    if seen.zero:
        return explain_zero(name, loss, graph, live, target)
    if t.grad is None:
        return Reason(
            "no backward yet",
            f"{name} can be reached from the loss, and its gradient is not zero: {attribute(name, 'grad')} is None "
            "because backward has not run on this loss yet, or zero_grad() came after it",
            "Call loss.backward().",
        )
    return _with_hooks(compared([(t.grad, fresh)], attribute(name, "grad")), loss, graph, target)


def _freed(grad: torch.Tensor | None, name: str) -> Reason:
    """Say what can be said when backward has freed the graph: what the gradient is."""
    if grad is None:
        return Reason(
            "set to None",
            f"backward has run through the loss to {name}, and {attribute(name, 'grad')} is None now: it was set to "
            "None since, as zero_grad() does",
            "Read the gradient between backward() and zero_grad().",
        )
    state = state_of(grad)
    again = "Run the forward again and ask before backward"
    if state in ("zero", "not finite"):
        holds = "is zero" if state == "zero" else "holds nan or inf"
        text = f"{attribute(name, 'grad')} {holds}; where it became so can't be looked for, as backward has freed the "
        return Reason(state, f"{text}saved tensors of this loss", f"{again}: the operator is named.")
    return Reason(
        "graph freed",
        f"{name} can be reached from the loss, and backward has run: its gradient can't be computed again, as the "
        "saved tensors are freed",
        f"{again}.",
    )


def _with_hooks(reason: Reason, loss: torch.Tensor, graph: Graph, target: int) -> Reason:
    """Add what hooks on the way changed."""
    hooked = any("on the gradient of" in hook for node in graph.nodes for hook in node.hooks)
    if len(graph.nodes) > MOST_NODES or (reason.cause == "right" and not hooked):
        return reason
    told = hooks_on_way(Flow.of(loss), target)
    if not told:
        return reason
    text = reason.text
    if reason.cause == "right":
        text = text.replace(": nothing is wrong with it", " with its hooks")
    return reason._replace(text=f"{text}; {told}")


def _born(name: str, loss: torch.Tensor, graph: Graph) -> Reason:
    """Say at which node a gradient first is not finite."""
    start = f"the gradient of {name} is not finite"
    if len(graph.nodes) > MOST_NODES:
        return Reason("not finite", f"{start}; {too_large(graph)}")
    flow = Flow.of(loss)
    for step in flow.steps:
        arrives = [g for g in step.arrived if g is not None]
        for gradient in step.left:
            if gradient is not None and not gradient.finite and all(g.finite for g in arrives):
                return _born_at(start, flow.graph.nodes[step.node], gradient)
    return Reason("not finite", f"{start}: the loss itself is not")


def _born_at(start: str, node: Node, gradient: Gradient) -> Reason:
    result = f" (its result is `{node.names[0]}`)" if node.names else ""
    values = ", ".join(f"{v:g}" for v in gradient.values[:4] if isinstance(v, float))
    more, leave = (" …" if len(gradient.values) > 4 else ""), "leaves" if len(gradient.values) == 1 else "leave"
    advice = _BORN.get(node.name.partition("Backward")[0], "Change the input of that operator, not its output")
    return Reason(
        "not finite",
        f"{start}: finite gradients arrive at {node.name}{result}, and {values}{more} {leave} it",
        f"{advice}: a mask after it multiplies infinity by 0.",
    )
