"""Where the chain of a gradient ends: the call whose input required grad and whose result does not."""

from __future__ import annotations

from dataclasses import dataclass, replace

from helpers.model.runs.record import ALIAS, EXITS, Event, Record, Seen
from helpers.model.words import dtype_name

_EXIT_NAMES = {
    "item": ".item()",
    "tolist": ".tolist()",
    "numpy": ".numpy()",
    "__float__": "float()",
    "__int__": "int()",
}


@dataclass(frozen=True)
class Cut:
    """The end of a chain. `cause` is one word or two, such as "detach"; `text` a clause, `remedy` a sentence.

    Not `sure`: the values left as plain numbers, and whether these were used again is not seen.
    """

    cause: str
    text: str
    remedy: str
    line: int | None
    sure: bool = True


def find_exit(record: Record) -> Cut | None:
    """Return the last call that took a plain number out of a graph, also where it was cut before that."""
    return _left_as_number(record, len(record.events))


def find_cut(record: Record, tensor: int) -> Cut | None:
    """Return the call at which the history of a tensor ends, the one nearest to it; None if nothing required grad.

    Where the history leads to plain numbers only, the last call before that took a number out of a graph.
    """
    found = _find_traced(record, tensor)
    return found if isinstance(found, Cut) else _left_as_number(record, found)


def _find_traced(record: Record, tensor: int) -> Cut | int:
    """Return the cut in the history of a tensor, or the number of the first call in it."""
    seen, queue = {tensor}, [tensor]
    first_made = len(record.events)
    later: list[Event] = []  # the calls between the cut and the tensor
    while queue:
        number = queue.pop(0)
        for event in record.makers(number):
            first_made = min(first_made, event.number)
            if event.kept and not _kept_on(record, event, number):
                return _cut(record, event, number, later)
            later.append(event)
            for source in event.inputs:
                if source not in seen:
                    seen.add(source)
                    queue.append(source)
    return first_made


def find_cut_between(record: Record, source: int, target: int) -> Cut | None:
    """Return the call at which the history from one tensor to another ends; None if it does not end at a call.

    Every result of a call that took a descendant of `source` is a descendant too. It has kept the history if one of
    those inputs had it, and the result requires grad.
    """
    kept, lost, later = _descendants(record, source, target)
    if target in lost:
        return _lost_at(record, source, *lost[target], later)
    return None if target in kept else _taken_out(record, kept, lost, later)


def find_first_cut(record: Record, source: int) -> Cut | None:
    """Return the first call at which the history from a tensor ends; None if it ends nowhere."""
    kept, lost, later = _descendants(record, source)
    if lost:
        first = min(lost.values(), key=lambda pair: (_was_off(source, pair[0]), pair[0].number))
        return _lost_at(record, source, *first, later)
    return _taken_out(record, kept, lost, later)


def _taken_out(record: Record, kept: set[int], lost: dict[int, tuple[Event, int]], later: list[Event]) -> Cut | None:
    """Return the call that took the numbers of a descendant out, or the one that had cut it before that."""
    for event in record.calls(*EXITS):
        if any(n in kept and n in event.kept for n in event.inputs):
            return replace(_number_cut(event), sure=False)
        if origin := next((lost[n] for n in event.inputs if n in lost), None):
            return _exit_after(_cut(record, *origin, later), event)
    return None


def _exit_after(cut: Cut, event: Event) -> Cut:
    """Tell a tensor that was cut off first and then left as plain numbers: both must go."""
    name = _EXIT_NAMES.get(event.name, event.call.shown)
    remedy = cut.remedy
    if cut.cause in ("detach", "no_grad"):
        remedy = f"Compute with the tensor itself in place of {name}: a gradient passes through neither."
    where = "" if event.call.expression in cut.text else f", and at {event.call.at} {name} takes the numbers out"
    return replace(cut, text=f"{cut.text}{where}", remedy=remedy, sure=False)


def _was_off(source: int, event: Event) -> bool:
    """Say whether a call took a tensor while its requires_grad was False."""
    return source in event.inputs and source not in event.kept


def _lost_at(record: Record, source: int, event: Event, number: int, later: list[Event]) -> Cut:
    if not _was_off(source, event):
        return _cut(record, event, number, later)
    line = event.call.place.line if event.call.place else None
    text = f"requires_grad was False when {event.call.at} ran"
    return Cut("requires_grad was False", text, "Turn requires_grad on before the forward.", line)


def _descendants(
    record: Record, source: int, target: int | None = None
) -> tuple[set[int], dict[int, tuple[Event, int]], list[Event], list[Event]]:
    """Return the descendants with history, those without and where they lost it, later calls, and exits to numbers."""
    kept, lost = {source}, dict[int, tuple[Event, int]]()
    later: list[Event] = []
    inside = dict[int, Event]()  # made in the forward of a custom Function: whether apply links it shows later
    for event in record.events:
        if event.function:
            if any((n in kept and n in event.kept) or n in inside for n in event.inputs):
                inside |= {n: event for n in event.outputs if n not in kept}
            elif origin := next((lost[n] for n in event.inputs if n in lost), None):
                lost = {n: origin for n in event.outputs if n not in kept} | lost
            continue
        for n in event.inputs:
            if n in inside and n in event.kept:
                kept.add(n)
            elif n in inside:
                lost.setdefault(n, (inside[n], n))
        changed = [write.tensor for write in event.writes if write.tensor not in event.outputs]
        carriers = [n for n in event.inputs if n in kept and n in event.kept]
        for result in (*event.outputs, *changed):
            if carriers and _kept_on(record, event, result):
                kept.add(result)
                lost.pop(result, None)
            elif result not in kept and (carriers or _was_off(source, event)):
                lost.setdefault(result, (event, result))
            elif result not in kept and (origin := next((lost[n] for n in event.inputs if n in lost), None)):
                lost.setdefault(result, origin)
                later.append(event)
    if target in inside and target not in kept:
        lost.setdefault(target, (inside[target], target))
    return kept, lost, later


