"""Open the course: JupyterLab on this computer only, behind a token, in the reader's workbook."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

from tools.environment import Environment
from tools.installer import clean_environment
from tools.say import Stop

START_PAGE = "00_start.ipynb"
# What JupyterLab does differently here, by the plugin's name. The reader's own settings still win.
DEFAULTS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    # A saved notebook keeps how its panels looked: opened again, it shows them, and not "model not found".
    "@jupyter-widgets/jupyterlab-manager:plugin": {"saveState": True},
}


def has_desktop() -> bool:
    """Tell whether a browser opened from here would appear on a screen in front of the reader."""
    if "SSH_CONNECTION" in os.environ or os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv"):
        return False
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def run(environment: Environment) -> int:
    """Start JupyterLab and return its exit status when the reader stops it."""
    root = environment.root
    if not (root / "workbook" / START_PAGE).exists():
        raise Stop(f"The workbook has no {START_PAGE}, so the course cannot open.")
    settings = {
        "COURSE_NOTES": str(environment.notes),
        "COURSE_DESKTOP": "1" if has_desktop() else "",
        # In the environment, not among the arguments: those are visible to every user of the computer.
        "JUPYTER_TOKEN": secrets.token_hex(24),
        "JUPYTER_PREFER_ENV_PATH": "1",  # a kernel of the same name in the reader's home must not win
    }
    command = [str(environment.python), "-m", "tools.serve"]
    variables = clean_environment() | settings
    if os.name != "nt":  # become the server: a signal meant for one reaches the other
        os.chdir(root)
        sys.stdout.flush()
        os.execve(command[0], command, variables)
    process = subprocess.Popen(command, cwd=root, env=variables)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # the server got it too, and stops
            continue


def trust(environment: Environment) -> int:
    """Trust the course's own notebooks, without starting a server."""
    variables = clean_environment() | {"COURSE_NOTES": str(environment.notes)}
    command = [str(environment.python), "-m", "tools.serve", "--trust-only"]
    return subprocess.call(command, cwd=environment.root, env=variables)


def notebooks(root: Path) -> list[Path]:
    """Return the course's notebooks as delivered; these are trusted, a reader's own are theirs to trust."""
    return sorted((root / "notebooks").glob("*.ipynb"))
