"""What optimizers do with gradients in a watched run: which they hold, and which they get when they step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from helpers.model.autograd.values import flat
from helpers.model.gradients.reasons import Reason
from helpers.model.owners import Walk
from helpers.model.words import quoted


def state_of(grad: torch.Tensor | None) -> str:
    """Return what a gradient is: "none", "zero", "not finite" or "alive"."""
    if grad is None:
        return "none"
    grad = grad.detach()
    values = grad.coalesce().values() if grad.layout == torch.sparse_coo else flat(grad)
    if not bool(values.isfinite().all()):
        return "not finite"
    return "alive" if bool(values.count_nonzero()) else "zero"


def held_by(optimizer: torch.optim.Optimizer) -> dict[int, torch.Tensor]:
    """Return the tensors of all param groups, by id."""
    return {id(p): p for group in optimizer.param_groups for p in group["params"]}


class Steps:
    """The optimizers that made a step, and what became of each gradient between a backward and a step.

    `name` gives the reader's name for a parameter. What is found wrong is put into `reasons`.
    """

    def __init__(self, name: Callable[[torch.Tensor], str]) -> None:
        self.optimizers: dict[int, torch.optim.Optimizer] = {}
        self.held: dict[int, torch.Tensor] = {}
        self.idle: dict[int, torch.Tensor] = {}  # held by an optimizer that had no gradient at any of its steps
        self._busy: set[int] = set()  # the other optimizers
        self.orphans: dict[int, torch.Tensor] = {}  # held, and nothing else of the reader's leads to them
        self.reasons: list[Reason] = []
        self.cleared = ""  # where a gradient was set to None last
        self._line: int | None = None
        self._backward: tuple[str, int | None] = ("backward", None)  # where the last one was called
        self._name = name
        self._filled: dict[int, str] = {}  # by backward, since the last step: the state of the gradient then
        self._owned: set[int] = set()  # held, and something else of the reader's leads to them
        self._used: set[int] = set()  # gradients that a step has used and that nothing has cleared since

    def backward_begins(self, leaves: Iterable[torch.Tensor], at: str, line: int | None) -> None:
        """Forget that a gradient was used where it has been cleared. `at` says where backward is called."""
        self._backward = at, line
        self._used -= {id(t) for t in leaves if id(t) in self._used and state_of(t.grad) in ("none", "zero")}

    def backward_ended(self, states: dict[int, str]) -> None:
        """Note what backward has left in the leaves that it reached."""
        self._filled |= {number: state for number, state in states.items() if state != "none"}

    def note_cleared(self, at: str, line: int | None) -> None:
        """Note where a gradient is set to None."""
        self.cleared, self._line = at, line

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Judge the gradients that a step is about to use."""
        self._note_idle(optimizer)
        filled = [p for number, p in held_by(optimizer).items() if number in self._filled]
        states = {id(p): state_of(p.grad) for p in filled}
        gone = [p for p in filled if states[id(p)] in ("none", "zero") and self._filled[id(p)] == "alive"]
        bad = [p for p in filled if states[id(p)] == "not finite"]
        again = [p for p in filled if states[id(p)] == "alive" and id(p) in self._used]
        if bad:
            self.reasons.append(not_finite(list(map(self._name, bad)), len(filled), "when the optimizer steps"))
        if filled and len(gone) == len(filled):
            self.reasons.append(self._of_cleared(gone))
        if again:
            self.reasons.append(_of_added(list(map(self._name, again)), *self._backward))

    def _note_idle(self, optimizer: torch.optim.Optimizer) -> None:
        """Note whether a step has a gradient to use."""
        held = held_by(optimizer)
        if any(p.grad is not None for p in held.values()):
            self._busy.add(id(optimizer))
        if id(optimizer) in self._busy:
            self.idle = {number: p for number, p in self.idle.items() if number not in held}
        else:
            self.idle |= held

    def after_step(self, optimizer: torch.optim.Optimizer, variables: Iterable[dict[str, Any]], own: set[int]) -> None:
        """Note what an optimizer holds, and whether a closure gave it gradients.

        `own` are the ids of tensors that are known to be in use.
        """
        self._note_idle(optimizer)
        held = held_by(optimizer)
        self.optimizers[id(optimizer)] = optimizer
        self.held |= held
        for number, p in held.items():
            self._filled.pop(number, None)
            if p.grad is not None:
                self._used.add(number)
        orphans = {number: p for number, p in held.items() if number not in own and number not in self._owned}
        for names in variables if orphans else ():
            self._owned |= _reachable(names, optimizer) & set(held)
        self.orphans |= {number: p for number, p in orphans.items() if number not in self._owned}

    def _of_cleared(self, gone: list[torch.Tensor]) -> Reason:
        count = f"the gradients of all {len(gone)} parameters" if len(gone) > 1 else "the gradient of the parameter"
        where = f", at {self.cleared}" if self.cleared and gone[0].grad is None else ""
        became = "None" if gone[0].grad is None else "zero"
        return Reason(
            "cleared",
            f"{count} that backward filled and the optimizer holds became {became} between backward and step, as "
            f"zero_grad() does{where}: the step has no gradient to use",
            "Call zero_grad() before backward(), or after step().",
            self._line if where else None,
        )


def not_finite(names: list[str], count: int, when: str, line: int | None = None) -> Reason:
    """Say which gradients hold nan or inf."""
    which = "the only gradient" if count == 1 else f"{len(names)} of {count} gradients"
    return Reason(
        "not finite",
        f"{which} {'holds' if len(names) == 1 else 'hold'} nan or inf {when}: "
        f"{'that' if len(names) == 1 else 'those'} of "
        f"{quoted(names)}",
        "Ask explain_grad(t, loss) with one of these and the loss before its backward: it names the operator.",
        line,
    )


def _of_added(names: list[str], at: str, line: int | None) -> Reason:
    have, it = ("was", "it") if len(names) == 1 else ("were", "them")
    whose = "the gradient" if len(names) == 1 else "the gradients"
    return Reason(
        "accumulated",
        f"{whose} of {quoted(names)} {have} used by a step, nothing cleared {it}, and the next backward, {at}, added "
        f"to {it}: the next step uses old gradients once more",
        "Call optimizer.zero_grad() before each backward.",
        line,
    )


def _reachable(names: dict[str, Any], optimizer: torch.optim.Optimizer) -> set[int]:
    """Return the ids of all tensors that some names lead to, on a way that is not through the optimizer."""
    walk = Walk(without=optimizer)
    found = {id(held.thing) for held in walk.names(names)}
    walk.close()
    return found
