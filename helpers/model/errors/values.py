"""The explainers of `explain_error` for what takes numbers out of a tensor: item, float, if, tolist, numpy."""

from __future__ import annotations

import re

import torch

from helpers.model.errors.failure import Answer, Failure, explains, explains_plainly
from helpers.model.errors.frames import ran
from helpers.model.words import counted


def _tensor(failure: Failure) -> torch.Tensor | None:
    """Return the tensor that was asked; None where the call was not watched."""
    return next((value for value in failure.args if isinstance(value, torch.Tensor)), None)


def _held(failure: Failure) -> str:
    """Return "6 elements (shape (2, 3))"."""
    t = _tensor(failure)
    return (
        f"{counted(t.numel(), 'element')} (shape {tuple(t.shape)})" if t is not None else "another number of elements"
    )


@explains(r"a Tensor with (\d+) elements? cannot be converted to Scalar|"
          r"only one element tensors can be converted to Python scalars")  # fmt: skip
def _one_number(match: re.Match, failure: Failure) -> Answer:
    """A Python number was asked of a tensor that holds none or several."""
    remedy = "Choose one element, or reduce first, with mean() or sum(); tolist() gives them all."
    if match[1] == "0":
        remedy = "Look at what made the tensor empty, such as a mask that is False everywhere."
    held = f"{match[1]} elements" if match[1] and _tensor(failure) is None else _held(failure)
    return (
        f"{failure.call.at}: a Python number is one element, and {failure.operand(0, 'the tensor')} has {held}",
        remedy,
    )


@explains(r"Boolean value of Tensor with (more than one value|no values?) is ambiguous")
def _truth(match: re.Match, failure: Failure) -> Answer:
    """`if`, `while`, `and`, `or`, `not` or `in` met a tensor that holds none or several values."""
    return (
        f"{failure.call.at}: if, while, and, or, not and in ask for one True or False, and the tensor has "
        f"{_held(failure)}",
        "Say what you mean: t.any() or t.all(); for each element use &, |, ~ and torch.where. For None, write "
        "t is None.",
    )


@explains(r"numpy\(\) is not supported for tensor subclasses|can't convert meta device type tensor to numpy|"
          r"item\(\) cannot be called on meta tensors|Cannot copy out of meta tensor|"
          r"Cannot access data pointer of Tensor")  # fmt: skip
def _no_values(match: re.Match, failure: Failure) -> Answer | None:
    """A tensor without values was asked for them, by the reader or by a kernel that a check runs."""
    error = failure.error
    compiled = type(error).__module__.startswith("torch._dynamo")
    if compiled or ran(error, "opcheck") or ran(error, "_dispatch_impl"):  # the last one is where fake tensors run
        return (
            f"{failure.call.at}: a kernel asks for the values of its argument, and it ran with a tensor that has only "
            "shape and dtype, as opcheck and torch.compile run it",
            'Give the operator a fake kernel, torch.library.register_fake("space::name", fn), which makes an empty '
            'result; a kernel that leaves PyTorch is registered for a device, lib.impl("name", fn, "CPU"), and not for '
            "all keys.",
        )
    t = _tensor(failure)
    if match[0].startswith("numpy()") and (t is None or not t.is_meta):
        return None  # a subclass of the reader's
    return (
        f"{failure.call.at} asks for the values of a tensor on meta, which has a shape and no values",
        "Make the tensor on a real device; a module on meta gets memory with to_empty(device=…), and values after "
        "that.",
    )


explains_plainly(
    r"only integer tensors of a single element can be converted to an index",
    "{call}: a place in a list, and range, take one whole number, and the tensor is no such number",
    "Write int(t) for one element; t.tolist() for a list of whole numbers; a tensor takes another tensor as its index.",
)
explains_plainly(
    r"unsupported format string passed to Tensor\.__format__",
    "{call}: a format such as :.2f is for one number, and the tensor has several elements",
    "Format t.item() for one element, or print the tensor as it is; torch.set_printoptions says how.",
)

# What NumPy can't hold
explains_plainly(
    r"can't convert (\w+)(?::\d+)? device type tensor to numpy",
    "{call}: {operand} is on {0}, and a NumPy array is memory of the CPU",
    "Write t.cpu().numpy().",
)
explains_plainly(
    r"can't convert (\w+) layout tensor to numpy",
    "{call}: {operand} has the layout {0}, and a NumPy array has strides",
    "Write t.to_dense().numpy().",
)
explains_plainly(
    r"Got unsupported ScalarType (\w+)",
    "{call}: NumPy has no dtype for {0}, the dtype of {operand}",
    "Write t.float().numpy(), which keeps every value; for a complex dtype t.to(torch.complex64).numpy().",
)
explains_plainly(
    r"Can't call numpy\(\) on Tensor that has (conjugate|negative) bit set",
    "{call}: {operand} is a {0} view: its memory holds other numbers than you see, and NumPy would read the memory",
    "Write t.resolve_conj().resolve_neg().numpy(), which computes them.",
)
