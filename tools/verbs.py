"""The verbs of the course, as `make` and `python tools/course.py` call them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tools import files, lab, workbook
from tools.environment import Environment, Wish
from tools.installer import clean_environment
from tools.say import Stop, how_to, say

ROOT = Path(__file__).resolve().parent.parent
DEVICES = ("auto", "cpu", "cuda")  # those that the tests know; tools/nbharness needs more than the standard library


def run(verb: str, arguments: list[str]) -> int:
    """Run one verb and return the exit status; a failure is one sentence on standard error."""
    if verb not in VERBS:
        print(f"There is no verb {verb!r}: the verbs are {', '.join(VERBS)} and help.", file=sys.stderr)
        return 2
    if (surplus := _surplus(verb, arguments)) is not None:
        print(surplus, file=sys.stderr)
        return 2
    try:
        return VERBS[verb](Environment(ROOT), arguments)
    except Stop as stop:
        print(stop, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\nInterrupted; `{how_to(verb)}` goes on from here.", file=sys.stderr)
        return 130


def _surplus(verb: str, arguments: list[str]) -> str | None:
    """Say which arguments a verb does not take, or return None; `test`, `refresh` and `bench` hand theirs on."""
    most, taken = {"setup": (0, "no argument"), "lint": (0, "no argument"), "reset": (1, "one chapter")}.get(
        verb, (len(arguments), "")
    )
    if verb == "lab" and arguments != ["--prepare"]:
        most, taken = 0, "no argument"
    if len(arguments) <= most:
        return None
    return f"`{how_to(verb)}` takes {taken}, and {' '.join(arguments)} came: nothing was done."


def _wish() -> Wish:
    torch = os.environ.get("TORCH", "").strip()
    if torch and not re.fullmatch(r"cpu|\d+\.\d+\.\d+(\+cpu)?", torch):
        raise Stop(
            f"TORCH is {torch!r}; it can be cpu, a release such as 2.13.0, or both (2.13.0+cpu). Nothing was done."
        )
    return Wish(torch=torch, locked=os.environ.get("LOCK", "") != "off")


def _ready(environment: Environment) -> Environment:
    environment.ensure(_wish())
    return environment


def _setup(environment: Environment, arguments: list[str]) -> int:
    _ready(environment)
    say(f"Ready: Python packages are in {environment.python.parent.parent}. Next: {how_to('lab')}")
    return 0


def _lab(environment: Environment, arguments: list[str]) -> int:
    _ready(environment)
    report = _guarded(environment, workbook.sync)
    for sentence in report.sentences(how_to):
        say(sentence)
    if "--prepare" in arguments:  # Binder prepares the workbook and starts its own JupyterLab
        return lab.trust(environment)
    return lab.run(environment)


def _reset(environment: Environment, arguments: list[str]) -> int:
    chapter = (arguments[0] if arguments else os.environ.get("CHAPTER", "")).removeprefix("CHAPTER=")
    try:
        report = _guarded(environment, lambda notebooks, folder: workbook.reset(notebooks, folder, chapter))
    except workbook.UnknownChapterError as error:
        raise Stop(str(error)) from error
    for sentence in report.sentences(how_to):
        say(sentence)
    return 1 if report.failed else 0


def _guarded(environment: Environment, action: Callable[[Path, Path], workbook.Report]) -> workbook.Report:
    """Run an action on the workbook while no other run of the course changes it."""
    folder = ROOT / "workbook"
    try:
        environment.notes.mkdir(exist_ok=True)
        with files.one_at_a_time(environment.notes / "workbook.lock", lambda: say("Waiting for another run …")):
            return action(ROOT / "notebooks", folder)
    except OSError as error:
        raise Stop(f"The workbook cannot be used ({files.reason(error)}: {error.filename}).") from error


def _test(environment: Environment, arguments: list[str]) -> int:
    device = os.environ.get("DEVICE", "").strip() or "auto"
    if device not in DEVICES:
        raise Stop(f"DEVICE is {device!r}; it can be {', '.join(DEVICES[:-1])} or {DEVICES[-1]}. Nothing was done.")
    return _python(_ready(environment), "-m", "pytest", f"--device={device}", *arguments)


def _refresh(environment: Environment, arguments: list[str]) -> int:
    return _python(_ready(environment), str(ROOT / "tools" / "refresh.py"), *arguments)


def _lint(environment: Environment, arguments: list[str]) -> int:
    _ready(environment)
    found = _python(environment, "-m", "ruff", "check", ".")
    return _python(environment, "-m", "ruff", "format", "--check", ".") or found


def _bench(environment: Environment, arguments: list[str]) -> int:
    return _python(_ready(environment), "-m", "tools.bench", *arguments)


def _python(environment: Environment, *arguments: str) -> int:
    """Run the environment's Python in the course's folder; a Ctrl-C goes to it, and its status comes back."""
    process = subprocess.Popen([str(environment.python), *arguments], cwd=ROOT, env=clean_environment())
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


VERBS: dict[str, Callable[[Environment, list[str]], int]] = {
    "setup": _setup,
    "lab": _lab,
    "test": _test,
    "reset": _reset,
    "refresh": _refresh,
    "lint": _lint,
    "bench": _bench,
}
