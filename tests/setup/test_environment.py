"""The environment is made once, known to be whole, and mended after anything that can happen to it.

These tests make real environments with the real pip, for a project that is one line long and brings its own build
backend, so that they need no network.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools import environment as module
from tools.environment import Environment, Wish
from tools.installer import Pip, clean_environment
from tools.say import Stop

ROOT = Path(__file__).resolve().parents[2]
BACKEND = '''
"""Builds an editable wheel of one line, without any package."""
import pathlib, zipfile
INFO = "pytorch_internals_course-1.dist-info"
METADATA = "Metadata-Version: 2.1\\nName: pytorch-internals-course\\nVersion: 1\\nProvides-Extra: test\\n"
WHEEL = "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
def get_requires_for_build_editable(config_settings=None):
    return []
def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    name = "pytorch_internals_course-1-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w") as wheel:
        wheel.writestr("course.pth", str(pathlib.Path.cwd()))
        wheel.writestr(f"{INFO}/METADATA", METADATA)
        wheel.writestr(f"{INFO}/WHEEL", WHEEL)
        wheel.writestr(f"{INFO}/RECORD", f"course.pth,,\\n{INFO}/METADATA,,\\n{INFO}/WHEEL,,\\n{INFO}/RECORD,,\\n")
    return name
'''
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "pytorch-internals-course"
version = "1"
"""


def project(root: Path) -> Path:
    root.mkdir(parents=True)
    (root / "backend.py").write_text(BACKEND)
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "requirements.lock").write_text("# nothing\n")
    (root / "tiny.py").write_text("")
    return root


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment that every test of this file may break: the next `ensure` has to mend it.

    It is made for real the first time. To make it anew costs many seconds, so a copy of how it was then is taken.
    """
    made = Environment(project(tmp_path_factory.mktemp("course") / "a course"))
    really, untouched = made._create, made.root.parent / "untouched"

    def create() -> None:
        if untouched.exists():
            shutil.rmtree(made.venv, ignore_errors=True)
            shutil.copytree(untouched, made.venv, symlinks=True)
        else:
            really()
            shutil.copytree(made.venv, untouched, symlinks=True)

    made._create = create
    return made


@pytest.fixture(autouse=True)
def small_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROOF", "tiny")
    monkeypatch.setattr(module, "NEEDED_GB", 0.05)
    monkeypatch.setenv("MAKELEVEL", "1")


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch):
    """Call it, and from then on set-up may run nothing."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("set-up ran something")

    def start() -> None:
        monkeypatch.setattr(subprocess, "run", refuse)
        monkeypatch.setattr(subprocess, "Popen", refuse)

    return start


def works(environment: Environment) -> bool:
    done = subprocess.run(
        [environment.python, "-c", "import tiny; print(tiny.__file__)"], capture_output=True, text=True
    )
    return done.stdout.strip() == str(environment.root / "tiny.py") and environment.stamp.exists()


def test_it_is_made_once_and_then_found_whole_in_no_time(made: Environment, idle, capsys) -> None:
    made.ensure(Wish())
    assert works(made)
    assert capsys.readouterr().out.startswith("Making .venv with Python")
    idle()
    start = time.perf_counter()
    made.ensure(Wish())
    assert time.perf_counter() - start < 0.5
    assert capsys.readouterr().out == ""


def without_stamp(environment: Environment) -> None:
    environment.stamp.unlink()


def half_a_stamp(environment: Environment) -> None:
    environment.stamp.write_bytes(environment.stamp.read_bytes()[:20])


def no_record(environment: Environment) -> None:
    without_stamp(environment)
    next(environment._site().glob("pytorch_internals_course-*")).joinpath("RECORD").unlink()


def half_a_file(environment: Environment) -> None:
    without_stamp(environment)
    (environment._site() / "course.pth").write_text("/half")


def no_package(environment: Environment) -> None:
    (environment._site() / "course.pth").unlink()


def no_python(environment: Environment) -> None:
    environment.python.unlink()
    environment.python.symlink_to("/nowhere/python3")


def no_pip(environment: Environment) -> None:
    without_stamp(environment)
    shutil.rmtree(environment._site() / "pip" / "_internal")


BREAKS = (without_stamp, half_a_stamp, no_record, half_a_file, no_package, no_python, no_pip)


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps a running Python's files")
@pytest.mark.parametrize("break_it", BREAKS, ids=[function.__name__ for function in BREAKS])
def test_whatever_was_broken_is_mended_by_the_next_call(made: Environment, break_it) -> None:
    made.ensure(Wish())
    break_it(made)
    made.ensure(Wish())
    assert works(made)
    assert not list(made._site().glob("~*"))
    assert not (made.notes / "tmp").exists()


