"""How much longer `make setup` takes than the bare pip install it wraps (target: at most 1.2 times).

Both start from nothing in folders of their own and use the same pip cache, which one earlier
install fills: what is compared is the work, not the network. Takes minutes and some gigabytes of
disk while it runs.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.bench import report

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 2
PARTS = ("helpers", "tools", "notebooks", "Makefile", "README.md", "LICENSE", "LICENSE-text", "pyproject.toml")
LOCK = "requirements.lock"


def main() -> None:
    """Time both in turn, and the second `make setup`, which finds everything done."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        base = str(Path(getattr(sys, "_base_executable", sys.executable)))
        bare_pip(place / "warm", base)
        bare, full, again = [], [], []
        for number in range(ROUNDS):
            bare.append(bare_pip(place / f"bare-{number}", base))
            course = copy(place / f"course-{number}")
            full.append(timed(["make", "setup", f"PYTHON={base}"], course))
            again.append(timed(["make", "setup"], course))
            shutil.rmtree(course)
    report("make setup, times a bare pip install of the same versions", min(full) / min(bare), at_most=1.2)
    report("make setup again, seconds", statistics.median(again), at_most=1.0)


def bare_pip(course: Path, python: str) -> float:
    """Make an environment and install the course into it as anybody would by hand; return the seconds."""
    copy(course)
    seconds = timed([python, "-m", "venv", ".venv"], course)
    seconds += timed([".venv/bin/python", "-m", "pip", "install", "-q", "-c", LOCK, "-e", ".[test]"], course)
    shutil.rmtree(course)
    return seconds


def copy(target: Path) -> Path:
    """Copy what set-up needs of the course to a new folder."""
    target.mkdir()
    for name in (*PARTS, LOCK):
        source = ROOT / name
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, target / name, ignore=ignore) if source.is_dir() else shutil.copy(source, target)
    return target


def timed(command: list[str], folder: Path) -> float:
    """Run a command to its end and return the seconds it took."""
    unwanted = ("VIRTUAL_ENV", "CONDA_PREFIX", "MAKELEVEL", "MAKEFLAGS", "MFLAGS", "TORCH", "LOCK", "PYTHON", "ARGS")
    variables = {name: value for name, value in os.environ.items() if name not in unwanted}
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, env=variables, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
