"""The one form in which notebooks are stored, so that a refresh changes no byte without a reason."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import nbformat

KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
METADATA = {"kernelspec": KERNELSPEC, "language_info": {"name": "python"}}
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
IMAGES = ("image/png", "image/jpeg")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def without_widgets(outputs: list[dict]) -> list[dict]:
    """Return outputs without widget views: a stored view is blank without its kernel. Empty outputs are left out."""
    kept = []
    for output in outputs:
        output = dict(output)
        if "data" in output:
            output["data"] = {mime: value for mime, value in output["data"].items() if mime != WIDGET_VIEW}
            if not output["data"]:
                continue
        kept.append(output)
    return kept


def tidy_outputs(outputs: list[dict], count: int) -> list[dict]:
    """Return outputs as they are stored in a cell with this execution count."""
    tidy = []
    for output in without_widgets(outputs):
        kind = output["output_type"]
        if kind == "stream":
            tidy.append({"output_type": kind, "name": output["name"], "text": output["text"]})
        elif kind == "error":
            traceback = [entry for entry in output["traceback"] if not _ANSI.sub("", entry).startswith("File ")]
            tidy.append(
                {"output_type": kind, "ename": output["ename"], "evalue": output["evalue"], "traceback": traceback}
            )
        else:
            metadata = {mime: value for mime, value in output.get("metadata", {}).items() if mime in IMAGES}
            entry = {"output_type": kind, "data": output["data"], "metadata": metadata}
            tidy.append(entry | ({"execution_count": count} if kind == "execute_result" else {}))
    return tidy


def merge_outputs(stored: list[dict], new: list[dict], *, same: bool) -> list[dict]:
    """Return the outputs to store, from the stored ones and those of a new run.

    `same` is nbval's verdict. What nbval can't see still counts: another set of MIME types, or another place of a
    print between displays. An image whose bytes alone changed is kept.
    """
    if same and _shape(stored) == _shape(new):
        return stored
    merged = []
    for index, output in enumerate(new):
        before = stored[index].get("data", {}) if index < len(stored) else {}
        after = output.get("data", {})
        if any(mime in after for mime in IMAGES) and before.get("text/plain") == after.get("text/plain"):
            kept = {mime: before[mime] for mime in IMAGES if mime in after and mime in before}
            output = output | {"data": after | kept}
        merged.append(output)
    return merged


def _shape(outputs: list[dict]) -> list:
    """Return what displays there are and where stdout stands between them. stderr may arrive at any time."""
    shape: list = []
    for output in without_widgets(outputs):
        if output["output_type"] != "stream":
            shape.append((output["output_type"], sorted(output.get("data", {}))))
        elif output["name"] == "stdout" and shape[-1:] != ["stdout"]:
            shape.append("stdout")
    return shape


def normalised(notebook: dict) -> nbformat.NotebookNode:
    """Return a copy in the stored form: counts 1…n, no metadata but tags, outputs tidied. Texts stay as they are."""
    cells = []
    count = 0
    for cell in notebook["cells"]:
        tags = list(dict.fromkeys(cell.get("metadata", {}).get("tags", [])))
        entry = {"cell_type": cell["cell_type"], "id": cell["id"], "metadata": {"tags": tags} if tags else {}}
        entry["source"] = cell["source"]
        if cell["cell_type"] == "code":
            count += 1
            entry |= {"execution_count": count, "outputs": tidy_outputs(cell["outputs"], count)}
        elif cell.get("attachments"):
            entry["attachments"] = cell["attachments"]
        cells.append(entry)
    return nbformat.from_dict({"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5})


def notebook_bytes(notebook: nbformat.NotebookNode) -> bytes:
    """Return the file's content: sorted keys, one space of indent, a newline at the end, the same on every system."""
    return (nbformat.writes(notebook).rstrip("\n") + "\n").encode("utf-8")


def write_if_changed(path: Path, content: bytes) -> bool:
    """Write a file in one step, only where its content differs; say whether it did."""
    if path.exists() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, path.stat().st_mode & 0o777 if path.exists() else 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return True
