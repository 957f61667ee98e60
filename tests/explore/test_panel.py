"""The panel without a browser: its message handler is called as the front end would call it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from helpers.draw.drawing import Drawing
from helpers.explore.panel import Buttons, Panel, Select, Slider, Text, View, in_words
from helpers.model.finding import HelperError


class Counter:
    """A small app: a number to add to, with three ways to go wrong."""

    title = "Counter"

    def __init__(self):
        self.value = 0
        self.broken = False

    def view(self) -> View:
        if self.broken:
            raise RuntimeError("the view is broken\nsecond line")
        picture = Drawing(f"<svg role='img'><title>{self.value}</title></svg>", f"the number {self.value}")
        return View((Slider("n", "number", 0, 9, self.value),), f"The number is {self.value}.", picture, code="n")

    def change(self, name: str, value) -> None:
        if name == "break":
            self.broken = True
        elif name == "refuse":
            raise HelperError("nine is the highest number")
        elif name == "bug":
            raise KeyError("lost")
        else:
            self.value = value

    def still(self) -> tuple[str, str]:
        return "<p>count</p>", "count"


def press(panel: Panel, *changes) -> dict:
    return panel.receive({"changes": [list(change) for change in changes], "token": "1-1"})


def test_a_message_carries_out_its_changes_in_order_and_names_its_token():
    state = press(Panel(Counter()), ("n", 3), ("n", 5))
    assert state["sentence"] == "The number is 5."
    assert state["token"] == "1-1"
    assert state["controls"][0]["value"] == 5


def test_the_state_is_plain_data_that_json_can_hold():
    class All(Counter):
        def view(self):
            controls = (
                Select("s", "s", ("a", "b"), "a"),
                Text("t", "t", "", enter=("go", "check")),
                Buttons("b", "b", ("x",), ("right",), locked=True),
            )
            return View(controls, "s", table=(("head",), ("cell",)))

    state = Panel(All()).state()
    assert json.loads(json.dumps(state))["controls"][1]["enter"] == ["go", "check"]
    assert state["svg"] == ""


def test_a_refusal_becomes_the_sentence_and_the_picture_stays():
    panel = Panel(Counter())
    press(panel, ("n", 4))
    state = press(panel, ("refuse", 0))
    assert state["sentence"] == "nine is the highest number"
    assert state["mood"] == "wrong"
    assert "<title>4</title>" in state["svg"]


def test_a_fault_in_a_callback_reaches_the_reader_as_a_sentence():
    state = press(Panel(Counter()), ("bug", 0))
    assert state["sentence"] == "This panel can't do that: KeyError: 'lost'."
    assert state["token"] == "1-1"


def test_a_view_that_fails_leaves_the_last_picture_and_says_why():
    panel = Panel(Counter())
    press(panel, ("n", 2))
    state = press(panel, ("break", 0))
    assert state["sentence"] == "This panel can't show that: RuntimeError: the view is broken."
    assert "<title>2</title>" in state["svg"]
    assert state["code"] == "n"


@pytest.mark.parametrize("message", [None, 3, {}, {"changes": 5}, {"changes": [["n"]]}, {"changes": [[1, 2, 3]]}])
def test_a_message_of_another_form_gets_a_sentence(message):
    assert Panel(Counter()).receive(message)["mood"] == "wrong"


def test_the_output_of_a_cell_has_a_live_view_and_a_still_form():
    panel = Panel(Counter())
    bundle = panel._repr_mimebundle_()
    assert bundle["text/html"] == "<p>count</p>"
    assert bundle["text/plain"] == "count"
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == panel._widget.model_id
    assert panel._repr_mimebundle_() == bundle, "showing a panel twice makes no second widget"


def test_a_message_to_the_widget_changes_its_state_once():
    panel = Panel(Counter())
    panel._repr_mimebundle_()
    seen = []
    panel._widget.observe(lambda change: seen.append(change["new"]["sentence"]), "state")
    panel._widget._handle_custom_msg({"changes": [["n", 1], ["n", 7]], "token": "1-2"}, [])
    assert seen == ["The number is 7."]


def test_importing_the_explorer_does_not_import_anywidget():
    code = "import sys, helpers.explore.panel; sys.exit('anywidget' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_error_is_quoted_in_the_length_of_a_sentence():
    assert in_words(ValueError("short.")) == "ValueError: short"
    said = in_words(ValueError("word " * 100))
    assert said.endswith("word …")
    assert len(said) < 220
