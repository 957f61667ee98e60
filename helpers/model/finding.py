"""What a diagnosis says: a `Finding`, and the one kind of error that helpers raise.

A finding is a plain value. Its text is one sentence that names the cause with the numbers
behind it. The same numbers stand in its fields, so that code can use them too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from helpers.model.words import sentence_case


class HelperError(ValueError):
    """Wrong input to a helper: one sentence saying what came, what was wanted, and where.

    In a notebook the sentence stands alone: the lines inside the helper would not help you.
    """

    def _render_traceback_(self) -> list[str]:
        """Return what IPython prints in place of a traceback."""
        return [f"{type(self).__name__}: {self}"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One diagnosis.

    `text` is one plain sentence: the cause, with its numbers. `remedy` is what to do about it,
    or empty. `facts` holds the numbers by name. As the last line of a cell it shows the text and
    the remedy. A text that starts with a plain word starts with a capital letter.
    """

    text: str
    remedy: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", sentence_case(self.text))

    def __str__(self) -> str:
        return f"{self.text}\n→ {self.remedy}" if self.remedy else self.text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        remedy = f'<br><span style="color:#767676">→</span> {with_code(self.remedy)}' if self.remedy else ""
        return note(f"{with_code(self.text)}{remedy}")


LONGEST_ECHO = 60


class _ShapesOnly(TorchFunctionMode):
    """While active, the repr of a tensor is its shape: torch's own reads values, which crashes without a storage."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func in (torch.Tensor.__repr__, torch.Tensor.__format__):
            return _tensor_in_short(args[0])
        return func(*args, **(kwargs or {}))


def in_short(value: Any) -> str:
    """Return a reader's value as it stands in a sentence, at most 60 characters long; no value of a tensor is read."""
    try:
        if issubclass(type(value), torch.Tensor):
            return _tensor_in_short(value)
        if issubclass(type(value), torch.UntypedStorage | torch.TypedStorage):
            return kind_of(value)  # its repr is all its bytes
        with _ShapesOnly():
            text = repr(tuple(value) if isinstance(value, torch.Size) else value)
        if type(value) is not str:
            text = re.sub(r"\s*\n\s*", " ", text)
    except Exception:  # a broken repr must not hide the error that is being reported
        return kind_of(value)
    if re.search(r" at 0x[0-9a-fA-F]+", text) and not isinstance(value, str):
        return kind_of(value)  # an address says nothing, and is another in every run
    return text if len(text) <= LONGEST_ECHO else text[: LONGEST_ECHO - 3] + "..."


def _tensor_in_short(t: torch.Tensor) -> str:
    from helpers.model.adapter import plain_access  # here: the adapter itself needs this module

    try:
        with plain_access():
            return f"a tensor of shape {tuple(t.size())}"
    except Exception:  # a nested tensor or a parameter without a shape
        return "a tensor"


# Names whose first sound is a vowel: `int`, `ndarray` (en-dee), but not `uint8` or `UserDict` (you).
_VOWEL = re.compile(r"_*([aeio]|u(?!int|ni|se|ti|tf|fu)|nd[a-z]|mm|rn)", re.IGNORECASE)


def kind_of(value: Any, adjective: str = "") -> str:
    """Return what kind of thing came, as it stands in a sentence: "an int", "a dict", "an empty dict", "None"."""
    if value is None:
        return "None"
    return with_article(f"{adjective} {type(value).__name__}".strip())


def with_article(words: str) -> str:
    """Return "an int" or "a list"."""
    return f"{'an' if _VOWEL.match(words) else 'a'} {words}"


def note(content: str, *, width: int = 56) -> str:
    """Return HTML content beside the blue bar of a note, at most `width` letters wide."""
    style = f"border-left:4px solid #0072b2;padding:2px 0 2px 12px;max-width:{width}em"
    return f'<div role="note" style="{style}">{content}</div>'


def with_code(text: str) -> str:
    """Return the text as HTML, with what stands in backquotes as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
