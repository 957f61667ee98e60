"""What `find_copies` says: one copy as plain values, and the sentences for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from helpers.model.finding import Finding
from helpers.model.views import REPEATS
from helpers.model.watch import Call, name_of

# Operators whose result is always a new tensor, though a view would be imaginable.
ALWAYS = {
    "flip": "torch has no negative strides, so reversed order is always written out",
    "fliplr": "torch has no negative strides, so reversed order is always written out",
    "flipud": "torch has no negative strides, so reversed order is always written out",
    "roll": "no single stride leads around the end",
    "repeat": "it writes every repetition out, where expand would repeat with stride 0",
    "repeat_interleave": "it writes every repetition out",
    "tile": "it writes every repetition out, where expand would repeat with stride 0",
    "index_select": "a list of indices has no stride",
    "masked_select": "a mask has no stride",
    "gather": "a tensor of indices has no stride",
    "take": "a tensor of indices has no stride",
    "take_along_dim": "a tensor of indices has no stride",
    "indexing": "indexing with a mask, a list or a tensor of indices has no stride and copies what it selects",
    "cat": "its parts lie in different storages",
    "concat": "its parts lie in different storages",
    "stack": "its parts lie in different storages",
    "pad": "the padding needs slots that the source does not have",
}


@dataclass(frozen=True)
class Copy:
    """One copy: the call that made it, its bytes, and why.

    `kind`: "reshape", "contiguous", "conversion" (dtype, device, memory format), "inside" (an operator
    that wanted another layout of what it was given), "always" (an operator that cannot but copy), or
    "asked" (`clone`). `nbytes` counts what was written, `source_nbytes` the different bytes that were
    read. Shapes and strides count elements.
    """

    call: Call
    kind: str
    nbytes: int
    why: str
    source_nbytes: int
    source_shape: tuple[int, ...]
    source_stride: tuple[int, ...]
    stride: tuple[int, ...]
    formats: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    @property
    def hidden(self) -> bool:
        """Whether the reader's line would run without this copy had the layout, or the dtype, been another."""
        return self.kind in ("reshape", "contiguous", "conversion", "inside")

    def __str__(self) -> str:
        return f"{self.call.shown}{self.call.where} {self.nbytes:,} bytes, {self.kind}: {self.why}"


@dataclass(frozen=True, kw_only=True, repr=False)
class CopiesFinding(Finding):
    """Every copy that a function made, in order, and the calls that might have copied and did not.

    `copies` holds all of them, the asked ones too; `nbytes` is what the hidden ones wrote. `kept` names the calls of
    `contiguous`, `to` and `reshape` that returned the same tensor or a view.
    """

    copies: tuple[Copy, ...] = ()
    kept: tuple[str, ...] = ()
    nbytes: int = 0


def copies_finding(fn: Callable, copies: tuple[Copy, ...], kept: tuple[str, ...]) -> CopiesFinding:
    hidden = [c for c in copies if c.hidden]
    nbytes = sum(c.nbytes for c in hidden)
    facts = {"hidden": len(hidden), "nbytes": nbytes, "always": sum(c.kind == "always" for c in copies)}
    facts["asked"] = sum(c.kind == "asked" for c in copies)
    if not hidden:
        others = [_count(kind, facts[kind]) for kind in ("always", "asked") if facts[kind]]
        besides = f", only {' and '.join(others)}" if others else ""
        named = f" (the largest: {_largest(copies)})" if others else ""
        stayed = f"; {kept[0]}" if kept else ""
        text = f"{name_of(fn)} made no hidden copy{besides}{named}{stayed}."
        return CopiesFinding(text=text, facts=facts, copies=copies, kept=kept)
    # `contiguous` and `to` at least announce themselves, so others go first.
    worst = max(hidden, key=lambda c: (c.kind in ("reshape", "inside"), c.nbytes))
    text, remedy = _sentence(worst)
    if len(hidden) > 1:
        text = f"{text}; {name_of(fn)} made {len(hidden)} hidden copies in all, {nbytes:,} bytes"
    return CopiesFinding(text=f"{text}.", remedy=remedy, facts=facts, copies=copies, kept=kept, nbytes=nbytes)


def _count(kind: str, count: int) -> str:
    """Return, for example, `1 that was asked for`."""
    if kind == "always":
        return f"{count} that its operators cannot avoid"
    return f"{count} that {'was' if count == 1 else 'were'} asked for"


def _largest(copies: tuple[Copy, ...]) -> str:
    worst = max(copies, key=lambda c: c.nbytes)
    return f"{worst.call.at}, {worst.nbytes:,} bytes: {worst.why}"


def zero_strides(shape: tuple[int, ...], stride: tuple[int, ...]) -> list[int]:
    """Return the dimensions of two or more elements that have stride 0."""
    return [d for d, (n, s) in enumerate(zip(shape, stride, strict=True)) if n > 1 and s == 0]


def stride_zero(dims: list[int]) -> str:
    """Return `dimension 2 has stride 0` or `dimensions 0 and 2 have stride 0`."""
    named = " and ".join(map(str, dims))
    return f"dimension {named} has stride 0" if len(dims) == 1 else f"dimensions {named} have stride 0"


def _sentence(copy: Copy) -> tuple[str, str]:
    """Return what one hidden copy did and why, and what to do about it."""
    call, nbytes = copy.call, f"{copy.nbytes:,} bytes"
    zero = zero_strides(copy.source_shape, copy.source_stride)
    before, after = copy.formats
    if copy.kind == "reshape" and zero:
        times = copy.nbytes / copy.source_nbytes
        often = f"{times:,.0f}" if times >= 100 else f"{times:.3g}"
        return (
            f"{call.shown} after expand cloned {often}× the bytes ({nbytes} from {copy.source_nbytes:,}) because "
            f"{stride_zero(zero)}{call.where}; the expand saved nothing",
            REPEATS,
        )
    lost = [f for f in before if f.startswith("channels_last") and f not in after]
    if copy.kind == "reshape" and lost and "contiguous" not in before:
        return (
            f"{call.shown} copied {nbytes} into a new storage and the layout changed {lost[0]} → contiguous"
            f"{call.where}; downstream convolutions will convert again",
            f"Convert back once, .contiguous(memory_format=torch.{lost[0]}), or use an operation that "
            "keeps the layout.",
        )
    if copy.kind == "inside":
        return (
            f"{call.shown} copied {nbytes} inside{call.where}: {copy.why}",
            REPEATS
            if copy.why.startswith("dimension")
            else "Keep the tensor in the layout that the operator wants, made once and not in every step; calling "
            "contiguous() right before it moves the copy and does not remove it.",
        )
    remedy = {
        "reshape": "Accept the copy and use its result, or choose an order of operations in which view works.",
        "contiguous": "Leave it out where the next operator takes the strides as they are; find_copies tells whether.",
        "conversion": "Convert once, outside of the loop, and keep the result.",
    }[copy.kind]
    return f"{call.at} copied {nbytes}: {copy.why}", remedy
