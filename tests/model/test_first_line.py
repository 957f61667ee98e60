"""How the message of an error is quoted in a sentence: its first line, with no end mark and no open quote."""

from __future__ import annotations

import pytest
import torch

from helpers import explain_error
from helpers.explore.panel import in_words
from helpers.model.watch import first_line
from tests.model.failing import caught

QUOTED = {
    "Cannot copy out of meta tensor; no data!": "Cannot copy out of meta tensor; no data",
    "Is it so?": "Is it so",
    "It ended. ": "It ended",
    "It went on...": "It went on",
    'failed with error "Overflow when unpacking long long\nException raised from f': (
        'failed with error "Overflow when unpacking long long"'
    ),
    'failed with "this" error': 'failed with "this" error',
    "unflatten got an unexpected error:\nonly one dimension": "unflatten got an unexpected error",
    "got (str), but expected one of:\n * (int dim)": "got (str)",
}


@pytest.mark.parametrize("message", QUOTED)
def test_a_quoted_message_has_no_mark_at_its_end_and_no_open_quote(message):
    said = QUOTED[message]
    assert first_line(RuntimeError(message)) == said
    assert in_words(RuntimeError(message)) == f"RuntimeError: {said}"


def test_a_message_that_is_missing_or_broken_is_told_as_such():
    class BrokenError(Exception):
        def __str__(self):
            raise TypeError

    assert first_line(RuntimeError()) == "no message"
    assert in_words(RuntimeError()) == "RuntimeError"
    assert first_line(BrokenError()) == "its own text can't be read"
    assert in_words(BrokenError()) == "BrokenError"


def unknown():
    raise RuntimeError('no "data!\nand more')


def test_a_sentence_that_ends_in_a_message_has_one_end_mark():
    for found in (explain_error(unknown), explain_error(caught(unknown))):
        assert found.text.endswith(': no "data".')
    meta = explain_error(lambda: torch.ones(2, device="meta").tolist())
    assert not meta.text.endswith(("!.", "..", "?."))
