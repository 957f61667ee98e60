"""What every function of the adapter is made with: `take`, and `proves` with its list of self-tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from helpers.model.finding import HelperError

# Name of each function below -> a callable that returns True when it still does what its docstring says.
SELF_TESTS: dict[str, Callable[[], bool]] = {}


def proves(function: Callable) -> Callable[[Callable[[], bool]], Callable[[], bool]]:
    """Register the decorated test as the proof that `function` works on this release."""

    def register(test: Callable[[], bool]) -> Callable[[], bool]:
        SELF_TESTS[function.__name__] = test
        return test

    return register


def broken() -> dict[str, str]:
    """Run every self-test; return the functions that do not work on this release, with the reason.

    Empty when all is well. Every exception is caught: whatever a changed name raises is the answer to the question.
    """
    reasons: dict[str, str] = {}
    for name, test in SELF_TESTS.items():
        try:
            if not test():
                reasons[name] = f"{name} gives a wrong answer on this torch release ({release()})"
        except Exception as error:
            reasons[name] = str(error)
    return reasons


def release() -> str:
    """Return the release of PyTorch as `major.minor`, for example `2.13`."""
    return ".".join(torch.__version__.split(".")[:2])


def take(owner: Any, *names: str) -> Any:
    """Return `owner.name.name…`, or raise HelperError that names what this release lacks.

    `owner` is the module `torch` or a live object such as a tensor.
    """
    found = owner
    for position, name in enumerate(names):
        try:
            found = getattr(found, name)  # asked once: what a node tells may be made anew each time
        except AttributeError:
            start = owner.__name__ if hasattr(owner, "__name__") else type(owner).__name__
            path = ".".join((start, *names[: position + 1]))
            message = f"this torch release ({release()}) lacks {path}, a private name that this helper needs"
            raise HelperError(message) from None
    return found
