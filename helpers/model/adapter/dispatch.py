"""The dispatcher at rest: key sets, operators, and the kernel table of an operator.

Key sets are given as names, in the dispatcher's order: the highest priority first.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from helpers.model.adapter.machinery import proves, take
from helpers.model.finding import HelperError, kind_of

OWN = "PythonDispatcher"  # the key by which the dispatches are watched: not the reader's
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

    @property
    def file(self) -> str:
        """The name of the file with the registration, without its folder and the line."""
        return file_name(self.registered)


def file_name(registered: str) -> str:
    """Return the name of the file of a registration, without its folder and its line."""
    return re.sub(r":\d+$", "", re.split(r"[/\\]", registered)[-1])


def key_names(keys: Any) -> tuple[str, ...]:
    """Return the names of a `DispatchKeySet`, the highest priority first."""
    inside = re.search(r"\((.*)\)", repr(keys))
    return tuple(reversed(inside[1].split(", "))) if inside and inside[1] else ()


def tensor_keys(t: torch.Tensor) -> tuple[str, ...]:
    """Return the dispatch keys that a tensor carries, the highest priority first. HelperError for what is no tensor."""
    if not isinstance(t, torch.Tensor):
        raise HelperError(f"tensor_keys takes a tensor, and {kind_of(t)} came")
    return key_names(_tensor_key_set(t))


def _tensor_key_set(t: torch.Tensor) -> Any:
    return take(torch, "_C", "_dispatch_keys")(t)


def thread_keys() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the keys that this thread adds to every call, and those that it leaves out of every call."""
    return key_names(_included()), key_names(_excluded())


def _included() -> Any:
    return take(torch, "_C", "_dispatch_tls_local_include_set")().remove(key_of(OWN))


def _excluded() -> Any:
    return take(torch, "_C", "_dispatch_tls_local_exclude_set")()


def merged_keys(tensors: list[torch.Tensor]) -> tuple[str, ...]:
    """Return the keys that a call with these tensors is dispatched on now, in this thread."""
    keys = _included()
    for t in tensors:
        keys = keys | _tensor_key_set(t)
    return key_names((keys - _excluded()).remove(key_of(OWN)))


def all_keys() -> tuple[str, ...]:
    """Return every dispatch key of this release."""
    return key_names(take(torch, "_C", "_dispatch_keyset_full")())


def key_of(name: str) -> Any:
    """Return the `DispatchKey` with a name, also of the keys that torch gives no name in Python."""
    return take(torch, "_C", "_dispatch_key_parse")(name)


def operator_names() -> list[str]:
    """Return the name with overload of every registered operator, such as `aten::add.Tensor`."""
    return take(torch, "_C", "_dispatch_get_all_op_names")()


def operator_full_name(operator: Any) -> str:
    """Return the name with overload of an `OpOverload`, such as `aten::add.Tensor`; the overload "default" has none."""
    return take(operator, "_name")


def find_operator(name: str) -> Any:
    """Return the `OpOverload` with a name such as `aten::add.Tensor`; KeyError where there is none."""
    space, _, rest = name.partition("::")
    base, dot, overload = rest.partition(".")
    if dot and not overload:
        raise KeyError(name)
    try:
        return getattr(getattr(getattr(torch.ops, space), base), overload or "default")
    except (AttributeError, RuntimeError):  # torch parses the name, and complains about the form of some
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
            alias = next((a for a in _ALIASES.get(kind, ()) if has_kernel(name, a)), "")
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


def python_kernel(name: str, at: str) -> Any:
    """Return the Python function that torch registered as an operator's kernel for Meta; None for all other kernels."""
    if at != "Meta" or "_meta_registrations" not in kernel_table(name).get(at, Kernel("", "")).registered:
        return None
    tables = take(torch, "_decomp", "global_decomposition_table")
    operator = find_operator(name)
    found = (tables[kind].get(operator) for kind in ("meta", "post_autograd", "pre_autograd"))  # torch's own order
    return next((function for function in found if function is not None), None)


def has_kernel(name: str, at: str) -> bool:
    """Say whether a kernel of an operator was registered for this very key, or alias key."""
    return take(torch, "_C", "_dispatch_has_kernel_for_dispatch_key")(name, key_of(at))


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


@proves(python_kernel)
def _python_kernel_works() -> bool:
    function = python_kernel("aten::index_select", "Meta")
    made = function(torch.empty(4, 3, device="meta"), 0, torch.empty(2, device="meta", dtype=torch.int64))
    return tuple(made.shape) == (2, 3) and made.is_meta and python_kernel("aten::index_select", "CPU") is None


@proves(registrations)
def _registrations_works() -> bool:
    found = registrations("aten::add.Tensor")
    return "RegisterCPU" in found["CPU"] and "Autograd" in found and "CUDA" not in registrations("aten::linear")
