"""Checks of chapter 02: graphs, leaves, accumulation, saved tensors and cuts. Each asks torch for the truth."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import nn

from helpers.model.adapter import version_of
from helpers.model.autograd.graph import Graph
from helpers.model.finding import HelperError, in_short

from ..quiz import Outcome, right, same, wrong
from .asking import asks_for, close, unchanged
from .letters import compare_letters

NODES = ("AddBackward0", "MulBackward0", "ExpBackward0", "SinBackward0", "AccumulateGrad")


def _leaf(*values: float) -> torch.Tensor:
    return torch.tensor([float(value) for value in values], requires_grad=True)


def _names(answer: Any) -> list[str] | None:
    """Return the node names of an answer, or None where one is no text.

    They may stand in one text with spaces or commas, and be written as node.name() or repr(node) gives them.
    """
    parts = answer.replace(",", " ").split() if isinstance(answer, str) else answer
    if isinstance(parts, Iterator):
        parts = list(islice(parts, 20))
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        return None
    return [re.sub(r"^<|(\(\))?>?$| object at .*$", "", part.strip()).rpartition("::")[2] for part in parts]


def _misspelt(names: list[str]) -> tuple[str, list[str]]:
    """Return a sentence about the first name that PyTorch writes in another way, or nothing, and all names mended."""
    stems = {_stem(name): name for name in NODES}
    mended = [stems.get(_stem(name), name) for name in names]
    for name, better in zip(names, mended, strict=True):
        if name != better:
            return f"PyTorch writes {better}, not {in_short(name)}.", mended
    return "", mended


def _stem(name: str) -> str:
    return re.sub(r"(backward\d*|[^a-z])", "", name.lower())


def next_nodes(answer: Any) -> Outcome:
    a, b = _leaf(1), _leaf(2)
    truth = [node.name().rpartition("::")[2] for node, _ in (a.exp() * b + a).grad_fn.next_functions]
    names = _names(answer)
    if names is None:
        return wrong('A list of two names is wanted, for example ["MulBackward0", "ExpBackward0"].')
    if same(truth, names):
        return right("The product, and the leaf itself.")
    spelling, names = _misspelt(names)
    if same(truth, names):
        return wrong(f"The nodes are right. {spelling}")
    return wrong(f"{_about_next(names, truth)} {spelling}".strip())


def _about_next(names: list[str], truth: list[str]) -> str:
    if same(truth, names[::-1]):
        return "Both are there. The order is that of the operands, from left to right."
    if "ExpBackward0" in names:
        return "exp is an input of the product. The addition has the product and a as inputs."
    if any(name in ("a", "b", "x", "z") for name in names):
        return "next_functions holds nodes, not tensors. Which node does a leaf have?"
    if "AddBackward0" in names:
        return "There is one addition only, and it is z.grad_fn itself."
    if set(names) == set(truth) or (len(names) == 1 and names[0] in truth):
        return "Two names are wanted, one for each operand of the addition."
    return "Which operation does Python carry out last, and what are its two operands?"


def engine_order(answer: Any) -> Outcome:
    a, b = _leaf(1), _leaf(2)
    graph = Graph.of((a * b).exp() + a.sin())
    truth = [graph.nodes[n].name for n in graph.engine_order if graph.nodes[n].kind != "leaf"]
    names = _names(answer)
    if names is None:
        return wrong("A list of four names is wanted, in the order in which they run.")
    spelling, names = _misspelt(names)
    names = [name for name in names if name != "AccumulateGrad"]
    if same(truth, names):
        return wrong(f"The order is right. {spelling}") if spelling else right("The youngest ready node comes first.")
    return wrong(f"{_about_order(names, truth)} {spelling}".strip())


def _about_order(names: list[str], truth: list[str]) -> str:
    if sorted(names) != sorted(truth):
        return f"These four run: {', '.join(sorted(truth))}. Put them in order."
    if same(truth[::-1], names):
        return "That is the order of the forward run. Backward starts at the addition."
    if names[0] != truth[0]:
        return "The gradient enters at z.grad_fn. Which operation made z?"
    if names.index("MulBackward0") < names.index("ExpBackward0"):
        return "The product is an input of exp. A node runs after the nodes that lead to it."
    return "exp and sin are ready at the same time. Python computed sin last, so its node comes first."


@asks_for("power(x, n)")
def power(answer: Callable) -> Outcome:
    for n in (1, 2, 5, 30):
        x = _leaf(1.1)
        truth = x.detach() ** n
        result = answer(x, n)
        if not isinstance(result, torch.Tensor):
            return wrong(f"power(x, {n}) returned {in_short(result)}; a tensor is wanted.")
        if not close(result, truth):
            shown = f"{result.item():.4g}" if result.numel() == 1 and not result.is_meta else in_short(result)
            return wrong(f"power(x, {n}) has the wrong value: {shown}, and x**{n} is {truth.item():.4g}.")
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
        (slope,) = torch.autograd.grad(result.sum(), x, allow_unused=True)
        slope = torch.zeros_like(x) if slope is None else slope
        if not close(slope, n * x.detach() ** (n - 1)):
            return wrong(
                f"The gradient of power(x, {n}) at 1.1 is {slope.item():.4g}, and n * x**(n - 1) is "
                f"{n * 1.1 ** (n - 1):.4g}. A factor without a graph, such as x.item() or x.detach(), gets no gradient."
            )
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


@asks_for("make()")
def convert(answer: Callable) -> Outcome:
    x = answer()
    if not isinstance(x, torch.Tensor):
        return wrong(f"make() returned {in_short(x)}; a float64 tensor with three elements is wanted.")
    if x.shape != (3,) or x.dtype != torch.float64:
        dtype = str(x.dtype).removeprefix("torch.")
        return wrong(
            f"make() returned {in_short(x)} and dtype {dtype}; a float64 tensor with three elements is wanted."
        )
    if not close(x, torch.ones(3)):
        return wrong("All three elements should be 1.")
    if not x.requires_grad:
        return wrong("The tensor does not require grad, so backward has nothing to fill.")
    if not x.is_leaf:
        return wrong(
            "The tensor is still a result: its grad_fn is the conversion. Convert first, ask for a gradient last."
        )
    x.grad = None
    x.sum().backward()
    return right("A leaf, made in its final dtype.") if x.grad is not None else wrong("x.grad is still None.")


@asks_for("accumulate(model, parts)")
def accumulate(answer: Callable) -> Outcome:
    for sizes in ([2, 2], [4, 4, 1], [5, 3]):
        torch.manual_seed(sum(sizes))
        model = nn.Linear(3, 2)
        parts = [(torch.randn(n, 3), torch.randn(n, 2)) for n in sizes]
        inputs, targets = (torch.cat(column) for column in zip(*parts, strict=True))
        parameters = dict(model.named_parameters())
        loss = ((model(inputs) - targets) ** 2).mean()
        truths = dict(zip(parameters, torch.autograd.grad(loss, parameters.values()), strict=True))
        before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        for parameter in parameters.values():
            parameter.grad = torch.full_like(parameter, 100.0)
        answer(model, parts)
        after = dict(model.named_parameters())
        for name, parameter in parameters.items():
            if after.get(name) is not parameter or not unchanged(parameter, before[name]):
                return wrong(
                    f"accumulate changed model.{name} itself. Only its gradient is to be filled: take no step."
                )
        if missing := [name for name, parameter in parameters.items() if parameter.grad is None]:
            return wrong(f"The gradient of model.{missing[0]} is None afterwards. Call backward for each part.")
        for name, parameter in parameters.items():
            if not close(parameter.grad, truths[name]):
                return wrong(_about_sum(name, parameter.grad, truths[name], sizes))
    return right("Right for every split.")


def _about_sum(name: str, found: torch.Tensor, truth: torch.Tensor, sizes: list[int]) -> str:
    if bool((found == 100).all()):
        return "The gradient is the one from before the call. Empty it, and call backward for each part."
    if close(found - 100, truth, 1e-3):
        return "Gradients from earlier are still in it. Empty them first."
    if close(found, truth * len(sizes), 1e-4):
        return "The parts add up to too much: divide by the number of all values."
    if len(set(sizes)) > 1:
        return (
            f"The gradient of model.{name} is wrong for parts of {sizes} rows, which have different lengths: divide "
            "sums by the number of all values, or the short part counts too much."
        )
    return f"The gradient of model.{name} is wrong for parts of {sizes} rows."


@asks_for("train(cell, inputs)")
def carried(answer: Callable) -> Outcome:
    torch.manual_seed(0)
    cell, inputs = nn.RNNCell(2, 3), torch.randn(3, 1, 2)
    parameters = list(cell.parameters())
    h, truths = torch.zeros(1, 3), [torch.zeros_like(parameter) for parameter in parameters]
    for x in inputs:
        h = cell(x, h.detach())
        truths = [t + g for t, g in zip(truths, torch.autograd.grad(h.sum(), parameters), strict=True)]
    rounds: list[torch.Tensor] = []  # a sum over the h of each round, which leads to its graph also after h.detach_()
    handle = cell.register_forward_hook(lambda module, args, result: rounds.append(result.sum()))
    try:
        result = answer(cell, inputs)
    except RuntimeError as error:
        if "second time" in str(error):
            return wrong("Backward still reaches the graph of the round before. Cut the history of h, not its values.")
        raise
    finally:
        handle.remove()
    if not isinstance(result, torch.Tensor):
        return wrong(f"train returned {in_short(result)}; the last h is wanted, a tensor.")
    if not close(result, h, 1e-6):
        return wrong("The last h has other values: it must be carried on from round to round.")
    if any(parameter.grad is None for parameter in parameters):
        return wrong("The cell has no gradient: call backward in each round.")
    if not all(close(parameter.grad, truth) for parameter, truth in zip(parameters, truths, strict=True)):
        return wrong("The gradients differ: each round's backward should stop at the h that entered the round.")
    if any(_is_kept(total) for total in rounds):
        return wrong(
            "The graph of a round is still there after its backward. h is cut, so leave out retain_graph and "
            "create_graph."
        )
    return right("The values go on, the history does not.")


def _is_kept(total: torch.Tensor) -> bool:
    """Say whether the graph behind a sum still holds its saved tensors, which a backward frees."""
    if total.grad_fn is None:
        return False
    try:
        total.backward(retain_graph=True)
    except RuntimeError:
        return False
    return True


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


@asks_for("gan_step(g, d, d_optimizer, noise)")
def gan_step(answer: Callable) -> Outcome:
    torch.manual_seed(0)
    g, d = nn.Linear(2, 2), nn.Linear(2, 1)
    optimizer = torch.optim.SGD(d.parameters(), lr=0.1)
    noise = torch.randn(4, 2)
    of_d, of_g = list(d.parameters()), list(g.parameters())
    kept = [parameter.detach().clone() for parameter in of_g]
    slopes = torch.autograd.grad(d(g(noise)).mean(), [*of_d, *of_g])
    stepped = [p.detach() - 0.1 * slope for p, slope in zip(of_d, slopes, strict=False)]
    trained = list(slopes[len(of_d) :])  # what training d sends into g when nothing is detached
    try:
        answer(g, d, optimizer, noise)
    except RuntimeError as error:
        if "inplace" in str(error):
            return wrong("Backward still needs the weights from before the step. Score the fake again after it.")
        if "second time" in str(error):
            return wrong("The same graph is used twice. d needs a second forward run after its step.")
        raise
    if not _all_close(of_d, stepped):
        return wrong("The parameters of d are not those after one step on d(fake).mean().")
    if not all(unchanged(parameter, was) for parameter, was in zip(of_g, kept, strict=True)):
        return wrong("The parameters of g have changed. g is to get a gradient only: step d_optimizer alone.")
    found = [parameter.grad for parameter in of_g]
    if any(gradient is None for gradient in found):
        return wrong("g has no gradient: -d(fake).mean() must reach it, so fake may not be detached there.")
    fresh = list(torch.autograd.grad(-d(g(noise)).mean(), of_g))
    if _all_close(found, fresh):
        return right("d sees a detached fake, and g sees the new d.")
    return wrong(_about_g(found, fresh, trained))


def _about_g(found: list[torch.Tensor], fresh: list[torch.Tensor], trained: list[torch.Tensor]) -> str:
    """Say where a wrong gradient of g comes from: `fresh` is the right one, `trained` that of training d."""
    minus = "g has the gradient of d(fake).mean(); the minus of -d(fake).mean() is missing."
    if _all_close(found, [-t for t in fresh]):
        return minus
    if _all_close(found, [-t for t in trained]):
        return "The gradient of g is that of the old d. Score the fake with d again after d_optimizer.step()."
    if _all_close(found, trained):
        return "The gradient of g is that of d(fake).mean() with the old d: the new score and the minus are missing."
    if _all_close(found, [f + t for f, t in zip(fresh, trained, strict=True)]):
        return "The gradient of g is not that of -d(fake).mean() alone: training d has sent one into g too."
    if _all_close(found, [t - f for f, t in zip(fresh, trained, strict=True)]):
        return f"Training d has sent a gradient into g. And {minus}"
    return "The gradient of g is not that of -d(fake).mean() with the new d."


def _all_close(found: list, truths: list) -> bool:
    return all(close(one, truth) for one, truth in zip(found, truths, strict=True))


@asks_for("halve(layer)")
def halve(answer: Callable) -> Outcome:
    layer = nn.Linear(3, 2)
    parameter, before, bias = layer.weight, layer.weight.detach().clone(), layer.bias.detach().clone()
    place, version = parameter.data_ptr(), version_of(parameter)
    answer(layer)
    if layer.weight is not parameter:
        return wrong("layer.weight is another tensor now. An optimizer would still hold the old one: write into it.")
    if not close(layer.weight, before / 2, 1e-7):
        return wrong("The weights are not halved.")
    if layer.weight.data_ptr() != place:
        return wrong("The weights are halved, but not in place: layer.weight has other memory now. Write into it.")
    if not unchanged(layer.bias, bias):
        return wrong("The bias has changed too. Only the weights are to be halved.")
    if not (layer.weight.is_leaf and layer.weight.requires_grad):
        return wrong("The weight is no leaf that requires grad any more.")
    layer.weight.grad = None
    layer(torch.ones(1, 3)).sum().backward()
    if layer.weight.grad is None:
        return wrong("Backward gives no gradient.")
    if version_of(parameter) == version:
        return right("Halved in place. The version counter did not see it: under torch.no_grad() it does.")
    return right("Halved in place, and the version counter has seen it.")


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
    name = _last_call(answer).lower()
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


def _last_call(text: str) -> str:
    """Return the name of the last call in a text: "to" for "to", ".to(…)" and "mask = x.round().to(torch.uint8)"."""
    text = text.strip().strip("`.")
    try:
        statement = ast.parse(text).body[-1]
    except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError):
        return text.partition("(")[0].strip().rpartition(".")[2].rpartition(" ")[2]
    found = getattr(statement, "value", None)
    found = found.func if isinstance(found, ast.Call) else found
    return getattr(found, "attr", None) or getattr(found, "id", "")
