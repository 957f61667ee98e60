"""The layout of layered graphs: what may never happen, over random graphs, and what known shapes look like."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.draw.layered import Line, place

# The same examples in every run: a red test is a change of the code, never luck.
CHECKED = settings(derandomize=True, deadline=None, database=None, max_examples=300)


@st.composite
def graphs(draw):
    """Sizes and lines of a graph without cycles, often with several roots, shared ends and several ports."""
    count = draw(st.integers(1, 24))
    sizes = [(2 * draw(st.integers(10, 90)), draw(st.integers(18, 90))) for _ in range(count)]
    lines = {}
    for target in range(1, count):
        for source in draw(st.lists(st.integers(0, target - 1), max_size=4)):
            port = draw(st.integers(0, 1))
            lines[source, target, port] = Line(source, target, port, port == 1)
    return sizes, list(lines.values())


def curve_points(x, start, end_x, end_y, steps=24):
    """Points of the curve that is drawn for a bend: upright at both ends."""
    middle = (start + end_y) / 2
    for i in range(steps + 1):
        t = i / steps
        yield (
            (1 - t) ** 3 * x + 3 * (1 - t) ** 2 * t * x + 3 * (1 - t) * t * t * end_x + t**3 * end_x,
            (1 - t) ** 3 * start + 3 * (1 - t) ** 2 * t * middle + 3 * (1 - t) * t * t * middle + t**3 * end_y,
        )


def route_points(route):
    yield from ((route.x, y) for y in range(route.y, route.row_end + 1, 3))
    if route.lane is None:
        yield from curve_points(route.x, route.row_end, route.end_x, route.end_y)
        return
    at, top, bottom = route.lane
    yield from curve_points(route.x, route.row_end, at, top)
    yield from ((at, y) for y in range(top, bottom + 1, 3))
    yield from curve_points(at, bottom, route.end_x, route.end_y)


@CHECKED
@given(graphs())
def test_no_two_boxes_overlap(graph):
    sizes, lines = graph
    corners = place(sizes, lines).corners
    for a in range(len(sizes)):
        for b in range(a):
            (ax, ay), (bx, by) = corners[a], corners[b]
            apart_x = ax + sizes[a][0] <= bx or bx + sizes[b][0] <= ax
            apart_y = ay + sizes[a][1] <= by or by + sizes[b][1] <= ay
            assert apart_x or apart_y


@CHECKED
@given(graphs())
def test_no_edge_crosses_a_box(graph):
    sizes, lines = graph
    placed = place(sizes, lines)
    for route in placed.routes:
        for x, y in route_points(route):
            for (left, top), (width, height) in zip(placed.corners, sizes, strict=True):
                assert not (left < x < left + width and top < y < top + height)


@CHECKED
@given(graphs())
def test_every_edge_leads_down_from_its_box_to_the_top_of_another(graph):
    sizes, lines = graph
    placed = place(sizes, lines)
    for line, route in zip(lines, placed.routes, strict=True):
        (x, y), (end_x, end_y) = placed.corners[line.source], placed.corners[line.target]
        assert x <= route.x <= x + sizes[line.source][0]
        assert route.y == y + sizes[line.source][1]
        assert end_x <= route.end_x <= end_x + sizes[line.target][0]
        assert route.end_y == end_y
        assert route.y <= route.row_end < route.end_y


@CHECKED
@given(graphs())
def test_the_spine_is_a_longest_path_on_one_line(graph):
    sizes, lines = graph
    placed = place(sizes, lines)
    longest = [1] * len(sizes)
    for line in sorted(lines, key=lambda line: line.source):
        longest[line.target] = max(longest[line.target], longest[line.source] + 1)
    assert len(placed.spine) == max(longest)
    assert {(line.source, line.target) for line in lines} >= set(pairwise(placed.spine))
    assert len({placed.corners[box][0] + sizes[box][0] / 2 for box in placed.spine}) == 1


@CHECKED
@given(graphs())
def test_all_lies_inside_the_picture_and_twice_the_same(graph):
    sizes, lines = graph
    placed = place(sizes, lines)
    for (x, y), (width, height) in zip(placed.corners, sizes, strict=True):
        assert 0 <= x <= x + width <= placed.width
        assert 0 <= y <= y + height <= placed.height
    for route in placed.routes:
        assert all(0 <= x <= placed.width for x, _ in route_points(route))
    assert place(sizes, lines) == placed


@CHECKED
@given(graphs())
def test_lanes_to_different_ends_never_meet(graph):
    sizes, lines = graph
    lanes = {}
    for line, route in zip(lines, place(sizes, lines).routes, strict=True):
        if route.lane:
            x, top, bottom = route.lane
            lanes.setdefault(x, []).append((top, bottom, line.target, line.port))
    for found in lanes.values():
        for top, bottom, *end in found:
            for other_top, other_bottom, *other_end in found:
                assert end == other_end or bottom < other_top or other_bottom < top


def test_edges_to_one_end_share_a_lane():
    lines = [Line(0, 1), Line(1, 2), Line(2, 3), Line(3, 4), Line(0, 4), Line(1, 4)]
    first, second = place([(60, 20)] * 5, lines).routes[4:]
    assert first.lane[0] == second.lane[0]
    assert first.end_x == second.end_x


def test_leaves_stand_left_and_branches_that_return_stand_right():
    #     0 -> 1 -> 2 -> 3 is the spine, 4 a leaf of 1, 5 a way from 0 to 2
    lines = [Line(0, 1), Line(1, 2), Line(2, 3), Line(1, 4), Line(0, 5), Line(5, 2)]
    placed = place([(60, 20)] * 6, lines)
    xs = [x for x, _ in placed.corners]
    assert xs[4] < xs[0] == xs[1] == xs[2] == xs[3] < xs[5]


def test_a_chain_keeps_its_column():
    lines = [Line(i, i + 1) for i in range(6)] + [Line(0, 7), Line(7, 8), Line(8, 9), Line(9, 6)]
    placed = place([(60, 20)] * 10, lines)
    assert len({placed.corners[box][0] for box in (7, 8, 9)}) == 1


def test_many_branches_of_one_box_stand_beneath_each_other():
    steps = 12
    spine = [Line(i, i + 1) for i in range(steps)]
    branches = [line for i in range(2, steps) for line in (Line(0, steps + i), Line(steps + i, i))]
    placed = place([(60, 20)] * (2 * steps), spine + branches)
    assert placed.width < 4 * 60 + 2 * 12 * steps


def test_a_deep_chain_needs_no_recursion():
    count = 20_000
    assert place([(60, 20)] * count, [Line(i, i + 1) for i in range(count - 1)]).width == 60


def test_one_box_and_none():
    assert place([(60, 20)], []).height == 20
    assert place([], []).corners == ()


def test_a_cycle_is_refused():
    with pytest.raises(ValueError, match="cycle"):
        place([(60, 20)] * 2, [Line(0, 1), Line(1, 0)])
