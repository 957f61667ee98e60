"""`Graph`: the autograd graph that hangs on a live tensor, read node by node into plain data.

A node is one operator of the forward run, seen from backward: `next_functions` leads from it to the nodes
that made its inputs, and ends at an AccumulateGrad for each leaf that requires grad. The walk is a loop,
not a recursion, so a graph may be as deep as it likes. It runs no unpack hook, recomputes no checkpoint,
and keeps nothing alive: when it returns, only numbers and texts are left.

What torch's documentation says of nodes: torch.autograd.graph.Node, and "Autograd mechanics".
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch

from helpers.model.autograd.names import Names
from helpers.model.finding import HelperError, in_short


class Edge(NamedTuple):
    """Where a gradient goes: to output number `output` of the node number `to`."""

    to: int
    output: int


class SavedTensor(NamedTuple):
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


class Node(NamedTuple):
    """One node. `number` counts from 0 in order of discovery, breadth first from the roots.

    `kind` is "leaf" (AccumulateGrad), "custom" (a torch.autograd.Function), "view", "in-place" (CopySlices: a view
    was written to) or "operator". `edges` has one entry for each input of the forward operator, None where no
    gradient goes. `outputs` has shape and dtype of each output. `sequence` grows with the order of the forward run,
    None for a leaf. `names` are the reader's names: of a leaf all of them, of another node those of its results.
    `hooks` says which hooks were seen on those tensors. `order` is 2 for a node whose name says that backward
    recorded it, and for one made after the first of several roots, as `create_graph=True` makes them.
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
        from helpers.model.autograd.reading import read_graph  # here: it makes what this module defines

        return read_graph(roots, Names.of_caller(model))[0]

    def __repr__(self) -> str:
        nodes, leaves = len(self.nodes), len(self.leaves)
        return f"Graph of {nodes:,} node{'s' * (nodes != 1)} and {leaves:,} {'leaf' if leaves == 1 else 'leaves'}"

    @cached_property
    def leaves(self) -> tuple[Node, ...]:
        """The AccumulateGrad nodes."""
        return tuple(node for node in self.nodes if node.kind == "leaf")

    @cached_property
    def engine_order(self) -> tuple[int, ...]:
        """The numbers of the nodes as the engine runs them on one device.

        A node is ready when every node that sends it a gradient has run. Of the ready ones the engine takes the one
        that the forward run made last; a leaf comes first of all (torch/csrc/autograd/engine.cpp, the ready queue).
        Leaves that become ready together run one after the other, in an order that torch does not fix.
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

    def around(self, number: int, most: int) -> tuple[Graph, dict[int, int]]:
        """Return the part of the graph nearest to a node, of at most so many nodes, and its numbers by the old ones."""
        near, queue = {number: None}, [number]
        while queue and len(near) < most:
            here = queue.pop(0)
            ways = [*self.consumers[here], *(edge.to for edge in self.nodes[here].edges if edge)]
            new = [n for n in dict.fromkeys(ways) if n not in near][: most - len(near)]
            near |= dict.fromkeys(new)
            queue += new
        numbers = {old: new for new, old in enumerate(sorted(near))}
        nodes = []
        for old in numbers:
            edges = tuple(
                e._replace(to=numbers[e.to]) if e and e.to in numbers else None for e in self.nodes[old].edges
            )
            nodes.append(self.nodes[old]._replace(number=numbers[old], edges=edges))
        reached = {edge.to for node in nodes for edge in node.edges if edge}
        roots = tuple(Edge(node.number, 0) for node in nodes if node.number not in reached)
        return Graph(tuple(nodes), roots), numbers

    def find(self, name: str) -> Node:
        """Return the first node with this name, such as "MulBackward0", or of the tensor with this name.

        Raises HelperError where there is none.
        """
        if not isinstance(name, str):
            raise HelperError(f"{in_short(name)} came, and the name of a node or of a tensor was wanted, as a string")
        for node in self.nodes:
            if name == node.name or name in node.names:
                return node
        raise HelperError(f"this graph of {len(self.nodes):,} nodes has none called {in_short(name)}")
