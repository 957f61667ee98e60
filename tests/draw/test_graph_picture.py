"""Pictures of autograd graphs: all that torch knows of the graph is in them, and nothing lies on anything else."""

import re
import xml.etree.ElementTree as ET
from collections import Counter
from typing import NamedTuple

import pytest
import torch
from torch.autograd.graph import get_gradient_edge, save_on_cpu
from torch.utils.checkpoint import checkpoint

from helpers import draw_graph
from helpers.model.autograd.graph import Edge, Graph, Node
from helpers.model.autograd.modules import boxes
from helpers.model.finding import HelperError
from tests.draw.models import ResNet, encoder_loss, gpt_loss, mlp_loss, recurrent_loss, resnet_loss

SVG = "{http://www.w3.org/2000/svg}"


class Shown(NamedTuple):
    x: float
    y: float
    width: float
    height: float
    texts: list[str]
    saved: list[str]
    node: int | None


def parsed(drawing):
    """Return the boxes by number, and the edges as (source, target, points of the path)."""
    root = ET.fromstring(drawing.svg)
    found, edges = {}, []
    for g in root.iter(f"{SVG}g"):
        if g.get("data-box"):
            x, y = map(float, re.findall(r"[\d.]+", g.get("transform")))
            outline = g.find(f"{SVG}rect")
            saved = [e.get("data-saved") for e in g.iter(f"{SVG}rect") if e.get("data-saved")]
            node = None if g.get("data-node") is None else int(g.get("data-node"))
            size = float(outline.get("width")), float(outline.get("height"))
            found[int(g.get("data-box"))] = Shown(x, y, *size, _texts(g), saved, node)
    for path in root.iter(f"{SVG}path"):
        if path.get("data-edge"):
            source, target = map(int, path.get("data-edge").split("-"))
            edges.append((source, target, list(_points(path.get("d")))))
    return found, edges


def _texts(element):
    return ["".join(e.itertext()) for e in element.iter(f"{SVG}text")]


def _points(d):
    x = y = 0.0
    for command, given in re.findall(r"([MVC])([-\d. ]+)", d):
        numbers = [float(n) for n in given.split()]
        if command == "M":
            x, y = numbers
        elif command == "V":
            yield from ((x, y + (numbers[0] - y) * i / 20) for i in range(21))
            y = numbers[0]
        else:
            x1, y1, x2, y2, x3, y3 = numbers
            for t in (i / 20 for i in range(21)):
                a, b, c, e = (1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t * t, t**3
                yield a * x + b * x1 + c * x2 + e * x3, a * y + b * y1 + c * y2 + e * y3
            x, y = x3, y3


def small():
    x = torch.arange(4.0, requires_grad=True)
    y = x**2 + 3 * x + 1
    return y.sum()


def split_and_stacked():
    x = torch.rand(3, requires_grad=True)
    a, b, c = x.exp().split(1)
    return torch.stack([a * b, b * c, a, c]).sum()


MODELS = {
    "mlp": mlp_loss,
    "gpt": lambda: gpt_loss(2),
    "resnet": lambda: resnet_loss(ResNet((1, 2))),
    "recurrent": lambda: recurrent_loss(3),
    "recurrent with heads": lambda: recurrent_loss(3, head_each_step=True),
    "encoder": encoder_loss,
    "small": lambda: (torch.nn.Module(), small()),
    "split": lambda: (torch.nn.Module(), split_and_stacked()),
}


@pytest.fixture(scope="module", params=[(name, depth) for name in MODELS for depth in (None, 1)], ids=str)
def case(request):
    name, depth = request.param
    model, loss = MODELS[name]()
    graph = Graph.of(loss, model=model)
    return graph, boxes(graph, depth), draw_graph(loss, model=model, depth=depth)


def test_every_box_is_drawn_once_with_its_title(case):
    graph, wanted, drawing = case
    shown, _ = parsed(drawing)
    assert sorted(shown) == [box.number for box in wanted]
    for box in wanted:
        title, _, kind = shown[box.number].texts[0].partition(": ")
        assert title == box.title
        assert (kind != "") == (box.kind == "module")
        if box.kind != "module":
            assert shown[box.number].node == box.members[0]
            assert graph.nodes[box.members[0]].name == box.title


def test_all_edges_are_drawn(case):
    _, wanted, drawing = case
    drawn = Counter((source, target) for source, target, _ in parsed(drawing)[1])
    assert drawn == Counter((box.number, link.to) for box in wanted for link in box.links)


def test_no_two_boxes_overlap(case):
    shown = list(parsed(case[2])[0].values())
    for i, a in enumerate(shown):
        for b in shown[:i]:
            beside = a.x + a.width <= b.x or b.x + b.width <= a.x
            assert beside or a.y + a.height <= b.y or b.y + b.height <= a.y


def test_no_edge_passes_through_a_box(case):
    shown, edges = parsed(case[2])
    for _, _, points in edges:
        for x, y in points:
            assert not any(b.x < x < b.x + b.width and b.y < y < b.y + b.height for b in shown.values())


def test_edges_lead_from_the_bottom_of_one_box_to_the_top_of_another(case):
    shown, edges = parsed(case[2])
    for source, target, points in edges:
        (x, y), (end_x, end_y) = points[0], points[-1]
        a, b = shown[source], shown[target]
        assert a.x <= x <= a.x + a.width
        assert b.x <= end_x <= b.x + b.width
        assert 0 <= y - (a.y + a.height) <= 6
        assert 0 < b.y - end_y <= 8


def test_text_is_never_dark_on_the_bare_page(case):
    root = ET.fromstring(case[2].svg)
    inside = {id(e) for g in root.iter(f"{SVG}g") if g.get("data-box") for e in g.iter()}
    grey = {id(e) for g in root.iter(f"{SVG}g") if "#767676" in g.get("style", "") for e in g.iter()}
    for text in root.iter(f"{SVG}text"):
        assert id(text) in inside or id(text) in grey
    for g in root.iter(f"{SVG}g"):
        if g.get("data-box"):
            assert g.find(f"{SVG}rect").get("fill") in ("#e8ecf1", "#9ecae9")


def test_all_text_fits_its_box_and_all_boxes_the_picture(case):
    drawing = case[2]
    root = ET.fromstring(drawing.svg)
    for box in parsed(drawing)[0].values():
        assert box.x + box.width + 4 <= float(root.get("width"))
        assert box.y + box.height + 40 <= float(root.get("height"))
        assert max(map(len, box.texts)) * 6.6 <= box.width + 2


def test_a_picture_has_no_ids_and_is_the_same_twice(case):
    graph, _, drawing = case
    assert " id=" not in drawing.svg
    assert f"<title>{drawing.sentence}</title>".replace("'", "&#x27;") in drawing.svg.replace("'", "&#x27;")
    assert draw_graph(graph).svg == draw_graph(graph).svg


# The small example


def test_the_small_example_shows_names_shapes_and_saved_tensors():
    x = torch.arange(4.0, requires_grad=True)
    y = x**2 + 3 * x + 1
    loss = y.sum()
    shown, _ = parsed(draw_graph(loss))
    assert [box.texts[0] for box in shown.values()].count("AddBackward0") == 2
    power = next(box for box in shown.values() if box.texts[0] == "PowBackward0")
    assert power.texts == ["PowBackward0", "(4,)", "exponent=2", "self = x (4,)"]
    assert power.saved == ["alive"]
    assert {"loss ()", "y (4,)", "x (4,)"} <= {text for box in shown.values() for text in box.texts}


def test_the_sentence_tells_nodes_leaves_and_the_longest_path():
    x = torch.arange(4.0, requires_grad=True)
    assert draw_graph((x**2 + 3 * x + 1).sum()).sentence == (
        "An autograd graph of 6 nodes, 1 of them a leaf: x. The gradient enters at SumBackward0 and flows down; "
        "the longest path has 5 nodes. 2 saved tensors alive."
    )


# What torch alone knows


def test_a_graph_that_was_freed_says_so():
    x = torch.rand(3, requires_grad=True)
    loss = (x.exp() * x).sum()
    loss.backward()
    drawing = draw_graph(loss)
    assert {state for box in parsed(drawing)[0].values() for state in box.saved} == {"freed"}
    assert "3 saved tensors freed, of MulBackward0 and ExpBackward0: backward can't run again." in drawing.sentence
    assert "line-through" in drawing.svg


def test_a_saved_tensor_that_was_written_to_says_so():
    x = torch.rand(3, requires_grad=True)
    h = x.exp()
    loss = h.sum()
    h.detach().add_(1)
    drawing = draw_graph(loss)
    assert "! result = h (3,) changed 0→1" in drawing.svg
    assert "Changed since it was saved: result (h) of ExpBackward0, from version 0 to 1" in drawing.sentence


def test_packed_and_recomputed_tensors_are_named_and_left_alone():
    x = torch.rand(3, requires_grad=True)
    with save_on_cpu():
        packed = x.exp().sum()
    assert "result packed" in draw_graph(packed).svg
    runs = []

    def fn(x):
        runs.append(1)
        return x.exp().sin()

    again = checkpoint(fn, x, use_reentrant=False).sum()
    assert "recomputed" in draw_graph(again).svg
    assert len(runs) == 1


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.k, None


def test_a_custom_function_shows_what_it_set_on_ctx():
    x = torch.rand(3, requires_grad=True)
    box = parsed(draw_graph(Scale.apply(x, 3.0)))[0][0]
    assert box.texts[0] == "ScaleBackward"
    assert {"custom Function", "ctx.k = 3.0"} <= set(box.texts)
    assert box.saved == ["alive"]


def test_hooks_views_and_writes_into_views_have_a_second_cue():
    x = torch.rand(3, requires_grad=True)
    base = torch.zeros(3) * x
    base[1:].mul_(2)
    flat = base.view(3, 1)
    flat.retain_grad()
    drawing = draw_graph(flat.sum())
    boxes_by_name = {box.texts[0]: box for box in parsed(drawing)[0].values()}
    assert "writes into a view" in boxes_by_name["CopySlices"].texts
    assert "flat retains its grad" in boxes_by_name["ViewBackward0"].texts
    assert "stroke-dasharray" in drawing.svg


def test_second_order_nodes_have_their_own_cue():
    x = torch.rand(3, requires_grad=True)
    y = (x**3).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    drawing = draw_graph([y, g.sum()])
    shown = parsed(drawing)[0].values()
    marked = [box for box in shown if "made after the first root" in box.texts]
    assert 0 < len(marked) < len(shown)
    assert f"{len(marked)} nodes made after the first root" in drawing.sentence


def test_edges_to_several_outputs_carry_their_number():
    root = ET.fromstring(draw_graph(split_and_stacked()).svg)
    free = [text for g in root.iter(f"{SVG}g") if "#767676" in g.get("style", "") for text in _texts(g)]
    assert {"0", "1", "2"} <= set(free)


def test_a_leaf_shows_all_its_names():
    model, loss = gpt_loss(1)
    tied = next(box for box in parsed(draw_graph(loss, model=model))[0].values() if "wte.weight" in box.texts[1])
    assert "lm_head.weight" in " ".join(tied.texts)


def test_each_root_is_marked_with_its_name():
    x = torch.rand(3, requires_grad=True)
    a = x.exp()
    svg = draw_graph({"first": a.sum(), "second": a}).svg
    assert "gradient enters: first" in svg
    assert "gradient enters: second" in svg


def test_a_leaf_and_a_gradient_edge_can_be_drawn():
    x = torch.rand(3, requires_grad=True)
    assert list(parsed(draw_graph(x))[0]) == [0]
    assert len(parsed(draw_graph(get_gradient_edge(x.exp())))[0]) == 2


# Big graphs


def test_a_deep_transformer_at_depth_2_fits_on_a_screen():
    model, loss = gpt_loss(48)
    drawing = draw_graph(loss, model=model, depth=2)
    root = ET.fromstring(drawing.svg)
    assert len(parsed(drawing)[0]) <= 60
    assert float(root.get("width")) <= 1000
    assert float(root.get("height")) <= 1600
    assert "Grouped by module to depth 2 in 53 boxes. An operator without parameters stands with" in drawing.sentence


def test_an_expanded_module_is_drawn_node_by_node():
    model, loss = gpt_loss(2)
    titles = [b.texts[0] for b in parsed(draw_graph(loss, model=model, depth=2, expand=("h.0.mlp",)))[0].values()]
    assert "GeluBackward0" in titles
    assert "h.1: Block" in titles


def _chain(count):
    """A graph as deep as it is long, as plain data: torch itself crashes when it frees a chain this deep."""
    edges = [(Edge(i + 1, 0),) for i in range(count - 1)] + [()]
    shape = (((), torch.float32),)
    return Graph(
        tuple(Node(i, "AddBackward0", "operator", edges[i], shape, count - i) for i in range(count)), (Edge(0, 0),)
    )


def test_more_than_5000_nodes_are_cut_with_a_count():
    drawing = draw_graph(_chain(100_000))
    shown, edges = parsed(drawing)
    assert len(shown) == 1_001
    assert len(edges) == 1_000
    assert shown[1_000].texts == ["… 99,000 more nodes"]
    assert "Drawn are the first 1,000 of 100,000 boxes" in drawing.sentence


def test_a_chain_of_3000_nodes_is_one_line():
    shown, _ = parsed(draw_graph(_chain(3_000)))
    assert len(shown) == 3_000
    assert len({box.x + box.width / 2 for box in shown.values()}) == 1


# Wrong input


@pytest.mark.parametrize(
    ("made", "options", "message"),
    [
        (lambda: torch.rand(3), {}, "has no graph"),
        (lambda: 3, {}, "3 came"),
        (small, {"depth": 1}, "depth goes by the modules of a model, and no model came"),
        (small, {"expand": ("h",)}, "expand goes by the modules of a model"),
        (small, {"depth": -1, "model": torch.nn.Linear(1, 1)}, "depth is -1"),
        (small, {"depth": 1, "model": torch.nn.Linear(1, 1), "expand": ("h.3",)}, "'h.3', and no operator here"),
        (small, {"model": 3}, "model is 3"),
    ],
)
def test_wrong_input_gets_a_sentence(made, options, message):
    with pytest.raises(HelperError, match=message):
        draw_graph(made(), **options)
