"""The sentence of a picture: what there is to see, with its numbers, for readers who cannot see it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from helpers.draw.focus import MOST_LISTED, Focus
from helpers.model.finding import HelperError
from helpers.model.layout import Layout
from helpers.model.values import has_values
from helpers.model.words import counted, dtype_name


def listed(items: Sequence[object], total: int | None = None) -> str:
    """Return "1, 5, 9", or "1, 5, 9, … (20 in all)" when there are more."""
    total = len(items) if total is None else total
    names = ", ".join(map(str, items))
    return names if total == len(items) else f"{names}, … ({total:,} in all)"


def sentence_of(parts: Sequence[str]) -> str:
    """Join parts with semicolons; a number at the end, such as "1.", brings its own point."""
    text = "; ".join(parts)
    return text if text.endswith(".") else text + "."


def describe_place(layout: Layout) -> str:
    """Return shape, stride and storage_offset in words."""
    offset = f" and storage_offset {layout.storage_offset:,}" if layout.storage_offset else ""
    return f"shape {layout.shape} with stride {layout.stride}{offset}"


def layout_sentence(
    t: torch.Tensor, layout: Layout, values: list[str], focus: Focus | None, found: list[str], most_shared: int
) -> str:
    """Return the sentence of a picture of one tensor.

    `values` are the elements in the picture, as it writes them, and `found` those of them that are in focus;
    `most_shared` is how many elements read the slot that is read most.
    """
    total, kind = layout.storage_numel, dtype_name(layout.dtype)
    parts = [f"A view of {describe_place(layout)} on a storage of {total:,} {kind} {'slot' if total == 1 else 'slots'}"]
    if layout.numel == 0:
        parts.append("it has no elements")
    if most_shared > 1:
        parts.append(f"up to {most_shared:,} elements read the same slot")
    if focus:
        parts.append(_focus_part(focus, found))
    elif len(values) == layout.numel and values and "" not in values:
        parts.append(f"it reads {listed(values[:MOST_LISTED], layout.numel)}")
    parts += _notes(t, layout)
    if len(values) < layout.numel:
        drawn = f"{len(values)} of its {layout.numel:,} elements are drawn"
        parts.append(drawn if "" in values else f"{drawn}: {listed(values[:MOST_LISTED], len(values))}")
    return sentence_of(parts)


def storage_sentence(storages: Sequence[tuple[Sequence[tuple[str, Layout]], Sequence[str]]]) -> str:
    """Return the sentence of a picture of several tensors.

    For each storage: the names and layouts of the tensors on it, and what its slots hold, as the picture writes it.
    """
    parts = []
    for number, (tensors, held) in enumerate(storages):
        place = "One storage" if len(storages) == 1 else f"Storage {number + 1}"
        values = f", which holds {listed(held[:MOST_LISTED], len(held))}" if held and "" not in held else ""
        told = [f"{place} of {counted(tensors[0][1].storage_nbytes, 'byte')}{values}"]
        numbered = len({t.element_size for _, t in tensors}) == 1  # otherwise the picture counts bytes
        read = _slots_read if numbered else _bytes_read
        told += [f"{name}, {dtype_name(t.dtype)} of {describe_place(t)}, {read(t)}" for name, t in tensors]
        parts.append(sentence_of(told))
    return " ".join(parts)


def _slots_read(layout: Layout) -> str:
    """Return "reads no slot", "reads slot 4", or "reads 6 slots from 0 to 10"; "needs …" where they are not there."""
    if layout.numel == 0:
        return "reads no slot"
    first, last = layout.storage_offset, layout.last_slot
    if first == last:
        slots = f"slot {first:,}"
    else:
        try:
            reached = counted(layout.reached, "slot")
        except HelperError:  # too many overlapping slots to count; where they begin and end is known all the same
            reached = "slots"
        slots = f"{reached} from {first:,} to {last:,}"
    return f"reads {slots}" if layout.fits else f"needs {slots}, but {_too_small(layout)}"


def _bytes_read(layout: Layout) -> str:
    """Return "reads 3 slots of 8 bytes, from byte 0 to byte 23", as a strip with elements of several sizes counts."""
    if layout.numel == 0 or not layout.fits:
        return _slots_read(layout)
    size = layout.element_size
    first, last = layout.storage_offset * size, (layout.last_slot + 1) * size - 1
    slots = _slots_read(layout).partition(" from ")[0] if layout.last_slot > layout.storage_offset else "reads 1 slot"
    return f"{slots} of {counted(size, 'byte')}, from byte {first:,} to byte {last:,}"


def _too_small(layout: Layout) -> str:
    """Say that the storage was made smaller than the tensor needs."""
    return f"the storage is too small for it and has {counted(layout.storage_numel, 'slot')}"


def _focus_part(focus: Focus, values: list[str]) -> str:
    """Say which slots the focus reads, and what it finds there."""
    if focus.numel == 0:
        return f"{focus.name()} has no elements"
    slots = focus.slots[:MOST_LISTED]
    part = f"{focus.name()} reads {'slot' if focus.numel == 1 else 'slots'} {listed(slots, focus.numel)}"
    if len(values) == focus.numel and "" not in values:
        part += f" and finds {listed(values[:MOST_LISTED], focus.numel)}"
    return part


def _notes(t: torch.Tensor, layout: Layout) -> list[str]:
    """Say where the values in the view differ from those in the storage, or why there are none."""
    if not has_values(t):
        return ["there are no values to show, because the tensor has no data"]
    notes = []
    if t.is_quantized:
        notes.append("the storage holds whole numbers, and the view reads them scaled")
    if t.is_conj():
        notes.append("the storage holds the numbers before conjugation, and the view conjugates what it reads")
    if t.is_neg():
        notes.append("the storage holds the numbers before negation, and the view negates what it reads")
    if layout.numel and layout.storage_numel == 0:
        notes.append("the storage was emptied, so there is nothing to read")
    elif not layout.fits:
        notes.append(f"the view reaches to slot {layout.last_slot:,}, but {_too_small(layout)}")
    return notes
