"""Pictures of tensors and their storages: `draw_layout` and `draw_storage`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch

from helpers.draw.canvas import LIT, TILE_HEIGHT, WIDTH, Canvas, Tile, tile_width
from helpers.draw.drawing import Drawing
from helpers.draw.focus import Focus
from helpers.draw.grid import Grid, draw_dimensions, place_grid, row_lines, rows_margin
from helpers.draw.lanes import Lane, draw_lanes
from helpers.draw.links import MOST_LINKS, draw_links
from helpers.draw.sentences import layout_sentence, storage_sentence
from helpers.draw.strip import Gap, Strip
from helpers.draw.svg import LABEL_SIZE, SMALL_SIZE, short_count, short_number, text_width
from helpers.model.adapter import plain_access
from helpers.model.finding import HelperError, kind_of
from helpers.model.layout import Layout
from helpers.model.memory import block_of
from helpers.model.source import caller_arguments
from helpers.model.values import (
    MOST_CELLS,
    first_reached,
    read_values,
    readers,
    reads_as_stored,
    stored_values,
    visible_cells,
    visible_indices,
    visible_slots,
)
from helpers.model.words import counted, dtype_name

LINE = 16
TAG_ROOM = 24
LONGEST_NAME = 28


def draw_layout(t: torch.Tensor, *, focus: object = None) -> Drawing:
    """Draw a tensor as a grid of values above its storage, a strip of numbered slots.

    `focus` is what to show in orange, with a link to each slot that it reads: a number or a slice for dimension 0,
    or a tuple of them in which None stands for a whole dimension. A tensor of more than 256 elements is
    summarised; only the values in the picture are read.

    Raises HelperError for what has no strides, and for a focus outside of the tensor.
    """
    with plain_access():  # a picture shows the memory: a subclass is not asked what it would answer
        return _layout_picture(t, focus)


def _layout_picture(t: torch.Tensor, focus: object) -> Drawing:
    layout = drawable(t)
    chosen = None if focus is None else Focus.of(t, focus)
    shown = visible_indices(layout, chosen and chosen.ranges)
    cells = visible_cells(shown)
    slots = list(layout.slots()) if layout.numel == len(cells) else [layout.slot(*index) for index in cells]
    entries, reads = _strip_entries(layout, slots)
    drawn_slots = [entry for entry in entries if isinstance(entry, int)]

    stored = [_written(value) for value in stored_values(t, drawn_slots)]
    holds = dict(zip(drawn_slots, stored, strict=True))
    if reads_as_stored(t):
        values = [holds.get(slot, "") for slot in slots]
    else:
        values = [_written(value) for value in read_values(t, cells)]
    badges = {slot: f"×{short_count(n)}" for slot, n in reads.items() if n > 1}
    corner = len(str(max(slots + drawn_slots[-1:], default=0)))
    column = str(layout.shape[-1] - 1) if layout.ndim else ""
    cell_width = max(tile_width(values, ["0" * corner]), 2 * round(text_width(column, LABEL_SIZE) / 2))
    slot_width = max(cell_width, tile_width(stored, ["0" * corner], badges.values()))

    canvas = Canvas()
    rows = row_lines(layout)
    about = "storage", counted(layout.storage_numel, "slot"), _bytes_each(layout.element_size)
    left = _margin([rows, about]) + rows_margin(layout, shown)
    canvas.label(0, 12, "view", bold=True)
    canvas.label(left, 12, f"shape {layout.shape} · {dtype_name(layout.dtype)}")
    top = draw_dimensions(canvas, layout, left, LINE + 4)
    grid = Grid(cell_width, bottom=top + LINE + 8)
    if cells:
        grid = place_grid(canvas, layout, shown, chosen, cell_width, left, top)
    else:
        canvas.label(left, top + LINE, "no elements")
    in_focus = chosen.cells(shown) if chosen else set()
    tiles: list[Tile] = []
    for index, slot, value in zip(cells, slots, values, strict=True):
        data = f' data-cell="{",".join(map(str, index))}" data-slot="{slot}"{LIT if index in in_focus else ""}'
        tiles.append((*grid.places[index], value, str(slot), "", data))
    canvas.tile("view", cell_width, tiles)
    focused = {index: slot for index, slot in zip(cells, slots, strict=True) if index in in_focus}
    _notes(canvas, rows, min((y for _, y in grid.places.values()), default=top))
    linked = 0 < len(focused) <= MOST_LINKS
    strip_top = grid.bottom + (48 if linked else 28)
    strip = Strip.place(entries, slot_width, left, strip_top, lambda row: _room_below(row, layout, linked))
    _draw_strip(canvas, strip, holds, reads, badges, set(focused.values()))
    _notes(canvas, about, strip_top)
    _mark_offset(canvas, strip, layout.storage_offset, left)
    if not entries:
        canvas.label(left, strip_top + TILE_HEIGHT / 2 + 4, "no slots")
    if linked:
        draw_links(canvas, grid, strip, [(index, slot) for index, slot in focused.items() if slot in strip.places])
    found = [value for index, value in zip(cells, values, strict=True) if index in focused]
    sentence = layout_sentence(t, layout, values, chosen, found, max(reads.values(), default=0))
    return Drawing(canvas.svg(sentence), sentence)


def draw_storage(*tensors: torch.Tensor, names: Sequence[str] | None = None) -> Drawing:
    """Draw several tensors on the storage that they share, or on one storage each.

    Beneath the strip of slots, each tensor has a lane that shows which of its elements reads which slot. `names`
    defaults to what was written in the call. Elements of different sizes meet in tiles of the smallest one, which
    are numbered in bytes.

    Raises HelperError when there is no tensor, when one has no strides, and when there are not as many names.
    """
    if not tensors:
        raise HelperError("draw_storage takes one or more tensors, and none came")
    written = caller_arguments()
    with plain_access():
        layouts = [drawable(t) for t in tensors]
        called = _written_names(written, len(tensors)) if names is None else _given_names(names, len(tensors))
        return _storage_picture(tensors, layouts, called)


def drawable(t: torch.Tensor) -> Layout:
    """Return the layout of a tensor whose memory can be drawn; raise HelperError for any other."""
    layout = Layout.of(t)
    if block_of(t) is None:
        hint = ", such as t.get_data()" if isinstance(t, torch.masked.MaskedTensor) else ""
        raise HelperError(
            f"a picture needs a tensor with a storage, but {kind_of(t)} came, a subclass that keeps its values in "
            f"other tensors: draw one of those{hint}"
        )
    return layout


def _given_names(names: Sequence[str], count: int) -> list[str]:
    """Return the names that were given, or raise HelperError."""
    if not isinstance(names, (list, tuple)):
        raise HelperError(f"`names` is a list with a text for each tensor, and {kind_of(names)} came")
    for i, name in enumerate(names):
        if not isinstance(name, str):
            raise HelperError(f"`names` is a list with a text for each tensor, and entry {i} is {kind_of(name)}")
        if not name.strip():
            raise HelperError(f"`names` is a list with a text for each tensor, and entry {i} is empty")
    if len(names) != count:
        raise HelperError(f"draw_storage takes a name for each of {count} tensors, and {len(names)} came")
    return list(names)


def _storage_picture(tensors: Sequence[torch.Tensor], layouts: Sequence[Layout], called: Sequence[str]) -> Drawing:
    groups: dict[object, list[int]] = {}
    for i, t in enumerate(tensors):
        groups.setdefault(_block_drawn(t), []).append(i)
    canvas = Canvas()
    abouts = [_about_storage([layouts[i] for i in group], n, len(groups)) for n, group in enumerate(groups.values())]
    left = _margin([*abouts, [name + "  " for name in called]])
    y = _draw_table(canvas, called, layouts)
    told = []
    for about, group in zip(abouts, groups.values(), strict=True):
        smallest = min(layouts[i].element_size for i in group)
        lanes = [Lane(called[i], layouts[i], layouts[i].element_size // smallest) for i in group]
        _notes(canvas, about, y)
        bottom, held = draw_lanes(canvas, [tensors[i] for i in group], lanes, left, y)
        told.append(([(called[i], layouts[i]) for i in group], held))
        y = bottom + LINE
    sentence = storage_sentence(told)
    return Drawing(canvas.svg(sentence), sentence)


def _block_drawn(t: torch.Tensor) -> object:
    """Return what is equal for tensors on one block of memory: also for two storages made from one NumPy array."""
    block = block_of(t)
    return (block.space, block.start, block.nbytes) if block.start and block.nbytes else block.key


def _written_names(written: Sequence[str], count: int) -> list[str]:
    """Return what stands in the call for each tensor; "tensor 0" where that is unknown or too long to be a name."""
    known = list(written[:count]) if len(written) >= count else [""] * count
    return [name if 0 < len(name) <= LONGEST_NAME else f"tensor {i}" for i, name in enumerate(known)]


def _about_storage(layouts: Sequence[Layout], number: int, storages: int) -> tuple[str, str]:
    """Return the two lines that stand left of a storage."""
    name = "storage" if storages == 1 else f"storage {number + 1}"
    smallest = min(layouts, key=lambda layout: layout.element_size)
    if len({layout.element_size for layout in layouts}) > 1:
        return name, f"{counted(smallest.storage_nbytes, 'byte')}, as {dtype_name(smallest.dtype)}"
    return name, f"{layouts[0].storage_numel:,} × {counted(layouts[0].element_size, 'byte')}"


def _draw_table(canvas: Canvas, names: Sequence[str], layouts: Sequence[Layout]) -> int:
    """List the tensors with their metadata in columns; return the y beneath."""
    rows = [("tensor", "dtype", "shape", "stride", "storage_offset")]
    for name, layout in zip(names, layouts, strict=True):
        kind = dtype_name(layout.dtype)
        rows.append((name, kind, str(layout.shape), str(layout.stride), f"{layout.storage_offset:,}"))
    x = 0
    for column in zip(*rows, strict=True):
        for i, cell in enumerate(column):
            canvas.label(x, 12 + (LINE + 1) * i + (4 if i else 0), cell, bold=i == 0)
        x += round(text_width("0" * max(map(len, column)), LABEL_SIZE)) + 20
    y = (LINE + 1) * len(rows) + 20
    canvas.label(0, y, "beneath each slot: the index of the element that reads it, or how many do")
    return y + 16


def _written(value: object) -> str:
    return "" if value is None else short_number(value)


def _bytes_each(size: int) -> str:
    return "of 1 byte" if size == 1 else f"of {size} bytes"


def _margin(notes: Sequence[Sequence[str]]) -> int:
    """Return the width of the margin that holds these lines."""
    return round(max(text_width(line, LABEL_SIZE) for lines in notes for line in lines)) + 16


def _notes(canvas: Canvas, lines: Sequence[str], top: int) -> None:
    """Write lines in the margin, the first of them bold."""
    for i, line in enumerate(lines):
        canvas.label(0, top + 13 + LINE * i, line, bold=i == 0)


def _strip_entries(layout: Layout, slots: Sequence[int]) -> tuple[list[int | Gap], dict[int, int]]:
    """Return the slots and gaps to draw, and how many elements read each of the drawn slots."""
    pairs = visible_slots(layout, [*slots, layout.storage_offset])
    entries: list[int | Gap] = []
    for first, last in pairs:
        if first == last:
            entries.append(first)
        else:
            reached = first_reached(layout, first)
            entries.append(Gap(first, last, reached is not None and reached <= last))
    if layout.numel <= MOST_CELLS:
        return entries, Counter(slots)
    return entries, {entry: readers(layout, entry) for entry in entries if isinstance(entry, int)}


def _room_below(row: list[int | Gap], layout: Layout, linked: bool) -> int:
    """Return the pixels beneath one row of the strip: more where the storage_offset is marked, or links turn."""
    return TAG_ROOM + 4 if layout.storage_offset in row else 18 if linked else 8


def _draw_strip(
    canvas: Canvas,
    strip: Strip,
    stored: dict[int, str],
    reads: dict[int, int],
    badges: dict[int, str],
    focused: set[int],
) -> None:
    """Draw the slots of a strip: those that the view reads, some of them in focus, and those it cannot read."""
    kinds: dict[str, list[Tile]] = {"view": [], "unreached": []}
    for slot, (x, row) in strip.places.items():
        kind = "view" if reads.get(slot) else "unreached"
        data = f' data-slot="{slot}"{LIT if slot in focused else ""}'
        kinds[kind].append((x, strip.tops[row], stored[slot], str(slot), badges.get(slot, ""), data))
    for kind, tiles in kinds.items():
        canvas.tile(kind, strip.slot_width, tiles)
    for gap, x, row in strip.gaps:
        data = f' data-first="{gap.first}" data-last="{gap.last}"'
        canvas.gap("view" if gap.reached else "storage", x, strip.tops[row], gap.width, gap.lines, data)


def _mark_offset(canvas: Canvas, strip: Strip, offset: int, left: int) -> None:
    """Put an arrow beneath the slot at storage_offset, or beneath the end of the strip when it lies behind it."""
    if offset in strip.places:
        x, row = strip.places[offset]
        x, bottom = x + strip.slot_width // 2, strip.tops[row] + TILE_HEIGHT
    else:
        x = strip.edges[-1][-1] if strip.edges else left
        bottom = strip.bottom
    label = f"storage_offset {offset:,}"
    fits = x + text_width(label, SMALL_SIZE) <= WIDTH
    canvas.arrow(x, bottom + 2)
    canvas.tag(x - 6 if fits else x + 6, bottom + 20, label, anchor="start" if fits else "end")
