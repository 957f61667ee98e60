"""The one place that uses private names of PyTorch.

A private name (one that begins with an underscore, or that no page of the documentation promises)
may vanish in any release. So each is used by one small function here, and nowhere else; the rest of
the course calls that function. To add one:

1. write a function that gets the name with `take(owner, "name", …)`, never with a plain dot;
2. write beside it a small test on live tensors and mark it `@proves(the_function)`.

When a name is gone, the function raises HelperError naming it, and `broken()` lists it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from helpers.model.finding import HelperError

# Name of each function below -> a callable that returns True when it still does what its docstring says.
SELF_TESTS: dict[str, Callable[[], bool]] = {}


def proves(function: Callable) -> Callable[[Callable[[], bool]], Callable[[], bool]]:
    """Register the decorated test as the proof that `function` works on this release."""

    def register(test: Callable[[], bool]) -> Callable[[], bool]:
        SELF_TESTS[function.__name__] = test
        return test

    return register


def broken() -> dict[str, str]:
    """Run every self-test; return the functions that do not work on this release, with the reason.

    Empty when all is well. Every exception is caught: whatever a changed name raises is the answer to the question.
    """
    reasons: dict[str, str] = {}
    for name, test in SELF_TESTS.items():
        try:
            if not test():
                reasons[name] = f"{name} gives a wrong answer on this torch release ({release()})"
        except Exception as error:
            reasons[name] = str(error)
    return reasons


def release() -> str:
    """Return the release of PyTorch as `major.minor`, for example `2.13`."""
    return ".".join(torch.__version__.split(".")[:2])


def take(owner: Any, *names: str) -> Any:
    """Return `owner.name.name…`, or raise HelperError that names what this release lacks.

    `owner` is the module `torch` or a live object such as a tensor.
    """
    found = owner
    for position, name in enumerate(names):
        if not hasattr(found, name):
            start = owner.__name__ if hasattr(owner, "__name__") else type(owner).__name__
            path = ".".join((start, *names[: position + 1]))
            raise HelperError(f"this torch release ({release()}) lacks {path}, a private name that this helper needs")
        found = getattr(found, name)
    return found


# Storages


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
    is_wrapped = take(torch, "_C", "_functorch", "is_functorch_wrapped_tensor")
    unwrap = take(torch, "_C", "_functorch", "get_unwrapped")
    while is_wrapped(t):
        t = unwrap(t)
    return t


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


# Watching without a trace (used by the recorder and by the walk through the reader's names)


def plain_access() -> Any:
    """Return a context in which tensors answer for themselves: no `__torch_function__` and no active mode is asked."""
    return take(torch, "_C", "DisableTorchFunction")()


def quiet_profiler() -> Any:
    """Return a CPU profiler that records shapes. It also tells Kineto, its engine, to keep its log off the screen."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # read once, when the first profiler of the process starts
    return torch.autograd.profiler.profile(record_shapes=True, use_cpu=True)


def profiler_running() -> bool:
    """Say whether a profiler of torch is on in this thread; to start a second one would end the first."""
    return take(torch, "autograd", "_profiler_enabled")()


def profiled_events(profiler: Any) -> list[Any]:
    """Return the outermost events of a closed `torch.autograd.profiler.profile(record_shapes=True)`.

    Each has `name` and `children`; see `event_tensors` for what it was given.
    """
    return take(profiler, "kineto_results").experimental_event_tree()


def event_tensors(event: Any) -> list[tuple[tuple[int, ...], tuple[int, ...], torch.dtype]]:
    """Return shape, strides (elements) and dtype of each tensor that a profiled operator was given."""
    inputs = getattr(take(event, "typed")[1], "inputs", ())
    return [(tuple(i.sizes), tuple(i.strides), i.dtype) for i in inputs if hasattr(i, "strides")]


@proves(plain_access)
def _plain_access_works() -> bool:
    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *_: Any, **__: Any) -> Any:
            raise AssertionError("asked")

    t = torch.ones(3).as_subclass(Loud)
    with plain_access():
        return tuple(t.shape) == (3,)


@proves(profiler_running)
@proves(event_tensors)
@proves(profiled_events)
def _profiled_events_works() -> bool:
    t = torch.ones(2, 3).t()
    with quiet_profiler() as profiler:
        running = profiler_running()
        t.contiguous()
    (event,) = [e for e in profiled_events(profiler) if e.name == "aten::contiguous"]
    seen = event_tensors(event) == [((3, 2), (1, 3), torch.float32)] and event.children[0].name == "aten::clone"
    return seen and running and not profiler_running()


def dispatch_mode() -> type:
    """Return the base class of modes that see every operator below autograd."""
    return take(torch, "utils", "_python_dispatch", "TorchDispatchMode")


def operator_name(operator: Any) -> str:
    """Return the name of an operator that a dispatch mode was given, such as `aten::clone`."""
    return take(operator, "_schema").name


def operator_arguments(operator: Any, args: tuple, kwargs: dict[str, Any]) -> list[tuple[Any, bool]]:
    """Return each argument that an operator was given, and whether the operator writes to it in place."""
    arguments = take(operator, "_schema").arguments
    given = [*zip(arguments, args, strict=False), *((a, kwargs[a.name]) for a in arguments if a.name in kwargs)]
    return [(value, a.alias_info is not None and a.alias_info.is_write) for a, value in given]


@proves(dispatch_mode)
@proves(operator_name)
@proves(operator_arguments)
def _dispatch_mode_works() -> bool:
    seen = []

    class Notes(dispatch_mode()):
        def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            seen.append((operator_name(func), [writes for _, writes in operator_arguments(func, args, kwargs or {})]))
            return func(*args, **(kwargs or {}))

    with Notes():
        torch.ones(3).add_(torch.ones(3))
    return seen[-1] == ("aten::add_", [True, False])
