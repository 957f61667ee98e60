"""`draw_storage` against PyTorch: which element of which tensor reads which slot."""

from __future__ import annotations

from collections import defaultdict
from itertools import product

import numpy as np
import pytest
import torch

from helpers.draw.storage import draw_layout, draw_storage
from helpers.draw.svg import short_number
from helpers.model.finding import HelperError

X = (torch.arange(12) * 7 + 3).view(3, 4)
F = torch.tensor([1.0, -2.0, 3.5, 4.25])
Z = torch.tensor([1 + 2j, 3 - 4j, -0.5 + 0.25j])
IMAGE = torch.arange(24).view(2, 3, 2, 2)
BIG = torch.arange(10**6).view(1000, 1000)

ONE_STORAGE = {
    "views": [X, X.t(), X[1], X[:, ::2]],
    "slice": [torch.arange(40)[3:7]],
    "complex": [Z, Z.real, Z.imag],
    "bytes": [F, F.view(torch.int32), F.view(torch.uint8)],
    "shared slots": [F, F.expand(3, 4), F.unfold(0, 2, 1)],
    "image": [IMAGE, IMAGE.permute(0, 2, 3, 1)],
    "big": [BIG, BIG[3], BIG.t()[10:20, 5]],
    "0-d and empty": [X[1, 2], X[3:]],
    "no slots": [torch.empty(0, 3)],
}


@pytest.fixture(params=ONE_STORAGE, scope="module")
def tensors(request):
    return ONE_STORAGE[request.param]


@pytest.fixture(scope="module")
def shown(tensors, look):
    return look(draw_storage(*tensors, names=[f"t{i}" for i in range(len(tensors))]))


def readers(t: torch.Tensor) -> dict[int, list[tuple[int, ...]]]:
    """Every slot that a small tensor reads, from addresses, with the indices that read it."""
    found = defaultdict(list)
    for index in product(*map(range, t.shape)):
        slot = (t[index].data_ptr() - t.untyped_storage().data_ptr()) // t.element_size()
        found[slot].append(index)
    return found


def test_each_lane_names_the_index_that_reads_the_slot(tensors, shown):
    for lane, t in enumerate(tensors):
        bars = shown.bars(lane)
        if t.numel() > 256:
            for slot, bar in bars.items():
                index = tuple(map(int, bar.words[0].split(",")))
                assert (t[index].data_ptr() - t.untyped_storage().data_ptr()) // t.element_size() == slot
            assert bars
            continue
        expected = readers(t)
        assert set(bars) == set(expected)
        for slot, bar in bars.items():
            found = expected[slot]
            words = f"×{len(found)}" if len(found) > 1 else ",".join(map(str, found[0]))
            assert bar.words == ([words] if words else [])


def test_each_bar_stands_under_the_slots_it_reads(tensors, shown):
    unit = min(t.element_size() for t in tensors)
    for lane, t in enumerate(tensors):
        ratio = t.element_size() // unit
        for slot, bar in shown.bars(lane).items():
            over = [shown.slots[slot * ratio + i].box for i in range(ratio)]
            assert over[0].left <= bar.box.left <= over[0].left + 1
            assert over[-1].right - 1 <= bar.box.right <= over[-1].right
            assert bar.box.top > over[0].bottom


def test_slots_show_what_the_storage_holds_in_units_of_the_smallest_element(tensors, shown):
    smallest = min(tensors, key=lambda t: t.element_size())
    sizes = {t.element_size() for t in tensors}
    storage = torch.empty(0, dtype=smallest.dtype).set_(smallest.untyped_storage())
    for slot, tile in shown.slots.items():
        number = slot * smallest.element_size() if len(sizes) > 1 else slot
        assert tile.words == [str(number), short_number(storage[slot].item())]
    if len(storage) <= 256:
        assert sorted(shown.slots) == list(range(len(storage)))


