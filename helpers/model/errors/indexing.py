"""The explainers of `explain_error` for dimensions and indices that a tensor does not have."""

from __future__ import annotations

import re
from typing import Any

import torch

from helpers.model.errors.failure import Answer, Failure, explains, explains_plainly, numbers_in
from helpers.model.watch import tensors_in
from helpers.model.words import counted

# A number of dimensions is given by the result here: it has one more than the tensor.
_ADDS_ONE = ("unsqueeze", "unsqueeze_", "stack")
_NUMBER = "A tensor without dimensions is one number: read it with item(), or give it a dimension, with view(1)."


def _first(failure: Failure) -> torch.Tensor | None:
    return next(iter(tensors_in(failure.args)), None)


def _name(failure: Failure, otherwise: str = "the tensor") -> str:
    """Return what to call the tensor: of the assignment `t[0] = 1` that is `t`, and of a list its first tensor."""
    said = failure.operand(0, otherwise)
    if failure.name == "__setitem__" and said.endswith("]`"):
        index = failure.operand(1, "``").strip("`")
        said = f"{said.removesuffix(f'[{index}]`')}`" if said.endswith(f"[{index}]`") else otherwise
    return f"tensor 0 of {said}" if failure.args and isinstance(failure.args[0], list | tuple) else said


@explains(
    r"(?P<dim>specified as -?\d+ but tensor has no dimensions|cannot be applied to a 0-dim tensor|"
    r"expects at least a 1-dimensional tensor)|(?P<walk>len\(\)|iteration) (?:of|over) a 0-d tensor|"
    r"(?P<index>invalid index of a 0-dim tensor|too many indices for tensor of dimension 0$)|"
    r"zero-dimensional tensor \(at position (?P<place>\d+)\) cannot be concatenated"
)
def _one_number(match: re.Match, failure: Failure) -> Answer:
    """A tensor without dimensions came where torch goes along one."""
    if match["place"]:
        name = f"tensor {match['place']} of {failure.operand(0, 'the list')}"
        return (
            f"{name} has 0 dimensions (shape ()), and {failure.call.at} joins tensors along a dimension",
            "Use torch.stack, which makes a new dimension.",
        )
    asks = "gives an index" if match["index"] else "needs one to go along"
    return f"{_name(failure)} has 0 dimensions (shape ()), and {failure.call.at} {asks}", _NUMBER


@explains(r"Dimension out of range \(expected to be in range of \[(-?\d+), (-?\d+)\], but got (-?\d+)\)")
def _dimension(match: re.Match, failure: Failure) -> Answer:
    """A dimension was named that is not there. Torch numbers a tensor without dimensions as if it had one."""
    low, high, asked = (int(n) for n in match.groups())
    t, name = _first(failure), _name(failure)
    numbered = f"numbered 0 to {high} or {low} to -1" if high else "numbered 0 or -1"
    asks = f"{failure.call.at} asks for dimension {asked}"
    remedy = "Use a number in that range, or add a dimension with unsqueeze."
    if failure.name in _ADDS_ONE:
        return f"{asks}, and its result has {counted(high + 1, 'dimension')}, {numbered}", "Use a number in that range."
    if high == 0 and (t is None or t.ndim == 0):
        has = f"{name} has 0 dimensions (shape ())" if t is not None else f"{name} has at most 1 dimension"
        as_if = f", which torch takes as 1, {numbered}" if t is not None else f", {numbered}"
        return f"{has}{as_if}, and {asks}", "Use 0 or -1, or add a dimension with unsqueeze."
    if t is not None and t.ndim != high + 1:  # the call makes a tensor of other dimensions on its way
        return f"{asks}, and the dimensions are {numbered} there", "Use a number in that range."
    shape = f" (shape {tuple(t.shape)})" if t is not None else ""
    return f"{name} has {counted(high + 1, 'dimension')}{shape}, {numbered}, and {asks}", remedy


explains_plainly(
    r"input\.dim\(\) = (\d+) is not equal to len\(dims\) = (\d+)",
    "{operand} has {0} dimensions, and {call} names {1}",
    "Name each dimension once.",
)


@explains(r"too many indices for tensor of dimension (\d+)")
def _too_many_indices(match: re.Match, failure: Failure) -> Answer:
    """More indices than dimensions."""
    t, given = _first(failure), failure.args[1] if len(failure.args) > 1 else None
    shape = f" (shape {tuple(t.shape)})" if t is not None else ""
    used = f"gives indices for {_indexed(given)}" if given is not None else "gives indices for more"
    return (
        f"{_name(failure)} has {counted(int(match[1]), 'dimension')}{shape}, and {failure.call.at} {used}",
        "Give at most one index for each dimension; a None in the index makes a new dimension.",
    )


