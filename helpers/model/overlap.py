"""Do the tensor that is written and the tensor that is read lie in the same memory? `explain_overlap`.

PyTorch asks the same before every in-place write, but quickly, not exactly (`get_overlap_status` and
`has_internal_overlap` in aten/src/ATen/MemoryOverlap.cpp):

- a written tensor with stride 0 in a dimension of two or more elements is refused, save by `fill_` and its like
  (`zero_`, `masked_fill_`, `index_fill_`), which do not ask, and by `copy_` from the very same elements, which
  returns before it asks;
- two tensors on one storage are compared by their first and last byte, and only when both fill one
  range without gaps. The same range with the same strides is allowed; ranges that overlap are refused;
- all else passes: tensors with gaps, and windows made by `unfold`, are written in some order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from helpers.model.adapter import plain_access
from helpers.model.common import overlap, reached_nbytes
from helpers.model.finding import Finding, HelperError, kind_of
from helpers.model.layout import Layout
from helpers.model.memory import Block, block_of
from helpers.model.source import caller_arguments, pick
from helpers.model.words import counted, listed, sentence_case

MOST_COMPARED = 10**6  # elements; larger tensors are not compared index by index


@dataclass(frozen=True, kw_only=True, repr=False)
class OverlapFinding(Finding):
    """What two tensors have in common in memory.

    `kind` is "none", "same" (the same elements in the same order), "partial", or "internal" (two indices
    of the written tensor lead to one slot). `elements` counts the elements of the written tensor that
    share a byte with the source (for "internal": that share a slot with another index, counted as elements minus
    slots); `nbytes` the bytes both use. `refused`: torch raises instead of writing.
    """

    kind: str
    elements: int
    nbytes: int
    refused: bool


def explain_overlap(written: torch.Tensor, read: torch.Tensor | None = None) -> OverlapFinding:
    """Say whether a write to `written` would disturb itself or the source `read`, and whether torch refuses it.

    Exact for every layout and across dtypes. Raises HelperError for what has no strides.
    """
    texts = caller_arguments()
    names = pick(texts, 0, "the written tensor"), pick(texts, 1, "the source")
    return overlap_finding(written, read, *names)


def overlap_finding(
    written: torch.Tensor, read: torch.Tensor | None, written_name: str, read_name: str
) -> OverlapFinding:
    """Do the work of `explain_overlap`, with names for the two tensors as they shall stand in the sentence."""
    a = _block(written, "written")
    if (inner := _internal(a, written_name, read is not None and _same_data(written, read))) is not None:
        return inner
    if read is None:
        return _nothing(f"every element of {written_name} has a slot of its own: a write to it disturbs nothing")
    b = _block(read, "read")
    both = f"{written_name} and {read_name}"
    elements, nbytes = overlap(a, b)
    if not elements:
        if a.key == b.key:
            return _nothing(f"{both} share one storage but no element of it: neither disturbs the other")
        return _nothing(f"{both} lie in different storages and share no memory")
    if (a.first, a.shape, a.stride, a.itemsize) == (b.first, b.shape, b.stride, b.itemsize):
        return OverlapFinding(
            text=_sentence(
                f"{both} are the same {counted(a.numel, 'element')} in the same order: torch allows this, "
                "because each element is read before it is written"
            ),
            kind="same",
            elements=elements,
            nbytes=nbytes,
            refused=False,
            facts=_facts(a, b),
        )
    return _partial(a, b, elements, nbytes, written_name, read_name)


def refuses(written: Block, read: Block | None = None) -> bool:
    """Say whether torch refuses the write, by torch's own rule."""
    if written.zero_strides and not written.dense:
        return True
    if read is None or written.key != read.key or not written.numel or not read.numel:
        return False
    if not (written.dense and read.dense):
        return False
    if (written.first, written.end) == (read.first, read.end):
        return written.stride != read.stride
    return written.first < read.end and read.first < written.end


def _block(t: torch.Tensor, role: str) -> Block:
    if not isinstance(t, torch.Tensor):
        raise HelperError(f"explain_overlap takes two tensors, and {kind_of(t)} came as `{role}`")
    Layout.of(t)  # says in one sentence why a sparse, nested or packed tensor has no slots
    block = block_of(t)
    if block is None:
        raise HelperError(f"the tensor given as `{role}` has no storage that could be compared")
    if block.lacks_bytes:
        raise HelperError(
            f"the tensor given as `{role}` needs {block.end - block.start:,} bytes, and its storage was resized to "
            f"{block.nbytes:,}: it has elements without memory"
        )
    return block


