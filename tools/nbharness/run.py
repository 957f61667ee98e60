"""Runs notebooks in a pytest of their own, through the project's conftest, and returns what every cell did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# This package is imported before pytest loads nbval: see its __init__.
_PYTEST = "import sys, tools.nbharness, pytest; sys.exit(pytest.main())"
_WITHOUT = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:xdist"]


@dataclass(frozen=True)
class CellRun:
    """What one code cell did. `outcome` is one of the words in `cells.CourseCell`, `sentence` explains it."""

    id: str
    outcome: str
    sentence: str
    outputs: list[dict]


def run_notebooks(
    notebooks: Iterable[Path], *, device: str = "cpu", options: Iterable[str] = (), environment: dict | None = None
) -> dict[Path, list[CellRun]]:
    """Run notebooks, each in a kernel of its own, and return every code cell's run in order.

    `RuntimeError` with pytest's own words when pytest could not do its work, such as a device that is not there.
    """
    notebooks = [Path(path).resolve() for path in notebooks]
    with tempfile.TemporaryDirectory(prefix="course-run-") as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-c", _PYTEST, *_WITHOUT, "-q", "--nbval", "--color=no"]
        command += [f"--device={device}", f"--notebook-report={report}", f"--rootdir={ROOT}", *options]
        variables = os.environ | (environment or {})
        variables["PYTHONPATH"] = os.pathsep.join([*filter(None, [variables.get("PYTHONPATH")]), str(ROOT)])
        variables.pop("PYTEST_ADDOPTS", None)
        done = subprocess.run(
            # The conftest is named so that it holds for notebooks outside the project too.
            [*command, str(ROOT / "conftest.py"), *map(str, notebooks)],
            cwd=ROOT,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 1) or not report.exists():
            raise RuntimeError((done.stdout + done.stderr).strip()[-2000:])
        cells = json.loads(report.read_text(encoding="utf-8"))
    return {path: [CellRun(**cell) for cell in cells.get(str(path), [])] for path in notebooks}
