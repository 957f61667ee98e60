"""Real JupyterLab on a workbook of its own, and a real browser in front of it.

The page is steered by JupyterLab's own commands and asked through its models, never by guessing at its HTML:
"Run All" answers too early once a cell has failed, so the model is polled.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools import workbook
from tools.connection import SETTING
from tools.lab import DEFAULTS

ROOT = Path(__file__).resolve().parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
_SETTINGS = DEFAULTS | {
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},  # cells out of sight are in the page, too
    "@jupyterlab/extensionmanager-extension:plugin": {"enabled": False},
}
_CELLS = """() => {
    const errors = (cell) => cell.outputs.toJSON().filter((output) => output.output_type === "error");
    return Array.from(window.course.content.model.cells, (cell) => ({
        id: cell.id,
        type: cell.type,
        count: cell.executionCount ?? null,
        tags: cell.metadata.tags ?? [],
        errors: cell.type === "code" ? errors(cell).map((error) => `${error.ename}: ${error.evalue}`) : [],
    }));
}"""


def find_chromium() -> str | None:
    """Return the path of a Chromium: COURSE_CHROMIUM, or the first one on PATH; None where there is none."""
    named = os.environ.get("COURSE_CHROMIUM")
    return named or next((path for name in BROWSERS if (path := shutil.which(name))), None)


@contextlib.contextmanager
def running_lab(folder: Path) -> Iterator[str]:
    """Start JupyterLab on a fresh workbook in `folder`, with settings of its own; yield its address with the token."""
    workbook.sync(ROOT / "notebooks", folder / "workbook")
    for name, content in _SETTINGS.items():
        path = folder / "settings" / f"{name.replace(':', '/')}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    variables = os.environ | {
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "layout"),
        "IPYTHONDIR": str(folder / "ipython"),
        "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)])),
    }
    variables.pop("PYTEST_CURRENT_TEST", None)  # ipykernel would behave differently
    arguments = ["--no-browser", "--allow-root", f"--port={port}", "--ServerApp.ip=127.0.0.1"]
    arguments += ["--ServerApp.port_retries=0", f"--IdentityProvider.token={token}"]
    arguments += [f"--ServerApp.root_dir={folder / 'workbook'}", "--LabApp.expose_app_in_browser=True"]
    arguments += ["--LabApp.extension_manager=readonly", *(f"--{name}={value}" for name, value in SETTING.items())]
    with (folder / "lab.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *arguments], env=variables, stdout=log, stderr=log
        )
    try:
        _wait_until_it_answers(server, port, token, folder / "lab.log")
        yield f"http://127.0.0.1:{port}/lab?token={token}"
    finally:
        server.terminate()  # ends the kernels too
        try:
            server.wait(timeout=30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait_until_it_answers(server: subprocess.Popen, port: int, token: str, log: Path, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api/status?token={token}", timeout=5).close()
            return
        time.sleep(0.3)
    raise RuntimeError(f"JupyterLab did not answer within {seconds:.0f} s:\n{log.read_text()[-2000:]}")


@contextlib.contextmanager
def browser_page(width: int = 1400, height: int = 1000) -> Iterator:
    """Yield a Playwright page in Chromium. `RuntimeError` where there is no Chromium."""
    from playwright.sync_api import sync_playwright

    path = find_chromium()
    if path is None:
        raise RuntimeError("No Chromium is installed; COURSE_CHROMIUM names one that is not on PATH.")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            page = browser.new_page(viewport={"width": width, "height": height})
            page.set_default_timeout(60_000)
            yield page
        finally:
            browser.close()


@dataclass
class Lab:
    """JupyterLab in a page: open a notebook, run it, choose a theme."""

    page: object
    address: str

    def start(self) -> None:
        """Load JupyterLab and wait until it is ready."""
        self.page.goto(self.address)
        self.page.wait_for_function("() => window.jupyterapp", timeout=120_000)
        self.page.evaluate("() => window.jupyterapp.restored.then(() => null)")

    def open(self, name: str, *, cleared: bool = True) -> None:
        """Open a notebook, close all others, wait for its kernel, and clear what is stored in it if so wanted."""
        self.page.evaluate(
            """async ([path, cleared]) => {
                const app = window.jupyterapp;
                if (window.course) {
                    await window.course.sessionContext.shutdown();
                    await window.course.context.revert();
                    window.course.dispose();
                }
                window.course = await app.commands.execute("docmanager:open", {path, factory: "Notebook"});
                await window.course.revealed;
                await window.course.sessionContext.ready;
                const code = Array.from(window.course.content.model.cells).filter((cell) => cell.type === "code");
                if (cleared) for (const cell of code) cell.clearExecution();
            }""",
            [name, cleared],
        )

    def save(self) -> bytes:
        """Save the notebook and return what stands in its file."""
        return self.page.evaluate(
            """async () => {
                const {path} = window.course.context;
                await window.course.context.save();
                const file = {type: "file", format: "text", content: true};
                return (await window.jupyterapp.serviceManager.contents.get(path, file)).content;
            }"""
        ).encode()

    def reopen(self) -> None:
        """End the kernel of the notebook, close it, and open it again as a reader does the next day."""
        self.page.evaluate(
            """async () => {
                const {path} = window.course.context;
                const {commands} = window.jupyterapp;
                await window.course.sessionContext.shutdown();
                window.course.dispose();
                window.course = await commands.execute("docmanager:open", {path, factory: "Notebook"});
                await window.course.revealed;
                await window.course.sessionContext.ready;
            }"""
        )

    def cells(self) -> list[dict]:
        """Return id, type, count, tags and errors of every cell, from the model."""
        return self.page.evaluate(_CELLS)

    def run_all(self, seconds: float = 300) -> list[dict]:
        """Run all cells; return the cells when all have run, or when one failed that may not."""
        self.page.evaluate(
            "() => { window.jupyterapp.commands.execute('notebook:run-all-cells').catch(() => null); return null; }"
        )
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            cells = self.cells()
            code = [cell for cell in cells if cell["type"] == "code"]
            failed = any(cell["errors"] and "raises-exception" not in cell["tags"] for cell in code)
            if failed or (all(cell["count"] for cell in code) and self._idle()):
                return cells
            self.page.wait_for_timeout(300)
        stuck = next(cell["id"] for cell in self.cells() if cell["type"] == "code" and not cell["count"])
        raise RuntimeError(f"Cell {stuck} had not run after {seconds:.0f} s.")

    def _idle(self) -> bool:
        return self.page.evaluate("() => window.course.sessionContext.session?.kernel?.status === 'idle'")

    def theme(self, name: str) -> None:
        """Switch to the "light" or "dark" theme, and wait until the page shows it."""
        self.page.evaluate(
            "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", THEMES[name]
        )
        light = "true" if name == "light" else "false"
        self.page.wait_for_function(f"() => document.body.dataset.jpThemeLight === '{light}'")

    def cell(self, cell_id: str):
        """Return the page's element of a cell, found by the id in the model."""
        index = [cell["id"] for cell in self.cells()].index(cell_id)
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook .jp-Cell").nth(index)


@contextlib.contextmanager
def lab_in_browser() -> Iterator[Lab]:
    """Yield JupyterLab, running and loaded, in a browser; everything is gone afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="course-lab-", ignore_cleanup_errors=True) as folder,
        running_lab(Path(folder)) as address,
        browser_page() as page,
    ):
        lab = Lab(page, address)
        lab.start()
        yield lab
