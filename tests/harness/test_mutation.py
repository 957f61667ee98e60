"""Every stored output is altered in a copy: exactly the altered cells must fail."""

from __future__ import annotations

from tools.nbharness.build import code, display, error, result, stderr, stdout, write_notebook
from tools.nbharness.mutation import parts, unguarded

BLINDED = "(Triggered internally at /a/long/path/in/the/source/of/torch.cpp)"  # nbval-sanitize.cfg replaces it


def test_every_stored_output_is_guarded(notebook, tmp_path):
    assert unguarded(notebook, tmp_path) == []


def test_all_kinds_of_output_are_guarded_and_a_blinded_one_is_found(tmp_path):
    shown = "display({'text/html': '<b>1</b>', 'text/plain': '1'}, raw=True)"
    recorded = "display({'application/json': {'status': 'open'}}, raw=True)"
    record = {"status": "open"}
    path = write_notebook(
        tmp_path / "kinds.ipynb",
        code(
            "import sys\nprint('a')\nprint('b', file=sys.stderr)\n3",
            stdout("a\n"),
            stderr("b\n"),
            result("3"),
            id="all",
        ),
        code(shown, display(text_html="<b>1</b>", text_plain="1"), id="shown"),
        code(recorded, display(application_json=record), id="record"),
        code("1 / 0", error("ZeroDivisionError", "division by zero"), id="raises", tags=("raises-exception",)),
        code(f"print({BLINDED!r})", stdout(BLINDED + "\n"), id="blinded"),
        code("x = 1", id="silent"),
    )
    found = unguarded(path, tmp_path_copy(tmp_path))
    assert found == ["cell blinded: text of output 1 was altered, and the run said same."]


def test_each_mime_type_of_each_output_is_a_part():
    cell = code("x", stdout("a"), result("3", text_html="<b>3</b>", image_png="aGk="), id="x")
    assert parts(cell) == [(0, "text"), (1, "text/plain"), (1, "text/html")]


def tmp_path_copy(folder):
    """Return a folder for the altered copies beside the notebook."""
    (folder / "copies").mkdir()
    return folder / "copies"
