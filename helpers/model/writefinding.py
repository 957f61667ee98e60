"""The finding of `find_lost_writes`: the lost writes as plain values, and the sentence for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from helpers.model.finding import Finding
from helpers.model.watch import Call, name_of, with_unjudged
from helpers.model.writesources import Source, Sources
from helpers.model.writewords import indexing_remedy


@dataclass(frozen=True)
class LostWrite:
    """One write that nothing read: where it was written, and the call that made the temporary.

    `times` counts how often this line did it. `cause` says why a new storage was made, of `nbytes` bytes.
    `source` is the reader's text for the tensor that the temporary was made from (empty where none can be meant),
    `version` that tensor's version counter at the write (None if unknown), and `touched` whether anything in the
    whole run changed it in place (None where torch counted nothing, but the bytes could not be compared).
    """

    write: Call
    maker: Call
    cause: str
    source: str
    version: int | None
    touched: bool | None
    nbytes: int
    times: int = 1


@dataclass(frozen=True, kw_only=True, repr=False)
class WritesFinding(Finding):
    """The writes that were lost, in the order in which they happened."""

    lost: tuple[LostWrite, ...] = ()


@dataclass
class Origin:
    """How a temporary came to be."""

    call: Call
    cause: str
    remedy: str
    source: Source | None
    nbytes: int
    one_dimension: bool  # made by an index that stands for one dimension


@dataclass
class Temporary:
    reference: Any  # does not keep the storage alive, but keeps its number from being used again
    origin: Origin
    pending: list[LostWrite] = field(default_factory=list)
    escaped: bool = False


def writes_finding(fn: Callable, gone: list[Temporary], sources: Sources, unjudged: list[str]) -> WritesFinding:
    """Return the finding for the temporaries that are gone with a write that nothing read."""
    grouped: dict[Any, tuple[LostWrite, str]] = {}
    for temporary in gone:
        write = temporary.pending[-1]
        key = (write.write, write.maker)
        earlier = grouped[key][0] if key in grouped else replace(write, times=0, touched=False)
        source = temporary.origin.source
        now = True if source is None else sources.touched(source, write.version)
        touched = True if True in (earlier.touched, now) else None if None in (earlier.touched, now) else False
        write = replace(write, times=earlier.times + 1, touched=touched)
        grouped[key] = write, _remedy(temporary.origin, write)
    lost = tuple(write for write, _ in grouped.values())
    facts = {"lost": sum(w.times for w in lost)}
    if not lost:
        text = f"{name_of(fn)} lost no write: no operator of torch wrote into a copy that nothing read."
        return WritesFinding(text=with_unjudged(text, unjudged), facts=facts)
    first, remedy = next(iter(grouped.values()))
    facts |= {"version": first.version, "touched": first.touched}
    others = f"; {len(lost) - 1} more lines lose a write in this way" if len(lost) > 1 else ""
    if len(lost) == 2:
        others = f"; so does the write {lost[1].write.at}"
    text = with_unjudged(f"{_sentence(first)}{others}.", unjudged)
    return WritesFinding(text=text, remedy=remedy, facts=facts, lost=lost)


def _remedy(origin: Origin, write: LostWrite) -> str:
    return origin.remedy or indexing_remedy(origin.call, write.write, origin.one_dimension)


def _sentence(lost: LostWrite) -> str:
    often = f" {lost.times} times" if lost.times > 1 else ""
    sentence = f"{lost.cause}; the write {lost.write.at} went to that temporary{often} and nothing read it"
    if lost.source and lost.version is not None and not lost.touched:
        if lost.touched is None:
            return f"{sentence}; torch counted no write to {lost.source} in this run (version still {lost.version})"
        if lost.version == 0:
            return f"{sentence}; {lost.source} was never touched (version still 0)"
        return f"{sentence}; nothing in this run wrote to {lost.source} (version still {lost.version})"
    if lost.source:
        return f"{sentence}; it never reached {lost.source}"
    return sentence
