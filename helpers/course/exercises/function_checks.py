"""Checks of chapter 02: hooks, custom Functions, and the tiny autograd. Each asks torch for the truth."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from helpers.course.story import GaussianNLL, gaussian_nll
from helpers.model.finding import HelperError, in_short
from helpers.model.functions.check import check_function

from ..quiz import Outcome, number_of, right, wrong
from .asking import asks_for, close
from .letters import compare_letters


def _double(*values: float) -> torch.Tensor:
    return torch.tensor([float(value) for value in values], dtype=torch.float64, requires_grad=True)


@asks_for("watch(h, seen)")
def watch(answer: Callable) -> Outcome:
    x, seen = _double(1, 2, 3), []
    h = x * 2
    handle = answer(h, seen)
    weights = torch.tensor([1.0, -7.0, 2.0])
    (h * weights).sum().backward(retain_graph=True)
    if not seen:
        return wrong("The list is still empty. Register a hook on h before backward runs.")
    if x.grad is None or not close(x.grad, 2 * weights):
        return wrong("The gradient that went on was changed: a hook must return None to leave it as it is.")
    found = number_of(seen[0])
    if len(seen) != 1 or found is None or not abs(found - 7) <= 1e-6:
        return wrong(f"The list holds {in_short(seen)}; the largest absolute value of [1, -7, 2] is 7.")
    if not isinstance(handle, RemovableHandle):
        return wrong("Return the handle that register_hook gives, so that the hook can be removed.")
    (h * -weights / 7).sum().backward(retain_graph=True)
    if len(seen) != 2 or number_of(seen[1]) is None or not abs(number_of(seen[1]) - 1) <= 1e-6:
        return wrong(f"After a second backward the list holds {in_short(seen)}; 7 and 1 are wanted.")
    handle.remove()
    (h * weights).sum().backward()
    if len(seen) != 2:
        return wrong("After handle.remove() the hook still runs: return the handle of this hook.")
    return right("Seen, and left as it was.")


def _is_function_class(answer: Any) -> bool:
    return issubclass(type(answer), type) and issubclass(answer, torch.autograd.Function)


def _checked(answer: Any, *inputs: torch.Tensor) -> tuple[str, str]:
    """Return the verdict and the sentences of `check_function`."""
    try:
        found = check_function(answer, *inputs)
    except HelperError as error:
        text = str(error)
        return "refused", f"{text[:1].upper()}{text[1:].removesuffix('.')}."
    return found.verdict, str(found)


def softplus(answer: Any) -> Outcome:
    if not _is_function_class(answer):
        return wrong("A class is wanted that inherits from torch.autograd.Function.")
    x = _double(-2, 0, 0.5, 3)
    try:
        value = answer.apply(x)
    except NotImplementedError:  # the stub
        raise
    except Exception:  # check_function says what the reader's forward has raised
        return wrong(_checked(answer, x)[1])
    if not close(value, torch.log1p(x.detach().exp())):
        return wrong("Its forward is not log(1 + exp(x)).")
    verdict, text = _checked(answer, x)
    if verdict == "passes":
        return right("First and second derivatives agree with the numerical ones.")
    return wrong(text)


@asks_for("relu_backward(x, gradient)")
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
        if close(found, truth):
            continue
        if close(found, gradient.masked_fill(x.detach() < 0, 0)):
            return wrong("At 0 yours passes the gradient on, and PyTorch gives 0.")
        if close(found, (x.detach() > 0).to(truth)):
            return wrong("The gradient that arrives is missing: multiply by it.")
        return wrong(f"For x = {list(values)} PyTorch gives {truth.tolist()}, and yours {_numbers(found)}.")
    return right("Equal, also at 0 and at -0.")


def _numbers(found: torch.Tensor) -> str:
    return in_short(found if found.is_meta or found.numel() > 8 else found.tolist())


def story(answer: Any) -> Outcome:
    if not _is_function_class(answer):
        return wrong("A class is wanted that inherits from GaussianNLL.")
    mean, log_var, target = (_double(*values) for values in ((0.1, -0.4, 2), (0.3, -1.2, 0.5), (1, 0.2, -0.7)))
    target.requires_grad_(False)
    inputs = (mean, log_var, target)
    try:
        found = answer.apply(*inputs)
        if not close(found, gaussian_nll(*inputs)):
            return wrong("The forward has changed. Only backward was wrong.")
        ours = torch.autograd.grad(answer.apply(*inputs), (mean, log_var))
    except NotImplementedError:  # the stub
        raise
    except Exception:  # check_function says what is wrong with what came back
        return wrong(_checked(answer, *inputs)[1])
    theirs = torch.autograd.grad(gaussian_nll(*inputs), (mean, log_var))
    old = torch.autograd.grad(GaussianNLL.apply(*inputs), (mean, log_var))
    for name, mine, right_one, wrong_one in zip(("mean", "log_var"), ours, theirs, old, strict=True):
        if close(mine, right_one):
            continue
        if close(mine, wrong_one):
            return wrong(f"The gradient of {name} is the one from the story, and it is wrong. Derive it again.")
        if close(mine, right_one * mean.numel()):
            return wrong(f"The gradient of {name} is {mean.numel()} times too large: the loss is a mean.")
        if close(mine, -right_one):
            return wrong(f"The gradient of {name} has the wrong sign.")
        return wrong(f"The gradient of {name} is still wrong. check_function names an element and both numbers.")
    verdict, text = _checked(answer, *inputs)
    if verdict not in ("passes", "second derivative lost", "unchecked save"):  # the story needs first derivatives only
        return wrong(text)
    return right("One sign, and the loss no longer becomes NaN.")


def verdicts(answer: Any) -> Outcome:
    if type(answer) in (list, tuple) and len(answer) == 1:
        (answer,) = answer
    if not isinstance(answer, str):
        return wrong('One letter is wanted, for example "a".')
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
    formulas = {
        "gradient*x.sum()": "a",
        "gradient*x.sum()+(gradient*x).sum()": "b",
        "gradient*(x.sum()+x)": "c",
    }
    text = re.sub(r"\s|`", "", answer).lower().strip(".;")
    letter = formulas.get(re.sub(r"^([abc][.:)])?(return)?", "", text), answer)
    if len(re.findall(r"\w", letter)) != 1:
        return wrong(f"One letter is wanted, a, b or c, and {in_short(answer)} came.")
    return compare_letters(letter, truth, why, "The sum carries each change to every element.")


def _names_around(function: Any) -> dict[str, Any]:
    """Return the global names that a function sees; empty for one that is not written in Python."""
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = inspect.unwrap(function.func)
    function = getattr(function, "__func__", function)
    found = getattr(function, "__globals__", None) or getattr(type(function).__call__, "__globals__", {})
    return found if isinstance(found, dict) else {}


@asks_for("tanh(value)")
def tiny_tanh(answer: Callable) -> Outcome:
    names = _names_around(answer)
    if not names or str(names.get("__name__")).partition(".")[0] in ("torch", "numpy"):
        return wrong(
            f"{in_short(inspect.unwrap(answer))} is not a function of your own. Write tanh(value): it takes a Value, "
            "and returns one with a parent and a slope."
        )
    kind = names.get("Value")
    if not isinstance(kind, type):
        return wrong("There is no class Value where your tanh stands: run the cell that defines it first.")
    for number in (-1.5, 0.0, 0.4):
        if fault := _tanh_fault(answer, kind, number):
            return wrong(fault)
    return right("The same as PyTorch's.")


def _tanh_fault(tanh: Callable, kind: type, number: float) -> str:
    """Say what is wrong with the tanh of one number, or return nothing."""
    x = kind(number)
    y, call = tanh(x), f"tanh(Value({number}))"
    if number_of(x.data) != number:
        return f"{call} changed the data of its input from {number} to {in_short(x.data)}: make a new Value."
    if not isinstance(y, kind):
        return f"{call} returned {in_short(y)}; a Value is wanted."
    data = number_of(y.data)
    if data is None or not abs(data - math.tanh(number)) <= 1e-6:
        shown = in_short(y.data) if data is None else f"{data:.4g}"
        return f"{call}.data is {shown}; it should be {math.tanh(number):.4g}."
    if not y.parents:
        return "The result has no parents, so no gradient finds its way back."
    for part in y.parents if isinstance(y.parents, (list, tuple)) else (y.parents,):
        if not (isinstance(part, (list, tuple)) and len(part) == 2 and isinstance(part[0], kind)):
            return f"The parents hold {in_short(part)}; a list of pairs is wanted, (value, slope)."
        if number_of(part[1]) is None:
            return f"The slope is {in_short(part[1])}; a number is wanted."
    (2 * y).backward()
    leaf = _double(number)
    (2 * torch.tanh(leaf)).sum().backward()
    truth, found = leaf.grad.item(), number_of(x.grad)
    if found is not None and abs(found - truth) <= 1e-9:
        return ""
    if found is not None and abs(found - truth) <= 1e-6:
        return f"At {number} the gradient is right to 7 digits only, as in float32. Compute with Python's numbers."
    shown = in_short(x.grad) if found is None else f"{found:.4g}"
    return f"At {number} the gradient of 2 * tanh is {truth:.4g}, and yours gives {shown}."
