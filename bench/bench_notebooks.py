"""How long testing the notebooks takes, against kernels that only import the same packages.

    python bench/bench_notebooks.py [NOTEBOOK …]

Both sides go through the same pytest with one kernel per notebook, in turns. The ratio is printed; beyond 1.5 the
exit status is 1.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.nbharness.build import code, write_notebook  # noqa: E402
from tools.nbharness.run import run_notebooks  # noqa: E402

LIMIT = 1.5
# Packages, and their direct parts: `torch._dynamo`, which an optimizer's first step imports, takes seconds by itself.
PACKAGES = (
    "import sys\n"
    "print(*sorted(name for name, m in sys.modules.items() if name.count('.') < 2 or hasattr(m, '__path__')))"
)


def imports_of(notebook: Path, folder: Path) -> Path:
    """Return a notebook with one cell that imports each package that the given notebook has imported at its end."""
    import nbformat

    probe = folder / f"probe-{notebook.name}"
    cells = [cell for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]
    write_notebook(probe, *cells, code(PACKAGES, id="packages"))
    loaded = set(run_notebooks([probe])[probe][-1].outputs[-1]["text"].split())
    bare = write_notebook(folder / "bare.ipynb", code(PACKAGES, id="packages"))
    loaded -= set(run_notebooks([bare])[bare][-1].outputs[-1]["text"].split())
    wanted = sorted(name for name in loaded if name.partition(".")[0] not in {*sys.stdlib_module_names, "__mp_main__"})
    source = (
        "from contextlib import suppress\nfrom importlib import import_module\n"
        f"for name in {wanted!r}:\n    with suppress(ImportError):\n        import_module(name)"
    )
    return write_notebook(folder / f"imports-{notebook.name}", code(source, id="imports"))


def seconds(notebooks: list[Path]) -> float:
    """Return the wall time of testing these notebooks; a cell that can't run is an error."""
    began = time.perf_counter()
    results = run_notebooks(notebooks)
    took = time.perf_counter() - began
    if failed := [run.id for runs in results.values() for run in runs if run.outcome == "failed"]:
        raise RuntimeError(f"These cells could not run: {', '.join(failed)}.")
    return took


def main() -> int:
    notebooks = [Path(name).resolve() for name in sys.argv[1:]] or sorted((ROOT / "notebooks").glob("*.ipynb"))
    with tempfile.TemporaryDirectory(prefix="course-bench-") as name:
        imports = [imports_of(notebook, Path(name)) for notebook in notebooks]
        pairs = [(seconds(notebooks), seconds(imports)) for _ in range(3)]
    # The least disturbed of three rounds: a busy machine only ever adds time.
    whole, bare = min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)
    ratio = whole / bare
    print(
        f"notebook tests {whole:.1f} s, the same kernels with imports only {bare:.1f} s: ratio {ratio:.2f} (≤ {LIMIT})"
    )
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    raise SystemExit(main())