def test_a_slot_that_no_tensor_reads_is_hatched(tensors, shown):
    if tensors[0].numel() > 1000:
        return
    unit = min(t.element_size() for t in tensors)
    reached = {
        slot * (t.element_size() // unit) + i
        for t in tensors
        for slot in readers(t)
        for i in range(t.element_size() // unit)
    }
    for slot, tile in shown.slots.items():
        assert shown.hatched(tile) == (slot not in reached)


def test_the_picture_can_be_read(shown):
    width, height = shown.size
    assert width <= 800
    assert not shown.overlaps(shown.texts)
    assert not shown.overlaps([rect for rect in shown.rects if rect.data])
    for rect in shown.rects:
        assert all(rect.box.holds(text.box) for text in rect.texts)
    for thing in [*shown.rects, *shown.texts]:
        assert 0 <= thing.box.left <= thing.box.right <= width
        assert 0 <= thing.box.top <= thing.box.bottom <= height
    assert all(text.size >= 11 for text in shown.texts)


def test_the_table_lists_the_metadata_of_each_tensor(tensors, shown):
    words = [text.content for text in shown.texts]
    for i, t in enumerate(tensors):
        for cell in (f"t{i}", str(t.dtype).removeprefix("torch."), str(tuple(t.shape)), str(t.stride())):
            assert cell in words
        assert f"{t.storage_offset():,}" in words


def test_names_are_what_the_call_says(look):
    x = torch.arange(4)
    written = [text.content for text in look(draw_storage(x, x[1:])).texts]
    assert written.count("x") == 2  # in the table and at its lane
    assert written.count("x[1:]") == 2
    spread = [x, x[1:]]
    assert "tensor 1" in [text.content for text in look(draw_storage(*spread)).texts]


def test_a_name_may_hold_any_character(look):
    written = [text.content for text in look(draw_storage(torch.arange(2), names=["""a<b>&"c'"""])).texts]
    assert """a<b>&"c'""" in written


def test_tensors_on_different_storages_have_a_strip_each(look):
    a = torch.arange(5)
    drawing = draw_storage(a, a.clone() + 10, a[2:], names=["a", "copy", "tail"])
    shown = look(drawing)
    words = [text.content for text in shown.texts]
    assert "storage 1" in words
    assert "storage 2" in words
    strips = {tile.box.top for tile in shown.rects if set(tile.data) == {"slot"}}
    assert len(strips) == 2
    assert drawing.sentence == (
        "Storage 1 of 40 bytes, which holds 0, 1, 2, 3, 4; a, int64 of shape (5,) with stride (1,), reads 5 slots "
        "from 0 to 4; tail, int64 of shape (3,) with stride (1,) and storage_offset 2, reads 3 slots from 2 to 4. "
        "Storage 2 of 40 bytes, which holds 10, 11, 12, 13, 14; copy, int64 of shape (5,) with stride (1,), reads "
        "5 slots from 0 to 4."
    )


def test_two_pictures_in_one_page_have_no_ids_to_clash(look):
    assert look(draw_storage(X, X[1])).ids == look(draw_layout(X)).ids == []


def test_tensors_without_data_have_lanes_and_no_values(look):
    t = torch.empty(2, 3, device="meta")
    shown = look(draw_storage(t, t.t(), names=["t", "t.T"]))
    assert [tile.words for tile in shown.slots.values()] == [[str(i)] for i in range(6)]
    assert [bar.words for bar in shown.bars(1).values()] == [["0,0"], ["1,0"], ["2,0"], ["0,1"], ["1,1"], ["2,1"]]


def test_wrong_calls_are_explained():
    with pytest.raises(HelperError, match=r"^draw_storage takes one or more tensors, and none came$"):
        draw_storage()
    with pytest.raises(HelperError, match=r"^draw_storage takes a name for each of 2 tensors, and 1 came$"):
        draw_storage(X, X, names=["x"])
    with pytest.raises(HelperError):
        draw_storage(X, [1, 2])


def test_elements_of_several_sizes_are_told_in_bytes_as_the_strip_counts_them():
    x = torch.arange(3)
    told = draw_storage(x[1:], x.view(torch.int8)[5:6], x[:0], names=["x", "raw", "none"]).sentence
    assert "reads 2 slots of 8 bytes, from byte 8 to byte 23" in told
    assert "reads 1 slot of 1 byte, from byte 5 to byte 5" in told
    assert "none, int64 of shape (0,) with stride (1,), reads no slot" in told
    z = torch.zeros(3, dtype=torch.complex64)
    assert "reads 3 slots of 4 bytes, from byte 0 to byte 19" in draw_storage(z, z.real).sentence
    assert "reads 3 slots from 0 to 2" in draw_storage(x).sentence


def test_two_storages_on_the_memory_of_one_array_are_one_strip():
    array = np.arange(4.0)
    seen = [torch.as_tensor(array) for _ in range(2)]
    assert draw_storage(*seen).sentence.startswith("One storage of 32 bytes")
    assert draw_storage(seen[0], torch.as_tensor(array[1:])).sentence.startswith("Storage 1 of 32 bytes")
    assert draw_storage(torch.zeros(0), torch.zeros(0)).sentence.startswith("Storage 1 of 0 bytes")
    blank = torch.zeros(2, device="meta")
    assert draw_storage(blank, torch.zeros(2, device="meta")).sentence.startswith("Storage 1 of 8 bytes")
    assert draw_storage(blank, blank[1:]).sentence.startswith("One storage of 8 bytes")
