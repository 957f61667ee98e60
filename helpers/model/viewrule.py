"""The rule by which `view` works or fails, and nothing else. `explain_view` puts it into words.

A new dimension may take over one old dimension, a part of one, or several neighbours that *merge*.
Neighbours merge when one step of the left one goes exactly where a whole pass over the right one ends:

    stride[left] == size[right] * stride[right]

Dimensions of size 1 never take a step, so they are passed over. Where neighbours do not merge there
is a *break*. `view` works exactly when a border between new dimensions falls on every break;
`reshape` copies exactly when `view` fails. PyTorch decides the same in other words, in
`computeStride_impl` (aten/src/ATen/TensorUtils.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import torch

from helpers.model.finding import HelperError
from helpers.model.layout import Layout, whole_number
from helpers.model.words import counted


@dataclass(frozen=True)
class Break:
    """Two neighbouring dimensions of a tensor that cannot merge (`left` and `right`, both larger than 1).

    `spanned_by` is the new dimension that would need them to, or None if a border falls between them.
    """

    left: int
    right: int
    spanned_by: int | None


def find_breaks(layout: Layout, new: tuple[int, ...]) -> list[Break]:
    """Return the breaks of a layout, from left to right, each with the dimension of the shape `new` that spans it.

    `new` holds as many elements as the layout, and no -1. Without elements there are no breaks.
    """
    if layout.numel == 0:
        return []
    moving = [d for d in range(layout.ndim) if layout.shape[d] > 1]
    breaks = []
    for left, right in pairwise(moving):
        if layout.stride[left] != layout.shape[right] * layout.stride[right]:
            # The place of the break and of the borders: how many elements lie to the right of it.
            place = prod(layout.shape[right:])
            spanning = (k for k in range(len(new)) if prod(new[k + 1 :]) < place < prod(new[k:]))
            breaks.append(Break(left, right, next(spanning, None)))
    return breaks


def view_strides(layout: Layout, new: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of the view with shape `new`; every break must fall on a border of `new`.

    One step of a new dimension passes over all elements of the dimensions to its right. So its
    stride is the distance in slots from element 0 to the element with that number.
    A dimension of size 1 gets the stride that PyTorch happens to choose: it is never used.
    """
    if layout.numel == 0:
        return layout.stride if new == layout.shape else contiguous_strides(new)
    strides: list[int] = []
    passed = 1
    for k in reversed(range(len(new))):
        if new[k] > 1:
            strides.append(distance(layout, passed))
        elif strides:
            strides.append(new[k + 1] * strides[-1])
        else:
            strides.append(layout.stride[-1] if layout.ndim else 1)
        passed *= new[k]
    return tuple(reversed(strides))


def distance(layout: Layout, number: int) -> int:
    """Return how many slots after element 0 the element `number` lies, counted in row-major order."""
    slots = 0
    for size, stride in zip(reversed(layout.shape), reversed(layout.stride), strict=True):
        slots += number % size * stride
        number //= size
    return slots


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a new contiguous tensor: each is the product of the sizes after it (0 counts as 1)."""
    return tuple(prod(max(size, 1) for size in shape[k + 1 :]) for k in range(len(shape)))


# What may be given as a shape


def read_shape(shape: Any) -> tuple[int, ...]:
    """Return a number, list, tuple or torch.Size as a tuple of numbers, with -1 left as it is.

    Raises HelperError for anything else, and for sizes that are no whole numbers.
    """
    if isinstance(shape, torch.dtype):
        raise HelperError(f"a shape is needed, but {shape} came: view(dtype) reads the same bytes as another type")
    if isinstance(shape, (list, tuple)):
        return tuple(whole_number(size, "a size", f" at position {position}") for position, size in enumerate(shape))
    return (whole_number(shape, "a shape", wanted="a whole number or a tuple of them"),)


def misfit(asked: tuple[int, ...], numel: int, whole: str = "the tensor") -> str:
    """Return why `numel` elements cannot have the shape `asked`, as half a sentence, or "" if they can.

    `whole` is what has them in the sentence: a tensor, or one dimension that is to be split.
    """
    for position, size in enumerate(asked):
        if size < -1:
            return f"its size {size} at position {position} is negative, and only -1 has a meaning"
    known = prod(size for size in asked if size != -1)
    match asked.count(-1):
        case 0:
            return "" if known == numel else f"it holds {counted(known, 'element')}, but {whole} has {numel}"
        case 1 if known == 0:
            return (
                f"the sizes without -1 multiply to 0, but {whole} has {counted(numel, 'element')}"
                if numel
                else "with no elements and a size of 0 beside it, -1 could stand for any number"
            )
        case 1:
            return (
                "" if numel % known == 0 else f"the sizes without -1 multiply to {known}, which does not divide {numel}"
            )
        case several:
            return f"{several} of its sizes are -1, and only one can be worked out from the others"


def resolved(asked: tuple[int, ...], numel: int) -> tuple[int, ...]:
    """Return the shape with -1 replaced by the number it stands for. `misfit` must have found nothing."""
    known = prod(size for size in asked if size != -1)
    return tuple(numel // known if size == -1 else size for size in asked)
