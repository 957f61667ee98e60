"""`explore_dispatch`: switch what a call is given and where it runs, and see which keys it meets then."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from html import escape
from typing import Any

import torch

from helpers.draw.dispatch import draw_dispatch
from helpers.draw.drawing import Drawing
from helpers.draw.tower import draw_tower
from helpers.explore.panel import NO_VALUE, Buttons, Panel, Select, Slider, View, control_number, still_picture
from helpers.model.dispatch.tower import Tower
from helpers.model.dispatch.trace import Dispatch, DispatchTrace, trace_dispatch
from helpers.model.finding import HelperError
from helpers.model.watch import first_line, name_of, require_callable, tensors_in
from helpers.model.words import counted, dtype_name, listed

BACK, ON = "◀ step back", "step on ▶"
DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "bool")
LAYOUTS = ("strided", "sparse_coo")
MODES = ("normal", "no_grad", "inference_mode")
ALL = "all calls"


def explore_dispatch(what: Callable | DispatchTrace, *args: Any) -> Panel:
    """Switch requires_grad, grad mode, autocast, device, layout and dtype of a call, and see the keys it meets.

    `explore_dispatch(fn, x, …)` runs `fn` once for each setting, on copies of your tensors and modules. dtype and
    layout change those tensors that are as the first one. Given a `DispatchTrace`, it goes through the trace step by
    step instead. Raises HelperError for anything else, and where no argument is a tensor.
    """
    if isinstance(what, DispatchTrace):
        if not what.calls:
            raise HelperError(f"{what.function} called no operator: there is nothing to step through")
        return Panel(TraceStepper(what))
    require_callable(what, "explore_dispatch")
    if not tensors_in(args):
        raise HelperError("explore_dispatch(f, x) switches the tensors that f is given, and no tensor came")
    return Panel(DispatchExplorer(what, args))


class TraceStepper:
    """The state: a trace, and the number of the step that is shown, from 1."""

    title = "Step through the dispatcher"

    def __init__(self, trace: DispatchTrace):
        self.trace = trace
        self.at = 1
        # For each step: the calls around it, the outermost first, and which step of the innermost call it is.
        self.steps = [place for root in trace.roots for place in _places(root, ())]

    def change(self, name: str, value: Any) -> None:
        if name == "step":
            wanted = control_number(value)
        elif name == "move" and value in (BACK, ON):
            wanted = self.at + (1 if value == ON else -1)
        else:
            raise HelperError(NO_VALUE)
        self.at = max(1, min(wanted, len(self.steps)))

    def view(self) -> View:
        calls, number = self.steps[self.at - 1]
        last = len(self.steps)
        actions = [Slider("step", "step", 1, last, self.at, f"{self.at} of {last}"), Buttons("move", "", (BACK, ON))]
        tower = Tower.of(calls[-1])
        within = " › ".join(call.operator for call in calls)
        floor = tower.ran[number - 1]
        sentence = f"{within} at {floor.key}: {floor.note}."
        made = list(dict.fromkeys(d.operator for d in calls[-1].steps[number - 1].inner if not d.redispatch))
        if made:
            sentence += f" It calls {listed(made, 5)}."
        return View((), sentence, draw_tower(tower, at=number), actions)

    def still(self) -> tuple[str, str]:
        picture = draw_dispatch(self.trace)
        return still_picture(picture, "Run this cell in JupyterLab to go through it step by step.")[0], picture.sentence


def _places(d: Dispatch, around: tuple[Dispatch, ...], number: int = 1) -> list[tuple[tuple[Dispatch, ...], int]]:
    """Return each step at or inside `d`, in the order in which they began."""
    calls = around if d.redispatch else (*around, d)
    found = [(calls, number)]
    for inner in d.inner:
        found += _places(inner, calls, number + 1 if inner.redispatch else 1)
    return found


class DispatchExplorer:
    """The state: the switches, the trace that they give, and what the last change did.

    A switch that stands where the first tensor is changes nothing: every argument is as the reader gave it.
    """

    title = "Explore the dispatch of a call"

    def __init__(self, fn: Callable, args: tuple):
        self.fn, self.args = fn, args
        first = tensors_in(args)[0]
        self.given = {
            "requires_grad": "yes" if first.requires_grad else "no",
            "mode": "normal",
            "autocast": "off",
            "device": first.device.type,
            "layout": str(first.layout).removeprefix("torch."),
            "dtype": dtype_name(first.dtype),
        }
        self.settings = dict(self.given)
        self.shown = ALL
        self.said = ""
        self.trace = self.run()

    def options(self) -> dict[str, tuple[str, ...]]:
        """Return what each switch can be set to now: a whole number can't require a gradient."""
        devices = ["cpu", "meta", *(["cuda"] if torch.cuda.is_available() else [])]
        offered = {
            "requires_grad": ("no", "yes") if _can_require_grad(self.dtype) else ("no",),
            "mode": MODES,
            "autocast": ("off", "bfloat16"),
            "device": tuple(devices),
            "layout": LAYOUTS,
            "dtype": DTYPES,
        }
        return {
            name: values if name == "requires_grad" else _with(values, self.given[name], self.value(name))
            for name, values in offered.items()
        }

    def value(self, name: str) -> str:
        """Return where a switch stands; requires_grad stands at "no" as long as the dtype has no gradient."""
        if name == "requires_grad" and not _can_require_grad(self.dtype):
            return "no"
        return self.settings[name]

    @property
    def dtype(self) -> torch.dtype:
        return getattr(torch, self.settings["dtype"])

    def change(self, name: str, value: Any) -> None:
        if name == "shown":
            if value not in self.calls_shown():
                raise HelperError(NO_VALUE)
            self.shown, self.said = value, ""
            return
        if name not in self.settings or value not in self.options()[name]:
            raise HelperError(NO_VALUE)
        if self.settings[name] == value:
            return
        before, kept = self.trace, dict(self.settings)
        self.settings[name] = value
        try:
            self.trace = self.run()
        except Exception as error:  # the reader's tensors can't be given this form
            self.settings = kept
            raise HelperError(f"These arguments can't be made {value}: {_short(first_line(error))}.") from None
        self.said = f"{name} is {value} now. {_difference(before, self.trace)}"
        if self.shown not in self.calls_shown():
            self.shown = ALL

    def run(self) -> DispatchTrace:
        """Run the function under the settings and return its trace. Random numbers stay the reader's."""
        with ExitStack() as contexts:
            contexts.enter_context(torch.random.fork_rng(devices=[]))
            fn, args = self.made(self.fn), tuple(self.made(arg) for arg in self.args)
            if self.settings["mode"] != "normal":
                contexts.enter_context(getattr(torch, self.settings["mode"])())
            if self.settings["autocast"] == "bfloat16":
                device = self.settings["device"] if self.settings["device"] != "meta" else "cpu"
                contexts.enter_context(torch.autocast(device, torch.bfloat16))
            return replace(trace_dispatch(fn, *args), function=name_of(self.fn))

    def touched(self, name: str) -> str | None:
        """Return where a switch stands, None where that is as the first tensor is."""
        return None if self.value(name) == self.given[name] else self.value(name)

    def made(self, value: Any) -> Any:
        """Return a copy of an argument as the switches say; what holds no tensor stays."""
        if isinstance(value, torch.nn.Module):
            return self.made_module(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self.made(part) for part in value))
        if isinstance(value, list | tuple):
            return type(value)(self.made(part) for part in value)
        if isinstance(value, dict):
            return {key: self.made(part) for key, part in value.items()}
        if not isinstance(value, torch.Tensor):
            return value
        with torch.inference_mode(value.is_inference()):
            t = self.converted(_copy(value))
        wanted = self.touched("requires_grad") or ("yes" if value.requires_grad else "no")
        return t.requires_grad_() if wanted == "yes" and _can_require_grad(t.dtype) and not t.is_inference() else t

    def converted(self, t: torch.Tensor) -> torch.Tensor:
        """Return a tensor with the dtype, device and layout of the switches."""
        given, layout = str(t.layout).removeprefix("torch."), self.touched("layout")
        if (dtype := self.touched("dtype")) and dtype_name(t.dtype) == self.given["dtype"]:
            wanted = getattr(torch, dtype)  # of other tensors, indices stay indices
            t = (t.real if t.is_complex() and not wanted.is_complex else t).to(wanted)
        if device := self.touched("device"):
            t = t.to(device)
        if layout and given == self.given["layout"]:
            t = t.to_sparse() if layout == "sparse_coo" else t.to_dense()
        return t

    def made_module(self, module: torch.nn.Module) -> torch.nn.Module:
        """Return a copy of a module with its parameters on the device and in the dtype of the switches."""
        copy = deepcopy(module)
        if (dtype := self.touched("dtype")) and getattr(torch, dtype).is_floating_point:
            copy = copy.to(getattr(torch, dtype))
        return copy.to(device) if (device := self.touched("device")) else copy

    def calls_shown(self) -> list[str]:
        """Return what can be shown: all calls, or one of them."""
        return [ALL, *(f"{i} · {call.operator}" for i, call in enumerate(self.calls, 1))]

    @property
    def calls(self) -> list[Dispatch]:
        return [call for _, call in self.trace.outline()]

    def view(self) -> View:
        controls = [Select(name, name, values, self.value(name)) for name, values in self.options().items()]
        picture, note = self.picture()
        actions = [Select("shown", "show", tuple(self.calls_shown()), self.shown)] if len(self.calls) > 1 else []
        sentence = self.said or self.sentence()
        if self.trace.error:
            sentence = f"{sentence} It raised {_short(self.trace.error)}."
        return View(controls, sentence, picture, actions, note=note, mood="wrong" if self.trace.error else "")

    def picture(self) -> tuple[Drawing | None, str]:
        number = None if self.shown == ALL else self.calls_shown().index(self.shown) - 1
        try:
            return draw_dispatch(self.trace, call=number), ""
        except HelperError as error:
            return None, str(error)

    def sentence(self) -> str:
        """Say where the shown call went, or the first of all."""
        if not self.trace.roots:
            return f"{self.trace.function} called no operator in this thread."
        if self.shown != ALL:
            call = self.calls[self.calls_shown().index(self.shown) - 1]
            return f"{call.operator}: {call.path}."
        first = self.trace.roots[0]
        return f"{first.operator}: {first.path}. {counted(len(self.calls), 'call')} in all."

    def still(self) -> tuple[str, str]:
        picture, note = self.picture()
        names = listed(self.settings)
        text = f"{note}Run this cell in JupyterLab to switch {names}."
        return still_picture(picture, text)[0], picture.sentence if picture else escape(note)


