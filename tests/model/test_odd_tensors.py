"""Tensors without strides, and things that are no tensors: what the tools say of them, and what they must not break."""

from __future__ import annotations

import re
from collections import OrderedDict, UserDict

import numpy as np
import pytest
import torch

from helpers.draw.charts import draw_cost
from helpers.model.copies import find_copies
from helpers.model.finding import Finding, HelperError, kind_of
from helpers.model.overlap import explain_overlap
from helpers.model.retention import explain_storage
from helpers.model.sharing import find_sharers
from helpers.model.watch import Watch, run_reader
from helpers.model.words import listed, sentence_case
from helpers.model.writes import find_lost_writes


def nested(layout: torch.layout = torch.strided) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.zeros(2, 2), torch.zeros(3, 2)], layout=layout)


ODD = {
    "sparse_coo": lambda: torch.eye(4).to_sparse(),
    "sparse_csr": lambda: torch.eye(4).to_sparse_csr(),
    "mkldnn": lambda: torch.zeros(4, 4).to_mkldnn(),
    "nested": nested,
    "jagged": lambda: nested(torch.jagged),
    "lazy": lambda: torch.nn.LazyLinear(2).weight,
    "meta": lambda: torch.zeros(4, 4, device="meta"),
    "list": lambda: [1, 2],
}
CALLS = {
    "reshape": lambda t: t.reshape(2, -1, 2),
    "flatten": lambda t: t.flatten(),
    "unflatten": lambda t: t.unflatten(0, (2, 2)),
    "contiguous": lambda t: t.contiguous(),
    "clone": lambda t: t.clone(),
    "to": lambda t: t.to(torch.float64),
    "index": lambda t: t[0],
    "write": lambda t: t.mul_(2),
    "out": lambda t: torch.mul(t, 2, out=t),
    "data_ptr": lambda t: t.data_ptr(),
    "torch.reshape": lambda t: torch.reshape(t, (-1,)),
}
WITHOUT_MEMORY = ("sparse_coo", "sparse_csr", "mkldnn", "nested", "jagged")


def outcome(fn) -> str:
    """Return the class and the first line of what a call raises, or nothing."""
    try:
        fn()
    except Exception as error:
        # j1, j2, … count the ragged dimensions made so far
        return re.sub(r"\bj\d+\b", "j", f"{type(error).__name__}: {error}".splitlines()[0])
    return ""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tool", [find_copies, find_lost_writes])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("odd", ODD)
def test_a_watched_call_raises_what_it_raises_alone_and_nothing_else(tool, call, odd):
    alone, watched = outcome(lambda: CALLS[call](ODD[odd]())), []
    found = tool(lambda t: watched.append(outcome(lambda: CALLS[call](t))), ODD[odd]())
    assert watched == [alone]
    assert "could not be judged" not in found.text, "no analysis failed either"


@pytest.mark.filterwarnings("ignore")
def test_a_reshape_of_a_nested_tensor_and_of_a_sparse_one_is_watched_as_it_is():
    assert "lost no write" in find_lost_writes(lambda t: t.reshape(2, -1, 2), nested()).text
    for tool in (find_copies, find_lost_writes):
        found = tool(lambda t: t.flatten(), torch.eye(3).to_sparse())
        assert found.facts["error"] == "RuntimeError"
        assert "not implemented for sparse tensors" in found.text


def test_an_error_of_our_own_look_leaves_the_call_alone_and_is_told(monkeypatch):
    """Whatever the next odd tensor may be: the reader's code goes on, and the sentence claims no more than was seen."""

    def broken(*_):
        raise HelperError("no strides")

    monkeypatch.setattr("helpers.model.writes.layout_of", broken)
    monkeypatch.setattr("helpers.model.copies.layout_of", broken)
    for tool in (find_copies, find_lost_writes):
        results = []
        found = tool(lambda t, out: out.append(t.reshape(4)), torch.zeros(2, 2), results)
        assert len(results) == 1
        assert found.text.endswith("`t.reshape(4)` (line 1 of the lambda) could not be judged.")


