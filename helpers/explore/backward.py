"""`explore_backward`: go through one backward run node by node, forward and back, with the gradients that pass."""

from __future__ import annotations

from html import escape
from typing import Any

import torch

from helpers.draw.drawing import Drawing
from helpers.draw.graph import Progress, draw_progress
from helpers.draw.svg import short_number
from helpers.explore.panel import NO_VALUE, Buttons, Panel, Slider, View, control_number, still_picture
from helpers.model.autograd.flow import Flow, Gradient, Step
from helpers.model.autograd.graph import Node
from helpers.model.finding import HelperError
from helpers.model.words import counted

BACK, ON = "◀ step back", "step on ▶"
MOST_DRAWN, MOST_NEAR = 60, 14  # nodes; of a larger graph, those near the one that runs are drawn
MOST_SHOWN = 6  # values of a gradient
MOST_LINES = 12  # of the still form


def explore_backward(loss: torch.Tensor, *, model: torch.nn.Module | None = None) -> Panel:
    """Step through `loss.backward()`: which node runs, which gradient arrives, what leaves, where it accumulates.

    The gradients are those of torch's own engine, from one run that changes nothing of yours: `.grad`, hooks and
    versions stay, and the saved tensors are kept. Hooks of yours on tensors run, and so does the backward of a custom
    Function. `loss` has one element and a graph that was not freed; with `model`, leaves are named as in the model.
    Raises HelperError otherwise, and for more than 20,000 nodes.
    """
    return Panel(BackwardExplorer(Flow.of(loss, model=model)))


