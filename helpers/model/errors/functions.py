"""The explainers of `explain_error` for custom Functions: what forward and backward take, return, save and mark."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap

import torch

from helpers.model.adapter import find_operator, operator_names, operator_schema
from helpers.model.errors.failure import Answer, Failure, explains, explains_plainly
from helpers.model.errors.frames import generated_backward
from helpers.model.words import counted, listed, quoted

explains_plainly(
    r"Jacobian mismatch for output (\d+) with respect to input (\d+)",
    "{call} found that numerical and analytical derivatives differ, of output {0} by input {1}",
    "check_function(f, x) says why: a wrong formula, float32, a kink, or another reason.",
)
explains_plainly(
    r"You must implement either the backward or vjp method",
    "{call} needs the derivative of a custom Function that has a forward and no backward",
    "Write a static backward(ctx, gradient) that returns one value for each argument of forward.",
)
explains_plainly(
    r"Legacy autograd function with non-static forward method is deprecated",
    "{call} calls an instance of a Function, or its forward is no staticmethod",
    "Mark forward and backward with @staticmethod, and call F.apply(x), not F()(x).",
)
explains_plainly(
    r"In order to use an autograd\.Function with functorch transforms.*?setup_context",
    "{call}: torch.func needs the form of a Function whose forward has no ctx",
    "Write forward(x) without ctx, and setup_context(ctx, inputs, output) that saves.",
)
explains_plainly(
    r"expected Variable or None \(got ([\w.]+)\)",
    "{call}: a backward returned a value of type {0}, and a tensor or None is wanted for each argument of forward",
    "Return a tensor of the shape of the input.",
)
explains_plainly(
    r"a leaf Variable that requires grad has been used in an in-place operation",
    "{call}: forward changed a leaf that requires grad in place and marked it dirty, and a leaf's own values can "
    "have no "
    "history",
    "Call it on the result of an operation, such as x.clone(), or make forward return a new tensor.",
)
explains_plainly(
    r"save_for_backward can only save variables, but argument (\d+) is of type (\w+)",
    "{call}: save_for_backward was given a value of type {1} as argument {0}, and it takes tensors only",
    "Keep numbers and flags as attributes, such as ctx.scale = scale.",
)


@explains(r"function (\w+?)Backward returned an incorrect number of gradients \(expected (\d+), got (\d+)\)")
def _number_of_gradients(match: re.Match, failure: Failure) -> Answer:
    name, wanted, got = match[1], int(match[2]), int(match[3])
    if operator := _operator_of(name):
        return _gradients_of(operator, got - 1, failure)  # torch adds one to either number
    parameters = _forward_parameters(failure, name)
    takes = f" ({', '.join(parameters)})" if len(parameters) == wanted else ""
    values = "value" if got == 1 else "values"
    text = f"{name}.forward takes {wanted} argument{'s' * (wanted != 1)}{takes} but backward returned {got} {values}"
    if got < wanted:
        missing = [f"`{p}`" for p in parameters[got:]] if takes else []
        what = f" for {' and '.join(missing)}" if missing else f" for each of the last {wanted - got}"
        return text, f"Append None{what}, or a gradient if it needs one."
    return text, "Return one value for each argument of forward, in their order; ctx does not count."


@explains(r"The backward formula for (\w+)\.(\w+)\.(\w+) returned an incorrect number of gradients \(expected \d+, "
          r"got (\d+)")  # fmt: skip
def _number_of_values(match: re.Match, failure: Failure) -> Answer:
    """The same of an operator, in the words of later releases."""
    space, name, overload, got = match.groups()
    return _gradients_of(f"{space}::{name}{'' if overload == 'default' else f'.{overload}'}", int(got), failure)


def _operator_of(function: str) -> str:
    """Return the operator for which `register_autograd` made a Function of this name; "" for a reader's own."""
    for name in operator_names() if function.startswith("GeneratedBackwardFor_") else ():
        space, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        if function == f"GeneratedBackwardFor_{space}_{base}_{overload or 'default'}":
            return name
    return ""


def _gradients_of(operator: str, got: int, failure: Failure) -> Answer:
    """A derivative of an operator that returns another number of values than the operator has arguments."""
    names = [name for name, _ in positional(operator)]
    wanted, listing = len(names), "; a list counts as one value" if got == 1 else ""
    return (
        f"{failure.call.at}: {operator} takes {counted(wanted, 'argument')} ({listed(names, 6)}), and the backward "
        f"that was registered for it returned {counted(got, 'value')}{listing}",
        f"Return a tuple of {wanted}, a gradient or None for each argument"
        f"{f': None for {quoted(names[got:])}, if that needs no gradient' if got < wanted else ''}.",
    )


