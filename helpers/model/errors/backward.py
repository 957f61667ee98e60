"""The explainers of `explain_error` for autograd: conflicts of versions, freed graphs, losses without a graph."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import torch

from helpers.model.adapter import leaf_variable
from helpers.model.autograd.graph import Graph, Node, SavedTensor
from helpers.model.autograd.names import Names, parameters_of
from helpers.model.autograd.reading import read_graph
from helpers.model.errors.failure import Answer, Failure, explains
from helpers.model.errors.roots import graph_of, variables_of
from helpers.model.finding import HelperError
from helpers.model.gradients.cuts import Cut, find_cut, find_cut_between
from helpers.model.runs.record import Event, Record
from helpers.model.watch import tensors_in
from helpers.model.words import quoted

# Operators that save their result, by the start of their node's name.
_RESULT = re.compile(r"result\d*|output\d*|logsumexp")  # names of saved tensors
_SAVES_RESULT = "relu, sigmoid, tanh, exp, sqrt, softmax and others save their result"


@explains(
    r"modified by an inplace operation: \[.*?\](?:, which is output (\d+) of ([\w:]+),)? is at version (\d+); "
    r"expected version (\d+)"
)
def _version(match: re.Match, failure: Failure) -> Answer | None:
    """A saved tensor was written to between forward and backward."""
    graph, live = graph_of(failure)
    if graph is None:
        return None
    now, then = int(match[3]), int(match[4])
    found = next(_changed(graph, then, now), None) or next(_changed(graph), None)
    if found is None:
        return None
    node, saved = found
    record = failure.run.record if failure.run is not None else Record()  # an error caught outside: nothing was watched
    made = record.maker_of_node(node.sequence) if node.sequence is not None else None
    saver, saved_for = (f"{made.call.shown} in {made.call.at}", f" for {node.name}") if made else (node.name, "")
    address = next((key for key, index in live.storages.items() if index == saved.storage), None)
    guilty = _writer(record, address, saved.versions[0], made)
    written = [write.tensor for write in guilty.writes if write.storage == address] if guilty else []
    what = _role(node, saved, made, written)
    named = saved.owner or _written_name(record, saved, written)
    owner = f"its {what} `{named}`" if named else f"its {what}, a tensor of shape {saved.shape},"
    owner = owner.replace("its  ", "").replace("its ,", "") + _as_view(saved, failure)
    by = "it was changed in place"
    if guilty is not None:
        inside = f"{guilty.call.shown} in " if guilty.grad_mode and not guilty.call.direct else ""
        by = f"{inside}{guilty.call.expression}{guilty.call.where} changed it in place"
    text = (
        f"{saver} saved {owner} at version {saved.versions[0]}{saved_for}, and {by} "
        f"to version {saved.versions[1]} before backward needed it"
    )
    return text, _version_remedy(what, guilty)


def _role(node: Node, saved: SavedTensor, made: Event | None, written: list[int]) -> str:
    """Say whether a node saved an input or a result of its operator; "" for a custom Function, which may save any."""
    if node.kind == "custom":
        return ""
    is_result = made is not None and any(n in made.outputs and n not in made.inputs for n in written)
    return "result" if is_result or _RESULT.fullmatch(saved.name) else "input"


def _written_name(record: Record, saved: SavedTensor, written: list[int]) -> str:
    """Return the reader's name for a tensor that was written to, if it is all that was saved and no part of it."""
    seen = [record.tensors[n] for n in written]
    return next((s.text for s in seen if s.shape == saved.shape and s.text.isidentifier()), "")


def _version_remedy(what: str, guilty: Event | None) -> str:
    if guilty is not None and not guilty.call.direct:
        if guilty.name in ("embedding", "embedding_bag"):
            return "An Embedding with max_norm rescales its weight in every forward: use weight.clone() before it."
        if guilty.grad_mode:
            return "A module in that call writes in place, such as ReLU(inplace=True): give it inplace=False."
        return (
            "Nothing in your forward is in place here: call every backward that needs these values before the step, or "
            "run the forward again after it."
        )
    if guilty is not None and not guilty.grad_mode and what == "input":
        return "Change these values after the last backward that needs them, or run the forward again after the change."
    if what == "result":
        return f"Make a new tensor, such as h = h + 1 in place of h += 1: {_SAVES_RESULT}."
    return "Make a new tensor instead of writing into this one, or save a clone of it."


def _as_view(saved: SavedTensor, failure: Failure) -> str:
    """Say so where the saved tensor is another layout of the named one, such as a transposed weight."""
    t = _named(failure, saved.owner)
    return f" (seen as a view of shape {saved.shape})" if t is not None and tuple(t.shape) != saved.shape else ""


