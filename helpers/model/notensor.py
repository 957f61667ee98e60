"""What a reader can do who gave a list, an array or a module in place of a tensor: `tensor_hint`.

Whether PyTorch takes an array depends on its dtype, its strides and whether it may be written. So PyTorch is asked,
and a hint is given only where it holds.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch


def tensor_hint(value: Any) -> str:
    """Return ": " and how to get a tensor from `value`, which is none; "" where there is no way that surely works."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    if any(isinstance(part, torch.Tensor) for part in parts):
        return ": give one of the tensors in it"
    if isinstance(value, torch.nn.Module):
        return ": give one of its parameters"
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return _array_hint(value, numpy)
    plain = (list, tuple, int, float, complex) if numpy is None else (list, tuple, int, float, complex, numpy.generic)
    if isinstance(value, plain) and _works(torch.tensor, value):
        return ": torch.tensor makes a tensor of it"
    return ""


def _array_hint(array: Any, numpy: Any) -> str:
    if not _works(torch.from_numpy, numpy.empty(1, array.dtype)):
        return f": PyTorch has no dtype for its elements, which are {array.dtype.name}"
    # A tensor could write to an array that must not be written.
    if array.flags.writeable and _works(torch.from_numpy, array):
        return ": torch.from_numpy makes a tensor on the same memory"
    why = "has a negative stride" if any(step < 0 for step in array.strides) else "can't share its memory"
    why = why if array.flags.writeable else "is read-only"
    return f": it {why}, and torch.from_numpy(a.copy()) makes a tensor of a copy"


def _works(make: Callable[[Any], torch.Tensor], value: Any) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            make(value)
    except Exception:  # whatever it is: this way is not open
        return False
    return True
