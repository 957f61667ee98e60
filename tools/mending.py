"""Mend an environment: packages that a killed run left half installed, and a folder that was moved."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path


def mend(site: Path) -> list[str]:
    """Make pip see packages that a killed run left half installed; return their names.

    pip takes a package for installed as soon as its `.dist-info` folder is there. It is whole only
    if its RECORD, which pip writes last, is there and every file in it has the recorded size.
    """
    broken = []
    for folder in sorted(site.glob("*.dist-info")):
        if not _whole(site, folder):
            broken.append(folder.name)
            shutil.rmtree(folder)
    for leftover in site.glob("~*"):  # what pip had moved out of the way while it replaced a package
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    return broken


def _whole(site: Path, folder: Path) -> bool:
    try:
        rows = list(csv.reader((folder / "RECORD").read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError):
        return False
    if not any(row and row[0].endswith(".dist-info/INSTALLER") for row in rows):
        return False
    for row in rows:
        if len(row) == 3 and row[2]:
            try:
                size = (site / row[0]).stat().st_size
            except OSError:
                return False
            if size != int(row[2]):
                return False
    return True


def correct_scripts(folder: Path, old: str, new: str) -> None:
    """Let the commands in a moved environment's `bin` start the Python at its new place.

    Their first line names it. A path with a space, or a long one, cannot stand there: pip then
    writes a line for the shell, and so does this.
    """
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.is_symlink() or not path.is_file():
            continue
        first, _, rest = path.read_bytes().partition(b"\n")
        if not first.startswith(b"#!") or old.encode() not in first + rest.partition(b"\n")[0]:
            continue
        if first == b"#!/bin/sh":
            path.write_bytes(first + b"\n" + rest.replace(old.encode(), new.encode(), 1))
            continue
        python = first[2:].replace(old.encode(), new.encode(), 1)
        simple = b" " not in python and len(python) < 125
        shell = b"#!/bin/sh\n'''exec' \"" + python + b'" "$0" "$@"\n\' \'\'\''
        path.write_bytes((b"#!" + python if simple else shell) + b"\n" + rest)
