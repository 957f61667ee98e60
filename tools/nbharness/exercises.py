"""Takes exercises and their solutions out of a notebook, and runs them: as shipped, solved, and with wrong answers."""

from __future__ import annotations

import ast
import re
import runpy
from dataclasses import dataclass
from pathlib import Path

import nbformat

from .build import code
from .run import CellRun, run_notebooks

VERDICT = "application/vnd.course.verdict+json"
WrongAnswers = dict[str, list[tuple[str, str]]]
"""By exercise id: (code of a wrong answer, pattern of the message that it must get)."""


@dataclass(frozen=True)
class ExerciseCells:
    """One exercise in a notebook: the stub's id and source, its last line, and the code of its solution."""

    id: str
    source: str
    check: str
    solution: str


def find_exercises(notebook) -> list[ExerciseCells]:
    """Return a notebook's exercises in order; a solution is the Python in the `solution` cells that follow."""
    found: list[ExerciseCells] = []
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        if "exercise" in tags and cell.cell_type == "code":
            found.append(ExerciseCells(cell.id, cell.source, cell.source.rstrip().rsplit("\n", 1)[-1], ""))
        elif "solution" in tags and found:
            blocks = re.findall(r"```python\n(.*?)```", cell.source, flags=re.DOTALL)
            last = found.pop()
            solution = "\n".join(part for part in (last.solution, *blocks) if part)
            found.append(ExerciseCells(last.id, last.source, last.check, solution))
    return found


def form_faults(notebook, wrong: WrongAnswers) -> list[str]:
    """Return what is wrong with the form of a notebook's exercises; nothing is run."""
    found = []
    exercises = find_exercises(notebook)
    for exercise in exercises:
        call = re.fullmatch(r"check\([\"'](.+?)[\"'], (.+)\)", exercise.check)
        if not call or call[1] != exercise.id:
            found.append(f"{exercise.id}: its last line must be check({exercise.id!r}, …).")
            continue
        if not exercise.solution:
            found.append(f"{exercise.id}: no solution follows (a cell tagged `solution` with a ```python block).")
        needed = {node.id for node in ast.walk(ast.parse(call[2])) if isinstance(node, ast.Name)}
        if missing := needed - _defined(exercise.solution):
            found.append(f"{exercise.id}: the solution does not define {', '.join(sorted(missing))}.")
        if len(wrong.get(exercise.id, [])) < 2:
            found.append(f"{exercise.id}: two wrong answers are wanted in tests/wrong_answers.")
    known = {exercise.id for exercise in exercises}
    found += [f"{name}: wrong answers to an exercise that does not exist." for name in wrong if name not in known]
    for cell in notebook.cells:
        if "solution" in cell.metadata.get("tags", []) and "<details>" not in cell.source:
            found.append(f"cell {cell.id}: a solution is folded in <details>.")
    return found


def _defined(source: str) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
    return names


def run_faults(path: Path, wrong: WrongAnswers, folder: Path) -> list[str]:
    """Run a copy of the notebook in which each exercise is followed by all answers; return a sentence per surprise.

    One kernel runs all: the stub, the wrong answers, and the solution last, so that later cells find the names.
    """
    notebook = nbformat.read(path, as_version=4)
    exercises = {exercise.id: exercise for exercise in find_exercises(notebook)}
    cells = []
    for cell in notebook.cells:
        cells.append(cell)
        if exercise := exercises.get(cell.id):
            answers = [answer for answer, _ in wrong.get(cell.id, [])]
            names = [f"{cell.id}-wrong-{number}" for number in range(1, len(answers) + 1)] + [f"{cell.id}-solved"]
            for name, answer in zip(names, [*answers, exercise.solution], strict=True):
                cells.append(code(f"{answer.rstrip()}\n{exercise.check}", id=name))
    target = (folder / path.name).resolve()
    nbformat.write(nbformat.v4.new_notebook(cells=cells), target)
    runs = {run.id: run for run in run_notebooks([target])[target]}
    found = []
    for name in exercises:
        found += _expect(runs[name], "open")
        found += _expect(runs[f"{name}-solved"], "right")
        for number, (_, pattern) in enumerate(wrong.get(name, []), 1):
            found += _expect(runs[f"{name}-wrong-{number}"], "wrong", pattern)
    return found


def _expect(run: CellRun, status: str, pattern: str = "") -> list[str]:
    verdict = next((output["data"][VERDICT] for output in run.outputs if VERDICT in output.get("data", {})), None)
    if verdict is None:
        return [f"{run.id}: no verdict came ({run.outcome}: {run.sentence})."]
    if verdict["status"] != status:
        return [f"{run.id}: the verdict is {verdict['status']!r}, {status!r} is wanted: {verdict['text']}"]
    if not re.search(pattern, verdict["text"]):
        return [f"{run.id}: {pattern!r} is not in the message: {verdict['text']}"]
    return []


def stored_faults(notebook) -> list[str]:
    """Return a sentence for each exercise whose stored output is not the verdict of an untouched stub."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code" and "exercise" in cell.metadata.get("tags", []):
            verdicts = [output.data[VERDICT] for output in cell.outputs if VERDICT in output.get("data", {})]
            if [verdict["status"] for verdict in verdicts] != ["open"]:
                found.append(f"{cell.id}: its stored output must be the verdict of an untouched stub.")
    return found


def read_wrong_answers(folder: Path, notebook: Path) -> WrongAnswers:
    """Return the wrong answers to a notebook's exercises, from `chapter_NN.py`; none where there is no file."""
    path = folder / f"chapter_{notebook.stem[:2]}.py"
    return runpy.run_path(str(path))["WRONG"] if path.exists() else {}
