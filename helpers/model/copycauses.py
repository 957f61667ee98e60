"""Why did an operator copy inside? The kind, the cause and the remedy of one copy that the profiler saw.

Whether there is a copy is never looked up: it is measured. What was read and what was written tell most of its cause:
their strides, their dtypes, and whose memory it is. The name of the operator only tells what it wants its copy for.
"""

from __future__ import annotations

import re
from math import prod

from helpers.model.copynotes import GRAD, Moved, Note
from helpers.model.copywords import zero_strides
from helpers.model.layout import stride_zero
from helpers.model.views import REPEATS
from helpers.model.words import dtype_name

# Operators that copy what they are given, write to the copy and return it.
_ACCUMULATORS = frozenset({"addmm", "addmv", "addbmm", "baddbmm"})
_WRITERS = _ACCUMULATORS | {
    "masked_fill", "masked_scatter", "index_fill", "index_put", "index_add", "index_copy", "index_reduce", "put",
    "scatter", "scatter_add", "scatter_reduce", "select_scatter", "slice_scatter", "diagonal_scatter",
    "as_strided_scatter", "sort", "msort", "linalg_eigh",
}  # fmt: skip
_MATMULS = frozenset({"mm", "bmm", "matmul", "scaled_dot_product_attention", "_scaled_dot_product_attention_math"})
# Operators that reorder the elements while they search, on a copy that they throw away.
_SEARCHERS = frozenset(["kthvalue", "median", "nanmedian"])
# LAPACK writes to the matrices that it is given, so every operator that calls it works on a copy, column by column.
_LAPACK = re.compile(r"_?(linalg|cholesky|lu|geqrf|orgqr|ormqr)(_|$)")
_LAZY = {
    "conj": "a conjugate view, whose elements are conjugated only when they are read",
    "neg": "a negative view, whose elements get their sign only when they are read",
}
_LAYOUT = (
    "Keep the tensor in the layout that the operator wants, made once and not in every step; calling "
    "contiguous() right before it moves the copy and does not remove it."
)
_INTERMEDIATE = (
    "The operator made this tensor itself, so contiguous() in your code does not reach it; measure whether another "
    "layout of what you give spares the copy."
)
_AUTOCAST = (
    "Put one autocast block around the whole step: it keeps the converted parameters until it ends, so that each is "
    "converted once."
)
_SAVED = (
    "A gradient or a saved tensor gets its layout from the calls of the forward pass; contiguous() before backward "
    "does not reach it."
)


def is_worth_telling(note: Note, moved: Moved) -> bool:
    """Say whether a copy is more than a step of an operator that fills its result.

    One that no clone made counts where it reads a whole tensor that the call was given, into memory that is new: the
    whole result, as `scatter` does, or memory for the work, as `torch.linalg.solve` does.
    """
    if not prod(moved.read.shape) or moved.operator == GRAD:
        return False
    if not moved.bare:
        return True
    if moved.backward or not note.is_given(moved) or moved.written.start in note.given:
        return False
    if moved.operator in _ACCUMULATORS and note.call.name != moved.operator:
        return False  # a bias, to which the products are added
    if not note.is_result(moved):
        return True
    whole = prod(moved.written.shape) * moved.written.dtype.itemsize == note.made[moved.written.start]
    first = note.layout is not None and note.layout.shape == moved.read.shape and next(iter(note.given))
    return whole and first == moved.read.start


def asked(note: Note, moved: Moved) -> str:
    """Say of a copy that the reader asked for by name why it was made."""
    lazy = note.given.get(moved.read.start, "")
    on = f" on {_LAZY[lazy]}" if lazy and note.call.name == f"resolve_{lazy}" else ""
    return f"{note.call.shown} was called{on}"


def inside(note: Note, moved: Moved) -> tuple[str, str, str]:
    """Return the kind, the cause and the remedy of a copy inside an operator."""
    if moved.backward:
        return _in_backward(moved)
    if lazy := note.given.get(moved.read.start):
        return (
            "inside",
            f"what it reads is {_LAZY[lazy]}, and the operator needs them written out",
            f"Where several calls read it, call resolve_{lazy}() once and go on with its result.",
        )
    if moved.read.dtype != moved.written.dtype:
        return _conversion(note, moved)
    if note.is_result(moved):
        return "always", _result(note, moved), ""
    if moved.lazy or (moved.read.allocation in note.conjugated and _same_strides(moved)):
        return "always", "it conjugates what it is given, and writes that out", ""
    if note.call.name in _SEARCHERS:
        return "always", "it reorders elements while it searches, so it works on a copy", ""
    if moved.bare or _LAPACK.match(moved.operator):
        return "always", "it works on a copy of what it is given", ""
    if _same_strides(moved):
        return "always", "it works on a copy in the same layout, so that no other layout would have spared it", ""
    remedy = _LAYOUT if note.is_given(moved) else _INTERMEDIATE
    if zero_strides(moved.read.shape, moved.read.stride) and (note.expanded or moved.operator in _MATMULS):
        remedy = REPEATS
    return "inside", *_layout(moved, "the operator", remedy)


def _conversion(note: Note, moved: Moved) -> tuple[str, str, str]:
    before, after = dtype_name(moved.read.dtype), dtype_name(moved.written.dtype)
    if not note.is_given(moved):
        return "always", f"it converted a tensor that it made itself from {before} to {after}", ""
    if note.names_dtype:
        return "conversion", f"{before} became {after}", ""
    why = f"the operator converted {before} to {after}"
    if note.autocast:
        return "inside", f"{why}, as autocast asks for", _AUTOCAST
    if len(note.dtypes) > 1:
        return "inside", why, "Bring the tensors to one dtype once, before the loop, and keep the result."
    again = "Where the same tensor comes back in every step"
    return "inside", why, f"{again}, convert it to {after} once, before the loop."


def _result(note: Note, moved: Moved) -> str:
    if not note.is_given(moved):
        return "it wrote its result out in the layout in which it returns it"
    more = ", and it writes to that" if note.call.name in _WRITERS else ""
    return f"its result starts as a copy of its input{more}"


def _in_backward(moved: Moved) -> tuple[str, str, str]:
    name = f"`{moved.operator}`" if moved.operator else "an operator"
    if moved.gradient and 0 in moved.read.stride:
        why = f"{name} in the backward pass writes out a gradient of stride 0: one value for all, as that of a sum is"
        return "always", why, ""
    if moved.read.dtype != moved.written.dtype:
        before, after = dtype_name(moved.read.dtype), dtype_name(moved.written.dtype)
        return "always", f"{name} in the backward pass converted {before} to {after}", ""
    if moved.lazy or _same_strides(moved):
        return "always", f"{name} in the backward pass needs a copy, in any layout", ""
    remedy = REPEATS if zero_strides(moved.read.shape, moved.read.stride) else _SAVED
    return "inside", *_layout(moved, f"{name} in the backward pass", remedy)


def _layout(moved: Moved, operator: str, remedy: str) -> tuple[str, str]:
    """Return cause and remedy of a copy for the sake of other strides."""
    read = moved.read
    why = f"{operator} wanted strides {moved.written.stride} for shape {read.shape}, and it was given {read.stride}"
    if zero := zero_strides(read.shape, read.stride):
        why = f"{stride_zero(zero)} in what the operator reads; {why}"
    return why, remedy


def _same_strides(moved: Moved) -> bool:
    """Say whether every dimension of two or more elements has the same strides on both sides."""
    sides = zip(moved.read.shape, moved.read.stride, moved.written.stride, strict=True)
    return moved.read.shape == moved.written.shape and all(n == 1 or before == after for n, before, after in sides)
