"""Questions of chapter 00: the example section, the story, and the map."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from helpers.model.finding import in_short

from ..quiz import Exercise, Outcome, Prediction, from_numpy, list_fault, number_of, right, same, wrong
from ..story import GaussianNLL, train
from .asking import came


def _row_write() -> str:
    x = torch.arange(12).view(3, 4)
    x[1][0] = 40
    return "x changes" if x[1, 0] == 40 else "x does not change"


def _story() -> str:
    losses = train(GaussianNLL.apply, steps=150)
    if all(map(math.isfinite, losses)):
        return "both train"
    return "the hand-written one fails later" if math.isfinite(losses[1]) else "the hand-written one fails at once"


PREDICTIONS = {
    "row-write": Prediction(
        _row_write,
        {"x does not change": "A slice of a Python list is a copy. A row of a tensor is a view."},
    ),
    "story": Prediction(
        _story,
        {
            "both train": "Equal values of the loss say nothing about its gradient. Training uses only the gradient.",
            "the hand-written one fails at once": (
                "A wrong gradient need not be wrong in every part. Here a part of it is right, and that part trains."
            ),
        },
    ),
}


def _check_row_slots(answer: object) -> Outcome:
    x = torch.arange(10, 22).view(3, 4)
    truth = [x.stride(0) * 2 + x.stride(1) * column for column in range(4)]
    if same(truth, sorted(answer) if isinstance(answer, (set, frozenset)) else answer):
        return right("Row 2 starts at slot 2 · 4 = 8.")
    if same([2], answer) or same(2, answer):
        return wrong("That is the number of the row. The question asks for the slots that the row reads.")
    if same([slot + 1 for slot in truth], answer) or same([4, 5, 6, 7], answer):
        return wrong("Slots and rows are counted from 0, so row 2 is the third row.")
    if same(x[2].tolist(), answer):
        return wrong(
            "Those are the numbers that the row finds. A slot is a place in memory: its number is the small one."
        )
    if fault := list_fault(answer):
        return wrong(fault)
    return wrong("Look at the small numbers in the last row of the grid in Figure 0.1.")


def _check_first_bad(answer: Callable) -> Outcome:
    nan, inf = math.nan, math.inf
    for losses, truth in [
        ([1.0, 0.5, nan, nan], 2),
        ([1.0, inf, nan], 1),
        ([nan], 0),
        ([3.0, 2.0], None),
        ([1.0, -inf], 1),
        ([2.0, 1e30, 8.0, nan], 3),
    ]:
        given = answer(list(losses))
        if given is None if truth is None else number_of(given) == truth:
            continue
        call = f"first_bad({losses}) gave {came(given)}"
        if given is not None and number_of(given) is None:
            return wrong(f"{call}; an index, which is a whole number, or None is wanted.")
        if truth is None:
            return wrong(f"{call}; all are finite there, so None is wanted.")
        if (step := number_of(given)) in range(truth):
            return wrong(f"{call}: the loss there is {losses[step]}, and that is finite.")
        if losses[truth] == inf or losses[truth] == -inf:
            return wrong(f"{call}: the loss at index {truth} is infinite, and that is bad too.")
        if given is not None:
            return wrong(
                f"{call}, and {truth} is wanted: the index of the first loss that is NaN or infinite, counted from 0."
            )
        return wrong(
            f"{call}, and {truth} is wanted: the loss there is NaN. Does the function return the index, or only print "
            "it? Does it compare with NaN? NaN == NaN is False, and math.isfinite tells."
        )
    return right("With the first bad step you know where to look, not yet why.")


# The parts in the order of the three symptoms, and all words by which the chapter names each.
WORDS = {
    "storage": ("storage", "tensor and storage"),
    "graph": ("graph", "autograd"),
    "kernel": ("kernel", "dispatcher", "dispatcher and kernel"),
}


def _check_layers(answer: object) -> Outcome:
    answer = from_numpy(answer)
    if not isinstance(answer, (list, tuple)) or len(answer) != 3:
        return wrong("A list of three words is wanted, one for each symptom.")
    for number, (expected, given) in enumerate(zip(WORDS, answer, strict=True), start=1):
        word = given.strip().lower() if isinstance(given, str) else ""
        if not any(word in words for words in WORDS.values()):
            known = "; ".join(f"for the {part}: {', '.join(map(repr, words))}" for part, words in WORDS.items())
            return wrong(f"Answer {number} is {in_short(given)}. The words are, {known}.")
        if word not in WORDS[expected]:
            because = {
                1: "The graph plays no part in saving. What is written is the block of memory behind the slice.",
                2: "Storage holds numbers, a kernel computes them. Which gradient belongs to w is the graph's work.",
                3: "The operator exists and the memory is there. What is missing is code for this backend.",
            }
            return wrong(f"Answer {number} is not {in_short(given)}. {because[number]}")
    return right("You have placed three symptoms. The chapters give you the proofs.")


EXERCISES = {
    "ex-row-slots": Exercise("0.1", "The slots of a row", _check_row_slots),
    "ex-first-bad": Exercise("0.2", "The first bad step", _check_first_bad),
    "ex-which-layer": Exercise("0.3", "Which part is it?", _check_layers),
}
