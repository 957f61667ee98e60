"""Recorded outputs of cells that need a GPU, or whose output differs on one.

`notebooks/refs/NAME.cuda.json` holds, for each such cell of `NAME.ipynb`, its id, the hash of its source, the machine
it was recorded on, and its outputs. A digest over all of these shows a change made by hand. `make refresh DEVICE=cuda`
is the only writer.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from helpers.model.finding import HelperError

COURSE_NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


@dataclass(frozen=True)
class Recording:
    """What one cell showed on a GPU.

    `source` is the SHA-256 of the cell's source. `outputs` are in the notebook format. `gpu`, `torch` and `cuda` say
    where they come from.
    """

    cell_id: str
    source: str
    gpu: str
    torch: str
    cuda: str
    outputs: list[dict[str, Any]]

    @property
    def label(self) -> str:
        """One line that stands above a replay."""
        return f"Recorded on {self.gpu}, torch {self.torch}, CUDA {self.cuda}"

    @property
    def digest(self) -> str:
        """The SHA-256 over everything in this recording."""
        facts = [self.cell_id, self.source, self.gpu, self.torch, self.cuda, self.outputs]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def replay(self, *, edited: bool = False) -> list[dict[str, Any]]:
        """Return the outputs that a machine without a GPU shows: the label, then what was recorded."""
        label = self.label + (" from the cell as published; yours has changed" if edited else "")
        return [labelled(label), *as_displays(self.outputs)]


def as_displays(outputs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return stored outputs as another cell can show them: streams as they are, all else as a display."""
    shown = []
    for output in outputs:
        if output["output_type"] == "stream":
            shown.append({"output_type": "stream", "name": output["name"], "text": output["text"]})
        else:
            shown.append({"output_type": "display_data", "data": output["data"], "metadata": {}})
    return shown


def stored_outputs(folder: Path, cell_id: str) -> list[dict[str, Any]]:
    """Return the outputs with which a cell is stored in a notebook of this folder; none where there is no such cell."""
    import nbformat  # here: only a machine without a compiler needs it

    for path in sorted(folder.glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.get("id") == cell_id:
                return cell.get("outputs", [])
    return []


def labelled(text: str) -> dict[str, Any]:
    """Return a display output with one grey line of text."""
    html = f'<p style="color:#767676;margin:0"><em>{escape(text)}</em></p>'
    return {"output_type": "display_data", "data": {"text/html": html, "text/plain": text}, "metadata": {}}


def source_hash(source: str) -> str:
    """Return the SHA-256 of a cell's source, without blanks at its ends."""
    return hashlib.sha256(source.strip().encode()).hexdigest()


def recordings_path(notebook: Path) -> Path:
    """Return where the recordings of a notebook lie."""
    return notebook.parent / "refs" / f"{notebook.stem}.cuda.json"


def read_recordings(path: Path) -> dict[str, Recording]:
    """Return the recordings of a file by cell id; none where there is no file.

    A file that was damaged or changed by hand is a HelperError.
    """
    if not path.exists():
        return {}
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["cells"]
        recordings = {
            cell_id: Recording(cell_id, **{key: value for key, value in entry.items() if key != "digest"})
            for cell_id, entry in entries.items()
        }
        digests = {cell_id: entry["digest"] for cell_id, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise HelperError(f"The recordings in refs/{path.name} can't be read ({error}).") from None
    for cell_id, recording in recordings.items():
        if recording.digest != digests[cell_id]:
            raise HelperError(f"The recording of cell {cell_id} in refs/{path.name} was changed by hand.")
    return recordings


def recordings_bytes(recordings: Iterable[Recording]) -> bytes:
    """Return the content of a recordings file: cells in their order, keys sorted, a newline at the end."""
    cells = {
        item.cell_id: {
            "source": item.source,
            "gpu": item.gpu,
            "torch": item.torch,
            "cuda": item.cuda,
            "outputs": item.outputs,
            "digest": item.digest,
        }
        for item in recordings
    }
    return (json.dumps({"device": "cuda", "cells": cells}, indent=1, ensure_ascii=False) + "\n").encode()


def find_recording(cell_id: str) -> Recording | None:
    """Return the recording of a cell of the running notebook; None if there is none.

    Looked for beside the working folder, then in the course; by the notebook's name where Jupyter tells it
    (JPY_SESSION_NAME), else in the recordings of all chapters.
    """
    name = Path(os.environ.get("JPY_SESSION_NAME", "")).stem
    folders = (Path.cwd() / "refs", COURSE_NOTEBOOKS / "refs")
    own = [folder / f"{name}.cuda.json" for folder in folders]
    others = [path for folder in folders for path in sorted(folder.glob("*.cuda.json")) if path not in own]
    for path in own if any(map(Path.exists, own)) else others:
        if recording := read_recordings(path).get(cell_id):
            return recording
    return None
