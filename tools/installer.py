"""Run pip with progress for a reader, and turn its failure into one sentence."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tools.say import Progress, Stop, how_to

# What pip's log shows, and what a reader can do about it. The first pattern that occurs is the reason.
REASONS = (
    (r"No space left on device|Errno 28\b|WinError 112", "the disk is full: free about {need:.0f} GB"),
    (r"Disk quota exceeded|Errno 122\b", "your share of the disk is used up: free about {need:.0f} GB"),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLCertVerificationError",
        "a program between this computer and the package index changes its certificates: "
        "ask your network's administrator for the certificate file and set PIP_CERT to it",
    ),
    (r"407 Proxy|ProxyError|Cannot connect to proxy", "the network's proxy refuses the connection: set HTTPS_PROXY"),
    (
        r"NewConnectionError|NameResolutionError|name resolution|getaddrinfo failed|Network is unreachable|"
        r"ConnectTimeout|Read ?[Tt]ime(d )?out|Connection (refused|reset|broken|aborted)|IncompleteRead|Max retries",
        "there is no network, or it broke off: connect this computer to the internet",
    ),
    (
        r"Permission denied|Errno 13\b|WinError 5\b|Access is denied",
        "this user may not write in {folder}: make it yours",
    ),
    (r"Read-only file system|Errno 30\b", "{folder} is read-only: copy the course to a folder that you can write to"),
    (r"WinError 32|being used by another process", "another program uses {folder}: close JupyterLab and editors"),
    (r"requires a different Python|Requires-Python", "this Python is not 3.11, 3.12 or 3.13: install one of them"),
    (
        r"No matching distribution found for torch",
        "PyTorch offers no such release for this computer (64-bit Python on Linux, Windows or a Mac with Apple "
        "silicon is needed): use such a computer, or open the course on Binder",
    ),
    (r"ResolutionImpossible|conflicting dependencies", "the versions asked for contradict each other: see the log"),
    (r"No matching distribution found", "the package index lacks a version named in requirements.lock: see the log"),
)


class Pip:
    """pip of one environment: each call is appended to one log file, and shows progress."""

    def __init__(self, python: Path, folder: Path, log: Path, *, need: float = 2.0) -> None:
        self.python, self.folder, self.log, self.need = python, folder, log, need
        self.started = time.monotonic()

    def install(self, *arguments: str, site: Path | None = None) -> None:
        """Run `pip install` with these arguments. Raises Stop with the reason when it fails.

        `site` is the folder that packages go to; counting there shows how far the installing is.
        """
        temporary = self.folder / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        environment = clean_environment() | {
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_INPUT": "1",
            "PIP_USER": "0",  # some systems set it for all; it cannot work in an environment
            "PYTHONUNBUFFERED": "1",
            # /tmp is often small and in memory; torch alone needs gigabytes while it is unpacked.
            **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary)),
        }
        command = [str(self.python), "-m", "pip", "install", "--progress-bar", "off", *arguments]
        with self.log.open("a", encoding="utf-8", errors="replace") as log:
            start = log.tell()
            log.write(f"$ {' '.join(command)}\n")
            log.flush()
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
            )
            try:
                self._follow(process, log, temporary, site)
            finally:
                _end(process)
        _empty(temporary)
        if process.returncode:
            with self.log.open(encoding="utf-8", errors="replace") as log:
                log.seek(start)
                raise Stop(self.sentence(log.read()))

    def sentence(self, text: str) -> str:
        """Return one sentence for what this text of pip says: the reason, the remedy, and the log's name."""
        for pattern, reason in REASONS:
            if re.search(pattern, text):
                why = reason.format(need=self.need, folder=self.folder.parent)
                break
        else:
            errors = [line.strip() for line in text.splitlines() if line.startswith(("ERROR", "error"))]
            why = f"pip said “{(errors or text.strip().splitlines() or ['nothing'])[-1].strip()}”"
        return f"Set-up stopped because {why}, then run `{how_to('setup')}` again (pip's own log: {self.log})."

    def _follow(self, process: subprocess.Popen[str], log, temporary: Path, site: Path | None) -> None:
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_feed, args=(process.stdout, lines), daemon=True).start()
        progress, seen, total, phase, detail = Progress(), 0, 0, "starting", "pip"
        done_before = installed(site)
        while True:
            try:
                line = lines.get(timeout=0.5)
            except queue.Empty:
                line = ""
            if line is None:
                break
            log.write(line)
            if found := re.match(r"\s*(Collecting|Requirement already satisfied:) ([\w.-]+)", line):
                seen += 1
                phase, detail = "fetching", f"package {seen}, {found[2]}"
            elif found := re.match(r"\s*Downloading (\S+?)-\d\S* \((.+)\)", line):
                phase, detail = "fetching", f"package {seen}, {found[1]} ({found[2]})"
            elif re.match(r"\s*(Preparing|Building) editable", line):
                phase, detail = "preparing", "the course's own package"
            elif line.startswith("Installing collected packages:"):
                total = line.count(",") + 1
            if total:
                phase, detail = "installing", f"{min(installed(site) - done_before, total)} of {total} packages"
            elif phase == "fetching" and not line and (megabytes := _size(temporary) / 1e6) >= 1:
                progress.show(phase, f"{detail}, {megabytes:.0f} MB so far", time.monotonic() - self.started)
                continue
            progress.show(phase, detail, time.monotonic() - self.started)
        progress.clear()
        process.wait()


def clean_environment() -> dict[str, str]:
    """Return this process's environment without what would mix in other Pythons' packages, and without make's own."""
    unwanted = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "__PYVENV_LAUNCHER__", "COURSE_PYTHON_NAMED", "PYTHON")
    makes = ("MAKELEVEL", "MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKE_TERMOUT", "MAKE_TERMERR")
    return {name: value for name, value in os.environ.items() if name not in unwanted + makes}


def installed(site: Path | None) -> int:
    """Return how many packages stand in a folder."""
    return sum(1 for _ in site.glob("*.dist-info")) if site else 0


def _feed(stream: Iterator[str], lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def _end(process: subprocess.Popen[str]) -> None:
    """Stop pip if it still runs, and wait: no set-up goes on behind the reader's back."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _size(folder: Path) -> int:
    total = 0
    for path in folder.glob("pip-*/*"):
        try:
            total += path.stat().st_size
        except OSError:  # pip moved it in the meantime
            continue
    return total


def _empty(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
