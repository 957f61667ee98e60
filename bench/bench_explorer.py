"""Measure the layout explorer in a real JupyterLab: from key press to painted picture.

Run it as `make bench ARGS=explorer`. In a JupyterLab of its own it moves the slider of a view of 256
cells with the arrow keys, and then that of a panel that shows no picture. The second number is what this
machine needs for the way to the kernel and back; only what lies above it is the picture's. Of three
rounds, each with a median of its own, the least disturbed one counts: a busy machine only ever adds time.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from tools.bench import report
from tools.nbharness.build import code, write_notebook
from tools.nbharness.lab import Lab, browser_page, running_lab

TARGET_MS = 50
PRESSES = 60
ROUNDS = 3
PICTURE = """import torch
from helpers import *
explore_layout(torch.arange(256).view(16, 16))"""
NOTHING = """from helpers.explore.panel import Panel, Slider, View
class Bare:
    title, place = "bare", 0
    def view(self):
        return View([], f"{self.place}", actions=[Slider("highlight", "highlight row", -1, 15, self.place)])
    def change(self, name, value):
        self.place = value
    def still(self):
        return "", "bare"
Panel(Bare())"""

# A press counts from the browser's key event to the first moment after the frame that shows the kernel's answer.
OBSERVE = """
panel => {
  window.times = [];
  if (panel.observed) return;
  panel.observed = true;
  let pressed = 0;
  panel.addEventListener("keydown", () => { pressed = performance.now(); }, true);
  new MutationObserver(() => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => {
      window.times.push(performance.now() - pressed);
      window.painted?.();
    };
    channel.port2.postMessage(0);
  })).observe(panel, { attributes: true, attributeFilter: ["data-shown"] });
}
"""

# Asking again and again would keep the page busy, and its own frames would be measured.
PAINTED = "count => window.times.length >= count || new Promise((resolve) => (window.painted = resolve))"


def measure(lab: Lab, cell_id: str) -> float:
    """Return the median of milliseconds from key press to painted, in the panel of this cell."""
    panel = lab.cell(cell_id).locator(".cp-panel")
    panel.wait_for()
    panel.get_by_role("slider", name="highlight row").focus()
    panel.evaluate(OBSERVE)
    for press in range(PRESSES):
        lab.page.keyboard.press("ArrowRight" if press % 30 < 15 else "ArrowLeft")
        lab.page.evaluate(PAINTED, press + 1)
    return statistics.median(lab.page.evaluate("window.times"))


def main() -> int:
    with (
        tempfile.TemporaryDirectory(prefix="course-bench-", ignore_cleanup_errors=True) as name,
        running_lab(Path(name)) as address,
        browser_page() as page,
    ):
        write_notebook(Path(name) / "workbook" / "bench.ipynb", code(PICTURE, id="picture"), code(NOTHING, id="bare"))
        lab = Lab(page, address)
        lab.start()
        lab.open("bench.ipynb")
        lab.run_all()
        rounds = [(measure(lab, "picture"), measure(lab, "bare")) for _ in range(ROUNDS)]
    with_picture, bare = (min(medians) for medians in zip(*rounds, strict=True))
    print(f"a panel without a picture: {bare:.0f} ms; the picture of 256 cells adds {with_picture - bare:.0f} ms")
    report("explorer, 256 cells, key press to painted, milliseconds", with_picture, at_most=TARGET_MS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
