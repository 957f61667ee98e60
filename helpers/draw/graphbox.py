"""One box of an autograd graph's picture: a node with all that it says of itself, or a group of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from html import escape
from typing import NamedTuple

from helpers.draw.layered import WIDE_STEP
from helpers.draw.svg import ADVANCE, FOCUS, GRADIENT, HATCH, INK, SAVED, SMALL_SIZE, STORAGE, VIEW, group
from helpers.model.autograd.graph import Graph, Node, SavedTensor
from helpers.model.autograd.modules import Box
from helpers.model.words import counted

TITLE_SIZE = 13
LINE, CHIP = 15, 17  # heights
FLAT, FLAT_SIZE = 20, 12  # height and text size of a group in one line
PAD = 10  # on each side of the text
CHIP_GAP = 4
MOST_WIDTH = 250  # of a line of chips
MOST_LETTERS = 38  # of a line of settings
MOST_NAMES = 4
MOST_ENDS = 5  # that get room for a label each
LONGEST_OWNER = 18
# What every operator has and nothing follows from.
_USUAL = {"alpha": 1, "beta": 1, "groups": 1, "transposed": False}
_BOLD = f'font-size="{TITLE_SIZE}" font-weight="bold"'
_SMALL, _TITLE = SMALL_SIZE * ADVANCE, TITLE_SIZE * ADVANCE
_PLAIN = f'rx="5" fill="{STORAGE}" stroke="{HATCH}"'
_LEAF = f'rx="13" fill="{VIEW}" stroke="#5e95bd"'
_SECOND = f'rx="5" fill="{STORAGE}" stroke="{GRADIENT}" stroke-width="2"'
# Kind of a box -> a second outline within the first one, where it is seen on a dark page, too.
_INNER = {
    "view": 'stroke="#5b6570" stroke-dasharray="5 3"',
    "in-place": 'stroke="#5b6570" stroke-width="1.5"',
    "custom": f'stroke="{INK}" stroke-width="2"',
    "more": 'stroke="#5b6570" stroke-width="2" stroke-dasharray="6 4"',
}
_CHIPS = {
    "alive": f'fill="{SAVED}"',
    "freed": f'fill="none" stroke="{SAVED}" stroke-width="1.5" stroke-dasharray="4 2"',
    "changed": f'fill="{SAVED}" stroke="{GRADIENT}" stroke-width="2.5"',
    "packed": f'fill="{SAVED}" stroke="{INK}" stroke-dasharray="1 2"',
    "recomputed": f'fill="none" stroke="{SAVED}" stroke-width="1.5"',
}

_MARKS = {"now": "▶ ", "done": "✓ "}  # before the name, of a node in a backward run
_STATES = {"alive": "saved", "freed": "freed", "changed": "! changed", "packed": "packed", "recomputed": "recomputed"}


class Card(NamedTuple):
    """A drawn box: its size, and its parts, with the left upper corner at (0, 0)."""

    width: int
    height: int
    parts: str


def boxed(parts: list[str]) -> str:
    """Return cards in the text size and colour that they count on."""
    return group(parts, font_size=SMALL_SIZE, fill=INK, text_anchor="middle")


def node_card(node: Node, ends: int = 0, state: str = "") -> Card:
    """Draw one node: its name, the reader's names and the shape, settings, context, hooks, and what it saved.

    Wide enough for so many ends of edges with a label. `state` is that of a backward run: "now", "done", "next" or "".
    """
    lines = _lines(node)
    chips = [_chip(saved) for saved in node.saved]
    outline = _SECOND if node.order > 1 else _LEAF if node.kind == "leaf" else _PLAIN
    room = 2 * (min(ends, MOST_ENDS) - 1) * WIDE_STEP if ends > 1 else 0
    title = _MARKS.get(state, "") + node.name
    if state == "now":
        outline = f'rx="{13 if node.kind == "leaf" else 5}" fill="{FOCUS}" stroke="{INK}" stroke-width="2" data-now="1"'
    if state == "next":
        outline += ' data-now="1"'
    return _card(title, lines, chips, outline, inner=node.kind, least=room)


def group_card(box: Box, graph: Graph) -> Card:
    """Draw a group of nodes: its title, how many nodes it has, and the states of what they saved."""
    lines, chips = _about_group(box, graph)
    return _stacked(_card(_tail(box.title, MOST_LETTERS), lines, chips, _PLAIN))


def flat_cards(groups: Sequence[Box], graph: Graph) -> list[Card]:
    """Draw groups in one line each, all of one width, so that they read as a table."""
    about = [(_tail(box.title, MOST_LETTERS), *_about_group(box, graph)) for box in groups]
    rows = [(title, ", ".join(lines), chips) for title, lines, chips in about]
    text_at = PAD + 2 * PAD + int(max(len(title) for title, _, _ in rows) * FLAT_SIZE * ADVANCE)
    chips_at = text_at + 2 * PAD + int(max(len(text) for _, text, _ in rows) * _SMALL)
    chip_widths = [[_chip_width(chip) for chip in chips] for _, _, chips in rows]
    width = chips_at + max(sum(widths) + CHIP_GAP * len(widths) for widths in chip_widths) + PAD - CHIP_GAP
    width += width % 2
    cards = []
    for (title, text, chips), widths in zip(rows, chip_widths, strict=True):
        bold = f'font-size="{FLAT_SIZE}" font-weight="bold"'
        parts = [
            f'<rect width="{width}" height="{FLAT}" {_PLAIN}/>',
            f'<text x="{PAD}" y="14" {bold} text-anchor="start">{_xml(title)}</text>',
            f'<text x="{text_at}" y="14" text-anchor="start">{_xml(text)}</text>',
        ]
        x = chips_at
        for chip, chip_width in zip(chips, widths, strict=True):
            parts.append(_drawn_chip(chip, chip_width, x, 2))
            x += chip_width + CHIP_GAP
        cards.append(Card(width, FLAT, "".join(parts)))
    return cards


def more_card(count: int) -> Card:
    """Draw the box that stands for all that is left out."""
    title = f"… {count:,} more nodes"
    return _card(title, [], [], _PLAIN, inner="more")


def _lines(node: Node) -> list[str]:
    shape = _shape(node)
    names = [_tail(name, MOST_LETTERS) for name in node.names[:MOST_NAMES]]
    if len(names) < 2:
        lines = [f"{names[0]} {shape}" if names else shape]
    else:
        if len(node.names) > MOST_NAMES:
            names[-1] = _more(node.names)
        lines = [*_wrapped(names), shape]
    if node.kind == "in-place":
        lines.append("writes into a view")
    elif node.kind == "custom":
        lines.append("custom Function")
    if node.order > 1:
        lines.append("made after the first root" if "BackwardBackward" not in node.name else "recorded by backward")
    settings = [
        f"{name}={value}" for name, value in node.settings if value is not None and _USUAL.get(name, _USUAL) != value
    ]
    if settings:
        lines += _wrapped(settings)
    for value in node.context:
        note = " ! its own output: a cycle" if value.role == "output" else ""
        lines.append(_cut(f"ctx.{value.name} = {value.text}", MOST_LETTERS) + note)
    lines += node.hooks
    return lines


def _shape(node: Node) -> str:
    shapes = [str(shape) for shape, _ in node.outputs]
    if len(shapes) == 1:
        return shapes[0]
    if shapes and len(set(shapes)) == 1:
        return f"{len(shapes)} outputs, each {shapes[0]}"
    return _cut(f"{len(shapes)} outputs {', '.join(shapes)}", MOST_LETTERS)


def _chip(saved: SavedTensor) -> tuple[str, str, str]:
    """Return text, state, and what is struck through before the text."""
    name, state = saved.name, saved.state
    if state == "freed":
        return " freed", state, name
    if state in ("packed", "recomputed"):
        return f"{name} {state}", state, ""
    owner = _tail(saved.owner, LONGEST_OWNER)
    text = f"{name} = {owner} {saved.shape}" if owner else f"{name} {saved.shape}"
    if state == "changed":
        then, now = saved.versions or ("?", "?")
        text = f"! {text} changed {then}→{now}"
    return text, state, ""


def _card(
    title: str,
    lines: Sequence[str],
    chips: list[tuple[str, str, str]],
    outline: str,
    *,
    inner: str = "",
    least: int = 0,
) -> Card:
    """Return a box with a title, lines of text and rows of chips, all in the middle."""
    rows, row_widths = _chip_rows(chips) if chips else ([], [0])
    letters = max(map(len, lines)) if lines else 0
    wide = max(len(title) * _TITLE, letters * _SMALL, least, *row_widths)
    width = 2 * (int(wide / 2) + 1 + PAD)
    half = width // 2
    y = 17
    parts = [f'<text x="{half}" y="{y}" {_BOLD}>{_xml(title)}</text>']
    for line in lines:
        y += LINE
        parts.append(f'<text x="{half}" y="{y}">{_xml(line)}</text>')
    y += 5
    for row, row_width in zip(rows, row_widths[1:], strict=True):
        x = half - int(row_width) // 2
        y += 2
        for chip, chip_width in row:
            parts.append(_drawn_chip(chip, chip_width, x, y))
            x += chip_width + CHIP_GAP
        y += CHIP
    height = y + (5 if rows else 3) + 3 * (inner in _INNER)
    first = f'<rect width="{width}" height="{height}" {outline}/>'
    if inner in _INNER:
        first += f'<rect x="3" y="3" width="{width - 6}" height="{height - 6}" rx="3" fill="none" {_INNER[inner]}/>'
    return Card(width, height, first + "".join(parts))


def _about_group(box: Box, graph: Graph) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Return lines of text and chips that tell of a group."""
    nodes = [graph.nodes[number] for number in box.members]
    leaves = sum(node.kind == "leaf" for node in nodes)
    lines = [f"{counted(len(nodes) - leaves, 'operator')}" + (f", {_leaves(leaves)}" if leaves else "")]
    counts: dict[str, int] = {}
    for node in nodes:
        for saved in node.saved:
            counts[saved.state] = counts.get(saved.state, 0) + 1
    hooks = sum(bool(node.hooks) for node in nodes)
    if hooks:
        lines.append(f"hooks on {counted(hooks, 'node')}")
    custom = sum(node.kind == "custom" for node in nodes)
    if custom:
        lines.append(f"{custom:,} of a custom Function")
    return lines, [(f"{counts[state]:,} {word}", state, "") for state, word in _STATES.items() if state in counts]


