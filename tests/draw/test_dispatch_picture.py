"""The pictures of a trace say what the trace says: a tower for one call, columns for several."""

import pytest
import torch

from helpers.draw.dispatch import WIDEST, draw_dispatch
from helpers.draw.svg import FOCUS
from helpers.draw.tower import draw_tower
from helpers.model.dispatch.tower import Tower
from helpers.model.dispatch.trace import trace_dispatch
from helpers.model.finding import HelperError

X = torch.ones(2, 3, requires_grad=True)
W = torch.ones(4, 3)
ADD = trace_dispatch(torch.add, X, X)
LINEAR = trace_dispatch(torch.nn.functional.linear, X, W)
HEADS = torch.ones(1, 2, 4, 8)
LONG = trace_dispatch(torch.nn.functional.scaled_dot_product_attention, HEADS, HEADS, HEADS)


def test_a_floor_is_filled_only_where_a_kernel_ran(look):
    floors = {r.data["key"]: r for r in look(draw_dispatch(ADD)).rects}
    assert [key for key, r in floors.items() if r.role == "focus"] == ["AutogradCPU", "CPU"]
    assert {r.role for key, r in floors.items() if key not in ("AutogradCPU", "CPU")} == {"storage"}
    assert 'stroke-dasharray="4 3"' in draw_dispatch(ADD).svg
    assert floors["AutogradCPU"].data["step"] == "1"
    assert floors["CPU"].data["step"] == "2"


def test_the_highest_key_stands_on_top_and_each_floor_holds_its_name(look):
    floors = sorted(look(draw_dispatch(ADD)).rects, key=lambda r: r.box.top)
    assert [r.words for r in floors] == [[rung.key] for rung in ADD.roots[0].rungs]


def test_a_dot_stands_where_an_argument_brings_a_key():
    svg = draw_dispatch(ADD).svg
    assert svg.count('data-source="self"') == svg.count('data-source="other"') == 4
    assert svg.count('data-source="thread"') == 2


def test_the_step_that_runs_is_the_only_orange_floor(look):
    tower = Tower.of(ADD.roots[0])
    for at in (1, 2):
        focused = [r.data["step"] for r in look(draw_tower(tower, at=at)).rects if r.role == "focus"]
        assert focused == [str(at)]


def test_a_tower_with_many_arguments_says_how_many_it_leaves_out(look):
    drawing = draw_dispatch(trace_dispatch(torch.cat, [X] * 9), call=0)
    assert "+4" in [t.content for t in look(drawing).texts]


@pytest.mark.parametrize("trace", [ADD, LINEAR, LONG], ids=["add", "linear", "attention"])
@pytest.mark.parametrize("call", [None, 0])
def test_no_text_covers_another_and_all_lie_in_the_picture(look, trace, call):
    picture = look(draw_dispatch(trace, call=call))
    assert picture.overlaps(picture.texts) == []
    assert all(t.box.left >= 0 and t.box.right <= picture.size[0] for t in picture.texts)
    assert all(t.box.bottom <= picture.size[1] for t in picture.texts)
    assert picture.size[0] <= WIDEST + 4


def test_a_box_stands_over_the_calls_that_its_kernels_made(look):
    boxes = {r.data["operator"]: r.box for r in look(draw_dispatch(LINEAR)).rects}
    linear, t, strided = boxes["aten::linear"], boxes["aten::t"], boxes["aten::as_strided"]
    assert linear.left < t.left < strided.left
    assert strided.right <= t.right + 2 <= linear.right + 2
    assert linear.top < t.top < strided.top


def test_every_box_is_as_wide_as_its_name(look):
    for rect in look(draw_dispatch(LINEAR)).rects:
        assert rect.words == [rect.data["operator"].removeprefix("aten::")]
        assert rect.box.holds(rect.texts[0].box)


def test_a_number_stands_at_every_key_whose_kernel_ran(look):
    picture = look(draw_dispatch(LINEAR))
    rows = {t.content: t.box.bottom for t in picture.texts if t.content in ("AutogradCPU", "ADInplaceOrView", "CPU")}
    marks = [(t.content, round(t.box.bottom)) for t in picture.texts if t.content in "123"]
    wanted = [
        (str(number), round(rows[step.key])) for call in LINEAR.calls for number, step in enumerate(call.steps, 1)
    ]
    assert sorted(marks) == sorted(wanted)
    assert FOCUS in draw_dispatch(LINEAR).svg


def test_a_call_that_raised_is_marked():
    trace = trace_dispatch(lambda: torch.ones(2, 3) @ torch.ones(2, 3))
    assert [t.rpartition(">")[2] for t in draw_dispatch(trace).svg.split("</text>")].count("!") == 1


def test_a_key_without_a_kernel_is_empty_and_marked(look):
    trace = trace_dispatch(torch.ones(2).to_sparse().cumsum, 0)
    picture = look(draw_dispatch(trace, call=len(trace.calls) - 1))
    floors = {r.data["key"]: r for r in picture.rects}
    assert floors["SparseCPU"].role == "storage"
    assert 'stroke-dasharray="7 4"' in draw_dispatch(trace, call=len(trace.calls) - 1).svg
    assert floors["AutogradCPU"].role == "focus"
    assert "!" in [t.content for t in picture.texts]


def test_depth_leaves_out_what_lies_deeper(look):
    drawing = draw_dispatch(LONG, depth=2)
    names = [r.words[0] for r in look(drawing).rects]
    assert names[0] == "scaled_dot_product_attention"
    assert len(names) == 1 + len(LONG.roots[0].calls)
    assert drawing.sentence.endswith("What lies deeper is left out.")
    assert "left out" not in draw_dispatch(LINEAR, depth=9).sentence


def test_a_long_trace_is_cut_and_says_how_much_is_missing(look):
    drawing = draw_dispatch(trace_dispatch(lambda: [X.sin() for _ in range(90)]))
    shown = len(look(drawing).rects)
    assert shown < 90
    assert f"and {90 - shown} more calls" in drawing.sentence
    assert f"and {90 - shown} more calls" in [t.content for t in look(drawing).texts]


def test_the_same_trace_gives_the_same_bytes():
    again = trace_dispatch(torch.nn.functional.linear, X, W)
    assert draw_dispatch(again).svg == draw_dispatch(LINEAR).svg


@pytest.mark.parametrize("given", [torch.add, X, None, "aten::add"])
def test_what_is_no_trace_is_refused(given):
    with pytest.raises(HelperError, match=r"draw_dispatch takes what trace_dispatch returns, and .* came"):
        draw_dispatch(given)


@pytest.mark.parametrize("call", [-1, 1, 99])
def test_a_call_that_a_trace_does_not_have_is_refused(call):
    with pytest.raises(HelperError, match="is out of range for a trace of 1 call"):
        draw_dispatch(ADD, call=call)


@pytest.mark.parametrize("call", [2.0, "add", True])
def test_a_call_that_is_no_whole_number_is_refused(call):
    with pytest.raises(HelperError, match="it must be a whole number, the place of a call in the trace"):
        draw_dispatch(ADD, call=call)


@pytest.mark.parametrize("depth", [0, -1, 1.5, "1", True])
def test_a_depth_below_one_is_refused(depth):
    with pytest.raises(HelperError, match="it must be a whole number of at least 1"):
        draw_dispatch(LINEAR, depth=depth)


def test_a_trace_without_a_call_is_told_in_a_sentence():
    with pytest.raises(HelperError, match="the lambda called no operator: there is nothing to draw"):
        draw_dispatch(trace_dispatch(lambda: 1))
