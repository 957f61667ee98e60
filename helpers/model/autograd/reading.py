"""Reading the graph that hangs on live tensors: `read_graph`.

The walk is a loop, not a recursion, so a graph may be as deep as it likes. It runs no unpack hook, recomputes
no checkpoint, and keeps nothing alive once its `Live` part is dropped.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.autograd.graph import Node as LiveNode
from torch.nn.parameter import is_lazy

from helpers.model.adapter import (
    Saved,
    forward_class,
    leaf_variable,
    output_metadata,
    plain_access,
    saved_settings,
    saved_tensors,
    sequence_number,
    storage_key,
    tensor_hooks,
)
from helpers.model.autograd.graph import ContextValue, Edge, Graph, Node, SavedTensor
from helpers.model.autograd.names import Names
from helpers.model.autograd.nodes import STALE, grad_fn_of, is_stale_view
from helpers.model.finding import HelperError, in_short

# Nodes of operators whose result is a view: their backward moves numbers, and computes none.
_VIEWS = frozenset({
    "Alias", "AsStrided", "Diagonal", "Expand", "Narrow", "Permute", "ReshapeAlias", "Select", "Slice", "Split",
    "Squeeze", "T", "Transpose", "Unbind", "Unfold", "UnsafeView", "Unsqueeze", "View", "ViewAsComplex", "ViewAsReal",
})  # fmt: skip


_DEEP = 10_000  # nodes; far below the depth at which torch's own clean-up fails


class Live(NamedTuple):
    """What a graph was read from. Drop it soon: live nodes keep their saved tensors alive.

    `nodes` are in the order of the graph's. `storages` leads from `adapter.storage_key` to `SavedTensor.storage`.
    """

    nodes: tuple[LiveNode, ...]
    storages: dict[int, int]


def read_graph(roots: Any, names: Names) -> tuple[Graph, Live]:
    """Return the graph of `Graph.of` together with what it was read from."""
    found, texts = _edges(roots)
    walk = _Walk(names)
    try:
        graph = walk.read(found, texts)
        if len(graph.nodes) > _DEEP:
            _hold_in_order(graph, walk.live)
        return graph, Live(tuple(walk.live), walk.storages)
    finally:
        names.clear()
        walk.alive.clear()


def _hold_in_order(graph: Graph, live: list[LiveNode]) -> None:
    """Let the first root hold the Python objects of all nodes, so that they are dropped one after the other.

    A node that was looked at from Python keeps a Python object. When the last tensor of a chain of 50,000 such nodes
    dies, torch frees them by recursion and the process crashes (seen with torch 2.13, by any walk over next_functions).
    A list drops its last member first: the engine's order from the back frees each node before those it leads to.
    Nothing lives longer for it, as the root holds its graph anyway.
    """
    live[graph.roots[0].to].metadata["nodes in order"] = [live[n] for n in reversed(graph.engine_order)][:-1]


def _edges(roots: Any) -> tuple[list[GradientEdge], list[str]]:
    """Return the gradient edges of what the reader gave, with a text for each."""
    if isinstance(roots, dict):
        pairs = [(key if type(key) is str else in_short(key), value) for key, value in roots.items()]
    elif isinstance(roots, list | tuple) and not isinstance(roots, GradientEdge):
        pairs = [(f"[{i}]", value) for i, value in enumerate(roots)]
    else:
        pairs = [("", roots)]
    if not pairs:
        raise HelperError(f"an empty {type(roots).__name__} came, and a tensor with a graph was wanted")
    found = [(name, _edge(value, name)) for name, value in pairs]
    return [edge for _, edge in found], [name for name, _ in found]


def _edge(value: Any, name: str) -> GradientEdge:
    where = f" as {name}" if name else ""
    if isinstance(value, GradientEdge):
        return value
    if not isinstance(value, torch.Tensor):
        raise HelperError(f"{in_short(value)} came{where}, and a tensor with a graph was wanted")
    if is_lazy(value):
        raise HelperError(f"a parameter without a shape came{where}: run its module once, which gives it one")
    with plain_access():
        if not value.requires_grad:
            raise HelperError(f"{in_short(value).replace('a ', 'the ', 1)}{where} has no graph: {without_graph(value)}")
        if is_stale_view(value):
            raise HelperError(f"{in_short(value).replace('a ', 'the ', 1)}{where} {STALE}; make the view again")
        return get_gradient_edge(value)


def without_graph(t: torch.Tensor) -> str:
    """Say why a tensor that does not require grad has no graph, as far as the tensor itself can tell."""
    if t.is_inference():
        return "it was made in inference_mode"
    if not (t.dtype.is_floating_point or t.dtype.is_complex):
        return f"its dtype is {t.dtype}, and only floating and complex tensors have gradients"
    return "its requires_grad is False, as after detach, under no_grad, or when no input requires grad"


class _Walk:
    """Reads live nodes. Holds them, and the tensors they name, until it is done."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.numbers: dict[LiveNode, int] = {}
        self.live: list[LiveNode] = []
        self.storages: dict[int, int] = {}
        self.alive: list[Any] = []  # so that no storage's number is used twice

    def read(self, roots: Sequence[GradientEdge], texts: Sequence[str]) -> Graph:
        edges = tuple(Edge(self._number(root.node), root.output_nr) for root in roots)
        nodes, first = [], 0
        limit = sequence_number(roots[0].node) if len(roots) > 1 else None
        with plain_access(), collector_paused():
            while first < len(self.live):  # discovery order: the list grows while it is read
                nodes.append(self._node(self.live[first], first))
                first += 1
        if limit is not None:
            nodes = _mark_second_order(nodes, edges, limit)
        return Graph(tuple(nodes), edges, tuple(texts))

    def _number(self, node: LiveNode) -> int:
        number = self.numbers.get(node)
        if number is None:
            number = self.numbers[node] = len(self.live)
            self.live.append(node)
        return number

    def _node(self, live: LiveNode, number: int) -> Node:
        name = _name(live)
        # Lists within tuple(…), here and below: they are faster than generators, and this runs for every node.
        edges = tuple(
            [Edge(self._number(to), output) if to is not None else None for to, output in live.next_functions]
        )
        leaf = leaf_variable(live)
        if leaf is not None:
            shape, named = ((_shape(leaf), leaf.dtype),), tuple(self.names.of_leaf(leaf))
            hooks = _hooks(named[0] if named else "the leaf", leaf)
            return Node(number, name, "leaf", edges, shape, None, named, hooks=hooks)
        function = forward_class(live)
        results = self.names.of_results(live)
        kind = "custom" if function else _kind(name)
        return Node(
            number,
            name,
            kind,
            edges,
            tuple(output_metadata(live)),
            sequence_number(live),
            tuple([name for name, _ in results]),
            tuple([self._saved(saved) for saved in saved_tensors(live)]),
            tuple(saved_settings(live).items()) if function is None else (),
            tuple(_context(live)) if function else (),
            tuple([hook for name, t in results for hook in _hooks(name, t)]),
            2 if "BackwardBackward" in name else 1,
        )

    def _saved(self, saved: Saved) -> SavedTensor:
        value = saved.value
        if saved.state == "packed" and type(value).__module__ == "torch.utils.checkpoint":
            return SavedTensor(saved.name, "recomputed")
        if not isinstance(value, torch.Tensor):
            return SavedTensor(saved.name, saved.state)
        shape, dtype = _shape(value), value.dtype
        nbytes = value.numel() * value.element_size()
        owner, storage = "", None
        if value.layout == torch.strided and type(value) in (torch.Tensor, torch.nn.Parameter):
            key = storage_key(value)
            storage = self.storages.setdefault(key, len(self.storages))
            self.alive.append(value)
            owner = self.names.of_storage(key, value)
        return SavedTensor(saved.name, saved.state, shape, dtype, nbytes, saved.versions, storage, owner)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep Python's collector from running: it would look through all that was made so far, again and again."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def _mark_second_order(nodes: list[Node], roots: Sequence[Edge], limit: int) -> list[Node]:
    """Give order 2 to the nodes that were made after the first root and can't be reached from it."""
    known = _reachable(nodes, roots[:1])
    later = {n.number for n in nodes if n.number not in known and n.sequence is not None and n.sequence > limit}
    return [node._replace(order=2) if node.number in later else node for node in nodes]


