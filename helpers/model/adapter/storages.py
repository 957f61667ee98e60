"""Storages, views and versions, as PyTorch keeps count of them."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from helpers.model.adapter.machinery import proves, take


def storage_key(t: torch.Tensor) -> int:
    """Return a number that is the same for two living tensors exactly when they use one storage.

    `data_ptr()` would not do: it includes the offset, and it is 0 for meta tensors and for storages
    without bytes. The number is an address: compare it, never show it, and keep the tensors alive
    while you do, because a freed address is used again.
    """
    return take(unwrapped(t).untyped_storage(), "_cdata")


def storage_use_count(t: torch.Tensor) -> int:
    """Return how many owners keep this tensor's storage alive: tensors, storages, C++ code.

    The Python storage object that `untyped_storage()` returns is an owner too. There is at most one,
    it is needed to ask, and it is not counted here.
    """
    storage = unwrapped(t).untyped_storage()
    return take(torch, "_C", "_storage_Use_Count")(take(storage, "_cdata")) - 1


def weak_storage(t: torch.Tensor) -> Any:
    """Return a reference that does not keep the storage alive; its `.expired()` tells when it is gone."""
    reference = take(torch, "multiprocessing", "reductions", "StorageWeakRef")
    return reference(unwrapped(t).untyped_storage())


def same_storage(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Say whether two tensors use one storage, even when they read no common slot."""
    return storage_key(a) == storage_key(b)


# Views, as autograd keeps count of them


def is_view(t: torch.Tensor) -> bool:
    """Say whether autograd regards this tensor as a view of another.

    Not the same question as sharing a storage: `t.detach()` and `t.data` share it and are no views;
    in inference mode nothing is a view.
    """
    return take(t, "_is_view")()


def base_of(t: torch.Tensor) -> torch.Tensor | None:
    """Return the tensor that a view was taken from, the first of the chain, or None if it is not a view."""
    return take(t, "_base")


def version_of(t: torch.Tensor) -> int | None:
    """Return how often the tensor was changed in place; its views count along. None for an inference tensor."""
    return None if t.is_inference() else take(t, "_version")


# Tensors inside torch.func transforms


def unwrapped(t: torch.Tensor) -> torch.Tensor:
    """Return the tensor with a storage that lies under the wrappers of `torch.func` (vmap, grad, functionalize).

    A tensor without wrappers comes back as it is.
    """
    is_wrapped = _functorch("is_functorch_wrapped_tensor")
    while is_wrapped(t):
        t = _functorch("get_unwrapped")(t)
    return t


@cache  # to read a graph asks for each of its saved tensors
def _functorch(name: str) -> Any:
    return take(torch, "_C", "_functorch", name)


# The proofs


@proves(storage_key)
def _storage_key_works() -> bool:
    a, b = torch.ones(3, device="meta"), torch.ones(3, device="meta")
    return storage_key(a) == storage_key(a[1:]) != storage_key(b)


@proves(storage_use_count)
def _storage_use_count_works() -> bool:
    a = torch.ones(3)
    alone = storage_use_count(a)
    b = a[1:]
    with_view = storage_use_count(a)
    del b
    return (alone, with_view, storage_use_count(a)) == (1, 2, 1)


@proves(weak_storage)
def _weak_storage_works() -> bool:
    a = torch.ones(3)
    reference = weak_storage(a)
    alive = not reference.expired()
    del a
    return alive and reference.expired()


@proves(same_storage)
def _same_storage_works() -> bool:
    a = torch.ones(4)
    return same_storage(a[:2], a[2:]) and not same_storage(a, a.clone())


@proves(is_view)
def _is_view_works() -> bool:
    a = torch.ones(3)
    return is_view(a[1:]) and not is_view(a) and not is_view(a.detach())


@proves(base_of)
def _base_of_works() -> bool:
    a = torch.ones(2, 3)
    return base_of(a.t()[1:]) is a and base_of(a) is None


@proves(version_of)
def _version_of_works() -> bool:
    a = torch.ones(3)
    a[1:].add_(1)
    with torch.inference_mode():
        b = torch.ones(3)
    return version_of(a) == 1 and version_of(b) is None


@proves(unwrapped)
def _unwrapped_works() -> bool:
    a = torch.ones(2, 3)
    seen: list[torch.Tensor] = []

    def look(row: torch.Tensor) -> torch.Tensor:
        seen.append(unwrapped(row))
        return row.sum()

    torch.vmap(torch.func.grad(look))(a)
    return unwrapped(a) is a and seen[0].untyped_storage().data_ptr() == a.untyped_storage().data_ptr()
