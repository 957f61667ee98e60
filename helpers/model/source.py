"""Where in the reader's own code something happened: `Place`.

A running frame knows the part of the line that it is working on, column by column (PEP 657). From that
part the names in a diagnosis are taken: in `t[1:] = t[:-1]` the written tensor is `t[1:]` and the source
is `t[:-1]`. Lines are counted inside the function or the notebook cell, and no file is ever named: a cell
has none that a reader could open.
"""

from __future__ import annotations

import ast
import dis
import linecache
import sys
import sysconfig
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from os.path import dirname, join, realpath
from types import CodeType, FrameType, TracebackType

import torch

Range = tuple[int, int, int, int]  # first line, last line (from 1), first and last column (bytes, from 0)

# Code under these folders is not the reader's.
_LIBRARIES = tuple(
    join(realpath(folder), "")
    for folder in {
        dirname(torch.__file__),
        dirname(dirname(realpath(__file__))),
        *(sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
    }
)
# What Python runs to assign to `t[…]`; the second is that for a slice, from Python 3.12 on.
_STORES = {dis.opmap[name] for name in ("STORE_SUBSCR", "STORE_SLICE") if name in dis.opmap}
_LONGEST = 60  # characters of code that are quoted in a sentence


@dataclass(frozen=True)
class Place:
    """One spot in the reader's code.

    `line` counts from 1 inside `owner`, which reads "broken()" or "the cell". `text` is the line, and
    `expression` the part of it that was running. `receiver` is the source text before the dot of a call, and
    `called` the name after it. `arguments` are the texts of its arguments, the first `positional` of them
    without a keyword and the others under the names in `keywords`; or of the values that an operator or a
    subscript works on. Every text is empty where the source is not at hand.
    """

    line: int
    owner: str
    text: str = ""
    expression: str = ""
    receiver: str = ""
    arguments: tuple[str, ...] = ()
    positional: int = 0
    keywords: tuple[str, ...] = ()
    called: str = ""

    def __str__(self) -> str:
        return f"line {self.line} of {self.owner}"

    @property
    def quoted(self) -> str:
        """The line in backquotes with its number, for use in a sentence."""
        return f"`{shorten(self.text)}` ({self})" if self.text else f"({self})"

    def operands(self, count: int) -> tuple[str, ...]:
        """Return the texts of `count` positional arguments as torch sees them: a method's tensor is the first."""
        method = self.receiver and count == self.positional + 1
        return (self.receiver, *self.arguments) if method else self.arguments


def pick(texts: tuple[str, ...], position: int, otherwise: str) -> str:
    """Return one source text in backquotes, or `otherwise` where it is unknown or too long to read."""
    if position < len(texts) and 0 < len(texts[position]) <= _LONGEST:
        return f"`{texts[position]}`"
    return otherwise


def shorten(code: str) -> str:
    """Put code on one line of at most 60 characters."""
    line = " ".join(code.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


@lru_cache(maxsize=512)
def is_library(filename: str) -> bool:
    """Say whether a file belongs to torch, to Python, to an installed package or to these helpers."""
    return filename.startswith("<frozen") or realpath(filename).startswith(_LIBRARIES)


def reader_frame(frame: FrameType | None, stop: CodeType | None = None) -> FrameType | None:
    """Return the innermost frame of the reader's code, walking outward from `frame`.

    The walk ends at the function with the code `stop`; None when only library code lies between.
    """
    while frame is not None and frame.f_code is not stop:
        if not is_library(frame.f_code.co_filename):
            return frame
        frame = frame.f_back
    return None


def caller_frame() -> FrameType | None:
    """Return the frame of the reader's code that called the helper that calls this."""
    return reader_frame(sys._getframe(1))


def caller_arguments() -> tuple[str, ...]:
    """Return the source texts of the arguments with which the reader called the helper; empty where unknown."""
    frame = caller_frame()
    return place_of(frame).arguments if frame else ()


def place_of(frame: FrameType) -> Place:
    """Return the spot at which a frame is running."""
    code, line = frame.f_code, frame.f_lineno
    owner, first = _owner(frame)
    stores = code.co_code[frame.f_lasti] in _STORES
    return _place(code.co_filename, line, _range_at(code, frame.f_lasti, line), owner, first, stores)


def _range_at(code: CodeType, instruction: int, line: int) -> Range:
    """Return the range of the piece of code that an instruction came from; the line where Python did not keep it."""
    where = next(islice(code.co_positions(), instruction // 2, None), None)
    return (line, line, 0, 0) if where is None or None in where else tuple(where)


def place_in_traceback(error: BaseException, stop: CodeType | None = None) -> Place | None:
    """Return the innermost spot in the reader's code that an error passed.

    Frames outside the function with the code `stop`, the helper's own that called the reader, are left out.
    """
    if (step := _innermost(error, stop)) is None:
        return None
    code, line = step.tb_frame.f_code, step.tb_lineno
    return _place(code.co_filename, line, _range_at(code, step.tb_lasti, line), *_owner(step.tb_frame))


def node_in_traceback(error: BaseException) -> tuple[FrameType, ast.AST] | None:
    """Return the innermost frame of the reader's code that an error passed, and the piece of code that was running."""
    if (step := _innermost(error)) is None:
        return None
    code = step.tb_frame.f_code
    nodes = _nodes("".join(linecache.getlines(code.co_filename)))
    node = nodes.get(_range_at(code, step.tb_lasti, step.tb_lineno))
    return None if node is None else (step.tb_frame, node)


def _innermost(error: BaseException, stop: CodeType | None = None) -> TracebackType | None:
    """Return the last step of a traceback in the reader's code; with `stop`, only inside of that function."""
    found, inside = None, stop is None
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if inside and not is_library(code.co_filename):
            found = step
        inside = inside or code is stop
        step = step.tb_next
    return found


def _owner(frame: FrameType) -> tuple[str, int]:
    """Return what to call the code of a frame, and the line on which that code starts."""
    while frame.f_code.co_name in ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>") and frame.f_back:
        frame = frame.f_back
    name = frame.f_code.co_name
    if name == "<module>":
        return "the cell", 1
    return ("the lambda" if name == "<lambda>" else f"{name}()"), frame.f_code.co_firstlineno


@lru_cache(maxsize=1024)
def _place(filename: str, line: int, where: Range, owner: str, first: int, stores: bool = False) -> Place:
    """Return the place of the code at `where`; `stores`: it is at the end of `t[0] += 1`, and not at reading `t[0]`."""
    source = "".join(linecache.getlines(filename))
    text = linecache.getline(filename, line).strip()
    node = _nodes(source).get(where)
    if node is None:
        return Place(line - first + 1, owner, text, shorten(text))
    receiver, arguments = _operands(node)
    if stores and (statement := _augmented(source).get(where)) is not None:
        node, arguments = statement, [statement.target, statement.target.slice]
    named = node.keywords if isinstance(node, ast.Call) else []
    return Place(
        line - first + 1,
        owner,
        text,
        shorten(_code(source, node)),
        _code(source, receiver) if receiver else "",
        tuple(_code(source, part) for part in [*arguments, *(k.value for k in named)]),
        len(arguments),
        tuple(k.arg or "" for k in named),
        _called(node),
    )


def _called(node: ast.AST) -> str:
    """Return the name of the function that a piece of code calls; "" where it calls none, or none with a name."""
    match node.value if isinstance(node, ast.Expr) else node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name
        case ast.Call(func=ast.Call() as made):  # what that call made is called in turn, as in nn.Linear(2, 2)(x)
            return _called(made)
    return ""


def _code(source: str, node: ast.AST) -> str:
    return " ".join((ast.get_source_segment(source, node) or "").split())


@lru_cache(maxsize=16)
def _nodes(source: str) -> dict[Range, ast.AST]:
    """Return every piece of the source by its range; an assignment to `t[…]` stands under its target."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # not plain Python, such as a template: then no piece is known
        return {}
    nodes: dict[Range, ast.AST] = {}
    for node in ast.walk(tree):  # outer nodes come first, so the innermost of one range is kept, save for targets
        if isinstance(node, ast.expr | ast.stmt) and not isinstance(nodes.get(_range(node)), ast.Assign):
            nodes[_range(node)] = node
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript):
                    nodes[_range(target)] = node
    return nodes


@lru_cache(maxsize=16)
def _augmented(source: str) -> dict[Range, ast.AugAssign]:
    """Return every `t[…] += …` of the source by the range of its target, under which Python stores the result."""
    nodes = ast.walk(ast.parse(source))
    statements = [node for node in nodes if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript)]
    return {_range(node.target): node for node in statements}


def _range(node: ast.expr | ast.stmt) -> Range:
    return node.lineno, node.end_lineno or 0, node.col_offset, node.end_col_offset or 0


def _operands(node: ast.AST) -> tuple[ast.AST | None, list[ast.AST]]:
    """Return what stands before the dot of a call, and the values that a piece of code works on."""
    match node:
        case ast.Expr(value=value):
            return _operands(value)
        case ast.Call(func=func, args=args):
            plain = [] if any(isinstance(arg, ast.Starred) for arg in args) else args
            return (func.value if isinstance(func, ast.Attribute) else None), plain
        case ast.Assign(targets=[ast.Subscript() as target], value=value):
            return None, [target, target.slice, value]
        case ast.AugAssign(target=target, value=value):
            return None, [target, value]
        case ast.Subscript(value=value, slice=index):
            return None, [value, index]
        case ast.BinOp(left=left, right=right):
            return None, [left, right]
        case ast.Compare(left=left, comparators=[right]):
            return None, [left, right]
        case ast.UnaryOp(operand=value) | ast.Attribute(value=value):
            return None, [value]
    return None, []
