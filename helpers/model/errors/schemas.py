"""The explainers of `explain_error` for schemas: strings that can't be read, annotations, calls that do not fit."""

from __future__ import annotations

import re
from difflib import get_close_matches

import torch

from helpers.model.errors.failure import Answer, Failure, explains, explains_plainly
from helpers.model.finding import with_article

# Schema strings


@explains(
    r"unknown type specifier.*?:\n(?P<line>[^\n]*)\n(?P<mark> *~+) <--- HERE|"
    r"Use `[^\n]* instead of `(?P<word>\w+)`[^\n]*:\n(?P<line2>[^\n]*)\n"
)
def _unknown_type(match: re.Match, failure: Failure) -> Answer:
    """A type in a schema that the schema language does not have."""
    line, mark = match["line"] or match["line2"], match["mark"]
    word = _word(line, mark.index("~")) if mark else match["word"]
    if right := _TYPES.get(word) or next(iter(get_close_matches(word, _RIGHT, 1, 0.7)), ""):
        remedy = f"Write {right} in place of {word}."
    elif re.search(rf"{re.escape(word)}(: |\)|,)", line):
        remedy = "In a schema the type stands before the name: f(Tensor x, int n) -> Tensor."
    else:
        remedy = (
            "Types of a schema are Tensor, int, float, bool, str and Scalar, with [] for a list and ? for optional."
        )
    return f"{failure.call.at}: the schema `{line.strip()}` names the type {word}, which schemas do not have", remedy


_TYPES = {
    "double": "float", "tensor": "Tensor", "torch.Tensor": "Tensor", "int32": "int", "int64": "int", "float32": "float",
    "float64": "float", "boolean": "bool", "string": "str", "list[int]": "int[]", "list[float]": "float[]",
    "list[Tensor]": "Tensor[]", "list": "Tensor[] or int[]", "long": "int", "int64_t": "int", "int32_t": "int",
    "size_t": "int",
}  # fmt: skip


_RIGHT = ("Tensor", "int", "float", "bool", "str", "Scalar", "SymInt", "ScalarType", "Device")


def _word(line: str, start: int) -> str:
    """Return the type at a column of a schema."""
    found = re.match(r"[\w.]+(\[\w*\])?", line[start:])
    return found[0] if found else line[start:]


@explains(r"expected (\S+) but found '(\w+|\S+)' here:\n([^\n]*)(?:\n( *)~+ <--- HERE)?")
def _schema_syntax(match: re.Match, failure: Failure) -> Answer:
    """A schema that breaks the grammar."""
    wanted, _, line, before = match.groups()
    if found := _bad_name(line) or _bracket(line) or _mark(line, before):
        return f"{failure.call.at}: {found[0]}", found[1]
    at = f" at `{line[len(before) :].strip()}`" if before is not None else ""
    if "->" not in line:
        why = "it has no -> with what the operator returns"
    elif wanted == "arrow":
        why = f"-> was expected{at}"
    elif not line.strip().startswith(tuple("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")):
        why = "it has to begin with the name of the operator"
    elif wanted == ")":
        why = f"a closing bracket is missing before{at.removeprefix(' at')}"
    elif "," in line.rpartition("->")[2] and "(" not in line.rpartition("->")[2]:
        why = "several results stand in brackets: (Tensor, Tensor)"
    elif wanted == "ident" and line.startswith(("def ", "in ", "is ")):
        why = "it begins with a word of Python"
    else:
        named = {"ident": "a name", "eof": "the end"}.get(wanted, wanted)
        why = f"{named} was expected{at}"
    return (
        f"{failure.call.at}: the schema `{line.strip()}` can't be read: {why}",
        'A schema reads "name(Tensor x, int n=1) -> Tensor", each argument with its type before its name.',
    )


