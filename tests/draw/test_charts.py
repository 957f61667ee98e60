"""Charts are judged by their sentence and by what matplotlib was told to draw."""

import math
import re
from base64 import b64decode

import pytest
import torch

from helpers.draw import charts
from helpers.draw.charts import draw_cost, draw_lines
from helpers.model.finding import HelperError


@pytest.fixture
def axes(monkeypatch):
    """Hand out the axes of the next chart."""
    seen = []
    real = charts._chart

    def keep(paint, sentence):
        return real(lambda ax: (paint(ax), seen.append(ax)), sentence)

    monkeypatch.setattr(charts, "_chart", keep)
    return seen


def test_a_line_is_drawn_point_by_point(axes):
    draw_lines({"loss": [3, 2.5, torch.tensor(1.0)]}, x_label="step", y_label="loss")
    (ax,) = axes
    assert ax.lines[0].get_xydata().tolist() == [[0, 3], [1, 2.5], [2, 1]]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step", "loss")
    assert [text.get_text() for text in ax.texts] == ["loss"]


def test_a_line_that_becomes_nan_ends_in_a_marked_cross(axes):
    chart = draw_lines({"bad": [1, 0.5, 9, math.inf, math.nan]}, y_limits=(0, 2))
    (ax,) = axes
    assert ax.lines[0].get_xydata().tolist() == [[0, 1], [1, 0.5], [2, 9]]
    assert ax.lines[1].get_xydata().tolist() == [[2, 2]], "the cross stays inside the picture"
    assert ax.texts[0].get_text() == "bad: NaN"
    assert chart.sentence == "bad: 5 steps, falls below its start, ends in NaN."


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([1, 2], "x: 2 steps, never falls below its start, ends finite."),
        ([1, math.inf], "x: 2 steps, never falls below its start, ends in infinity."),
        ([math.nan], "x: 1 steps, never falls below its start, ends in NaN."),
        ([], "x: no points."),
    ],
)
def test_the_sentence_says_how_a_line_runs(values, sentence):
    assert draw_lines({"x": values}).sentence == sentence


def test_cost_times_every_size_and_its_sentence_holds_no_timing(axes):
    sizes_seen = []
    chart = draw_cost({"f": lambda t: sizes_seen.append(tuple(t.shape))}, sizes=[2, 3])
    assert set(sizes_seen) == {(2, 2), (3, 3)}
    assert axes[0].lines[0].get_xdata().tolist() == [4, 9]
    assert chart.sentence == "Time against size on logarithmic axes, 2×2 to 3×3: f."


def test_a_chart_is_an_image_with_alternative_text():
    bundle = draw_lines({"a<b": [1, 2]})._repr_mimebundle_()
    alt, data = re.fullmatch(r'<img alt="([^"]*)" src="data:image/png;base64,([^"]*)">', bundle["text/html"]).groups()
    assert alt.startswith("a&lt;b: 2 steps")
    assert b64decode(data).startswith(b"\x89PNG")
    assert bundle["text/plain"].startswith("a<b: 2 steps")


@pytest.mark.parametrize(
    "wrong",
    [
        [1, 2],
        None,
        "loss",
        {"loss": 3},
        {"loss": ["a"]},
        {"loss": torch.ones(2, 2)},
        {},
        {"loss": torch.zeros(1).expand(10**9)},
        {"loss": {}},
    ],
)
def test_wrong_lines_get_a_sentence(wrong):
    with pytest.raises(HelperError, match=r"wanted|must be a list of"):
        draw_lines(wrong)


@pytest.mark.parametrize(
    ("functions", "sizes"),
    [({}, [1]), ({"f": len}, []), ({"f": len}, [0]), ({"f": len}, ["2"]), ({"f": len}, torch.ones(2)), ({"f": 3}, [1])],
)
def test_wrong_costs_get_a_sentence(functions, sizes):
    with pytest.raises(HelperError, match=r"draw_cost takes|at least one name"):
        draw_cost(functions, sizes=sizes)
