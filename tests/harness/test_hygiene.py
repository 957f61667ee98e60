"""Rules for stored notebooks that need no run; and a planted mistake for each rule."""

from __future__ import annotations

import json

import nbformat
import pytest

from helpers.course.recordings import read_recordings, recordings_path, source_hash
from helpers.draw.drawing import Drawing
from tools.nbharness.build import code, display, error, result, stdout, text, write_notebook
from tools.nbharness.hygiene import faults

FIRST = "import torch\nfrom helpers import begin, draw_layout\n\ndevice = begin()"
DRAWING = Drawing('<svg xmlns="http://www.w3.org/2000/svg"><text>4</text></svg>', "One slot.").html()


def test_the_course_has_notebooks(notebooks):
    assert notebooks


def test_a_notebook_keeps_the_rules(notebook):
    assert faults(notebook) == []


def test_cell_ids_name_a_recording_of_one_chapter_only(notebooks):
    names = [name for path in notebooks for name in read_recordings(recordings_path(path))]
    assert len(names) == len(set(names))


def test_recordings_belong_to_cells_as_they_are(notebook):
    cells = {cell.id: cell for cell in nbformat.read(notebook, as_version=4).cells}
    for name, recording in read_recordings(recordings_path(notebook)).items():
        assert name in cells, f"the recording of {name} has no cell: run make refresh DEVICE=cuda"
        cell = cells[name]
        assert recording.source == source_hash(cell.source), f"{name} is stale: run make refresh DEVICE=cuda"
        if "requires-cuda" in cell.metadata.tags:
            assert [dict(output) for output in cell.outputs] == recording.replay()


@pytest.fixture
def planted(tmp_path):
    """Write a sound small notebook with one cell more, or changed as a whole, and return its faults."""

    def plant(*cells, change=None):
        path = write_notebook(
            tmp_path / "planted.ipynb",
            text("# Title", id="title"),
            code(FIRST, id="begin"),
            text("## Slices share", id="slices"),
            code("1 + 1", result("2"), id="slices-share", tags=("claim-2.4a",)),
            *cells,
            text("Now try.", id="slices-try"),
            code("explore_layout(x)", display(text_html=DRAWING, text_plain="One slot."), id="slices-explore"),
        )
        if change:
            notebook = json.loads(path.read_text())
            change(notebook)
            path.write_text(json.dumps(notebook))
        return faults(path)

    return plant


def test_a_sound_notebook_has_no_fault(planted):
    assert planted() == []


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (code("x.data_ptr()", result("94823048576123"), id="pointer"), "memory address"),
        (code("f", result("<function f at 0x7f12cafe0000>"), id="address"), "a memory address"),
        (code("p", result("'/home/ann/course/x.py'"), id="author-path"), "a path of one machine"),
        (code("v", stdout("torch 2.13.0\n"), id="version"), "a version"),
        (code("t", stdout("took 3.2 ms\n"), id="timing"), "a timing"),
        (code("p", stdout("10%\r20%\n"), id="progress"), "a carriage return"),
        (code("1", result("1"), id="a1b2c3d4"), "must be words"),
        (code("1", result("1"), id="Slices_Share"), "must be words"),
        (code("1", result("1"), id="tagged", tags=("nbval-skip",)), "'nbval-skip' is not known"),
        (code("1", result("1"), id="tagged", tags=("claim-two",)), "'claim-two' is not known"),
        (code("interact(f)", id="calls"), "'interact('"),
        (code("out = Output()", id="calls"), "'Output('"),
        (code("clear_output()", id="calls"), "clear_output"),
        (code("plt.plot(x)", id="calls"), "drawing belongs to helpers"),
        (code("%matplotlib inline", id="calls"), "magics"),
        (code("import sys; sys.path.append('..')", id="calls"), "sys.path"),
        (code("id(x) == id(y)", result("True"), id="calls"), "`id()` differs"),
        (code("import time; t = time.time()", id="calls"), "a timing differs"),
        (code("# NBVAL_IGNORE_OUTPUT\n1", result("1"), id="calls"), "every cell is compared"),
        (code(" ", id="blank"), "it is empty"),
        (code("1 / 0", error("ZeroDivisionError", "division by zero"), id="raises"), "`raises-exception`"),
        (code("1", result("1"), id="raises", tags=("raises-exception",)), "`raises-exception`"),
        (code("if on_cuda('other'):\n    1", id="gpu", tags=("requires-cuda",)), "must name this cell"),
        (code("if on_cuda('gpu'):\n    1", id="gpu"), "tagged `requires-cuda`"),
        (code("if can_build('other'):\n    1", id="cpp", tags=("requires-compiler",)), "must name this cell"),
        (code("if can_build('cpp'):\n    1", id="cpp"), "tagged `requires-compiler`"),
        (code("fig", result("<Figure size 640x480 with 1 Axes>", image_png="aGk="), id="chart"), "never compared"),
        (code("fig", result("x", image_svg_xml="<svg/>"), id="chart"), "image/svg+xml is hidden"),
        (code("fig", result("x", text_html="<svg></svg>"), id="chart"), "inline <svg>"),
        (code("fig", result("x", text_html="<img src='x'>"), id="chart"), "no alternative text"),
        (text("![](x.svg)", id="picture"), "no alternative text"),
        (text("#### Deep", id="deep"), "skips a level"),
        (text("# Second title", id="second"), "the only title"),
        (text("## Another section", id="another"), "must end in an explorer or an exercise"),
        (code("'" + "x" * 210_000 + "'", result("x" * 210_000), id="long"), "longer than"),
    ],
)
def test_a_planted_mistake_is_found(planted, cell, words):
    assert any(words in fault for fault in planted(cell)), planted(cell)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda nb: nb["cells"][1].update(execution_count=None), "execution counts"),
        (lambda nb: nb["cells"][1].update(source="import torch"), "first code cell"),
        (lambda nb: nb["cells"][1].update(outputs=[stdout("hello")]), "must be silent"),
        (lambda nb: nb["metadata"].update(widgets={}), "stored form"),
        (lambda nb: nb["cells"][0]["metadata"].update(collapsed=True), "stored form"),
        (lambda nb: nb.update(nbformat_minor=4), "not a valid notebook"),
        (lambda nb: nb["cells"].insert(2, dict(nb["cells"][3], id="a")), "stored form"),
        (lambda nb: nb["cells"][1].pop("outputs"), "not a valid notebook"),
        (lambda nb: nb["cells"].pop(0), "the only title"),
        (lambda nb: nb["cells"][0].update(id="begin"), "used twice"),
    ],
)
def test_a_planted_mistake_in_the_whole_is_found(planted, change, words):
    found = planted(change=change)
    assert found
    assert any(words in fault for fault in found) or words == "stored form", found


def test_three_code_cells_in_a_row_are_found(planted):
    found = planted(code("1", result("1"), id="two"), code("1", result("1"), id="three"))
    assert any("three code cells in a row" in fault for fault in found)


def test_the_label_of_a_recording_may_name_versions(planted):
    label = "Recorded on Pretend GPU, torch 2.13.0, CUDA 12.9"
    cell = code("if on_cuda('gpu'):\n    1", display(text_plain=label), id="gpu", tags=("requires-cuda",))
    assert planted(cell) == []
