"""The explainers of `explain_error` for errors of plain Python that come of autograd: a None, a number, a wrong ctx."""

from __future__ import annotations

import re

import torch

from helpers.model.errors.backward import names_of
from helpers.model.errors.failure import Answer, Failure, explains
from helpers.model.errors.roots import variables_of
from helpers.model.gradients.cuts import Cut, find_cut, find_exit
from helpers.model.gradients.leaves import not_leaf, not_required

_GRAD = re.compile(r"((?:[A-Za-z_]\w*)(?:\.\w+|\[[^\]]*\])*)\.grad\b")


@explains(r"'NoneType' object has no attribute '(\w+)'|unsupported operand type\(s\).*'NoneType'")
def _none_gradient(match: re.Match, failure: Failure) -> Answer | None:
    """A `.grad` that is None was used."""
    place = failure.call.place
    found = _GRAD.search(place.text) if place else None
    if found is None:
        return None
    name, none = found[1], f"`{found[0]}` is None{failure.call.where}"
    tensor = variables_of(failure).get(name)
    if isinstance(tensor, torch.Tensor):
        reason = not_required(tensor, f"`{name}`") or (None if tensor.is_leaf else not_leaf(tensor, f"`{name}`"))
        if reason is not None:
            cut = _cut_of(failure, tensor)
            return f"{none}: {cut.text if cut else reason.text}", cut.remedy if cut else reason.remedy
        path = names_of(failure, [tensor])[0]
        if "." in path and path != name:
            return (
                f"{none}: no backward has filled the gradient of `{path}`",
                f"Skip what has none, if {name}.grad is not None; explain_grad(f) says why it has none.",
            )
    return f"{none}: no backward has filled it", f"explain_grad({name}, loss) says why."


def _cut_of(failure: Failure, tensor: torch.Tensor) -> Cut | None:
    number = failure.run.number(tensor) if failure.run is not None and not tensor.requires_grad else None
    return find_cut(failure.run.record, number) if number is not None else None


_NO_TENSOR = r"float|int|bool|complex|NoneType|tuple|list|dict|numpy\.float\d+|numpy\.ndarray"


@explains(rf"'({_NO_TENSOR})' object has no attribute '(backward|requires_grad_?|grad_fn|retain_grad)'")
def _no_tensor(match: re.Match, failure: Failure) -> Answer:
    """A loss that is no tensor: its value left torch, or a function returned something else."""
    kind, wanted = match.groups()
    place = failure.call.place
    name = re.search(rf"([\w.\[\]()]+)\.{wanted}\b", place.text) if place else None
    shown, at = f"`{name[1]}`" if name else "the loss", failure.call.where
    if kind == "NoneType":
        return (
            f"{shown} is None{at}: what it was assigned from returns nothing, as backward() does, or has no return",
            "Call loss.backward() on a line of its own, without an assignment; end a function with return loss.",
        )
    if kind in ("tuple", "list", "dict"):
        return f"{shown} is a {kind}{at}, and backward starts from one tensor", "Take the loss out of it."
    cut = find_exit(failure.run.record) if failure.run is not None else None
    why = cut.text if cut else "a number has no graph"
    remedy = "Keep the tensor for backward, and use .item() only to show it."
    return f"{shown} is a plain {kind}{at}, no tensor: {why}", remedy


@explains(
    r"object has no attribute '(save_for_backward|mark_dirty|mark_non_differentiable|set_materialize_grads|"
    r"saved_tensors|needs_input_grad)'"
)
def _no_context(match: re.Match, failure: Failure) -> Answer:
    """The forward of a custom Function was called as a plain function."""
    where = failure.call.where
    return (
        f"ctx has no {match[1]}{where}: forward or backward was called directly, and only apply makes a ctx",
        "Call F.apply(x) in place of F.forward(ctx, x).",
    )


@explains(r"some parameters appear in more than one parameter group")
def _twice(match: re.Match, failure: Failure) -> Answer:
    """Two groups of an optimizer hold the same parameter."""
    return (
        f"{failure.call.at} lists a parameter in two groups, such as that of a model and that of a part of it",
        "Leave out of the large group what has a group of its own: [p for p in … if id(p) not in ids].",
    )


@explains(r"optimizer can only optimize Tensors, but one of the params is ([\w.]+)")
def _no_parameter(match: re.Match, failure: Failure) -> Answer:
    """An optimizer was given modules, names or numbers."""
    kind = match[1].rpartition(".")[2]
    return (
        f"{failure.call.at} was given something of type {kind}, and an optimizer takes tensors",
        "Give it the parameters: model.parameters(), or [p for _, p in model.named_parameters()].",
    )


@explains(r"loaded state dict (contains a parameter group that doesn't match the size|has a different number of param)")
def _other_optimizer(match: re.Match, failure: Failure) -> Answer:
    """The state of an optimizer for another model, or for one before a change of its parameters."""
    groups = "groups" if "number" in match[1] else "parameters in a group"
    return (
        f"{failure.call.at} loads the state of an optimizer with another number of {groups}, such as one made before "
        "the model was changed",
        "Give the optimizer the same groups and parameters as when the state was saved, and load then.",
    )
