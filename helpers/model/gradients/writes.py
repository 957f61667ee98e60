"""Writes that autograd does not notice: through `.data`, which has a version counter of its own."""

from __future__ import annotations

from collections.abc import Iterator

from helpers.model.autograd.graph import Graph
from helpers.model.autograd.reading import Live
from helpers.model.runs.record import Event, Record


def unnoticed_writes(record: Record, graph: Graph, live: Live) -> Iterator[tuple[Event, str]]:
    """Yield each call that wrote to a saved tensor whose version has not changed, with a sentence for it.

    A write to a part of the storage that the saved tensor does not have would be told too: only `.data` gives such a
    part, as a view shares its version counter with its base.
    """
    addresses = {index: key for key, index in live.storages.items()}
    last = {write.storage: event for event in record.events for write in event.writes}
    told: set[int] = set()
    for node in graph.nodes:
        for saved in node.saved if node.sequence is not None else ():
            event = last.get(addresses.get(saved.storage)) if saved.state == "alive" else None
            if event is None or event.first <= node.sequence or event.number in told:
                continue
            told.add(event.number)
            what = f"`{saved.owner}`" if saved.owner else f"a tensor of shape {saved.shape}"
            text = (
                f"{event.call.at} changed the values of {what} after {node.name} had saved it, and through .data "
                "autograd does not notice that: backward reads the new values, and the gradient is silently wrong"
            )
            yield event, text
