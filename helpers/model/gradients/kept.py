"""Graphs that a training loop keeps from one iteration to the next: memory grows though nothing is wrong with grads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator

import torch

from helpers.model.gradients.reasons import Reason
from helpers.model.runs.record import Event, Record

_FEWEST = 2  # iterations before this one: a state that is carried on keeps one


def kept_results(
    record: Record, alive: Iterable[tuple[torch.Tensor, int]], starts: list[int]
) -> tuple[Event, int] | None:
    """Return the call whose results of most earlier iterations live on with a graph, and how many these are.

    `alive` are living tensors with their numbers, `starts` the numbers of the events before each backward so far, the
    last of them that of this iteration.
    """
    found: dict[object, tuple[Event, set[int]]] = {}
    for t, number in alive:
        made = record.tensors[number].made
        if made is None or t.grad_fn is None:
            continue
        event, iteration = record.events[made], bisect_left(starts[:-1], made)
        if iteration < len(starts) - 1 and event.call.place is not None:
            found.setdefault(event.call.place, (event, set()))[1].add(iteration)
    event, iterations = max(found.values(), key=lambda pair: len(pair[1]), default=(None, set()))
    return (event, len(iterations)) if event is not None and len(iterations) >= _FEWEST else None


def of_results(event: Event, count: int) -> Reason:
    """Tell results of earlier iterations that are kept."""
    return Reason(
        "kept graph",
        f"the results of {event.call.at} from {count} earlier iterations are still alive with their graphs, as in a "
        "list: memory grows with every iteration",
        "Keep a number or a tensor without history: losses.append(loss.item()), outputs.append(out.detach()).",
        event.call.place.line if event.call.place else None,
    )


def growing_sum(record: Record, used: dict[int, int]) -> Reason | None:
    """Tell a sum over iterations that has a history, such as `total += loss`.

    `used` has the number of each tensor that backward started from, and that of the event before its backward.
    """
    for event in record.events:
        if not event.grad_mode or event.name in ("backward", "grad") or len(event.kept) < _FEWEST:
            continue
        behind = list(_behind(record, event, used))
        again = next((e for e in behind if e.number < event.number and e.call.place == event.call.place), None)
        if again is not None and any(
            n in used and used[n] < event.number for e in (again, *_behind(record, again, {})) for n in e.kept
        ):
            return _of_sum(event)
    return None


def _behind(record: Record, event: Event, ends: Container[int], depth: int = 3) -> Iterator[Event]:
    """Yield the calls that made what a call took with its history, a few steps back; not behind what is in `ends`."""
    for number in event.kept if depth else ():
        for before in record.makers(number) if number not in ends else ():
            if before.number < event.number and before.grad_mode:
                yield before
                yield from _behind(record, before, ends, depth - 1)


def _of_sum(event: Event) -> Reason:
    return Reason(
        "kept graph",
        f"{event.call.at} adds up losses with their history, and no backward starts from the sum: it keeps the graph "
        "of every iteration alive, and memory grows",
        "Add up numbers: total += loss.item().",
        event.call.place.line if event.call.place else None,
    )
