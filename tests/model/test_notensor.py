"""What came in place of a tensor: a hint is given only where PyTorch does what it says."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from helpers.model.notensor import tensor_hint

SHARED = ": torch.from_numpy makes a tensor on the same memory"
MADE = ": torch.tensor makes a tensor of it"
COPIED = ", and torch.from_numpy(a.copy()) makes a tensor of a copy"


def read_only() -> np.ndarray:
    array = np.zeros(3)
    array.flags.writeable = False
    return array


VALUES = [
    (np.zeros(3), SHARED),
    (np.array(1.0), SHARED),
    (np.zeros((4, 4)).T[::2], SHARED),
    (np.float32(1), MADE),
    (np.bool_(True), MADE),
    (np.zeros((4, 4))[::-1], f": it has a negative stride{COPIED}"),
    (np.zeros((4, 4))[:, ::-1], f": it has a negative stride{COPIED}"),
    (read_only(), f": it is read-only{COPIED}"),
    (np.zeros(3, dtype=[("a", "i1"), ("b", "<f4")])["b"], f": it can't share its memory{COPIED}"),
    (np.array(["a"]), ": PyTorch has no dtype for its elements, which are str32"),
    (np.array([None]), ": PyTorch has no dtype for its elements, which are object"),
    (
        np.array(["2024-01-01"], dtype="datetime64[D]"),
        ": PyTorch has no dtype for its elements, which are datetime64[D]",
    ),
    (np.str_("a"), ""),
    ([1, 2], MADE),
    (["a"], ""),
    ([[1], [2, 3]], ""),
    (10**400, ""),
    (True, MADE),
    ([torch.ones(2)], ": give one of the tensors in it"),
    (torch.nn.Linear(1, 1), ": give one of its parameters"),
    ({1}, ""),
    (None, ""),
]


@pytest.mark.parametrize(("value", "hint"), VALUES, ids=[repr(value)[:30] for value, _ in VALUES])
def test_a_hint_is_given_only_where_it_holds(value, hint):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tensor_hint(value) == hint
        if hint == SHARED:
            assert torch.from_numpy(value).data_ptr() == value.__array_interface__["data"][0]
        if hint == MADE:
            torch.tensor(value)
        if hint.endswith(COPIED):
            torch.from_numpy(value.copy())
