"""The storage as a strip of slots that wraps in rows: where each slot stands, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from helpers.draw.canvas import TILE_HEIGHT, WIDTH
from helpers.draw.svg import SMALL_SIZE, text_width

FRIENDLY = (32, 24, 20, 16, 12, 10, 8, 6, 5, 4, 3, 2, 1)


def fold(count: int, most: int, multiple: int = 1) -> int:
    """Return how many of `count` things to put in one row that holds at most `most`.

    All when they fit; else a number that fills every row, such as 16 for 64; else a friendly one. Always a
    multiple of `multiple`, unless everything fits in one row.
    """
    if count <= most:
        return max(count, 1)
    for n in range(most, max(most // 2, 1), -1):
        if count % n == 0 and n % multiple == 0:
            return n
    return next((n for n in FRIENDLY if n <= most and n % multiple == 0), multiple)


@dataclass(frozen=True)
class Gap:
    """Slots `first` to `last`, left out of the picture. `reached` says whether the view reads any of them."""

    first: int
    last: int
    reached: bool = False

    @property
    def lines(self) -> tuple[str, str]:
        """What stands in the gap, on two lines."""
        return f"… {self.last - self.first + 1:,}", "slots …"

    @property
    def width(self) -> int:
        """The width that these lines need, in pixels."""
        return 2 * round((max(text_width(line, SMALL_SIZE) for line in self.lines) + 16) / 2 + 0.5)


@dataclass
class Strip:
    """Where the slots of a storage stand. Pixels from the left and the top of the picture.

    `places` gives the left edge and the row of each slot, `gaps` the same for what is left out; `tops` is the
    upper edge of each row, and `edges` are the borders between the tiles of each row, where a link may pass.
    """

    slot_width: int
    places: dict[int, tuple[int, int]] = field(default_factory=dict)
    gaps: list[tuple[Gap, int, int]] = field(default_factory=list)
    tops: list[int] = field(default_factory=list)
    edges: list[list[int]] = field(default_factory=list)
    bottom: int = 0

    @classmethod
    def place(
        cls,
        entries: Sequence[int | Gap],
        slot_width: int,
        left: int,
        top: int,
        below: Callable[[list[int | Gap]], int],
        multiple: int = 1,
    ) -> Strip:
        """Put slots and gaps in rows. `below` says how many pixels a row needs beneath it."""
        strip = cls(slot_width, bottom=top + TILE_HEIGHT)
        rows = _rows(entries, slot_width, WIDTH - left, multiple)
        y = top
        for number, row in enumerate(rows):
            x = left
            strip.tops.append(y)
            strip.edges.append([x])
            for entry in row:
                if isinstance(entry, Gap):
                    strip.gaps.append((entry, x, number))
                    x += entry.width
                else:
                    strip.places[entry] = (x, number)
                    x += slot_width
                strip.edges[-1].append(x)
            y += TILE_HEIGHT
            strip.bottom = y
            y += below(row)
        return strip


def _rows(entries: Sequence[int | Gap], slot_width: int, width: int, multiple: int) -> list[list[int | Gap]]:
    """Split the entries into rows no wider than `width`."""
    if not any(isinstance(entry, Gap) for entry in entries):
        n = fold(len(entries), width // slot_width, multiple)
        return [list(entries[i : i + n]) for i in range(0, len(entries), n)]
    rows: list[list[int | Gap]] = [[]]
    used = 0
    for entry in entries:
        needed = entry.width if isinstance(entry, Gap) else slot_width
        if used + needed > width and rows[-1]:
            rows.append([])
            used = 0
        rows[-1].append(entry)
        used += needed
    return rows
