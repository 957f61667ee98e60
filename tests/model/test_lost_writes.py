"""What `find_lost_writes` says of the tensor that a lost write did not reach: which one it names, and its version."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from helpers.model.writes import find_lost_writes

ONES = torch.ones(4, 4)


def said(fn, *args) -> str:
    found = find_lost_writes(fn, *args)
    assert found.facts["lost"], found.text
    return found.text


def clause(fn, *args) -> str:
    """Return what the sentence says of the source, without the full stop: empty where it names none."""
    return said(fn, *args).partition(" and nothing read it")[2].removeprefix("; ").removesuffix(".")


# Whether the run wrote to the tensor


def test_a_write_after_the_lost_one_is_a_touch():
    def mark(x):
        x[x >= 0].fill_(1)
        x[0] = 2

    x = torch.zeros(4)
    assert clause(mark, x) == "it never reached x"
    assert x._version == 1


def test_a_write_before_the_lost_one_is_a_touch():
    def twice(x):
        x.add_(1)
        x[[0, 1]][0] = 5

    assert clause(twice, torch.zeros(4)) == "it never reached x"


def test_a_write_through_a_view_or_around_autograd_is_a_touch():
    def through_a_view(x):
        x[[0, 1]][0] = 5
        x.view(-1)[0] = 1

    def through_data(x):
        x[[0, 1]][0] = 5
        x.data[0] = 1

    def by_an_optimizer(x):
        x.sum().backward()
        x[[0, 1]].detach()[0] = 5
        torch.optim.SGD([x], lr=0.1).step()

    assert clause(through_a_view, torch.zeros(4)) == "it never reached x"
    x = torch.zeros(4)
    assert clause(through_data, x) == "it never reached x"
    assert x._version == 0, "the counter does not notice this write"
    assert clause(by_an_optimizer, nn.Parameter(torch.zeros(4))) == "it never reached x"


def test_a_tensor_that_is_gone_at_the_end_is_judged_too():
    def gone():
        x = torch.zeros(3)
        x[[0]].add_(1)
        x[0] = 2

    assert clause(gone) == "it never reached x"


def test_a_tensor_that_was_written_before_the_run_is_not_said_to_be_untouched():
    def once(x):
        x[[0, 1]][0] = 5

    x = torch.zeros(4)
    assert clause(once, x) == "x was never touched (version still 0)"
    x.add_(1)
    assert clause(once, x) == "nothing in this run wrote to x (version still 1)"
    assert x._version == 1


def test_a_write_to_another_tensor_is_no_touch():
    def other(x, y):
        y[0] = 1
        x[[0, 1]][0] = 5
        y[1] = torch.zeros(3).add_(1).sum()

    assert clause(other, torch.zeros(4), torch.zeros(4)) == "x was never touched (version still 0)"


def test_one_line_in_a_loop_is_only_said_to_leave_untouched_what_no_turn_touched():
    def each(tensors):
        for t in tensors:
            t[[0]][0] = 5

    def first(tensors):
        each(tensors)
        tensors[0].add_(1)

    pair = [torch.zeros(3), torch.zeros(3)]
    assert clause(each, pair) == "t was never touched (version still 0)"
    assert clause(first, pair) == "it never reached t"


# Which tensor is named


@pytest.mark.parametrize(
    "write",
    [
        lambda x, n: torch.where(x > 0, x, 0.0).clamp_(max=1),
        lambda x, n: torch.where(input=x, condition=x > 0, other=0.0).clamp_(max=1),
        lambda x, n: torch.maximum(x - 1, x).zero_(),
        lambda x, n: (2 * x).zero_(),
        lambda x, n: (1 - x).zero_(),
        lambda x, n: x[[0, 1]][[0]].zero_(),
        lambda x, n: (x + 1)[[0, 1]].zero_(),
        lambda x, n: (x * 2).T.reshape(-1).zero_(),
        lambda x, n: torch.clone(input=x).zero_(),
    ],
)
def test_of_an_expression_the_tensor_in_it_is_named(write):
    def work(x, n):
        write(x, n)

    assert clause(work, ONES.clone(), 3) == "x was never touched (version still 0)"


def made(x):
    return x + 1


@pytest.mark.parametrize(
    "write",
    [
        lambda w, x: torch.matmul(w + 1, x).relu_(),
        lambda w, x: torch.maximum(w, x).relu_(),
        lambda w, x: (3 * len(x) * x).zero_(),
        lambda w, x: x.sum(0).zero_(),
        lambda w, x: torch.zeros(4, 4)[[0, 1]][0].fill_(1),
        lambda w, x: made(x)[[0, 1]][0].fill_(1),
        lambda w, x: torch.tensor([1.0, 2.0]).zero_(),
    ],
)
def test_where_nobody_can_tell_which_tensor_was_meant_none_is_named(write):
    def work(w, x):
        write(w, x)

    assert clause(work, nn.Parameter(ONES.clone()).detach(), ONES.clone()) == ""


def test_a_name_of_the_reader_stays_named_whatever_made_its_tensor():
    def computed(x):
        y = x * 2
        y[[0, 1]][0] = 5
        return y

    def kept(holder):
        holder["t"].T.reshape(-1)[0] = 5

    assert clause(computed, ONES) == "y was never touched (version still 0)"
    assert clause(kept, {"t": ONES[:2]}) == 'it never reached holder["t"].T'


# How the write is quoted


def test_an_augmented_assignment_is_quoted_as_a_whole():
    def add(x, i):
        x[i][0] += 1

    def part(x, i):
        x[i][0:1] -= 1

    def chosen(x, keep):
        x[keep][:, 0] *= 2

    i = torch.tensor([0, 1])
    assert "the write `x[i][0] += 1` (line 2 of add()) went" in said(add, ONES, i)
    assert "the write `x[i][0:1] -= 1` (line 2 of part()) went" in said(part, ONES, i)
    text = said(chosen, ONES, ONES[0] > 0)
    assert "`x[keep]` is advanced indexing" in text, "reading the target is not the assignment"
    assert "the write `x[keep][:, 0] *= 2` (line 2 of chosen()) went" in text
    remedy = find_lost_writes(chosen, ONES, ONES[0] > 0).remedy
    assert remedy == "Put both into one subscript, x[keep, 0] = …: that writes to x itself."


def test_an_augmented_assignment_with_one_subscript_loses_nothing():
    def work(x, i):
        x[i] += 1
        x[x > 0] *= 2
        x[0][x[0] > 0] -= 1

    x = torch.zeros(3, 4)
    assert find_lost_writes(work, x, torch.tensor([0, 1])).lost == ()
    assert x[:2].unique().tolist() == [1, 2]
