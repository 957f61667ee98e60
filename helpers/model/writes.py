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
from helpers.model.layout import Layout
from helpers.model.memory import Block, block_of, layout_of, memory_of
from helpers.model.source import reader_frame
from helpers.model.watch import (
    READER,
    Call,
    Watch,
    raised_finding,
    require_callable,
    run_reader,
    tensors_in,
    uncompiled,
)
from helpers.model.writebytes import Snapshot
from helpers.model.writefinding import LostWrite, Origin, Temporary, WritesFinding, writes_finding
from helpers.model.writesources import Argument, Source, Sources, arguments_of
from helpers.model.writewords import (
    LITERAL,
    RESHAPERS,
    cause_of,
    copied,
    is_one_dimension,
    is_write,
    what_changed,
    why_reshape_copied,
)

# Calls that hand the memory to code that torch does not see.
_ESCAPES = frozenset({"numpy", "tolist", "data_ptr", "untyped_storage", "storage", "_typed_storage"}) | {
    "__array__", "__dlpack__", "__cuda_array_interface__", "__reduce_ex__", "share_memory_", "__repr__", "__format__"
}  # fmt: skip
_SHARERS = frozenset({"as_tensor", "asarray"})  # they take the memory of an array where they can
_EMPTY = ("aten::new_", "aten::empty_", "aten::zeros_", "aten::ones_", "aten::full_", "aten::rand")  # no source
# The functions and modules of torch.nn: what the reader gives to one of these, the reader wants it to work on.
_NN = tuple(join(dirname(torch.nn.__file__), part) for part in ("init.py", "functional.py", join("modules", "")))


class _Recorder(Watch):
    """Notes, for every storage made while it is on, who made it, who wrote to it and who read it."""

    def __init__(self, before: Snapshot) -> None:
        super().__init__()
        self.temporaries: dict[int, Temporary] = {}
        self.call: Call | None = None
        self.sources = Sources(before)
        self._arguments: list[Argument] = []
        self._arrays: list[Block] = []
        self._meant = self._given = self._one_dimension = False
        self._unsure: set[int] = set()  # written by the running call, which did not say so by its name

    def around(self, call: Call, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        before = self.call, self._arguments, self._meant, self._given, self._one_dimension, self._unsure
        self.call, self._arguments = call, []
        # What library code, the backward pass or a batch norm write to temporaries on the way is not meant.
        self._meant = is_write(call.name) or "out" in kwargs
        self._given = self._one_dimension = False
        self._arrays = []
        self._unsure, result, layout = set(), None, None
        with self.aside(call):
            self._given = not call.direct and call.place is not None and _called_through_nn()
            self._one_dimension = call.name == "__getitem__" and len(args) > 1 and is_one_dimension(args[1])
            layout = layout_of(args[0]) if args and call.name in RESHAPERS else None
            self._arguments = arguments_of(call, args, kwargs)
            if call.name in _SHARERS:
                given = [memory_of(a) for a in (*args, *kwargs.values()) if not isinstance(a, torch.Tensor)]
                self._arrays = [block for block in given if block is not None]
            for t in tensors_in(args) if call.name in _ESCAPES else ():
                self._escape(t)
        try:
            result = func(*args, **kwargs)
            with self.aside(call):
                self._explain_reshape(call, layout, result)
                if call.name == "__deepcopy__":
                    self._note_deepcopy(call, func, result)
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

    def _note_deepcopy(self, call: Call, func: Any, result: torch.Tensor) -> None:
        """Note what `deepcopy` made: it copies a storage through no operator."""
        if block_of(result) is not None and storage_key(result) not in self.temporaries:
            self.sources.add(result, call, [], func)
            self._born(result, storage_key(result), copied(call), None)

    def _drop_unsure(self, call: Call, result: Any) -> None:
        """Forget the writes of a call that does not return what it wrote: `batch_norm` and its running statistics."""
        for key in self._unsure.difference(_keys(result)):
            pending = self.temporaries[key].pending
            pending[:] = [write for write in pending if write.write is not call]

    def _escape(self, t: torch.Tensor) -> None:
        if block_of(t) is None:
            return
        self.sources.escaped.add(storage_key(t))
        if known := self.temporaries.get(storage_key(t)):
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
            if literal and self._shares_an_array(t):
                continue
            if key is not None and (literal or key not in read) and key not in self.temporaries:
                source = self.sources.add(t, self.call, self._arguments, func)
                if not empty:
                    changed = what_changed(args[0], t) if args and operator_name(func) == "aten::_to_copy" else ""
                    self._born(t, key, cause_of(self.call, func, changed), source)

    def _shares_an_array(self, t: torch.Tensor) -> bool:
        """Say whether a tensor lies in the memory of an array that the running call was given."""
        block = block_of(t)
        return block is not None and any(block.same_memory(array) for array in self._arrays)

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

    def _born(self, t: torch.Tensor, key: int, cause: tuple[str, str], source: Source | None) -> None:
        nbytes = t.untyped_storage().nbytes()
        origin = Origin(self.call, *cause, source, nbytes, self._one_dimension)
        self.temporaries[key] = Temporary(weak_storage(t), origin)


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


def _called_through_nn() -> bool:
    """Say whether the reader's code called something of torch.nn, which now makes the torch call."""
    frame = sys._getframe(1)
    reader = reader_frame(frame, READER)
    while frame.f_back is not None and frame.f_back is not reader:
        frame = frame.f_back
    return frame.f_code.co_filename.startswith(_NN)


def find_lost_writes(fn: Callable, *args: Any, **kwargs: Any) -> WritesFinding:
    """Run `fn(*args, **kwargs)` once and find the in-place writes whose result nothing could ever read.

    A write to something that is read later, returned, or kept anywhere is not reported, and neither is one that no
    operator of torch makes, such as one through NumPy. The bytes of the tensors that `fn` is given or names are copied
    at the start, up to 64 MiB, to say whether they were touched. What was compiled runs as it was written.
    Raises HelperError when `fn` is not a function.
    """
    require_callable(fn, "find_lost_writes")
    recorder = _Recorder(Snapshot(fn, args, kwargs))
    result = None
    try:
        with uncompiled(), recorder, _Operators(recorder):
            result = run_reader(fn, args, kwargs)
    except (Exception, SystemExit) as error:  # the reader's own error is part of the answer
        return raised_finding(fn, error, WritesFinding)
    pending = [t for t in recorder.temporaries.values() if t.pending and not t.escaped]
    if not all(t.reference.expired() for t in pending):
        gc.collect()  # a temporary in a cycle of references is as lost as any
    gone = [t for t in pending if t.reference.expired()]
    del result
    return writes_finding(fn, gone, recorder.sources, recorder.unjudged)
