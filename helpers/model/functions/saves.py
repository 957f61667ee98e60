"""Does a function keep a tensor where autograd does not check it? A part of `check_function`.

What `ctx.save_for_backward` keeps is compared with its version when backward reads it, and torch refuses when it was
changed in between. An attribute of ctx is not compared. So the tensors are changed in place between forward and
backward: torch must refuse, or the gradient must stay as it was.
"""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import torch

from helpers.model.functions.runs import Trial, kept_on_ctx, row, shares
from helpers.model.functions.words import FunctionFinding, Subject, number

_SAVE = "Keep inputs and outputs with `ctx.save_for_backward(…)` and read them from `ctx.saved_tensors`."


def unchecked(subject: Subject, trial: Trial, found: FunctionFinding) -> FunctionFinding:
    """Add to a finding that the function keeps a tensor where autograd does not check it; a pass turns into that."""
    said = _changed_input(subject, trial) or _changed_output(subject, trial) or _cycle_only(trial)
    if said is None:
        return found
    if found.verdict in ("passes", "float32", "overlapping input"):
        return replace(said, elements=found.elements, complete=found.complete, also=(found.text,))
    return replace(found, also=(said.text,))


def _changed_input(subject: Subject, trial: Trial) -> FunctionFinding | None:
    for k, t in enumerate(trial.args):
        if isinstance(t, torch.Tensor) and (t.is_floating_point() or t.is_complex()) and t.numel():
            kept = _kept(trial, k, is_input=True)
            if kept is not None:
                name = f"`{subject.names[k]}`"
                return _finding(subject, trial, f"its input {name}", name, subject.names[k], kept)
    return None


def _changed_output(subject: Subject, trial: Trial) -> FunctionFinding | None:
    for k in trial.kept:
        kept = _kept(trial, k, is_input=False)
        if kept is not None:
            found = _finding(subject, trial, "its output", "the output", "", kept)
            if cycle := _cycle(trial):
                text = f"{found.text.removesuffix('.')}; and {cycle[1]}."
                return replace(found, text=text, facts=found.facts | {"cycle": True})
            return found
    return None


def _cycle_only(trial: Trial) -> FunctionFinding | None:
    if (cycle := _cycle(trial)) is None:
        return None
    owner, what, attribute = cycle
    text = f"{owner} keeps its output on `ctx.{attribute}`, and {what}."
    return FunctionFinding(
        verdict="unchecked save", text=text, remedy=_SAVE, facts={"attribute": attribute, "cycle": True}
    )


def _kept(trial: Trial, k: int, is_input: bool) -> tuple[list[tuple[Any, str]], torch.Tensor, torch.Tensor, int] | None:
    """Change one tensor between forward and backward; return where it is kept, both gradients, and an element."""
    leaves, outputs = trial.outputs()
    right = row(_pulled(leaves, outputs))
    for by in (100, -100):  # a kink or a clamp may hide one of the two
        try:
            leaves, args, results = trial.run()
            changed = args[k] if is_input else results[k]
            if is_input and any(changed is r or shares(changed, r) for r in results):
                return None  # the output lies on the input: changing one changes the other
            with torch.no_grad():
                changed.add_(by)
            kept = [(node, name) for node, name, held in kept_on_ctx(results) if shares(held, changed)]
            got = row(_pulled(leaves, [results[i] for i in trial.kept]))
        except Exception:  # torch refused: the save is checked
            return None
        off = ~torch.isclose(got, right, rtol=1e-4, atol=1e-6, equal_nan=True)
        if off.any():
            return kept, got, right, int(off.nonzero()[0])
    return None


def _finding(subject: Subject, trial: Trial, what: str, name: str, argument: str, kept: tuple) -> FunctionFinding:
    places, got, right, j = kept
    owner = type(places[0][0]).__name__.removesuffix("Backward") if places else subject.name.strip("`")
    where = f"`ctx.{places[0][1]}`" if places else "a place of its own"
    return FunctionFinding(
        verdict="unchecked save",
        text=f"{owner} reads {what} from {where}, which autograd does not check: after an in-place change of {name} "
        f"(version 0 → 1) the gradient is {number(float(got[j]))} where {number(float(right[j]))} is right.",
        remedy=_SAVE,
        argument=argument,
        element=trial.place(j)[1],
        analytical=float(got[j]),
        numerical=float(right[j]),
        facts={"attribute": places[0][1] if places else ""},
    )


def _pulled(leaves: list, outputs: list) -> list[torch.Tensor]:
    ones = [torch.ones_like(t) for t in outputs]
    found = torch.autograd.grad(outputs, leaves, ones, allow_unused=True)
    return [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True)]


def _cycle(trial: Trial) -> tuple[str, str, str] | None:
    """Find an output that keeps itself alive; return its Function, a clause, and the attribute of ctx."""
    was_on = gc.isenabled()
    gc.disable()  # it would free the cycle that is looked for
    try:
        owner, attribute, alive = _watched_output(trial)
        if alive is None or alive() is None:
            return None
    finally:
        if was_on:
            gc.enable()
    what = (
        "the output holds itself alive: it holds its node in the graph and ctx holds the output, so only the garbage "
        "collector frees its memory"
    )
    return owner, what, attribute


def _watched_output(trial: Trial) -> tuple[str, str, Any]:
    _, _, results = trial.run()
    for node, name, held in kept_on_ctx(results):
        for r in results:
            if held is r:
                return type(node).__name__.removesuffix("Backward"), name, weakref.ref(r)
    return "", "", None
