"""The explainers of `explain_error` for another shape: `view`, `reshape`, `view(dtype)`, `flatten` and `unflatten`.

What a shape lacks is said by `explain_view`, from the live tensor or from the sizes in torch's message.
"""

from __future__ import annotations

import re
from typing import Any

import torch

from helpers.model.errors.failure import Answer, Failure, explains, explains_plainly, numbers_in
from helpers.model.layout import Layout, no_strides
from helpers.model.viewrule import misfit
from helpers.model.views import channels_last_name, explain_view

_SHAPED = ("view", "reshape", "view_as", "reshape_as")
# The order of dimensions that a permute to the shape of a module, N, C, …, turns into these strides.
_LAST = {"channels_last": "N, H, W, C", "channels_last_3d": "N, D, H, W, C"}


@explains(r"^unflatten(?:: | got an unexpected error)")
def _unflatten(match: re.Match, failure: Failure) -> Answer | None:
    """A dimension was to be split into sizes that do not fit it."""
    message = str(failure.error)
    if "must be non-empty" in message:
        return f"{failure.call.at} gives no sizes into which the dimension is split", "Give at least one size."
    if said := re.search(r"sizes \[(.*?)\] don't multiply up to the size of dim (-?\d+) \((\d+)\)", message):
        sizes, dim, size = numbers_in(said[1]), int(said[2]), int(said[3])
    else:
        named = [failure.kwargs[name] for name in ("dim", "sizes") if name in failure.kwargs]
        if len(failure.args) + len(named) != 3:
            return None  # what is known of any shape is said
        t, dim, sizes = *failure.args, *named
        size = t.shape[dim]
    why = misfit(tuple(sizes), size, "the dimension")
    return (
        f"{failure.call.at} fails: dimension {dim} of size {size} cannot be split into {tuple(sizes)}: {why}",
        f"Choose sizes that multiply to {size:,}; one of them may be -1 and is then worked out.",
    )


@explains(
    r"[Nn]ested ?[Tt]ensor|nested (?:view|reshape)|cannot view shape|does not support view\. Change to use reshape|"
    r"reshape is not implemented for sparse|Cannot access storage of \w+TensorImpl"
)
def _without_strides(match: re.Match, failure: Failure) -> Answer | None:
    """A tensor that keeps its elements in another way than by strides."""
    t = next(iter(failure.args), None)
    obstacle = no_strides(t) if failure.name in _SHAPED and isinstance(t, torch.Tensor) else None
    if obstacle is None:
        return None
    return (
        f"{failure.call.at} fails: {failure.name} works on strides, but {obstacle}",
        "Take the parts, with unbind(), and give each its shape."
        if t.is_nested
        else "Convert it first, with to_dense(), and back after it where you need that.",
    )


@explains(
    r"view size is not compatible|is invalid for input of size|only one dimension can be inferred|-1 can be any value|"
    r"invalid shape dimension (-\d+)|^(?:view|reshape)\(\): .*\"Overflow when unpacking|"
    r"SymIntArrayRef expected to contain only concrete"
)
def _view(match: re.Match, failure: Failure) -> Answer | None:
    """`view` or `reshape` to a shape that the strides, or the number of elements, do not allow."""
    shape = _asked_shape(failure)
    if shape is None or no_strides(failure.args[0]):
        return _without_strides(match, failure) or _view_in_general(match, failure)
    t = failure.args[0]
    layout, found = Layout.of(t), explain_view(t, shape)
    if found.possible:  # the variables of a caught error may hold other tensors by now
        return _view_in_general(match, failure)
    name = failure.operand(0, "the tensor") if failure.call.direct else "a tensor inside"
    call = f"{failure.call.at}"
    why = found.text.rstrip(".")
    if found.copies and found.facts.get("cause") == "memory format":
        order = channels_last_name(layout)
        made = (
            f", as after to(memory_format=torch.{order}), a convolution in that format or a permute from {_LAST[order]}"
        )
        model = _has_weights_in(order, failure)
        return (
            f"{name} has shape {layout.shape} but strides {layout.stride} = {order}{'' if model else made}: "
            f"shape {found.shape} in that order needs a copy, so {failure.call.shown} fails{failure.call.where}"
            f"{'; the model did not change, its memory format did' if model else ''}",
            found.remedy or "Use reshape or flatten, which copy here.",
        )
    if found.copies:
        return (
            f"{name} has shape {layout.shape} and strides {layout.stride}, and {call} fails: {_lower(why)}",
            found.remedy,
        )
    return f"{call} fails: {_lower(why)}", found.remedy


