"""The view as a grid of tiles: rows and columns, side by side for a third dimension, in lines for a fourth.

Columns that do not fit beside each other continue below, and so do blocks. Between the columns stays a narrow
gutter, in which links run down to the storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

from helpers.draw.canvas import TILE_HEIGHT, WIDEST, WIDTH, Canvas
from helpers.draw.focus import Focus
from helpers.draw.strip import fold
from helpers.draw.svg import FOCUS, LABEL_SIZE, STORAGE, text_width
from helpers.model.layout import Layout

GUTTER = 6
ROW_GAP = 4
BLOCK_GAP = 22
GAP_WIDTH = 22
LINE = 17

ROLES = ("→", "↓", "→ blocks", "↓ lines of blocks", "↓ outer blocks")  # by the number of dimensions further in

Shown = list[int | None]


@dataclass
class Grid:
    """Where the cells of a view stand: the left and upper edge of each visible index, in pixels."""

    tile_width: int
    places: dict[tuple[int, ...], tuple[int, int]] = field(default_factory=dict)
    bottom: int = 0

    @property
    def step(self) -> int:
        """The distance from one column to the next."""
        return self.tile_width + GUTTER


def draw_dimensions(canvas: Canvas, layout: Layout, left: int, top: int) -> int:
    """Label all dimensions but that of the rows, a line each, and return the y where the grid may begin."""
    y = top
    for d in range(layout.ndim):
        inner = layout.ndim - 1 - d
        if inner == 1:
            continue
        role = ROLES[min(inner, 4)]
        canvas.label(left, y + 12, f"dim {d} · size {layout.shape[d]:,} · stride {layout.stride[d]:,} {role}")
        y += LINE
    return y + (4 if y > top else 0)


def row_lines(layout: Layout) -> tuple[str, ...]:
    """Return the label of the dimension whose index counts rows, for the margin."""
    if layout.ndim < 2:
        return ()
    return f"dim {layout.ndim - 2} ↓", f"size {layout.shape[-2]:,}", f"stride {layout.stride[-2]:,}"


def place_grid(
    canvas: Canvas, layout: Layout, shown: Sequence[Shown], focus: Focus | None, tile_width: int, left: int, top: int
) -> Grid:
    """Choose the place of every visible cell, and draw the row and column numbers and the dots of what is left out."""
    grid = Grid(tile_width, bottom=top)
    rows: Shown = shown[-2] if layout.ndim > 1 else [0]
    columns: Shown = shown[-1] if layout.ndim else [0]
    margin = rows_margin(layout, shown)
    outer = list(shown[:-2]) if layout.ndim > 2 else []
    lines = list(product(*outer[:-1]))
    blocks = outer[-1] if outer else [0]
    per_band = fold(len(columns), max(1, (WIDTH - left + GUTTER) // grid.step))
    if left + _row_width(columns, tile_width) <= WIDEST:  # a whole row is worth a somewhat wider picture
        per_band = len(columns)
    y, skipped = top, False
    for line in lines:
        if None in line:
            if not skipped:
                canvas.label(left, y + 12, "⋮")
                y += LINE + 6
            skipped = True
            grid.bottom = y - 6
            continue
        skipped = False
        x = left
        line_bottom = y
        for block in blocks:
            if block is None:
                canvas.label(x - margin, (y + line_bottom) / 2 + 4, "…")
                x += GAP_WIDTH + BLOCK_GAP
                continue
            width = _row_width(columns[:per_band], tile_width)
            if x > left and x + width > WIDTH:
                x, y = left, line_bottom + BLOCK_GAP
            prefix = (*line, block) if outer else ()
            lit = focus is not None and focus.holds(prefix)
            block_top = y
            if prefix:
                name = "[" + ", ".join(map(str, prefix)) + ", :, :]"
                if focus:  # on ground of its own, because links from blocks above pass here
                    named = lit and focus.partial_before(len(prefix))
                    canvas.tag(x + 4, y + 12, name, fill=FOCUS if named else STORAGE)
                else:
                    canvas.label(x, y + 12, name)
                width = max(width, round(text_width(name, LABEL_SIZE)) - margin)
                block_top += LINE + 2
            bottom = _place_block(
                canvas, grid, layout.ndim, prefix, rows, columns, per_band, x, block_top, focus if lit else None
            )
            line_bottom = max(line_bottom, bottom)
            x += width + BLOCK_GAP + margin
        y = line_bottom + BLOCK_GAP
        grid.bottom = line_bottom
    return grid


def rows_margin(layout: Layout, shown: Sequence[Shown]) -> int:
    """Return the width of the row numbers, left of a block."""
    if layout.ndim < 2:
        return 0
    rows = shown[-2]
    return round(text_width(str(max((r for r in rows if r is not None), default=0)), LABEL_SIZE)) + 10


def _row_width(columns: Shown, tile_width: int) -> int:
    return sum(GAP_WIDTH if c is None else tile_width + GUTTER for c in columns) - GUTTER


def _place_block(
    canvas: Canvas,
    grid: Grid,
    ndim: int,
    prefix: tuple[int, ...],
    rows: Shown,
    columns: Shown,
    per_band: int,
    left: int,
    top: int,
    focus: Focus | None,
) -> int:
    """Place one matrix, its columns in as many bands as they need, and return the y of its bottom."""
    y = bottom = top
    half, middle = grid.tile_width / 2, TILE_HEIGHT / 2 + 4
    for first in range(0, len(columns), per_band):
        spots: list[tuple[int, int]] = []  # a column's index and its left edge
        dots: list[float] = []
        x = left
        for c in columns[first : first + per_band]:
            if c is None:
                dots.append(x + (GAP_WIDTH - GUTTER) / 2)
                x += GAP_WIDTH
            else:
                spots.append((c, x))
                x += grid.step
        if ndim:
            for c, x in spots:
                _number(canvas, x + half, y + 12, str(c), focus and focus.picks(ndim - 1, c), "middle")
            y += LINE
        for r in rows:
            if r is None:
                for _, x in spots:
                    canvas.label(x + half, y + 12, "⋮", anchor="middle")
                y += LINE
                continue
            if ndim > 1:
                _number(canvas, left - 8, y + middle, str(r), focus and focus.picks(ndim - 2, r), "end")
            for x in dots:
                canvas.label(x, y + middle, "…", anchor="middle")
            before = (*prefix, r) if ndim > 1 else ()
            grid.places |= {(*before, c): (x, y) for c, x in spots} if ndim else {(): (left, y)}
            y += TILE_HEIGHT + ROW_GAP
        bottom = y - ROW_GAP
        y += 6
    return bottom


def _number(canvas: Canvas, x: float, y: float, name: str, lit: bool | None, anchor: str) -> None:
    """Write the index of a row or a column; on orange where the focus picks it out of its dimension."""
    if lit:
        canvas.tag(x, y, name, fill=FOCUS, anchor=anchor)
    else:
        canvas.label(x, y, name, anchor)
