"""What set-up says: one sentence when it stops, and how to call a verb on this computer."""

from __future__ import annotations

import os
import sys


class Stop(Exception):  # noqa: N818  (not an error in the program, but its last sentence)
    """Set-up cannot go on. The text is one sentence: what is wrong, and the remedy."""


def how_to(verb: str, chapter: str = "") -> str:
    """Return the command for a verb, as this reader calls it: with make or without."""
    if "MAKELEVEL" in os.environ:
        return f"make {verb} CHAPTER={chapter}" if chapter else f"make {verb}"
    python = "py -3.12 tools\\course.py" if os.name == "nt" else "python tools/course.py"
    return f"{python} {verb} {chapter}".rstrip()


def say(text: str) -> None:
    """Print one line at once, on any console: a sign that it cannot show becomes `?`."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding), flush=True)


class Progress:
    """One line that changes in place on a terminal; a line now and then elsewhere."""

    def __init__(self, every: float = 15.0) -> None:
        self._terminal = sys.stdout.isatty()
        self._every = every
        self._last_time = -every
        self._last_phase = ""
        self._width = 0

    def show(self, phase: str, detail: str, seconds: float) -> None:
        """Show where the work stands: a phase such as "installing", a detail, and the seconds so far."""
        text = f"  {phase} {detail} · {int(seconds) // 60}:{int(seconds) % 60:02d}"
        if self._terminal:
            text = text[: _columns() - 1]
            sys.stdout.write("\r" + text.ljust(self._width))
            sys.stdout.flush()
            self._width = len(text)
        elif phase != self._last_phase or seconds - self._last_time >= self._every:
            say(text)
            self._last_time, self._last_phase = seconds, phase

    def clear(self) -> None:
        """Leave an empty line behind, so that the next text starts in the first column."""
        if self._terminal and self._width:
            sys.stdout.write("\r" + " " * self._width + "\r")
            sys.stdout.flush()
            self._width = 0


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except OSError:
        return 80
