"""What did torch mean by this error? `explain_error`.

The function runs with every torch call watched. When one raises, its live arguments are at hand: their
shapes, strides and storages say why, where torch's message only says that. Each kind of message has one
small explainer in a table (`helpers/model/errors/failure.py`); later chapters add theirs with `@explains`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from os.path import dirname, join
from types import CodeType
from typing import Any

import torch

from helpers.model.errors.failure import EXPLAINERS, Answer, Explainer, Failure, none_given, refused_by_parser
from helpers.model.errors.frames import circle_of
from helpers.model.errors.replay import replay
from helpers.model.finding import Finding, HelperError, with_article
from helpers.model.runs.run import Run
from helpers.model.source import Place, is_library, place_in_traceback
from helpers.model.watch import READER, Call, NotRunError, first_line, name_of, require_callable, run_reader
from helpers.model.words import sentence_case

_TORCH = join(dirname(torch.__file__), "")


@dataclass(frozen=True, kw_only=True, repr=False)
class ErrorFinding(Finding):
    """Why a function raised.

    `error` is the name of the exception's class, or "" when nothing was raised. `from_torch`: a torch call raised it.
    `known`: an explainer recognised it. `call` is the name of the torch call.
    """

    error: str = ""
    from_torch: bool = False
    known: bool = False
    call: str = ""


def explain_error(fn: Callable | BaseException, *args: Any, **kwargs: Any) -> ErrorFinding:
    """Run `fn(*args, **kwargs)` once and explain the error that it raises, from the arguments of the call that raised.

    An exception that you caught may be given in place of a function. Nothing was watched then: what only a watched run
    can tell, such as the line of a write in place, is missing from the sentence. Errors of plain Python code are told
    apart, and an unknown error is said to be unknown, with torch's own first line. Raises HelperError when `fn` is
    neither.
    """
    if isinstance(fn, BaseException):
        return explain_caught(fn)
    require_callable(fn, "explain_error")
    run = Run()
    try:
        with run:
            run_reader(fn, args, kwargs)
    except NotRunError:  # nothing of the function has run, so nothing can be said about it
        raise
    except Exception as error:  # the error is what was asked for
        try:
            return explain_failure(fn, error, run.failure, run)
        finally:
            run.failure = None  # it holds the error, whose traceback holds the tensors of its frames
    caught, run.failure = run.caught(), None
    if caught is not None:
        kind, call = caught
        text = f"{name_of(fn)} raised no error to the outside: it caught {with_article(kind)} itself{call.where}"
        return ErrorFinding(text=f"{text}.", call=call.name, from_torch=True)
    if run.undefined:
        text, remedy = none_given(run.undefined[0])
        return ErrorFinding(text=f"{name_of(fn)} raised no error, but {text}.", remedy=remedy)
    if run.passed_nothing:
        text = f"{name_of(fn)} raised no error; {run.passed_nothing[0]} has no derivative and left autograd."
        return ErrorFinding(text=text, remedy="explain_dispatch says whether a gradient is lost, and how much.")
    return ErrorFinding(text=f"{name_of(fn)} raised no error.")


def explain_failure(fn: Callable, error: Exception, failure: Failure | None, run: Run | None = None) -> ErrorFinding:
    """Explain an error that a watched function raised; `failure` is the torch call that raised last, if any."""
    place = place_in_traceback(error, READER)
    if type(error).__module__.startswith("torch._dynamo"):
        return _of_the_compiler(fn, error)
    if isinstance(error, HelperError):  # it is one sentence already
        text = f"{sentence_case(first_line(error))}{f' ({place})' if place else ''}"
        return ErrorFinding(text=f"{text}.", error=type(error).__name__, known=True)
    if (checked := _checked(error)) is not error:
        if failure is None or not _leads_to(checked, failure.error):
            failure = Failure(checked, Call("opcheck", place, place.positional if place else 0), (), {}, run)
        error = failure.error
    if failure is None or not _leads_to(error, failure.error):
        failure = _unseen(error, place)
        if failure is not None:
            failure.run = run
    if failure is None:
        if place is not None and (answer := _ask(Failure(error, Call("", place, place.positional), (), {}, run))):
            facts = {"message": first_line(error), "line": place.line}
            return ErrorFinding(
                text=f"{answer[0]}.", remedy=answer[1], error=type(error).__name__, known=True, facts=facts
            )
        at = f" at {place.quoted}" if place else ""
        text = (
            f"{name_of(fn)} raised {type(error).__name__}{at} in plain Python, not in a torch call: {first_line(error)}"
        )
        return ErrorFinding(text=f"{text}.", error=type(error).__name__)
    inside = "" if circle_of(error)[0] else _code_inside(error, failure, place)
    answer = None if inside and not _in_a_mode(error) else _ask(failure)  # a mode of the reader's passes calls on
    inside = "" if answer else inside
    text, remedy = (inside, "") if inside else answer or _unknown(failure)
    if error is not failure.error:
        text = f"{type(error).__name__} ({first_line(error)}) was raised because a torch call had failed: {text}"
    return ErrorFinding(
        text=f"{text}.",
        remedy=remedy,
        error=type(error).__name__,
        from_torch=True,
        known=answer is not None,
        call=failure.name,
        facts={"message": first_line(failure.error), "line": failure.call.place.line if failure.call.place else None},
    )


def _of_the_compiler(fn: Callable, error: BaseException) -> ErrorFinding:
    """Say that a compiled function can't be watched: the compiler meets the watching, and raises for that."""
    kind = type(error).__name__
    return ErrorFinding(
        text=f"{name_of(fn)} runs torch.compile, with fullgraph=True or another rule against graph breaks, and the "
        f"compiler met the code that watches the run: the {kind} that it raised says nothing about the function.",
        remedy="Call the function without this tool; if it raises then, catch the exception and give it to "
        "explain_error(error).",
        error=kind,
        from_torch=True,
        known=True,
        facts={"message": first_line(error)},
    )


