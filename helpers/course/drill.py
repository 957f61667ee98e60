"""`drill`: stride questions without end, each with the way to its answer."""

from __future__ import annotations

from html import escape
from typing import Any

import torch

from helpers.course.checking import Verdict
from helpers.course.drill_questions import LEVELS, Dice, fresh_question
from helpers.course.same import from_numpy, same
from helpers.draw.drawing import Drawing
from helpers.draw.storage import draw_layout
from helpers.explore.operations import whole_numbers
from helpers.explore.panel import NO_VALUE, Buttons, Panel, Text, View
from helpers.model.finding import HelperError, in_short, kind_of

YES, NO = {"yes", "y", "true", "t", "1"}, {"no", "n", "false", "f", "0"}
CHECK, NEXT = "check", "next question"


def drill(level: int = 1, *, seed: int | None = None) -> Drill:
    """Ask fresh questions about shapes, strides and storages; levels 1 to 4 grow harder.

    With a seed the questions come in the same order on every machine. In code: `q = drill(seed=3)`,
    then `print(q.code)`, `q.question`, `q.answer((4, 1))` and `q.next()`.
    """
    if type(level) is not int or level not in LEVELS:
        raise HelperError(f"a level is one of {', '.join(map(str, LEVELS))}, and {in_short(level)} came")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise HelperError(f"a seed is a whole number, and {in_short(seed)} came")
    return Drill(level, seed)


class Drill(Panel):
    """A run of questions with a score. It is its own app: the state and what is shown of it."""

    title = "Stride drill"

    def __init__(self, level: int, seed: int | None):
        super().__init__(self)
        self.level, self.seed = level, seed
        self.right = self.answered = self.streak = 0
        self._dice = Dice(seed)
        self.next()

    def next(self) -> Drill:
        """Go on to a new question. One that was not answered does not count."""
        self.current = fresh_question(self.level, self._dice)
        self.typed = ""
        self.verdict: Verdict | None = None
        return self

    @property
    def code(self) -> str:
        """The program that the question is about."""
        return self.current.code

    @property
    def question(self) -> str:
        """What is asked about `y`."""
        return self.current.text

    @property
    def score(self) -> str:
        """Say how it goes, as in "7 right of 9, 4 in a row"."""
        return f"{self.right} right of {self.answered}, {self.streak} in a row" if self.answered else ""

    def answer(self, value: Any) -> Verdict:
        """Return the verdict about an answer: text such as "4, 1" or "yes", a tuple, a number or a bool.

        What can't be an answer gets a sentence and does not count; neither does a second answer.
        """
        question = self.current
        try:
            given = _read(value, question.truth)
        except HelperError as error:
            return Verdict("drill", "", "open", str(error))
        correct = same(question.truth, given)
        if self.verdict is None:
            self.answered += 1
            self.right += correct
            self.streak = self.streak + 1 if correct else 0
        head = (
            f"{_word(given)} is right."
            if correct
            else f"You answered {_word(given)}; right is {_word(question.truth)}."
        )
        self.verdict = Verdict("drill", "", "right" if correct else "wrong", f"{head} {question.reason}\n{self.way()}")
        return self.verdict

    def way(self) -> str:
        """Return the way to the answer as lines of text, one an operation."""
        rows = self.current.way
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        return "\n".join("  ".join(text.ljust(w) for text, w in zip(row, widths, strict=True)).rstrip() for row in rows)

    def change(self, name: str, value: str) -> None:
        if not isinstance(value, str):
            raise HelperError(NO_VALUE)
        if name == "answer":
            self.typed = value
        elif name == "go" and value == NEXT:
            self.next()
        elif name == "go" and self.verdict is None:
            verdict = self.answer(self.typed)
            if verdict.status == "open":
                raise HelperError(verdict.text)

    def view(self) -> View:
        done = self.verdict is not None
        form = {bool: "yes or no", int: "one number", tuple: "such as 4, 1"}[type(self.current.truth)]
        field = Text("answer", f"{self.question} ({form})", self.typed, ("go", NEXT if done else CHECK))
        controls = (field, Buttons("go", "", (CHECK, NEXT)))
        if not done:
            return View(controls, "", code=self.code, code_first=True, note=self.score)
        return View(
            controls,
            self.verdict.text.split("\n")[0],
            self._picture(),
            code=self.code,
            code_first=True,
            table=self.current.way,
            note=self.score,
            mood=self.verdict.status,
        )

    def _picture(self) -> Drawing | None:
        try:
            return draw_layout(self.current.y)
        except HelperError:  # more dimensions than a picture can show: the table tells it all
            return None

    def still(self) -> tuple[str, str]:
        example = fresh_question(self.level, Dice(0 if self.seed is None else self.seed))
        head = f"Stride drill, level {self.level}: fresh questions as long as you like. For example:"
        html = f"<div>{escape(head)}<pre>{escape(example.code)}</pre>{escape(example.text)}</div>"
        return html, f"{head}\n{example.code}\n{example.text}"

    def __repr__(self) -> str:
        return self.still()[1]


def _read(value: Any, truth: Any) -> Any:
    """Return what an answer means for a question whose right answer is like `truth`; HelperError if nothing."""
    value = from_numpy(value)
    if not isinstance(value, str):
        if isinstance(value, (bool, int, float, tuple, list, torch.Tensor)):
            return value
        raise HelperError(f"an answer is a number, a tuple, a bool or a text; {kind_of(value)} came")
    text = value.strip()
    if not text:
        raise HelperError("type your answer first")
    if isinstance(truth, bool):
        if text.lower() not in YES | NO:
            raise HelperError(f"the answer is yes or no; {in_short(text)} came")
        return text.lower() in YES
    if isinstance(truth, tuple):
        return whole_numbers(text, "the answer")
    try:
        (number,) = whole_numbers(text, "the answer")
    except ValueError:  # no number (HelperError is a ValueError), or several
        raise HelperError(f"the answer is one whole number; {in_short(text)} came") from None
    return number


def _word(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else in_short(value)
