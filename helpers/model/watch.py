"""Running the reader's function under observation: what every torch call was given, and from which line.

A `TorchFunctionMode` is asked by torch at every call that takes or makes tensors (`t.view(6)`, `t[0]`,
`a + b`, `torch.cat`), before the call leaves Python. It sees the reader's own calls, each once; what one
call does inside is seen by the profiler or by a `TorchDispatchMode`. Watching changes no result: each call
is passed on as it came.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType, MappingProxyType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from helpers.model.finding import Finding, HelperError, kind_of
from helpers.model.source import Place, is_library, pick, place_in_traceback, place_of, reader_frame

# Names of Python's own methods, as a reader writes them.
_OPERATORS = {
    "__getitem__": "indexing", "__setitem__": "the assignment", "__get__": "the attribute", "__set__": "the attribute",
    "__iadd__": "+=", "add_": "add_", "__deepcopy__": "deepcopy",
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """One torch call of the reader: the function's name, such as "reshape", and where it stands.

    `place` is None when no code of the reader lies between the call and the helper, as when a module is
    watched directly; then `within` names the module that made the call, such as "Conv2d.forward".
    `count` is the number of positional arguments. `direct`: the reader wrote this very call, and not
    one that made library code call it, as `optimizer.step()` does.
    """

    name: str
    place: Place | None
    count: int
    direct: bool = True
    within: str = ""

    @property
    def shown(self) -> str:
        """The name of the call as it stands in a sentence."""
        return _OPERATORS.get(self.name, f"`{self.name}`") if self.name else "the code"

    @property
    def expression(self) -> str:
        """The reader's code for this call in backquotes, or the name of the call."""
        return f"`{self.place.expression}`" if self.place and self.place.expression else self.shown

    @property
    def where(self) -> str:
        """ " (line 3 of f())", or nothing where there is no such line."""
        if self.place is None:
            return f" (in {self.within})" if self.within else ""
        return f" ({self.place})"

    @property
    def at(self) -> str:
        """The reader's code for this call and where it stands: "`t[1:]` (line 3 of f())"."""
        return f"{self.expression}{self.where}"

    def operand(self, position: int, otherwise: str) -> str:
        """Return the source text of one positional argument in backquotes, the tensor of a method first."""
        if self.place is None:
            return otherwise
        texts = self.place.operands(self.count)
        if self.direct and self.place.called not in ("", self.name) and len(texts) == self.count - 1:
            texts = ("", *texts)  # a method under another name: its tensor is not written there
        return pick(texts, position, otherwise)

    def keyword(self, name: str, otherwise: str) -> str:
        """Return the source text of one keyword argument."""
        place = self.place
        if place is None or name not in place.keywords:
            return otherwise
        return pick(place.arguments, place.positional + place.keywords.index(name), otherwise)


