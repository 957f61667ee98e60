"""The workbook: the reader's own copy of the notebooks, without the answers to their predictions.

`sync` brings new chapters and new versions; `reset` gives a fresh copy of one chapter. Neither
ever touches what a reader wrote. A file counts as unedited only while it is what was delivered, but
for what JupyterLab writes into a notebook that is only opened (see tools/written.py); `.course.json`
in the workbook remembers a mark of it. Any other state (one letter changed, half a file, a folder or
a link in its place, a file that cannot be read, a lost memory) counts as the reader's and stays.

Even an unedited file is not deleted when a new version takes its place: a program may be about to
save to it. It waits in the hidden folder `.course-aside` under the SHA-256 it had. The next sync
deletes it if it still has that SHA-256, and brings it back beside the notebook if it does not.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tools import files, written
from tools.unanswered import unanswered

MANIFEST = ".course.json"
ASIDE = ".course-aside"
SKIPPED = ("__pycache__",)


@dataclass
class Report:
    """What happened to each file, by its path inside the workbook (`01_storage.ipynb`)."""

    added: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    newer: list[str] = field(default_factory=list)  # edited by the reader, and the course has another version
    failed: list[tuple[str, OSError]] = field(default_factory=list)
    brought_back: list[str] = field(default_factory=list)
    kept_as: dict[str, str] = field(default_factory=dict)  # by reset: old name -> name beside it
    fresh: list[str] = field(default_factory=list)  # by reset: already the course's own version

    def sentences(self, how_to: Callable[[str, str], str], folder: str = "workbook") -> list[str]:
        """Return what a reader should know, one sentence each. `how_to` writes a command for this computer."""
        texts = []
        if self.updated:
            texts.append(f"Updated in {folder}/, where you had changed nothing: {', '.join(self.updated)}.")
        for name in self.newer:
            chapter = name.rsplit("/", 1)[-1].split("_")[0]
            texts.append(
                f"You changed {folder}/{name}, so it stays as it is; the course has a newer version: "
                f"`{how_to('reset', chapter)}` brings it and keeps yours beside it."
            )
        for name, mine in self.kept_as.items():
            texts.append(f"{folder}/{name} is fresh; yours is kept as {folder}/{mine}.")
        texts += [f"{folder}/{name} is already the course's own version: nothing to reset." for name in self.fresh]
        texts += [f"Something was saved to {folder}/{name} while an update came: kept." for name in self.brought_back]
        for name, error in self.failed:
            texts.append(f"{folder}/{name} was not written ({files.reason(error)}); nothing of yours was changed.")
        return texts


class UnknownChapterError(LookupError):
    """No chapter has this number: one sentence that lists those there are."""


def sync(notebooks: Path, workbook: Path) -> Report:
    """Bring `workbook` up to date with `notebooks`, leaving everything the reader edited."""
    report = Report()
    memory = _Memory.of(workbook)
    _tidy(workbook, report)
    for name, data in _pristine(notebooks):
        try:
            _deliver(workbook, name, data, memory, report)
        except OSError as error:
            report.failed.append((name, error))
    memory.save(workbook, report)
    return report


def reset(notebooks: Path, workbook: Path, chapter: str) -> Report:
    """Give a fresh copy of one chapter ("01", "1" or "01_storage"); an edited one is kept beside it.

    Raises UnknownChapterError.
    """
    report = Report()
    memory = _Memory.of(workbook)
    _tidy(workbook, report)
    for name, data in _of_chapter(_pristine(notebooks), chapter):
        try:
            _renew(workbook, name, data, memory, report)
        except OSError as error:
            report.failed.append((name, error))
    memory.save(workbook, report)
    return report


def chapters(notebooks: Path) -> list[str]:
    """Return the names of the chapters without their ending, such as "01_storage"."""
    return sorted(path.stem for path in notebooks.glob("*.ipynb"))


def _pristine(notebooks: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every file the course delivers: its path inside the workbook, and its bytes."""
    for path in sorted(notebooks.rglob("*")):
        parts = path.relative_to(notebooks).parts
        if path.is_file() and not any(part.startswith(".") or part in SKIPPED for part in parts):
            name = "/".join(parts)
            yield name, unanswered(name, path.read_bytes())


def _of_chapter(delivered: Iterator[tuple[str, bytes]], chapter: str) -> list[tuple[str, bytes]]:
    wanted = chapter.strip().removesuffix(".ipynb")
    wanted = wanted.zfill(2) if wanted.isdecimal() else wanted
    everything = list(delivered)
    found = [(name, data) for name, data in everything if _chapter_of(name, wanted)]
    if not wanted or not found:
        names = sorted(name.removesuffix(".ipynb") for name, _ in everything if "/" not in name)
        numbers = ", ".join(f"{name.split('_')[0]} ({name})" for name in names)
        asked = f"There is no chapter {chapter.strip()}" if chapter.strip() else "Say which chapter to reset"
        raise UnknownChapterError(f"{asked}: there are {numbers}.")
    return found


def _chapter_of(name: str, wanted: str) -> bool:
    stem = name.rsplit("/", 1)[-1].split(".")[0]
    return wanted in (stem, stem.split("_")[0])


def _deliver(workbook: Path, name: str, data: bytes, memory: _Memory, report: Report) -> None:
    """Write one file where that takes nothing from the reader."""
    target, found = workbook / name, _look(workbook, name)
    new, delivered = written.mark(name, data), memory.delivered.get(name)
    if found == data:
        memory.delivered[name] = new
    elif found is None:
        _make_parent(workbook, target)
        _place_or_drop(files.write_temporary(target.parent, data), target)
        memory.delivered[name] = new
        report.added.append(name)
    elif _unedited(name, found, memory):
        if delivered != new:
            _exchange(workbook, target, files.fingerprint(found), data)
            report.updated.append(name)
        memory.delivered[name] = new
    elif delivered != new:
        report.newer.append(name)


