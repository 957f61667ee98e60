"""The explainers of `explain_error` for dtypes: no dispatch key stands for one, so a kernel refuses by itself."""

from __future__ import annotations

import re

import torch

from helpers.model.errors.failure import Answer, Failure, explains
from helpers.model.watch import tensors_in
from helpers.model.words import dtype_name, listed


@explains(r"to have (?:the )?same dtype|must have the same dtype|expected scalar type \w+ but found \w+|"
          r"same dtype, but (?:got|found)")  # fmt: skip
def _mixed(match: re.Match, failure: Failure) -> Answer | None:
    """Tensors of several dtypes came to a kernel that takes one."""
    groups = failure.grouped(lambda t: dtype_name(t.dtype))
    if len(groups) < 2:
        return None
    said = listed([f"{listed(names, 4)} of dtype {dtype}" for dtype, names in groups.items()])
    target = max(groups, key=lambda dtype: _preferred(getattr(torch, dtype), groups[dtype]))
    others = listed([name for dtype, names in groups.items() if dtype != target for name in names], 3)
    return (
        f"{failure.call.at} got {said}, and its kernel takes one dtype: only operators of elements, such as add and "
        "mul, convert by themselves",
        f"Convert {others} with .to(torch.{target}), or convert the other side; for a module, module.to(dtype).",
    )


def _preferred(dtype: torch.dtype, names: list[str]) -> tuple:
    """Rank the dtype to convert to: no whole numbers, what a module has, what most have, and the smaller one."""
    fractions = dtype.is_floating_point or dtype.is_complex
    return fractions, "its parameters" in names, len(names), -dtype.itemsize


@explains(r'"(\w+)" not implemented for \'(\w+)\'')
def _no_code(match: re.Match, failure: Failure) -> Answer:
    """A kernel was found, and its switch over dtypes has no case for this one."""
    given = tensors_in([*failure.args, *failure.kwargs.values()])
    dtype = dtype_name(given[0].dtype) if given else match[2]
    device = f" for {given[0].device.type}" if given else ""
    return (
        f"{failure.call.at}: the dispatcher found a kernel{device}, and its code ({match[1]}) has no case for {dtype}: "
        "a dtype is chosen inside the kernel, not by a key",
        "Convert first, such as t.float(), and back after it where you need that.",
    )


@explains(
    r"(?:must be|[Ee]xpected) (?:either )?a floating point or complex (?:dtype|tensor)[^.]*\. (?:Got|got):? (\w+)"
)
def _whole_numbers(match: re.Match, failure: Failure) -> Answer:
    """Whole numbers came to an operator whose result is none."""
    return (
        f"{failure.call.at} got {failure.operand(0, 'a tensor')} of dtype {_dtype(failure, match[1])}, and its result "
        "is no whole number",
        "Convert first: t.float().",
    )


@explains(r"to have one of the following scalar types: Long, Int; but got torch\.|"
          r"expected target dtype to be Long or Byte, but got|"
          r"tensors used as indices must be long, int, byte or bool tensors|"
          r"gather\(\): Expected dtype int64 for index|Expected dtype int32/int64 for index")  # fmt: skip
def _index(match: re.Match, failure: Failure) -> Answer:
    """Indices or classes that are no whole numbers."""
    return (
        f"{failure.call.at} takes whole numbers as indices or classes, and a tensor of another dtype came",
        "Convert them: t.long(). Targets that are probabilities have the shape of the scores.",
    )


def _dtype(failure: Failure, said: str) -> str:
    first = next(iter(tensors_in(failure.args)), None)
    return dtype_name(first.dtype) if first is not None else said
