"""The course's own Python environment, `.venv`: make it, know that it is whole, mend it.

A stamp inside it says what it was made from. While the stamp agrees, set-up has nothing to do and
needs no network. Everything else is decided from what is on the disk, not from what an earlier run
meant to do: a run can be stopped at any moment, also by the power switch.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools import files
from tools.installer import Pip, clean_environment
from tools.mending import correct_scripts, mend
from tools.say import Stop, how_to, say

PROJECT = "pytorch-internals-course"
EXTRAS = "test"
TABLES = ("build-system", "project")  # the tables of pyproject.toml that an installation depends on
CPU_INDEX = "https://download.pytorch.org/whl/cpu"  # PyTorch's own index of builds without CUDA
PROOF = "torch, ipykernel, ipywidgets, helpers"  # what must import before set-up says that it stands
NEEDED_GB = 2.5  # .venv with torch's CPU build is 1.6 GB; unpacking needs some room beside it


@dataclass(frozen=True)
class Wish:
    """What the reader asked for beyond the default.

    `torch`: "" (what is locked), "cpu" (the same release, without CUDA), a release ("2.11.0"), or both
    ("2.11.0+cpu"). `locked`: exact versions from requirements.lock, or the newest in range.
    """

    torch: str = ""
    locked: bool = True

    @property
    def release(self) -> str:
        return self.torch.removesuffix("cpu").rstrip("+")

    @property
    def cpu(self) -> bool:
        return self.torch.endswith("cpu") and sys.platform == "linux"  # elsewhere no other build exists


class Environment:
    """The environment of one copy of the course. `root` is the folder that holds pyproject.toml."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.venv = root / ".venv"
        self.notes = root / ".course"  # logs and locks, git-ignored
        self.stamp = self.venv / "course-stamp.json"

    @property
    def python(self) -> Path:
        """The interpreter that runs the course: of `.venv`, or of an environment that has the course already."""
        if self.is_here():
            return Path(sys.executable)
        return self.venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    def is_here(self) -> bool:
        """Tell whether this very Python already holds this course (conda, Binder, an environment of your own)."""
        if Path(sys.prefix).resolve() == self.venv.resolve():
            return False
        origins = [found.read_text("direct_url.json") for found in importlib.metadata.distributions(name=PROJECT)]
        return any(origin and json.loads(origin).get("url") == self.root.as_uri() for origin in origins)

    def ensure(self, wish: Wish) -> None:
        """Make `.venv` fit and whole; return at once where it already is. Raises Stop."""
        if self.is_here() or self._fits(wish):
            return
        try:
            self.notes.mkdir(exist_ok=True)
            with files.one_at_a_time(self.notes / "setup.lock", lambda: say("Waiting for another set-up …")):
                if not self._fits(wish):
                    self._set_up(wish)
        except OSError as error:
            raise Stop(
                f"Set-up cannot write in {self.root} ({files.reason(error)}): "
                f"mend that, or copy the course to a folder of your own, and run `{how_to('setup')}` again."
            ) from error

    def _fits(self, wish: Wish) -> bool:
        made = self._read_stamp()
        return bool(
            made
            and made.get("key") == self._key(made["wish"] if wish == Wish() else _plain(wish))
            and made.get("root") == str(self.root)
            and self._python_stays(made.get("python", ""))
            and self.python.exists()
            and set(made.get("names", [""])) <= _names(self._site())
        )

    def _read_stamp(self) -> dict[str, Any]:
        try:
            made = json.loads(self.stamp.read_bytes())
        except (OSError, ValueError):
            return {}
        return made if isinstance(made, dict) and isinstance(made.get("wish"), list) else {}

    def _key(self, wish: list[Any]) -> str:
        """Return the fingerprint of everything that decides what is installed."""
        project = tomllib.loads((self.root / "pyproject.toml").read_text(encoding="utf-8"))
        decisive = [project.get(table) for table in TABLES] + [project.get("tool", {}).get("setuptools"), EXTRAS, wish]
        lock = (self.root / "requirements.lock").read_bytes() if wish[1] else b""
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode() + lock).hexdigest()

    def _python_stays(self, version: str) -> bool:
        """An environment keeps the Python it was made with, unless the reader names another one."""
        return version == _version() or not os.environ.get("COURSE_PYTHON_NAMED")

    def _site(self) -> Path:
        if os.name == "nt":
            return self.venv / "Lib" / "site-packages"
        found = sorted((self.venv / "lib").glob("python3.*/site-packages"))
        return found[-1] if found else self.venv / "lib"

    def _set_up(self, wish: Wish) -> None:
        made = self._read_stamp()
        if wish == Wish() and made:
            wish = Wish(*made["wish"])
        new = not self._usable(made, wish)
        say(f"Making .venv with Python {_version()}: some minutes, once." if new else "Bringing .venv up to date.")
        self.stamp.unlink(missing_ok=True)
        log = self.notes / "setup.log"
        log.write_text(f"Python {sys.version} on {sys.platform}\n", encoding="utf-8")
        if new:
            self._create()
        pip = Pip(self.python, self.notes, log, need=NEEDED_GB)
        moved = made.get("root", str(self.root)) != str(self.root)
        if moved and not new:
            self._correct_paths(made["root"])
        if not made:  # the last run did not come to its end
            mend(self._site())
        constraints = self._constraints(wish)
        # The build backend comes first and from the lock; the project is then built with it, not in
        # a separate environment, for which pip would look up and fetch one again.
        backend = tomllib.loads((self.root / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
        if backend:
            pip.install(*constraints, *backend)
        index = ["--extra-index-url", CPU_INDEX] if wish.cpu else []
        release = self._torch_release(wish)
        torch = [f"torch=={release}{'+cpu' if wish.cpu else ''}"] if release else []
        pip.install(
            "--no-build-isolation", *constraints, *index, *torch, "-e", f"{self.root}[{EXTRAS}]", site=self._site()
        )
        self._prove(log)
        stamp = {
            "key": self._key(_plain(wish)),
            "names": sorted(_names(self._site())),
            "python": _version(self.python),
            "root": str(self.root),
            "wish": _plain(wish),
        }
        files.replace_file(self.stamp, json.dumps(stamp).encode())
        say(f"The set-up stands, after {time.monotonic() - pip.started:.0f} seconds.")

    def _usable(self, made: dict[str, Any], wish: Wish) -> bool:
        """Tell whether the packages in `.venv` are worth keeping: its Python runs, and it is the right one."""
        if made and (made["wish"][0].endswith("cpu") != wish.torch.endswith("cpu")):
            return False
        lost = set(made.get("names", [])) - _names(self._site())
        if any(not name.endswith(".dist-info") for name in lost):
            return False
        try:
            version = _version(self.python)
            subprocess.run([self.python, "-c", "import pip._internal.cli.main"], check=True, capture_output=True)
        except (OSError, subprocess.SubprocessError):
            return False
        return (3, 11) <= tuple(int(part) for part in version.split(".")[:2]) <= (3, 13) and self._python_stays(version)

    def _create(self) -> None:
        free = shutil.disk_usage(self.root).free / 1e9
        if free < NEEDED_GB:
            raise Stop(
                f"The set-up needs about {NEEDED_GB} GB of free disk and {self.root} has {free:.1f} GB: "
                f"free some, then run `{how_to('setup')}` again."
            )
        if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
            raise Stop(
                f"This Python ({sys.executable}) cannot make environments: install its missing part "
                f"(Debian and Ubuntu: sudo apt install python{sys.version_info[0]}.{sys.version_info[1]}-venv), "
                f"then run `{how_to('setup')}` again."
            )
        if self.venv.is_symlink() or self.venv.is_file():
            raise Stop(f"{self.venv} is not a folder: remove it, then run `{how_to('setup')}` again.")
        base = getattr(sys, "_base_executable", "") or sys.executable  # this Python may be .venv's own
        steps = (
            [base, "-m", "venv", "--clear", "--without-pip", str(self.venv)],
            [str(self.python), "-m", "ensurepip", "--default-pip"],  # apart: venv would hide why it failed
        )
        for command in steps:
            done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, errors="replace")
            if done.returncode:
                said = f"{done.stdout}\n{done.stderr}"
                with (self.notes / "setup.log").open("a", encoding="utf-8") as log:
                    log.write(said)
                raise Stop(Pip(self.python, self.notes, self.notes / "setup.log", need=NEEDED_GB).sentence(said))

    def _constraints(self, wish: Wish) -> list[str]:
        """Return pip's options for the exact versions. Another torch needs other companions than the locked ones."""
        if not wish.locked:
            return []
        lock = self.root / "requirements.lock"
        if not wish.release:
            return ["-c", str(lock)]
        companions = ("torch==", "triton==", "nvidia-", "cuda-", "setuptools==", "sympy==")
        kept = [line for line in lock.read_text(encoding="utf-8").splitlines() if not line.startswith(companions)]
        chosen = self.notes / "constraints.txt"
        chosen.write_text("\n".join(kept) + "\n", encoding="utf-8")
        return ["-c", str(chosen)]

    def _torch_release(self, wish: Wish) -> str:
        """Return the torch to name to pip: "" where the ranges and the lock say enough."""
        if wish.release or not (wish.torch and wish.locked):
            return wish.release
        lines = (self.root / "requirements.lock").read_text(encoding="utf-8").splitlines()
        return next(line.removeprefix("torch==").split(" ")[0] for line in lines if line.startswith("torch=="))

    def _correct_paths(self, old: str) -> None:
        """The folder was moved: what `.venv` knows of its own place must follow. Needs no network."""
        base = getattr(sys, "_base_executable", "") or sys.executable
        subprocess.run([base, "-m", "venv", "--without-pip", str(self.venv)], env=clean_environment(), check=True)
        correct_scripts(self.venv / "bin", old, str(self.root))
        for path in self._site().glob("pytorch_internals_course-*.dist-info"):
            shutil.rmtree(path)  # pip then installs the course anew, from its new place

    def _prove(self, log: Path) -> None:
        """Import what everything else needs: a package can be installed and still not load."""
        done = subprocess.run(
            [self.python, "-c", f"import {PROOF}"],
            env=clean_environment(),
            capture_output=True,
            text=True,
            errors="replace",
        )
        if done.returncode:
            with log.open("a", encoding="utf-8") as file:
                file.write(done.stderr)
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            hint = "install Microsoft's Visual C++ Redistributable" if "DLL" in last else "see the log"
            raise Stop(f"Everything is installed but Python cannot load it (“{last}”): {hint} ({log}).")


def _names(site: Path) -> set[str]:
    """Return what stands in site-packages, for a quick check that nothing was removed."""
    try:
        return {name for name in os.listdir(site) if name != "__pycache__"}
    except OSError:
        return set()


def _plain(wish: Wish) -> list[Any]:
    return [wish.torch, wish.locked]


def _version(python: Path | None = None) -> str:
    if python is None:
        return ".".join(str(part) for part in sys.version_info[:3])
    code = "import sys; print('.'.join(map(str, sys.version_info[:3])))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
