"""Checks of chapter 02: nodes, their order, what is recorded, and leaves. Each asks torch for the truth."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch

from helpers.model.autograd.graph import Graph
from helpers.model.finding import HelperError, in_short
from helpers.model.words import dtype_name

from ..quiz import Outcome, right, same, wrong
from .asking import asks_for, close
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
        dtype = dtype_name(x.dtype)
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
