"""A record of the reader's run: every torch call, which tensors it read, made and wrote, and under which mode.

A gradient goes missing at one call. When the run is over that call has left no trace in any tensor, so the
run is watched (`Recorder`), and what happened is kept as plain data (`Record`): numbers in place of tensors.
Nothing of the reader's is kept alive, and no result changes.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from helpers.model.adapter import next_sequence_number, plain_access, sequence_number, storage_key, version_of
from helpers.model.autograd.nodes import grad_fn_of, is_stale_view
from helpers.model.owners import local_names
from helpers.model.source import is_library, reader_frame
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
# Stands for nn.Parameter(t) and Variable(t), which make a leaf on the memory of t: such a call is not seen.
ALIAS = "a new leaf"


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
    function: str = ""  # the custom Function in whose forward it ran

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


class _Before(NamedTuple):
    """What was noted before a call ran; it is dropped when the call is over, as it holds the tensors."""

    given: list[torch.Tensor]
    inputs: tuple[int, ...]
    kept: tuple[int, ...]
    versions: list[int | None]
    modes: tuple[bool, bool]
    first: int
    function: str


class Recorder(Watch):
    """Watches a run and fills `record`. `number(t)` finds a live tensor in it."""

    def __init__(self) -> None:
        super().__init__()
        self.record = Record()
        self._ids: dict[int, tuple[weakref.ref, int]] = {}
        self._storages: dict[int, int] = {}  # the tensor that was made on a memory last, by its address

    def number(self, t: torch.Tensor) -> int | None:
        """Return the number of a live tensor, None if no call has given or taken it."""
        found = self._ids.get(id(t))
        return found[1] if found and found[0]() is t else None

    def around(self, call: Call, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        if call.name in _ASKS:
            return func(*args, **kwargs)
        before, results = None, []
        with self.aside(call), plain_access():
            before = self._before(call, args, kwargs)
        try:
            results.append(func(*args, **kwargs))
            return results[0]
        finally:
            if before is not None:
                with self.aside(call), plain_access():
                    self._after(call, before, tensors_in(results))

    def _before(self, call: Call, args: tuple, kwargs: dict[str, Any]) -> _Before:
        given = tensors_in((args, kwargs))
        inputs = tuple(self._see(t) for t in given)
        kept = tuple(n for n, t in zip(inputs, given, strict=True) if t.requires_grad)
        versions = [version_of(t) for t in given]
        self._texts(call, args, given)
        modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        function = "" if modes[0] else _function_running()
        return _Before(given, inputs, kept, versions, modes, next_sequence_number(), function)

    def _after(self, call: Call, before: _Before, made: list[torch.Tensor]) -> None:
        given, inputs, new = before.given, before.inputs, len(self.record.tensors)
        outputs = tuple(self._see(t, made=True) for t in made)
        number, last = len(self.record.events), next_sequence_number()
        for output in outputs:
            if output >= new:
                self.record.tensors[output].made = number
        writes = tuple(_writes(inputs, given, before.versions))
        for n, t in zip(inputs, given, strict=True):
            if any(write.tensor == n for write in writes) or call.name == "requires_grad_":
                self._update(n, t)
        span = before.first, last, writes, before.function
        self.record.add(Event(number, call, inputs, outputs, before.kept, *before.modes, *span))

    def _see(self, t: torch.Tensor, made: bool = False) -> int:
        """Return the number of a tensor, which is new where no call has given or taken it before."""
        number = self.number(t)
        if number is None:
            number = len(self.record.tensors)
            self.record.tensors.append(_seen(number, t))
            self._ids[id(t)] = weakref.ref(t), number
            if t.layout == torch.strided and not t.is_meta:
                key = storage_key(t)
                if not made and self.record.tensors[number].is_leaf and t.requires_grad and key in self._storages:
                    self._made_unseen(self._storages[key], number)
                if made or key not in self._storages:
                    self._storages[key] = number
        return number

    def _made_unseen(self, source: int, number: int) -> None:
        """Note a new leaf on the memory of a known tensor: no call is seen where `nn.Parameter(t)` makes it."""
        old, new = self.record.tensors[source], self.record.tensors[number]
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            return
        maker = next(self.record.makers(source), None)
        call = Call(ALIAS, maker.call.place if maker else None, 1, False)
        kept = (source,) if old.requires_grad and not old.is_leaf else ()
        modes, now = (torch.is_grad_enabled(), False), next_sequence_number()
        self.record.add(Event(len(self.record.events), call, (source,), (number,), kept, *modes, now, now))

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


_known_forwards: WeakKeyDictionary[CodeType, bool] = WeakKeyDictionary()


def _function_running() -> str:
    """Return the name of the reader's custom Function whose forward is running; from the code of the frames alone."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code is not READER:
        code = frame.f_code
        if code.co_name == "forward" and not is_library(code.co_filename) and _is_of_a_function(code):
            return code.co_qualname.split(".")[-2]
        frame = frame.f_back
    return ""


def _is_of_a_function(code: CodeType) -> bool:
    """Say whether this is the forward of a `torch.autograd.Function`; `apply` itself may leave no frame."""
    if code not in _known_forwards:
        waiting, found = [torch.autograd.Function], False
        while waiting and not found:
            kind = waiting.pop()
            waiting += kind.__subclasses__()
            found = getattr(inspect.unwrap(kind.forward), "__code__", None) is code
        _known_forwards[code] = found and "." in code.co_qualname
    return _known_forwards[code]


def _seen(number: int, t: torch.Tensor) -> Seen:
    node, stale = grad_fn_of(t), is_stale_view(t)
    return Seen(
        number,
        tuple(t.shape),
        t.dtype,
        t.requires_grad,
        not stale and t.is_leaf,
        type(node).__name__ if node is not None else "",
        sequence_number(node) if node is not None else None,
        t.is_inference(),
    )


def _writes(numbers: tuple[int, ...], given: list[torch.Tensor], before: list[int | None]) -> Iterator[Write]:
    for number, t, old in zip(numbers, given, before, strict=True):
        new = version_of(t)
        if old is not None and new is not None and new > old and t.layout == torch.strided:
            yield Write(number, storage_key(t), old, new)