def _has_weights_in(order: str, failure: Failure) -> bool:
    """Say whether a module that ran before the failure has weights in this memory format."""
    weights = failure.run.parameters().values() if failure.run is not None else ()
    layouts = [Layout.of(w) for w in weights if no_strides(w) is None]
    return any(channels_last_name(layout) == order for layout in layouts)


def _view_in_general(match: re.Match, failure: Failure) -> Answer | None:
    """The same where the tensor is not at hand: torch's message names the sizes that it counted."""
    at, message = f"{failure.call.at} fails", str(failure.error)
    if match[0].startswith("view size"):
        return (
            f"{at}: a dimension of the new shape would run over dimensions of the tensor whose strides do not fit "
            "together, so no stride can describe it, and view never copies",
            "Use reshape, which copies here.",
        )
    if match[0].startswith("only one"):
        return f"{at}: more than one size is -1, and only one can be worked out from the others", "Leave one -1 in it."
    if match[0].startswith("SymInt"):  # torch takes a very small size for a symbol; a symbol has the same message
        return None
    if "Overflow" in match[0]:
        return (
            f"{at}: a size does not fit into 64 bits, so no tensor can have it",
            "Look at how the size was computed; one size may be -1 and is then worked out.",
        )
    found = re.search(r"(?:shape '?|of shape )\[(.*?)\]", message)
    if match[0].startswith("invalid shape"):
        why = (
            misfit(numbers_in(found[1]), 0) if found else f"its size {match[1]} is negative, and only -1 has a meaning"
        )
        return (
            f"{at}: neither `view` nor `reshape` can give {f'shape {numbers_in(found[1])}' if found else 'it'}: {why}",
            "Write -1 for the one size that is worked out, and every other size as the number that it is.",
        )
    numel = int(re.search(r"(?:input of size|tensor of) (\d+)", message)[1])
    finding = explain_view(torch.empty(numel, device="meta"), numbers_in(found[1]))
    return f"{at}: {_lower(finding.text.rstrip('.'))}", finding.remedy


def _lower(text: str) -> str:
    return text if text.startswith("`") else text[0].lower() + text[1:]


def _asked_shape(failure: Failure) -> tuple[int, ...] | None:
    """Return the shape that a failed view or reshape was given."""
    if failure.name in ("view_as", "reshape_as") and len(failure.args) == 2:
        return tuple(failure.args[1].shape)
    if failure.name not in ("view", "reshape") or not isinstance(next(iter(failure.args), None), torch.Tensor):
        return None
    rest: Any = failure.args[1:] or failure.kwargs.get("size") or failure.kwargs.get("shape")
    if rest and len(rest) == 1 and isinstance(rest[0], list | tuple):
        rest = rest[0]
    return tuple(rest) if rest and all(isinstance(n, int) for n in rest) else None


_DTYPE = "to(dtype) converts values; view(dtype) reads the same bytes in another way."


@explains(
    r"self\.(\w+)\((-?\d*)\) (?:must be|cannot be) (divisible by )?(\d+) to view (\w+) as (\w+) "
    r"\(different element sizes\)(?:, but got (\d+))?"
)
def _view_dtype(match: re.Match, failure: Failure) -> Answer:
    """`view(dtype)` to elements of another size, where they would not lie side by side in the storage."""
    what, dim, divisible, wanted, old, new, got = match.groups()
    reads = f"{failure.call.at} reads the bytes of {old} elements as {new}"
    need = f"a multiple of {wanted}" if divisible else wanted
    if what == "dim":
        return (
            f"{reads}, so the last dimension becomes longer or shorter, and {failure.operand(0, 'the tensor')} has no "
            "dimension",
            f"Give it one first, with view(1). {_DTYPE}",
        )
    if what == "storage_offset":
        return (
            f"{reads}, so the number of its first slot must be {need}, and it is {got}",
            f"clone() it first. {_DTYPE}",
        )
    first = "Call contiguous() first" if what == "stride" else f"Cut or pad it to a multiple of {wanted}"
    which = "the last dimension" if dim == "-1" else f"dimension {dim}"
    return f"{reads}, so {which} must have a {what} of {need}, and it has {got}", f"{first}. {_DTYPE}"


explains_plainly(
    r"Tensor\.view is not supported for (?:tensors with )?(conjugate|negative) (?:view|bit)",
    "{call}: {operand} is a {0} view: its memory holds other numbers than you see, and view(dtype) reads the memory",
    "Call t.resolve_conj().resolve_neg() first, which computes them.",
)
explains_plainly(
    r"flatten\(\) has invalid args: start_dim cannot come after end_dim",
    "{call} joins the dimensions from start_dim to end_dim, and its start_dim comes after its end_dim",
    "Give the dimension on the left first, as in flatten(0, 1); -1 is the last one.",
)
