"""Checks of chapter 02: accumulation, saved tensors, writes in place and cuts. Each asks torch for the truth."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from helpers.model.adapter import version_of
from helpers.model.autograd.graph import Graph
from helpers.model.finding import in_short

from ..quiz import Outcome, right, wrong
from .asking import asks_for, close, unchanged
from .letters import compare_letters


def _leaf(*values: float) -> torch.Tensor:
    return torch.tensor([float(value) for value in values], requires_grad=True)


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
