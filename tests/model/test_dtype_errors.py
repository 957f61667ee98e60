"""`explain_error` where dtypes or sizes do not fit, and where a build of torch lacks a device."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import explain_error

a, b = torch.ones(2, 2), torch.ones(2, 2, dtype=torch.float64)
whole = torch.arange(3)


class GivesNumbers(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return gradient.numpy()


FAULTS = {
    "matmul": (lambda: a @ b, "got `a` of dtype float32 and `b` of dtype float64, and its kernel takes one dtype"),
    "linear": (lambda: nn.Linear(2, 2)(b), "got `b` of dtype float64 and its parameters of dtype float32"),
    "dot": (lambda: whole @ torch.ones(3), "of dtype int64 and"),
    "bmm": (lambda: torch.bmm(a[None], b[None]), "`b[None]` of dtype float64"),
    "conv": (lambda: F.conv1d(b[None], a[None]), "`a[None]` of dtype float32"),
    "keyword": (lambda: F.linear(a, weight=b), "`b` of dtype float64"),
    "no code": (lambda: a.to(torch.float8_e4m3fn) + 1, "has no case for float8_e4m3fn: a dtype is chosen inside"),
    "mean": (lambda: whole.mean(), "got `whole` of dtype int64, and its result is no whole number"),
    "inverse": (lambda: a.long().inverse(), "of dtype int64, and its result is no whole number"),
    "embedding": (lambda: nn.Embedding(3, 2)(a), "takes whole numbers as indices or classes"),
    "classes": (lambda: F.cross_entropy(a, torch.ones(2)), "takes whole numbers as indices or classes"),
    "gather": (lambda: a.gather(0, a), "takes whole numbers as indices or classes"),
    "class": (lambda: F.cross_entropy(a, torch.tensor([0, 5])), "a class of the target is 5"),
    "cat": (lambda: torch.cat([a, torch.ones(3, 3)]), "tensor 1 has 3 where the first one has 2"),
    "stack": (lambda: torch.stack([torch.ones(2), torch.ones(3)]), "tensor 0 has [2] and tensor 1 [3]"),
    "mask": (lambda: a[torch.ones(3, dtype=torch.bool)], "it has [3], the tensor [2, 2]"),
    "state": (lambda: nn.Linear(3, 1).load_state_dict({"weight": a}), 'Missing key(s) in state_dict: "bias"; size'),
    "mps": (lambda: a.to("mps"), "asks for the device mps, and this build of torch was made without it"),
    "hpu": (lambda: a.to("hpu"), "asks for the device hpu, and this build of torch was made without it"),
    "numpy": (lambda: GivesNumbers.apply(a.clone().requires_grad_()).sum().backward(), "of type numpy.ndarray"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_does_not_fit_is_named_with_its_dtype_or_size(fault):
    if fault == "mps" and torch.backends.mps.is_available():
        pytest.skip("this machine has the device")
    function, sentence = FAULTS[fault]
    finding = explain_error(function)
    assert finding.known, finding.text
    assert sentence in finding.text
    assert finding.remedy


HEALTHY = {
    "matmul": lambda: a @ b.to(torch.float32),
    "linear": lambda: nn.Linear(2, 2)(b.to(torch.float32)),
    "add": lambda: a + b,
    "dot": lambda: whole.to(torch.float32) @ torch.ones(3),
    "mean": lambda: whole.float().mean(),
    "embedding": lambda: nn.Embedding(3, 2)(a.long()),
    "probabilities": lambda: F.cross_entropy(a, a / 2),
    "mask": lambda: a[:, torch.tensor([True, False])],
    "state": lambda: nn.Linear(2, 2).load_state_dict({"weight": a}, strict=False),
}


@pytest.mark.parametrize("twin", HEALTHY)
def test_what_the_remedy_says_raises_nothing(twin):
    assert explain_error(HEALTHY[twin]).text.endswith("raised no error.")


def test_the_remedy_names_the_dtype_of_most_and_never_whole_numbers():
    assert "Convert `whole` with .to(torch.float32)" in explain_error(lambda: whole @ torch.ones(3)).remedy
    assert "Convert `b` with .to(torch.float32)" in explain_error(lambda: nn.Linear(2, 2)(b)).remedy
