"""`GradRun`: a run of the reader's program, with a look at each backward, each `.grad` and each step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from helpers.model.adapter import forward_class, leaf_variable, plain_access, sequence_number, storage_key
from helpers.model.autograd import flow
from helpers.model.autograd.flow import has_reentrant_checkpoint
from helpers.model.autograd.graph import Graph
from helpers.model.autograd.names import Names
from helpers.model.autograd.reading import read_graph
from helpers.model.finding import HelperError
from helpers.model.gradients import totals, values
from helpers.model.gradients.cuts import Cut, find_cut, find_cut_between
from helpers.model.gradients.fallback import dropped_in_graph
from helpers.model.gradients.hidden import hidden_in, leaves_in_attributes
from helpers.model.gradients.kept import kept_results
from helpers.model.gradients.leaves import reason_for_none
from helpers.model.gradients.reasons import Reason
from helpers.model.gradients.steps import Steps, state_of
from helpers.model.gradients.writes import unnoticed_writes
from helpers.model.owners import names_in
from helpers.model.runs.record import Event
from helpers.model.runs.run import Run
from helpers.model.source import is_library
from helpers.model.watch import READER, Call, tensors_in

_FLAT = ("Sign", "Round", "Floor", "Ceil", "Trunc")  # the derivative is 0 wherever there is one
_ASKING = {module.__file__ for module in (flow, values, totals)}


def _asked_by_helper() -> bool:
    """Say whether a gradient is asked for by one of these helpers, which the reader called inside the program."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code is not READER and is_library(frame.f_code.co_filename):
        if frame.f_code.co_filename in _ASKING:
            return True
        frame = frame.f_back
    return False


