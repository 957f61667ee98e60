"""`explain_view` against PyTorch: its verdict with what `view` and `reshape` do, its words with the slots."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError
from itertools import pairwise
from math import prod

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.model.finding import Finding, HelperError
from helpers.model.layout import Layout
from helpers.model.views import ViewFinding, explain_view

MODEL = settings.get_profile("model")


def view_of(t, shape):
    try:
        return t.view(shape)
    except RuntimeError:
        return None


def reshape_of(t, shape):
    try:
        return t.reshape(shape)
    except RuntimeError:
        return None


def same_storage(a, b):
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


def unmergeable(t):
    """Return the pairs of neighbours (but for size 1) that torch itself refuses to merge."""
    moving = [d for d in range(t.ndim) if t.shape[d] > 1]
    pairs = []
    for left, right in pairwise(moving):
        if view_of(t, (*t.shape[:left], t.shape[left] * t.shape[right], *t.shape[right + 1 :])) is None:
            pairs.append((left, right))
    return pairs


# The verdict


@settings(MODEL, max_examples=400)
@given(data=st.data())
def test_the_verdict_is_what_view_and_reshape_do(random_tensors, random_shapes, data):
    t = data.draw(random_tensors)
    shape = data.draw(random_shapes(tuple(t.shape)))
    finding = explain_view(t, shape)
    view, copy = view_of(t, shape), reshape_of(t, shape)
    assert finding.possible == (view is not None)
    assert finding.copies == (copy is not None and not same_storage(copy, t))
    assert finding.stride == (None if view is None else view.stride())
    assert finding.shape == (shape if copy is None else tuple(copy.shape))


@MODEL
@given(data=st.data())
def test_blocked_names_the_pairs_that_torch_refuses_to_merge_and_the_shape_needs(random_tensors, random_shapes, data):
    t = data.draw(random_tensors)
    finding = explain_view(t, data.draw(random_shapes(tuple(t.shape))))
    if finding.possible:
        assert finding.blocked == ()
        assert finding.facts["breaks"] == (tuple(unmergeable(t)) if t.numel() else ())
    if finding.copies:
        borders = {prod(finding.shape[k:]) for k in range(len(finding.shape) + 1)}
        assert finding.blocked == tuple(p for p in unmergeable(t) if prod(t.shape[p[1] :]) not in borders)
        for (_, right), k in zip(finding.blocked, finding.facts["spanned_by"], strict=True):
            # The element before the break and the one after it differ only from the spanning dimension on.
            after = prod(t.shape[right:])
            before, beyond = np.unravel_index(after - 1, finding.shape), np.unravel_index(after, finding.shape)
            assert [int(i) for i in before[:k]] == [int(i) for i in beyond[:k]]
            assert before[k] + 1 == beyond[k]


# The words


@settings(MODEL, max_examples=300)
@given(data=st.data())
def test_every_number_and_every_cause_in_the_sentence_is_so(random_tensors, random_shapes, data):
    t = data.draw(random_tensors)
    finding = explain_view(t, data.draw(random_shapes(tuple(t.shape))))
    if not finding.copies:
        return
    text = re.sub(r"(?<=\d),(?=\d{3})", "", finding.text)  # without the commas of large numbers
    slots = set(t.flatten().tolist())
    new = t.reshape(finding.shape)

    moves = re.search(
        r"Dimensions (\d+) and (\d+) cannot merge.*: one step of dimension (\d+) moves (\d+) slots?, but a merged "
        r"dimension needs size\((\d+)\) × stride\((\d+)\) = (\d+) × (\d+) = (\d+)",
        text,
    )
    left, right, mover, step, d, e, size, stride, product = map(int, moves.groups())
    assert ((left, right) in finding.blocked, mover, d, e) == (True, left, right, right)
    assert (step, size, stride) == (t.stride(left), t.shape[right], t.stride(right))
    assert size * stride == product != step

    if found := re.search(r"(\d+) is expanded: with stride 0 its (\d+) indices read the same slots", text):
        d, n = map(int, found.groups())
        assert (t.stride(d), t.shape[d]) == (0, n)
    assert ("is expanded" in text) == (0 in (step, stride) and size > 1)
    if found := re.search(r"strides (\(.*?\)) are (channels_last\w*)", text):
        assert t.is_contiguous(memory_format=getattr(torch, found[2]))
        assert found[1] == str(t.stride())
        assert torch.empty(t.shape).view(finding.shape).shape == finding.shape
    if found := re.search(r"dimension (\d+) takes the larger steps", text):
        assert t.stride(int(found[1])) == max(step, stride) > min(step, stride) == step
    if found := re.search(r"the steps of dimension (\d+) lie between theirs", text):
        assert stride < t.stride(int(found[1])) < step
    if "ends inside a pass over" in text:
        assert step in {i * stride for i in range(size)}
    if found := re.search(r"skips (-?\d+) slots? that the tensor does not read", text):
        end = t.storage_offset() + product
        assert step - product == int(found[1]) > 0
        assert not slots & set(range(end, end + int(found[1])))
    if found := re.search(r"contiguous storage: (\d+) bytes? becomes? (\d+) \((?:about )?([\d.e+]+) ×\)", text):
        before, after = len(slots) * t.element_size(), new.untyped_storage().nbytes()
        assert [int(found[1]), int(found[2])] == [before, after]
        assert float(found[3]) == pytest.approx(after / before, abs=0.006, rel=1e-5)
    else:
        found = re.search(r"`reshape` copies (\d+) bytes? to a new, contiguous storage", text)
        assert int(found[1]) == new.untyped_storage().nbytes()
        assert len(slots) == t.numel()
    assert finding.facts["bytes_before"] == len(slots) * t.element_size()
    assert finding.facts["bytes_after"] == new.untyped_storage().nbytes()
    assert new.is_contiguous()
    formats = (torch.channels_last, torch.channels_last_3d)
    lost = any(t.is_contiguous(memory_format=f) for f in formats) and not t.is_contiguous() and new.ndim in (4, 5)
    lost = lost and not any(new.is_contiguous(memory_format=f) for f in formats)
    assert ("is lost and a later convolution" in text) == lost
    for pair in finding.blocked:
        assert f"{pair[0]} and {pair[1]}" in text


def test_a_transposed_matrix_names_the_pair_the_numbers_and_the_cause():
    finding = explain_view(torch.zeros(3, 4).T, 12)
    assert finding.text == (
        "Dimensions 0 and 1 cannot merge: one step of dimension 0 moves 1 slot, but a merged dimension needs "
        "size(1) × stride(1) = 3 × 4 = 12 (dimension 1 takes the larger steps, as after a transpose or permute); "
        "dimension 0 of the new shape (12,) would span both, so `view` fails and `reshape` copies 48 bytes to a new, "
        "contiguous storage."
    )
    assert finding.remedy == (
        "Use `reshape` if a copy will do (what you write to it does not reach this tensor), call `view` before the "
        "transpose or permute (the order of the elements differs), or choose a shape that keeps these dimensions "
        "apart: 0 and 1."
    )
    assert (finding.possible, finding.copies, finding.shape, finding.stride) == (False, True, (12,), None)
    assert finding.blocked == ((0, 1),)
    assert finding.facts["cause"] == "order"


def test_a_flatten_after_channels_last_names_the_memory_format_as_the_cause():
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.ReLU()).to(memory_format=torch.channels_last)
    h = net(torch.randn(2, 3, 9, 9).to(memory_format=torch.channels_last))
    finding = explain_view(h, (h.size(0), -1))
    assert not finding.possible
    assert "strides (128, 1, 32, 8) are channels_last" in finding.text
    assert "not the shape (2, 8, 4, 4) but the memory format is the cause" in finding.text
    assert "dimension 1 of the new shape (2, 128) would span both" in finding.text
    assert finding.remedy.startswith("Use `flatten` or `reshape` and accept one copy")
    assert explain_view(h.contiguous(), (h.size(0), -1)).possible


def test_a_reshape_after_expand_says_that_the_expand_saves_nothing():
    k = torch.randn(1, 2, 64, 16)
    finding = explain_view(k[:, :, None].expand(1, 2, 4, 64, 16), (1, 8, 64, 16))
    assert finding.blocked == ((1, 2),)
    assert "dimension 2 is expanded: with stride 0 its 4 indices read the same slots" in finding.text
    assert finding.text.endswith(": 8,192 bytes become 32,768 (4 ×), so the expand saves nothing.")
    assert "enable_gqa=True" in finding.remedy
    assert finding.facts["bytes_before"] == k.untyped_storage().nbytes()


def test_a_reshape_that_leaves_channels_last_says_that_convolutions_convert_again():
    a = torch.randn(10, 3, 32, 32).to(memory_format=torch.channels_last)
    finding = explain_view(a, (10, 6, 32, 16))
    assert finding.copies
    assert finding.text.endswith(
        "`reshape` copies 122,880 bytes to a new, contiguous storage, so channels_last is lost and a later convolution "
        "in channels_last converts again."
    )
    assert finding.remedy.startswith("Call `.contiguous(memory_format=torch.channels_last)` on the result")
    b = a.reshape(10, 6, 32, 16)
    assert not b.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("t", "shape", "cause", "words"),
    [
        (torch.zeros(2, 3, 4).permute(2, 1, 0), 24, "order", "(nor can 1 and 2)"),
        (torch.zeros(2, 3, 4, 5).permute(0, 2, 1, 3), (2, 60), "order", "dimension 2 takes the larger steps"),
        (
            torch.zeros(3, 4, 5)[:, :1],
            15,
            "gap",
            "Dimensions 0 and 2 cannot merge: one step of dimension 0 moves 20 slots",
        ),
        (
            torch.zeros(3, 4, 5)[:, :1],
            15,
            "gap",
            "each step of dimension 0 skips 15 slots that the tensor does not read",
        ),
        (torch.zeros(4, 3, 5).permute(1, 0, 2)[:, :1], 15, "", "`view` gives"),
        (torch.zeros(4, 5, 3).permute(1, 0, 2).transpose(1, 2), 60, "order", "dimension 2 takes the larger steps"),
        (torch.zeros(4, 6)[:, :3], 12, "gap", "each step of dimension 0 skips 3 slots that the tensor does not read"),
        (torch.zeros(2, 3, 4)[:, :2], 16, "gap", "each step of dimension 0 skips 4 slots"),
        (torch.zeros(10).unfold(0, 3, 1), 24, "overlap", "a step of dimension 0 ends inside a pass over dimension 1"),
        (torch.zeros(9).unfold(0, 3, 1), 21, "overlap", "36 bytes become 84 (about 2.33 ×)."),
        (torch.zeros(10).unfold(0, 3, 1), 24, "overlap", "40 bytes become 96 (about 2.4 ×)."),
        (torch.zeros(1, 3).expand(2, 3), 6, "expanded", "dimension 0 is expanded: with stride 0 its 2 indices"),
        (torch.zeros(2, 3, 1).expand(2, 3, 4), 24, "expanded", "dimension 2 is expanded"),
        (torch.zeros(10).as_strided((2, 3), (5, 2)), 6, "", "= 3 × 2 = 6; dimension 0 of the new shape"),
        (torch.zeros(21).as_strided((2, 6), (10, 2)), 12, "overlap", "a step of dimension 0 ends inside a pass"),
        (
            torch.zeros(4, 3).T[..., None].expand(3, 4, 2),
            24,
            "expanded",
            "Dimensions 1 and 2 cannot merge (nor can 0 and",
        ),
        (torch.zeros(20).as_strided((2, 4), (10, 3)), 8, "", "= 4 × 3 = 12; dimension 0 of the new shape"),
        (torch.zeros(26).as_strided((2, 2, 2), (3, 12, 4)), (2, 4), "", "= 2 × 4 = 8; dimension 1 of the new shape"),
        (torch.zeros(11).as_strided((2, 2, 2), (5, 4, 1)), (2, 4), "", "= 2 × 1 = 2; dimension 1 of the new shape"),
        (torch.zeros(44).as_strided((3, 1, 4), (20, 0, 1)), 12, "gap", "each step of dimension 0 skips 16 slots"),
        (torch.zeros(18).as_strided((5, 2), (4, 1)), 10, "gap", "each step of dimension 0 skips 2 slots"),
        (
            torch.zeros(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d),
            (2, 12, -1, 6),
            "memory format",
            "strides (360, 1, 90, 18, 3) are channels_last_3d",
        ),
        (
            torch.zeros(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d),
            (2, 6, 2, 5, 6),
            "memory format",
            "so channels_last_3d is lost and a later convolution in channels_last_3d converts again.",
        ),
        (torch.zeros(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d), (2, 3, -1), "", "`view` gives"),
    ],
)
def test_each_kind_of_layout_gets_its_own_cause(t, shape, cause, words):
    finding = explain_view(t, shape)
    assert words in finding.text
    assert finding.facts.get("cause", "") == cause
    assert finding.possible == (view_of(t, shape) is not None)


def test_a_copy_that_happens_to_be_channels_last_too_loses_no_format():
    a = torch.zeros(2, 8, 4, 4).to(memory_format=torch.channels_last)
    assert a.reshape(2, 1, 32, 4).is_contiguous(memory_format=torch.channels_last)
    finding = explain_view(a, (2, 1, 32, 4))
    assert finding.text.endswith("copies 1,024 bytes to a new, contiguous storage.")
    assert finding.remedy == (
        "Use `flatten` or `reshape` and accept one copy, or choose a shape that keeps these dimensions apart: 1 and 2."
    )


@pytest.mark.parametrize("t", [torch.zeros(4, 6)[:, :3], torch.zeros(6).unfold(0, 3, 1)])
def test_the_remedy_speaks_of_a_transpose_only_where_the_order_differs(t):
    assert explain_view(t, 12).remedy == (
        "Use `reshape` if a copy will do (what you write to it does not reach this tensor), or choose a shape that "
        "keeps these dimensions apart: 0 and 1."
    )


def test_a_finding_cannot_be_changed():
    finding = explain_view(torch.zeros(3, 4), 12)
    with pytest.raises(FrozenInstanceError):
        finding.possible = False


def test_a_dimension_between_two_others_in_storage_is_named():
    finding = explain_view(torch.zeros(5, 2, 4).permute(1, 0, 2), (2, 20))
    assert finding.blocked == ((1, 2),)
    assert "the steps of dimension 0 lie between theirs" in finding.text
    assert "call `view` before the transpose or permute" in finding.remedy


@pytest.mark.parametrize("last", [torch.channels_last, torch.channels_last_3d])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_slice_of_a_channels_last_tensor_is_not_only_likened_to_a_permute(last, batch):
    dims = 4 if last == torch.channels_last else 5
    pictures = torch.zeros(batch, 8, *[4] * (dims - 2)).to(memory_format=last)
    for part in (pictures[:, :4], pictures[..., ::2], pictures[:, 1:3, ..., 1:]):
        finding = explain_view(part, (batch, -1))
        assert "as in a slice of a channels_last tensor or after a permute" in finding.text
        assert "before the transpose" not in finding.remedy
    whole = explain_view(pictures, (batch, -1))
    assert f"are {str(last).removeprefix('torch.')}: not the shape" in whole.text
    other = explain_view(torch.zeros(2, 8, *[4] * (dims - 2)).transpose(1, 2), (2, -1))
    assert "as after a transpose or permute" in other.text


@pytest.mark.parametrize(
    ("t", "shape", "text"),
    [
        (
            torch.zeros(2, 3, 4).transpose(0, 1),
            (3, 2, 2, 2),
            "`view` gives shape (3, 2, 2, 2) with strides (4, 12, 2, 1) and copies nothing: dimensions 0 and 1, 1 and "
            "2 cannot merge, but no dimension of the new shape spans them.",
        ),
        (
            torch.zeros(3, 4),
            (-1, 2),
            "`view` gives shape (6, 2) with strides (2, 1) and copies nothing: its dimensions merge into one, so every "
            "shape of 12 elements is a view.",
        ),
        (
            torch.zeros(1, 2, 2),
            4,
            "`view` gives shape (4,) with strides (1,) and copies nothing: its dimensions merge into one, so every "
            "shape of 4 elements is a view.",
        ),
        (
            torch.zeros(1, 6),
            (6, 1),
            "`view` gives shape (6, 1) with strides (1, 1) and copies nothing: a single dimension can be split in any "
            "way, so every shape of 6 elements is a view.",
        ),
        (
            torch.zeros(12)[::2],
            (2, 3),
            "`view` gives shape (2, 3) with strides (6, 2) and copies nothing: a single dimension can be split in any "
            "way, so every shape of 6 elements is a view.",
        ),
        (
            torch.zeros(0, 3),
            (2, 0),
            "`view` gives shape (2, 0) with strides (1, 1) and copies nothing: without elements, every shape that "
            "holds none will do.",
        ),
        (
            torch.zeros(()),
            (1, 1),
            "`view` gives shape (1, 1) with strides (1, 1) and copies nothing: the shapes of one element are all "
            "alike.",
        ),
    ],
)
def test_a_view_that_works_says_why_and_has_its_strides(t, shape, text):
    finding = explain_view(t, shape)
    assert finding.text == text
    assert finding.stride == t.view(shape).stride()


# Shapes that do not fit


@pytest.mark.parametrize(
    ("size", "shape", "reason"),
    [
        ((3, 4), (5, 2), "it holds 10 elements, but the tensor has 12"),
        ((3, 4), (), "it holds 1 element, but the tensor has 12"),
        ((3, 4), (5, -1), "the sizes without -1 multiply to 5, which does not divide 12"),
        ((3, 4), (-1, -1), "2 of its sizes are -1, and only one can be worked out from the others"),
        ((3, 4), (-1, 3, -1, -1), "3 of its sizes are -1, and only one can be worked out from the others"),
        ((3, 4), (-2, 6), "its size -2 at position 0 is negative, and only -1 has a meaning"),
        ((3, 4), (3, -4), "its size -4 at position 1 is negative, and only -1 has a meaning"),
        ((3, 4), (-1, 0), "the sizes without -1 multiply to 0, but the tensor has 12 elements"),
        ((1,), (-1, 0), "the sizes without -1 multiply to 0, but the tensor has 1 element"),
        ((0, 3), (-1, 0), "with no elements and a size of 0 beside it, -1 could stand for any number"),
        ((0, 3), (2,), "it holds 2 elements, but the tensor has 0"),
    ],
)
def test_a_shape_that_does_not_fit_gets_the_reason(size, shape, reason):
    t = torch.zeros(size)
    with pytest.raises(RuntimeError):
        t.reshape(shape)
    finding = explain_view(t, shape)
    assert finding.text == f"Neither `view` nor `reshape` can give shape {shape}: {reason}."
    assert (finding.possible, finding.copies, finding.stride, finding.blocked) == (False, False, None, ())
    assert finding.shape == shape
    if t.numel():
        assert finding.remedy.startswith(f"Choose sizes that multiply to {t.numel()};")
    else:
        assert finding.remedy == "Give every size as a number; at least one of them must be 0."


@pytest.mark.parametrize(
    "shape",
    [12, -1, (12,), [12], torch.Size((12,)), np.int64(12), (np.int32(12),), torch.tensor(12), [torch.tensor(-1)]],
    ids=repr,
)
def test_a_shape_may_come_in_every_form_that_view_takes(shape):
    assert explain_view(torch.zeros(3, 4), shape).shape == (12,) == tuple(torch.zeros(3, 4).view(shape).shape)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (torch.float16, "a shape is needed, but torch.float16 came: view(dtype) reads the same bytes as another type"),
        ("12", "a shape is a whole number or a tuple of them, but '12' came"),
        (12.0, "a shape is a whole number or a tuple of them, but 12.0 came"),
        (None, "a shape is a whole number or a tuple of them, but None came"),
        ({3, 4}, "a shape is a whole number or a tuple of them, but a set came"),
        (torch.ones(3), "a shape is a whole number or a tuple of them, but a Tensor came"),
        (True, "a shape is a whole number or a tuple of them, but True came"),
        ((3, 4.0), "a size is a whole number, but 4.0 came at position 1"),
        ([None, 4], "a size is a whole number, but None came at position 0"),
        (((3, 4),), "a size is a whole number, but a tuple came at position 0"),
        ((3, True), "a size is a whole number, but True came at position 1"),
    ],
)
def test_what_is_no_shape_gets_a_sentence(shape, message):
    with pytest.raises(HelperError) as raised:
        explain_view(torch.zeros(3, 4), shape)
    assert str(raised.value) == message


def test_a_tensor_without_strides_gets_a_sentence():
    with pytest.raises(
        HelperError, match="a layout needs a tensor with strides, but a tensor with the layout sparse_coo"
    ):
        explain_view(torch.eye(3).to_sparse(), 9)


def test_a_layout_and_a_tensor_without_data_serve_as_well():
    t = torch.empty(3, 4, device="meta").t()
    assert explain_view(t, 12) == explain_view(Layout.of(t), 12)
    assert explain_view(t, 12).blocked == ((0, 1),)


def test_a_finding_shows_its_sentence_and_its_remedy():
    finding = explain_view(torch.zeros(3, 4).t(), 12)
    assert isinstance(finding, ViewFinding)
    assert isinstance(finding, Finding)
    assert repr(finding) == f"{finding.text}\n→ {finding.remedy}"


def test_a_huge_tensor_is_explained_without_visiting_it():
    t = torch.empty(10**6, 10**6, device="meta").t()
    assert explain_view(t, -1).facts["bytes_after"] == 4 * 10**12