def test_a_set_up_that_was_interrupted_goes_on_at_the_next_call(made: Environment, monkeypatch) -> None:
    made.ensure(Wish())
    (made.root / "requirements.lock").write_text("# another list\n")

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Pip, "install", interrupt)
        with pytest.raises(KeyboardInterrupt):
            made.ensure(Wish())
    assert not made.stamp.exists(), "an unfinished set-up must not look finished"
    made.ensure(Wish())
    assert works(made)


def test_ctrl_c_stops_pip_itself(made: Environment, monkeypatch, tmp_path: Path) -> None:
    started = []
    original = subprocess.Popen

    def remember(*arguments, **options):
        started.append(original(*arguments, **options))
        return started[-1]

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    made.ensure(Wish())
    monkeypatch.setattr(subprocess, "Popen", remember)
    monkeypatch.setattr(Pip, "_follow", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Pip(made.python, made.notes, tmp_path / "log").install("-e", str(made.root))
    assert started[0].poll() is not None


@pytest.mark.skipif(os.name == "nt", reason="the commands of a moved folder are mended on Linux and macOS")
def test_a_moved_folder_works_at_its_new_place(made: Environment, tmp_path: Path) -> None:
    made.ensure(Wish())
    moved = Environment(tmp_path / "moved and renamed")
    shutil.copytree(made.root, moved.root, symlinks=True)
    moved.ensure(Wish())
    assert works(moved)
    done = subprocess.run([moved.venv / "bin" / "pip", "--version"], capture_output=True, text=True, check=True)
    assert str(moved.root) in done.stdout
    assert str(made.root) not in (moved.venv / "bin" / "activate").read_text()


def test_a_change_of_what_is_needed_is_noticed_and_one_of_style_is_not(made: Environment, idle) -> None:
    made.ensure(Wish())
    pyproject = made.root / "pyproject.toml"
    try:
        pyproject.write_text(PYPROJECT + "[tool.ruff]\nline-length = 100\n")
        assert made._fits(Wish())
        pyproject.write_text(PYPROJECT + 'dependencies = ["pip"]\n')
        assert not made._fits(Wish())
    finally:
        pyproject.write_text(PYPROJECT)


def test_the_choice_of_torch_is_remembered_until_another_is_made(made: Environment) -> None:
    made.ensure(Wish())
    assert made._fits(Wish())
    assert not made._fits(Wish(torch="cpu"))
    assert not made._fits(Wish(locked=False))
    stamp = json.loads(made.stamp.read_bytes())
    cpu = stamp | {"wish": ["cpu", True], "key": made._key(["cpu", True])}
    made.stamp.write_text(json.dumps(cpu))
    assert made._fits(Wish())
    assert made._fits(Wish(torch="cpu"))
    made.stamp.write_text(json.dumps(stamp))


@pytest.mark.parametrize(
    ("wish", "release", "locked"),
    [
        (Wish(), "", True),
        (Wish(torch="cpu"), "2.13.0", True),
        (Wish(torch="2.11.0+cpu"), "2.11.0", False),
        (Wish(torch="2.15.0"), "2.15.0", False),
        (Wish(torch="cpu", locked=False), "", None),
        (Wish(locked=False), "", None),
    ],
)
def test_a_wish_becomes_a_release_and_constraints(
    wish: Wish, release: str, locked: bool | None, tmp_path: Path
) -> None:
    environment = Environment(tmp_path)
    environment.notes.mkdir()
    shutil.copy(ROOT / "requirements.lock", tmp_path)
    assert environment._torch_release(wish) == release
    options = environment._constraints(wish)
    assert (options == []) == (locked is None)
    if options:
        text = Path(options[1]).read_text()
        assert ("torch==2.13.0" in text) == ("nvidia-" in text) == ("setuptools==" in text) == locked
        assert "jupyterlab==" in text


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch comes without CUDA anyway")
def test_torch_without_cuda_is_named_exactly_and_looked_up_at_pytorchs_own_index(
    made: Environment, monkeypatch
) -> None:
    calls = []
    shutil.copy(ROOT / "requirements.lock", made.root)
    with monkeypatch.context() as patch:
        patch.setattr(Pip, "install", lambda self, *arguments, **options: calls.append(arguments))
        patch.setattr(module, "PROOF", "sys")
        made.ensure(Wish(torch="cpu"))
        made.ensure(Wish(torch="2.11.0+cpu"))
        made.ensure(Wish(torch="2.11.0"))
    (made.root / "requirements.lock").write_text("# nothing\n")
    course = f"{made.root}[test]"
    index = ("--extra-index-url", "https://download.pytorch.org/whl/cpu")
    exact, chosen = str(made.root / "requirements.lock"), str(made.notes / "constraints.txt")
    start = ("--no-build-isolation", "-c")
    assert calls == [
        (*start, exact, *index, "torch==2.13.0+cpu", "-e", course),
        (*start, chosen, *index, "torch==2.11.0+cpu", "-e", course),
        (*start, chosen, "torch==2.11.0", "-e", course),
    ]


def test_an_environment_that_already_holds_the_course_is_used_as_it_is(made: Environment) -> None:
    """As with conda and Binder: nothing is made, and the Python that runs is the one that is used."""
    made.ensure(Wish())
    (made.root / "elsewhere").mkdir(exist_ok=True)
    code = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tools.environment import Environment, Wish
here = Environment(Path({str(made.root)!r}))
here.venv = Path({str(made.root / "elsewhere")!r})
here.ensure(Wish())
print(here.is_here(), here.python == Path(sys.executable), list(here.venv.iterdir()))
"""
    done = subprocess.run([made.python, "-c", code], capture_output=True, text=True, cwd="/", env=clean_environment())
    assert done.stdout.split("\n")[0] == "True True []", done.stderr


def test_a_python_without_its_venv_part_is_one_sentence(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Stop) as stop:
        Environment(project(tmp_path / "x")).ensure(Wish())
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    assert f"cannot make environments: install its missing part (Debian and Ubuntu: sudo apt install {version})" in str(
        stop.value
    )


def test_too_little_disk_is_one_sentence_before_anything_is_fetched(tmp_path: Path, monkeypatch, idle) -> None:
    monkeypatch.setattr(module, "NEEDED_GB", 1e6)
    with pytest.raises(
        Stop, match=r"^The set-up needs about 1000000.0 GB of free disk and .* has \d+\.\d GB: free some"
    ):
        Environment(project(tmp_path / "x")).ensure(Wish())


needs_own_mounts = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="only root on Linux can mount a small disk or cut the network",
)


def elsewhere(root: Path, script: str, **variables: str) -> str:
    """Run set-up with mounts and a network of its own; return its sentence."""
    code = f"""
import sys
from pathlib import Path
from tools import environment
environment.NEEDED_GB = 0
try:
    environment.Environment(Path({str(root)!r})).ensure(environment.Wish())
except environment.Stop as stop:
    print("STOP", stop)
"""
    (root.parent / "run.py").write_text(code)
    command = f"set -e; {script}; exec '{sys.executable}' -B '{root.parent / 'run.py'}'"
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    done = subprocess.run(["unshare", "-m", "-n", "sh", "-c", command], capture_output=True, text=True, env=environment)
    if "unshare failed" in done.stderr or "mount: " in done.stderr:
        pytest.skip("this container may not mount")
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("STOP ")]
    assert len(said) == 1, done.stdout
    return said[0].removeprefix("STOP ")


@needs_own_mounts
def test_no_network_is_one_sentence(tmp_path: Path) -> None:
    root = project(tmp_path / "x")
    pyproject = PYPROJECT.replace("requires = []", 'requires = ["setuptools==80.0.0"]')
    (root / "pyproject.toml").write_text(pyproject)
    said = elsewhere(root, "true", PIP_RETRIES="1", PIP_CONFIG_FILE=os.devnull, PIP_FIND_LINKS="")
    assert said.startswith("Set-up stopped because there is no network, or it broke off: connect this computer")
    assert (root / ".course" / "setup.log").stat().st_size > 100


@needs_own_mounts
def test_a_disk_that_fills_up_is_one_sentence(tmp_path: Path) -> None:
    root = project(tmp_path / "x")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounts = f"mount -t tmpfs -o size=3m none {disk}; cp -a {root}/. {disk}; mount --bind {disk} {root}"
    said = elsewhere(root, mounts)
    assert "the disk is full" in said
    assert said.endswith(("again.", "setup.log)."))


@needs_own_mounts
def test_a_read_only_folder_is_one_sentence(tmp_path: Path) -> None:
    root = project(tmp_path / "x")
    said = elsewhere(root, f"mount --bind {root} {root}; mount -o remount,ro,bind {root}")
    assert said == (
        f"Set-up cannot write in {root} (the folder is read-only): mend that, or copy the course to a folder "
        "of your own, and run `make setup` again."
    )
