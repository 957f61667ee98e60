"""Operators in C++: built once, found again, and a plain sentence where they can't be built."""

from __future__ import annotations

import subprocess
import sys

import nbformat
import pytest
import torch

from helpers.course import building
from helpers.course.building import build_operators, can_build, compiler_lack
from helpers.model.finding import HelperError
from tools.nbharness.build import code, stdout, write_notebook
from tools.nbharness.run import run_notebooks

SOURCE = """
#include <torch/library.h>

at::Tensor same(const at::Tensor& x) { return x; }

TORCH_LIBRARY(SPACE, library) { library.def("same(Tensor(a) x) -> Tensor(a)"); }
TORCH_LIBRARY_IMPL(SPACE, CPU, library) { library.impl("same", &same); }
"""
own_folder = building._folder
needs_compiler = pytest.mark.skipif(bool(compiler_lack()), reason=compiler_lack())


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(building, "_folder", lambda: tmp_path)
    monkeypatch.setattr(building, "_failed", "")
    monkeypatch.setattr(building, "_builder", "")
    monkeypatch.setattr(building, "_asking", "")
    monkeypatch.setattr(building, "_said", set())


@needs_compiler
def test_a_library_is_compiled_once_and_then_found(monkeypatch, capsys, tmp_path):
    source = SOURCE.replace("SPACE", "course_test_found")
    first, shown = build_operators(source), capsys.readouterr().out
    assert torch.equal(torch.ops.course_test_found.same(torch.ones(2)), torch.ones(2))
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: pytest.fail("compiled again"))
    assert build_operators(source) == first
    assert capsys.readouterr().out == shown, "the same line, whether it is compiled or found"
    assert [path.name for path in tmp_path.iterdir()] == [first.name], "nothing is left beside the library"
    with pytest.raises(HelperError, match="this process holds other operators of the name course_test_found"):
        build_operators(source + "// changed\n")


@needs_compiler
def test_what_the_compiler_refuses_is_one_sentence_and_the_next_cell_replays(capsys):
    source = SOURCE.replace("SPACE", "course_test_refused").replace("return x;", "return y;")
    assert build_operators(source) is None
    out = capsys.readouterr().out
    assert "refused the source: line 4: " in out
    assert "Traceback" not in out
    assert not can_build("some-cell")
    assert build_operators(source.replace("return y;", "return x;")) is not None
    assert can_build("some-cell")


@pytest.mark.parametrize("source", [None, 3, "", "int main() {}", torch.ones(2)])
def test_a_source_without_operators_is_refused_in_one_sentence(source):
    with pytest.raises(HelperError, match="a source with a block TORCH_LIBRARY"):
        build_operators(source)


def test_without_a_compiler_a_cell_shows_what_it_shows_in_the_published_chapter(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(building, "COURSE_NOTEBOOKS", tmp_path)
    write_notebook(tmp_path / "99_small.ipynb", code("print(1)", stdout("as published\n"), id="some-cell"))
    assert not can_build("some-cell")
    out = capsys.readouterr().out
    assert "There is no C++ compiler here." in out
    assert "install" in out
    assert "as published\n" in out
    assert not can_build("some-cell")
    assert "install" not in capsys.readouterr().out, "the remedy is told once"
    with pytest.raises(HelperError, match="There is no C\\+\\+ compiler here"):
        build_operators(SOURCE)


def test_a_cell_in_cpp_is_not_compared_without_a_compiler(tmp_path):
    source = 'from helpers.course.building import can_build\nif can_build("some-cell"):\n    print("built")'
    path = write_notebook(
        tmp_path / "99_small.ipynb", code(source, stdout("built\n"), id="some-cell", tags=("requires-compiler",))
    )
    run = run_notebooks([path], environment={"PATH": "", "CXX": ""})[path.resolve()][0]
    assert (run.outcome, "no C++ compiler" in run.sentence) == ("not-compared", True)
    assert nbformat.read(path, as_version=4).cells[0].outputs[0].text == "built\n"


def test_the_course_asks_the_same_compiler_question_everywhere(monkeypatch):
    monkeypatch.setattr(sys.modules["platform"], "system", lambda: "Windows")
    assert compiler_lack() == "The course compiles its operators on Linux and macOS only."


def test_a_library_is_kept_in_no_folder_of_somebody_else(monkeypatch, tmp_path):
    monkeypatch.setattr(building, "COURSE_NOTEBOOKS", tmp_path / "notebooks")
    assert own_folder() == tmp_path / ".course" / "operators"
    monkeypatch.setattr("os.getuid", lambda: 12345)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    with pytest.raises(HelperError, match="no folder of yours can be written to"):
        own_folder()


@needs_compiler
@pytest.mark.parametrize(
    ("space", "old", "new", "words"),
    [
        ("type", "same(Tensor(a) x)", "same(tensor x)", "unknown type specifier, in same(tensor x) -> Tensor(a)"),
        ("fit", "Tensor(a) x)", "Tensor(a) x, int n)", "doesn't match the expected function schema"),
        ("link", "return x;", "void f(); f(); return x;", "refused the source: undefined reference"),
        ("float", "const at::Tensor& x)", "const at::Tensor& x, float s)", "float is not supported"),
    ],
)
def test_what_torch_would_die_of_is_one_sentence_and_the_cell_may_try_again(capsys, tmp_path, space, old, new, words):
    good = SOURCE.replace("SPACE", f"course_test_{space}")
    assert can_build("the-build")
    assert build_operators(good.replace(old, new)) is None
    out = capsys.readouterr().out
    assert words in out
    assert str(tmp_path) not in out
    assert list(tmp_path.iterdir()) == [], "what can't be loaded is not kept"
    assert not can_build("another-cell")
    assert can_build("the-build"), "the cell that builds may try again"
    if space == "type":
        assert build_operators(good) is not None
        assert can_build("another-cell")


@needs_compiler
def test_a_namespace_that_was_claimed_from_python_is_refused_before_it_ends_the_process():
    library = torch.library.Library("course_test_claimed", "DEF")
    with pytest.raises(HelperError, match="other operators of the name course_test_claimed"):
        build_operators(SOURCE.replace("SPACE", "course_test_claimed"))
    del library


@needs_compiler
def test_a_damaged_library_is_deleted_and_made_again():
    source = SOURCE.replace("SPACE", "course_test_damaged")
    made = subprocess.run(
        [sys.executable, "-c", f"from helpers.course import building\nbuilding._folder = lambda: {building._folder()!r}"
         f"\nprint(building.build_operators({source!r}))".replace("PosixPath", "__import__('pathlib').Path")],
        capture_output=True, text=True, check=True,
    ).stdout.split()[-1]  # fmt: skip
    with open(made, "wb") as file:
        file.write(b"no library")
    with pytest.raises(HelperError, match="was damaged and is deleted: run the cell again"):
        build_operators(source)
    assert build_operators(source) is not None