def _chip_width(chip: tuple[str, str, str]) -> int:
    return int((len(chip[0]) + len(chip[2])) * _SMALL) + 14


def _chip_rows(chips: list[tuple[str, str, str]]) -> tuple[list[list[tuple[tuple[str, str, str], int]]], list[int]]:
    """Break chips into rows; return these with the width of each chip, and the widths of the rows after a first 0."""
    rows: list[list[tuple[tuple[str, str, str], int]]] = []
    widths = [0]
    for chip in chips:
        width = _chip_width(chip)
        if rows and widths[-1] + CHIP_GAP + width <= MOST_WIDTH:
            rows[-1].append((chip, width))
            widths[-1] += CHIP_GAP + width
        else:
            rows.append([(chip, width)])
            widths.append(width)
    return rows, widths


def _drawn_chip(chip: tuple[str, str, str], width: int, x: int, y: int) -> str:
    text, state, struck = chip
    content = _xml(text)
    if struck:
        content = f'<tspan text-decoration="line-through">{_xml(struck)}</tspan>{content}'
    return (
        f'<rect data-saved="{state}" x="{x}" y="{y}" width="{width}" height="{CHIP - 1}" rx="8" {_CHIPS[state]}/>'
        f'<text x="{x + width // 2}" y="{y + 12}">{content}</text>'
    )


