"""The workbook: what a reader wrote is never lost, and everything else stays up to date."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import files, workbook, written

STORAGE, START = "01_storage.ipynb", "00_start.ipynb"


def test_the_first_sync_delivers_every_notebook_and_reference(tmp_path: Path, new_course) -> None:
    course = new_course(tmp_path)
    course.publish(course.old | {".ipynb_checkpoints/x.ipynb": b"x", "__pycache__/x.pyc": b"x"})
    report = course.sync()
    assert course.content() == course.old
    assert sorted(report.added) == sorted(course.old)
    assert course.said(report) == []
    manifest = json.loads(course.file(".course.json").read_bytes())
    assert manifest == {name: written.mark(name, data) for name, data in course.old.items()}


def test_a_second_sync_writes_nothing(course, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a write")

    for name in ("write_temporary", "replace_file", "move", "place"):
        monkeypatch.setattr(files, name, refuse)
    assert course.sync() == workbook.Report()


def test_an_update_replaces_what_was_not_edited_and_brings_new_chapters(course) -> None:
    course.publish(course.new)
    report = course.sync()
    assert course.content() == course.new
    assert (report.updated, report.added) == ([STORAGE], ["02_autograd.ipynb"])
    assert course.said(report) == [f"Updated in workbook/, where you had changed nothing: {STORAGE}."]
    course.sync()
    assert not course.file(workbook.ASIDE).exists(), "the old version is gone once nobody saved to it"


def opened(notebook: dict) -> None:
    """What JupyterLab writes into a notebook that somebody opens and looks at."""
    notebook["metadata"]["language_info"] |= {"version": "3.11.7", "mimetype": "text/x-python"}
    notebook["metadata"]["kernelspec"]["display_name"] = "Python 3 (ipykernel)"
    notebook["metadata"]["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {}}}


def test_a_chapter_that_was_only_opened_is_not_an_edited_one(course) -> None:
    change(course.file(STORAGE), opened)
    before = course.content()
    assert course.said(course.sync()) == []
    assert course.content() == before
    assert course.reset("1").fresh == [STORAGE, "refs/01_storage.cuda.json"]
    assert course.content() == before
    course.publish(course.new)
    assert course.said(course.sync()) == [f"Updated in workbook/, where you had changed nothing: {STORAGE}."]
    assert course.content() == course.new


def test_a_deleted_chapter_comes_back_fresh(course) -> None:
    course.file(STORAGE).unlink()
    course.sync()
    assert course.content() == course.old


def link_to_a_copy(path: Path) -> None:
    copy = path.with_name("copy.ipynb")
    copy.unlink(missing_ok=True)
    path.rename(copy)
    path.symlink_to("copy.ipynb")


def change(path: Path, edit: Callable[[dict], object]) -> None:
    """Save a notebook with a change, in JupyterLab's own way of writing."""
    notebook = json.loads(path.read_bytes())
    edit(notebook)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def ran(notebook: dict) -> None:
    notebook["cells"][0] |= {
        "execution_count": 1,
        "outputs": [{"output_type": "stream", "name": "stdout", "text": "1"}],
    }


