"""Tensors without memory, storages made smaller, wrong arguments: a picture or a sentence, never a crash."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from helpers.draw.charts import draw_cost, draw_lines
from helpers.draw.storage import draw_layout, draw_storage
from helpers.explore.layout import explore_layout
from helpers.model.finding import HelperError
from helpers.model.layout import Layout
from helpers.model.overlap import explain_overlap
from helpers.model.views import explain_view

X = torch.arange(6.0).view(2, 3)


class Raises(torch.Tensor):
    """A subclass with a mistake in its own code."""

    @classmethod
    def __torch_function__(cls, *args, **kwargs):
        raise KeyError("mine")


class Wrapper(torch.Tensor):
    """A subclass whose values lie in another tensor, as in many quantization libraries."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, *args, **kwargs):
        raise KeyError("mine")


def shrunk(nbytes: int, t: torch.Tensor) -> torch.Tensor:
    t.untyped_storage().resize_(nbytes)
    return t


@pytest.mark.parametrize("helper", [draw_layout, draw_storage, explore_layout])
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: torch.masked.masked_tensor(torch.arange(2.0), torch.tensor([True, False])),
            "a MaskedTensor came, a subclass that keeps its values in other tensors: draw one of those, such as "
            "t.get_data()",
        ),
        (lambda: Wrapper(X), "a Wrapper came, a subclass that keeps its values in other tensors: draw one of those"),
    ],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")
def test_a_tensor_without_a_storage_gets_a_sentence(helper, make, said):
    with pytest.raises(HelperError) as raised:
        helper(make())
    assert str(raised.value) == f"a picture needs a tensor with a storage, but {said}"


def test_a_subclass_that_raises_is_drawn_from_its_memory():
    t = X.clone().as_subclass(Raises)
    assert draw_layout(t, focus=1).sentence == draw_layout(X, focus=1).sentence
    assert "which holds 0., 1., 2., 3., 4., 5.; t, float32" in draw_storage(t).sentence
    panel = explore_layout(t)
    panel.receive({"changes": [["operation", "transpose"]], "token": "1-1"})
    assert panel.app.result.shape == (3, 2)
    assert Layout.of(t) == Layout.of(X)
    assert explain_view(t, (3, 2)).possible
    assert not explain_overlap(t, t).refused


@pytest.mark.parametrize("focus", [None, 0, -1, slice(1, 3), ()])
@pytest.mark.parametrize("nbytes", [0, 8])
def test_a_storage_that_is_too_small_is_drawn_with_any_focus(focus, nbytes):
    assert "4" in draw_layout(shrunk(nbytes, torch.arange(5.0)), focus=focus).html()


def test_a_storage_that_is_too_small_is_said_to_be():
    few = "the storage is too small for it and has 2 slots"
    assert draw_layout(shrunk(8, torch.arange(5.0))).sentence == (
        f"A view of shape (5,) with stride (1,) on a storage of 2 float32 slots; the view reaches to slot 4, but {few}."
    )
    cut, emptied = shrunk(8, torch.arange(5.0)), shrunk(0, torch.arange(5.0))
    assert f"cut, float32 of shape (5,) with stride (1,), needs 5 slots from 0 to 4, but {few}." in (
        draw_storage(cut).sentence
    )
    assert "needs 5 slots from 0 to 4, but the storage is too small for it and has 0 slots." in (
        draw_storage(emptied).sentence
    )


def test_a_view_that_still_fits_is_no_matter():
    t = torch.arange(5.0)
    head = t[:2]
    shrunk(8, t)
    assert draw_layout(head, focus=1).sentence.endswith("element 1 reads slot 1 and finds 1.")
    assert draw_storage(head).sentence.endswith("reads 2 slots from 0 to 1.")


@pytest.mark.parametrize("focus", [1, (None, 2), (slice(0, 2), 1), -1, (0, slice(1, 3))])
def test_a_focus_lies_where_pytorch_reads(focus):
    t = torch.arange(40.0)[3:].as_strided((2, 3), (7, 2), 5)
    index = tuple(slice(None) if part is None else part for part in (focus if isinstance(focus, tuple) else (focus,)))
    found = ", ".join(f"{value:g}" for value in t[index].flatten().tolist())
    assert f"slots {found} and finds" in draw_layout(t, focus=focus).sentence


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (5, "`names` is a list with a text for each tensor, and an int came"),
        ("ab", "`names` is a list with a text for each tensor, and a str came"),
        (["a", None], "`names` is a list with a text for each tensor, and entry 1 is None"),
        (["a", 3], "`names` is a list with a text for each tensor, and entry 1 is an int"),
        (["a", " "], "`names` is a list with a text for each tensor, and entry 1 is empty"),
        (["a"], "draw_storage takes a name for each of 2 tensors, and 1 came"),
    ],
)
def test_wrong_names_get_a_sentence(names, said):
    with pytest.raises(HelperError) as raised:
        draw_storage(X, X.t(), names=names)
    assert str(raised.value) == said
    assert "; a, float32" in draw_storage(X, X.t(), names=("a", "b")).sentence


@pytest.mark.parametrize(
    "limits", ["ab", (1,), 5, (None, 2), (math.nan, 1), (1, math.inf), (2, 1), (1, 1), (), ("0", "1"), (0, 10**400)]
)
def test_wrong_limits_get_a_sentence(limits):
    with pytest.raises(HelperError, match=r"^`y_limits` is a pair of finite numbers, the lower one first, such as"):
        draw_lines({"a": [1, 2]}, y_limits=limits)
    assert draw_lines({"a": [1, 2]}, y_limits=[0, np.float32(3)]).sentence.startswith("a: 2 steps")


def test_a_number_that_no_float_holds_gets_a_sentence():
    with pytest.raises(HelperError, match=r"^the line 'a' has a number that is too large for a float$"):
        draw_lines({"a": [10**400]})


def test_names_of_lines_need_not_be_texts_or_formulas():
    assert draw_lines({0: [1, 2], "$\\x$": [2, 1]}).sentence.startswith("0: 2 steps")
    assert draw_cost({0: len, 1: len}, sizes=[2, 3]).sentence.endswith("3×3: 0, 1.")


ODD = {
    "quantized": lambda: torch.quantize_per_tensor(torch.arange(6.0).view(2, 3), 0.1, 0, torch.quint8),
    "eight bits": lambda: torch.ones(2, 3, dtype=torch.float8_e4m3fn),
    "conjugate view": lambda: torch.ones(2, 3, dtype=torch.complex64).conj(),
    "bits": lambda: torch.empty(2, 3, dtype=torch.bits8),
    "meta": lambda: torch.empty(2, 3, device="meta"),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2, 3)),
    "negated view": lambda: torch.ones(2, 3, dtype=torch.complex64).conj().imag,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", ODD.values(), ids=ODD.keys())
def test_a_focus_finds_its_slots_in_every_kind_of_tensor(make):
    t = make()
    step = t.stride(1)
    slots = ", ".join(str(t.storage_offset() + t.stride(0) + i * step) for i in range(3))
    assert f"row 1 reads slots {slots}" in draw_layout(t, focus=1).sentence
