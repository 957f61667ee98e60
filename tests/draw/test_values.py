"""Values read a few at a time, and numbers written short."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.draw.drawing import Drawing
from helpers.draw.svg import coordinate, short_count, short_number
from helpers.model.layout import Layout
from helpers.model.values import first_reached, read_values, readers, stored_values, visible_indices, visible_slots

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=200)


@st.composite
def layouts(draw):
    sizes = draw(st.lists(st.integers(0, 5), max_size=4))
    strides = draw(st.lists(st.integers(0, 7), min_size=len(sizes), max_size=len(sizes)))
    offset = draw(st.integers(0, 5))
    last = offset + sum(max(n - 1, 0) * s for n, s in zip(sizes, strides, strict=True))
    return Layout.of(torch.empty(last + 3, device="meta").as_strided(sizes, strides, offset))


@STEADY
@given(layouts())
def test_readers_counts_the_indices_that_read_a_slot(layout):
    counts = Counter(layout.slots())
    assert [readers(layout, slot) for slot in range(-2, layout.storage_numel)] == [
        counts[slot] for slot in range(-2, layout.storage_numel)
    ]


@STEADY
@given(layouts())
def test_first_reached_is_the_next_slot_that_is_read(layout):
    reached = sorted(set(layout.slots()))
    for slot in range(-2, layout.storage_numel + 1):
        assert first_reached(layout, slot) == next((r for r in reached if r >= slot), None)


@STEADY
@given(st.lists(st.integers(1, 400), min_size=1, max_size=6), st.data())
def test_visible_indices_keep_the_ends_the_focus_and_the_order(sizes, data):
    layout = Layout.of(torch.empty(sizes, device="meta"))
    at = [data.draw(st.integers(0, size - 1)) for size in sizes]
    shown = visible_indices(layout, [range(i, i + 1) for i in at])
    assert math.prod(sum(i is not None for i in some) for some in shown) <= 256
    for some, size, i in zip(shown, sizes, at, strict=True):
        known = [j for j in some if j is not None]
        assert known == sorted(set(known))
        assert i in known
        assert set(known) <= set(range(size))
        whole = [None, *some, None]
        for before, here, after in zip(whole, some, whole[2:], strict=False):
            if here is None:
                low = -1 if before is None else before
                high = size if after is None else after
                assert high - low > 1
        # Two neighbours in the list are neighbours in the tensor: what is left out is marked.
        assert all(b - a == 1 for a, b in pairwise(some) if None not in (a, b))


@STEADY
@given(st.integers(257, 5000), st.sets(st.integers(0, 256), max_size=20))
def test_visible_slots_cover_the_storage_without_overlap(total, wanted):
    layout = Layout.of(torch.empty(total, device="meta"))
    pairs = visible_slots(layout, wanted)
    assert [slot for first, last in pairs for slot in range(first, last + 1)] == list(range(total))
    assert wanted | {0, total - 1} <= {first for first, last in pairs if first == last}
    assert all(last - first >= 2 for first, last in pairs if last > first)
    fillers = {first for first, last in pairs if first == last} - wanted - {0, 1, total - 1}
    assert not any({slot, slot + 1, slot + 2} <= fillers for slot in fillers)  # three would have been a gap


DTYPES = [
    dtype
    for name in sorted(dir(torch))
    if isinstance(dtype := getattr(torch, name), torch.dtype) and not name.startswith("q")
]


@pytest.mark.parametrize("dtype", sorted(set(DTYPES), key=str), ids=str)
def test_every_dtype_can_be_read(dtype):
    size = torch.empty(0, dtype=dtype).element_size()
    raw = torch.arange(1, 6 * size + 1, dtype=torch.uint8).clamp_(max=1 if dtype == torch.bool else 100)
    t = torch.empty(0, dtype=dtype).set_(raw.untyped_storage(), 0, (6,), (1,))
    found = stored_values(t, [5, 0, 2])
    try:
        expected = [t[i].item() for i in (5, 0, 2)]
    except (RuntimeError, NotImplementedError):
        expected = ["0x" + raw[size * i : size * (i + 1)].flip(0).numpy().tobytes().hex() for i in (5, 0, 2)]
    assert list(map(repr, found)) == list(map(repr, expected))
    assert stored_values(t, [2, 3, 4]) == stored_values(t, [4, 3, 2])[::-1]
    assert all(len(short_number(value)) <= 20 for value in found)


def test_values_outside_of_the_storage_are_unknown():
    t = torch.arange(4)
    assert stored_values(t, [3, 4, -1]) == [3, None, None]
    assert read_values(t, [(2,), (0,)]) == [2, 0]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "0"),
        (-1234567, "-1234567"),
        (12345678, "1.23e7"),
        (2**63 - 1, "9.22e18"),
        (0.0, "0."),
        (-0.0, "-0."),
        (3.0, "3."),
        (0.1, "0.1"),
        (-0.33614, "-0.3361"),
        (0.0537412, "0.0537"),
        (0.004, "0.004"),
        (0.00099, "9.9e-4"),
        (1234.0, "1234."),
        (12.3456, "12.35"),
        (9999.4, "9999."),
        (9999.9, "1e4"),
        (1e20, "1e20"),
        (-1.23456e-5, "-1.23e-5"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
        (True, "True"),
        (1 + 2j, "1+2j"),
        (complex(-0.5, -0.25), "-0.5-0.25j"),
        (complex(0, math.inf), "0+infj"),
        ("0x3f", "0x3f"),
    ],
)
def test_a_value_is_written_short(value, written):
    assert short_number(value) == written


@STEADY
@given(st.floats(allow_nan=False, width=32))
def test_a_written_float_is_close_and_fits_a_cell(value):
    written = short_number(value)
    assert len(written) <= 9
    assert math.isclose(float(written), value, rel_tol=0.006, abs_tol=6e-5 if abs(value) >= 1e-3 else 0)


@pytest.mark.parametrize(
    ("count", "written"), [(2, "2"), (1024, "1,024"), (10**9, "10⁹"), (3_200_000, "3.2×10⁶"), (99_999, "99,999")]
)
def test_a_count_is_written_short(count, written):
    assert short_count(count) == written


@pytest.mark.parametrize(("x", "written"), [(3, "3"), (3.0, "3"), (3.456, "3.46"), (3.5, "3.5"), (-0.25, "-0.25")])
def test_a_coordinate_is_written_short(x, written):
    assert coordinate(x) == written


def test_an_image_can_be_read_line_by_line_and_is_whole():
    from html.parser import HTMLParser
    from urllib.parse import unquote

    svg = '<svg width="90" height="9">\n<title>a &lt; b &amp; "c" 100% #1</title>\n</svg>'
    seen = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            seen.append((tag, dict(attrs)))

    Reader().feed(Drawing(svg, 'a < b & "c"').html())
    [(tag, given)] = seen
    assert tag == "img"
    assert given["alt"] == 'a < b & "c"'
    assert given["style"] == "max-width:100%;min-width:90px;height:auto"
    assert unquote(given["src"]) == "data:image/svg+xml," + svg.replace('"', "'")
    assert "<" not in given["src"]
    assert "#" not in given["src"]
    assert given["src"].count("\n") == 2


def test_saving_does_not_overwrite(tmp_path):
    drawing = Drawing("<svg/>", "nothing")
    assert drawing.save(tmp_path / "a.svg").read_text() == "<svg/>"
    with pytest.raises(FileExistsError):
        drawing.save(tmp_path / "a.svg")
