"""The workbook on a disk that fails: full, read-only, not ours, or stopped at any step."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tools import files, workbook

needs_own_mounts = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="only root on Linux can mount a small disk",
)

RUN = """
import json, os, sys
from pathlib import Path
from tools import workbook
folder, user = Path(sys.argv[1]), sys.argv[2]
if user:
    os.setuid(int(user))
reports = [workbook.sync(folder / "notebooks", folder / "workbook"),
           workbook.reset(folder / "notebooks", folder / "workbook", "00")]
how_to = lambda verb, chapter: f"make {verb} CHAPTER={chapter}"
said = [sentence for report in reports for sentence in report.sentences(how_to)]
found = {path.name: path.stat().st_size for path in (folder / "workbook").iterdir() if path.is_file()}
print(json.dumps([said, found]))
"""


def elsewhere(folder: Path, script: str, user: str = "") -> tuple[list[str], dict[str, int]]:
    """Sync, and reset chapter 00, in a process with mounts (or a user) of its own.

    Returns what the reader is told, and the size of every file in the workbook.
    """
    code = folder / "run.py"
    code.write_text(RUN)
    command = f"set -e; {script}; exec '{sys.executable}' -B '{code}' '{folder}' '{user}'"
    variables = os.environ | {"PYTHONPATH": str(Path(workbook.__file__).parents[1])}
    done = subprocess.run(["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, env=variables)
    if "unshare failed" in done.stderr or "mount: " in done.stderr:
        pytest.skip("this container may not mount")
    assert done.returncode == 0, done.stderr
    said, found = json.loads(done.stdout)
    return said, found


def not_written(name: str, why: str) -> str:
    return f"workbook/{name}.ipynb was not written ({why}); nothing of yours was changed."


@needs_own_mounts
def test_a_full_disk_is_one_sentence_a_file_and_loses_nothing(tmp_path: Path, course) -> None:
    course.file("00_start.ipynb").write_bytes(b"mine")
    big = b"x" * 400_000
    course.publish({"00_start.ipynb": big, "01_storage.ipynb": big, "02_autograd.ipynb": big})
    disk, mine = tmp_path / "disk", course.workbook
    disk.mkdir()
    mounts = f"mount -t tmpfs -o size=256k none {disk}; cp -a {mine}/. {disk}; mount --bind {disk} {mine}"
    said, found = elsewhere(tmp_path, mounts)
    for name in ("00_start", "01_storage", "02_autograd"):
        assert not_written(name, "the disk is full") in said
    del found[".course.json"]
    assert found == {"00_start.ipynb": len(b"mine"), "01_storage.ipynb": len(course.old["01_storage.ipynb"])}


@needs_own_mounts
def test_a_read_only_workbook_is_one_sentence_a_file_and_is_left_as_it_is(tmp_path: Path, course) -> None:
    mounts = f"mount --bind {course.workbook} {course.workbook}; mount -o remount,ro,bind {course.workbook}"
    said, before = elsewhere(tmp_path, mounts)
    assert said == ["workbook/00_start.ipynb is already the course's own version: nothing to reset."]
    course.publish(course.new | {"00_start.ipynb": b"new"})
    said, found = elsewhere(tmp_path, mounts)
    for name in ("00_start", "01_storage", "02_autograd"):
        assert not_written(name, "the folder is read-only") in said
    assert found == before


@needs_own_mounts
def test_a_workbook_of_another_user_is_one_sentence_a_file(tmp_path: Path, course) -> None:
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(folder.stat().st_mode | 0o011)  # let the other user in
    course.publish(course.new)
    course.file("00_start.ipynb").write_bytes(b"mine")
    course.file("00_start.ipynb").chmod(0o600)  # and not even readable
    said, found = elsewhere(tmp_path, "true", user="65534")
    for name in ("00_start", "01_storage", "02_autograd"):
        assert not_written(name, "this user has no permission to write there") in said
    assert found["00_start.ipynb"] == len(b"mine")


STEPS = ("open", "close", "link", "rename", "replace", "unlink", "mkdir", "rmdir", "fsync", "chmod")


class Killed(BaseException):
    """The process ends here: nothing after it runs."""


class Failing:
    """The n-th step that changes the disk fails; after a kill every later one fails too."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int, error: BaseException) -> None:
        self.count, self.at, self.error = 0, at, error
        for name in STEPS:
            patch.setattr(os, name, self.wrap(name, getattr(os, name)))

    def wrap(self, name: str, original):
        def step(*arguments, **options):
            if name == "open" and not arguments[1] & os.O_CREAT:
                return original(*arguments, **options)
            self.count += 1
            if self.count == self.at or (isinstance(self.error, Killed) and self.count > self.at):
                if name == "fsync":  # what a full disk or a power cut leaves: half of the file
                    os.ftruncate(arguments[0], os.fstat(arguments[0]).st_size // 2)
                if name == "close":
                    original(*arguments)
                raise self.error
            return original(*arguments, **options)

        return step


ERRORS = {"disk error": OSError(errno.EIO, "Input/output error"), "killed": Killed()}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS.keys())
@pytest.mark.parametrize("action", ["sync", "reset"])
def test_a_failure_at_any_step_loses_nothing_and_the_next_run_completes_the_work(
    tmp_path: Path, new_course, error: BaseException, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in itertools.count(1):
        course = new_course(tmp_path / str(at))
        course.sync()
        course.file("00_start.ipynb").write_bytes(b"mine")
        course.publish(course.new | {"00_start.ipynb": b"new"})
        with monkeypatch.context() as patch:
            failing = Failing(patch, at, error)
            with contextlib.suppress(Killed):
                course.sync() if action == "sync" else course.reset("00")
        known = {*course.new.values(), *course.old.values(), b"mine", b"new"}
        whole = {name: data for name, data in course.content().items() if not name.startswith(files.TEMPORARY)}
        assert b"mine" in whole.values(), f"lost at step {at}"
        # Only a name that was claimed for a reader's file, a moment before it would move there, may stay empty.
        assert all(data in known or (data == b"" and ".mine" in name) for name, data in whole.items()), f"half at {at}"
        course.sync()
        after = course.content()
        assert b"mine" in after.values()
        assert not [name for name in after if name.startswith(files.TEMPORARY)]
        assert after["02_autograd.ipynb"] == course.new["02_autograd.ipynb"]
        assert after["01_storage.ipynb"] in (course.new["01_storage.ipynb"], course.old["01_storage.ipynb"])
        if failing.count < at:
            assert at > 5, "no step failed"
            break


names = st.sampled_from(["00_start.ipynb", "01_storage.ipynb", "refs/01_storage.cuda.json", "01_storage.mine.ipynb"])
operations = st.one_of(
    st.tuples(st.sampled_from(["edit", "truncate", "delete", "folder"]), names),
    st.tuples(st.just("publish"), st.integers(0, 3)),
    st.tuples(st.just("reset"), st.sampled_from(["0", "1"])),
    st.tuples(st.just("sync"), st.just(0)),
    st.tuples(st.just("manifest"), st.sampled_from([None, b"", b"{", b"[]"])),
    st.tuples(st.sampled_from(["killed sync", "killed reset"]), st.integers(1, 30)),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(operations, max_size=20))
def test_nothing_a_reader_wrote_ever_disappears(new_course, steps) -> None:
    with tempfile.TemporaryDirectory() as folder:
        course = new_course(Path(folder))
        course.sync()
        written: set[bytes] = set()  # every text of the reader's that they neither overwrote nor deleted themselves
        for number, (kind, value) in enumerate(steps):
            if kind in ("edit", "truncate", "delete", "folder"):
                written -= forget(course.file(value), written)
                written |= {edit(course.file(value), kind, number)} - {b""}
            elif kind == "publish":
                course.publish(course.new | {"01_storage.ipynb": b'{"edition": %d}' % value})
            elif kind == "manifest":
                course.file(workbook.MANIFEST).unlink(missing_ok=True)
                if value is not None:
                    course.file(workbook.MANIFEST).write_bytes(value)
            elif kind == "reset":
                course.reset(value)
            elif kind == "sync":
                course.sync()
            else:
                with pytest.MonkeyPatch.context() as patch:
                    Failing(patch, value, Killed())
                    with contextlib.suppress(Killed):
                        course.sync() if kind == "killed sync" else course.reset("01")
            lost = written - {path.read_bytes() for path in course.workbook.rglob("*") if path.is_file()}
            assert not lost, f"{lost} disappeared at step {number}: {kind} {value}"


def forget(path: Path, written: set[bytes]) -> set[bytes]:
    """Return the reader's texts that an edit of this path overwrites, by the reader's own hand."""
    inside = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return {p.read_bytes() for p in inside} & written


def edit(path: Path, kind: str, number: int) -> bytes:
    """Do what a reader (or a computer that crashed while saving) does to a file; return the new text."""
    text = b"mine %d" % number
    if kind == "truncate" and path.is_file():
        text = path.read_bytes()[:-1] + b"%d" % number
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    if kind == "delete":
        return b""
    if kind == "folder":
        path.mkdir()
        path = path / "note.txt"
    path.write_bytes(text)
    return text
