"""Questions of chapter 01: what the reader predicts, and the list of its exercises.

Each truth is computed on real torch. The checks stand in `stride_checks` and `memory_checks`.
"""

from __future__ import annotations

import numpy as np
import torch

from helpers.model.copies import find_copies

from ..quiz import Exercise, Prediction
from . import memory_checks, stride_checks


def _copied(original: torch.Tensor, result: torch.Tensor) -> int:
    """Return how many elements of `result` lie outside the storage of `original`."""
    shared = original.untyped_storage().data_ptr() == result.untyped_storage().data_ptr()
    return 0 if shared else result.numel()


def _x() -> torch.Tensor:
    return torch.arange(12).view(3, 4)


def _channels_last() -> str:
    images = _x().view(1, 3, 2, 2).to(memory_format=torch.channels_last)
    plain, last = images.is_contiguous(), images.is_contiguous(memory_format=torch.channels_last)
    if plain == last:
        return "contiguous" if plain else "not contiguous"
    return "depends on the format you ask for"


def _matmul_copies() -> str:
    f = torch.randn(64, 64)
    return "f.T @ f copies f.T first" if find_copies(lambda: f.T @ f).nbytes else "f.T @ f copies nothing"


def _view_non_contiguous() -> str:
    try:
        torch.randn(2, 3, 4).transpose(0, 1).view(3, 2, 2, 2)
    except RuntimeError:
        return "it raises"
    return "it works"


def _numpy_buffer() -> list[int]:
    buffer, seen = np.zeros(2), []
    for step in range(3):
        buffer[:] = step
        seen.append(torch.as_tensor(buffer))
    return [int(observation[0]) for observation in seen]


PREDICTIONS = {
    "view-copies": Prediction(
        lambda: _copied(x := _x(), x.view(2, 6)),
        {
            6: "A new row of the new shape is six numbers, but a row is not what view makes: it makes a new record.",
            12: "That would be a copy of the whole tensor. view returns a second tensor on the same memory.",
        },
    ),
    "data-ptr": Prediction(
        lambda: (a := torch.arange(12)).data_ptr() == a[1:].data_ptr(),
        {True: "data_ptr() is the address of the first element, and a[1:] starts one element later."},
    ),
    "new-strides": Prediction(
        lambda: str(torch.empty(2, 3, 4).stride()),
        {
            "(2, 3, 4)": "Those are the sizes. A stride says how many slots one step moves.",
            "(1, 2, 6)": "In Fortran's order the first dimension is the fastest. In torch it is the last.",
        },
    ),
    "transpose-copies": Prediction(
        lambda: _copied(x := _x(), x.T),
        {
            4: "Only a row would be four. A transpose rewrites two strides and touches no element.",
            12: "On paper you would write twelve numbers anew. Torch exchanges two strides instead.",
        },
    ),
    "expand-stride": Prediction(
        lambda: str(torch.arange(4).expand(3, 4).stride()),
        {
            "(4, 1)": "That is the stride of twelve numbers in memory. expand keeps the four there are.",
            "(1, 0)": "Then one step to the right would stay in the same slot. It is one step *down* that must stay.",
        },
    ),
    "diagonal-stride": Prediction(
        lambda: _x().diagonal().stride(0),
        {
            1: "The elements are neighbours in the result, not in memory.",
            4: "Four slots are one row down. The diagonal also goes one column on.",
        },
    ),
    "channels-last": Prediction(
        _channels_last,
        {
            "contiguous": "is_contiguous() without an argument asks for the default order, and this is another order.",
            "not contiguous": "In the order of channels_last it has no gap, and you can ask torch for that order.",
        },
    ),
    "matmul-copies": Prediction(
        _matmul_copies,
        {
            "f.T @ f copies f.T first": (
                "Matrix libraries accept a transposed operand. Torch passes the strides on, and copies nothing."
            )
        },
    ),
    "view-non-contiguous": Prediction(
        _view_non_contiguous,
        {"it raises": "view asks only that the dimensions it merges have strides that fit. Here it merges none."},
    ),
    "reshape-slice": Prediction(
        lambda: "it copies" if _copied(x := _x(), x[::2].reshape(2, 2, 2)) else "it does not copy",
        {"it copies": "The gap lies between rows, and the new shape splits inside a row. Strides can say that."},
    ),
    "slice-storage": Prediction(
        lambda: torch.arange(12)[3:7].untyped_storage().nbytes() // 8,
        {
            4: "Four is its number of elements. The storage is the block that it shares with a.",
            7: "A slice does not cut the storage, neither at its start nor at its end.",
        },
    ),
    "numpy-buffer": Prediction(
        _numpy_buffer,
        {(0, 1, 2): "as_tensor shares the memory of the array. There is one buffer, and it holds the last step."},
    ),
}

EXERCISES = {
    "ex-write-through": Exercise("1.1", "A write through a view", stride_checks.write_through),
    "ex-slot": Exercise("1.2", "From index to slot", stride_checks.slot),
    "ex-same-storage": Exercise("1.3", "The right test for shared memory", stride_checks.same_storage),
    "ex-strides": Exercise("1.4", "The product rule", stride_checks.new_strides),
    "ex-transposed": Exercise("1.5", "Transpose on paper", stride_checks.transposed),
    "ex-expand": Exercise("1.6", "Stride 0", stride_checks.expand),
    "ex-antidiagonal": Exercise("1.7", "The other diagonal", stride_checks.antidiagonal),
    "ex-channels-last": Exercise("1.8", "Strides of channels_last", stride_checks.channels_last_strides),
    "ex-copies": Exercise("1.9", "Which of these copy?", memory_checks.copying),
    "ex-viewable": Exercise("1.10", "Write is_viewable", stride_checks.is_viewable),
    "ex-lost": Exercise("1.11", "Repair a lost write", memory_checks.clip_rows),
    "ex-flatten": Exercise("1.12", "Flatten without a copy", memory_checks.flatten_pixels),
    "ex-overlap": Exercise("1.13", "Which writes are refused?", memory_checks.overlap),
    "ex-holder": Exercise("1.14", "Who holds 200 MB?", memory_checks.holder),
    "ex-snapshot": Exercise("1.15", "A real snapshot", memory_checks.snapshot),
    "ex-wasteful": Exercise("1.16", "Tensors that hold too much", memory_checks.wasteful),
}
