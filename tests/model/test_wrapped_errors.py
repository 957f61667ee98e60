"""`explain_error` with errors that are not torch's own: raised by other code, and those that wrap one of torch."""

from __future__ import annotations

import pytest
import torch

from helpers import explain_error
from helpers.model.errors.origin import chain_of, raised_outside
from helpers.model.finding import HelperError
from tests.model.failing import caught

X = torch.arange(12.0).view(3, 4)
NUMEL = "neither `view` nor `reshape` can give shape (5, 3): it holds 15 elements, but the tensor has 12."


# An error that wraps another


def from_torch():
    try:
        X.view(5, 3)
    except RuntimeError as error:
        raise ValueError("bad batch") from error


def twice():
    try:
        from_torch()
    except ValueError as error:
        raise KeyError("batch") from error


def with_its_words():
    try:
        X.view(5, 3)
    except RuntimeError as error:
        raise ValueError(f"bad batch: {error}") from error


def beside():
    try:
        X.view(5, 3)
    except RuntimeError:
        raise ValueError("bad batch")  # noqa: B904 - the context is what is tested


def in_the_handler():
    try:
        X.view(5, 3)
    except RuntimeError:
        return {}["batch"]


def of_the_parser():
    try:
        X.view(2.0, 6)
    except TypeError as error:
        raise ValueError("bad batch") from error


def of_no_gradient():
    w = torch.ones(2, requires_grad=True)
    try:
        w.grad.norm()
    except AttributeError as error:
        raise ValueError("no training") from error


BECAUSE, WHILE = (
    "was raised because a torch call had failed: ",
    "was raised while the code handled that a torch call had",
)
WRAPPED = [
    (from_torch, f"ValueError (bad batch) {BECAUSE}", NUMEL),
    (twice, f"KeyError ('batch') {BECAUSE}", NUMEL),
    (with_its_words, f"ValueError (bad batch: shape '[5, 3]' is invalid for input of size 12) {BECAUSE}", NUMEL),
    (beside, f"ValueError (bad batch) {WHILE}", NUMEL),
    (in_the_handler, f"KeyError ('batch') {WHILE}", NUMEL),
    (of_the_parser, f"ValueError (bad batch) {BECAUSE}", "(torch.dtype dtype) or (tuple of ints size)."),
    (of_no_gradient, "ValueError (no training) was raised because of another error: ", "has filled it."),
]


@pytest.mark.parametrize(("program", "wrapper", "said"), WRAPPED)
def test_the_error_of_torch_is_explained_and_the_one_around_it_is_named(program, wrapper, said):
    found = explain_error(caught(program))
    assert found.known
    assert found.error == type(caught(program)).__name__
    assert found.text.startswith(wrapper)
    assert found.text.endswith(said)
    assert found.text.count(" was raised ") == 1
    assert found.remedy
    watched = explain_error(program)
    assert (watched.text, watched.remedy, watched.error) == (found.text, found.remedy, found.error)


def test_an_exception_that_was_made_and_not_raised_has_a_cause_as_well():
    error = ValueError("bad batch")
    error.__cause__ = caught(lambda: X.view(5, 3))
    assert explain_error(error).text.startswith(f"ValueError (bad batch) {BECAUSE}")
    assert explain_error(error).text.endswith(NUMEL)


# What is not followed


def silenced():
    try:
        X.view(5, 3)
    except RuntimeError:
        raise ValueError("bad batch") from None


def of_python():
    try:
        return {}["batch"]
    except KeyError as error:
        raise ValueError("bad batch") from error


def of_an_unknown_one():
    try:
        torch.linalg.inv(torch.zeros(2, 2))
    except RuntimeError as error:
        raise ValueError("bad batch") from error


@pytest.mark.parametrize("program", [silenced, of_python, of_an_unknown_one])
def test_where_no_known_error_of_torch_is_behind_it_the_error_s_own_message_is_told(program):
    found = explain_error(caught(program))
    assert not found.known
    assert found.text.endswith("raised ValueError, which this tool does not know; its message: bad batch.")
    assert found.remedy == "", "a watched run can't tell more of what the code itself raised"


def test_a_cause_that_python_would_not_print_is_not_told_of_a_watched_run_either():
    assert "in plain Python, not in a torch call: bad batch." in explain_error(silenced).text


def test_two_errors_of_torch_in_a_row_are_told_by_the_last():
    def again():
        try:
            X.view(5, 3)
        except RuntimeError:
            X.view(7)

    for found in (explain_error(again), explain_error(caught(again))):
        assert "can give shape (7,)" in found.text
        assert "was raised" not in found.text


def test_a_ring_of_errors_ends():
    one, two = ValueError("one"), KeyError("two")
    one.__cause__, two.__context__ = two, one
    assert chain_of(one) == [one, two]
    assert "its message: one." in explain_error(one).text


# Who says it


def raises(error: BaseException):
    raise error


def asserts():
    assert X is None, "no tensor"


OTHERS = [
    (ValueError("hi"), "its message: hi."),
    (RuntimeError("hi"), "its message: hi."),
    (KeyError("hi"), "its message: 'hi'."),
]


@pytest.mark.parametrize(("error", "said"), OTHERS)
def test_what_python_code_raised_torch_did_not_say(error, said):
    for given in (error, caught(lambda: raises(error))):
        found = explain_error(given)
        assert not found.known
        assert found.text.endswith(said)
        assert "torch says" not in found.text
        assert raised_outside(given)


@pytest.mark.parametrize("program", [asserts, lambda: 1 / 0, lambda: int("a"), lambda: [][1], lambda: {}["a"]])
def test_what_python_itself_raised_torch_did_not_say(program):
    found = explain_error(caught(program))
    assert "which this tool does not know; its message: " in found.text
    assert "torch says" not in found.text


def test_an_error_that_nobody_raised_is_told_as_such():
    assert explain_error(ValueError("hi")).text.startswith("This is a ValueError that was never raised, which")


@pytest.mark.parametrize(
    "program",
    [
        lambda: torch.linalg.inv(torch.zeros(2, 2)),
        lambda: torch.linalg.cholesky(-torch.eye(2)),
        lambda: torch.nn.functional.interpolate(X, scale_factor=2, mode="none"),
    ],
)
def test_what_torch_raised_torch_says(program):
    for found in (explain_error(program), explain_error(caught(program))):
        assert not found.known
        assert ("torch says: " in found.text) != ("in plain Python" in found.text)
        assert not raised_outside(caught(program))


def test_a_sentence_of_a_helper_stays_one():
    def asked():
        raise HelperError("a size is a whole number, but 2.5 came")

    for found in (explain_error(asked), explain_error(caught(asked))):
        assert found.known
        assert found.text == "A size is a whole number, but 2.5 came (line 2 of asked())."
