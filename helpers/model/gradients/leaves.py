"""What a tensor itself tells about its gradient: whether it is a leaf, whether it requires grad, what lies "
"behind it."""

from __future__ import annotations

import linecache
import re

import torch

from helpers.model.adapter import leaf_variable
from helpers.model.autograd.names import Names
from helpers.model.gradients.cuts import find_cut, find_first_cut
from helpers.model.gradients.reasons import Reason, attribute
from helpers.model.runs.record import Record
from helpers.model.source import caller_frame


def not_required(t: torch.Tensor, name: str) -> Reason | None:
    """Return why a tensor that does not require grad has no gradient; None for one that does."""
    if t.requires_grad:
        return None
    if t.is_inference():
        return Reason(
            "inference tensor",
            f"{name} was made in inference_mode, and such a tensor can never take part in a graph",
            "Make it under no_grad, or clone() it outside inference_mode.",
        )
    if not (t.dtype.is_floating_point or t.dtype.is_complex):
        return Reason(
            "integer",
            f"{name} has dtype {str(t.dtype).removeprefix('torch.')}, and only floating and complex tensors have "
            "gradients",
            "Make it a floating tensor before the forward, and set requires_grad=True.",
        )
    return Reason(
        "requires_grad is False",
        f"{attribute(name, 'requires_grad')} is False, so backward computes no gradient for it",
        "Set requires_grad=True on a leaf before the forward; the result of detach() or of no_grad never has a "
        "history.",
    )


def not_leaf(t: torch.Tensor, name: str) -> Reason:
    """Return the reason for a result of an operation, with the leaf behind it where one chain leads there."""
    text = f"{name} is not a leaf (grad_fn is {type(t.grad_fn).__name__}), and backward fills .grad of leaves only"
    remedy = "Call retain_grad() on it before backward, or ask torch.autograd.grad(loss, t)."
    chain, leaf = _only_leaf(t)
    if leaf is not None:
        known = Names.of_caller()
        names = known.of_leaf(leaf)
        known.clear()
        got = "did receive a gradient" if leaf.grad is not None else "gets the gradient"
        behind = f"; behind it, through {chain}, lies a leaf"
        if not names and chain.replace("ToCopyBackward0", "").strip(" and"):
            text += f"{behind} that {got}, and no variable here names it"
            remedy += (
                " To train such a tensor, make it a leaf when it is finished: (torch.rand(3) * 2).requires_grad_()."
            )
        elif not names:
            how = "the name was bound again" if _bound_again(name) else f"{name} is what this call made of it"
            text += f"{behind} without a name that {got}: {how}"
            remedy = (
                "Make the leaf in its final dtype and device, or use x = x.to(…).detach().requires_grad_(); "
                "an optimizer needs the leaf."
            )
        else:
            text += f"; the leaf behind it, `{names[0]}`, {got}"
    return Reason("not a leaf", text, remedy)


def _bound_again(name: str) -> bool:
    """Say whether a line of the reader's file binds a name to something made of it, such as x = x.to(…)."""
    frame, plain = caller_frame(), re.escape(name.strip("`"))
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals) if frame is not None else []
    return any(re.match(rf"\s*{plain}\s*=[^=].*?\b{plain}\b", line) for line in lines)


def _only_leaf(t: torch.Tensor) -> tuple[str, torch.Tensor | None]:
    """Return the leaf to which a chain without branches leads from a tensor, and the names of its nodes."""
    node, names = t.grad_fn, []
    for _ in range(20):
        names.append(type(node).__name__)
        next_nodes = [to for to, _ in node.next_functions if to is not None]
        if len(next_nodes) != 1:
            break
        node = next_nodes[0]
        if (leaf := leaf_variable(node)) is not None:
            return " and ".join(names), leaf
    return "", None


def reason_for_none(t: torch.Tensor, name: str, record: Record, number: int | None, reached: bool) -> Reason:
    """Return why a `.grad` that was read after a backward is None."""
    cut = find_cut(record, number) if number is not None and not t.requires_grad else None
    if cut is not None:
        return Reason(cut.cause, f"{name} does not require grad: {cut.text}", cut.remedy, cut.line)
    if reason := not_required(t, name):
        return reason
    if not t.is_leaf:
        return not_leaf(t, name)
    if reached:
        return Reason(
            "set to None",
            f"backward has reached {name}, and its grad was set to None after it, as zero_grad() does",
            "Read the gradient between backward() and zero_grad().",
        )
    cut = find_first_cut(record, number) if number is not None else None
    if cut is not None:
        doubt = "" if cut.sure else "either no loss was computed from it, or "
        return Reason(cut.cause, f"no backward reached {name}: {doubt}{cut.text}", cut.remedy, cut.line)
    return Reason("not used", f"no backward reached {name}: no loss was computed from it", "Use it in the forward.")
