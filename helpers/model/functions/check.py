"""Is the backward of this function right, and if not, why not? `check_function`.

`torch.autograd.gradcheck` answers with two columns of numbers that do not match. There are many reasons for that, and
a wrong formula is only one. Here each reason has an experiment of its own, run on copies of the reader's inputs:
twice on the same values, once with a recorded backward, once with inputs changed in place, and then in float64.
"""

from __future__ import annotations

import contextlib
import io
import random
import warnings
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch.autograd import Function

from helpers.model.adapter import version_of
from helpers.model.finding import HelperError, in_short
from helpers.model.functions.faults import forward_failed, probe_backward, warned_dirty
from helpers.model.functions.precision import copied, precise
from helpers.model.functions.runs import Trial, nodes
from helpers.model.functions.saves import unchecked
from helpers.model.functions.words import FunctionFinding, Subject, number, subject_of
from helpers.model.layout import no_strides
from helpers.model.watch import NotRunError, first_line, require_callable, tensors_in
from helpers.model.words import dtype_name

_REPEATS = 6  # a run of dropout on one element is like another run in half of all cases
_SLOW = 0.3  # seconds for a run; what takes longer is repeated once


def check_function(fn: Callable, *inputs: Any) -> FunctionFinding:
    """Compare the first and second derivatives of `fn(*inputs)` with numerical ones, and say why they differ.

    `fn` is `SomeFunction.apply`, the Function class itself, a module or a plain function. The tensors among `inputs`
    that need a gradient are differentiated; all else is passed on. The function runs many times, on copies: inputs,
    their gradients, modules and the states of random numbers stay as they are, and what it prints is dropped. Inputs of
    up to 500 numbers are compared element by element, larger ones in random directions.

    Raises HelperError when `fn` cannot be called, when no input needs a gradient, or when no tensor comes back.
    """
    fn, cls = _callable(fn)
    subject = subject_of(fn, cls, inputs, _wanted(fn, cls, inputs))
    with _undisturbed():
        return _checked(subject)


def _callable(fn: Any) -> tuple[Callable, type[Function] | None]:
    if isinstance(fn, type) and issubclass(fn, Function):
        return fn.apply, fn
    owner = None
    with contextlib.suppress(Exception):  # a __getattr__ of the reader's may raise anything
        owner = getattr(fn, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, Function) and getattr(fn, "__name__", "") == "apply":
        return fn, owner
    if isinstance(fn, Function):
        raise HelperError(f"an instance of {type(fn).__name__} came: give {type(fn).__name__}.apply")
    if not callable(fn):
        raise HelperError(
            f"check_function takes a function and its inputs, check_function(f, x), and {in_short(fn)} came"
        )
    require_callable(fn, "check_function")
    return fn, None


def _wanted(fn: Callable, cls: type[Function] | None, inputs: tuple) -> tuple[int, ...]:
    """Return the positions of the inputs that need a gradient, or raise HelperError."""
    if not inputs:
        raise HelperError("check_function needs the inputs too, check_function(f, x), and none came")
    names = subject_of(fn, cls, inputs, ()).names
    tensors = [(k, t) for k, t in enumerate(inputs) if isinstance(t, torch.Tensor)]
    which = tuple(k for k, t in tensors if t.requires_grad)
    for k in which:
        if (why := no_strides(inputs[k])) is not None:
            raise HelperError(f"check_function takes dense tensors, and for {names[k]} {why}")
        if inputs[k].is_meta:
            raise HelperError(f"check_function compares values, and {names[k]} is a meta tensor, which has none")
    if which and all(inputs[k].numel() == 0 for k in which):
        raise HelperError(
            f"there is nothing to compare: {names[which[0]]} is {in_short(inputs[which[0]])}, it is empty"
        )
    if which:
        return which
    if not tensors:
        inside = ": give the tensors in it as arguments of their own" if tensors_in(inputs) else ""
        raise HelperError(
            f"check_function compares gradients, and no input is a tensor: {in_short(inputs[0])} came{inside}"
        )
    k, t = tensors[0]
    if t.is_floating_point() or t.is_complex():
        hint = f"call requires_grad_() on {names[k]} first"
    else:
        hint = f"{names[k]} is {dtype_name(t.dtype)}, and only floating and complex tensors have a gradient"
    raise HelperError(f"check_function compares gradients, and no input needs one: {hint}")


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Put the states of random numbers back, drop warnings and prints, and record a graph in any mode."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with (
            torch.random.fork_rng(devices=devices),
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _checked(subject: Subject) -> FunctionFinding:
    trial = copied(subject)
    before = [t.clone() for t in trial.given]
    try:
        start = perf_counter()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _, args, results = trial.run()
        subject.slow = perf_counter() - start > _SLOW
    except NotRunError:
        raise
    except Exception as error:  # the reader's error is the answer
        return forward_failed(subject, error, _changes(subject, trial))
    if not results:
        raise HelperError(f"{subject.name} returned no tensor, so there is nothing to differentiate")
    if finding := warned_dirty(subject, caught, _moved(subject, args)):
        return finding
    if finding := _changed(subject, before, args, results):
        return finding
    if not any(t.requires_grad for t in results):
        return _no_graph(subject, results)
    try:
        return _compared(subject, trial)
    except HelperError:
        raise
    except Exception as error:  # the reader's function, where no traceback from here would help
        return FunctionFinding(
            verdict="forward raises",
            text=f"{subject.name} runs on the inputs, and a small step beside the inputs or in another run it raises "
            f"{type(error).__name__}: {first_line(error)}.",
            remedy="Check with inputs around which it runs too.",
            facts={"error": type(error).__name__},
        )


