"""Alters stored outputs, to prove that each of them is compared."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import nbformat

from .normalise import IMAGES
from .run import run_notebooks

Part = tuple[int, str]
"""One thing that is compared: the output's index in its cell, and a key of the output or a MIME type."""


def parts(cell: dict) -> list[Part]:
    """Return what there is to compare in a cell. Images and tracebacks never are; hygiene wants texts beside them."""
    found: list[Part] = []
    for index, output in enumerate(cell.get("outputs", [])):
        keys = [key for key in ("text", "ename", "evalue") if key in output]
        keys += [mime for mime in output.get("data", {}) if mime not in IMAGES]
        found += [(index, key) for key in keys]
    return found


def alter(cell: dict, part: Part) -> None:
    """Change one part of a cell's outputs in the middle."""
    index, key = part
    holder = cell["outputs"][index]
    holder = holder if key in holder else holder["data"]
    holder[key] = _altered(holder[key])


def _altered(value: Any) -> Any:
    if isinstance(value, str):
        return value[: len(value) // 2] + "~" + value[len(value) // 2 :]
    if isinstance(value, dict) and value:
        key = sorted(value)[-1]
        return value | {key: _altered(value[key])}
    if isinstance(value, list) and value:
        return [*value[:-1], _altered(value[-1])]
    return not value if isinstance(value, bool) else f"~{value}"


def unguarded(path: Path, folder: Path) -> list[str]:
    """Alter every output of a notebook in copies made in `folder`, run them, and return a sentence for each surprise.

    A copy alters one part in every cell, the next copy the next part; so each cell must fail in just those copies in
    which it was altered, and in no other.
    """
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if (path.parent / "refs").is_dir():
        shutil.copytree(path.parent / "refs", folder / "refs")
    altered: dict[Path, dict[str, Part]] = {}
    for round_ in range(max((len(parts(cell)) for cell in code), default=0)):
        variant = copy.deepcopy(notebook)
        target = folder / f"{path.stem}.{round_}.ipynb"
        altered[target.resolve()] = {}
        for cell in variant.cells:
            if cell.cell_type == "code" and round_ < len(parts(cell)):
                altered[target.resolve()][cell.id] = parts(cell)[round_]
                alter(cell, parts(cell)[round_])
        nbformat.write(variant, target)
    surprises = []
    for target, runs in (run_notebooks(altered) if altered else {}).items():
        for run in runs:
            part = altered[target].get(run.id)
            # a `ref-torch` cell on another torch is compared where the reference one is installed
            if run.outcome == "not-compared" or run.outcome == ("differs" if part else "same"):
                continue
            what = f"{part[1]} of output {part[0] + 1} was altered" if part else "nothing was altered"
            surprises.append(f"cell {run.id}: {what}, and the run said {run.outcome}. {run.sentence}".strip())
    return surprises
