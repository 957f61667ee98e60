"""Measure the layout explorer in a real JupyterLab: from key press to painted picture.

Run it as `python bench/bench_explorer.py`. It starts a JupyterLab of its own (free port, temporary
folders), opens a notebook in Chromium, and moves the slider of a view of 256 cells with the arrow
keys. The median must stay within the target; otherwise it exits with 1.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

TARGET_MS = 50
PRESSES = 60
PROJECT = Path(__file__).resolve().parent.parent
SOURCE = [
    "import torch\n",
    "from helpers.explore.layout import explore_layout\n",
    "x = torch.arange(256).view(16, 16)\n",
    "explore_layout(x)",
]

# A press counts from the browser's key event to the first moment after the frame that shows the kernel's answer.
OBSERVE = """
panel => {
  window.times = [];
  let pressed = 0;
  panel.addEventListener("keydown", () => { pressed = performance.now(); }, true);
  new MutationObserver(() => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => window.times.push(performance.now() - pressed);
    channel.port2.postMessage(0);
  })).observe(panel, { attributes: true, attributeFilter: ["data-shown"] });
}
"""


@contextmanager
def jupyterlab(folder: Path) -> Iterator[str]:
    """Start a JupyterLab that knows nothing of the user's settings; yield its address with a token."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "JUPYTERLAB_SETTINGS_DIR")
    own = {name: str(folder / name.lower()) for name in names}
    own["JUPYTERLAB_WORKSPACES_DIR"] = str(folder / "workspaces")
    path = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"),
            *("--ServerApp.port_retries=0", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}"),
            "--LabApp.expose_app_in_browser=True",
            "--LabApp.news_url=None",
        ],
        env=os.environ | own | {"PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"{address}/api/status?token={token}", timeout=5).close()
                break
            except OSError:
                if server.poll() is not None:
                    raise RuntimeError("JupyterLab stopped before it answered") from None
                time.sleep(0.25)
        else:
            raise RuntimeError("JupyterLab did not answer within a minute")
        yield f"{address}/doc/tree/bench.ipynb?token={token}"
    finally:
        server.terminate()
        server.wait(30)


def write_notebook(folder: Path) -> None:
    """Write a notebook with the one cell that shows the explorer."""
    cell = {
        "id": "bench",
        "cell_type": "code",
        "metadata": {},
        "source": SOURCE,
        "outputs": [],
        "execution_count": None,
    }
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": [cell]}
    (folder / "bench.ipynb").write_text(json.dumps(notebook), encoding="utf-8")


def measure(page: Page, address: str) -> list[float]:
    """Return milliseconds from key press to painted, one for each press."""
    page.goto(address)
    page.locator(".jp-CodeCell .cm-content").first.click()
    page.keyboard.press("Shift+Enter")
    panel = page.locator(".cp-panel")
    panel.wait_for(timeout=120_000)
    slider = page.get_by_role("slider", name="highlight row")
    slider.focus()
    panel.evaluate(OBSERVE)
    for press in range(PRESSES):
        page.keyboard.press("ArrowRight" if press % 30 < 15 else "ArrowLeft")
        page.wait_for_function("count => window.times.length >= count", arg=press + 1, timeout=20_000)
    return page.evaluate("window.times")


def main() -> int:
    browser_path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        write_notebook(folder)
        with jupyterlab(folder) as address:
            browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
            times = measure(browser.new_page(viewport={"width": 1400, "height": 1000}), address)
            browser.close()
    median = statistics.median(times)
    print(f"explorer, 256 cells, key press to painted: median {median:.0f} ms of {len(times)} (target {TARGET_MS} ms)")
    return 0 if median <= TARGET_MS else 1


if __name__ == "__main__":
    sys.exit(main())