def _stacked(card: Card) -> Card:
    """Put the edges of two more sheets beneath a box: there are several nodes in it."""
    width, height = card.width, card.height
    edges = "".join(
        f'<path d="M{8 + d} {height + d}H{width - 8 - d}" fill="none" stroke="{HATCH}" stroke-width="2"/>'
        for d in (2, 5)
    )
    return Card(width, height + 6, card.parts + edges)


def _wrapped(words: Sequence[str]) -> list[str]:
    """Join words with commas, in lines of at most MOST_LETTERS where they allow it."""
    lines = [""]
    for word in words:
        word = _cut(word, MOST_LETTERS)
        if lines[-1] and len(lines[-1]) + 2 + len(word) > MOST_LETTERS:
            lines[-1] += ","
            lines.append(word)
        else:
            lines[-1] += f", {word}" if lines[-1] else word
    return lines


@lru_cache(maxsize=1024)
def _xml(text: str) -> str:
    """Escape a text of a box. The same names and shapes come again and again in one graph."""
    return escape(text, quote=False)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _tail(name: str, most: int) -> str:
    """Cut a long name at the front: the last parts of a path tell more than the first."""
    return name if len(name) <= most else "…" + name[1 - most :]


def _more(names: Sequence[str]) -> str:
    return f"and {len(names) - MOST_NAMES + 1} more"


def _leaves(count: int) -> str:
    return "1 leaf" if count == 1 else f"{count:,} leaves"
