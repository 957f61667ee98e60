"""What a diagnosis says: a `Finding`, and the one kind of error that helpers raise.

A finding is a plain value. Its text is one sentence that names the cause with the numbers
behind it. The same numbers stand in its fields, so that code can use them too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape
from typing import Any


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
    the remedy.
    """

    text: str
    remedy: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.text}\n→ {self.remedy}" if self.remedy else self.text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        remedy = f'<br><span style="color:#767676">→</span> {_with_code(self.remedy)}' if self.remedy else ""
        return (
            '<div role="note" style="border-left:4px solid #0072b2;padding:2px 0 2px 12px;max-width:56em">'
            f"{_with_code(self.text)}{remedy}</div>"
        )


def _with_code(text: str) -> str:
    """Return the text as HTML, with what stands in backquotes as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
