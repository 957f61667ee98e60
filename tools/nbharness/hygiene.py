"""Rules for stored notebooks that can be checked without running them. Each fault is one sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import nbformat

from .normalise import IMAGES, WIDGET_VIEW, normalised, notebook_bytes

KNOWN_TAGS = {
    "exercise",
    "solution",
    "raises-exception",
    "per-device",
    "requires-cuda",
    "requires-compiler",
    "ref-torch",
}
CLAIM_TAG = re.compile(r"claim-\d+(\.\d+)?[a-z]?$")
WORD_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*$")
RANDOM_ID = re.compile(r"[0-9a-f]{6,}$|[0-9a-f]{8}-")
FIRST_CELL = re.compile(r"import torch\nfrom helpers import (\([^)]+\)|[^\n()]+)\n+device = begin\(\)$")
CELL_BYTES, NOTEBOOK_BYTES = 200_000, 1_500_000

BANNED_CALLS = {
    r"\binteract(ive|_manual)?\(": "`interact` shows nothing that can be compared",
    r"\bOutput\(": "an `Output` widget shows nothing that can be compared",
    r"\bclear_output\b|\bupdate_display\b|\bdisplay_id\b": "a changed display can't be compared",
    r"\bplt\.|\bpyplot\b": "drawing belongs to helpers",
    r"\bsys\.path\b": "the course is installed; `sys.path` is not needed",
    r"(?m)^\s*[%!]": "magics and shell commands differ between machines",
    r"(?<![\w.])id\(": "`id()` differs in every run",
    r"\btime\.|\btimeit\b|\bperf_counter\b": "a timing differs in every run; let a helper draw it",
    r"(?<![\w.])input\(": "Run All can't answer `input()`",
    r"#\s*(NBVAL_|PYTEST_VALIDATE)": "every cell is compared",
}
BANNED_OUTPUT = {
    r"\b0x[0-9a-fA-F]{6,}": "a memory address",
    r"(?<![\d.])[1-9]\d{12,14}(?![\d.])": "what looks like a memory address",
    r"/home/|/Users/|/root/|/work/|/tmp/|[A-Z]:\\Users|site-packages": "a path of one machine",
    r"(?i)\b(torch|python|numpy|cuda|jupyterlab|driver)[ =:v]{1,3}\d+\.\d+": "a version",
    r"\d\s?(ms|µs|μs|ns)\b|\d\.\d+\s?s\b": "a timing",
    r"\r": "a carriage return, before which nothing is compared",
}
LABEL = re.compile(r"Recorded on [^<\n]*")
SOMETHING_TO_DO = re.compile(r"\bexplore_\w+\(|\bdrill\(|\breport_environment\(")


def faults(path: Path) -> list[str]:
    """Return what is wrong with a stored notebook; nothing is run."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        # nbformat gives a second cell of one id a new id while it reads
        ids = [cell.get("id") for cell in raw["cells"]]
        if twice := sorted({str(name) for name in ids if ids.count(name) > 1}):
            return [f"the id {name} is used twice." for name in twice]
        notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=nbformat.NO_CONVERT)
        nbformat.validate(notebook)
    except (nbformat.ValidationError, ValueError, KeyError) as error:
        return [f"{path.name} is not a valid notebook: {str(error)[:200]}"]
    if (notebook.nbformat, notebook.nbformat_minor) != (4, 5):
        return [f"{path.name} has format {notebook.nbformat}.{notebook.nbformat_minor}; 4.5 is wanted."]
    found = [*_structure(notebook), *_first_cell(notebook), *_sections(notebook)]
    for cell in notebook.cells:
        rules = [_identity, _pictures] + ([_source, _device, _outputs] if cell.cell_type == "code" else [])
        found += [f"cell {cell.id}: {fault}" for rule in rules for fault in rule(cell)]
    if not found and path.read_bytes() != notebook_bytes(normalised(notebook)):
        found.append(f"{path.name} is not in the stored form: run make refresh.")
    if path.stat().st_size > NOTEBOOK_BYTES:
        found.append(f"{path.name} has {path.stat().st_size} bytes; {NOTEBOOK_BYTES} are the limit.")
    return found


def _structure(notebook) -> Iterator[str]:
    ids = [cell.id for cell in notebook.cells]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    counts = [cell.execution_count for cell in code]
    if counts != list(range(1, len(code) + 1)):
        yield "execution counts are not 1, 2, 3 …: run make refresh."
    kinds = [cell.cell_type for cell in notebook.cells]
    for index in range(len(kinds) - 2):
        if kinds[index : index + 3] == ["code"] * 3:
            yield f"cells {', '.join(ids[index : index + 3])} are three code cells in a row."


def _first_cell(notebook) -> Iterator[str]:
    first = next((cell for cell in notebook.cells if cell.cell_type == "code"), None)
    if first is None or not FIRST_CELL.match(first.source):
        yield "the first code cell must be `import torch`, `from helpers import …`, `device = begin()`."
    elif first.outputs:
        yield "the first code cell shows something; it must be silent."


