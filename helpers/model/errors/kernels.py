"""The explainers of `explain_error` for kernels and derivatives in Python that do not fit their operator."""

from __future__ import annotations

import re

from helpers.model.errors.failure import Answer, Failure, explains, explains_plainly, none_given
from helpers.model.errors.frames import circle_of, ran
from helpers.model.finding import with_article
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


@explains(r"NoneType")
def _none_result(match: re.Match, failure: Failure) -> Answer | None:
    """What a kernel gave was used, and it was None."""
    return none_given(failure.run.undefined[-1]) if failure.run is not None and failure.run.undefined else None


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
    if ran(failure.error, "custom_function_call_vmap_helper"):
        return (
            f"{failure.call.at} called a rule for vmap ({name}) that {count}: info, in_dims, and the arguments of the "
            "operator",
            _RULE,
        )
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


_RULE = (
    "Write def rule(info, in_dims, *args), which returns a pair: the result, and the dimension of the result that "
    "vmap maps over, such as (f(x), 0)."
)


@explains(r"Expected the vmap staticmethod to have two returns.*?Got (?:a <class '([\w.]+)'>|(\d+) returns) instead")
def _rule_result(match: re.Match, failure: Failure) -> Answer:
    """A rule for vmap that returned no pair."""
    kind, count = match.groups()
    came = f"{count} values" if count else with_article(kind.rpartition(".")[2]).replace("a NoneType", "None")
    return f"{failure.call.at}: the rule for vmap returned {came}, and a pair (result, out_dim) is wanted", _RULE


explains_plainly(
    r"vmap staticmethod returned an incompatible \(output, out_dims\) tuple\. Expected out_dims=(.*?) to be compatible",
    "{call}: the rule for vmap returned {0} as out_dim, which does not fit its result: a pair (result, out_dim) is "
    "wanted, with one number for one result",
    _RULE,
)


@explains(r"Dimension out of range \(expected to be in range of \[-?\d+, (\d+)\], but got (-?\d+)\)|"
          r"'<' not supported between instances of '(\w+)' and 'int'")  # fmt: skip
def _rule_dimension(match: re.Match, failure: Failure) -> Answer | None:
    """A rule for vmap that named a dimension which its result does not have."""
    if not (ran(failure.error, "_unwrap_batched") or ran(failure.error, "custom_function_call_vmap_helper")):
        return None
    if match[3] is None:
        came = f"{match[2]} as out_dim, and the result has the dimensions 0 to {match[1]}"
    else:
        came = f"{with_article(match[3])} as out_dim, which is the number of a dimension of the result"
    return f"{failure.call.at}: the rule for vmap returned {came}: a pair (result, out_dim) is wanted", _RULE


@explains(r"maximum recursion depth exceeded")
def _circle(match: re.Match, failure: Failure) -> Answer | None:
    """A kernel that calls its own operator, or a fallback that comes back to itself."""
    operator, by_fallback = circle_of(failure.error)
    if not operator:
        return None
    if by_fallback:
        return (
            f"{failure.call.at}: the fallback calls {operator} with tensors of the same key, so the dispatcher comes "
            "to the fallback again, until Python's limit of calls inside each other",
            "Call the operator with other tensors, such as copies on the CPU, op(*[a.cpu() for a in args]).",
        )
    return (
        f"{failure.call.at}: the kernel of {operator} calls {operator} itself, so the dispatcher comes to the same "
        "kernel again, until Python's limit of calls inside each other",
        "Compute the result from other operators; for a derivative, use torch.library.register_autograd in place of a "
        "kernel for Autograd.",
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
    r"Argument (\w+) is not defined as mutable but was mutated",
    "{call}: the kernel writes into its argument `{0}`, and its schema does not say so",
    "Compute on a copy, such as x.clone(), or say it: mutates_args=('x',) for a custom_op, Tensor(a!) in a schema.",
)


@explains(r"Input function is required to be a callable but found type <class '([\w.]+)'>")
def _no_function(match: re.Match, failure: Failure) -> Answer:
    """Something else than a function was registered."""
    return (
        f"{failure.call.at} was given {with_article(match[1])} as the kernel, and a function is wanted",
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


# What torch.library.opcheck finds


explains_plainly(
    r"Argument (\w+) is not defined to alias output but was aliasing",
    "{call}: the result shares memory with the argument `{0}`, and the schema does not say so",
    "Return a copy, such as x.clone(), or say it in the schema: f(Tensor(a) x) -> Tensor(a).",
)


@explains(r"When comparing the output of (\w+)\.([\w.]+?)(?:\.default)? on FakeTensor and concrete Tensors, found "
          r"mismatched tensor metadata: ([^\n]*)")  # fmt: skip
def _fake_differs(match: re.Match, failure: Failure) -> Answer:
    """A fake kernel that promises another result than the kernel gives."""
    space, name, what = match.groups()
    for pattern, word in _METADATA.items():
        if found := re.search(pattern, what):
            real, fake = (value.removeprefix("torch.") for value in found.groups())
            differs = f"promises a result of {word} {_as_tuple(fake)}, and the kernel returned {word} {_as_tuple(real)}"
            break
    else:
        differs = f"promises another result than the kernel gives: {what.rstrip('!. ')}"
    return (
        f"{failure.call.at}: the fake kernel of {space}::{name} {differs}",
        f'Correct the function that was given to torch.library.register_fake("{space}::{name}"): its result has the '
        "shape, strides, dtype and device of the real one, and no values.",
    )


_METADATA = {
    r"Shapes (.*?) and (.*?) are not equal": "shape",
    r"Dtypes (.*?) and (.*?) are not equal": "dtype",
    r"Devices (.*?) and (.*?) are not equal": "device",
    r"Strides are (\(.*?\)) and (\(.*?\)) \(": "strides",
}


def _as_tuple(text: str) -> str:
    """Return "(2, 3)" for "Size([2, 3])"."""
    found = re.fullmatch(r"Size\(\[(.*)\]\)", text)
    return f"({found[1]}{',' if found[1] and ',' not in found[1] else ''})" if found else text


explains_plainly(
    r"([\w:.]+?): at least one output of this operator has requires_grad=True but the operator does not have",
    "{call}: {0} gets its graph from the operations inside its kernel, and it has no derivative at an Autograd key",
    "Register the derivative with torch.library.register_autograd, or register a kernel of torch operations "
    "without a key (CompositeImplicitAutograd).",
)
