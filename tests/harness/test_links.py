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


def unready(text: str, ready: set[int]) -> list[str]:
    """Return what is not so: chapters that have no notebook yet are said to be in preparation, and no others.

    In a sentence it is "chapter 2 (in preparation)"; for a table of chapters one line: "In preparation: chapters 2
    and 5."
    """
    found = []
    text = text.replace("In preparation: chapter ", "In preparation: chapters ")  # the line may name one only
    for number, said in re.findall(r"\b[Cc]hapter (\d)\b( \(in preparation\))?", text):
        if (int(number) in ready) == bool(said):
            found.append(f"chapter {number}{said}")
    listed = re.search(r"^In preparation: (.+)\.$", text, re.MULTILINE)
    named = {int(n) for n in re.findall(r"\d", listed[1])} if listed else set()
    table = {int(n) for row in re.findall(r"\| ([\d, ]+) \|$", text, re.MULTILINE) for n in re.findall(r"\d", row)}
    found += [f"In preparation: {n}" for n in sorted(named & ready)]
    return found + [f"not in preparation: {n}" for n in sorted(table - ready - named)]


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_chapter_is_in_preparation_exactly_until_its_notebook_is_there(path):
    """A new notebook makes this fail: take the chapter out of the words "in preparation" of the notebooks before it."""
    ready = {int(found.name[:2]) for found in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")}
    cells = nbformat.read(path, as_version=4).cells
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert unready(text, ready) == []


def test_a_chapter_that_is_not_there_and_one_that_is_are_told_apart():
    text = "Chapter 2 (in preparation) and chapter 5.\n\n| you see | chapter |\n|---|---|\n| x | 2, 5 |\n| y | 6 |\n\n"
    line = "In preparation: chapters 2 and 6."
    assert unready(text + line, {0, 1, 5}) == []
    assert unready(text + line, {0, 1}) == ["chapter 5", "not in preparation: 5"]
    assert unready(text + line, {0, 1, 2, 5}) == ["chapter 2 (in preparation)", "In preparation: 2"]


def test_a_broken_link_is_seen():
    assert broken_links("# A b\n[x](#A-b) [y](#a-b) [z](no.md)", ROOT) == ["#a-b", "no.md"]
