"""`Layout` against PyTorch: every statement about slots is compared with what a tensor really reads."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import FrozenInstanceError
from itertools import islice, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode

from helpers.model import sums
from helpers.model.finding import HelperError
from helpers.model.layout import Layout
from helpers.model.sums import count_sums, merged, solve, span

MODEL = settings.get_profile("model")
FORMATS = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d, torch.preserve_format)


def all_indices(shape):
    return list(product(*map(range, shape)))


# A layout says what PyTorch reads


@MODEL
@given(data=st.data())
def test_slot_is_the_slot_that_torch_reads(random_tensors, data):
    t = data.draw(random_tensors)
    layout = Layout.of(t)
    assert (layout.shape, layout.stride, layout.storage_offset) == (t.shape, t.stride(), t.storage_offset())
    assert (layout.ndim, layout.numel, layout.nbytes) == (t.ndim, t.numel(), t.nbytes)
    assert list(layout.slots()) == t.flatten().tolist()
    for index in all_indices(t.shape)[:40]:
        from_the_end = tuple(i - n for i, n in zip(index, t.shape, strict=True))
        assert layout.slot(*index) == layout.slot(*from_the_end) == t[index].item()


@MODEL
@given(data=st.data())
def test_indices_are_the_exact_inverse_of_slot(random_tensors, data):
    t = data.draw(random_tensors)
    layout = Layout.of(t)
    readers = defaultdict(list)
    for index, slot in zip(all_indices(t.shape), t.flatten().tolist(), strict=True):
        readers[slot].append(index)
    for slot in range(-2, layout.storage_numel + 2):
        assert layout.indices(slot) == readers[slot]
        assert layout.indices(slot, limit=2) == readers[slot][:2]


@MODEL
@given(data=st.data())
def test_reached_counts_the_different_slots(random_tensors, data):
    t = data.draw(random_tensors)
    layout = Layout.of(t)
    slots = t.flatten().tolist()
    assert layout.reached == len(set(slots))
    assert layout.shared == (len(set(slots)) < len(slots))
    assert layout.last_slot == max(slots, default=None)


@MODEL
@given(data=st.data())
def test_is_contiguous_agrees_with_torch_in_every_memory_format(random_tensors, data):
    t = data.draw(random_tensors)
    layout = Layout.of(t)
    for memory_format in FORMATS:
        assert layout.is_contiguous(memory_format) == t.is_contiguous(memory_format=memory_format)
    named = {f"torch.{name}" for name in layout.memory_formats}
    assert ("torch.contiguous" in named) == t.is_contiguous()
    for memory_format in (torch.channels_last, torch.channels_last_3d):
        assert (str(memory_format) in named) == t.is_contiguous(memory_format=memory_format)


@pytest.mark.parametrize(
    "t",
    [
        torch.randn(1, 4).t(),
        torch.empty(0, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.empty(2, 0, 4, 5).to(memory_format=torch.channels_last),
        torch.empty(2, 3, 0, 5, 6).to(memory_format=torch.channels_last_3d),
        torch.empty(2, 1, 4, 5).to(memory_format=torch.channels_last),
        torch.empty(2, 3, 1, 1),
        torch.empty(0).as_strided((0, 3), (7, 9)),
        torch.empty_strided((2, 3, 0, 5), (0, 1, 0, 0)),
        torch.tensor(1.0),
        torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last)[:, :1],
    ],
    ids=lambda t: f"{tuple(t.shape)}-{t.stride()}",
)
def test_contiguity_agrees_where_sizes_are_0_or_1(t):
    layout = Layout.of(t)
    for memory_format in FORMATS:
        assert layout.is_contiguous(memory_format) == t.is_contiguous(memory_format=memory_format), memory_format


# The arithmetic below it

steps = st.lists(st.tuples(st.integers(2, 6), st.integers(1, 12)), max_size=4).map(
    lambda pairs: sorted(pairs, key=lambda step: step[1])
)


def sums_of(pairs):
    return [sum(i * s for i, (_, s) in zip(c, pairs, strict=True)) for c in product(*(range(n) for n, _ in pairs))]


@MODEL
@given(steps)
def test_count_sums_equals_a_count_by_trying_all(pairs):
    all_sums = set(sums_of(pairs))
    assert count_sums(pairs) == len(all_sums)
    assert span(pairs) == max(all_sums)
    assert set(sums_of(merged(pairs))) == all_sums


@settings(MODEL, max_examples=200)
@given(steps, st.integers(-3, 60))
def test_solve_finds_every_way_once(pairs, rest):
    downward = pairs[::-1]
    ways = [
        c
        for c in product(*(range(n) for n, _ in downward))
        if sum(i * s for i, (_, s) in zip(c, downward, strict=True)) == rest
    ]
    assert sorted(solve(rest, downward)) == ways


def test_merged_joins_every_pair_that_it_can():
    assert merged([(3, 1), (8, 3), (2, 24)]) == [(48, 1)]
    assert merged([(3, 1), (8, 1)]) == [(10, 1)]
    assert merged([(3, 1), (8, 4)]) == [(3, 1), (8, 4)]
    assert merged([(2, 2), (3, 3), (2, 4)]) == [(4, 2), (3, 3)]


# Large tensors: a wrong way would not end


@pytest.mark.parametrize(
    ("shape", "stride", "reached"),
    [
        ((10**6, 10**6), (10**6, 1), 10**12),
        ((10**6, 10**6), (1, 10**6), 10**12),
        ((10**9, 10**9, 5), (0, 3, 0), 10**9),
        ((10**9 - 9, 10), (1, 1), 10**9),
        ((10**6 + 1, 10**6), (10**6 - 1, 10**6), (10**6 + 1) * 10**6 - 1),
        ((8, 3, 218, 218, 7, 7), (3 * 224 * 224, 224 * 224, 224, 1, 224, 1), 8 * 3 * 224 * 224),
        ((10**10, 10, 10), (1, 1, 1), 10**10 + 18),
        ((10**6, 3, 4, 5), (10**6, 2, 3, 5), 10**6 * 32),
        ((7, 3, 4, 5), (1, 2 * 10**9, 3 * 10**9, 5 * 10**9), 7 * 32),
    ],
    ids=str,
)
def test_reached_is_exact_for_tensors_too_large_to_visit(shape, stride, reached):
    layout = Layout(shape, stride, 0, torch.float32, 4, 0)
    assert layout.reached == reached


def test_reached_marks_slots_in_bits_and_refuses_beyond_128_mib(monkeypatch):
    tangled = [(50, 6), (40, 10), (30, 15)]
    assert merged(tangled) == tangled
    assert sums.MOST_MARKS // 8 == 128 * 2**20
    exact = len(set(sums_of(tangled)))
    monkeypatch.setattr(sums, "MOST_MARKS", span(tangled) + 1)
    assert count_sums(tangled) == exact
    monkeypatch.setattr(sums, "MOST_MARKS", span(tangled))
    with pytest.raises(
        HelperError, match="too many slots to count: 3 dimensions of interleaved steps spread over 1120"
    ):
        count_sums(tangled)


def test_the_row_of_bits_is_as_short_as_the_common_divisor_allows(monkeypatch):
    tangled = [(50, 6), (40, 10), (30, 15)]
    wide = [(n, 1000 * s) for n, s in tangled]
    monkeypatch.setattr(sums, "MOST_MARKS", span(tangled) + 1)
    assert count_sums(wide) == count_sums(tangled)


def test_indices_of_a_huge_expanded_tensor_stop_at_the_limit():
    layout = Layout.of(torch.ones(3).view(1, 3, 1).expand(10**9, 3, 10**9))
    assert layout.indices(1, limit=3) == [(0, 1, 0), (0, 1, 1), (0, 1, 2)]
    assert layout.indices(1, limit=0) == []


def test_indices_of_a_huge_transposed_tensor_are_found_at_once():
    layout = Layout.of(torch.empty(10**6, 10**5, 10**4, device="meta").permute(1, 2, 0))
    slot = 123_456 * 10**9 + 54_321 * 10**4 + 9_876
    assert layout.indices(slot) == [(54_321, 9_876, 123_456)]
    assert layout.slot(54_321, 9_876, 123_456) == slot


def test_slots_of_a_huge_tensor_come_one_by_one():
    layout = Layout.of(torch.empty(10**9, 10**9, device="meta").t())
    assert list(islice(layout.slots(), 3)) == [0, 10**9, 2 * 10**9]


# Every kind of tensor


def test_a_layout_counts_slots_in_elements_and_storage_in_bytes():
    layout = Layout.of(torch.zeros(10, dtype=torch.float64)[2:8].view(2, 3))
    assert layout == Layout((2, 3), (3, 1), 2, torch.float64, 8, 80)
    assert (layout.nbytes, layout.storage_numel, layout.numel) == (48, 10, 6)
    assert Layout.of(torch.zeros(7, dtype=torch.uint8)[:4].view(torch.int32)).storage_numel == 1


def test_a_layout_of_a_layout_is_itself():
    layout = Layout.of(torch.ones(2, 3))
    assert Layout.of(layout) is layout


def test_a_layout_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Layout.of(torch.ones(2, 3)).storage_offset = 1


def test_kinds_of_tensors_with_strides_all_have_a_layout():
    with torch.inference_mode():
        inference = torch.ones(2, 3).t()
    with FakeTensorMode():
        fake = torch.empty(2, 3).t()
    complex_view = torch.ones(2, 3, dtype=torch.complex64).conj().t()
    expected = {"shape": (3, 2), "stride": (1, 3)}
    for t in (
        inference,
        fake,
        torch.empty(2, 3, device="meta").t(),
        complex_view,
        torch.nn.Parameter(torch.ones(2, 3)).t(),
        torch.nn.Parameter(torch.ones(2, 3).t()),
        torch.ones(2, 3).to(torch.float8_e4m3fn).t(),
    ):
        layout = Layout.of(t)
        assert {"shape": layout.shape, "stride": layout.stride} == expected
        assert layout.storage_nbytes == 6 * t.element_size()
    imaginary = Layout.of(complex_view.imag)
    assert (imaginary.stride, imaginary.storage_offset, imaginary.storage_nbytes) == ((2, 6), 1, 48)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.skipif(not hasattr(torch, "qint8"), reason="this torch release has no quantized types")
def test_a_quantized_tensor_has_a_layout_unless_it_packs_elements():
    t = torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.qint8)
    assert Layout.of(t) == Layout((2, 3), (3, 1), 0, torch.qint8, 1, 6)
    packed = torch.quantize_per_channel(torch.ones(4, 4), torch.ones(4), torch.zeros(4), 0, torch.quint4x2)
    with pytest.raises(HelperError, match="a quint4x2 tensor came: it packs several elements into one byte"):
        Layout.of(packed)


def test_inside_vmap_and_grad_it_is_the_layout_that_the_function_sees():
    seen = []

    def look(t):
        seen.append(Layout.of(t))
        return t.sum()

    torch.vmap(look, in_dims=1)(torch.ones(3, 4, 5)[1:])
    assert seen.pop() == Layout((2, 5), (20, 1), 20, torch.float32, 4, 240)
    torch.vmap(torch.func.grad(look))(torch.ones(3, 4).t())
    assert seen.pop() == Layout((3,), (4,), 0, torch.float32, 4, 48)


def test_a_storage_without_bytes_leaves_the_layout_as_it_was():
    t = torch.ones(4, 2)
    t.untyped_storage().resize_(0)
    layout = Layout.of(t)
    assert (layout.stride, layout.storage_numel, layout.reached) == ((2, 1), 0, 8)
    assert layout.describe().endswith("needs 8 slots (from slot 0 to slot 7), but its storage holds 0 slots.")


def test_a_storage_one_slot_too_short_is_noticed():
    t = torch.ones(2)
    assert Layout.of(t).describe().endswith("from 2 of 2 slots (from slot 0 to slot 1); it is contiguous.")
    t.untyped_storage().resize_(4)
    assert Layout.of(t).describe().endswith("needs 2 slots (from slot 0 to slot 1), but its storage holds 1 slot.")


@pytest.mark.filterwarnings("ignore:Sparse", "ignore:.*nested tensors")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: torch.eye(3).to_sparse(),
            "a tensor with the layout sparse_coo came: it keeps its elements in another way",
        ),
        (
            lambda: torch.eye(3).to_sparse_csr(),
            "a tensor with the layout sparse_csr came: it keeps its elements in another way",
        ),
        (
            lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
            "a nested tensor came: each of its parts has a shape of its own",
        ),
        (
            lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
            "a nested tensor came: each of its parts has a shape of its own",
        ),
        (
            lambda: torch.nn.LazyLinear(2).weight,
            "this parameter has no shape yet: run its module once, then it has one",
        ),
        (lambda: [1, 2], "an object of type list came: torch.tensor makes a tensor of it"),
        (lambda: 3, "an object of type int came: torch.tensor makes a tensor of it"),
        (lambda: np.ones(3), "an object of type ndarray came: torch.from_numpy makes a tensor on the same memory"),
        (lambda: torch.nn.Linear(2, 3), "an object of type Linear came: give one of its parameters"),
        (lambda: None, "None came"),
        (lambda: [torch.ones(2), torch.ones(3)], "an object of type list came: give one of the tensors in it"),
        (
            lambda: torch.nn.Linear(2, 3).state_dict(),
            "an object of type OrderedDict came: give one of the tensors in it",
        ),
        (lambda: {1}, "an object of type set came"),
        (lambda: "x", "an object of type str came"),
    ],
)
def test_what_has_no_strides_gets_one_sentence(make, words):
    with pytest.raises(HelperError) as raised:
        Layout.of(make())
    assert str(raised.value) == f"a layout needs a tensor with strides, but {words}"


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this build of torch has no oneDNN")
def test_an_mkldnn_tensor_has_no_strides():
    with pytest.raises(HelperError, match="a tensor with the layout mkldnn came: it keeps its elements in another way"):
        Layout.of(torch.eye(3).to_mkldnn())


def test_sizes_that_are_symbols_are_refused_and_not_made_numbers():
    refused = []

    class Look(torch.nn.Module):
        def forward(self, x):
            with pytest.raises(HelperError) as raised:
                Layout.of(x)
            refused.append(str(raised.value))
            return x + 1

    from torch.fx.experimental.proxy_tensor import make_fx

    make_fx(Look(), tracing_mode="symbolic")(torch.ones(5, 7))
    assert len(refused) == 1
    assert "its sizes or strides are symbols, not numbers" in refused[0]


# Sentences


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ((3, 0), "index 3 is out of range for dimension 0 of size 3"),
        ((0, -5), "index -5 is out of range for dimension 1 of size 4"),
        ((1,), "shape (3, 4) has 2 dimensions, but 1 index came"),
        ((1, 2, 3), "shape (3, 4) has 2 dimensions, but 3 indices came"),
        ((1.0, 2), "an index is a whole number, but 1.0 came for dimension 0"),
        (("a", 2), "an index is a whole number, but 'a' came for dimension 0"),
        ((0, torch.tensor([1.0])), "an index is a whole number, but a Tensor came for dimension 1"),
    ],
)
def test_a_wrong_index_gets_a_sentence(index, message):
    with pytest.raises(HelperError) as raised:
        Layout.of(torch.ones(3, 4)).slot(*index)
    assert str(raised.value) == message


def test_an_index_may_be_any_whole_number():
    layout = Layout.of(torch.ones(3, 4))
    assert layout.slot(np.int64(2), torch.tensor(-1)) == 11
    assert Layout.of(torch.ones(9)[7]).slot() == 7


def test_a_slot_must_be_a_whole_number():
    with pytest.raises(HelperError, match=r"a slot is a whole number, but 1\.5 came"):
        Layout.of(torch.ones(3)).indices(1.5)


def test_a_memory_format_must_be_one():
    with pytest.raises(
        HelperError, match=r"a memory format such as torch\.channels_last is needed, but 'channels_last' came"
    ):
        Layout.of(torch.ones(3)).is_contiguous("channels_last")


@pytest.mark.parametrize(
    ("t", "sentence"),
    [
        (
            torch.arange(12).view(3, 4).T,
            "A tensor of dtype int64, shape (4, 3) and strides (1, 4) reads 12 elements from 12 of 12 slots "
            "(from slot 0 to slot 11); it is not contiguous.",
        ),
        (
            torch.ones(3)[2],
            "A tensor of dtype float32, shape () and strides () reads 1 element from 1 of 3 slots (slot 2); "
            "it is contiguous.",
        ),
        (
            torch.ones(1).expand(3),
            "A tensor of dtype float32, shape (3,) and strides (0,) reads 3 elements from 1 of 1 slot (slot 0); "
            "it is not contiguous.",
        ),
        (
            torch.ones(0, 3),
            "A tensor of dtype float32, shape (0, 3) and strides (3, 1) has no element and reads no slot.",
        ),
        (
            torch.ones(2, 1, 2, 2),
            "A tensor of dtype float32, shape (2, 1, 2, 2) and strides (4, 4, 2, 1) reads 8 elements from 8 of 8 slots "
            "(from slot 0 to slot 7); it is contiguous and channels_last.",
        ),
    ],
)
def test_describe_is_one_sentence_with_the_numbers(t, sentence):
    assert Layout.of(t).describe() == sentence
