"""What a node of the autograd graph knows: its order, its shapes, and the tensors it saved.

Nothing here runs an unpack hook, recomputes a checkpoint, or keeps a tensor alive after the call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import torch

from helpers.model.adapter.machinery import proves, take
from helpers.model.adapter.storages import version_of

_LEAF_ORDER = 2**64 - 1  # the sequence number that every AccumulateGrad has
_VERSIONS = re.compile(r"is at version (\d+); expected version (\d+) instead")


class Saved(NamedTuple):
    """One tensor that a node saved for backward.

    `value` is the tensor, or what a pack hook made of it, or None once it is freed. `state` is "alive",
    "packed" (a hook holds it), "freed", or "changed": its storage was written to since. `versions` are the
    version at saving and the version now, where `state` is "changed".
    """

    name: str
    value: Any
    state: str
    versions: tuple[int, int] | None = None


def sequence_number(node: Any) -> int | None:
    """Return the place of a node in its thread's order of forward operators; None for an AccumulateGrad."""
    number = take(node, "_sequence_nr")()
    return None if number == _LEAF_ORDER else number


def next_sequence_number() -> int:
    """Return the number that the next node made in this thread will get."""
    return take(torch, "_C", "_autograd", "_get_sequence_nr")()


def output_metadata(node: Any) -> list[tuple[tuple[int, ...], torch.dtype]]:
    """Return shape and dtype of each output of the forward operator, which are those of the gradients that arrive.

    The shape of a nested tensor is unknown here: it is given as ().
    """
    found = []
    for output in take(node, "_input_metadata"):
        nested = output.is_nested_tensor or output.is_cpp_nested_tensor
        found.append(((), output.dtype) if nested else (tuple(map(int, output.shape)), output.dtype))
    return found


def saved_tensors(node: Any) -> Iterator[Saved]:
    """Give each tensor that a node saved. A slot that was never filled is left out."""
    _require_hooks_in_sight()
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        try:
            raws = take(node, "_raw_saved_tensors")
        except RuntimeError:  # freed: torch refuses even to name them
            yield Saved("saved_tensors", None, "freed")
            return
        for position, raw in enumerate(raws):
            if saved := _saved(f"saved_tensors[{position}]", raw, _unpacking(node, "saved_tensors", raws, position)):
                yield saved
        return
    for name, raw_attribute, attribute in _saved_names(type(node)):
        try:
            raw = getattr(node, raw_attribute)
        except RuntimeError:  # a freed list of tensors has no members left
            yield Saved(name, None, "freed")
            continue
        if isinstance(raw, tuple):
            for position, one in enumerate(raw):
                if saved := _saved(f"{name}[{position}]", one, _unpacking(node, attribute, raw, position)):
                    yield saved
        elif saved := _saved(name, raw, partial(getattr, node, attribute)):
            yield saved


@cache
def _require_hooks_in_sight() -> None:
    """Raise HelperError where a release does not tell whether a hook holds a tensor: then none may be unpacked."""
    take(torch, "_C", "_autograd", "SavedTensor", "unpack_hook")


def _unpacking(node: Any, attribute: str, raws: tuple, position: int) -> Callable[[], Any]:
    """Return a function that unpacks one of several saved tensors, as torch does before it uses it."""
    raw = raws[position]
    if unpack := getattr(raw, "unpack", None):
        return unpack

    def unpack_with_all() -> Any:  # torch 2.11 can unpack them together only
        if any(one.unpack_hook is not None for one in raws):
            return raw.data
        try:
            return getattr(node, attribute)[position]
        except RuntimeError as error:
            versions = _VERSIONS.search(str(error))
            if versions and version_of(raw.data) != int(versions[1]):
                return raw.data  # it was another one that changed
            raise

    return unpack_with_all


def _saved(name: str, raw: Any, unpack: Any) -> Saved | None:
    if raw.unpack_hook is not None:
        return Saved(name, raw.data, "packed")
    try:
        value = unpack()  # no hook is there to run: torch only compares versions
    except RuntimeError as error:
        if versions := _VERSIONS.search(str(error)):
            return Saved(name, raw.data, "changed", (int(versions[2]), int(versions[1])))
        return Saved(name, None, "freed")
    return None if value is None else Saved(name, value, "alive")


@cache
def _saved_names(kind: type) -> tuple[tuple[str, str, str], ...]:
    """Return the tensors that nodes of this kind save: the name without a prefix, and the attributes that tell of it.

    The attributes are strings that stay: Python remembers where it found an attribute by the string it was asked with.
    """
    prefix = "_raw_saved_"
    names = [name.removeprefix(prefix) for name in dir(kind) if name.startswith(prefix)]
    return tuple((name, prefix + name, f"_saved_{name}") for name in names)


