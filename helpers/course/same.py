"""Read a reader's answer, and compare it with the expected one: by meaning rather than by type."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import torch

from helpers.model.finding import in_short, kind_of
from helpers.model.memory import memory_of
from helpers.model.words import sentence_case


def same(expected: Any, answer: Any) -> bool:
    """Say whether `answer` means what `expected` means. Never raises, whatever the answer does.

    The kind of container does not matter: `torch.Size([4, 1])`, `(4, 1)`, `[4, 1]`,
    `tensor([4, 1])` and a numpy array all mean the same, at every depth. `4` means `4.0`, `True`
    means `1`, NaN means NaN, floats may differ by rounding (1e-6 of their size), and spaces
    around a text do not count. A generator is read only as far as the expected length.
    A one-element tensor without dimensions means its element, as does a numpy scalar.
    """
    try:
        return _same(_plain(expected), _plain(answer), depth=0)
    except Exception:  # the reader's object may raise anything on being read: then it is not the answer
        return False


def cannot_be_read(t: torch.Tensor) -> bool:
    """Say whether a tensor holds no values in slots: it is sparse, on meta, or its storage was made too small."""
    block = memory_of(t)
    return t.is_meta or block is None or block.lacks_bytes


def number_of(value: Any) -> int | float | None:
    """Return the number that an answer means, or None: an int, a numpy scalar, a tensor of one element; never a bool.

    A float without a fraction is a whole number: 2.0 means 2.
    """
    value = _single(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def truth_of(value: Any) -> bool | None:
    """Return the truth value that an answer means, or None: a bool of Python, numpy or torch, or 0 or 1."""
    value = _single(value)
    return bool(value) if isinstance(value, (bool, int, float)) and value in (0, 1) else None


def numbers_of(value: Any) -> tuple[int | float, ...] | None:
    """Return the numbers of a list, a tuple, a tensor or an array, or None where an entry is no number."""
    if isinstance(value, Iterator) or list_fault(value) is not None:
        return None
    found = tuple(map(number_of, _plain(value)))
    return None if None in found else found


def list_fault(value: Any, wanted: str = "a list of numbers") -> str | None:
    """Say what is wrong with the container of an answer that should be a list or a tuple, or return None."""
    if isinstance(value, (set, frozenset)):
        return f"A set has no order, and {wanted} is wanted."
    if isinstance(value, (list, tuple, range, Iterator)) or isinstance(_plain(value), list):
        return None
    shown, kind = in_short(value), kind_of(value)  # alike for None and for what is shown by its kind
    came = f"{sentence_case(kind)} came" if shown == kind else f"{shown} is {kind}"
    return f"{came}, and {wanted} is wanted."


def _single(value: Any) -> Any:
    """Return the one element of a tensor, an array or a numpy scalar; anything else as it is."""
    try:
        plain = _plain(value)
    except Exception:  # the reader's object may raise anything on being read: then it is no number
        return None
    while plain is not value and isinstance(plain, list) and len(plain) == 1:
        plain = plain[0]
    return plain


def from_numpy(value: Any) -> Any:
    """Return a numpy array as nested lists and a numpy scalar as a Python number; anything else as it is."""
    return value.tolist() if type(value).__module__ == "numpy" and hasattr(value, "tolist") else value


def _plain(value: Any) -> Any:
    """Turn tensors, numpy arrays and numpy scalars into Python numbers and nested lists."""
    if isinstance(value, torch.Tensor):
        if cannot_be_read(value):
            return None
        return value.detach().resolve_conj().resolve_neg().cpu().tolist()
    return from_numpy(value)


def _same(expected: Any, answer: Any, depth: int) -> bool:
    if depth > 50:
        return False
    if isinstance(expected, (list, tuple)):
        if isinstance(answer, Iterator):
            answer = list(islice(answer, len(expected) + 1))
        if not isinstance(answer, (list, tuple, range)) or len(answer) != len(expected):
            return False
        return all(_same(_plain(e), _plain(a), depth + 1) for e, a in zip(expected, answer, strict=True))
    if isinstance(expected, Mapping):
        if not isinstance(answer, Mapping) or set(expected) != set(answer):
            return False
        return all(_same(_plain(expected[key]), _plain(answer[key]), depth + 1) for key in expected)
    if isinstance(expected, (set, frozenset)):
        return isinstance(answer, (set, frozenset, list, tuple)) and set(answer) == expected
    if isinstance(expected, (bool, int, float, complex)):
        return isinstance(answer, (bool, int, float, complex)) and _same_number(expected, answer)
    if isinstance(expected, str):
        return isinstance(answer, str) and answer.strip() == expected.strip()
    return bool(expected == answer)


def _same_number(expected: complex, answer: complex) -> bool:
    if isinstance(expected, int) and isinstance(answer, int):
        return expected == answer
    if expected != expected or answer != answer:
        return expected != expected and answer != answer
    if isinstance(expected, complex) or isinstance(answer, complex):
        return abs(expected - answer) <= 1e-6 * max(abs(expected), abs(answer), 1e-6)
    return math.isclose(expected, answer, rel_tol=1e-6, abs_tol=1e-12)
