"""Questions of chapter 02: what the reader predicts, and the list of its exercises.

Each truth is computed on real torch. The checks stand in `graph_checks`, `autograd_checks` and `function_checks`.
"""

from __future__ import annotations

import torch

from helpers.model.autograd.graph import Graph

from ..quiz import Exercise, Prediction
from . import autograd_checks, function_checks, graph_checks


def _leaf(*values: float) -> torch.Tensor:
    return torch.tensor([float(value) for value in values], requires_grad=True)


def _inputs_of_the_sum() -> str:
    x = _leaf(2)
    (first, second) = (node and node.name() for node, _ in (x**2 + 3 * x + 1).grad_fn.next_functions)
    return {("AddBackward0", None): "Add and nothing", ("PowBackward0", "MulBackward0"): "Pow and Mul"}[first, second]


def _first_of_the_ready() -> str:
    x = _leaf(2)
    graph = Graph.of(x**2 + 3 * x)
    power, product = graph.find("PowBackward0"), graph.find("MulBackward0")
    order = graph.engine_order
    first, other = (product, power) if order.index(product.number) < order.index(power.number) else (power, product)
    return "it was made last" if first.sequence > other.sequence else "it stands on the right"


def _three_backwards() -> float:
    w = _leaf(1, 1)
    for _ in range(3):
        (2 * w).sum().backward()
    return w.grad[0].item()


def _write_into_relu() -> str:
    x = _leaf(1, 1, 1)
    h = torch.relu(x * 2)
    h += 1
    try:
        h.sum().backward()
    except RuntimeError:
        return "backward raises"
    return "nothing" if torch.equal(x.grad, torch.full((3,), 2.0)) else "the gradient is wrong"


def _relu_at_zero() -> str:
    x = _leaf(-1, 0, 1)
    (theirs,) = torch.autograd.grad(torch.relu(x).sum(), x)
    ours = torch.ones(3).masked_fill(x.detach() < 0, 0)
    different = [value for value, same in zip(x.tolist(), (ours == theirs).tolist(), strict=True) if not same]
    return {(): "yes, everywhere", (0.0,): "everywhere but at 0"}.get(tuple(different), "only for x > 0")


PREDICTIONS = {
    "grad-fn-inputs": Prediction(
        _inputs_of_the_sum,
        {
            "Pow and Mul": "Python adds two numbers at a time. x**2 + 3 * x is one addition, and + 1 is another.",
            "x, three times": "A node leads to the nodes that made its inputs. x stands at the end of the chain.",
        },
    ),
    "engine-order": Prediction(
        _first_of_the_ready,
        {
            "it stands on the right": "A graph has no left and right; the drawing does. Ask which node is younger.",
            "its result is larger": "The engine does not look at values. It looks at numbers that count operations.",
        },
    ),
    "leaf-times-one": Prediction(
        lambda: "a leaf" if (_leaf(1, 1) * 1.0).is_leaf else "not a leaf",
        {"a leaf": "You typed it, but the last thing that made it is a product, and that has a node."},
    ),
    "three-backwards": Prediction(
        _three_backwards,
        {
            2: "Backward does not replace what .grad holds. It adds to it.",
            8: "That would double each time. Each backward adds the same 2.",
        },
    ),
    "inplace-relu": Prediction(
        _write_into_relu,
        {
            "the gradient is wrong": "It would be, if nobody counted writes. Each tensor has a version counter.",
            "nothing": "relu needs its own result in backward, and this memory now holds other numbers.",
        },
    ),
    "relu-at-zero": Prediction(
        _relu_at_zero,
        {
            "yes, everywhere": "x < 0 is false at 0. What does your backward give there?",
            "only for x > 0": "Below 0 both give 0. Look at the one point between.",
        },
    ),
}

EXERCISES = {
    "ex-next": Exercise("2.1", "Read next_functions", graph_checks.next_nodes),
    "ex-order": Exercise("2.2", "The engine's order", graph_checks.engine_order),
    "ex-power": Exercise("2.3", "A graph as long as the loop", graph_checks.power),
    "ex-recorded": Exercise("2.4", "What is recorded?", graph_checks.recorded),
    "ex-convert": Exercise("2.5", "Repair: a leaf in float64", graph_checks.convert),
    "ex-accumulate": Exercise("2.6", "Micro-batches of any size", autograd_checks.accumulate),
    "ex-carried": Exercise("2.7", "Repair: a state that is carried on", autograd_checks.carried),
    "ex-saves": Exercise("2.8", "Who saves its result?", autograd_checks.saves_result),
    "ex-gan": Exercise("2.9", "Repair: a GAN step", autograd_checks.gan_step),
    "ex-halve": Exercise("2.10", "Repair: change a weight", autograd_checks.halve),
    "ex-cut": Exercise("2.11", "Repair: find the cut", autograd_checks.cut),
    "ex-hook": Exercise("2.12", "Watch a gradient", function_checks.watch),
    "ex-softplus": Exercise("2.13", "Derive and write a Function", function_checks.softplus),
    "ex-relu": Exercise("2.14", "ReLU at 0", function_checks.relu_backward),
    "ex-story": Exercise("2.15", "The NaN story, mended", function_checks.story),
    "ex-verdicts": Exercise("2.16", "Which backward is right?", function_checks.verdicts),
    "ex-tiny": Exercise("2.17", "tanh for the tiny autograd", function_checks.tiny_tanh),
}
