"""Overlap: torch is asked to do the write, and slots are counted one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.model.common import overlap, reached_nbytes
from helpers.model.finding import HelperError
from helpers.model.memory import block_of
from helpers.model.overlap import explain_overlap, refuses

MODEL = settings.get_profile("model")


@st.composite
def two_views(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    """Two tensors of one shape on one storage, with any strides from 0 to 6."""
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    strides = st.lists(st.integers(0, 6), min_size=len(shape), max_size=len(shape))
    base = torch.arange(60.0)
    a = base.as_strided(shape, draw(strides), draw(st.integers(0, 4)))
    b = a if draw(st.booleans()) else base.as_strided(shape, draw(strides), draw(st.integers(0, 4)))
    return a, b


def slots(t: torch.Tensor) -> list[int]:
    return [
        t.storage_offset() + sum(i * s for i, s in zip(index, t.stride(), strict=True))
        for index in itertools.product(*map(range, t.shape))
    ]


@settings(MODEL, max_examples=400)
@given(two_views())
def test_the_verdict_is_what_torch_does(pair):
    a, b = pair
    try:
        a.add_(b)
        refused = False
    except RuntimeError as error:
        refused = "single memory location" in str(error)
        assert refused
    assert refuses(block_of(a), block_of(b)) == refused
    assert explain_overlap(a, b).refused == refused


@settings(MODEL, max_examples=400)
@given(two_views())
def test_common_elements_and_bytes_are_counted_exactly(pair):
    a, b = pair
    theirs = set(slots(b))
    elements, nbytes = overlap(block_of(a), block_of(b))
    assert elements == sum(slot in theirs for slot in slots(a))
    assert nbytes == 4 * len(set(slots(a)) & theirs)
    assert reached_nbytes([block_of(a), block_of(b)]) == 4 * len(set(slots(a)) | theirs)


def test_the_shifted_slices_are_named_with_offsets_and_the_source_is_to_be_cloned():
    t = torch.arange(10.0)
    found = explain_overlap(t[1:], t[:-1])
    assert "`t[1:]` and `t[:-1]` share one storage and overlap in 8 of 9 elements" in found.text
    assert "different offsets (1 and 0)" in found.text
    assert "t[:-1].clone()" in found.remedy
    assert (found.kind, found.elements, found.nbytes, found.refused) == ("partial", 8, 32, True)


def test_slices_that_do_not_touch_are_free():
    t = torch.arange(10.0)
    assert explain_overlap(t[:5], t[5:]).kind == "none"
    assert "share one storage but no element" in explain_overlap(t[::2], t[1::2]).text
    assert "share no memory" in explain_overlap(t, t.clone()).text


def test_the_same_elements_are_allowed():
    t = torch.arange(10.0)
    found = explain_overlap(t[2:5], t[2:5])
    assert (found.kind, found.refused, found.elements) == ("same", False, 3)
    t[2:5].add_(t[2:5])  # torch agrees


def test_tensors_with_gaps_pass_unnoticed_and_are_told_all_the_same():
    t = torch.arange(10.0)
    found = explain_overlap(t[2::2], t[:-2:2])
    assert (found.kind, found.refused, found.elements) == ("partial", False, 3)
    assert "torch does not notice" in found.text
    t[2::2] = t[:-2:2]
    assert t[8] != 6.0, "the order of the writes decided, as the text says"


def test_a_square_matrix_and_its_transpose_overlap_with_different_strides():
    m = torch.arange(9.0).view(3, 3)
    found = explain_overlap(m, m.t())
    assert found.refused
    assert "different strides ((3, 1) and (1, 3))" in found.text
    with pytest.raises(RuntimeError, match="single memory location"):
        m.add_(m.t())


def test_overlap_across_dtypes_is_counted_in_bytes():
    t = torch.zeros(10, dtype=torch.float32)
    found = explain_overlap(t.view(torch.int64)[1:3], t[3:5])
    assert (found.elements, found.nbytes) == (2, 8)
    assert "8 bytes, 2 of 2 elements" in found.text


def test_two_storages_on_one_array_overlap_although_torch_compares_storages():
    array = np.zeros(8, dtype=np.float32)
    a, b = torch.from_numpy(array)[1:], torch.from_numpy(array)[:-1]
    found = explain_overlap(a, b)
    assert "two storages on the same memory" in found.text
    assert (found.elements, found.refused) == (6, False)
    a.copy_(b)  # torch does not refuse


def test_an_expanded_tensor_cannot_be_written():
    row = torch.zeros(1, 4)
    found = explain_overlap(row.expand(3, 4))
    assert (found.kind, found.refused, found.elements) == ("internal", True, 8)
    assert "Dimension 0 of `row.expand(3, 4)` has stride 0: its 12 elements are 4 slots" in found.text
    assert "more than one element of the written-to tensor refers to a single memory location" in found.text


def test_windows_of_unfold_are_written_several_times_without_a_complaint():
    t = torch.zeros(6)
    found = explain_overlap(t.unfold(0, 3, 1))
    assert (found.kind, found.refused, found.facts["slots"]) == ("internal", False, 6)
    t.unfold(0, 3, 1).add_(1)
    assert t.tolist() != [1.0] * 6, "the middle was written several times"


def test_meta_tensors_are_compared_by_their_layout():
    t = torch.zeros(10, device="meta")
    assert explain_overlap(t[1:], t[:-1]).elements == 8
    assert explain_overlap(t, torch.zeros(10, device="meta")).kind == "none"


def test_huge_slices_without_gaps_are_counted_without_memory():
    t = torch.empty(1, dtype=torch.uint8).expand(2**40)  # a shape; no memory of that size
    meta = torch.empty(2**40, dtype=torch.uint8, device="meta")
    assert explain_overlap(meta[1:], meta[:-1]).elements == 2**40 - 2
    assert t.numel() == 2**40


def test_what_has_no_slots_gets_one_sentence():
    with pytest.raises(HelperError, match="a list came as `written`"):
        explain_overlap([1, 2], torch.ones(2))
    with pytest.raises(HelperError, match="a str came as `read`"):
        explain_overlap(torch.ones(2), "x")
    with pytest.raises(HelperError, match="sparse"):
        explain_overlap(torch.eye(3).to_sparse(), torch.ones(3))


def test_without_source_text_the_roles_are_named():
    t = torch.arange(10.0)
    pair = (t[1:], t[:-1])
    assert explain_overlap(*pair).text.startswith("The written tensor and the source share one storage")


def outcome(write) -> str:
    """Do a write on an expanded tensor, and say whether torch refused it."""
    try:
        write()
    except RuntimeError as error:
        return "refused" if "single memory location" in str(error) else str(error)
    return "allowed"


def test_an_expanded_tensor_takes_a_fill_and_a_copy_of_itself_and_nothing_else():
    e = torch.zeros(1).expand(3)
    assert [outcome(write) for write in (e.zero_, lambda: e.fill_(2), lambda: e.copy_(e), lambda: e.copy_(e[:]))] == [
        "allowed"
    ] * 4
    others = (lambda: e.add_(1), lambda: e.add_(e), lambda: e.copy_(torch.ones(3)), e.neg_, e.uniform_)
    assert {outcome(write) for write in others} == {"refused"}
    itself = ", and `copy_` from these very elements, which does nothing."
    refusal = "save with `fill_`, its like, and the few operators that do not ask, such as `triu_`"
    for source in (e, e[:]):
        assert explain_overlap(e, source).text.endswith(f"{refusal}{itself}")
    for source in (None, torch.ones(3), torch.zeros(1).expand(3)):
        assert explain_overlap(e, source).text.endswith(f"{refusal}.")


def test_a_conjugated_view_is_not_the_same_elements():
    e = torch.zeros(1, dtype=torch.complex64).expand(3)
    assert outcome(lambda: e.copy_(e.conj())) == "refused"
    assert "which does nothing" not in explain_overlap(e, e.conj()).text


def test_what_does_not_ask_about_stride_0_is_not_said_to_be_refused():
    wide = torch.ones(1).expand(3, 3)
    assert "the few operators that do not ask, such as `triu_`" in explain_overlap(wide).text
    wide.triu_(1)  # torch says nothing


def test_a_source_that_does_not_broadcast_is_told():
    h = torch.arange(6.0)
    assert "besides, shape (2,) does not broadcast to (3,)" in explain_overlap(h[:3], h[:2]).text
    assert "besides" not in explain_overlap(h[:3], h[1:4]).text
    assert "besides" not in explain_overlap(h.view(2, 3), h[1:4]).text


def test_the_remedy_for_stride_0_clones_the_whole_and_not_the_part():
    m = torch.zeros(4, 1).expand(4, 4)
    for found in (explain_overlap(m), explain_overlap(m[0]), explain_overlap(m[:, 1:]), explain_overlap(m[:2])):
        assert found.refused
        assert "before the write, m = m.clone(), or write to" in found.remedy
    assert "before the write, x = x.clone(), or" in explain_overlap(torch.zeros(1).expand(3)).remedy
    m = m.clone()
    m[0] = torch.arange(4.0)
    assert m[0].tolist() == [0, 1, 2, 3]
