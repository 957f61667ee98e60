"""A traced function as one picture: its calls from left to right, the dispatch keys from top to bottom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from helpers.draw.drawing import Drawing
from helpers.draw.svg import (
    FOCUS,
    FREE,
    HATCH,
    INK,
    LABEL_SIZE,
    STORAGE,
    element,
    free,
    group,
    picture,
    rect,
    text,
    text_width,
)
from helpers.draw.tower import draw_tower
from helpers.model.dispatch.tower import Tower
from helpers.model.dispatch.trace import Dispatch, DispatchTrace
from helpers.model.finding import HelperError, in_short, kind_of
from helpers.model.words import counted

WIDEST = 920  # pixels; of a trace that needs more, the first calls are drawn
HEAD, ROW = 24, 30  # the height of an operator's box, and of a key's row
COLUMN = 40  # the least width of a call's own column
RADIUS = 9


def draw_dispatch(trace: DispatchTrace, *, call: int | None = None, depth: int | None = None) -> Drawing:
    """Draw where each call of a trace went. `call` counts from 0 and draws that one alone, as a tower of its keys.

    A trace of one call is drawn as a tower. In the picture of several, a box stands over the calls that its kernels
    made; a number marks each key whose kernel ran, in order. `depth` leaves out what lies deeper: 1 shows the calls of
    your function only. Raises HelperError for anything but a trace, for a trace without a call, and for a `call` or a
    `depth` that it does not have.
    """
    if not isinstance(trace, DispatchTrace):
        raise HelperError(f"draw_dispatch takes what trace_dispatch returns, and {kind_of(trace)} came")
    calls = [found for _, found in trace.outline()]
    if not calls:
        raise HelperError(f"{trace.function} called no operator: there is nothing to draw")
    if depth is not None and (type(depth) is not int or depth < 1):
        raise HelperError(f"depth is {in_short(depth)}; it must be a whole number of at least 1")
    if call is None and len(calls) > 1:
        return _Overview(trace, depth or len(calls)).draw()
    number = 0 if call is None else call
    if type(number) is not int:
        raise HelperError(f"call is {in_short(call)}; it must be a whole number, the place of a call in the trace")
    if not 0 <= number < len(calls):
        raise HelperError(f"call {in_short(call)} is out of range for a trace of {counted(len(calls), 'call')}")
    return draw_tower(Tower.of(calls[number]))


@dataclass
class _Column:
    """One call: where its own column begins and ends, and where the last call inside it ends."""

    call: Dispatch
    depth: int
    left: float = 0
    right: float = 0
    end: float = 0


class _Overview:
    """The picture of several calls."""

    def __init__(self, trace: DispatchTrace, most_depth: int):
        self.most_depth = most_depth
        self.columns = [_Column(call, depth) for depth, call in trace.outline() if depth < most_depth]
        count = len(self.columns)
        keys = trace.keys_that_ran(column.call for column in self.columns)
        self.margin = max(text_width(key, LABEL_SIZE) for key in keys) + 14
        while self.place() > WIDEST and len(self.columns) > 1:
            self.columns.pop()
        self.hidden = count - len(self.columns)
        self.keys = trace.keys_that_ran(column.call for column in self.columns)
        self.top = HEAD * (max(column.depth for column in self.columns) + 1) + 12

    def place(self) -> float:
        """Give each call a column, and return the width; a box too narrow for its name widens its last column."""
        x = self.margin
        stack: list[_Column] = []
        for i, column in enumerate(self.columns):
            column.left, column.right = x, x + COLUMN
            x = column.right
            stack = [*stack[: column.depth], column]
            deeper = i + 1 < len(self.columns) and self.columns[i + 1].depth > column.depth
            if not deeper:  # every box that may end here must hold its name
                following = self.columns[i + 1].depth if i + 1 < len(self.columns) else 0
                for outer in reversed(stack[following:]):
                    x = max(x, outer.left + text_width(self.name(outer.call), LABEL_SIZE) + 14)
                    outer.end = x
                column.right = x if following <= column.depth else column.right
        self.width = x
        return x

    @staticmethod
    def name(call: Dispatch) -> str:
        """Return the operator as it stands in a box; torch's own operators go without their namespace."""
        return call.operator.removeprefix("aten::")

    def draw(self) -> Drawing:
        rows = {key: self.top + ROW * i + ROW / 2 for i, key in enumerate(self.keys)}
        bottom = self.top + ROW * len(self.keys)
        guides = [element("path", d=f"M{self.margin:g} {y:g}H{self.width:g}") for y in rows.values()]
        labels = [text(self.margin - 12, y + 4, key, text_anchor="end") for key, y in rows.items()]
        boxes, names, lines, marks, numbers = [], [], [], [], []
        for column in self.columns:
            y = HEAD * column.depth
            boxes.append(rect(column.left + 1, y, column.end - column.left - 2, HEAD - 4, rx=4, **_data(column.call)))
            names.append(text(column.left + 8, y + 14, self.name(column.call)))
            middle = column.left + COLUMN / 2
            stops = [(step, rows[step.key]) for step in column.call.steps]
            lines.append(element("path", d=f"M{middle:g} {y + HEAD - 4}V{max(at for _, at in stops) - RADIUS:g}"))
            for number, (step, at) in enumerate(stops, 1):
                dashed = "2 2" if step.inferred else None
                marks.append(element("circle", cx=middle, cy=at, r=RADIUS, stroke_dasharray=dashed))
                numbers.append(text(middle, at + 4, "!" if _failed_itself(step) else str(number)))
        if self.hidden > 0:
            bottom += 22
            labels.append(text(self.margin, bottom - 6, f"and {counted(self.hidden, 'more call')}"))
        sentence = self.sentence()
        parts = [
            group(guides, stroke=HATCH, stroke_dasharray="1 4"),
            group(lines, style=f"stroke:{FREE}", stroke_width=2, fill="none"),
            group(boxes, fill=STORAGE, stroke=INK, stroke_opacity=0.4),
            group(names, font_size=LABEL_SIZE, fill=INK),
            group(marks, fill=FOCUS, stroke=INK),
            group(numbers, font_size=LABEL_SIZE, font_weight="bold", fill=INK, text_anchor="middle"),
            free(labels),
        ]
        return Drawing(picture(self.width + 2, bottom + 2, sentence, parts), sentence)

    def sentence(self) -> str:
        said = [f"{self.name(c.call)} at depth {c.depth}: {c.call.path}" for c in self.columns]
        more = f"; and {counted(self.hidden, 'more call')}" if self.hidden > 0 else ""
        inner = any(column.depth == self.most_depth - 1 and column.call.calls for column in self.columns)
        left_out = " What lies deeper is left out." if inner else ""
        return f"{counted(len(self.columns), 'call')}, in order. {'; '.join(said)}{more}.{left_out}"


def _failed_itself(step: Dispatch) -> bool:
    """Say whether an error began here, and not in a call of this kernel."""
    return step.failed and not any(inner.failed for inner in step.inner)


def _data(call: Dispatch) -> dict[str, Any]:
    return {"data_operator": call.operator, "data_keys": " ".join(step.key for step in call.steps)}
