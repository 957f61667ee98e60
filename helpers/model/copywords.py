"""What `find_copies` says: one copy as plain values, and the sentences for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from helpers.model.finding import Finding
from helpers.model.layout import CHANNELS_LAST, Layout, stride_zero
from helpers.model.views import REPEATS
from helpers.model.watch import Call, name_of, with_unjudged

# For each format with channels last, the order of the dimensions in memory, from the slowest to the fastest.
PIXELS_FIRST = {str(f).removeprefix("torch."): order[::-1] for f, order in CHANNELS_LAST.items()}

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
    "concatenate": "its parts lie in different storages",
    "stack": "its parts lie in different storages",
    "pad": "the padding needs slots that the source does not have",
}


# Operators whose result holds the same elements more than once, and those that join tensors.
REPEATERS = frozenset({"repeat", "repeat_interleave", "tile"})
JOINERS = frozenset({"cat", "concat", "concatenate", "stack"})


@dataclass(frozen=True)
class Copy:
    """One copy: the call that made it, its bytes, and why.

    `kind`: "reshape", "contiguous", "conversion" (dtype, device, memory format), "inside" (an operator that
    wanted another layout or dtype of what it was given, or a conjugate view written out), "always" (an operator
    that cannot but copy), or "asked" (`clone`). `nbytes` counts what was written, `source_nbytes` the different
    bytes that were read. Shapes and strides count elements. `lost` is set where the copy reads a channels_last
    tensor through views and the result is in the default order: the format, and the strides of that result.
    `remedy` is what to do about a copy of kind "inside".
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
    lost: tuple[str, tuple[int, ...]] | None = None
    remedy: str = ""

    @property
    def hidden(self) -> bool:
        """Whether nothing in the reader's line says that it copies: another layout or dtype would have spared it."""
        return self.kind in ("reshape", "inside")

    @property
    def announced(self) -> bool:
        """Whether the line names the layout or the dtype that it wants: it copies only where that is not there yet."""
        return self.kind in ("contiguous", "conversion")

    @property
    def times(self) -> float:
        """How many bytes were written for each byte that was read."""
        return self.nbytes / self.source_nbytes if self.source_nbytes else 1.0

    @property
    def growth(self) -> str:
        """For example `4× the bytes (1,024 bytes from 256)`."""
        often = f"{self.times:,.0f}" if self.times >= 100 else f"{self.times:.3g}"
        return f"{often}× the bytes ({self.nbytes:,} bytes from {self.source_nbytes:,})"

    @property
    def written_out(self) -> list[int]:
        """The dimensions of stride 0 in what was read that have other strides in what was written."""
        zero = zero_strides(self.source_shape, self.source_stride)
        if self.kind == "reshape" or len(self.stride) != len(self.source_shape):
            return zero
        return [d for d in zero if self.stride[d] != 0]

    def __str__(self) -> str:
        return f"{self.call.shown}{self.call.where} {self.nbytes:,} bytes, {self.kind}: {self.why}"


@dataclass(frozen=True, kw_only=True, repr=False)
class CopiesFinding(Finding):
    """Every copy that a function made, in order, and the calls that might have copied and did not.

    `copies` holds all of them, the asked ones too. `nbytes` is what the hidden and the announced ones wrote: another
    layout or dtype would have spared these. `kept` names the calls of `contiguous`, `to` and `reshape` that returned
    the same tensor or a view.
    """

    copies: tuple[Copy, ...] = ()
    kept: tuple[str, ...] = ()
    nbytes: int = 0


