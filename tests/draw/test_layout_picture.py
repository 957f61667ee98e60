"""`draw_layout` against PyTorch: what stands in the picture is what the tensor reads, and it can be read."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise, product
from pathlib import Path

import pytest
import torch
from torch._subclasses import FakeTensorMode

from helpers.draw.storage import draw_layout
from helpers.draw.svg import short_number
from helpers.model import values
from helpers.model.finding import HelperError
from helpers.model.layout import Layout

ROOT = Path(__file__).resolve().parents[2]


def numbers(*shape: int) -> torch.Tensor:
    """A tensor whose values are not its slot numbers, so that one cannot pass for the other."""
    return (torch.arange(torch.Size(shape).numel()) * 7 + 3).view(shape)


TENSORS = {
    "0-d": (torch.tensor(3.25), ()),
    "0-d in a storage": (numbers(12)[5], ()),
    "1-d": (numbers(12)[3:9:2], 1),
    "1-d in bands": (numbers(100), slice(20, 30)),
    "2-d": (numbers(3, 4), 2),
    "transposed": (numbers(3, 4).t(), 1),
    "column": (numbers(3, 4).t(), (None, 2)),
    "inner part": (numbers(8, 8)[2:6, 2:6], (slice(1, 3), slice(0, 2))),
    "wide": (numbers(2, 100), 1),
    "one row": (numbers(1, 6), (0, 4)),
    "3-d": (numbers(2, 3, 4), (1, 2)),
    "permuted": (numbers(2, 3, 4).permute(2, 0, 1), (None, 0, 1)),
    "many blocks": (numbers(9, 2, 3), 7),
    "4-d": (numbers(2, 3, 2, 2), (1, None, 0, 1)),
    "channels_last": (numbers(2, 3, 2, 2).contiguous(memory_format=torch.channels_last), (1, -1)),
    "5-d": (numbers(2, 1, 2, 2, 3), (1, 0, 0, 1)),
    "expanded": (numbers(3, 1).expand(3, 4), 1),
    "unfolded": (numbers(8).unfold(0, 4, 2), 1),
    "diagonal": (numbers(4, 4).diagonal(), 2),
    "flipped": (numbers(3, 4).flip(1), 0),
    "bool": (numbers(2, 3) > 10, 0),
    "floats": (torch.linspace(-1e-3, 4e5, 64).view(8, 8), (None, 2)),
    "odd floats": (torch.tensor([[1e-7, 1e20, torch.inf], [torch.nan, -0.0, -1.23456e-5]]), 0),
    "complex": (torch.complex(torch.linspace(-1, 1, 6), torch.linspace(5, -5, 6)).view(2, 3), 1),
    "bfloat16": (torch.linspace(0, 1, 6, dtype=torch.bfloat16), 3),
    "needs gradients": (torch.ones(3, requires_grad=True), 1),
    "parameter": (torch.nn.Linear(3, 2).weight, 1),
    "256 cells": (numbers(16, 16), 7),
    "summarised": (numbers(300, 200), 150),
    "summarised row": (numbers(5000), slice(2000, 3000)),
    "summarised block": (numbers(3, 40, 50), (1, 20)),
    "4-d above": (numbers(3, 2, 2, 4), (0, 1, 0)),
    "summarised 5-d": (numbers(4, 5, 6, 7, 8), (2, 3, 4)),
    "summarised part": (numbers(100, 100)[10:90:7, 5], 3),
    "gap read at its last slot": (numbers(262).as_strided((18, 18), (3, 10)), (4, 5)),
    "expanded without end": (torch.tensor([5.0]).expand(1000, 1000, 1000), (1, 2, 3)),
}


@pytest.fixture(params=TENSORS, scope="module")
def example(request):
    return TENSORS[request.param]


@pytest.fixture(scope="module")
def tensor(example):
    return example[0]


@pytest.fixture(scope="module")
def drawing(example):
    return draw_layout(example[0], focus=example[1])


@pytest.fixture(scope="module")
def shown(drawing, look):
    return look(drawing)


def slot_of(t: torch.Tensor, index: tuple) -> int:
    """The slot that PyTorch reads, from addresses."""
    return (t[index].data_ptr() - t.untyped_storage().data_ptr()) // t.element_size()


def focused(t: torch.Tensor, focus) -> set[int]:
    """The slots of a focus, from PyTorch's own indexing."""
    entries = focus if isinstance(focus, tuple) else (focus,)
    part = t[tuple(slice(None) if entry is None else entry for entry in entries)]
    return {slot_of(t, ()) if not t.dim() else s for s in Layout.of(part).slots()} if part.numel() < 10**4 else set()