def _reachable(nodes: list[Node], roots: Sequence[Edge]) -> set[int]:
    found = {root.to for root in roots}
    stack = list(found)
    while stack:
        for edge in nodes[stack.pop()].edges:
            if edge and edge.to not in found:
                found.add(edge.to)
                stack.append(edge.to)
    return found


def _name(live: LiveNode) -> str:
    name = type(live).__name__
    return live.name().rpartition("::")[2] if name == "CppFunction" else name


def _shape(t: torch.Tensor) -> tuple[int, ...]:
    """Return a shape; of a nested tensor (), as `adapter.output_metadata` does."""
    return () if t.is_nested else tuple(t.shape)


def _kind(name: str) -> str:
    if name == "CopySlices":
        return "in-place"
    return "view" if name.partition("Backward")[0] in _VIEWS else "operator"


def _hooks(name: str, t: torch.Tensor) -> tuple[str, ...]:
    on_grad, after = tensor_hooks(t)
    found = [f"{on_grad} hook{'s' * (on_grad > 1)} on the gradient of {name}"] if on_grad else []
    found += [f"{after} hook{'s' * (after > 1)} after accumulation into {name}.grad"] if after else []
    found += [f"{name} retains its grad"] if not t.is_leaf and t.retains_grad else []
    return tuple(found)


def _context(live: Any) -> Iterator[ContextValue]:
    for name, value in vars(live).items():
        if name.startswith("_pt_"):  # set by torch.func, not by the reader, and full of addresses
            continue
        if isinstance(value, torch.Tensor):
            role = "output" if grad_fn_of(value) is live else "tensor"
            yield ContextValue(name, in_short(value), role)
        else:
            yield ContextValue(name, in_short(value))
