"""Random layouts for the property tests of `helpers/model`, and libraries for the tests of registration."""

from __future__ import annotations

from math import prod

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch.library import Library, custom_op

from tests.model.registering import doubled, fresh_space

MOST_ELEMENTS = 300

# The same examples in every run: a red test is a change of the code, never luck.
settings.register_profile("model", derandomize=True, deadline=None, database=None, max_examples=200)


@pytest.fixture(scope="session")
def random_tensors() -> st.SearchStrategy[torch.Tensor]:
    """Tensors with random layouts, in which every element holds the number of its own slot."""
    return tensors()


@pytest.fixture(scope="session")
def random_shapes():
    """A function: shape of a tensor -> strategy of shapes to view it as, most of them of the right size."""
    return shapes


def numbered(shape, stride, offset) -> torch.Tensor:
    """Return a tensor with this layout, on a storage that holds 0, 1, 2, …"""
    last = offset + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) if prod(shape) else offset
    return torch.arange(last + 4).as_strided(shape, stride, offset)


@st.composite
def tensors(draw) -> torch.Tensor:
    way = draw(st.sampled_from((chained, strided, dense)))
    return numbered(*draw(way()))


@st.composite
def strided(draw):
    """Any sizes with any strides."""
    shape = draw(st.lists(st.integers(0, 4) | st.integers(1, 3), max_size=4))
    stride = draw(st.lists(st.integers(0, 9), min_size=len(shape), max_size=len(shape)))
    return shape, stride, draw(st.integers(0, 3))


@st.composite
def dense(draw):
    """All slots filled, the dimensions in any order (so also channels_last); sometimes one stride is off."""
    shape = draw(st.lists(st.sampled_from((0, 1, 1, 2, 2, 2, 3, 3)), min_size=3, max_size=5))
    orders = [tuple(reversed(range(len(shape)))), {3: (2, 1, 0), 4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}[len(shape)]]
    order = draw(st.sampled_from(orders) | st.permutations(range(len(shape))))
    stride, expected = [0] * len(shape), 1
    for d in order:
        stride[d] = expected
        expected *= max(shape[d], 1) if draw(st.integers(0, 5)) else shape[d]
    if draw(st.booleans()):
        d = draw(st.integers(0, len(shape) - 1))
        if shape[d] == 1 or draw(st.integers(0, 3)) == 0:
            stride[d] = draw(st.integers(0, 12))
    return shape, stride, draw(st.integers(0, 2))


@st.composite
def chained(draw):
    """What a chain of view operations makes of a contiguous tensor."""
    t = torch.empty(draw(st.lists(st.integers(0, 6) | st.integers(2, 4), max_size=4)), device="meta")
    for _ in range(draw(st.integers(0, 4))):
        t = draw(operations(t))
        if t.numel() > MOST_ELEMENTS:
            t = t.flatten(0, -1)[: MOST_ELEMENTS // 2] if t.is_contiguous() else t[:0]
    return list(t.shape), list(t.stride()), t.storage_offset()


@st.composite
def operations(draw, t: torch.Tensor) -> torch.Tensor:
    if t.ndim == 0:
        return t.unsqueeze(0).expand(draw(st.integers(0, 3)))
    d = draw(st.integers(0, t.ndim - 1))
    size = t.shape[d]
    match draw(st.integers(0, 9)):
        case 0:
            return t.permute(draw(st.permutations(range(t.ndim))))
        case 1:
            return t.transpose(d, draw(st.integers(0, t.ndim - 1)))
        case 2:
            start = draw(st.integers(0, size))
            return t.narrow(d, start, draw(st.integers(0, size - start)))
        case 3:
            cut = [slice(None)] * t.ndim
            cut[d] = slice(draw(st.integers(0, 1)), None, draw(st.integers(1, 3)))
            return t[tuple(cut)]
        case 4:
            return t.unsqueeze(d).expand(*t.shape[:d], draw(st.integers(1, 4)), *t.shape[d:])
        case 5:
            window = draw(st.integers(1, max(size, 1)))
            return t.unfold(d, window, draw(st.integers(1, 3))) if size else t
        case 6:
            other = draw(st.integers(0, t.ndim - 1))
            return t.diagonal(draw(st.integers(-1, 1)), d, other) if other != d else t
        case 7:
            return t.select(d, draw(st.integers(0, size - 1))) if size else t
        case 8:
            divisor = draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0] or [1]))
            return t.unflatten(d, (size // divisor, divisor)) if size else t
        case _:
            return t.unsqueeze(d)


@st.composite
def shapes(draw, shape) -> tuple[int, ...]:
    """Shapes to view a tensor of shape `shape` as: dimensions merged, split, with ones put in; some that do not fit."""
    new = list(shape)
    if len(new) > 1 and draw(st.booleans()):
        first = draw(st.integers(0, len(new) - 2))
        last = draw(st.integers(first + 1, len(new) - 1))
        new[first : last + 1] = [prod(new[first : last + 1])]
    for _ in range(draw(st.integers(0, 3))):
        d = draw(st.integers(0, len(new)))
        action = draw(st.integers(0, 3))
        if action == 0:
            new.insert(d, 1)
        elif action == 1 and d + 1 < len(new):
            new[d : d + 2] = [new[d] * new[d + 1]]
        elif action == 2 and d < len(new) and new[d] > 1:
            divisor = draw(st.sampled_from([n for n in range(1, new[d] + 1) if new[d] % n == 0]))
            new[d : d + 1] = [divisor, new[d] // divisor]
        elif action == 3 and 1 in new:
            new.remove(1)
    if new and draw(st.integers(0, 3)) == 0:
        new[draw(st.integers(0, len(new) - 1))] = -1
    if new and draw(st.integers(0, 9)) == 0:
        new[draw(st.integers(0, len(new) - 1))] = draw(st.integers(-2, 6))
    return tuple(new)


# Libraries and operators for the tests of registration


@pytest.fixture
def library():
    """A library in a namespace that no other test has; its registrations end with the test."""
    with torch.library._scoped_library(fresh_space(), "FRAGMENT") as lib:
        yield lib


@pytest.fixture
def made():
    """A list for the libraries that a program makes; they are destroyed in the end."""
    libraries: list[Library] = []
    yield libraries
    for lib in libraries:
        if lib.m is not None:
            lib._destroy()


@pytest.fixture
def custom():
    """A custom operator of its own for each test, with what must not outlive it."""

    def make(function=doubled, **options):
        return custom_op(f"{fresh_space()}::f", mutates_args=(), **options)(function)

    return make
