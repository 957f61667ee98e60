"""The dispatcher: key sets, the kernel table of an operator, and every dispatch of a running call.

Key sets are given as names, in the dispatcher's order: the highest priority first.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from helpers.model.adapter.machinery import proves, take

_OWN = "PythonDispatcher"  # the key by which the dispatches are watched: not the reader's
_LINE = re.compile(r"(\w+): (fallthrough )?(?:registered (?:at|by) )?(.*?)(?: \[([\w ]+)\])?$")
# How the table names a kernel that came from an alias key -> the alias keys that may hold it.
_ALIASES = {
    "math kernel": ("CompositeImplicitAutograd",),
    "nested kernel": ("CompositeImplicitAutogradNestedTensor",),
    "batched kernel": ("FuncTorchBatchedDecomposition",),
    "default backend kernel": ("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd"),
    "autograd kernel": ("Autograd",),
}


class Kernel(NamedTuple):
    """What the dispatcher calls for one operator at one key.

    `kind` is the dispatcher's own word: "kernel" (registered for this very key), "autograd kernel", "math kernel"
    (CompositeImplicitAutograd), "default backend kernel" (CompositeExplicitAutograd), "backend fallback" and others.
    `fallthrough`: it is no code, the key is skipped. `registered` is the file and line of the block that registered
    it, which differs between releases. `alias` is the alias key that it was registered for, or "".
    """

    kind: str
    registered: str
    fallthrough: bool = False
    alias: str = ""


class Seen(NamedTuple):
    """One dispatch while it happens: an operator with overload, the winning key, and the live arguments."""

    operator: Any
    key: str
    args: tuple
    kwargs: dict[str, Any]

    @property
    def name(self) -> str:
        return operator_full_name(self.operator)


def key_names(keys: Any) -> tuple[str, ...]:
    """Return the names of a `DispatchKeySet`, the highest priority first."""
    inside = re.search(r"\((.*)\)", repr(keys))
    return tuple(reversed(inside[1].split(", "))) if inside and inside[1] else ()


def tensor_keys(t: torch.Tensor) -> tuple[str, ...]:
    """Return the dispatch keys that a tensor carries."""
    return key_names(_tensor_key_set(t))


def _tensor_key_set(t: torch.Tensor) -> Any:
    return take(torch, "_C", "_dispatch_keys")(t)


def thread_keys() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the keys that this thread adds to every call, and those that it leaves out of every call."""
    return key_names(_included()), key_names(_excluded())


def _included() -> Any:
    return take(torch, "_C", "_dispatch_tls_local_include_set")().remove(_key(_OWN))


def _excluded() -> Any:
    return take(torch, "_C", "_dispatch_tls_local_exclude_set")()


def merged_keys(tensors: list[torch.Tensor]) -> tuple[str, ...]:
    """Return the keys that a call with these tensors is dispatched on now, in this thread."""
    keys = _included()
    for t in tensors:
        keys = keys | _tensor_key_set(t)
    return key_names((keys - _excluded()).remove(_key(_OWN)))


def all_keys() -> tuple[str, ...]:
    """Return every dispatch key of this release."""
    return key_names(take(torch, "_C", "_dispatch_keyset_full")())


def _key(name: str) -> Any:
    return take(torch, "_C", "DispatchKey", name)


def operator_names() -> list[str]:
    """Return the name with overload of every registered operator, such as `aten::add.Tensor`."""
    return take(torch, "_C", "_dispatch_get_all_op_names")()


def operator_full_name(operator: Any) -> str:
    """Return the name with overload of an `OpOverload`, such as `aten::add.Tensor`; the overload "default" has none."""
    return take(operator, "_name")


def find_operator(name: str) -> Any:
    """Return the `OpOverload` with a name such as `aten::add.Tensor`; KeyError where there is none."""
    space, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    try:
        return getattr(getattr(getattr(torch.ops, space), base), overload or "default")
    except AttributeError:
        raise KeyError(name) from None


def operator_schema(operator: Any) -> Any:
    """Return the `FunctionSchema` of an `OpOverload`: `arguments` and `returns`, with names, types, alias_info."""
    return take(operator, "_schema")


