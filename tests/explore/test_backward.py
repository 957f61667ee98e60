"""`explore_backward`: each step shows what torch's engine did there, and every message gets an answer."""

from __future__ import annotations

import json
from html import escape
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

from helpers import explore_backward
from helpers.explore.backward import BACK, MOST_DRAWN, ON
from helpers.explore.panel import NO_VALUE, Panel


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor([float(v) for v in values or (1, 2, 3)], requires_grad=True)


def square() -> Panel:
    x = leaf()
    return explore_backward((x * x).sum())


def change(panel: Panel, *changes) -> dict:
    return panel.receive({"changes": [list(one) for one in changes], "token": "1-1"})


def control(state: dict, name: str) -> dict:
    return next(c for c in state["controls"] + state["actions"] if c["name"] == name)


def texts(svg: str) -> list[str]:
    return ["".join(part.itertext()) for part in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_every_step_of_a_square_is_told():
    panel = square()
    sentences = [change(panel, ("step", at))["sentence"] for at in range(4)]
    assert sentences == [
        "Before the first step: the gradient 1 is ready for SumBackward0, the node that made the loss.",
        "SumBackward0 runs: 1. arrived, and it sends [1., 1., 1.] to MulBackward0.",
        "MulBackward0 runs: [1., 1., 1.] arrived, and it sends [1., 2., 3.] to AccumulateGrad of x and [1., 2., 3.] "
        "to AccumulateGrad of x.",
        "AccumulateGrad adds [2., 4., 6.] to x.grad, the sum of all that was sent here.",
    ]


def test_the_table_has_a_row_for_each_gradient_and_the_note_tells_the_saved_tensors():
    state = change(square(), ("step", 2))
    assert state["table"] == [
        ["gradient", "shape", "values"],
        ["arrives", "(3,)", "[1., 1., 1.]"],
        ["leaves to AccumulateGrad of x", "(3,)", "[1., 2., 3.]"],
        ["leaves to AccumulateGrad of x", "(3,)", "[1., 2., 3.]"],
    ]
    assert state["note"] == "Used here: 2 saved tensors (x, x). loss.backward() frees them now."
    assert change(square(), ("step", 1))["note"] == "SumBackward0 saved no tensor."
    assert change(square(), ("step", 0))["table"] == []


def test_two_gradients_on_one_way_are_both_written_on_it():
    assert "[1., 2., …] + [1., 2., …]" in texts(change(square(), ("step", 3))["svg"])


def test_buttons_move_one_step_and_stop_at_both_ends():
    panel = square()
    assert control(change(panel, ("move", BACK)), "step")["value"] == 0
    for wanted in (1, 2, 3, 3, 3):
        state = change(panel, ("move", ON))
        assert control(state, "step")["value"] == wanted
    assert control(state, "step")["shown"] == "3 of 3"
    assert control(change(panel, ("move", BACK), ("move", BACK)), "step")["value"] == 1


@pytest.mark.parametrize(("value", "at"), [(-5, 0), (99, 3), (2.0, 2), ("1", 1), (True, 1)])
def test_a_step_beyond_the_ends_is_the_end(value, at):
    assert control(change(square(), ("step", value)), "step")["value"] == at


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", "two"),
        ("step", None),
        ("step", [1]),
        ("step", {}),
        ("step", float("nan")),
        ("step", float("inf")),
        ("move", "sideways"),
        ("move", None),
        ("move", [ON]),
        ("speed", 3),
        ("", 1),
    ],
)
def test_a_malformed_value_gets_a_sentence_and_the_step_stays(name, value):
    panel = square()
    change(panel, ("step", 2))
    state = change(panel, (name, value))
    assert (state["sentence"], state["mood"]) == (NO_VALUE, "wrong")
    assert control(state, "step")["value"] == 2


def test_every_state_is_plain_data_with_a_picture_that_parses():
    panel = square()
    for at in range(4):
        state = json.loads(json.dumps(change(panel, ("step", at))))
        ElementTree.fromstring(state["svg"])
        assert state["alt"] == state["sentence"]


