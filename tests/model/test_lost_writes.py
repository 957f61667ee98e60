"""What `find_lost_writes` says of the tensor that a lost write did not reach: its name, version and bytes."""

from __future__ import annotations

import copy
import ctypes
import sys
from functools import partial

import numpy as np
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


# Writes that torch does not count


GLOBAL = torch.zeros(4)
ARRAY = GLOBAL.numpy()
NUMBERS = np.zeros(4, dtype=np.float32)


def lose(x):
    x[[0, 1]][0] = 5


@pytest.mark.parametrize(
    "around",
    [
        lambda x: x.numpy().__setitem__(1, 3),
        lambda x: np.asarray(x).fill(2),
        lambda x: x.untyped_storage().__setitem__(0, 7),
        lambda x: x.data.numpy().__setitem__(1, 3),
        lambda x: ctypes.memset(x.data_ptr(), 1, 4),
    ],
)
def test_a_write_that_the_counter_does_not_notice_is_a_touch(around):
    def before(x):
        around(x)
        lose(x)

    def after(x):
        lose(x)
        around(x)

    def reads(x):
        x.numpy().sum()
        lose(x)

    for work in (before, after):
        x = torch.zeros(4)
        assert clause(work, x) == "it never reached x"
        assert x._version == 0
    assert clause(reads, torch.zeros(4)) == "x was never touched (version still 0)", "reading through NumPy is no write"


def test_a_storage_that_is_gone_is_not_read():
    def work(x):
        lose(x)
        x.untyped_storage().resize_(0)

    assert clause(work, torch.zeros(100_000)) == "it never reached x"


def test_an_array_that_was_made_before_the_run_writes_too():
    def work():
        ARRAY[2] += 1
        GLOBAL[[0]][0] = 1

    def healthy():
        GLOBAL[[0]][0] = 1

    assert clause(work) == "it never reached GLOBAL"
    assert clause(healthy) == "GLOBAL was never touched (version still 0)"


def test_where_the_bytes_were_not_kept_only_what_torch_counted_is_told():
    class Holder:
        pass

    holder = Holder()
    holder.t = torch.zeros(3)

    def attribute(holder):
        holder.t[[0]][0] = 1

    def of_an_array():
        x = torch.from_numpy(NUMBERS)
        x[[0, 1]][0] = 5
        NUMBERS[1] = 3

    def handed_out():
        x = torch.zeros(4)
        x.numpy()[1] = 1
        x[[0]][0] = 1

    def kept_inside():
        x = torch.zeros(4)
        x[[0]][0] = 1

    assert clause(attribute, holder) == "torch counted no write to holder.t in this run (version still 0)"
    assert clause(of_an_array) == clause(handed_out) == "torch counted no write to x in this run (version still 0)"
    assert clause(kept_inside) == "x was never touched (version still 0)"
    assert find_lost_writes(handed_out).lost[0].touched is None


def test_a_tensor_too_large_to_copy_is_judged_by_its_counter(monkeypatch):
    x = torch.zeros(4)
    assert clause(lose, x) == "x was never touched (version still 0)"
    monkeypatch.setattr("helpers.model.writebytes.MOST_BYTES", 15)
    assert clause(lose, x) == "torch counted no write to x in this run (version still 0)"


def test_the_tensors_of_a_module_a_method_and_a_partial_are_compared():
    class Model(nn.Linear):
        def lose(self, around):
            w = self.weight.detach()
            around(w)
            w[[0]][0] = 1

    layer = Model(2, 2)
    number = partial(layer.lose, lambda w: w.numpy().fill(3))
    assert clause(number) == "it never reached w"
    assert clause(partial(layer.lose, id)) == "nothing in this run wrote to w (version still 1)"


# Calls that copy by their meaning


@pytest.mark.parametrize(
    ("copies", "cause"),
    [
        (lambda x: torch.tensor(x.numpy()), "always copies what it is given"),
        (lambda x: torch.tensor(x.numpy(), dtype=torch.float64), "always copies what it is given"),
        (lambda x: torch.tensor(x.detach()), "always copies what it is given"),
        (lambda x: x.new_tensor(x), "always copies what it is given"),
        (lambda x: copy.deepcopy(x), "is a copy by its meaning"),
        (lambda x: copy.deepcopy({"a": [x]})["a"][0], "is a copy by its meaning"),
        (lambda x: x.clone(), "is a copy by its meaning"),
        (lambda x: torch.asarray(x, copy=True), "was asked to copy"),
        (lambda x: torch.asarray(x.numpy(), copy=True), "was asked to copy"),
        (lambda x: x.to(torch.float32, copy=True), "was asked to copy"),
        (lambda x: torch.tensor(x.tolist()), "copied the numbers to a new storage"),
        (lambda x: torch.as_tensor([1.0, 2.0]), "copied the numbers to a new storage"),
        (lambda x: x.to(torch.float64), "made a new storage for another dtype (float64)"),
        (lambda x: torch.as_tensor(x, dtype=torch.int), "made a new storage for another dtype (int32)"),
        (lambda x: x.to(memory_format=torch.channels_last), "made a new storage for another memory format"),
        (lambda x: x.to("meta"), "made a new storage for another device (meta)"),
    ],
)
@pytest.mark.filterwarnings("ignore:To copy construct")
def test_what_a_call_copied_for_is_told(copies, cause):
    def work(x):
        copies(x)[0] = 1

    def kept(x):
        y = copies(x)
        y[0] = 1
        return y

    x = torch.zeros(2, 3, 4, 4)
    found = find_lost_writes(work, x)
    assert f" {cause}; the write `copies(x)[0] = 1` (line 2 of work())" in found.text
    assert ("conversion" in found.remedy) == ("another" in cause)
    assert find_lost_writes(kept, x).lost == ()


def test_what_shares_the_memory_of_an_array_is_no_copy():
    def work(x):
        torch.from_numpy(x.numpy())[0] = 1
        torch.as_tensor(x.numpy())[1] = 2
        torch.asarray(x)[2] = 3
        torch.as_tensor(data=x.numpy())[3] = 4

    def converts(x):
        torch.as_tensor(x.numpy(), dtype=torch.int)[0] = 1

    x = torch.zeros(4)
    assert find_lost_writes(work, x).lost == ()
    assert x.tolist() == [1, 2, 3, 4]
    assert "another dtype (int32)" in said(converts, x)


def test_a_function_that_ends_the_program_is_said_to_have_raised():
    found = find_lost_writes(lambda: sys.exit("enough"))
    assert found.text.startswith("The lambda raised SystemExit at ")
    assert found.text.endswith("before it ended: enough.")

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_lost_writes(interrupt)


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


@pytest.mark.parametrize("show", [print, str, repr, lambda u: f"{u}", lambda u: str(u[0, 0]), lambda u: f"{u[:2]}"])
def test_what_is_printed_is_read(show):
    def f(t, keep):
        u = t[keep]
        u.add_(1)
        show(u)

    keep = torch.tensor([True, False, True, True])
    assert not find_lost_writes(f, torch.zeros(4, 3), keep).lost

    def unread(t, keep):
        u = t[keep]
        u.add_(1)

    assert find_lost_writes(unread, torch.zeros(4, 3), keep).lost
