"""Builds small notebooks, for tests and benchmarks."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from .normalise import normalised, notebook_bytes


def code(source: str, *outputs: dict, id: str, tags: tuple[str, ...] = ()) -> nbformat.NotebookNode:
    """Return a code cell; outputs are made by `stdout`, `stderr`, `result`, `display` and `error`."""
    cell = new_code_cell(source, id=id, outputs=list(outputs))
    cell.metadata["tags"] = list(tags)
    return cell


def text(source: str, *, id: str, tags: tuple[str, ...] = ()) -> nbformat.NotebookNode:
    """Return a Markdown cell."""
    cell = new_markdown_cell(source, id=id)
    cell.metadata["tags"] = list(tags)
    return cell


def stdout(text: str) -> dict:
    return new_output("stream", name="stdout", text=text)


def stderr(text: str) -> dict:
    return new_output("stream", name="stderr", text=text)


def result(plain: str, **data: str) -> dict:
    """Return the result of a cell; further MIME types are written with `_` for `/`: `text_html="…"`."""
    return new_output("execute_result", data={"text/plain": plain} | _mimes(data), execution_count=1)


def display(**data: str) -> dict:
    return new_output("display_data", data=_mimes(data))


def error(name: str, message: str) -> dict:
    return new_output("error", ename=name, evalue=message, traceback=[f"{name}: {message}"])


def _mimes(data: dict[str, str]) -> dict[str, str]:
    return {key.replace("_", "/", 1).replace("_", "+"): value for key, value in data.items()}


def write_notebook(path: Path, *cells: nbformat.NotebookNode) -> Path:
    """Write a notebook in the stored form, with counts 1…n, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(notebook_bytes(normalised({"cells": list(cells)})))
    return path
