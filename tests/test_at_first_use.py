"""`from helpers import *` gives every tool its name at once, and imports what stands behind a name when it is used."""

import inspect
import pydoc
import re
import subprocess
import sys
from importlib import import_module

import pytest
import torch

import helpers
from helpers.at_first_use import AtFirstUse
from helpers.model.finding import HelperError

STAND_INS = [name for name in helpers.__all__ if isinstance(getattr(helpers, name), AtFirstUse)]


def test_the_first_cell_of_a_chapter_imports_no_tool_that_it_does_not_use():
    program = (
        "import sys; from helpers import *; begin()\n"
        "print(*sorted({n.split('.')[2] for n in sys.modules if n.startswith('helpers.model.')}))\n"
        "_ = explain_view(__import__('torch').ones(2, 3), (6,)); print('helpers.model.views' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded, used = done.stdout.splitlines()[-2:]
    assert not {"copies", "dispatch", "errors", "functions", "gradients", "overlap", "views"} & set(loaded.split())
    assert used == "True"


@pytest.mark.parametrize("name", STAND_INS)
def test_a_stand_in_looks_like_its_function(name):
    stand_in = getattr(helpers, name)
    function = getattr(import_module(stand_in.__module__), name)
    assert inspect.isfunction(function)
    assert stand_in.__wrapped__ is function
    assert function.__doc__
    assert stand_in.__doc__ == function.__doc__
    assert inspect.signature(stand_in) == inspect.signature(function)
    assert repr(stand_in).startswith(f"{name}(")


def test_help_shows_a_stand_in_as_the_function_that_it_stands_for():
    text = pydoc.render_doc(helpers.explain_grad, renderer=pydoc.plaintext)
    assert re.search(r"explain_grad\(\s*t:", text)
    assert "optimizer:" in text
    assert "Say why the gradient" in text


def test_a_stand_in_binds_as_an_attribute_of_a_class_as_its_function_does():
    class Tensor(torch.Tensor):
        keys = helpers.tensor_keys

    assert torch.ones(2).as_subclass(Tensor).keys()[-1] == "CPU"


def test_a_stand_in_calls_its_function_with_what_it_was_given():
    assert AtFirstUse("textwrap", "shorten")("one two", width=5, placeholder="…") == "one…"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: helpers.draw_layout(torch.ones(2), 1),
            r"draw_layout takes \(t, \*, focus=None\): too many positional",
        ),
        (lambda: helpers.draw_layout(torch.ones(2), foci=1), "got an unexpected keyword argument 'foci'"),
        (
            lambda: helpers.find_copies(),
            r"find_copies takes \(fn, \*args, \*\*kwargs\): missing a required argument: 'fn'",
        ),
    ],
)
def test_a_call_with_other_arguments_than_the_function_takes_is_one_sentence(call, sentence):
    with pytest.raises(HelperError, match=sentence):
        call()


def test_a_wrong_call_inside_the_function_keeps_its_own_error():
    with pytest.raises(TypeError, match="not supported between"):
        AtFirstUse("textwrap", "shorten")("one two", width="five")
