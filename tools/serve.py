"""The server behind `make lab`: JupyterLab with the course's settings, and one clear line when it answers.

Runs inside the course's environment, unlike the modules beside it. Jupyter's own messages go to
`.course/lab.log`. Nothing is written to the reader's own Jupyter settings: what the course needs
differently (no news question, panels that are saved, a layout of its own) lives in `.course`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path

import nbformat
from jupyter_server.serverapp import ServerApp
from jupyterlab.labapp import LabApp
from nbformat.sign import NotebookNotary

from tools import files
from tools.connection import SETTING
from tools.lab import DEFAULTS, START_PAGE, notebooks

ROOT = Path(__file__).resolve().parent.parent


def trust() -> None:
    """Sign the course's notebooks as delivered, so that their stored drawings show before a cell is run."""
    notary = NotebookNotary()
    for path in notebooks(ROOT):
        notary.sign(nbformat.read(path, as_version=4))


def server(notes: Path, desktop: bool) -> ServerApp:
    """Return the server with JupyterLab in it, ready to start."""
    settings = notes / "lab-settings"
    settings.mkdir(parents=True, exist_ok=True)
    files.replace_file(settings / "overrides.json", json.dumps(DEFAULTS).encode())
    arguments = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port_retries": 100,
        "ServerApp.root_dir": str(ROOT / "workbook"),
        "ServerApp.open_browser": desktop,
        # Browsers installed as snap or flatpak may not read the hidden file that Jupyter opens otherwise.
        "ServerApp.use_redirect_file": False,
        "ServerApp.allow_root": hasattr(os, "geteuid") and os.geteuid() == 0,
        "LabApp.default_url": f"/lab/tree/{START_PAGE}",
        "LabApp.app_settings_dir": str(settings),
        "LabApp.workspaces_dir": str(notes / "lab-layout"),
        "LabApp.extension_manager": "readonly",
    } | SETTING
    return LabApp.initialize_server(argv=[f"--{name}={value}" for name, value in arguments.items()])


def main() -> int:
    """Sign, start, print the address once the server answers, and serve until Ctrl-C."""
    notes, desktop = Path(os.environ["COURSE_NOTES"]), bool(os.environ.get("COURSE_DESKTOP"))
    notes.mkdir(exist_ok=True)
    log = notes / "lab.log"
    reader = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, errors="replace")
    with log.open("w", encoding="utf-8", errors="replace") as file:
        sys.stdout.flush()
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        trust()
        if "--trust-only" in sys.argv:
            return 0
        app = server(notes, desktop)
        token = app.identity_provider.token
        address = f"http://127.0.0.1:{app.port}/lab/tree/{START_PAGE}?token={token}"
        opened = "opens in your browser; if it does not, open" if desktop else "is at"

        def announce() -> None:
            print(f"The course {opened} {address}\nStop it with Ctrl-C. Jupyter's log: {log}", file=reader, flush=True)

        def stop(*_: object) -> None:
            app.io_loop.add_callback_from_signal(app.stop)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)  # at once and for good, where Jupyter would ask whether it is meant
        app.io_loop.add_callback(announce)  # runs when the loop runs: from then on the server answers
        app.start()
    except SystemExit as stop:
        if stop.code:
            print(f"JupyterLab did not start: the reason is at the end of {log}.", file=reader, flush=True)
            return 1
    except Exception as error:
        traceback.print_exc()
        print(f"JupyterLab did not start ({error}): the whole reason is in {log}.", file=reader, flush=True)
        return 1
    print("The course has stopped; your work is in workbook/.", file=reader, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
