"""The map of the course: the four parts that one line of PyTorch touches, read off a live call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from helpers.draw.drawing import Drawing
from helpers.draw.svg import (
    DEVICE,
    FREE,
    GRADIENT,
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
    short_number,
    text,
)
from helpers.model.anatomy import Anatomy
from helpers.model.values import stored_values

WIDTH, HEIGHT = 330, 138
GAP_X, GAP_Y = 110, 44
SLOT, SLOTS_IN_ROW, MOST_SLOTS = 42, 6, 12
MOST_LINES = 4
LINE = 22


def draw_map(fn: Callable[..., torch.Tensor], *args: Any) -> Drawing:
    """Run `fn(*args)` and draw its four parts: tensor, storage, graph and kernels, with their chapters.

    The first tensor in `args` is the one whose record and storage are shown. Wrong input raises HelperError.
    """
    parts = Anatomy.of(fn, *args)
    shown = next(arg for arg in args if isinstance(arg, torch.Tensor))
    layout = parts.layout
    record = [
        f"shape           {layout.shape}",
        f"stride          {layout.stride}",
        f"storage_offset  {layout.storage_offset}",
        f"dtype           {str(layout.dtype).removeprefix('torch.')}",
    ]
    right, below = WIDTH + GAP_X, HEIGHT + GAP_Y
    drawn = [
        _box(0, 0, "Tensor", "chapter 1", VIEW, _lines(record)),
        _box(right, 0, "Storage", "chapter 1", STORAGE, _strip(shown, layout.storage_numel)),
        _box(0, below, "Graph", "chapters 2, 5", GRADIENT, _lines(_short(parts.nodes, "no graph was recorded"))),
        _box(right, below, "Kernels", "chapters 3, 4, 6", DEVICE, _lines(_short(parts.operators, "no operator ran"))),
        _arrow(WIDTH, HEIGHT / 2, right, HEIGHT / 2, "points into"),
        _arrow(WIDTH / 2, HEIGHT, WIDTH / 2, below, "grad_fn of its results"),
        _arrow(WIDTH, below + HEIGHT / 2, right, below + HEIGHT / 2, "backward runs"),
        _arrow(right + WIDTH / 2, below, right + WIDTH / 2, HEIGHT, "read and write"),
    ]
    sentence = (
        f"A tensor of shape {layout.shape} points into a storage of {layout.storage_nbytes} bytes. "
        f"The graph: {', '.join(_short(parts.nodes, 'none', MOST_LINES))}. "
        f"The kernels that ran: {', '.join(_short(parts.operators, 'none', MOST_LINES))}."
    )
    moved = group(drawn, transform="translate(2 2)")
    return Drawing(picture(2 * WIDTH + GAP_X + 4, 2 * HEIGHT + GAP_Y + 4, sentence, [moved]), sentence)


def _box(x: float, y: float, title: str, chapter: str, colour: str, content: list[str]) -> str:
    """Return one part: a coloured bar with its title and chapter, and its content below."""
    parts = [
        rect(0, 0, WIDTH, HEIGHT, rx=6, fill="none", stroke=HATCH if colour == STORAGE else colour, stroke_width=2),
        rect(0, 0, WIDTH, 28, rx=6, fill=colour),
        text(12, 19, title, font_size=VALUE_SIZE, font_weight="bold", fill=INK),
        text(WIDTH - 12, 19, chapter, font_size=LABEL_SIZE, fill=INK, text_anchor="end"),
        *content,
    ]
    return group(parts, transform=f"translate({x} {y})")


def _lines(lines: Sequence[str]) -> list[str]:
    return [
        free([text(14, 50 + LINE * i, line, style="white-space:pre", font_size=13) for i, line in enumerate(lines)])
    ]


def _strip(t: torch.Tensor, slots: int) -> list[str]:
    """Return the first slots of the storage with their values, and how many more there are."""
    shown = min(slots, MOST_SLOTS)
    left = (WIDTH - SLOTS_IN_ROW * SLOT) / 2
    parts = []
    for slot, value in enumerate(stored_values(t, range(shown))):
        x, y = left + SLOT * (slot % SLOTS_IN_ROW), 40 + 40 * (slot // SLOTS_IN_ROW)
        parts.append(rect(x, y, SLOT, 34, fill=STORAGE, stroke="#ffffff"))
        parts.append(text(x + 4, y + 12, str(slot), font_size=SMALL_SIZE, fill="#5b6570"))
        if value is not None:
            parts.append(
                text(
                    x + SLOT / 2, y + 28, short_number(value)[:5], font_size=LABEL_SIZE, fill=INK, text_anchor="middle"
                )
            )
    more = f"and {slots - shown:,} more slots" if slots > shown else f"{slots} slots in one row"
    return [
        *parts,
        free(
            [text(WIDTH / 2, HEIGHT - 6, more, text_anchor="middle")],
        ),
    ]


def _short(names: Sequence[str], none: str, most: int = MOST_LINES) -> list[str]:
    """Return at most `most` lines; the last one says how many are left out."""
    if len(names) <= most:
        return list(names) or [none]
    return [*names[: most - 1], f"… {len(names) - most + 1} more"]


def _arrow(x1: float, y1: float, x2: float, y2: float, label: str) -> str:
    """Return an arrow with a label: above a level one, to the right of an upright one."""
    level = y1 == y2
    head = 8 if (x2 > x1 or y2 > y1) else -8
    tip = f"M{x2} {y2}l{-head} -5v10z" if level else f"M{x2} {y2}l-5 {-head}h10z"
    line = element("line", x1=x1, y1=y1, x2=x2 - head if level else x2, y2=y2 if level else y2 - head)
    label_at = ((x1 + x2) / 2, y1 - 8, "middle") if level else (x1 + 10, (y1 + y2) / 2 + 4, "start")
    parts = [
        element("g", line, style=f"stroke:{FREE}", stroke_width=1.5),
        element("path", d=tip, style=f"fill:{FREE}"),
        free([text(label_at[0], label_at[1], label, text_anchor=label_at[2])]),
    ]
    return group(parts)