def _bad_name(line: str) -> Answer | None:
    """A name of a namespace or an operator with a character that names do not have."""
    name = line.partition("(")[0].strip()
    bad = re.search(r"[^\w.:]", name) if "(" in line or "::" in name else None
    if "::" in name and bad is None:
        bad = re.search(r"\.", name.partition("::")[0])
    first, _, second = name.partition(" ")
    if bad is None or first in ("def", "in", "is") or re.match(rf"({'|'.join(_RIGHT)})\b", second.strip()):
        return None  # a word of Python, or a missing bracket
    character = {"-": "a hyphen", " ": "a space", ".": "a full stop"}.get(bad[0], f"the character {bad[0]}")
    return (
        f"the name `{name}` has {character} in it, and a name consists of letters, digits and underscores",
        f"Write {re.sub(r'[^A-Za-z0-9_:]', '_', name)}.",
    )


def _bracket(line: str) -> Answer | None:
    """A schema whose list of arguments does not begin with a bracket."""
    found = re.match(r"\s*([A-Za-z_][\w.:]*)\s*(.*?)\s*->", line)
    if found is None or "(" in line.partition("->")[0] or not found[2]:
        return None
    name, arguments = found.groups()
    if name.startswith("def") or (")" in arguments and not (name := re.sub(r"Tensor$", "", name))):
        return None
    arguments = arguments.removesuffix(")")
    if (whole := found[1]) != name:
        arguments = f"{whole.removeprefix(name)} {arguments}"
    return (
        f"the schema `{line.strip()}` can't be read: the arguments stand in brackets, and the opening one after "
        f"`{name}` is missing",
        f"Write {name}({arguments}) -> {line.partition('->')[2].strip()}.",
    )


def _mark(line: str, before: str | None) -> Answer | None:
    """A mark of a write without its letter."""
    if before is None or not re.match(r"\(!", line[len(before) - 1 :]):
        return None
    return (
        f"the schema `{line.strip()}` can't be read: the mark (!) of an argument that is written to has no letter",
        "Write Tensor(a!), and another letter for each further argument.",
    )


@explains(r"expected a valid token but found '(['\"])' here:\n([^\n]*)\n( *)~")
def _open_quote(match: re.Match, failure: Failure) -> Answer:
    """A string in a schema that does not end."""
    quote, line, before = match.groups()
    return (
        f"{failure.call.at}: the schema `{line.strip()}` can't be read: the quote before "
        f"`{line[len(before) + 1 :].partition(')')[0]}` is never closed",
        f"Write a second {quote} after the text.",
    )


@explains(r"invalid numeric default value:\n([^\n]*)\n")
def _default(match: re.Match, failure: Failure) -> Answer:
    """A default value that can't be read, such as a word without quotes."""
    line = match[1]
    for kind, name, value in re.findall(r"(\w+)\?? (\w+)=([^,)]+)", line):
        if re.fullmatch(r"True|False|None|-?[\d.]+(e-?\d+)?|'.*'|\".*\"", value.strip()):
            continue
        named = f"the default {value} of `{name}`"
        remedy = "Write defaults as Python does: True, False, None, 1, 1.0."
        if kind == "str":
            named, remedy = f"{named}, which is a text without quotes,", f'Write {name}="{value}".'
        return f"{failure.call.at}: in the schema `{line.strip()}` {named} can't be read", remedy
    return (
        f"{failure.call.at}: a default value in the schema `{line.strip()}` can't be read",
        "Write defaults as Python does: True, False, None, 1, 1.0.",
    )


explains_plainly(
    r"Non-default positional argument follows default argument\. Parameter (\w+) in ([^\n]*)",
    "{call}: in the schema `{1}` the argument {0} has no default and follows one that has",
    "Put the arguments with defaults last, or mark those after them as keyword-only with *.",
)
explains_plainly(
    r"Explicitly provided namespace \((\w+)\) in schema string does not match namespace of .*? block \((\w+)\)",
    "{call} defines an operator of the namespace {0} in a library of the namespace {1}",
    "Leave the namespace out of the schema, or use a Library of that namespace.",
)
explains_plainly(
    r"expected schema to look like e\.g\. \"\(Tensor x\) -> Tensor\" but got \"(.*?)\"",
    '{call}: torch.library.define takes a schema without the name, and "{0}" came',
    'Write torch.library.define("space::name", "(Tensor x) -> Tensor").',
)


