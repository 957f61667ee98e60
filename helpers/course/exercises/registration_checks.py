"""Checks of chapter 06: schemas, kernels, fake kernels and gradients that the reader registers.

Each check defines an operator in a library of its own, hands the reader's part to it, asks torch, and takes all back.
So a cell may run any number of times, with any answers.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import torch

from helpers.explore.panel import in_words
from helpers.model.adapter import (
    find_operator,
    operator_full_name,
    operator_names,
    operator_schema,
    scoped_library,
)
from helpers.model.dispatch.trace import trace_dispatch
from helpers.model.finding import in_short
from helpers.model.words import counted

from ..quiz import Outcome, right, wrong
from .asking import asks_for, came, close
from .letters import compare_letters

SPACE = "course_check"
_number = count(1)  # each operator has a namespace of its own: what a reader leaves open disturbs no other check


@contextmanager
def _operator(schema: str, kernel: Callable | None = None) -> Iterator[tuple[Any, torch.library.Library]]:
    """Give an operator that exists inside the context only, with a kernel for the CPU, and its library."""
    with scoped_library(f"{SPACE}_{next(_number)}", "FRAGMENT") as library:
        name = library.define(schema)
        if kernel:
            library.impl(name, kernel, "CPU")
        yield find_operator(f"{library.ns}::{name.partition('.')[0]}"), library


def _complaint(operator: Any, *args: Any, tests: str) -> str:
    """Return what `torch.library.opcheck` says against an operator, without its hints for a console, or ""."""
    try:
        torch.library.opcheck(operator, args, test_utils=tests)
    except Exception as error:  # opcheck raises an error of its own around any other
        text = str(error).partition(" failed with ")[2] or in_words(error)
        return text.split(" (scroll up")[0].split("\n")[0].rstrip(".")
    return ""


def hypot_backward(answer: Any) -> Outcome:
    """Exercise 6.3: a pair of functions for `register_autograd`."""
    if not isinstance(answer, (list, tuple)) or len(answer) != 2 or not all(map(callable, answer)):
        return wrong(f"Two functions are wanted, (remember, backward), and {came(answer)} came.")
    remember, backward = answer
    x, y = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in ([3.0, 5.0], [4.0, -12.0]))
    weights = torch.tensor([1.0, 10.0], dtype=torch.float64)
    slopes = [(leaf / torch.hypot(x, y)).detach() for leaf in (x, y)]
    given, written, results = list[Any](), list[str](), list[torch.Tensor]()

    def watched(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
        with _noting_writes(written, "remember", x=inputs[0], y=inputs[1], output=output):
            remember(ctx=ctx, inputs=inputs, output=output)

    def noted(ctx: Any, gradient: torch.Tensor) -> Any:
        with _noting_writes(written, "backward", gradient=gradient, x=x, y=y, output=results[0]):
            given.append(backward(ctx, gradient))
        return given[-1]

    with _operator("hypot(Tensor x, Tensor y) -> Tensor", _numpy(np.hypot)) as (operator, library):
        torch.library.register_autograd(f"{library.ns}::hypot", noted, setup_context=watched, lib=library)
        try:
            results.append(operator(x, y))
            (results[0] * weights).sum().backward()
        except NotImplementedError:  # the stub
            raise
        except Exception as error:
            unfit = _unfit(given[0], x) if given else ""
            return wrong(unfit or f"Forward and backward with your functions raised {in_words(error)}.")
    if written:
        return wrong(f"{written[0]}: others may still use it. Compute into new tensors.")
    for name, leaf, slope, other in (("x", x, *slopes), ("y", y, *reversed(slopes))):
        if leaf.grad is None:
            return wrong(f"No gradient reached {name}. Backward returns one gradient for each input.")
        if close(leaf.grad, slope * weights):
            continue
        if close(leaf.grad, slope):
            return wrong(f"The gradient that arrives is missing in that of {name}: multiply by it.")
        if close(leaf.grad, other * weights):
            return wrong(f"The gradient of {name} is that of the other input: look at their order.")
        wanted, found = ([round(v, 4) for v in t.tolist()] for t in (slope * weights, leaf.grad))
        return wrong(f"For x = [3, 5] and y = [4, -12] the gradient of {name} is {wanted}, and yours {found}.")
    return right("Both gradients are right.")


def _unfit(gradients: Any, x: torch.Tensor) -> str:
    """Say what is wrong with what a backward returned, before any value is looked at; "" if nothing is."""
    if not isinstance(gradients, (list, tuple)) or len(gradients) != 2:
        return f"Backward returned {in_short(gradients)}; a gradient for x and one for y are wanted."
    if isinstance(gradients, list):
        return "Backward returned a list; a tuple is wanted: return a, b."
    for gradient in gradients:
        if gradient is not None and not isinstance(gradient, torch.Tensor):
            return f"Backward returned {in_short(gradient)} as a gradient; a tensor is wanted."
        if gradient is not None and gradient.shape != x.shape:
            return f"A gradient has the shape of its input, {tuple(x.shape)}; yours has {tuple(gradient.shape)}."
    return ""


@contextmanager
def _noting_writes(written: list[str], function: str, **tensors: torch.Tensor) -> Iterator[None]:
    """Note which of these tensors hold other values at the end than at the start."""
    before = {name: t.detach().clone() for name, t in tensors.items()}
    yield
    written += [
        f"Your function {function} wrote into {name}" for name, t in tensors.items() if not t.equal(before[name])
    ]


def _numpy(compute: Callable) -> Callable:
    """Return a kernel that leaves PyTorch: it computes with NumPy."""
    return lambda *tensors: torch.from_numpy(compute(*(t.detach().numpy() for t in tensors)))


@asks_for("fake(x)")
def pairs_fake(answer: Callable) -> Outcome:
    """Exercise 6.4: the fake kernel of an operator with an n × n result."""
    kernel = _numpy(lambda values: values[:, None] - values)
    for values in (torch.tensor([1.0, 2.0, 4.0]), torch.arange(5.0, dtype=torch.float64)):
        truth = kernel(values)
        meta = values.to("meta")
        found = answer(meta)
        if not isinstance(found, torch.Tensor):
            return wrong(f"It returned {in_short(found)}; a tensor is wanted, of the right shape and dtype.")
        if found.shape != truth.shape:
            return wrong(
                f"For {len(values)} numbers the kernel gives the shape {tuple(truth.shape)}, and your fake kernel "
                f"{tuple(found.shape)}."
            )
        if found.dtype != truth.dtype:
            return wrong(f"For {values.dtype} the kernel gives {truth.dtype}, and your fake kernel {found.dtype}.")
        if found.device != meta.device:
            return wrong(f"The input was on {meta.device}, your result is on {found.device}: make it from x.")
        with _operator("pairs(Tensor x) -> Tensor", kernel) as (operator, library):
            torch.library.register_fake(f"{library.ns}::pairs", answer, lib=library)
            if said := _complaint(operator, values, tests="test_faketensor"):
                return wrong(f"opcheck says: {said}.")
    return right("Shape and dtype are right for any length.")


# The kernels of exercise 6.5, for an input that is contiguous and float32.
_SUSPECTS = {
    "a": (lambda x: x.contiguous(), "x is contiguous already, so contiguous() returns x itself."),
    "b": (lambda x: x * 1, "A product is always computed into new memory, also with 1."),
    "c": (lambda x: x[0:2], "A slice is a view: the same memory, another shape."),
    "d": (lambda x: x.to(torch.float32), "x is float32 already, so to() returns x itself."),
    "e": (lambda x: x.flatten().clone(), "clone() makes new memory, whatever came before."),
    "f": (lambda x: torch.relu(x), "relu computes into new memory; only relu_ writes into x."),
}


def aliasing(answer: Any) -> Outcome:
    """Exercise 6.5: which kernels return memory of their input."""
    truth = set()
    for letter, (kernel, _) in _SUSPECTS.items():
        with _operator("suspect(Tensor x) -> Tensor", kernel) as (operator, _library):
            if "alias" in _complaint(operator, torch.ones(3), tests="test_schema"):
                truth.add(letter)
    return compare_letters(answer, truth, {k: why for k, (_, why) in _SUSPECTS.items()}, "opcheck names the same.")


def parse_complaint(error: Exception) -> str:
    """Return what torch's parser of schemas says, in one line without the address of a page."""
    return in_words(error).split("; for a full list")[0].rstrip(".:")


