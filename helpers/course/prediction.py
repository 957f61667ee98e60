"""`predict`: the reader commits to an answer before the cell runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any

from helpers.course.answers import book
from helpers.course.checking import untouched_randomness
from helpers.course.questions import Prediction, find_question
from helpers.course.same import same
from helpers.explore.panel import Buttons, Panel, View
from helpers.model.finding import HelperError, in_short


def predict(question_id: str, *, options: Sequence[Any]) -> Panel:
    """Show the options as buttons; the first click is the answer, and it is locked in.

    A wrong answer names the misconception behind it. Answers given earlier are shown again.
    For authors: an unknown id, fewer than two options, options that lack the right answer, and a
    wrong option without its `because` raise HelperError.
    """
    return Panel(PredictionApp(question_id, find_question("PREDICTIONS", question_id), options))


class PredictionApp:
    """The state of one prediction: its options and the answer, if there is one."""

    title = "Prediction"

    def __init__(self, question_id: str, prediction: Prediction, options: Sequence[Any]):
        self.question_id = question_id
        self.options = tuple(options) if isinstance(options, (list, tuple, range)) else ()
        self.labels = tuple(option if isinstance(option, str) else in_short(option) for option in self.options)
        if len(self.options) < 2 or len(set(self.labels)) < len(self.labels):
            raise HelperError(f"predict({question_id!r}) needs a list of two or more different options")
        try:
            with untouched_randomness():
                truth = prediction.truth()
        except Exception as error:
            raise HelperError(f"the truth of {question_id!r} raised {type(error).__name__}: {error}") from error
        self.right = next((i for i, option in enumerate(self.options) if _same_option(truth, option)), None)
        if self.right is None:
            raise HelperError(
                f"options of {question_id!r} ({', '.join(self.labels)}) lack the right one: {in_short(truth)}"
            )
        self.because = {}
        for i, option in enumerate(self.options):
            reasons = [text for key, text in prediction.because.items() if _same_option(key, option)]
            if i != self.right and not reasons:
                raise HelperError(f"{question_id!r} has no `because` for the wrong option {self.labels[i]}")
            self.because[i] = reasons[0] if reasons else ""
        self.trouble = ""
        self.earlier = book().get("predictions", question_id)
        self.chosen: int | None = None
        if self.earlier and self.earlier.get("answer") in self.labels:
            self.chosen = self.labels.index(self.earlier["answer"])

    def change(self, name: str, value: str) -> None:
        if name == "again":
            self.chosen = None
        elif name == "answer" and value in self.labels and self.chosen is None:
            self.chosen = self.labels.index(value)
            times = (self.earlier or {}).get("times", 0) + 1
            first = (self.earlier or {}).get("first", value)
            self.earlier = {"answer": value, "right": self.chosen == self.right, "first": first, "times": times}
            self.trouble = book().record("predictions", self.question_id, self.earlier)

    def view(self) -> View:
        if self.chosen is None:
            sentence = "Choose before you run the next cell: your answer is locked in at the click."
            return View((Buttons("answer", "Predict", self.labels),), sentence)
        correct = self.chosen == self.right
        marks = tuple("" if i != self.chosen else "right" if correct else "wrong" for i in range(len(self.labels)))
        answers = Buttons("answer", "Predict", self.labels, marks, locked=True)
        controls = (answers, Buttons("again", "", ("predict again",)))
        chosen = self.chosen_text()
        sentence = (
            f"{chosen} is right. Run the next cell to see it."
            if correct
            else f"{chosen} is not right. {self.because[self.chosen]} Run the next cell to see what happens."
        )
        return View(controls, sentence, note=self.trouble, mood="right" if correct else "wrong")

    def chosen_text(self) -> str:
        """Return the chosen option as it stands in a sentence: words, which may be a sentence, in quotes."""
        label = self.labels[self.chosen]
        return f"“{label}”" if isinstance(self.options[self.chosen], str) and re.search(r"[^\W\d]", label) else label

    def still(self) -> tuple[str, str]:
        text = f"Predict: {' · '.join(self.labels)}"
        return f"<div>{escape(text)}</div>", text


def _same_option(expected: Any, option: Any) -> bool:
    """Options are compared by meaning, except that a yes/no option is no number."""
    return isinstance(expected, bool) == isinstance(option, bool) and same(expected, option)
