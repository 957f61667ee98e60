"""The gradients of a whole module: which parameters the loss reaches, and which the optimizer holds."""

from __future__ import annotations

from typing import Any

import torch

from helpers.model.adapter import leaf_variable
from helpers.model.autograd.graph import Graph
from helpers.model.autograd.reading import Live
from helpers.model.gradients.reasons import Reason, listed


def explain_module(module: torch.nn.Module, name: str, graph: Graph, live: Live) -> Reason:
    """Say which parameters of a module the loss does not reach, and why as far as the module shows it."""
    named = dict(module.named_parameters())
    reached = {id(leaf_variable(live.nodes[leaf.number])) for leaf in graph.leaves}
    wanted = {path: p for path, p in named.items() if p.requires_grad}
    frozen = len(named) - len(wanted)
    missing = [path for path, p in wanted.items() if id(p) not in reached]
    if hidden := _hidden(module, live, graph):
        return hidden
    if missing:
        silent = [path for path, part in module.named_modules() if path and _all_in(part, path, missing)]
        outer = [path for path in silent if path.rpartition(".")[0] not in silent]
        why = f": module{'s' * (len(outer) > 1)} {listed(outer)} took no part in this forward"
        count = f"{len(missing)} of {len(wanted)} parameters of {name}"
        return Reason(
            "not used",
            f"{count} can't be reached from the loss, {listed(missing)}{why if outer else ''}",
            "Use them in the forward, or leave them out of the optimizer; explain_grad(t, f) with a function "
            "names a cut.",
        )
    if not wanted:
        return Reason(
            "requires_grad is False",
            f"all {frozen} parameters of {name} have requires_grad False: none gets a gradient",
            f"{name.strip('`')}.requires_grad_() turns it on.",
        )
    none = [path for path, p in wanted.items() if p.grad is None]
    state = (
        "all have a gradient" if not none else f"{len(none)} have no gradient yet: backward has not run on this loss"
    )
    if none and graph.freed:
        state = f"{len(none)} have no gradient now: it was set to None after backward, as zero_grad() does"
    also = f"; {frozen} others are frozen (requires_grad False)" if frozen else ""
    return Reason(
        "right" if not none else "no backward yet",
        f"the loss reaches all {len(wanted)} parameters of {name}, and {state}{also}",
    )


def _all_in(part: torch.nn.Module, path: str, missing: list[str]) -> bool:
    own = [f"{path}.{name}" for name, p in part.named_parameters() if p.requires_grad]
    return bool(own) and all(name in missing for name in own)


def _hidden(module: torch.nn.Module, live: Live, graph: Graph) -> Reason | None:
    """Find modules in a plain list or dict of the module: their parameters are nobody's."""
    known = {id(p) for p in module.parameters()}
    reached = {id(leaf_variable(live.nodes[leaf.number])) for leaf in graph.leaves}
    for path, part in module.named_modules():
        for attribute, held in vars(part).items():
            values = held.values() if type(held) is dict else held if type(held) in (list, tuple) else ()
            if attribute.startswith("_"):
                continue
            parameters = [
                p
                for value in values
                for p in (value.parameters() if isinstance(value, torch.nn.Module) else [value])
                if isinstance(p, torch.nn.Parameter)
            ]
            lost = [p for p in parameters if id(p) not in known]
            if lost:
                where = ".".join(filter(None, (path, attribute)))
                used = f", {sum(id(p) in reached for p in lost)} of which the loss reaches"
                return Reason(
                    "plain list",
                    f"attribute `{where}` is a plain {type(held).__name__} with {len(lost)} parameters{used}: "
                    "parameters() does "
                    "not list them, so no optimizer, no .to() and no state_dict() sees them",
                    "Use torch.nn.ModuleList, ModuleDict, ParameterList or ParameterDict.",
                )
    return None


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


def optimizer_mismatch(named: dict[str, torch.Tensor], held: dict[int, torch.Tensor]) -> Reason | None:
    """Say which named parameters the optimizer lacks, and how many it holds that no module owns."""
    lacking = [path for path, p in named.items() if p.requires_grad and id(p) not in held]
    own = {id(p) for p in named.values()}
    orphans = [p for p in held.values() if id(p) not in own]
    if not lacking:
        return None
    some = [path for path in lacking if named[path].grad is not None]
    state = (
        f"{listed(some)} {'has' if len(some) == 1 else 'have'} a gradient" if some else f"{listed(lacking)} need one"
    )
    text = f"{state} but {'is' if len(some or lacking) == 1 else 'are'} in no param group of the optimizer"
    if orphans:
        text += (
            f", while it holds {len(orphans)} parameter{'s' * (len(orphans) > 1)} that no module owns any more: a "
            "part of "
            "the model was replaced after the optimizer was made"
        )
    return Reason(
        "not in the optimizer",
        text,
        "Make the optimizer after the model has its final parameters, or call optimizer.add_param_group.",
    )
