"""`Reason`: one cause for a gradient, before it becomes a finding."""

from __future__ import annotations

from typing import NamedTuple


class Reason(NamedTuple):
    """`cause` is a few words, `text` a sentence without its full stop, `line` the reader's line where known."""

    cause: str
    text: str
    remedy: str = ""
    line: int | None = None


def attribute(name: str, of: str) -> str:
    """Return `name.of` for a name that may stand in backquotes: "`w`" and "grad" give "`w.grad`"."""
    return f"`{name[1:-1]}.{of}`" if name.startswith("`") else f"the {of} of {name}"


def all_of(number: int) -> str:
    """Return "the only parameter" or "all 3 parameters"."""
    return "the only parameter" if number == 1 else f"all {number:,} parameters"
