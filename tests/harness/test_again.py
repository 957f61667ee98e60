"""Every chapter says the same when all its cells are run a second time in one kernel, as readers do."""

from __future__ import annotations

import copy
from pathlib import Path

import nbformat
import pytest

from tools.nbharness.build import write_notebook
from tools.nbharness.run import run_notebooks

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))
AGAIN = "-second-time"
ONCE = {"pointer-deprecated"}  # shows what torch says once in a process, and tells so


def twice(notebook: Path, folder: Path) -> Path:
    """Return a notebook with the cells of the given one, two times."""
    cells = nbformat.read(notebook, as_version=4).cells
    repeated = copy.deepcopy(cells)
    for cell in repeated:
        cell.id += AGAIN
    return write_notebook(folder / notebook.name, *cells, *repeated)


@pytest.mark.parametrize("chapter", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs_again(chapter, tmp_path):
    doubled = twice(chapter, tmp_path)
    runs = run_notebooks([doubled])[doubled]
    assert sum(run.id.endswith(AGAIN) for run in runs) * 2 == len(runs)
    other = [run for run in runs if run.outcome not in ("same", "not-compared")]
    assert [(run.id, run.outcome, run.sentence) for run in other if run.id.removesuffix(AGAIN) not in ONCE] == []
    assert [run.id for run in other if run.outcome == "failed"] == []
