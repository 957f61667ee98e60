"""Faults in how an autograd.Function is written, apart from its formula, for `check_function`.

Every one is found by running the function. What backward returns is recorded in a class that inherits from the
reader's own; torch's messages are used where it refuses.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch.autograd import Function

from helpers.model.adapter import version_of
from helpers.model.functions.runs import Trial
from helpers.model.functions.words import (
    FunctionFinding,
    Subject,
    argument_names,
    backward_name,
    class_called,
    dirty_names,
    values,
)
from helpers.model.watch import first_line, raised_finding
from helpers.model.words import dtype_name, quoted


def forward_failed(subject: Subject, error: Exception, changed: str) -> FunctionFinding:
    """Return the finding for an error on the way to the result; `changed` names an input changed in place."""
    message = first_line(error)
    cls = subject.cls or class_called(subject.fn)
    if _STRANGE in message or (not changed and "marked as dirty" in message):
        return strangely_dirty(subject, changed)
    if not changed and "in-place operation" in message and _strange_names(cls):
        return strangely_dirty(subject, changed)
    if "marked as dirty" in message:
        name = f"`{cls.__name__}`" if cls else subject.name
        return FunctionFinding(
            verdict="missing mark_dirty",
            text=f"The forward of {name} changes its input `{changed}` in place and marks it dirty, and does not "
            f"return `{changed}`.",
            remedy=f"Return `{changed}` itself, or compute on a copy and leave out ctx.mark_dirty.",
            argument=changed,
            facts={"error": message},
        )
    return raised_finding(subject.cls or subject.fn, error, FunctionFinding, verdict="forward raises")


_STRANGE = "received a tensor that was not an input"  # torch raises with it, or only warns


def warned_dirty(subject: Subject, caught: list, changed: str) -> FunctionFinding | None:
    """Return the finding for torch's warning that ctx.mark_dirty was given something else than an input."""
    return strangely_dirty(subject, changed) if any(_STRANGE in str(w.message) for w in caught) else None


def strangely_dirty(subject: Subject, changed: str) -> FunctionFinding:
    cls = subject.cls or class_called(subject.fn)
    strange = _strange_names(cls) or dirty_names(cls)
    what = f"`{strange[0]}`" if strange else "a tensor"
    unless = " (nothing was modified in place)" if not changed else ""
    name = f"`{cls.__name__}`" if cls else subject.name
    return FunctionFinding(
        verdict="mark_dirty on a non-input",
        text=f"ctx.mark_dirty received {what}, which is not an input of {name}: remove the call{unless}.",
        remedy="Call ctx.mark_dirty only with an input that forward changes in place and returns.",
        argument=strange[0] if strange else "",
    )


def _strange_names(cls: type[Function] | None) -> list[str]:
    """Return what ctx.mark_dirty is given that is no argument of forward, as far as the source tells."""
    known = argument_names(cls.forward, 0, cls) if cls else []
    return [n for n in dirty_names(cls) if n not in known]


def _recorded(cls: type[Function], calls: list, overwritten: list, changed: list) -> Any:
    """Return apply of a class like the reader's, whose backward notes what it returns and which gradients it wrote."""
    method = backward_name(cls)
    inner = getattr(cls, method)

    def backward(ctx: Any, *incoming: Any) -> Any:
        kept = [_state(t) for t in incoming]
        saved = [(t, version_of(t)) for t in ctx.saved_tensors]
        returned = inner(ctx, *incoming)
        changed.extend(k for k, (t, version) in enumerate(saved) if t is not None and version_of(t) != version)
        overwritten.extend(k for k, (t, was) in enumerate(zip(incoming, kept, strict=True)) if _wrote(t, was))
        calls.append(returned if isinstance(returned, tuple) else (returned,))
        return returned

    return type(cls.__name__, (cls,), {method: staticmethod(backward)}).apply


def _state(t: Any) -> tuple[Any, int] | None:
    return (t.detach().clone(), version_of(t) or 0) if isinstance(t, torch.Tensor) else None


def _wrote(t: Any, was: tuple[Any, int] | None) -> bool:
    """Say whether a tensor was written in place since `_state`, also where its version does not tell."""
    if was is None:
        return False
    return (version_of(t) or 0) > was[1] or not torch.allclose(t.detach(), was[0], rtol=0, atol=0, equal_nan=True)


