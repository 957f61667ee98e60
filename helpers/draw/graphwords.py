"""The sentence of an autograd graph's picture: what a screen reader says, and a text console prints."""

from __future__ import annotations

from collections.abc import Sequence

from helpers.model.autograd.graph import Graph
from helpers.model.autograd.modules import Box, longest_path
from helpers.model.words import counted, listed

MOST_LISTED = 4
RULE = (
    "An operator without parameters stands with the module whose parameters came before it in the forward run, "
    "as far as the graph can tell."
)


def graph_sentence(graph: Graph, boxes: Sequence[Box], depth: int | None, expand: Sequence[str], drawn: int) -> str:
    """Say what there is to see: nodes, leaves, the longest path, what backward can't use any more, the grouping."""
    leaves = graph.leaves
    names = [leaf.names[0] for leaf in leaves if leaf.names]
    starts = listed([graph.nodes[n].label for n in dict.fromkeys(root.to for root in graph.roots)], MOST_LISTED)
    told = [
        f"An autograd graph of {counted(len(graph.nodes), 'node')}, {_are_leaves(len(leaves))}"
        + (f": {listed(names, MOST_LISTED)}." if len(names) == len(leaves) and names else "."),
        f"The gradient enters at {starts} and flows down; the longest path has {counted(longest_path(graph), 'node')}.",
        *_saved(graph),
    ]
    second = sum(node.order > 1 for node in graph.nodes)
    if second:
        told.append(f"{counted(second, 'node')} made after the first root.")
    hooks = [hook for node in graph.nodes for hook in node.hooks]
    if hooks:
        told.append(f"Hooks: {listed(hooks, MOST_LISTED)}.")
    if depth is not None:
        opened = f", with {listed(expand, MOST_LISTED)} node by node" if expand else ""
        told.append(f"Grouped by module to depth {depth} in {_boxes(len(boxes))}{opened}. {RULE}")
    if drawn < len(boxes):
        told.append(f"Drawn are the first {drawn:,} of {len(boxes):,} boxes, in the order of backward.")
    return " ".join(told)


def _saved(graph: Graph) -> list[str]:
    """Return sentences on saved tensors: how many are alive, and what each other state means for backward."""
    found: dict[str, list[str]] = {}
    for node in graph.nodes:
        for saved in node.saved:
            detail = node.name
            if saved.state == "changed" and saved.versions:
                owner = f" ({saved.owner})" if saved.owner else ""
                detail = f"{saved.name}{owner} of {node.name}, from version {saved.versions[0]} to {saved.versions[1]}"
            found.setdefault(saved.state, []).append(detail)
    told = []
    if "alive" in found:
        told.append(f"{counted(len(found['alive']), 'saved tensor')} alive.")
    if "freed" in found:
        by = listed(dict.fromkeys(found["freed"]), MOST_LISTED)
        told.append(f"{counted(len(found['freed']), 'saved tensor')} freed, of {by}: backward can't run again.")
    if "changed" in found:
        told.append(f"Changed since it was saved: {listed(found['changed'], MOST_LISTED)}; backward will refuse it.")
    if "packed" in found:
        told.append(f"{counted(len(found['packed']), 'saved tensor')} packed by a hook.")
    if "recomputed" in found:
        told.append(f"{counted(len(found['recomputed']), 'saved tensor')} to be recomputed by a checkpoint.")
    return told


def _are_leaves(count: int) -> str:
    return "none of them a leaf" if not count else "1 of them a leaf" if count == 1 else f"{count:,} of them leaves"


def _boxes(count: int) -> str:
    return "1 box" if count == 1 else f"{count:,} boxes"
