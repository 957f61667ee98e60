"""`explain_error` for arguments that torch does not take: a torch call, told in whole sentences."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from helpers import explain_error

X = torch.arange(12)
SUM = "(*, torch.dtype dtype = None) or (tuple of ints dim, bool keepdim = False, *, torch.dtype dtype = None)"

REFUSED = [
    (lambda: X.view(2.0, 6), "view() got (float, int), and it takes (torch.dtype dtype) or (tuple of ints size)."),
    (lambda: X.view(), "view() got no argument, and it takes (torch.dtype dtype) or (tuple of ints size)."),
    (lambda: X.sum(dim="a"), f"sum() got (dim=str), and it takes {SUM}."),
    (lambda: X.sum(axes=0), f"sum() has no argument `axes`; it takes {SUM}."),
    (lambda: X.add(), "add() got no argument, and it takes (Tensor other, *, Number alpha = 1)."),
    (lambda: torch.sum(5), "the argument `input` of sum() is an int, and it takes a Tensor."),
    (lambda: torch.cat(X, X), "the argument `tensors` of cat() is a Tensor, and it takes a tuple of Tensors."),
    (lambda: X.reshape(None), "the argument `shape` of reshape() is None, and it takes a tuple of ints."),
    (
        lambda: torch.empty_strided((2,), (1.5,)),
        "the argument `stride` of empty_strided() has a float at position 0, and it takes a tuple of ints.",
    ),
    (lambda: torch.ones(3, dtype=5), "the argument `dtype` of ones() is an int, and it takes a torch.dtype."),
    (lambda: F.softmax(X, dim="a"), "the argument `dim` of softmax() is a str, and it takes an int."),
    (lambda: X.transpose(1), "transpose() also needs `dim1`."),
    (lambda: torch.transpose(X), "transpose() also needs `dim0` and `dim1`."),
    (lambda: torch.nn.Conv2d(3), "Conv2d() also needs `out_channels` and `kernel_size`."),
    (lambda: torch.transpose(X, 0, 1, foo=2), "transpose() has no argument `foo`."),
    (lambda: X.float().backward(foo=1), "backward() has no argument `foo`."),
    (lambda: X.expand(2.5, 3), "expand() takes 1 positional argument here, and 2 were given."),
    (lambda: X.numel(3), "numel() takes no positional arguments here, and 1 was given."),
]


@pytest.mark.parametrize(("program", "said"), REFUSED)
def test_what_torch_does_not_take_is_told_in_whole_sentences(program, said):
    finding = explain_error(program)
    assert finding.known
    assert finding.from_torch
    assert finding.text.endswith(said)
    assert "plain Python" not in finding.text


@pytest.mark.parametrize(("program", "said"), REFUSED)
def test_a_caught_error_gets_the_same_sentence(program, said):
    with pytest.raises(TypeError) as raised:
        program()
    finding = explain_error(raised.value)
    assert finding.known
    assert finding.text.endswith(said)


def view(t, shape):
    return t


class Own:
    def transpose(self, a, b):
        return a, b


@pytest.mark.parametrize(
    "program",
    [
        lambda: view(X),
        lambda: view(X, 1, foo=2),
        lambda: view(X, 1, 2),
        lambda: Own().transpose(1),
        lambda: Own().transpose(1, 2, foo=3),
        lambda: Own().transpose(1, 2, 3),
        lambda: len(3, 4),
        lambda: [].clear(1),
    ],
)
def test_a_function_of_python_stays_one(program):
    finding = explain_error(program)
    assert not finding.from_torch
    assert not finding.known
    assert "in plain Python, not in a torch call" in finding.text


def test_a_remedy_is_given_where_one_is_known():
    assert "// divides to an int" in explain_error(lambda: X.view(2.0, 6)).remedy
    assert explain_error(lambda: torch.cat(X, X)).remedy == "Put the tensors in a list: cat([a, b])."
    assert "torch.tensor" in explain_error(lambda: torch.sum(5)).remedy


def test_an_entry_of_a_size_that_is_no_whole_number_is_named():
    for shape, position in (((2.5, 3), 0), ((2, 3.5), 1), ((2, 3, 4.5), 2)):
        found = explain_error(lambda shape=shape: torch.zeros(shape))
        assert f"zeros() has a float at position {position}, and it takes a tuple of ints" in found.text
        assert found.known
    assert explain_error(lambda: torch.zeros((2, 3))).error == ""
