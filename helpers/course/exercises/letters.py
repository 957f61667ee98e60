"""Comparing a list of letters, for exercises that ask "which of these?"."""

from __future__ import annotations

import re
from typing import Any

from helpers.model.finding import in_short

from ..quiz import Outcome, right, wrong


def compare_letters(answer: Any, truth: set[str], why: dict[str, str], praise: str) -> Outcome:
    """Compare a list of letters, read kindly: ["a", "b"], ("A",), "a, b", "a and b" and "ab" will do."""
    parts = list(answer) if isinstance(answer, (list, tuple, set, frozenset)) else [answer]
    if not all(isinstance(part, str) for part in parts):
        return wrong('A list of letters is wanted, for example ["a", "b"].')
    words = re.findall(r"\w+", " ".join(parts).lower().replace(" and ", " "))
    letters = {letter for word in words for letter in word}
    if unknown := sorted(letters - set(why)):
        return wrong(f"There is no {in_short(unknown[0])}; the letters are {', '.join(why)}.")
    if different := sorted(letters ^ truth):
        return wrong(f"Not yet. {why[different[0]]}")
    return right(praise)
