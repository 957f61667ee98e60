"""Links from cells to their slots: lines that pass between tiles, never through one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from helpers.draw.canvas import TILE_HEIGHT, Canvas
from helpers.draw.grid import GUTTER, Grid
from helpers.draw.strip import Strip
from helpers.draw.svg import coordinate

DOT = 3
MOST_LINKS = 64


def draw_links(canvas: Canvas, grid: Grid, strip: Strip, pairs: Sequence[tuple[tuple[int, ...], int]]) -> None:
    """Draw a link for each pair of an index and the slot it reads.

    A cell with others below it is left by the gutter at its right side, which the links of a column share.
    Where the slot stands in a later row of the strip, the link passes the rows before it between two tiles.
    A dot marks its end.
    """
    lowest: dict[int, int] = {}
    for x, y in grid.places.values():
        lowest[x] = max(y, lowest.get(x, 0))
    for index, slot in pairs:
        x, y = grid.places[index]
        canvas.grow(x + grid.step, y)
        path = _down_to_the_grids_bottom(grid, x, y, last=y == lowest[x])
        start = x + grid.tile_width // 2 if y == lowest[x] else x + grid.tile_width + GUTTER // 2
        left, row = strip.places[slot]
        goal = left + strip.slot_width // 2
        height = grid.bottom
        for above in range(row):
            pass_at = _nearest(strip.edges[above], goal)
            path += _curve(start, height, pass_at, strip.tops[above]) + f"v{TILE_HEIGHT}"
            start, height = pass_at, strip.tops[above] + TILE_HEIGHT
        path += _curve(start, height, goal, strip.tops[row])
        ends = f' data-from="{",".join(map(str, index))}" data-to="{slot}"'
        canvas.links.append(f'<path d="{path}"{ends}/>')
        canvas.dots.append(f'<circle cx="{goal}" cy="{strip.tops[row] - 1}" r="{DOT}"/>')


def _nearest(edges: list[int], x: int) -> int:
    """Return the one of these increasing numbers that lies nearest to `x`, the smaller of two that are as near."""
    i = bisect_left(edges, x)
    return min(edges[max(i - 1, 0) : i + 1], key=lambda edge: abs(edge - x))


def _down_to_the_grids_bottom(grid: Grid, x: int, y: int, last: bool) -> str:
    """Return the path from a cell to the lower edge of the grid: straight, or by the gutter beside the cell."""
    if last:
        return f"M{x + grid.tile_width // 2} {y + TILE_HEIGHT}V{grid.bottom}"
    turn = GUTTER // 2
    return f"M{x + grid.tile_width} {y + TILE_HEIGHT // 2}q{turn} 0 {turn} {turn}V{grid.bottom}"


def _curve(x0: float, y0: float, x1: float, y1: float) -> str:
    """Return a path that leaves downwards and arrives downwards."""
    middle = coordinate((y0 + y1) / 2)
    return f"C{x0} {middle} {x1} {middle} {x1} {y1}"
