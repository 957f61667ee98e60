"""One watched run of the reader's function: its record, its modules and optimizers, and the call that failed."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from helpers.model.adapter import passes_nothing, plain_access
from helpers.model.autograd.names import parameters_of
from helpers.model.dispatch.opnames import is_operator, none_for_tensor
from helpers.model.errors.failure import Failure
from helpers.model.finding import HelperError
from helpers.model.owners import names_in
from helpers.model.runs.record import Recorder
from helpers.model.source import is_library, reader_frame
from helpers.model.watch import READER, Call, tensors_in


class Run(Recorder):
    """Records a run as `Recorder` does, and also:

    `failure`: the torch call that raised last; drop it when the sentence is made, it holds live arguments.
    `caught()`: the class of the last error that the reader's own code caught, and the call that raised it.
    `undefined`: the calls of an operator that gave None in place of a tensor, each with the operator's name.
    `passed_nothing`: the operators whose result has the graph node that passes nothing.
    `parameters`: the name of each parameter of every module that the reader called, such as "net.0.weight".
    """

    def __init__(self) -> None:
        super().__init__()
        self.failure: Failure | None = None
        self._caught: tuple[str, Call] | None = None
        self.modules: dict[int, tuple[weakref.ref, str]] = {}
        self.undefined: list[tuple[str, Call]] = []
        self.passed_nothing: list[str] = []
        self._handles: list[Any] = []

    def __enter__(self) -> Run:
        self._handles = [register_module_forward_pre_hook(self._called)]
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        for handle in self._handles:
            handle.remove()
        super().__exit__(*error)

    def around(self, call: Call, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        try:
            result = super().around(call, func, args, kwargs)
        except Exception as error:
            if self.failure is None or self.failure.error is not error:
                self.caught()
            self.failure = Failure(error, call, args, kwargs, self)
            raise
        if is_operator(func):
            with self.aside(call), plain_access():
                self._look_at(call, func, result)
        return result

    def caught(self) -> tuple[str, Call] | None:
        """Return the class of the last error that the reader's own code caught, and its call; None where a library did.

        A traceback begins in the frame that caught the error. While an error is on its way, that is not known. Who
        takes the traceback away, as `assertRaises` does, has looked at the error on purpose.
        """
        begins = self.failure and self.failure.error.__traceback__
        if self.failure and not (begins and is_library(begins.tb_frame.f_code.co_filename)):
            self._caught = type(self.failure.error).__name__, self.failure.call
        return self._caught

    def _look_at(self, call: Call, operator: Any, result: Any) -> None:
        name = str(operator).removesuffix(".default").replace(".", "::", 1)
        if none_for_tensor(operator, result):
            self.undefined.append((name, call))
        if any(passes_nothing(t.grad_fn) for t in tensors_in([result])):
            self.passed_nothing.append(name)

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """Return the parameters of every module that the reader called and that still lives, by name."""
        found: dict[str, torch.nn.Parameter] = {}
        with plain_access():
            for reference, name in list(self.modules.values()):
                module = reference()
                with suppress(HelperError):  # a module that can't list its parameters
                    for path, parameter in parameters_of(module) if module is not None else ():
                        found[f"{name}.{path}" if name else path] = parameter
        return found

    def _called(self, module: torch.nn.Module, _: Any) -> None:
        with self.aside(None):
            self._note_module(module)

    def _note_module(self, module: torch.nn.Module) -> None:
        frame = reader_frame(sys._getframe(1), READER)
        if id(module) in self.modules or frame is None:
            return
        if any(ref() is not None and module in set(ref().modules()) for ref, _ in self.modules.values()):
            return  # a part of a module that is known already
        self.modules[id(module)] = weakref.ref(module), self._name(module, names_in(frame))

    def _name(self, module: torch.nn.Module, variables: dict[str, Any]) -> str:
        """Return the reader's name for a module: a variable, a path such as "gan.generator", or its class."""
        for name, value in variables.items():
            if value is module:
                return name
        for name, value in variables.items():
            with suppress(Exception):  # a module that can't list its parts, an object that computes its attributes
                if path := _path_to(module, value):
                    return f"{name}.{path}"
        name, used = type(module).__name__, [known for _, known in self.modules.values()]
        again = sum(known.partition(" ")[0] == name for known in used)
        return f"{name} {again + 1}" if again else name


def _path_to(module: torch.nn.Module, holder: Any) -> str:
    """Return the path from a module or an object to a part or an attribute of it; "" where there is none."""
    if issubclass(type(holder), torch.nn.Module):
        return next((path for path, part in holder.named_modules() if part is module), "")
    if issubclass(type(holder), type | ModuleType):
        return ""
    return next((name for name, value in vars(holder).items() if value is module), "")
