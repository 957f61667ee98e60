"""The explainer of `explain_error` for a backward through a graph that was freed: which graph, and how it got there."""

from __future__ import annotations

import re

import torch

from helpers.model.adapter import sequence_number
from helpers.model.autograd.graph import Graph, Node
from helpers.model.errors.failure import Answer, Failure, explains
from helpers.model.errors.roots import graph_of, variables_of
from helpers.model.runs.record import Event, Record

_AGAIN = (
    "Run the forward again before it; for several losses on one graph, add them and call backward once. "
    "retain_graph=True keeps the saved tensors, and their memory."
)


@explains(r"Trying to backward through the graph a second time")
def _second_backward(match: re.Match, failure: Failure) -> Answer | None:
    """Backward reached nodes whose saved tensors an earlier backward freed."""
    graph, _ = graph_of(failure)
    if graph is None:
        return None
    record = failure.run.record if failure.run is not None else Record()
    backwards = [e for e in record.calls("backward", "grad") if _is_backward(e)]
    earlier = backwards[:-1]  # the last is the one that failed
    if not earlier:
        return _freed_before(graph, failure)
    last = earlier[-1]
    border = _border(graph, last.first)
    if border is None:
        text = f"{failure.call.at} runs backward a second time through the graph that {last.call.at} has freed"
        return text, _AGAIN
    new, old = border
    made, used = record.maker_of_node(old.sequence), record.maker_of_node(new.sequence)
    name, known = _crossing(record, made, used), _held_now(failure, old)
    name = known[0] if known and name not in known and name.isidentifier() else name
    shown = f"`{name}`" if name else "an older result"
    if made is not None and _repeats(record, made, last.number):
        text = (
            f"{shown} entered this iteration with its graph: {old.name} behind it belongs to an earlier iteration, "
            f"and {last.call.at} has freed it"
        )
        return (
            text,
            f"{_cut_it(record, made, used, name, known)} retain_graph=True would let the graph grow without bound.",
        )
    where = made.call.at if made else old.name
    text = (
        f"{shown} was computed once, by {where}, before {last.call.at} freed its graph, and this backward runs "
        "through it again"
    )
    if last.call.place == failure.call.place:
        return text, "Compute it again in every iteration, before its loss; or detach it if it needs no gradient."
    return text, "Add the losses and call backward once, or run the forward again for the second one."


def _freed_before(graph: Graph, failure: Failure) -> Answer | None:
    """Return the answer where the earlier backward was not watched, as in another cell."""
    numbers = {node.number for node in graph.freed}
    freed = [graph.nodes[n] for n in graph.engine_order if n in numbers]
    if not freed:
        return None
    node = next((node for node in freed if node.names), freed[0])
    result = f", which made `{node.names[0]}`" if node.names else ""
    text = f"{failure.call.at} reaches {node.name}{result}, and an earlier backward has freed what that node saved"
    return text, _AGAIN


def _cut_it(record: Record, made: Event, used: Event | None, name: str, held: list[str]) -> str:
    """Say how to cut what is carried into the next iteration."""
    if not name:
        return "Detach what is carried on, where the iteration begins."
    text = used.call.place.text if used is not None and used.call.place else ""
    if found := re.search(rf"\bfor\b[^:]*\b{re.escape(name)}\b[^:]*\bin\s+([\w.]+)", text):
        return f"Store {name}.detach() in place of {name} in `{found[1]}`: what is kept there has its graph."
    alone = (
        name in held
        or any(record.tensors[n].text == name for n in made.outputs)
        or (name in _operands(used) and len(_operands(used)) == len(used.inputs))
    )
    if alone:
        return f"Cut it where the iteration begins: {name} = {name}.detach()."
    return f"Cut it where the iteration begins: detach `{name}`, or each tensor in it if it is a tuple or a list."


def _held_now(failure: Failure, node: Node) -> list[str]:
    """Return the reader's variables that hold the result of a node while the error passes."""
    found = variables_of(failure).items()
    tensors = {name: t for name, t in found if issubclass(type(t), torch.Tensor) and t.grad_fn is not None}
    return [name for name, t in tensors.items() if sequence_number(t.grad_fn) == node.sequence]


def _operands(used: Event | None) -> list[str]:
    """Return the texts of the arguments of a call that the reader wrote; empty for a call of a library."""
    if used is None or not used.call.direct:
        return []
    return [used.call.operand(k, "").strip("`") for k in range(used.call.count)]


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


_NAME = re.compile(r"[A-Za-z_][\w.]*(\[[^\]]*\])*")


def _crossing(record: Record, made: Event | None, used: Event | None) -> str:
    """Return the reader's name for what one call made and the other took: a variable, an attribute, or ""."""
    if made is None or used is None:
        return ""
    common = [n for n in used.inputs if n in made.outputs] or list(used.inputs)
    texts = [record.tensors[n].text for n in common if record.tensors[n].requires_grad]
    arguments = used.call.place.arguments if used.call.place else ()
    inputs = {seen.text for seen in record.tensors if not seen.requires_grad}
    texts_now = _operands(used)
    if len(texts_now) == len(used.inputs):  # each tensor is an argument by itself
        now = [t for t, n in zip(texts_now, used.inputs, strict=True) if n in common and _NAME.fullmatch(t)]
        if now:
            return now[0]
    others = [text for text in texts_now if _NAME.fullmatch(text) and text not in inputs]
    if named := next((text for text in texts if _NAME.fullmatch(text)), ""):
        whole = named.partition("[")[0]  # `state` where the call was given all of it
        if named in others or not others:
            return whole if whole in arguments else named
        own = [record.tensors[n].text for n in used.inputs if n not in common]
        return next((text for text in others if text not in own), named)
    # It came inside something else, such as the pair of an LSTM: an argument with a name that is no plain input.
    found = [text for text in arguments if _NAME.fullmatch(text) and text not in inputs]
    return found[-1] if found else next((text for text in texts if text), "")


def _repeats(record: Record, made: Event, after: int) -> bool:
    """Say whether the line that made something ran again after the call number `after`."""
    place = made.call.place
    return any(event.number > after and event.call.place == place for event in record.events)
