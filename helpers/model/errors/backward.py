"""The explainers of `explain_error` for autograd: conflicts of versions, freed graphs, losses without a graph."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import torch

from helpers.model.adapter import leaf_variable
from helpers.model.autograd.graph import Graph, Node, SavedTensor
from helpers.model.autograd.names import Names, parameters_of
from helpers.model.autograd.reading import Live, read_graph
from helpers.model.errors.failure import Answer, Failure, explains
from helpers.model.finding import HelperError
from helpers.model.gradients.cuts import Cut, find_cut, find_cut_between
from helpers.model.gradients.reasons import listed
from helpers.model.owners import local_names
from helpers.model.runs.record import Event, Record
from helpers.model.source import is_library
from helpers.model.watch import tensors_in

# Operators that save their result, by the start of their node's name.
_RESULT = re.compile(r"result\d*|output\d*|logsumexp")  # names of saved tensors
_SAVES_RESULT = "relu, sigmoid, tanh, exp, sqrt, softmax and others save their result"


@explains(
    r"modified by an inplace operation: \[.*?\](?:, which is output (\d+) of ([\w:]+),)? is at version (\d+); "
    r"expected version (\d+)"
)
def _version(match: re.Match, failure: Failure) -> Answer | None:
    """A saved tensor was written to between forward and backward."""
    graph, live = _graph(failure)
    if graph is None or failure.run is None:
        return None
    now, then = int(match[3]), int(match[4])
    found = next(_changed(graph, then, now), None) or next(_changed(graph), None)
    if found is None:
        return None
    node, saved = found
    record = failure.run.record
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
    if what == "result":
        return f"Make a new tensor, such as h = h + 1 in place of h += 1: {_SAVES_RESULT}."
    return "Make a new tensor instead of writing into this one, or save a clone of it."


def _as_view(saved: SavedTensor, failure: Failure) -> str:
    """Say so where the saved tensor is another layout of the named one, such as a transposed weight."""
    t = _named(failure, saved.owner)
    return f" (seen as a view of shape {saved.shape})" if t is not None and tuple(t.shape) != saved.shape else ""


def _named(failure: Failure, name: str) -> torch.Tensor | None:
    variables = _variables(failure)
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


@explains(r"Trying to backward through the graph a second time")
def _second_backward(match: re.Match, failure: Failure) -> Answer | None:
    """Backward reached nodes whose saved tensors an earlier backward freed."""
    graph, _ = _graph(failure)
    if graph is None or failure.run is None:
        return None
    record = failure.run.record
    earlier = [e for e in record.calls("backward", "grad") if _is_backward(e)][:-1]  # the last is the one that failed
    if not earlier:
        return None
    last = earlier[-1]
    border = _border(graph, last.first)
    if border is None:
        text = f"{failure.call.at} runs backward a second time through the graph that {last.call.at} has freed"
        return text, (
            "Run the forward again before it; for several losses on one graph, add them and call backward once. "
            "retain_graph=True keeps the saved tensors, and their memory."
        )
    new, old = border
    made = record.maker_of_node(old.sequence)
    used = record.maker_of_node(new.sequence)
    crossing = _crossing(record, made, used) or "an older result"
    again = made is not None and _repeats(record, made, last.number)
    where = f"{made.call.expression}{made.call.where}" if made else old.name
    if again:
        text = (
            f"{crossing} entered this iteration with its graph: {old.name} behind it belongs to an earlier iteration, "
            f"and {last.call.at} has freed it"
        )
        name = crossing.strip("`") if crossing.startswith("`") else "it"
        return text, (
            f"Cut it where the iteration begins: {name} = {name}.detach(). retain_graph=True would let the graph grow "
            "without bound."
        )
    text = (
        f"{crossing} was computed once, by {where}, before {last.call.at} freed its graph, and this backward runs "
        "through it again"
    )
    return text, "Compute it again in every iteration, before its loss; or detach it if it needs no gradient."


def _is_backward(event: Event) -> bool:
    """Tell a backward from reading the attribute `.grad`, which has the same name as `torch.autograd.grad`."""
    return event.name == "backward" or (event.call.count > 1 and not event.call.expression.endswith(".grad`"))


def _border(graph: Graph, limit: int) -> tuple[Node, Node] | None:
    """Return the first edge from a node made since `limit` to one made before; None where the root is old."""
    for number in graph.engine_order:
        node = graph.nodes[number]
        if node.sequence is None or node.sequence < limit:
            continue
        for edge in node.edges:
            target = graph.nodes[edge.to] if edge else None
            if target and target.sequence is not None and target.sequence < limit:
                return node, target
    return None


def _crossing(record: Record, made: Event | None, used: Event | None) -> str:
    """Return the reader's name for the tensor that one call made and the other took."""
    if made is None or used is None:
        return ""
    common = [n for n in used.inputs if n in made.outputs] or list(used.inputs)
    named = [record.shown(n, "") for n in common if record.tensors[n].requires_grad]
    return next((name for name in named if name), "")


