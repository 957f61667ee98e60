"""Links inside the course lead somewhere: to a heading of the same notebook, or to a file that exists."""

import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def broken_links(text: str, folder: Path) -> list[str]:
    """Return the targets in Markdown that are no heading of it (`#A-heading`) and no file beside it."""
    headings = {heading.strip().replace(" ", "-") for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}
    targets = [target for target in LINK.findall(text) if not target.startswith(("http:", "https:"))]
    return [
        target
        for target in targets
        if not (target[1:] in headings if target.startswith("#") else (folder / target.split("#")[0]).exists())
    ]


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_every_link_of_a_notebook_leads_somewhere(path):
    cells = nbformat.read(path, as_version=4).cells
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert broken_links(text, path.parent) == []


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_every_link_of_a_document_leads_somewhere(name):
    assert broken_links((ROOT / name).read_text(encoding="utf-8"), ROOT) == []


def test_a_broken_link_is_seen():
    assert broken_links("# A b\n[x](#A-b) [y](#a-b) [z](no.md)", ROOT) == ["#a-b", "no.md"]