def _same_data(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Say whether two tensors are alike in all that `copy_` compares: it returns at once when they are."""
    one, other = _block(a, "written"), _block(b, "read")
    with plain_access():
        alike = (a.dtype, a.is_conj(), a.is_neg()) == (b.dtype, b.is_conj(), b.is_neg())
    return alike and (one.key, one.first, one.shape, one.stride) == (other.key, other.first, other.shape, other.stride)


def _internal(a: Block, name: str, itself: bool) -> OverlapFinding | None:
    """Return the finding for a tensor in which two indices lead to one slot, or None; `itself`: it is the source."""
    if a.dense or not a.numel:
        return None
    reached = reached_nbytes([a])
    if reached is None:
        raise HelperError(f"{name} spreads over {a.end - a.first:,} bytes, too many to count which are written twice")
    slots = reached // a.itemsize
    if slots == a.numel:
        return None
    counts = f"its {a.numel:,} elements are {counted(slots, 'slot')} of the storage"
    if a.zero_strides:
        one = len(a.zero_strides) == 1
        dims, have = f"dimension{'s' * (not one)} {listed(a.zero_strides)}", "has" if one else "have"
        text = (
            f"{dims} of {name} {have} stride 0: {counts}, so more than one element of the written-to tensor "
            "refers to a single memory location, and torch refuses to write in place, save with `fill_`, its "
            "like, and the few operators that do not ask, such as `triu_`"
        )
        if itself:
            text += ", and `copy_` from these very elements, which does nothing"
    else:
        text = (
            f"windows of {name} overlap (shape {a.shape}, strides {a.stride}): {counts}; torch does not notice, "
            "because no stride is 0, and where one slot is written several times the result depends on the order"
        )
    return OverlapFinding(
        text=_sentence(text),
        remedy=f"Give each element a slot of its own before the write, {_cloned(name)}, or write to the tensor that "
        "this view was taken from.",
        kind="internal",
        elements=a.numel - slots,
        nbytes=reached,
        refused=bool(a.zero_strides),
        facts=_facts(a, None) | {"slots": slots},
    )


def _cloned(name: str) -> str:
    """Return the assignment that clones a tensor as a whole: for a part `m[0]` that is `m = m.clone()`."""
    whole = re.match(r"`([A-Za-z_][\w.]*)(\[|`)", name)
    written = whole[1] if whole else "x"
    return f"{written} = {written}.clone()"


def _own_slots(a: Block, b: Block) -> bool | None:
    """Say whether each shared slot is read at the very index that is written there; None where that is unknown.

    Then no write changes what another one reads. `a` has a slot for each element, and `b` is broadcast to its shape.
    """
    lead = len(a.shape) - len(b.shape)
    if (
        not _broadcasts(b.shape, a.shape)
        or a.itemsize != b.itemsize
        or (a.first - b.first) % a.itemsize
        or a.numel > MOST_COMPARED
    ):
        return None
    step = [0] * lead + [0 if n == 1 else s for n, s in zip(b.shape, b.stride, strict=True)]
    with plain_access():
        written, read = _slots(a.shape, a.stride, 0), _slots(a.shape, step, (b.first - a.first) // a.itemsize)
        return not bool((torch.isin(read, written) & (read != written)).any())


def _broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    lead = len(to) - len(shape)
    return lead >= 0 and all(n in (1, m) for n, m in zip(shape, to[lead:], strict=True))


def _slots(shape: Sequence[int], stride: Sequence[int], first: int) -> torch.Tensor:
    """Return the slot of every element, in row-major order."""
    found = torch.full((1,), first, dtype=torch.int64, device="cpu")
    for size, step in zip(shape, stride, strict=True):
        found = (found[:, None] + torch.arange(size, dtype=torch.int64, device="cpu") * step).flatten()
    return found


def _partial(a: Block, b: Block, elements: int, nbytes: int, written: str, read: str) -> OverlapFinding:
    refused, own = refuses(a, b), _own_slots(a, b)
    where = "share one storage" if a.key == b.key else "are two storages on the same memory"
    if a.itemsize == b.itemsize:
        counts = f"overlap in {elements:,} of {counted(a.numel, 'element')}"
    else:
        counts = f"overlap in {nbytes:,} bytes, {elements:,} of {counted(a.numel, 'element')} of {written}"
    if a.first != b.first and a.key == b.key and a.itemsize == b.itemsize:
        difference = f"with different offsets ({a.offset} and {b.offset})"
    elif a.first != b.first:
        difference = "with different offsets"
    elif a.stride != b.stride:
        difference = f"with different strides ({a.stride} and {b.stride})"
    else:
        difference = f"with different shapes ({a.shape} and {b.shape})"
    if own:
        verdict = "each shared slot is read for its own write only, so the order of the writes does not matter"
        if refused:
            verdict += "; torch refuses the write all the same, because it compares only ranges and strides"
        else:
            verdict += ", and torch does not refuse the write"
    elif refused:
        verdict = "torch refuses the write, because it could change elements that are still to be read"
    elif a.key != b.key:
        verdict = (
            "torch does not notice, because it compares storages, so the write can change elements still to be read"
        )
    else:
        verdict = (
            "torch does not notice, because it compares only tensors without gaps, and the result can depend on the "
            "order of the writes"
        )
    if not _broadcasts(b.shape, a.shape):
        verdict += f"; besides, shape {b.shape} does not broadcast to {a.shape}, as a write with `copy_` needs"
    source = f"{read.strip('`')}.clone()" if read.startswith("`") else "with .clone()"
    return OverlapFinding(
        text=_sentence(f"{written} and {read} {where} and {counts} {difference}: {verdict}"),
        remedy=""
        if own and not refused
        else f"Clone the source, {source}. A clone of the written tensor would take the write, and the original "
        "would never get it.",
        kind="partial",
        elements=elements,
        nbytes=nbytes,
        refused=refused,
        facts=_facts(a, b) | {"order_matters": None if own is None else not own},
    )


def _nothing(text: str) -> OverlapFinding:
    return OverlapFinding(text=_sentence(text), kind="none", elements=0, nbytes=0, refused=False)


def _facts(a: Block, b: Block | None) -> dict[str, object]:
    facts: dict[str, object] = {"written_numel": a.numel, "written_offset": a.offset}
    if b is not None:
        facts |= {"read_numel": b.numel, "read_offset": b.offset, "same_storage": a.key == b.key}
    return facts


def _sentence(text: str) -> str:
    """Capitalize the first letter, unless it is code, and end with a full stop."""
    return f"{sentence_case(text)}."
