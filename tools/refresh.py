"""Write the outputs of the course's notebooks: the only writer of them (`make refresh`).

    python tools/refresh.py [NOTEBOOK …] [--device auto|cpu|cuda]

Notebooks are run by the same code as in the tests. A file is written only where something really changed, so that a
second call changes no byte. On a GPU, the recordings in notebooks/refs are renewed first; the notebooks themselves
always show what a machine without a GPU shows.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.nbharness.conditions import DEVICES  # noqa: E402
from tools.nbharness.normalise import merge_outputs, normalised, notebook_bytes, tidy_outputs, write_if_changed  # noqa: E402
from tools.nbharness.run import CellRun, run_notebooks  # noqa: E402

DEVICE_TAGS = {"per-device", "requires-cuda"}


class RefreshError(Exception):
    """Why nothing was written, in one sentence."""


def refresh(paths: list[Path], device: str = "cpu") -> list[Path]:
    """Run notebooks and write what changed; return the files written. Nothing is written when a cell can't run."""
    paths = [Path(path).resolve() for path in paths]
    written: list[Path] = []
    if device == "cuda" or (device == "auto" and _has_gpu()):
        written += _record(paths)
    contents = {}
    for path, runs in _run(paths, "cpu").items():
        contents[path] = notebook_bytes(refreshed(_read(path), runs))
    return written + [path for path, content in contents.items() if write_if_changed(path, content)]


def refreshed(notebook: Any, runs: list[CellRun]) -> Any:
    """Return the notebook with the outputs of a run in it, in the stored form."""
    # Both sides are brought into the stored form before they are compared.
    notebook = normalised(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, run in zip(cells, runs, strict=True):
        if run.outcome == "not-compared" and cell.outputs:
            continue
        new = tidy_outputs(run.outputs, cell.execution_count)
        cell.outputs = merge_outputs(cell.outputs, new, same=run.outcome == "same")
    return normalised(notebook)


def _record(paths: list[Path]) -> list[Path]:
    """Renew the recordings of the notebooks that have cells for a GPU; return the files written."""
    from helpers.course.recordings import read_recordings, recordings_bytes, recordings_path

    notebooks = {path: _read(path) for path in paths}
    concerned = [path for path, notebook in notebooks.items() if any(map(_needs_recording, notebook.cells))]
    contents = {}
    for path, runs in _run(concerned, "cuda").items():
        target = recordings_path(path)
        before = read_recordings(target)
        by_id = {run.id: run for run in runs}
        cells = [cell for cell in notebooks[path].cells if _needs_recording(cell)]
        contents[target] = recordings_bytes(_recording(cell, by_id[cell.id], before.get(cell.id)) for cell in cells)
    return [target for target, content in contents.items() if write_if_changed(target, content)]


def _recording(cell: Any, run: CellRun, before):
    """Return the recording of one cell; the one from before where it still holds."""
    import torch

    from helpers.course.recordings import Recording, source_hash

    if before is not None and run.outcome == "same":
        return before
    if "requires-cuda" in cell.metadata.tags and any(output["output_type"] == "error" for output in run.outputs):
        raise RefreshError(
            f"Cell {cell.id} raises on the GPU, and a replay can't: catch and print the error in the cell."
        )
    return Recording(
        cell_id=cell.id,
        source=source_hash(cell.source),
        gpu=torch.cuda.get_device_name(),
        torch=torch.__version__.split("+")[0],
        cuda=str(torch.version.cuda),
        outputs=tidy_outputs(run.outputs, 1),
    )


def _needs_recording(cell: Any) -> bool:
    return cell.cell_type == "code" and bool(DEVICE_TAGS & set(cell.metadata.get("tags", [])))


def _run(paths: list[Path], device: str) -> dict[Path, list[CellRun]]:
    """Run notebooks; a cell that can't run is a RefreshError that names it."""
    if not paths:
        return {}
    results = run_notebooks(paths, device=device)
    for path, runs in results.items():
        for run in runs:
            if run.outcome == "failed":
                raise RefreshError(f"Cell {run.id} of {path.name} could not run: {_reason(run)} Nothing was written.")
    return results


def _reason(run: CellRun) -> str:
    error = next((output for output in run.outputs if output["output_type"] == "error"), None)
    return f"{error['ename']}: {error['evalue'].splitlines()[0] if error['evalue'] else ''}." if error else run.sentence


def _read(path: Path) -> Any:
    import nbformat  # here, after tools.nbharness, which makes its import fast

    return nbformat.read(path, as_version=4)


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the outputs of the course's notebooks.")
    parser.add_argument("notebooks", nargs="*", type=Path, help="all of notebooks/ when none is named")
    parser.add_argument(
        "--device",
        choices=DEVICES,
        default=os.environ.get("DEVICE") or "cpu",
        help="cuda renews notebooks/refs first (default: the environment variable DEVICE, else cpu)",
    )
    options = parser.parse_args(arguments)
    paths = options.notebooks or sorted((ROOT / "notebooks").glob("*.ipynb"))
    missing = [path for path in paths if not path.is_file()]
    try:
        if missing:
            raise RefreshError(f"There is no notebook {missing[0]}.")
        written = refresh(paths, options.device)
    except (RefreshError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    for path in written:
        print(f"written: {path.name}")
    if not written:
        print(f"unchanged: {len(paths)} notebook{'' if len(paths) == 1 else 's'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
