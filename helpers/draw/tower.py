"""One call of an operator as a tower of dispatch keys, with the path that the call took through it."""

from __future__ import annotations

from helpers.draw.drawing import Drawing
from helpers.draw.svg import (
    FOCUS,
    FREE,
    GRADIENT,
    INK,
    LABEL_SIZE,
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
from helpers.model.dispatch.tower import MISSING, Floor, Tower

FLOOR, GAP = 30, 6  # the height of a floor, and the room between two
TOP = 62  # where the first floor begins: the operator and the names of the sources stand above
MOST_SOURCES = 6
SHAFT = 26  # the room left of the floors, in which the path runs
LONGEST_SOURCE = 12
PALE = "#f6dca8"  # the focus colour, for a kernel that runs before or after the step that is shown


def draw_tower(tower: Tower, *, at: int = 0) -> Drawing:
    """Draw the keys of one call as floors, the highest on top. `at` is the step whose kernel runs now; 0 shows all."""
    width = max(text_width(floor.key, VALUE_SIZE) for floor in tower.floors) + 24
    sources = tower.sources[:MOST_SOURCES]
    columns = [max(text_width(_short(name), LABEL_SIZE) + 14, 44) for name in sources]
    left = SHAFT + width + 10
    notes = left + sum(columns) + 12
    places = {floor.key: TOP + (FLOOR + GAP) * i for i, floor in enumerate(tower.floors)}
    boxes, names, numbers, dots, free_texts = [], [], [], [], []
    for floor in tower.floors:
        y = places[floor.key]
        boxes.append(_box(floor, y, width, at))
        names.append(text(SHAFT + 12, y + 20, floor.key, font_size=VALUE_SIZE, text_decoration=_struck(floor)))
        x = left
        for name, column in zip(sources, columns, strict=True):
            if name in floor.carriers:
                dots.append(element("circle", cx=x + column / 2, cy=y + FLOOR / 2, r=4.5, data_source=name))
            x += column
        start = notes
        if floor.step:
            numbers.append(element("circle", cx=notes + 9, cy=y + FLOOR / 2, r=10, fill=FOCUS, stroke=INK))
            number = "!" if floor.verdict == MISSING else str(floor.step)
            numbers.append(text(notes + 9, y + 20, number, text_anchor="middle", fill=INK))
            start += 26
        free_texts.append(text(start, y + 20, floor.note))
    x = left
    for name, column in zip(sources, columns, strict=True):
        free_texts.append(text(x + column / 2, TOP - 12, _short(name), text_anchor="middle"))
        x += column
    hidden = len(tower.sources) - len(sources)
    if hidden:
        free_texts.append(text(x, TOP - 12, f"+{hidden}"))
    free_texts.append(text(SHAFT, 20, tower.operator, font_size=VALUE_SIZE, font_weight="bold"))
    free_texts.append(text(SHAFT, TOP - 12, "key"))
    right = notes + 26 + max(text_width(floor.note, LABEL_SIZE) for floor in tower.floors)
    right = max(right, SHAFT + text_width(tower.operator, VALUE_SIZE))
    bottom = TOP + (FLOOR + GAP) * len(tower.floors)
    parts = [
        _path([places[floor.key] + FLOOR / 2 for floor in tower.ran], at),
        group(boxes),
        group(names, fill=INK),
        group(dots, fill=VIEW, stroke=INK),
        group(numbers, font_size=LABEL_SIZE, font_weight="bold"),
        free(free_texts),
    ]
    return Drawing(picture(right + 4, bottom, tower.sentence, parts), tower.sentence)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_SOURCE else name[: LONGEST_SOURCE - 1] + "…"


def _struck(floor: Floor) -> str | None:
    return "line-through" if floor.verdict == "excluded" else None


def _box(floor: Floor, y: float, width: float, at: int) -> str:
    """Return a floor: orange where a kernel ran, paler before and after it runs, grey and dashed where none did."""
    given = {"rx": 4, "data_key": floor.key, "data_step": str(floor.step)}
    if floor.verdict == MISSING:
        dashed = {"stroke": GRADIENT, "stroke_width": 2.5, "stroke_dasharray": "7 4"}
        return rect(SHAFT, y, width, FLOOR, fill=STORAGE, **dashed, **given)
    if not floor.step:
        return rect(SHAFT, y, width, FLOOR, fill=STORAGE, stroke=INK, stroke_dasharray="4 3", **given)
    fill = FOCUS if at in (0, floor.step) else PALE
    return rect(SHAFT, y, width, FLOOR, fill=fill, stroke=INK, stroke_width=2 if at == floor.step else 1, **given)


def _path(stops: list[float], at: int) -> str:
    """Return the way of the call down the shaft, an arrow into each floor whose kernel ran, as far as step `at`."""
    shown = stops[:at] if at else stops
    if not shown:
        return ""
    x = 8
    lines = [element("path", d=f"M{x} 14V{shown[-1]:g}", fill="none")]
    lines += [element("path", d=f"M{x} {y:g}H{SHAFT - 9}", fill="none") for y in shown]
    heads = [element("path", d=f"M{SHAFT - 1} {y:g}l-8 -5v10z") for y in shown]
    return group(lines, style=f"stroke:{FREE}", stroke_width=2) + group(heads, style=f"fill:{FREE}")
