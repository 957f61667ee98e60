"""What did torch mean by this error? `explain_error`.

The function runs with every torch call watched. When one raises, its live arguments are at hand: their
shapes, strides and storages say why, where torch's message only says that. Each kind of message has one
small explainer in a table (`helpers/model/errors/failure.py`); later chapters add theirs with `@explains`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from helpers.model.errors.failure import Answer, Failure, none_given, refused_by_parser
from helpers.model.errors.frames import circle_of, frames_of
from helpers.model.errors.origin import (
    TORCH,
    chain_of,
    innermost,
    leads_to,
    raised_in_torch,
    raised_outside,
    speaker,
    wrapped,
)
from helpers.model.errors.replay import positional, replay
from helpers.model.errors.table import ask
from helpers.model.finding import Finding, HelperError, with_article
from helpers.model.runs.run import Run
from helpers.model.source import Place, is_library, place_in_traceback
from helpers.model.watch import READER, Call, NotRunError, first_line, name_of, require_callable, run_reader
from helpers.model.words import sentence_case


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
    if isinstance(error, HelperError):
        return _of_a_helper(error, place)
    if (checked := _checked(error)) is not error:
        if failure is None or not leads_to(checked, failure.error):
            failure = Failure(checked, Call("opcheck", place, positional(checked, place)), (), {}, run)
        error = failure.error
    watched = failure is not None and leads_to(error, failure.error)
    if not watched:
        failure = next(filter(None, (_unseen(link, _place(error, link), run) for link in chain_of(error))), None)
    if failure is None:
        return _of_python(fn, error, place, run)
    inside = "" if circle_of(error)[0] else _code_inside(error, failure, place)
    answer = None if inside and not _in_a_mode(error) else ask(failure)  # a mode of the reader's passes calls on
    inside = "" if answer else inside
    text, remedy = (inside, "") if inside else answer or _unknown(failure, watched=watched)
    return ErrorFinding(
        text=f"{wrapped(error, failure.error, text)}.",
        remedy=remedy,
        error=type(error).__name__,
        from_torch=True,
        known=answer is not None,
        call=failure.name,
        facts={"message": first_line(failure.error), "line": failure.call.place.line if failure.call.place else None},
    )


def _of_a_helper(error: HelperError, place: Place | None) -> ErrorFinding:
    """Tell an error of these helpers: it is one sentence already."""
    text = f"{sentence_case(first_line(error))}{f' ({place})' if place else ''}"
    return ErrorFinding(text=f"{text}.", error=type(error).__name__, known=True)


def _of_python(fn: Callable, error: Exception, place: Place | None, run: Run | None) -> ErrorFinding:
    """Explain an error that no torch call raised, if it comes of tensors all the same; otherwise say that it does."""
    kind = type(error).__name__
    for link in chain_of(error):
        at = _place(error, link)
        if at is not None and (answer := ask(Failure(link, Call("", at, at.positional), (), {}, run))):
            text, facts = wrapped(error, link, answer[0]), {"message": first_line(link), "line": at.line}
            return ErrorFinding(text=f"{text}.", remedy=answer[1], error=kind, known=True, facts=facts)
    at = f" at {place.quoted}" if place else ""
    text = f"{name_of(fn)} raised {kind}{at} in plain Python, not in a torch call: {first_line(error)}"
    return ErrorFinding(text=f"{text}.", error=kind)


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
    """Explain an exception from its traceback: a backward that failed still has its tensors there.

    One that code outside torch raised is explained by the error of torch that led to it, if that is known.
    """
    for link in sorted(chain_of(error), key=raised_outside):
        found = _explain_link(error, link)
        if found.known:
            return found
    return _explain_link(error, error)


def _explain_link(error: BaseException, link: BaseException) -> ErrorFinding:
    """Explain one error of the chain that led to a caught one."""
    kind, place = type(error).__name__, place_in_traceback(link)
    if link is error and isinstance(link, HelperError):
        return _of_a_helper(link, place)
    if (checked := _checked(link)) is not link:
        told = ask(Failure(checked, Call("opcheck", place, positional(link, place)), (), {}))
        if told is not None:
            text = wrapped(error, link, told[0])
            return ErrorFinding(text=f"{text}.", remedy=told[1], error=kind, known=True, call="opcheck")
    call, given = _failed_backward(link)
    name = call or (place.called or place.expression if place else type(link).__name__)
    parser = refused_by_parser(link, place)
    called, args, kwargs = (not given and replay(link)) or ("", given, {})
    name = called or parser or name
    failure = Failure(link, Call(name, place, len(args) or positional(link, place)), args, kwargs)
    answer = ask(failure)
    text, remedy = answer or _unknown(failure)
    more = (answer is None and not raised_outside(link)) or _needs_a_record(link, args)
    return ErrorFinding(
        text=f"{wrapped(error, link, text)}.",
        remedy=f"{remedy} {_WATCH}".strip() if more else remedy,
        error=kind,
        from_torch=bool(call or parser),
        known=answer is not None,
        call=name,
        facts={"message": first_line(link), "line": place.line if place else None},
    )


def _failed_backward(error: BaseException) -> tuple[str, tuple]:
    """Return the name of the call of autograd that an error passed, and its tensors, from its frame; "" if none."""
    call, given = "", ()
    for frame in frames_of(error):
        code, local = frame.f_code, frame.f_locals
        if code.co_filename.startswith(TORCH) and code.co_name in ("backward", "grad") and not call:
            roots = next((local[name] for name in ("self", "tensors", "outputs") if name in local), None)
            call, given = code.co_name, (roots, *([local["inputs"]] if "inputs" in local and roots is not None else []))
    return call, given


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
    if (
        error is not failure.error
        or place is None
        or place == failure.call.place
        or is_library(innermost(error).co_filename)
    ):
        return ""
    message = first_line(error)
    if any(part in message for part in _OF_THE_GRAPH):
        return ""
    return f"{place.quoted} raised {type(error).__name__} while {failure.call.at} ran it: {message}"


def _unknown(failure: Failure, *, watched: bool = False) -> Answer:
    error, kind = failure.error, type(failure.error).__name__
    raised = f"{failure.call.at} raised {kind}" if error.__traceback__ else f"This is a {kind} that was never raised"
    return f"{raised}, which this tool does not know; {speaker(error, watched=watched)}: {first_line(error)}", ""


def _place(error: BaseException, link: BaseException) -> Place | None:
    """Return where a link of the chain to a watched error was raised; the code that handled it is the reader's, too."""
    return place_in_traceback(link, READER if link is error else None)


def _unseen(error: BaseException, place: Place | None, run: Run | None) -> Failure | None:
    """Return a failure for what no mode sees: arguments that were refused, the `apply` of a Function, a thread."""
    if place is None:
        return None
    count = positional(error, place)
    if name := refused_by_parser(error, place):
        _, args, kwargs = replay(error) or ("", (), {})
        return Failure(error, Call(name, place, len(args) or count), args, kwargs, run)
    if isinstance(error, RuntimeError) and place.called == "apply":
        return Failure(error, Call("apply", place, count), (), {}, run)
    in_torch = type(error) is RuntimeError and raised_in_torch(error)  # as in a thread, which no mode watches
    if place.receiver.split(".")[0] != "torch" and not in_torch:
        return None
    return Failure(error, Call(place.called or place.expression, place, count), (), {}, run)


def _in_a_mode(error: BaseException) -> bool:
    return innermost(error).co_name in ("__torch_function__", "__torch_dispatch__")
