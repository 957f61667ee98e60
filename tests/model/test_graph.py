"""`Graph` says what torch's own nodes say, keeps nothing alive, and disturbs nothing."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

from helpers.model.autograd.graph import Graph
from helpers.model.finding import HelperError


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes]


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor([float(v) for v in values or (2,)], requires_grad=True)


def test_nodes_and_edges_are_those_of_next_functions():
    x = leaf()
    y = x**2 + 3 * x + 1
    graph = Graph.of(y)
    assert names(graph) == ["AddBackward0", "AddBackward0", "PowBackward0", "MulBackward0", "AccumulateGrad"]
    live = {0: y.grad_fn}
    for node in graph.nodes:
        for edge, (to, output) in zip(node.edges, live[node.number].next_functions, strict=True):
            assert (edge is None) == (to is None)
            if edge is not None:
                assert live.setdefault(edge.to, to) is to
                assert edge.output == output
    assert [node.names for node in graph.leaves] == [("x",)]


def test_the_nodes_of_a_tensor_with_a_name_carry_it():
    x = leaf()
    hidden = x * 2
    graph = Graph.of(hidden.sum())
    assert graph.find("hidden").name == "MulBackward0"
    assert graph.find("x").kind == "leaf"


def test_a_chain_of_a_hundred_thousand_operators_is_read():
    t = leaf()
    for _ in range(100_000):
        t = t * 1.0
    graph = Graph.of(t)
    assert len(graph.nodes) == 100_001
    assert len(graph.engine_order) == 100_001


def test_edges_carry_the_number_of_the_output():
    first, second = leaf(1, 2, 3, 4).split(2)
    graph = Graph.of(first * second)
    split = graph.find("SplitBackward0")
    assert len(split.outputs) == 2
    assert split.kind == "view"
    assert [edge.output for edge in graph.nodes[0].edges] == [0, 1]


def test_tied_parameters_stand_under_every_name():
    model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(5, 3), "head": torch.nn.Linear(3, 5, bias=False)})
    model["head"].weight = model["embed"].weight
    loss = model["head"](model["embed"](torch.tensor([1]))).sum()
    (weight,) = Graph.of(loss, model=model).leaves
    assert weight.names == ("embed.weight", "head.weight")


def test_lists_dicts_and_edges_are_roots():
    x = leaf()
    a, b = x * 2, x * 3
    assert len(Graph.of([a, b]).roots) == 2
    assert Graph.of({"first": a, "second": b}).names == ("first", "second")
    assert names(Graph.of(torch.autograd.graph.get_gradient_edge(a)))[0] == "MulBackward0"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: torch.ones(2), "requires_grad is False"),
        (lambda: torch.tensor([1]), "only floating and complex tensors have gradients"),
        (list, "an empty list came"),
        (lambda: "loss", "'loss' came, and a tensor with a graph was wanted"),
        (lambda: [torch.ones(1, requires_grad=True), 3], "3 came as \\[1\\]"),
        (lambda: None, "None came"),
    ],
)
def test_what_has_no_graph_gets_a_sentence(make, sentence):
    with pytest.raises(HelperError, match=sentence):
        Graph.of(make())


def test_an_inference_tensor_is_named_as_the_reason():
    with torch.inference_mode():
        t = torch.ones(2)
    with pytest.raises(HelperError, match="inference_mode"):
        Graph.of(t)


def test_a_model_that_is_no_module_gets_a_sentence():
    with pytest.raises(HelperError, match=r"model is 3, and a torch\.nn\.Module was wanted"):
        Graph.of(leaf() * 2, model=3)


# Saved tensors


def saved(graph: Graph, node: str) -> dict[str, str]:
    return {s.name: s.state for s in graph.find(node).saved}


def test_saved_tensors_are_alive_until_backward_frees_them():
    x = leaf(1, 2)
    loss = x.exp().sum()
    assert saved(Graph.of(loss), "ExpBackward0") == {"result": "alive"}
    loss.backward()
    graph = Graph.of(loss)
    assert saved(graph, "ExpBackward0") == {"result": "freed"}
    assert [node.name for node in graph.freed] == ["ExpBackward0"]
    assert graph.saved_nbytes == 0


def test_a_change_in_place_is_seen_with_both_versions():
    x = leaf(1, 2)
    h = x.exp()
    h += 1
    h.mul_(2)
    (tensor,) = Graph.of(h.sum()).find("ExpBackward0").saved
    assert (tensor.state, tensor.versions) == ("changed", (0, 2))


def test_bytes_of_one_storage_are_counted_once():
    x = leaf(*range(10))
    y = x.exp()
    graph = Graph.of((y * y).sum())
    assert [s.storage for node in graph.nodes for s in node.saved] == [0, 0, 0]
    assert graph.saved_nbytes == 40


def test_the_owner_of_a_saved_tensor_is_named():
    net = torch.nn.Linear(3, 2)
    loss = net(torch.ones(4, 3, requires_grad=True)).relu().sum()
    owners = {s.owner for node in Graph.of(loss).nodes for s in node.saved}
    assert "net.weight" in owners


def test_a_pack_hook_is_seen_and_its_unpack_hook_never_runs():
    def unpack(packed):
        raise AssertionError("unpacked")

    x = leaf(1, 2)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.numel(), unpack):
        y = x * x
    assert saved(Graph.of(y), "MulBackward0") == {"self": "packed", "other": "packed"}


def test_a_checkpoint_is_not_recomputed():
    runs = []

    def part(t):
        runs.append(1)
        return t.sin() * t

    y = checkpoint(part, leaf(1, 2), use_reentrant=False)
    assert set(saved(Graph.of(y), "MulBackward0").values()) == {"recomputed"}
    assert len(runs) == 1


class Keep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale, ctx.x = scale, x
        out = x * scale
        ctx.out = out
        return out

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale, None


def test_a_custom_function_shows_what_it_keeps():
    y = Keep.apply(leaf(1, 2), 3)
    node = Graph.of(y).nodes[0]
    assert (node.name, node.kind) == ("KeepBackward", "custom")
    assert [s.state for s in node.saved] == ["alive"]
    roles = {value.name: value.role for value in node.context}
    assert roles == {"scale": "", "x": "tensor", "out": "output"}
    y.sum().backward()
    assert [s.state for s in Graph.of(y).nodes[0].saved] == ["freed"]


def test_a_write_into_a_view_is_an_in_place_node():
    base = leaf(1, 2, 3) * 1
    base[1:].mul_(2)
    graph = Graph.of(base)
    assert graph.nodes[0].kind == "in-place"
    assert graph.nodes[0].name == "CopySlices"


def test_hooks_and_retained_gradients_are_seen():
    x = leaf(1, 2)
    x.register_hook(lambda grad: grad)
    x.register_post_accumulate_grad_hook(lambda t: None)
    y = x * 2
    y.retain_grad()
    graph = Graph.of(y.sum())
    assert graph.find("x").hooks == ("1 hook on the gradient of x", "1 hook after accumulation into x.grad")
    assert graph.find("y").hooks == ("y retains its grad",)


def test_nodes_that_backward_recorded_are_told_apart():
    x = leaf()
    loss = (x**3).sum()
    (grad,) = torch.autograd.grad(loss, x, create_graph=True)
    orders = {node.name: node.order for node in Graph.of([loss, grad]).nodes}
    assert orders["SumBackward0"] == orders["AccumulateGrad"] == 1
    assert orders["MulBackward0"] == 2


# The engine's order


def engine_trace(loss: torch.Tensor) -> list[str]:
    """Return the names of nodes in the order in which torch's engine ran them."""
    ran, seen, stack = [], set(), [loss.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        node.register_prehook(lambda grads, node=node: ran.append(node))
        stack += [to for to, _ in node.next_functions]
    loss.backward()
    return [type(node).__name__ for node in ran]


@given(st.lists(st.tuples(st.sampled_from(["add", "mul", "sub"]), st.integers(0, 7), st.integers(0, 7)), max_size=9))
def test_the_engine_runs_the_nodes_in_the_order_that_is_told(steps):
    tensors = [leaf(1.0, 2.0), leaf(3.0, 4.0)]
    for name, a, b in steps:
        tensors.append(getattr(torch, name)(tensors[a % len(tensors)], tensors[b % len(tensors)]))
    loss = tensors[-1].sum() if steps else (tensors[0] * tensors[1]).sum()
    graph = Graph.of(loss)
    told = [graph.nodes[number].name for number in graph.engine_order]
    assert told == engine_trace(loss)


# No trace


def test_nothing_is_kept_alive():
    x = leaf(1, 2)
    y = x.exp()
    watched = weakref.ref(y)
    graph = Graph.of(y.sum())
    del y
    gc.collect()
    assert watched() is None
    assert len(graph.nodes) == 3


def test_versions_gradients_and_hooks_stay_as_they_were():
    x = leaf(1, 2)
    y = x * x
    before = (x._version, y._version, x.grad, x._backward_hooks)
    Graph.of(y.sum())
    assert (x._version, y._version, x.grad, x._backward_hooks) == before


def test_the_collector_runs_again_afterwards():
    Graph.of(leaf() * 2)
    assert gc.isenabled()
    gc.disable()
    try:
        Graph.of(leaf() * 2)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_name_that_is_not_there_gets_a_sentence():
    with pytest.raises(HelperError, match="this graph of 2 nodes has none called 'Exp'"):
        Graph.of(leaf() * 2).find("Exp")
