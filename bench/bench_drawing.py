"""How fast a picture is drawn: a 64-cell layout, against the same picture made with matplotlib patches and text.

Run `.venv/bin/python bench/bench_drawing.py`. It prints both times and their ratio, from one run, and exits with 1
when drawing takes more than a millisecond, or less than 100 times shorter than matplotlib.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import matplotlib

matplotlib.use("agg")

import torch
from matplotlib import pyplot
from matplotlib.patches import Rectangle

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers.draw.storage import draw_layout

MOST_MILLISECONDS = 1.0
LEAST_RATIO = 100


def milliseconds(work: Callable[[], object], repeats: int) -> float:
    """Return the processor time of the fastest of so many calls: what other programs take is not counted."""
    work()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return 1000 * min(times)


def draw_with_matplotlib(svg: str) -> bytes:
    """Draw every rectangle and every text of a picture with matplotlib, and return it as SVG."""
    root = ElementTree.fromstring(svg)
    width, height = float(root.get("width")), float(root.get("height"))
    figure, axes = pyplot.subplots(figsize=(width / 100, height / 100))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    for node in root.iter():
        kind = node.tag.rpartition("}")[2]
        if kind == "rect":
            corner = float(node.get("x")), float(node.get("y"))
            axes.add_patch(Rectangle(corner, float(node.get("width")), float(node.get("height")), edgecolor="black"))
        elif kind == "text":
            axes.text(float(node.get("x")), float(node.get("y")), node.text, fontsize=9)
    file = io.BytesIO()
    figure.savefig(file, format="svg")
    pyplot.close(figure)
    return file.getvalue()


def main() -> int:
    """Measure, print, and return the exit status."""
    torch.set_num_threads(1)
    t = torch.arange(64).view(8, 8).t()
    ours = milliseconds(lambda: draw_layout(t, focus=1), repeats=300)
    svg = draw_layout(t, focus=1).svg
    theirs = milliseconds(lambda: draw_with_matplotlib(svg), repeats=5)
    large = torch.arange(256.0).view(16, 16)
    huge = torch.zeros(1).expand(1000, 1000, 1000)
    print(f"64 cells: {ours:.2f} ms (at most {MOST_MILLISECONDS} ms)")
    print(f"the same in matplotlib: {theirs:.0f} ms, {theirs / ours:.0f} times as long (at least {LEAST_RATIO})")
    print(f"256 cells: {milliseconds(lambda: draw_layout(large), repeats=51):.2f} ms")
    print(f"10⁹ elements: {milliseconds(lambda: draw_layout(huge), repeats=51):.2f} ms")
    return 0 if ours <= MOST_MILLISECONDS and theirs / ours >= LEAST_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
