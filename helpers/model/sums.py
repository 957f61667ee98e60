"""Arithmetic of strides: which slots can a few dimensions reach, and in how many ways?

A dimension of size n and stride s adds one of 0, s, 2s, …, (n − 1)s to the slot. A list of *steps*
holds one pair (size, stride) for each dimension, sizes above 1 and strides above 0. No torch here.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, prod

from helpers.model.finding import HelperError

# `count_sums` marks sums in a row of bits where no shorter way exists. So many bits take 128 MiB.
MOST_MARKS = 2**30


def span(steps: list[tuple[int, int]]) -> int:
    """Return the largest sum; the smallest is 0."""
    return sum((n - 1) * s for n, s in steps)


def solve(rest: int, steps: list[tuple[int, int]]) -> Iterator[tuple[int, ...]]:
    """Yield every choice of one number for each dimension with which the steps add up to `rest`.

    `steps` come with the largest stride first; strides are positive. Only numbers that leave a rest
    within the span of the later dimensions, and that is a multiple of their common divisor, are tried.
    """
    if not steps:
        if rest == 0:
            yield ()
        return
    (size, stride), later = steps[0], steps[1:]
    common = gcd(*(s for _, s in steps))
    if rest % common:
        return
    least = max(-(-(rest - span(later)) // stride), 0)  # rounded up
    # With later dimensions, every `every`-th number leaves a multiple of their common divisor.
    every = gcd(*(s for _, s in later)) // common if later else 1
    right = rest // common * pow(stride // common, -1, every) % every if every > 1 else 0
    for i in range(least + (right - least) % every, min(rest // stride, size - 1) + 1, every):
        yield from ((i, *others) for others in solve(rest - i * stride, later))


def count_sums(steps: list[tuple[int, int]]) -> int:
    """Return how many different sums there are. `steps` come with the smallest stride first.

    Four rules, the cheap ones first:
    1. Two dimensions merge when the sums of both are evenly spaced without a gap.
    2. When the strides of the slow dimensions have a common divisor beyond the span of the fast ones,
       no sum can be made in two ways that differ in the slow ones: the counts multiply.
    3. Two dimensions a, b make one sum twice exactly when a goes up by stride(b) / g and b goes down
       by stride(a) / g, where g is the common divisor: count the pairs that have no such predecessor.
    4. Otherwise mark the sums in a row of bits, dimension by dimension, doubling the number of steps.
    """
    steps = merged(steps)
    for k in range(1, len(steps)):
        if gcd(*(s for _, s in steps[k:])) > span(steps[:k]):
            return count_sums(steps[:k]) * count_sums(steps[k:])
    if len(steps) <= 1:
        return prod(n for n, _ in steps)
    common = gcd(*(s for _, s in steps))
    if len(steps) == 2:
        (n, s), (m, r) = steps
        return n * m - max(n - r // common, 0) * max(m - s // common, 0)
    if span(steps) // common >= MOST_MARKS:
        raise HelperError(
            f"too many slots to count: {len(steps)} dimensions of interleaved steps spread over {span(steps) + 1}"
        )
    marks = 1
    for n, s in steps:
        done = 1
        while done < n:
            more = min(done, n - done)
            marks |= marks << more * (s // common)
            done += more
    return marks.bit_count()


def merged(steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join dimensions whose sums together are one evenly spaced row (rule 1 of `count_sums`)."""
    for b in range(1, len(steps)):
        for a in range(b):
            (n, s), (m, r) = steps[a], steps[b]
            if r % s == 0 and r <= n * s:
                joined = (n + (m - 1) * (r // s), s)
                return merged([*steps[:a], joined, *steps[a + 1 : b], *steps[b + 1 :]])
    return steps
