"""Boxes by module: the parameters' names tell where an operator belongs."""

import pytest
import torch
from torch import nn

from helpers.model.autograd.graph import Edge, Graph, Node
from helpers.model.autograd.modules import boxes, longest_path, module_paths
from helpers.model.finding import HelperError
from tests.draw.models import ResNet, encoder_loss, gpt_loss, mlp_loss, recurrent_loss, resnet_loss


def _graph(made):
    model, loss = made
    return Graph.of(loss, model=model)


GRAPHS = {
    "mlp": (mlp_loss, 1),
    "gpt": (lambda: gpt_loss(3), 2),
    "resnet": (lambda: resnet_loss(ResNet((1, 2))), 2),
    "recurrent": (lambda: recurrent_loss(3, head_each_step=True), 1),
    "encoder": (encoder_loss, 1),
}


@pytest.fixture(params=GRAPHS)
def graph_and_depth(request):
    made, depth = GRAPHS[request.param]
    return _graph(made()), depth


def test_every_node_is_in_one_box(graph_and_depth):
    graph, most = graph_and_depth
    for depth in (None, *range(most + 1)):
        members = [member for box in boxes(graph, depth) for member in box.members]
        assert sorted(members) == list(range(len(graph.nodes)))


def test_links_lead_to_later_boxes_and_count_all_edges(graph_and_depth):
    graph, most = graph_and_depth
    for depth in (None, *range(most + 1)):
        found = boxes(graph, depth)
        box_of = {member: box.number for box in found for member in box.members}
        between = [(box_of[n.number], box_of[e.to]) for n in graph.nodes for e in n.edges if e]
        assert all(link.to > box.number for box in found for link in box.links)
        assert sum(link.count for box in found for link in box.links) == sum(a != b for a, b in between)


def test_operators_are_where_their_parameters_are(graph_and_depth):
    graph, _ = graph_and_depth
    paths = module_paths(graph)
    for leaf in graph.leaves:
        used = {paths[user] for user in graph.consumers[leaf.number]}
        names = {name.rpartition(".")[0] for name in leaf.names}
        assert used <= names or len(used) > 1


def test_depth_none_is_one_box_for_each_node_in_the_order_of_backward():
    graph = _graph(mlp_loss())
    assert [box.members[0] for box in boxes(graph, None)] == list(graph.engine_order)
    assert boxes(graph, None)[0].title == graph.nodes[graph.engine_order[0]].name


def test_depth_0_is_one_box():
    (box,) = boxes(_graph(mlp_loss()), 0)
    assert (box.title, box.links) == ("model", ())


def test_depth_2_of_a_transformer_is_a_box_for_each_block():
    found = boxes(_graph(gpt_loss(3)), 2)
    assert [box.title for box in found] == ["lm_head", "ln_f", "h.2", "h.1", "h.0", "wpe", "wte", "AccumulateGrad"]


def test_a_tied_weight_is_a_box_of_its_own_that_both_users_reach():
    found = boxes(_graph(gpt_loss(1)), 1)
    tied = found[-1]
    assert tied.kind == "leaf"
    assert {box.title for box in found for link in box.links if link.to == tied.number} == {"wte", "lm_head"}


def test_a_module_that_is_called_again_gets_a_box_for_each_call():
    titles = [box.title for box in boxes(_graph(recurrent_loss(3, head_each_step=True)), 1) if box.kind == "module"]
    assert {"cell · call 1", "cell · call 2", "cell · call 3", "head · call 3"} <= set(titles)
    assert len(set(titles)) == len(titles)


def test_the_sum_of_a_residual_connection_stands_with_the_layer_before_it():
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    x = torch.rand(1, 2)
    y = model["a"](x)
    graph = Graph.of((y + model["b"](y)).sum(), model=model)
    paths = module_paths(graph)
    assert paths[graph.find("AddBackward0").number] == "b"
    assert paths[graph.find("SumBackward0").number] == "b"


def test_operators_before_all_parameters_are_with_the_first_module():
    x = torch.rand(1, 2, requires_grad=True)
    model = nn.Sequential(nn.Linear(2, 2))
    graph = Graph.of(model(x.exp()).sum(), model=model)
    assert module_paths(graph)[graph.find("ExpBackward0").number] == "0"


def test_without_parameters_all_is_the_model():
    x = torch.rand(2, requires_grad=True)
    assert [box.title for box in boxes(Graph.of((x * x).sum()), 3)] == ["model"]


def test_an_expanded_module_is_shown_node_by_node():
    graph = _graph(gpt_loss(2))
    found = boxes(graph, 2, ("h.0.mlp",))
    paths = module_paths(graph)
    opened = {n for n, path in enumerate(paths) if path == "h.0.mlp" or path.startswith("h.0.mlp.")}
    assert {box.members[0] for box in found if box.kind not in ("module", "leaf")} == {
        n for n in opened if graph.nodes[n].kind != "leaf"
    }
    assert "h.0" in [box.title for box in found]


def test_edges_to_a_node_with_several_outputs_say_which():
    a, b = torch.rand(2, 3, requires_grad=True).unbind()
    found = boxes(Graph.of(a * b), None)
    assert sorted((link.output, link.count) for link in found[0].links) == [(0, 1), (1, 1)]


def test_edges_side_by_side_are_counted():
    x = torch.rand(3, requires_grad=True)
    assert boxes(Graph.of(x * x), None)[0].links[0].count == 2


def test_the_longest_path_is_counted_in_nodes():
    x = torch.arange(4.0, requires_grad=True)
    assert longest_path(Graph.of((x**2 + 3 * x + 1).sum())) == 5


def test_a_deep_chain_needs_no_recursion():
    count = 30_000
    edges = [(Edge(i + 1, 0),) for i in range(count - 1)] + [()]
    nodes = tuple(
        Node(i, "AddBackward0", "operator", edges[i], (((), torch.float32),), count - i) for i in range(count)
    )
    graph = Graph(nodes, (Edge(0, 0),))
    assert longest_path(graph) == count
    assert len(boxes(graph, None)) == count
    assert len(boxes(graph, 1)) == 1


@pytest.mark.parametrize(
    ("depth", "expand", "message"),
    [
        (-1, (), "depth is -1, and a whole number from 0"),
        (True, (), "depth is True"),
        ("2", (), "depth is '2'"),
        (1.0, (), "depth is 1.0"),
        (1, "0", "expand is '0', and a tuple"),
        (1, (3,), r"expand is \(3,\)"),
        (1, ("h.7",), r"'h.7', and no operator here belongs with it; known are 0, 2"),
    ],
)
def test_wrong_input_gets_a_sentence(depth, expand, message):
    with pytest.raises(HelperError, match=message):
        boxes(_graph(mlp_loss()), depth, expand)
