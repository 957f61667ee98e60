"""What the tests of registration share: a kernel, and what is asked of an error and of a healthy twin."""

from __future__ import annotations

import itertools

import torch

from helpers import explain_dispatch, explain_error

_numbers = itertools.count()


def fresh_space() -> str:
    """Return a namespace that no other test has."""
    return f"course_errors_{next(_numbers)}"


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def operators(library):
    return getattr(torch.ops, library.ns)


def known(fn):
    """Return the finding of an error that must be known, the same from both tools and from the caught exception."""
    try:
        fn()
    except Exception as error:
        caught = explain_error(error)
    finding, dispatch = explain_error(fn), explain_dispatch(fn)
    assert finding.known, finding
    assert caught.known, caught
    assert (dispatch.text, dispatch.remedy) == (finding.text, finding.remedy)
    assert "\n" not in finding.text
    return finding


def healthy(fn):
    finding = explain_error(fn)
    assert finding.error == "", finding
    assert explain_dispatch(fn).cause == "a kernel ran"
