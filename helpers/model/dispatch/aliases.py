"""What an operator's schema promises about memory: which argument it writes to, which result shares memory with one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from helpers.model.words import quoted

_ARGUMENT = re.compile(r"Tensor\((\w+)(!?)(?: -> \*)?\)\S* (\w+)")
_RESULT = re.compile(r"Tensor\((\w+)(!?)\)(\[\])?(?: (\w+))?")


@dataclass(frozen=True)
class Sharing:
    """One result that shares memory with an argument.

    `result` is its place among the results, from 0. `itself`: it is the argument, which was written to. `each`: the
    result is a list, and each of its tensors shares.
    """

    result: int
    argument: str
    itself: bool
    each: bool


@dataclass(frozen=True)
class Aliases:
    """The alias annotations of a schema. `writes` are the arguments written to; `results` counts the results."""

    writes: tuple[str, ...]
    sharing: tuple[Sharing, ...]
    results: int


def read_aliases(schema: str) -> Aliases:
    """Read the annotations of a schema as torch prints it: `(a!)` is a write, one letter twice is shared memory."""
    before, _, after = schema.rpartition(" -> ")
    arguments = _ARGUMENT.findall(before)
    results = after.removeprefix("(").removesuffix(")").split(", ") if after.startswith("(") else [after]
    results = [result for result in results if result]
    sharing = []
    for place, result in enumerate(results):
        if match := _RESULT.match(result):
            letter, write, each = match[1], bool(match[2]), bool(match[3])
            sharing += [Sharing(place, name, write, each) for known, _, name in arguments if known == letter]
    return Aliases(tuple(name for _, write, name in arguments if write), tuple(sharing), len(results))


def describe_aliases(aliases: Aliases, always: bool, distrusted: bool) -> str:
    """Return the annotations in words.

    `always`: a result that shares memory is a view each time. The schema does not tell this from "may share".
    `distrusted`: the operator has the tag `maybe_aliasing_or_mutating`, so the schema may leave something out.
    """
    words = [f"writes to {quoted(aliases.writes, None)}" if aliases.writes else "writes to no argument"]
    for s in aliases.sharing:
        result = "the result" if aliases.results == 1 else f"result {s.result}"
        if s.itself:
            words.append(f"{result} is `{s.argument}` itself")
        else:
            subject = f"each tensor of {result}" if s.each else result
            words.append(f"{subject} {'is a view of' if always else 'may share the memory of'} `{s.argument}`")
    others = aliases.results - len({s.result for s in aliases.sharing})
    if others:
        words.append(f"no {'other ' if aliases.sharing else ''}result shares memory with an argument")
    text = "; ".join(words)
    return f"{text}; the tag maybe_aliasing_or_mutating says that there may be more" if distrusted else text
