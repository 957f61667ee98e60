"""What a notebook's run finds, and where it differs from bare nbval. Each test looks at one cell of a few runs."""

from __future__ import annotations

import re
import time

import nbformat
import pytest
from nbval.plugin import get_sanitize_patterns

from tools.nbharness.build import code, error, result, stderr, stdout, write_notebook
from tools.nbharness.run import ROOT, run_notebooks

CRASH = "import ctypes\nctypes.string_at(0)"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Run all notebooks of this file in one pytest; return, by notebook, each cell's run by id."""
    folder = tmp_path_factory.mktemp("strict")
    startup = folder / "profile"
    (startup / "profile_default" / "startup").mkdir(parents=True)
    (startup / "profile_default" / "startup" / "reader.py").write_text("print('from the reader')\nreader = 1\n")
    notebooks = [
        write_notebook(
            folder / "compared.ipynb",
            code("1 + 1", result("2"), id="same"),
            code("_ + 1", result("3"), id="history"),
            code("4;", id="quiet"),
            code("import os\nstatus = os.system('echo from C')", stdout("from C\n"), id="c-level"),
            code("'reader' in globals()", result("False"), id="startup"),
            code("import sys\nprint('warning B', file=sys.stderr)", stderr("warning A\n"), id="warning"),
            code("object()", result("<object at 0x7f0000000000>"), id="address"),
            code(
                "raise RuntimeError('output 0 of Sigmoid')",
                error("RuntimeError", "output 0 of SigmoidBackward0"),
                id="wording",
                tags=("raises-exception",),
            ),
            code("print('fine now')", error("RuntimeError", "x"), id="no-error", tags=("raises-exception",)),
            code("print('more')", id="extra"),
            code("pass", stdout("less\n"), id="missing"),
            code("1 + 1", result("2"), id="uncounted"),
            code(
                "print('/tmp/ipykernel_77/1.py:3: note')",
                stdout("/elsewhere/ipykernel_5/22.py:3: note\n"),
                id="temporary-path",
            ),
        ),
        write_notebook(
            folder / "stops.ipynb",
            code("x = 1", id="before"),
            code("undefined", id="stops"),
            code("x", result("1"), id="after"),
            code("x", result("1"), id="later"),
        ),
        write_notebook(folder / "dies.ipynb", code(CRASH, id="dies"), code("1", result("1"), id="after")),
        write_notebook(
            folder / "hangs.ipynb", code("import time\ntime.sleep(60)", id="hangs"), code("1", result("1"), id="after")
        ),
    ]
    uncounted = nbformat.read(notebooks[0], as_version=4)
    next(cell for cell in uncounted.cells if cell.id == "uncounted").update(execution_count=None, outputs=[])
    nbformat.write(uncounted, notebooks[0])
    found = run_notebooks(
        notebooks,
        options=["--nbval-cell-timeout=3"],
        environment={"IPYTHONDIR": str(startup), "PYTHONWARNINGS": "error"},
    )
    return {path.stem: {run.id: run for run in cells} for path, cells in found.items()}


@pytest.mark.parametrize("cell", ["same", "quiet"])
def test_an_equal_output_passes(runs, cell):
    assert runs["compared"][cell].outcome == "same"


def test_a_cell_can_use_the_last_result_as_in_jupyterlab(runs):
    assert runs["compared"]["history"].outcome == "same"


def test_output_written_below_python_is_seen_as_in_jupyterlab(runs):
    assert runs["compared"]["c-level"].outcome == "same"


def test_the_readers_own_start_up_files_change_nothing(runs):
    assert runs["compared"]["startup"].outcome == "same"


def test_the_kernels_temporary_path_is_not_compared(runs):
    assert runs["compared"]["temporary-path"].outcome == "same"


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("warning", "Only a warning on stderr differs, and the code is fine"),
        ("address", "only in memory addresses"),
        ("wording", "stable substring"),
        ("no-error", "no longer raises RuntimeError"),
        ("extra", "Output came that is not stored (stdout)"),
        ("missing", "Output is missing that is stored (stdout)"),
    ],
)
def test_a_difference_fails_with_its_kind(runs, cell, words):
    assert runs["compared"][cell].outcome == "differs"
    assert words in runs["compared"][cell].sentence


def test_a_cell_without_count_and_outputs_fails(runs):
    assert runs["compared"]["uncounted"].outcome == "no-count"
    assert "make refresh" in runs["compared"]["uncounted"].sentence


def test_after_a_cell_that_could_not_run_the_rest_is_skipped_with_the_reason(runs):
    cells = runs["stops"]
    assert [cells[name].outcome for name in ("before", "stops", "after", "later")] == [
        "same",
        "failed",
        "skipped",
        "skipped",
    ]
    assert cells["later"].sentence == "skipped: cell stops above could not run"


def test_a_dead_kernel_is_said_and_stops_the_notebook(runs):
    assert runs["dies"]["dies"].sentence.startswith("The kernel died while this cell ran (exit status -11)")
    assert runs["dies"]["after"].outcome == "skipped"


def test_a_cell_out_of_time_is_said_and_stops_the_notebook(runs):
    assert runs["hangs"]["hangs"].outcome == "failed"
    assert "Timeout of 3 seconds" in runs["hangs"]["hangs"].sentence
    assert runs["hangs"]["after"].outcome == "skipped"


def test_of_a_long_difference_the_place_is_shown():
    from tools.nbharness.cells import excerpts

    left, right = excerpts("a" * 5000 + "4" + "b" * 5000, "a" * 5000 + "5" + "b" * 5000)
    assert left.startswith("(from character 4800)")
    assert "a4b" in left
    assert "a5b" in right
    assert len(left) < 500


def test_a_dead_kernel_is_noticed_within_seconds(tmp_path):
    """By the kernel itself, without pytest around it: the limit of a cell is 120 seconds."""
    from tools.nbharness.kernel import CourseKernel, KernelDiedError

    kernel = CourseKernel(tmp_path / "none.ipynb", "cpu")
    try:
        request = kernel.execute_cell_input(CRASH)
        began = time.monotonic()
        with pytest.raises(KernelDiedError, match="The kernel died"):
            kernel.await_reply(request, timeout=120)
        assert time.monotonic() - began < 10
    finally:
        kernel.stop()


@pytest.fixture
def sanitized():
    """Return a function that applies the patterns of nbval-sanitize.cfg as nbval does."""
    patterns = get_sanitize_patterns((ROOT / "nbval-sanitize.cfg").read_text())

    def apply(text):
        for pattern, replacement in patterns:
            text = re.sub(pattern, replacement, text)
        return text

    return apply


def test_each_sanitize_pattern_replaces_only_what_it_names(sanitized):
    text = (
        'File "/tmp/ipykernel_1/23.py", line 1, in f\n'
        "UserWarning: odd (Triggered internally at /pytorch/aten/src/x.cpp:12.)\n"
        "see /tmp/other.py and <AddBackward0 at 0x7f00deadbeef> and 3.25 s"
    )
    assert sanitized(text) == (
        'File "CELL.py", line 1, in f\n'
        "UserWarning: odd (Triggered internally)\n"
        "see /tmp/other.py and <AddBackward0 at 0x7f00deadbeef> and 3.25 s"
    )


def test_a_long_picture_is_sanitized_at_once(sanitized):
    picture = "iVBORw0KGgo/" * 100_000
    began = time.perf_counter()
    assert sanitized(picture) == picture
    assert time.perf_counter() - began < 5
