"""The rows of a layered graph, its spine, and the chains beside it. Boxes are numbers, `after` their targets."""

from __future__ import annotations

FAN = 2  # branches beside the spine that may begin at one box


def find_rows(after: list[list[int]]) -> tuple[list[int], list[int]]:
    """Return for each box the longest way from a root, and the longest way down, in steps."""
    waiting = [0] * len(after)
    for targets in after:
        for target in targets:
            waiting[target] += 1
    order = [box for box, count in enumerate(waiting) if count == 0]
    rows = [0] * len(after)
    for box in order:  # grows while it is read
        below = rows[box] + 1
        for target in after[box]:
            if rows[target] < below:
                rows[target] = below
            waiting[target] -= 1
            if not waiting[target]:
                order.append(target)
    if len(order) < len(after):
        raise ValueError("the lines form a cycle")
    heights = [0] * len(after)
    for box in reversed(order):
        if after[box]:
            heights[box] = 1 + max([heights[target] for target in after[box]])
    return rows, heights


def find_spine(after: list[list[int]], rows: list[int], heights: list[int]) -> list[int]:
    """Return the longest path; of several the one that takes the first edges."""
    if not after:
        return []
    longest = max(heights)
    box = next(n for n, height in enumerate(heights) if height == longest and rows[n] == 0)
    path = [box]
    while heights[box]:
        box = next(n for n in after[box] if heights[n] == heights[box] - 1)
        path.append(box)
    return path


def lower_branches(after: list[list[int]], rows: list[int], heights: list[int], spine: list[int]) -> list[bool]:
    """Move branches of a box with many down to where they meet the spine; return which boxes lead to the spine.

    The branches of a loop then stand beneath each other, not all of them side by side beneath the root. What leads to a
    leaf only, such as the transpose of a weight, stays with the operator that uses it.
    """
    returns, fixed, moves = [False] * len(after), [False] * len(after), [False] * len(after)
    for box in spine:
        returns[box] = fixed[box] = True
    downwards = sorted(range(len(after)), key=rows.__getitem__)
    for box in reversed(downwards):
        if not fixed[box]:
            returns[box] = any([returns[target] for target in after[box]])  # noqa: C419 (a list is faster)
    for box in downwards:
        if len(after[box]) > FAN or moves[box]:
            back = [target for target in after[box] if returns[target] and not fixed[target]]
            if len(back) > FAN or moves[box]:
                for target in back:
                    moves[target] = True
    for box in reversed(downwards):
        if moves[box]:
            back = [rows[target] for target in after[box] if returns[target] and heights[target]]
            if back:
                rows[box] = min(back) - 1
    for box in downwards:  # what hangs on a box that was moved comes with it
        for target in after[box]:
            if not returns[target] and rows[target] <= rows[box]:
                rows[target] = rows[box] + 1
    return returns


def find_chains(
    after: list[list[int]],
    rows: list[int],
    heights: list[int],
    by_row: list[int],
    placed: list[bool],
    returns: list[bool],
) -> list[list[int]]:
    """Cut the boxes that are not on the spine into chains, each from row to row, as long as they get."""
    placed = placed[:]
    chains = []
    for box in by_row:
        if placed[box]:
            continue
        placed[box] = True
        chain = [box]
        while True:
            here, best = chain[-1], -1
            for target in after[here]:
                if not placed[target] and rows[target] == rows[here] + 1 and returns[target] == returns[box]:  # noqa: SIM102
                    if best < 0 or heights[target] > heights[best]:
                        best = target
            if best < 0:
                break
            placed[best] = True
            chain.append(best)
        chains.append(chain)
    return chains
