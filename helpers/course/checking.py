"""`check`: look at a reader's answer to an exercise, and never raise."""

from __future__ import annotations

import dis
import functools
import random
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

import torch

from helpers.course.answers import book
from helpers.course.questions import Exercise, Outcome, find_question
from helpers.explore.panel import in_words
from helpers.model.finding import HelperError, in_short

MARKS = {"open": "○", "right": "✓", "wrong": "✗"}
COLOURS = {"open": "#767676", "right": "#009e73", "wrong": "#d55e00"}
JSON_TYPE = "application/vnd.course.verdict+json"


@dataclass(frozen=True)
class Verdict:
    """What a check says about an answer.

    `status` is "open" (not attempted yet), "right" or "wrong"; `number` is the exercise's number,
    empty for a drill question; `text` is one sentence or more.
    """

    exercise: str
    number: str
    status: str
    text: str

    @property
    def passed(self) -> bool:
        return self.status == "right"

    def __str__(self) -> str:
        return " ".join(part for part in (MARKS[self.status], self.number, self.text) if part)

    __repr__ = __str__

    def html(self) -> str:
        """Return the verdict as an element that a screen reader announces."""
        return (
            f'<div role="status" style="border-left:4px solid {COLOURS[self.status]};padding:2px 0 2px 12px;'
            f'max-width:46em;white-space:pre-wrap">{escape(str(self))}</div>'
        )

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, Any]:
        record = {"exercise": self.exercise, "number": self.number, "status": self.status, "text": self.text}
        return {"text/html": self.html(), "text/plain": str(self), JSON_TYPE: record}


def check(exercise_id: str, answer: Any) -> Verdict:
    """Return the verdict about an answer to an exercise. It never raises, whatever the answer does.

    An answer that is or holds `...`, or a function that raises NotImplementedError, is not attempted yet.
    """
    try:
        exercise = find_question("EXERCISES", exercise_id)
    except HelperError as error:
        return Verdict(in_short(exercise_id), "", "wrong", str(error))
    except Exception as error:
        return Verdict(exercise_id, "", "wrong", f"The chapter's exercises could not be loaded: {in_words(error)}.")
    verdict = _judge(exercise_id, exercise, answer)
    if verdict.status == "open":
        return verdict
    kept = book().get("exercises", exercise_id) or {}
    passed = verdict.passed or kept.get("passed", False)
    trouble = book().record("exercises", exercise_id, {"passed": passed, "tries": kept.get("tries", 0) + 1})
    return Verdict(exercise_id, verdict.number, verdict.status, f"{verdict.text} {trouble}".strip())


def _judge(exercise_id: str, exercise: Exercise, answer: Any) -> Verdict:
    def verdict(status: str, text: str) -> Verdict:
        return Verdict(exercise_id, exercise.number, status, text)

    if _has_gaps(answer):
        return verdict("open", "not attempted yet")
    # type() and not isinstance(), which asks the answer itself and so may raise
    watched = _Watched(answer) if type(answer) in (types.FunctionType, functools.partial) else None
    try:
        with untouched_randomness():
            outcome = exercise.check(watched or answer)
        if not isinstance(outcome, Outcome):
            return verdict("wrong", f"This exercise's check returned {type(outcome).__name__}: that is our fault.")
    except RecursionError:
        return verdict("wrong", f"{_cause(watched, answer)}never came to an end: it calls itself too deeply.")
    except (Exception, SystemExit) as error:
        if isinstance(error, NotImplementedError) and _raised_by_statement(error):
            return verdict("open", "not attempted yet")
        if isinstance(error, TypeError) and str(error).endswith("object is not callable") and not callable(answer):
            return verdict("wrong", "A function is wanted: give its name, without parentheses.")
        if watched is not None and watched.call is not None and error is not watched.error:
            return verdict("wrong", f"What {watched.call} gave or left behind can't be read: {in_words(error)}.")
        return verdict("wrong", f"{_cause(watched, answer)}raised {in_words(error)}.")
    if outcome.passed:
        return verdict("right", outcome.text or exercise.title)
    return verdict("wrong", outcome.text)


def _has_gaps(answer: Any) -> bool:
    """Say whether the answer is `...`, or a list or tuple that still holds one."""
    return answer is ... or (type(answer) in (list, tuple) and any(part is ... for part in answer))


class _Watched:
    """A reader's function that remembers the input of its last call, to name it should it raise."""

    def __init__(self, function: Callable):
        self.function = function
        self.call: str | None = None
        self.error: BaseException | None = None  # what its last call raised
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        shown = [in_short(value) for value in args] + [f"{name}={in_short(value)}" for name, value in kwargs.items()]
        self.call = f"{getattr(self.function, '__name__', 'your function')}({', '.join(shown)})"
        try:
            return self.function(*args, **kwargs)
        except BaseException as error:
            self.error = error
            raise


_Watched.__name__ = "function"  # so a check that says what came calls it what the reader wrote


def _cause(watched: _Watched | None, answer: Any) -> str:
    if watched is not None and watched.call is not None:
        return f"{watched.call} "
    kind = "a function" if watched is not None else f"of type {type(answer).__name__}"
    return f"Your answer is {kind}, and reading it "


def _raised_by_statement(error: Exception) -> bool:
    """Say whether a `raise` statement raised the error, as in a stub. A torch operator raises from C++."""
    place = error.__traceback__
    while place.tb_next:
        place = place.tb_next
    return place.tb_frame.f_code.co_code[place.tb_lasti] == dis.opmap["RAISE_VARARGS"]


@contextmanager
def untouched_randomness() -> Iterator[None]:
    """Give the reader's random numbers back as they were, so that a check changes no later cell."""
    python_state = random.getstate()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python_state)
