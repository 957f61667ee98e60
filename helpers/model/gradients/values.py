"""Why the gradient of a tensor that the loss does reach is None, zero, not finite, or a multiple of another."""

from __future__ import annotations

import re

import torch

from helpers.model.autograd.flow import MOST_NODES, Flow, Gradient, flat, not_ready, require_number
from helpers.model.autograd.graph import Graph, Node
from helpers.model.autograd.reading import Live
from helpers.model.autograd.retained import grads_kept
from helpers.model.gradients.reasons import Reason, attribute
from helpers.model.watch import first_line

MOST_CALLS = 100  # a gradient that is a larger multiple was scaled: a GradScaler begins with 65536

# Why an operator can turn every gradient into zero, by the start of its node's name.
_ZERO = {
    "Relu": "every input of relu was 0 or less",
    "Threshold": "every input was at or below the threshold",
    "LeakyRelu": "the slope below 0 is 0 and every input was below 0",
    "Hardtanh": "every input was outside the range",
    "Clamp": "every input was outside the range of clamp",
    "ClampMin": "every input was below the minimum",
    "Hardsigmoid": "every input was outside the range",
    "Sigmoid": "its outputs are exactly 0 or 1 (saturated)",
    "Tanh": "its outputs are exactly -1 or 1 (saturated)",
    "Softmax": "its outputs are exactly 0 or 1 (saturated)",
    "LogSoftmax": "its outputs are exactly saturated",
    "Mul": "the other factor is 0",
    "Sign": "the derivative of sign is 0 everywhere",
    "Round": "the derivative of round is 0 everywhere",
    "Floor": "the derivative of floor is 0 everywhere",
    "Ceil": "the derivative of ceil is 0 everywhere",
    "Trunc": "the derivative of trunc is 0 everywhere",
    "Where": "the condition took the other branch everywhere",
    "MaskedFill": "the mask covers every element",
    "Index": "none of its elements was picked",
    "Select": "none of its elements was picked",
    "Slice": "none of its elements was picked",
    "Gather": "none of its elements was picked",
    "Embedding": "every row that was looked up is that of padding_idx",
    "Mm": "the product with the other matrix is 0",
    "Addmm": "the product with the other matrix is 0",
    "Bmm": "the product with the other matrix is 0",
    "Max": "other elements were the largest",
    "Min": "other elements were the smallest",
    "NativeDropout": "dropout dropped every element",
}
# Operators on whose results the same gradient arrives without effect.
_FIXED = {
    "Softmax": "the same gradient arrives for each of its outputs, and these always sum to 1",
    "NativeLayerNorm": "the same gradient arrives for each of its outputs, and their mean is always the same",
}


def explain_values(t: torch.Tensor, name: str, loss: torch.Tensor, graph: Graph, live: Live, target: int) -> Reason:
    """Compare the gradient that a tensor has with the one that this loss gives. `target` is the number of its node.

    Raises HelperError for a loss that is not one real number.
    """
    grad = t.grad
    if graph.freed:
        if grad is None:
            return Reason(
                "set to None",
                f"backward has run through the loss to {name}, and {attribute(name, 'grad')} is None now: it was "
                "set to None "
                "since, as "
                "zero_grad() does",
                "Read the gradient between backward() and zero_grad().",
            )
        return Reason(
            "graph freed",
            f"{name} can be reached from the loss, and backward has run: its gradient can't be computed again, as "
            "the saved "
            "tensors are freed",
            "Run the forward again and ask before backward.",
        )
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
        return _zero(name, loss, graph, target)
    if grad is None:
        return Reason(
            "no backward yet",
            f"{name} can be reached from the loss, and its gradient is not zero: {attribute(name, 'grad')} is "
            "None because "
            "backward has not "
            "run on this loss yet, or zero_grad() came after it",
            "Call loss.backward().",
        )
    return _compared(grad, fresh, name)


