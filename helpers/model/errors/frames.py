"""What the frames that an error passed tell: which operators were called there, and which code of torch ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from os.path import join
from types import FrameType

import torch

from helpers.model.adapter import operator_full_name

_OVERLOAD, _PACKET = type(torch.ops.aten.add.Tensor), type(torch.ops.aten.add)
_OPS = join("torch", "_ops.py")
_OFTEN = 20  # so many calls of one operator inside each other are a circle


def frames_of(error: BaseException) -> Iterator[FrameType]:
    """Go through the frames that a caught error passed, the outermost first."""
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame
        step = step.tb_next


def ran(error: BaseException, function: str) -> bool:
    """Say whether the error passed a function of torch with this name."""
    return any(frame.f_code.co_name == function and "torch" in frame.f_code.co_filename for frame in frames_of(error))


def generated_backward(error: BaseException) -> str:
    """Return the name of the class that `register_autograd` made for an operator, if the error passed its code."""
    for frame in frames_of(error):
        if "torch" not in frame.f_code.co_filename:
            continue
        for value in frame.f_locals.values():
            kind = value if isinstance(value, type) else type(value)
            if kind.__name__.startswith("GeneratedBackwardFor_"):
                return kind.__name__.removesuffix("Backward")
    return ""


def circle_of(error: BaseException) -> tuple[str, bool]:
    """Return the operator that was called again and again inside itself, and whether a fallback called it; "" if none.

    A fallback is known by the operator among its arguments.
    """
    if not isinstance(error, RecursionError):  # to read the locals of the reader's frames keeps them alive
        return "", False
    counts: Counter[str] = Counter()
    fallbacks = 0
    for frame in frames_of(error):
        code, operator = frame.f_code, frame.f_locals.get("self")
        if code.co_filename.endswith(_OPS) and code.co_name == "__call__":
            if isinstance(operator, _OVERLOAD):
                counts[operator_full_name(operator).removesuffix(".default")] += 1
            elif isinstance(operator, _PACKET):
                counts[str(operator).replace(".", "::", 1)] += 1
        elif "torch" not in code.co_filename and "helpers" not in code.co_filename:
            first = next(iter(code.co_varnames[: code.co_argcount]), "")
            fallbacks += isinstance(frame.f_locals.get(first), _OVERLOAD)
    name, times = next(iter(counts.most_common(1)), ("", 0))
    return (name, fallbacks >= _OFTEN) if times >= _OFTEN else ("", False)
