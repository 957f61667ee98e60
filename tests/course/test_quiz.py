"""`predict`, `check` and `show_progress`: polite to readers, strict to authors."""

from __future__ import annotations

import itertools
import json
import random
import types

import numpy as np
import pytest
import torch

from helpers.course import answers, progress, questions
from helpers.course.answers import AnswerBook
from helpers.course.checking import JSON_TYPE
from helpers.course.quiz import Exercise, Prediction, check, predict, right, same, show_progress, wrong
from helpers.model.finding import HelperError


def _is_double(f):
    for n in (1, 2, 5):
        if f(n) != 2 * n:
            return wrong(f"f({n}) must be {2 * n}.")
    return right("Twice as much.")


CHAPTER = types.SimpleNamespace(
    PREDICTIONS={
        "copies": Prediction(lambda: torch.arange(12)[::3].numel(), {0: "Zero it is not.", 12: "Not all."}),
        "words": Prediction(lambda: "x changes", {"x does not change": "It is a view."}),
        "pair": Prediction(lambda: "(1, 4)", {"(4, 1)": "That is the stride of x."}),
        "yes": Prediction(lambda: True, {False: "It is so."}),
        "noisy": Prediction(lambda: int(torch.rand(1) > 2) + int(random.random() > 2), {1: "No."}),
        "broken": Prediction(lambda: 1 / 0, {}),
    },
    EXERCISES={
        "four": Exercise("9.1", "Four", lambda answer: right() if same(4, answer) else wrong("Not four.")),
        "double": Exercise("9.2", "Double", _is_double),
        "first": Exercise("9.6", "First", lambda answer: right() if answer(1)[0] == 1 else wrong("No.")),
        "careless": Exercise("9.3", "Careless", lambda answer: right() if answer[0] == 1 else wrong("No.")),
        "bad": Exercise("9.4", "Bad", lambda answer: None),
        "random": Exercise("9.5", "Random", lambda answer: right(str(torch.rand(1)) + str(random.random()))),
    },
)


@pytest.fixture(autouse=True)
def chapter(monkeypatch, tmp_path):
    """One made-up chapter, and a book of answers of its own."""
    for module in (questions, progress):
        monkeypatch.setattr(module, "chapters", lambda: ["chapter_09"])
        monkeypatch.setattr(module, "questions", lambda name, kind: getattr(CHAPTER, kind))
    monkeypatch.setattr(answers, "_book", AnswerBook(tmp_path))


def click(panel, name: str, value: str) -> dict:
    return panel.receive({"changes": [[name, value]], "token": "1-1"})


def test_the_right_answer_is_confirmed_and_locked_in():
    panel = predict("copies", options=[0, 4, 12])
    assert panel.state()["controls"][0]["options"] == ("0", "4", "12")
    state = click(panel, "answer", "4")
    assert state["sentence"] == "4 is right. Run the next cell to see it."
    assert state["controls"][0]["marks"] == ("", "right", "")
    assert state["controls"][0]["locked"]
    assert click(panel, "answer", "0")["sentence"] == state["sentence"], "a second click changes nothing"


def test_a_wrong_answer_names_the_misconception_and_keeps_the_right_one_for_the_next_cell():
    state = click(predict("copies", options=(0, 4, 12)), "answer", "0")
    assert state["sentence"] == "0 is not right. Zero it is not. Run the next cell to see what happens."
    assert state["mood"] == "wrong"
    assert "4" not in state["sentence"]


def test_an_option_of_words_stands_in_quotes_in_the_sentence():
    wrong_one = click(predict("words", options=["x changes", "x does not change"]), "answer", "x does not change")
    assert (
        wrong_one["sentence"]
        == "“x does not change” is not right. It is a view. Run the next cell to see what happens."
    )
    answers.book().record("predictions", "words", {})
    right_one = click(predict("words", options=["x changes", "x does not change"]), "answer", "x changes")
    assert right_one["sentence"] == "“x changes” is right. Run the next cell to see it."
    pair = click(predict("pair", options=["(4, 1)", "(1, 4)"]), "answer", "(4, 1)")
    assert pair["sentence"].startswith("(4, 1) is not right. ")
    assert click(predict("yes", options=[True, False]), "answer", "False")["sentence"].startswith(
        "False is not right. "
    )


def test_an_earlier_answer_is_shown_when_the_cell_runs_again_and_may_be_replaced():
    click(predict("copies", options=[0, 4, 12]), "answer", "0")
    again = predict("copies", options=[0, 4, 12])
    assert again.state()["controls"][0]["marks"] == ("wrong", "", "")
    assert not click(again, "again", "predict again")["controls"][0]["locked"]
    click(again, "answer", "4")
    kept = answers.book().get("predictions", "copies")
    assert kept == {"answer": "4", "right": True, "first": "0", "times": 2}


def test_an_earlier_answer_that_is_no_option_any_more_is_ignored():
    answers.book().record("predictions", "copies", {"answer": "7"})
    assert not predict("copies", options=[0, 4, 12]).state()["controls"][0]["locked"]


