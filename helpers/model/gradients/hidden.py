"""Parameters that a module uses and does not list: in a plain list or dict, in a partial, or as a plain tensor."""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import partial
from typing import Any

import torch

from helpers.model.gradients.reasons import Reason
from helpers.model.words import counted

PLAIN_TENSOR = "plain tensor"  # the cause of an attribute that requires grad and is no Parameter
_DEEPEST = 4  # lists in lists


def hidden_in(
    module: torch.nn.Module, reached: set[int], early: Container[int] = ()
) -> tuple[Reason, list[torch.Tensor]] | None:
    """Find modules, parameters and leaves in plain attributes of a module: they are nobody's. These come along.

    `reached` are the ids of the leaves that the loss reaches, `early` those of the leaves that attributes held before
    the first forward: what forward keeps in an attribute may be its input.
    """
    known = {id(p) for p in module.parameters()}
    for path, part in module.named_modules():
        for attribute, held in vars(part).items():
            lost = [] if attribute.startswith("_") else [p for p in _parameters_in(held) if id(p) not in known]
            where = ".".join(filter(None, (path, attribute)))
            if lost:
                return _listed_nowhere(where, held, lost, reached)
            if _is_leaf(held) and id(held) in reached and id(held) in early and id(held) not in known:
                return _plain_tensor(where), [held]
    return None


def _listed_nowhere(where: str, held: Any, lost: list, reached: set[int]) -> tuple[Reason, list[torch.Tensor]]:
    used = sum(id(p) in reached for p in lost)
    remedy = "Use torch.nn.ModuleList, ModuleDict, ParameterList or ParameterDict, and make the optimizer after that."
    if isinstance(held, partial):
        remedy = (
            "Give each parameter an attribute of its own, self.w = torch.nn.Parameter(…), and use self.w in forward."
        )
    return Reason(
        "plain list",
        f"attribute `{where}` is a plain {type(held).__name__} with {counted(len(lost), 'parameter')}, "
        f"{used} of which the loss reaches: parameters() does not list them, so no optimizer, no .to() "
        "and no state_dict() sees them",
        remedy,
    ), lost


def _plain_tensor(where: str) -> Reason:
    return Reason(
        PLAIN_TENSOR,
        f"attribute `{where}` is a plain tensor that requires grad and no Parameter: the loss reaches it, and "
        "parameters() does not list it, so no optimizer, no .to() and no state_dict() sees it",
        f"Write self.{where.rpartition('.')[2]} = torch.nn.Parameter(…), and make the optimizer after that.",
    )


def leaves_in_attributes(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Yield the leaves that require grad, are no Parameters, and hang at attributes of a module and its parts."""
    for part in module.modules():
        yield from filter(_is_leaf, list(vars(part).values()))


def _is_leaf(value: Any) -> bool:
    return type(value) is torch.Tensor and value.requires_grad and value.is_leaf


def _parameters_in(held: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """Yield the parameters in a plain list, tuple, dict or partial, and those of the modules in it."""
    if depth > _DEEPEST:
        return
    if isinstance(held, partial):
        held = [held.func, *held.args, *held.keywords.values()]
    for value in held.values() if type(held) is dict else held if type(held) in (list, tuple) else ():
        if isinstance(value, torch.nn.Module):
            yield from value.parameters()
        elif isinstance(value, torch.nn.Parameter):
            yield value
        else:
            yield from _parameters_in(value, depth + 1)