def _checked(error: BaseException) -> BaseException:
    """Return the error that a check of `torch.library.opcheck` met, in place of the one that tells the whole story."""
    return error.__cause__ or error if type(error).__name__ == "OpCheckError" else error


def explain_caught(error: BaseException) -> ErrorFinding:
    """Explain an exception from its traceback: a backward that failed still has its tensors there."""
    kind, at = type(error).__name__, place_in_traceback(error)
    if (checked := _checked(error)) is not error:
        told = _ask(Failure(checked, Call("opcheck", at, at.positional if at else 0), (), {}))
        if told is not None:
            return ErrorFinding(text=f"{told[0]}.", remedy=told[1], error=kind, known=True, call="opcheck")
    place, call, given = place_in_traceback(error), "", ()
    step = error.__traceback__
    while step is not None:
        code, local = step.tb_frame.f_code, step.tb_frame.f_locals
        if code.co_filename.startswith(_TORCH) and code.co_name in ("backward", "grad") and not call:
            roots = next((local[name] for name in ("self", "tensors", "outputs") if name in local), None)
            call, given = code.co_name, (roots, *([local["inputs"]] if "inputs" in local and roots is not None else []))
        step = step.tb_next
    name = call or (place.expression.partition("(")[0].rpartition(".")[2] if place else type(error).__name__)
    parser = refused_by_parser(error, place)
    called, args, kwargs = (not given and replay(error)) or ("", given, {})
    name = called or parser or name
    failure = Failure(error, Call(name, place, len(args) or (place.positional if place else 0)), args, kwargs)
    answer = _ask(failure)
    text, remedy = answer or _unknown(failure)
    return ErrorFinding(
        text=f"{text}.",
        remedy=f"{remedy} {_WATCH}".strip() if answer is None or _needs_a_record(error, args) else remedy,
        error=type(error).__name__,
        from_torch=bool(call or parser),
        known=answer is not None,
        call=name,
        facts={"message": first_line(error), "line": place.line if place else None},
    )


_WATCH = "Give the function that raised it, explain_error(f): a watched run tells more."


