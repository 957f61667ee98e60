"""The derivative of an operator, measured: what its kernel does when one element of an input moves a little.

The derivative is needed where an operator has no formula for it. It is measured in float64 where the kernel gives the
same values there, and only where it is certain: few elements, the same result twice, the same slope for two steps.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import torch

MOST_ELEMENTS = 16  # of all inputs together; each takes four calls of the kernel
_STEPS = {torch.float64: (1e-4, 5e-5), torch.float32: (2e-2, 1e-2)}
_SAME_SLOPE = {torch.float64: 1e-5, torch.float32: 2e-2}

Kernel = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]
# Slopes[i][j] is the matrix of derivatives of result j (rows) by input i (columns), both flattened.
Slopes = list[list[torch.Tensor]]
_Pair = tuple[torch.Tensor, torch.Tensor]


def measure_slopes(kernel: Kernel, inputs: Sequence[torch.Tensor], seen: Sequence[torch.Tensor]) -> Slopes | None:
    """Return the derivatives of a kernel at these inputs, in float64; None where they can't be measured for certain.

    `kernel` maps inputs to results, each a list of tensors; it is called with copies. `seen` are the results that the
    reader's own call gave: a kernel that gives others now has a state of its own.
    """
    if not inputs or not seen or sum(t.numel() for t in inputs) > MOST_ELEMENTS:
        return None
    if not all(t.dtype in (torch.float32, torch.float64) and t.layout == torch.strided for t in (*inputs, *seen)):
        return None
    with torch.no_grad(), torch.random.fork_rng(devices=[]), quiet():
        for dtype in (torch.float64, torch.float32):
            try:
                slopes = _measured(kernel, [t.to(dtype) for t in inputs], seen, dtype)
            except Exception:  # a kernel that takes no float64, or that fails a little beside its inputs
                slopes = None
            if slopes is not None:
                return slopes
    return None


def depends(kernel: Kernel, inputs: Sequence[torch.Tensor], seen: Sequence[torch.Tensor]) -> bool:
    """Say whether the results change in proportion when every element of the inputs moves a little; two steps tell.

    For tensors that are too large for `measure_slopes`. False where that is not certain, as for a sum that cancels.
    """
    with torch.no_grad(), torch.random.fork_rng(devices=[]), quiet():
        try:
            values = [t.double() for t in inputs]
            first = _run(kernel, values)
            far, near = (_distance(first, _run(kernel, [t + step for t in values])) for step in (1e-4, 5e-5))
        except Exception:  # a kernel that takes no float64
            return False
    return _agree(first, seen) and near > 1e-9 and 1.8 < far / near < 2.2


def _distance(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> float:
    return sum((a.double() - b.double()).abs().sum().item() for a, b in zip(some, others, strict=True))


def _measured(kernel: Kernel, inputs: list, seen: Sequence[torch.Tensor], dtype: torch.dtype) -> Slopes | None:
    first, second = _run(kernel, inputs), _run(kernel, inputs)
    if not _agree(first, seen) or not all(torch.equal(a, b) for a, b in zip(first, second, strict=True)):
        return None
    wide, narrow = (_with_step(kernel, inputs, first, step) for step in _STEPS[dtype])
    if not all(_smooth(a, b, dtype) for x, y in zip(wide, narrow, strict=True) for a, b in zip(x, y, strict=True)):
        return None
    exact = 0.01 * _SAME_SLOPE[dtype]  # less than that is rounding
    return [[torch.where(slope.abs() < exact, 0.0, slope) for slope, _ in row] for row in narrow]


def _smooth(wide: _Pair, narrow: _Pair, dtype: torch.dtype) -> bool:
    """Say whether two steps give one slope, and the slopes to both sides come together as the step gets smaller."""
    tolerance = _SAME_SLOPE[dtype]
    same = torch.allclose(wide[0], narrow[0], rtol=tolerance, atol=tolerance)
    return same and bool((narrow[1].abs() <= 0.75 * wide[1].abs() + tolerance).all())  # nan is not less


def _with_step(
    kernel: Kernel, inputs: list[torch.Tensor], middle: list[torch.Tensor], step: float
) -> list[list[_Pair]]:
    """Return for each input and result the slopes, and how far those to the right and to the left differ."""
    rows: list[list[_Pair]] = []
    for i, t in enumerate(inputs):
        columns = []
        for element in range(t.numel()):
            high, low = (_run(kernel, _moved(inputs, i, element, move)) for move in (step, -step))
            triples = [[t.double().flatten() for t in three] for three in zip(high, middle, low, strict=True)]
            columns.append([((a - c) / (2 * step), (a - 2 * b + c) / step) for a, b, c in triples])
        of_results = zip(*columns, strict=True)
        rows.append([tuple(torch.stack(part, dim=1) for part in zip(*pairs, strict=True)) for pairs in of_results])
    return rows


def _moved(inputs: list[torch.Tensor], i: int, element: int, move: float) -> list[torch.Tensor]:
    moved = [t.clone() for t in inputs]
    moved[i].view(-1)[element] += move
    return moved


def _run(kernel: Kernel, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [t.detach().clone() for t in kernel([t.clone(memory_format=torch.contiguous_format) for t in inputs])]


def _agree(now: Sequence[torch.Tensor], seen: Sequence[torch.Tensor]) -> bool:
    return len(now) == len(seen) and all(
        a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=1e-5, atol=1e-7)
        for a, b in zip(now, seen, strict=True)
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Within the context, what the kernel prints goes nowhere: the reader's own call has printed it already."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield
