"""Measure what `import helpers` costs a chapter that has torch and ipywidgets already.

Run it as `make bench ARGS=import`. Each measurement is a fresh Python. The compiled modules of an earlier
import are used, as they are in every run of a chapter but the very first.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

from tools.bench import report

TARGET_MS = 100
RUNS = 9
PROGRAM = """
import time, torch, ipywidgets
start = time.perf_counter()
from helpers import *
print(1000 * (time.perf_counter() - start))
"""


def milliseconds() -> float:
    """Return the wall time of the import in a fresh Python."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=variables, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> int:
    print(f"the first import, which may have to compile: {milliseconds():.0f} ms")
    times = [milliseconds() for _ in range(RUNS)]
    report("import helpers beyond torch and ipywidgets, milliseconds", statistics.median(times), at_most=TARGET_MS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