def saved_settings(node: Any) -> dict[str, Any]:
    """Return the numbers and flags that a node saved, such as {"dim": 1}; sizes and strides are left out."""
    found = {}
    for name, attribute in _setting_names(type(node)):
        value = getattr(node, attribute)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 2**63:
            value -= 2**64  # torch keeps dim=-1 as an unsigned number
        if value is None or isinstance(value, bool | int | float | str):
            found[name] = value
    return found


@cache
def _setting_names(kind: type) -> tuple[tuple[str, str], ...]:
    tensors = {attribute for _, _, attribute in _saved_names(kind)}
    found = [name for name in dir(kind) if name.startswith("_saved_") and name not in tensors]
    names = [name.removeprefix("_saved_") for name in found if not re.search(r"sym_|sizes|strides|numel", name)]
    return tuple((name, f"_saved_{name}") for name in names)


def leaf_variable(node: Any) -> torch.Tensor | None:
    """Return the leaf into whose `.grad` an AccumulateGrad adds; None for every other node."""
    return getattr(node, "variable", None) if type(node).__name__ == "AccumulateGrad" else None


def forward_class(node: Any) -> type | None:
    """Return the `torch.autograd.Function` whose `apply` made a node; None for torch's own nodes."""
    if not isinstance(node, torch.autograd.function.BackwardCFunction):
        return None
    return take(type(node), "_forward_cls")


def tensor_hooks(t: torch.Tensor) -> tuple[int, int]:
    """Return how many hooks a tensor has: on its gradient, and after its gradient was accumulated."""
    return len(take(t, "_backward_hooks") or ()), len(take(t, "_post_accumulate_grad_hooks") or ())


# The proofs


def _leaf() -> torch.Tensor:
    return torch.ones(3, requires_grad=True)


@proves(sequence_number)
def _sequence_number_works() -> bool:
    x = _leaf()
    first = x * 2
    second = first * 2
    (leaf, _), *_ = first.grad_fn.next_functions
    numbers = sequence_number(first.grad_fn), sequence_number(second.grad_fn)
    return numbers[0] < numbers[1] and sequence_number(leaf) is None


@proves(next_sequence_number)
def _next_sequence_number_works() -> bool:
    x = _leaf()
    coming = next_sequence_number()
    return sequence_number((x * 2).grad_fn) == coming == next_sequence_number() - 1


@proves(output_metadata)
def _output_metadata_works() -> bool:
    values, _ = torch.ones(2, 3, requires_grad=True).max(0)
    pieces = torch.ones(2, 3, requires_grad=True).unbind(0)
    return (
        output_metadata(values.grad_fn)[0] == ((3,), torch.float32)
        and output_metadata(pieces[0].grad_fn) == [((3,), torch.float32)] * 2
    )


class _SavesAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*tensors)
        return tensors[0] * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad, None, None


@proves(saved_tensors)
def _saved_tensors_works() -> bool:
    x = _leaf()
    y = x.exp()
    (alive,) = saved_tensors(y.grad_fn)
    z = x.exp()
    z.add_(1)
    (node, _), *_ = z.grad_fn.next_functions
    (changed,) = saved_tensors(node)
    y.sum().backward()
    (freed,) = saved_tensors(y.grad_fn)

    def fail(packed: Any) -> Any:
        raise AssertionError("unpacked")

    with torch.autograd.graph.saved_tensors_hooks(lambda t: 7, fail):
        packed = list(saved_tensors((x * x).grad_fn))
    a, b = torch.ones(2), torch.ones(2)
    custom = _SavesAll.apply(_leaf(), a, b)
    b.add_(1)
    several = [(s.name, s.state) for s in saved_tensors(custom.grad_fn)]
    states = [("saved_tensors[0]", "alive"), ("saved_tensors[1]", "alive"), ("saved_tensors[2]", "changed")]
    return several == states and (
        (alive.name, alive.state, freed.state) == ("result", "alive", "freed")
        and (changed.state, changed.versions) == ("changed", (0, 1))
        and [(s.value, s.state) for s in packed] == [(7, "packed")] * 2
    )


@proves(saved_settings)
def _saved_settings_works() -> bool:
    return saved_settings(torch.ones(2, 3, requires_grad=True).softmax(-1).grad_fn)["dim"] == -1


@proves(leaf_variable)
def _leaf_variable_works() -> bool:
    x = _leaf()
    y = x * 2
    (node, _), *_ = y.grad_fn.next_functions
    return leaf_variable(node) is x and leaf_variable(y.grad_fn) is None


@proves(forward_class)
def _forward_class_works() -> bool:
    class Same(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad

    y = Same.apply(_leaf())
    (saved,) = saved_tensors(y.grad_fn)
    return forward_class(y.grad_fn) is Same and saved.state == "alive" and forward_class((y * 2).grad_fn) is None


@proves(tensor_hooks)
def _tensor_hooks_works() -> bool:
    x = _leaf()
    before = tensor_hooks(x)
    x.register_hook(lambda grad: grad)
    x.register_post_accumulate_grad_hook(lambda t: None)
    return before == (0, 0) and tensor_hooks(x) == (1, 1)
