"""The course's one command: readable for old Pythons, standard library only, one sentence for a failure."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tools import course, lab, verbs
from tools.installer import REASONS, Pip, clean_environment
from tools.nbharness.conditions import DEVICES

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"
IN_THE_ENVIRONMENT = {"serve.py", "refresh.py", "bench.py"}  # run by the environment's Python, when it stands


def test_the_entry_is_readable_for_python_3_6() -> None:
    ast.parse((TOOLS / "course.py").read_text(encoding="utf-8"), feature_version=(3, 6))


def test_set_up_imports_nothing_that_would_have_to_be_installed() -> None:
    seen, waiting = set(), ["course.py"]
    while waiting:
        name = waiting.pop()
        seen.add(name)
        for node in ast.walk(ast.parse((TOOLS / name).read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                parts = (node.module or "").split(".")
                own = [alias.name for alias in node.names] if parts == ["tools"] else parts[1:2]
                if parts[0] == "tools":
                    waiting += [f"{part}.py" for part in own if f"{part}.py" not in seen]
                    continue
                names = [parts[0]]
            for imported in names:
                assert imported.split(".")[0] in sys.stdlib_module_names, f"{name} imports {imported}"
    assert {"verbs.py", "environment.py", "workbook.py"} <= seen
    assert not seen & IN_THE_ENVIRONMENT


@pytest.mark.parametrize("version", [(2, 7, 18), (3, 6, 15), (3, 8, 18), (3, 10, 13), (3, 14, 0)])
def test_a_python_that_is_too_old_or_too_new_is_one_sentence(version, monkeypatch, capsys) -> None:
    monkeypatch.setattr(
        course, "sys", SimpleNamespace(version_info=(*version, "final", 0), executable="/a/python", stderr=sys.stderr)
    )
    assert course.main(["lab"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    number = ".".join(map(str, version))
    assert said.startswith(f"The course needs Python 3.11, 3.12 or 3.13, and this is {number} (/a/python): install one")


def run(*command: str, folder: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command as from a fresh terminal, also when make runs these tests."""
    environment = clean_environment() | variables
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)


def run_course(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, str(TOOLS / "course.py"), *arguments)


LISTED = "the verbs are setup, lab, test, reset, refresh, lint, bench and help."


def test_help_lists_the_verbs_and_so_does_the_sentence_about_an_unknown_one() -> None:
    assert run_course().stdout == run_course("help").stdout == course.HELP
    done = run_course("instal")
    assert done.returncode == 2
    assert done.stderr == f"There is no verb 'instal': {LISTED}\n"
    assert all(f"make {verb} " in course.HELP for verb in (*verbs.VERBS, "help"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("reset", "00", "01"), "`python tools/course.py reset` takes one chapter, and 00 01 came: nothing was done."),
        (("lab", "extra"), "`python tools/course.py lab` takes no argument, and extra came: nothing was done."),
        (("lab", "--prepare", "x"), "takes no argument, and --prepare x came: nothing was done."),
        (("setup", "x"), "`python tools/course.py setup` takes no argument, and x came: nothing was done."),
        (("lint", "helpers"), "`python tools/course.py lint` takes no argument, and helpers came: nothing was done."),
    ],
)
def test_an_argument_too_many_is_refused_before_anything_is_done(arguments, sentence, monkeypatch, capsys) -> None:
    monkeypatch.delenv("MAKELEVEL", raising=False)
    monkeypatch.setitem(verbs.VERBS, arguments[0], lambda *_: pytest.fail("the verb was run"))
    assert verbs.run(arguments[0], list(arguments[1:])) == 2
    said = capsys.readouterr().err
    assert said.endswith(f"{sentence}\n")
    assert said.count("\n") == 1


@pytest.mark.parametrize("arguments", [("reset", "00"), ("lab", "--prepare"), ("test", "-k", "x"), ("bench", "setup")])
def test_the_arguments_that_a_verb_takes_reach_it(arguments, monkeypatch) -> None:
    came = []
    monkeypatch.setitem(verbs.VERBS, arguments[0], lambda _, given: came.append(given) or 0)
    assert verbs.run(arguments[0], list(arguments[1:])) == 0
    assert came == [list(arguments[1:])]


@pytest.mark.parametrize("device", ["foo", "gpu", "cuda:0", "CPU"])
def test_an_unknown_device_is_refused_before_the_tests_begin(device: str) -> None:
    done = run(sys.executable, "tools/course.py", "test", DEVICE=device)
    assert done.returncode == 1
    assert done.stderr == f"DEVICE is {device!r}; it can be auto, cpu or cuda. Nothing was done.\n"
    assert verbs.DEVICES == DEVICES, "the tests know the same"


needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="no make here")


@needs_make
def test_make_without_a_verb_is_help() -> None:
    done = run("make", "-s")
    assert done.stdout == course.HELP


@needs_make
@pytest.mark.parametrize(
    ("words", "stray"),
    [(["tset"], "tset"), (["lab", "extra"], "extra"), (["reset", "00", "01"], "00"), (["notebooks"], "notebooks")],
)
def test_a_word_that_is_no_verb_is_one_sentence_and_no_verb_is_run(words: list[str], stray: str) -> None:
    done = run("make", *words)
    said = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert done.returncode != 0
    assert said == [f"There is no verb {stray!r}: {LISTED}"]
    assert done.stdout == ""


