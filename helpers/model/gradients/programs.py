"""`explain_grad` for a whole training step: the function runs once, watched, and the first fault found is told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from helpers.model.adapter import forward_class, leaf_variable, plain_access, sequence_number, storage_key
from helpers.model.autograd import flow
from helpers.model.autograd.flow import has_reentrant_checkpoint
from helpers.model.autograd.graph import Graph
from helpers.model.autograd.names import Names
from helpers.model.autograd.reading import read_graph
from helpers.model.errors.explain import explain_failure
from helpers.model.finding import HelperError
from helpers.model.gradients import values
from helpers.model.gradients.cuts import Cut, find_cut, find_cut_between
from helpers.model.gradients.leaves import reason_for_none
from helpers.model.gradients.parameters import not_reached, optimizer_mismatch
from helpers.model.gradients.reasons import Reason
from helpers.model.gradients.writes import unnoticed_writes
from helpers.model.runs.run import Run
from helpers.model.source import is_library
from helpers.model.watch import READER, Call, name_of, require_callable, run_reader

_ASKING = {module.__file__ for module in (flow, values)}


def explain_program(fn: Callable) -> Reason:
    """Run `fn()` and tell the first thing that is wrong with a gradient in it.

    Looked for, in this order: an error; a loss that is a leaf; values that backward read although they were changed
    since; a `.grad` that was read and is None; parameters that no loss reached; parameters that no optimizer holds.
    """
    require_callable(fn, "explain_grad")
    run = _GradRun()
    try:
        with run:
            run_reader(fn, ())
            run.finish()
    except HelperError:
        raise
    except Exception as error:  # the reader's own error is the answer, told by the tool for errors
        found = explain_failure(fn, error, run.failure)
        return Reason("raised", found.text.removesuffix("."), found.remedy, found.facts.get("line"))
    finally:
        run.failure = None
    if run.reasons:
        return min(run.reasons, key=lambda pair: pair[0])[1]
    if not run.backwards:
        return Reason(
            "no backward", f"{name_of(fn)} ran no backward, so it gave no tensor a gradient", "Call loss.backward()."
        )
    return Reason(
        "right", f"every parameter and every leaf in {name_of(fn)} that requires grad was reached by a backward"
    )


def _asked_by_helper() -> bool:
    """Say whether a gradient is asked for by one of these helpers, which the reader called inside the program."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code is not READER and is_library(frame.f_code.co_filename):
        if frame.f_code.co_filename in _ASKING:
            return True
        frame = frame.f_back
    return False


class _GradRun(Run):
    """Looks at each backward when it starts, at each `.grad` that is read, and at the optimizers in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.backwards = 0
        self.reached: set[int] = set()  # ids of leaves, kept alive by `_leaves`
        self.reasons: list[tuple[int, Reason]] = []  # with their rank
        self.losses: list[int] = []  # numbers of the tensors that backward started from
        self.known: dict[str, torch.Tensor] = {}  # parameters that require grad, and the names that were reached
        self.got: dict[str, None] = {}
        self._optimizers: dict[int, Any] = {}  # those that made a step, what they hold, and the parameters by name
        self._held: dict[int, torch.Tensor] = {}
        self._named: dict[str, torch.Tensor] = {}
        self._leaves: list[torch.Tensor] = []
        self._hidden = False  # whether a checkpoint hid a part of a graph

    def __enter__(self) -> _GradRun:
        super().__enter__()
        self._handles.append(register_optimizer_step_post_hook(self._stepped))
        return self

    def around(self, call: Call, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        starts = call.name == "backward" or (call.name == "grad" and call.count > 1)
        if starts and args and not _asked_by_helper():
            self.backwards += 1
            with plain_access():
                self._look_at_loss(call, args[0])
        result = super().around(call, func, args, kwargs)
        reads = call.name == "grad" and call.count == 1 and result is None and call.direct
        if reads and self.backwards and isinstance(args[0], torch.Tensor):
            with plain_access():
                self._look_at_none(call, args[0])
        return result

    def finish(self) -> None:
        """Look at what can be judged only at the end of the run: the parameters that no backward reached."""
        missing = {name: p for name, p in self.known.items() if name not in self.got}
        if missing and not self._hidden:
            self.reasons.append((4, not_reached(missing, list(self.known), "", self._cut)))
        needed = [name for name in self.got if name in self._named]
        if self._optimizers and needed:
            reason = optimizer_mismatch(self._named, self._held, needed, len(self._optimizers))
            if reason is not None:
                self.reasons.append((5, reason))

    def _cut(self, source: torch.Tensor) -> Cut | None:
        """Return where the history from a tensor to one of the losses ends."""
        number = self.number(source)
        if number is None:
            return None
        found = (find_cut_between(self.record, number, loss) for loss in self.losses)
        return next((cut for cut in found if cut is not None), None)

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        """Note what an optimizer holds. Another one may hold the rest, so it is judged when the run is over."""
        self._optimizers[id(optimizer)] = optimizer
        self._held.update({id(p): p for group in optimizer.param_groups for p in group["params"]})
        self._named.update(self.parameters())

    def _add(self, rank: int, cause: str, text: str, remedy: str, line: int | None = None) -> None:
        self.reasons.append((rank, Reason(cause, text, remedy, line)))

    def _look_at_loss(self, call: Call, roots: Any) -> None:
        losses = list(roots) if isinstance(roots, list | tuple) else [roots]
        self.losses += [n for loss in losses if isinstance(loss, torch.Tensor) and (n := self.number(loss)) is not None]
        for loss in losses:
            if isinstance(loss, torch.Tensor) and loss.is_leaf and loss.requires_grad:
                number = self.number(loss)
                cut = find_cut(self.record, number) if number is not None else None
                if cut is not None:
                    name = call.operand(0, "the loss")
                    text = (
                        f"{name} is a leaf itself (grad_fn is None), so no parameter can be reached from it: {cut.text}"
                    )
                    self._add(1, "fresh leaf", text, cut.remedy, cut.line)
        try:
            graph, live = read_graph(roots, Names(self.parameters(), None))
        except HelperError:  # no graph: backward raises, and its error is told
            return
        self._hidden = self._hidden or has_reentrant_checkpoint(graph, live.nodes)
        for leaf in graph.leaves:
            self._leaves.append(leaf_variable(live.nodes[leaf.number]))
        self.reached |= {id(t) for t in self._leaves}
        for name, parameter in self.parameters().items():
            if parameter.requires_grad:
                self.known[name] = parameter
                if id(parameter) in self.reached:
                    self.got[name] = None
        for text in self._unchecked(graph, live.nodes):
            self._add(2, "unchecked save", text, "Use ctx.save_for_backward: it raises where this is silent.", None)
        for event, text in unnoticed_writes(self.record, graph, live):
            line = event.call.place.line if event.call.place else None
            remedy = "Write without .data, under torch.no_grad(), before the forward or after the last backward."
            self._add(2, "unnoticed write", text, remedy, line)

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