def test_the_still_form_lists_the_steps_and_moves_nothing():
    panel = square()
    change(panel, ("step", 2))
    html, text = panel.app.still()
    assert text.splitlines()[0] == "1. SumBackward0 runs: 1. arrived, and it sends [1., 1., 1.] to MulBackward0."
    assert len(text.splitlines()) == 3
    assert html.count(" runs: ") == 2
    assert panel.app.at == 2
    assert (html, text) == square().app.still()


def test_a_long_still_form_counts_what_it_leaves_out():
    x = leaf()
    for _ in range(30):
        x = x * 1.0
    lines = explore_backward(x.sum()).app.still()[1].splitlines()
    assert len(lines) == 12
    assert lines[-1] == "… and 21 more steps."


def test_of_a_large_graph_the_part_around_the_running_node_is_drawn():
    x = leaf()
    h = x
    for _ in range(2 * MOST_DRAWN):
        h = (h * 1.5).tanh()
    panel = explore_backward(h.sum())
    last = len(panel.app.flow.steps)
    for at in (0, 1, last // 2, last):
        svg = change(panel, ("step", at))["svg"]
        assert 0 < svg.count("data-node=") <= MOST_DRAWN
    assert "x" in "".join(texts(svg))
    assert state_is_whole(change(square(), ("step", 1)))


def state_is_whole(state: dict) -> bool:
    return state["svg"].count("data-node=") == 3


@pytest.mark.parametrize("name", ["a<b>&c", "quote\"'", "größe", "a b", "</svg><script>"])
def test_names_with_odd_characters_are_escaped(name):
    model = nn.ModuleDict({name: nn.Linear(2, 1)})
    panel = explore_backward(model[name](torch.ones(1, 2)).sum(), model=model)
    for at in range(len(panel.app.flow.steps) + 1):
        ElementTree.fromstring(change(panel, ("step", at))["svg"])
    assert any(f"{name}.weight.grad" in line for line in panel.app.still()[1].splitlines())
    assert f"{escape(name)}.weight.grad" in panel.app.still()[0]


def test_undefined_and_odd_gradients_are_told():
    first, _ = leaf(1, 2, 3, 4).split(2)
    panel = explore_backward(first.sum())
    rows = [row for at in range(4) for row in change(panel, ("step", at))["table"]]
    assert ["arrives for output 1", "", "none: it counts as zeros"] in rows
    w = torch.zeros(1, requires_grad=True)
    panel = explore_backward(w.sqrt().sum())
    assert change(panel, ("step", 3))["sentence"] == "AccumulateGrad adds [inf] to w.grad."
    z = torch.tensor([1 + 2j], requires_grad=True)
    panel = explore_backward((z * z.conj()).real.sum())
    assert "[2+4j] to z.grad" in change(panel, ("step", 99))["sentence"]


def test_a_nested_gradient_has_no_shape_to_show():
    t = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged, requires_grad=True)
    panel = explore_backward((t * 2).values().sum())
    state = change(panel, ("step", 99))
    assert state["sentence"] == "AccumulateGrad adds a nested gradient to t.grad."
    assert state["table"][1] == ["arrives", "nested", "[2., 2., 2., 2., 2.]"]


def test_a_loss_that_is_a_leaf_and_an_empty_one_are_shown():
    loss = torch.tensor(2.0, requires_grad=True)
    panel = explore_backward(loss)
    assert panel.state()["sentence"].endswith("is ready for AccumulateGrad of loss, as the loss is a leaf itself.")
    assert change(panel, ("move", ON))["sentence"] == "AccumulateGrad adds 1. to loss.grad."
    empty = torch.ones(0, requires_grad=True)
    assert change(explore_backward(empty.sum()), ("step", 2))["sentence"] == "AccumulateGrad adds [] to empty.grad."


def test_the_panel_outlives_the_graph():
    x = leaf()
    loss = (x * x).sum()
    panel = explore_backward(loss)
    loss.backward()
    del loss, x
    assert "x.grad" in change(panel, ("step", 3))["sentence"]
    assert panel._repr_mimebundle_()["text/plain"].startswith("1. SumBackward0")