class BackwardExplorer:
    """The state: a run that is over, and the number of the step that is shown; 0 is the moment before the first."""

    title = "Step through backward"

    def __init__(self, flow: Flow):
        self.flow = flow
        self.at = 0

    def change(self, name: str, value: Any) -> None:
        if name == "step":
            self.at = max(0, min(control_number(value), len(self.flow.steps)))
        elif name == "move" and value in (BACK, ON):
            self.at = max(0, min(self.at + (1 if value == ON else -1), len(self.flow.steps)))
        else:
            raise HelperError(NO_VALUE)

    def view(self) -> View:
        last = len(self.flow.steps)
        actions = [
            Slider("step", "step", 0, last, self.at, f"{self.at} of {last}"),
            Buttons("move", "", (BACK, ON)),
        ]
        sentence = self.sentence()
        return View((), sentence, self.picture(sentence), actions, table=self.table(), note=self.note())

    @property
    def step(self) -> Step | None:
        return self.flow.steps[self.at - 1] if self.at else None

    def sentence(self) -> str:
        """Say what happens at this step."""
        nodes, step = self.flow.graph.nodes, self.step
        if step is None:
            root = nodes[self.flow.graph.roots[0].to]
            which = "as the loss is a leaf itself" if root.kind == "leaf" else "the node that made the loss"
            return f"Before the first step: the gradient 1 is ready for {root.label}, {which}."
        node = nodes[step.node]
        came = _in_sentence(next((g for g in step.arrived if g is not None), None))
        hooked = self.hooked(step)
        if node.kind == "leaf":
            name = f"{node.names[0]}.grad" if node.names else "the .grad of a leaf without a name"
            senders = self.flow.graph.consumers[node.number]
            several = sum(e is not None and e.to == node.number for n in senders for e in nodes[n].edges) > 1
            return (
                f"{node.name} adds {came} to {name}{', the sum of all that was sent here' if several else ''}{hooked}."
            )
        gone = [_target(nodes, edge.to, g) for edge, g in zip(node.edges, step.left, strict=False) if edge is not None]
        sends = " and ".join(gone) if gone else "nothing on"
        return f"{node.name} runs: {came} arrived{hooked}, and it sends {sends}."

    @staticmethod
    def hooked(step: Step) -> str:
        """Say what a hook on a tensor made of a gradient before it arrived; "" where none did."""
        for sent, arrived in zip(step.sent, step.arrived, strict=False):
            if sent is not None and arrived is not None and sent != arrived:
                return f" (a hook changed it from {_shown(sent)} to {_shown(arrived)})"
        return ""

    def table(self) -> list[tuple[str, ...]]:
        """List the gradients of this step: where from or where to, shape, values."""
        nodes, step = self.flow.graph.nodes, self.step
        if step is None:
            return []
        node = nodes[step.node]
        rows = [("gradient", "shape", "values")]
        for number, gradient in enumerate(step.arrived):
            which = f" for output {number}" if len(step.arrived) > 1 else ""
            rows.append((f"arrives{which}", *_cells(gradient)))
        for edge, gradient in zip(node.edges, step.left, strict=False):
            if edge is not None:
                rows.append((f"leaves to {nodes[edge.to].label}", *_cells(gradient)))
        return rows

    def note(self) -> str:
        """Say which hooks changed what arrives, and what became of the saved tensors of the node that runs."""
        if self.step is None:
            return ""
        node = self.flow.graph.nodes[self.step.node]
        told = [f"Before it: {', '.join(node.hooks)}."] if node.hooks else []
        if node.saved:
            names = ", ".join(saved.owner or saved.name for saved in node.saved)
            held = counted(len(node.saved), "saved tensor")
            told.append(
                f"Used here: {held} ({names}). loss.backward() frees {'it' if len(node.saved) == 1 else 'them'} now."
            )
        elif node.kind != "leaf":
            told.append(f"{node.name} saved no tensor.")
        return " ".join(told)

    def picture(self, sentence: str) -> Drawing:
        """Draw the graph at this step; of a large graph, the part around the node that runs."""
        steps = self.flow.steps[: self.at]
        now = steps[-1].node if steps else None
        sent: dict[tuple[int, int], str] = {}
        for step in steps:
            for edge, gradient in zip(self.flow.graph.nodes[step.node].edges, step.left, strict=False):
                if edge is not None and gradient is not None:
                    way, shown = (step.node, edge.to), _shown(gradient, short=True)
                    sent[way] = f"{sent[way]} + {shown}" if way in sent else shown  # as for both factors of x * x
        progress = Progress(now, frozenset(step.node for step in steps[:-1]), sent)
        return draw_progress(*self._near(progress), sentence)

    def _near(self, progress: Progress):
        graph = self.flow.graph
        if len(graph.nodes) <= MOST_DRAWN:
            return graph, progress
        middle = progress.now if progress.now is not None else graph.roots[0].to
        part, numbers = graph.around(middle, MOST_NEAR)
        sent = {
            (numbers[a], numbers[b]): word for (a, b), word in progress.sent.items() if a in numbers and b in numbers
        }
        done = frozenset(numbers[n] for n in progress.done if n in numbers)
        return part, Progress(numbers.get(progress.now), done, sent, part=True, entry=numbers.get(graph.roots[0].to))

    def still(self) -> tuple[str, str]:
        """Show the graph, and every step in a line."""
        still, count = BackwardExplorer(self.flow), len(self.flow.steps)  # another one: a live panel stays where it is
        html, _ = still_picture(still.picture(still.sentence()), "")
        lines = []
        for still.at in range(1, (count if count <= MOST_LINES else MOST_LINES - 1) + 1):
            lines.append(f"{still.at}. {still.sentence()}")
        if count > MOST_LINES:
            lines.append(f"… and {count - MOST_LINES + 1} more steps.")
        text = "\n".join(lines)
        listed = "".join(f"<div>{escape(line)}</div>" for line in lines)
        return html + listed, text


def _shown(gradient: Gradient | None, short: bool = False) -> str:
    """Return a gradient in a few words: its number, its first values, or that it is undefined."""
    if gradient is None:
        return "no gradient"
    most = 2 if short else MOST_SHOWN
    values = [short_number(value) for value in gradient.values[:most]]
    if gradient.shape == () and len(values) == 1:
        return values[0]
    size = 1
    for n in gradient.shape:
        size *= n
    return f"[{', '.join(values)}{', …' if size > most else ''}]"


def _in_sentence(gradient: Gradient | None) -> str:
    """Return a gradient of up to three numbers as it is, a larger one by its shape."""
    small = gradient is None or len(gradient.values) <= 3
    return (
        _shown(gradient)
        if small
        else ("a nested gradient" if _shape(gradient) == "nested" else f"a gradient of shape {gradient.shape}")
    )


def _shape(gradient: Gradient) -> str:
    return "nested" if gradient.shape == () and len(gradient.values) > 1 else str(gradient.shape)


def _cells(gradient: Gradient | None) -> tuple[str, str]:
    return (_shape(gradient), _shown(gradient)) if gradient else ("", "none: it counts as zeros")


def _target(nodes: tuple[Node, ...], to: int, gradient: Gradient | None) -> str:
    return f"{_in_sentence(gradient)} to {nodes[to].label}"
