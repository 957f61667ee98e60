"""`make refresh`: the one writer of outputs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import nbformat
import pytest

from tools.nbharness.build import code, display, result, stdout, text, write_notebook
from tools.nbharness.normalise import merge_outputs, normalised, notebook_bytes, tidy_outputs, write_if_changed
from tools.nbharness.run import ROOT


def _refresh(*paths):
    return subprocess.run(
        [sys.executable, "tools/refresh.py", "--device=cpu", *map(str, paths)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_committed_notebook_is_refreshed_already(notebook, tmp_path):
    copy = shutil.copy(notebook, tmp_path)
    if (notebook.parent / "refs").is_dir():
        shutil.copytree(notebook.parent / "refs", tmp_path / "refs")
    done = _refresh(copy)
    assert done.stdout == "unchanged: 1 notebook\n", done.stdout + done.stderr
    assert (tmp_path / notebook.name).read_bytes() == notebook.read_bytes()


@pytest.fixture(scope="module")
def messy(tmp_path_factory):
    """A notebook as JupyterLab saves it: run out of order, with widget state and metadata; refreshed once."""
    path = tmp_path_factory.mktemp("refresh") / "messy.ipynb"
    notebook = nbformat.v4.new_notebook(
        cells=[
            text("# Messy", id="title"),
            code("print('a')\ndisplay('b')\nprint('c')", stdout("a\nc\n"), display(text_plain="'b'"), id="order"),
            code("1 + 1", result("2"), id="kept"),
            code("2 + 2", result("5"), id="changed"),
            code("from ipywidgets import IntSlider\nIntSlider()", id="widget"),
            code("import json\njson.loads('{')", id="raises", tags=("raises-exception",)),
            code("object().__repr__()[:7]", id="new"),
        ],
        metadata={
            "kernelspec": {"name": "my-env", "display_name": "My env", "language": "python"},
            "language_info": {"name": "python", "version": "3.11.2"},
            "widgets": {"application/vnd.jupyter.widget-state+json": {}},
        },
    )
    for cell in notebook.cells:
        cell.metadata["collapsed"] = True
        if cell.cell_type == "code":
            cell.execution_count = 40
    notebook.cells[2].outputs[0].execution_count = 12
    path.write_text(json.dumps(notebook))
    done = _refresh(path)
    assert done.stdout == "written: messy.ipynb\n", done.stderr
    return path


def test_a_refreshed_notebook_is_in_the_stored_form(messy):
    notebook = json.loads(messy.read_text())
    assert notebook["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    code_cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code_cells] == [1, 2, 3, 4, 5, 6]
    assert [cell["metadata"] for cell in notebook["cells"]] == [{}] * 5 + [{"tags": ["raises-exception"]}] + [{}]
    assert messy.read_bytes().endswith(b"}\n")


def test_a_refresh_stores_what_the_cells_showed_in_the_order_of_jupyterlab(messy):
    cells = {cell.id: cell for cell in nbformat.read(messy, as_version=4).cells}
    assert [output.output_type for output in cells["order"].outputs] == ["stream", "display_data", "stream"]
    assert cells["kept"].outputs[0].execution_count == 2
    assert cells["changed"].outputs[0].data["text/plain"] == "4"
    assert list(cells["widget"].outputs[0].data) == ["text/plain"]
    assert cells["raises"].outputs[0].ename == "JSONDecodeError"
    assert cells["new"].outputs[0].data["text/plain"] == "'<object'"


def test_a_stored_traceback_shows_no_path_of_this_machine(messy):
    cells = {cell.id: cell for cell in nbformat.read(messy, as_version=4).cells}
    traceback = "\n".join(cells["raises"].outputs[0].traceback)
    assert "json" in traceback
    assert "File " not in traceback


def test_a_second_refresh_changes_no_byte(messy):
    before, stamp = messy.read_bytes(), messy.stat().st_mtime_ns
    assert _refresh(messy).stdout == "unchanged: 1 notebook\n"
    assert (messy.read_bytes(), messy.stat().st_mtime_ns) == (before, stamp)


def test_a_cell_that_cannot_run_is_named_and_nothing_is_written(tmp_path):
    good = write_notebook(tmp_path / "good.ipynb", code("1 + 1", id="fine"))
    bad = write_notebook(
        tmp_path / "bad.ipynb", code("1", id="fine"), code("1 / 0", id="divides"), code("2", id="after")
    )
    before = good.read_bytes(), bad.read_bytes()
    done = _refresh(good, bad)
    assert done.returncode == 1
    assert done.stderr == (
        "Cell divides of bad.ipynb could not run: ZeroDivisionError: division by zero. Nothing was written.\n"
    )
    assert (good.read_bytes(), bad.read_bytes()) == before


def test_a_notebook_that_is_not_there_is_one_sentence(tmp_path):
    done = _refresh(tmp_path / "none.ipynb")
    assert (done.returncode, done.stderr) == (1, f"There is no notebook {tmp_path / 'none.ipynb'}.\n")


def _chart(png: str, sentence: str) -> list[dict]:
    return tidy_outputs([display(image_png=png, text_plain=sentence)], 1)


def test_an_image_is_kept_while_its_sentence_is_the_same():
    assert merge_outputs(_chart("b2xk", "rises"), _chart("bmV3", "rises"), same=True) == _chart("b2xk", "rises")
    beside = tidy_outputs([stdout("now\n")], 1)
    merged = merge_outputs(
        _chart("b2xk", "rises") + beside, _chart("bmV3", "rises") + tidy_outputs([stdout("then\n")], 1), same=False
    )
    assert merged[0]["data"]["image/png"] == "b2xk"
    assert merged[1]["text"] == "then\n"


def test_an_image_with_another_sentence_is_replaced():
    assert merge_outputs(_chart("b2xk", "rises"), _chart("bmV3", "falls"), same=False) == _chart("bmV3", "falls")


def test_an_image_that_is_new_or_gone_counts_as_a_change():
    plain = tidy_outputs([display(text_plain="rises")], 1)
    assert merge_outputs(plain, _chart("bmV3", "rises"), same=True) == _chart("bmV3", "rises")
    assert merge_outputs(_chart("b2xk", "rises"), plain, same=True) == plain


def test_the_stored_form_is_stable():
    notebook = {"cells": [text("a", id="a"), code("1", result("1"), id="b", tags=("exercise", "exercise"))]}
    once = normalised(notebook)
    assert notebook_bytes(normalised(once)) == notebook_bytes(once)


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "a.ipynb"
    path.write_bytes(b"before")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_if_changed(path, b"after")
    assert [p.name for p in tmp_path.iterdir()] == ["a.ipynb"]
    assert path.read_bytes() == b"before"
