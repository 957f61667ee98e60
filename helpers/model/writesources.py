"""Which tensor could the reader have meant to write to? The source of a temporary, for `find_lost_writes`.

The source of `t[mask]` is `t`. That of `torch.where(t > 0, t, 0.0)` is `t` too: `t > 0` is only an expression of
the same line, and nobody writes to it. Where several tensors could be meant, there is no source.
"""

from __future__ import annotations

import ast
import weakref
from dataclasses import dataclass
from typing import Any

import torch

from helpers.model.adapter import storage_key, version_of, weak_storage
from helpers.model.memory import block_of
from helpers.model.watch import Call
from helpers.model.writebytes import Snapshot
from helpers.model.writewords import copies_its_source, parsed


@dataclass(frozen=True)
class Source:
    """The tensor from which a temporary was made, held weakly: a strong reference would change what lives.

    `text` is the reader's text for it, `version` its version counter at that moment (None if unknown). `storage` does
    not keep the storage alive, but keeps its number `key` from being used again.
    """

    text: str
    tensor: Any
    storage: Any
    key: int
    version: int | None

    def version_now(self) -> int | None:
        """Return the version counter, or None where the tensor is gone or has none."""
        t = self.tensor()
        return None if t is None else version_of(t)


@dataclass(frozen=True)
class Argument:
    """One tensor that a call was given: the reader's text for it, and the tensor, held weakly."""

    text: str
    tensor: Any
    first: bool


@dataclass
class _Made:
    storage: Any
    call: Call
    source: Source | None


class Sources:
    """Which call made each new storage, and from which tensor of the reader."""

    def __init__(self, before: Snapshot) -> None:
        self._before = before
        self._made: dict[int, _Made] = {}
        self.written: set[int] = set()  # the storages that any operator of the run wrote to
        self.escaped: set[int] = set()  # those whose memory was handed to code that torch does not see

    def add(self, t: torch.Tensor, call: Call, arguments: list[Argument], func: Any) -> Source | None:
        """Note that `call` made the storage of `t` with the operator `func`, and return the source of `t`."""
        found = self._source(t, call, arguments, func)
        for known in (self.written, self.escaped):  # the number may have belonged to a storage that is gone
            known.discard(storage_key(t))
        self._made[storage_key(t)] = _Made(weak_storage(t), call, found)
        return found

    def touched(self, source: Source, version: int | None) -> bool | None:
        """Say whether the run wrote to the source. `version`: its counter at a lost write.

        None where the counter says no, but the bytes can't be compared: NumPy may have written to them.
        """
        now = source.version_now()
        if source.key in self.written or (version if now is None else now) != source.version:
            return True
        if self._before.holds(source.key):
            return self._before.changed(source.key)
        return False if source.key in self._made and source.key not in self.escaped else None

    def _source(self, t: torch.Tensor, call: Call, arguments: list[Argument], func: Any) -> Source | None:
        if copies_its_source(call, func):
            arguments = [a for a in arguments if a.first]
        living = [(a.text, tensor) for a in arguments if (tensor := a.tensor()) is not None]
        found = {s.text: (s, tensor.shape) for text, tensor in living if (s := self._named(text, tensor)) is not None}
        if len(found) != 1:
            return None
        ((source, shape),) = found.values()
        return source if copies_its_source(call, func) or shape == t.shape else None

    def _named(self, text: str, t: torch.Tensor) -> Source | None:
        """Return the source that a text stands for; of an expression that makes a new tensor, the source of that."""
        if block_of(t) is None:
            return None
        key = storage_key(t)
        made = self._made.get(key)
        if made is not None and made.call.place and made.call.place.expression in text:
            return made.source
        # Every operator makes a new tensor; a name, an attribute, a subscript or a call may give one that lives on.
        if not isinstance(parsed(text), ast.Name | ast.Attribute | ast.Subscript | ast.Call):
            return None
        return Source(text, weakref.ref(t), weak_storage(t), key, version_of(t))


def arguments_of(call: Call, args: tuple, kwargs: dict[str, Any]) -> list[Argument]:
    """Return the tensors that a call was given, each with the reader's text for it."""
    placed = [(i, t) for i, t in enumerate(args) if isinstance(t, torch.Tensor)]
    if len(placed) == 1 and len(args) == 2 and call.place and _is_operator(call.place.expression):
        texts = [_tensor_of_two(call)]
    else:
        texts = [call.operand(i, "").strip("`") for i, _ in placed]
    found = [Argument(text, weakref.ref(t), i == 0) for text, (i, t) in zip(texts, placed, strict=True)]
    for name, t in kwargs.items():
        if isinstance(t, torch.Tensor):
            found.append(Argument(call.keyword(name, "").strip("`"), weakref.ref(t), name in ("input", "self")))
    return found


def _is_operator(code: str) -> bool:
    return isinstance(parsed(code), ast.BinOp | ast.Compare)


def _tensor_of_two(call: Call) -> str:
    """Return the text of the tensor in `2 * x` or `x * 2`: torch gets (x, 2) for both."""
    texts = [text for text in call.place.arguments if not isinstance(parsed(text), ast.Constant)]
    return texts[0] if len(texts) == 1 else ""