def probe_backward(subject: Subject, trial: Trial) -> FunctionFinding | None:
    """Run backward once, for all outputs and for each alone, and look at what it returns."""
    calls: list = []
    overwritten: list[int] = []
    changed: list[int] = []
    recorder = trial
    if subject.cls:
        recorder = Trial(_recorded(subject.cls, calls, overwritten, changed), trial.args, trial.which)
    count = len(trial.outputs()[1])
    for alone in [None, *(range(count) if count > 1 else ())]:
        leaves, outputs = recorder.outputs()
        if alone is not None:
            outputs = [outputs[alone]]
        given = [torch.ones_like(t) for t in outputs]
        kept = [_state(t) for t in given]
        try:
            torch.autograd.grad(outputs, leaves, given, allow_unused=True)
        except Exception as error:  # the reader's error is the answer
            returned = calls[-1] if calls else None
            only = f" when only output {alone} is used" if alone is not None else ""
            return backward_failed(subject, error, returned, only)
        overwritten += [] if subject.cls else [k for k, t in enumerate(given) if _wrote(t, kept[k])]
        if changed:
            return _changes_saved(subject, changed[0])
        if overwritten:
            return _overwrites(subject, overwritten[0], len(recorder.kept))
    return _dtypes(subject, trial, calls[0]) if calls else None


def _overwrites(subject: Subject, k: int, count: int) -> FunctionFinding:
    which = f" of output {k}" if count > 1 else ""
    return FunctionFinding(
        verdict="overwrites the incoming gradient",
        text=f"{subject.backward} overwrites the incoming gradient{which} in place: autograd may give the "
        "same tensor to other nodes and hooks, which then read wrong numbers.",
        remedy="Make a new tensor: `g * …` in place of `g.mul_(…)`, or write into `g.clone()`.",
        facts={"output": k},
    )


def _changes_saved(subject: Subject, k: int) -> FunctionFinding:
    return FunctionFinding(
        verdict="changes a saved tensor",
        text=f"{subject.backward} changes `ctx.saved_tensors[{k}]` in place: that is the input or result of "
        "forward itself, so its values change for the caller, and a second backward fails or is wrong.",
        remedy="Make a new tensor: `2 * x` in place of `x.mul_(2)`.",
        facts={"saved": k},
    )


def _dtypes(subject: Subject, trial: Trial, returned: tuple) -> FunctionFinding | None:
    for k in subject.which:
        got, wanted = (returned[k] if k < len(returned) else None), trial.args[k].dtype
        if not isinstance(got, torch.Tensor) or got.dtype == wanted:
            continue
        if torch.promote_types(got.dtype, wanted) == got.dtype:
            continue  # nothing is lost when torch rounds it
        name, got_name = subject.names[k], dtype_name(got.dtype)
        return FunctionFinding(
            verdict="gradient dtype",
            text=f"{subject.backward} returns a gradient of dtype {got_name} for `{name}`, which is "
            f"{dtype_name(wanted)}: torch converts it without a word, and the digits beyond {got_name} are lost.",
            remedy=f"Compute in the dtype of the incoming gradient, or return `grad.to({name}.dtype)`.",
            argument=name,
            facts={"returned": got.dtype, "wanted": wanted},
        )
    return None


