"""Which in-place writes went into a temporary that nothing read? `find_lost_writes`.

`t[mask][:, 0] = 1.0` writes, but not to `t`: the mask made a new storage, the write went there, and the
storage was freed at the end of the line. To see that, every operator below autograd is watched
(`TorchDispatchMode`): which storage it makes, writes and reads. A write is lost when its storage was made
by copying or computing, nothing read it after the write, and it is gone when the function has returned.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from os.path import dirname, join
from typing import Any

import torch

from helpers.model.adapter import (
    dispatch_mode,
    operator_arguments,
    operator_name,
    storage_key,
    weak_storage,
)
from helpers.model.finding import Finding
from helpers.model.layout import Layout
from helpers.model.memory import block_of, layout_of
from helpers.model.source import reader_frame
from helpers.model.watch import (
    READER,
    Call,
    Watch,
    name_of,
    raised_finding,
    require_callable,
    run_reader,
    tensors_in,
    uncompiled,
    with_unjudged,
)
from helpers.model.writesources import Argument, Source, Sources, arguments_of
from helpers.model.writewords import LITERAL, RESHAPERS, cause_of, indexing_remedy, why_reshape_copied

# Calls that hand the memory to code that torch does not see.
_ESCAPES = frozenset({"numpy", "tolist", "data_ptr", "untyped_storage", "storage", "_typed_storage"}) | {
    "__array__", "__dlpack__", "__cuda_array_interface__", "__reduce_ex__", "share_memory_"
}  # fmt: skip
_EMPTY = ("aten::new_", "aten::empty_", "aten::zeros_", "aten::ones_", "aten::full_", "aten::rand")  # no source
# The functions and modules of torch.nn: what the reader gives to one of these, the reader wants it to work on.
_NN = tuple(join(dirname(torch.nn.__file__), part) for part in ("init.py", "functional.py", join("modules", "")))


@dataclass(frozen=True)
class LostWrite:
    """One write that nothing read: where it was written, and the call that made the temporary.

    `times` counts how often this line did it. `cause` says why a new storage was made, of `nbytes` bytes.
    `source` is the reader's text for the tensor that the temporary was made from (empty where none can be meant),
    `version` that tensor's version counter at the write (None if unknown), and `touched` whether anything in the
    whole run changed it in place.
    """

    write: Call
    maker: Call
    cause: str
    source: str
    version: int | None
    touched: bool
    nbytes: int
    times: int = 1


@dataclass(frozen=True, kw_only=True, repr=False)
class WritesFinding(Finding):
    """The writes that were lost, in the order in which they happened."""

    lost: tuple[LostWrite, ...] = ()


@dataclass
class _Origin:
    """How a temporary came to be."""

    call: Call
    cause: str
    remedy: str
    source: Source | None
    nbytes: int
    one_dimension: bool  # made by an index that stands for one dimension


@dataclass
class _Temporary:
    reference: Any  # does not keep the storage alive, but keeps its number from being used again
    origin: _Origin
    pending: list[LostWrite] = field(default_factory=list)
    escaped: bool = False


class _Recorder(Watch):
    """Notes, for every storage made while it is on, who made it, who wrote to it and who read it."""

    def __init__(self) -> None:
        super().__init__()
        self.temporaries: dict[int, _Temporary] = {}
        self.call: Call | None = None
        self.sources = Sources()
        self._arguments: list[Argument] = []
        self._meant = self._given = self._one_dimension = False
        self._unsure: set[int] = set()  # written by the running call, which did not say so by its name

    def around(self, call: Call, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        before = self.call, self._arguments, self._meant, self._given, self._one_dimension, self._unsure
        self.call, self._arguments = call, []
        # What library code, the backward pass or a batch norm write to temporaries on the way is not meant.
        self._meant = _is_write(call.name) or "out" in kwargs
        self._given = self._one_dimension = False
        self._unsure, result, layout = set(), None, None
        with self.aside(call):
            self._given = not call.direct and call.place is not None and _called_through_nn()
            self._one_dimension = call.name == "__getitem__" and len(args) > 1 and _is_one_dimension(args[1])
            layout = layout_of(args[0]) if args and call.name in RESHAPERS else None
            self._arguments = arguments_of(call, args, kwargs)
            for t in tensors_in(args) if call.name in _ESCAPES else ():
                self._escape(t)
        try:
            result = func(*args, **kwargs)
            with self.aside(call):
                self._explain_reshape(call, layout, result)
            return result
        finally:
            with self.aside(call):
                self._drop_unsure(call, result)
            self.call, self._arguments, self._meant, self._given, self._one_dimension, self._unsure = before

    def _explain_reshape(self, call: Call, layout: Layout | None, result: Any) -> None:
        """Say why a reshape copied, where it did and where both sides have strides."""
        if layout is None or layout_of(result) is None:
            return
        known = self.temporaries.get(storage_key(result))
        if known is not None and known.origin.call is call:
            known.origin.cause = why_reshape_copied(call, layout, tuple(result.shape))

    def _drop_unsure(self, call: Call, result: Any) -> None:
        """Forget the writes of a call that does not return what it wrote: `batch_norm` and its running statistics."""
        for key in self._unsure.difference(_keys(result)):
            pending = self.temporaries[key].pending
            pending[:] = [write for write in pending if write.write is not call]

    def _escape(self, t: torch.Tensor) -> None:
        if block_of(t) is not None and (known := self.temporaries.get(storage_key(t))):
            known.escaped = True

    def operator(self, func: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> None:
        """Note what one operator did: `func` is the overload, whose schema says which arguments it writes."""
        written, read = [], []
        for value, writes in operator_arguments(func, args, kwargs):
            (written if writes else read).extend(_keys(value))
        self.sources.written.update(written)
        made = _keys(result)
        for key in written:
            self._write(key)
        for key in read:
            # A view hands the storage on and reads nothing.
            if key in self.temporaries and key not in made and key not in written:
                self.temporaries[key].pending.clear()
        literal = operator_name(func) == LITERAL
        if written or self.call is None:
            return
        empty = not (read or literal) or operator_name(func).startswith(_EMPTY)
        for t in tensors_in([result]):
            key = storage_key(t) if block_of(t) is not None else None
            if key is not None and (literal or key not in read) and key not in self.temporaries:
                source = self.sources.add(t, self.call, self._arguments, func)
                if not empty:
                    self._born(t, key, self.call, func, source)

    def _write(self, key: int) -> None:
        known = self.temporaries.get(key)
        if known is None or self.call is None or known.origin.call is self.call:
            return
        origin = known.origin
        # A module or a function of torch.nn may write to what the reader made, not to what it made itself.
        if not (self.call.direct or (self._given and origin.call.direct)):
            return
        if not self._meant:
            self._unsure.add(key)
        # A source that is gone was a temporary too: nobody can have meant it.
        source = None if origin.source is None or origin.source.storage.expired() else origin.source
        text, version = (source.text, source.version_now()) if source is not None else ("", None)
        known.pending.append(LostWrite(self.call, origin.call, origin.cause, text, version, True, origin.nbytes))

    def _born(self, t: torch.Tensor, key: int, call: Call, func: Any, source: Source | None) -> None:
        cause, remedy = cause_of(call, func)
        nbytes = t.untyped_storage().nbytes()
        self.temporaries[key] = _Temporary(
            weak_storage(t), _Origin(call, cause, remedy, source, nbytes, self._one_dimension)
        )


class _Operators(dispatch_mode()):
    """Reports every operator below autograd to the recorder."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        with self._recorder.aside(self._recorder.call):
            self._recorder.operator(func, args, kwargs or {}, result)
        return result


