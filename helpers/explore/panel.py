"""`Panel`: the course's one widget. Controls, a picture, a sentence and a line of code.

What is asked and answered lives in an *app*: a plain Python object with a state, which any test can
drive without a browser. The panel shows the app's `view()` and passes on what the reader does:

    front end --[one message: the changes, in order]--> kernel: app.change(name, value) … app.view()
    front end <--[one message: the whole view]---------- kernel

The front end (panel.js) patches the page with each view, so that focus and caret stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from html import escape
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

from helpers.draw.drawing import Drawing
from helpers.model.finding import HelperError
from helpers.model.watch import own_words

LONGEST_MESSAGE = 200
NO_VALUE = "That is no value for this control."


@dataclass(frozen=True)
class Select:
    """A drop-down list. `options` are the texts to choose from; `value` is one of them."""

    name: str
    label: str
    options: tuple[str, ...]
    value: str
    kind: str = field(default="select", init=False)


@dataclass(frozen=True)
class Slider:
    """Whole numbers from `low` to `high`. `shown` is what stands beside it, by default the number."""

    name: str
    label: str
    low: int
    high: int
    value: int
    shown: str = ""
    kind: str = field(default="slider", init=False)


@dataclass(frozen=True)
class Text:
    """A text field. It reports every keystroke; Enter also presses the button `enter` (name, option)."""

    name: str
    label: str
    value: str
    enter: tuple[str, str] | None = None
    kind: str = field(default="text", init=False)


@dataclass(frozen=True)
class Buttons:
    """A row of buttons. `marks` holds, per button, "" or "right" or "wrong"; `locked` ones do nothing."""

    name: str
    label: str
    options: tuple[str, ...]
    marks: tuple[str, ...] = ()
    locked: bool = False
    kind: str = field(default="buttons", init=False)


Control = Select | Slider | Text | Buttons


@dataclass(frozen=True)
class View:
    """All that a panel shows at one moment.

    `actions` are controls on a line of their own. `code` is shown with a button that copies it, above the
    controls if `code_first`. `table` holds rows of texts, the first row being the heads. `note` is a small
    line, such as a score. `mood` is "", "right" or "wrong".
    """

    controls: Sequence[Control]
    sentence: str
    picture: Drawing | None = None
    actions: Sequence[Control] = ()
    code: str = ""
    code_first: bool = False
    table: Sequence[Sequence[str]] = ()
    note: str = ""
    mood: str = ""


class App(Protocol):
    """What a panel shows and asks. `title` names it for readers who listen."""

    title: str

    def view(self) -> View:
        """Return what to show now."""

    def change(self, name: str, value: Any) -> None:
        """Take over what the reader did with the control `name`. HelperError: one sentence to show."""

    def still(self) -> tuple[str, str]:
        """Return (html, plain text) to show where nothing can be moved. The same for every run."""


class Panel:
    """Shows an app as the last line of a cell: live in JupyterLab, a still form everywhere else."""

    def __init__(self, app: App):
        self.app = app
        self._widget = None
        self._last = None

    def state(self) -> dict[str, Any]:
        """Return the view as plain data, as the front end gets it."""
        try:
            self._last = self.app.view()
            return self._plain(self._last)
        except Exception as error:
            return self._plain(self._last, trouble=f"This panel can't show that: {in_words(error)}.")

    def receive(self, message: Any) -> dict[str, Any]:
        """Carry out one message of the front end, `{"changes": [[name, value], …], "token": …}`.

        Returns the new state. What goes wrong becomes the sentence of that state: an exception in a
        kernel's message handler would otherwise reach nobody.
        """
        trouble = ""
        try:
            for name, value in _changes(message):
                try:
                    self.app.change(name, value)
                except (TypeError, ValueError, OverflowError) as error:
                    raise error if isinstance(error, HelperError) else HelperError(NO_VALUE) from error
        except HelperError as error:
            trouble = str(error)
        except Exception as error:
            trouble = f"This panel can't do that: {in_words(error)}."
        state = self.state()
        if trouble:
            state |= {"sentence": trouble, "mood": "wrong"}
        return state | {"token": message.get("token", "") if isinstance(message, dict) else ""}

    def _plain(self, view: View | None, trouble: str = "") -> dict[str, Any]:
        view = view or View((), "")
        if trouble:
            view = replace(view, sentence=trouble, mood="wrong")
        plain = {name: getattr(view, name) for name in ("sentence", "code", "code_first", "note", "mood")}
        plain["title"] = self.app.title
        plain["controls"] = [asdict(control) for control in view.controls]
        plain["actions"] = [asdict(control) for control in view.actions]
        plain["svg"] = view.picture.svg if view.picture else ""
        plain["alt"] = view.picture.sentence if view.picture else ""
        plain["table"] = [list(row) for row in view.table]
        plain["token"] = ""
        return plain

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, Any]:
        """Return the live view, and the still form for viewers that have no widgets."""
        html, text = self.app.still()
        return self._live() | {"text/html": html, "text/plain": text}

    def _live(self) -> dict[str, Any]:
        """Make the widget when it is first shown, and return the reference that JupyterLab resolves."""
        if self._widget is None:
            self._widget = _widget_class()(state=self.state())
            self._widget.on_msg(self._on_message)
        return {
            "application/vnd.jupyter.widget-view+json": {
                "version_major": 2,
                "version_minor": 0,
                "model_id": self._widget.model_id,
            }
        }

    def _on_message(self, widget: Any, message: Any, buffers: Any) -> None:
        widget.state = self.receive(message)


def _changes(message: Any) -> list[tuple[str, Any]]:
    """Return the changes of a message; HelperError where it holds none, or no name stands before a value."""
    changes = message.get("changes") if isinstance(message, dict) else None
    if not isinstance(changes, (list, tuple)):
        raise HelperError(NO_VALUE)
    for change in changes:
        if not (isinstance(change, (list, tuple)) and len(change) == 2 and isinstance(change[0], str)):
            raise HelperError(NO_VALUE)
    return [(name, value) for name, value in changes]


def is_number(value: Any) -> bool:
    """Say whether a control's value is a finite number."""
    return isinstance(value, (int, float)) and isfinite(value)


def control_number(value: Any) -> int:
    """Return a slider's value as a whole number; HelperError for anything else."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise HelperError(NO_VALUE) from None


def in_words(error: Exception) -> str:
    """Return an error's type with the first line of its message, cut where it is longer than a sentence."""
    try:
        first = own_words(error)
        if len(first) > LONGEST_MESSAGE:  # such as torch's list of all backends
            first = first[:LONGEST_MESSAGE].rsplit(" ", 1)[0] + " …"
    except Exception:  # an error whose own text can't be read still has a type
        first = ""
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def still_picture(picture: Drawing | None, sentence: str) -> tuple[str, str]:
    """Return the (html, plain text) of a picture with a sentence below it."""
    html = (picture.html() if picture else "") + f"<div>{escape(sentence)}</div>"
    return html, sentence


def _read(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


@cache
def _widget_class() -> type:
    """Define the widget on first use: importing `helpers` stays fast, and tests need no front end."""
    import anywidget
    import traitlets

    class PanelWidget(anywidget.AnyWidget):
        """The front end's half: panel.js draws `state` and sends messages."""

        _esm = _read("picture.js") + _read("panel.js")
        _css = _read("panel.css")
        state = traitlets.Dict().tag(sync=True)

    return PanelWidget
