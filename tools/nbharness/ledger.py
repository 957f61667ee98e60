"""Holds the table of claims (docs/claims.md) against the cells that prove them."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat

from .normalise import IMAGES, WIDGET_VIEW

_SECTION = re.compile(r"## .*\(chapters? ([^)]*)\)")
_ROW = re.compile(r"\| *(\d+(?:\.\d+)?[a-z]?) *\|")
NO_RECORDING = "no recording of it exists yet"


def read_claims(text: str) -> dict[str, tuple[str, ...]]:
    """Return each claim's id with the numbers of the chapters that owe it: {"2.1a": ("01",)}."""
    claims: dict[str, tuple[str, ...]] = {}
    chapters: tuple[str, ...] = ()
    for line in text.splitlines():
        if line.startswith("## "):
            section = _SECTION.match(line)
            chapters = tuple(re.findall(r"\d\d", section[1])) if section else ()
        elif (row := _ROW.match(line)) and chapters:
            if row[1] in claims:
                raise ValueError(f"claim {row[1]} stands twice in the table.")
            claims[row[1]] = chapters
    return claims


def ledger_faults(claims: dict[str, tuple[str, ...]], notebooks: list[Path]) -> list[str]:
    """Return a sentence for each claim that is not proven, and each tag that proves nothing.

    A claim is owed once all its chapters exist; it is proven by a cell with an output that is always compared.
    """
    found, proven = [], set()
    for path in notebooks:
        for cell in nbformat.read(path, as_version=4).cells:
            for tag in cell.metadata.get("tags", []):
                if not tag.startswith("claim-"):
                    continue
                claim = tag.removeprefix("claim-")
                if claim not in claims:
                    found.append(f"{path.stem}, cell {cell.id}: there is no claim {claim}.")
                elif path.stem[:2] not in claims[claim]:
                    found.append(f"{path.stem}, cell {cell.id}: claim {claim} belongs to chapter {claims[claim][0]}.")
                elif reason := _proves_nothing(cell):
                    found.append(f"{path.stem}, cell {cell.id}: it is tagged with claim {claim}, but {reason}.")
                else:
                    proven.add(claim)
    finished = {path.stem[:2] for path in notebooks}
    found += [
        f"claim {claim} of chapter {', '.join(chapters)} is proven by no cell."
        for claim, chapters in claims.items()
        if finished.issuperset(chapters) and claim not in proven
    ]
    return found


def _proves_nothing(cell) -> str:
    """Return why the cell's output can't prove a claim; "" when it can."""
    if cell.cell_type != "code":
        return "it is not a code cell"
    if "ref-torch" in cell.metadata.get("tags", []):
        return "it is compared on one torch release only (`ref-torch`)"
    if not cell.outputs:
        return "it shows nothing"
    texts = [mime for output in cell.outputs for mime in output.get("data", {}) if mime not in (*IMAGES, WIDGET_VIEW)]
    texts += [output.output_type for output in cell.outputs if output.output_type in ("stream", "error")]
    if not texts:
        return "its output is an image or a widget, which is never compared"
    if any(NO_RECORDING in str(output.get("data", {}).get("text/plain", "")) for output in cell.outputs):
        return "it needs a GPU and has no recording yet"
    return ""