def copies_finding(fn: Callable, copies: tuple[Copy, ...], kept: tuple[str, ...], unjudged: list[str]) -> CopiesFinding:
    hidden, announced = [c for c in copies if c.hidden], [c for c in copies if c.announced]
    spared = hidden + announced
    nbytes = sum(c.nbytes for c in spared)
    facts = {"hidden": len(hidden), "announced": len(announced), "nbytes": nbytes}
    facts |= {kind: sum(c.kind == kind for c in copies) for kind in ("always", "asked")}
    if not spared:
        others = [_count(kind, facts[kind]) for kind in ("always", "asked") if facts[kind]]
        besides = f", only {' and '.join(others)}" if others else ""
        worst = max(copies, key=lambda c: c.nbytes, default=None)
        largest, remedy = _unavoidable(worst) if worst is not None else ("", "")
        named = f" (the largest: {largest})" if others else ""
        stayed = f"; {kept[0]}" if kept else ""
        text = with_unjudged(f"{name_of(fn)} made no hidden copy{besides}{named}{stayed}.", unjudged)
        return CopiesFinding(text=text, remedy=remedy, facts=facts, copies=copies, kept=kept)
    worst = max(hidden or announced, key=lambda c: c.nbytes)
    text, remedy = _sentence(worst, copies[copies.index(worst) + 1 :])
    if len(spared) > 1:
        text = f"{text}; {name_of(fn)} made {_counts(len(hidden), len(announced))}, {nbytes:,} bytes in all"
    text = with_unjudged(f"{text}.", unjudged)
    return CopiesFinding(text=text, remedy=remedy, facts=facts, copies=copies, kept=kept, nbytes=nbytes)


def _counts(hidden: int, announced: int) -> str:
    """Return, for example, `2 hidden copies` or `1 hidden copy and 1 that a line announces`."""
    quiet = "1 hidden copy" if hidden == 1 else f"{hidden} hidden copies"
    if not announced:
        return quiet
    if not hidden:
        return f"{announced} copies that its lines announce"
    return f"{quiet} and {announced} that {'a line announces' if announced == 1 else 'its lines announce'}"


def _lost_format(copy: Copy, lost: str, later: Sequence[Copy]) -> tuple[str, str]:
    """A reshape of a tensor in the format `lost`: can its result have that format, and is it converted back?"""
    call, order = copy.call, PIXELS_FIRST[lost]
    start = (
        f"{call.shown} copied {copy.nbytes:,} bytes into a new storage and the layout changed {lost} → contiguous"
        f"{call.where}"
    )
    if len(copy.stride) != len(order):
        return (
            f"{start}; {lost} is a layout of {len(order)} dimensions, and the result has {len(copy.stride)}, so there "
            "is nothing to convert back",
            f"Accept this one copy. Where the order of the elements may differ, .permute{order} before it leaves "
            "nothing to copy: it gives all channels of one pixel, then those of the next.",
        )
    return _converted_back(start, lost, copy.stride, later) or (
        f"{start}; downstream convolutions will convert again",
        f"Convert back once, .contiguous(memory_format=torch.{lost}), or use an operation that keeps the layout.",
    )


def _lost_behind_views(copy: Copy, lost: str, stride: tuple[int, ...], later: Sequence[Copy]) -> tuple[str, str]:
    """A copy of views of a tensor in the format `lost`, whose result with `stride` is in the default order."""
    call = copy.call
    start = (
        f"{call.shown} read a {lost} tensor through views and copied {copy.nbytes:,} bytes into a new storage, and the "
        f"layout changed {lost} → contiguous{call.where}"
    )
    return _converted_back(start, lost, stride, later) or (
        f"{start}; a later convolution in {lost} converts it again",
        f"Where convolutions follow, convert back once, .contiguous(memory_format=torch.{lost}), or use an operation "
        "that keeps the layout.",
    )


def _converted_back(start: str, lost: str, stride: tuple[int, ...], later: Sequence[Copy]) -> tuple[str, str] | None:
    """Return the sentence for a result with `stride` that the code converts back to the format `lost`, or None."""
    if any(c.announced and c.source_stride == stride and lost in c.formats[1] for c in later):
        return (
            f"{start}; the code converts it back to {lost}, which copies it a second time",
            "One conversion back is right, so leave it. An operation that keeps the layout would save both copies.",
        )
    return None


