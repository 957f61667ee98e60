"""One storage and every tensor on it: the strip of slots, and beneath it a lane for each tensor.

A lane shows, under each slot, the index of the element that reads it. Tensors whose elements have different
sizes meet in tiles of the smallest size, numbered by byte; a larger element spans several of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch

from helpers.draw.canvas import TILE_HEIGHT, Canvas, Tile, tile_width
from helpers.draw.strip import Gap, Strip
from helpers.draw.svg import SMALL_SIZE, short_count, short_number, text_width
from helpers.model.layout import Layout
from helpers.model.values import (
    first_reached,
    readers,
    stored_values,
    visible_cells,
    visible_indices,
    visible_slots,
)

LANE_HEIGHT = 18
LANE_STEP = 21
MOST_IN_LANE = 24  # elements of one tensor that are shown, where the storage is too large to be shown in full
LONGEST_INDEX = 9


@dataclass(frozen=True)
class Lane:
    """One tensor on a storage. `ratio` is how many tiles one of its elements spans."""

    name: str
    layout: Layout
    ratio: int

    def wanted(self) -> list[int]:
        """Return the tiles that must be in a summarised picture to show the ends of this tensor."""
        cells = visible_cells(visible_indices(self.layout, most=MOST_IN_LANE))
        return [self.layout.slot(*index) * self.ratio + i for index in cells for i in range(self.ratio)]

    def mark(self, slot: int) -> str | None:
        """Return what to write under a slot: an index, a count of several, or None when the tensor does not read it."""
        found = self.layout.indices(slot, limit=2)
        if len(found) > 1:
            return f"×{short_count(readers(self.layout, slot))}"
        return ",".join(map(str, found[0])) if found else None

    def reads_in(self, gap: Gap) -> bool:
        """Say whether the tensor reads any of the tiles in a gap."""
        reached = first_reached(self.layout, gap.first // self.ratio)
        return reached is not None and reached * self.ratio <= gap.last


def draw_lanes(
    canvas: Canvas, tensors: Sequence[torch.Tensor], lanes: Sequence[Lane], left: int, top: int
) -> tuple[int, list[str]]:
    """Draw one storage with the lanes of its tensors; return the y of its bottom, and the values that it holds."""
    smallest = min(tensors, key=lambda t: t.element_size())
    base = Layout.of(smallest)
    in_bytes = any(lane.ratio > 1 for lane in lanes)
    pairs = visible_slots(base, [tile for lane in lanes for tile in lane.wanted()])
    entries: list[int | Gap] = [first if first == last else _gap(Gap(first, last), lanes) for first, last in pairs]
    tiles = [entry for entry in entries if isinstance(entry, int)]
    stored = ["" if v is None else short_number(v) for v in stored_values(smallest, tiles)]
    corners = [str(tile * base.element_size if in_bytes else tile) for tile in tiles]
    marks = [{slot: lane.mark(slot) for slot in sorted({tile // lane.ratio for tile in tiles})} for lane in lanes]

    width = max(tile_width(stored, corners), _index_width(lanes, marks))
    room = LANE_STEP * len(lanes) + 12
    most_ratio = max(lane.ratio for lane in lanes)
    strip = Strip.place(entries, width, left, top, lambda row: room, most_ratio)
    kinds: dict[str, list[Tile]] = {"storage": [], "unreached": []}
    for tile, value, corner in zip(tiles, stored, corners, strict=True):
        x, row = strip.places[tile]
        read = any(found[tile // lane.ratio] is not None for lane, found in zip(lanes, marks, strict=True))
        kinds["storage" if read else "unreached"].append(
            (x, strip.tops[row], value, corner, "", f' data-slot="{tile}"')
        )
    for kind, spots in kinds.items():
        canvas.tile(kind, width, spots)
    for gap, x, row in strip.gaps:
        kind = "view" if gap.reached else "storage"
        canvas.gap(kind, x, strip.tops[row], gap.width, gap.lines, f' data-first="{gap.first}" data-last="{gap.last}"')
    for number, (lane, found) in enumerate(zip(lanes, marks, strict=True)):
        _draw_lane(canvas, strip, lane, found, number, left)
    if not entries:
        canvas.label(left, top + TILE_HEIGHT / 2 + 4, "no slots")
    return strip.bottom + room, stored if len(tiles) == base.storage_numel else []


def _gap(gap: Gap, lanes: Sequence[Lane]) -> Gap:
    return Gap(gap.first, gap.last, any(lane.reads_in(gap) for lane in lanes))


def _index_width(lanes: Sequence[Lane], marks: Sequence[dict[int, str | None]]) -> int:
    """Return the width of a tile under which every index fits that is not too long to be written."""
    needed = 0.0
    for lane, found in zip(lanes, marks, strict=True):
        longest = max((len(mark) for mark in found.values() if mark and len(mark) <= LONGEST_INDEX), default=0)
        needed = max(needed, (text_width("0" * longest, SMALL_SIZE) + 6) / lane.ratio)
    return 2 * round(needed / 2 + 0.5)


def _draw_lane(canvas: Canvas, strip: Strip, lane: Lane, marks: dict[int, str | None], number: int, left: int) -> None:
    """Draw one lane beneath every row of the strip, with its name in the margin."""
    for row, top in enumerate(strip.tops):
        y = top + TILE_HEIGHT + 3 + LANE_STEP * number
        canvas.label(left - 8, y + 13, lane.name, anchor="end")
        tiles = [(tile, x) for tile, (x, in_row) in strip.places.items() if in_row == row]
        for slot, span in groupby(tiles, key=lambda pair: pair[0] // lane.ratio):
            mark = marks[slot]
            if mark is not None:
                xs = [x for _, x in span]
                width = xs[-1] + strip.slot_width - xs[0]
                fits = text_width(mark, SMALL_SIZE) <= width - 2
                data = f' data-lane="{number}" data-slot="{slot}"'
                canvas.bar(xs[0] + 1, y, width - 2, LANE_HEIGHT, mark if fits else "", data)
        for gap, x, in_row in strip.gaps:
            if in_row == row and lane.reads_in(gap):
                canvas.bar(x + 1, y, gap.width - 2, LANE_HEIGHT, "…", f' data-lane="{number}" data-first="{gap.first}"')
