"""What several exercises ask of an answer: that it is a function, and that a tensor holds the right numbers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from helpers.explore.panel import in_words
from helpers.model.finding import in_short

from ..quiz import Outcome, cannot_be_read, wrong


def asks_for(call: str) -> Callable:
    """Make a check refuse an answer that is no function; `call` shows how it is called: "power(x, n)"."""

    def around(check: Callable[[Any], Outcome]) -> Callable[[Any], Outcome]:
        @functools.wraps(check)
        def checked(answer: Any) -> Outcome:
            # type() and not isinstance(), which asks the answer itself and so may raise
            if issubclass(type(answer), type) or not callable(answer):
                name = call.partition("(")[0]
                return wrong(
                    f"A function {call} is wanted, and {in_short(answer)} came. Give its name without parentheses: "
                    f"{name}."
                )
            try:
                return check(answer)
            except (NotImplementedError, RecursionError):
                raise
            except Exception as error:
                if inspect.isfunction(inspect.unwrap(answer)):
                    raise  # the caller has noted its arguments, and names them
                return wrong(
                    f"Your answer, {in_short(inspect.unwrap(answer))}, called as {call}, raised {in_words(error)}."
                )

        return checked

    return around


def came(answer: Any) -> str:
    """Return an answer as it stands in a sentence; a function is "a function", also when its calls are watched."""
    return in_short(inspect.unwrap(answer) if callable(answer) else answer)


def close(found: Any, truth: torch.Tensor, atol: float = 1e-5) -> bool:
    """Say whether `found` is a tensor with the shape and the numbers of `truth`, whatever its dtype."""
    if not isinstance(found, torch.Tensor) or found.shape != truth.shape or found.is_complex() or cannot_be_read(found):
        return False
    return torch.allclose(found.detach().double().cpu(), truth.detach().double(), rtol=1e-5, atol=atol)


def equal(found: Any, truth: torch.Tensor) -> bool:
    """Say whether `found` is a tensor with the shape and exactly the numbers of `truth`, whatever its dtype."""
    if not isinstance(found, torch.Tensor) or found.shape != truth.shape or cannot_be_read(found):
        return False
    found, truth = found.detach().cpu(), truth.detach()
    return bool((found == truth).all())


def unchanged(found: torch.Tensor, before: torch.Tensor) -> bool:
    """Say whether a tensor still has exactly the shape, the dtype and the numbers of an earlier copy."""
    return found.dtype == before.dtype and equal(found, before)
