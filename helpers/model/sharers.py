"""What `find_sharers` says of one tensor, and the plain values in which it tells of sharers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from helpers.model.adapter import base_of, plain_access, storage_use_count
from helpers.model.common import in_common
from helpers.model.finding import Finding
from helpers.model.memory import Block
from helpers.model.words import listed, sentence_case

NAMELESS = "a tensor without a name here"
OPTIMIZED = ".param_groups["  # stands in the name of what an optimizer updates


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

    `sharers` are the others. `also` are further names of a single tensor itself. `together` are the names of
    the container's own entries that lie on one memory. `unseen` counts owners of a single tensor's storage that no
    Python object shows, such as a graph that saved it.
    """

    sharers: tuple[Sharer, ...] = ()
    also: tuple[str, ...] = ()
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


def sharer_of(m: Met, t: Met) -> Sharer:
    if is_array(m.thing):
        kind = "NumPy array" if type(m.thing).__module__.startswith("numpy") else type(m.thing).__name__
        relation, offset = kind, 0
    else:
        kind, offset = "parameter" if m.parameter else "tensor", m.block.offset
        relation = _relation(m, t)
    return Sharer(
        m.names[0], tuple(m.names), kind, relation, m.block.shape, offset, _elements_nbytes(m.block), m.parameter
    )


def _relation(m: Met, t: Met) -> str:
    """Say how the tensor `m` is linked to the tensor `t`."""
    if is_array(t.thing):
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
    """Say who reads what one tensor reads, who only lies on its storage, and under which names it stands itself."""
    code, kind = name or "x", "array" if is_array(own.thing) else "tensor"
    shown = f"`{name}`" if name else f"the {kind}"
    others = [m for m in met if m.thing is not own.thing and m.block.same_memory(own.block)]
    common = [in_common(own.block, m.block) for m in others]
    sharers = tuple(sharer_of(m, own) for m in others)
    readers = [s for s, shared in zip(sharers, common, strict=True) if shared != 0]
    beside = [s for s, shared in zip(sharers, common, strict=True) if shared == 0]
    also = tuple(
        n for m in met if m.thing is own.thing for n in m.names if n != name and not (everywhere and is_record(n))
    )
    unseen = _unseen(own, others) if everywhere else 0
    hidden = f"; {_owners(unseen)} them alive{' too' if sharers else ''}" if unseen else ""
    if own.block.foreign and everywhere and not any(is_array(m.thing) for m in others):
        hidden += (
            "; torch did not allocate this memory, so something without a name here, such as a NumPy array, owns it"
        )

    nbytes = _elements_nbytes(own.block)
    whole = own.block.nbytes == nbytes
    storage = f"the storage of {shown} ({own.block.nbytes:,} bytes)"
    memory = f"the {nbytes:,} bytes of {shown}" if whole else storage
    one = f"{listed([shown, *(f'`{n}`' for n in also[:2])])} are one {kind}; " if also else ""
    if readers:
        parameter = next((s for s in readers if s.parameter), None)
        if parameter and not own.parameter:
            effect = f"every optimizer step that writes {parameter.shown} changes {shown} too"
        elif all(shared == nbytes == s.nbytes for s, shared in zip(sharers, common, strict=True)):
            effect = "an in-place write to one is seen through all"
        else:
            effect = "an in-place write to an element is seen through each of them that reads it"
        apart = f"; it also holds {_named(beside)}, with no element in common" if beside else ""
        text = f"{memory} {'are' if whole else 'is'} shared with {_named(readers)}: {effect}{apart}{hidden}."
    elif beside:
        text = (
            f"{storage} also holds {_named(beside)}, with no element in common: a write to one is not seen through "
            f"another, and each keeps the whole storage alive{hidden}."
        )
    else:
        nothing = f"no other {'' if also else 'name, '}tensor or array"
        if not everywhere:
            itself = any(m.thing is own.thing for m in met)
            nothing = f"nothing {'else ' if itself else ''}in `among`"
        text = f"{nothing} shares {memory}{hidden}."
    return Sharers(
        text=sentence_case(one + text),
        remedy=f"{code}.{'copy' if kind == 'array' else 'clone'}() has memory of its own." if sharers else "",
        facts={"nbytes": own.block.nbytes, "sharers": len(sharers), "unseen": unseen},
        sharers=sharers,
        also=also,
        unseen=unseen,
    )


def _elements_nbytes(block: Block) -> int:
    return block.numel * block.itemsize


def _named(sharers: Sequence[Sharer]) -> str:
    """Return the first three in words."""
    return ", ".join(str(s) for s in sharers[:3]) + (f" and {len(sharers) - 3} more" if len(sharers) > 3 else "")


def is_record(name: str) -> bool:
    """Say whether a name is one that nobody chose: what a notebook recorded, or the list of an optimizer."""
    return name.startswith("Out[") or OPTIMIZED in name


def _owners(count: int) -> str:
    owner, keep = ("owner", "keeps") if count == 1 else ("owners", "keep")
    return f"{count} more {owner} that no Python name shows, such as a graph that saved it, {keep}"


def _unseen(own: Met, others: list[Met]) -> int:
    """Count the owners of the storage beyond the tensors that were met."""
    if is_array(own.thing):
        return 0
    known = 1 + sum(not is_array(m.thing) and m.block.key == own.block.key for m in others)
    with plain_access():
        return max(0, storage_use_count(own.thing) - known)