def kernel_table(name: str) -> dict[str, Kernel]:
    """Return what the dispatcher calls for an operator at each key; keys without a kernel are left out."""
    return _parsed(name, take(torch, "_C", "_dispatch_dump_table")(name))


@lru_cache(maxsize=512)
def _parsed(name: str, table: str) -> dict[str, Kernel]:
    found: dict[str, Kernel] = {}
    for line in table.splitlines():
        if match := _LINE.match(line):
            key, fallthrough, where, kind = match.groups()
            alias = next((a for a in _ALIASES.get(kind, ()) if _has_kernel(name, a)), "")
            found[key] = Kernel(kind or "kernel", where, bool(fallthrough), alias)
    return found


def registrations(name: str) -> dict[str, str]:
    """Return the keys and alias keys that kernels were registered for, each with the place of its registration."""
    lines = take(torch, "_C", "_dispatch_dump")(name).splitlines()
    found = {}
    for line in lines:
        if match := re.match(r"(\w+)(\[alias\])?(?: \(\w+\))?: (?:fallthrough )?registered (?:at|by) (.*?) ::", line):
            found.setdefault(match[1], match[3])  # a second line for a key is a kernel that was replaced
    return found


def _has_kernel(name: str, key: str) -> bool:
    return take(torch, "_C", "_dispatch_has_kernel_for_dispatch_key")(name, _key(key))


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
        return _original(operator, key)

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
    own = _has_kernel(name, seen.key)
    key = _key(kernel.alias if kernel.alias and not own else seen.key)
    return take(seen.operator, "_op_dk")(key, *seen.args, **seen.kwargs)


# The proofs


@proves(key_names)
@proves(tensor_keys)
def _tensor_keys_works() -> bool:
    keys = _tensor_key_set(torch.ones(2))
    names, order = key_names(keys), []
    while key_names(keys):
        highest = keys.highestPriorityTypeId()
        order.append(take(torch, "_C", "_dispatch_key_name")(highest))
        keys = keys.remove(highest)
    return names == tuple(order) == tensor_keys(torch.ones(3)) and names[-1] == "CPU"


@proves(thread_keys)
@proves(merged_keys)
def _merged_keys_works() -> bool:
    t = torch.ones(2)
    included, excluded = thread_keys()
    with torch.autocast("cpu", torch.bfloat16):
        cast = merged_keys([t])
    plain = merged_keys([t])
    return "BackendSelect" in included and "AutocastCPU" in excluded and "AutocastCPU" in cast and (
        "AutocastCPU" not in plain and plain[0] == "AutogradCPU"
    )  # fmt: skip


@proves(all_keys)
def _all_keys_works() -> bool:
    return {"CPU", "Meta", "AutogradCPU", "PrivateUse1"} <= set(all_keys())


@proves(operator_names)
@proves(find_operator)
@proves(operator_full_name)
@proves(operator_schema)
def _find_operator_works() -> bool:
    add = find_operator("aten::add.Tensor")
    return (
        operator_full_name(add) == "aten::add.Tensor"
        and operator_full_name(add) in operator_names()
        and find_operator("aten::linear") is torch.ops.aten.linear.default
        and [a.name for a in operator_schema(add).arguments] == ["self", "other", "alpha"]
    )


@proves(kernel_table)
def _kernel_table_works() -> bool:
    add, linear = kernel_table("aten::add.Tensor"), kernel_table("aten::linear")
    return (
        (add["CPU"].kind, add["AutogradCPU"].kind, add["AutogradCPU"].alias)
        == ("kernel", "autograd kernel", "Autograd")
        and add["ADInplaceOrView"].fallthrough
        and linear["AutogradCPU"][::3] == ("math kernel", "CompositeImplicitAutograd")
        and linear["AutocastCPU"].kind == "kernel"
    )


@proves(registrations)
def _registrations_works() -> bool:
    found = registrations("aten::add.Tensor")
    return "RegisterCPU" in found["CPU"] and "Autograd" in found and "CUDA" not in registrations("aten::linear")


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
