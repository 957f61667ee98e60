"""How much memory does a tensor keep alive, and what would `torch.save` write? `explain_storage`.

A storage lives as long as one tensor uses it, and it lives whole. So a slice of ten elements keeps a
block of a million, and `torch.save` writes the whole block, so that views still share it after loading.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from helpers.model.adapter import base_of, device_of_private_key, plain_access
from helpers.model.common import reached_nbytes
from helpers.model.finding import Finding, HelperError
from helpers.model.lacking import left_out, nothing_held
from helpers.model.layout import Layout, stride_zero
from helpers.model.memory import Block, Ranges, block_of
from helpers.model.owners import Walk, names_in
from helpers.model.source import caller_frame, pick, place_of, reader_frame
from helpers.model.words import counted, listed

OWN_SIZE = "a clone has a storage of its own size."


@dataclass(frozen=True, kw_only=True, repr=False)
class StorageFinding(Finding):
    """Bytes used against bytes kept alive.

    `used_nbytes`: different bytes that the tensors can read. `pinned_nbytes`: bytes of the storages they keep alive,
    each counted once. `saved_nbytes`: bytes of data that `torch.save` writes, without its headers of a
    few hundred bytes for each tensor (for a module: of its parameters and buffers). `storages` is the number of
    storages, `keepers` names the tensors whose storage is more than half unused, the worst first.
    """

    used_nbytes: int
    pinned_nbytes: int
    saved_nbytes: int
    storages: int
    keepers: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Share:
    """One storage and the tensors of the reader that use it, by name."""

    blocks: tuple[Block, ...]
    names: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        return self.blocks[0].nbytes

    @property
    def used(self) -> int:
        """Different bytes that the tensors read; when too long to count, at most the bytes of their elements."""
        counted = reached_nbytes(self.blocks)
        most = sum(b.numel * b.itemsize for b in self.blocks)
        return min(self.nbytes, most if counted is None else counted)


def explain_storage(obj: Any) -> StorageFinding:
    """Say how many bytes of storage an object uses, keeps alive and would have saved.

    `obj` is a tensor, or a list, dict, state_dict or module of tensors. Several tensors on one storage
    are counted together. Raises HelperError when there is no tensor, or one without strides.
    """
    frame = caller_frame()
    text = pick(place_of(frame).arguments if frame else (), 0, "")
    if isinstance(obj, torch.Tensor):
        Layout.of(obj)  # says in one sentence why a sparse or nested tensor has no storage of its own
        block = block_of(obj)
        if block is None:
            raise HelperError("explain_storage takes a tensor with a storage, and this one has none")
        return _tensor(obj, block, text or "The tensor", frame)
    return _container(obj, text.strip("`"))


def _tensor(t: torch.Tensor, block: Block, name: str, frame: FrameType | None) -> StorageFinding:
    share = _Share((block,), (name,))
    numbers = _numbers([share])
    with plain_access():
        base = base_of(t)
    base_name = _name_of(base, frame) if base is not None else None
    facts = {
        "storage_offset": block.offset,
        "numel": block.numel,
        "is_view": base is not None,
        "base_name": base_name,
    }
    remedy, beside = "", _kept_beside([t])
    if not block.nbytes and (device := device_of_private_key()) == t.device.type != "privateuseone":
        text = f"{name} is on the device {device}, whose memory PyTorch does not see: its storage tells 0 bytes"
    elif block.lacks_bytes:
        text, remedy = _resized(name, block)
    elif share.used < block.nbytes:
        text, remedy = _small_part(name, share, base is not None and base_name is None)
    elif block.numel * block.itemsize > share.used:
        text = _repeated(name, block)
    else:
        text = f"{name} uses all {block.nbytes:,} bytes of its storage: saving it writes nothing else"
        text += "" if beside else ", and holding it keeps nothing else"
    text, remedy = text + (f"; {beside}" if beside else ""), _without_graph(remedy, beside)
    return StorageFinding(text=f"{text}.", remedy=remedy, facts=facts, keepers=_keepers([share]), **numbers)


def _resized(name: str, block: Block) -> tuple[str, str]:
    """A storage that is too small for its tensor, as sharded training leaves it."""
    return (
        f"{name} has {counted(block.numel, 'element')} but its storage was resized to {block.nbytes:,} bytes, and they "
        f"need {block.end - block.start:,}: the values are gone, and reading them is an error",
        "Give it new memory, such as t.untyped_storage().resize_(…) and new values, before use.",
    )


def _small_part(name: str, share: _Share, nameless_base: bool) -> tuple[str, str]:
    """A tensor that reads a part of its storage; a base that no name leads to is kept by the view alone."""
    text, elements = f"{name} {_uses(share)}", sum(b.numel * b.itemsize for b in share.blocks)
    if elements >= share.nbytes:
        return (
            f"{text}, some slots several times: saving or holding it keeps {share.nbytes:,} bytes, and a clone() would "
            f"take {elements:,}",
            "",
        )
    text += ": saving or holding it keeps " + (
        f"{_times(share.nbytes, share.used)} its size" if elements else "them all"
    )
    if not nameless_base:
        return text, f"clone() it first: {OWN_SIZE}"
    it, its = (name, f"{name.strip('`')}._base") if name.startswith("`") else ("it", "its _base")
    return (
        f"{text}; {it} is a view whose _base is a tensor that no name refers to: {its} keeps that tensor and its "
        "storage alive",
        f"Keep a clone() of the part you need and drop the view: {OWN_SIZE}",
    )


def _kept_beside(tensors: list[torch.Tensor]) -> str:
    """Return what tensors keep alive beside their storages, as the end of a sentence; nothing if that is nothing."""
    with plain_access():
        graphs = sum(t.grad_fn is not None for t in tensors)
        grads = sum(t.is_leaf and t.grad is not None for t in tensors)
    foreign = any(b.foreign for t in tensors if (b := block_of(t)) is not None)
    it, its = ("it", "its") if len(tensors) == 1 else ("them", "their")
    kept = [f"the graph behind {its} grad_fn with all that it saved"] * (graphs > 0) + [f"{its} grad"] * (grads > 0)
    kept += [f"what owns {its} memory, such as a NumPy array, which torch does not see"] * foreign
    return f"holding {it} also keeps {listed(kept)}" if kept else ""


def _without_graph(remedy: str, beside: str) -> str:
    """Return the remedy for a tensor with a graph: its clone would hold on to that graph."""
    return remedy.replace("clone()", "detach().clone()") if "grad_fn" in beside else remedy


def _no_tensors(count: int) -> str:
    """Return the end of a sentence for arrays and buffers beside the tensors: they have no storage of torch."""
    those, were = ("1 array or buffer", "was") if count == 1 else (f"{count:,} arrays or buffers", "were")
    return f"; {those} beside the tensors {were} not looked at" if count else ""


def _repeated(name: str, block: Block) -> str:
    """A tensor whose indices read some slots several times, so that its storage is smaller than its elements."""
    elements = block.numel * block.itemsize
    because = stride_zero(block.zero_strides) if block.zero_strides else "its windows overlap"
    return (
        f"{name} has {counted(block.numel, 'element')}, {elements:,} bytes if each had its own, but uses a storage of "
        f"{block.nbytes:,} bytes, because {because}: holding or saving it costs {block.nbytes:,} bytes, and "
        f"contiguous() or clone() would write out {elements:,}"
    )


def _container(obj: Any, root: str) -> StorageFinding:
    walk = Walk()
    try:
        held = list(walk.start(root, obj))
        found = [(h.name, h.thing, h.module) for h in held if isinstance(h.thing, torch.Tensor)]
        others = left_out({n: t for n, t, _ in found if block_of(t) is None}) + _no_tensors(len(held) - len(found))
        del held
    finally:
        walk.close()
    module = isinstance(obj, torch.nn.Module)
    found = [(n, t, m) for n, t, m in found if not (module and n.endswith(".grad"))]
    beside = "" if module else _kept_beside([t for _, t, _ in found])
    skipped = {n: t for n, t, _ in found if block_of(t) is None}
    found = [(n, block_of(t), m) for n, t, m in found if n not in skipped]
    if not found:
        raise HelperError(
            f"explain_storage takes a tensor or something that holds tensors, and {nothing_held(obj, skipped)}"
        )
    shares = _shares((n, b) for n, b, _ in found)
    numbers = _numbers(shares)
    if module:
        saved = _shares((n, b) for n, b, registered in found if registered)
        numbers["saved_nbytes"] = sum(s.nbytes for s in saved)
    used, pinned = numbers["used_nbytes"], numbers["pinned_nbytes"]
    name = f"`{root}`" if root else "the object"
    facts = {"tensors": len(found)}
    together = sum(len(s.names) for s in shares if len(s.names) > 1)
    once = ""
    if together:
        example = next(s for s in shares if len(s.names) > 1)
        once = f" (`{example.names[0]}` and `{example.names[1]}` lie on one storage, which is counted once)"
    tensors, s = f"The {counted(len(found), 'tensor')} of {name}", "s" * (len(found) == 1)
    if used >= pinned:
        text = f"{tensors} use{s} all {pinned:,} bytes of {counted(len(shares), 'storage')}{once}"
        nothing = "nothing else is kept or saved" if not others else f"nothing else of {'it' if s else 'them'} is kept"
        nothing = f"nothing else is saved; {beside}" if beside else nothing
        return StorageFinding(text=f"{text}: {nothing}{others}.", facts=facts, **numbers)
    worst = max(shares, key=lambda s: s.nbytes - s.used)
    who = f"`{worst.names[0]}`" if len(worst.names) == 1 else f"`{worst.names[0]}` with {len(worst.names) - 1} more"
    more = f", {_times(pinned, used)} as much" if used else ""
    text = (
        f"{tensors} use{s} {used:,} bytes and keep{s} {pinned:,} bytes "
        f"alive in {counted(len(shares), 'storage')}{once}{more}: {who} {_uses(worst)}"
    )
    return StorageFinding(
        text=f"{text}{f'; {beside}' if beside else ''}{others}.",
        remedy=_without_graph(f"clone() each part before it is kept or saved: {OWN_SIZE}", beside),
        facts=facts,
        keepers=_keepers(shares),
        **numbers,
    )


def _shares(named: Iterator[tuple[str, Block]]) -> list[_Share]:
    """Put the tensors of one storage together, in the order in which they were met."""
    groups: dict[int, tuple[list[Block], list[str]]] = {}
    for name, block in named:
        blocks, names = groups.setdefault(block.key, ([], []))
        blocks.append(block)
        names.append(name)
    return [_Share(tuple(blocks), tuple(names)) for blocks, names in groups.values()]


def _numbers(shares: list[_Share]) -> dict[str, int]:
    one_each = [s.blocks[0] for s in shares]
    return {
        "used_nbytes": sum(s.used for s in shares),
        "pinned_nbytes": Ranges(one_each).nbytes,  # storages of one NumPy array are the same memory
        "saved_nbytes": sum(s.nbytes for s in shares),
        "storages": len(shares),
    }


def _keepers(shares: list[_Share]) -> tuple[str, ...]:
    wasteful = [s for s in shares if s.used * 2 < s.nbytes]
    return tuple(name for s in sorted(wasteful, key=lambda s: s.used - s.nbytes) for name in s.names)


def _uses(share: _Share) -> str:
    where = ""
    if len(share.blocks) == 1:
        where = f" (storage_offset {share.blocks[0].offset:,}, {counted(share.blocks[0].numel, 'element')})"
    return f"uses {share.used:,} of {share.nbytes:,} storage bytes{where}"


def _times(whole: int, part: int) -> str:
    """Return a ratio such as 100,000× or 1.5×."""
    ratio = whole / part
    return f"{ratio:,.0f}×" if ratio >= 10 or ratio == int(ratio) else f"{ratio:.2g}×"


def _name_of(t: torch.Tensor, frame: FrameType | None) -> str | None:
    """Return a name that leads to this very tensor, in the calling code or in the code that called it, or None."""
    while frame is not None:
        walk = Walk()
        try:
            found = next((h.name for h in walk.names(names_in(frame)) if h.thing is t), None)
        finally:
            walk.close()
        if found is not None:
            return found
        frame = reader_frame(frame.f_back)
    return None