def positional(operator: str) -> list[tuple[str, bool]]:
    """Return the arguments of an operator that get a gradient from its backward, and whether each is a list."""
    arguments = operator_schema(find_operator(operator)).arguments
    return [(a.name, "[]" in str(a.real_type) or "List" in str(a.type)) for a in arguments if not a.kwarg_only]


@explains(r"Expected the return from backward to be of the same structure as the inputs")
def _structure(match: re.Match, failure: Failure) -> Answer | None:
    """A derivative of an operator with a list of tensors that returned no list for it."""
    operator = _operator_of(generated_backward(failure.error))
    lists = [name for name, many in positional(operator) if many] if operator else []
    if not lists:
        return None
    return (
        f"{failure.call.at}: the backward that was registered for {operator} returned another structure than the "
        f"operator takes: {quoted(lists)} {'is a list' if len(lists) == 1 else 'are lists'}",
        "Return for a list of tensors a list of as many gradients, and for each other argument one value.",
    )


def _forward_parameters(failure: Failure, name: str) -> list[str]:
    """Return the names of the arguments of a Function's forward, without ctx."""
    function = _function(failure, name)
    if function is None:
        return []
    names = list(inspect.signature(function.forward).parameters)
    split = function.setup_context is not torch.autograd.Function.setup_context
    return names if split else names[1:]


def _function(failure: Failure, name: str) -> type | None:
    """Find a custom Function by name among those that the program has defined."""
    found = [kind for kind in _subclasses(torch.autograd.Function) if kind.__name__ == name]
    return found[-1] if found else None


def _subclasses(kind: type) -> list[type]:
    direct = kind.__subclasses__()
    return [*direct, *(below for one in direct for below in _subclasses(one))]


@explains(r"Function (\w+?)Backward returned an invalid gradient at index (\d+) - got \[(.*?)\] but expected shape "
          r"compatible with \[(.*?)\]")  # fmt: skip
def _gradient_shape(match: re.Match, failure: Failure) -> Answer:
    name, index, got, wanted = match[1], int(match[2]), match[3], match[4]
    if operator := _operator_of(name):
        arguments = positional(operator)
        exact = index < len(arguments) and not any(many for _, many in arguments[: index + 1])
        of = f"`{arguments[index][0]}`" if exact else f"tensor {index} (those in lists are counted)"
        return (
            f"{failure.call.at}: the backward that was registered for {operator} returned a gradient of shape ({got}) "
            f"for {of}, whose shape is ({wanted})",
            "A gradient has the shape of its input: sum over the dimensions that the kernel broadcast or repeated.",
        )
    parameters = _forward_parameters(failure, name)
    of = f"`{parameters[index]}`" if index < len(parameters) else f"argument {index}"
    return (
        f"{name}.backward returned a gradient of shape ({got}) for {of}, whose shape is ({wanted})",
        "A gradient has the shape of its input: sum over the dimensions that forward broadcast or repeated.",
    )


@explains(r"mark_dirty\(\) received a tensor that was not an input")
def _mark_dirty(match: re.Match, failure: Failure) -> Answer:
    name = _marked(failure) or "a tensor"
    return (
        f"ctx.mark_dirty received {name}, which is not an input of the Function: it is for inputs that forward has "
        "changed in place",
        "Remove the call, unless forward writes into an input: then name that input.",
    )


def _marked(failure: Failure) -> str:
    """Return the source text of what `ctx.mark_dirty` was given, from the code of the Functions at hand."""
    place = failure.call.place
    owner = place.expression.partition(".apply")[0].rpartition(".")[2] if place else ""
    function = _function(failure, owner)
    for method in (function.forward, function.setup_context) if function else ():
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
        except (OSError, TypeError, SyntaxError):  # no source at hand, as after exec
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "mark_dirty" and node.args:
                return f"`{ast.unparse(node.args[0])}`"
    return ""


@explains(r"(\w+)\.backward\(\) takes (\d+) positional arguments? but (\d+) were given")
def _results(match: re.Match, failure: Failure) -> Answer:
    """A backward with fewer arguments than forward has results."""
    name, takes, given = match[1], int(match[2]) - 1, int(match[3]) - 1
    return (
        f"{name}.backward takes {takes} gradient{'' if takes == 1 else 's'} and forward returned {given} results: "
        "backward gets one gradient for each of them",
        "Give backward one argument after ctx for each result of forward.",
    )
