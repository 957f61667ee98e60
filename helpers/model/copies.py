"""Where does a function copy tensors without saying so? `find_copies`.

The copies come from torch's own profiler: the `aten::copy_` events with the strides, the dtype and the memory of both
sides. Which call of the reader each belongs to is known because every call is run under a label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from helpers.model.adapter import (
    profiled_events,
    profiler_label,
    profiler_running,
    quiet_profiler,
    storage_key,
)
from helpers.model.copycauses import asked, inside, is_worth_telling
from helpers.model.copyformats import Formats
from helpers.model.copynotes import LABEL, Moved, Note, read_events
from helpers.model.copywords import (
    ALWAYS,
    JOINERS,
    REPEATERS,
    CopiesFinding,
    Copy,
    copies_finding,
    joined,
)
from helpers.model.finding import HelperError
from helpers.model.layout import Layout
from helpers.model.memory import layout_of
from helpers.model.views import explain_view
from helpers.model.watch import Call, Watch, raised_finding, require_callable, run_reader, tensors_in, uncompiled
from helpers.model.words import dtype_name

_RESHAPERS = frozenset({"reshape", "flatten", "ravel", "reshape_as", "unflatten"})
_DTYPES = frozenset({"float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool"})
_CONVERTERS = _DTYPES | {"to", "type", "type_as", "cfloat", "cdouble", "cpu", "cuda"}
# The reader asked for these copies, or for a new tensor.
_ASKED = frozenset(
    {"clone", "__deepcopy__", "copy_", "__setitem__", "tensor", "as_tensor", "asarray", "deepcopy"}
    | {"resolve_conj", "resolve_neg"}
)
_NAMED = _RESHAPERS | _CONVERTERS | _ASKED | {"contiguous"}
_TOLD = frozenset({"reshape", "asked", "contiguous", "conversion"})


class _Labels(Watch):
    """Runs every call under a label that the profiler shows, and notes the layouts before and after."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[Note] = []
        self._formats = Formats()

    def around(self, call: Call, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        source = args[0] if args and isinstance(args[0], torch.Tensor) else None
        note = Note(call, None)
        self.notes.append(note)
        with self.aside(call):
            note.layout = layout_of(source)
            if note.layout is not None:
                self._formats.see(source, note.layout)
            note.read_arguments(args, kwargs)
            if call.name in JOINERS:
                parts = [(t, layout_of(t)) for t in tensors_in([*args[:1], *kwargs.values()])]
                note.parts = [None if layout is None else (storage_key(t), layout) for t, layout in parts]
        with profiler_label(f"{LABEL}{len(self.notes) - 1}"):
            result = func(*args, **kwargs)
        with self.aside(call):
            note.read_result(result)
            note.result = layout_of(result)
            if note.result is not None and note.layout is not None:
                note.same = result is source
                note.view = storage_key(result) == storage_key(source)
                note.moved = result.device != source.device
                self._note_formats(note, source, result)
        return result

    def _note_formats(self, note: Note, source: torch.Tensor, result: torch.Tensor) -> None:
        """Note at the copy that made it where a result in the default order comes from a channels_last tensor."""
        self._formats.see(result, note.result)
        if note.call.name in _RESHAPERS | {"contiguous"} and not note.view:
            self._formats.copied(len(self.notes) - 1, source, note.layout, result)
        if (lost := self._formats.lost(result, note.result)) is not None:
            number, name = lost
            self.notes[number].lost = self.notes[number].lost or (name, note.result.stride)


def find_copies(fn: Callable, *args: Any, **kwargs: Any) -> CopiesFinding:
    """Run `fn(*args, **kwargs)` once and list the copies of tensors that it made, with line, bytes and cause.

    Seen is every copy that goes through torch's dispatcher, also inside an operator, such as a convolution that wants
    another layout. Which operators do that depends on the processor and the build of torch: it is measured, not
    looked up. Not seen is what a kernel copies on its own, as oneDNN and LAPACK do. Not listed are the steps by which
    an operator fills a part of its result or a `.grad`, and what the reader's own assignment writes. What was compiled
    runs as it was written. Raises HelperError when `fn` is not a function, or a profiler is already running.
    """
    require_callable(fn, "find_copies")
    labels = _Labels()
    error: BaseException | None = None
    if profiler_running():
        raise HelperError("find_copies needs the profiler of torch for itself, and a profiler is already running")
    with uncompiled(), quiet_profiler() as profiler, labels:
        try:
            run_reader(fn, args, kwargs)
        except (Exception, SystemExit) as raised:  # the reader's own error is part of the answer
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


def _collect(notes: list[Note], events: list[Any]) -> tuple[Copy, ...]:
    read_events(events, notes)
    return tuple(copy for note in notes for copy in _copies_of(note))


def _copies_of(note: Note) -> Iterator[Copy]:
    name = note.call.name
    plain = name in ALWAYS or name in _NAMED  # a step of what the line says
    found = [m for m in note.copies if is_worth_telling(note, m) and not (m.bare and plain)]
    for moved in found:
        copy = _describe(note, moved)
        if copy.source_shape or copy.kind in _TOLD:  # a Python number inside an operator is no copy to speak of
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


def _describe(note: Note, moved: Moved) -> Copy:
    """Put one copy into words."""
    written, read = moved.written, moved.read
    source = Layout(read.shape, read.stride, 0, read.dtype, read.dtype.itemsize, 0)
    target = Layout(written.shape, written.stride, 0, written.dtype, written.dtype.itemsize, 0)
    name, remedy = note.call.name, ""
    restrided = f"the strides {read.stride} became {written.stride}"
    if name in _RESHAPERS and note.layout is not None and note.result is not None:
        kind = "reshape"
        found = explain_view(note.layout, note.result.shape)
        target, why = note.result, found.reason or "the call wrote a new tensor though a view would do"
    elif name in _ASKED:
        kind, why = "asked", asked(note, moved)
    elif name == "contiguous":
        kind, why = "contiguous", restrided
    elif name in _CONVERTERS:
        kind, why = "conversion", restrided
        if read.dtype != written.dtype:
            why = f"{dtype_name(read.dtype)} became {dtype_name(written.dtype)}"
        if note.moved:
            why = "the data went to another device"
    elif name in ALWAYS:
        kind, why = "always", ALWAYS[name]
    else:
        kind, why, remedy = inside(note, moved)
    return Copy(
        note.call,
        kind,
        target.numel * written.dtype.itemsize,
        why,
        source.reached * read.dtype.itemsize,
        read.shape,
        read.stride,
        target.stride,
        ((note.layout or source).memory_formats, target.memory_formats),
        note.lost,
        remedy,
    )