def test_the_still_form_is_one_line_and_knows_nothing_of_answers():
    panel = predict("copies", options=[0, 4, 12])
    before = panel.app.still()
    click(panel, "answer", "4")
    assert panel.app.still() == before == ("<div>Predict: 0 · 4 · 12</div>", "Predict: 0 · 4 · 12")


@pytest.mark.parametrize(
    ("question", "options", "sentence"),
    [
        ("copes", [0, 4], "no prediction has the id 'copes'; did you mean 'copies'?"),
        (7, [0, 4], "an id is a string such as 'transpose-copies', not int"),
        ("copies", [], "needs a list of two or more different options"),
        ("copies", [4], "needs a list of two or more different options"),
        ("copies", [4, 4], "needs a list of two or more different options"),
        ("copies", None, "needs a list of two or more different options"),
        ("copies", "04", "needs a list of two or more different options"),
        ("copies", [0, 12], "options of 'copies' (0, 12) lack the right one: 4"),
        ("copies", [0, 4, 5], "'copies' has no `because` for the wrong option 5"),
        ("yes", [1, 0], "options of 'yes' (1, 0) lack the right one: True"),
        ("broken", [1, 2], "the truth of 'broken' raised ZeroDivisionError: division by zero"),
    ],
)
def test_an_author_s_slip_gets_a_sentence(question, options, sentence):
    with pytest.raises(HelperError) as caught:
        predict(question, options=options)
    assert sentence in str(caught.value)


def test_neither_predictions_nor_checks_touch_the_reader_s_random_numbers():
    torch.manual_seed(1)
    random.seed(1)
    expected = (torch.rand(1), random.random())
    torch.manual_seed(1)
    random.seed(1)
    predict("noisy", options=[0, 1])
    check("random", 0)
    assert (torch.rand(1), random.random()) == expected


def test_a_right_and_a_wrong_answer():
    passed, failed = check("four", 4), check("four", 5)
    assert (repr(passed), passed.passed) == ("✓ 9.1 Four", True)
    assert (repr(failed), failed.passed) == ("✗ 9.1 Not four.", False)


def unfinished(n):
    raise NotImplementedError


@pytest.mark.parametrize("answer", [..., [1, ...], (..., 2), unfinished])
def test_what_is_not_attempted_yet_is_open_and_not_counted(answer):
    verdict = check("double", answer)
    assert repr(verdict) == "○ 9.2 not attempted yet"
    assert answers.book().get("exercises", "double") is None


def test_a_value_where_a_function_is_wanted_is_told_so():
    assert check("double", 8).text == "A function is wanted: give its name, without parentheses."
    assert check("double", None).text == "A function is wanted: give its name, without parentheses."


def test_the_verdict_shows_as_an_announced_element_as_text_and_as_data():
    bundle = check("four", "<b>")._repr_mimebundle_()
    assert bundle["text/html"].startswith('<div role="status"')
    assert bundle["text/plain"] == "✗ 9.1 Not four."
    record = bundle[JSON_TYPE]
    assert json.loads(json.dumps(record)) == {
        "exercise": "four",
        "number": "9.1",
        "status": "wrong",
        "text": "Not four.",
    }


def test_a_function_that_raises_is_told_with_the_input_that_made_it_raise():
    def halve(n):
        if n == 5:
            raise ValueError("odd")
        return 2 * n

    assert repr(check("double", halve)) == "✗ 9.2 halve(5) raised ValueError: odd."


