"""Running the reader's function on copies, forward, backward and twice backward, for `check_function`.

All elements of the inputs that need a gradient stand in one row of N real numbers, and all elements of the outputs in
one row of M; a complex element takes two places, its real and its imaginary part. So every derivative is one real
number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from helpers.model.adapter import same_storage
from helpers.model.watch import run_reader, tensors_in

STEP = 1e-6  # that of torch.autograd.gradcheck


class Trial:
    """The reader's function with copies of its arguments; every run gets new copies, none of which is a leaf.

    `which` are the positions of the arguments that are differentiated. `x` holds their N real numbers.
    """

    def __init__(self, fn: Callable, args: tuple, which: tuple[int, ...]) -> None:
        self.fn, self.args, self.which = fn, args, which
        self.given = [args[k].detach() for k in which]
        self.x = row(self.given)
        self.kept: list[int] = []

    def points(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Return the inputs that a row of N numbers stands for."""
        return _spread(x, self.given)

    def run(self, x: torch.Tensor | None = None) -> tuple[list[torch.Tensor], list[Any], list[torch.Tensor]]:
        """Run the function; return the leaves, the arguments it got, and every tensor in its result."""
        leaves = [p.clone().requires_grad_() for p in (self.given if x is None else self.points(x))]
        args = [fresh(a) for a in self.args]
        for k, leaf in zip(self.which, leaves, strict=True):
            args[k] = leaf.clone()
        return leaves, args, tensors_in([run_reader(self.fn, tuple(args))])

    def outputs(self, x: torch.Tensor | None = None) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Return the leaves and the outputs that are differentiated, the same ones in every run."""
        leaves, _, results = self.run(x)
        if not self.kept:
            self.kept = [k for k, t in enumerate(results) if t.requires_grad]
        return leaves, [results[k] for k in self.kept]

    def value(self, x: torch.Tensor) -> torch.Tensor:
        """Return the row of M output numbers at `x`."""
        return row(self.outputs(x)[1])

    def pull(self, x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Return the row of N gradients that backward gives for the incoming gradients `v`."""
        leaves, outputs = self.outputs(x)
        return row(_grad(outputs, leaves, _spread(v, outputs)))

    def jacobian(self, places: range | list[int] | None = None) -> torch.Tensor:
        """Return what backward gives for one output place after another, shape (len(places), N)."""
        leaves, outputs = self.outputs()
        total = len(row(outputs))
        rows = []
        for i in range(total) if places is None else places:
            v = torch.zeros(total, dtype=torch.float64)
            v[i] = 1
            rows.append(row(_grad(outputs, leaves, _spread(v, outputs), retain_graph=True)))
        return torch.stack(rows)

    def second(self, v: torch.Tensor, u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Differentiate (the gradients for `v`) · `u` by a second backward: by the inputs (N) and by `v` (M)."""
        leaves, outputs = self.outputs()
        incoming = [t.requires_grad_() for t in _spread(v, outputs)]
        gradients = torch.autograd.grad(outputs, leaves, incoming, create_graph=True, allow_unused=True)
        check_once(gradients)
        parts = [
            (_real(g) * _real(w)).sum()
            for g, w in zip(gradients, _spread(u, self.given), strict=True)
            if g is not None and g.requires_grad
        ]
        wanted = [*leaves, *incoming]
        found = _grad([torch.stack([p.double().cpu() for p in parts]).sum()], wanted, None) if parts else _zeros(wanted)
        return row(found[: len(leaves)]), row(found[len(leaves) :])

    def step(self, j: int) -> float:
        """Return the step for one input number."""
        size = abs(float(self.x[j]))
        return 1e-4 * size if 0 < size < 1e-3 else STEP * max(1.0, size)

    def short_step(self, j: int) -> float:
        """Return a shorter step for a large input number, in between of gradcheck's own and `step`."""
        size = abs(float(self.x[j]))
        return STEP * size**0.5 if size > 1 else self.step(j)

    def nudged(self, j: int, by: float) -> torch.Tensor:
        x = self.x.clone()
        x[j] += by
        return x

    def place(self, j: int) -> tuple[int, tuple[int, ...], str]:
        """Return which input a number belongs to (counted from 0), its index there, and ".real", ".imag" or ""."""
        return place_in(self.given, j)


class OnceError(RuntimeError):
    """The backward is marked once_differentiable."""


def check_once(gradients: tuple) -> None:
    """Raise OnceError where a gradient ends in the node that once_differentiable leaves behind."""
    if any(type(node).__name__ in ("Error", "DelayedError") for node in nodes(gradients)):
        raise OnceError


def nodes(outputs: Any) -> Iterator[Any]:
    """Yield every node of the graph behind some tensors, the last operation first."""
    waiting = [t.grad_fn for t in outputs if t is not None and t.grad_fn is not None]
    seen = set()
    while waiting:
        node = waiting.pop(0)
        if node not in seen:
            seen.add(node)
            yield node
            waiting.extend(n for n, _ in node.next_functions if n is not None)


def kept_on_ctx(outputs: list[torch.Tensor]) -> Iterator[tuple[Any, str, torch.Tensor]]:
    """Yield (node, attribute, tensor) for every tensor that a custom Function put on ctx by itself."""
    for node in nodes(outputs):
        if isinstance(node, BackwardCFunction):
            for name, value in list(vars(node).items()):
                if type(value).__module__ == "numpy" and value.ndim and value.flags.writeable:
                    value = torch.from_numpy(value)
                yield from ((node, name, t) for t in tensors_in([value]))


def shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Say whether two tensors lie on the same memory; numpy arrays have a storage of their own on it."""
    return same_storage(a, b) or (a.numel() > 0 and a.data_ptr() == b.data_ptr())


def fresh(value: Any, dtype: torch.dtype | None = None) -> Any:
    """Copy the tensors in an argument; with `dtype`, floating ones in it and complex ones in its complex kin."""
    if isinstance(value, torch.Tensor):
        t = value.detach().clone()
        if dtype and (t.is_floating_point() or t.is_complex()):
            t = t.to(dtype.to_complex() if t.is_complex() else dtype)
        return t
    if type(value) in (list, tuple):
        return type(value)(fresh(v, dtype) for v in value)
    return {k: fresh(v, dtype) for k, v in value.items()} if type(value) is dict else value


def _real(t: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(t.resolve_conj()) if t.is_complex() else t


def row(tensors: Any) -> torch.Tensor:
    """Return all elements as one row of float64 numbers on the CPU."""
    return torch.cat([_real(t.detach()).reshape(-1).to("cpu", torch.float64) for t in tensors])


def _spread(x: torch.Tensor, like: list[torch.Tensor]) -> list[torch.Tensor]:
    parts, start = [], 0
    for t in like:
        count = t.numel() * (2 if t.is_complex() else 1)
        part = x[start : start + count]
        part = torch.view_as_complex(part.reshape(-1, 2).contiguous()) if t.is_complex() else part
        parts.append(part.reshape(t.shape).to(t.device, t.dtype, copy=True))
        start += count
    return parts


def place_in(tensors: list[torch.Tensor], j: int) -> tuple[int, tuple[int, ...], str]:
    """Return which tensor a number of a row belongs to, its index there, and ".real", ".imag" or ""."""
    for k, t in enumerate(tensors):
        parts = 2 if t.is_complex() else 1
        if j < t.numel() * parts:
            index = []
            rest = j // parts
            for n in reversed(t.shape):
                index.append(rest % n)
                rest //= n
            return k, tuple(reversed(index)), (".real", ".imag")[j % 2] if parts == 2 else ""
        j -= t.numel() * parts
    raise IndexError(j)


def _zeros(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.zeros_like(t) for t in tensors]


def _grad(outputs: list, leaves: list, v: list | None, **options: Any) -> list[torch.Tensor]:
    found = torch.autograd.grad(outputs, leaves, v, allow_unused=True, **options)
    return [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True)]
