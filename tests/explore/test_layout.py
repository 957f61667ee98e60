"""`explore_layout`: what it shows must be what torch does."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.explore.layout import AGAIN, CONTINUE, LayoutExplorer, explore_layout
from helpers.explore.operations import NOTHING, OPERATIONS
from helpers.explore.panel import Panel
from helpers.model.finding import HelperError


def change(panel: Panel, *changes) -> dict:
    return panel.receive({"changes": [list(one) for one in changes], "token": "1-1"})


def control(state: dict, name: str) -> dict:
    return next(c for c in state["controls"] + state["actions"] if c["name"] == name)


def evaluate(panel: Panel, **names):
    return eval(panel.app.code, {"torch": torch, **names})


def assert_code_gives_what_is_shown(panel: Panel, **names):
    expected, shown = evaluate(panel, **names), panel.app.result
    assert (expected.shape, expected.stride(), expected.dtype) == (shown.shape, shown.stride(), shown.dtype)
    assert expected.storage_offset() == shown.storage_offset()
    assert torch.equal(torch.nan_to_num(expected.detach()), torch.nan_to_num(shown))


def grid() -> torch.Tensor:
    return torch.arange(12).view(3, 4)


def test_it_begins_with_the_tensor_itself():
    x = grid()
    panel = explore_layout(x)
    state = panel.state()
    assert state["code"] == "x"
    assert state["sentence"] == "This is x itself. Shape (3, 4), stride (4, 1), storage_offset 0, contiguous."
    assert "svg" in state["svg"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("operation", "view"), ("shape", "-1, 6")], "x.view(-1, 6)"),
        ([("operation", "view"), ("shape", "[12]")], "x.view(12)"),
        ([("operation", "transpose")], "x.transpose(0, 1)"),
        ([("operation", "permute"), ("permutation", "(1, 0)")], "x.permute(1, 0)"),
        ([("operation", "expand")], "x.expand(2, 3, 4)"),
        ([("operation", "narrow"), ("dim", 1), ("start", 0), ("length", 2)], "x.narrow(1, 0, 2)"),
        ([("operation", "slice"), ("start", 1), ("stop", 4), ("step", 2)], "x[:, 1:4:2]"),
        ([("operation", "unfold")], "x.unfold(1, 2, 1)"),
        ([("operation", "diagonal"), ("offset", 1)], "x.diagonal(1, 0, 1)"),
        ([("operation", "flip"), ("dimensions", "0, 1")], "x.flip(0, 1)"),
        ([("operation", "as_strided"), ("size", "2 2"), ("stride", "0, 5")], "x.as_strided((2, 2), (0, 5), 0)"),
        ([("operation", "contiguous")], "x.contiguous()"),
    ],
)
def test_each_operation_shows_its_code_and_torch_agrees(changes, code):
    x = grid()
    panel = explore_layout(x)
    state = change(panel, *changes)
    assert state["code"] == code
    assert state["mood"] == ""
    assert_code_gives_what_is_shown(panel, x=x)


def test_the_bounds_of_a_slider_follow_the_ones_before_it():
    panel = Panel(LayoutExplorer(grid()))
    state = change(panel, ("operation", "narrow"), ("dim", 1), ("start", 3), ("length", 4))
    assert (control(state, "start")["high"], control(state, "length")["high"]) == (3, 1)
    assert control(state, "length")["value"] == 1
    state = change(panel, ("operation", "as_strided"), ("size", "2"), ("stride", "5"), ("storage_offset", 99))
    assert (control(state, "storage_offset")["high"], control(state, "storage_offset")["value"]) == (6, 6)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ([("operation", "permute"), ("permutation", "0, 0")], "permutation (0, 0) repeats dimension 0"),
        ([("operation", "permute"), ("permutation", "1, -1")], "permutation (1, -1) repeats dimension 1"),
        (
            [("operation", "permute"), ("permutation", "2, 0")],
            "permutation (2, 0) names dimension 2; there are only 0 to 1",
        ),
        (
            [("operation", "permute"), ("permutation", "0")],
            "permutation (0,) has length 1; the tensor has 2 dimensions",
        ),
        (
            [("operation", "view"), ("shape", "3, x")],
            "a shape is whole numbers with commas between them, such as 3, 4; '3, x' came",
        ),
        (
            [("operation", "as_strided"), ("size", "4, 4")],
            "size (4, 4) with stride (4, 1) spans 16 slots; the storage has 12",
        ),
        (
            [("operation", "as_strided"), ("stride", "-1, 1")],
            "size (3, 4) and stride (-1, 1) may hold no negative number",
        ),
        ([("operation", "as_strided"), ("stride", "1")], "size (3, 4) has length 2 and stride (1,) has length 1"),
        (
            [("operation", "as_strided"), ("size", f"{10**14}, {10**14}"), ("stride", "0, 0")],
            f"size ({10**14}, {10**14}) is more elements than a tensor can count",
        ),
    ],
)
def test_what_is_not_legal_is_explained_and_the_picture_stays(changes, sentence):
    panel = Panel(LayoutExplorer(grid()))
    before = change(panel, changes[0])
    state = change(panel, *changes[1:])
    assert state["sentence"] == sentence
    assert (state["svg"], state["code"]) == (before["svg"], before["code"])
    assert state["note"] == "The picture still shows the last legal result."


def test_a_shape_that_view_refuses_gets_the_reason():
    panel = Panel(LayoutExplorer(grid().T))
    state = change(panel, ("operation", "view"), ("shape", "12"))
    assert "cannot merge" in state["sentence"]
    assert state["mood"] == "wrong"
    assert change(panel, ("chain", CONTINUE))["sentence"] == state["sentence"]


def test_a_chain_grows_the_expression_and_start_again_ends_it():
    x = grid()
    panel = explore_layout(x)
    change(panel, ("operation", "transpose"), ("chain", CONTINUE))
    state = change(panel, ("operation", "narrow"), ("start", 1), ("length", 2))
    assert state["code"] == "x.transpose(0, 1).narrow(0, 1, 2)"
    assert_code_gives_what_is_shown(panel, x=x)
    assert change(panel, ("chain", AGAIN))["code"] == "x"


def test_to_continue_needs_an_operation():
    state = change(Panel(LayoutExplorer(grid())), ("chain", CONTINUE))
    assert state["sentence"] == "Choose an operation first: its result is where you continue from."


def test_the_sentence_says_whether_the_storage_is_shared():
    panel = Panel(LayoutExplorer(grid().T, "y"))
    assert "Shares the storage of y: nothing is copied." in change(panel, ("operation", "narrow"))["sentence"]
    state = change(panel, ("operation", "contiguous"))
    assert state["sentence"].startswith("A copy with a storage of its own: the slots are not in that order. Shape")
    state = change(panel, ("chain", CONTINUE), ("operation", "view"))
    assert "Shares the storage of the copy that contiguous made, not that of y." in state["sentence"]
    state = change(panel, ("chain", AGAIN), ("operation", "flip"))
    assert "A copy with a storage of its own: no stride can be negative." in state["sentence"]


@pytest.mark.parametrize("ndim", range(5))
def test_only_operations_that_make_sense_are_offered(ndim):
    offered = LayoutExplorer(torch.zeros([2] * ndim)).offered()
    assert ("transpose" in offered, "diagonal" in offered) == (ndim >= 2, ndim >= 2)
    assert ("narrow" in offered, "flip" in offered) == (ndim >= 1, ndim >= 1)
    assert {NOTHING, "view", "expand", "as_strided", "contiguous"} <= set(offered)


def test_the_highlight_moves_over_the_rows_of_the_result_and_stays_within_them():
    panel = Panel(LayoutExplorer(grid()))
    plain = panel.state()
    lit = change(panel, ("highlight", 2))
    assert lit["svg"] != plain["svg"]
    assert control(lit, "highlight")["shown"] == "2"
    state = change(panel, ("highlight", 99))
    assert control(state, "highlight")["value"] == 2
    assert control(plain, "highlight")["shown"] == "none"


def test_a_copy_of_a_huge_tensor_is_described_and_not_made():
    big = torch.zeros(1, dtype=torch.int8).expand(10_000, 10_000)
    panel = explore_layout(big)
    state = change(panel, ("operation", "flip"))
    assert panel.app.result.is_meta
    assert "It is not made here, as it would take 100,000,000 bytes." in state["sentence"]
    change(panel, ("chain", CONTINUE), ("operation", "transpose"))
    assert panel.app.code == "big.flip(0).transpose(0, 1)"
    assert panel.app.result.stride() == (1, 10_000)


STRANGE = {
    "0-d": lambda: torch.tensor(3),
    "empty": lambda: torch.zeros(2, 0, 3),
    "expanded": lambda: torch.arange(3).expand(2, 3),
    "complex": lambda: torch.randn(2, 3, dtype=torch.cfloat),
    "conjugated": lambda: torch.randn(2, 3, dtype=torch.cfloat).conj(),
    "requires_grad": lambda: torch.randn(3, 4, requires_grad=True),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2, 2)),
    "channels_last": lambda: torch.randn(2, 3, 2, 2).to(memory_format=torch.channels_last),
    "bool": lambda: torch.tensor([[True, False]]),
    "bfloat16": lambda: torch.ones(2, 2, dtype=torch.bfloat16),
    "overlapping": lambda: torch.arange(6).unfold(0, 3, 1),
    "no storage": lambda: torch.empty(0),
    "nan": lambda: torch.tensor([float("nan"), float("inf")]),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_every_operation_works_on_every_kind_of_tensor_and_leaves_it_alone(kind):
    t = STRANGE[kind]()
    before, version = t.detach().clone(), t._version
    panel = explore_layout(t)
    for operation in panel.app.offered():
        state = change(panel, ("operation", operation))
        assert state["mood"] == "", (operation, state["sentence"])
        assert_code_gives_what_is_shown(panel, t=t)
    assert torch.equal(torch.nan_to_num(t.detach()), torch.nan_to_num(before))
    assert t._version == version


def test_an_inference_tensor_can_be_explored():
    with torch.inference_mode():
        t = torch.arange(4).view(2, 2)
    assert change(explore_layout(t), ("operation", "transpose"))["mood"] == ""


@pytest.mark.parametrize("wrong", [[1, 2], None, "x", torch.eye(2).to_sparse(), torch.nn.Linear(2, 2)])
def test_what_has_no_strides_gets_one_sentence(wrong):
    with pytest.raises(HelperError):
        explore_layout(wrong)


def test_the_still_form_is_the_same_twice_and_has_the_picture():
    first, second = explore_layout(grid()), explore_layout(grid())
    assert first.app.still() == second.app.still()
    html, text = first.app.still()
    assert html.startswith("<img alt=")
    assert "try view, transpose" in html
    assert text


@st.composite
def tensors(draw) -> torch.Tensor:
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    dtype = draw(st.sampled_from([torch.int64, torch.float32, torch.cfloat]))
    t = torch.arange(torch.Size(shape).numel()).to(dtype).view(shape)
    if t.ndim > 1 and draw(st.booleans()):
        t = t.transpose(0, -1)
    if t.ndim and t.shape[-1] > 1 and draw(st.booleans()):
        t = t[..., 1:]
    if draw(st.booleans()):
        t = t.expand(2, *t.shape) if t.ndim < 4 else t
    return t


TEXTS = st.one_of(
    st.lists(st.integers(-1, 12), max_size=4).map(lambda numbers: ", ".join(map(str, numbers))),
    st.sampled_from(["", "()", "(3,", "x", "3 4", "1e3", "٣", "99999999999999999999", "-0", "\x00", "2,,2"]),
)


@settings(max_examples=60, deadline=None)
@given(t=tensors(), data=st.data())
def test_random_play_never_fails_and_the_code_always_gives_what_is_shown(t, data):
    panel = Panel(LayoutExplorer(t, "t"))
    state = panel.state()
    for _ in range(8):
        one = data.draw(st.sampled_from(state["controls"] + state["actions"]))
        if one["kind"] == "select":
            value = data.draw(st.sampled_from(one["options"]))
        elif one["kind"] == "slider":
            value = data.draw(st.integers(one["low"], one["high"]))
            assert one["low"] <= one["value"] <= one["high"]
        elif one["kind"] == "text":
            value = data.draw(TEXTS)
        else:
            value = data.draw(st.sampled_from(one["options"]))
        before = state
        state = change(panel, (one["name"], value))
        assert not state["sentence"].startswith("This panel can't"), state["sentence"]
        if state["mood"] == "wrong" and one["kind"] == "text":
            assert state["svg"] == before["svg"]
        if one["kind"] == "slider" and before["mood"] == "":
            assert state["mood"] == "", "a slider reaches only what is legal"
        assert_code_gives_what_is_shown(panel, t=t)
        shares = t.untyped_storage().data_ptr() == panel.app.result.untyped_storage().data_ptr()
        if t.numel() and panel.app.result.numel() and state["mood"] == "":
            own = state["sentence"].startswith(("A copy", "Shares the storage of the copy"))
            assert shares != own


def test_every_operation_of_the_explorer_is_one_that_tensors_have():
    for name in set(OPERATIONS) - {NOTHING, "slice"}:
        assert callable(getattr(torch.Tensor, name))


def test_a_storage_that_was_made_too_small_is_told_and_never_read():
    t = torch.zeros(6)
    panel = explore_layout(t)
    t.untyped_storage().resize_(8)
    for operation in ("flip", "narrow", "slice", "contiguous"):
        state = change(panel, ("operation", operation))
        assert state["sentence"].startswith("The storage of this tensor was resized to 8 bytes and does not hold")
        assert state["mood"] == "wrong"
    with pytest.raises(HelperError, match="does not hold its elements: draw_layout shows what is left"):
        explore_layout(t)


def test_what_torch_has_no_kernel_for_leaves_the_last_result():
    panel = explore_layout(torch.ones(2, 3, dtype=torch.uint16))
    state = change(panel, ("operation", "flip"))
    if "torch refuses this: NotImplementedError" in state["sentence"]:  # a later release may flip it
        assert state["note"] == "The picture still shows the last legal result."
    assert state["svg"]
    assert "This panel can't" not in state["sentence"]
    assert change(panel, ("operation", "transpose"))["code"].endswith(".transpose(0, 1)")


def test_one_number_has_no_row_to_highlight():
    names = [c["name"] for c in explore_layout(torch.tensor(5.0)).state()["actions"]]
    assert names == ["chain"]
    assert "highlight" in [c["name"] for c in explore_layout(torch.ones(1)).state()["actions"]]


def test_an_offset_stays_within_the_storage_also_beside_a_size_that_is_not_legal():
    panel = explore_layout(torch.arange(12))
    change(panel, ("operation", "as_strided"))
    legal = control(change(panel, ("size", "2"), ("stride", "3")), "storage_offset")
    assert (legal["low"], legal["high"]) == (0, 8)
    illegal = control(change(panel, ("size", "2, 2")), "storage_offset")
    assert (illegal["low"], illegal["high"]) == (0, 11)
