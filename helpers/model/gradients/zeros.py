"""Why a gradient is zero: the node or the hook at which it becomes so, and what the saved values show of it."""

from __future__ import annotations

import re

import torch

from helpers.model.adapter import plain_access, saved_tensors
from helpers.model.autograd.flow import MOST_NODES, Flow, Step
from helpers.model.autograd.graph import Graph, Node
from helpers.model.autograd.reading import Live
from helpers.model.autograd.values import Gradient, flat
from helpers.model.gradients.hooks import changed_by_hook, toward
from helpers.model.gradients.reasons import Reason

# Operators that hand on no gradient at certain values, whatever arrives, by the start of the node's name.
_SURE = {
    "Relu": "every input of relu was 0 or less",
    "Threshold": "every input was at or below the threshold",
    "LeakyRelu": "the slope below 0 is 0 and every input was below 0",
    "Hardtanh": "every input was outside the range",
    "Clamp": "every input was outside the range of clamp",
    "ClampMin": "every input was below the minimum",
    "Hardsigmoid": "every input was outside the range",
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
    "Max": "other elements were the largest",
    "Min": "other elements were the smallest",
    "NativeDropout": "dropout dropped every element",
}
# Operators with a flat end: the saved result tells whether it was reached.
_FLAT = {
    "Sigmoid": (lambda y: (y == 0) | (y == 1), "its outputs are exactly 0 or 1 (saturated)"),
    "Tanh": (lambda y: y.abs() == 1, "its outputs are exactly -1 or 1 (saturated)"),
    "Softmax": (lambda y: (y == 0) | (y == 1), "its outputs are exactly 0 or 1 (saturated)"),
    "LogSoftmax": (lambda y: (y.exp() == 0) | (y.exp() == 1), "the probabilities are exactly 0 or 1 (saturated)"),
}
# Operators on whose results the same gradient arrives without effect.
_FIXED = {
    "Softmax": "the same gradient arrives for each of its outputs, and these always sum to 1",
    "NativeLayerNorm": "the same gradient arrives for each of its outputs, and their mean is always the same",
}
# Products, and what they save for each of their inputs: the other factor.
_FACTORS = {
    "Mul": ("other", "self"),
    "Mm": ("mat2", "self"),
    "Bmm": ("mat2", "self"),
    "Mv": ("vec", "self"),
    "Dot": ("tensor", "self"),
    "Addmm": ("", "mat2", "mat1"),
}
_LOOK = "Look at the inputs of that operator."
_SCALE = "Compute in float32, or make the loss larger before backward and the gradients smaller after it (GradScaler)."


def explain_zero(name: str, loss: torch.Tensor, graph: Graph, live: Live, target: int) -> Reason:
    """Say where the gradient of a tensor becomes zero. `target` is the number of its node."""
    if len(graph.nodes) > MOST_NODES:
        return Reason("zero", f"the gradient of {name} is zero; {too_large(graph)}")
    flow = Flow.of(loss)
    ways = toward(graph, target)
    for step in flow.steps:
        if step.node not in ways:
            continue
        if step.sent and _lively(step.sent) and not _lively(step.arrived):
            text = f"the gradient of {name} is zero: {changed_by_hook(graph.nodes[step.node], step)}"
            return Reason("zero", text, "Remove the hook: what register_hook returned has remove().")
        if _ends_at(graph.nodes[step.node], step, ways):
            return _at_node(name, flow, graph.nodes[step.node], step, live, ways)
    return Reason("zero", f"the gradient of {name} is zero: {_cancelled(flow, ways)}")


def too_large(graph: Graph) -> str:
    """Say that a graph is too large to go through."""
    return (
        f"where it became so is not looked for, as the graph has {len(graph.nodes):,} nodes, more than the "
        f"{MOST_NODES:,} that are gone through one by one"
    )


def _lively(gradients: tuple[Gradient | None, ...]) -> bool:
    return any(g is not None and not g.zero for g in gradients)


def _ends_at(node: Node, step: Step, ways: set[int]) -> bool:
    """Say whether a gradient that is not zero arrives, and only zeros leave on the ways to the tensor."""
    leaves = [g for g, edge in zip(step.left, node.edges, strict=False) if edge and edge.to in ways and g]
    return bool(leaves) and _lively(step.arrived) and not _lively(tuple(leaves))


def _at_node(name: str, flow: Flow, node: Node, step: Step, live: Live, ways: set[int]) -> Reason:
    result = f" (its result is `{node.names[0]}`)" if node.names else ""
    start = f"the gradient of {name} is zero: a gradient that is not zero arrives at {node.name}{result} and leaves it"
    if node.name == "BackwardHookFunctionBackward":
        remedy = "Remove the hook: what register_full_backward_hook returned has remove()."
        return Reason("zero", f"{start} as zeros, as a backward hook of a module made it so", remedy)
    why = _why(node, step, _saved(live.nodes[node.number]), [e is not None and e.to in ways for e in node.edges])
    return Reason("zero", f"{start} as zeros, as {why}", _remedy(node, why))


