"""Can `view` give a tensor another shape, would `reshape` copy, and why? `explain_view`.

The rule itself is in `viewrule`; this module finds the cause behind it and says it in one sentence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import torch

from helpers.model.finding import Finding
from helpers.model.layout import CHANNELS_LAST, Layout
from helpers.model.viewrule import Break, contiguous_strides, find_breaks, misfit, read_shape, resolved, view_strides
from helpers.model.words import counted

# What really does without the copy of an expanded dimension: measured with find_copies, see tests/model.
REPEATS = (
    "Elementwise operators broadcast over an expanded dimension without a copy, but a matmul mostly copies it. For a "
    "matmul fold the repeats into the rows of the other operand, or call `scaled_dot_product_attention(…, "
    "enable_gqa=True)`: its fused kernels copy nothing (its math kernel, which dropout on the CPU needs, does)."
)


@dataclass(frozen=True, kw_only=True, repr=False)
class ViewFinding(Finding):
    """What `view` and `reshape` do with a shape.

    `possible`: `view` works. `copies`: `reshape` works, but in a new storage. Both are False when no
    tensor with this many elements has the shape. `shape` is the new shape with -1 worked out (as
    asked, if that is impossible); `stride` holds the strides of the view in elements, or is None.
    `blocked` holds the pairs of neighbouring dimensions of the tensor that would have to merge and
    cannot; they are neighbours but for dimensions of size 1. `reason` is the cause of a copy without the
    verdict, in lower case for use in a sentence, and empty where no copy is needed.
    """

    possible: bool
    copies: bool
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None
    blocked: tuple[tuple[int, int], ...]
    reason: str = ""


def explain_view(t: torch.Tensor | Layout, shape: int | tuple[int, ...] | list[int]) -> ViewFinding:
    """Say whether `t.view(shape)` works, whether `t.reshape(shape)` copies, and name the cause.

    `shape` is what `view` takes: a number, tuple, list or torch.Size, with at most one -1.
    Raises HelperError for a tensor without strides, for what is no shape, and where a copy is needed
    but the slots are too tangled to count (see `Layout.reached`).
    """
    layout = Layout.of(t)
    asked = read_shape(shape)
    if reason := misfit(asked, layout.numel):
        return ViewFinding(
            text=f"Neither `view` nor `reshape` can give shape {asked}: {reason}.",
            remedy=f"Choose sizes that multiply to {layout.numel:,}; one of them may be -1 and is then worked out."
            if layout.numel
            else "Give every size as a number; at least one of them must be 0.",
            facts={"numel": layout.numel},
            possible=False,
            copies=False,
            shape=asked,
            stride=None,
            blocked=(),
        )
    new = resolved(asked, layout.numel)
    breaks = find_breaks(layout, new)
    blocked = [b for b in breaks if b.spanned_by is not None]
    if blocked:
        return _copy_needed(layout, new, blocked)
    stride = view_strides(layout, new)
    return ViewFinding(
        text=f"`view` gives shape {new} with strides {stride} and copies nothing: {_why_possible(layout, breaks)}.",
        facts={"breaks": tuple((b.left, b.right) for b in breaks)},
        possible=True,
        copies=False,
        shape=new,
        stride=stride,
        blocked=(),
    )


def _why_possible(layout: Layout, breaks: list[Break]) -> str:
    if layout.numel == 0:
        return "without elements, every shape that holds none will do"
    if breaks:
        return f"dimensions {_pairs(breaks)} cannot merge, but no dimension of the new shape spans them"
    if layout.numel == 1:
        return "the shapes of one element are all alike"
    if sum(size > 1 for size in layout.shape) > 1:
        return f"its dimensions merge into one, so every shape of {layout.numel:,} elements is a view"
    return f"a single dimension can be split in any way, so every shape of {layout.numel:,} elements is a view"


def _pairs(breaks: list[Break]) -> str:
    """Return `0 and 1`, or `0 and 1, 1 and 2`."""
    return ", ".join(f"{b.left} and {b.right}" for b in breaks)


def _copy_needed(layout: Layout, new: tuple[int, ...], blocked: list[Break]) -> ViewFinding:
    """Return the finding for a shape that `view` refuses and `reshape` copies."""
    expanded = [b for b in blocked if 0 in (layout.stride[b.left], layout.stride[b.right])]
    first = (expanded or blocked)[0]
    left, right = first.left, first.right
    size, stride = layout.shape[right], layout.stride[right]
    others = [b for b in blocked if b is not first]
    nor = f" (nor can {_pairs(others)})" if others else ""
    kind, cause = _cause(layout, first)
    because = f" ({cause})" if cause else ""
    reason = (
        f"dimensions {left} and {right} cannot merge{nor}: one step of dimension {left} moves "
        f"{counted(layout.stride[left], 'slot')}, but a merged dimension needs "
        f"size({right}) × stride({right}) = {size:,} × {stride:,} = {size * stride:,}{because}; "
        f"dimension {first.spanned_by} of the new shape {new} would span both"
    )
    return ViewFinding(
        text=f"D{reason[1:]}, so `view` fails and {_what_reshape_copies(layout, new, kind)}.",
        remedy=_remedy(layout, new, blocked, kind),
        facts={
            "cause": kind,
            "spanned_by": tuple(b.spanned_by for b in blocked),
            "bytes_before": layout.reached * layout.element_size,
            "bytes_after": layout.nbytes,
        },
        possible=False,
        copies=True,
        shape=new,
        stride=None,
        blocked=tuple((b.left, b.right) for b in blocked),
        reason=reason,
    )


def _cause(layout: Layout, brk: Break) -> tuple[str, str]:
    """Return what made two dimensions unmergeable: the kind, and half a sentence. Both are "" if no name fits.

    What each says is so for every layout that gets here; "as after …" is a likeness, not a claim.
    """
    left, right = brk.left, brk.right
    size, stride, step = layout.shape[right], layout.stride[right], layout.stride[left]
    if 0 in (step, stride):
        d = left if step == 0 else right
        return (
            "expanded",
            f"dimension {d} is expanded: with stride 0 its {layout.shape[d]:,} indices read the same slots",
        )
    if name := channels_last_name(layout):
        strides = f"strides {layout.stride} are {name}"
        return "memory format", f"{strides}: not the shape {layout.shape} but the memory format is the cause"
    kind, likeness = "order", "as after a transpose or permute"
    if _channels_move_least(layout):
        kind, likeness = "order of channels", "as in a slice of a channels_last tensor or after a permute"
    if step < stride:
        return kind, f"dimension {right} takes the larger steps, {likeness}"
    if step < size * stride and step % stride == 0:
        return "overlap", f"a step of dimension {left} ends inside a pass over dimension {right}, as after unfold"
    if step > size * stride:
        between = [d for d in range(layout.ndim) if layout.shape[d] > 1 and stride < layout.stride[d] < step]
        if between:
            return kind, f"the steps of dimension {between[0]} lie between theirs, {likeness}"
        if in_storage_order(layout):
            gap = counted(step - size * stride, "slot")
            return "gap", f"each step of dimension {left} skips {gap} that the tensor does not read, as after a slice"
    return "", ""


def _what_reshape_copies(layout: Layout, new: tuple[int, ...], kind: str) -> str:
    """Return the end of the sentence: how many bytes the copy takes, and which layout it has."""
    if layout.shared:
        before, after = layout.reached * layout.element_size, layout.nbytes
        times = f"{after // before:,}" if after % before == 0 else f"about {round(after / before, 2):,g}"
        saved = ", so the expand saves nothing" if kind == "expanded" else ""
        grown = f"{counted(before, 'byte')} {'becomes' if before == 1 else 'become'} {after:,} ({times} ×)"
        return f"`reshape` copies to a new, contiguous storage: {grown}{saved}"
    lost = ""
    if name := format_lost(layout, new):
        lost = f", so {name} is lost and a later convolution in {name} converts again"
    return f"`reshape` copies {counted(layout.nbytes, 'byte')} to a new, contiguous storage{lost}"


def _remedy(layout: Layout, new: tuple[int, ...], blocked: list[Break], kind: str) -> str:
    """Return what to do instead, or what to know when the copy is accepted."""
    apart = f"choose a shape that keeps these dimensions apart: {_pairs(blocked)}"
    if kind == "expanded":
        return f"Keep the dimension expanded, or accept the copy. {REPEATS}"
    if kind == "memory format":
        if name := format_lost(layout, new):
            return (
                f"Call `.contiguous(memory_format=torch.{name})` on the result, which copies once more, or use an "
                "operation that keeps the format."
            )
        return f"Use `flatten` or `reshape` and accept one copy, or {apart}."
    accept = "Use `reshape` if a copy will do (what you write to it does not reach this tensor)"
    if kind == "order":
        return f"{accept}, call `view` before the transpose or permute (the order of the elements differs), or {apart}."
    return f"{accept}, or {apart}."


def format_lost(layout: Layout, new: tuple[int, ...]) -> str:
    """Return the channels_last format that a contiguous copy of shape `new` no longer has, or "".

    Only shapes of 4 and 5 dimensions can have one.
    """
    copy = replace(layout, shape=new, stride=contiguous_strides(new))
    keeps = any(copy.is_contiguous(memory_format) for memory_format in CHANNELS_LAST)
    return "" if keeps or copy.ndim not in (4, 5) else channels_last_name(layout)


def channels_last_name(layout: Layout) -> str:
    """Return "channels_last" or "channels_last_3d" if the layout is that and not contiguous as well; else ""."""
    names = layout.memory_formats
    return "" if not names or "contiguous" in names else names[0]


def _channels_move_least(layout: Layout) -> bool:
    """Say whether the dimensions lie in the order of channels_last, with gaps: no memory format, but part of one."""
    for order in CHANNELS_LAST.values():
        if len(order) == layout.ndim and layout.shape[1] > 1:
            steps = [0, *(layout.stride[d] for d in order if layout.shape[d] > 1)]
            return all(small < large for small, large in pairwise(steps))
    return False


def in_storage_order(layout: Layout) -> bool:
    """Say whether every step passes over all that the dimensions to its right read: no permuting, no sharing."""
    passed = 0
    for size, stride in zip(reversed(layout.shape), reversed(layout.stride), strict=True):
        if size > 1:
            if stride <= passed:
                return False
            passed += (size - 1) * stride
    return True
