"""A node of autograd's fallback in a graph: the operator that made it has no Autograd kernel, and it passes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from helpers.model.adapter import passes_nothing
from helpers.model.autograd.graph import Graph
from helpers.model.autograd.reading import Live
from helpers.model.gradients.hooks import toward
from helpers.model.gradients.reasons import Reason
from helpers.model.runs.record import Record


def dropped_on_way(name: str, graph: Graph, live: Live, target: int, record: Record | None) -> Reason | None:
    """Return the reason where a way from the loss to a tensor leads through such a node. `target` is its number."""
    ways = toward(graph, target)
    found = next((pair for number, *pair in fallback_nodes(graph, live, record) if number in ways), None)
    return _reason(f"a part of the gradient of {name}", *found) if found else None


def dropped_in_graph(graph: Graph, live: Live, record: Record) -> Reason | None:
    """Return the reason where a graph has such a node at all."""
    found = next((pair for _, *pair in fallback_nodes(graph, live, record)), None)
    return _reason("a part of the gradients", *found) if found else None


def fallback_nodes(graph: Graph, live: Live, record: Record | None) -> Iterator[tuple[int, str, int | None]]:
    """Yield the number of each such node, the reader's code that made it or "", and its line."""
    for node in graph.nodes:
        if passes_nothing(live.nodes[node.number]):
            made = record.maker_of_node(node.sequence) if record and node.sequence is not None else None
            yield node.number, made.call.at if made else "", made.call.place.line if made and made.call.place else None


def _reason(what: str, at: str, line: int | None) -> Reason:
    where = f"the operator in {at}" if at else "an operator on the way"
    return Reason(
        "no Autograd kernel",
        f"{what} is lost: {where} has no Autograd kernel, so autograd's fallback added a graph node that passes "
        "nothing",
        "Register its derivative with torch.library.register_autograd. explain_dispatch(f) names the operator and "
        "measures what is missing, where it can.",
        line,
    )
