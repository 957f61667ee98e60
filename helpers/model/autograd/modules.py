"""The nodes of an autograd graph, grouped into boxes by the module that they belong to.

A graph does not say which module recorded a node. The names of the parameters do: the operator that uses
`h.3.attn.proj.weight`, directly or through views such as a transpose, belongs with the module `h.3.attn.proj`. An
operator without parameters belongs with the module whose parameters came before it in the forward run; one before
all parameters with the first module. So the sum of a residual connection stands with the layer that it follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from helpers.model.autograd.graph import Graph
from helpers.model.finding import HelperError, in_short


class Link(NamedTuple):
    """Edges to one box: how many, and which output of its node they mean. None: it is a group, or has one output."""

    to: int
    output: int | None
    count: int


class Box(NamedTuple):
    """Nodes that are drawn as one. `number` counts from 0 in the order of backward; links lead to higher numbers.

    `members` are numbers of nodes. `kind` is "module" for a group, and the node's own kind for a single node.
    `path` is the path of the module, cut to the depth asked for; "" is the model itself.
    """

    number: int
    title: str
    members: tuple[int, ...]
    path: str
    links: tuple[Link, ...]
    kind: str


def boxes(graph: Graph, depth: int | None, expand: Sequence[str] = ()) -> tuple[Box, ...]:
    """Group the nodes by module, with module paths cut to `depth` names: depth 2 makes `h.3` of `h.3.attn.proj`.

    A box is a run of operators of one module with none of another in between, in the order in which backward runs
    them. A module that is called again later gets a box for each call. A leaf is in the box of the operators that use
    it; one that several boxes use is a box of its own. Depth 0 is one box for all; with depth None each node is a box,
    and so is each node of the modules in `expand`.

    Raises HelperError for a depth that is no count, and for a path in `expand` that no operator of the graph has.
    """
    _check(depth, expand)
    paths: Sequence[str] = ()
    if depth is not None or expand:
        paths = module_paths(graph)
        _check_known(expand, paths)
    if depth is None:
        groups = [[number] for number in graph.engine_order]
        return _linked(graph, groups, [""] * len(groups), ["node"] * len(groups))
    return _linked(graph, *_runs(graph, paths, depth, tuple(expand)))


def module_paths(graph: Graph) -> list[str]:
    """Return the path of the module that each node belongs with, by the rule above; of a leaf, that of its first name.

    Where a leaf has a name for each operator that uses it (tied weights), these take the names in turn, the first of
    the forward run the first name. Otherwise all of them take its first name.
    """
    nodes = graph.nodes
    paths: list[str | None] = [None] * len(nodes)
    given: dict[int, list[str]] = {}  # leaf -> the paths in its names, for one user after the other
    carried = [""] * len(nodes)  # of views of a parameter, the module of that parameter
    for leaf in graph.leaves:
        found = [name.rpartition(".")[0] for name in leaf.names if "." in name]
        in_turn = found[: len(graph.consumers[leaf.number])] if len(found) >= len(graph.consumers[leaf.number]) else []
        given[leaf.number] = in_turn[::-1] or found[:1]
        paths[leaf.number] = found[0] if found else ""
    forward = [number for number in reversed(graph.engine_order) if nodes[number].kind != "leaf"]
    for number in forward:
        node = nodes[number]
        own = ""
        only = node.kind == "view" or node.name == "ToCopyBackward0"
        for to in dict.fromkeys(edge.to for edge in node.edges if edge):
            left = given.get(to)
            path = carried[to]
            if left:
                path = left.pop() if len(left) > 1 else left[0]
            own = own or path
            only = only and bool(path)
        if own:
            paths[number] = own
            if only:
                carried[number] = own
    before = next((paths[number] for number in forward if paths[number]), "")
    for number in forward:
        before = paths[number] = paths[number] or before
    return [path or "" for path in paths]


def longest_path(graph: Graph) -> int:
    """Return how many nodes the longest path from a root has."""
    steps = [1] * len(graph.nodes)
    for number in graph.engine_order:
        after = steps[number] + 1
        for edge in graph.nodes[number].edges:
            if edge and steps[edge.to] < after:
                steps[edge.to] = after
    return max(steps)


def _check(depth: int | None, expand: Sequence[str]) -> None:
    if depth is not None and (type(depth) is not int or depth < 0):
        raise HelperError(f"depth is {in_short(depth)}, and a whole number from 0, or None, was wanted")
    if not isinstance(expand, tuple | list) or not all(isinstance(path, str) for path in expand):
        raise HelperError(f"expand is {in_short(expand)}, and a tuple of module paths was wanted, such as ('h.3',)")


def _check_known(expand: Sequence[str], paths: Sequence[str]) -> None:
    known: dict[str, None] = {}
    for path in dict.fromkeys(paths):
        parts = path.split(".")
        known.update(dict.fromkeys(".".join(parts[: i + 1]) for i in range(len(parts))))
    for path in expand:
        if path not in known:
            some = ", ".join(sorted(filter(None, known))[:8]) or "none"
            raise HelperError(f"expand names {in_short(path)}, and no operator here belongs with it; known are {some}")


def _runs(
    graph: Graph, paths: Sequence[str], depth: int, expand: tuple[str, ...]
) -> tuple[list[list[int]], list[str], list[str]]:
    """Return the members of each box with its path, and "node" or "module", in the order of backward."""
    cut: dict[str, str | None] = {}  # None: shown operator by operator
    for path in dict.fromkeys(paths):
        opened = any(path == one or path.startswith(one + ".") for one in expand)
        cut[path] = None if opened else ".".join(path.split(".")[:depth])
    groups: list[list[int]] = []
    group_paths: list[str] = []
    kinds: list[str] = []
    group_of = [-1] * len(graph.nodes)
    run, run_path = -1, None
    for number in graph.engine_order:
        node = graph.nodes[number]
        path = cut[paths[number]]
        if node.kind == "leaf":
            users = {group_of[user] for user in graph.consumers[number]}
            if len(users) == 1 and kinds[only := users.pop()] == "module":
                groups[only].append(number)
                group_of[number] = only
                continue
            alone = True
        else:
            alone = path is None
            if not alone and path == run_path:
                groups[run].append(number)
                group_of[number] = run
                continue
            run, run_path = len(groups), path
        group_of[number] = len(groups)
        groups.append([number])
        group_paths.append(paths[number] if alone else path or "")
        kinds.append("node" if alone else "module")
    return groups, group_paths, kinds


def _linked(graph: Graph, groups: list[list[int]], paths: list[str], kinds: list[str]) -> tuple[Box, ...]:
    """Return the boxes with titles and links."""
    nodes = graph.nodes
    box_of = [0] * len(nodes)
    for number, members in enumerate(groups):
        for member in members:
            box_of[member] = number
    titles = _titles(paths, kinds)
    found = []
    for number, (members, path, kind) in enumerate(zip(groups, paths, kinds, strict=True)):
        counts: dict[tuple[int, int | None], int] = {}
        for member in members:
            for edge in nodes[member].edges:
                if edge is not None and (to := box_of[edge.to]) != number:
                    several = kinds[to] == "node" and len(nodes[edge.to].outputs) > 1
                    key = to, edge.output if several else None
                    counts[key] = counts.get(key, 0) + 1
        links = tuple([Link(*key, count) for key, count in counts.items()])
        node = nodes[members[0]]
        title, kind = (node.name, node.kind) if kind == "node" else (titles[number], kind)
        found.append(Box(number, title, tuple(members), path, links, kind))
    return tuple(found)


def _titles(paths: Sequence[str], kinds: Sequence[str]) -> dict[int, str]:
    """Return a title for each group: its path, with the number of the call where the module has several boxes."""
    where: dict[str, list[int]] = {}
    for number, (path, kind) in enumerate(zip(paths, kinds, strict=True)):
        if kind == "module":
            where.setdefault(path, []).append(number)
    titles = {}
    opened = {path for path, kind in zip(paths, kinds, strict=True) if kind == "node"}
    for path, numbers in where.items():
        word = "part" if any(not path or one.startswith(path + ".") for one in opened) else "call"
        for nth, number in enumerate(reversed(numbers), 1):
            titles[number] = (path or "model") + (f" · {word} {nth}" if len(numbers) > 1 else "")
    return titles
