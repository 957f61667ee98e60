"""`make bench`: run every bench/bench_*.py and compare what they measured with the targets.

A benchmark is a program of its own, so that what one imports or warms up helps no other. It calls
`report` once for each number:

    from tools.bench import report
    report("drawing a 64-cell layout, times faster than matplotlib", slow / fast, at_least=100)
    report("drawing a 64-cell layout, milliseconds", fast * 1000, at_most=1)

One that prints sentences of its own and exits with 1 when a target is missed is as good; one that says
nothing has failed. Both sides of a ratio are measured in the same run of the same program.
To run one: make bench ARGS=setup
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARK = "bench-result "  # how a line that carries a result starts


def report(what: str, measured: float, *, at_least: float | None = None, at_most: float | None = None) -> None:
    """Hand one number to the table. Give exactly one target: the least or the most it may be."""
    if (at_least is None) == (at_most is None):
        raise ValueError("a result needs one target: at_least or at_most")
    print(MARK + json.dumps({"what": what, "measured": measured, "at_least": at_least, "at_most": at_most}), flush=True)


def results(text: str) -> list[dict]:
    """Return the results in what a benchmark printed."""
    return [json.loads(line.removeprefix(MARK)) for line in text.splitlines() if line.startswith(MARK)]


def met(result: dict) -> bool:
    """Tell whether a measured number reaches its target."""
    if result["at_least"] is not None:
        return result["measured"] >= result["at_least"]
    return result["measured"] <= result["at_most"]


def table(found: list[dict]) -> str:
    """Return the results as lines: measured, target, what."""
    rows = [("measured", "target", "", "what")]
    for result in found:
        least = result["at_least"] is not None
        target = f"{'≥' if least else '≤'} {result['at_least'] if least else result['at_most']:g}"
        rows.append((f"{result['measured']:.4g}", target, "met" if met(result) else "MISSED", result["what"]))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        f"{row[0]:>{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:<{widths[2]}}  {row[3]}".rstrip() for row in rows
    )


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all; return 1 when a target is missed or a benchmark breaks."""
    programs = sorted((ROOT / "bench").glob("bench_*.py"))
    unknown = [name for name in names if name not in [program.stem.removeprefix("bench_") for program in programs]]
    if unknown:
        print(f"There is no benchmark {unknown[0]!r}: bench/ holds {', '.join(program.stem for program in programs)}.")
        return 2
    found, broken = [], []
    for program in programs:
        if names and program.stem.removeprefix("bench_") not in names:
            continue
        print(f"{program.stem} …", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", f"bench.{program.stem}"], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        said = [line for line in done.stdout.splitlines() if line.strip() and not line.startswith(MARK)]
        for line in said:
            print(f"  {line}", flush=True)
        new = results(done.stdout)
        if done.returncode or not (new or said):
            broken.append(program.stem)
        found += new
    if found:
        print(table(found))
    for name in broken:
        print(f"{name} missed a target, failed, or said nothing: see above.")
    return 1 if broken or not all(met(result) for result in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
