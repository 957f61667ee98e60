"""Every exercise, tested as shipped, solved, and with typical wrong answers (tests/wrong_answers/chapter_NN.py)."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tools.nbharness.build import code, display, text, write_notebook
from tools.nbharness.exercises import VERDICT, form_faults, read_wrong_answers, run_faults, stored_faults

ANSWERS = Path(__file__).resolve().parents[1] / "wrong_answers"

# A stand-in for the course's own check: the answer is right when it doubles its argument.
CHECK = f"""
def check(name, answer):
    try:
        status, text = ("right", "well done") if answer(2) == 4 else ("wrong", f"{{answer(2)}} is not the double of 2")
    except NotImplementedError:
        status, text = "open", "not attempted yet"
    display({{"text/plain": text, "{VERDICT}": {{"status": status, "text": text}}}}, raw=True)
"""
STUB = "def double(n):\n    raise NotImplementedError\n\ncheck('double-it', double)"
SOLUTION = "<details><summary>Solution</summary>\n\n```python\ndef double(n):\n    return 2 * n\n```\n</details>"
WRONG = {"double-it": [("def double(n):\n    return n", "2 is not"), ("double = lambda n: n ** 3", "8 is not")]}


def test_exercises_have_their_form(notebook):
    assert form_faults(nbformat.read(notebook, as_version=4), read_wrong_answers(ANSWERS, notebook)) == []


def test_exercises_are_stored_untouched(notebook):
    assert stored_faults(nbformat.read(notebook, as_version=4)) == []


def test_exercises_judge_every_answer_as_they_should(notebook, tmp_path):
    assert run_faults(notebook, read_wrong_answers(ANSWERS, notebook), tmp_path) == []


def _notebook(folder, stub=STUB, solution=SOLUTION):
    record = {"status": "open", "text": "not attempted yet"}
    shown = display(text_plain="not attempted yet") | {"data": {"text/plain": "not attempted yet", VERDICT: record}}
    return write_notebook(
        folder / "99_small.ipynb",
        code(CHECK, id="begin"),
        code(stub, shown, id="double-it", tags=("exercise",)),
        text("A hint.", id="hint"),
        text(solution, id="double-it-solution", tags=("solution",)),
        code("type(double).__name__", id="after"),
    )


def test_a_sound_exercise_has_no_fault(tmp_path):
    (tmp_path / "run").mkdir()
    path = _notebook(tmp_path)
    notebook = nbformat.read(path, as_version=4)
    assert form_faults(notebook, WRONG) == []
    assert stored_faults(notebook) == []
    assert run_faults(path, WRONG, tmp_path / "run") == []


def test_a_solution_that_fails_and_a_wrong_answer_that_passes_are_found(tmp_path):
    (tmp_path / "run").mkdir()
    path = _notebook(tmp_path, solution=SOLUTION.replace("2 * n", "3 * n"))
    wrong = {"double-it": [("def double(n):\n    return n + n", "x"), ("double = lambda n: n", "no such message")]}
    found = run_faults(path, wrong, tmp_path / "run")
    assert "double-it-solved: the verdict is 'wrong', 'right' is wanted: 6 is not the double of 2" in found
    assert any("double-it-wrong-1: the verdict is 'right'" in fault for fault in found)
    assert any("'no such message' is not in the message" in fault for fault in found)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stub": STUB.replace("'double-it'", "'other'")}, "its last line must be"),
        ({"stub": STUB + "\nx = 1"}, "its last line must be"),
        ({"solution": SOLUTION.replace("double(n)", "triple(n)")}, "does not define double"),
        ({"solution": "<details>Think.</details>"}, "no solution follows"),
        ({"solution": SOLUTION.replace("<details>", "")}, "folded in <details>"),
    ],
)
def test_a_mistake_in_the_form_is_found(tmp_path, changes, words):
    notebook = nbformat.read(_notebook(tmp_path, **changes), as_version=4)
    assert any(words in fault for fault in form_faults(notebook, WRONG))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({}, "two wrong answers"),
        (WRONG | {"gone": []}, "does not exist"),
        ({"double-it": WRONG["double-it"][:1]}, "two wrong"),
    ],
)
def test_missing_and_stray_wrong_answers_are_found(tmp_path, wrong, words):
    notebook = nbformat.read(_notebook(tmp_path), as_version=4)
    assert any(words in fault for fault in form_faults(notebook, wrong))


def test_an_exercise_stored_with_an_answer_is_found(tmp_path):
    notebook = nbformat.read(_notebook(tmp_path), as_version=4)
    notebook.cells[1].outputs[0].data[VERDICT]["status"] = "right"
    assert stored_faults(notebook) == ["double-it: its stored output must be the verdict of an untouched stub."]
