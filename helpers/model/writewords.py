"""What `find_lost_writes` says: why a call made a new storage, and how to write to the source instead."""

from __future__ import annotations

import ast
from typing import Any

import torch

from helpers.model.adapter import operator_name
from helpers.model.layout import Layout
from helpers.model.memory import layout_of
from helpers.model.views import explain_view
from helpers.model.watch import Call
from helpers.model.words import dtype_name

LITERAL = "aten::lift_fresh"  # brings in a tensor that Python made from numbers, as `torch.tensor([1, 2])` does
_CONVERTERS = frozenset({"to", "type", "asarray", "as_tensor"})
RESHAPERS = frozenset({"reshape", "flatten", "ravel", "reshape_as", "unflatten"})
_SELECTORS = {
    "masked_select": ("`masked_select` copies the selected elements", "t[mask] = v"),
    "index_select": ("`index_select` copies the selected rows", "t.index_copy_(dim, index, v)"),
    "gather": ("`gather` copies the elements that it collects", "t.scatter_(dim, index, v)"),
    "take": ("`take` copies the elements that it collects", "t.put_(index, v)"),
    "take_along_dim": ("`take_along_dim` copies the elements that it collects", "t.scatter_(dim, index, v)"),
}


# Calls that copy whatever they are given, and how a sentence calls that.
_COPIES = {
    "clone": "is a copy by its meaning",
    "__deepcopy__": "is a copy by its meaning",
    "tensor": "always copies what it is given",
    "new_tensor": "always copies what it is given",
}


def copies_its_source(call: Call, func: Any) -> bool:
    """Say whether what the call makes holds elements of its first tensor, and not something computed from it."""
    copiers = {"__getitem__", "contiguous", *_COPIES, *_SELECTORS, *RESHAPERS}
    return call.name in copiers or operator_name(func) == "aten::_to_copy"


def cause_of(call: Call, func: Any, changed: str = "") -> tuple[str, str]:
    """Say why this call made a new storage, and how to write to the source instead.

    `changed` says what a conversion changed: "dtype (float64)". Empty where it gave the same in a new storage.
    """
    name, shown = call.name, call.expression
    if name == "__getitem__":
        return f"{shown} is advanced indexing: it made a new storage", ""  # the remedy needs the write: see below
    if name in _SELECTORS:
        cause, instead = _SELECTORS[name]
        return f"{cause} to a new storage", f"Write the values v to the tensor t itself: {instead}."
    if name in RESHAPERS:
        return (
            f"{shown} had to copy to a new storage",
            "Write through the tensor itself, or keep the result and go on with it; view would raise where "
            "reshape copies.",
        )
    if name == "contiguous":
        return f"{shown} copied to a new storage, because of the strides of its source", "Write before contiguous()."
    if operator_name(func) == LITERAL:
        return f"{shown} copied the numbers to a new storage", "Keep the tensor under a name and use it."
    if name in _COPIES:
        return copied(call)
    if operator_name(func) == "aten::_to_copy" and changed:
        return f"{shown} made a new storage for another {changed}", "Write before the conversion."
    if operator_name(func) in ("aten::_to_copy", "aten::clone") and name in _CONVERTERS:
        return f"{shown} was asked to copy", "Write to the tensor itself, or keep the copy under a name and use it."
    return f"{shown} computed a new tensor", "Keep the result under a name and use it, or write to the tensor itself."


def copied(call: Call) -> tuple[str, str]:
    """Say of a call that copies whatever it is given that it does, and what to do instead."""
    remedy = "Write to what was copied, or keep the copy under a name and use it."
    if call.name == "clone":
        remedy = "Write to the tensor itself, or keep the clone."
    return f"{call.expression} {_COPIES[call.name]}", remedy


def what_changed(before: torch.Tensor, after: torch.Tensor) -> str:
    """Return what a conversion changed: "dtype (float64)", "device (cuda:0)", "memory format", or nothing."""
    changes = []
    if before.dtype != after.dtype:
        changes.append(f"dtype ({dtype_name(after.dtype)})")
    if before.device != after.device:
        changes.append(f"device ({after.device})")
    if not changes and layout_of(before) and layout_of(after) and before.stride() != after.stride():
        changes.append("memory format")
    return " and ".join(changes)


def why_reshape_copied(call: Call, layout: Layout, shape: tuple[int, ...]) -> str:
    """Return the cause for a reshape, flatten or unflatten that copied."""
    pairs = explain_view(layout, shape).blocked
    dims = ", ".join(f"{left} and {right}" for left, right in pairs)
    because = f"dimensions {dims} cannot merge (strides {layout.stride})"
    return f"{call.expression} had to copy to a new storage, because {because}"


def is_write(name: str) -> bool:
    """Say whether a call of this name writes in place: `add_`, `t[0] = …`, `+=`."""
    return name == "__setitem__" or name.startswith("__i") or (name.endswith("_") and not name.endswith("__"))


def is_one_dimension(index: Any) -> bool:
    """Say whether an index stands for exactly one dimension of what it selects: a mask, or one row of numbers."""
    if isinstance(index, list):
        return all(isinstance(i, int) for i in index)
    return isinstance(index, torch.Tensor) and (index.dtype == torch.bool or index.ndim == 1)


def indexing_remedy(maker: Call, write: Call, one_dimension: bool) -> str:
    """Say how to write to what `maker`, an advanced indexing, selected. The names are the reader's where known.

    `one_dimension`: the index stands for exactly one dimension of the selection. Only then, and only if the
    second subscript begins with a full slice, do the two subscripts make one.
    """
    source, index = (maker.operand(i, "").strip("`") for i in (0, 1))
    if not (source and index and _writable(source)):
        return "Write the result back with one subscript, t[index] = …: that writes to the tensor t itself."
    rest = _second_subscript(maker, write) if one_dimension else None
    if rest is None:
        return f"Write the result back with one subscript, {source}[{index}] = …: that writes to {source} itself."
    return f"Put both into one subscript, {source}[{', '.join([index, *rest])}] = …: that writes to {source} itself."


def _writable(source: str) -> bool:
    """Say whether an assignment to `source[…]` reaches memory that has a name: a name, an attribute, a basic index."""
    node = parsed(source)
    while isinstance(node, ast.Attribute) or (isinstance(node, ast.Subscript) and _basic(node.slice)):
        node = node.value
    return isinstance(node, ast.Name)


def _second_subscript(maker: Call, write: Call) -> list[str] | None:
    """Return what follows the full slice in `x[mask][:, …]`, or None if the write is not of this form."""
    node = parsed(write.operand(0, "").strip("`"))
    if write.name != "__setitem__" or not isinstance(node, ast.Subscript):
        return None
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    made = parsed(maker.place.expression) if maker.place else None
    if made is None or ast.dump(node.value) != ast.dump(made) or not all(map(_basic, parts)):
        return None
    return [ast.unparse(part) for part in parts[1:]] if parts and ast.unparse(parts[0]) == ":" else None


def _basic(index: ast.expr) -> bool:
    """Say whether an index is plainly basic, a number or a slice; a name could stand for a tensor."""
    if isinstance(index, ast.Tuple):
        return all(map(_basic, index.elts))
    if isinstance(index, ast.UnaryOp):
        index = index.operand
    return isinstance(index, ast.Slice) or (isinstance(index, ast.Constant) and type(index.value) is int)


def parsed(code: str) -> ast.expr | None:
    """Return the syntax tree of an expression, or None where the text is none."""
    try:
        return ast.parse(code, mode="eval").body
    except SyntaxError:
        return None