def _indexed(given: Any) -> int:
    """Return how many dimensions an index is for: None and … are for none, and a mask for as many as it has."""
    parts = [part for part in (given if isinstance(given, tuple) else (given,)) if part is not None and part is not ...]
    masks = [part.ndim for part in parts if isinstance(part, torch.Tensor) and part.dtype == torch.bool]
    return len(parts) - len(masks) + sum(masks)


@explains(
    r"index (-?\d+) is out of bounds for dimension (\d+) with size (\d+)|"
    r"select\(\): index (-?\d+) out of range for tensor of size \[(.*?)\] at dimension (-?\d+)"
)
def _index(match: re.Match, failure: Failure) -> Answer:
    """An index that lies outside of its dimension."""
    if match[4]:
        index, dim = int(match[4]), int(match[6])
        size = numbers_in(match[5])[dim]
    else:
        index, dim, size = (int(n) for n in match.groups()[:3])
    name, asks = _name(failure), f"{failure.call.at} asks for {index}"
    has = f"dimension {dim} of {name} has size {size}"
    if _moved(failure):  # torch counts then in a tensor of its own, with the dimensions in another order
        has = f"one dimension of {name} has size {size}"
    if size == 0:
        return f"{has}, so there is no index in it, and {asks}", "Look at what made the tensor empty."
    return (
        f"{has}, so its indices run from 0 to {size - 1} or from {-size} to -1, and {asks}",
        f"Count from 0: the last index is {size - 1}, or -1.",
    )


def _moved(failure: Failure) -> bool:
    """Say whether an index holds a tensor or a list beside other parts."""
    if not failure.args:  # an index that was not worked out again
        return "," in failure.operand(1, "")
    parts = failure.args[1] if failure.name in ("__getitem__", "__setitem__") else None
    return isinstance(parts, tuple) and any(isinstance(part, torch.Tensor | list) for part in parts)


@explains(r"index out of range in self|out of DATA bounds, id=")
def _row(match: re.Match, failure: Failure) -> Answer:
    """A row was looked up that a table, such as the weight of an Embedding, does not have."""
    given = tensors_in((failure.args, failure.kwargs))
    index = next((t for t in given if not t.is_floating_point() and t.numel()), None)
    table = next((t for t in given if t is not index), None)
    dim = failure.args[1] if failure.name == "index_select" and len(failure.args) > 1 else 0
    if index is None or index.is_meta or table is None or not isinstance(dim, int):
        return f"{failure.call.at} looks up an index that is not there", "Count from 0, up to the size minus 1."
    size, low, high = table.shape[dim], int(index.min()), int(index.max())
    asked = f"index {high}" if high >= size else f"index {low}"
    rows = f"dimension {dim} of what it looks up in has size {size}"
    return (
        f"{failure.call.at} looks up {asked}, and {rows}, with indices from 0 to {size - 1}",
        f"Count from 0, with no negative index; for an Embedding, num_embeddings must be more than {high}."
        if "embedding" in failure.name
        else "Count from 0, with no negative index.",
    )


@explains(r"start \((-?\d+)\) \+ length \((\d+)\) exceeds dimension size \((\d+)\)")
def _narrow(match: re.Match, failure: Failure) -> Answer:
    start, length, size = (int(n) for n in match.groups())
    return (
        f"{failure.call.at} asks for indices {start} to {start + length - 1}, and the dimension has "
        f"size {size}: the last index is {size - 1}",
        f"Give a length of at most {size - start} from this start on.",
    )


@explains(r"^new\(\): invalid data type '(\w+)'|are valid indices \(got (\w+)\)")
def _no_index(match: re.Match, failure: Failure) -> Answer | None:
    """Something that is no index, such as a fraction or a text."""
    if failure.name not in ("__getitem__", "__setitem__"):
        return None
    return (
        f"{failure.call.at}: an index is made of whole numbers, slices, …, None, lists and tensors, and a value of "
        f"type {match[1] or match[2]} came",
        "Write int(i) for a fraction that stands for a whole number; a dict takes texts, a tensor does not.",
    )


explains_plainly(
    r"out of range: tried to access index (-?\d+) on a tensor of (\d+) elements",
    "{call} counts the elements of {operand} in one row, and there are {1} of them, from index 0 on, and none at {0}",
    "Count from 0 in t.flatten(); for an index in each dimension write t[i, j].",
)
explains_plainly(
    r"indexing tensors could not be broadcast together with shapes (\[.*\])",
    "{call}: the tensors of an index are taken together, element by element, and shapes {0} do not broadcast",
    "For every row with every column, give the first one a dimension more: t[i[:, None], j].",
)
