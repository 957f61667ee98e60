"""Reads a picture back: its tiles with the text that stands on them, its links, and the room that text takes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from xml.etree import ElementTree

import pytest

from helpers.draw.drawing import Drawing
from helpers.draw.svg import FOCUS, STORAGE, VIEW, text_width

ROLES = {FOCUS: "focus", STORAGE: "storage", VIEW: "view"}


@dataclass(frozen=True)
class Box:
    """A rectangle or the room of a text: left, upper, right and lower edge, in pixels."""

    left: float
    top: float
    right: float
    bottom: float

    def holds(self, other: Box, slack: float = 0.5) -> bool:
        return (
            self.left - slack <= other.left
            and self.top - slack <= other.top
            and other.right <= self.right + slack
            and other.bottom <= self.bottom + slack
        )

    def meets(self, other: Box) -> bool:
        return (
            self.left < other.right - 0.5
            and other.left < self.right - 0.5
            and self.top < other.bottom - 0.5
            and other.top < self.bottom - 0.5
        )

    def contains(self, x: float, y: float, inset: float = 0.0) -> bool:
        return self.left + inset <= x <= self.right - inset and self.top + inset <= y <= self.bottom - inset


@dataclass(frozen=True)
class Text:
    content: str
    size: float
    box: Box
    bold: bool


@dataclass(frozen=True)
class Rect:
    box: Box
    role: str
    data: dict[str, str]
    texts: tuple[Text, ...] = ()

    @property
    def words(self) -> list[str]:
        """The texts on it: what stands in its upper line first, from left to right."""
        return [text.content for text in sorted(self.texts, key=lambda text: (text.box.bottom, text.box.left))]


@dataclass
class Picture:
    """What a drawing shows, read from its SVG."""

    size: tuple[float, float]
    title: str
    role: str
    ids: list[str]
    texts: list[Text] = field(default_factory=list)
    rects: list[Rect] = field(default_factory=list)
    links: list[tuple[str, str, list[tuple[float, float]]]] = field(default_factory=list)
    hatching: str = ""

    @property
    def cells(self) -> dict[tuple[int, ...], Rect]:
        """The cells of the view by index."""
        return {
            tuple(int(i) for i in rect.data["cell"].split(",") if i): rect for rect in self.rects if "cell" in rect.data
        }

    @property
    def slots(self) -> dict[int, Rect]:
        """The slots of the storage, by number."""
        return {int(rect.data["slot"]): rect for rect in self.rects if set(rect.data) == {"slot"}}

    @property
    def gaps(self) -> list[Rect]:
        return [rect for rect in self.rects if "last" in rect.data]

    def bars(self, lane: int) -> dict[int, Rect]:
        """The elements of one lane of `draw_storage`, by the slot they read (counted in elements of the tensor)."""
        return {
            int(rect.data["slot"]): rect
            for rect in self.rects
            if rect.data.get("lane") == str(lane) and "slot" in rect.data
        }

    def overlaps(self, things: list) -> list[tuple]:
        """The pairs of texts or rectangles that cover each other."""
        things = sorted(things, key=lambda thing: thing.box.top)
        found = []
        for i, one in enumerate(things):
            for other in things[i + 1 :]:
                if other.box.top > one.box.bottom:
                    break
                if one.box.meets(other.box):
                    found.append((one, other))
        return found

    def hatched(self, rect: Rect) -> bool:
        """Say whether diagonal lines start in this tile."""
        starts = re.findall(r"M([\d.]+) ([\d.]+)l", self.hatching)
        return any(rect.box.contains(float(x), float(y)) and float(x) < rect.box.right for x, y in starts)

    def diagonals(self) -> list[list[tuple[float, float]]]:
        """The ends of the diagonal lines, in groups of lines drawn from one start."""
        groups = []
        for x, y, rest in re.findall(r"M([\d.]+) ([\d.]+)([^M]*)", self.hatching):
            at = float(x), float(y)
            groups.append([at])
            for dx, dy in re.findall(r"[lm](-?[\d.]+) (-?[\d.]+)", rest):
                at = at[0] + float(dx), at[1] + float(dy)
                groups[-1].append(at)
        return groups


def read(drawing: Drawing) -> Picture:
    root = ElementTree.fromstring(drawing.svg)
    title = root.find("{http://www.w3.org/2000/svg}title").text
    picture = Picture(
        (float(root.get("width")), float(root.get("height"))),
        title,
        root.get("role"),
        [node.get("id") for node in root.iter() if node.get("id")],
    )
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    _walk(root, {}, picture)
    for i, rect in enumerate(picture.rects):
        on_it = tuple(text for text in picture.texts if rect.box.contains(*_middle(text.box)))
        picture.rects[i] = Rect(rect.box, rect.role, rect.data, on_it)
    return picture


def _middle(box: Box) -> tuple[float, float]:
    return (box.left + box.right) / 2, (box.top + box.bottom) / 2


def _walk(node: ElementTree.Element, inherited: dict[str, str], picture: Picture) -> None:
    given = inherited | {k: v for k, v in node.attrib.items() if k in ("fill", "font-size", "text-anchor", "stroke")}
    kind = node.tag.rpartition("}")[2]
    number = {k: float(node.get(k, 0)) for k in ("x", "y", "width", "height")}
    data = {k.removeprefix("data-"): v for k, v in node.attrib.items() if k.startswith("data-")}
    if kind == "rect":
        x, y = number["x"], number["y"]
        box = Box(x, y, x + number["width"], y + number["height"])
        picture.rects.append(Rect(box, ROLES.get(given["fill"], given["fill"]), data))
    elif kind == "text":
        size = float(given["font-size"])
        width = text_width(node.text, size)
        left = number["x"] - width * {"start": 0, "middle": 0.5, "end": 1}[given.get("text-anchor", "start")]
        # Digits and capitals reach up by three quarters of the size, commas and brackets down by a fifth.
        box = Box(left, number["y"] - 0.75 * size, left + width, number["y"] + 0.2 * size)
        picture.texts.append(Text(node.text, size, box, node.get("font-weight") == "bold"))
    elif kind == "path" and "from" in data and given["stroke"] == FOCUS:
        picture.links.append((data["from"], data["to"], trace(node.get("d"))))
    elif kind == "path" and given.get("fill", node.get("fill")) == "none" and not data:
        picture.hatching += node.get("d")
    for child in node:
        _walk(child, given, picture)


def trace(path: str) -> list[tuple[float, float]]:
    """Return points along a path, close to each other."""
    points: list[tuple[float, float]] = []
    x = y = 0.0
    for command, rest in re.findall(r"([A-Za-z])([^A-Za-z]*)", path):
        n = [float(number) for number in re.findall(r"-?[\d.]+", rest)]
        match command:
            case "M":
                corners = [(n[0], n[1])] * 4
            case "V":
                corners = [(x, y), (x, y), (x, n[0]), (x, n[0])]
            case "v":
                corners = [(x, y), (x, y), (x, y + n[0]), (x, y + n[0])]
            case "q":
                corners = [(x, y), (x + n[0], y + n[1]), (x + n[2], y + n[3]), (x + n[2], y + n[3])]
            case "C":
                corners = [(x, y), (n[0], n[1]), (n[2], n[3]), (n[4], n[5])]
            case _:
                raise AssertionError(f"an unknown command {command}")
        for step in range(17):
            t = step / 16
            weights = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
            points.append(
                (
                    sum(w * c[0] for w, c in zip(weights, corners, strict=True)),
                    sum(w * c[1] for w, c in zip(weights, corners, strict=True)),
                )
            )
        x, y = corners[-1]
    return points


@pytest.fixture(scope="session")
def look():
    """A function: drawing -> what it shows."""
    return read
