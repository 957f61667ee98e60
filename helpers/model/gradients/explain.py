"""Why is this gradient None, zero, or not what you expect? `explain_grad`.

A finished program has kept some of the answer: whether a tensor is a leaf, whether it can be reached from the
loss, what saved tensors hold. Where the chain was cut is not among it: a cut leaves no trace. Give the function
that computes the loss in place of the loss, and the run is watched and the line named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from helpers.model.adapter import leaf_variable, plain_access, storage_key
from helpers.model.autograd.flow import has_reentrant_checkpoint
from helpers.model.autograd.graph import Graph
from helpers.model.autograd.names import Names
from helpers.model.autograd.nodes import STALE, is_stale_view
from helpers.model.autograd.reading import Live, read_graph, without_graph
from helpers.model.finding import Finding, HelperError, in_short
from helpers.model.gradients.cuts import Cut, find_cut, find_cut_between
from helpers.model.gradients.fallback import dropped_on_way
from helpers.model.gradients.leaves import not_leaf, not_required
from helpers.model.gradients.parameters import explain_module, explain_optimizer
from helpers.model.gradients.programs import explain_program
from helpers.model.gradients.reasons import Reason
from helpers.model.gradients.values import explain_values
from helpers.model.runs.run import Run
from helpers.model.source import caller_arguments
from helpers.model.watch import name_of, raised_finding, require_callable, run_reader, uncompiled
from helpers.model.words import quoted


@dataclass(frozen=True, kw_only=True, repr=False)
class GradFinding(Finding):
    """Why a gradient is as it is.

    `cause` is a few words, such as "not a leaf", "detach" or "right"; `name` the tensor's; `line` the line of the
    reader's code at which the chain ends, where a run was watched.
    """

    cause: str = ""
    name: str = ""
    line: int | None = None


def explain_grad(t: Any, loss: Any = None, *, optimizer: torch.optim.Optimizer | None = None) -> GradFinding:
    """Say why the gradient of `t` is None, zero, or not what was expected, and where the chain ends.

    `t` is a tensor, a module (all its parameters), or a whole training step as a function without arguments, which is
    then run and watched. `loss` is the tensor that backward starts from, or a function without arguments that computes
    it: only a watched run can name the line of a cut. With `optimizer`, it is also checked that it holds the tensor.
    Nothing of yours changes; hooks and custom Functions of yours run where a gradient must be computed.
    Raises HelperError for anything else.
    """
    written = caller_arguments()
    name = f"`{written[0]}`" if written and len(written[0]) <= 40 else "the tensor"
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise HelperError(f"optimizer is {in_short(optimizer)}, and a torch.optim.Optimizer was wanted")
    if not isinstance(t, torch.Tensor | torch.nn.Module):
        if not callable(t):
            raise HelperError(f"{in_short(t)} came as t, and a tensor, a module or a function was wanted")
        return _finding(explain_program(t), "")
    run: Run | None = None
    if callable(loss) and not isinstance(loss, torch.Tensor):
        require_callable(loss, "explain_grad")
        run, function = Run(), loss
        try:
            with uncompiled(), run:
                loss = run_reader(function, ())
        except Exception as error:  # what the reader's function raises is the answer
            run.failure = None
            return raised_finding(function, error, GradFinding, cause="raised")
        if loss is None:
            raise HelperError(f"{name_of(function)} returned None, and the loss was wanted: end it with return loss")
    with plain_access():
        reason = _reason(t, name, loss, optimizer, run)
    return _finding(reason, name.strip("`"))


def _finding(reason: Reason, name: str) -> GradFinding:
    return GradFinding(
        text=f"{reason.text}.",
        remedy=reason.remedy,
        cause=reason.cause,
        name=name,
        line=reason.line,
    )


def _reason(t: Any, name: str, loss: Any, optimizer: Any, run: Run | None) -> Reason:
    if is_lazy(t):
        text = f"{name} is a lazy parameter without a shape, as its module has not run yet"
        return Reason("no shape yet", text, "Run the module once on a real input, and make the optimizer after that.")
    for what, given in ((name, t), ("the loss", loss)):
        if isinstance(given, torch.Tensor) and is_stale_view(given):
            return Reason("stale view", f"{what} {STALE}", "Make the view again, after the write.")
    if loss is None:
        return _of_tensor_alone(t, name)
    if no_loss := _of_loss(loss, t, run):
        return no_loss
    graph, live = read_graph(loss, Names.of_caller(t if isinstance(t, torch.nn.Module) else None))
    found = _in_graph(t, name, loss, optimizer, run, graph, live)
    if found.cause != "not used" or not has_reentrant_checkpoint(graph, live.nodes):
        return found
    return Reason(
        "hidden by a checkpoint",
        f"whether the loss reaches {name} can't be seen: it goes through a checkpoint with use_reentrant=True, which "
        "records the graph inside it only while backward runs",
        "Make the checkpoint with use_reentrant=False and ask again.",
    )


def _in_graph(t: Any, name: str, loss: Any, optimizer: Any, run: Run | None, graph: Graph, live: Live) -> Reason:
    if isinstance(t, torch.nn.Module):
        return explain_optimizer(t, name, optimizer) or explain_module(t, name, loss, graph, live, _cuts_to(loss, run))
    if reason := not_required(t, name):
        return reason
    if t.is_leaf and not any(leaf_variable(live.nodes[leaf.number]) is t for leaf in graph.leaves):
        return _unreached(t, name, graph, live, loss, run)
    if not t.is_leaf and t.grad_fn not in live.nodes:
        return _unreached(t, name, graph, live, loss, run)
    if not t.is_leaf and not t.retains_grad:
        return not_leaf(t, name)
    if optimizer is not None and (reason := explain_optimizer(t, name, optimizer)):
        return reason
    target, record = _node_of(t, graph, live), run.record if run is not None else None
    if reason := dropped_on_way(name, graph, live, target, record):
        return reason
    return explain_values(t, name, loss, graph, live, target)


def _cuts_to(loss: torch.Tensor, run: Run | None) -> Callable[[torch.Tensor], Cut | None] | None:
    """Return a function that finds where the history from a tensor to the loss ends; None where no run was watched."""
    target = run.number(loss) if run is not None else None
    if target is None:
        return None

    def cut(source: torch.Tensor) -> Cut | None:
        number = run.number(source)
        return find_cut_between(run.record, number, target) if number is not None else None

    return cut


def _node_of(t: torch.Tensor, graph: Graph, live: Live) -> int:
    """Return the number of the node of a tensor that the graph reaches."""
    if not t.is_leaf:
        return live.nodes.index(t.grad_fn)
    return next(leaf.number for leaf in graph.leaves if leaf_variable(live.nodes[leaf.number]) is t)


def _of_tensor_alone(t: Any, name: str) -> Reason:
    if isinstance(t, torch.nn.Module):
        raise HelperError("a module came without a loss, and explain_grad(module, loss) was wanted")
    if reason := not_required(t, name):
        return reason
    if not t.is_leaf:
        return not_leaf(t, name)
    state = "is None: no backward has reached it yet" if t.grad is None else "is set"
    return Reason("no loss given", f"{name} is a leaf that requires grad, and its grad {state}", _GIVE_LOSS)


_GIVE_LOSS = "Give the loss too, explain_grad(t, loss), or the function that computes it."


def _of_loss(loss: Any, t: Any, run: Run | None) -> Reason | None:
    """Return the reason where the loss itself has no graph that could lead anywhere."""
    if not isinstance(loss, torch.Tensor):
        if isinstance(loss, bool | int | float | complex):
            text = f"the loss is the Python number {loss!r}, not a tensor: .item() or float() took it out of its graph"
            return Reason("number", text, "Keep the loss a tensor until backward has run.")
        raise HelperError(f"{in_short(loss)} came as loss, and a tensor or a function that returns one was wanted")
    number = run.number(loss) if run is not None else None
    cut = find_cut(run.record, number) if number is not None else None
    if not loss.requires_grad:
        if cut is not None:
            return Reason(cut.cause, f"the loss has no graph: {cut.text}", cut.remedy, cut.line)
        return Reason("no graph", f"the loss has no graph: {without_graph(loss)}", _GIVE_FUNCTION)
    if loss.is_leaf and loss is not t:
        how = cut.text if cut is not None else "it was made from plain numbers, or cut by detach, and then marked"
        return Reason(
            "fresh leaf",
            f"the loss is a leaf itself (grad_fn is None), so no other tensor can be reached from it: {how}",
            "Compute the loss from the model's outputs; requires_grad=True on a loss hides that its graph is gone.",
            cut.line if cut else None,
        )
    return None


_GIVE_FUNCTION = "Give the function that computes the loss, explain_grad(t, f): the line that ends the graph is named."


def _unreached(t: torch.Tensor, name: str, graph: Graph, live: Live, loss: torch.Tensor, run: Run | None) -> Reason:
    cuts = _cuts_to(loss, run)
    if cuts is not None and (cut := cuts(t)) is not None:
        why = f"the loss uses {name}, but {cut.text}"
        if not cut.sure:
            why = f"either the loss was not computed from {name}, or {cut.text}"
        return Reason(cut.cause, why, cut.remedy, cut.line)
    if not t.is_leaf and (reason := _made_anew(t, name, graph, live)):
        return reason
    index = live.storages.get(storage_key(t)) if t.layout == torch.strided else None
    for node in graph.nodes:
        if any(saved.storage is not None and saved.storage == index for saved in node.saved):
            return Reason(
                "detach",
                f"the loss uses the values of {name} ({node.name} saved a tensor on its storage) but can't be followed "
                "to it: what went in was cut off, as detach(), .data or no_grad do",
                _GIVE_FUNCTION,
            )
    for leaf in graph.leaves:
        other = leaf_variable(live.nodes[leaf.number])
        if other is not None and not leaf.names and _same_values(other, t):
            return Reason(
                "copy",
                f"{name} can't be reached from the loss, which ends at another leaf of shape {tuple(t.shape)} with the "
                "same values: a copy took its place, as Parameter(t), deepcopy or .to() of a detached tensor make",
                "Keep one tensor: use in the forward the one whose gradient you read.",
            )
    return Reason(
        "not used",
        f"{name} can't be reached from the loss, whose graph has {len(graph.leaves)} other "
        f"{'leaf' if len(graph.leaves) == 1 else 'leaves'}: the loss was not computed from it, or its history was cut",
        _GIVE_FUNCTION if run is None else "Use it in the forward of this loss.",
    )


def _made_anew(t: torch.Tensor, name: str, graph: Graph, live: Live) -> Reason | None:
    """Tell a result that only shares its leaves with the loss, such as a parametrized weight that was read again."""
    own, behind = read_graph(t, Names({}, None))
    reached = {id(leaf_variable(live.nodes[leaf.number])): leaf for leaf in graph.leaves}
    shared = [reached[i] for leaf in own.leaves if (i := id(leaf_variable(behind.nodes[leaf.number]))) in reached]
    if not shared:
        return None
    names = [leaf.names[0] for leaf in shared if leaf.names]
    return Reason(
        "another result",
        f"{name} is a result (grad_fn is {type(t.grad_fn).__name__}) that this loss was not computed from, but it does "
        f"reach {quoted(names) if names else 'a leaf'} behind it: the same computation was done twice, as each "
        "time the weight of a parametrized module is read",
        "Ask for the gradient of the leaf, or keep the very tensor that the forward used.",
    )


def _same_values(other: torch.Tensor, t: torch.Tensor) -> bool:
    """Say whether two tensors are equal and not by accident, as two weights that begin as ones are."""
    if other.shape != t.shape or other.layout != torch.strided or other.is_meta or t.is_meta:
        return False
    mine = t.detach().to(other)
    return torch.equal(other, mine) and (mine.numel() < 2 or bool((mine != mine.flatten()[0]).any()))