class Watch(TorchFunctionMode):
    """Passes every torch call of the reader's code through `around`, which subclasses fill in.

    What a subclass looks at beside the call stands in `aside`: an error there is ours, and must not become one of the
    reader's function. `unjudged` names the calls where it happened.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unjudged: list[str] = []

    @contextmanager
    def aside(self, call: Call | None) -> Iterator[None]:
        """Keep an error of our own look at one call away from the reader's run."""
        try:
            yield
        except Exception:  # whatever it is: the call itself goes on
            shown = call.at if call is not None else "a call"
            if shown not in self.unjudged:
                self.unjudged.append(shown)

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name = getattr(func, "__name__", "") or type(func).__name__
        if name == "__get__":  # an attribute: its name is that of the descriptor
            name = getattr(getattr(func, "__self__", None), "__name__", name)
        call = Call(name, None, len(args))
        with self.aside(call):
            caller = sys._getframe(1)
            frame = reader_frame(caller, READER)
            direct = frame is not None and _wraps(caller, name) is frame
            within = "" if frame else _module_of(caller)
            call = Call(name, place_of(frame) if frame else None, len(args), direct, within)
        return self.around(call, func, args, kwargs or {})

    def around(self, call: Call, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run one call. Whatever is noted here must be plain values: a kept tensor would change what lives."""
        return func(*args, **kwargs)


def _wraps(frame: FrameType | None, name: str) -> FrameType | None:
    """Step out of torch's own wrappers around one function; return the frame that called it."""
    while frame is not None and (frame.f_code.co_filename == _OVERRIDES or _named(frame, name)):
        frame = frame.f_back
    return frame


def _named(frame: FrameType, name: str) -> bool:
    """Say whether a function of a library has this name; one of the reader's may have the name of an operator."""
    return frame.f_code.co_name == name and is_library(frame.f_code.co_filename)


def _module_of(frame: FrameType | None) -> str:
    """Return the innermost `Class.forward` that is running, from the code alone: reading locals would keep them."""
    while frame is not None and frame.f_code is not READER:
        if frame.f_code.co_qualname.endswith(".forward"):
            return frame.f_code.co_qualname
        frame = frame.f_back
    return ""


_OVERRIDES = TorchFunctionMode.__init__.__code__.co_filename  # torch/overrides.py, which every wrapper passes


def run_reader(fn: Callable, args: tuple, kwargs: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """Call the reader's function. Tracebacks and frames are cut here: what lies outside is not the reader's."""
    result = fn(*args, **kwargs)
    if type(result) in _UNRUN:
        kind = _UNRUN[type(result)]
        given = ", ".join(["x", "y", "z"][: len(args)]) if len(args) < 4 else "…"
        call = f"{name_of(fn).strip('`')}({given})" if "lambda" not in name_of(fn) else "what it gave"
        remedy = f"give lambda: list({call})" if kind == "a generator" else "give a plain function with the same lines"
        if kind == "a coroutine":
            result.close()  # Python would warn that it was never awaited
        raise NotRunError(f"{name_of(fn)} gave {kind}, and nothing of it has run: {remedy}")
    return result


@contextmanager
def uncompiled() -> Iterator[None]:
    """Let what `torch.compile` made run as it was written.

    A mode that watches makes the compiler translate everything anew, the watching included, and what is seen then is
    the compiler's work.
    """
    if "torch._dynamo" not in sys.modules:  # nothing was compiled yet; the import takes seconds
        yield
        return
    with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
        # A hook on all modules is ours, for the time of the run.
        warnings.filterwarnings("ignore", message="Using `torch.compile\\(module\\)` when there are global hooks")
        yield


class NotRunError(HelperError):
    """The reader's function gave something that is still to run."""


_UNRUN = {GeneratorType: "a generator", CoroutineType: "a coroutine", AsyncGeneratorType: "an async generator"}

READER = run_reader.__code__  # frames inside this function are the reader's; a stored frame would keep its tensors


def require_callable(fn: Any, tool: str) -> None:
    """Raise HelperError unless `fn` can be called."""
    if callable(fn) and not isinstance(fn, type):
        return
    came = "a class" if isinstance(fn, type) else kind_of(fn)
    hint = f": give the function and its arguments, {tool}(f, x), not the result of a call" if came != "a class" else ""
    raise HelperError(f"{tool} takes a function to run, and {came} came{hint}")


def name_of(fn: Callable) -> str:
    """Return how to call the reader's function in a sentence."""
    while isinstance(fn, partial):
        fn = fn.func
    try:
        name = fn.__name__
    except Exception:  # most objects that can be called have none, and a __getattr__ of the reader's may raise anything
        name = type(fn).__name__
    return "the lambda" if name == "<lambda>" else f"`{name}`"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's own text, without the mark at its end and with no quote left open."""
    try:
        return own_words(error) or "no message"
    except Exception:  # a broken __str__ of the reader's must not hide the error
        return "its own text can't be read"


def own_words(error: BaseException) -> str:
    """Return the first line as `first_line` does, "" if there is none. Raises what the error's own `__str__` raises."""
    line = next(iter(str(error).strip().splitlines()), "").removesuffix(", but expected one of:")
    line = line.rstrip(" .:;!?")
    return line + '"' * (line.count('"') % 2)


def raised_finding(fn: Callable, error: BaseException, kind: type[Finding] = Finding, **fields: Any) -> Finding:
    """Return the finding for a function that raised while it was watched for something else."""
    if isinstance(error, NotRunError):
        raise error
    place = place_in_traceback(error, READER)
    where = f" at {place.quoted}" if place else ""
    return kind(
        text=f"{name_of(fn)} raised {type(error).__name__}{where} before it ended: {first_line(error)}.",
        remedy="explain_error(f, …) explains errors of torch."
        if not isinstance(error, SystemExit)
        else "Leave out the call that ends the program, such as sys.exit().",
        facts={"error": type(error).__name__},
        **fields,
    )


def with_unjudged(text: str, unjudged: list[str]) -> str:
    """Add to a sentence that one of our own looks failed, so that it does not claim more than was seen."""
    if not unjudged:
        return text
    more = f" and {len(unjudged) - 1} more calls" if len(unjudged) > 1 else ""
    return f"{text.removesuffix('.')}; {unjudged[0]}{more} could not be judged."


def tensors_in(values: Any) -> list[torch.Tensor]:
    """Return the tensors among the arguments of a call, also those inside its lists and tuples."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found.extend(tensors_in(value))
        elif isinstance(value, dict):
            found.extend(tensors_in(value.values()))
    return found
