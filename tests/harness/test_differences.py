"""The sentence that a failed comparison gives."""

from __future__ import annotations

import pytest

from helpers.draw.drawing import Drawing
from tools.nbharness.differences import explain_difference, svg_texts


def picture(*texts: str, colour: str = "#9ecae9") -> str:
    body = "".join(f'<text x="1">{text}</text>' for text in texts)
    return Drawing(f'<svg xmlns="http://www.w3.org/2000/svg"><rect fill="{colour}"/>{body}</svg>', "a strip").html()


def test_equal_outputs_need_no_sentence():
    assert explain_difference({"stdout": ["a"]}, {"stdout": ["a"]}) == ""


@pytest.mark.parametrize(
    ("stored", "new"),
    [
        ({"stdout": ["a"], "stderr": ["warning A"]}, {"stdout": ["a"], "stderr": ["warning B"]}),
        ({"stdout": ["a"]}, {"stdout": ["a"], "stderr": ["UserWarning: B"]}),
        ({"stdout": ["a"], "stderr": ["UserWarning: A"]}, {"stdout": ["a"]}),
    ],
)
def test_a_warning_alone_is_named_as_harmless(stored, new):
    sentence = explain_difference(stored, new)
    assert sentence.startswith("Only a warning on stderr differs, and the code is fine: silence")


def test_stderr_that_is_no_warning_is_not_called_harmless():
    assert "code is fine" not in explain_difference({"stderr": ["lost 3 rows"]}, {"stderr": ["lost 4 rows"]})


def test_a_warning_beside_another_difference_is_not_called_harmless():
    stored, new = {"stdout": ["a"], "stderr": ["warning A"]}, {"stdout": ["b"], "stderr": ["warning B"]}
    assert "code is fine" not in explain_difference(stored, new)


def test_addresses_alone_ask_for_a_name():
    stored, new = "<MulBackward0 at 0x7f0000000000>", "<MulBackward0 at 0x7f1234567890>"
    sentence = explain_difference({"text/plain": [stored]}, {"text/plain": [new]})
    assert "only in memory addresses" in sentence
    assert "grad_fn.name()" in sentence


def test_addresses_beside_another_difference_are_not_blamed():
    stored, new = "<MulBackward0 at 0x7f0000000000>", "<AddBackward0 at 0x7f1234567890>"
    assert "addresses" not in explain_difference({"text/plain": [stored]}, {"text/plain": [new]})


def test_another_wording_of_the_same_exception_asks_for_a_stable_part():
    stored = {"ename": ["RuntimeError"], "evalue": ["output 0 of SigmoidBackward0"]}
    sentence = explain_difference(stored, {"ename": ["RuntimeError"], "evalue": ["output 0 of Sigmoid"]})
    assert "exception type is as expected (RuntimeError)" in sentence
    assert "stable substring" in sentence
    assert "`ref-torch`" in sentence


def test_another_exception_type_is_named():
    sentence = explain_difference({"ename": ["TypeError"], "evalue": ["x"]}, {"ename": ["ValueError"], "evalue": ["x"]})
    assert "TypeError is stored, ValueError came" in sentence


def test_an_error_that_no_longer_comes_is_named():
    stored = {"ename": ["RuntimeError"], "evalue": ["x"]}
    assert "no longer raises RuntimeError" in explain_difference(stored, {"stdout": ["fine now\n"]})


def test_an_error_that_is_new_is_named():
    sentence = explain_difference({"stdout": ["1"]}, {"ename": ["KeyError"], "evalue": ["'k'"]})
    assert "now raises KeyError: 'k'" in sentence


def test_last_digits_are_told_from_other_numbers():
    close = explain_difference({"text/plain": ["tensor(0.12345)"]}, {"text/plain": ["tensor(0.12346)"]})
    assert "Only the last digits" in close
    assert "0.12345 → 0.12346" in close
    far = explain_difference({"text/plain": ["(4, 1), 3"]}, {"text/plain": ["(4, 2), 7"]})
    assert far == "Only numbers differ: 1 → 2, and 1 more."


def test_an_integer_that_differs_by_little_is_not_a_last_digit():
    assert "last digits" not in explain_difference({"stdout": ["100000"]}, {"stdout": ["100001"]})


def test_a_changed_drawing_tells_which_of_its_texts_changed():
    sentence = explain_difference({"text/html": [picture("0", "4", "8")]}, {"text/html": [picture("0", "5", "8")]})
    assert sentence == "Only the drawing differs; texts in it changed: '4' → '5'."


def test_a_drawing_with_more_texts_tells_which_are_new():
    sentence = explain_difference({"text/html": [picture("0", "4")]}, {"text/html": [picture("0", "4", "8")]})
    assert sentence == "Only the drawing differs; texts in it changed: '8' is new."


def test_a_drawing_with_the_same_texts_points_at_its_shapes():
    sentence = explain_difference({"text/html": [picture("0")]}, {"text/html": [picture("0", colour="#e69f00")]})
    assert "its texts are the same" in sentence


def test_texts_of_a_percent_encoded_drawing_are_read():
    assert svg_texts(picture("a &lt; b", "4 % 2")) == ["a < b", "4 % 2"]


def test_missing_and_extra_outputs_are_named():
    assert explain_difference({"stdout": ["a"]}, {}) == "Output is missing that is stored (stdout)."
    assert explain_difference({}, {"text/plain": ["a"]}) == "Output came that is not stored (text/plain)."


def test_any_other_difference_shows_its_first_line():
    sentence = explain_difference({"stdout": ["one\ntwo\n"]}, {"stdout": ["one\nthree\n"]})
    assert sentence == "The stdout differs, first in line 2: 'two' is stored, 'three' came."
