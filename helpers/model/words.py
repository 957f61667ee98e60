"""Small pieces of a sentence: counts with their noun, lists in words, names of dtypes."""

from __future__ import annotations

from collections.abc import Iterable

import torch


def counted(count: int, noun: str) -> str:
    """Return "1 slot", "3 slots" or "1,024 slots"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype as readers write it after `torch.`."""
    return str(dtype).removeprefix("torch.")


def listed(things: Iterable[object], most: int | None = None) -> str:
    """Return "", "a", "a and b" or "a, b and c"; of more than `most`, the first ones and "7 more"."""
    words = [str(thing) for thing in things]
    if most is not None and len(words) > most:
        words = [*words[: most - 1], f"{len(words) - most + 1:,} more"]
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def quoted(names: Iterable[str], most: int | None = 4) -> str:
    """Return names in backquotes, as `listed` does."""
    return listed([f"`{name}`" for name in names], most)


def sentence_case(text: str) -> str:
    """Give a sentence that starts with a plain word a capital letter; a name or code keeps its own."""
    first = text.split(" ", 1)[0]
    return text[0].upper() + text[1:] if first.isalpha() and first.islower() else text
