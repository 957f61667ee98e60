"""Says in one plain sentence what kind of difference lies between stored and new outputs.

Outputs come as nbval compares them: a dict from a key (`stdout`, `stderr`, `ename`, `evalue`, or a MIME type)
to the list of values that all outputs of the cell have for it, in order.
"""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import unquote

Flat = dict[str, list]

ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}")
NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?")
_WARNING = re.compile(r"warn", re.IGNORECASE)
_SVG_TEXT = re.compile(r"<(?:text|title|tspan)\b[^>]*>([^<]+)")
_DRAWING_KEYS = {"text/html", "image/svg+xml"}


def explain_difference(stored: Flat, new: Flat) -> str:
    """Return one sentence for two outputs that differ; "" when they are equal."""
    differing = [key for key in {**stored, **new} if stored.get(key) != new.get(key)]
    if not differing:
        return ""
    for explain in (_only_stderr, _error, _only_addresses, _only_drawing, _only_numbers, _missing_or_extra):
        if sentence := explain(stored, new, differing):
            return sentence
    return _first_line(stored, new, differing[0])


def _pairs(stored: Flat, new: Flat, keys: list[str]) -> list[tuple[str, str]] | None:
    """Return the differing values side by side, or None where the two sides don't match in number or are no text."""
    pairs = []
    for key in keys:
        before, after = stored.get(key, []), new.get(key, [])
        if len(before) != len(after) or not all(isinstance(value, str) for value in before + after):
            return None
        pairs += [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    return pairs


def _only_stderr(stored: Flat, new: Flat, differing: list[str]) -> str:
    if differing != ["stderr"]:
        return ""
    texts = "".join(stored.get("stderr", []) + new.get("stderr", []))
    if not _WARNING.search(texts):
        return ""
    return (
        "Only a warning on stderr differs, and the code is fine: silence the warning in the cell, "
        "or give its changing part a pattern in nbval-sanitize.cfg."
    )


def _error(stored: Flat, new: Flat, differing: list[str]) -> str:
    if "ename" not in stored and "ename" not in new:
        return ""
    if "ename" not in new:
        return f"The cell no longer raises {stored['ename'][0]}, which its stored output expects."
    if "ename" not in stored:
        return f"The cell now raises {new['ename'][0]}: {new['evalue'][0]}; its stored output has no error."
    if "ename" in differing:
        return f"The cell raises another exception: {stored['ename'][0]} is stored, {new['ename'][0]} came."
    if differing == ["evalue"]:
        return (
            f"The exception type is as expected ({new['ename'][0]}), only its wording differs: "
            "compare a stable substring of the message in the cell, or tag the cell `ref-torch`."
        )
    return ""


def _only_addresses(stored: Flat, new: Flat, differing: list[str]) -> str:
    pairs = _pairs(stored, new, differing)
    if pairs and all(ADDRESS.sub("0x", a) == ADDRESS.sub("0x", b) for a, b in pairs):
        return (
            "The outputs differ only in memory addresses (0x…), which change in every run: "
            "print a name instead, such as `grad_fn.name()` or `type(x).__name__`."
        )
    return ""


def _only_numbers(stored: Flat, new: Flat, differing: list[str]) -> str:
    pairs = _pairs(stored, new, differing)
    if not pairs or not all(NUMBER.sub("#", a) == NUMBER.sub("#", b) for a, b in pairs):
        return ""
    numbers = [
        (a, b)
        for before, after in pairs
        for a, b in zip(NUMBER.findall(before), NUMBER.findall(after), strict=True)
        if a != b
    ]
    if not numbers:
        return ""
    gap = max(abs(float(a) - float(b)) / max(abs(float(a)), abs(float(b)), 1e-30) for a, b in numbers)
    if any("." in a or "e" in a.lower() for a, _ in numbers) and gap < 1e-3:
        return (
            f"Only the last digits of numbers differ ({numbers[0][0]} → {numbers[0][1]}; largest relative difference "
            f"{gap:.0e}): print fewer digits, or compare with torch.allclose in the cell."
        )
    more = f", and {len(numbers) - 1} more" if len(numbers) > 1 else ""
    return f"Only numbers differ: {numbers[0][0]} → {numbers[0][1]}{more}."


def _only_drawing(stored: Flat, new: Flat, differing: list[str]) -> str:
    if not set(differing) <= _DRAWING_KEYS:
        return ""
    pairs = _pairs(stored, new, differing)
    if not pairs or not all("svg" in a and "svg" in b for a, b in pairs):
        return ""
    before = [text for a, _ in pairs for text in svg_texts(a)]
    after = [text for _, b in pairs for text in svg_texts(b)]
    if before == after:
        return "Only the drawing differs; its texts are the same, so shapes, positions or colours changed."
    if len(before) == len(after):
        changed = [f"{a!r} → {b!r}" for a, b in zip(before, after, strict=True) if a != b]
    else:
        changed = [f"{text!r} is gone" for text in before if text not in after]
        changed += [f"{text!r} is new" for text in after if text not in before]
        changed = changed or [f"{len(before)} texts became {len(after)}"]
    more = f", and {len(changed) - 4} more" if len(changed) > 4 else ""
    return f"Only the drawing differs; texts in it changed: {', '.join(changed[:4])}{more}."


def svg_texts(value: str) -> list[str]:
    """Return the texts of an SVG picture: an `<svg>` element, or an `<img>` that holds one percent-encoded."""
    return [unescape(text) for text in _SVG_TEXT.findall(unquote(unescape(value)))]


def _missing_or_extra(stored: Flat, new: Flat, differing: list[str]) -> str:
    missing = [key for key in differing if len(stored.get(key, [])) > len(new.get(key, []))]
    extra = [key for key in differing if len(stored.get(key, [])) < len(new.get(key, []))]
    if not missing and not extra:
        return ""
    parts = []
    if missing:
        parts.append(f"output is missing that is stored ({', '.join(missing)})")
    if extra:
        parts.append(f"output came that is not stored ({', '.join(extra)})")
    sentence = "; ".join(parts)
    return sentence[0].upper() + sentence[1:] + "."


def _first_line(stored: Flat, new: Flat, key: str) -> str:
    before, after = next((a, b) for a, b in zip(stored[key], new[key], strict=True) if a != b)
    if not (isinstance(before, str) and isinstance(after, str)):
        return f"The {key} differs: {before!r} is stored, {after!r} came."
    old, fresh = before.split("\n"), after.split("\n")
    width = max(len(old), len(fresh))
    old += ["(nothing)"] * (width - len(old))
    fresh += ["(nothing)"] * (width - len(fresh))
    row = next(i for i in range(width) if old[i] != fresh[i])
    return f"The {key} differs, first in line {row + 1}: {old[row][:80]!r} is stored, {fresh[row][:80]!r} came."