def backward_failed(subject: Subject, error: Exception, returned: tuple | None, only: str) -> FunctionFinding:
    """Return the finding for an error on the way back."""
    message = first_line(error)
    if found := re.search(r"function (\w+)Backward returned an incorrect number .*expected (\d+), got (\d+)", message):
        return _wrong_number(subject, found[1], int(found[2]), int(found[3]))
    if found := re.search(
        r"(\w+)Backward returned an invalid gradient at index (\d+) - got (\[.*?\]) .*with (\[.*?\])", message
    ):
        name = _argument_of(subject, found[1], int(found[2]))
        return FunctionFinding(
            verdict="wrong shape of gradient",
            text=f"{found[1]}.backward returns a gradient of shape {_shape(found[3])} for `{name}`, which has the "
            f"shape {_shape(found[4])}.",
            remedy=f"Return a gradient with the shape of `{name}`: one number for each of its elements.",
            argument=name,
            facts={"returned": found[3], "wanted": found[4]},
        )
    if found := re.search(r"expected Variable or None \(got ([\w.]+)\)", message):
        return FunctionFinding(
            verdict="backward raises",
            text=f"{subject.backward} returns a {found[1]} where a tensor or None is wanted.",
            remedy="Return tensors, and None where there is no gradient.",
            facts={"error": message},
        )
    if "input_is_complex == grad_is_complex" in message:
        place = next((k for k in subject.which if returned and k < len(returned) and _unlike(subject, returned, k)), 0)
        got = dtype_name(returned[place].dtype) if returned and isinstance(returned[place], torch.Tensor) else "complex"
        name, wanted = subject.names[place], dtype_name(subject.args[place].dtype)
        return FunctionFinding(
            verdict="gradient dtype",
            text=f"{subject.backward} returns a gradient of dtype {got} for `{name}`, which is {wanted}.",
            remedy=f"Return a gradient of dtype {wanted}: for a real input, the real part.",
            argument=name,
            facts={"error": message},
        )
    if found := re.search(r"backward\(\) takes (\d+) positional arguments? but (\d+) were given", message):
        takes, given = int(found[1]) - 1, int(found[2]) - 1
        return FunctionFinding(
            verdict="backward raises",
            text=f"{subject.backward} takes {takes} gradient{'' if takes == 1 else 's'}, and forward returns "
            f"{given} result{'' if given == 1 else 's'}: one comes for each of them.",
            remedy="Give backward one argument after ctx for each result of forward.",
            facts={"error": type(error).__name__},
        )
    if isinstance(error, NotImplementedError) and "implement either the backward" in message:
        return FunctionFinding(
            verdict="backward raises",
            text=f"{subject.name} has no backward.",
            remedy="Write backward(ctx, grad): one gradient for each argument of forward.",
            facts={"error": type(error).__name__},
        )
    return FunctionFinding(
        verdict="backward raises",
        text=f"{subject.backward} raises {type(error).__name__}{only}: {message}.",
        remedy="The incoming gradient of an output that is not used is None or zeros: backward must take both."
        if only
        else "",
        facts={"error": type(error).__name__},
    )


def _unlike(subject: Subject, returned: tuple, k: int) -> bool:
    return isinstance(returned[k], torch.Tensor) and returned[k].is_complex() != subject.args[k].is_complex()


def _shape(listed: str) -> str:
    sizes = [n for n in listed.strip("[]").replace(" ", "").split(",") if n]
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"


def _named_class(subject: Subject, wanted: str) -> type[Function] | None:
    return subject.cls or class_called(subject.fn, wanted)


def _argument_of(subject: Subject, wanted: str, k: int) -> str:
    cls = _named_class(subject, wanted)
    return argument_names(cls.forward, k + 1, cls)[k] if cls else f"input_{k}"


def _wrong_number(subject: Subject, name: str, expected: int, got: int) -> FunctionFinding:
    cls = _named_class(subject, name)
    names = argument_names(cls.forward, expected, cls) if cls else []
    takes = f"{expected} argument{'' if expected == 1 else 's'}" + (f" ({', '.join(names)})" if names else "")
    text = f"{name}.forward takes {takes} but backward returned {values(got)}"
    missing = names[got:]
    if got > expected:
        text += ": remove what is beyond that"
        remedy = f"Return {values(expected)}, in the order of forward's arguments."
    else:
        tensors = [n for k, n in enumerate(missing, got) if subject.cls is not None and k in subject.which]
        others = [n for n in missing if n not in tensors]
        parts = [f"the gradient of {quoted(tensors, None)}"] if tensors else []
        parts += [f"None for {quoted(others, None)}"] if others else []
        text += f": append {' and '.join(parts)}" if parts else ""
        remedy = "Return one value for each argument of forward, in their order, and None for those without a gradient."
    return FunctionFinding(
        verdict="wrong number of gradients",
        text=f"{text}.",
        remedy=remedy,
        argument=missing[0] if missing else "",
        facts={"expected": expected, "got": got},
    )
