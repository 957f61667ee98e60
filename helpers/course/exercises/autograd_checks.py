"""Checks of chapter 02: graphs, leaves, accumulation, saved tensors and cuts. Each asks torch for the truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from helpers.model.autograd.graph import Graph
from helpers.model.finding import HelperError, in_short

from ..quiz import Outcome, right, same, wrong
from .letters import compare_letters


def _leaf(*values: float) -> torch.Tensor:
    return torch.tensor([float(value) for value in values], requires_grad=True)


def _names(answer: Any) -> list[str] | None:
    """Return the node names of an answer, written with or without spaces, or None where one is no text."""
    parts = answer.replace(",", " ").split() if isinstance(answer, str) else answer
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        return None
    return [part.strip() for part in parts]


def next_nodes(answer: Any) -> Outcome:
    a, b = _leaf(1), _leaf(2)
    truth = [node.name().rpartition("::")[2] for node, _ in (a.exp() * b + a).grad_fn.next_functions]
    names = _names(answer)
    if names is None:
        return wrong('A list of two names is wanted, for example ["MulBackward0", "ExpBackward0"].')
    if same(truth, names):
        return right("The product, and the leaf itself.")
    if same(truth, names[::-1]):
        return wrong("Both are there. The order is that of the operands, from left to right.")
    if "ExpBackward0" in names:
        return wrong("exp is an input of the product. The addition has the product and a as inputs.")
    if any(name in ("a", "b", "x") for name in names):
        return wrong("next_functions holds nodes, not tensors. Which node does a leaf have?")
    if "AddBackward0" in names:
        return wrong("There is one addition only, and it is z.grad_fn itself.")
    return wrong("Which operation does Python carry out last, and what are its two operands?")


def engine_order(answer: Any) -> Outcome:
    a, b = _leaf(1), _leaf(2)
    graph = Graph.of((a * b).exp() + a.sin())
    truth = [graph.nodes[n].name for n in graph.engine_order if graph.nodes[n].kind != "leaf"]
    names = _names(answer)
    if names is None:
        return wrong("A list of four names is wanted, in the order in which they run.")
    names = [name for name in names if name != "AccumulateGrad"]
    if same(truth, names):
        return right("The youngest of the ready nodes comes first.")
    if sorted(names) != sorted(truth):
        return wrong(f"These four run: {', '.join(sorted(truth))}. Put them in order.")
    if same(truth[::-1], names):
        return wrong("That is the order of the forward run. Backward starts at the addition.")
    if names[0] != truth[0]:
        return wrong("The gradient enters at z.grad_fn. Which operation made z?")
    return wrong("exp and sin are ready at the same time. Python computed sin last, so its node comes first.")


def power(answer: Callable) -> Outcome:
    for n in (1, 2, 5, 30):
        x = _leaf(1.1)
        result = answer(x, n)
        if not isinstance(result, torch.Tensor):
            return wrong(f"power(x, {n}) returned {in_short(result)}; a tensor is wanted.")
        if not torch.allclose(result.detach(), x.detach() ** n):
            return wrong(f"power(x, {n}) has the wrong value: {result.item():.4g}, and x**{n} is {x.item() ** n:.4g}.")
        try:
            names = [] if result is x else [node.name for node in Graph.of(result).nodes if node.kind != "leaf"]
        except HelperError:
            return wrong("The result has no graph. Multiply the tensor itself, not its .item() or .data.")
        if any(name != "MulBackward0" for name in names):
            other = next(name for name in names if name != "MulBackward0")
            return wrong(f"The graph of power(x, {n}) has a {other}. Use products only.")
        if len(names) == n:
            return wrong("There is one product too many. Start with x: 1 * x is a product too.")
        if len(names) != n - 1:
            return wrong(f"The graph of power(x, {n}) has {len(names)} products; {n - 1} are wanted.")
    return right("The loop ran, and so the graph grew.")


def recorded(answer: Any) -> Outcome:
    w = _leaf(3, 1, 2)
    results = {
        "a": w.clone(),
        "b": w > 0,
        "c": w.round(),
        "d": w.data * 2,
        "e": w.sort().indices,
        "f": w[1:],
    }
    truth = {letter for letter, result in results.items() if result.grad_fn is not None}
    why = {
        "a": "clone copies the values and is recorded.",
        "b": "A comparison gives bools, and a bool has no gradient.",
        "c": "round gives floats. It is recorded, though its gradient is 0 everywhere.",
        "d": ".data is the tensor without its history.",
        "e": "Indices are integers.",
        "f": "A slice is a view, and views are recorded.",
    }
    return compare_letters(answer, truth, why, "Modes, dtypes and cuts: the three reasons.")


def convert(answer: Callable) -> Outcome:
    x = answer()
    if not isinstance(x, torch.Tensor) or x.shape != (3,) or x.dtype != torch.float64:
        return wrong("make() should return a float64 tensor with three elements.")
    if not torch.equal(x.detach(), torch.ones(3, dtype=torch.float64)):
        return wrong("All three elements should be 1.")
    if not x.requires_grad:
        return wrong("The tensor does not require grad, so backward has nothing to fill.")
    if not x.is_leaf:
        return wrong(
            "The tensor is still a result: its grad_fn is the conversion. Convert first, ask for a gradient last."
        )
    x.sum().backward()
    return right("A leaf, made in its final dtype.") if x.grad is not None else wrong("x.grad is still None.")


def accumulate(answer: Callable) -> Outcome:
    for sizes in ([2, 2], [4, 4, 1], [5, 3]):
        torch.manual_seed(sum(sizes))
        model = nn.Linear(3, 2)
        parts = [(torch.randn(n, 3), torch.randn(n, 2)) for n in sizes]
        inputs, targets = (torch.cat(column) for column in zip(*parts, strict=True))
        ((model(inputs) - targets) ** 2).mean().backward()
        truth = model.weight.grad.clone()
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 100.0)
        answer(model, parts)
        found = model.weight.grad
        if found is None:
            return wrong("The gradient is None afterwards. Call backward for each part.")
        if torch.allclose(found, truth, atol=1e-5):
            continue
        if torch.allclose(found - 100, truth, atol=1e-3):
            return wrong("Gradients from earlier are still in it. Empty them first.")
        if torch.allclose(found, truth * len(parts), atol=1e-4):
            return wrong("The parts add up to too much: divide by the number of all values.")
        if len(set(sizes)) > 1:
            return wrong(
                f"It is wrong for parts of {sizes} rows: the short part counts too much. Divide sums, not means."
            )
        return wrong(f"The gradient is wrong for parts of {sizes} rows.")
    return right("Right for every split.")


def carried(answer: Callable) -> Outcome:
    torch.manual_seed(0)
    cell, inputs = nn.RNNCell(2, 3), torch.randn(3, 1, 2)
    h, truth = torch.zeros(1, 3), torch.zeros(3, 2)
    for x in inputs:
        h = cell(x, h.detach())
        truth += torch.autograd.grad(h.sum(), cell.weight_ih)[0]
    try:
        result = answer(cell, inputs)
    except RuntimeError as error:
        if "second time" in str(error):
            return wrong("Backward still reaches the graph of the round before. Cut the history of h, not its values.")
        raise
    if not isinstance(result, torch.Tensor) or not torch.allclose(result.detach(), h.detach(), atol=1e-6):
        return wrong("The last h has other values: it must be carried on from round to round.")
    if cell.weight_ih.grad is None:
        return wrong("The cell has no gradient: call backward in each round.")
    if not torch.allclose(cell.weight_ih.grad, truth, atol=1e-5):
        return wrong("The gradients differ: each round's backward should stop at the h that entered the round.")
    return right("The values go on, the history does not.")


def saves_result(answer: Any) -> Outcome:
    operations = {
        "a": torch.sigmoid,
        "b": lambda x: x * x,
        "c": torch.sin,
        "d": lambda x: x.softmax(0),
        "e": lambda x: x + 1,
        "f": torch.sqrt,
    }
    truth = set()
    for letter, operation in operations.items():
        saved = Graph.of(operation(_leaf(1, 2, 3))).nodes[0].saved
        if any(tensor.name == "result" for tensor in saved):
            truth.add(letter)
    why = {
        "a": "The derivative of sigmoid is s * (1 - s), with its own result s.",
        "b": "A product needs its two inputs.",
        "c": "The derivative of sin is cos of the input.",
        "d": "The derivative of softmax is made of its result.",
        "e": "Adding a number saves nothing.",
        "f": "The derivative of sqrt is 1 / (2 * sqrt), with its own result.",
    }
    return compare_letters(answer, truth, why, "Read from the graph.")


def gan_step(answer: Callable) -> Outcome:
    torch.manual_seed(0)
    g, d = nn.Linear(2, 2), nn.Linear(2, 1)
    optimizer = torch.optim.SGD(d.parameters(), lr=0.1)
    noise, before = torch.randn(4, 2), d.weight.detach().clone()
    expected_d = torch.autograd.grad(d(g(noise)).mean(), d.weight)[0]
    try:
        answer(g, d, optimizer, noise)
    except RuntimeError as error:
        if "inplace" in str(error):
            return wrong("Backward still needs the weights from before the step. Score the fake again after it.")
        if "second time" in str(error):
            return wrong("The same graph is used twice. d needs a second forward run after its step.")
        raise
    if not torch.allclose(d.weight, before - 0.1 * expected_d, atol=1e-5):
        return wrong("The weights of d are not those after one step on d(fake).mean().")
    if g.weight.grad is None:
        return wrong("g has no gradient: -d(fake).mean() must reach it, so fake may not be detached there.")
    fresh = torch.autograd.grad(-d(g(noise)).mean(), g.weight)[0]
    if not torch.allclose(g.weight.grad, fresh, atol=1e-5):
        return wrong("The gradient of g is not that of -d(fake).mean(): training d has sent one into g too.")
    return right("d sees a detached fake, and g sees the new d.")


def halve(answer: Callable) -> Outcome:
    layer = nn.Linear(3, 2)
    parameter, before = layer.weight, layer.weight.detach().clone()
    answer(layer)
    if layer.weight is not parameter:
        return wrong("layer.weight is another tensor now. An optimizer would still hold the old one: write into it.")
    if not torch.allclose(layer.weight.detach(), before / 2):
        return wrong("The weights are not halved.")
    if not (layer.weight.is_leaf and layer.weight.requires_grad):
        return wrong("The weight is no leaf that requires grad any more.")
    layer(torch.ones(1, 3)).sum().backward()
    return right("Written under no_grad.") if layer.weight.grad is not None else wrong("Backward gives no gradient.")


# Exercise 2.11


class Gated(nn.Module):
    """A small network with a gate. One of its parameters gets no gradient."""

    def __init__(self):
        super().__init__()
        self.body, self.gate, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)
        self.register_buffer("inputs", torch.linspace(-1, 1, 12).view(3, 4))

    def forward(self, x):
        hidden = self.body(x).tanh()
        opening = self.gate(x).sigmoid()
        mask = (opening * 4).round().to(torch.uint8)
        return self.head(hidden * mask / 4)

    def forward_loss(self):
        """Run the forward on the stored inputs and return the loss; for `explain_grad(t, model.forward_loss)`."""
        return self(self.inputs).pow(2).mean()


def pipeline() -> tuple[nn.Module, torch.Tensor]:
    """Return a model and its loss. `model.forward_loss` is the function that computes the loss again."""
    torch.manual_seed(0)
    model = Gated()
    return model, model.forward_loss()


def cut(answer: Any) -> Outcome:
    if not isinstance(answer, str):
        return wrong('The name of a call is wanted, for example "detach".')
    name = answer.strip().strip(".").partition("(")[0].rpartition(".")[2].lower()
    if name in ("to", "uint8", "byte", "type"):
        return right("The gate is turned into whole numbers, and those have no gradient.")
    if name == "round":
        return wrong("round is recorded: its result is still a float, with a gradient of 0. Look one call further.")
    if name in ("sigmoid", "gate", "linear", "tanh", "body", "head"):
        return wrong(f"{name} is recorded. Follow the gate from there to the product.")
    if name == "detach":
        return wrong(
            "There is no detach in this model. Watch a run: explain_grad(model.gate.weight, model.forward_loss)."
        )
    return wrong("Watch a run: explain_grad(model.gate.weight, model.forward_loss) names the call.")