def _needs_a_record(error: BaseException, args: tuple) -> bool:
    """Say whether a watched run can name more: an earlier line that is the cause, or tensors that are not at hand."""
    parts = (*_OF_THE_GRAPH, "does not require grad", *(() if args else _OF_THE_STORAGE))
    return any(part in first_line(error) for part in parts)


_OF_THE_STORAGE = ("view size is not compatible", "to a single memory location")
_OF_THE_GRAPH = ("modified by an inplace operation", "through the graph a second time")


def _code_inside(error: BaseException, failure: Failure, place: Place | None) -> str:
    """Return the sentence for code of the reader that a torch call ran, such as a hook or the backward of a Function.

    "" for an error that torch itself raised, or that is about the graph and only came up in such code.
    """
    innermost = _innermost(error).co_filename
    if error is not failure.error or place is None or place == failure.call.place or is_library(innermost):
        return ""
    message = first_line(error)
    if any(part in message for part in _OF_THE_GRAPH):
        return ""
    return f"{place.quoted} raised {type(error).__name__} while {failure.call.at} ran it: {message}"


# The modules that fill the table, in the order in which their explainers are asked.
_TABLES = (
    "backward",
    "dispatch",
    "dtypes",
    "freed",
    "functions",
    "kernels",
    "python",
    "registration",
    "rules",
    "schemas",
    "sizes",
    "storage",
    "values",
    "parser",
)


@cache
def _explainers() -> list[tuple[re.Pattern, Explainer]]:
    """Return the table. It is filled for the first error: to compile all its patterns takes a while."""
    for name in _TABLES:
        import_module(f"helpers.model.errors.{name}")
    return EXPLAINERS


def _ask(failure: Failure) -> Answer | None:
    try:
        message = str(failure.error)
    except Exception:  # a broken __str__ of the reader's
        return None
    for pattern, explainer in _explainers():
        if (match := pattern.search(message)) and (answer := _answer(explainer, match, failure)):
            return answer
    return None


def _answer(explainer: Explainer, match: re.Match, failure: Failure) -> Answer | None:
    """Return an explainer's answer; None where it could not look, as when the call was seen without its arguments."""
    try:
        return explainer(match, failure)
    except Exception:  # whatever it is, the reader's error is told, in torch's own words
        return None


def _unknown(failure: Failure) -> Answer:
    return (
        f"{failure.call.at} raised {type(failure.error).__name__}, which this tool does not "
        f"know; torch says: {first_line(failure.error)}",
        "",
    )


def _leads_to(error: BaseException | None, cause: BaseException) -> bool:
    """Say whether `error` is `cause`, or was raised from it or while it was handled."""
    for _ in range(20):  # chains are short; a ring of contexts would never end
        if error is None or error is cause:
            return error is cause
        error = error.__cause__ or error.__context__
    return False


def _unseen(error: BaseException, place: Place | None) -> Failure | None:
    """Return a failure without arguments for what no mode sees: `from_numpy`, the `apply` of a Function, a thread."""
    if place is None:
        return None
    if name := refused_by_parser(error, place):
        return Failure(error, Call(name, place, place.positional), (), {})
    if isinstance(error, RuntimeError) and place.expression.partition("(")[0].endswith(".apply"):
        return Failure(error, Call("apply", place, place.positional), (), {})
    in_torch = type(error) is RuntimeError and _raised_in_torch(error)  # as in a thread, which no mode watches
    if place.receiver.split(".")[0] != "torch" and not in_torch:
        return None
    name = place.expression.removeprefix(f"{place.receiver}.").split("(")[0]
    return Failure(error, Call(name, place, place.positional), (), {})


def _raised_in_torch(error: BaseException) -> bool:
    """Say whether the innermost frame that an error passed is one of torch's own."""
    return _innermost(error).co_filename.startswith(_TORCH)


def _in_a_mode(error: BaseException) -> bool:
    return _innermost(error).co_name in ("__torch_function__", "__torch_dispatch__")


def _innermost(error: BaseException) -> CodeType:
    """Return the code of the innermost frame that a caught error passed."""
    step = error.__traceback__
    while step.tb_next is not None:
        step = step.tb_next
    return step.tb_frame.f_code