def _scale(x: torch.Tensor, factor: float) -> None:
    x.mul_(factor)


def mutation_schema(answer: Any) -> Outcome:
    """Exercise 6.6: a schema that tells of a write."""
    if not isinstance(answer, str):
        return wrong(f"A schema is wanted, a string, and {came(answer)} came.")
    if not re.fullmatch(r"\s*scale_\s*\(.*", answer, re.DOTALL):
        return wrong('The schema starts with the operator\'s name: "scale_(…".')
    try:
        with _operator(answer.strip(), _scale) as (operator, _library):
            schema = operator_schema(operator)
            types = [str(argument.type) for argument in schema.arguments]
            if types != ["Tensor", "float"]:
                return wrong(f"The kernel takes a Tensor and a float, and your schema {', '.join(types) or 'nothing'}.")
            if schema.returns:
                return wrong("The kernel returns nothing: -> ().")
            info = schema.arguments[0].alias_info
            if info is not None and not info.is_write:
                return wrong("Tensor(a) says that others share the memory. The ! that says 'written to' is missing.")
            if said := _complaint(operator, torch.ones(3), 2.0, tests="test_schema"):
                return wrong(f"opcheck says: {said}.")
    except Exception as error:
        return wrong(f"torch can't read this schema: {parse_complaint(error)}.")
    return right("Now PyTorch knows that the call writes into x.")