def _remedy(node: Node, why: str) -> str:
    if "(underflow)" not in why:
        return _LOOK
    return _SCALE if node.outputs[0][1] in (torch.float16, torch.bfloat16) else "Make the factors, or the loss, larger."


def _saved(node: object) -> dict[str, torch.Tensor]:
    return {s.name: s.value for s in saved_tensors(node) if s.state == "alive" and isinstance(s.value, torch.Tensor)}


def _why(node: Node, step: Step, saved: dict[str, torch.Tensor], toward_target: list[bool]) -> str:
    kind = node.name.partition("Backward")[0]
    arrived = next((g for g in step.arrived if g is not None), None)
    if kind in _SURE:
        return _sure(_SURE[kind], step)
    with plain_access(), torch.no_grad():
        if kind in ("Softmax", "LogSoftmax") and (one := _single(node, saved.get("result"))):
            return one
        if kind in _FIXED and arrived is not None and arrived.same:
            return _FIXED[kind]
        if kind in _FLAT and (y := saved.get("result")) is not None and bool(_FLAT[kind][0](flat(y)).all()):
            return _FLAT[kind][1]
        if kind in _FACTORS and (why := _of_factor(kind, node, step, saved, toward_target)):
            return why
        if kind == "MseLoss" and torch.equal(saved["self"], saved["target"]):
            return "its input equals its target"
        zeros = [s.owner or s.name for s in node.saved if s.name in saved and not bool(flat(saved[s.name]).any())]
    shown = f": `{zeros[0]}`, which it saved, is 0 everywhere" if zeros else ""
    return f"what arrives and the values that it saved give zeros{shown}"


def _sure(why: str, step: Step) -> str:
    """Where a part of what arrives is zero, nothing is known of the values there."""
    if any(value == 0 for g in step.arrived if g is not None for value in g.values):
        why = re.sub(r"^(every input\b.*?) was", r"\1 at which a gradient arrives was", why)
        why = why.replace("everywhere", "wherever a gradient arrives")
    return why


def _single(node: Node, result: torch.Tensor | None) -> str:
    """Tell a softmax over one element, whose result never changes."""
    dim = dict(node.settings).get("dim")
    if result is None or not isinstance(dim, int) or result.dim() == 0 or result.shape[dim] != 1:
        return ""
    always = "0" if node.name.startswith("Log") else "1"
    return f"it runs over a dimension of size 1 (its result has shape {tuple(result.shape)}), so it is always {always}"


def _of_factor(kind: str, node: Node, step: Step, saved: dict[str, torch.Tensor], toward_target: list[bool]) -> str:
    """Look at the other factor of a product: is it 0, or is the product too small for its dtype?"""
    wanted = [n for n, on in zip(_FACTORS[kind], toward_target, strict=False) if on and n in saved]
    if not wanted:
        return ""
    owner = next((s.owner for s in node.saved if s.name == wanted[0]), "")
    factor = flat(saved[wanted[0]])
    called = f"`{owner}`" if owner else ("the other factor" if kind == "Mul" else "the other matrix")
    if not bool(factor.any()):
        return f"{called} is 0" if factor.numel() == 1 else f"{called} is 0 everywhere"
    gradients = [abs(v) for g in step.arrived if g is not None for v in g.values if v != 0]
    dtype = node.outputs[0][1]
    least = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps if dtype.is_floating_point else 0
    if kind == "Mul" and gradients and max(gradients) * float(factor.abs().max()) < least:
        return (
            f"{max(gradients):.3g} × {float(factor.abs().max()):.3g} is too small for {str(dtype)[6:]}, whose smallest "
            f"number is {least:.3g}: it becomes 0 (underflow)"
        )
    if kind == "Mul":
        return f"wherever a gradient arrives, {called} is 0 or the product is too small for {str(dtype)[6:]}"
    return "the product with the other matrix is 0"


def _cancelled(flow: Flow, ways: set[int]) -> str:
    """Tell parts that add up to zero: each is sent, and nothing arrives."""
    graph = flow.graph
    arrived = {step.node: _lively(step.arrived) for step in flow.steps}
    for step in flow.steps:
        senders = [s for s in flow.steps if any(e and e.to == step.node for e in graph.nodes[s.node].edges)]
        parts = [
            g
            for s in senders
            for g, e in zip(s.left, graph.nodes[s.node].edges, strict=False)
            if e and e.to == step.node and g is not None and not g.zero
        ]
        if step.node in ways and len(parts) > 1 and not arrived[step.node]:
            node = graph.nodes[step.node]
            what = f"`{node.names[0]}`" if node.names else node.name
            return f"{len(parts)} gradients that are not zero are sent to {what}, and their sum is 0"
    return "what arrives and the saved values give zeros"
