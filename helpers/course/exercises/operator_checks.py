"""Checks of chapter 06: what torch's files say, schemas of C++ functions, and kernels for a device of one's own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from helpers.course.device import array_of, hold
from helpers.explore.panel import in_words
from helpers.model.adapter import device_of_private_key, find_operator, kernel_table, operator_schema, scoped_library
from helpers.model.dispatch.operators import show_op
from helpers.model.finding import in_short
from helpers.model.words import counted

from ..quiz import Outcome, right, wrong
from .asking import asks_for, came, close
from .letters import compare_letters
from .registration_checks import SPACE, parse_complaint


def structured_work(answer: Any) -> Outcome:
    """Exercise 6.1: who does the work of tanh, and with which C++ function."""
    if not isinstance(answer, (list, tuple)) or len(answer) != 2 or not all(isinstance(part, str) for part in answer):
        return wrong(f'Two names are wanted, such as ("add.out", "add_out"), and {came(answer)} came.')
    operator, function = (part.strip().removeprefix("aten::") for part in answer)
    worker = show_op("tanh").structured
    kernel = show_op(worker).declared["CPU"]
    if (operator, function) == (kernel, worker):
        return wrong("Both names are right, in the other order: the operator first.")
    if operator == "tanh":
        return wrong("The entry of tanh has no line for CPU. Its line structured_delegate names another operator.")
    if operator != worker:
        return wrong(f"{in_short(operator)} does not do the work of tanh: read its line structured_delegate.")
    if function != kernel:
        return wrong(f"The operator is right. Under dispatch:, its entry names another function than {function!r}.")
    return right("One structured kernel serves tanh, tanh_ and tanh.out.")


_FORMULAS = {
    "a": ("exp", "exp: its gradient is grad times the result, and derivatives.yaml says so."),
    "b": ("square", "square is composed: it calls pow, and pow brings the formula."),
    "c": ("mm", "mm is no composition, so its gradient needs a formula."),
    "d": ("argmax", "argmax gives integers. A formula would have nothing to say."),
    "e": ("vstack", "vstack is composed: it calls cat, and cat brings the formula."),
    "f": ("cumsum", "cumsum has a kernel of its own, and so a formula of its own."),
}


def own_formula(answer: Any) -> Outcome:
    """Exercise 6.2: which operators have an entry in derivatives.yaml."""
    truth = {letter for letter, (name, _) in _FORMULAS.items() if show_op(name).formula}
    return compare_letters(answer, truth, {k: why for k, (_, why) in _FORMULAS.items()}, "The others need none.")


# The C++ function of exercise 6.9 in the types of a schema; the last may be left out.
_CLIPPED = ["Tensor", "float", "Optional[float]", "int"]


def cpp_schema(answer: Any) -> Outcome:
    """Exercise 6.9: the schema that fits a C++ function."""
    if not isinstance(answer, str):
        return wrong(f"A schema is wanted, a string, and {came(answer)} came.")
    if not re.match(r"\s*clip\s*\(", answer):
        return wrong('The schema starts with the operator\'s name: "clip(…".')
    for word, name in ((r"double\b", "float"), (r"int64_t\b", "int"), ("optional<", "float?"), ("at::", "Tensor")):
        if found := re.search(rf"\b{word}(?=[ *&>:A-Z]|$)", answer):
            return wrong(f"{found[0].rstrip('<')} is C++. A schema writes {name}.")
    if len(answer) > 200:
        return wrong("The schema is one short line.")
    try:
        with scoped_library(f"{SPACE}_schema", "FRAGMENT") as library:
            library.define(answer.strip())
            schema = operator_schema(find_operator(f"{SPACE}_schema::clip"))
            types, returns = [str(a.type) for a in schema.arguments], [str(a.type) for a in schema.returns]
            last = schema.arguments[-1].default_value if schema.arguments else None
    except Exception as error:
        return wrong(f"torch can't read this schema: {parse_complaint(error)}.")
    if types != _CLIPPED:
        if len(types) != len(_CLIPPED):
            return wrong(f"Your schema has {counted(len(types), 'argument')}, and the function {len(_CLIPPED)}.")
        place = next(i for i, (found, wanted) in enumerate(zip(types, _CLIPPED, strict=True)) if found != wanted)
        return wrong(f"Argument {place + 1} is {types[place]} in your schema; look at its type in the function.")
    if last != 1:
        return wrong("The last argument has the default 1 in the function: int times=1.")
    if returns != ["Tensor"]:
        return wrong("The function returns one tensor: -> Tensor.")
    if any(part.alias_info for part in (*schema.arguments, *schema.returns)):
        return wrong("The function writes nowhere and returns a new tensor: no letter in parentheses is needed.")
    return right("TORCH_LIBRARY compares the schema with the function's types and takes it.")


@asks_for("neg_out(x, *, out)")
def device_kernel(answer: Callable) -> Outcome:
    """Exercise 6.10: the next kernel for the device that the chapter opens."""
    if device_of_private_key() == "privateuseone":
        return wrong("There is no device yet: run the cell with open_device first.")
    with scoped_library("aten", "IMPL", "PrivateUse1") as library:
        library.impl("neg.out", answer)
        for values in ([1.0, -2.0, 0.0], [[3.0], [4.0]]):
            x, out = hold(np.array(values, np.float32)), hold(np.zeros(np.shape(values), np.float32))
            try:
                torch.neg(x, out=out)
            except NotImplementedError:
                raise
            except Exception as error:
                return wrong(f"torch.neg(x, out=out) on the device raised {in_words(error)}.")
            if not np.array_equal(array_of(x), np.array(values, np.float32)):
                return wrong("It wrote into x. The result belongs into the memory of out.")
            if not close(torch.from_numpy(array_of(out)), -torch.tensor(values)):
                return wrong(
                    f"For x = {values} the memory of out holds {in_short(array_of(out).tolist())}: write -x into it, "
                    "array_of(out)[...] = …"
                )
    return right("neg, neg_ and neg.out have a kernel now: the first two call the third.")


# Exercise 6.11: a call, and the operator whose kernel for the device it reaches.
_CALLS = {
    "a": ("mm.out", "x @ w reaches mm.out, and you wrote that."),
    "b": ("relu", "Nobody wrote relu for the device: the fallback runs it."),
    "c": ("sub.out", "x - y reaches sub.out, and you wrote that."),
    "d": ("exp.out", "exp calls exp.out, and nobody wrote that: the fallback runs it."),
    "e": ("as_strided", "A transpose is a view: it reaches as_strided, and you wrote that."),
}


def own_kernels(answer: Any) -> Outcome:
    """Exercise 6.11: which calls still run kernels of the reader."""
    tables = {letter: kernel_table(f"aten::{name}").get("PrivateUse1") for letter, (name, _) in _CALLS.items()}
    truth = {letter for letter, kernel in tables.items() if kernel is not None and kernel.kind == "kernel"}
    if not truth:
        return wrong("The device has no kernels yet: run the cells above first.")
    return compare_letters(
        answer, truth, {k: why for k, (_, why) in _CALLS.items()}, "A kernel comes before a fallback."
    )
