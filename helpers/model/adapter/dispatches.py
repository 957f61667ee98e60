"""The dispatcher in motion: every dispatch of a running call, in a release build of torch.

While torch's Python dispatcher is on, C++ asks `OpOverload._get_dispatch` what to call for a key. Here stands an answer
that notes the dispatch, and then runs the kernel that C++ would have run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch

from helpers.model.adapter.dispatch import kernel_table, key_of, operator_full_name, operator_schema
from helpers.model.adapter.machinery import proves, take
from helpers.model.adapter.watching import plain_access


class Seen(NamedTuple):
    """One dispatch while it happens: an operator with overload, the winning key, and the live arguments."""

    operator: Any
    key: str
    args: tuple
    kwargs: dict[str, Any]

    @property
    def name(self) -> str:
        return operator_full_name(self.operator)


Visitor = Callable[[Seen, Callable[[], Any]], Any]
_visitors = threading.local()  # .all: the visitors of this thread, the innermost last
_patching = threading.Lock()
_patches = 0  # how many `watch_dispatches` are open in all threads
_original: Any = None


@contextmanager
def watch_dispatches(visit: Visitor) -> Iterator[None]:
    """Within the context, every dispatch and redispatch of this thread passes through `visit(seen, go)`.

    `visit` must call `go()` once and return what it returns. The operator runs the kernel that it would run unwatched.
    Contexts may be nested; nothing stays patched after the last. Calls that C++ code makes without the dispatcher are
    not seen, nor is the step that follows BackendSelect in a factory function.
    """
    turn_on = take(torch, "_C", "_EnablePythonDispatcher")
    stack = _visitors.__dict__.setdefault("all", [])
    _patch(+1)
    stack.append(visit)
    try:
        if len(stack) > 1:  # it is on already, as far as the reader's code left it on
            yield
        else:
            with turn_on():
                yield
    finally:
        stack.remove(visit)
        _patch(-1)


def _patch(change: int) -> None:
    """Count the open contexts; put the watching method in place for the first, and take it away after the last."""
    global _patches, _original
    overload = take(torch, "_ops", "OpOverload")
    with _patching:
        if _patches == 0:
            _original = take(overload, "_get_dispatch")
            _clear_caches()  # what torch remembers it does not ask for again
            overload._get_dispatch = _watched
        _patches += change
        if _patches == 0:
            overload._get_dispatch = _original
            _clear_caches()  # other threads may have filled some


def _clear_caches() -> None:
    for operator in list(take(torch, "_ops", "get_cached_ops")()):
        take(operator, "_dispatch_cache").clear()


def _watched(operator: Any, key: Any) -> Any:
    """Stand in for `OpOverload._get_dispatch`: return what is to be called for a key, and let nothing be cached."""
    visitors = _visitors.__dict__.get("all")
    if not visitors:  # another thread, which uses the Python dispatcher for something else
        found = _original(operator, key)
        take(operator, "_dispatch_cache").pop(key, None)  # remembered, it would not be asked for in our thread either
        return found

    def handler(*args: Any, **kwargs: Any) -> Any:
        seen = Seen(operator, take(torch, "_C", "_dispatch_key_name")(key), args, kwargs)
        go: Callable[[], Any] = lambda: _run_kernel(seen)  # noqa: E731 (the first of a chain of calls)
        for visit in visitors:
            go = _wrapped(visit, seen, go)
        return go()

    return handler


def _wrapped(visit: Visitor, seen: Seen, go: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: visit(seen, go)


def _run_kernel(seen: Seen) -> Any:
    """Run the kernel of the key, as C++ would; where there is none, the operator itself, for torch's own error."""
    name = seen.name
    kernel = kernel_table(name).get(seen.key)
    if kernel is None:
        with take(torch, "_C", "_DisablePythonDispatcher")():
            return seen.operator(*seen.args, **seen.kwargs)
    # An alias must be resolved first: `_op_dk` with a key whose slot holds an alias kernel ends the process.
    key = key_of(kernel.alias or seen.key)
    run = take(seen.operator, "_op_dk")
    # A TorchFunctionMode was asked when the call left Python; only code in Python would ask it again.
    asked = nullcontext() if ".py:" in kernel.registered else plain_access()
    try:
        with asked:
            return run(key, *seen.args, **seen.kwargs)
    except RuntimeError as error:
        if "but instead found type" not in str(error) or not (numbers := _numbers_for_tensors(seen)):
            raise
        tensors = {name: _as_tensor(value, seen) for name, value in numbers.items()}
    names = [argument.name for argument in operator_schema(seen.operator).arguments]
    args = [tensors.get(name, value) for name, value in zip(names, seen.args, strict=False)]
    with plain_access():
        return run(key, *args, **seen.kwargs | {name: t for name, t in tensors.items() if name in seen.kwargs})


def _numbers_for_tensors(seen: Seen) -> dict[str, Any]:
    """Return the numbers that stand where the schema has a tensor.

    C++ code may hand a number on as a tensor that is marked as a number. Python sees the number itself, which only some
    operators take back.
    """
    arguments = operator_schema(seen.operator).arguments
    types = {argument.name: str(argument.type) for argument in arguments}
    given = [*zip(types, seen.args, strict=False), *seen.kwargs.items()]
    return {n: v for n, v in given if "Tensor" in types[n] and isinstance(v, bool | int | float | complex)}


def _as_tensor(number: Any, seen: Seen) -> torch.Tensor:
    """Return a number as a tensor, in a dtype with which the operator computes as it does with the number."""
    arguments = operator_schema(seen.operator).arguments
    given = [*zip((a.name for a in arguments), seen.args, strict=False), *seen.kwargs.items()]
    written = {a.name for a in arguments if a.alias_info and a.alias_info.is_write}
    others = [value for name, value in given if isinstance(value, torch.Tensor) and name not in written]
    with take(torch, "_C", "_DisablePythonDispatcher")():  # these calls are not the reader's
        wide = {float: torch.float64, complex: torch.complex128}.get(type(number))
        t = torch.tensor(number, dtype=wide)
        right = torch.result_type(others[0], number) if others else t.dtype
        return t if not others or torch.result_type(others[0], t) == right else t.to(right)


# The proof


@proves(watch_dispatches)
def _watch_dispatches_works() -> bool:
    seen: list[tuple[str, str]] = []

    def visit(dispatch: Seen, go: Callable[[], Any]) -> Any:
        seen.append((dispatch.name, dispatch.key))
        return go()

    x = torch.ones(2)
    before = torch._ops.OpOverload._get_dispatch
    with watch_dispatches(visit):
        y = x + x
    same = torch.equal(y, torch.full((2,), 2.0)) and torch._ops.OpOverload._get_dispatch is before
    return same and seen == [("aten::add.Tensor", "AutogradCPU"), ("aten::add.Tensor", "CPU")]
