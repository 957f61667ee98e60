"""The reader's names for tensors: variables of the calling code, and parameters of its modules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch

from helpers.model.adapter import plain_access, storage_key
from helpers.model.autograd.nodes import grad_fn_of
from helpers.model.finding import HelperError, in_short, kind_of
from helpers.model.owners import local_names, names_in
from helpers.model.source import caller_frame

_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


class Names:
    """Looks up names for live tensors. It holds the tensors: call `clear` before the names are dropped."""

    def __init__(self, variables: dict[str, Any], model: torch.nn.Module | None) -> None:
        self._leaves: dict[int, list[str]] = {}  # by id of the tensor, which `_held` keeps alive
        self._results: dict[Any, list[tuple[str, torch.Tensor]]] = {}  # by grad_fn
        self._storages: dict[int, list[tuple[str, torch.Tensor]]] = {}
        self._held: list[torch.Tensor] = []
        with plain_access():
            for name, t in parameters_of(model) if model is not None else ():
                self._add(name, t)
            known = frozenset(self._leaves)  # the model's own names are enough for what is in the model
            for name, t in _tensors(variables, skip=model):
                if id(t) not in known:
                    self._add(name, t)

    @classmethod
    def of_caller(cls, model: Any = None) -> Names:
        """Take the variables of the reader's code that called the helper. HelperError if `model` is no module."""
        if model is not None and not issubclass(type(model), torch.nn.Module):
            raise HelperError(f"model is {in_short(model)}, and a torch.nn.Module was wanted")
        frame = caller_frame()
        variables: dict[str, Any] = {}
        while frame is not None and frame.f_code.co_name in _COMPREHENSIONS:  # these see the names around them
            variables = local_names(frame) | variables
            frame = frame.f_back
        return cls(variables | names_in(frame) if frame else variables, model)

    def of_leaf(self, leaf: torch.Tensor) -> list[str]:
        """Return every name of a leaf; none where the reader has no name for it."""
        return list(self._leaves.get(id(leaf), ()))

    def of_results(self, node: Any) -> list[tuple[str, torch.Tensor]]:
        """Return the named tensors that a node's forward operator made."""
        return self._results.get(node, [])

    def of_storage(self, key: int, t: torch.Tensor) -> str:
        """Return the name of a tensor on this storage: one with the same elements, or a larger one as `name[…]`."""
        named = self._storages.get(key)
        if not named:
            return ""
        place = (t.numel(), t.storage_offset())
        for name, other in named:
            if (other.numel(), other.storage_offset()) == place:
                return name
        return f"{named[0][0]}[…]"

    def clear(self) -> None:
        """Let go of every tensor."""
        for held in (self._leaves, self._results, self._storages, self._held):
            held.clear()

    def _add(self, name: str, t: torch.Tensor) -> None:
        self._held.append(t)
        if (node := grad_fn_of(t)) is not None:
            self._results.setdefault(node, []).append((name, t))
        elif name not in (names := self._leaves.setdefault(id(t), [])):
            names.append(name)
        if t.layout == torch.strided and type(t) in (torch.Tensor, torch.nn.Parameter):
            self._storages.setdefault(storage_key(t), []).append((name, t))


def _tensors(variables: dict[str, Any], skip: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the variables that are tensors, and the parameters of those that are modules, under `module.name`."""
    for name, value in list(variables.items()):
        if name.startswith("_"):  # IPython's own names for results
            continue
        kind = type(value)  # isinstance would ask the reader's object for its class, and a dead weakref.proxy raises
        if issubclass(kind, torch.Tensor):
            yield name, value
        elif issubclass(kind, torch.nn.Module) and value is not skip:
            with suppress(HelperError):  # a module that can't list its parameters gives no names
                yield from [(f"{name}.{path}", parameter) for path, parameter in parameters_of(value)]


def parameters_of(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Return every path to a parameter of a module with the parameter.

    Raises HelperError where the module can't list them, as before `super().__init__()` has run.
    """
    try:
        return list(model.named_parameters(remove_duplicate=False))
    except Exception as error:  # the reader's own named_parameters, or a module that was never initialized
        raise HelperError(
            f"the parameters of {kind_of(model)} can't be listed: its named_parameters raised "
            f"{type(error).__name__}, as it does before super().__init__() has run"
        ) from None
