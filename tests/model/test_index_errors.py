"""`explain_error` for dimensions and indices that a tensor does not have; each remedy raises nothing."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import explain_error
from tests.model.failing import caught

X = torch.arange(12.0).view(3, 4)
ONE = torch.tensor(1.0)
NONE = torch.zeros(0, 3)
MASK = torch.zeros(3, 4, 5, dtype=torch.bool)
ROWS, COLUMNS = torch.tensor([0, 1]), torch.tensor([0, 1, 2])
FAR = torch.tensor([7])
TOKENS, TABLE = torch.tensor([4, 9]), nn.Embedding(9, 2)


def told(broken) -> list:
    findings = [explain_error(broken), explain_error(caught(broken))]
    assert all(found.known for found in findings), findings
    assert all(found.remedy for found in findings), findings
    return findings


# A tensor without dimensions


AS_ONE = [
    lambda: ONE.diagonal(),
    lambda: ONE.sum(1),
    lambda: ONE.transpose(0, 1),
    lambda: ONE.flatten(1),
    lambda: ONE.movedim(0, 1),
    lambda: ONE.squeeze(1),
    lambda: ONE.unfold(1, 1, 1),
    lambda: torch.softmax(ONE, 1),
    lambda: ONE.index_select(1, ROWS),
    lambda: torch.tensor(1.0).sum(-2),
]


@pytest.mark.parametrize("broken", AS_ONE)
def test_a_tensor_without_dimensions_has_0_of_them_and_torch_numbers_as_if_it_had_1(broken):
    for found in told(broken):
        assert " has 0 dimensions (shape ()), which torch takes as 1, numbered 0 or -1, and " in found.text
        assert "1 dimension " not in found.text


def test_a_dimension_that_torch_numbers_on_one_number_raises_nothing():
    for healthy in (lambda: ONE.sum(0), lambda: ONE.transpose(0, -1), lambda: ONE.unsqueeze(0).sum(0)):
        assert explain_error(healthy).error == ""


def test_a_vector_has_1_dimension():
    for found in told(lambda: ROWS.sum(1)):
        assert "`ROWS` has 1 dimension (shape (2,)), numbered 0 or -1, and `ROWS.sum(1)`" in found.text


def test_unsqueeze_and_stack_number_the_dimensions_of_their_result():
    assert "its result has 3 dimensions, numbered 0 to 2 or -3 to -1" in told(lambda: X.unsqueeze(5))[0].text
    assert "its result has 1 dimension, numbered 0 or -1" in told(lambda: ONE.unsqueeze(3))[1].text
    assert "its result has 3 dimensions" in told(lambda: torch.stack([X, X], 4))[0].text
    assert explain_error(lambda: (X.unsqueeze(2), ONE.unsqueeze(-1), torch.stack([X, X], 2))).error == ""


def test_the_tensors_of_a_list_are_not_called_a_list():
    assert "Tensor 0 of `[X, X]` has 2 dimensions (shape (3, 4))" in explain_error(lambda: torch.cat([X, X], 2)).text


WITHOUT = [
    (lambda: ONE.size(0), lambda: ONE.view(1).size(0)),
    (lambda: ONE.stride(0), lambda: ONE.view(1).stride(0)),
    (lambda: ONE.unbind(), lambda: ONE.view(1).unbind()),
    (lambda: ONE.roll(1, 0), lambda: ONE.view(1).roll(1, 0)),
    (lambda: ONE.select(0, 0), lambda: ONE.view(1).select(0, 0)),
    (lambda: ONE.narrow(0, 0, 1), lambda: ONE.view(1).narrow(0, 0, 1)),
    (lambda: ONE.split(1), lambda: ONE.view(1).split(1)),
    (lambda: ONE.chunk(1), lambda: ONE.view(1).chunk(1)),
    (lambda: len(ONE), lambda: len(ONE.view(1))),
    (lambda: list(ONE), lambda: list(ONE.view(1))),
    (lambda: ONE[0], lambda: ONE.item()),
    (lambda: ONE[:], lambda: ONE.view(1)[:]),
    (lambda: ONE[0, 0], lambda: ONE.view(1)[0]),
    (lambda: X[0][0][0], lambda: X[0][0].item()),
]


@pytest.mark.parametrize(("broken", "healthy"), WITHOUT)
def test_one_number_has_nothing_to_go_along_and_no_index(broken, healthy):
    for found in told(broken):
        assert " has 0 dimensions (shape ()), and " in found.text
        assert "item()" in found.remedy
    assert explain_error(healthy).error == ""


def test_numbers_are_stacked_and_not_joined():
    numbers = [ONE, ONE]
    found = explain_error(lambda: torch.cat(numbers))
    assert "Tensor 0 of `numbers` has 0 dimensions" in found.text
    assert "torch.stack" in found.remedy
    assert explain_error(lambda: torch.stack(numbers)).error == ""


# Indices


def assigned():
    X[0, 0, 0] = 1.0


def added():
    X[0, 0, 0] += 1.0


@pytest.mark.parametrize(
    ("broken", "many"),
    [
        (lambda: X[0, 0, 0], 3),
        (lambda: X[0, :, 0, 0], 4),
        (lambda: X[..., 0, None, 0, 0], 3),
        (lambda: X[MASK], 3),
        (lambda: X[ROWS, ROWS, ROWS], 3),
        (assigned, 3),
        (added, 3),
    ],
)
def test_more_indices_than_dimensions_are_counted(broken, many):
    for found in told(broken):
        assert "`X` has 2 dimensions (shape (3, 4)), and " in found.text
        assert found.text.endswith(f"gives indices for {many}.")


def test_an_index_for_each_dimension_raises_nothing():
    assert explain_error(lambda: (X[0, 0], X[..., 0, None, 0], X[ROWS, ROWS], X[MASK[..., 0]])).error == ""


def outside():
    X[7] = 0.0


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda: X[5], "Dimension 0 of `X` has size 3, so its indices run from 0 to 2 or from -3 to -1, and "),
        (lambda: X[0, 7], "Dimension 1 of `X` has size 4"),
        (lambda: X.select(1, -9), "Dimension 1 of `X` has size 4"),
        (lambda: X[FAR], "Dimension 0 of `X` has size 3"),
        (lambda: X[:, FAR], "One dimension of `X` has size 4, so its indices run from 0 to 3 or from -4 to -1, and "),
        (lambda: X.gather(0, FAR[None]), "Dimension 0 of `X` has size 3"),
        (outside, "Dimension 0 of `X` has size 3"),
        (lambda: NONE[0], "Dimension 0 of `NONE` has size 0, so there is no index in it, and `NONE[0]`"),
        (lambda: NONE.select(0, 0), "Dimension 0 of `NONE` has size 0, so there is no index in it"),
    ],
)
def test_an_index_outside_of_its_dimension(broken, said):
    for found in told(broken):
        assert said in found.text


def test_the_last_index_raises_nothing():
    assert explain_error(lambda: (X[2], X[0, 3], X[-1], X.select(1, -4), X[:, torch.tensor([3])])).error == ""


@pytest.mark.parametrize(
    ("broken", "healthy", "said"),
    [
        (lambda: TABLE(TOKENS), lambda: TABLE(TOKENS - 1), "looks up index 9, and dimension 0 of what it looks up in"),
        (lambda: TABLE(TOKENS - 5), lambda: TABLE(TOKENS - 4), "looks up index -1, and"),
        (lambda: F.embedding(FAR, X), lambda: F.embedding(FAR - 5, X), "has size 3, with indices from 0 to 2"),
        (lambda: X.index_select(1, FAR), lambda: X.index_select(1, FAR - 4), "has size 4, with indices from 0 to 3"),
        (lambda: X.take(FAR + 7), lambda: X.take(FAR), "there are 12 of them, from index 0 on, and none at 14"),
        (lambda: X[ROWS, COLUMNS], lambda: X[ROWS[:, None], COLUMNS], "shapes [2], [3] do not broadcast"),
        (lambda: X[1.0], lambda: X[int(1.0)], "a value of type float came"),
        (lambda: X["a"], lambda: {"a": X}["a"], "a value of type str came"),
        (lambda: X.narrow(0, 2, 3), lambda: X.narrow(0, 2, 1), "the last index is 2"),
    ],
)
def test_other_indices_that_are_not_there(broken, healthy, said):
    finding, again = told(broken)
    assert said in finding.text
    assert again.text == finding.text or "looks up an index that is not there" in again.text
    assert explain_error(healthy).error == ""


def test_a_caught_error_names_the_tensor_of_a_method_and_not_its_argument():
    def same(t: torch.Tensor) -> torch.Tensor:
        return t

    assert "`same(X)` has 2 dimensions" in explain_error(caught(lambda: same(X).sum(5))).text
    assert "`same(X)` has 2 dimensions" in explain_error(caught(lambda: torch.sum(same(X), 5))).text
