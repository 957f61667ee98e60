"""`show_progress`: which predictions and exercises are done."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from helpers.course.answers import book
from helpers.course.questions import chapters, questions
from helpers.model.finding import HelperError, in_short
from helpers.model.words import listed


@dataclass(frozen=True)
class ChapterProgress:
    """One chapter: its number, how many predictions were answered of how many, and its exercises.

    `exercises` holds (number, title, state) with the state "passed", "tried" or "open".
    """

    chapter: int
    answered: int
    predictions: int
    exercises: tuple[tuple[str, str, str], ...]

    @property
    def passed(self) -> int:
        return sum(state == "passed" for _, _, state in self.exercises)

    def summary(self) -> str:
        """Return one line: how many exercises and predictions are done."""
        return (
            f"Chapter {self.chapter:02d}: {self.passed} of {len(self.exercises)} exercises passed, "
            f"{self.answered} of {self.predictions} predictions made"
        )


@dataclass(frozen=True)
class Progress:
    """The progress through one chapter or all of them."""

    chapters: tuple[ChapterProgress, ...]

    def __str__(self) -> str:
        lines = []
        for chapter in self.chapters:
            lines.append(chapter.summary())
            lines += [f"  {MARKS[state]} {number} {title}" for number, title, state in chapter.exercises]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = []
        for chapter in self.chapters:
            items = "".join(
                f"<li>{MARKS[state]} {escape(number)} {escape(title)}{' (tried)' if state == 'tried' else ''}</li>"
                for number, title, state in chapter.exercises
            )
            parts.append(f'<p>{escape(chapter.summary())}</p><ul style="list-style:none;padding-left:1em">{items}</ul>')
        return "".join(parts)


MARKS = {"passed": "✓", "tried": "✗", "open": "○"}


def show_progress(chapter: int | None = None) -> Progress:
    """Return what is done in one chapter (`show_progress(1)`), or in all of them."""
    names = chapters()
    if chapter is not None:
        names = [name for name in names if name == f"chapter_{chapter:02d}"] if isinstance(chapter, int) else []
        if not names:
            numbers = listed(int(name[-2:]) for name in chapters())
            raise HelperError(f"there is no chapter {in_short(chapter)}; there are chapters {numbers}")
    return Progress(tuple(_of_chapter(name) for name in names))


def _of_chapter(name: str) -> ChapterProgress:
    predictions = questions(name, "PREDICTIONS")
    states = []
    for exercise_id, exercise in questions(name, "EXERCISES").items():
        kept = book().get("exercises", exercise_id)
        state = "open" if kept is None else "passed" if kept.get("passed") else "tried"
        states.append((exercise.number, exercise.title, state))
    answered = sum(book().get("predictions", prediction_id) is not None for prediction_id in predictions)
    return ChapterProgress(int(name.removeprefix("chapter_")), answered, len(predictions), tuple(states))
