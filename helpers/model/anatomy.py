"""One line of PyTorch, taken apart: the tensor it was given, its storage, the graph it made, the kernels it ran."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from helpers.model.adapter import dispatch_mode, operator_name
from helpers.model.finding import HelperError
from helpers.model.layout import Layout

MOST_NODES = 100


@dataclass(frozen=True)
class Anatomy:
    """What one call used. `nodes` are graph nodes from the result on; `operators` ran in this order."""

    layout: Layout
    nodes: tuple[str, ...]
    operators: tuple[str, ...]

    @classmethod
    def of(cls, fn: Callable[..., torch.Tensor], *args: Any) -> Anatomy:
        """Run `fn(*args)` once and note its parts. The layout is that of the first tensor in `args`.

        Raises HelperError when `fn` cannot be called, no tensor is given, or no tensor comes back.
        """
        if not callable(fn):
            raise HelperError(
                f"a function and its arguments are wanted, and something of type {type(fn).__name__} came"
            )
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        if not tensors:
            raise HelperError("the function needs at least one tensor among its arguments")
        try:
            result, operators = _operators(fn, args)
        except Exception as error:
            reason = str(error).strip().splitlines() or ["no message"]
            raise HelperError(f"the function raised {type(error).__name__}: {reason[0]}") from error
        if not isinstance(result, torch.Tensor):
            raise HelperError(
                f"the function should return a tensor, and it returned something of type {type(result).__name__}"
            )
        return cls(Layout.of(tensors[0]), tuple(_nodes(result)), tuple(operators))


def _operators(fn: Callable, args: tuple) -> tuple[Any, list[str]]:
    """Run `fn(*args)` and return its result with the name of every operator that reached a kernel."""
    names: list[str] = []

    class Notes(dispatch_mode()):
        def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            names.append(operator_name(func))
            return func(*args, **(kwargs or {}))

    with Notes():
        return fn(*args), names


def _nodes(result: torch.Tensor) -> list[str]:
    """Return the names of the graph's nodes in order of discovery from `result`, each node once."""
    found = [result.grad_fn] if result.grad_fn is not None else []
    for node in found:  # grows while it is read: this is the whole walk
        found += [after for after, _ in node.next_functions if after is not None and after not in found]
        if len(found) >= MOST_NODES:
            break
    return [node.name().removeprefix("torch::autograd::") for node in found[:MOST_NODES]]
