"""`Graph`: the autograd graph that hangs on a live tensor, read node by node into plain data.

A node is one operator of the forward run, seen from backward: `next_functions` leads from it to the nodes
that made its inputs, and ends at an AccumulateGrad for each leaf that requires grad. The walk is a loop,
not a recursion, so a graph may be as deep as it likes. It runs no unpack hook, recomputes no checkpoint,
and keeps nothing alive: when it returns, only numbers and texts are left.

What torch's documentation says of nodes: torch.autograd.graph.Node, and "Autograd mechanics".
"""

from __future__ import annotations

import gc
import heapq
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.autograd.graph import Node as LiveNode

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
from helpers.model.finding import HelperError, in_short
from helpers.model.names import Names

# Nodes of operators whose result is a view: their backward moves numbers, and computes none.
_VIEWS = frozenset({
    "Alias", "AsStrided", "Diagonal", "Expand", "Narrow", "Permute", "ReshapeAlias", "Select", "Slice", "Split",
    "Squeeze", "T", "Transpose", "Unbind", "Unfold", "UnsafeView", "Unsqueeze", "View", "ViewAsComplex", "ViewAsReal",
})  # fmt: skip


_DEEP = 10_000  # nodes; far below the depth at which torch's own clean-up fails


class Edge(NamedTuple):
    """Where a gradient goes: to output number `output` of the node number `to`."""

    to: int
    output: int


@dataclass(frozen=True)
class SavedTensor:
    """One tensor that a node keeps for backward, until it is freed.

    `state` is "alive", "freed", "changed" (written to since; `versions` are the version then and now),
    "packed" (a pack hook of `saved_tensors_hooks` holds it) or "recomputed" (a checkpoint makes it again).
    `nbytes` counts the tensor's elements, in bytes; it is 0 where nothing is held. `storage` is a number:
    equal for tensors of this graph on one storage. `owner` is the reader's name for it, such as "layer.weight".
    """

    name: str
    state: str
    shape: tuple[int, ...] = ()
    dtype: torch.dtype | None = None
    nbytes: int = 0
    versions: tuple[int, int] | None = None
    storage: int | None = None
    owner: str = ""


@dataclass(frozen=True)
class ContextValue:
    """An attribute that a custom Function set on its `ctx`. `role`: "tensor", "output" (a reference cycle) or ""."""

    name: str
    text: str
    role: str = ""