@asks_for("rule(info, in_dims, x)")
def vmap_rule(answer: Callable) -> Outcome:
    """Exercise 6.8: a batching rule for the operator `by_hand::shares`, which the chapter defines."""
    try:
        operator = find_operator("by_hand::shares")
    except KeyError:
        return wrong("There is no operator by_hand::shares yet: run the cell that defines it first.")
    given: list[Any] = []

    def noted(info: Any, in_dims: tuple, x: torch.Tensor) -> Any:
        given[:] = [answer(info, in_dims, x)]
        return given[0]

    with scoped_library("by_hand", "FRAGMENT") as library:
        torch.library.register_vmap("by_hand::shares", noted, lib=library)
        for shape, dim in (((2, 3), 0), ((2, 3), 1), ((2, 3, 2), 1)):
            x = torch.arange(1.0, 1 + math.prod(shape)).reshape(shape)
            truth = torch.stack([t / t.sum(-1, keepdim=True) for t in x.unbind(dim)])
            call = functools.partial(torch.vmap(operator, in_dims=dim), x)
            where = f"vmap over dimension {dim} of shape {shape}"
            try:
                found = call()
            except (NotImplementedError, RecursionError):
                raise
            except Exception as error:
                if given and not (isinstance(given[0], tuple) and len(given[0]) == 2):
                    return wrong(
                        f"The rule returned {in_short(given[0])}; a pair is wanted: the result, and the dimension in "
                        "which its batch lies."
                    )
                hint = " in_dims is a tuple with one entry for each argument." if "tuple" in str(error) else ""
                return wrong(f"{where} raised {in_words(error)}.{hint}")
            if not close(found, truth):
                return wrong(
                    f"{where} gives other numbers than a loop. The operator works along the last dimension: move the "
                    "batch to the front, and say where it is in the result."
                )
            runs = sum(d.operator == "by_hand::shares" and d.key == "CPU" for d in trace_dispatch(call).dispatches)
            if runs != 1:
                return wrong(f"{where} ran the kernel {counted(runs, 'time')}; one run for the whole batch is wanted.")
    return right("One run of the kernel for the whole batch.")


@asks_for("register(library)")
def missing_kernel(answer: Callable) -> Outcome:
    """Exercise 6.7: the kernel that a device lacks."""
    x = torch.tensor([1.0, 2.0, 4.0])
    with _operator("double(Tensor x) -> Tensor") as (operator, library):
        library.impl("double", lambda x: x * 2, "CUDA")
        answer(library)
        if operator_full_name(operator) not in operator_names():
            return wrong("The library is closed, and the operator is gone with it: leave it open.")
        for mode in (torch.enable_grad, torch.inference_mode):
            with mode():
                given = x.clone()
                try:
                    found = operator(given)
                except NotImplementedError as error:
                    where = " in inference mode, where no Autograd kernel runs," if mode is torch.inference_mode else ""
                    return wrong(f"A call with a CPU tensor{where} still says: {in_words(error).split('. ')[0]}.")
                except Exception as error:
                    return wrong(f"A call with a CPU tensor raised {in_words(error)}.")
            if not close(found, x * 2):
                return wrong(f"double([1, 2, 4]) gives {in_short(_shown(found))}; [2, 4, 8] is wanted.")
            if not torch.equal(given, x):
                return wrong("Your kernel writes into x, and the schema promises that it does not.")
            if found.dtype != x.dtype:
                return wrong(f"double of a float32 tensor gives {found.dtype}; float32 is wanted.")
    return right("The operator has a kernel for the CPU now.")


def _shown(found: Any) -> Any:
    return found.tolist() if isinstance(found, torch.Tensor) and not found.is_meta else found
