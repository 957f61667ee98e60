"""Comparing a list of letters, for exercises that ask "which of these?"."""

from __future__ import annotations

import re
from typing import Any

from helpers.model.finding import in_short

from ..quiz import Outcome, from_numpy, right, wrong


def compare_letters(answer: Any, truth: set[str], why: dict[str, str], praise: str) -> Outcome:
    """Compare a list of letters, read kindly: ["a", "b"], ("A",), "a, b", "a and b" and "ab" will do."""
    answer = from_numpy(answer)
    parts = list(answer) if isinstance(answer, (list, tuple, set, frozenset)) else [answer]
    if not all(isinstance(part, str) for part in parts):
        return wrong('A list of letters is wanted, for example ["a", "b"].')
    words = re.findall(r"\w+", " ".join(parts).lower().replace(" and ", " "))
    if not words and parts:  # an empty list says "none of them"
        return wrong(f"Your answer names no letter; the letters are {', '.join(why)}.")
    if unknown := next((word for word in words if set(word) - set(why)), None):
        return wrong(f"There is no {in_short(unknown)}; the letters are {', '.join(why)}.")
    letters = {letter for word in words for letter in word}
    if different := sorted(letters - truth) + sorted(truth - letters):
        return wrong(f"Not yet. {why[different[0]]}")
    return right(praise)
