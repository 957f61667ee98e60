"""Watching a running program: profiler events, dispatch modes, and access without being watched."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import torch

from helpers.model.adapter.machinery import proves, take


def plain_access() -> Any:
    """Return a context in which tensors answer for themselves: no `__torch_function__` and no active mode is asked."""
    return take(torch, "_C", "DisableTorchFunction")()


def quiet_profiler() -> Any:
    """Return a CPU profiler that records shapes and what memory is taken and freed.

    It also tells Kineto, its engine, to keep its log off the screen.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # read once, when the first profiler of the process starts
    return torch.autograd.profiler.profile(record_shapes=True, use_cpu=True, profile_memory=True)


def profiler_label(name: str) -> Any:
    """Return a context that is one event of the profiler and no operator: no mode of the reader's is asked."""
    return take(torch, "_C", "_profiler", "_RecordFunctionFast")(name)


def profiler_running() -> bool:
    """Say whether a profiler of torch is on in this thread; to start a second one would end the first."""
    return take(torch, "autograd", "_profiler_enabled")()


def profiled_events(profiler: Any) -> list[Any]:
    """Return the outermost events of a closed `torch.autograd.profiler.profile(record_shapes=True)`.

    Each has `name` and `children`; see `event_tensors` for what it was given.
    """
    return take(profiler, "kineto_results").experimental_event_tree()


class EventTensor(NamedTuple):
    """One tensor that a profiled operator was given: shape, strides (elements) and dtype.

    `start` is the address of its storage, 0 where it has no memory of its own. `allocation` is the number of that piece
    of memory: an address that was freed and is used again has another number.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    start: int
    allocation: int | None


def event_tensors(event: Any) -> list[EventTensor]:
    """Return the tensors that a profiled operator was given, in order."""
    inputs = [i for i in getattr(take(event, "typed")[1], "inputs", ()) if hasattr(i, "strides")]
    return [
        EventTensor(
            tuple(i.sizes), tuple(i.strides), i.dtype, take(i, "storage_data_ptr") or 0, take(i, "allocation_id")
        )
        for i in inputs
    ]


def freed_allocation(event: Any) -> int | None:
    """Return the number of the piece of memory that an event of the profiler freed, or None for every other event."""
    fields = take(event, "typed")[1]
    return take(fields, "allocation_id") if getattr(fields, "alloc_size", 0) < 0 else None


@proves(plain_access)
def _plain_access_works() -> bool:
    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *_: Any, **__: Any) -> Any:
            raise AssertionError("asked")

    t = torch.ones(3).as_subclass(Loud)
    with plain_access():
        return tuple(t.shape) == (3,)


@proves(profiler_label)
@proves(profiler_running)
@proves(event_tensors)
@proves(freed_allocation)
@proves(profiled_events)
def _profiled_events_works() -> bool:
    t = torch.ones(2, 3).t()
    with quiet_profiler() as profiler:
        running = profiler_running()
        with profiler_label("labelled"):
            t.contiguous()
    (label,) = [e for e in profiled_events(profiler) if e.name == "labelled"]
    (event,) = [e for e in label.children if e.name == "aten::contiguous"]
    written, read = event_tensors(event.children[0].children[-1])
    freed = [freed_allocation(e) for e in label.children]
    seen = read[:4] == ((3, 2), (1, 3), torch.float32, t.untyped_storage().data_ptr())
    seen = seen and event.children[0].name == "aten::clone" and freed == [None, written.allocation]
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
