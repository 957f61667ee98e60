"""The arguments of a torch call that failed, worked out again from the variables that its frame still holds.

An exception that was caught keeps its frames, and these keep the tensors. Only code that changes nothing and copies
nothing is worked out: names, numbers, views, and new tensors, which are made without data.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from operator import add, floordiv, mul, sub
from types import ModuleType
from typing import Any

import torch

from helpers.model.adapter import plain_access
from helpers.model.owners import local_names
from helpers.model.source import Place, node_in_traceback

Replayed = tuple[str, tuple, dict[str, Any]]  # the name of the call, and its arguments

_ATTRIBUTES = {"T", "mT", "shape", "ndim", "dtype"}
_VIEWS = {
    "t", "transpose", "swapaxes", "permute", "movedim", "view", "view_as", "expand", "expand_as", "unsqueeze",
    "squeeze", "narrow", "select", "diagonal", "unfold", "detach", "size", "dim", "numel",
}  # fmt: skip
_NEW = {"zeros", "ones", "empty", "rand", "randn", "arange", "tensor"}
_ARITHMETIC = {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.FloorDiv: floordiv, ast.Pow: pow}
_IN_PLACE = {ast.Add: "__iadd__", ast.Sub: "__isub__", ast.Mult: "__imul__", ast.Div: "__itruediv__"}


def replay(error: BaseException) -> Replayed | None:
    """Return the name and the arguments of the reader's torch call that raised, or None where they are not known."""
    found = node_in_traceback(error)
    if found is None:
        return None
    frame, node = found
    names = {"torch": frame.f_globals.get("torch"), **local_names(frame)}
    for name in {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} - set(names):
        names[name] = frame.f_globals.get(name)
    try:
        with plain_access(), torch.no_grad():
            call = _call(node, names)
    except Exception:  # a piece of code that is not worked out here, or that fails on what the names hold now
        return None
    return call if any(isinstance(value, torch.Tensor) for value in call[1]) else None


def positional(error: BaseException, place: Place | None) -> int:
    """Return how many positional arguments the call that raised got; a method of a tensor gets that tensor, too."""
    if place is None or not place.receiver:
        return place.positional if place else 0
    frame, _ = node_in_traceback(error) or (None, None)
    root = place.receiver.partition(".")[0] if re.fullmatch(r"[\w.]+", place.receiver) else ""
    owner = {**frame.f_globals, **local_names(frame)}.get(root) if frame is not None else None
    return place.positional + (hasattr(torch.Tensor, place.called) and not isinstance(owner, ModuleType))


def _call(node: ast.AST, names: Mapping[str, Any]) -> Replayed:
    match node:
        case ast.Expr(value=value):
            return _call(value, names)
        case ast.Call(func=ast.Attribute(value=owner, attr=name), args=args, keywords=keywords):
            given = tuple(_value(arg, names) for arg in args)
            named = {keyword.arg: _value(keyword.value, names) for keyword in keywords}
            first = _value(owner, names)
            return name, given if first is torch else (first, *given), named
        case ast.Subscript(value=owner, slice=index):
            return "__getitem__", (_value(owner, names), _value(index, names)), {}
        case ast.Assign(targets=[ast.Subscript(value=owner, slice=index)], value=value):
            return "__setitem__", (_value(owner, names), _value(index, names), _value(value, names)), {}
        case ast.AugAssign(target=target, op=op, value=value):
            return _IN_PLACE[type(op)], (_value(target, names), _value(value, names)), {}
        case ast.BinOp(left=left, right=right):
            return "", (_value(left, names), _value(right, names)), {}
    raise LookupError


def _value(node: ast.AST | None, names: Mapping[str, Any]) -> Any:
    """Return what an expression means, or raise LookupError where to work it out could change or copy something."""
    match node:
        case None:
            return None
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _number(sub, 0, _value(operand, names))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return _number(_ARITHMETIC[type(op)], _value(left, names), _value(right, names))
        case ast.Tuple(elts=parts):
            return tuple(_value(part, names) for part in parts)
        case ast.List(elts=parts):  # a list as an index would copy, and `_part` knows it by its type
            return [_value(part, names) for part in parts]
        case ast.Slice(lower=lower, upper=upper, step=step):
            return slice(_value(lower, names), _value(upper, names), _value(step, names))
        case ast.Subscript(value=owner, slice=index):
            return _part(_value(owner, names), _value(index, names))
        case ast.Attribute(value=owner, attr=name):
            return _attribute(_value(owner, names), name)
        case ast.Call(func=ast.Attribute(value=owner, attr=name), args=args, keywords=[]):
            first, given = _value(owner, names), [_value(arg, names) for arg in args]
            if isinstance(first, torch.Tensor) and name in _VIEWS:
                return getattr(first, name)(*given)
            if first is torch and name in _NEW:
                return getattr(torch, name)(*given, device="meta")
    raise LookupError


def _number(operation: Callable[[int, int], int], left: Any, right: Any) -> int:
    if type(left) is int and type(right) is int:
        return operation(left, right)
    raise LookupError


def _part(owner: Any, index: Any) -> Any:
    """Return what a basic index reads; such an index makes a view. Of a dict, what stands under a key."""
    if type(owner) is dict and type(index) in (str, int):
        return owner[index]
    parts = index if isinstance(index, tuple) else (index,)
    basic = all(part is None or part is ... or type(part) in (int, slice) for part in parts)
    if basic and (isinstance(owner, torch.Tensor) or type(owner) in (tuple, list, torch.Size)):
        return owner[index]
    raise LookupError


def _attribute(owner: Any, name: str) -> Any:
    if isinstance(owner, torch.Tensor) and name in _ATTRIBUTES:
        return getattr(owner, name)
    if owner is torch and isinstance(found := getattr(torch, name), torch.dtype | torch.memory_format):
        return found
    if isinstance(owner, (torch.Tensor, type(torch))):
        raise LookupError
    return object.__getattribute__(owner, "__dict__")[name]  # no property and no other code of the reader's runs