# torch.library.custom_op


explains_plainly(
    r"infer_schema\(func\): Parameter (\w+) must have a type annotation",
    "{call}: the argument `{0}` has no type annotation, and the schema of the operator is read from the annotations",
    "Annotate every argument, such as x: torch.Tensor, n: int.",
)
explains_plainly(
    r"infer_schema\(func\): No return type annotation was provided",
    "{call}: the function has no annotation of what it returns, and the schema of the operator is read from it",
    "Write -> torch.Tensor, or -> None for an operator that only writes into its arguments.",
)
explains_plainly(
    r"infer_schema\(func\): Unsupported type annotation (\S+)\. It is not a type",
    "{call}: the annotation {0} names nothing that torch can find from here",
    "Use a type that is imported at the top of the file or in an earlier cell, such as torch.Tensor.",
)


@explains(r"not enough values to unpack \(expected 2, got 1\)")
def _no_namespace(match: re.Match, failure: Failure) -> Answer | None:
    """A custom operator whose name has no namespace; the same message may come of any Python."""
    place = failure.call.place
    if place is None or "custom_op(" not in place.expression:
        return None
    return f"{failure.call.at}: the name of the operator has no namespace", 'Write "space::name".'


@explains(r"infer_schema\(func\): (Parameter (\w+)|Return) has unsupported type (<class '[\w.]+'>|[^\n]*?)\. ")
def _unsupported_type(match: re.Match, failure: Failure) -> Answer:
    """An annotation that no schema can express."""
    kind = re.sub(r"<class '(.*)'>", r"\1", match[3])
    whose = f"the argument `{match[2]}` has the type" if match[2] else "the function returns the type"
    if match[2] is None:
        return (
            f"{failure.call.at}: {whose} {kind}, and an operator returns torch.Tensor, a list or tuple of these, or a "
            "number",
            "Return tensors, and annotate them so: -> torch.Tensor or -> tuple[torch.Tensor, torch.Tensor].",
        )
    hint = {
        "list": "Say of what: list[int] or list[torch.Tensor].",
        "dict": "Give its values as single arguments.",
        "ndarray": "Take a torch.Tensor, and call .numpy() inside.",
    }.get(kind.rpartition(".")[2], "Use list[int] in place of a tuple." if kind.startswith("tuple") else "")
    return (
        f"{failure.call.at}: {whose} {kind}, which no schema of an operator can express",
        hint or "Take torch.Tensor, int, float, bool, str, a list of these, torch.dtype or torch.device.",
    )


explains_plainly(
    r"infer_schema\(func\): We do not support positional-only args, varargs, or varkwargs",
    "{call}: the function has *args, **kwargs or positional-only arguments, and an operator has a fixed list",
    "Write each argument out, or take one list, such as xs: list[torch.Tensor].",
)
explains_plainly(
    r"infer_schema\(func\): Parameter (\w+) has an unsupported default value type <class '(\w+)'>",
    "{call}: the default of `{0}` is a {1}, and defaults in a schema are numbers, strings, True, False or None",
    "Make the default None, and replace it in the function.",
)
explains_plainly(
    r"infer_schema\(func\): \{(.*?)\} in mutates_args were not found",
    "{call}: mutates_args names {0}, and the function has no such argument",
    "Name the arguments that the function writes into, or give mutates_args=() if there is none.",
)
explains_plainly(
    r"infer_schema\(func\): Parameter (\w+) is in mutable_args but only Tensors",
    "{call}: mutates_args names `{0}`, which is no tensor",
    "Name tensors only.",
)
explains_plainly(
    r"mutates_args must either be a sequence of the names",
    "{call}: mutates_args is a string, and a list or tuple of names is wanted",
    'Write mutates_args=("x",), with the comma, or mutates_args=().',
)
explains_plainly(
    r"custom_op\(\) missing 1 required keyword-only argument: 'mutates_args'",
    "{call} has no mutates_args, which says what arguments the operator writes into",
    "Give mutates_args=() if it writes into none of them.",
)
explains_plainly(
    r"Cannot register autograd formula for non-functional operator (\S+?)(?:\.default)? with",
    "{call}: {0} writes into an argument or returns a view, and register_autograd takes only operators that make new "
    "tensors",
    "Make an operator that returns a new tensor, register its derivative, and write the result back in Python.",
)


