"""`explain_error` for all that `view` and `reshape` raise for a shape: the sentences of `explain_view`."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from helpers import explain_error, explain_view
from helpers.model.viewrule import misfit
from tests.model.failing import caught

X = torch.arange(12.0).view(3, 4)
EMPTY = torch.zeros(0, 3)
BIG = 2**63
KEPT = X.to_mkldnn()
NESTED = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def same(t: torch.Tensor) -> torch.Tensor:
    """Return the tensor from a call that is not worked out again."""
    return t


SHAPES = [
    (X, (-2, 6)),
    (X, (6, -2)),
    (X, (-(2**63), 2)),
    (X, (-1, -1)),
    (X, (-1, -2)),
    (X, (5, 3)),
    (X, (-1, 5)),
    (X, (0, -1)),
    (X, ()),
    (X, (BIG, 2)),
    (X, (3, 2**64)),
    (X, (-(2**64), 2)),
    (X, (2**62, 2**62)),
    (X, (2**62, -1)),
    (EMPTY, (0, -1)),
    (EMPTY, (5,)),
    (EMPTY, (2, -3)),
    (X.to("meta"), (-2, 6)),
]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("call", [torch.Tensor.view, torch.Tensor.reshape, torch.reshape])
@pytest.mark.parametrize(("t", "shape"), SHAPES)
def test_a_shape_that_torch_refuses_is_refused_in_the_words_of_explain_view(t, shape, call):
    run = {"view": lambda: t.view(shape), "reshape": lambda: t.reshape(shape)}[call.__name__]
    if call is torch.reshape:
        run = lambda: torch.reshape(t, shape)  # noqa: E731 - the name of the call is read off the line
    said = explain_view(t, shape)
    for found in (explain_error(run), explain_error(caught(run))):
        assert found.known, found
        assert found.text.lower().endswith(said.text.lower())
        assert found.remedy == said.remedy


def test_what_the_remedy_for_a_negative_size_says_raises_nothing():
    assert "its size -2 at position 0 is negative" in explain_error(lambda: X.view(-2, 6)).text
    assert explain_error(lambda: X.view(-1, 6)).error == ""
    assert explain_error(lambda: X.view(2, 6)).error == ""


WITHOUT = {
    "shape (-2, 6): its size -2 at position 0 is negative, and only -1 has a meaning.": lambda: same(X).view(-2, 6),
    "shape (3, -4): its size -4 at position 1 is negative, and only -1 has a meaning.": lambda: same(X).reshape(3, -4),
    "a size does not fit into 64 bits, so no tensor can have it.": lambda: same(X).view(3, BIG),
    "(-7, 2): its size -7 at position 0 is negative, and only -1 has a meaning.": lambda: same(X).unflatten(1, (-7, 2)),
}


@pytest.mark.parametrize("said", WITHOUT)
def test_without_the_tensor_the_message_is_enough(said):
    found = explain_error(caught(WITHOUT[said]))
    assert found.known
    assert found.text.endswith(said)
    assert found.remedy


NO_SIZES = [
    lambda: X.view(2.5, 4),
    lambda: X.view(3, 4.0),
    lambda: X.view((2.0, 6)),
    lambda: X.view("a"),
    lambda: X.view(3, None),
    lambda: X.view([3, "a"]),
    lambda: X.view(True, 12),
    lambda: X.view(torch.tensor([3, 4])),
    lambda: X.reshape(2.5, 4),
    lambda: X.reshape(3, "a"),
    lambda: X.reshape((3, None)),
    lambda: torch.reshape(X, (2.0, 6)),
]


@pytest.mark.parametrize("broken", NO_SIZES)
def test_a_size_that_is_no_whole_number_is_known_with_a_remedy(broken):
    for found in (explain_error(broken), explain_error(caught(broken))):
        assert found.known, found
        assert found.remedy


def test_what_is_in_a_tuple_is_told():
    assert "view() got (tuple of (float, int))" in explain_error(lambda: X.view((2.0, 6))).text
    assert "// divides to an int" in explain_error(lambda: X.view((2.0, 6))).remedy
    assert "// divides to an int" in explain_error(lambda: X.reshape(2.5, 4)).remedy
    assert "// divides to an int" not in explain_error(lambda: X.view(3, None)).remedy
    assert "has None at position 1" in explain_error(lambda: X.view(3, None)).text
    assert explain_error(lambda: X.view((12 // 6, 6))).error == ""


@pytest.mark.parametrize(
    ("broken", "healthy", "said", "remedy"),
    [
        (lambda: KEPT.view(2, 6), lambda: KEPT.to_dense().view(2, 6), "the layout mkldnn", "to_dense()"),
        (lambda: NESTED.view(5), lambda: NESTED.unbind()[0].view(2, 1), "a nested tensor came", "unbind()"),
        (lambda: NESTED.reshape(2, -2), lambda: NESTED.unbind()[1].view(3, 1), "a nested tensor came", "unbind()"),
    ],
)
def test_a_tensor_without_strides_has_no_view(broken, healthy, said, remedy):
    for found in (explain_error(broken), explain_error(caught(broken))):
        assert found.known
        assert said in found.text
        assert remedy in found.remedy
    assert explain_error(healthy).error == ""


# view(dtype)


C = torch.ones(4, dtype=torch.complex64)
NINE = torch.arange(9.0).view(3, 3)


@pytest.mark.parametrize(
    ("broken", "healthy", "said", "remedy"),
    [
        (
            lambda: NINE.view(torch.float64),
            lambda: NINE[:, :2].contiguous().view(torch.float64),
            "the last dimension must have a size of a multiple of 2, and it has 3",
            "Cut or pad it",
        ),
        (
            lambda: X.T.view(torch.int8),
            lambda: X.T.contiguous().view(torch.int8),
            "the last dimension must have a stride of 1, and it has 4",
            "contiguous()",
        ),
        (
            lambda: NINE[:, :2].view(torch.float64),
            lambda: NINE[:, :2].contiguous().view(torch.float64),
            "dimension 0 must have a stride of a multiple of 2, and it has 3",
            "contiguous()",
        ),
        (
            lambda: X[:, 1:3].view(torch.float64),
            lambda: X[:, 1:3].clone().view(torch.float64),
            "the number of its first slot must be a multiple of 2, and it is 1",
            "clone() it",
        ),
        (
            lambda: X.sum().view(torch.int8),
            lambda: X.sum().view(1).view(torch.int8),
            "`X.sum()` has no dimension",
            "view(1)",
        ),
        (lambda: C.conj().view(torch.float32), lambda: C.conj().resolve_conj().view(torch.float32), "a conjugate", ""),
        (
            lambda: C.conj().imag.view(torch.int32),
            lambda: C.conj().imag.resolve_neg().view(torch.int32),
            "is a negative view",
            "resolve_neg()",
        ),
    ],
)
def test_another_dtype_for_the_same_bytes(broken, healthy, said, remedy):
    found = explain_error(broken)
    assert found.known
    assert said in found.text
    assert remedy in found.remedy
    assert explain_error(caught(broken)).text == found.text
    assert explain_error(healthy).error == ""


# flatten and unflatten


@pytest.mark.parametrize(
    ("broken", "healthy", "said"),
    [
        (
            lambda: X.unflatten(1, (2, 3)),
            lambda: X.unflatten(1, (2, 2)),
            "it holds 6 elements, but the dimension has 4",
        ),
        (lambda: X.unflatten(-1, (-1, 3)), lambda: X.unflatten(-1, (-1, 2)), "multiply to 3, which does not divide 4"),
        (lambda: nn.Unflatten(1, (3, 2))(X), lambda: nn.Unflatten(1, (4, 1))(X), "but the dimension has 4"),
        (lambda: X.unflatten(1, (-1, -1)), lambda: X.unflatten(1, (-1, 1)), "2 of its sizes are -1"),
        (lambda: torch.unflatten(X, 1, (-2, 2)), lambda: torch.unflatten(X, 1, (2, 2)), "its size -2 at position 0"),
        (lambda: X.unflatten(dim=1, sizes=(-1, -1)), lambda: X.unflatten(dim=1, sizes=(2, -1)), "2 of its sizes"),
        (lambda: X.unflatten(1, ()), lambda: X.unflatten(1, (4,)), "gives no sizes"),
        (lambda: X.flatten(1, 0), lambda: X.flatten(0, 1), "its start_dim comes after its end_dim"),
        (lambda: X.flatten(-1, -2), lambda: X.flatten(-2, -1), "its start_dim comes after its end_dim"),
    ],
)
def test_dimensions_that_do_not_split_or_join(broken, healthy, said):
    for found in (explain_error(broken), explain_error(caught(broken))):
        assert found.known
        assert said in found.text
        assert found.remedy
    assert explain_error(healthy).error == ""


def test_the_dimension_is_named_where_it_has_too_few_elements():
    assert misfit((2, 3), 4, "the dimension") == "it holds 6 elements, but the dimension has 4"
    assert misfit((2, 2), 4, "the dimension") == ""


# expand, and tensors of a negative size


@pytest.mark.parametrize(
    ("broken", "healthy", "said"),
    [
        (lambda: X.expand(-1, 3, 4), lambda: X.expand(2, -1, 4), "a negative size to dimension 0, which is new"),
        (
            lambda: X.expand(4),
            lambda: X.expand(-1, 4),
            "gives sizes for dimensions, 1 of them, and `X` has 2: expand keeps each",
        ),
        (lambda: torch.empty(2, -3), lambda: torch.empty(2, 0), "a tensor with a negative size"),
        (lambda: torch.zeros(3 - 4), lambda: torch.zeros(4 - 4), "a tensor with a negative size"),
        (lambda: X.repeat(-1, 2), lambda: X.repeat(1, 2), "a tensor with a negative size"),
    ],
)
def test_a_size_that_expand_or_a_new_tensor_does_not_take(broken, healthy, said):
    for found in (explain_error(broken), explain_error(caught(broken))):
        assert found.known
        assert said in found.text
        assert found.remedy
    assert explain_error(healthy).error == ""


# channels_last: only what is true of the tensor


def made(how: str) -> torch.Tensor:
    if how == "permute":
        return torch.zeros(2, 4, 4, 3).permute(0, 3, 1, 2)
    if how == "to":
        return torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)
    return nn.Conv2d(3, 3, 1).to(memory_format=torch.channels_last)(torch.zeros(2, 3, 4, 4))


@pytest.mark.parametrize("how", ["permute", "to", "conv"])
def test_strides_of_channels_last_are_told_without_a_claim_where_they_are_from(how):
    t = made(how)
    found = explain_error(lambda: t.view(2, -1))
    assert "`t` has shape (2, 3, 4, 4) but strides (48, 1, 12, 3) = channels_last, as after to(memory" in found.text
    assert "or a permute from N, H, W, C: shape (2, 48) in that order needs a copy" in found.text
    assert "model" not in found.text
    assert "did" not in found.text
    assert explain_error(lambda: t.flatten(1)).error == ""


def test_strides_of_channels_last_3d_have_a_depth():
    t = torch.zeros(2, 2, 4, 4, 3).permute(0, 4, 1, 2, 3)
    assert "= channels_last_3d, as after" in explain_error(lambda: t.view(-1)).text
    assert "from N, D, H, W, C:" in explain_error(lambda: t.view(-1)).text


def test_a_size_beyond_64_bits_is_told_without_torch_s_half_quote():
    for found in (explain_error(lambda: torch.zeros(2, 2**63)), explain_error(caught(lambda: torch.zeros(2, 2**63)))):
        assert found.known
        assert found.text.endswith("of zeros() has a whole number at position 1 that does not fit into 64 bits.")
        assert found.remedy
    assert explain_error(lambda: torch.zeros(0, 2**62)).error == ""


def test_a_view_in_library_code_or_by_another_name_borrows_no_name():
    conv = torch.nn.Conv2d(4, 8, 3).to(memory_format=torch.channels_last)

    def flat(m):
        return torch.nn.utils.parameters_to_vector(m.parameters())

    assert explain_error(flat, conv).text.startswith("A tensor inside has shape (8, 4, 3, 3)")

    def renamed(a):
        f = a.T.view
        return f(-1)

    assert explain_error(renamed, torch.randn(3, 4)).text.startswith("The tensor has shape (4, 3) and strides (1, 4)")

    def named(a):
        return a.view(-1)

    assert explain_error(named, torch.randn(3, 4).T).text.startswith("`a` has shape (4, 3)")