def test_reading_the_place_of_a_call_cannot_break_the_call(monkeypatch):
    monkeypatch.setattr("helpers.model.watch.place_of", lambda frame: 1 / 0)
    with Watch() as watch:
        assert run_reader(lambda: torch.zeros(2).add(1).tolist(), ()) == [1.0, 1.0]
    assert watch.unjudged


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("odd", WITHOUT_MEMORY)
def test_a_tensor_without_strides_gets_the_same_reason_from_every_tool(odd):
    t = ODD[odd]()
    reasons = set()
    for tool in (find_sharers, explain_storage, explain_overlap):
        with pytest.raises(HelperError) as raised:
            tool(t)
        reasons.add(str(raised.value).partition(", but ")[2])
    assert len(reasons) == 1
    assert "came: " in reasons.pop()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("odd", ["sparse_coo", "sparse_csr", "mkldnn", "nested"])
@pytest.mark.parametrize("tool", [find_sharers, explain_storage])
def test_a_tensor_without_strides_in_a_list_is_said_to_be_left_out(tool, odd):
    tensors = [torch.zeros(3), ODD[odd]()]
    assert tool(tensors).text.endswith(f"; `tensors[1]` ({odd}) has no strides and is left out.")
    del tensors[0]
    with pytest.raises(HelperError, match=rf"a list came, but its tensor has no strides: `tensors\[0\]` \({odd}\)"):
        tool(tensors)


@pytest.mark.filterwarnings("ignore")
def test_no_entry_is_said_to_be_the_same_as_itself():
    ragged = nested(torch.jagged)  # its numbers lie in `ragged._values`, a tensor of its own
    holder = [ragged]
    del ragged
    assert "is the same tensor object" not in find_sharers(holder).text


@pytest.mark.parametrize("tool", [find_sharers, explain_storage])
@pytest.mark.parametrize(
    ("nothing", "words"),
    [
        ({}, "and an empty dict came"),
        ([], "and an empty list came"),
        ((), "and an empty tuple came"),
        (OrderedDict(), "and an empty OrderedDict came"),
        ([1, None], "and a list without a tensor came"),
        (3, "and an int came"),
        (None, "and None came"),
        (torch.nn.ReLU(), "and a ReLU came"),
    ],
)
def test_what_came_in_place_of_tensors_is_named(tool, nothing, words):
    with pytest.raises(HelperError) as raised:
        tool(nothing)
    assert str(raised.value).endswith(words)


@pytest.mark.parametrize(
    ("among", "words"),
    [
        (3, "and 3 came"),
        ("x", "and 'x' came"),
        (..., "and Ellipsis came"),
        (torch.eye(2).to_sparse(), "and a tensor without strides came (sparse_coo)"),
        (torch.eye(2).untyped_storage(), "and an UntypedStorage came"),
        ([None], "and a list without a tensor came"),
        ({}, "and an empty dict came"),
        (torch.nn.ReLU(), "and a ReLU came"),
        ([torch.eye(2).to_sparse()], "but its tensor has no strides: `among[0]` (sparse_coo)"),
    ],
)
def test_a_place_to_look_that_holds_nothing_is_refused(among, words):
    with pytest.raises(HelperError, match="among is where to look") as raised:
        find_sharers(torch.zeros(2), among=among)
    assert str(raised.value).endswith(words)


def test_one_is_said_in_the_singular():
    tensors = [torch.zeros(3)]
    assert find_sharers(tensors).text == "The one list entry shares memory with nothing."
    assert explain_storage(tensors).text.startswith("The 1 tensor of `tensors` uses all 12 bytes of 1 storage:")
    tensors = [torch.zeros(30)[:2]]
    assert explain_storage(tensors).text.startswith("The 1 tensor of `tensors` uses 8 bytes and keeps 120 bytes alive")


def test_three_things_are_listed_with_commas():
    assert [listed(range(n)) for n in (1, 2, 3)] == ["0", "0 and 1", "0, 1 and 2"]
    t = torch.zeros(1, 1, 1, 2).expand(2, 3, 4, 2)
    assert "because dimensions 0, 1 and 2 have stride 0" in explain_storage(t).text
    assert explain_overlap(t).text.startswith("Dimensions 0, 1 and 2 of `t` have stride 0")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1, "an int"),
        (..., "an ellipsis"),
        (np.zeros(1), "an ndarray"),
        (np.uint8(1), "a uint8"),
        (UserDict(), "a UserDict"),
        (OrderedDict(), "an OrderedDict"),
        ("", "a str"),
        (None, "None"),
    ],
)
def test_an_article_goes_by_the_first_sound(value, words):
    assert kind_of(value) == words


