"""The book of answers: nothing a reader answered is lost."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time

import pytest

from helpers.course import answers
from helpers.course.answers import AnswerBook


def test_a_workbook_keeps_answers_in_a_file_and_any_other_folder_in_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert AnswerBook.here().file is None
    assert AnswerBook.here().record("predictions", "q", {"answer": "4"}) == ""
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".course.json").write_text("{}")
    AnswerBook.here().record("predictions", "q", {"answer": "4"})
    assert AnswerBook.here().get("predictions", "q") == {"answer": "4"}
    assert sorted(path.name for path in tmp_path.iterdir()) == [".course.json", "answers.json"]


def test_an_answer_in_memory_is_there_until_the_kernel_stops():
    book = AnswerBook(None)
    book.record("exercises", "e", {"passed": True})
    assert book.get("exercises", "e") == {"passed": True}
    assert book.get("exercises", "other") is None


def test_a_folder_that_was_deleted_means_memory(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert AnswerBook.here().file is None


def test_two_notebooks_see_and_keep_each_other_s_answers(tmp_path):
    one, two = AnswerBook(tmp_path), AnswerBook(tmp_path)
    one.record("predictions", "a", {"answer": "1"})
    two.record("predictions", "b", {"answer": "2"})
    one.record("exercises", "c", {"passed": True})
    assert two.get("exercises", "c") == {"passed": True}
    held = json.loads((tmp_path / "answers.json").read_text())
    assert set(held["predictions"]) == {"a", "b"}


def test_the_newest_answer_to_one_question_wins(tmp_path):
    one, two = AnswerBook(tmp_path), AnswerBook(tmp_path)
    one.record("predictions", "a", {"answer": "old"})
    two.record("predictions", "a", {"answer": "new"})
    one.record("predictions", "b", {"answer": "x"})
    assert AnswerBook(tmp_path).get("predictions", "a") == {"answer": "new"}


WRITER = """
import sys
from pathlib import Path
from helpers.course.answers import AnswerBook
book = AnswerBook(Path(sys.argv[1]))
for number in range(25):
    assert book.record("predictions", f"{sys.argv[2]}-{number}", {"answer": "x"}) == ""
"""


def test_processes_that_write_at_the_same_time_lose_nothing(tmp_path):
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name]) for name in "ab"]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    assert len(json.loads((tmp_path / "answers.json").read_text())["predictions"]) == 50


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b"\xff\xfe", b'{"predictions": []}', b'{"exercises": {"e": 3}}', b"[" * 100_000]
)
def test_a_damaged_file_is_kept_beside_and_a_new_one_begins(tmp_path, damage):
    file = tmp_path / "answers.json"
    file.write_bytes(damage)
    book = AnswerBook(tmp_path)
    assert book.get("predictions", "a") is None
    notice = book.record("predictions", "a", {"answer": "4"})
    assert notice == "answers.json could not be read; it is kept as answers.damaged.json, and a new one begins."
    assert (tmp_path / "answers.damaged.json").read_bytes() == damage
    assert json.loads(file.read_text())["predictions"] == {"a": {"answer": "4"}}
    assert book.record("predictions", "b", {"answer": "5"}) == "", "it is told once"


def test_a_second_damaged_file_does_not_replace_the_first(tmp_path):
    for content in ("{1", "{2"):
        (tmp_path / "answers.json").write_text(content)
        AnswerBook(tmp_path).get("predictions", "a")
    assert (tmp_path / "answers.damaged.json").read_text() == "{1"
    assert (tmp_path / "answers.damaged-2.json").read_text() == "{2"


def test_answers_from_before_the_damage_are_written_again(tmp_path):
    book = AnswerBook(tmp_path)
    book.record("predictions", "a", {"answer": "1"})
    (tmp_path / "answers.json").write_text("{")
    book.record("predictions", "b", {"answer": "2"})
    assert set(json.loads((tmp_path / "answers.json").read_text())["predictions"]) == {"a", "b"}


def full_disk(*args, **kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_one_sentence_and_the_answer_is_written_when_there_is_room(tmp_path, monkeypatch):
    book = AnswerBook(tmp_path)
    book.record("predictions", "a", {"answer": "1"})
    before = (tmp_path / "answers.json").read_bytes()
    with monkeypatch.context() as disk:
        disk.setattr(answers.os, "fsync", full_disk)
        sentence = book.record("predictions", "b", {"answer": "2"})
    assert sentence == (
        "Your answer lives only until this kernel stops: answers.json could not be written: No space left on device."
    )
    assert (tmp_path / "answers.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["answers.json"], "nothing half-written is left"
    assert book.get("predictions", "b") == {"answer": "2"}
    assert book.record("predictions", "c", {"answer": "3"}) == ""
    assert set(json.loads((tmp_path / "answers.json").read_text())["predictions"]) == {"a", "b", "c"}


def test_a_folder_that_can_t_be_written_is_one_sentence(tmp_path, monkeypatch):
    def refused(*args, **kwargs):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    # not a real read-only folder: root may write there too
    monkeypatch.setattr(answers.os, "open", refused)
    sentence = AnswerBook(tmp_path).record("predictions", "a", {"answer": "1"})
    assert sentence.endswith("answers.json could not be written: Permission denied.")


def test_a_damaged_file_that_can_t_be_renamed_is_not_overwritten(tmp_path, monkeypatch):
    (tmp_path / "answers.json").write_text("{")
    monkeypatch.setattr(type(tmp_path), "rename", full_disk)
    book = AnswerBook(tmp_path)
    assert book.get("predictions", "a") is None
    assert "could not be written" in book.record("predictions", "a", {"answer": "1"})
    assert (tmp_path / "answers.json").read_text() == "{"


def test_a_lock_left_by_a_dead_kernel_is_removed(tmp_path):
    lock = tmp_path / ".answers.lock"
    lock.touch()
    old = time.time() - 60
    os.utime(lock, (old, old))
    assert AnswerBook(tmp_path).record("predictions", "a", {"answer": "1"}) == ""
    assert not lock.exists()
