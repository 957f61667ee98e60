"""`Flow`: every gradient and the order of the nodes are those of a real backward, and nothing else changes."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Sequence
from itertools import groupby

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.graph import get_gradient_edge
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from helpers import explore_backward
from helpers.model.autograd.flow import Flow, Gradient, Step
from helpers.model.autograd.graph import Graph
from helpers.model.autograd.names import Names
from helpers.model.autograd.reading import read_graph
from helpers.model.finding import HelperError


def step_of(flow: Flow, number: int) -> Step | None:
    """Return the step of a node; None if the engine did not run it."""
    return next((step for step in flow.steps if step.node == number), None)


def leaf(*values: float, **options) -> torch.Tensor:
    return torch.tensor([float(v) for v in values or (1, 2, 3)], requires_grad=True, **options)


class TwoResults(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, first, second):
        return 2 * first if second is None else 2 * first + 3 * second


class NoGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        raise ZeroDivisionError("mine")


# Programs that make a loss, the same one at every call


def square():
    x = leaf()
    return (x * x).sum()


def diamond():
    x, w = leaf(), leaf(4, 5, 6)
    h = (x * w).tanh()
    return (h.exp() * h + x).mean() + w.prod()


def one_piece_of_a_split():
    first, _ = leaf(1, 2, 3, 4).split(2)
    return (first * 2).sum()


def unbound():
    a, b, c = leaf(1, 2, 3).unbind()
    return a * b + c


def largest():
    values, _ = torch.arange(6.0).view(2, 3).requires_grad_().max(1)
    return values.square().sum()


def two_results():
    first, second = TwoResults.apply(leaf())
    return (first * second).sum()


def one_of_two_results():
    return TwoResults.apply(leaf())[0].sum()


def no_gradient_for_the_second():
    x, y = leaf(), leaf(4, 5, 6)
    return NoGradient.apply(x * 2, y * 3).sum()


def complex_numbers():
    z = torch.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    return (z * z.conj()).real.sum() + z.abs().sum()


def sparse_rows():
    torch.manual_seed(0)
    return nn.Embedding(5, 3, sparse=True)(torch.tensor([1, 1, 3])).sum()


def recomputed():
    torch.manual_seed(0)
    layer = nn.Linear(3, 3)
    return checkpoint(lambda x: layer(x).relu(), leaf(), use_reentrant=False).sum()


def second_order():
    x = leaf()
    (grad,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return (grad**2).sum()


def used_twice():
    loss = square()
    return loss + loss


def written_in_place():
    x = leaf()
    h = x * 2
    h[0] = x[1]
    h.mul_(x)
    return h.sum()


def tensor_hooks():
    x = leaf()
    h = x * 2
    h.register_hook(lambda grad: grad * 10)
    x.register_hook(lambda grad: grad + 1)
    return (h * h).sum()


def packed():
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(force=True), torch.from_numpy):
        return diamond()


def recurrent():
    torch.manual_seed(0)
    cell, h, losses = nn.GRUCell(2, 3), torch.zeros(1, 3), []
    for x in torch.randn(3, 1, 2):
        h = cell(x, h)
        losses.append(h.square().sum())
    return torch.stack(losses).sum()


def nested():
    t = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged, requires_grad=True)
    return (t * 2).values().sum()


def many_leaves():
    a, b, c, d = (leaf(n) for n in range(1, 5))
    return torch.stack([a, b, c, d]).prod()


PROGRAMS = [
    square, diamond, one_piece_of_a_split, unbound, largest, two_results, one_of_two_results,
    no_gradient_for_the_second, complex_numbers, sparse_rows, recomputed, second_order, used_twice, written_in_place,
    tensor_hooks, packed, recurrent, nested, many_leaves,
]  # fmt: skip


def real_backward(loss: torch.Tensor) -> tuple[list[int], dict[int, tuple]]:
    """Run backward with a hook on every node; return the order, and what arrived at each node."""
    _, live = read_graph(loss, Names({}, None))
    order: list[int] = []
    arrived: dict[int, tuple] = {}

    def hook(number: int):
        def before(grads):
            order.append(number)
            arrived[number] = tuple(map(Gradient.of, grads))

        return before

    handles = [node.register_prehook(hook(number)) for number, node in enumerate(live.nodes)]
    loss.backward()
    for handle in handles:
        handle.remove()
    return order, arrived


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS)
def test_order_and_gradients_are_those_of_a_real_backward(program):
    flow = Flow.of(program())
    order, arrived = real_backward(program())
    steps = [step.node for step in flow.steps]
    assert in_groups(flow.graph, steps) == in_groups(flow.graph, order)
    for step in flow.steps:
        assert step.arrived == arrived[step.node], flow.graph.nodes[step.node]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_predicted_order_is_the_one_that_runs(program):
    order, _ = real_backward(program())
    graph = Flow.of(program()).graph
    assert in_groups(graph, graph.engine_order) == in_groups(graph, order)


def in_groups(graph: Graph, order: Sequence[int]) -> list[list[int]]:
    """Put leaves that follow each other into one sorted group: torch does not fix the order of such leaves."""
    groups: list[list[int]] = []
    for is_leaf, numbers in groupby(order, lambda number: graph.nodes[number].kind == "leaf"):
        found = list(numbers)
        groups += [sorted(found)] if is_leaf else [[number] for number in found]
    return groups


def test_a_whole_gradient_is_that_of_autograd_grad():
    x, w = leaf(), leaf(4, 5, 6)
    loss = (x * w).tanh().sum() + x.prod()
    flow = Flow.of(loss)
    for t, grad in zip((x, w), torch.autograd.grad(loss, (x, w)), strict=True):
        (name,) = [n for n, v in (("x", x), ("w", w)) if v is t]
        assert step_of(flow, flow.graph.find(name).number).arrived == (Gradient.of(grad),)


def test_an_undefined_gradient_stays_undefined():
    flow = Flow.of(no_gradient_for_the_second())
    custom = next(step for step in flow.steps if flow.graph.nodes[step.node].kind == "custom")
    assert custom.left[1] is None
    assert step_of(flow, flow.graph.nodes[custom.node].edges[1].to).arrived == (None,)


# What stays as it is


def test_nothing_of_the_readers_changes():
    torch.manual_seed(0)
    x = leaf()
    frozen = torch.ones(3)
    x.grad = torch.full((3,), 7.0)
    calls = []
    x.register_post_accumulate_grad_hook(calls.append)
    h = F.dropout(x * frozen, 0.5)
    loss = (h * h).sum()
    saved = loss.grad_fn.next_functions[0][0]._saved_self
    before = (x._version, h._version, dict(x._backward_hooks or {}), torch.get_rng_state().tolist())
    Flow.of(loss)
    assert (x._version, h._version, dict(x._backward_hooks or {}), torch.get_rng_state().tolist()) == before
    assert x.grad.tolist() == [7, 7, 7]
    assert calls == []
    assert (x.requires_grad, frozen.requires_grad, torch.is_grad_enabled()) == (True, False, True)
    assert loss.grad_fn.next_functions[0][0]._saved_self is saved
    loss.backward()
    assert torch.equal(x.grad, 7 + 2 * h.detach() * (h.detach() / x.detach()))


def test_a_tensor_that_retains_its_grad_keeps_it():
    x = leaf()
    h, box = x * 2, nn.Module()
    h.retain_grad()
    box.h = h * 3  # not a variable: a tensor that only an object holds
    box.h.retain_grad()
    loss = box.h.sum()
    Flow.of(loss)
    assert (h.grad, box.h.grad) == (None, None)
    loss.backward(retain_graph=True)
    kept = h.grad
    Flow.of(loss)
    assert h.grad is kept
    assert kept.tolist() == [3, 3, 3]


def test_no_hook_of_ours_stays_and_nothing_is_kept_alive():
    x = leaf()
    h = x.exp()
    loss = h.sum()
    references = weakref.ref(x), weakref.ref(h)
    flow = Flow.of(loss)
    calls = len(flow.steps)
    loss.backward()
    assert len(flow.steps) == calls
    del x, h, loss
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_a_mode_of_the_reader_sees_no_reading_of_values():
    class Log(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(getattr(func, "__name__", ""))
            return func(*args, **(kwargs or {}))

    seen: list[str] = []
    loss = diamond()
    with Log():
        steps = Flow.of(loss).steps
    assert not {"tolist", "isfinite", "count_nonzero", "reshape"} & set(seen)
    assert steps == Flow.of(diamond()).steps


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_the_mode_around_the_call_changes_nothing(mode):
    loss = diamond()
    with mode():
        steps = Flow.of(loss).steps
    assert steps == Flow.of(diamond()).steps


def test_a_thread_and_a_kept_graph_are_no_obstacle():
    loss, found = diamond(), []
    loss.backward(retain_graph=True)
    thread = threading.Thread(target=lambda: found.append(Flow.of(loss).steps))
    thread.start()
    thread.join()
    assert found == [Flow.of(diamond()).steps]


def test_a_loss_that_is_a_leaf_gets_one():
    loss = torch.tensor(2.0, requires_grad=True)
    (step,) = Flow.of(loss).steps
    assert step.arrived[0].values == (1.0,)


# Sentences in place of tracebacks


def freed():
    loss = square()
    loss.backward()
    return loss


def changed():
    h = leaf() * 2
    loss = (h * h).sum()
    h += 1
    return loss


def reentrant():
    return checkpoint(lambda x: x.exp(), leaf(), use_reentrant=True).sum()


def hook_that_raises():
    x = leaf()
    x.register_hook(lambda grad: 1 / 0)
    return x.sum()


def long_chain():
    x = leaf()
    for _ in range(20_001):
        x = x * 1.0
    return x.sum()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: leaf() * 2, r"the tensor has shape \(3,\), and backward starts from one number: give its sum\(\)"),
        (freed, "MulBackward0 were freed by an earlier backward: run the forward again"),
        (changed, r"MulBackward0 saved `\w+` at version 0, and it was changed in place since \(version 1\)"),
        (lambda: torch.ones(()), r"the tensor of shape \(\) has no graph: its requires_grad is False"),
        (lambda: torch.tensor(3), "only floating and complex tensors have gradients"),
        (lambda: get_gradient_edge(square()), "a GradientEdge came, and a tensor with a graph was wanted: the loss"),
        (lambda: 3, "3 came, and a tensor with a graph was wanted: the loss"),
        (lambda: None, "None came"),
        (lambda: [square()], r"\[a tensor of shape \(\)\] came"),
        (lambda: {"loss": square()}, "came, and a tensor with a graph was wanted"),
        (lambda: (leaf() * 1j).sum(), "the tensor is complex, and backward starts from a real number"),
        (lambda: torch.ones(3, device="meta", requires_grad=True).sum(), "is on the meta device"),
        (reentrant, "make it with use_reentrant=False"),
        (lambda: Raises.apply(leaf()).sum(), "backward from this tensor raises ZeroDivisionError: mine"),
        (hook_that_raises, "raises ZeroDivisionError: division by zero; explain_error"),
        (lambda: nn.LazyLinear(2).weight, "a parameter without a shape came: run its module once"),
        (long_chain, "the graph has 20,003 nodes; backward is noted for at most 20,000"),
    ],
)
def test_what_can_not_run_gets_one_sentence(make, sentence):
    given = make()
    for helper in (Flow.of, explore_backward):
        with pytest.raises(HelperError, match=sentence):
            helper(given)


def test_a_run_that_raised_leaves_no_hook_and_no_grad():
    x = leaf()
    h = x * 2
    h.retain_grad()
    loss = Raises.apply(h).sum() + h.sum()
    with pytest.raises(HelperError):
        Flow.of(loss)
    assert (x.grad, h.grad) == (None, None)
    with pytest.raises(ZeroDivisionError):
        loss.backward()


# Hooks on tensors


@pytest.mark.parametrize("hook", [lambda g: g * 0, lambda g: g.mul_(0)], ids=["returns", "writes in place"])
def test_what_was_sent_is_kept_where_a_hook_changed_it(hook):
    x = leaf()
    h = x * 2
    h.register_hook(hook)
    flow = Flow.of((h * h).sum())
    step = step_of(flow, flow.graph.find("h").number)
    assert [g.values for g in step.sent] == [(4.0, 8.0, 12.0)]
    assert step.arrived[0].zero
    assert [s.node for s in flow.steps if s.sent] == [step.node]


def test_hooks_on_a_leaf_on_the_loss_and_on_one_of_two_ways_are_seen():
    x = leaf()
    loss = (x * x).sum() + (x * 3).sum()
    x.register_hook(lambda g: g * 10)
    loss.register_hook(lambda g: g * 2)
    flow = Flow.of(loss)
    changed = {flow.graph.nodes[s.node].name: (s.sent[0].values, s.arrived[0].values) for s in flow.steps if s.sent}
    assert changed == {
        "AddBackward0": ((1.0,), (2.0,)),
        "AccumulateGrad": ((10.0, 14.0, 18.0), (100.0, 140.0, 180.0)),
    }


def test_without_a_hook_nothing_is_said_to_be_changed():
    x, z = torch.randn(30, 30, requires_grad=True), leaf()
    half = x.half()
    table, cell = nn.Embedding(5, 3, sparse=True), nn.LSTM(3, 4, 2)
    part = z * 1
    part[0] = 5.0
    (slope,) = torch.autograd.grad((z**3).sum(), z, create_graph=True)
    seen = z * 2
    seen.register_hook(lambda g: None)
    losses = [
        sum((half * k for k in range(20)), start=half).float().sum(),
        (half @ half + half).float().mean(),
        table(torch.tensor([1, 1, 2])).sum() + table(torch.tensor([0])).square().sum(),
        (part * z).sum(),
        (slope * z).sum(),
        cell(torch.randn(5, 2, 3))[0].sum(),
        (z / 0).sum() + (z * float("nan")).sum(),
        (seen * z).sum(),
    ]
    for loss in losses:
        assert not [step for step in Flow.of(loss).steps if step.sent]


def test_a_step_of_the_panel_says_that_a_hook_changed_what_arrives():
    w = leaf()
    w.register_hook(lambda g: g * 2)
    lines = explore_backward((w * w).sum()).app.still()[1].splitlines()
    assert lines[-1].endswith("(a hook changed it from [2., 4., 6.] to [4., 8., 12.]).")
    assert sum("a hook" in line for line in lines) == 1