def test_no_article_is_written_by_hand(pytestconfig):
    """`a {type(x).__name__}` reads "a int" for a number: `kind_of` knows the article."""
    sources = sorted((pytestconfig.rootpath / "helpers").rglob("*.py"))
    wrong = [str(path) for path in sources if " a {type(" in path.read_text(encoding="utf-8")]
    assert wrong == []


def test_a_finding_begins_with_a_capital_letter_unless_code_or_a_name_comes_first():
    assert Finding(text="the lambda made no copy.").text == "The lambda made no copy."
    assert find_copies(lambda: torch.zeros(2)).text.startswith("The lambda made no hidden copy")
    for kept in ("`x` is a view.", "x.T is a view.", "fc1 has no gradient.", ""):
        assert sentence_case(kept) == kept


# Copies: what the reader asked for by name is not hidden, and no advice raises


@pytest.mark.parametrize("last", [torch.channels_last, torch.channels_last_3d])
def test_the_advice_for_a_lost_memory_format_can_be_followed(last):
    """A format can be given back only to a result with its number of dimensions."""
    dims = 4 if last == torch.channels_last else 5
    h = torch.zeros(2, 8, *[4] * (dims - 2)).to(memory_format=last)
    for shape in [(2, -1), (-1,), (2, 8, -1), (2, 16, 2, *[4] * (dims - 3)), (2, 4, 8, *[4] * (dims - 3), 1)]:
        found = find_copies(lambda shape=shape: h.reshape(shape))
        result = h.reshape(shape)
        if "Convert back" in found.remedy:
            assert result.contiguous(memory_format=last).shape == result.shape
        elif found.facts["hidden"]:
            assert "nothing to convert back" in found.text
            order = (0, *range(2, dims), 1)
            assert f".permute{order}" in found.remedy
            assert find_copies(lambda shape=shape, order=order: h.permute(order).reshape(shape)).nbytes == 0


@pytest.mark.parametrize("back", ["contiguous", "to"])
def test_a_conversion_that_the_code_makes_already_is_not_advised(back):
    h = torch.zeros(2, 8, 4, 4).to(memory_format=torch.channels_last)

    def work():
        return getattr(h.reshape(2, 4, 8, 4), back)(memory_format=torch.channels_last)

    found = find_copies(work)
    assert "Convert back" not in found.remedy
    assert "the code converts it back to channels_last" in found.text
    assert found.text.endswith("1 hidden copy and 1 that a line announces, 2,048 bytes in all.")


def test_a_copy_that_the_line_names_is_announced_and_not_hidden():
    x = torch.zeros(2, 8, 4, 4)
    for work in (
        lambda: x.contiguous(memory_format=torch.channels_last),
        lambda: x.to(memory_format=torch.channels_last),
        lambda: x.double(),
        lambda: x.mT.contiguous(),
    ):
        found = find_copies(work)
        assert (found.facts["hidden"], found.facts["announced"]) == (0, 1)
        assert found.nbytes, "it is still a copy that another layout would have spared"
        assert "hidden" not in found.text
    assert find_copies(lambda: x.mT.reshape(-1)).facts["hidden"] == 1


# A drawing of costs


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda t: t.view(-5), "raised RuntimeError on a matrix of 2×2: invalid shape dimension -5"),
        (lambda t: 1 / 0, "raised ZeroDivisionError on a matrix of 2×2: division by zero"),
        (lambda: 1, "raised TypeError on a matrix of 2×2"),
    ],
)
def test_a_function_that_raises_while_it_is_timed_is_one_sentence(function, words):
    with pytest.raises(HelperError, match="the function 'a'") as raised:
        draw_cost({"a": function}, sizes=[2, 4])
    assert words in str(raised.value)


def test_a_device_that_is_not_there_is_not_blamed_on_the_function():
    with pytest.raises(HelperError, match="no matrix of 2×2 could be made on 'foo'"):
        draw_cost({"a": lambda t: t}, sizes=[2], device="foo")
