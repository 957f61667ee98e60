"""The table of all explainers, in the order in which they are asked about a failed call."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module

from helpers.model.errors.failure import EXPLAINERS, Answer, Explainer, Failure

# The modules that fill the table, in the order in which their explainers are asked.
_TABLES = (
    "backward",
    "dispatch",
    "dtypes",
    "freed",
    "functions",
    "kernels",
    "layers",
    "python",
    "registration",
    "rules",
    "schemas",
    "sizes",
    "storage",
    "indexing",
    "values",
    "views",
    "parser",
)


@cache
def _explainers() -> list[tuple[re.Pattern, Explainer]]:
    """Return the table. It is filled for the first error: to compile all its patterns takes a while."""
    for name in _TABLES:
        import_module(f"helpers.model.errors.{name}")
    return EXPLAINERS


def ask(failure: Failure) -> Answer | None:
    """Return the answer of the first explainer in the table that knows the message and has one."""
    try:
        message = str(failure.error)
    except Exception:  # a broken __str__ of the reader's
        return None
    for pattern, explainer in _explainers():
        if (match := pattern.search(message)) and (answer := _answer(explainer, match, failure)):
            return answer
    return None


def _answer(explainer: Explainer, match: re.Match, failure: Failure) -> Answer | None:
    """Return an explainer's answer; None where it could not look, as when the call was seen without its arguments."""
    try:
        return explainer(match, failure)
    except Exception:  # whatever it is, the reader's error is told, in torch's own words
        return None
