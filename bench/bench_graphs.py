"""Drawing the graphs of five models, next to torchviz, torchview and torchlens, all in one run.

Run it as `make bench ARGS=graphs`. The peers are installed by `bench/peers.py`, and what each of them draws is told in
`bench/drawn_graph.py`. A peer that is missing or fails is told with its message, and the others go on.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import peers
from tools.bench import report

ROOT = Path(__file__).resolve().parents[1]
GRAPHS = ("tiny", "MLP", "ResNet-50", "GPT-2, 12 layers", "GPT-2, 48 layers")  # of bench/drawn_graph.py
LARGEST = GRAPHS[-1]
# These draw every node of the autograd graph, as ours does. The others draw modules and operators of the forward run.
DRAW_AUTOGRAD = ("torchviz",)
LIMIT_S = 120  # for one library on one graph, by the clock
LEAST_RATIO, LEAST_RATIO_LARGEST = 5, 20
MOST_MS = {"ResNet-50": 15, "GPT-2, 48 layers": 150}
MOST_BOXES = 60
NOTE = """\
User and system time of the whole process tree, median of up to 9 pictures, from the live result to the SVG.
torchview and torchlens draw the forward run, and run it to do so. Ratios are to torchviz, which draws the autograd
graph; ours also shows every saved tensor, which torchviz leaves out unless it is asked."""


class PictureError(Exception):
    """Why a library drew no picture, in one line."""


def drawn(library: str, graph: str) -> dict[str, Any]:
    """Let a library draw a graph in a process of its own; return `cpu_ms` and `boxes`. Raises PictureError."""
    python = peers.python() if library in peers.PINS else sys.executable
    command = [str(python), "-m", "bench.drawn_graph", library, graph]
    running = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        said, complained = running.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)  # dot, too
        running.communicate()
        raise PictureError(f"no picture within {LIMIT_S} s") from None
    return answer(running.returncode, said, complained)


def answer(status: int, said: str, complained: str) -> dict[str, Any]:
    """Return what a process of bench/drawn_graph.py answered. Raises PictureError with its message."""
    if status < 0:
        raise PictureError(f"ended by signal {-status}")
    if status:
        raise PictureError(peers.last_line(complained))
    try:
        return json.loads(said.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise PictureError(f"no answer came, but {said[-60:]!r}") from None


def fastest(times: Mapping[str, float]) -> tuple[str, float] | None:
    """Return the fastest of the peers that draw the autograd graph, with its time; None where there is none."""
    found = [(ms, name) for name, ms in times.items() if name in DRAW_AUTOGRAD]
    return min(found)[::-1] if found else None


def table(times: Mapping[str, Mapping[str, tuple[float, int]]]) -> str:
    """Return a line for each library: milliseconds and boxes for each graph, or a dash."""
    rows = [["CPU ms (boxes)", *GRAPHS]]
    for library, found in times.items():
        cells = [f"{found[graph][0]:,.1f} ({found[graph][1]:,})" if graph in found else "–" for graph in GRAPHS]
        rows.append([library, *cells])
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for library, *cells in rows:
        right = [cell.rjust(width) for cell, width in zip(cells, others, strict=True)]
        lines.append("  ".join([library.ljust(first), *right]))
    return "\n".join(lines)


def main() -> int:
    for name, reason in (absent := peers.missing()).items():
        print(f"{name} is not measured: {reason}")
    times: dict[str, dict[str, tuple[float, int]]] = {
        library: {} for library in ("ours", *(name for name in peers.PINS if name not in absent))
    }
    failed = False
    for graph in GRAPHS:
        for library, found in times.items():
            try:
                told = drawn(library, graph)
            except PictureError as error:
                print(f"{library} failed on {graph}: {error}")
                failed = failed or library == "ours"
            else:
                found[graph] = statistics.median(told["cpu_ms"]), told["boxes"]
    print(table(times))
    print(NOTE)
    for graph in GRAPHS:
        judge(graph, {library: found[graph][0] for library, found in times.items() if graph in found})
    try:
        collapsed = drawn("ours_at_depth_2", LARGEST)
        report(f"{LARGEST}, boxes at depth 2", collapsed["boxes"], at_most=MOST_BOXES)
    except PictureError as error:
        print(f"ours at depth 2 failed on {LARGEST}: {error}")
        failed = True
    return int(failed)


def judge(graph: str, times: Mapping[str, float]) -> None:
    """Report ratio and time of ours on one graph, as far as they have targets."""
    if "ours" not in times:
        return
    rival = fastest(times)
    if rival is None:
        print(f"{graph}: no ratio, because no peer drew this autograd graph in this run.")
    else:
        least = LEAST_RATIO_LARGEST if graph == LARGEST else LEAST_RATIO
        report(f"{graph}, times faster than {rival[0]}", rival[1] / times["ours"], at_least=least)
    if graph in MOST_MS:
        report(f"{graph}, milliseconds from the loss to the SVG", times["ours"], at_most=MOST_MS[graph])


if __name__ == "__main__":
    sys.exit(main())