def _kept_on(record: Record, event: Event, number: int) -> bool:
    """Say whether a call's result has a history, as its input did: a leaf that it made has none."""
    seen = record.tensors[number]
    fresh = seen.is_leaf and number not in event.inputs
    return seen.requires_grad and not fresh and event.grad_mode and not event.inference


def _left_as_number(record: Record, before: int) -> Cut | None:
    """Return the last call that took numbers out of a graph, if possible one before the call number `before`."""
    exits = [event for event in record.calls(*EXITS) if event.kept]
    if not exits:  # detached first, then taken out
        pairs = [(e, n) for e in record.calls(*EXITS) for n in e.inputs if record.tensors[n].made]
        cuts = ((event, _find_traced(record, n)) for event, n in pairs)
        return next(
            (replace(_exit_after(cut, event), sure=cut.sure) for event, cut in cuts if isinstance(cut, Cut)), None
        )
    exits = [event for event in exits if event.number <= before] or exits
    return _number_cut(exits[-1])


def _number_cut(event: Event) -> Cut:
    what = _EXIT_NAMES.get(event.name, event.call.shown)
    return Cut(
        "number",
        f"its value came from plain numbers, made by {what} at {event.call.at}, and a number has no graph",
        "Keep the tensor itself in the computation; take numbers out only to show them.",
        event.call.place.line if event.call.place else None,
    )


def _gradient_cut(event: Event) -> Cut:
    """Tell a gradient that has no graph of its own: a second derivative needs one."""
    line, at = event.call.place.line if event.call.place else None, event.call.at
    if event.call.count == 1:  # the attribute .grad
        text = f"the graph ends at {at}, which backward filled without a graph of the gradient itself"
        return Cut("no graph of the gradient", text, "Use torch.autograd.grad(loss, x, create_graph=True).", line)
    if event.call.keyword("create_graph", "") == "`True`":
        text = f"the graph ends at {at}: a backward in it records no graph, as one marked once_differentiable does"
        return Cut(
            "no graph of the gradient", text, "Write that backward with torch operations, without the mark.", line
        )
    text = f"the graph ends at {at}, which records no graph of the gradient itself"
    return Cut("no graph of the gradient", text, "Pass create_graph=True to it.", line)


def _cut(record: Record, event: Event, number: int, later: list[Event]) -> Cut:
    if event.name == "grad" and not event.inference:
        return _gradient_cut(event)
    cause, text, remedy = _cause(record.tensors[number], event, later)
    return Cut(cause, text, remedy, event.call.place.line if event.call.place else None)


def _cause(seen: Seen, event: Event, later: list[Event]) -> tuple[str, str, str]:
    """Return cause, clause and remedy for a call whose result lost the history."""
    at = event.call.at
    if event.inference:
        return (
            "inference_mode",
            f"the graph ends at {at}, which ran in inference_mode",
            "Compute it outside inference_mode; under no_grad if it needs no gradient itself.",
        )
    if event.name == ALIAS:
        return (
            "copy",
            f"the values of {at} went on as a new leaf without their history, as nn.Parameter(t) and Variable(t) make",
            "Use the tensor itself where the gradient must pass; a Parameter is for values that are trained.",
        )
    if event.name in ("detach", "detach_", "data"):
        return (
            "detach",
            f"the graph ends at {at}, which gives the same values without their history",
            f"Leave out {'.data' if event.name == 'data' else 'detach()'} where the gradient must pass.",
        )
    if event.function and seen.dtype.is_floating_point:
        return (
            "custom function",
            f"the graph ends in the custom Function {event.function}, at {at}: apply links results only to tensors "
            "that are arguments themselves, not to those in a list, and no result in a list or marked "
            "non-differentiable, and nothing under no_grad",
            f"Give {event.function}.apply its tensors one by one, return a tensor or a tuple of tensors, and call it "
            "outside no_grad.",
        )
    if not event.grad_mode and not event.function:
        return (
            "no_grad",
            f"the graph ends at {at}, which ran under no_grad",
            "Compute it outside no_grad. Inside a checkpoint, use_reentrant=False does that.",
        )
    if not (seen.dtype.is_floating_point or seen.dtype.is_complex):
        dtype = dtype_name(seen.dtype)
        back = next((e for e in later if e.name in ("float", "double", "half", "to", "type")), None)
        again = f"; the later {back.call.shown} changes the dtype and brings no graph back" if back else ""
        return (
            "integer",
            f"the graph ends at {at}: the input of {event.call.shown} required grad, its {dtype} result cannot{again}",
            "Compute the loss from values that change smoothly, such as softmax, and keep this call for metrics.",
        )
    if event.name in ("tensor", "as_tensor", "new_tensor"):
        return (
            "copy",
            f"the graph ends at {at}, which copies the values and not their history",
            "Use the tensor itself, torch.stack for a list of tensors, or clone() for a copy with history.",
        )
    if event.name == "requires_grad_":
        return "requires_grad", f"the graph ends at {at}", "Leave requires_grad on."
    return (
        "no derivative",
        f"the graph ends at {at}: its input required grad, and its result does not",
        "Replace this call by one with a derivative.",
    )
