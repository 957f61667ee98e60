"""Where the boxes of a layered graph stand, and the way of each edge: numbers only, in whole pixels.

The roots are at the top. The row of a box is the length of the longest path that leads to it, so every edge leads down.
The longest path of all is the *spine*, one straight line. The other boxes are cut into chains, and a chain keeps one
column: right of the spine when it leads back to it, left when it ends in a leaf. An edge over several rows runs down a
*lane*, a fixed x on which no box stands in these rows; edges to the same place share one. Everything that is not
straight bends in the gap between two rows, where there are no boxes, so no edge crosses a box.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from helpers.draw.chains import find_chains, find_rows, find_spine, lower_branches

SIDE_GAP = 18  # between columns
LANE = 12  # from one lane to the next
STEP, WIDE_STEP = 14, 30  # between two edges at one box, and between edges with a label


class Line(NamedTuple):
    """An edge from one box to another. Long edges with the same `target` and `port` share a lane.

    `labelled` asks for room beside the end of the edge.
    """

    source: int
    target: int
    port: int = 0
    labelled: bool = False


class Route(NamedTuple):
    """The way of an edge: from the box down to `row_end`, down a lane if there is one, and to the top of the target.

    `lane` is (x, top, bottom). Between these points the edge bends, within a gap between two rows.
    """

    x: int
    y: int
    row_end: int
    lane: tuple[int, int, int] | None
    end_x: int
    end_y: int

    def moved(self, dx: int) -> Route:
        """Return a straight route, moved to the right."""
        return self._replace(x=self.x + dx, end_x=self.end_x + dx)


@dataclass(frozen=True)
class Placement:
    """The left upper corners of the boxes, the routes in the order of the lines, and the size of it all."""

    corners: tuple[tuple[int, int], ...]
    routes: tuple[Route, ...]
    spine: tuple[int, ...]
    rows: tuple[int, ...]
    width: int
    height: int


def place(
    sizes: Sequence[tuple[int, int]],
    lines: Sequence[Line],
    *,
    gaps: tuple[int, int, int] = (22, 38, 46),
    marked: Collection[int] = (),
) -> Placement:
    """Place boxes of these sizes (width and height; widths are even).

    `gaps` are the heights of a gap between two rows: with straight edges only, with bends, and above a box that is
    `marked`. Raises ValueError if the lines form a cycle.
    """
    after: list[list[int]] = [[] for _ in sizes]
    for line in lines:
        after[line.source].append(line.target)
    rows, heights = find_rows(after)
    spine = find_spine(after, rows, heights)
    returns = lower_branches(after, rows, heights, spine)
    columns, lanes, centres, width = _columns(sizes, lines, after, rows, heights, spine, returns)
    xs = [centres[column] for column in columns]
    tops, bottoms, height = _levels(sizes, lines, rows, xs, gaps, marked)

    starts, ends = _ports(sizes, lines, rows, xs, lanes, centres)
    routes = []
    for i, (source, target, port, _) in enumerate(lines):
        row, last = rows[source], rows[target]
        lane = None
        if last - row > 1:
            lane = centres[lanes[target, port]], tops[row + 1], bottoms[last - 1]
        y = tops[row] + sizes[source][1]
        routes.append(Route(xs[source] + starts[i], y, bottoms[row], lane, xs[target] + ends[i], tops[last]))
    corners = tuple([(x - size[0] // 2, tops[row]) for x, size, row in zip(xs, sizes, rows, strict=True)])
    return Placement(corners, tuple(routes), tuple(spine), tuple(rows), width, height)


def _columns(
    sizes: Sequence[tuple[int, int]],
    lines: Sequence[Line],
    after: list[list[int]],
    rows: list[int],
    heights: list[int],
    spine: list[int],
    returns: list[bool],
) -> tuple[list[int], dict[tuple[int, int], int], list[int], int]:
    """Return the column of each box, that of each lane, the centre of each column, and the width of the picture."""
    on_spine = [False] * len(after)
    for box in spine:
        on_spine[box] = True
    by_row = sorted(range(len(after)), key=rows.__getitem__)
    chains = find_chains(after, rows, heights, by_row, on_spine, returns)
    spans: dict[tuple[int, int], int] = {}  # the end of a long edge -> the row where the first of them begins
    for source, target, port, _ in lines:
        if rows[target] - rows[source] > 1:
            spans[target, port] = min(spans.get((target, port), rows[source]), rows[source])
    long = max(60, len(spine) // 3)
    # From the left to the right: lanes, chains, the spine, short lanes, chains, long lanes.
    bands: list[list[tuple[int, int, object]]] = [[] for _ in range(5)]
    for chain in chains:
        bands[3 if returns[chain[0]] else 1].append((rows[chain[0]], rows[chain[-1]], chain))
    for (target, port), first in spans.items():
        last = rows[target] - 1
        band = 0 if not returns[target] else 2 if last - first < long else 4
        bands[band].append((first + 1, last, (target, port)))

    columns = [0] * len(after)
    lanes: dict[tuple[int, int], int] = {}
    widths = [max([sizes[box][0] for box in spine], default=0)]
    placed: list[list[int]] = []  # the columns of each band, from the spine outwards
    for band, items in enumerate(bands):
        is_lane = band in (0, 2, 4)
        first = len(widths)
        for item, colour in (_nested if is_lane else _coloured)(items):
            while first + colour == len(widths):
                widths.append(LANE if is_lane else 0)
            if is_lane:
                lanes[item] = first + colour
                continue
            for box in item:
                columns[box] = first + colour
                widths[first + colour] = max(widths[first + colour], sizes[box][0])
        placed.append(list(range(first, len(widths))))
    order = [placed[0][::-1], placed[1][::-1], [0], placed[2], placed[3], placed[4]]
    centres, x, before = [0] * len(widths), 0, 0
    for band in order:
        for column in band:
            x += min(SIDE_GAP, widths[column], before or SIDE_GAP) if before else 0
            centres[column] = x + widths[column] // 2
            x, before = x + widths[column], widths[column]
    return columns, lanes, centres, x


def _coloured(items: list[tuple[int, int, object]]) -> list[tuple[object, int]]:
    """Give each interval of rows (first, last, what) the lowest colour that no other has in these rows."""
    found = []
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    colours = 0
    for first, last, what in sorted(items, key=lambda item: item[0]):  # a stable sort
        while busy and busy[0][0] < first:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            heapq.heappush(free, colours)
            colours += 1
        colour = heapq.heappop(free)
        heapq.heappush(busy, (last, colour))
        found.append((what, colour))
    return found


def _nested(items: list[tuple[int, int, object]]) -> list[tuple[object, int]]:
    """Give intervals of rows colours as above, but the short ones first: a lane within another is then nearer."""
    found = []
    columns: list[list[tuple[int, int]]] = []  # for each colour its intervals, sorted; they don't overlap
    for first, last, what in sorted(items, key=lambda item: item[1] - item[0]):
        colour, i = 0, 0
        while colour < len(columns):
            i = bisect_right(columns[colour], (last + 1,))  # of the intervals before i, only the last can reach so far
            if i == 0 or columns[colour][i - 1][1] < first:
                break
            colour += 1
        else:
            columns.append([])
            i = 0
        columns[colour].insert(i, (first, last))
        found.append((what, colour))
    return found


def _levels(
    sizes: Sequence[tuple[int, int]],
    lines: Sequence[Line],
    rows: list[int],
    xs: list[int],
    gaps: tuple[int, int, int],
    marked: Collection[int],
) -> tuple[list[int], list[int], int]:
    """Return top and bottom of each row, and the height of it all."""
    count = max(rows, default=-1) + 1
    tall = [0] * count
    for (_, height), row in zip(sizes, rows, strict=True):
        tall[row] = max(tall[row], height)
    above = [gaps[0]] * count
    for source, target, _, _ in lines:
        row, last = rows[source] + 1, rows[target]
        if row == last and xs[source] == xs[target]:
            continue
        above[row] = max(above[row], gaps[1])
        above[last] = max(above[last], gaps[1])
    for box in marked:
        above[rows[box]] = max(above[rows[box]], gaps[2])
    tops, bottoms, y = [], [], 0
    for row in range(count):
        y += above[row] if row else 0
        tops.append(y)
        y += tall[row]
        bottoms.append(y)
    return tops, bottoms, y


def _ports(
    sizes: Sequence[tuple[int, int]],
    lines: Sequence[Line],
    rows: list[int],
    xs: list[int],
    lanes: dict[tuple[int, int], int],
    centres: list[int],
) -> tuple[list[int], list[int]]:
    """Return where each edge leaves its box and where it ends, counted from the centres of the two boxes.

    Edges from a box are sorted by where they go, so that they don't cross; a straight one is in the middle.
    """
    starts, ends = [0] * len(lines), [0] * len(lines)
    leaving: list[list[tuple[int, int]]] = [[] for _ in sizes]
    arriving: list[dict[tuple[int, int], list[int]]] = [{} for _ in sizes]
    for i, (source, target, port, _) in enumerate(lines):
        long = rows[target] - rows[source] > 1
        lane = centres[lanes[target, port]] if long else 0
        leaving[source].append(((lane if long else xs[target]) - xs[source], i))
        arriving[target].setdefault(((lane if long else xs[source]) - xs[target], port), []).append(i)
    for box, edges in enumerate(leaving):
        if len(edges) > 1:
            edges.sort()
            step = WIDE_STEP if any([lines[i].labelled for _, i in edges]) else STEP  # noqa: C419
            for offset, (_, i) in zip(_spread([dx for dx, _ in edges], sizes[box][0], step), edges, strict=True):
                starts[i] = offset
    for box, places in enumerate(arriving):
        if len(places) > 1:
            keys = sorted(places)
            step = WIDE_STEP if any(lines[i].labelled for key in keys for i in places[key]) else STEP
            for offset, key in zip(_spread([dx for dx, _ in keys], sizes[box][0], step), keys, strict=True):
                for i in places[key]:
                    ends[i] = offset
    return starts, ends


def _spread(ways: list[int], width: int, step: int) -> list[int]:
    """Return one offset for each edge, given how far to the left (below 0) or right it goes, in rising order."""
    straight = ways.count(0)
    left = sum(way < 0 for way in ways)
    # The place in the middle: of the straight ones if there are, else of all.
    middle = left + (straight - 1) / 2 if straight else (len(ways) - 1) / 2
    reach = max(middle, len(ways) - 1 - middle)
    step = min(step, (width / 2 - 10) / reach)
    return [round((i - middle) * step) for i in range(len(ways))]
