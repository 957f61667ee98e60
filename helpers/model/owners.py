"""Who holds tensors: a walk through names, containers, modules and objects that disturbs none of them.

The walk reads attribute dictionaries, slots and container items directly. It calls no property, no
`__getattr__`, no `__iter__` and no other code of the reader's classes, and it keeps nothing alive: what
it yields must be dropped by the caller before it returns.
"""

from __future__ import annotations

import gc
import inspect
import sys
from array import array
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from keyword import iskeyword
from mmap import mmap
from types import FrameType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any

import torch

from helpers.model.adapter import plain_access
from helpers.model.finding import kind_of

MOST_PATHS = 20_000  # paths to shared modules that are followed
MOST_OBJECTS = 500_000  # a walk stops there and says so
_BUFFERS = (bytearray, memoryview, array, mmap)
_LEAVES = (str, bytes, int, float, complex, bool, type(None), type, ModuleType, torch.dtype, torch.device, torch.Size)
_PARTS_OF_MODULE = ("_parameters", "_buffers", "_modules")
_NOTES_OF_MODULE = ("_flat_weights", "_flat_weight_refs")  # where an RNN of torch lists its own parameters once more
# IPython's records of inputs and outputs; `Out` itself is walked, these are other names for the same things.
_NOTEBOOK_RECORDS = frozenset({"_", "__", "___", "_oh", "_ih", "_dh", "In", "_i", "_ii", "_iii"})


@dataclass(frozen=True)
class Held:
    """Something with memory (a tensor, a NumPy array, a buffer) and the name by which it was reached.

    `module` tells whether the last step led from a module to its parameter or buffer.
    """

    name: str
    thing: Any
    module: bool = False


class Walk:
    """Yields every tensor, array and buffer that can be reached from some names, each way once.

    `without` is a container that the walk does not enter. `complete` is False after a walk that met
    more than 500,000 objects.
    """

    def __init__(self, without: Any = None) -> None:
        self.complete = True
        self._seen: set[int] = set() if has_memory(type(without)) else {id(without)}
        self._alive: list[Any] = []  # makes sure that no id is used again while the walk runs

    def names(self, names: dict[str, Any]) -> Iterator[Held]:
        """Walk each of the given names; a tensor with two names is yielded under both."""
        for name, thing in names.items():
            yield from self.start(name, thing)

    def start(self, name: str, thing: Any) -> Iterator[Held]:
        """Walk breadth first from one thing, so that the shortest name of a thing comes first."""
        queue = deque([(name, thing, False)])
        while queue:
            name_here, here, module = queue.popleft()
            kind = type(here)
            if issubclass(kind, _LEAVES) or _leads_nowhere(kind):
                continue
            if has_memory(kind):
                yield Held(name_here, here, module)
                if issubclass(kind, torch.Tensor) and id(here) not in self._seen:
                    queue.extend(self._of_tensor(name_here, here))
                self._remember(here)
                continue
            if id(here) in self._seen:
                continue
            if len(self._seen) >= MOST_OBJECTS:
                self.complete = False
                return
            self._remember(here)
            queue.extend(_parts(name_here, here))

    def close(self) -> None:
        """Let go of everything that the walk has met."""
        self._alive.clear()
        self._seen.clear()

    def _remember(self, thing: Any) -> None:
        self._seen.add(id(thing))
        self._alive.append(thing)

    @staticmethod
    def _of_tensor(name: str, t: torch.Tensor) -> Iterator[tuple[str, Any, bool]]:
        grad = None
        with plain_access(), suppress(RuntimeError):  # a view made under no_grad, written to since, refuses to answer
            grad = t.grad if t.is_leaf else None  # asking a non-leaf would warn
        if grad is not None:
            yield f"{name}.grad", grad, False
        extra = _attributes(t)
        for key, value in extra.items() if extra else ():
            yield f"{name}.{key}", value, False


def repeated(name: str, thing: Any) -> Iterator[Held]:
    """Yield the parameters and buffers of the modules in `thing` under every path that leads to them.

    A walk enters a module once; `named_parameters(remove_duplicate=False)` tells each place of a shared one.
    """
    left = MOST_PATHS

    def paths(name: str, here: Any, above: tuple[int, ...]) -> Iterator[Held]:
        nonlocal left
        kind = type(here)
        module = issubclass(kind, torch.nn.Module)
        if id(here) in above or not (module or kind in (list, tuple, dict, deque)):
            return
        above = (*above, id(here))
        for part, value, registered in _parts(name, here):
            if left <= 0:
                return
            left -= 1
            if registered and issubclass(type(value), torch.Tensor):
                yield Held(part, value, True)
            elif registered or not module:
                yield from paths(part, value, above)

    yield from paths(name, thing, ())


def has_memory(kind: type) -> bool:
    numpy = sys.modules.get("numpy")
    return (
        issubclass(kind, torch.Tensor)
        or issubclass(kind, _BUFFERS)
        or (numpy is not None and issubclass(kind, numpy.ndarray))
    )