@explains(r"got unexpected type for op: <class '(\w+)'>")
def _no_operator_name(match: re.Match, failure: Failure) -> Answer:
    """Something else than an operator was given to a function of torch.library."""
    return (
        f"{failure.call.at} was given {with_article(match[1])}, and the name of an operator is wanted",
        'Give the name, "space::name", or what torch.library.custom_op returned.',
    )


# Calls that do not fit the schema


@explains(r"([\w:]+)\(\) (?:expected at most|takes) (\d+) (?:positional )?argument\(s\) but (?:received )?(\d+) "
          r"(?:argument\(s\)|was/were given)\. +Declaration: ([^\n]*)")  # fmt: skip
def _too_many(match: re.Match, failure: Failure) -> Answer:
    operator, takes, came, schema = match.groups()
    keyword = "; those after * are given by name" if "*," in schema else ""
    return (
        f"{failure.call.at} gives {came} arguments, and {operator} takes {takes}{keyword}",
        f"It is {schema.strip()}.",
    )


explains_plainly(
    r"([\w:]+)\(\) is missing value for argument '(\w+)'\. Declaration: ([^\n]*)",
    "{call} leaves out the argument {1} of {0}, whose schema is {2}",
    "Give it a value.",
)
explains_plainly(
    r"Unknown keyword argument '(\w+)' for operator '([\w:]+)'\. Schema: ([^\n]*)",
    "{call} gives an argument {0}, and {1} has none of this name: its schema is {2}",
    "Use a name of the schema.",
)


@explains(r"^([\w:]+)\(\) Expected a value of type '(.*?)' for argument '(\w+)' but instead found type '(.*?)'\.\n"
          r"Position: (\d+).*?Declaration: ([^\n]*)")  # fmt: skip
def _wrong_type(match: re.Match, failure: Failure) -> Answer:
    _, wanted, name, came, position, schema = match.groups()
    value = failure.operand(int(position), "a value")
    hints = {"ndarray": "Convert it: torch.from_numpy(a).", "float": "Convert it: int(n)."}
    hint = hints.get(came, "") if (came, wanted) in (("ndarray", "Tensor"), ("float", "int")) else ""
    if wanted == "Tensor" and came in ("int", "float", "bool"):
        hint = "Make it a tensor, torch.tensor(n), or give the argument the type Scalar in the schema."
    return (
        f"{failure.call.at} gives {value} of type {came} as `{name}`, and the schema wants {wanted}: {schema.strip()}",
        hint or f"Give a value of type {wanted}.",
    )


@explains(r"Overloaded torch operator invoked from Python failed to match any schema:\n([\w:]+)\(\)")
def _no_overload_fits(match: re.Match, failure: Failure) -> Answer:
    overloads = len(re.findall(r"^Declaration: ", str(failure.error), re.MULTILINE))
    kinds = [f"{'a tensor' if isinstance(value, torch.Tensor) else type(value).__name__}" for value in failure.args]
    gives = f" ({', '.join(kinds)})" if kinds else ""
    return (
        f"{failure.call.at}: none of the {overloads} overloads of {match[1]} takes these types{gives}",
        "Choose an overload yourself, such as torch.ops.aten.add.Tensor, for a message about that one alone.",
    )
