"""Two editions of a small course, and a workbook as it is after the first launch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tools import workbook


def notebook(*sources: str) -> bytes:
    """Return a notebook of such code cells, as the course delivers it."""
    cells = [
        {"cell_type": "code", "id": f"c{i}", "source": [source], "metadata": {}, "execution_count": None, "outputs": []}
        for i, source in enumerate(sources)
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}).encode()


OLD = {"00_start.ipynb": notebook(), "01_storage.ipynb": notebook("1"), "refs/01_storage.cuda.json": b"{}"}
NEW = OLD | {"01_storage.ipynb": notebook("1", "2"), "02_autograd.ipynb": notebook("3")}


class Course:
    """A course folder: `publish` brings out an edition, `workbook` is the reader's."""

    old, new = OLD, NEW

    def __init__(self, root: Path) -> None:
        self.notebooks, self.workbook = root / "notebooks", root / "workbook"
        self.publish(OLD)

    def publish(self, edition: dict[str, bytes]) -> None:
        shutil.rmtree(self.notebooks, ignore_errors=True)
        for name, data in edition.items():
            (self.notebooks / name).parent.mkdir(parents=True, exist_ok=True)
            (self.notebooks / name).write_bytes(data)

    def sync(self) -> workbook.Report:
        return workbook.sync(self.notebooks, self.workbook)

    def reset(self, chapter: str) -> workbook.Report:
        return workbook.reset(self.notebooks, self.workbook, chapter)

    def said(self, report: workbook.Report) -> list[str]:
        return report.sentences(lambda verb, chapter: f"make {verb} CHAPTER={chapter}")

    def file(self, name: str) -> Path:
        return self.workbook / name

    def content(self) -> dict[str, bytes]:
        """Everything in the workbook except the course's own memory."""
        return {
            path.relative_to(self.workbook).as_posix(): path.read_bytes()
            for path in self.workbook.rglob("*")
            if path.is_file() and not path.is_symlink()
            if path.name != workbook.MANIFEST and workbook.ASIDE not in path.parts
        }


@pytest.fixture
def course(tmp_path: Path) -> Course:
    course = Course(tmp_path)
    course.sync()
    return course


@pytest.fixture(scope="session")
def new_course() -> type[Course]:
    return Course
