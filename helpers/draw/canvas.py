"""A canvas for pictures of tensors: layers of tiles, links and labels that become one SVG.

A tile is one cell of a tensor or one slot of a storage. It shows a value large, and the number of its slot small
in its corner. The same slot looks the same in the view and in the storage, so a reader finds it again by its
number, not only by its colour. Links run over the ground of tiles and under their text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from helpers.draw.svg import (
    ADVANCE,
    FOCUS,
    HATCH,
    INK,
    LABEL_SIZE,
    SMALL_SIZE,
    STORAGE,
    VALUE_SIZE,
    VIEW,
    element,
    free,
    group,
    picture,
    rect,
    text,
    text_width,
)

TILE_HEIGHT = 38
PADDING = 5  # free pixels inside a tile, left and right of its text
LEAST_WIDTH = 36
WIDTH = 720  # what a picture should not exceed
WIDEST = 800  # what it may take where that keeps a row of the view in one piece

LIT = f' fill="{FOCUS}"'

# A tile: left edge, upper edge, value, slot number, badge, and what is put on its rectangle as XML attributes.
Tile = tuple[int, int, str, str, str, str]


def value_size(longest: int) -> int:
    """Return the font size of values of which the longest has so many characters."""
    return VALUE_SIZE if longest <= 5 else 13 if longest <= 8 else 12


def tile_width(values: Iterable[str], corners: Iterable[str], badges: Iterable[str] = ()) -> int:
    """Return the width, an even number of pixels, in which every value fits, and every slot number beside its badge."""
    longest = max(map(len, values), default=0)
    value = longest * ADVANCE * value_size(longest)
    badge = max(map(len, badges), default=0)
    top = (max(map(len, corners), default=0) + badge) * ADVANCE * SMALL_SIZE + (6 if badge else 0)
    return max(LEAST_WIDTH, 2 * round((max(value, top) + 2 * PADDING) / 2 + 0.5))


class Canvas:
    """Collects the parts of a picture, and grows to hold them."""

    def __init__(self) -> None:
        self.width = self.height = 0.0
        self.longest = 0  # the characters of the longest value
        self.tiles: dict[str, list[str]] = {"storage": [], "view": []}
        self.frames: list[str] = []
        self.hatched: list[str] = []
        self.gaps: list[str] = []
        self.links: list[str] = []
        self.dots: list[str] = []
        self.values: list[str] = []
        self.corners: list[str] = []
        self.badges: list[str] = []
        self.labels: list[str] = []
        self.tags: list[str] = []

    def grow(self, x: float, y: float) -> None:
        """Make the picture hold this point."""
        if x > self.width:
            self.width = x
        if y > self.height:
            self.height = y

    def tile(self, kind: str, width: int, tiles: Sequence[Tile]) -> None:
        """Add tiles of one kind: "storage", "view", or "unreached", a slot that the view cannot read.

        Those in focus say so by `LIT` in their attributes and keep their place among the others: where a panel moves
        its focus, few lines of the picture change. A frame over them hides the edges of their neighbours.
        """
        if not tiles:
            return
        if kind == "unreached":
            for tile in tiles:
                self.hatch(tile[0], tile[1], width)
            kind = "storage"
        size, middle, right = f'width="{width}" height="{TILE_HEIGHT}"', width // 2, width - 4
        self.tiles[kind] += [f'<rect x="{x}" y="{y}" {size}{data}/>' for x, y, _, _, _, data in tiles]
        self.frames += [f'<rect x="{x}" y="{y}" {size}/>' for x, y, _, _, _, data in tiles if data.endswith(LIT)]
        self.values += [f'<text x="{x + middle}" y="{y + 31}">{value}</text>' for x, y, value, *_ in tiles if value]
        self.corners += [f'<text x="{x + 4}" y="{y + 12}">{corner}</text>' for x, y, _, corner, _, _ in tiles]
        self.badges += [f'<text x="{x + right}" y="{y + 12}">{badge}</text>' for x, y, _, _, badge, _ in tiles if badge]
        lefts, tops, values, *_ = zip(*tiles, strict=True)
        self.longest = max(self.longest, *map(len, values))
        self.grow(max(lefts) + width, max(tops) + TILE_HEIGHT)

    def hatch(self, x: int, y: int, width: int) -> None:
        """Add diagonal lines over a tile. They run on without a break from one tile to the next of the same width."""
        lines, half = max(1, width // 36), TILE_HEIGHT // 2
        step = width / lines / 2
        for i in range(lines):
            left = x + 2 * i * step
            self.hatched.append(f"M{left:g} {y + half}l{step:g} -{half}m{step:g} 0l{-2 * step:g} {2 * half}")
            self.hatched.append(f"m{step:g} 0l{step:g} -{half}")

    def bar(self, x: int, y: int, width: int, height: int, content: str, data: str = "") -> None:
        """Add a flat bar with small text in its middle: an element of a tensor, beneath the slots it reads."""
        self.tiles["view"].append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}"{data}/>')
        if content:
            self.badges.append(
                f'<text x="{x + width // 2}" y="{y + height // 2 + 4}" text-anchor="middle">{content}</text>'
            )
        self.grow(x + width, y + height)

    def gap(self, kind: str, x: int, y: int, width: int, lines: tuple[str, str], data: str = "") -> None:
        """Add a dashed box with two lines of text: slots that are left out."""
        fill = VIEW if kind == "view" else STORAGE
        self.gaps.append(f'<rect x="{x + 1}" y="{y}" width="{width - 2}" height="{TILE_HEIGHT}" fill="{fill}"{data}/>')
        for i, line in enumerate(lines):
            self.badges.append(f'<text x="{x + width // 2}" y="{y + 16 + 14 * i}" text-anchor="middle">{line}</text>')
        self.grow(x + width, y + TILE_HEIGHT)

    def label(self, x: float, y: float, content: str, anchor: str = "start", bold: bool = False) -> None:
        """Add text on the page itself, its baseline at `y`, which starts, has its middle or ends at `x`."""
        extra = ' font-weight="bold"' if bold else ""
        if anchor != "start":
            extra += f' text-anchor="{anchor}"'
        self.labels.append(f'<text x="{x:g}" y="{y:g}"{extra}>{escape(content)}</text>')
        share = 0.0 if anchor == "end" else 0.5 if anchor == "middle" else 1.0
        self.grow(x + text_width(content, LABEL_SIZE) * share, y + 4)

    def tag(self, x: float, y: float, content: str, fill: str = VIEW, anchor: str = "start") -> None:
        """Add dark text on a filled, rounded box around it: it stays readable where links pass. Baseline at `y`."""
        width = text_width(content, SMALL_SIZE) + 8
        left = x - {"start": 4, "middle": width / 2, "end": width - 4}[anchor]
        box = rect(left, y - 12, width, 16, rx=4, fill=fill)
        self.tags.append(box + text(left + width / 2, y, content))
        self.grow(left + width, y + 4)

    def arrow(self, x: float, y: float) -> None:
        """Add a small arrowhead that points up to this point."""
        self.tags.append(element("path", d=f"M{x} {y}l5 7h-10z", fill=VIEW))

    def svg(self, sentence: str) -> str:
        """Return the picture."""
        edge = {"stroke": INK, "stroke_opacity": 0.4, "shape_rendering": "crispEdges"}
        ink = {"fill": INK}
        parts = [
            group(self.gaps, stroke_dasharray="3 3", **edge),
            group(self.tiles["storage"], fill=STORAGE, **edge),
            element("path", d="".join(self.hatched), stroke=HATCH, fill="none") if self.hatched else "",
            group(self.tiles["view"], fill=VIEW, **edge),
            group(self.frames, fill="none", stroke=INK, stroke_width=2),
            group(self.links, fill="none", stroke=INK, stroke_width=3.2, opacity=0.4),
            group(self.links, fill="none", stroke=FOCUS, stroke_width=2),
            group(self.dots, fill=FOCUS, stroke=INK),
            group(self.values, font_size=value_size(self.longest), text_anchor="middle", **ink),
            group(self.corners, font_size=SMALL_SIZE, **ink),
            group(self.badges, font_size=SMALL_SIZE, text_anchor="end", **ink),
            free(self.labels),
            group(self.tags, font_size=SMALL_SIZE, text_anchor="middle", **ink),
        ]
        return picture(self.width + 2, self.height + 2, sentence, parts)
