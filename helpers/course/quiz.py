"""Predictions before a cell runs, and exercises checked after.

`predict` and `check` are what a notebook calls. Authors of chapters import `Prediction`,
`Exercise`, `right`, `wrong`, `same` and the readers of numbers and truth values from here.
"""

from __future__ import annotations

from helpers.course.checking import Verdict, check
from helpers.course.prediction import predict
from helpers.course.progress import show_progress
from helpers.course.questions import Exercise, Outcome, Prediction, right, wrong
from helpers.course.same import cannot_be_read, from_numpy, list_fault, number_of, numbers_of, same, truth_of

__all__ = [
    "Exercise",
    "Outcome",
    "Prediction",
    "Verdict",
    "cannot_be_read",
    "check",
    "from_numpy",
    "list_fault",
    "number_of",
    "numbers_of",
    "predict",
    "right",
    "same",
    "show_progress",
    "truth_of",
    "wrong",
]
