"""The answers a reader gave, kept on their own machine and sent nowhere.

In a workbook (a folder that holds `.course.json`) they live in `answers.json`; elsewhere, as in a
test run, only in memory. Losing an answer is worse than a slow write: a file is replaced whole or
not at all, a damaged one is kept, and two notebooks open at once merge what they know.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

KINDS = ("predictions", "exercises")


class AnswerBook:
    """Answers by kind ("predictions", "exercises") and id; each is a small dictionary.

    `folder` is where the file lives, or None to keep answers in memory only.
    """

    def __init__(self, folder: Path | None):
        self.file = None if folder is None else Path(folder) / "answers.json"
        self._answers: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
        self._unsaved: set[tuple[str, str]] = set()
        self._notice = ""  # about a damaged file, told with the next answer

    @classmethod
    def here(cls) -> AnswerBook:
        """Return the book of the current folder: a file if it is a workbook, else memory only."""
        try:
            folder = Path.cwd()
            return cls(folder if (folder / ".course.json").is_file() else None)
        except OSError:  # the current folder was deleted or can't be read
            return cls(None)

    def get(self, kind: str, question_id: str) -> dict[str, Any] | None:
        """Return the answer kept for this question, the newest that any notebook wrote, or None."""
        with suppress(OSError):
            self._merge()
        return self._answers[kind].get(question_id)

    def record(self, kind: str, question_id: str, answer: dict[str, Any]) -> str:
        """Keep an answer. Return an empty string, or one sentence about what could not be written.

        Never raises for trouble with the file: the answer then stays in memory, and the next call
        tries to write it again.
        """
        self._answers[kind][question_id] = answer
        self._unsaved.add((kind, question_id))
        if self.file is None:
            return ""
        try:
            with self._locked():
                self._merge()
                self._write()
        except OSError as error:
            reason = error.strerror or str(error)
            return f"Your answer lives only until this kernel stops: {self.file.name} could not be written: {reason}."
        self._unsaved.clear()
        notice, self._notice = self._notice, ""
        return notice

    def _merge(self) -> None:
        """Take over what the file holds, except where this notebook has something newer."""
        if self.file is None:
            return
        try:
            held = json.loads(self.file.read_text(encoding="utf-8"))
            if not all(isinstance(entry, dict) for kind in KINDS for entry in held.get(kind, {}).values()):
                raise ValueError("not a book of answers")
        except FileNotFoundError:
            return
        except (ValueError, AttributeError, RecursionError):
            self._put_aside()
            return
        for kind in KINDS:
            for question_id, answer in held.get(kind, {}).items():
                if (kind, question_id) not in self._unsaved:
                    self._answers[kind][question_id] = answer

    def _put_aside(self) -> None:
        """Rename a file that can't be read, so that nothing in it is lost."""
        kept = self.file.with_name("answers.damaged.json")
        number = 1
        while kept.exists():
            number += 1
            kept = self.file.with_name(f"answers.damaged-{number}.json")
        self.file.rename(kept)
        self._unsaved.update((kind, question_id) for kind in KINDS for question_id in self._answers[kind])
        self._notice = f"{self.file.name} could not be read; it is kept as {kept.name}, and a new one begins."

    def _write(self) -> None:
        """Replace the file as a whole: a crash or a full disk leaves the old one as it was."""
        text = json.dumps({"version": 1, **self._answers}, indent=1, ensure_ascii=False, sort_keys=True)
        handle, name = tempfile.mkstemp(prefix=".answers-", dir=self.file.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.file)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold a lock file, so that two notebooks don't write between each other's read and write.

        A lock older than five seconds was left by a kernel that died: it is removed.
        """
        lock = self.file.with_name(".answers.lock")
        deadline = time.monotonic() + 8
        while True:
            try:
                os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                break
            except FileExistsError:
                with suppress(OSError):
                    if time.time() - lock.stat().st_mtime > 5:
                        lock.unlink()
                        continue
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{lock.name} is held by another notebook") from None
                time.sleep(0.01)
        try:
            yield
        finally:
            with suppress(OSError):
                lock.unlink()


_book: AnswerBook | None = None


def book() -> AnswerBook:
    """Return this kernel's book: that of the folder in which the first question was asked."""
    global _book
    if _book is None:
        _book = AnswerBook.here()
    return _book