def test_what_a_function_gave_is_not_said_to_be_raised_by_it():
    assert repr(check("first", lambda n: n)) == (
        "✗ 9.6 What <lambda>(1) gave or left behind can't be read: TypeError: 'int' object is not subscriptable."
    )
    assert repr(check("first", lambda n: 1 // 0)).startswith("✗ 9.6 <lambda>(1) raised ZeroDivisionError")
    assert check("first", lambda n: [n]).passed


def test_a_function_that_calls_itself_for_ever_is_told_so():
    def forever(n):
        return forever(n)

    assert "forever(1) never came to an end" in repr(check("double", forever))


def test_an_answer_of_a_kind_the_check_can_t_read_is_told():
    assert repr(check("careless", 3)).startswith("✗ 9.3 Your answer is of type int, and reading it raised TypeError")


def test_an_unknown_exercise_and_a_faulty_check_are_sentences_too():
    assert "did you mean 'four'?" in repr(check("foru", 4))
    assert "that is our fault" in repr(check("bad", 4))
    assert not check(None, 4).passed


class Hostile:
    """Raises whatever one does with it."""

    def __getattribute__(self, name):
        raise RuntimeError("no")

    def __eq__(self, other):
        raise RuntimeError("no")

    __hash__ = None

    def __repr__(self):
        raise RuntimeError("no")

    def __len__(self):
        raise RuntimeError("no")


class MuteError(Exception):
    def __str__(self):
        raise RuntimeError("no")


def raises_mute(n):
    raise MuteError


# Made in the test: pytest looks at its parameters, and some of these bite.
HOSTILE = {
    "hostile": Hostile,
    "hostile in a list": lambda: [Hostile()],
    "nan": lambda: float("nan"),
    "none": lambda: None,
    "tensor": lambda: torch.tensor([1.0, 2.0]),
    "sparse": lambda: torch.eye(2).to_sparse(),
    "objects": lambda: np.array([object()]),
    "endless": itertools.count,
    "no parameters": lambda: lambda: None,
    "mute error": lambda: raises_mute,
    "returns hostile": lambda: lambda n: Hostile(),
    "returns a tensor": lambda: lambda n: torch.ones(2),
    "returns something endless": lambda: lambda n: itertools.count(),
    "a class": lambda: str,
    "check itself": lambda: check,
}


@pytest.mark.parametrize("exercise", ["four", "double", "careless"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_check_never_raises_whatever_the_answer_does(exercise, kind):
    verdict = check(exercise, HOSTILE[kind]())
    right_by_chance = (exercise, kind) == ("careless", "tensor")
    assert verdict.status == ("right" if right_by_chance else "wrong")
    assert verdict._repr_mimebundle_()["text/plain"]


def test_an_operator_that_torch_lacks_is_an_error_and_not_an_unfinished_answer():
    def needs_a_kernel(n):
        return torch.eye(n).to_sparse()[0:1].to_sparse_csr()[0:1]

    assert "needs_a_kernel(1) raised NotImplementedError" in repr(check("double", needs_a_kernel))


def test_an_interrupt_passes_through_a_check():
    def interrupted(n):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check("double", interrupted)


def test_progress_lists_what_is_done():
    assert str(show_progress(9)).splitlines()[:2] == [
        "Chapter 09: 0 of 6 exercises passed, 0 of 6 predictions made",
        "  ○ 9.1 Four",
    ]
    check("four", 4)
    check("four", 5)
    check("double", lambda n: n)
    click(predict("copies", options=[0, 4, 12]), "answer", "4")
    lines = str(show_progress()).splitlines()
    assert lines[0] == "Chapter 09: 1 of 6 exercises passed, 1 of 6 predictions made"
    assert lines[1] == "  ✓ 9.1 Four", "a later wrong try does not take a pass away"
    assert lines[2] == "  ✗ 9.2 Double"
    assert "9.2 Double (tried)" in show_progress()._repr_html_()
    with pytest.raises(HelperError, match="no chapter 4"):
        show_progress(4)


class TestSame:
    @pytest.mark.parametrize(
        ("expected", "answer"),
        [
            ((4, 1), torch.Size([4, 1])),
            ((4, 1), [4, 1]),
            ([4, 1], (4.0, 1)),
            ((4, 1), torch.tensor([4, 1])),
            ((4, 1), np.array([4, 1])),
            ((4, 1), (n for n in (4, 1))),
            (((1, 2), [3]), [[1, 2], (3,)]),
            (torch.arange(4).view(2, 2), [[0, 1], [2, 3]]),
            (True, 1),
            (1, True),
            (True, torch.tensor(True)),
            (5, np.int64(5)),
            (0.1 + 0.2, 0.3),
            (float("nan"), float("nan")),
            ({1, 2}, [2, 1]),
            ({"a": (1,)}, {"a": [1]}),
            ("slot", " slot "),
            (None, None),
            (torch.float32, torch.float32),
            (1 + 2j, torch.tensor(1 + 2j)),
        ],
    )
    def test_the_same_meaning_in_another_type_is_the_same(self, expected, answer):
        assert same(expected, answer)

    @pytest.mark.parametrize(
        ("expected", "answer"),
        [
            ((4, 1), (1, 4)),
            ((4, 1), (4, 1, 1)),
            ((4, 1), 4),
            ((4, 1), "41"),
            ((4, 1), itertools.count(4)),
            ((4, 1), {4: 1}),
            (4, (4,)),
            (4, "4"),
            (4, None),
            (None, 0),
            (10**20, 10**20 + 1),
            (float("nan"), 0.0),
            ("a", ["a"]),
            (torch.float32, torch.float64),
        ],
    )
    def test_another_meaning_is_not(self, expected, answer):
        assert not same(expected, answer)

    def test_an_object_that_raises_on_being_looked_at_is_not_the_answer(self):
        for expected in ((1, 2), 1, "a", None, {1}, {"a": 1}):
            assert not same(expected, Hostile())

    def test_a_list_that_holds_itself_is_no_trap(self):
        loop: list = []
        loop.append(loop)
        assert not same(loop, loop)


def test_a_prediction_in_a_workbook_that_can_t_be_written_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(answers, "_book", AnswerBook(tmp_path / "missing"))
    state = click(predict("copies", options=[0, 4, 12]), "answer", "4")
    assert "lives only until this kernel stops" in state["note"]
    assert "lives only until this kernel stops" in repr(check("four", 4))