@needs_make
@pytest.mark.parametrize("named", ["/no/such/python", "python-that-is-not-there"])
def test_a_named_python_that_does_not_run_is_one_sentence(named: str) -> None:
    done = run("make", "help", f"PYTHON={named}")
    said = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert done.returncode != 0
    assert said == [f"PYTHON={named} does not run: name a Python 3.11, 3.12 or 3.13, or leave it out."]


@pytest.mark.parametrize("wish", ["foo", "cuda", "2.13", "cpu+2.13.0"])
def test_an_unknown_torch_is_refused_before_anything_is_made(wish: str) -> None:
    done = run(sys.executable, "tools/course.py", "setup", TORCH=wish)
    assert done.returncode == 1
    assert done.stderr.startswith(f"TORCH is {wish!r}; it can be cpu")
    assert done.stderr.count("\n") == 1


@needs_make
def test_make_without_any_python_is_one_sentence(tmp_path: Path) -> None:
    for program in ("make", "sh", "echo", "env"):
        (tmp_path / program).symlink_to(shutil.which(program))
    shutil.copy(ROOT / "Makefile", tmp_path)
    done = run("make", "lab", folder=tmp_path, PATH=str(tmp_path))
    assert done.returncode != 0
    assert done.stderr.startswith("The course needs Python 3.11, 3.12 or 3.13, and there is none on PATH: install one")


@needs_make
def test_make_prefers_a_python_that_works_and_is_supported(tmp_path: Path) -> None:
    """A `python3.13` that only prints an error (as version managers leave behind) is passed over."""
    for name, text in {
        "python3.13": "exit 127",
        "python3.12": f'exec {sys.executable} "$@"',
        "python3": "exit 1",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    shutil.copy(ROOT / "Makefile", tmp_path)
    done = run(
        "make", "-n", "setup", folder=tmp_path, PATH=f"{tmp_path}:/usr/bin:/bin", CONDA_PREFIX="", VIRTUAL_ENV=""
    )
    assert done.stdout.splitlines()[-1].strip() == '"python3.12" tools/course.py setup'


SAID = {
    "no network": (
        "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError: [Errno -3] Temporary "
        "failure in name resolution'\nERROR: Could not find a version that satisfies the requirement setuptools\n"
        "ERROR: No matching distribution found for setuptools>=77",
        "there is no network, or it broke off: connect this computer to the internet",
    ),
    "disk full": (
        "Installing collected packages: torch\nERROR: Could not install packages due to an OSError: "
        "[Errno 28] No space left on device\n",
        "the disk is full: free about 2 GB",
    ),
    "not ours": (
        "ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: '/x/.venv/lib'\n",
        "this user may not write in /x: make it yours",
    ),
    "read-only": ("OSError: [Errno 30] Read-only file system: '/x/.venv'", "/x is read-only: copy the course"),
    "wrong Python": (
        "ERROR: Package 'pytorch-internals-course' requires a different Python: 3.14.0 not in '<3.14,>=3.11'\n",
        "this Python is not 3.11, 3.12 or 3.13: install one of them",
    ),
    "no torch for this computer": (
        "ERROR: Could not find a version that satisfies the requirement torch<2.16,>=2.11 (from versions: none)\n"
        "ERROR: No matching distribution found for torch<2.16,>=2.11\n",
        "PyTorch offers no such release for this computer",
    ),
    "certificates": (
        "SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed'))",
        "a program between this computer and the package index changes its certificates",
    ),
    "proxy": ("ProxyError('Cannot connect to proxy.', OSError('407 Proxy Authentication Required'))", "proxy refuses"),
    "contradiction": ("ERROR: ResolutionImpossible: for help visit …", "the versions asked for contradict each other"),
    "in use": ("OSError: [WinError 32] The process cannot access the file", "another program uses /x"),
    "missing version": ("ERROR: No matching distribution found for six==9", "the package index lacks a version"),
    "anything else": ("ERROR: something nobody thought of\n", "pip said “ERROR: something nobody thought of”"),
}


@pytest.mark.parametrize(("text", "reason"), SAID.values(), ids=SAID.keys())
def test_each_failure_of_pip_is_one_sentence_with_the_remedy_and_the_logs_name(
    text: str, reason: str, monkeypatch
) -> None:
    monkeypatch.setenv("MAKELEVEL", "1")
    log = Path("/x/.course/setup.log")
    said = Pip(Path("python"), Path("/x/.course"), log).sentence(text)
    assert said.startswith("Set-up stopped because ")
    assert reason in said
    assert said.endswith(f"then run `make setup` again (pip's own log: {log}).")
    assert "\n" not in said


def test_every_known_reason_is_covered_by_an_example() -> None:
    from_examples = [Pip(Path("p"), Path("/x/.course"), Path("log")).sentence(text) for text, _ in SAID.values()]
    for _, reason in REASONS:
        start = reason.split("{")[0] or "/x is read-only"
        assert any(start in said for said in from_examples) or "share of the disk" in reason, reason


@pytest.mark.parametrize(
    ("variables", "there"),
    [
        ({}, False),
        ({"DISPLAY": ":0"}, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True),
        ({"DISPLAY": "localhost:10.0", "SSH_CONNECTION": "1.2.3.4 5 6.7.8.9 22"}, False),
    ],
)
def test_a_browser_is_opened_only_where_a_reader_would_see_it(variables, there: bool, monkeypatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(lab.sys, "platform", "linux")
    monkeypatch.setattr(lab.os.path, "exists", lambda path: False)
    assert lab.has_desktop() is there
    monkeypatch.setattr(lab.os.path, "exists", lambda path: path == "/.dockerenv")
    assert lab.has_desktop() is False
