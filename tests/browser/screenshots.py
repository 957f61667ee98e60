"""Pictures of every chapter in both themes, to look at: `python tests/browser/screenshots.py FOLDER [CHAPTER …]`.

Each chapter is run in real JupyterLab. The pictures are tiles from top to bottom, 1000 pixels wide and at most 1600
high: FOLDER/01_storage-light-03.png. A tile ends between two cells where it can.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.nbharness.lab import THEMES, Lab, lab_in_browser  # noqa: E402

WIDTH, HEIGHT = 1000, 1600


def tiles(edges: list[float], height: float) -> list[tuple[float, float]]:
    """Return the (top, bottom) of each tile, from the lower edges of the cells."""
    found, top, end = [], 0.0, edges[-1] if edges else 0.0
    while end - top > 1:
        fitting = [edge for edge in edges if top < edge <= top + height]
        bottom = fitting[-1] if fitting else top + height
        found.append((top, bottom))
        top = bottom
    return found


def take(lab: Lab, name: str, folder: Path) -> list[Path]:
    """Photograph the open, run notebook in both themes; return the files."""
    page = lab.page
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    page.evaluate("() => window.jupyterapp.commands.execute('application:set-mode', {mode: 'single-document'})")
    page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    # Let the notebook be as long as its cells, so that the page shows it whole.
    page.add_style_tag(
        content=".jp-WindowedPanel-outer { overflow-y: visible !important; } .jp-Toolbar { display: none }"
    )
    files = []
    for theme in THEMES:
        lab.theme(theme)
        page.wait_for_timeout(500)
        outer = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-WindowedPanel-outer")
        edges = outer.evaluate(
            "(o) => Array.from(o.querySelectorAll('.jp-Cell'), (c) => "
            "c.getBoundingClientRect().bottom - o.getBoundingClientRect().top + o.scrollTop)"
        )
        for number, (top, bottom) in enumerate(tiles(edges, HEIGHT - 100), 1):
            outer.evaluate("(o, top) => { o.style.overflow = 'auto'; o.scrollTop = top; }", top)
            page.wait_for_timeout(150)
            shift = outer.evaluate("(o) => o.scrollTop")
            box = outer.bounding_box()
            path = folder / f"{name}-{theme}-{number:02}.png"
            clip = {"x": box["x"], "y": box["y"] + top - shift, "width": box["width"], "height": bottom - top}
            page.screenshot(path=path, clip=clip)
            files.append(path)
    return files


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    chapters = sys.argv[2:] or sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
    with lab_in_browser() as lab:
        for name in chapters:
            lab.open(f"{name}.ipynb")
            lab.run_all()
            for path in take(lab, name, folder):
                print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