def _repeats(record: Record, made: Event, after: int) -> bool:
    """Say whether the line that made something ran again after the call number `after`."""
    place = made.call.place
    return any(
        event.number > after and event.name == made.name and event.call.place == place for event in record.events
    )


@explains(r"element (\d+) of (?:the )?(?:tensors|variables) does not require grad")
def _no_graph(match: re.Match, failure: Failure) -> Answer | None:
    """The loss has no history: say where it ended."""
    losses = tensors_in(failure.args[:1])
    loss = losses[int(match[1])] if int(match[1]) < len(losses) else None
    name = failure.operand(0, "the loss")
    number = failure.run.number(loss) if failure.run is not None and loss is not None else None
    cut = find_cut(failure.run.record, number) if number is not None else None
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
    names = _names_of(failure, missing)
    shown = re.sub(r"`(a tensor of [^`]*)`", r"\1", listed(names))
    count = f"{len(missing)} of the {len(asked)} tensors" if len(asked) > 1 else "the tensor"
    text = f"{count} that {failure.call.shown} was asked for can't be reached from the loss, {shown}"
    allow = "allow_unused=True gives None for what the loss does not reach."
    cut = next(filter(None, (_cut_between(failure, t) for t in missing)), None)
    if cut is not None:
        return f"{text}: {cut.text}", f"{cut.remedy} {allow}"
    silent = sorted({name.rpartition(".")[0] for name in names if "." in name})
    them = "it" if len(missing) == 1 else "they"
    who = listed(silent) if silent and len(silent) <= 4 else them
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


def _names_of(failure: Failure, tensors: list[torch.Tensor]) -> list[str]:
    known = {id(t): name for name, t in failure.run.parameters().items()} if failure.run is not None else {}
    for name, value in _variables(failure).items():
        if issubclass(type(value), torch.Tensor):
            known.setdefault(id(value), name)
        elif issubclass(type(value), torch.nn.Module):
            with suppress(HelperError):  # a module that can't list its parameters
                for path, parameter in parameters_of(value):
                    known.setdefault(id(parameter), f"{name}.{path}")
    return [known.get(id(t), f"a tensor of shape {tuple(t.shape)}") for t in tensors]


def _graph(failure: Failure) -> tuple[Graph, Live] | tuple[None, None]:
    """Return the graph of the tensors that backward was called on."""
    roots = failure.args[0] if failure.args else failure.kwargs.get("tensors", failure.kwargs.get("outputs"))
    try:
        return read_graph(roots, Names(_variables(failure), None))
    except HelperError:  # nothing with a graph was given: then another explainer knows why
        return None, None


def _variables(failure: Failure) -> dict[str, Any]:
    """Return the variables of the reader's code through which the error passed, the innermost last."""
    found: dict[str, Any] = {}
    step = failure.error.__traceback__
    while step is not None:
        if not is_library(step.tb_frame.f_code.co_filename):
            found |= local_names(step.tb_frame)
        step = step.tb_next
    return found
