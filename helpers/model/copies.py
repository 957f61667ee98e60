"""Where does a function copy tensors without saying so? `find_copies`.

The copies come from torch's own profiler: every `aten::copy_` that ran inside a `clone`, `contiguous`
or `_to_copy`, with the strides and the dtype of both sides. Which call of the reader each belongs to
is known because every call is run under a label. Bare `aten::copy_` events are left out: with those an
operator fills its own result (`repeat`, `pad`, a bias), or the reader's own assignment is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch

from helpers.model.adapter import (
    event_tensors,
    profiled_events,
    profiler_label,
    profiler_running,
    quiet_profiler,
    storage_key,
)
from helpers.model.copyformats import Formats
from helpers.model.copywords import (
    ALWAYS,
    JOINERS,
    REPEATERS,
    CopiesFinding,
    Copy,
    copies_finding,
    joined,
    zero_strides,
)
from helpers.model.finding import HelperError
from helpers.model.layout import Layout, stride_zero
from helpers.model.memory import layout_of
from helpers.model.views import explain_view
from helpers.model.watch import Call, Watch, raised_finding, require_callable, run_reader, tensors_in, uncompiled
from helpers.model.words import dtype_name

_LABEL = "course:call:"
_COPIERS = frozenset({"aten::clone", "aten::contiguous", "aten::_to_copy"})
_RESHAPERS = frozenset({"reshape", "flatten", "ravel", "reshape_as", "unflatten"})
_DTYPES = frozenset({"float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool"})
_CONVERTERS = _DTYPES | {"to", "type", "type_as", "cfloat", "cdouble", "cpu", "cuda"}
# The reader asked for these copies, or for a new tensor.
_ASKED = frozenset(["clone", "__deepcopy__", "copy_", "__setitem__", "tensor", "as_tensor", "asarray", "deepcopy"])


@dataclass
class _Note:
    """What is known of one call before the profiler is asked: plain values only.

    `lost` is the memory format that a copy of views lost, and the strides of its result. `parts` holds the
    storage and the layout of each tensor that is joined.
    """

    call: Call
    layout: Layout | None
    result: Layout | None = None
    moved: bool = False
    same: bool = False
    view: bool = False
    lost: tuple[str, tuple[int, ...]] | None = None
    parts: list[tuple[int, Layout] | None] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)


class _Labels(Watch):
    """Runs every call under a label that the profiler shows, and notes the layouts before and after."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[_Note] = []
        self._formats = Formats()

    def around(self, call: Call, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        source = args[0] if args and isinstance(args[0], torch.Tensor) else None
        note = _Note(call, None)
        self.notes.append(note)
        with self.aside(call):
            note.layout = layout_of(source)
            if note.layout is not None:
                self._formats.see(source, note.layout)
            if call.name in JOINERS:
                parts = [(t, layout_of(t)) for t in tensors_in([*args[:1], *kwargs.values()])]
                note.parts = [None if layout is None else (storage_key(t), layout) for t, layout in parts]
        with profiler_label(f"{_LABEL}{len(self.notes) - 1}"):
            result = func(*args, **kwargs)
        with self.aside(call):
            note.result = layout_of(result)
            if note.result is not None and note.layout is not None:
                note.same = result is source
                note.view = storage_key(result) == storage_key(source)
                note.moved = result.device != source.device
                self._note_formats(note, source, result)
        return result

    def _note_formats(self, note: _Note, source: torch.Tensor, result: torch.Tensor) -> None:
        """Note at the copy that made it where a result in the default order comes from a channels_last tensor."""
        self._formats.see(result, note.result)
        if note.call.name in _RESHAPERS | {"contiguous"} and not note.view:
            self._formats.copied(len(self.notes) - 1, source, note.layout, result)
        if (lost := self._formats.lost(result, note.result)) is not None:
            number, name = lost
            self.notes[number].lost = self.notes[number].lost or (name, note.result.stride)


def find_copies(fn: Callable, *args: Any, **kwargs: Any) -> CopiesFinding:
    """Run `fn(*args, **kwargs)` once and list every copy of a tensor that it made, with line, bytes and cause.

    Copies inside operators are seen too, such as a convolution that wants another layout. Which
    operators do that depends on the processor and the build of torch: it is measured, not looked up. What was
    compiled runs as it was written. Raises HelperError when `fn` is not a function, or a profiler is already running.
    """
    require_callable(fn, "find_copies")
    labels = _Labels()
    error: Exception | None = None
    if profiler_running():
        raise HelperError("find_copies needs the profiler of torch for itself, and a profiler is already running")
    with uncompiled(), quiet_profiler() as profiler, labels:
        try:
            run_reader(fn, args, kwargs)
        except Exception as raised:  # the reader's own error is part of the answer
            error = raised
    copies = _collect(labels.notes, profiled_events(profiler))
    kept = tuple(
        f"{note.call.expression} {'returned the same tensor' if note.same else 'made a view'}"
        for note in labels.notes
        if (note.call.name in _RESHAPERS | _CONVERTERS | {"contiguous"}) and (note.same or note.view)
    )
    if error is None:
        return copies_finding(fn, copies, kept, labels.unjudged)
    try:
        return raised_finding(fn, error, CopiesFinding, copies=copies, kept=kept)
    finally:
        del error  # its traceback holds this frame, and this frame would hold it


def _collect(notes: list[_Note], events: list[Any]) -> tuple[Copy, ...]:
    for event, number in _labelled(events, None):
        if number is not None:
            notes[number].events.append(event)
    copies: list[Copy] = []
    for note in notes:
        copies.extend(_copies_of(note))
    return tuple(copies)


def _labelled(events: list[Any], number: int | None) -> Iterator[tuple[Any, int | None]]:
    """Yield each outermost copying event with the number of the call that it ran under."""
    for event in events:
        if event.name.startswith(_LABEL):
            yield from _labelled(event.children, int(event.name.removeprefix(_LABEL)))
        elif event.name in _COPIERS:
            yield event, number
        else:
            yield from _labelled(event.children, number)


def _copies_of(note: _Note) -> Iterator[Copy]:
    name = note.call.name
    found = [sides for event in note.events if (sides := _sides(event)) is not None and prod(sides[0][0])]
    for written, read in found:
        copy = _describe(note, written, read)
        if (
            copy.source_shape or copy.kind != "inside"
        ):  # a Python number on its way into an operator is no copy to speak of
            yield copy
    key = "indexing" if name == "__getitem__" else name
    if not found and key in ALWAYS and note.result is not None and note.result.numel and not note.view:
        source = note.layout or note.result
        read, why = source.nbytes, ALWAYS[key]
        if key in REPEATERS:
            read = source.reached * source.element_size
        if key in JOINERS:
            read, why = joined(note.parts, note.result.nbytes, why)
        yield Copy(note.call, "always", note.result.nbytes, why, read, source.shape, source.stride, note.result.stride)


def _sides(event: Any) -> tuple[Any, Any] | None:
    """Return (shape, strides, dtype) of what was written and of what was read, from the copy_ inside an event."""
    if event.name == "aten::copy_":
        tensors = event_tensors(event)
        return (tensors[0], tensors[1]) if len(tensors) >= 2 else None
    return next((sides for child in event.children if (sides := _sides(child)) is not None), None)


def _describe(note: _Note, written: Any, read: Any) -> Copy:
    """Put one copy into words; `written` and `read` are (shape, strides, dtype)."""
    shape, stride, dtype = written
    source_shape, source_stride, source_dtype = read
    source = Layout(source_shape, source_stride, 0, source_dtype, source_dtype.itemsize, 0)
    target = Layout(shape, stride, 0, dtype, dtype.itemsize, 0)
    name = note.call.name
    if name in _RESHAPERS and note.layout is not None and note.result is not None:
        kind = "reshape"
        found = explain_view(note.layout, note.result.shape)
        target, why = note.result, found.reason or "the call wrote a new tensor though a view would do"
    elif name in _ASKED:
        kind, why = "asked", f"{note.call.shown} was called"
    elif name == "contiguous":
        kind, why = "contiguous", f"the strides {source_stride} became {stride}"
    elif name in _CONVERTERS:
        kind = "conversion"
        why = (
            f"{dtype_name(source_dtype)} became {dtype_name(dtype)}"
            if dtype != source_dtype
            else f"the strides {source_stride} became {stride}"
        )
        if note.moved:
            why = "the data went to another device"
    elif name in ALWAYS:
        kind, why = "always", ALWAYS[name]
    else:
        kind = "inside"
        why = f"the operator wanted strides {stride} for shape {source_shape}, and it was given {source_stride}"
        if zero := zero_strides(source_shape, source_stride):
            why = f"{stride_zero(zero)} in what the operator reads; {why}"
        if dtype != source_dtype:
            why = f"the operator converted {dtype_name(source_dtype)} to {dtype_name(dtype)}"
    return Copy(
        note.call,
        kind,
        target.numel * dtype.itemsize,
        why,
        source.reached * source_dtype.itemsize,
        source_shape,
        source_stride,
        target.stride,
        ((note.layout or source).memory_formats, target.memory_formats),
        note.lost,
    )
