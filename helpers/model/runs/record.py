"""A record of the reader's run: every torch call, which tensors it read, made and wrote, and under which mode.

A gradient goes missing at one call. When the run is over that call has left no trace in any tensor, so the
run is watched (`Recorder`), and what happened is kept as plain data (`Record`): numbers in place of tensors.
Nothing of the reader's is kept alive, and no result changes.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from helpers.model.adapter import next_sequence_number, plain_access, sequence_number, storage_key, version_of
from helpers.model.owners import local_names
from helpers.model.source import reader_frame
from helpers.model.watch import READER, Call, Watch, tensors_in

# Calls that only ask, or whose result has nothing of the input but its shape.
_ASKS = frozenset({
    "size", "dim", "shape", "ndim", "dtype", "device", "layout", "is_leaf", "requires_grad", "grad_fn", "numel",
    "nelement", "element_size", "stride", "storage_offset", "data_ptr", "is_contiguous", "is_floating_point",
    "is_complex", "is_sparse", "names", "itemsize", "nbytes", "untyped_storage", "zeros_like", "ones_like",
    "empty_like", "full_like", "rand_like", "randn_like", "new_zeros", "new_ones", "new_empty", "new_full",
    "__len__", "__repr__", "__format__", "__hash__", "register_hook", "retain_grad", "is_inference",
})  # fmt: skip
# Calls that hand the numbers to Python or NumPy.
EXITS = frozenset(["item", "tolist", "numpy", "__float__", "__int__", "__complex__", "__index__", "__array__"])


@dataclass
class Seen:
    """What was known of a tensor when a call last gave or took it.

    `node` is the name of its grad_fn, or "", and `sequence` that node's number in the order of the forward
    run. `made` is the number of the call that made it, None if it came from elsewhere. `text` is the reader's
    code for it where it was an argument, such as "h".
    """

    number: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool
    is_leaf: bool
    node: str
    sequence: int | None
    inference: bool
    made: int | None = None
    text: str = ""


@dataclass(frozen=True)
class Write:
    """A call raised the version of a tensor. `storage` is an address: comparable while that storage lives."""

    tensor: int
    storage: int
    before: int
    after: int


@dataclass(frozen=True)
class Event:
    """One torch call. `inputs` and `outputs` are numbers of tensors; `grad_mode` and `inference` the modes it ran in.

    `kept` are the inputs that required grad when the call began. The nodes that it made have sequence numbers from
    `first` up to, without, `last`.
    """

    number: int
    call: Call
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    kept: tuple[int, ...]
    grad_mode: bool
    inference: bool
    first: int
    last: int
    writes: tuple[Write, ...] = ()

    @property
    def name(self) -> str:
        return self.call.name


@dataclass
class Record:
    """All calls of one run, in order, and all tensors by number."""

    events: list[Event] = field(default_factory=list)
    tensors: list[Seen] = field(default_factory=list)
    _makers: dict[int, list[Event]] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Add the newest call."""
        self.events.append(event)
        for tensor in dict.fromkeys((*event.outputs, *(write.tensor for write in event.writes))):
            self._makers.setdefault(tensor, []).append(event)

    def calls(self, *names: str) -> Iterator[Event]:
        """Yield the calls with one of these names."""
        return (event for event in self.events if event.name in names)

    def maker_of_node(self, sequence: int) -> Event | None:
        """Return the innermost call that made the node with this sequence number."""
        return next((event for event in self.events if event.first <= sequence < event.last), None)

    def makers(self, tensor: int) -> Iterator[Event]:
        """Yield the calls that made a tensor or wrote to it, the newest first."""
        yield from reversed(self._makers.get(tensor, ()))

    def shown(self, tensor: int, otherwise: str = "the tensor") -> str:
        """Return the reader's text for a tensor, in backquotes."""
        seen = self.tensors[tensor]
        if seen.text:
            return f"`{seen.text}`"
        if seen.made is not None and (place := self.events[seen.made].call.place) and place.expression:
            return f"`{place.expression}`"
        return otherwise


class Recorder(Watch):
    """Watches a run and fills `record`. `number(t)` finds a live tensor in it."""

    def __init__(self) -> None:
        super().__init__()
        self.record = Record()
        self._ids: dict[int, tuple[weakref.ref, int]] = {}

    def number(self, t: torch.Tensor) -> int | None:
        """Return the number of a live tensor, None if no call has given or taken it."""
        found = self._ids.get(id(t))
        return found[1] if found and found[0]() is t else None

    def around(self, call: Call, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        if call.name in _ASKS:
            return func(*args, **kwargs)
        with plain_access():
            given = tensors_in((args, kwargs))
            inputs = tuple(self._see(t) for t in given)
            kept = tuple(n for n, t in zip(inputs, given, strict=True) if t.requires_grad)
            versions = [version_of(t) for t in given]
            self._texts(call, args, given)
            modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
            first = next_sequence_number()
        made: list[torch.Tensor] = []
        try:
            result = func(*args, **kwargs)
            made = tensors_in([result])
            return result
        finally:
            with plain_access():
                new = len(self.record.tensors)
                outputs = tuple(self._see(t) for t in made)
                number, last = len(self.record.events), next_sequence_number()
                for output in outputs:
                    if output >= new:
                        self.record.tensors[output].made = number
                writes = tuple(_writes(inputs, given, versions))
                for n, t in zip(inputs, given, strict=True):
                    if any(write.tensor == n for write in writes) or call.name == "requires_grad_":
                        self._update(n, t)
                self.record.add(Event(number, call, inputs, outputs, kept, *modes, first, last, writes))

    def _see(self, t: torch.Tensor) -> int:
        number = self.number(t)
        if number is None:
            number = len(self.record.tensors)
            self.record.tensors.append(_seen(number, t))
            self._ids[id(t)] = weakref.ref(t), number
        return number

    def _update(self, number: int, t: torch.Tensor) -> None:
        old = self.record.tensors[number]
        new = _seen(number, t)
        new.made, new.text = old.made, old.text
        self.record.tensors[number] = new

    def _texts(self, call: Call, args: tuple, given: list[torch.Tensor]) -> None:
        """Note the reader's names for the tensors of a call: a variable of the running code wins over a text."""
        for position, value in enumerate(args):
            if isinstance(value, torch.Tensor) and call.direct:
                text = call.operand(position, "").strip("`")
                seen = self.record.tensors[self.number(value)]
                seen.text = seen.text or text
        unnamed = [t for t in given if not self.record.tensors[self.number(t)].text.isidentifier()]
        frame = reader_frame(sys._getframe(2), READER) if unnamed else None
        for name, value in local_names(frame).items() if frame else ():
            for t in unnamed:
                if value is t and not name.startswith("_"):
                    self.record.tensors[self.number(t)].text = name


def _seen(number: int, t: torch.Tensor) -> Seen:
    node = t.grad_fn
    return Seen(
        number,
        tuple(t.shape),
        t.dtype,
        t.requires_grad,
        t.is_leaf,
        type(node).__name__ if node is not None else "",
        sequence_number(node) if node is not None else None,
        t.is_inference(),
    )


def _writes(numbers: tuple[int, ...], given: list[torch.Tensor], before: list[int | None]) -> Iterator[Write]:
    for number, t, old in zip(numbers, given, before, strict=True):
        new = version_of(t)
        if old is not None and new is not None and new > old and t.layout == torch.strided:
            yield Write(number, storage_key(t), old, new)
