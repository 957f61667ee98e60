"""What the caller wrote as an argument: `x` in `explore_layout(x)`."""

from __future__ import annotations

import ast
from types import FrameType

from helpers.model.source import place_of

# Method calls that may be repeated in an expression: they make views of one and the same tensor.
REPEATABLE = {
    "as_strided",
    "detach",
    "diagonal",
    "expand",
    "narrow",
    "permute",
    "squeeze",
    "t",
    "transpose",
    "unfold",
    "unsqueeze",
    "view",
}


def written_argument(frame: FrameType | None, default: str) -> str:
    """Return the first argument of the call that `frame` is carrying out, as its source writes it.

    Only what gives the same tensor each time it is written counts: names, attributes, constant
    indices, and methods that make views. For anything else, such as `torch.randn(3, 4)`, and where
    no source can be had, returns `default`.
    """
    texts = place_of(frame).arguments if frame else ()
    try:
        written = ast.parse(texts[0], mode="eval").body
    except (IndexError, SyntaxError):
        return default
    return ast.unparse(written) if _repeatable(written) else default


def _repeatable(node: ast.expr) -> bool:
    match node:
        case ast.Name():
            return True
        case ast.Attribute(value=inner):
            return _repeatable(inner)
        case ast.Subscript(value=inner, slice=index):
            names = (ast.Name, ast.Call, ast.NamedExpr, ast.Await, ast.Yield)
            return _repeatable(inner) and not any(isinstance(part, names) for part in ast.walk(index))
        case ast.Call(func=ast.Attribute(value=inner, attr=method), args=args, keywords=[]):
            return method in REPEATABLE and _repeatable(inner) and all(_constant(arg) for arg in args)
    return False


def _constant(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True