def _named(failure: Failure, name: str) -> torch.Tensor | None:
    variables = variables_of(failure)
    found = variables.get(name)
    if found is None and "." in name:
        module, _, path = name.partition(".")
        found = dict(parameters_of(variables[module])).get(path) if module in variables else None
    return found if issubclass(type(found), torch.Tensor) else None


def _changed(graph: Graph, *versions: int) -> Any:
    """Yield node and saved tensor of each change, in the engine's order; only those with these versions if given."""
    for number in graph.engine_order:
        for saved in graph.nodes[number].saved:
            if saved.state == "changed" and (not versions or saved.versions == versions):
                yield graph.nodes[number], saved


def _writer(record: Record, address: int | None, version: int, made: Event | None) -> Event | None:
    """Return the call that first wrote to a storage after a tensor on it was saved at this version."""
    start = made.number if made else -1
    for event in record.events:
        if event.number > start:
            for write in event.writes:
                if write.storage == address and write.before >= version:
                    return event
    return None


@explains(r"element (\d+) of (?:the )?(?:tensors|variables) does not require grad")
def _no_graph(match: re.Match, failure: Failure) -> Answer | None:
    """The loss has no history: say where it ended."""
    losses = tensors_in(failure.args[:1])
    loss = losses[int(match[1])] if int(match[1]) < len(losses) else None
    name = failure.operand(0, "the loss")
    number = failure.run.number(loss) if failure.run is not None and loss is not None else None
    cut = find_cut(failure.run.record, number) if number is not None else None
    if failure.run is None:
        return f"{name} has no graph: its history ended before backward, or never began", (
            "Parameters have requires_grad=True; detach(), no_grad, .item() and integer results end a history."
        )
    if cut is None:
        return f"{name} has no graph, because nothing that it was computed from requires grad", (
            "Set requires_grad=True on the tensors to train, before the forward; parameters of a module have it."
        )
    return f"{name} has no graph: {cut.text}", cut.remedy


@explains(r"differentiated Tensors? (?:at index \d+ )?appears to not have been used in the graph")
def _unused(match: re.Match, failure: Failure) -> Answer | None:
    """`torch.autograd.grad` was asked for a gradient of what the loss does not depend on."""
    asked = tensors_in([failure.args[1] if len(failure.args) > 1 else failure.kwargs.get("inputs", ())])
    graph, live = read_graph(failure.args[0], Names({}, None))
    reached = {id(leaf_variable(live.nodes[leaf.number])) for leaf in graph.leaves}
    reached |= {id(t) for t in asked if t.grad_fn is not None and t.grad_fn in live.nodes}
    missing = [t for t in asked if id(t) not in reached]
    names = names_of(failure, missing)
    shown = re.sub(r"`(a tensor of [^`]*)`", r"\1", quoted(names))
    count = f"{len(missing)} of the {len(asked)} tensors" if len(asked) > 1 else "the tensor"
    text = f"{count} that {failure.call.shown} was asked for can't be reached from the loss, {shown}"
    allow = "allow_unused=True gives None for what the loss does not reach."
    cut = next(filter(None, (_cut_between(failure, t) for t in missing)), None)
    if cut is not None:
        return f"{text}: {cut.text}", f"{cut.remedy} {allow}"
    silent = sorted({name.rpartition(".")[0] for name in names if "." in name})
    them = "it" if len(missing) == 1 else "they"
    who = quoted(silent) if silent and len(silent) <= 4 else them
    was = "were" if (them == "they" and who == them) or len(silent) > 1 else "was"
    return (
        f"{text}: {who} {was} never used in this forward",
        f"Use what is missing in the forward, or leave it out; {allow}",
    )


def _cut_between(failure: Failure, source: torch.Tensor) -> Cut | None:
    """Return where the history from a tensor to the first loss of a failed call ends."""
    losses = tensors_in(failure.args[:1])
    if failure.run is None or not losses:
        return None
    numbers = failure.run.number(source), failure.run.number(losses[0])
    return None if None in numbers else find_cut_between(failure.run.record, *numbers)


def names_of(failure: Failure, tensors: list[torch.Tensor]) -> list[str]:
    known = {id(t): name for name, t in failure.run.parameters().items()} if failure.run is not None else {}
    for name, value in variables_of(failure).items():
        if issubclass(type(value), torch.Tensor):
            known.setdefault(id(value), name)
        elif issubclass(type(value), torch.nn.Module):
            with suppress(HelperError):  # a module that can't list its parameters
                for path, parameter in parameters_of(value):
                    known.setdefault(id(parameter), f"{name}.{path}")
    return [known.get(id(t), f"a tensor of shape {tuple(t.shape)}") for t in tensors]