def _compared(grad: torch.Tensor, fresh: torch.Tensor, name: str) -> Reason:
    grad, fresh = flat(grad.detach()), flat(fresh.detach()).to(grad.dtype)
    if len(grad) == len(fresh) and torch.allclose(grad, fresh, rtol=1e-4, equal_nan=True):
        return Reason("right", f"{attribute(name, 'grad')} is what this loss gives: nothing is wrong with it")
    ratio = (grad @ fresh / (fresh @ fresh)).item() if len(grad) == len(fresh) else 0
    if isinstance(ratio, complex) and abs(ratio.imag) <= 1e-4 * abs(ratio.real):
        ratio = ratio.real
    times = round(ratio) if isinstance(ratio, float) and abs(ratio) < 1e9 else 0
    if 1 < times <= MOST_CALLS and torch.allclose(grad, times * fresh, rtol=1e-4):
        return Reason(
            "accumulated",
            f"{attribute(name, 'grad')} is {times} times the gradient of this loss: {times} backward calls have "
            f"added to it, and nothing set it to None between them, or backward ran on a loss {times} times as large",
            "Call optimizer.zero_grad() before each backward, or w.grad = None; where gradients are added up on "
            f"purpose, compare with {times} times this loss.",
        )
    if ratio and torch.allclose(grad, ratio * fresh, rtol=1e-3):
        return Reason(
            "scaled",
            f"{attribute(name, 'grad')} is {ratio:,.6g} times the gradient of this loss: something scaled it, such as "
            "a GradScaler, gradient clipping, or a loss divided by a number of steps",
            "Compare before clipping, and after unscale_().",
        )
    return Reason(
        "other gradients",
        f"{attribute(name, 'grad')} is not the gradient of this loss: gradients of other losses were added to it, "
        "or a hook "
        "changed it",
        "Set it to None, call backward once on this loss, and compare again.",
    )


def _too_large(graph: Graph, cause: str, name: str, what: str) -> Reason | None:
    if len(graph.nodes) <= MOST_NODES:
        return None
    return Reason(
        cause,
        f"the gradient of {name} is {what}; where it became so is not looked for, as the graph has "
        f"{len(graph.nodes):,} nodes, more than the {MOST_NODES:,} that are gone through one by one",
    )


def _zero(name: str, loss: torch.Tensor, graph: Graph, target: int) -> Reason:
    if reason := _too_large(graph, "zero", name, "zero"):
        return reason
    flow = Flow.of(loss)
    node = _killer(flow, target)
    if node is None:
        return Reason("zero", f"the gradient of {name} is zero: the loss does not change with it")
    why = _constant(flow, node) or _ZERO.get(node.name.partition("Backward")[0], "at these values its derivative is 0")
    if any(value == 0 for g in flow.step_of(node.number).arrived if g is not None for value in g.values):
        why = re.sub(r"^(every input\b.*?) was", r"\1 at which a gradient arrives was", why)
        why = why.replace("everywhere", "wherever a gradient arrives")
    result = f" (its result is `{node.names[0]}`)" if node.names else ""
    return Reason(
        "zero",
        f"the gradient of {name} is zero: a gradient that is not zero arrives at {node.name}{result} and leaves "
        "it as zeros, "
        f"as {why}",
        "Look at the inputs of that operator.",
    )


def _constant(flow: Flow, node: Node) -> str:
    """Tell operators whose results have a fixed sum or mean: the same gradient for all of them then cancels out."""
    fixed = _FIXED.get(node.name.partition("Backward")[0], "")
    arrived = next((g for g in flow.step_of(node.number).arrived if g is not None), None)
    return fixed if fixed and arrived is not None and len(set(arrived.values)) == 1 else ""


def _killer(flow: Flow, target: int) -> Node | None:
    """Return the node at which the gradient on the way to a tensor becomes zero, the one nearest to the loss."""
    graph = flow.graph
    toward = _toward(graph, target)
    for step in flow.steps:
        node = graph.nodes[step.node]
        arrives = [g for g in step.arrived if g is not None]
        leaves = [g for g, edge in zip(step.left, node.edges, strict=False) if edge and edge.to in toward and g]
        lively = node.number in toward and not all(g.zero for g in arrives)
        if lively and leaves and all(g.zero for g in leaves):
            return node
    return None


def _toward(graph: Graph, target: int) -> set[int]:
    """Return the nodes from which a node is reached, that one included."""
    found, stack = {target}, [target]
    while stack:
        for consumer in graph.consumers[stack.pop()]:
            if consumer not in found:
                found.add(consumer)
                stack.append(consumer)
    return found


def _born(name: str, loss: torch.Tensor, graph: Graph) -> Reason:
    """Say at which node a gradient first is not finite."""
    if reason := _too_large(graph, "not finite", name, "not finite"):
        return reason
    flow = Flow.of(loss)
    for step in flow.steps:
        node = flow.graph.nodes[step.node]
        arrives = [g for g in step.arrived if g is not None]
        for gradient in step.left:
            if gradient is not None and not gradient.finite and all(g.finite for g in arrives):
                result = f" (its result is `{node.names[0]}`)" if node.names else ""
                values = ", ".join(f"{v:g}" for v in gradient.values[:4] if isinstance(v, float))
                return Reason(
                    "not finite",
                    f"the gradient of {name} is not finite: finite gradients arrive at {node.name}{result}, and "
                    f"{values}{' …' if len(gradient.values) > 4 else ''} leaves it",
                    "Change the input of that operator, not its output: a mask after it multiplies infinity by 0.",
                )
    return Reason("not finite", f"the gradient of {name} is not finite: the loss itself is not")
