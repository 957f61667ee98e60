"""`explain_error` where numbers are taken out of a tensor: item, float, if, an index, NumPy, a kernel in a check."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

from helpers import explain_error

x = torch.ones(2, 3)
one = torch.tensor(2.5)


def condition():
    return "all" if x > 0 else "some"


def member():
    return x in [x + 1, 2]


FAULTS = {
    "item": (lambda: x.item(), "a Python number is one element, and `x` has 6 elements (shape (2, 3))"),
    "loss": (lambda: torch.nn.MSELoss(reduction="none")(x, x).item(), "has 6 elements (shape (2, 3))"),
    "float": (lambda: float(x), "`float(x)`"),
    "math": (lambda: math.sqrt(x), "a Python number is one element"),
    "empty": (lambda: x[:0].item(), "has 0 elements (shape (0, 3))"),
    "if": (condition, "`x > 0` (line 2 of condition()): if, while, and, or, not and in ask for one True or False"),
    "in": (member, "the tensor has 6 elements (shape (2, 3))"),
    "index": (lambda: [1, 2, 3][x], "take one whole number"),
    "format": (lambda: f"{x:.2f}", "is for one number"),
    "meta item": (lambda: x.to("meta").sum().item(), "a tensor on meta, which has a shape and no values"),
    "meta numpy": (lambda: x.to("meta").numpy(), "a tensor on meta, which has a shape and no values"),
    "sparse": (lambda: x.to_sparse().numpy(), "has the layout Sparse"),
    "bfloat16": (lambda: x.bfloat16().numpy(), "NumPy has no dtype for BFloat16"),
    "conjugate": (lambda: x.cfloat().conj().numpy(), "is a conjugate view"),
    "negative": (lambda: x.cfloat().conj().imag.numpy(), "is a negative view"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_taking_numbers_out_of_a_tensor_is_explained_with_what_it_holds(fault):
    function, sentence = FAULTS[fault]
    finding = explain_error(function)
    assert finding.known
    assert sentence in finding.text
    assert finding.remedy


HEALTHY = {
    "item": lambda: one.item(),
    "if": lambda: bool((x > 0).all()),
    "index": lambda: [1, 2, 3][torch.tensor(1)],
    "format": lambda: f"{one:.2f}",
    "sparse": lambda: x.to_sparse().to_dense().numpy(),
    "bfloat16": lambda: x.bfloat16().float().numpy(),
    "conjugate": lambda: x.cfloat().conj().resolve_conj().resolve_neg().numpy(),
    "negative": lambda: x.cfloat().conj().imag.resolve_conj().resolve_neg().numpy(),
}


@pytest.mark.parametrize("twin", HEALTHY)
def test_what_the_remedy_says_raises_nothing(twin):
    assert explain_error(HEALTHY[twin]).text.endswith("raised no error.")


def test_an_exception_that_was_caught_tells_at_least_the_number_of_elements():
    with pytest.raises(RuntimeError) as caught:
        x.item()
    assert "has 6 elements" in explain_error(caught.value).text


@pytest.mark.parametrize("key", ["CompositeImplicitAutograd", "CompositeExplicitAutograd"])
def test_a_kernel_that_asks_for_numbers_in_a_check_is_told_to_have_a_fake_kernel(library, key):
    library.define("cosh(Tensor x) -> Tensor")
    library.impl("cosh", lambda t: torch.from_numpy(np.cosh(t.detach().numpy())), key)
    cosh = getattr(torch.ops, library.ns).cosh.default
    finding = explain_error(lambda: torch.library.opcheck(cosh, (x,)))
    assert "ran with a tensor that has only shape and dtype" in finding.text
    assert "register_fake" in finding.remedy
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.compile(lambda t: cosh(t), backend="aot_eager", fullgraph=True)(x)
        except Exception as error:
            told = explain_error(error)
    assert "ran with a tensor that has only shape and dtype" in told.text


def test_the_kernel_with_a_fake_kernel_passes_the_check(library):
    library.define("cosh(Tensor x) -> Tensor")
    library.impl("cosh", lambda t: torch.from_numpy(np.cosh(t.detach().numpy())), "CPU")
    torch.library.register_fake(f"{library.ns}::cosh", torch.empty_like, lib=library)
    cosh = getattr(torch.ops, library.ns).cosh.default
    assert explain_error(lambda: torch.library.opcheck(cosh, (x,))).text.endswith("raised no error.")