def _keys(value: Any) -> list[int]:
    return [storage_key(t) for t in tensors_in([value]) if block_of(t) is not None]


def _is_write(name: str) -> bool:
    """Say whether a call of this name writes in place: `add_`, `t[0] = …`, `+=`."""
    return name == "__setitem__" or name.startswith("__i") or (name.endswith("_") and not name.endswith("__"))


def _called_through_nn() -> bool:
    """Say whether the reader's code called something of torch.nn, which now makes the torch call."""
    frame = sys._getframe(1)
    reader = reader_frame(frame, READER)
    while frame.f_back is not None and frame.f_back is not reader:
        frame = frame.f_back
    return frame.f_code.co_filename.startswith(_NN)


def _is_one_dimension(index: Any) -> bool:
    """Say whether an index stands for exactly one dimension of what it selects: a mask, or one row of numbers."""
    if isinstance(index, list):
        return all(isinstance(i, int) for i in index)
    return isinstance(index, torch.Tensor) and (index.dtype == torch.bool or index.ndim == 1)


def find_lost_writes(fn: Callable, *args: Any, **kwargs: Any) -> WritesFinding:
    """Run `fn(*args, **kwargs)` once and find the in-place writes whose result nothing could ever read.

    A write to something that is read later, returned, or kept anywhere is not reported. What was
    compiled runs as it was written. Raises HelperError when `fn` is not a function.
    """
    require_callable(fn, "find_lost_writes")
    recorder = _Recorder()
    result = None
    try:
        with uncompiled(), recorder, _Operators(recorder):
            result = run_reader(fn, args, kwargs)
    except Exception as error:  # the reader's own error is part of the answer
        return raised_finding(fn, error, WritesFinding)
    pending = [t for t in recorder.temporaries.values() if t.pending and not t.escaped]
    if not all(t.reference.expired() for t in pending):
        gc.collect()  # a temporary in a cycle of references is as lost as any
    gone = [t for t in pending if t.reference.expired()]
    del result
    return _finding(fn, gone, recorder.sources, recorder.unjudged)