@dataclass(frozen=True)
class Node:
    """One node. `number` counts from 0 in order of discovery, breadth first from the roots.

    `kind` is "leaf" (AccumulateGrad), "custom" (a torch.autograd.Function), "view", "in-place" (CopySlices: a view
    was written to) or "operator". `edges` has one entry for each input of the forward operator, None where no
    gradient goes. `outputs` has shape and dtype of each output. `sequence` grows with the order of the forward run,
    None for a leaf. `names` are the reader's names: of a leaf all of them, of another node those of its results.
    `hooks` says which hooks were seen on those tensors. `order` is 2 for a node that backward itself recorded.
    """

    number: int
    name: str
    kind: str
    edges: tuple[Edge | None, ...]
    outputs: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    sequence: int | None
    names: tuple[str, ...] = ()
    saved: tuple[SavedTensor, ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()
    context: tuple[ContextValue, ...] = ()
    hooks: tuple[str, ...] = ()
    order: int = 1

    @property
    def label(self) -> str:
        """The name in a sentence: "AccumulateGrad of w", "MulBackward0"."""
        return f"{self.name} of {self.names[0]}" if self.kind == "leaf" and self.names else self.name


@dataclass(frozen=True)
class Graph:
    """All nodes that can be reached from `roots`, one root for each tensor given."""

    nodes: tuple[Node, ...]
    roots: tuple[Edge, ...]
    names: tuple[str, ...] = ()  # of the roots

    @classmethod
    def of(cls, roots: Any, *, model: torch.nn.Module | None = None) -> Graph:
        """Read the graph of a tensor, a GradientEdge, or a list, tuple or dict of them.

        Leaves are named as in `model`, otherwise by the variables of the caller. Raises HelperError for what has no
        graph, with the reason, and for anything else than the above.
        """
        return read_graph(roots, Names.of_caller(model))[0]

    def __repr__(self) -> str:
        return f"Graph of {len(self.nodes):,} nodes and {len(self.leaves):,} leaves"

    @cached_property
    def leaves(self) -> tuple[Node, ...]:
        """The AccumulateGrad nodes."""
        return tuple(node for node in self.nodes if node.kind == "leaf")

    @cached_property
    def engine_order(self) -> tuple[int, ...]:
        """The numbers of the nodes as the engine runs them on one device.

        A node is ready when every node that sends it a gradient has run. Of the ready ones the engine takes the one
        that the forward run made last; a leaf comes first of all (torch/csrc/autograd/engine.cpp, the ready queue).
        """
        waiting = [0] * len(self.nodes)
        for node in self.nodes:
            for edge in node.edges:
                if edge:
                    waiting[edge.to] += 1
        ready = [self._priority(n) for n in dict.fromkeys(edge.to for edge in self.roots) if waiting[n] == 0]
        heapq.heapify(ready)
        order: list[int] = []
        while ready:
            number = heapq.heappop(ready)[1]
            order.append(number)
            for edge in self.nodes[number].edges:
                if edge:
                    waiting[edge.to] -= 1
                    if waiting[edge.to] == 0:
                        heapq.heappush(ready, self._priority(edge.to))
        return tuple(order)

    def _priority(self, number: int) -> tuple[float, int]:
        sequence = self.nodes[number].sequence
        return (float("-inf") if sequence is None else -sequence), number

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """For each node the numbers of the nodes that send it a gradient, each once."""
        found: list[dict[int, None]] = [{} for _ in self.nodes]
        for node in self.nodes:
            for edge in node.edges:
                if edge:
                    found[edge.to][node.number] = None
        return tuple(map(tuple, found))

    @property
    def saved_nbytes(self) -> int:
        """How many bytes the saved tensors hold; tensors of one storage are counted once, by the largest."""
        largest: dict[Any, int] = {}
        for node in self.nodes:
            for saved in node.saved:
                key = (node.number, saved.name) if saved.storage is None else saved.storage
                largest[key] = max(largest.get(key, 0), saved.nbytes)
        return sum(largest.values())

    @property
    def freed(self) -> tuple[Node, ...]:
        """The nodes whose saved tensors were freed: backward can't run through them again."""
        return tuple(node for node in self.nodes if any(saved.state == "freed" for saved in node.saved))

    def find(self, name: str) -> Node:
        """Return the first node with this name, such as "MulBackward0", or of the tensor with this name."""
        for node in self.nodes:
            if name == node.name or name in node.names:
                return node
        raise HelperError(f"this graph of {len(self.nodes):,} nodes has none called {in_short(name)}")


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
        pairs = [(str(key), value) for key, value in roots.items()]
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
    with plain_access():
        if not value.requires_grad:
            raise HelperError(f"the tensor of shape {tuple(value.shape)}{where} has no graph: {without_graph(value)}")
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
        with plain_access(), _collector_paused():
            while first < len(self.live):  # discovery order: the list grows while it is read
                nodes.append(self._node(self.live[first], first))
                first += 1
        if limit is not None:
            nodes = _mark_second_order(nodes, edges[0].to, limit)
        return Graph(tuple(nodes), edges, tuple(texts))

    def _number(self, node: LiveNode) -> int:
        number = self.numbers.get(node)
        if number is None:
            number = self.numbers[node] = len(self.live)
            self.live.append(node)
        return number

    def _node(self, live: LiveNode, number: int) -> Node:
        name = _name(live)
        edges = tuple(Edge(self._number(to), output) if to is not None else None for to, output in live.next_functions)
        leaf = leaf_variable(live)
        if leaf is not None:
            shape, named = ((tuple(leaf.shape), leaf.dtype),), tuple(self.names.of_leaf(leaf))
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
            tuple(name for name, _ in results),
            tuple(self._saved(saved) for saved in saved_tensors(live)),
            tuple(saved_settings(live).items()) if function is None else (),
            tuple(_context(live)) if function else (),
            tuple(hook for name, t in results for hook in _hooks(name, t)),
            2 if "BackwardBackward" in name else 1,
        )

    def _saved(self, saved: Saved) -> SavedTensor:
        value = saved.value
        if saved.state == "packed" and type(value).__module__ == "torch.utils.checkpoint":
            return SavedTensor(saved.name, "recomputed")
        if not isinstance(value, torch.Tensor):
            return SavedTensor(saved.name, saved.state)
        shape, dtype = tuple(value.shape), value.dtype
        nbytes = value.numel() * value.element_size()
        owner, storage = "", None
        if value.layout == torch.strided and type(value) in (torch.Tensor, torch.nn.Parameter):
            key = storage_key(value)
            storage = self.storages.setdefault(key, len(self.storages))
            self.alive.append(value)
            owner = self.names.of_storage(key, value)
        return SavedTensor(saved.name, saved.state, shape, dtype, nbytes, saved.versions, storage, owner)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep Python's collector from running: it would look through all that was read so far, again and again."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def _mark_second_order(nodes: list[Node], first_root: int, limit: int) -> list[Node]:
    """Give order 2 to the nodes that were made after the first root and can't be reached from it."""
    reached, stack = {first_root}, [first_root]
    while stack:
        for edge in nodes[stack.pop()].edges:
            if edge and edge.to not in reached:
                reached.add(edge.to)
                stack.append(edge.to)
    later = [n.number not in reached and n.sequence is not None and n.sequence > limit for n in nodes]
    return [Node(**{**vars(n), "order": 2}) if new else n for n, new in zip(nodes, later, strict=True)]


def _name(live: LiveNode) -> str:
    name = type(live).__name__
    return live.name().rpartition("::")[2] if name == "CppFunction" else name


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
        if isinstance(value, torch.Tensor):
            role = "output" if value.grad_fn is live else "tensor"
            yield ContextValue(name, f"a tensor of shape {tuple(value.shape)}", role)
        else:
            yield ContextValue(name, in_short(value))