def _renew(workbook: Path, name: str, data: bytes, memory: _Memory, report: Report) -> None:
    """Put the course's version in place of whatever stands there, which moves to a free name beside it."""
    target, found = workbook / name, _look(workbook, name)
    unedited = found == data or _unedited(name, found, memory)
    if unedited and written.mark(name, found) == written.mark(name, data):
        report.fresh.append(name)
    if found is None or unedited:
        _deliver(workbook, name, data, memory, report)
        return
    temporary = files.write_temporary(target.parent, data)  # first of all: a full disk changes nothing
    try:
        mine = files.move_to_free_name(target, _names_beside(target))
        report.kept_as[name] = mine.relative_to(workbook).as_posix()
        files.place(temporary, target)
    finally:
        _drop(temporary)
    memory.delivered[name] = written.mark(name, data)


def _unedited(name: str, found: bytes | _Theirs | None, memory: _Memory) -> bool:
    """Tell whether this is what was delivered."""
    return isinstance(found, bytes) and written.mark(name, found) == memory.delivered.get(name)


class _Theirs:
    """Something of the reader's stands there that is no readable file of its own: a folder, a link, …"""


def _look(workbook: Path, name: str) -> bytes | _Theirs | None:
    """Return the bytes of a file in the workbook, None where there is nothing, or that it is the reader's."""
    folder = workbook
    for part in name.split("/")[:-1]:
        folder = folder / part
        if not os.path.lexists(folder):
            return None
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            return _Theirs()
    path = workbook / name
    try:
        if not os.path.lexists(path):
            return None
        return path.read_bytes() if stat.S_ISREG(os.lstat(path).st_mode) else _Theirs()
    except OSError:  # it is there and cannot be read, so nobody can say that it is unedited
        return _Theirs()


def _names_beside(target: Path) -> Iterator[Path]:
    for number in itertools.count(1):
        mark = ".mine" if number == 1 else f".mine-{number}"
        yield target.with_name(f"{target.stem}{mark}{target.suffix}")


def _exchange(workbook: Path, target: Path, expected: str, data: bytes) -> None:
    """Replace a delivered file by its new version, unless somebody saves to it at this moment."""
    temporary = files.write_temporary(target.parent, data)
    try:
        aside = workbook / ASIDE
        aside.mkdir(exist_ok=True)
        moved = files.move_to_free_name(target, _names_aside(aside, expected, target.relative_to(workbook)))
        if files.fingerprint(moved.read_bytes()) != expected:
            files.move_to_free_name(moved, itertools.chain([target], _names_beside(target)))
            raise OSError(errno.EBUSY, "it was saved at this very moment")
        files.place(temporary, target)
    finally:
        _drop(temporary)


def _names_aside(aside: Path, expected: str, name: Path) -> Iterator[Path]:
    return (aside / f"{expected}.{number}.{'!'.join(name.parts)}" for number in itertools.count(1))


def _place_or_drop(temporary: Path, target: Path) -> None:
    try:
        files.place(temporary, target)
    finally:
        _drop(temporary)


def _drop(temporary: Path) -> None:
    with contextlib.suppress(OSError):  # usually gone: it got its name
        temporary.unlink()


def _make_parent(workbook: Path, target: Path) -> None:
    workbook.mkdir(parents=True, exist_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)


def _tidy(workbook: Path, report: Report) -> None:
    """Remove what an interrupted run left: half-written new files, and old versions nobody saved to."""
    for folder in {workbook, workbook / "refs"}:
        for path in folder.glob(f"{files.TEMPORARY}*"):
            _drop(path)
    aside = workbook / ASIDE
    for path in sorted(aside.iterdir()) if aside.is_dir() else []:
        expected, _, name = path.name.split(".", 2)
        target = workbook.joinpath(*name.split("!"))
        try:
            if files.fingerprint(path.read_bytes()) == expected:
                path.unlink()
            else:
                kept = files.move_to_free_name(path, _names_beside(target))
                report.brought_back.append(kept.relative_to(workbook).as_posix())
        except OSError as error:
            report.failed.append((path.relative_to(workbook).as_posix(), error))
    with contextlib.suppress(OSError):  # not there, or not empty
        aside.rmdir()


@dataclass
class _Memory:
    """What was delivered: file -> its mark. Kept in the workbook's `.course.json`."""

    delivered: dict[str, str]
    on_disk: dict[str, str] | None  # None: no manifest, or a damaged one

    @classmethod
    def of(cls, workbook: Path) -> _Memory:
        """Read the manifest; a missing or damaged one remembers nothing, so every differing file counts as edited."""
        try:
            loaded = json.loads((workbook / MANIFEST).read_bytes())
        except (OSError, ValueError):
            return cls({}, None)
        if not isinstance(loaded, dict) or not all(isinstance(value, str) for value in loaded.values()):
            return cls({}, None)
        return cls(dict(loaded), loaded)

    def save(self, workbook: Path, report: Report) -> None:
        """Write the manifest, only if it changed: a workbook on a read-only disk can still be opened."""
        if self.delivered == self.on_disk or not workbook.is_dir():
            return
        data = json.dumps(self.delivered, indent=1, sort_keys=True).encode() + b"\n"
        try:
            files.replace_file(workbook / MANIFEST, data)
        except OSError as error:
            report.failed.append((MANIFEST, error))
