"""What of a notebook is written by its author, and what JupyterLab writes by itself.

JupyterLab fills in a notebook's `language_info` and the name of its kernel as soon as it is opened, keeps the
looks of its panels, and saves all that a little later. Somebody who only looked at a chapter has not edited it.
"""

from __future__ import annotations

import json

from tools import files

BY_ITSELF = ("language_info", "widgets")


def mark(name: str, data: bytes) -> str:
    """Return a SHA-256 that changes when an author's part of the file changes: a cell, an output, a setting.

    For what is no whole notebook, every byte counts.
    """
    try:
        notebook = json.loads(data) if name.endswith(".ipynb") else None
    except (ValueError, RecursionError):
        notebook = None
    if not isinstance(notebook, dict) or not isinstance(notebook.get("metadata"), dict):
        return files.fingerprint(data)
    metadata = {key: value for key, value in notebook["metadata"].items() if key not in BY_ITSELF}
    if isinstance(kernel := metadata.get("kernelspec"), dict):
        metadata["kernelspec"] = kernel.get("name")
    authored = notebook | {"metadata": metadata, "nbformat_minor": None}
    return files.fingerprint(json.dumps(authored, sort_keys=True).encode())
