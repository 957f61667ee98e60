"""A right answer is right in every type that means it, and a wrong one gets no false reason."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from helpers.course.exercises.chapter_00 import EXERCISES as START
from helpers.course.exercises.chapter_01 import EXERCISES as STORAGE
from helpers.course.same import list_fault, number_of, numbers_of, truth_of

NUMBERS = {
    "int": int,
    "float": float,
    "np.int64": np.int64,
    "np.float32": np.float32,
    "0-d array": np.array,
    "tensor": torch.tensor,
    "tensor of floats": lambda n: torch.tensor(float(n)),
    "parameter": lambda n: torch.nn.Parameter(torch.tensor(float(n))),
}
TRUTHS = {
    "bool": bool,
    "int": int,
    "np.bool_": np.bool_,
    "tensor": torch.tensor,
    "tensor of one": lambda b: torch.tensor([b]),
    "array of one": lambda b: np.array([b]),
}
LISTS = {"list": list, "tuple": tuple, "array": np.array, "tensor": torch.tensor}


def first_bad(losses):
    return next((i for i, loss in enumerate(losses) if not math.isfinite(loss)), None)


def slot(index, stride, storage_offset):
    return storage_offset + sum(i * s for i, s in zip(index, stride, strict=True))


def same_storage(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def is_viewable(shape, stride, new_shape):
    reach = sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) + 1
    try:
        torch.empty(reach).as_strided(shape, stride).view(new_shape)
    except RuntimeError:
        return False
    return True


def verdict(exercise: str, answer) -> str:
    """Return "" for a right answer, and what the check says of a wrong one."""
    outcome = (START | STORAGE)[exercise].check(answer)
    return "" if outcome.passed else outcome.text


@pytest.mark.parametrize("kind", NUMBERS)
def test_a_number_is_accepted_in_every_type(kind):
    as_kind = NUMBERS[kind]
    assert verdict("ex-first-bad", lambda losses: None if (n := first_bad(losses)) is None else as_kind(n)) == ""
    assert verdict("ex-slot", lambda *args: as_kind(slot(*args))) == ""
    assert verdict("ex-antidiagonal", (as_kind(3), as_kind(3), as_kind(3))) == ""
    assert verdict("ex-antidiagonal", ((as_kind(3),), [as_kind(3)], as_kind(3))) == ""
    assert verdict("ex-expand", ((as_kind(1), as_kind(0)), as_kind(3))) == ""
    assert verdict("ex-row-slots", [as_kind(n) for n in (8, 9, 10, 11)]) == ""
    assert verdict("ex-strides", lambda shape: tuple(map(as_kind, torch.empty(shape).stride()))) == ""


@pytest.mark.parametrize("kind", TRUTHS)
def test_a_truth_value_is_accepted_in_every_type(kind):
    as_kind = TRUTHS[kind]
    assert verdict("ex-same-storage", lambda a, b: as_kind(same_storage(a, b))) == ""
    assert verdict("ex-viewable", lambda *args: as_kind(is_viewable(*args))) == ""


@pytest.mark.parametrize("kind", LISTS)
def test_a_list_is_accepted_in_every_type(kind):
    as_kind = LISTS[kind]
    assert verdict("ex-row-slots", as_kind([8, 9, 10, 11])) == ""
    assert verdict("ex-write-through", as_kind([0, 1, 2, 0, 0, 0])) == ""
    assert verdict("ex-antidiagonal", as_kind([3, 3, 3])) == ""
    assert verdict("ex-strides", lambda shape: as_kind(torch.empty(shape).stride())) == ""


def test_a_set_of_slots_is_right_and_a_set_of_ordered_numbers_is_told_so():
    assert verdict("ex-row-slots", {11, 8, 10, 9}) == ""
    assert verdict("ex-write-through", {0, 1, 2}).startswith("A set has no order")
    assert "A set has no order" in verdict("ex-channels-last", lambda n, c, h, w: {1, c, w * c, h * w * c})


@pytest.mark.parametrize("answer", ["8 9 10 11", 8.5, {8: 9}, None, object()])
def test_a_container_that_cannot_mean_a_list_is_named_as_the_fault(answer):
    assert "a list of numbers is wanted" in verdict("ex-row-slots", answer)
    assert "a list of numbers is wanted" in verdict("ex-write-through", answer)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "None came, and a list of numbers is wanted."),
        (object(), "An object came, and a list of numbers is wanted."),
        (8.5, "8.5 is a float, and a list of numbers is wanted."),
    ],
)
def test_what_came_in_place_of_a_list_is_named_once(answer, said):
    assert verdict("ex-write-through", answer) == said
    assert verdict("ex-strides", lambda shape: answer) == (
        f"new_strides((4,)): {said.replace('a list of numbers', 'a tuple of strides')}"
    )


def test_an_index_beside_the_right_one_is_told_what_is_wanted():
    said = verdict("ex-first-bad", lambda losses: 3)
    assert said == (
        "first_bad([1.0, 0.5, nan, nan]) gave 3, and 2 is wanted: the index of the first loss that is NaN or infinite, "
        "counted from 0."
    )


def test_a_function_that_returns_nothing_is_asked_whether_it_prints():
    said = verdict("ex-first-bad", lambda losses: None)
    assert (
        "gave None, and 2 is wanted: the loss there is NaN. Does the function return the index, or only print" in said
    )


@pytest.mark.parametrize("given", ["2", "none", [2], True, object(), {2}])
def test_what_is_no_index_is_not_blamed_on_nan(given):
    said = verdict("ex-first-bad", lambda losses: given)
    assert "a whole number, or None is wanted" in said or given == [2]
    assert "NaN == NaN" not in said


@pytest.mark.parametrize("named", ["dispatcher", "kernel", "dispatcher and kernel", "Dispatcher "])
def test_the_parts_go_by_every_name_that_the_table_gives_them(named):
    assert verdict("ex-which-layer", ["storage", "graph", named]) == ""
    assert verdict("ex-which-layer", ["tensor and storage", "graph", named]) == ""
    assert verdict("ex-which-layer", ["storage", "Autograd", named]) == ""
    assert verdict("ex-which-layer", [named, "graph", "kernel"]).startswith(f"Answer 1 is not {named!r}")


def test_a_list_of_words_may_be_an_array():
    assert verdict("ex-which-layer", np.array(["storage", "graph", "kernel"])) == ""
    assert "list of three words" in verdict("ex-which-layer", np.array(["storage"]))
    assert verdict("ex-copies", np.array(["b", "d"])) == ""
    assert "A list of letters is wanted" in verdict("ex-copies", torch.tensor([1, 3]))


@pytest.mark.parametrize("step", [-9, -math.inf, 1e9, 0.5])
def test_a_step_that_is_none_gets_no_error_of_the_check(step):
    assert "gave " in (said := verdict("ex-first-bad", lambda losses: step))
    assert "and that is finite" not in said


@pytest.mark.parametrize("answer", [5, None, (1, 2, 3, 4), "word"])
def test_the_wrong_number_of_parts_is_told(answer):
    assert verdict("ex-expand", answer).startswith("A pair is wanted")
    assert verdict("ex-antidiagonal", answer).startswith("Three things are wanted")


@pytest.mark.parametrize("unknown", ["device", 3, None, ["graph"]])
def test_an_unknown_part_gets_all_the_words(unknown):
    said = verdict("ex-which-layer", ["storage", unknown, "kernel"])
    assert said.startswith(
        f"Answer 2 is {unknown!r}. The words are, for the storage: 'storage', 'tensor and storage'; "
    )
    assert (
        "for the graph: 'graph', 'autograd'; for the kernel: 'kernel', 'dispatcher', 'dispatcher and kernel'." in said
    )


def test_tensors_in_place_of_names_are_named_as_the_fault():
    said = verdict("ex-wasteful", lambda tensors: {tensors["fifth"]})
    assert said == (
        "wasteful returned a set that holds a tensor of shape (2,); a set of names is wanted, which are the keys of "
        "the dict, such as 'row'."
    )
    assert "holds ('whole', a tensor of shape (100, 100)); a set of names" in verdict(
        "ex-wasteful", lambda tensors: list(tensors.items())
    )
    assert "is missing" in verdict("ex-wasteful", lambda tensors: [])


def test_readers_of_answers_say_none_for_what_means_nothing():
    class Broken(torch.Tensor):
        def detach(self):
            raise RuntimeError("broken")

    broken = torch.zeros(1).as_subclass(Broken)
    for nothing in (None, "3", "True", [], [1, 2], (3,), object(), torch.zeros(2), math.nan, broken, {3}):
        assert truth_of(nothing) is None
        number = number_of(nothing)
        assert number is None or number != number
    assert truth_of(2) is None
    assert number_of(True) is None
    assert numbers_of("12") is None
    assert numbers_of([1, "2"]) is None
    assert numbers_of(torch.tensor([1, 2])) == (1, 2)
    assert list_fault(iter([1])) is None
