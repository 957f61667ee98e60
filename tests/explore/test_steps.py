"""One step of a chain: its text and its result."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.explore import steps
from helpers.explore.steps import Step
from helpers.model.layout import Layout


@pytest.mark.parametrize(
    ("step", "code"),
    [
        (Step("slice", (0, 1, 3, 1)), "[1:3]"),
        (Step("slice", (2, 0, 4, 2)), "[:, :, 0:4:2]"),
        (Step("view", ((),)), ".view(())"),
        (Step("as_strided", ((2,), (1,), 3)), ".as_strided((2,), (1,), 3)"),
        (Step("contiguous", (torch.channels_last,)), ".contiguous(memory_format=torch.channels_last)"),
    ],
)
def test_the_code_is_what_a_reader_would_type(step, code):
    assert step.code == code


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_copy_that_is_not_made_has_the_layout_of_the_real_one(data):
    shape = data.draw(st.lists(st.integers(1, 4), min_size=4, max_size=4))
    order = data.draw(st.permutations(range(4)))
    t = torch.zeros(shape).permute(order)[:, :, :: data.draw(st.integers(1, 2))]
    if data.draw(st.booleans()):
        t = t[:1].expand(3, -1, -1, -1)
    step = data.draw(
        st.sampled_from([Step("flip", (1,)), Step("contiguous", ()), Step("contiguous", (torch.channels_last,))])
    )
    real = step.apply(t)
    assert (real.data_ptr() != t.data_ptr()) == step.copies(Layout.of(t))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "MOST_COPIED", 0)
        described = step.apply(t)
    assert described.is_meta == step.copies(Layout.of(t))
    assert (described.shape, described.stride()) == (real.shape, real.stride())
    if described.is_meta:
        assert described.storage_offset() == real.storage_offset() == 0