def test_every_cell_shows_the_value_and_the_slot_that_torch_reads(tensor, shown):
    assert shown.cells
    for index, cell in shown.cells.items():
        slot = slot_of(tensor, index)
        assert cell.data["slot"] == str(slot)
        assert cell.words == [str(slot), short_number(tensor[index].item())]


def test_every_element_of_a_small_tensor_has_a_cell(tensor, shown):
    if tensor.numel() <= 256:
        assert set(shown.cells) == set(product(*map(range, tensor.shape)))
    else:
        corners = set(product(*({0, size - 1} for size in tensor.shape[-2:])))
        assert corners <= {index[-2:] for index in shown.cells}
        assert len(shown.cells) <= 256


def test_every_slot_shows_what_the_storage_holds(tensor, shown):
    storage = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    if len(storage) <= 256:
        assert sorted(shown.slots) == list(range(len(storage)))
        assert not shown.gaps
    for slot, tile in shown.slots.items():
        assert tile.words[0] == str(slot)
        assert tile.words[-1] == short_number(storage[slot].item())


def test_slots_and_gaps_count_every_slot_once(tensor, shown):
    storage_numel = tensor.untyped_storage().nbytes() // tensor.element_size()
    hidden = []
    for gap in shown.gaps:
        first, last = int(gap.data["first"]), int(gap.data["last"])
        hidden.append((first, last))
        assert gap.words == [f"… {last - first + 1:,}", "slots …"]
    parts = sorted([(slot, slot) for slot in shown.slots] + hidden)
    assert parts[0][0] == 0
    assert parts[-1][1] == storage_numel - 1
    assert all(before[1] + 1 == after[0] for before, after in pairwise(parts))


def test_a_slot_is_coloured_as_view_when_an_index_reads_it_and_hatched_when_none_does(tensor, shown):
    if tensor.numel() > 10**5:
        return
    reached = set(Layout.of(tensor).slots())
    for slot, tile in shown.slots.items():
        assert (tile.role in ("view", "focus")) == (slot in reached)
        assert shown.hatched(tile) == (slot not in reached)
    for gap in shown.gaps:
        inside = any(int(gap.data["first"]) <= slot <= int(gap.data["last"]) for slot in reached)
        assert gap.role == ("view" if inside else "storage")


def test_a_slot_that_several_indices_read_says_how_many(tensor, shown):
    if tensor.numel() > 10**5:
        return
    slots = list(Layout.of(tensor).slots())
    for slot, tile in shown.slots.items():
        expected = [f"×{slots.count(slot):,}"] if slots.count(slot) > 1 else []
        assert tile.words[1:-1] == expected


def test_focus_is_orange_in_the_view_and_in_the_storage(example, shown):
    tensor, focus = example
    if tensor.numel() > 10**5:
        return
    entries = focus if isinstance(focus, tuple) else (focus,)
    index = tuple(slice(None) if entry is None else entry for entry in entries)
    marks = torch.zeros(tensor.shape, dtype=torch.bool)
    marks[index] = True
    for at, cell in shown.cells.items():
        assert (cell.role == "focus") == bool(marks[at])
    orange = {slot for slot, tile in shown.slots.items() if tile.role == "focus"}
    assert orange == {slot_of(tensor, at) for at, cell in shown.cells.items() if cell.role == "focus"}
    assert orange