EDITS = {
    "one letter more": lambda path: path.write_bytes(path.read_bytes().replace(b'["1"]', b'["1 "]')),
    "a cell that ran": lambda path: change(path, ran),
    "a tag": lambda path: change(path, lambda it: it["cells"][0]["metadata"].update(tags=["mine"])),
    "a cell taken out": lambda path: change(path, lambda it: it["cells"].clear()),
    "another kernel": lambda path: change(path, lambda it: it["metadata"]["kernelspec"].update(name="mine")),
    "a setting of the notebook": lambda path: change(path, lambda it: it["metadata"].update(author="me")),
    "no notebook any more": lambda path: path.write_bytes(b"[1, 2]"),
    "nested beyond reading": lambda path: path.write_bytes(b"[" * 100_000),
    "half saved": lambda path: path.write_bytes(path.read_bytes()[:5]),
    "empty": lambda path: path.write_bytes(b""),
    "a folder": lambda path: (path.unlink(), path.mkdir(), (path / "note.txt").write_text("mine")),
    "a link": lambda path: (path.unlink(), path.symlink_to("elsewhere.ipynb")),
    "a link to the course's own text": link_to_a_copy,
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_an_edited_file_is_not_touched_and_the_reader_learns_of_the_new_version(course, edit) -> None:
    edit(course.file(STORAGE))
    before, link = course.content(), course.file(STORAGE).is_symlink()
    assert course.said(course.sync()) == [], "no newer version, nothing to say"
    course.publish(course.new)
    for _ in range(2):
        assert course.said(course.sync()) == [
            f"You changed workbook/{STORAGE}, so it stays as it is; the course has a newer version: "
            "`make reset CHAPTER=01` brings it and keeps yours beside it."
        ]
    assert course.content() == before | {"02_autograd.ipynb": course.new["02_autograd.ipynb"]}
    assert course.file(STORAGE).is_symlink() == link


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_reset_gives_a_fresh_chapter_and_keeps_every_earlier_one_beside_it(course, edit) -> None:
    course.file("answers.json").write_text('{"q": 4}')
    for expected in ("01_storage.mine.ipynb", "01_storage.mine-2.ipynb", "01_storage.mine-3.ipynb"):
        edit(course.file(STORAGE))
        before = set(course.content().values())
        report = course.reset("01")
        assert report.kept_as == {STORAGE: expected}
        assert course.said(report)[0] == f"workbook/{STORAGE} is fresh; yours is kept as workbook/{expected}."
        assert os.path.lexists(course.file(expected))
        assert course.file(STORAGE).read_bytes() == course.old[STORAGE]
        assert not course.file(STORAGE).is_symlink()
        assert before <= set(course.content().values())
    assert course.file("answers.json").read_text() == '{"q": 4}'


@pytest.mark.parametrize("name", ["1", "01", " 01 ", "01_storage", STORAGE])
def test_reset_understands_every_way_to_name_a_chapter(course, name: str) -> None:
    course.file(STORAGE).write_bytes(b"mine")
    course.file(START).write_bytes(b"mine too")
    assert course.reset(name).kept_as == {STORAGE: "01_storage.mine.ipynb"}
    assert course.file(START).read_bytes() == b"mine too"


@pytest.mark.parametrize(
    ("name", "start"), [("7", "There is no chapter 7:"), ("", "Say which chapter to reset:"), ("../x", "There is no")]
)
def test_reset_of_an_unknown_chapter_lists_those_there_are(course, name: str, start: str) -> None:
    with pytest.raises(workbook.UnknownChapterError, match=start) as caught:
        course.reset(name)
    assert str(caught.value).endswith("there are 00 (00_start), 01 (01_storage).")


def test_reset_of_an_unedited_chapter_keeps_no_useless_copy(course) -> None:
    said = course.said(course.reset("01"))
    assert f"workbook/{STORAGE} is already the course's own version: nothing to reset." in said
    assert course.content() == course.old
    course.publish(course.new)
    course.reset("01")
    assert course.file(STORAGE).read_bytes() == course.new[STORAGE]
    assert not list(course.workbook.glob("*.mine*"))


MANIFESTS = {
    "missing": None,
    "empty": b"",
    "half": b'{"01_st',
    "no object": b"[1]",
    "no text": b'{"01_storage.ipynb": 3}',
    "binary": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=MANIFESTS.keys())
def test_without_a_readable_manifest_every_differing_file_counts_as_edited(course, manifest: bytes | None) -> None:
    path = course.file(workbook.MANIFEST)
    path.unlink() if manifest is None else path.write_bytes(manifest)
    course.publish(course.new)
    assert course.sync().newer == [STORAGE]
    assert course.file(STORAGE).read_bytes() == course.old[STORAGE]
    assert set(json.loads(path.read_bytes())) == set(course.new) - {STORAGE}


def test_a_folder_that_links_out_of_the_workbook_is_the_readers(tmp_path: Path, course) -> None:
    course.file("refs").rename(tmp_path / "refs")
    course.file("refs").symlink_to(tmp_path / "refs")
    course.publish(course.new | {"refs/01_storage.cuda.json": b"{1}"})
    assert "refs/01_storage.cuda.json" in course.sync().newer
    assert (tmp_path / "refs" / "01_storage.cuda.json").read_bytes() == b"{}"


def test_a_file_of_the_readers_in_place_of_a_folder_stays(course) -> None:
    shutil.rmtree(course.file("refs"))
    course.file("refs").write_text("mine")
    course.publish(course.new | {"refs/01_storage.cuda.json": b"{1}"})
    assert "refs/01_storage.cuda.json" in course.sync().newer
    assert course.file("refs").read_text() == "mine"
    assert course.file(STORAGE).read_bytes() == course.new[STORAGE]
    report = course.reset("01")
    assert [name for name, _ in report.failed] == ["refs/01_storage.cuda.json"]
    assert course.file("refs").read_text() == "mine"


def test_a_save_at_the_moment_of_the_update_wins(course, monkeypatch: pytest.MonkeyPatch) -> None:
    original = files.move_to_free_name

    def save_first(source: Path, names):
        if source.name == STORAGE:
            source.write_bytes(b"saved just now")
        return original(source, names)

    course.publish(course.new)
    with monkeypatch.context() as patch:
        patch.setattr(files, "move_to_free_name", save_first)
        report = course.sync()
    assert [name for name, _ in report.failed] == [STORAGE]
    assert course.file(STORAGE).read_bytes() == b"saved just now"
    assert course.sync().newer == [STORAGE]


def test_a_file_that_the_reader_makes_at_the_moment_of_the_delivery_wins(
    course, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = files.write_temporary

    def make_first(folder: Path, data: bytes) -> Path:
        temporary = original(folder, data)
        if data == course.new["02_autograd.ipynb"]:
            course.file("02_autograd.ipynb").write_bytes(b"made just now")
        return temporary

    course.publish(course.new)
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_temporary", make_first)
        report = course.sync()
    assert [name for name, _ in report.failed] == ["02_autograd.ipynb"]
    assert course.file("02_autograd.ipynb").read_bytes() == b"made just now"
    assert not list(course.workbook.glob(f"{files.TEMPORARY}*"))


def test_every_file_is_on_the_disk_before_it_gets_its_name(course, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    for name in ("fsync", "link", "replace"):
        original = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, name=name, original=original: (steps.append(name), original(*a)))
    course.publish(course.new)
    course.sync()
    assert steps == ["fsync", "link"] * 2 + ["fsync", "replace"]


def test_a_save_into_the_replaced_file_is_brought_back_at_the_next_sync(course) -> None:
    with course.file(STORAGE).open("r+b") as half_open:  # an editor that holds the file while the update comes
        course.publish(course.new)
        course.sync()
        half_open.write(b"written late")
    assert course.sync().brought_back == ["01_storage.mine.ipynb"]
    assert course.file("01_storage.mine.ipynb").read_bytes().startswith(b"written late")
    assert course.file(STORAGE).read_bytes() == course.new[STORAGE]


def test_a_disk_without_hard_links_still_works(course, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(os, "link", no_links)
    course.file(START).write_bytes(b"mine")
    course.publish(course.new)
    course.sync()
    course.reset("0")
    assert course.content() == course.new | {"00_start.mine.ipynb": b"mine"}


def test_the_workbook_itself_may_be_a_link_to_another_disk(tmp_path: Path, new_course) -> None:
    (tmp_path / "other disk").mkdir()
    (tmp_path / "workbook").symlink_to(tmp_path / "other disk")
    course = new_course(tmp_path)
    course.sync()
    assert course.content() == course.old