def _with(values: tuple[str, ...], *present: str) -> tuple[str, ...]:
    """Return the options, with the present values among them."""
    return tuple(dict.fromkeys((*(value for value in present if value not in values), *values)))


def _can_require_grad(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _copy(t: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor with the same keys: a conjugate view stays one, and so does an inference tensor."""
    if t.is_nested:
        return t.detach()  # a view: these can't always be copied
    with torch.inference_mode(t.is_inference()):
        if t.is_conj():
            return _copy(t.conj()).conj()
        if t.is_neg():  # as torch makes them: the imaginary part of a conjugate view
            numbers = t.detach().resolve_neg()
            return torch.complex(torch.zeros_like(numbers), -numbers).conj().imag
        return t.detach().clone()


def _short(message: str) -> str:
    """Return the first sentence of an error."""
    return message.partition(". ")[0].rstrip(".!")


def _difference(before: DispatchTrace, after: DispatchTrace) -> str:
    """Say which keys ran before and do not now, and the other way; and whether the calls are the same."""
    ran = [trace.keys_that_ran(trace.calls) for trace in (before, after)]
    gone = [key for key in ran[0] if key not in ran[1]]
    new = [key for key in ran[1] if key not in ran[0]]
    if not gone and not new:
        paths = [[(call.operator, call.path) for call in trace.calls] for trace in (before, after)]
        if paths[0] == paths[1]:
            return "Every call meets the same keys as before."
        same = f"The same keys run: {listed(ran[1])}."
        return f"{same} But there are {counted(len(after.calls), 'call')} where {len(before.calls)} were."
    parts = [f"{listed(new)} {'runs' if len(new) == 1 else 'run'} now"] if new else []
    parts += [f"{listed(gone)} {'runs' if len(gone) == 1 else 'run'} no more"] if gone else []
    return f"{'; '.join(parts)}."
