"""The gradients of a whole module: which parameters the loss reaches, and which the optimizer holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any

import torch

from helpers.model.adapter import leaf_variable
from helpers.model.autograd.flow import not_ready
from helpers.model.autograd.graph import Graph
from helpers.model.autograd.names import parameters_of
from helpers.model.autograd.reading import Live
from helpers.model.gradients.cuts import Cut
from helpers.model.gradients.hidden import hidden_in
from helpers.model.gradients.reasons import Reason, all_of
from helpers.model.gradients.totals import explain_gradients
from helpers.model.words import counted, quoted

MOST_ASKED = 50  # parameters for which the line of a cut is looked for


def explain_module(
    module: torch.nn.Module,
    name: str,
    loss: torch.Tensor,
    graph: Graph,
    live: Live,
    cuts: Callable[[torch.Tensor], Cut | None] | None = None,
) -> Reason:
    """Say which parameters of a module the loss does not reach, and why as far as the module and the run show it.

    `cuts` finds where the history from a parameter to the loss ends; None where no run was watched.
    """
    paths = {id(p): (path, p) for path, p in reversed(parameters_of(module))}  # of a shared one the first
    named = dict(reversed(paths.values()))
    reached = {id(leaf_variable(live.nodes[leaf.number])) for leaf in graph.leaves}
    wanted = {path: p for path, p in named.items() if p.requires_grad}
    frozen = len(named) - len(wanted)
    missing = {path: p for path, p in wanted.items() if id(p) not in reached}
    if hidden := hidden_in(module, reached):
        return hidden[0]
    if missing:
        return not_reached(missing, list(wanted), f" of {name}", cuts)
    if not wanted:
        return Reason(
            "requires_grad is False",
            f"{all_of(frozen)} of {name} {'has' if frozen == 1 else 'have'} requires_grad False: none gets a gradient",
            f"{name.strip('`')}.requires_grad_() turns it on.",
        )
    none = [path for path, p in wanted.items() if p.grad is None]
    have = "it has" if len(wanted) == 1 else f"{len(none)} {'has' if len(none) == 1 else 'have'}"
    state = f"{have} no gradient yet: backward has not run on this loss"
    if none and graph.freed:
        state = f"{have} no gradient now: it was set to None after backward, as zero_grad() does"
    others = f"{frozen} other{'s are' if frozen > 1 else ' is'}"
    if none and not graph.freed and (why := not_ready(graph, live.nodes)):
        text = f"the loss reaches {all_of(len(wanted))} of {name}, and no gradient can be computed: {why}"
        return Reason("can't be computed", text, "explain_error(f) with the step as a function names the lines.")
    also = f"; {others} frozen (requires_grad False)" if frozen else ""
    if none:
        return Reason("no backward yet", f"the loss reaches {all_of(len(wanted))} of {name}, and {state}{also}")
    return explain_gradients(wanted, name, loss, graph, live, also)


def not_reached(
    missing: dict[str, torch.Tensor], known: list[str], of: str, cuts: Callable[[torch.Tensor], Cut | None] | None
) -> Reason:
    """Say why some of the `known` parameters can't be reached: the line that cut their history off, or no use at all.

    Without `cuts`, as of `explain_module`, the two can't be told apart: a cut leaves no trace.
    """
    if made := [path for path, p in missing.items() if p.is_inference()]:
        text = f"{quoted(made)}{of} {'was' if len(made) == 1 else 'were'} made in inference_mode"
        text += ", and such a tensor can never take part in a graph"
        return Reason("inference tensor", text, "Make the module outside inference_mode.")
    count = (
        f"{len(missing)} of {counted(len(known), 'parameter')}{of} can't be reached from the loss, "
        f"{quoted(list(missing))}"
    )
    silent = _silent(missing, known)
    if cuts is None:
        result = "its result was" if len(silent) == 1 else "their results were"
        which = f": {quoted(silent)} took no part in this forward, or {result} cut off, as detach() does"
        remedy = "Give the function that computes the loss, explain_grad(module, f): the line of a cut is named."
        return Reason("not used", count + which * bool(silent), remedy)
    found = {path: cut for path, p in list(missing.items())[:MOST_ASKED] if (cut := cuts(p)) is not None}
    unused = [module for module in silent if not any(path.startswith(f"{module}.") for path in found)]
    why = f"{quoted(unused)} took no part in the forward of this loss" if unused else ""
    if not found:
        remedy = "Use them in the forward, or leave them out of the optimizer."
        return Reason("not used", f"{count}{': ' * bool(why)}{why}", remedy)
    cut = next((cut for cut in found.values() if cut.sure), None)
    if cut is None:
        cut = next(iter(found.values()))
        why = f"{count}: either the loss was not computed from them, or {cut.text}"
        return Reason(cut.cause, why, cut.remedy, cut.line)
    return Reason(cut.cause, f"{count}: {cut.text}{'; ' * bool(why)}{why}", cut.remedy, cut.line)


def _silent(missing: Iterable[str], known: list[str]) -> list[str]:
    """Return the paths of the outermost modules of which every known parameter is missing."""
    alive = {path for name in known if name not in missing for path in accumulate(name.split("."), "{}.{}".format)}
    found: dict[str, None] = {}
    for name in missing:
        paths = accumulate(name.split(".")[:-1], "{}.{}".format)
        found.update(dict.fromkeys([path for path in paths if path not in alive][:1]))
    return list(found)


def explain_optimizer(t: Any, name: str, optimizer: torch.optim.Optimizer | None) -> Reason | None:
    """Compare what an optimizer holds with the parameters of a module, or with one tensor; None if they fit."""
    if optimizer is None:
        return None
    held = {id(p): p for group in optimizer.param_groups for p in group["params"]}
    if isinstance(t, torch.Tensor):
        if id(t) in held or not t.requires_grad:
            return None
        return Reason(
            "not in the optimizer",
            f"the optimizer holds {len(held)} tensors, and {name} is none of them: its step can't change it",
            "Make the optimizer after the model has its final parameters, or call optimizer.add_param_group.",
        )
    return optimizer_mismatch(dict(t.named_parameters()), held)


def optimizer_mismatch(
    named: dict[str, torch.Tensor], held: dict[int, torch.Tensor], needed: Iterable[str] | None = None, count: int = 1
) -> Reason | None:
    """Say which named parameters no optimizer holds, and how many are held that no module owns.

    `held` are the tensors of all `count` optimizers. `needed` are the names that some optimizer should hold, by default
    those of all parameters that require grad.
    """
    wanted = [path for path, p in named.items() if p.requires_grad] if needed is None else needed
    lacking = [path for path in wanted if id(named[path]) not in held]
    own = {id(p) for p in named.values()}
    orphans = sum(number not in own for number in held)
    if not lacking:
        return None
    some = [path for path in lacking if named[path].grad is not None]
    one = len(some or lacking) == 1
    state = f"{quoted(some)} {'has' if one else 'have'} a gradient" if some else ""
    state = state or f"{quoted(lacking)} {'needs' if one else 'need'} one"
    optimizers, hold = ("the optimizer", "it holds") if count == 1 else (f"the {count} optimizers", "they hold")
    text = f"{state} but {'is' if one else 'are'} in no param group of {optimizers}"
    if orphans:
        text += (
            f", while {hold} {counted(orphans, 'parameter')} that no module owns any more: a part of the model was "
            "replaced after the optimizer was made"
        )
    return Reason(
        "not in the optimizer",
        text,
        "Make the optimizer after the model has its final parameters, or call optimizer.add_param_group.",
    )
