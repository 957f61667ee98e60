"""The name that the explorer's code line starts with."""

from __future__ import annotations

import sys

import pytest
import torch

from helpers.explore.naming import written_argument


def name_of(t, *rest) -> str:
    return written_argument(sys._getframe(1), "t")


class Holder:
    weight = torch.zeros(2, 3)


x = torch.arange(12).view(3, 4)
names = {"é": [x]}
holder = Holder()


def test_a_variable_is_called_as_its_owner_calls_it():
    assert name_of(x) == "x"


def test_attributes_indices_and_views_are_repeated():
    assert name_of(holder.weight) == "holder.weight"
    assert name_of(x[1:, ::2]) == "x[1:, ::2]"
    assert name_of(names["é"][0]) == "names['é'][0]"
    assert name_of(x.transpose(0, 1).view(12) if False else x.T) == "t"
    assert name_of(x.transpose(0, 1)) == "x.transpose(0, 1)"


def test_what_would_give_another_tensor_each_time_is_called_t():
    assert name_of(torch.randn(3, 4)) == "t"
    assert name_of(x + 1) == "t"
    assert name_of(x[list(range(2))]) == "t"
    assert name_of(*[x]) == "t"


def test_two_calls_on_one_line_and_a_call_over_several_lines_keep_their_names():
    y = x
    assert [name_of(x), name_of(y)] == ["x", "y"]
    several = name_of(
        y[0],
    )
    assert several == "y[0]"


@pytest.mark.parametrize("source", ["f(x)", "é = f(x)", "f(f and x) if 0 else f(x)"])
def test_without_a_source_the_name_is_t(source):
    seen = []

    def f(t):
        seen.append(written_argument(sys._getframe(1), "t"))

    exec(compile(source, "<nowhere>", "exec"), {"f": f, "x": x})
    assert seen == ["t"]


def test_without_a_frame_the_name_is_t():
    assert written_argument(None, "t") == "t"