class GradRun(Run):
    """Looks at each backward when it starts and ends, at each `.grad` that is read, and at each step."""

    def __init__(self) -> None:
        super().__init__()
        self.backwards = 0
        self.reached: set[int] = set()  # ids of leaves, kept alive by `_leaves`
        self.reasons: list[tuple[int, Reason]] = []  # with their rank
        self.losses: list[int] = []  # numbers of the tensors that backward started from
        self.known: dict[str, torch.Tensor] = {}  # parameters that require grad, and the names that were reached
        self.got: dict[str, None] = {}
        self.filled: dict[str, None] = {}  # of these, whose gradient a backward filled or the reader asked for
        self.used: dict[int, int] = {}  # by the number of a loss: the event before its backward
        self.kept: tuple[Event, int] | None = None  # a call whose results of earlier iterations live on
        self.flat: dict[str, str] = {}  # operators of the losses whose derivative is 0 everywhere, and where they are
        self._starts: dict[Any, list[int]] = {}  # the event before each backward, by the place of its call
        self._early: dict[int, torch.Tensor] = {}  # leaves at attributes of modules, before these have run
        self.steps = Steps(self.name_of)
        self.numbers: set[int] = set()  # of the leaves that were reached
        self.last = -1  # the number of the event before the last backward
        self.states: dict[int, str] = {}  # of each leaf that backward filled: the best state of its gradient
        self.bad: dict[int, torch.Tensor] = {}  # leaves whose gradient is not finite after the last backward
        self.filled_at: tuple[str, int | None] = ("backward", None)  # where the last backward was called
        self.lost: list[tuple[Reason, list[torch.Tensor]]] = []  # parameters in plain lists
        self.named: dict[str, torch.Tensor] = {}
        self._leaves: list[torch.Tensor] = []
        self.hidden = False  # whether a checkpoint hid a part of a graph

    def __enter__(self) -> GradRun:
        super().__enter__()
        self._handles.append(register_optimizer_step_pre_hook(self._steps))
        self._handles.append(register_optimizer_step_post_hook(self._stepped))
        return self

    def around(self, call: Call, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        starts = call.name == "backward" or (call.name == "grad" and call.count > 1)
        starts = starts and bool(args) and not _asked_by_helper()
        leaves: list[torch.Tensor] = []
        if starts:
            self.backwards += 1
            with self.aside(call), plain_access():
                asked = [args[1:2], (kwargs or {}).get("inputs", ())] if call.name == "grad" else ()
                leaves = self._look_at_loss(call, args[0], tensors_in(asked))
        elif call.name == "__set__":
            self._look_at_set(call, func, args)
        result = super().around(call, func, args, kwargs)
        if starts and call.name == "backward":
            with self.aside(call), plain_access():
                self._look_at_filled(call, leaves)
        elif starts:
            self.states[0] = "alive"  # torch.autograd.grad gave the gradients to the reader, and nothing is known
        reads = call.name == "grad" and call.count == 1 and result is None and call.direct
        if reads and self.backwards and isinstance(args[0], torch.Tensor):
            with self.aside(call), plain_access():
                self._look_at_none(call, args[0])
        return result

    def _note_module(self, module: torch.nn.Module) -> None:
        known = len(self.modules)
        super()._note_module(module)
        if len(self.modules) > known:
            self._early |= {id(t): t for t in leaves_in_attributes(module)}

    def name_of(self, t: torch.Tensor) -> str:
        """Return the reader's name for a parameter or another leaf, without backquotes."""
        known = next((path for path, p in self.known.items() if p is t), None)
        number = self.number(t)
        return known or (self.record.shown(number, "a leaf") if number is not None else "a leaf").strip("`")

    def cut(self, source: torch.Tensor) -> Cut | None:
        """Return where the history from a tensor to one of the losses ends."""
        number = self.number(source)
        if number is None:
            return None
        found = (find_cut_between(self.record, number, loss) for loss in self.losses)
        return next((cut for cut in found if cut is not None), None)

    def _steps(self, optimizer: Any, *_: Any) -> None:
        """Judge the gradients that a step is about to use."""
        with self.aside(None), plain_access():
            self.steps.before_step(optimizer)

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        """Note what an optimizer holds. Another one may hold the rest, so it is judged when the run is over."""
        with self.aside(None), plain_access():
            self.named.update(self.parameters())
            own = {id(p) for p in self.named.values()} | self.reached
            self.steps.after_step(optimizer, _variables(sys._getframe(1)), own)

    def _add(self, rank: int, cause: str, text: str, remedy: str, line: int | None = None) -> None:
        self.reasons.append((rank, Reason(cause, text, remedy, line)))

    def _look_at_set(self, call: Call, func: Callable, args: tuple) -> None:
        """Note where a `.grad` is set to None."""
        if getattr(getattr(func, "__self__", None), "__name__", "") == "grad" and args[-1] is None:
            self.steps.note_cleared(call.at, call.place.line if call.place else None)

    def _look_at_filled(self, call: Call, leaves: list[torch.Tensor]) -> None:
        """Note what backward has left in the leaves that it reached."""
        states = {id(t): state_of(t.grad) for t in leaves}
        self.steps.backward_ended(states)
        self.filled_at = call.at, call.place.line if call.place else None
        self.bad = {id(t): t for t in leaves if states[id(t)] == "not finite"}
        for number, state in states.items():
            if self.states.get(number) in (None, "zero"):
                self.states[number] = state

    def _look_at_kept(self, call: Call, losses: list) -> None:
        """Look for graphs of earlier iterations that are still alive."""
        if call.name != "backward":
            return
        starts = self._starts.setdefault(call.place, [])
        starts.append(self.last)
        self.used |= {self._see(loss): self.last for loss in losses if isinstance(loss, torch.Tensor)}
        if len(starts) > 2:
            alive = [(t, number) for ref, number in list(self._ids.values()) if (t := ref()) is not None]
            self.kept = self.kept or kept_results(self.record, alive, starts)

    def _look_at_flat(self, graph: Graph) -> None:
        """Note operators whose derivative is 0 everywhere."""
        for node in graph.nodes:
            name = node.name.partition("Backward")[0]
            if name in _FLAT and node.sequence is not None and (made := self.record.maker_of_node(node.sequence)):
                self.flat[name.lower()] = made.call.at

    def _look_at_loss(self, call: Call, roots: Any, asked: Any = ()) -> list[torch.Tensor]:
        """Look at the graph of what backward starts from; return the leaves that it reaches.

        `asked` are the tensors whose gradients `torch.autograd.grad` is asked for.
        """
        losses = list(roots) if isinstance(roots, list | tuple) else [roots]
        self.losses += [self._see(loss) for loss in losses if isinstance(loss, torch.Tensor)]
        self.last = len(self.record.events) - 1
        for loss in losses:
            if isinstance(loss, torch.Tensor) and loss.is_leaf and loss.requires_grad:
                self._look_at_leaf(call, loss)
        try:
            graph, live = read_graph(roots, Names(self.parameters(), None))
        except HelperError:  # no graph: backward raises, and its error is told
            return []
        self.hidden = self.hidden or has_reentrant_checkpoint(graph, live.nodes)
        self._look_at_kept(call, losses)
        self._look_at_flat(graph)
        leaves = [leaf_variable(live.nodes[leaf.number]) for leaf in graph.leaves]
        self._leaves += leaves
        self.reached |= {id(t) for t in leaves}
        self.numbers |= {n for t in leaves if (n := self.number(t)) is not None}
        self.steps.backward_begins(leaves, call.at, call.place.line if call.place else None)
        parameters = self.parameters()
        for name, parameter in parameters.items():
            if parameter.requires_grad:
                self.known[name] = parameter
                if id(parameter) in self.reached:
                    self.got[name] = None
                if call.name == "backward" and any(leaf is parameter for leaf in leaves):
                    self.filled[name] = None
                if any(t is parameter for t in asked):
                    self.filled[name] = None
        self.named.update(parameters)
        self._look_at_lists()
        if reason := dropped_in_graph(graph, live, self.record):
            self.reasons.append((2, reason))
        for text in self._unchecked(graph, live.nodes):
            self._add(2, "unchecked save", text, "Use ctx.save_for_backward: it raises where this is silent.", None)
        for event, text in unnoticed_writes(self.record, graph, live):
            line = event.call.place.line if event.call.place else None
            remedy = "Write without .data, under torch.no_grad(), before the forward or after the last backward."
            self._add(2, "unnoticed write", text, remedy, line)
        return leaves

    def _look_at_leaf(self, call: Call, loss: torch.Tensor) -> None:
        number = self.number(loss)
        cut = find_cut(self.record, number) if number is not None else None
        if cut is not None:
            name = call.operand(0, "the loss")
            text = f"{name} is a leaf itself (grad_fn is None), so no parameter can be reached from it: {cut.text}"
            self._add(1, "fresh leaf", text, cut.remedy, cut.line)

    def _look_at_lists(self) -> None:
        """Find modules in plain lists, while the modules of the reader still live."""
        roots = [module for reference, _ in self.modules.values() if (module := reference()) is not None]
        self.lost = [found for module in roots if (found := hidden_in(module, self.reached, self._early))]

    def _unchecked(self, graph: Graph, live: tuple) -> Iterator[str]:
        """Yield a sentence for each tensor on a ctx that was written to after the forward of its Function."""
        for node in graph.nodes:
            kind = forward_class(live[node.number])
            for attribute, value in vars(live[node.number]).items() if kind else ():
                if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
                    continue
                key, made = storage_key(value), sequence_number(live[node.number])
                for event in self.record.events:
                    write = next((w for w in event.writes if w.storage == key), None)
                    if write is not None and event.first > made:
                        yield (
                            f"{event.call.at} changed an input of {kind.__name__} after its forward (version "
                            f"{write.before} "
                            f"→ {write.after}), and backward reads it from ctx.{attribute}, which autograd does "
                            "not check: "
                            "the gradient is silently wrong"
                        )
                        break

    def _look_at_none(self, call: Call, t: torch.Tensor) -> None:
        name = call.operand(0, "the tensor")
        place = call.place
        if place is not None and place.receiver == "" and place.expression.endswith(".grad"):
            name = f"`{place.expression.removesuffix('.grad')}`"
        reason = reason_for_none(t, name, self.record, self.number(t), id(t) in self.reached)
        self.reasons.append((3, reason))


def _variables(frame: Any) -> Iterator[dict[str, Any]]:
    """Yield the names that the reader's running functions can use."""
    while frame is not None and frame.f_code is not READER:
        if not is_library(frame.f_code.co_filename):
            yield names_in(frame)
        frame = frame.f_back
