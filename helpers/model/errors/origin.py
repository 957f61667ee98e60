"""Who made an error, torch or code of Python outside it, and which other errors led to it."""

from __future__ import annotations

import dis
from os.path import dirname, join
from types import CodeType, TracebackType

import torch

from helpers.model.source import is_library
from helpers.model.watch import first_line

TORCH = join(dirname(torch.__file__), "")
_RAISE = dis.opmap["RAISE_VARARGS"]  # what `raise` and `assert` run


def chain_of(error: BaseException) -> list[BaseException]:
    """Return an error, then the one it was raised from or while it was handled, and so on, as Python would print it."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and not any(link is before for before in chain):
        chain.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return chain


def leads_to(error: BaseException, cause: BaseException) -> bool:
    """Say whether `error` is `cause`, or was raised from it or while it was handled."""
    return any(link is cause for link in chain_of(error))


def wrapped(error: BaseException, cause: BaseException, text: str) -> str:
    """Return what is said of `cause`; where another error was raised for it, with the name of that one before."""
    if error is cause:
        return text
    how = "because" if leads_from(error, cause) else "while the code handled that"
    what = "a torch call had failed"
    if isinstance(cause, AttributeError) or "'NoneType'" in first_line(cause):
        what = "of another error" if how == "because" else "there was another error"
    return f"{type(error).__name__} ({first_line(error)}) was raised {how} {what}: {text}"


def leads_from(error: BaseException, cause: BaseException) -> bool:
    """Say whether each error of the chain down to `cause` was raised from the next, and none only beside it."""
    chain = chain_of(error)
    above = chain[: next(i for i, link in enumerate(chain) if link is cause)]
    return all(link.__cause__ is not None for link in above)


def innermost(error: BaseException) -> CodeType | None:
    """Return the code of the innermost frame that an error passed; None for one that was never raised."""
    step = _last(error)
    return step.tb_frame.f_code if step is not None else None


def raised_in_torch(error: BaseException) -> bool:
    """Say whether the innermost frame that an error passed is one of torch's own."""
    code = innermost(error)
    return code is not None and code.co_filename.startswith(TORCH)


def raised_outside(error: BaseException) -> bool:
    """Say whether a `raise` or `assert` outside torch made the error, or nothing raised it."""
    step = _last(error)
    return step is None or (not raised_in_torch(error) and step.tb_frame.f_code.co_code[step.tb_lasti] == _RAISE)


def speaker(error: BaseException, *, watched: bool) -> str:
    """Return "torch says" where torch made the message, and "its message" where it may be of other code.

    `watched`: the error came out of a torch call that was seen. Otherwise only what torch's C++ code raises is known by
    its class: other errors, such as an IndexError, Python raises as well.
    """
    if raised_outside(error):
        return "its message"
    code = innermost(error)
    own = raised_in_torch(error) or (isinstance(error, RuntimeError) and not is_library(code.co_filename))
    return "torch says" if watched or own else "its message"


def _last(error: BaseException) -> TracebackType | None:
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    return step
