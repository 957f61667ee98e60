"""Checks of chapter 01: copies, writes, and who holds memory. Each asks torch for the truth.

A check returns `right(...)` or `wrong(...)`; what a wrong answer gets names the misconception. A
reader's function may raise: `check` catches that and names the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from math import prod
from typing import Any

import torch

from helpers.model.copies import find_copies
from helpers.model.finding import in_short, kind_of
from helpers.model.words import dtype_name

from ..quiz import Outcome, cannot_be_read, right, wrong
from .asking import equal, unchanged
from .letters import compare_letters


def copying(answer: Any) -> Outcome:
    m = torch.randn(8, 8)
    steps = {
        "a": lambda: m.T + m,
        "b": lambda: m.T.contiguous(),
        "c": lambda: m.contiguous(),
        "d": lambda: m.T.reshape(64),
        "e": lambda: m[::2].reshape(2, 2, 8),
    }
    truth = {letter for letter, step in steps.items() if find_copies(step).nbytes}
    why = {
        "a": "a makes a new result, but it reads m.T where it lies and copies no operand.",
        "b": "b copies: m.T is not contiguous.",
        "c": "c copies nothing: m is contiguous already, and contiguous() returns m itself.",
        "d": "d copies: no single stride leads through the elements of m.T in their order.",
        "e": "e copies nothing: the strides (32, 16, 1) lead to these elements in this order.",
    }
    return compare_letters(answer, truth, why, "Measured, not guessed.")


def overlap(answer: Any) -> Outcome:
    writes = {
        "a": (slice(None, 3), slice(3, None)),
        "b": (slice(None, None, 2), slice(1, None, 2)),
        "c": (slice(2, None), slice(None, 4)),
        "d": (slice(None), slice(None)),
    }
    truth = {letter for letter, (target, source) in writes.items() if _refused(target, source)}
    why = {
        "a": "a reads slots 3, 4, 5 and writes slots 0, 1, 2: none in common.",
        "b": "b reads the odd slots and writes the even ones: none in common.",
        "c": "c reads slots 0 to 3 and writes slots 2 to 5: slots 2 and 3 are both, in different places.",
        "d": "In d every slot is read for its own write, so the order does not matter, and torch allows it.",
    }
    return compare_letters(answer, truth, why, "Only a partial overlap is refused.")


def _refused(target: slice, source: slice) -> bool:
    h = torch.arange(6.0)
    try:
        h[target] = h[source]
    except RuntimeError:
        return True
    return False


def clip_rows(answer: Callable) -> Outcome:
    rows = torch.tensor([[-1.0, 2.0], [-3.0, 4.0], [5.0, -6.0]])
    for chosen in (torch.tensor([True, False, True]), torch.tensor([2, 0]), torch.tensor([False, True, False])):
        given, truth, rows_chosen = rows.clone(), rows.clone(), chosen.clone()
        truth[chosen] = truth[chosen].clamp(min=0)
        memory = given.detach()  # another tensor on the same storage: it sees what is written into it
        returned = answer(given, rows_chosen)
        if equal(given, rows):
            if isinstance(returned, torch.Tensor) and not equal(returned, rows):
                return wrong("rows has not changed: your function returns a new tensor. It should write into rows.")
            return wrong(
                "rows has not changed: nothing was written, or it went into a copy, such as the one rows[chosen] makes."
            )
        if equal(given, rows.clamp(min=0)):
            return wrong("All rows were clipped. Only the chosen ones should be.")
        if not equal(given, truth):
            return wrong(f"With chosen = {chosen.tolist()}, rows is now {_rows(given)}; {truth.tolist()} is wanted.")
        if not equal(memory, truth):
            return wrong("rows has a new storage after your function. It should write into the storage that rows had.")
        if not unchanged(rows_chosen, chosen):
            return wrong("Your function changes chosen. It should only read it.")
    return right("One assignment into rows: nothing is lost.")


def _rows(t: torch.Tensor) -> str:
    """Return the numbers of a small tensor; what is none is told by its shape."""
    if cannot_be_read(t):
        return "a tensor without numbers: its storage is gone"
    return in_short(t) if t.shape != (3, 2) else str(t.tolist())


def flatten_pixels(answer: Callable) -> Outcome:
    for shape in [(2, 3, 2, 4), (3, 2, 4, 2), (5, 4, 3, 3)]:
        images = torch.arange(float(prod(shape))).view(shape).to(memory_format=torch.channels_last)
        truth = images.permute(0, 2, 3, 1).reshape(shape[0], -1)
        before = images.clone()
        given = answer(images)
        if not unchanged(images, before):
            return wrong("Your function writes into images. It should only read them.")
        if not isinstance(given, torch.Tensor):
            return wrong(f"flatten_pixels returned {kind_of(given)}; a tensor is wanted.")
        if given.dtype != truth.dtype:
            return wrong(
                f"The dtype is {dtype_name(given.dtype)}, and that of the images is {dtype_name(truth.dtype)}."
            )
        if given.shape != truth.shape:
            return wrong(
                f"The shape is {tuple(given.shape)} for images of shape {shape}, and {tuple(truth.shape)} is wanted: "
                "one row for each image."
            )
        if equal(given, images.flatten(1)):
            return wrong(
                "That is channel by channel, and it copies. Pixel by pixel: the channels of one pixel come first."
            )
        if not equal(given, truth):
            return wrong("The numbers are in another order than pixel by pixel.")
        if given.untyped_storage().data_ptr() != images.untyped_storage().data_ptr():
            return wrong("The numbers are right, but they were copied. Permute, then use view: it never copies.")
    return right("In channels_last memory is already in this order, so it costs nothing.")


def scene() -> dict[str, torch.Tensor]:
    """Return the names of exercise 1.14: small tensors, one of which holds a block of 200 MB.

    The block is never written, so the operating system gives it no memory.
    """
    return {
        "weights": torch.zeros(64, 64),
        "bias": torch.zeros(64),
        "mask": torch.zeros(1).expand(1000, 1000),
        "first_row": torch.empty(50_000, 1000)[0],
        "table": torch.arange(4096).view(64, 64).T,
        "last": torch.zeros(64, 64)[-1],
    }


def holder(answer: Any) -> Outcome:
    names = scene()
    answer = answer.strip() if isinstance(answer, str) else answer
    if not isinstance(answer, str) or answer not in names:
        return wrong(f"A key of the dict is wanted, one of {', '.join(names)}.")
    storage = {name: t.untyped_storage().nbytes() for name, t in names.items()}
    if answer == max(storage, key=storage.get):
        return right(f"{names[answer].numel():,} elements hold a block of {storage[answer]:,} bytes.")
    if answer == max(names, key=lambda name: names[name].numel()):
        return wrong("It has the most elements, but it is expanded: they are one slot. Count the bytes of the storage.")
    return wrong(f"The storage of {answer!r} has {storage[answer]:,} bytes. One entry has {max(storage.values()):,}.")


def snapshot(answer: Callable) -> Outcome:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    taken = answer(model)
    now = model.state_dict()
    changed = [name for name in before if name not in now or not unchanged(now[name], before[name])]
    if changed or set(now) != set(before):
        name = changed[0] if changed else min(set(now) - set(before))
        return wrong(f"Your function changes the model: {name!r} is different after it.")
    if not all(module.training for module in model.modules()):
        return wrong("Your function changes the model: it is in eval mode after it.")
    if not all(parameter.requires_grad for parameter in model.parameters()):
        return wrong("Your function changes the model: a parameter no longer requires a gradient.")
    if not hasattr(taken, "keys") or set(taken.keys()) != set(before):
        return wrong("A dict with all names of state_dict() is wanted, the buffers' names included.")
    for name, tensor in before.items():
        if not isinstance(taken[name], torch.Tensor):
            return wrong(f"The value of {name!r} is {kind_of(taken[name])}; a tensor is wanted.")
        if cannot_be_read(taken[name]):
            return wrong(f"The value of {name!r} is no plain tensor with numbers in slots.")
        if taken[name].shape != tensor.shape:
            shapes = tuple(taken[name].shape), tuple(tensor.shape)
            return wrong(f"{name!r} has shape {shapes[0]} in your snapshot, and {shapes[1]} in the model.")
        if not equal(taken[name], tensor):
            return wrong(f"{name!r} in your snapshot does not have the numbers that the model has.")
        if taken[name].dtype != tensor.dtype:
            kinds = dtype_name(taken[name].dtype), dtype_name(tensor.dtype)
            return wrong(f"{name!r} is {kinds[0]} in your snapshot, and {kinds[1]} in the model.")
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.add_(1)
    follows = [name for name in before if not equal(taken[name], before[name])]
    if follows:
        return wrong(
            f"{follows[0]!r} follows the model: it shares its storage. A new dict still holds the same tensors."
        )
    return right("No step of the model reaches the storages of your snapshot.")


def wasteful(answer: Callable) -> Outcome:
    big = torch.zeros(100, 100)
    tensors = {
        "whole": big,
        "row": big[0],
        "most": big[:60],
        "transposed": big.T,
        "expanded": torch.zeros(1).expand(50, 50),
        "clone": big[0].clone(),
        "fifth": torch.zeros(10)[:2],
        "exactly_half": torch.zeros(10)[:5],
        "int64_most": torch.zeros(10, dtype=torch.int64)[:9],
        "int8_third": torch.zeros(12, dtype=torch.int8)[:4],
        "float16_third": torch.zeros(12, dtype=torch.float16)[:4],
        "int8_tenth": torch.zeros(40, dtype=torch.int8)[:4],
        "five_of_twelve": torch.zeros(12)[:5],
        "detached_row": torch.zeros(4, 4)[0].detach(),
        "last_of_five": torch.zeros(5, 4)[-1],
        "two_columns": torch.zeros(5, 5)[:, ::3],
    }
    truth = {name for name, t in tensors.items() if t.untyped_storage().nbytes() > 2 * t.nbytes}
    given = answer(dict(tensors))
    if isinstance(given, (str, dict)) or not isinstance(given, Iterable):
        return wrong(f"wasteful returned {kind_of(given)}; a set of names is wanted.")
    entries = list(islice(given, 100))
    if others := [entry for entry in entries if not isinstance(entry, str)]:
        return wrong(
            f"wasteful returned {kind_of(given)} that holds {in_short(others[0])}; a set of names is wanted, which are "
            "the keys of the dict, such as 'row'."
        )
    given = set(entries)
    for size in (1, 2, 4, 8):
        if given != {name for name, t in tensors.items() if t.untyped_storage().nbytes() > 2 * t.numel() * size}:
            continue
        if size == 1:
            return wrong(
                "You compare bytes with elements: nbytes() and size() of a storage count bytes, numel() does not."
            )
        return wrong(f"You count {size} bytes for every element. That depends on the dtype: ask element_size().")
    if missing := sorted(truth - given):
        t = tensors[missing[0]]
        return wrong(f"{missing[0]!r} is missing: {t.nbytes:,} bytes on a storage of {t.untyped_storage().nbytes():,}.")
    if extra := sorted(given - truth, key=str):
        if "expanded" in extra:
            return wrong("'expanded' has a storage that is smaller than its elements: nothing is wasted there.")
        return wrong(f"{in_short(extra[0])} does not hold more than twice its size.")
    return right("Run it on the weights of a model you use.")
