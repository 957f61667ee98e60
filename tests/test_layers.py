"""Imports go one way: model ← draw ← explore ← course. So a reader can begin at the bottom."""

import ast
from pathlib import Path

import pytest

HELPERS = Path(__file__).resolve().parents[1] / "helpers"
MAY_IMPORT = {
    "model": {"model"},
    "draw": {"model", "draw"},
    "explore": {"model", "draw", "explore"},
    "course": {"model", "draw", "explore", "course"},
}


def layers_imported(source: str, layer: str) -> set[str]:
    """Return the layers that a module of `layer` imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level:
            found.add(layer)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("helpers."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("helpers.")}
    return found


@pytest.mark.parametrize("path", sorted(HELPERS.glob("*/**/*.py")), ids=lambda path: str(path.relative_to(HELPERS)))
def test_a_module_imports_only_from_its_own_layer_and_those_below(path):
    layer = path.relative_to(HELPERS).parts[0]
    assert layers_imported(path.read_text(encoding="utf-8"), layer) <= MAY_IMPORT[layer]


def test_an_import_upward_is_seen():
    assert layers_imported("def f():\n    from helpers.draw.svg import rect", "model") == {"draw"}
    assert layers_imported("import helpers.explore.panel", "draw") == {"explore"}
