"""`explain_error` with a caught error of chapter 1: the frames hold the tensors, or the cause is general."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn

from helpers import explain_error
from helpers.model.errors.replay import replay
from tests.model.failing import caught

WATCH = "Give the function that raised it, explain_error(f): a watched run tells more."
X = torch.arange(12.0).view(3, 4)


def same(t: torch.Tensor) -> torch.Tensor:
    """Return the tensor from a call that is not worked out again."""
    return t


class Pixels(nn.Module):
    def forward(self, images):
        return images.view(images.size(0), -1)


class Holder:
    def __init__(self):
        self.rows = X.clone()

    @property
    def never(self):
        raise AssertionError("a property was asked")


def shifted():
    h = torch.arange(5)
    h[1:] = h[:-1]


def expanded():
    e = torch.zeros(1).expand(3)
    e += 1


def through_out():
    torch.add(X[1:], 1, out=X[:-1])


def of_an_attribute():
    holder = Holder()
    holder.rows.transpose(0, 1).view(12)


KNOWN = [
    (lambda: torch.zeros(3, 4).T.view(12), "`torch.zeros(3, 4).T` has shape (4, 3) and strides (1, 4)"),
    (lambda: X.t().view(-1), "`X.t()` has shape (4, 3) and strides (1, 4)"),
    (lambda: X.t().view(X.shape[0], 4), "`X.t()` has shape (4, 3) and strides (1, 4)"),
    (of_an_attribute, "`holder.rows.transpose(0, 1)` has shape (4, 3)"),
    (lambda: X.view(5, 3), "it holds 15 elements, but the tensor has 12"),
    (
        lambda: Pixels()(torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)),
        "`images` has shape (2, 3, 4, 4) but strides (48, 1, 12, 3) = channels_last",
    ),
    (shifted, "`h[1:]` and `h[:-1]` share one storage and overlap in 3 of 4 elements"),
    (through_out, "`X[:-1]` and `X[1:]` share one storage and overlap in 4 of 8 elements"),
    (expanded, "Dimension 0 of `e` has stride 0: its 3 elements are 1 slot"),
    (lambda: X + torch.ones(3), "shapes (3, 4) and (3,) do not broadcast"),
]


@pytest.mark.parametrize(("program", "said"), KNOWN)
def test_a_caught_error_is_explained_as_in_a_watched_run(program, said):
    finding = explain_error(caught(program))
    assert finding.known
    assert said in finding.text
    assert finding.text == explain_error(program).text
    assert WATCH not in finding.remedy


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            lambda: same(X).T.view(12),
            "a dimension of the new shape would run over dimensions of the tensor whose strides",
        ),
        (lambda: same(X)[1:].copy_(same(X)[:-1]), "overlaps with the part that it reads"),
        (lambda: same(X[0, :1].expand(3)).add_(1), "several elements lie in one slot, as after expand"),
        (lambda: same(X) + torch.ones(3), ": the shapes do not broadcast, because sizes 4 and 3 meet"),
    ],
)
def test_without_the_tensors_the_cause_is_told_in_general(program, said):
    finding = explain_error(caught(program))
    assert finding.known
    assert said in finding.text
    assert (WATCH in finding.remedy) == ("broadcast" not in said)


def test_variables_that_have_changed_since_are_not_blamed():
    t, error = X.t(), None
    try:
        t.view(12)
    except RuntimeError as raised:
        error, t = raised, X
    finding = explain_error(error)
    assert t.is_contiguous()
    assert "a dimension of the new shape would run over" in finding.text


def never(holder):
    return holder.never.view(7)


@pytest.mark.parametrize(
    "program",
    [
        lambda: never(Holder()),
        lambda: same(X).view(7),
        lambda: X[X > 3].view(7),
        lambda: X[[0, 1]].view(7),
        lambda: 1 / 0,
    ],
)
def test_only_names_numbers_and_views_are_worked_out(program):
    assert replay(caught(program)) is None


def test_what_is_worked_out_is_what_the_call_was_given():
    name, args, kwargs = replay(caught(lambda: X[1:, ::2].unsqueeze(0).view(7, 1)))
    assert (name, args[1:], kwargs) == ("view", (7, 1), {})
    assert args[0].data_ptr() == X[1:].data_ptr()
    assert args[0].stride() == X[1:, ::2].unsqueeze(0).stride()


def of_a_dict():
    state = {"w": X.T}
    state["w"].view(-1)


def with_arithmetic():
    n = 1
    X[n].view(4, n + 1)


@pytest.mark.parametrize("fails", [of_a_dict, with_arithmetic])
def test_a_caught_error_says_what_a_watched_run_says(fails):
    found = explain_error(caught(fails))
    assert found.text == explain_error(fails).text
    assert found.known


GENERAL = {
    "shape (4, 2): it holds 8 elements, but the tensor has 4.": lambda: same(X[0]).view(4, 2),
    "shape (3, -1): the sizes without -1 multiply to 3, which does not divide 4.": lambda: same(X[0]).view(3, -1),
    "shape (0, -1): ": lambda: same(X[:0]).view(0, -1),
}


@pytest.mark.parametrize("cause", GENERAL)
def test_a_shape_that_does_not_fit_is_read_from_the_message_where_the_tensor_is_not_at_hand(cause):
    found = explain_error(caught(GENERAL[cause]))
    assert cause in found.text
    assert found.text == explain_error(GENERAL[cause]).text


def test_two_sizes_of_minus_one_are_told_without_the_tensor():
    found = explain_error(caught(lambda: same(X).view(-1, -1)))
    assert found.text.endswith("fails: more than one size is -1, and only one can be worked out from the others.")


def test_two_vectors_of_different_sizes_have_no_product():
    found = explain_error(lambda: torch.ones(2) @ torch.ones(3))
    assert "both need one size, and they have 2 and 3" in found.text
    assert explain_error(lambda: torch.ones(2) @ torch.ones(2)).error == ""
