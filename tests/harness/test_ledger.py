"""Every claim of a finished chapter is proven by a cell whose output is compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.nbharness.build import code, display, result, text, write_notebook
from tools.nbharness.ledger import ledger_faults, read_claims

CLAIMS = Path(__file__).resolve().parents[2] / "docs" / "claims.md"
NOT_RECORDED = "This cell needs a CUDA GPU, and no recording of it exists yet."
TABLE = """# Claims

## 1 · Start (chapter 00)
| id | claim |
|---|---|
| 1a | first |

## 2 · Storage (chapter 01)
| 2.1a | shares |
| 2.5 | drill |

## 4 · Dispatch (chapters 03 and 04)
| 4.1a | layers |
"""


def test_the_courses_claims_are_proven(notebooks):
    assert ledger_faults(read_claims(CLAIMS.read_text(encoding="utf-8")), notebooks) == []


def test_the_table_names_chapters():
    assert read_claims(TABLE) == {"1a": ("00",), "2.1a": ("01",), "2.5": ("01",), "4.1a": ("03", "04")}


def test_a_claim_that_stands_twice_is_refused():
    with pytest.raises(ValueError, match=r"2\.5 stands twice"):
        read_claims(TABLE.replace("2.1a", "2.5"))


def _faults(folder, *cells):
    good = code("1", result("1"), id="drill", tags=("claim-2.5",))
    path = write_notebook(folder / "01_storage.ipynb", good, *cells)
    return ledger_faults(read_claims(TABLE), [path])


def test_a_proven_chapter_has_no_fault_and_later_chapters_owe_nothing_yet(tmp_path):
    assert _faults(tmp_path, code("1", result("1"), id="shares", tags=("claim-2.1a",))) == []


def test_a_claim_that_no_cell_carries_is_found(tmp_path):
    assert _faults(tmp_path) == ["claim 2.1a of chapter 01 is proven by no cell."]


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (code("x = 1", id="shares", tags=("claim-2.1a",)), "it shows nothing"),
        (code("fig", display(image_png="aGk="), id="shares", tags=("claim-2.1a",)), "never compared"),
        (code("1", result("1"), id="shares", tags=("claim-2.1a", "ref-torch")), "one torch release only"),
        (text("As shown.", id="shares", tags=("claim-2.1a",)), "not a code cell"),
        (code("1", result("1"), id="shares", tags=("claim-9.9",)), "there is no claim 9.9"),
        (code("1", result("1"), id="shares", tags=("claim-1a",)), "belongs to chapter 00"),
        (
            code(
                "x",
                display(text_plain="This cell needs …, and no recording of it exists yet."),
                id="shares",
                tags=("claim-2.1a",),
            ),
            "no recording yet",
        ),
    ],
)
def test_a_tag_that_proves_nothing_is_found(tmp_path, cell, words):
    assert any(words in fault for fault in _faults(tmp_path, cell))
