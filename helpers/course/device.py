"""A device without hardware for chapter 6: its memory is NumPy arrays, and it has the kernels that you write.

PyTorch holds of each tensor only the shape and the dtype. The array lies on the tensor's storage, as an attribute
`memory`; so `detach`, which makes a new tensor on the same storage, finds it too. Limits, which a device in C++
does not have: the tensor's strides are always those of contiguous memory, and views made by a kernel are copies. And
PyTorch must not copy the storage itself, which holds no bytes: `copy.deepcopy(t)` and `t.untyped_storage().clone()` end
the process. `t.clone()` copies.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from helpers.model.adapter import (
    close_library,
    device_of_private_key,
    empty_on_private_device,
    make_python_device,
)
from helpers.model.finding import HelperError, in_short, kind_of

_UNNAMED = "privateuseone"
# Kept as a table: asking torch would run operators, and a trace of the reader's kernels would show them.
_DTYPES = {np.dtype(str(kind).removeprefix("torch.")): kind for kind in (
    torch.float64, torch.float32, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
    torch.bool, torch.complex64, torch.complex128,
)}  # fmt: skip
_open: dict[str, torch.library.Library] = {}  # by namespace: aten for kernels, _ for a fallback


def open_device(name: str) -> torch.library.Library:
    """Give the key PrivateUse1 to a device of this name, and return an empty library for kernels of torch's operators.

    Called again, it takes back all that was registered through this library and `fallback_library`. Raises HelperError
    for another name than the first one, because a process can have one such device; and where backward has run before
    there was a device.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[a-z]\w*", name):
        raise HelperError(f"a device has a name in small letters such as 'abacus', not {in_short(name)}")
    now = device_of_private_key()
    if now not in (_UNNAMED, name):
        raise HelperError(
            f"this process has the device {now!r} already, and a process can have one: restart the kernel"
        )
    if now == _UNNAMED:
        try:
            make_python_device(name)
        except RuntimeError as error:  # "cpu", "cuda" and other names that torch uses itself
            raise HelperError(f"torch takes no device of the name {name!r}: {str(error).splitlines()[0]}") from None
    for space in list(_open):
        close_library(_open.pop(space))
    _start_its_thread(name)
    return _opened("aten")


def fallback_library() -> torch.library.Library:
    """Return an empty library for the device's fallback. Called again, it takes back the fallback from before."""
    if device_of_private_key() == _UNNAMED:
        raise HelperError("there is no device yet: call open_device first")
    if "_" in _open:
        close_library(_open.pop("_"))
    return _opened("_")


def _opened(space: str) -> torch.library.Library:
    _open[space] = torch.library.Library(space, "IMPL", "PrivateUse1")
    return _open[space]


def _start_its_thread(name: str) -> None:
    """Let autograd start its threads, one for each device that there is at the first backward of a process."""
    try:
        hold(1.0).requires_grad_().backward(hold(1.0))
    except NotImplementedError:
        pass  # autograd's thread for the device ran, and found no kernel to copy the gradient with
    except RuntimeError:
        raise HelperError(
            f"backward has run in this process before there was a device {name!r}, and autograd's threads start once: "
            "restart the kernel and open the device first"
        ) from None


def hold(array: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a tensor of the device whose memory is this NumPy array, or a copy of it in another dtype.

    A number becomes an array without dimensions. Raises HelperError where there is no device yet, and for a dtype that
    NumPy does not have.
    """
    if device_of_private_key() == _UNNAMED:
        raise HelperError("there is no device yet: call open_device first")
    array = np.asarray(array)
    if dtype is not None and dtype not in _DTYPES.values():
        raise HelperError(f"the device can't hold {in_short(dtype)}: NumPy has no such dtype")
    if dtype is not None:
        array = array.astype(next(name for name, kind in _DTYPES.items() if kind == dtype), copy=False)
    if array.dtype not in _DTYPES:
        raise HelperError(f"the device can't hold an array of dtype {array.dtype}: PyTorch has no such dtype")
    t = empty_on_private_device(array.shape, _DTYPES[array.dtype])
    t.untyped_storage().memory = array
    return t


def array_of(value: Any) -> Any:
    """Return the array that is the memory of a tensor of the device; a number, as kernels get it too, as it is.

    A tensor on the CPU gives its own memory as an array. Raises HelperError for anything else.
    """
    if isinstance(value, (bool, int, float, complex)):
        return value
    if not isinstance(value, torch.Tensor):
        raise HelperError(f"array_of wants a tensor of the device or a number, not {kind_of(value)}")
    if value.device.type == "cpu":
        return value.detach().numpy()
    memory = getattr(value.untyped_storage(), "memory", None)
    if memory is None:
        raise HelperError(f"this tensor on {value.device.type} has no memory: a kernel made it without hold")
    return memory


def to_host(value: Any) -> Any:
    """Return a kernel's argument as the CPU can use it: each tensor of the device as one of the CPU on the same memory.

    Lists, tuples and dictionaries are gone through; the device itself becomes the CPU; all else stays as it is.
    """
    if isinstance(value, torch.Tensor) and value.device.type == device_of_private_key():
        return torch.from_numpy(array_of(value))
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return _through(value, to_host)


def to_device(value: Any) -> Any:
    """Return a kernel's result with each tensor of the CPU as one of the device, on the same memory."""
    if isinstance(value, torch.Tensor):
        return hold(value.detach().numpy())
    return _through(value, to_device)


def _through(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(change, value))
    if isinstance(value, dict):
        return {key: change(entry) for key, entry in value.items()}
    return value