def _sections(notebook) -> Iterator[str]:
    """One title; headings without gaps; each section that runs code ends in something to do."""
    level, titles, section, last = 0, 0, "", None
    for cell in [*notebook.cells, None]:
        headings = _headings(cell.source) if cell is not None and cell.cell_type == "markdown" else []
        for depth, heading in headings:
            titles += depth == 1
            if depth > level + 1:
                yield f"the heading {heading!r} skips a level."
            level = depth
            if depth <= 2:
                yield from _ends_well(section, last)
                section, last = (heading, None) if depth == 2 else ("", None)
        if cell is None:
            yield from _ends_well(section, last)
        elif cell.cell_type == "code":
            last = cell
    if titles != 1 or not notebook.cells or not notebook.cells[0].source.startswith("# "):
        yield "the first cell must hold the only title (`# …`)."


def _ends_well(section: str, last) -> Iterator[str]:
    if not section or section.startswith("Recap") or last is None or "exercise" in last.metadata.get("tags", []):
        return
    if not SOMETHING_TO_DO.search(last.source):
        yield f"the section {section!r} must end in an explorer or an exercise; its last code cell is {last.id}."


def _headings(source: str) -> Iterator[tuple[int, str]]:
    fenced = False
    for line in source.splitlines():
        fenced ^= line.startswith("```")
        if not fenced and (match := re.match(r"(#{1,6}) (.+)", line)):
            yield len(match[1]), match[2]


def _identity(cell) -> Iterator[str]:
    if not WORD_ID.match(cell.id) or RANDOM_ID.match(cell.id):
        yield "its id must be words, such as `transpose-shares`."
    for tag in cell.metadata.get("tags", []):
        if tag not in KNOWN_TAGS and not CLAIM_TAG.match(tag):
            yield f"the tag {tag!r} is not known."


def _pictures(cell) -> Iterator[str]:
    texts = [cell.source] if cell.cell_type == "markdown" else []
    texts += [output.data.get("text/html", "") for output in cell.get("outputs", []) if "data" in output]
    for text in texts:
        if "<svg" in text.split("data:image/svg+xml")[0]:
            yield "an inline <svg> vanishes in a notebook that is not trusted: show it as an <img>."
        if re.search(r"!\[\s*\]\(", text) or any(not alt.strip() for alt in _alts(text)):
            yield "a figure has no alternative text."


def _alts(html: str) -> list[str]:
    found = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag == "img":
                found.append(dict(attrs).get("alt") or "")

    Reader().feed(html)
    return found


def _source(cell) -> Iterator[str]:
    if not cell.source.strip():
        yield "it is empty."
    for pattern, reason in BANNED_CALLS.items():
        if match := re.search(pattern, cell.source):
            yield f"{match[0].strip()!r} in the code: {reason}."


def _device(cell) -> Iterator[str]:
    for tag, function in (("requires-cuda", "on_cuda"), ("requires-compiler", "can_build")):
        tagged = tag in cell.metadata.get("tags", [])
        asked = re.findall(rf"\b{function}\((.*?)\)", cell.source)
        if tagged != bool(asked):
            yield f"a cell calls {function}(…) exactly when it is tagged `{tag}`."
        for argument in asked:
            if argument.strip("\"'") != cell.id:
                yield f"{function}({argument}) must name this cell: {function}({cell.id!r})."


def _outputs(cell) -> Iterator[str]:
    raises = "raises-exception" in cell.metadata.get("tags", [])
    if raises != any(output.output_type == "error" for output in cell.outputs):
        yield "a cell shows an error exactly when it is tagged `raises-exception`."
    for output in cell.outputs:
        data = output.get("data", {})
        if WIDGET_VIEW in data:
            yield "a stored widget view is blank without its kernel: run make refresh."
        if "image/svg+xml" in data:
            yield "image/svg+xml is hidden in a notebook that is not trusted: show it as an <img>."
        if set(data) & set(IMAGES) and data.get("text/plain", "<Figure").startswith("<Figure"):
            yield "an image is never compared: give it a text/plain sentence built from its data."
    texts = list(output_texts(cell))
    for pattern, what in BANNED_OUTPUT.items():
        match = next((match for text in texts if (match := re.search(pattern, text))), None)
        if match:
            yield f"its output holds {what} ({match[0]!r}), which differs between machines or runs."
    if sum(len(text) for text in texts) > CELL_BYTES:
        yield f"its outputs are longer than {CELL_BYTES} characters."


def output_texts(cell) -> Iterator[str]:
    """Return all texts of a cell's outputs; pictures decoded, images and the label of a recording left out."""
    for output in cell.outputs:
        values = [output.get(key, "") for key in ("text", "ename", "evalue")] + output.get("traceback", [])
        values += [value for mime, value in output.get("data", {}).items() if mime not in IMAGES]
        for value in values:
            text = value if isinstance(value, str) else repr(value)
            yield LABEL.sub("", unquote(text) if "data:image/svg+xml" in text else text)
