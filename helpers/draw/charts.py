"""Charts of quantities, with matplotlib: curves over steps, and time against size.

matplotlib is imported when a chart is drawn, not before. A chart carries a sentence that holds no
timing and no measured number, so that the sentence is the same in every run and can be compared.
"""

from __future__ import annotations

import math
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from helpers.model.finding import HelperError, in_short
from helpers.model.watch import first_line

LINES = ("#d55e00", "#0072b2", "#009e73", "#cc79a7")
MOST_POINTS = 100_000
MARKERS = ("o", "s", "^", "D")
STYLE = Path(__file__).with_name("course.mplstyle")


@dataclass(frozen=True)
class Chart:
    """A picture of measured numbers, as PNG bytes, with the sentence that says what it shows."""

    png: bytes
    sentence: str

    def __repr__(self) -> str:
        return self.sentence

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, Any]:
        source = "data:image/png;base64," + b64encode(self.png).decode()
        return {"text/html": f'<img alt="{escape(self.sentence)}" src="{source}">', "text/plain": self.sentence}


def draw_lines(
    lines: Mapping[str, Sequence[float]],
    *,
    x_label: str = "step",
    y_label: str = "",
    y_limits: tuple[float, float] | None = None,
) -> Chart:
    """Draw one line per name over steps 0, 1, 2 …; a line that becomes NaN ends in a marked cross.

    `lines` maps names to lists of numbers. Raises HelperError for anything else.
    """
    data = {str(name): _numbers(name, values) for name, values in _mapping(lines).items()}
    low, high = (-math.inf, math.inf) if y_limits is None else _limits(y_limits)

    def paint(axes: Any) -> None:
        for (name, values), colour in zip(data.items(), LINES, strict=False):
            shown = [(step, value) for step, value in enumerate(values) if math.isfinite(value)]
            steps, heights = zip(*shown, strict=True) if shown else ((0,), (0.0,))
            axes.plot(steps, heights, color=colour)
            end = steps[-1], min(max(heights[-1], low), high)
            ended = len(shown) < len(values)
            if ended:
                axes.plot(*end, marker="X", markersize=9, color=colour, clip_on=False)
            _name_line(axes, f"{name}: NaN" if ended else name, end, colour)
        if y_limits is not None:
            axes.set_ylim(low, high)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)

    return _chart(paint, " ".join(_line_sentence(name, values) for name, values in data.items()))


def draw_cost(functions: Mapping[str, Callable], *, sizes: Sequence[int], device: torch.device | str = "cpu") -> Chart:
    """Time each function on square float32 matrices of n×n elements and draw time against elements.

    Both axes are logarithmic. Each point is the best of several runs, after one run to warm up;
    on a GPU each run waits for the device. Raises HelperError for no functions, no sizes, or a function that raises.
    """
    functions = _mapping(functions)
    good = isinstance(sizes, (list, tuple, range)) and len(sizes) > 0
    if not (
        good
        and functions
        and all(isinstance(n, int) and n > 0 for n in sizes)
        and all(map(callable, functions.values()))
    ):
        raise HelperError("draw_cost takes a dict of functions and a list of sizes, whole numbers above 0")
    times = {name: [_timed(name, function, n, device) for n in sizes] for name, function in functions.items()}

    def paint(axes: Any) -> None:
        elements = [n * n for n in sizes]
        for (name, seconds), colour, marker in zip(times.items(), LINES, MARKERS, strict=False):
            microseconds = [1e6 * second for second in seconds]
            axes.loglog(elements, microseconds, color=colour, marker=marker)
            _name_line(axes, name, (elements[-1], microseconds[-1]), colour)
        axes.set_xlabel("elements")
        axes.set_ylabel("time (µs)")

    names = ", ".join(map(str, functions))
    return _chart(
        paint, f"Time against size on logarithmic axes, {sizes[0]}×{sizes[0]} to {sizes[-1]}×{sizes[-1]}: {names}."
    )


