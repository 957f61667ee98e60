"""What a chapter asks: predictions and exercises, kept in one module a chapter.

`helpers/course/exercises/chapter_01.py` holds two dictionaries, `PREDICTIONS` and `EXERCISES`,
keyed by id. A chapter's module is imported only when one of its ids is wanted.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from helpers.model.finding import HelperError, in_short


@dataclass(frozen=True)
class Outcome:
    """What a check found: whether the answer is right, and one sentence about it."""

    passed: bool
    text: str


def right(text: str = "") -> Outcome:
    """The answer is right; `text` may add what follows from it."""
    return Outcome(True, text)


def wrong(text: str) -> Outcome:
    """The answer is wrong; `text` names the misconception behind it."""
    return Outcome(False, text)


@dataclass(frozen=True)
class Prediction:
    """A question answered before a cell runs.

    `truth` computes the right option on real torch. `because` gives, for every wrong option, one
    sentence that names the misconception that leads to it.
    """

    truth: Callable[[], Any]
    because: Mapping[Any, str]


@dataclass(frozen=True)
class Exercise:
    """A task with its number ("1.3"), its title, and the check of an answer."""

    number: str
    title: str
    check: Callable[[Any], Outcome]


def chapters() -> list[str]:
    """Return the names of the chapter modules in order, without importing them."""
    from . import exercises

    return sorted(found.name for found in pkgutil.iter_modules(exercises.__path__) if found.name.startswith("chapter_"))


def questions(chapter: str, kind: str) -> dict[str, Any]:
    """Return `PREDICTIONS` or `EXERCISES` (`kind`) of one chapter module."""
    module = importlib.import_module(f"{__package__}.exercises.{chapter}")
    return getattr(module, kind, {})


def find_question(kind: str, question_id: str) -> Any:
    """Return the prediction or exercise with this id. An id that no chapter holds raises HelperError."""
    if not isinstance(question_id, str):
        raise HelperError(f"an id is a string such as 'transpose-copies', not {type(question_id).__name__}")
    known: list[str] = []
    for chapter in chapters():
        held = questions(chapter, kind)
        if question_id in held:
            return held[question_id]
        known += held
    close = get_close_matches(question_id, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "see helpers/course/exercises for the ids there are"
    raise HelperError(f"no {kind.lower().rstrip('s')} has the id {in_short(question_id)}; {hint}")
