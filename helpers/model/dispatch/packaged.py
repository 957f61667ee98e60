"""The files from which torch's own operators are generated: they lie in the wheel, in the package `torchgen`.

`native_functions.yaml` declares each operator, `derivatives.yaml` has a formula for many. Both are read as text and
cut into entries, which takes some milliseconds once; a full YAML load would take seconds.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

NATIVE = "native_functions.yaml"
DERIVATIVES = "derivatives.yaml"
_PLACES = {NATIVE: "ATen/native", DERIVATIVES: "autograd", "gen_variable_type.py": "autograd"}


@lru_cache(maxsize=4)
def _text(file: str) -> str:
    """Return a packaged file, or "" where this installation has none."""
    spec = find_spec("torchgen")  # finds the package without running it
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder, "packaged", _PLACES[file], file)
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return ""


def has_file(file: str) -> bool:
    """Say whether this installation has NATIVE or DERIVATIVES."""
    return bool(_text(file))


@lru_cache(maxsize=4)
def _entries(file: str) -> dict[str, str]:
    """Return each entry by the name of its operator, such as "add.Tensor", with what stands before the next entry."""
    parts = re.split(r"(?m)^(?=- )", _text(file))
    return {name: part for part in parts if (name := read_name(part))}


def find_entry(file: str, name: str) -> str:
    """Return the lines of the entry of an operator ("add.Tensor", without "aten::") in a file, or ""."""
    lines = _entries(file).get(name, "").splitlines()
    while lines and (not lines[-1].strip() or lines[-1].startswith("#")):
        lines.pop()  # a comment at the margin belongs to the next entry
    return "\n".join(lines)


def find_overloads(file: str, base: str) -> list[str]:
    """Return the lines of every entry whose operator has this name without the overload."""
    return [find_entry(file, name) for name in _entries(file) if name.partition(".")[0] == base]


def find_source(name: str) -> str:
    """Return the operator from whose entry this one was generated (its line `autogen` names it), or ""."""
    return _generated().get(name, "")


@lru_cache(maxsize=1)
def _generated() -> dict[str, str]:
    return {
        made: source
        for source, lines in _entries(NATIVE).items()
        for made in read_line(lines, "autogen").replace(",", " ").split()
    }


def read_name(entry: str) -> str:
    """Return the name of the operator that an entry is for, or "" for an entry of another kind."""
    match = re.match(r"- (?:func|name): *([\w.]+)\(", entry)
    return match[1] if match else ""


class Argument(NamedTuple):
    """One argument of a schema. `kind` is its type without alias annotations: "Tensor[]" for `Tensor(a!)[]`."""

    kind: str
    name: str
    has_default: bool


def read_arguments(schema: str) -> list[Argument]:
    """Return the arguments of a schema, or of the first line of an entry."""
    inside = re.sub(r"\(\w+!?(?: -> \*)?\)", "", schema.splitlines()[0]).partition("(")[2].rpartition(") ->")[0]
    inside = re.sub(r"=\[[^]]*\]", "=", inside)
    found = re.findall(r"(?:^|, )([^\s,]+) (\w+)(=?)", inside)
    return [Argument(kind, name, bool(default)) for kind, name, default in found]


def read_formulas(entry: str) -> dict[str, str]:
    """Return what an entry of DERIVATIVES says for each argument; where it has `dispatch:`, under Default."""
    per_key = re.search(r"(?m)^  dispatch:", entry)
    default = re.search(r"(?m)^    Default:.*\n((?:      .*\n?)*)", entry)
    lines = (default[1] if default else "") if per_key else entry
    names = {argument.name for argument in read_arguments(entry)}
    said = re.findall(r"(?m)^ +(\w[\w, ]*): *(\S.*)$", lines)
    return {name: text for keys, text in said for name in re.split(", *", keys) if name in names}


def read_differentiability(entry: str) -> list[bool]:
    """Return whether each result is differentiable, where an entry lists it; a condition counts as yes."""
    listed = read_line(entry, "output_differentiability").strip("[]")
    return [word.strip() != "False" for word in listed.split(",")] if listed else []


def read_line(entry: str, field: str) -> str:
    """Return what stands behind `field:` in an entry, without a comment, or ""."""
    match = re.search(rf"(?m)^  {field}: *([^#\n]*)", entry)
    return match[1].strip() if match else ""


def read_dispatch(entry: str) -> dict[str, str]:
    """Return the part `dispatch:` of an entry: the name of the C++ function for each key that it lists."""
    part = re.search(r"(?m)^  dispatch:.*\n((?:(?:    .*|#.*| *)(?:\n|\Z))+)", entry)
    lines = re.findall(r"(?m)^    (\w[\w, ]*): *(\w[\w:]*)", part[1] if part else "")
    return {key: function for keys, function in lines for key in keys.replace(",", " ").split()}


@lru_cache(maxsize=1)
def names_without_derivative() -> frozenset[str]:
    """Return the operators that torch's generator lists as needing no derivative, such as "argmax"."""
    listed = re.search(r"(?ms)^DONT_REQUIRE_DERIVATIVE = \{$(.*?)^\}", _text("gen_variable_type.py"))
    return frozenset(re.findall(r'"(\w+)"', re.sub("#.*", "", listed[1]))) if listed else frozenset()
