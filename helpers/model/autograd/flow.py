"""`Flow`: one backward run of the real engine, noted node by node, without a trace on anything of the reader's.

The run is `torch.autograd.grad` with `retain_graph=True`: it hands the gradients back instead of adding them
to `.grad`, and frees nothing. Hooks on every node note what arrives and what leaves, and are removed. The `.grad`
of tensors that retain it is put back. What is the reader's own code, such as hooks on tensors or the backward of a
custom Function, runs as in any backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import GradientEdge
from torch.autograd.graph import Node as LiveNode
from torch.utils.checkpoint import CheckpointFunction

from helpers.model.adapter import forward_class, plain_access
from helpers.model.autograd.graph import Graph
from helpers.model.autograd.names import Names
from helpers.model.autograd.reading import read_graph
from helpers.model.autograd.retained import grads_kept
from helpers.model.autograd.sums import Sums
from helpers.model.autograd.values import Gradient
from helpers.model.finding import HelperError, in_short
from helpers.model.watch import first_line

MOST_NODES = 20_000


@dataclass(frozen=True)
class Step:
    """One node that ran. `arrived` has one gradient for each output of the forward operator, `left` for each input.

    For a leaf, `left` is empty and `arrived` is the whole gradient that backward adds to its `.grad`. `sent` is empty
    unless a hook on a tensor changed what the other nodes had sent: then it holds that, and `arrived` what came of it.
    """

    node: int
    arrived: tuple[Gradient | None, ...]
    left: tuple[Gradient | None, ...] = ()
    sent: tuple[Gradient | None, ...] = ()


@dataclass(frozen=True)
class Flow:
    """All steps of one backward run, in the engine's order."""

    graph: Graph
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, loss: torch.Tensor, *, model: torch.nn.Module | None = None) -> Flow:
        """Run backward from a tensor of one element, as `loss.backward()` does, and note every step.

        Raises HelperError for what has no graph, for anything but one real number, for a graph that was freed or whose
        saved tensors were changed, for one that torch can't run or whose backward raises, and for more than 20,000
        nodes.
        """
        names = Names.of_caller(model)
        if not issubclass(type(loss), torch.Tensor):
            raise HelperError(f"{in_short(loss)} came, and a tensor with a graph was wanted: the loss")
        graph, live = read_graph(loss, names)
        require_number(loss)
        if len(graph.nodes) > MOST_NODES:
            raise HelperError(f"the graph has {len(graph.nodes):,} nodes; backward is noted for at most {MOST_NODES:,}")
        if reason := not_ready(graph, live.nodes):
            raise HelperError(reason)
        with grads_kept():
            try:
                return cls(graph, _run(loss, graph, live.nodes))
            except Exception as error:  # from the reader's hook or Function, or from torch about what one of them gave
                raise HelperError(
                    f"backward from this tensor raises {type(error).__name__}: {first_line(error)}; "
                    "explain_error(loss.backward) tells more"
                ) from error


def require_number(loss: torch.Tensor, what: str = "the tensor") -> None:
    """Raise HelperError unless a tensor that requires grad is one real number, from which backward can start."""
    with plain_access():
        several, is_complex, is_meta, is_nested = loss.numel() != 1, loss.is_complex(), loss.is_meta, loss.is_nested
    if is_nested:
        raise HelperError(f"{what} is nested, and backward starts from one number: give the sum of its parts")
    if several:
        raise HelperError(
            f"{what} has shape {tuple(loss.shape)}, and backward starts from one number: give its sum() or mean()"
        )
    if is_complex:
        raise HelperError(f"{what} is complex, and backward starts from a real number: give its abs() or its real part")
    if is_meta:
        raise HelperError(f"{what} is on the meta device, so its gradients have shapes and no values")


def not_ready(graph: Graph, live: Sequence[LiveNode]) -> str:
    """Say why torch can't compute gradients through a graph without changing anything; "" where it can."""
    if graph.freed:
        names = ", ".join(dict.fromkeys(node.name for node in graph.freed[:3]))
        return (
            f"the saved tensors of {names} were freed by an earlier backward: run the forward again, or call "
            "backward(retain_graph=True) there"
        )
    for node in graph.nodes:
        for saved in node.saved:
            if saved.state == "changed":
                return (
                    f"{node.name} saved `{saved.owner or saved.name}` at version {saved.versions[0]}, and it was "
                    f"changed in place since (version {saved.versions[1]}): backward refuses to run"
                )
    if has_reentrant_checkpoint(graph, live):
        return (
            "the graph has a checkpoint with use_reentrant=True, whose backward runs only inside loss.backward(): make "
            "it with use_reentrant=False"
        )
    return ""


def has_reentrant_checkpoint(graph: Graph, live: Sequence[LiveNode]) -> bool:
    """Say whether a part of the forward is hidden: such a checkpoint records its graph only while backward runs."""
    return any(n.kind == "custom" and forward_class(live[n.number]) is CheckpointFunction for n in graph.nodes)


def _run(loss: Any, graph: Graph, live: tuple[LiveNode, ...]) -> tuple[Step, ...]:
    came: dict[int, tuple[tuple[Gradient | None, ...], tuple[Gradient | None, ...]]] = {}
    steps: list[Step] = []
    handles = []
    sums = Sums(graph, loss)

    def watch(number: int, node: LiveNode) -> None:
        def before(gradients: tuple[torch.Tensor | None, ...]) -> None:
            came[number] = tuple(map(Gradient.of, gradients)), sums.changed(number, gradients)

        def after(left: tuple[torch.Tensor | None, ...], _: Any) -> None:
            arrived, sent = came.pop(number, ((), ()))
            noted = tuple(map(Gradient.of, left))
            steps.append(Step(number, arrived, noted, sent))
            sums.add(number, left, noted)

        handles.append(node.register_prehook(before))
        handles.append(node.register_hook(after))

    leaves = [node.number for node in graph.leaves]
    try:
        for node in graph.nodes:
            if node.kind != "leaf":
                watch(node.number, live[node.number])
        edges = [GradientEdge(live[number], 0) for number in leaves]
        with torch.enable_grad():
            gradients = torch.autograd.grad(loss, edges, retain_graph=True, allow_unused=True)
    finally:
        for handle in handles:
            handle.remove()
    found = {
        number: Step(number, (Gradient.of(gradient),), (), sums.changed(number, (gradient,)))
        for number, gradient in zip(leaves, gradients, strict=True)
    }
    return _with_leaves(graph, steps, found)


def _with_leaves(graph: Graph, steps: list[Step], found: dict[int, Step]) -> tuple[Step, ...]:
    """Put each leaf after the last node that sends it a gradient: the engine runs it at once, before all others."""
    waiting = {number: set(graph.consumers[number]) for number in found}
    ordered: list[Step] = [found[n] for n in found if not waiting[n]]
    for step in steps:
        ordered.append(step)
        for edge in graph.nodes[step.node].edges:
            if edge and edge.to in waiting:
                waiting[edge.to].discard(step.node)
                if not waiting[edge.to]:
                    del waiting[edge.to]
                    ordered.append(found[edge.to])
    return tuple(ordered)
