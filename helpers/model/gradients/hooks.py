"""Hooks on the way of a gradient: what they were given, and what they made of it."""

from __future__ import annotations

from helpers.model.autograd.flow import Flow, Step
from helpers.model.autograd.graph import Graph, Node
from helpers.model.autograd.values import Gradient

MOST_SHOWN = 3  # values of a gradient


def toward(graph: Graph, target: int) -> set[int]:
    """Return the nodes from which a node is reached, that one included."""
    found, stack = {target}, [target]
    while stack:
        for consumer in graph.consumers[stack.pop()]:
            if consumer not in found:
                found.add(consumer)
                stack.append(consumer)
    return found


def hooks_on_way(flow: Flow, target: int) -> str:
    """Say what hooks on the way to a node changed; "" where none did."""
    ways = toward(flow.graph, target)
    told = [changed_by_hook(flow.graph.nodes[s.node], s) for s in flow.steps if s.sent and s.node in ways]
    return f"{told[0]}{f', and {len(told) - 1} more change it' if told[1:] else ''}" if told else ""


def changed_by_hook(node: Node, step: Step) -> str:
    """Say what a hook made of the gradient that was sent to a node."""
    both = zip(step.sent, step.arrived, strict=False)
    pairs = [(s, a) for s, a in both if s is not None and a is not None and s != a]
    names = [hook.partition(" on the gradient of ")[2] for hook in node.hooks if " on the gradient of " in hook]
    names = names or list(node.names)
    where = f"`{names[0]}`" if names else f"the result whose node is {node.name}"
    change = f" from {_shown(pairs[0][0])} to {_shown(pairs[0][1])}" if pairs else ""
    return f"a hook on {where} changes its gradient{change}"


def _shown(gradient: Gradient) -> str:
    values = [f"{v:.4g}" for v in gradient.values[:MOST_SHOWN]]
    if gradient.shape == () and len(values) == 1:
        return values[0]
    return f"[{', '.join(values)}{', …' if len(gradient.values) > MOST_SHOWN else ''}]"