def _name_line(axes: Any, name: str, end: tuple[float, float], colour: str) -> None:
    """Write a line's name to the right of its last point, in place of a legend."""
    # A name is text: with parse_math a $ in it would begin a formula.
    axes.annotate(
        str(name), end, xytext=(9, 0), textcoords="offset points", va="center", color=colour, parse_math=False
    )


def _timed(name: Any, function: Callable, n: int, device: torch.device | str) -> float:
    try:
        t = torch.zeros(n, n, device=device)
    except Exception as error:
        raise HelperError(f"no matrix of {n}×{n} could be made on {in_short(device)}: {first_line(error)}") from error
    try:
        return _best_time(function, t)
    except Exception as error:
        reason = f"{type(error).__name__} on a matrix of {n}×{n}: {first_line(error)}"
        raise HelperError(f"the function {in_short(name)} raised {reason}") from error


def _best_time(function: Callable, t: torch.Tensor, *, runs: int = 7) -> float:
    """Return the shortest of `runs` times in seconds, each averaged over enough calls to be readable."""
    wait = torch.cuda.synchronize if t.is_cuda else lambda: None
    calls = 200 if len(t) <= 64 else 5
    best = math.inf
    for _ in range(runs + 1):
        wait()
        start = time.perf_counter()
        for _ in range(calls):
            function(t)
        wait()
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def _mapping(value: Any) -> Mapping:
    if not isinstance(value, Mapping) or not value:
        came = "an empty one" if isinstance(value, Mapping) else f"something of type {type(value).__name__}"
        raise HelperError(f"a dict with at least one name is wanted, and {came} came")
    return value


def _limits(given: Any) -> tuple[float, float]:
    """Return the two ends of an axis, or raise HelperError."""
    try:
        low, high = map(float, given) if isinstance(given, (list, tuple)) else ()
        if any(isinstance(end, (str, bytes, bool)) for end in given) or not -math.inf < low < high < math.inf:
            raise ValueError
    except (TypeError, ValueError, RuntimeError, OverflowError):
        wanted = "a pair of finite numbers, the lower one first, such as (0, 1)"
        raise HelperError(f"`y_limits` is {wanted}, and {in_short(given)} came") from None
    return low, high


def _numbers(name: Any, values: Any) -> list[float]:
    sized = hasattr(values, "__len__") and not isinstance(values, (str, bytes, Mapping))
    if isinstance(values, torch.Tensor):
        sized = values.layout == torch.strided and values.ndim == 1 and not values.is_complex()
    if not sized or len(values) > MOST_POINTS:
        raise HelperError(f"the line {in_short(name)} must be a list of at most {MOST_POINTS:,} numbers")
    try:
        return [float(value) for value in values]
    except OverflowError as error:
        raise HelperError(f"the line {in_short(name)} has a number that is too large for a float") from error
    except (TypeError, ValueError, RuntimeError) as error:
        raise HelperError(f"the line {in_short(name)} must be a list of numbers, and one entry is none") from error


def _line_sentence(name: str, values: list[float]) -> str:
    """Say how a line runs, in words that rounding cannot change."""
    if not values:
        return f"{name}: no points."
    finite = [value for value in values if math.isfinite(value)]
    falls = "falls below its start" if finite and min(finite) < finite[0] else "never falls below its start"
    end = (
        "ends in NaN" if math.isnan(values[-1]) else "ends finite" if math.isfinite(values[-1]) else "ends in infinity"
    )
    return f"{name}: {len(values)} steps, {falls}, {end}."


def _chart(paint: Callable[[Any], None], sentence: str) -> Chart:
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(fname=STYLE):
        figure = Figure(layout="constrained")
        FigureCanvasAgg(figure)
        paint(figure.subplots())
        picture = BytesIO()
        figure.savefig(picture, format="png", dpi=110)
    return Chart(picture.getvalue(), sentence)
