"""Faults that readers reported: shared modules, functions that never ran, endless counting, values without a repr."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
import torch
from torch import nn

from helpers.course.checking import check
from helpers.course.drill import drill
from helpers.course.same import same
from helpers.draw.storage import draw_storage
from helpers.explore.layout import explore_layout
from helpers.model.copies import find_copies
from helpers.model.errors.explain import explain_error
from helpers.model.finding import HelperError, in_short
from helpers.model.layout import Layout
from helpers.model.overlap import explain_overlap
from helpers.model.sharing import explain_storage, find_sharers
from helpers.model.views import explain_view
from helpers.model.writes import find_lost_writes


def emptied() -> torch.Tensor:
    """Return a tensor whose storage is gone: torch's own repr of it crashes Python."""
    z = torch.zeros(4)
    z.untyped_storage().resize_(0)
    return z


def test_one_layer_in_three_places_is_told():
    shared = nn.Linear(2, 2)
    m = nn.ModuleList([shared] * 3)
    del shared
    found = find_sharers(m)
    assert "3 of 6 entries are one parameter: `m[0].weight` and `m[1].weight` and `m[2].weight`" in found.text
    assert "build a new module for each place" in found.remedy


def test_tied_weights_are_not_told_to_be_copied():
    m = nn.ModuleDict({"a": nn.Linear(2, 2, bias=False), "b": nn.Linear(2, 2, bias=False)})
    m["b"].weight = m["a"].weight
    found = find_sharers(m)
    assert len(found.together) == 2
    assert "intended for tied weights" in found.remedy


def test_a_module_that_holds_itself_ends():
    m = nn.Linear(2, 2)
    m.children_of_mine = [m]
    m._modules["me"] = m
    assert "share memory with nothing" in find_sharers(m).text


def test_the_remedy_speaks_of_the_readers_own_name():
    tb, kept = torch.zeros(3), []
    for _ in range(3):
        kept.append(tb.detach())
    assert find_sharers(kept).remedy == "Copy at the moment of storing: tb.clone()."


def test_a_deque_is_read_like_a_list():
    frame, kept = np.zeros(3, dtype=np.float32), deque()
    for _ in range(3):
        kept.append(torch.from_numpy(frame))
    found = find_sharers(kept)
    assert "All 3 deque entries" in found.text
    assert "refilled" in found.text
    assert found.remedy.endswith("torch.tensor(frame).")


def test_a_parameter_without_a_shape_is_one_sentence():
    lazy = nn.parameter.UninitializedParameter()
    with pytest.raises(HelperError, match="has no shape yet"):
        find_sharers(lazy)
    with pytest.raises(HelperError, match="whole number"):
        explain_view(torch.ones(6), lazy)


@pytest.mark.parametrize("tool", [find_copies, explain_error, find_lost_writes])
def test_a_function_that_did_not_run_gets_no_clean_bill(tool):
    def g(x):
        yield x.T.contiguous()

    async def later(x):
        return x.T.contiguous()

    x = torch.ones(2, 3)
    with pytest.raises(HelperError, match=r"`g` gave a generator, and nothing of it has run: give lambda: list\(g\(x"):
        tool(g, x)
    with pytest.raises(HelperError, match="gave a coroutine"):
        tool(later, x)


@pytest.mark.parametrize("strides", [(1, 1), (3, 2), (2, 4)])
def test_a_trillion_elements_on_few_slots_are_counted_at_once(strides):
    t = torch.empty(2**40, device="meta").as_strided((2**20, 2**20), strides)
    slots = Layout.of(t).reached
    assert explain_storage(t).used_nbytes == slots * 4
    assert explain_overlap(t).facts["slots"] == slots
    assert f"{slots:,} slots" in draw_storage(t).sentence


def test_millions_of_indices_are_not_listed():
    with pytest.raises(HelperError, match="give a limit"):
        Layout((2**23, 2**23), (1, 1), 0, torch.float32, 4, 2**30).indices(2**23 - 1)


@pytest.mark.parametrize(("shape", "stride"), [((4, 5, 3), (2, 3, 6)), ((5, 4), (1, 1)), ((3, 4, 2), (4, 6, 10))])
def test_indices_are_those_of_a_walk(shape, stride):
    layout = Layout(shape, stride, 1, torch.float32, 4, 400)
    walked = list(zip(np.ndindex(*shape), layout.slots(), strict=True))
    for slot in range(60):
        expected = [index for index, at in walked if at == slot]
        assert layout.indices(slot) == expected
        assert layout.indices(slot, limit=2) == expected[:2]


def test_bytes_of_several_overlapping_windows_are_exact():
    x = torch.zeros(2**14)
    parts = [x.as_strided((2**13, 2**13), (1, 1)), x.as_strided((2**12, 2), (2, 1), 2**13)]
    assert explain_storage(parts).used_nbytes == 2**14 * 4


def test_no_value_of_a_tensor_is_read_for_a_sentence():
    z = emptied()
    assert in_short(z) == "a tensor of shape (4,)"
    assert in_short([z, 1]) == "[a tensor of shape (4,), 1]"
    assert in_short(10**5000) == "an int"
    assert len(in_short("a" * 400)) == 60
    assert in_short(object()) == "an object"
    for level in ([], np.zeros(2), z):
        with pytest.raises(HelperError, match="a level is one of"):
            drill(level)
    with pytest.raises(HelperError, match=r"a tensor of shape \(4,\) came"):
        drill(1, seed=z)
    assert check(z, 1).status == "wrong"
    assert not same((1, 2, 3, 4), z)


@pytest.mark.parametrize(
    "changes",
    [[["highlight", "abc"]], [["operation", "narrow"], ["start", float("nan")]], [[["a"], 1]], [["operation", []]], 3],
)
def test_garbage_from_the_page_is_one_plain_sentence(changes):
    state = explore_layout(torch.zeros(3, 4)).receive({"changes": changes})
    assert state["sentence"] == "That is no value for this control."


def test_a_long_shape_is_not_echoed_in_full():
    panel = explore_layout(torch.zeros(3, 4))
    state = panel.receive({"changes": [["operation", "view"], ["shape", "9" * 400]]})
    assert len(state["sentence"]) < 200
