"""Errors for the tests of `explain_error`."""

from __future__ import annotations

from collections.abc import Callable


def caught(fn: Callable[[], object]) -> Exception:
    """Return the error that a function raises."""
    try:
        fn()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")
