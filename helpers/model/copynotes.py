"""What `find_copies` knows of one call before it judges: the call's tensors, and the copies that the profiler saw.

Everything here is a plain value. A kept tensor would change what lives.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from helpers.model.adapter import EventTensor, event_tensors, freed_allocation, plain_access
from helpers.model.layout import Layout
from helpers.model.memory import block_of
from helpers.model.watch import Call, tensors_in

LABEL = "course:call:"
_COPIERS = frozenset({"aten::clone", "aten::contiguous", "aten::_to_copy"})
GRAD = "torch::autograd::AccumulateGrad"  # the step of a backward pass that fills a `.grad`
_NODE = re.compile(r"\w*Backward\d*")  # the event of a backward node: its tensors are the gradients that reach it
# Steps of an operator that are no operators to name in a sentence.
_STEPS = frozenset({"aten::to", "aten::reshape", "aten::resolve_conj", "aten::resolve_neg"})


@dataclass(frozen=True)
class Moved:
    """One copy that the profiler saw: what was written and what was read.

    `bare`: no `clone`, `contiguous` or `_to_copy` made it, so an operator filled memory of its own choice. `operator`
    names the innermost operator around it. `lazy` says that the operator resolved a conjugate or negative view. In a
    backward pass `backward` is set, and `gradient` where what was read is a gradient that reached the node.
    """

    written: EventTensor
    read: EventTensor
    bare: bool
    operator: str
    lazy: bool
    backward: bool
    gradient: bool


@dataclass
class Note:
    """What is known of one call: plain values only.

    `given` holds, by the address of its storage, what each tensor of the call is: "conj", "neg" or "". `made` holds the
    bytes of each storage of the result. `dtypes` are those of its tensors with dimensions; `expanded` says that one of
    them has stride 0. `lost` is the memory format that a copy of views lost, and the strides of its result. `parts`
    holds the storage and the layout of each tensor that is joined. `freed` names the pieces of memory that the call
    gave back, `conjugated` those of which it made a conjugate view on the way.
    """

    call: Call
    layout: Layout | None
    result: Layout | None = None
    moved: bool = False
    same: bool = False
    view: bool = False
    lost: tuple[str, tuple[int, ...]] | None = None
    parts: list[tuple[int, Layout] | None] = field(default_factory=list)
    given: dict[int, str] = field(default_factory=dict)
    dtypes: set[torch.dtype] = field(default_factory=set)
    names_dtype: bool = False
    expanded: bool = False
    autocast: bool = False
    made: dict[int, int] = field(default_factory=dict)
    copies: list[Moved] = field(default_factory=list)
    freed: set[int] = field(default_factory=set)
    conjugated: set[int | None] = field(default_factory=set)

    def read_arguments(self, args: tuple, kwargs: dict[str, Any]) -> None:
        """Note the tensors that the call is given."""
        self.names_dtype = isinstance(kwargs.get("dtype"), torch.dtype)
        for t in tensors_in([*args, *kwargs.values()]):
            if (block := block_of(t)) is None:
                continue
            with plain_access():
                lazy = "conj" if t.is_conj() else "neg" if t.is_neg() else ""
                device = t.device.type
                self.autocast |= torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
            self.given[block.start] = self.given.get(block.start) or lazy
            self.expanded |= bool(block.zero_strides)
            if block.shape:
                self.dtypes.add(t.dtype)

    def read_result(self, result: Any) -> None:
        """Note the storages of what the call returned."""
        blocks = [block_of(t) for t in tensors_in([result])]
        self.made = {b.start: b.nbytes for b in blocks if b is not None and b.start not in self.given}

    def is_result(self, moved: Moved) -> bool:
        """Say whether the copy was written to memory that the call returned."""
        start = moved.written.start
        return start != 0 and start in self.made and moved.written.allocation not in self.freed

    def is_given(self, moved: Moved) -> bool:
        """Say whether the copy read a tensor that the call was given, and not one made on the way."""
        return moved.read.start in self.given


@dataclass(frozen=True)
class _Inside:
    """Which events lie around one: the number of the call, and what `Moved` says of it."""

    number: int | None = None
    copier: bool = False
    operator: str = ""
    lazy: bool = False
    backward: bool = False
    gradients: frozenset[int | None] = frozenset()


def read_events(events: list[Any], notes: list[Note]) -> None:
    """Give each note the copies and the freed memory of the events under its label."""
    for event in events:
        _read(event, notes, _Inside())


def _read(event: Any, notes: list[Note], inside: _Inside) -> None:
    if event.name.startswith(LABEL):
        inside = _Inside(int(event.name.removeprefix(LABEL)))
    note = notes[inside.number] if inside.number is not None else None
    if note is not None and (freed := freed_allocation(event)) is not None:
        note.freed.add(freed)
    if note is not None and event.name == "aten::_conj":
        note.conjugated.update(t.allocation for t in event_tensors(event))
    if note is not None and event.name == "aten::copy_" and len(tensors := event_tensors(event)) >= 2:
        written, read = tensors[:2]
        gradient = read.allocation is not None and read.allocation in inside.gradients
        note.copies.append(
            Moved(written, read, not inside.copier, inside.operator, inside.lazy, inside.backward, gradient)
        )
        if inside.copier:  # what a copy does inside is one copy
            return
    inside = _around(event, inside)
    for child in event.children:
        _read(child, notes, inside)


def _around(event: Any, inside: _Inside) -> _Inside:
    """Return what lies around the children of an event."""
    name = event.name
    if name.startswith("autograd::engine"):
        return replace(inside, backward=True)
    if _NODE.fullmatch(name):
        return replace(inside, gradients=frozenset(t.allocation for t in event_tensors(event)))
    if name in _COPIERS:
        return replace(inside, copier=True)
    if name in ("aten::resolve_conj", "aten::resolve_neg"):
        return replace(inside, lazy=True)
    if (name.startswith("aten::") or name == GRAD) and name not in _STEPS and not inside.copier:
        return replace(inside, operator=name.removeprefix("aten::"))
    return inside
