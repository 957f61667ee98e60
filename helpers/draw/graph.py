"""Pictures of autograd graphs: `draw_graph`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from html import escape
from typing import Any, NamedTuple

import torch

from helpers.draw.drawing import Drawing
from helpers.draw.graphbox import FLAT, Card, boxed, flat_cards, group_card, more_card, node_card
from helpers.draw.graphwords import graph_sentence
from helpers.draw.layered import Line, Placement, Route, place
from helpers.draw.svg import FREE, GRADIENT, SMALL_SIZE, group, picture, text_width
from helpers.model.autograd.graph import Graph
from helpers.model.autograd.modules import Box, boxes
from helpers.model.autograd.reading import collector_paused
from helpers.model.finding import HelperError

MOST_BOXES, CUT_TO = 5_000, 1_000
COMPACT_FROM = 12  # groups
MARGIN = 4
ENTRY = 40  # room above a first box for the gradient that enters
# The height of a gap with straight edges only, with bends, and above a box at which a gradient enters.
GAPS = 22, 44, 48
COMPACT_HEIGHT = 1_500  # for all the flat boxes, where gaps from 8 to 16 allow it
PARALLEL, APART = {"×2": 2, "×3": 3}, 8  # so many edges on one straight way are drawn side by side


def draw_graph(
    loss: Any, *, model: torch.nn.Module | None = None, depth: int | None = None, expand: Sequence[str] = ()
) -> Drawing:
    """Draw the autograd graph of a tensor: every node that backward will run, from the top to the bottom.

    `loss` is a tensor, a list or dict of tensors, a GradientEdge, or a Graph. Arrows lead the way of the gradient. The
    shape in a box is that of the node's result, and so of the gradient that reaches it. Pink is what it saved.

    With `model`, leaves are named as in the model, and `depth` groups nodes by the module they belong with: `depth=1`
    draws a box for each child of the model. Modules in `expand` are drawn node by node. A graph does not say which
    module an operator is from; how it is found out is told in helpers/model/autograd/modules.py.

    Of more than 5,000 boxes, the first 1,000 that backward reaches are drawn. Raises HelperError for what has no graph,
    for a depth without a model, and for a wrong depth or path.
    """
    if model is None and not isinstance(loss, Graph) and (depth is not None or expand):
        what = "depth" if depth is not None else "expand"
        raise HelperError(
            f"{what} goes by the modules of a model, and no model came: draw_graph(loss, model=…, depth=1)"
        )
    with collector_paused():
        graph = loss if isinstance(loss, Graph) else Graph.of(loss, model=model)
        kinds = {path: type(part).__name__ for path, part in model.named_modules()} if model is not None else {}
        return _drawn(graph, depth, expand, kinds)


def _drawn(graph: Graph, depth: int | None, expand: Sequence[str], kinds: dict[str, str]) -> Drawing:
    found = [_with_class(box, kinds) for box in boxes(graph, depth, expand)]
    drawn = found if len(found) <= MOST_BOXES else found[:CUT_TO]
    left_out = sum(len(box.members) for box in found[len(drawn) :])
    compact = sum(box.kind == "module" for box in drawn) > COMPACT_FROM
    sentence = graph_sentence(graph, found, depth, expand, len(drawn))

    groups = [box for box in drawn if box.kind == "module"] if compact else []
    flat = {box.number: card for box, card in zip(groups, flat_cards(groups, graph), strict=True)} if groups else {}
    gaps = (min(16, max(8, COMPACT_HEIGHT // len(drawn) - FLAT)), 18, 26) if compact else GAPS
    ends = Counter(link.to for box in drawn for link in box.links if link.output is not None)
    cards = [flat.get(box.number) or _card(box, graph, ends[box.number]) for box in drawn]
    if left_out:
        cards.append(more_card(left_out))
    lines, labels = _lines(drawn, len(drawn), graph)
    entries = _entries(graph, drawn)
    placed = place([card[:2] for card in cards], lines, gaps=gaps, marked=entries)
    return Drawing(_svg(cards, drawn, lines, labels, entries, placed, sentence), sentence)


def _with_class(box: Box, kinds: dict[str, str]) -> Box:
    """Add the class of the module to the title of its box."""
    kind = kinds.get(box.path) if box.kind == "module" else None
    return box._replace(title=f"{box.title}: {kind}") if kind else box


class Progress(NamedTuple):
    """How far a backward run has come: the node that runs `now`, those that are `done`, and what was `sent`.

    `sent` leads from (node, node) to the words for the gradient that went that way. `part`: nodes above are left out,
    and the gradient enters at the node `entry` only.
    """

    now: int | None
    done: frozenset[int]
    sent: dict[tuple[int, int], str]
    part: bool = False
    entry: int | None = None


def draw_progress(graph: Graph, progress: Progress, sentence: str) -> Drawing:
    """Draw a graph node by node in the middle of a backward run."""
    drawn = boxes(graph, None)
    ends = Counter(link.to for box in drawn for link in box.links)
    cards = []
    for box in drawn:
        number = box.members[0]
        state = "now" if number == progress.now else "done" if number in progress.done else ""
        if progress.now is None and number == graph.roots[0].to:
            state = "next"
        cards.append(node_card(graph.nodes[number], ends[box.number], state))
    lines, labels = _lines(drawn, len(drawn), graph)
    ways = [(drawn[line.source].members[0], drawn[line.target].members[0]) for line in lines]
    labels = [progress.sent.get(way, label) for way, label in zip(ways, labels, strict=True)]
    lines = [line._replace(labelled=bool(label)) for line, label in zip(lines, labels, strict=True)]
    sent = {number for number, way in enumerate(ways) if way in progress.sent}
    entries = _entries(graph, drawn)
    if progress.part:
        inner = {box: "from nodes above" for box in entries if drawn[box].members[0] != progress.entry}
        entries |= inner
    placed = place([card[:2] for card in cards], lines, gaps=GAPS, marked=entries)
    return Drawing(_svg(cards, drawn, lines, labels, entries, placed, sentence, sent), sentence)


def _card(box: Box, graph: Graph, ends: int) -> Card:
    return group_card(box, graph) if box.kind == "module" else node_card(graph.nodes[box.members[0]], ends)


def _lines(drawn: Sequence[Box], rest: int, graph: Graph) -> tuple[list[Line], list[str]]:
    """Return the edges with their labels. What leads out of the drawn boxes leads to the box number `rest`."""
    lines, labels = [], []
    for box in drawn:
        more = False
        for to, output, count in box.links:
            if to >= rest:
                more = True
                continue
            label = f"×{count}" if count > 1 else ""
            if output is not None:
                label = f"{output} {label}".rstrip()
            lines.append(Line(box.number, to, output or 0, bool(label)))
            labels.append(label)
        if more:
            lines.append(Line(box.number, rest))
            labels.append("")
    return lines, labels


def _entries(graph: Graph, drawn: Sequence[Box]) -> dict[int, str]:
    """Return the boxes at which a gradient enters, each with its words."""
    names: dict[int, list[str]] = {}
    box_of = {member: box.number for box in drawn for member in box.members} if len(graph.roots) > 1 else {}
    for i, root in enumerate(graph.roots):
        box = box_of.get(root.to, -1) if box_of else next(b.number for b in drawn if root.to in b.members)
        name = graph.names[i] if i < len(graph.names) else ""
        several = len(graph.nodes[root.to].outputs) > 1
        names.setdefault(box, []).append(f"{name} at output {root.output}".strip() if several else name)
    names.pop(-1, None)
    said = {box: ", ".join(filter(None, found)) for box, found in names.items()}
    nameless = len(graph.roots) == 1 and not any(graph.names)
    return {
        box: f"gradient enters{' ' if nameless else ': '}{words}" if words else "gradient enters"
        for box, words in said.items()
    }


def _svg(
    cards: Sequence[Card],
    drawn: Sequence[Box],
    lines: Sequence[Line],
    labels: Sequence[str],
    entries: dict[int, str],
    placed: Placement,
    sentence: str,
    sent: Collection[int] = (),
) -> str:
    shown = []
    for number, (card, (x, y)) in enumerate(zip(cards, placed.corners, strict=True)):
        node = ""
        if number < len(drawn) and drawn[number].kind != "module":
            node = f' data-node="{drawn[number].members[0]}"'
        shown.append(f'<g data-box="{number}"{node} transform="translate({x} {y})">{card.parts}</g>')
    paths, heads, words = [], [], []
    tips: dict[tuple[int, int], bool] = {}  # whether a gradient went there
    left = 0.0
    for number, (line, label, route) in enumerate(zip(lines, labels, placed.routes, strict=True)):
        way, count = "", PARALLEL.get(label, 1) if route.x == route.end_x and route.lane is None else 1
        for i in range(count):
            beside = route if count == 1 else route.moved(APART * i - APART * (count - 1) // 2)
            way += _way(beside)
            tips[beside.end_x, route.end_y] = number in sent or tips.get((beside.end_x, route.end_y), False)
        passed = f' style="stroke:{GRADIENT}" stroke-width="3" data-sent="1"' if number in sent else ""
        paths.append(f'<path data-edge="{line.source}-{line.target}"{passed} d="{way}"/>')
        if label and count == 1:
            words.append(_label(route, label))
            left = min(left, route.end_x - 6 - text_width(label, SMALL_SIZE))
    heads = [f"M{x} {y}l-4-7h8z" for (x, y), passed in tips.items() if not passed]
    bold = [f"M{x} {y}l-5-8h10z" for (x, y), passed in tips.items() if passed]
    enter, right = [], placed.width
    for box, said in entries.items():
        x, y = placed.corners[box]
        x += cards[box].width // 2 if placed.rows[box] == 0 else 14
        enter.append(f"M{x} {y - 30}V{y - 8}")
        enter.append(f"M{x} {y - 1}l-5-9h10z")
        words.append(_word(x + 9, y - 19, said))
        right = max(right, x + 10 + text_width(said, SMALL_SIZE))
    stroke = f"stroke:{FREE}"
    parts = [
        group(paths, fill="none", style=stroke, stroke_width=1.5, data_role="edges"),
        f'<path data-role="heads" style="fill:{FREE}" d="{"".join(heads)}"/>' if heads else "",
        f'<path data-role="heads" fill="{GRADIENT}" d="{"".join(bold)}"/>' if bold else "",
        f'<path data-role="enter" fill="{GRADIENT}" stroke="{GRADIENT}" stroke-width="2.5" d="{"".join(enter)}"/>',
        boxed(shown),
        group(
            words,
            style=f"fill:{FREE}",
            font_size=SMALL_SIZE,
        ),
    ]
    shift = MARGIN - int(left)  # labels may stand out on the left
    moved = group([part for part in parts if part], transform=f"translate({shift} {ENTRY})")
    return picture(right + shift + MARGIN, placed.height + ENTRY + MARGIN, sentence, [moved])


def _label(route: Route, label: str) -> str:
    """Write beside the end of an edge: on the left, or on the right where the edge comes from the left."""
    from_x = route.lane[0] if route.lane else route.x
    if from_x < route.end_x - 12:
        return _word(route.end_x + 6, route.end_y - 8, label)
    return _word(route.end_x - 6, route.end_y - 8, label, ' text-anchor="end"')


def _word(x: int, y: int, word: str, more: str = "") -> str:
    return f'<text x="{x}" y="{y}"{more}>{escape(word, False)}</text>'


def _way(route: Route) -> str:
    """Return the path of an edge, which ends where its arrow head begins."""
    x, y, row_end, lane, end_x, end_y = route
    end_y -= 6
    way = f"M{x} {y}"
    if lane is None:
        if x == end_x:
            return f"{way}V{end_y}"
        return f"{way}{_bend(x, y, row_end, end_x, end_y)}"
    at, top, bottom = lane
    return f"{way}{_bend(x, y, row_end, at, top)}V{bottom}{_bend(at, bottom, bottom, end_x, end_y)}"


def _bend(x: int, y: int, start: int, end_x: int, end_y: int) -> str:
    """Return a curve from (x, start) to (end_x, end_y) that is upright at both ends; from y to start it is straight."""
    middle = (start + end_y) // 2
    return f"{f'V{start}' if start > y else ''}C{x} {middle} {end_x} {middle} {end_x} {end_y}"
