"""What `find_sharers` says: one sharer as plain values, and the sentences for one tensor and for several."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import torch

from helpers.model.adapter import base_of, plain_access, storage_use_count
from helpers.model.finding import Finding
from helpers.model.memory import Block, Ranges, left_out

NAMELESS = "a tensor without a name here"


@dataclass(frozen=True)
class Sharer:
    """One tensor, array or buffer on the memory in question; plain values, so it keeps nothing alive.

    `name` is how to reach it, `names` every way found. `shape` and `offset` count elements (for an array: the offset
    from its own first element is 0), `nbytes` the bytes of its elements. `relation` says how it is linked.
    """

    name: str
    names: tuple[str, ...]
    kind: str
    relation: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    parameter: bool

    @property
    def shown(self) -> str:
        """The name as it stands in a sentence."""
        return self.name if self.name == NAMELESS else f"`{self.name}`"

    def __str__(self) -> str:
        where = f", storage_offset {self.offset}" if self.offset else ""
        return f"{self.shown} ({self.relation}, shape {self.shape}{where}, {self.nbytes:,} bytes)"


@dataclass(frozen=True, kw_only=True, repr=False)
class Sharers(Finding):
    """Who else lies on the memory of a tensor, or of the tensors in a container.

    `sharers` are the others. `together` are the names of the container's own entries that lie on one
    memory. `unseen` counts owners of a single tensor's storage that no Python object shows, such as
    a graph that saved it.
    """

    sharers: tuple[Sharer, ...] = ()
    together: tuple[str, ...] = ()
    unseen: int = 0


@dataclass(frozen=True)
class Met:
    """A thing that was met, under all its names, with its memory."""

    names: list[str]
    thing: Any
    block: Block
    parameter: bool


def is_array(thing: Any) -> bool:
    return not issubclass(type(thing), torch.Tensor)


def _sharer(m: Met, t: Met | None) -> Sharer:
    if is_array(m.thing):
        kind = "NumPy array" if type(m.thing).__module__.startswith("numpy") else type(m.thing).__name__
        relation, offset = kind, 0
    else:
        kind, offset = "parameter" if m.parameter else "tensor", m.block.offset
        relation = _relation(m, t)
    return Sharer(
        m.names[0], tuple(m.names), kind, relation, m.block.shape, offset, m.block.numel * m.block.itemsize, m.parameter
    )


def _relation(m: Met, t: Met | None) -> str:
    """Say how the tensor `m` is linked to the tensor `t`."""
    if t is None or is_array(t.thing):
        return "tensor"
    if m.thing is t.thing:
        return "the same tensor object"
    if m.block.key != t.block.key:
        return "another storage on the same memory"
    with plain_access():
        bases = base_of(m.thing), base_of(t.thing)
    if bases[0] is t.thing:
        return "a view of it"
    if bases[1] is m.thing:
        return "its base"
    if bases[0] is not None and bases[0] is bases[1]:
        return "a view of the same base"
    return "an alias without a view link, as detach() and state_dict() make"


def single_finding(own: Met, met: list[Met], name: str, everywhere: bool) -> Sharers:
    code = name or "x"
    name = f"`{name}`" if name else ("the array" if is_array(own.thing) else "the tensor")
    others = [m for m in met if m.thing is not own.thing and m.block.same_memory(own.block)]
    sharers = tuple(_sharer(m, own) for m in others)
    unseen = _unseen(own, others) if everywhere else 0
    facts = {"nbytes": own.block.nbytes, "sharers": len(sharers), "unseen": unseen}
    storage = f"{own.block.nbytes:,} bytes of {name}"
    if not sharers:
        hidden = f"; {_owners(unseen)} them alive" if unseen else ""
        text = f"No other name, tensor or array shares the {storage}{hidden}."
        return Sharers(text=text, facts=facts, unseen=unseen)
    shown = ", ".join(str(s) for s in sharers[:3])
    rest = f" and {len(sharers) - 3} more" if len(sharers) > 3 else ""
    parameter = next((s for s in sharers if s.parameter), None)
    if parameter and not own.parameter:
        effect = f"every optimizer step that writes {parameter.shown} changes {name} too"
    else:
        effect = "an in-place write to one is seen through all"
    hidden = f"; {_owners(unseen)} them alive too" if unseen else ""
    return Sharers(
        text=f"The {storage} are shared with {shown}{rest}: {effect}{hidden}.",
        remedy=f"{code}.{'copy' if is_array(own.thing) else 'clone'}() has memory of its own.",
        facts=facts,
        sharers=sharers,
        unseen=unseen,
    )


def _owners(count: int) -> str:
    owner, keep = ("owner", "keeps") if count == 1 else ("owners", "keep")
    return f"{count} more {owner} that no Python name shows, such as a graph that saved it, {keep}"


def _unseen(own: Met, others: list[Met]) -> int:
    """Count the owners of the storage beyond the tensors that were met."""
    if is_array(own.thing):
        return 0
    known = 1 + sum(not is_array(m.thing) and m.block.key == own.block.key for m in others)
    return max(0, storage_use_count(own.thing) - known)


def several_finding(own: list[Met], met: list[Met], name: str, t: Any, skipped: dict[str, torch.Tensor]) -> Sharers:
    """Say what the entries of a container share with each other and with what lies outside it.

    `skipped` are its tensors without memory, by name.
    """
    found = _several(own, met, name, t)
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
        text = f"{len(together)} of {count} {what} share one memory: {names}."
        return Sharers(text=text, remedy="clone() the entries that shall differ.", facts=facts, together=together)
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
    place = "start at the same address" if same else f"lie in one block of {own[0].block.nbytes:,} bytes"
    sharers = tuple(_sharer(m, own[0]) for m in outside)
    # The array or the buffer is the producer's own; a tensor is named only where there is none.
    owner = next((s for s in sharers if s.kind not in ("tensor", "parameter")), next(iter(sharers), None))
    belongs = f", which belongs to {owner.kind} `{owner.name}`" if owner and owner.name != NAMELESS else ""
    verdict = "they are one piece of memory that was refilled" if same else "an entry kept keeps the whole block alive"
    if same and not ordered:
        verdict = "they are one piece of memory under several names"
    if same and owner and belongs:
        copy = {"tensor": f"{owner.name}.clone()", "parameter": f"{owner.name}.detach().clone()"}
        remedy = f"Copy at the moment of storing: {copy.get(owner.kind, _copy_of_array(owner))}."
    elif same:
        remedy = "Copy at the moment of storing: torch.tensor(buf) for an array, buf.clone() for a tensor."
    else:
        remedy = "clone() an entry to cut it loose."
    if len(own) == 1:
        places = f"{len(together)} {'indices' if ordered else 'names'}"
        kind = "array" if is_array(own[0].thing) else "tensor"
        place, belongs, verdict = f"are one {kind} object", "", f"one {kind} stands under {places}"
        remedy = (
            f"Where the entries shall differ, store {'a copy()' if kind == 'array' else 'a clone()'} in each place."
        )
    text = f"All {len(together)} {what} {place}{belongs}: {verdict}."
    return Sharers(text=text, remedy=remedy, facts=facts, sharers=sharers, together=together)


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
        sharers=tuple(_sharer(m, first) for m in outside),
        together=together,
    )


def _follow(
    own: list[Met], outside: list[Met], named: bool, what: str, facts: dict[str, Any], together: tuple[str, ...]
) -> Sharers:
    """Entries share memory with things outside: case 13, a snapshot that follows the model."""
    pairs = [(m, twin) for m in own if (twin := _twin(m, outside)) is not None]
    mine, other = max(pairs, key=lambda pair: (pair[1].thing is not pair[0].thing, pair[1].parameter))
    sharers = tuple(_sharer(o, m) for m, o in pairs)
    snapshot = other.parameter and not mine.parameter
    if snapshot:
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
    return max(near, key=lambda o: (o.thing is not m.thing, o.parameter, o.block.first == m.block.first), default=None)