def _parts(name: str, thing: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield name and value of everything that an object holds, and whether a module registered it."""
    kind = type(thing)
    if issubclass(kind, dict):
        for key, value in list(dict.items(thing)):
            if issubclass(type(key), torch.Tensor):
                yield f"{name}[…]", value, False
            else:
                yield f"{name}[{_key(key)}]", value, False
    elif issubclass(kind, list | tuple | deque):
        iterate = next(base for base in (list, tuple, deque) if issubclass(kind, base)).__iter__
        for position, value in enumerate(list(iterate(thing))):
            yield f"{name}[{position}]", value, False
    elif issubclass(kind, set | frozenset):
        iterate = set.__iter__ if issubclass(kind, set) else frozenset.__iter__
        for value in list(iterate(thing)):
            yield f"an element of {name}", value, False
    if (attributes := _attributes(thing)) is not None:
        is_module = issubclass(kind, torch.nn.Module)
        for part in _PARTS_OF_MODULE if is_module else ():
            for key, value in list(dict.items(attributes.get(part) or {})):
                yield _dotted(name, key), value, True
        for key, value in list(dict.items(attributes)):
            if not (is_module and key in (*_PARTS_OF_MODULE, *_NOTES_OF_MODULE)):
                yield _dotted(name, key), value, False
    if kind is FunctionType and thing.__closure__:
        for variable, cell in zip(thing.__code__.co_freevars, thing.__closure__, strict=True):
            with suppress(ValueError):  # a variable that has no value yet
                yield f"{variable} inside {name}", cell.cell_contents, False
    for key, value in _slots(kind, thing):
        yield _dotted(name, key), value, False


def _attributes(thing: Any) -> dict[str, Any] | None:
    """Return the dictionary of an object's own attributes, unless its class computes one."""
    for base in type.__dict__["__mro__"].__get__(type(thing)):
        descriptor = type.__dict__["__dict__"].__get__(base).get("__dict__")
        if descriptor is not None:
            found = descriptor.__get__(thing) if isinstance(descriptor, GetSetDescriptorType) else None
            return found if type(found) is dict else None
    return None


def _slots(kind: type, thing: Any) -> Iterator[tuple[str, Any]]:
    for base in type.__dict__["__mro__"].__get__(kind):
        own = type.__dict__["__dict__"].__get__(base)
        if "__slots__" not in own:
            continue
        for key, descriptor in own.items():
            if type(descriptor) is MemberDescriptorType:
                try:
                    yield key, descriptor.__get__(thing)
                except AttributeError:  # a slot that was never filled
                    continue


def _key(key: Any) -> str:
    return repr(key) if type(key) in (str, int, bool, float) else kind_of(key)


def _dotted(name: str, key: Any) -> str:
    """Return `name.key` as one would write it, or `name[0]` for the numbered parts of a Sequential."""
    if type(key) is str and key.isidentifier() and not iskeyword(key):
        return f"{name}.{key}"
    return f"{name}[{key}]" if type(key) is str and key.isdigit() else f"{name}[{_key(key)}]"


def local_names(frame: FrameType) -> dict[str, Any]:
    """Return the variables of the code at this frame: of a function its own, of a cell the global ones.

    Reading the locals of a function makes Python 3.11 and 3.12 keep a dictionary of them until the
    function ends. It is emptied again here, so that a later `del` still frees memory; unless the reader holds it, as
    the result of `locals()`.
    """
    snapshot = frame.f_locals
    names = dict(snapshot)
    optimized = frame.f_code.co_flags & inspect.CO_OPTIMIZED  # otherwise the dictionary is the real one
    # 3 owners: the frame, the name `snapshot`, and the argument of getrefcount.
    if optimized and sys.version_info < (3, 13) and sys.getrefcount(snapshot) == 3:
        snapshot.clear()
    return names


def names_in(frame: FrameType) -> dict[str, Any]:
    """Return the names that code at this frame can use, its own first, then the globals."""
    names: dict[str, Any] = {}
    scopes = [frame.f_globals]
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        names = local_names(frame)
    else:  # the code of a cell or of a class body
        scopes = [frame.f_locals, frame.f_globals]
    for scope in scopes:
        for name, thing in list(scope.items()):
            if not (name.startswith("__") or name in _NOTEBOOK_RECORDS or _leads_nowhere(type(thing))):
                names.setdefault(name, thing)
    out = names.pop("Out", None)
    if out is None:
        return names
    # What the notebook recorded stands last, and once: a name that the reader gave says more.
    return {n: thing for n, thing in names.items() if not (n[0] == "_" and n.strip("_i").isdigit())} | {"Out": out}


# What runs a notebook. From a widget or a logger one comes to the kernel, and from there to everything once more.
_MACHINERY = frozenset({
    "IPython", "anywidget", "asyncio", "comm", "ipykernel", "ipywidgets", "logging", "threading", "tornado",
    "traitlets",
})  # fmt: skip
_PLAIN_DATA = "helpers.model.autograd.graph"  # a graph that was read: many small objects, and never a tensor


def _leads_nowhere(kind: type) -> bool:
    """Say whether objects of a class are not entered: those of the notebook's machinery, and graphs that were read.

    The reader's own class is entered, also one that is derived from `threading.Thread`.
    """
    module = str(type.__getattribute__(kind, "__module__"))  # a metaclass of the reader's is not asked
    return module == _PLAIN_DATA or module.partition(".")[0] in _MACHINERY


def living_tensors() -> list[torch.Tensor]:
    """Return all tensors that Python's garbage collector knows, whether or not a name leads to them."""
    return [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]
