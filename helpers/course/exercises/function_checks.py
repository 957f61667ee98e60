"""Checks of chapter 02: hooks, custom Functions, and the tiny autograd. Each asks torch for the truth."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch

from helpers.course.story import GaussianNLL, gaussian_nll
from helpers.model.finding import in_short
from helpers.model.functions.check import check_function

from ..quiz import Outcome, right, wrong
from .letters import compare_letters


def _double(*values: float) -> torch.Tensor:
    return torch.tensor([float(value) for value in values], dtype=torch.float64, requires_grad=True)


def watch(answer: Callable) -> Outcome:
    x, seen = _double(1, 2, 3), []
    h = x * 2
    handle = answer(h, seen)
    (h * torch.tensor([1.0, -7.0, 2.0])).sum().backward()
    if not seen:
        return wrong("The list is still empty. Register a hook on h before backward runs.")
    if x.grad is None or not torch.equal(x.grad, torch.tensor([2.0, -14.0, 4.0], dtype=torch.float64)):
        return wrong("The gradient that went on was changed: a hook must return None to leave it as it is.")
    if len(seen) != 1 or abs(float(seen[0]) - 7) > 1e-6:
        return wrong(f"The list holds {in_short(seen)}; the largest absolute value of [1, -7, 2] is 7.")
    if not hasattr(handle, "remove"):
        return wrong("Return the handle that register_hook gives, so that the hook can be removed.")
    handle.remove()
    (x * 2).sum().backward()
    return right("Seen, and left as it was.")


def softplus(answer: Any) -> Outcome:
    if not (isinstance(answer, type) and issubclass(answer, torch.autograd.Function)):
        return wrong("A class is wanted that inherits from torch.autograd.Function.")
    x = _double(-2, 0, 0.5, 3)
    value = answer.apply(x)
    if not torch.allclose(value.detach(), torch.log1p(x.detach().exp())):
        return wrong("Its forward is not log(1 + exp(x)).")
    found = check_function(answer, x)
    if found.verdict == "passes":
        return right("First and second derivatives agree with the numerical ones.")
    return wrong(found.text)


def relu_backward(answer: Callable) -> Outcome:
    for values in ((-2.0, -0.5, 0.0, 0.5, 2.0), (0.0, -0.0)):
        x = _double(*values)
        gradient = torch.arange(1.0, len(values) + 1, dtype=torch.float64)
        (truth,) = torch.autograd.grad(torch.relu(x), x, gradient)
        kept = gradient.clone()
        found = answer(x.detach(), gradient)
        if not isinstance(found, torch.Tensor):
            return wrong(f"It returned {in_short(found)}; a tensor is wanted.")
        if not torch.equal(gradient, kept):
            return wrong("It wrote into the gradient that it was given. Others may read it: make a new tensor.")
        if torch.equal(found, truth):
            continue
        if torch.equal(found, gradient.masked_fill(x.detach() < 0, 0)):
            return wrong("At 0 yours passes the gradient on, and PyTorch gives 0.")
        if torch.equal(found, (x.detach() > 0).to(found)):
            return wrong("The gradient that arrives is missing: multiply by it.")
        return wrong(f"For x = {list(values)} PyTorch gives {truth.tolist()}, and yours {in_short(found.tolist())}.")
    return right("Equal, also at 0 and at -0.")


def story(answer: Any) -> Outcome:
    if not (isinstance(answer, type) and issubclass(answer, torch.autograd.Function)):
        return wrong("A class is wanted that inherits from GaussianNLL.")
    mean, log_var, target = (_double(*values) for values in ((0.1, -0.4, 2), (0.3, -1.2, 0.5), (1, 0.2, -0.7)))
    target.requires_grad_(False)
    found = answer.apply(mean, log_var, target)
    if not torch.allclose(found.detach(), gaussian_nll(mean, log_var, target).detach()):
        return wrong("The forward has changed. Only backward was wrong.")
    theirs = torch.autograd.grad(gaussian_nll(mean, log_var, target), (mean, log_var))
    ours = torch.autograd.grad(answer.apply(mean, log_var, target), (mean, log_var))
    old = torch.autograd.grad(GaussianNLL.apply(mean, log_var, target), (mean, log_var))
    for name, mine, right_one, wrong_one in zip(("mean", "log_var"), ours, theirs, old, strict=True):
        if torch.allclose(mine, right_one):
            continue
        if torch.allclose(mine, wrong_one):
            return wrong(f"The gradient of {name} is the one from the story, and it is wrong. Derive it again.")
        if torch.allclose(mine, right_one * mean.numel()):
            return wrong(f"The gradient of {name} is {mean.numel()} times too large: the loss is a mean.")
        if torch.allclose(mine, -right_one):
            return wrong(f"The gradient of {name} has the wrong sign.")
        return wrong(f"The gradient of {name} is still wrong. check_function names an element and both numbers.")
    return right("One sign, and the loss no longer becomes NaN.")


def verdicts(answer: Any) -> Outcome:
    x = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    gradient = torch.tensor([1.0, -1.0, 3.0], dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    (right_one,) = torch.autograd.grad(leaf * leaf.sum(), leaf, gradient)
    candidates = {
        "a": gradient * x.sum(),
        "b": gradient * x.sum() + (gradient * x).sum(),
        "c": gradient * (x.sum() + x),
    }
    truth = {letter for letter, value in candidates.items() if torch.allclose(value, right_one)}
    why = {
        "a": "a forgets that the sum depends on x too.",
        "b": "b is needed: each element of x changes the sum, and so every element of the result.",
        "c": "c lets an element change the sum for itself only.",
    }
    return compare_letters(answer, truth, why, "The sum carries each change to every element.")


def tiny_tanh(answer: Callable) -> Outcome:
    tanh, kind = answer, getattr(inspect.unwrap(answer), "__globals__", {}).get("Value")
    if not isinstance(kind, type):
        return wrong("There is no class Value: run the cell that defines it first.")
    for number in (-1.5, 0.0, 0.4):
        x = kind(number)
        y = tanh(x)
        if not isinstance(y, kind):
            return wrong(f"tanh(Value({number})) returned {in_short(y)}; a Value is wanted.")
        if abs(y.data - math.tanh(number)) > 1e-9:
            return wrong(f"tanh(Value({number})).data is {y.data:.4g}; it should be {math.tanh(number):.4g}.")
        if not y.parents:
            return wrong("The result has no parents, so no gradient finds its way back.")
        (2 * y).backward()
        leaf = _double(number)
        (2 * torch.tanh(leaf)).sum().backward()
        truth = leaf.grad.item()
        if abs(x.grad - truth) > 1e-9:
            return wrong(f"At {number} the gradient of 2 * tanh is {truth:.4g}, and yours gives {x.grad:.4g}.")
    return right("The same as PyTorch's.")