def _count(kind: str, count: int) -> str:
    """Return, for example, `1 that was asked for`."""
    if kind == "always":
        return f"{count} that its operators cannot avoid"
    return f"{count} that {'was' if count == 1 else 'were'} asked for"


def joined(parts: Sequence[tuple[int, Layout] | None], nbytes: int, why: str) -> tuple[int, str]:
    """Return the bytes that a `cat` or `stack` reads, and why it copies. `parts`: the storage and layout of each."""
    if None in parts or not parts:
        return nbytes, why
    if len(parts) > 1 and len(set(parts)) == 1:
        return nbytes // len(parts), f"it writes one tensor {len(parts)} times"
    if len({storage for storage, _ in parts}) < len(parts):
        return nbytes, "it always writes its parts to a new storage"
    return nbytes, why


def _unavoidable(copy: Copy) -> tuple[str, str]:
    """Return what a copy did that no other layout would have spared, and what to do where it repeats elements."""
    said = f"{copy.call.at}, {copy.nbytes:,} bytes: {copy.why}"
    if copy.kind == "asked" and copy.written_out:
        return (
            f"{said}, and {stride_zero(copy.written_out)}: {copy.growth}; the expand saved nothing",
            "Where each repetition is to be written to, the copy is needed. Where they are only read, it is not. "
            f"{REPEATS}",
        )
    name = copy.call.name
    if copy.times <= 1 or name not in REPEATERS | JOINERS:
        return said, ""
    said = f"{said}; that is {copy.growth}"
    if name == "repeat_interleave" and not copy.written_out:  # a number of its own for each element
        return said, ""
    remedy = f"Where the repetitions are only read, expand repeats a dimension of size 1 with stride 0. {REPEATS}"
    if name == "repeat_interleave":
        return said, remedy
    return said, f"{remedy} `enable_gqa` takes the heads in the order of `repeat_interleave`."


def zero_strides(shape: tuple[int, ...], stride: tuple[int, ...]) -> list[int]:
    """Return the dimensions of two or more elements that have stride 0."""
    return [d for d, (n, s) in enumerate(zip(shape, stride, strict=True)) if n > 1 and s == 0]


def _sentence(copy: Copy, later: Sequence[Copy]) -> tuple[str, str]:
    """Return what one copy did and why, and what to do about it. `later` are the copies after it."""
    call, nbytes = copy.call, f"{copy.nbytes:,} bytes"
    before, after = copy.formats
    if copy.kind in ("reshape", "contiguous") and copy.written_out:
        return (
            f"{call.shown} after expand cloned {copy.growth} because {stride_zero(copy.written_out)}{call.where}; "
            "the expand saved nothing",
            REPEATS,
        )
    if copy.lost:
        return _lost_behind_views(copy, *copy.lost, later)
    lost = [f for f in before if f.startswith("channels_last") and f not in after]
    if copy.kind == "reshape" and lost and "contiguous" not in before:
        return _lost_format(copy, lost[0], later)
    if copy.kind == "inside":
        return (
            f"{call.shown} copied {nbytes} inside{call.where}: {copy.why}",
            copy.remedy,
        )
    why = copy.why
    if copy.kind == "conversion" and copy.written_out:
        return (
            f"{call.at} copied {nbytes}: {why}, and {stride_zero(copy.written_out)}, so each repetition was written "
            f"out{f': {copy.growth}' if copy.times > 1 else ''}",
            "Convert before the expand, so that each element is converted and written once.",
        )
    if copy.kind == "contiguous" and copy.times > 1:
        why = f"{why}, and several indices read one slot, so it wrote {copy.growth}"
    remedy = {
        "reshape": "Accept the copy and use its result, or choose an order of operations in which view works.",
        "contiguous": "Leave it out where the next operator takes the strides as they are; find_copies tells whether.",
        "conversion": "Convert once, outside of the loop, and keep the result.",
    }[copy.kind]
    return f"{call.at} copied {nbytes}: {why}", remedy
