"""A reader's chapter does not tell the answer of a prediction before its cell is run."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from tools.unanswered import ASKS, unanswered

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def cell(kind: str, source: str) -> dict:
    made = {"cell_type": kind, "id": source[:8], "metadata": {}, "source": source.splitlines(keepends=True)}
    output = {"name": "stdout", "output_type": "stream", "text": [f"{source} said\n"]}
    return made if kind == "markdown" else made | {"execution_count": 1, "outputs": [output]}


def chapter(*cells: dict) -> bytes:
    made = {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return (json.dumps(made, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()


def shown(data: bytes) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(data)["cells"] if cell.get("outputs")]


def test_outputs_from_a_prediction_to_the_next_heading_are_left_out():
    data = chapter(
        cell("code", "begin()"),
        cell("markdown", "## One"),
        cell("code", "before"),
        cell("code", 'x = 1\npredict("q", options=[1])'),
        cell("markdown", "words, # no heading"),
        cell("code", "answer"),
        cell("code", "later"),
        cell("markdown", "### Two"),
        cell("code", "other"),
    )
    handed_out = unanswered("01_x.ipynb", data)
    assert shown(handed_out) == ["begin()", "before", 'x = 1\npredict("q", options=[1])', "other"]
    assert unanswered("01_x.ipynb", handed_out) == handed_out
    counts = [cell.get("execution_count") for cell in json.loads(handed_out)["cells"] if "outputs" in cell]
    assert counts == [1, 1, 1, None, None, 1]


@pytest.mark.parametrize("source", ['# predict("q")', "x.predict(1)", 'answer = predict("q")'])
def test_what_only_looks_like_a_prediction_takes_nothing(source):
    data = chapter(cell("code", source), cell("code", "next"))
    assert unanswered("01_x.ipynb", data) == data


def test_other_files_are_handed_out_as_they_are():
    assert unanswered("refs/01_x.cuda.json", b'{"cells": 1}') == b'{"cells": 1}'
    without = json.dumps({"cells": [cell("code", "no question")]}).encode()
    assert unanswered("01_x.ipynb", without) == without


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_of_a_chapter_only_outputs_after_predictions_are_missing(path):
    whole, handed_out = json.loads(path.read_bytes()), json.loads(unanswered(path.name, path.read_bytes()))
    hidden = [old for old, new in zip(whole["cells"], handed_out["cells"], strict=True) if old != new]
    assert hidden
    for old, new in zip(whole["cells"], handed_out["cells"], strict=True):
        if old != new:
            assert new == old | {"outputs": [], "execution_count": None}
    asking = [i for i, cell in enumerate(whole["cells"]) if ASKS.search("".join(cell["source"]))]
    for place in asking:
        following = next(cell for cell in handed_out["cells"][place + 1 :] if cell["cell_type"] == "code")
        assert following["outputs"] == []
    restored = copy.deepcopy(handed_out)
    for old, new in zip(whole["cells"], restored["cells"], strict=True):
        new |= {key: old[key] for key in ("outputs", "execution_count") if key in old}
    assert restored == whole
