"""Why the gradient of a tensor that the loss does reach is None, zero, not finite, or a multiple of what it "
"should be."""

from __future__ import annotations

import torch

from helpers.model.autograd.flow import Flow, Gradient
from helpers.model.autograd.graph import Graph, Node
from helpers.model.finding import HelperError
from helpers.model.gradients.reasons import Reason, attribute

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
    "Embedding": "none of its rows was looked up",
    "Max": "other elements were the largest",
    "Min": "other elements were the smallest",
    "NativeDropout": "dropout dropped every element",
}


def explain_values(t: torch.Tensor, name: str, loss: torch.Tensor, graph: Graph, target: int) -> Reason:
    """Compare the gradient that a tensor has with the one that this loss gives. `target` is the number of its node."""
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
    if loss.numel() != 1:
        raise HelperError(f"the loss has shape {tuple(loss.shape)}, and one number was wanted: give loss.sum()")
    (fresh,) = torch.autograd.grad(loss, t, retain_graph=True, allow_unused=True)
    seen = Gradient.of(fresh)
    if seen is None:
        return Reason("undefined", f"{name} is in the graph, and the backward of its consumer returns None for it")
    if not seen.finite:
        return _born(name, loss)
    if seen.zero:
        return _zero(name, loss, target)
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
    if torch.allclose(grad, fresh, rtol=1e-4, equal_nan=True):
        return Reason("right", f"{attribute(name, 'grad')} is what this loss gives: nothing is wrong with it")
    ratio = (grad.flatten() @ fresh.flatten() / (fresh.flatten() @ fresh.flatten())).item()
    times = round(ratio) if isinstance(ratio, float) and abs(ratio) < 1e9 else 0
    if times > 1 and torch.allclose(grad, times * fresh, rtol=1e-4):
        return Reason(
            "accumulated",
            f"{attribute(name, 'grad')} is {times} times the gradient of this loss: {times} backward calls have "
            "added to it, "
            "and nothing "
            "set it to None between them",
            "Call optimizer.zero_grad() before each backward, or w.grad = None.",
        )
    if ratio and torch.allclose(grad, ratio * fresh, rtol=1e-3):
        return Reason(
            "scaled",
            f"{attribute(name, 'grad')} is {ratio:.4g} times the gradient of this loss: something scaled it, such as a "
            "GradScaler, gradient "
            "clipping, or a loss divided by a number of steps",
            "Compare before clipping, and after unscale_().",
        )
    return Reason(
        "other gradients",
        f"{attribute(name, 'grad')} is not the gradient of this loss: gradients of other losses were added to it, "
        "or a hook "
        "changed it",
        "Set it to None, call backward once on this loss, and compare again.",
    )


def _zero(name: str, loss: torch.Tensor, target: int) -> Reason:
    flow = Flow.of(loss)
    node = _killer(flow, target)
    if node is None:
        return Reason("zero", f"the gradient of {name} is zero: the loss does not change with it")
    why = _ZERO.get(node.name.partition("Backward")[0], "at these values its derivative is 0")
    result = f" (its result is `{node.names[0]}`)" if node.names else ""
    return Reason(
        "zero",
        f"the gradient of {name} is zero: a gradient that is not zero arrives at {node.name}{result} and leaves "
        "it as zeros, "
        f"as {why}",
        "Look at the inputs of that operator.",
    )


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


def _born(name: str, loss: torch.Tensor) -> Reason:
    """Say at which node a gradient first is not finite."""
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