def _finding(fn: Callable, gone: list[_Temporary], sources: Sources, unjudged: list[str]) -> WritesFinding:
    grouped: dict[Any, tuple[LostWrite, str]] = {}
    for temporary in gone:
        write = temporary.pending[-1]
        key = (write.write, write.maker)
        earlier = grouped[key][0] if key in grouped else replace(write, times=0, touched=False)
        source = temporary.origin.source
        touched = earlier.touched or source is None or sources.touched(source, write.version)
        write = replace(write, times=earlier.times + 1, touched=touched)
        grouped[key] = write, _remedy(temporary.origin, write)
    lost = tuple(write for write, _ in grouped.values())
    facts = {"lost": sum(w.times for w in lost)}
    if not lost:
        text = f"{name_of(fn)} lost no write: all that it wrote was read, returned or kept."
        return WritesFinding(text=with_unjudged(text, unjudged), facts=facts)
    first, remedy = next(iter(grouped.values()))
    facts |= {"version": first.version, "touched": first.touched}
    others = f"; {len(lost) - 1} more lines lose a write in this way" if len(lost) > 1 else ""
    if len(lost) == 2:
        others = f"; so does the write {lost[1].write.at}"
    text = with_unjudged(f"{_sentence(first)}{others}.", unjudged)
    return WritesFinding(text=text, remedy=remedy, facts=facts, lost=lost)


def _remedy(origin: _Origin, write: LostWrite) -> str:
    return origin.remedy or indexing_remedy(origin.call, write.write, origin.one_dimension)


def _sentence(lost: LostWrite) -> str:
    often = f" {lost.times} times" if lost.times > 1 else ""
    sentence = f"{lost.cause}; the write {lost.write.at} went to that temporary{often} and nothing read it"
    if lost.source and lost.version is not None and not lost.touched:
        if lost.version == 0:
            return f"{sentence}; {lost.source} was never touched (version still 0)"
        return f"{sentence}; nothing in this run wrote to {lost.source} (version still {lost.version})"
    if lost.source:
        return f"{sentence}; it never reached {lost.source}"
    return sentence
