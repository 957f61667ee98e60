"""The map shows what torch says of the live call."""

import xml.etree.ElementTree as ET

import pytest
import torch

from helpers.draw.map import draw_map
from helpers.model.anatomy import Anatomy
from helpers.model.finding import HelperError


def _texts(drawing):
    return ["".join(e.itertext()) for e in ET.fromstring(drawing.svg).iter("{http://www.w3.org/2000/svg}text")]


def _loss(x, w):
    return (x * w).sum()


X, W = torch.arange(12.0).view(3, 4), torch.ones(4, requires_grad=True)


def test_the_graph_is_the_one_that_torch_recorded():
    result = _loss(X, W)
    first = result.grad_fn
    second = first.next_functions[0][0]
    assert Anatomy.of(_loss, X, W).nodes == (first.name(), second.name(), "AccumulateGrad")


def test_the_operators_are_those_that_ran():
    assert Anatomy.of(_loss, X, W).operators == ("aten::mul", "aten::sum")
    assert Anatomy.of(lambda x: x, X).operators == ()


def test_every_node_is_listed_once():
    assert Anatomy.of(lambda w: w * w + w, W).nodes.count("AccumulateGrad") == 1


def test_the_record_and_the_values_are_in_the_picture():
    texts = _texts(draw_map(_loss, X.T, torch.ones(3)))
    assert any(line.split()[:1] == ["stride"] and "(1, 4)" in line for line in texts)
    assert "no graph was recorded" in texts
    assert {"0.", "11."} <= set(texts)


def test_a_big_storage_and_a_long_graph_are_cut_with_a_count():
    def long(x):
        for _ in range(9):
            x = x * 2
        return x

    texts = _texts(draw_map(long, torch.ones(100, requires_grad=True)))
    assert "and 88 more slots" in texts
    assert texts.count("… 7 more") == 1
    assert texts.count("… 6 more") == 1


def test_every_text_lies_inside_the_picture():
    root = ET.fromstring(draw_map(_loss, X, W).svg)
    width, height = float(root.get("width")), float(root.get("height"))
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    assert width > 700
    assert height > 300


def test_the_sentence_tells_the_four_parts():
    sentence = draw_map(_loss, X, W).sentence
    assert "shape (3, 4)" in sentence
    assert "48 bytes" in sentence
    assert "MulBackward0" in sentence
    assert "aten::mul" in sentence


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((3, X), "of type int came"),
        ((_loss,), "at least one tensor"),
        ((lambda x: 2, X), "returned something of type int"),
    ],
)
def test_wrong_input_gets_a_sentence(args, message):
    with pytest.raises(HelperError, match=message):
        draw_map(*args)
