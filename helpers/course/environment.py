"""Is this machine fit for the course? `report_environment` looks, and says it in plain words.

Every line says what was found, whether that will do, and what a lack costs. Nothing is installed
or changed, and no line needs a GPU: without one the course replays what a GPU showed.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from helpers.explore.panel import Buttons, Panel, View

PYTHONS = ((3, 11), (3, 13))
TORCHES = ((2, 11), (2, 15))


@dataclass(frozen=True)
class Item:
    """One thing that was looked at.

    `state` is "ok", "lack" (you can go on, and `text` says what you will miss) or "stop" (chapters
    0 and 1 need it).
    """

    name: str
    found: str
    state: str
    text: str


@dataclass(frozen=True)
class Environment:
    """What was found on this machine, one `Item` a line. `fit` says whether chapters 0 and 1 can run."""

    items: tuple[Item, ...]

    @property
    def fit(self) -> bool:
        return all(item.state != "stop" for item in self.items)

    @property
    def text(self) -> str:
        """The report as lines of text, for a console or a message to a colleague."""
        return "\n".join(f"{MARKS[item.state]} {item.name}: {item.found}. {item.text}" for item in self.items)


MARKS = {"ok": "✓", "lack": "○", "stop": "✗"}


def python_item(version: tuple[int, ...] = sys.version_info[:3]) -> Item:
    found = ".".join(map(str, version))
    if PYTHONS[0] <= version[:2] <= PYTHONS[1]:
        return Item("Python", found, "ok", "The course is tested with it.")
    if version[:2] < PYTHONS[0]:
        return Item(
            "Python", found, "stop", "Python 3.11, 3.12 or 3.13 is needed. Install one and run make setup again."
        )
    return Item("Python", found, "lack", "It is newer than 3.13, the newest that the course is tested with.")


def torch_item(version: str = torch.__version__) -> Item:
    parts = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
    if TORCHES[0] <= parts <= TORCHES[1]:
        return Item("torch", version, "ok", "The course is tested with it.")
    if parts < TORCHES[0]:
        return Item("torch", version, "stop", "torch 2.11 or newer is needed: some cells use what older releases lack.")
    return Item("torch", version, "lack", "It is newer than 2.15. Some outputs may be worded differently.")


def gpu_item(build: str | None = torch.version.cuda, driver: str | None = None, usable: bool | None = None) -> Item:
    """Judge the CUDA build of torch, the driver and the GPU together: they fail together.

    `build` is the CUDA version that torch was built with, `driver` the version that nvidia-smi
    reports, `usable` whether torch can use a GPU. What is not given is read off this machine.
    """
    driver = _driver() if driver is None else driver
    usable = torch.cuda.is_available() if usable is None else usable
    cost = "Without a GPU the course replays recorded GPU results, and says so."
    if usable:
        found = (
            f"{torch.cuda.get_device_name() if torch.cuda.is_available() else 'a GPU'}, torch built with CUDA {build}"
        )
        return Item("GPU", found, "ok", "Cells that need a GPU run on it.")
    if driver and build is None:
        return Item(
            "GPU",
            f"driver {driver}, but this torch was built without CUDA",
            "lack",
            f"The driver is fine; install a CUDA build of torch. {cost}",
        )
    if driver:
        return Item(
            "GPU",
            f"driver {driver}, torch built with CUDA {build}, and torch sees no GPU",
            "lack",
            f"The driver is probably older than CUDA {build} needs: update the driver, not torch. {cost}",
        )
    if build is not None and _in_wsl():
        return Item(
            "GPU",
            f"torch built with CUDA {build}, and no driver in sight of WSL",
            "lack",
            f"In WSL the driver belongs to Windows: install it there, nothing in WSL. {cost}",
        )
    found = "none, and this torch needs none" if build is None else f"none; torch is built with CUDA {build}"
    return Item("GPU", found, "lack", cost)


def compiler_item(find: Callable[[str], str | None] = shutil.which) -> Item:
    name = next(
        (name for name in (os.environ.get("CXX", ""), "c++", "g++", "clang++", "cl") if name and find(name)), None
    )
    if name:
        return Item("C++ compiler", name, "ok", "Chapter 6 builds its operator in C++ with it.")
    remedy = {
        "Linux": "install the package g++",
        "Darwin": "run xcode-select --install",
        "Windows": "install the Build Tools for Visual Studio",
    }.get(platform.system(), "install g++ or clang++")
    lack = f"Chapters 0 to 3 need none. To build the operator of chapter 6, {remedy}."
    return Item("C++ compiler", "none", "lack", lack)


def memory_item(free_bytes: int | None = None) -> Item:
    """Judge the memory that programs can still get, in bytes; by default this machine's."""
    import psutil  # here: it takes longer to import than all else in this file

    free_bytes = psutil.virtual_memory().available if free_bytes is None else free_bytes
    found = f"{free_bytes / 1e9:.1f} GB free"
    if free_bytes < 1e9:
        return Item(
            "Memory", found, "lack", "A kernel with torch needs about 0.5 GB. Close other programs or notebooks."
        )
    return Item("Memory", found, "ok", "A kernel with torch needs about 0.5 GB.")


def read_environment() -> Environment:
    """Look at this machine once more. Takes well under a second; nvidia-smi is asked where there is one."""
    return Environment((python_item(), torch_item(), gpu_item(), compiler_item(), memory_item()))


def report_environment() -> EnvironmentReport:
    """Show what this machine has, in a live table. `.fit` says whether chapters 0 and 1 can run, `.text` the lines.

    The table is live on purpose: when it appears, the live parts of the notebook work.
    """
    return EnvironmentReport(EnvironmentApp())


class EnvironmentReport(Panel):
    """The report of `report_environment`."""

    @property
    def fit(self) -> bool:
        return self.app.environment.fit

    @property
    def text(self) -> str:
        return self.app.environment.text


class EnvironmentApp:
    """The report as the content of a panel, with a button to look again."""

    title = "Environment report"

    def __init__(self, look: Callable[[], Environment] = read_environment):
        self.look = look
        self.environment = look()

    def change(self, name: str, value: Any) -> None:
        self.environment = self.look()

    def view(self) -> View:
        live = Item("Live parts", "working", "ok", "You see this table, so buttons and sliders work here.")
        items = (*self.environment.items, live)
        rows = [(MARKS[item.state], item.name, item.found, item.text) for item in items]
        table = [("state", "part", "found", "what it means"), *rows]
        lacks = [item.name for item in items if item.state == "lack"]
        if not self.environment.fit:
            sentence = "This machine can't run the course yet. Start with the line marked ✗."
        elif lacks:
            sentence = f"This machine is fit for chapters 0 and 1. What it lacks for later ones: {', '.join(lacks)}."
        else:
            sentence = "This machine is fit for the whole course."
        return View((Buttons("look", "", ("look again",)),), sentence, table=table)

    def still(self) -> tuple[str, str]:
        text = (
            "The report is a live table. If you ran this cell and see this sentence instead, the live parts do not "
            "work here: run make setup again, then reload the page. Drawings and checks work without them."
        )
        return f"<p>{text}</p>", text


def _driver() -> str:
    """Return the NVIDIA driver's version as nvidia-smi tells it, or an empty string."""
    program = shutil.which("nvidia-smi")
    if not program:
        return ""
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):  # an nvidia-smi that cannot run means: no working driver
        return ""
    return answer.stdout.split("\n")[0].strip() if answer.returncode == 0 else ""


def _in_wsl() -> bool:
    return "microsoft" in platform.release().lower()
