"""The explainers of `explain_error` for arguments that a torch function does not take.

PyTorch reads the arguments of a call before anything else happens, so no watching mode sees such a call: the message
is all there is (torch/csrc/utils/python_arg_parser.cpp). It names the function, what came, and what is taken.
"""

from __future__ import annotations

import re

from helpers.model.errors.failure import Answer, Failure, explains
from helpers.model.finding import with_article
from helpers.model.words import counted, listed

MOST_FORMS = 4


@explains(r"^(\w+)\(\) received an invalid combination of arguments - got \((.*?)\), but expected (?:one of:)?(.*)")
def _combination(match: re.Match, failure: Failure) -> Answer:
    """The arguments fit none of the forms in which a function can be called."""
    name, got, rest = match.groups()
    forms = re.findall(r"^ \* (\(.*\))$", rest, re.MULTILINE) or [rest.strip().rstrip(".")]
    more = f" or one of {len(forms) - MOST_FORMS} other forms" if len(forms) > MOST_FORMS else ""
    takes = f"it takes {' or '.join(forms[:MOST_FORMS])}{more}"
    got = got.strip().rstrip(",")
    if (inside := re.search(r"!((tuple|list) of \([^!]*\))!", rest)) and got.count(inside[2]) == 1:
        got = got.replace(inside[2], inside[1])  # what is in it is said only where the forms are
    unknown = [key for key in re.findall(r"(\w+)=", got) if not re.search(rf"\b{key}\b", rest)]
    if unknown:
        keys = listed([f"`{key}`" for key in unknown])
        return f"{failure.call.at}: {name}() has no argument {keys}; {takes}", "Leave it out, or correct its name."
    came = f"got ({got})" if got else "got no argument"
    whole = re.search(r"\bfloat\b", got) and re.search(r"\bints?\b", rest)
    remedy = "Give whole numbers where ints are taken: // divides to an int." if whole else "Use one of these forms."
    return f"{failure.call.at}: {name}() {came}, and {takes}", remedy


@explains(
    r"^(\w+)\(\): argument '(\w+)' (?:\(position \d+\) )?must be (.+?), "
    r"(?:not ([\w.]+)|but found element of type ([\w.]+) at pos (\d+))"
)
def _argument(match: re.Match, failure: Failure) -> Answer:
    """One argument has a type that its function does not take."""
    name, argument, wanted, came, entry, position = match.groups()
    kind = "None" if (came or entry) == "NoneType" else with_article(came or entry)
    is_kind = f"is {kind}" if came else f"has {kind} at position {position}"
    remedy = f"Give it {with_article(wanted)}."
    if wanted.endswith("of Tensors") and came == "Tensor":
        remedy = f"Put the tensors in a list: {name}([a, b])."
    elif wanted == "Tensor" and came in ("int", "float", "bool", "list", "tuple"):
        remedy = "Make a tensor of it with torch.tensor."
    return (
        f"{failure.call.at}: the argument `{argument}` of {name}() {is_kind}, and it takes {with_article(wanted)}",
        remedy,
    )


@explains(
    r"^(\w+)\(\): argument '(\w+)' failed to unpack the object at pos (\d+) with error "
    r"\"(?:type must be (.+?), ?but got (\w+)|Overflow)"
)
def _element(match: re.Match, failure: Failure) -> Answer:
    """One entry of a tuple argument does not fit. Torch counts the entries from 1 here, and from 0 in `_argument`."""
    name, argument, number, wanted, came = match.groups()
    has, at = f"{failure.call.at}: the argument `{argument}` of {name}() has", f"at position {int(number) - 1}"
    if wanted is None:
        return (
            f"{has} a whole number {at} that does not fit into 64 bits",
            "Look at how it was computed; the largest size is 2**63 - 1.",
        )
    kind = "None" if came == "NoneType" else with_article(came)
    return (
        f"{has} {kind} {at}, and it takes {with_article(wanted)}",
        f"Give whole numbers where ints are taken{': // divides to an int' if came == 'float' else ''}.",
    )


@explains(r"^(\w+)(?:\.__init__)?\(\) missing \d+ required positional arguments?: ([^\n]+)")
def _missing(match: re.Match, failure: Failure) -> Answer | None:
    """An argument that has no default was not given. The parser of torch writes its name in double quotes."""
    if '"' not in match[2] and match[1] != failure.name:  # a function of the reader's own
        return None
    names = [f"`{name}`" for name in re.findall(r"[\"'](\w+)", match[2])]
    return f"{failure.call.at}: {match[1]}() also needs {listed(names)}", f"Give a value for {listed(names)}."


@explains(r"^(?:Tensor\.)?(\w+)\(\) got an unexpected keyword argument '(\w+)'")
def _keyword(match: re.Match, failure: Failure) -> Answer | None:
    name, key = match.groups()
    if name != failure.name:  # a function of the reader's own
        return None
    return f"{failure.call.at}: {name}() has no argument `{key}`", "Leave it out, or correct its name."


@explains(r"^(?:Tensor(?:Base)?\.)?(\w+)\(\) takes (no|exactly one|\d+) (?:positional )?arguments?"
          r"(?: but (\d+) (?:was|were) given| \((\d+) given\))")  # fmt: skip
def _too_many(match: re.Match, failure: Failure) -> Answer | None:
    name, takes = match[1], {"no": "0", "exactly one": "1"}.get(match[2], match[2])
    given = int(match[3] or match[4])
    if name != failure.name:
        return None
    taken = counted(int(takes), "positional argument").replace("0 ", "no ", 1)
    remedy = "Several arguments are read as one tuple only where each of them is a whole number: // divides to an int."
    return (
        f"{failure.call.at}: {name}() takes {taken} here, and {given} {'was' if given == 1 else 'were'} given",
        remedy if takes == "1" and given > 1 else "",
    )
