"""What registration and autograd's fallback leave behind: kernels without an operator, nodes that pass nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from helpers.model.adapter.dispatch import find_operator, operator_names
from helpers.model.adapter.dispatches import Seen, watch_dispatches
from helpers.model.adapter.machinery import proves, take

_NOT_IMPLEMENTED = "WarnNotImplemented"


def device_of_private_key() -> str:
    """Return the name of the device that belongs to the key PrivateUse1: "privateuseone", or what it was renamed to."""
    return take(torch, "_C", "_get_privateuse1_backend_name")()


def kernels_without_operator() -> dict[str, tuple[str, ...]]:
    """Return the operators that were never defined and have kernels all the same, each with the keys of these."""
    found = {}
    for entry in take(torch, "_C", "_dispatch_find_dangling_impls")():
        lines = entry.splitlines()
        keys = tuple(m[1] for line in lines[2:] if (m := re.match(r"(\w+)(?:\[alias\])?: registered", line)))
        found[lines[0].removeprefix("name: ")] = keys
    return found


def passes_nothing(node: Any) -> bool:
    """Say whether a node of a graph is the one that autograd's fallback makes, which gives no gradient to its inputs.

    torch adds it to the result of an operator that has no Autograd kernel and whose kernel has left autograd.
    """
    name = getattr(node, "name", None)
    return callable(name) and _NOT_IMPLEMENTED in str(name())


def at_end_of_backward(function: Callable[[], None]) -> None:
    """Call `function` when the backward that runs now in this thread is over, and every `.grad` is filled."""
    take(torch, "autograd", "Variable", "_execution_engine").queue_callback(function)


@contextmanager
def unwatched() -> Iterator[None]:
    """Within the context, `watch_dispatches` sees nothing of this thread."""
    with take(torch, "_C", "_DisablePythonDispatcher")():
        yield


# The proofs


@proves(device_of_private_key)
def _device_of_private_key_works() -> bool:
    return device_of_private_key() == torch._C._get_privateuse1_backend_name() != ""


@proves(kernels_without_operator)
def _kernels_without_operator_works() -> bool:
    with torch.library._scoped_library("adapter_proof_dangling", "FRAGMENT") as library:
        library.impl("nothing", lambda x: x, "CPU")
        found = kernels_without_operator().get("adapter_proof_dangling::nothing")
    return found == ("CPU",) and "adapter_proof_dangling::nothing" not in kernels_without_operator()


@proves(passes_nothing)
@proves(at_end_of_backward)
def _passes_nothing_works() -> bool:
    ended = []
    with torch.library._scoped_library("adapter_proof_fallback", "FRAGMENT") as library:
        library.define("f(Tensor x) -> Tensor")
        library.impl("f", lambda x: x.detach() * 1, "CPU")
        x = torch.ones(2, requires_grad=True)
        y, z = find_operator("adapter_proof_fallback::f")(x), x * 2
        z.register_hook(lambda _: at_end_of_backward(lambda: ended.append(x.grad.tolist())))
        z.sum().backward()
        return passes_nothing(y.grad_fn) and not passes_nothing(z.grad_fn) and ended == [[2.0, 2.0]]


@proves(unwatched)
def _unwatched_works() -> bool:
    seen: list[str] = []

    def visit(dispatch: Seen, go: Callable[[], Any]) -> Any:
        seen.append(dispatch.name)
        return go()

    x = torch.ones(2)
    with watch_dispatches(visit):
        with unwatched():
            x.sin()
        x.cos()
    return "aten::sin" in operator_names() and set(seen) == {"aten::cos"}
