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


def listed(parts: list[str], most: int = 4) -> str:
    """Return names in one phrase, in backquotes: "`a`, `b` and `c`", or "`a`, `b`, `c` and 7 more"."""
    parts = [f"`{part}`" for part in parts]
    if len(parts) > most:
        parts = [*parts[: most - 1], f"{len(parts) - most + 1} more"]
    return " and ".join(parts) if len(parts) < 3 else ", ".join(parts[:-1]) + " and " + parts[-1]


def counted(number: int, what: str) -> str:
    """Return "1 parameter" or "3 parameters"."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def all_of(number: int) -> str:
    """Return "the only parameter" or "all 3 parameters"."""
    return "the only parameter" if number == 1 else f"all {number:,} parameters"
