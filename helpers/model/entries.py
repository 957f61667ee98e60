"""What `find_sharers` says of the entries of a container: what they share with each other and with others."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

import torch

from helpers.model.adapter import plain_access, version_of
from helpers.model.common import any_in_common, in_common
from helpers.model.lacking import left_out
from helpers.model.memory import Ranges
from helpers.model.sharers import NAMELESS, Met, Sharer, Sharers, is_array, sharer_of
from helpers.model.words import quoted

MOST_COMPARED = 20  # candidates for the thing outside that an entry shares elements with
ALIVE = "an entry kept keeps the whole block alive"
CUT_LOOSE = "clone() an entry to cut it loose."
OVERLAPPING = "some of them read the same elements, and a write to such an element is seen through each that reads it"


def several_finding(
    own: list[Met], met: list[Met], name: str, t: Any, skipped: dict[str, torch.Tensor], updating: list[str]
) -> Sharers:
    """Say what the entries of a container share with each other and with what lies outside it.

    `skipped` are its tensors without memory, by name; `updating` are the optimizers that hold entries of it.
    """
    found = _several(own, met, name, t)
    if all(is_array(m.thing) for m in own):
        found = replace(found, remedy=found.remedy.replace("clone()", "copy()"))
    if updating and not found.sharers:
        verb = "holds" if len(updating) == 1 else "hold"
        text = f"{found.text.removesuffix('.')}; {quoted(updating)} {verb} parameters among them to update them."
        found = replace(found, text=text)
    if not skipped:
        return found
    text = f"{found.text.removesuffix('.')}{left_out(skipped)}."
    return replace(found, text=text, facts=found.facts | {"skipped": len(skipped)})


def _several(own: list[Met], met: list[Met], name: str, t: Any) -> Sharers:
    memory = Ranges(m.block for m in own)
    outside = [m for m in met if memory.find(m.block) is not None]
    count = sum(len(m.names) for m in own)
    first = _largest_group(own, memory)
    together = tuple(n for m in first for n in m.names)
    what = {list: "list entries", tuple: "tuple entries", deque: "deque entries"}.get(type(t), "entries")
    facts = {"entries": count, "together": len(together), "sharers": len(outside)}
    if (tied := _tied(own, first, outside, what, facts, together)) is not None:
        return tied
    if len(together) == count > 1:
        return _one_memory(first, outside, what, facts, together, ordered=isinstance(t, list | tuple | deque))
    if outside:
        return _follow(own, outside, bool(name), what, facts, together)
    if len(together) > 1:
        names = " and ".join(f"`{n}`" for n in together[:3]) + (" and others" if len(together) > 3 else "")
        text, remedy = (
            f"{len(together)} of {count} {what} share one memory: {names}.",
            "clone() the entries that shall differ.",
        )
        if len(first) == len(together) and any_in_common([m.block for m in first]) is False:
            text = f"{len(together)} of {count} {what} lie in one block, with no element in common: {names}; {ALIVE}."
            remedy = CUT_LOOSE
        return Sharers(text=text, remedy=remedy, facts=facts, together=together)
    if count == 1:
        return Sharers(text=f"The one {what.replace('entries', 'entry')} shares memory with nothing.", facts=facts)
    return Sharers(text=f"The {count} {what} share memory with nothing, not even with each other.", facts=facts)


def _largest_group(own: list[Met], memory: Ranges) -> list[Met]:
    groups: dict[tuple[str, int], list[Met]] = {}
    for m in own:
        place = memory.find(m.block)
        if place is not None:
            groups.setdefault(place, []).append(m)
    return max(groups.values(), key=lambda g: sum(len(m.names) for m in g), default=[])


def _one_memory(
    own: list[Met], outside: list[Met], what: str, facts: dict[str, Any], together: tuple[str, ...], ordered: bool
) -> Sharers:
    """All entries lie on one memory: case 10, one buffer that was refilled, when they also start at one address."""
    same = len({m.block.first for m in own}) == 1
    refilled = ordered and len({m.block.shape for m in own}) == 1 and any(map(_may_be_refilled, own))
    sharers = tuple(sharer_of(m, own[0]) for m in outside)
    block = Ranges(m.block for m in [*own, *outside])
    ours = {id(m.thing) for m in own}
    named = [(m, s) for m, s in zip(outside, sharers, strict=True) if s.name != NAMELESS and id(m.thing) not in ours]
    # The array or the buffer is the producer's own; a tensor is named only where there is none, and it reads all.
    owner = next((s for m, s in named if is_array(m.thing)), None)
    whole = max(m.block.end for m in own)
    owner = owner or next(
        (s for m, s in named if s.nbytes == block.nbytes or (same and _covers(m, own[0].block.first, whole))), None
    )
    belongs = f", which belongs to {owner.kind} `{owner.name}`" if owner else ""
    place = "start at the same address" if same else f"lie in one block of {block.nbytes:,} bytes"
    if same:
        verdict = f"they are one piece of memory {'that was refilled' if refilled else 'under several names'}"
    else:
        verdict = OVERLAPPING if any_in_common([m.block for m in own]) else ALIVE
    if same and owner:
        copy = {"tensor": f"{owner.name}.clone()", "parameter": f"{owner.name}.detach().clone()"}
        remedy = f"Copy at the moment of storing: {copy.get(owner.kind, _copy_of_array(owner))}."
    elif same and not refilled:
        remedy = "clone() each entry that shall be independent."
    elif same:
        remedy = "Copy at the moment of storing: torch.tensor(buf) for an array, buf.clone() for a tensor."
    elif verdict is OVERLAPPING:
        remedy = "clone() each entry that shall be independent, at the moment of storing."
    else:
        remedy = CUT_LOOSE
    if len(own) == 1:
        places = f"{len(together)} {'indices' if ordered else 'names'}"
        kind = "array" if is_array(own[0].thing) else "tensor"
        place, belongs, verdict = f"are one {kind} object", "", f"one {kind} stands under {places}"
        remedy = (
            f"Where the entries shall differ, store {'a copy()' if kind == 'array' else 'a clone()'} in each place."
        )
    every = "Both" if len(together) == 2 else f"All {len(together)}"
    text = f"{every} {what} {place}{belongs}: {verdict}."
    return Sharers(text=text, remedy=remedy, facts=facts, sharers=sharers, together=together)


def _may_be_refilled(m: Met) -> bool:
    """Say whether something may have been written to the memory of an entry: torch counts the writes to its own."""
    if is_array(m.thing) or m.block.foreign:
        return True
    with plain_access():
        return version_of(m.thing) != 0


def _covers(m: Met, first: int, end: int) -> bool:
    """Say whether a thing begins at an address and reads on to another."""
    return m.block.first == first and m.block.end >= end


def _copy_of_array(owner: Sharer) -> str:
    return f"torch.tensor({owner.name})" if owner.kind == "NumPy array" else f"a clone() of the tensor on {owner.name}"


def _tied(
    own: list[Met], group: list[Met], outside: list[Met], what: str, facts: dict[str, Any], together: tuple[str, ...]
) -> Sharers | None:
    """One parameter in several places of a model: tied weights, or one module that was put in several places."""
    if len(together) < 2 or not all(m.parameter for m in group):
        return None
    first, count = group[0], facts["entries"]
    if len({m.block.first for m in group}) > 1:
        return None  # parts of one block, as sharded training makes them
    alike = sum(m.parameter and len(m.names) > 1 for m in own if m not in group)
    more = f"; {alike} more {'parameter stands' if alike == 1 else 'parameters stand'} in several places too" * (
        alike > 0
    )
    names = [f"`{n}`" for n in together[:3]]
    listed = " and ".join(names) if len(together) < 4 else ", ".join(names) + f" and {len(together) - 3} more"
    one = "are one parameter" if len(group) == 1 else "are parameters on one memory"
    return Sharers(
        text=f"{len(together)} of {count} {what} {one}: {listed}{more}; a step of the optimizer changes all of them.",
        remedy="This is intended for tied weights; otherwise build a new module for each place.",
        facts=facts,
        sharers=tuple(sharer_of(m, first) for m in outside),
        together=together,
    )


def _follow(
    own: list[Met], outside: list[Met], named: bool, what: str, facts: dict[str, Any], together: tuple[str, ...]
) -> Sharers:
    """Entries share memory with things outside: case 13, a snapshot that follows the model."""
    twins = [(m, twin) for m in own if (twin := _twin(m, outside)) is not None]
    pairs = [(m, twin) for m, twin in twins if in_common(m.block, twin.block) != 0] or twins
    mine, other = max(pairs, key=lambda pair: (pair[1].thing is not pair[0].thing, pair[1].parameter))
    sharers = tuple(sharer_of(o, m) for m, o in pairs)
    apart = in_common(mine.block, other.block) == 0
    snapshot = other.parameter and not mine.parameter
    if apart:
        verdict = f"they have no element in common, but {ALIVE}"
        remedy = CUT_LOOSE
    elif snapshot:
        verdict = "the snapshot follows every optimizer step"
        remedy = "Take a real copy: copy.deepcopy(model.state_dict()), or clone() each entry."
    else:
        verdict = "a write to one is seen through the other"
        remedy = "clone() the entries that shall be independent, or copy.deepcopy the whole."
    count = facts["entries"]
    more = f" ({len(pairs)} of {count} {what} share memory in this way)" if count > 1 else ""
    here = f"`{mine.names[0]}`" if named else f"entry `{mine.names[0]}`"
    theirs = other.names[0] if other.names[0] == NAMELESS else f"`{other.names[0]}`"
    link = "is the same tensor object as" if other.thing is mine.thing else "shares storage with"
    return Sharers(
        text=f"{here} {link} {theirs}{more}: {verdict}.",
        remedy=remedy,
        facts=facts | {"pairs": len(pairs)},
        sharers=sharers,
        together=together,
    )


def _twin(m: Met, outside: list[Met]) -> Met | None:
    """Return the thing outside that stands for this entry: rather another tensor than itself, rather a parameter."""
    near = [o for o in outside if o.block.same_memory(m.block)]
    near.sort(key=lambda o: (o.thing is not m.thing, o.parameter, o.block.first == m.block.first), reverse=True)
    reads = (o for o in near[:MOST_COMPARED] if in_common(o.block, m.block) != 0)
    return next(reads, near[0] if near else None)
