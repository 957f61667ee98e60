"""Checks of chapter 03: modes that the reader writes. Each runs beside one of our own, or a counter of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from helpers.explore.panel import in_words
from helpers.model.adapter import dispatch_mode
from helpers.model.finding import in_short, kind_of
from helpers.model.words import listed

from ..quiz import Outcome, number_of, right, wrong


class _FaultError(Exception):
    """One sentence on what is wrong with the reader's mode."""


def _made(answer: Any, kind: type, name: str, method: str, attribute: str) -> Any:
    """Return a mode of the reader's class."""
    if not (issubclass(type(answer), type) and issubclass(answer, kind)):
        came = "an instance" if isinstance(answer, kind) else in_short(answer)
        raise _FaultError(f"A class {name}({kind.__name__}) is wanted, and {came} came. Give the class itself: {name}.")
    if getattr(answer, method) is getattr(kind, method):
        raise NotImplementedError
    if isinstance(vars(answer).get(attribute), list | dict | torch.Tensor):
        raise _FaultError(
            f"{attribute} belongs to the class, so all modes of it share it: set self.{attribute} in __init__."
        )
    try:
        mode = answer()
    except Exception as error:
        raise _FaultError(f"{name}() raised {in_words(error)}.") from error
    if not hasattr(mode, attribute):
        raise _FaultError(f"{name}() has no attribute {attribute}.")
    return mode


def _run(mode: Any, name: str, program: Callable[[], Any]) -> None:
    """Run a program under the reader's mode and compare its results with those without."""
    torch.manual_seed(0)
    plain = program()
    torch.manual_seed(0)
    try:
        with mode:
            watched = program()
    except NotImplementedError:
        raise
    except Exception as error:
        raise _FaultError(
            f"Under {name} a program raised {in_words(error)}. Pass each call on with its arguments, and return what "
            "func returned."
        ) from error
    for before, after in zip(plain, watched, strict=True):
        if not isinstance(after, torch.Tensor) or before.shape != after.shape or not torch.equal(before, after):
            raise _FaultError(f"Under {name} a result is {kind_of(after)} that differs: return what func returned.")


def _checked(check: Callable[[Any], Outcome]) -> Callable[[Any], Outcome]:
    def outer(answer: Any) -> Outcome:
        try:
            return check(answer)
        except _FaultError as fault:
            return wrong(str(fault))

    return outer


class _Calls(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter = Counter()

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self.counts[func.__name__] += 1
        return func(*args, **(kwargs or {}))


@_checked
def count_calls(answer: Any) -> Outcome:
    x = torch.arange(6.0).view(2, 3)

    def program() -> list[torch.Tensor]:
        return [torch.sin(x), x.sin().sum(dim=0), torch.cat([x, x]), x.sin(), torch.full((2,), 3.0)]

    mode, ours = _made(answer, TorchFunctionMode, "Count", "__torch_function__", "counts"), _Calls()
    _run(mode, "Count", program)
    with ours:
        program()
    counts = mode.counts
    if not isinstance(counts, dict):
        return wrong(f"counts is {in_short(counts)}; a dict is wanted.")
    found: dict[Any, Any] = {}
    for key, number in counts.items():  # torch.sin and Tensor.sin are two functions of one name
        name = getattr(key, "__name__", key)
        found[name] = found[name] + number if name in found else number
    if found == dict(ours.counts):
        return right(f"{sum(ours.counts.values())} calls of {len(ours.counts)} functions.")
    different = [name for name in ours.counts if found.get(name) != ours.counts[name]]
    if different:
        name = different[0]
        shown = in_short(found[name]) if name in found else "none"
        return wrong(f"{name} was called {ours.counts[name]} times; counts has {shown}.")
    return wrong(f"counts has {listed(sorted(map(str, set(found) - set(ours.counts))), 3)}, which was not called.")


BIASED = "a linear layer with a bias"


def _flop_programs() -> dict[str, Callable[[], list[torch.Tensor]]]:
    x = torch.ones(2, 3)
    plain = torch.nn.Linear(3, 4, bias=False)
    net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1))
    heads = torch.ones(4, 2, 3)

    def trained() -> list[torch.Tensor]:
        return list(torch.autograd.grad(net(x).sum(), list(net.parameters())))

    return {
        "a product of matrices": lambda: [x @ torch.ones(3, 7)],
        "a linear layer without a bias": lambda: [plain(x)],
        BIASED: lambda: [net[0](x)],
        "two layers with their backward": trained,
        "a batch of products": lambda: [torch.bmm(heads, heads.transpose(1, 2)).softmax(-1) @ heads],
        "an addition": lambda: [x + x],
    }


@_checked
def count_flops(answer: Any) -> Outcome:
    total = 0
    for what, program in _flop_programs().items():
        mode = _made(answer, dispatch_mode(), "Flops", "__torch_dispatch__", "total")
        _run(mode, "Flops", program)
        with FlopCounterMode(display=False) as theirs:
            program()
        truth, found = theirs.get_total_flops(), number_of(mode.total)
        if found is None:
            return wrong(f"total is {in_short(mode.total)}; a number is wanted.")
        if found != truth:
            hint = " A multiply and an add count 2." if 2 * found == truth and not total else ""
            if what == BIASED:  # products were counted well
                hint = " That is addmm(bias, a, b): its matrices stand at places 1 and 2."
            return wrong(f"{what.capitalize()} takes {truth} operations; yours counts {found:g}.{hint}")
        total += truth
    return right(f"The same as torch's own counter: {total} operations in {len(_flop_programs())} programs.")


COPYING = ("aten::clone", "aten::_to_copy", "aten::copy_")


class _CopyLog(dispatch_mode()):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name = func.name().partition(".")[0]
        if name in COPYING:
            self.found.append(name)
        return func(*args, **(kwargs or {}))


@_checked
def log_copies(answer: Any) -> Outcome:
    x = torch.arange(6.0).view(2, 3)
    programs = {
        "x.T.reshape(6)": lambda: [x.T.reshape(6)],
        "x.reshape(6)": lambda: [x.reshape(6)],
        "x.T.contiguous()": lambda: [x.T.contiguous()],
        "x.contiguous()": lambda: [x.contiguous()],
        "x.double()": lambda: [x.double()],
        "torch.zeros(2, 3).copy_(x)": lambda: [torch.zeros(2, 3).copy_(x)],
        "x + x": lambda: [x + x],
    }
    for code, program in programs.items():
        mode, ours = _made(answer, dispatch_mode(), "Copies", "__torch_dispatch__", "found"), _CopyLog()
        _run(mode, "Copies", program)
        with ours:
            program()
        if not isinstance(mode.found, (list, tuple)):
            return wrong(f"found is {in_short(mode.found)}; a list of names is wanted.")
        names = [str(name).replace("aten.", "aten::").partition(".")[0] for name in mode.found]
        if names != ours.found:
            truth = listed(ours.found) or "no copying operator"
            return wrong(f"{code} calls {truth}; found has {listed(names, 4) or 'nothing'}.")
    return right("x.T.reshape(6) copies, x.reshape(6) does not.")