def _compared(subject: Subject, trial: Trial) -> FunctionFinding:
    if finding := _random_forward(subject, trial):
        return finding
    if finding := probe_backward(subject, trial):
        return finding
    if finding := _random_backward(subject, trial):
        return finding
    return unchecked(subject, trial, precise(subject, trial))


def _changes(subject: Subject, trial: Trial) -> str:
    """Return the name of an input that forward changes in place before it fails, or nothing."""
    passed: list[Any] = []
    watching = Trial(lambda *args: (passed.extend(args), trial.fn(*args))[1], trial.args, trial.which)
    with contextlib.suppress(Exception):
        watching.run()
    return _moved(subject, passed)


def _moved(subject: Subject, passed: list) -> str:
    return next((n for n, t in zip(subject.names, passed, strict=False) if _version(t)), "")


def _version(t: Any) -> int:
    return (version_of(t) or 0) if isinstance(t, torch.Tensor) else 0


def _changed(subject: Subject, before: list, args: list, results: list) -> FunctionFinding | None:
    """Find an input that forward changed in place where autograd does not see it."""
    for k, was in zip(subject.which, before, strict=True):
        t, name = args[k], subject.names[k]
        moved = not torch.allclose(t.detach(), was, rtol=0, atol=0, equal_nan=True)
        # What autograd saw has given the tensor another node; the copy's own node is that of clone.
        if not (moved or _version(t)) or type(t.grad_fn).__name__ != "CloneBackward0":
            continue
        at = int((t.detach() != was).flatten().int().argmax())
        values = f"{number(was.flatten()[at].item())} → {number(t.detach().flatten()[at].item())}"
        how = f"a value: {values}, version 0 → {_version(t)}" if moved else f"version 0 → {_version(t)}"
        custom = subject.cls or any(isinstance(n, torch.autograd.function.BackwardCFunction) for n in nodes(results))
        text = (
            f"The forward of {subject.name} changes its input `{name}` in place ({how}) without ctx.mark_dirty, so "
            "autograd does not know of it."
            if custom
            else f"{subject.name} changes its input `{name}` in place ({how}) where autograd does not see it."
        )
        remedy = f"Call `ctx.mark_dirty({name})` in forward and return `{name}`, or compute on a copy."
        return FunctionFinding(
            verdict="missing mark_dirty",
            text=text,
            remedy=remedy if custom else "Compute on a copy, or outside of torch.no_grad and without .data.",
            argument=name,
            facts={"version": _version(t)},
        )
    return None


def _no_graph(subject: Subject, results: list[torch.Tensor]) -> FunctionFinding:
    floating = [t for t in results if t.is_floating_point() or t.is_complex()]
    if floating:
        why = f", so no gradient reaches `{subject.argument(0)}`"
        remedy = (
            "Leave out what cuts the graph: detach, .data, .item(), .numpy(), torch.no_grad, mark_non_differentiable."
        )
    else:
        why = f": it is {dtype_name(results[0].dtype)}, and only floating and complex tensors have a gradient"
        remedy = "Return a floating tensor."
    text = f"{subject.name} returns a result without a graph{why}."
    return FunctionFinding(
        verdict="returns a result without a graph", text=text, remedy=remedy, argument=subject.argument(0)
    )


def _random_forward(subject: Subject, trial: Trial) -> FunctionFinding | None:
    first = None
    for _ in range(2 if subject.slow else _REPEATS):
        values = trial.value(trial.x)
        first = values if first is None else first
        if values.shape != first.shape:
            text = f"{len(first)} elements came first and {len(values)} in a later run"
            return _two_runs(subject, "forward", text, trial)
        if (at := _apart(first, values, trial)) is not None:
            text = (
                f"element {at} of the result was {number(float(first[at]))} first and {number(float(values[at]))} in "
                "a later run"
            )
            return _two_runs(subject, "forward", text, trial)
    return None


def _random_backward(subject: Subject, trial: Trial) -> FunctionFinding | None:
    ones = torch.ones(len(trial.value(trial.x)), dtype=torch.float64)
    first = trial.pull(trial.x, ones)
    for _ in range(2 if subject.slow else _REPEATS):
        again = trial.pull(trial.x, ones)
        if (at := _apart(first, again, trial)) is not None:
            text = (
                f"the gradient of {subject.label(trial, at)} was {number(float(first[at]))} first and "
                f"{number(float(again[at]))} in a later run"
            )
            return _two_runs(subject, "backward", text, trial)
    return None


def _apart(a: torch.Tensor, b: torch.Tensor, trial: Trial) -> int | None:
    """Return the first element that two runs do not agree on, beyond the rounding of a sum in another order."""
    eps = max(torch.finfo(t.dtype).eps for t in trial.given)
    off = ~torch.isclose(a, b, rtol=64 * eps, atol=64 * eps * float(a.nan_to_num(0, 0, 0).abs().max()), equal_nan=True)
    return int(off.nonzero()[0]) if off.any() else None


def _two_runs(subject: Subject, what: str, text: str, trial: Trial) -> FunctionFinding:
    ones = torch.ones(len(trial.value(trial.x)), dtype=torch.float64)
    seeded = []
    for _ in range(3):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        seeded.append(trial.value(trial.x) if what == "forward" else trial.pull(trial.x, ones))
    same = all(s.shape == seeded[0].shape and torch.equal(s, seeded[0]) for s in seeded)
    why = "it draws random numbers" if same else "also with the same seed, so it keeps something between runs"
    remedy = (
        "Give it the random numbers as an argument, or seed inside of the function while you check it."
        if same
        else "Keep nothing between runs: compute from the arguments only."
    )
    return FunctionFinding(
        verdict="non-deterministic",
        text=f"Two runs of the {what} of {subject.name} on the same input differ ({why}): {text}.",
        remedy=remedy,
        facts={"where": what, "seeded runs agree": same},
    )
