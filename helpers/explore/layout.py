"""`explore_layout`: try the operations that make a view, and see which slots the result reads."""

from __future__ import annotations

from typing import Any

import torch

from helpers.draw.drawing import Drawing
from helpers.draw.storage import draw_layout, drawable
from helpers.explore.naming import written_argument
from helpers.explore.operations import NOTHING, OPERATIONS, Form
from helpers.explore.panel import (
    NO_VALUE,
    Buttons,
    Control,
    Panel,
    Select,
    Slider,
    View,
    control_number,
    in_words,
    is_number,
)
from helpers.explore.steps import Step
from helpers.model.adapter import plain_access
from helpers.model.finding import HelperError
from helpers.model.layout import Layout
from helpers.model.memory import block_of
from helpers.model.source import caller_frame
from helpers.model.words import counted

CONTINUE, AGAIN = "continue from here", "start again"


def explore_layout(t: torch.Tensor) -> Panel:
    """Choose an operation and its parameters; see the result's slots, and the code that makes it.

    Your tensor is never written to, and no copy of more than 100,000 elements is made. Raises
    HelperError for what has no strides, such as a list or a sparse tensor.
    """
    return Panel(LayoutExplorer(t, written_argument(caller_frame(), "t")))


class LayoutExplorer:
    """The state of the explorer: a start, a chain of steps already taken, and one being tried."""

    title = "Explore the layout of a tensor"

    def __init__(self, t: torch.Tensor, name: str = "t"):
        with plain_access():
            drawable(t)  # the sentence for what has no strides, or no storage
            _require_elements(t)
            self.origin = t.detach()
        self.name = name
        self.restart()

    def restart(self) -> None:
        """Go back to the reader's tensor."""
        self.steps: list[Step] = []
        self.copied_by = ""  # the operation after which nothing shares the reader's storage any more
        self.start = self.origin
        self.begin(NOTHING)

    def begin(self, operation: str) -> None:
        """Try another operation on the present start, with its parameters at their defaults."""
        self.operation = operation
        self.given: dict[str, Any] = {}
        self.focus = -1
        self.result, self.step, self.trouble = self.start, None, ""

    def change(self, name: str, value: Any) -> None:
        if not (isinstance(value, str) or name == "highlight" or is_number(value)):
            raise HelperError(NO_VALUE)
        if name == "operation":
            if value not in self.offered():
                raise HelperError(NO_VALUE)
            self.begin(value)
        elif name == "highlight":
            self.focus = control_number(value)
        elif name == "chain" and value == CONTINUE:
            self.settle()
            if self.trouble:
                raise HelperError(self.trouble)
            if self.step is None:
                raise HelperError("Choose an operation first: its result is where you continue from.")
            if self.copies_now():
                self.copied_by = self.operation
            self.steps.append(self.step)
            self.start = self.result
            self.begin(NOTHING)
        elif name == "chain":
            self.restart()
        else:
            self.given[name] = value

    def offered(self) -> list[str]:
        """Return the operations that make sense for the number of dimensions there are."""
        return [name for name, (_, fewest) in OPERATIONS.items() if self.start.ndim >= fewest]

    def settle(self) -> list[Control]:
        """Carry out what the reader set, if it is legal; return the controls that belong to it.

        What is not legal leaves the last result standing, and `trouble` says why.
        """
        form = Form(self.given)
        try:
            _require_elements(self.start)
            step = OPERATIONS[self.operation][0](Layout.of(self.start), form)
            self.result = step.apply(self.start) if step else self.start
            self.step, self.trouble = step, ""
        except HelperError as error:
            self.trouble = str(error)
        except RuntimeError as error:  # such as a dtype for which torch has no kernel
            self.trouble = f"torch refuses this: {in_words(error)}."
        return form.controls

    @property
    def code(self) -> str:
        """The torch expression of the shown result, from the reader's own tensor on."""
        steps = [*self.steps, *([self.step] if self.step else [])]
        return self.name + "".join(step.code for step in steps)

    def view(self) -> View:
        form = self.settle()
        layout = Layout.of(self.result)
        rows = layout.shape[0] if layout.ndim else 0
        self.focus = min(self.focus, rows - 1)
        controls = [Select("operation", "operation", tuple(self.offered()), self.operation), *form]
        actions: list[Control] = [Buttons("chain", "", (CONTINUE, AGAIN))]
        if rows > 0:
            shown = "none" if self.focus < 0 else f"{self.focus}"
            actions.insert(0, Slider("highlight", "highlight row", -1, rows - 1, self.focus, shown))
        sentence = self.trouble or self.sentence(layout)
        picture, refusal = self.picture()
        note = refusal if not self.trouble else "The picture still shows the last legal result."
        return View(
            controls,
            sentence,
            picture,
            actions,
            self.code,
            note=note,
            mood="wrong" if self.trouble else "",
        )

    def picture(self) -> tuple[Drawing | None, str]:
        """Draw the result, or say why there is no drawing of it."""
        try:
            return draw_layout(self.result, focus=self.focus if self.focus >= 0 else None), ""
        except HelperError as error:
            return None, str(error)

    def sentence(self, layout: Layout) -> str:
        """Say whose storage the result reads, and its layout."""
        order = "not contiguous"
        if layout.memory_formats:
            first = layout.memory_formats[0]
            order = first if first == "contiguous" else f"contiguous as {first}"
        facts = f"Shape {layout.shape}, stride {layout.stride}, storage_offset {layout.storage_offset}, {order}."
        return f"{self.sharing()} {facts}"

    def sharing(self) -> str:
        """Say whether the result reads the storage of the reader's tensor, and which operation copied if not."""
        if self.copies_now():
            size = Layout.of(self.result).nbytes
            unrun = f" It is not made here, as it would take {size:,} bytes." if self.result.is_meta else ""
            why = "no stride can be negative" if self.operation == "flip" else "the slots are not in that order"
            return f"A copy with a storage of its own: {why}.{unrun if not self.origin.is_meta else ''}"
        if self.step is None and not self.steps:
            return f"This is {self.name} itself."
        if self.copied_by:
            return f"Shares the storage of the copy that {self.copied_by} made, not that of {self.name}."
        return f"Shares the storage of {self.name}: nothing is copied."

    def copies_now(self) -> bool:
        """Say whether the step being tried has a result with a storage of its own."""
        return self.step is not None and self.step.copies(Layout.of(self.start))

    def still(self) -> tuple[str, str]:
        drawing = draw_layout(self.origin)
        html = f"{drawing.html()}<div>Run this cell in JupyterLab to try {', '.join(self.offered()[1:])}.</div>"
        return html, drawing.sentence


def _require_elements(t: torch.Tensor) -> None:
    """Raise HelperError where the storage was made too small: a copy would read what is not there."""
    block = block_of(t)
    if block.lacks_bytes:
        raise HelperError(
            f"The storage of this tensor was resized to {counted(block.nbytes, 'byte')} and does not hold its "
            "elements: draw_layout shows what is left."
        )
