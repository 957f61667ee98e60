"""The explainers of `explain_error` for kernels and derivatives in Python that do not fit their operator."""

from __future__ import annotations

import re

from helpers.model.errors.failure import Answer, Failure, explains, explains_plainly
from helpers.model.source import is_library


def _called_by_torch(failure: Failure) -> bool:
    """Say whether torch itself made the call that failed, so that no line of the reader's is to blame for it."""
    step = failure.error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    return bool(failure.name) and step is not None and is_library(step.tb_frame.f_code.co_filename)


@explains(r"^Unable to cast (.*) to (Tensor\w*)$")
def _result(match: re.Match, failure: Failure) -> Answer:
    """A kernel in Python returned something else than its schema promises."""
    value = " ".join(match[1].split())
    shown = value if len(value) <= 40 else f"{value[:39]}…"
    return (
        f"{failure.call.at}: the kernel returned {shown}, and its schema promises a {match[2]}",
        "Return a tensor, such as torch.from_numpy(a) or torch.tensor(n); for several, write -> (Tensor, Tensor) in "
        "the schema.",
    )


explains_plainly(
    r"Object of type '(\w+)' is not an instance of 'sequence'",
    "{call}: the kernel returned one {0}, and its schema promises several results",
    "Return a tuple with one value for each result.",
)
explains_plainly(
    r"Expected PythonKernelHolder for (\S+) to return None but it returned something else",
    "{call}: the schema of {0} promises no result, -> (), and its kernel returned one",
    "Return nothing, or write -> Tensor in the schema.",
)


@explains(r"^([\w.<>]+)\(\) (?:takes (\d+) positional arguments? but (\d+) (?:was|were) given|"
          r"missing (\d+) required positional arguments?)")  # fmt: skip
def _arguments(match: re.Match, failure: Failure) -> Answer | None:
    """A kernel or a backward in Python takes another number of arguments than torch gives."""
    if not _called_by_torch(failure):
        return None
    name, takes, came, missing = match.groups()
    count = f"takes {takes} and torch gave it {came}" if takes else f"got {missing} too few"
    if failure.name in ("backward", "grad"):
        return (
            f"{failure.call.at} called a backward ({name}) that {count}: ctx, and one gradient for each result of the "
            "operator",
            "Write def backward(ctx, gradient), with one gradient for each result.",
        )
    return (
        f"{failure.call.at} called a kernel ({name}) that {count}: a kernel gets the arguments of its schema",
        "Give it the same arguments as the schema has, those after * by the same names.",
    )


@explains(r"^([\w.<>]+)\(\) got an unexpected keyword argument '(\w+)'")
def _keyword(match: re.Match, failure: Failure) -> Answer | None:
    """A kernel, or a `setup_context`, has another name for an argument than torch uses."""
    if not _called_by_torch(failure):
        return None
    if match[2] in ("inputs", "output", "keyword_only_inputs"):
        return (
            f"{failure.call.at} called a setup_context ({match[1]}) without an argument named {match[2]}",
            "Write def setup_context(ctx, inputs, output), with these names; inputs is the tuple of all arguments.",
        )
    return (
        f"{failure.call.at} called a kernel ({match[1]}) without an argument named {match[2]}, as its schema calls it",
        "Arguments after * in the schema are given by name: use the same names in the kernel.",
    )


explains_plainly(
    r"returned a gradient different than None at position (\d+), but the corresponding forward input was not a Var",
    "{call}: a backward returned a gradient as value {0}, and argument {0} of its forward is no tensor or is not there",
    "Return one value for each argument of forward, and None for each that is no tensor.",
)
explains_plainly(
    r"The backward formula for (\w+)\.(\w+)\.\w+ returned an incorrect number of gradients \(expected (\d+), got (\d+)",
    "{call}: the backward of {0}::{1} returned {3} values, and the number of its arguments is {2}",
    "Return one value for each argument of the operator, and None for each that is no tensor.",
)
explains_plainly(
    r"Argument (\w+) is not defined as mutable but was mutated",
    "{call}: the kernel writes into its argument `{0}`, and its schema does not say so",
    "Compute on a copy, such as x.clone(), or say it: mutates_args=('x',) for a custom_op, Tensor(a!) in a schema.",
)
explains_plainly(
    r"Input function is required to be a callable but found type <class '([\w.]+)'>",
    "{call} was given a {0} as the kernel, and a function is wanted",
    'Write lib.impl("name", fn, "CPU"): first the operator, then the function.',
)
explains_plainly(
    r"We should not register a meta kernel directly to the operator '([\w:.]+)'",
    "{call} registers a Meta kernel for {0}, whose CompositeImplicitAutograd kernel already serves every key",
    "Leave it out: on meta that kernel runs too, and the operators that it calls have Meta kernels.",
)
explains_plainly(
    r"register_autograd with kwarg-only Tensor args.*?Got: ([\w:.]+)\(",
    "{call}: {0} has a tensor among the arguments after *, and register_autograd takes none there",
    "Put the tensors before * in the schema.",
)
explains_plainly(
    r"Expected `qualname` to be of the form \"namespace::name\", but got (\S+?)\.? ",
    "{call}: the name {0} has no namespace",
    'Write "space::name".',
)
explains_plainly(
    r"device type at start of device string: (\w+)",
    "{call} names the device {0}, which this torch does not know",
    'Write "cpu", "cuda", "meta" or the name to which PrivateUse1 was renamed.',
)
