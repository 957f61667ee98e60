"""The server behind `make lab`, run for real on a copy of the course with two small notebooks."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbformat.sign import NotebookNotary

from tools import workbook
from tools.installer import clean_environment

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "0123456789abcdef" * 3


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course folder of its own, so that no reader's workbook is touched."""
    root = tmp_path_factory.mktemp("lab") / "a course"
    shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "notebooks").mkdir()
    for name in ("00_start", "01_storage"):
        cell = nbformat.v4.new_code_cell(f"'{name}'", id="only")
        nbformat.write(nbformat.v4.new_notebook(cells=[cell]), root / "notebooks" / f"{name}.ipynb")
    workbook.sync(root / "notebooks", root / "workbook")
    return root


def variables(course: Path) -> dict[str, str]:
    home = course.parent / "home"
    home.mkdir(exist_ok=True)
    jupyter = {f"JUPYTER_{kind}_DIR": str(home / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
    own = {"COURSE_NOTES": str(course / ".course"), "COURSE_DESKTOP": "", "JUPYTER_TOKEN": TOKEN}
    return clean_environment() | jupyter | own | {"HOME": str(home), "JUPYTERLAB_SETTINGS_DIR": str(home / "settings")}


@pytest.fixture(scope="module")
def served(course: Path) -> Iterator[tuple[subprocess.Popen, str]]:
    """The running server and the line it printed; the usual port is taken on purpose."""
    with socket.socket() as taken:
        try:
            taken.bind(("127.0.0.1", 8888))
            taken.listen()
        except OSError:  # somebody else took it: as good
            pass
        process = subprocess.Popen(
            [sys.executable, "-m", "tools.serve"], cwd=course, env=variables(course), stdout=subprocess.PIPE, text=True
        )
        try:
            yield process, process.stdout.readline()
        finally:
            process.kill()
            process.wait()


def status(address: str) -> int:
    try:
        return urllib.request.urlopen(address, timeout=30).status
    except urllib.error.HTTPError as error:
        return error.code


def test_the_printed_address_answers_at_once_and_only_with_the_token(served) -> None:
    address = re.fullmatch(
        r"The course is at (http://127\.0\.0\.1:(\d+)/lab/tree/00_start\.ipynb\?token=\w+)\n", served[1]
    )
    assert address, served[1]
    assert address[2] != "8888"
    base = f"http://127.0.0.1:{address[2]}"
    assert status(address[1]) == 200
    assert status(f"{base}/api/contents/00_start.ipynb?token={TOKEN}") == 200
    assert status(f"{base}/api/contents/00_start.ipynb") == 403
    assert status(f"{base}/api/contents/00_start.ipynb?token=wrong") == 403


def test_the_workbook_is_all_that_is_served(served) -> None:
    base = served[1].split("/lab")[0].split()[-1]
    listing = json.loads(urllib.request.urlopen(f"{base}/api/contents/?token={TOKEN}", timeout=30).read())
    assert sorted(item["name"] for item in listing["content"]) == ["00_start.ipynb", "01_storage.ipynb"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's list of sockets")
def test_it_listens_on_this_computer_only(served) -> None:
    port = int(re.search(r":(\d+)/", served[1])[1])
    listening = [
        line.split()[1] for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    here = {entry.split(":")[0] for entry in listening if int(entry.split(":")[1], 16) == port}
    assert "0100007F" in here
    assert not here & {"00000000", "0" * 32}


def test_the_question_about_news_is_answered_without_touching_the_readers_settings(served, course: Path) -> None:
    overrides = json.loads((course / ".course" / "lab-settings" / "overrides.json").read_text())
    assert overrides["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"
    assert not (course.parent / "home" / "settings").exists()
    assert not list((course.parent / "home" / "config").rglob("*.json"))


def test_the_courses_notebooks_are_trusted_and_an_edited_one_is_not(served, course: Path) -> None:
    notary = NotebookNotary(data_dir=str(course.parent / "home" / "data"))
    notebook = nbformat.read(course / "workbook" / "00_start.ipynb", as_version=4)
    assert notary.check_signature(notebook)
    notebook.cells[0].source = "edited"
    assert not notary.check_signature(notebook)


@pytest.mark.skipif(os.name == "nt", reason="sends a POSIX signal")
def test_ctrl_c_stops_it_cleanly_and_jupyters_messages_are_in_the_log(served, course: Path) -> None:
    process, _ = served
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read()
    process.wait(timeout=60)
    assert process.returncode == 0
    log = course / ".course" / "lab.log"
    assert rest == f"Stop it with Ctrl-C. Jupyter's log: {log}\nThe course has stopped; your work is in workbook/.\n"
    assert "Jupyter Server" in log.read_text()


def test_a_server_that_cannot_start_says_where_the_reason_is(course: Path) -> None:
    broken = course.parent / "broken"
    shutil.copytree(course / "tools", broken / "tools")
    (broken / "notebooks").mkdir()
    (broken / "notebooks" / "00_start.ipynb").write_text("{")
    own = variables(course) | {"COURSE_NOTES": str(broken / ".course")}
    done = subprocess.run([sys.executable, "-m", "tools.serve"], cwd=broken, env=own, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout.startswith("JupyterLab did not start (")
    assert done.stdout.count("\n") == 1
    assert str(broken / ".course" / "lab.log") in done.stdout