def test_every_cell_in_focus_has_a_link_that_ends_at_its_slot(tensor, shown):
    lit = {index: cell for index, cell in shown.cells.items() if cell.role == "focus"}
    if len(lit) > 64:  # so many lines would hide the picture; colour and numbers remain
        assert shown.links == []
        return
    assert {start for start, _, _ in shown.links} == {",".join(map(str, index)) for index in lit}
    assert len(shown.links) == len(lit)
    for start, end, points in shown.links:
        index = tuple(int(i) for i in start.split(",") if i)
        assert int(end) == slot_of(tensor, index)
        cell, slot = shown.cells[index].box, shown.slots[int(end)].box
        (x, y), (goal_x, goal_y) = points[0], points[-1]
        assert cell.contains(x, y)
        assert (x, y) in [
            (cell.right, (cell.top + cell.bottom) / 2),
            ((cell.left + cell.right) / 2, cell.bottom),
        ]
        assert goal_y == slot.top
        assert slot.left < goal_x < slot.right


@pytest.mark.parametrize(
    "tensor", [torch.arange(12).view(3, 4), torch.arange(40).view(2, 20).t()], ids=["rows", "folds"]
)
def test_a_link_bends_only_after_it_left_straight_down(tensor):
    paths = re.findall(r'<path d="([^"]+)" data-from', draw_layout(tensor, focus=slice(None)).svg)
    assert len(paths) == 2 * tensor.numel()
    for path in paths:
        at = 0.0
        for command, rest in re.findall(r"([A-Za-z])([^A-Za-z]*)", path):
            numbers = [float(number) for number in rest.split()]
            if command == "C":
                leaves, _, arrives, _, goal, _ = numbers
                assert (leaves, arrives) == (at, goal)
                at = goal
            elif command in "Mq":
                at = numbers[0] if command == "M" else at + numbers[2]


def test_links_pass_between_tiles_and_never_through_one(shown):
    tiles = [rect.box for rect in shown.rects if rect.data]
    for _, _, points in shown.links:
        crossed = [box for box in tiles for x, y in points if box.contains(x, y, inset=2)]
        assert not crossed


def test_links_do_not_cross_text_that_has_no_ground_of_its_own(shown):
    grounds = [rect.box for rect in shown.rects]
    free = [text.box for text in shown.texts if not any(ground.holds(text.box) for ground in grounds)]
    for _, _, points in shown.links:
        assert not [box for box in free for x, y in points if box.contains(x, y)]


def test_text_stays_inside_its_tile(shown):
    for rect in shown.rects:
        for text in rect.texts:
            assert rect.box.holds(text.box), text.content


def test_no_text_covers_another(shown):
    assert not shown.overlaps(shown.texts)


def test_tiles_do_not_overlap(shown):
    assert not shown.overlaps([rect for rect in shown.rects if rect.data])


def test_nothing_lies_outside_of_the_picture(shown):
    width, height = shown.size
    for thing in [*shown.rects, *shown.texts]:
        assert thing.box.left >= 0
        assert thing.box.right <= width
        assert thing.box.top >= 0
        assert thing.box.bottom <= height
    for _, _, points in shown.links:
        assert all(0 <= x <= width and 0 <= y <= height for x, y in points)
    assert width <= 810


def test_no_text_is_small(shown):
    assert all(text.size >= 11 for text in shown.texts)


def test_the_title_is_the_sentence_and_there_are_no_ids_to_clash(drawing, shown):
    assert shown.title == drawing.sentence
    assert shown.role == "img"
    assert shown.ids == []


def test_shape_strides_and_offset_are_written(tensor, shown):
    words = " ".join(text.content for text in shown.texts)
    for d in range(tensor.dim()):
        size, stride = f"size {tensor.shape[d]:,}", f"stride {tensor.stride(d):,}"
        assert f"dim {d} · {size} · {stride}" in words or f"dim {d} ↓ {size} {stride}" in words
    assert f"storage_offset {tensor.storage_offset():,}" in words


