"""The conditions of a run: the device that notebooks run on, and whether torch is the one of the stored outputs."""

from __future__ import annotations

from functools import cached_property
from importlib.metadata import version
from pathlib import Path

import pytest

DEVICES = ("auto", "cpu", "cuda")


class Conditions:
    """What holds for all notebooks of one run. Looked up only when a notebook asks: `import torch` takes seconds."""

    def __init__(self, wanted: str, lock: Path):
        self.wanted = wanted
        self.lock = lock

    @cached_property
    def device(self) -> str:
        """Return "cpu" or "cuda". `--device cuda` without a GPU is an error: a CUDA run must not pass by skipping."""
        if self.wanted == "cpu":
            return "cpu"
        import torch

        if torch.cuda.is_available():
            return "cuda"
        if self.wanted == "cuda":
            raise pytest.UsageError(
                f"--device cuda: torch {torch.__version__} sees no GPU on this machine. "
                "A CUDA run must not pass by skipping; use --device cpu here."
            )
        return "cpu"

    @cached_property
    def other_torch(self) -> str:
        """Return why `ref-torch` cells are not compared here, or "" where torch is the reference one."""
        installed, reference = version("torch").split("+")[0], reference_torch(self.lock)
        if installed == reference:
            return ""
        return f"torch {installed} is installed, the stored output comes from torch {reference}"

    @cached_property
    def no_compiler(self) -> str:
        """Return why cells with operators in C++ are not compared on this machine, or ""."""
        from helpers.course.building import compiler_lack  # here: `helpers` imports torch

        return compiler_lack()


def reference_torch(lock: Path) -> str:
    """Return the torch version that the lock file pins: the one the stored outputs come from."""
    for line in lock.read_text(encoding="utf-8").splitlines():
        name, _, pinned = line.split(";")[0].split("#")[0].partition("==")
        if name.strip() == "torch" and pinned:
            return pinned.split("+")[0].strip()
    raise ValueError(f"{lock.name} pins no torch.")


CONDITIONS = pytest.StashKey[Conditions]()