def test_the_arrow_stands_at_the_storage_offset(tensor, drawing, shown):
    tile = shown.slots[tensor.storage_offset()].box
    middle, below = (tile.left + tile.right) / 2, tile.bottom + 2
    assert f'd="M{middle:g} {below:g}l5 7h-10z"' in drawing.svg


def test_the_sentence_has_the_numbers(tensor, drawing):
    assert f"shape {tuple(tensor.shape)} with stride {tensor.stride()}" in drawing.sentence
    storage_numel = tensor.untyped_storage().nbytes() // tensor.element_size()
    assert f"on a storage of {storage_numel:,} {str(tensor.dtype).removeprefix('torch.')} slot" in drawing.sentence


SENTENCES = {
    "A view of shape (4, 3) with stride (1, 4) on a storage of 12 int64 slots; row 1 reads slots 1, 5, 9 "
    "and finds 1, 5, 9.": lambda: draw_layout(torch.arange(12).view(3, 4).t(), focus=1),
    "A view of shape (3,) with stride (2,) and storage_offset 3 on a storage of 12 int64 slots; it reads 3, 5, 7.": (
        lambda: draw_layout(torch.arange(12)[3:9:2])
    ),
    "A view of shape (3, 4) with stride (1, 0) on a storage of 3 float32 slots; up to 4 elements read the same slot; "
    "column 2 reads slots 0, 1, 2 and finds 1., 1., 1.": (
        lambda: draw_layout(torch.ones(3, 1).expand(3, 4), focus=(None, 2))
    ),
    "A view of shape () with stride () on a storage of 1 float32 slot; it reads 2.5.": (
        lambda: draw_layout(torch.tensor(2.5))
    ),
    "A view of shape (0, 3) with stride (3, 1) on a storage of 0 float32 slots; it has no elements.": (
        lambda: draw_layout(torch.empty(0, 3))
    ),
    "A view of shape (2, 2) with stride (2, 1) on a storage of 4 int64 slots; "
    "part [0, 1:2] reads slot 1 and finds 1.": (
        lambda: draw_layout(torch.arange(4).view(2, 2), focus=(0, slice(1, None)))
    ),
    "A view of shape (2,) with stride (1,) on a storage of 2 float32 slots; "
    "there are no values to show, because the tensor has no data.": (
        lambda: draw_layout(torch.empty(2, device="meta"))
    ),
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_the_sentence_says_what_there_is_to_see(sentence):
    drawing = SENTENCES[sentence]()
    assert drawing.sentence == sentence
    assert repr(drawing) == drawing.sentence


def test_different_pictures_have_different_sentences():
    x = torch.arange(12).view(3, 4)
    drawings = [
        draw_layout(x),
        draw_layout(x, focus=0),
        draw_layout(x, focus=1),
        draw_layout(x, focus=(None, 1)),
        draw_layout(x.t()),
        draw_layout(x + 1),
        draw_layout(x.float()),
        draw_layout(x[1:]),
        draw_layout(torch.arange(16)[:12].view(3, 4)),
        draw_layout(torch.empty(3, 4, dtype=torch.int64, device="meta")),
    ]
    assert len({drawing.sentence for drawing in drawings}) == len(drawings)


WRONG = {
    "index 3 is out of range for dimension 0 of size 3": 3,
    "index -4 is out of range for dimension 0 of size 3": -4,
    "index 4 is out of range for dimension 1 of size 4": (None, 4),
    "focus has 3 indices, and a tensor of shape (3, 4) has 2": (0, 0, 0),
    "focus takes a number, a slice or None for dimension 0, and a str came": "1",
    "focus takes a number, a slice or None for dimension 1, and a bool came": (0, True),
    "focus takes a number, a slice or None for dimension 0, and a float came": 1.0,
    "focus has step -1 for dimension 0, and PyTorch takes only steps of 1 and more": slice(None, None, -1),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_a_wrong_focus_is_explained_in_one_sentence(sentence):
    with pytest.raises(HelperError) as error:
        draw_layout(torch.zeros(3, 4), focus=WRONG[sentence])
    assert str(error.value) == sentence


@pytest.mark.parametrize("thing", [[1, 2], "x", None, torch.eye(3).to_sparse()])
def test_what_has_no_strides_is_explained(thing):
    with pytest.raises(HelperError):
        draw_layout(thing)


@pytest.mark.parametrize("value", [1, 123456789, 1.2345678e-17], ids=["narrow", "wide", "wider"])
def test_diagonals_fill_a_tile_from_edge_to_edge_and_leave_it_nowhere(look, value):
    shown = look(draw_layout(torch.full((2,), value, dtype=torch.float64)[1:]))
    tile = shown.slots[0].box
    ends = [end for group in shown.diagonals() for end in group]
    assert min(x for x, _ in ends) == tile.left
    assert max(x for x, _ in ends) == pytest.approx(tile.right)
    assert {y for _, y in ends} == {tile.top, (tile.top + tile.bottom) / 2, tile.bottom}
    steps = [(b[0] - a[0], b[1] - a[1]) for group in shown.diagonals() for a, b in pairwise(group)]
    assert len({round(dy / dx, 6) for dx, dy in steps if dy}) == 1, "all lines run in one direction"


def test_dots_stand_halfway_between_the_columns_that_they_stand_for(look):
    shown = look(draw_layout(torch.zeros(3, 400)))
    row = sorted(cell.box.left for index, cell in shown.cells.items() if index[0] == 0)
    width = shown.cells[0, 0].box.right - shown.cells[0, 0].box.left
    (gap,) = [(a + width, b) for a, b in pairwise(row) if b - a > min(b - a for a, b in pairwise(row))]
    dots = [text.box for text in shown.texts if text.content == "…"]
    assert len(dots) == 3
    assert {(dot.left + dot.right) / 2 for dot in dots} == {sum(gap) / 2}


def test_an_empty_tensor_shows_its_storage_without_cells(look):
    drawing = draw_layout(torch.arange(12)[12:])
    shown = look(drawing)
    assert shown.cells == {}
    assert len(shown.slots) == 12
    assert all(shown.hatched(tile) for tile in shown.slots.values())
    assert "no elements" in [text.content for text in shown.texts]
    assert "storage_offset 12" in [text.content for text in shown.texts]


def test_a_focus_that_selects_nothing_says_so(look):
    drawing = draw_layout(torch.arange(4), focus=slice(2, 2))
    assert "part [2:2] has no elements" in drawing.sentence
    assert look(drawing).links == []


@pytest.mark.parametrize("kind", ["meta", "fake"])
def test_a_tensor_without_data_shows_slot_numbers_alone(look, kind):
    if kind == "meta":
        t = torch.empty(3, 4, device="meta").t()
    else:
        with FakeTensorMode():
            t = torch.empty(3, 4).t()
    drawing = draw_layout(t, focus=1)
    assert {index: cell.words for index, cell in look(drawing).cells.items()} == {
        (i, j): [str(i + 4 * j)] for i in range(4) for j in range(3)
    }
    assert "no values to show" in drawing.sentence


def test_a_conjugated_tensor_shows_what_is_stored_and_what_is_read(look):
    z = torch.tensor([1 + 2j, 3 - 4j]).conj()
    drawing = draw_layout(z)
    shown = look(drawing)
    assert [cell.words[-1] for cell in shown.cells.values()] == ["1-2j", "3+4j"]
    assert [tile.words[-1] for tile in shown.slots.values()] == ["1+2j", "3-4j"]
    assert "before conjugation" in drawing.sentence


def test_a_negated_tensor_shows_what_is_stored_and_what_is_read(look):
    z = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert z.is_neg()
    drawing = draw_layout(z)
    shown = look(drawing)
    assert [cell.words[-1] for cell in shown.cells.values()] == ["-2.", "4."]
    assert [shown.slots[slot].words[-1] for slot in range(4)] == ["1.", "2.", "3.", "-4."]
    assert "before negation" in drawing.sentence


@pytest.mark.filterwarnings("ignore")
def test_a_quantized_tensor_shows_stored_whole_numbers_and_scaled_values(look):
    t = torch.quantize_per_tensor(torch.tensor([0.5, -0.25]), 0.25, 3, torch.quint8)
    drawing = draw_layout(t)
    shown = look(drawing)
    assert [cell.words[-1] for cell in shown.cells.values()] == ["0.5", "-0.25"]
    assert [tile.words[-1] for tile in shown.slots.values()] == ["5", "2"]
    assert "scaled" in drawing.sentence


def test_an_inference_tensor_can_be_drawn(look):
    with torch.inference_mode():
        t = torch.arange(3) + 4
    assert [cell.words[-1] for cell in look(draw_layout(t)).cells.values()] == ["4", "5", "6"]


def test_a_default_device_does_not_disturb(look):
    t = torch.arange(6).view(2, 3).t()
    with torch.device("meta"):
        drawing = draw_layout(t, focus=1)
    assert drawing == draw_layout(t, focus=1)


def test_an_emptied_storage_is_drawn_without_values(look):
    t = torch.arange(4)
    t.untyped_storage().resize_(0)
    drawing = draw_layout(t)
    assert [cell.words for cell in look(drawing).cells.values()] == [["0"], ["1"], ["2"], ["3"]]
    assert "the storage was emptied" in drawing.sentence


HUGE = {
    "expanded": lambda: torch.zeros(1).expand(10**9),
    "a gigabyte without data": lambda: torch.empty(2**14, 2**14, device="meta").t(),
    "overlapping": lambda: torch.zeros(3 * 10**5).as_strided((10**5, 10**5, 10**5), (1, 1, 1)),
    "mixed": lambda: torch.zeros(10**6).as_strided((1000, 1000, 1000, 1000), (500, 0, 7, 3)),
    "real": lambda: torch.zeros(4000, 5000)[:, ::3],
}


@pytest.mark.parametrize("name", HUGE)
def test_a_huge_tensor_is_summarised_from_a_few_values(name, look, monkeypatch):
    t = HUGE[name]()
    asked, walked = [], 0
    gather, slots, solve = values._gather, Layout.slots, Layout.slot

    def counted_gather(t, wanted, size):
        asked.extend(wanted)
        return gather(t, wanted, size)

    def counted_slots(self):
        nonlocal walked
        for slot in slots(self):
            walked += 1
            assert walked < 1000
            yield slot

    def counted_slot(self, *index):
        nonlocal walked
        walked += 1
        assert walked < 1000
        return solve(self, *index)

    monkeypatch.setattr(values, "_gather", counted_gather)
    monkeypatch.setattr(Layout, "slots", counted_slots)
    monkeypatch.setattr(Layout, "slot", counted_slot)
    drawing = draw_layout(t, focus=5)
    shown = look(drawing)
    assert len(asked) <= 800
    assert 0 < len(shown.cells) <= 256
    assert len(shown.slots) <= 800
    assert f"of its {t.numel():,} elements are drawn" in drawing.sentence
    for index, cell in shown.cells.items():
        assert int(cell.words[0]) == t.storage_offset() + sum(i * s for i, s in zip(index, t.stride(), strict=True))


def test_two_processes_draw_the_same_bytes():
    code = (
        "import torch; from helpers.draw.storage import draw_layout, draw_storage; x = torch.arange(24).view(2, 3, 4);"
        "print(draw_layout(x.permute(2, 0, 1), focus=(1, None, slice(0, 2))).html());"
        "print(draw_storage(x, x[1], x.clone(), names=['x', 'row', 'copy']).html())"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0].count(b"<img") == 2
