"""More explainers of `explain_error` for autograd: in-place rules, leaves, inference tensors, custom Functions."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap

import torch

from helpers.model.errors.failure import Answer, Failure, explains
from helpers.model.watch import tensors_in


def _plain(pattern: str, text: str, remedy: str) -> None:
    """Add an explainer whose sentence needs only the call: `{call}`, `{operand}` and the groups `{0}`, `{1}` …"""

    @explains(pattern)
    def explainer(match: re.Match, failure: Failure) -> Answer:
        fill = {"call": failure.call.at, "operand": failure.operand(0, "the tensor")}
        return text.format(*match.groups(), **fill), remedy


_plain(
    r"grad can be implicitly created only for real scalar outputs but got torch\.(\w+)",
    "{call} starts from {operand}, which is {0}, and backward needs a real number to start from",
    "Make it real, with abs() or .real.",
)
_plain(
    r"grad can be implicitly created only for scalar outputs",
    "{call} starts from {operand}, which has more than one element, and backward needs one number to start from",
    "Reduce it with sum() or mean(), or give the gradient of each element: t.backward(torch.ones_like(t)).",
)
_plain(
    r"can't optimize a non-leaf Tensor",
    "{call} was given the result of an operation, and an optimizer can only change leaves",
    "Give it the leaf itself, such as the parameter; after .to(…), make it a leaf: w = w.detach().requires_grad_().",
)
_plain(
    r"(?<!view of )a leaf Variable that requires grad is being used in an in-place operation",
    "{call} writes into {operand}, a leaf that requires grad, with grad mode on: its own values would get a history",
    "For a deliberate change of a weight, put the line under torch.no_grad(); otherwise make a new tensor.",
)
_plain(
    r"Output (\d+) of (\w+) is a view and is being modified inplace.*?multiple views",
    "{call} writes into a view that {1} made as one of several, and autograd can't follow a write into one of them",
    "Take the piece by indexing, such as t[0], or clone() it before the write.",
)
_plain(
    r"is a view (?:and its base or another view of its base has been|of a tensor that was) .*?no_grad|"
    r"view was created in no_grad mode and is being modified inplace with grad mode enabled",
    "{call} writes with grad mode on into a view that was made under no_grad, so the view has no history to continue",
    "Make the view and the write in the same mode, or clone() the view first.",
)
_plain(
    r"[Oo]nly Tensors of floating point(?: and complex)? dtype can require gradients|"
    r"only (?:T|t)ensors of floating point dtype can require gradients",
    "{call} asks for gradients of whole numbers (Python ints give an int64 tensor), and a gradient needs a floating or "
    "complex dtype",
    "Write 1.0 in place of 1, or give dtype=torch.float32.",
)
_plain(
    r"Can't call numpy\(\) on Tensor that requires grad",
    "{call}: {operand} requires grad, and a NumPy array can't carry its history",
    "Use t.detach().numpy() where the gradient may end; what you compute in NumPy gets none.",
)
_plain(
    r"you can only change requires_grad flags of leaf variables",
    "{call}: {operand} is the result of a recorded operation, and its requires_grad follows from its inputs",
    "Use detach() for the same values without history; freeze the leaves instead.",
)
_plain(
    r"can't retain_grad on Tensor that has requires_grad=False",
    "{call}: {operand} does not require grad, so no gradient will ever reach it",
    "Find out why its history ended: explain_grad(t, loss).",
)
_plain(
    r"cannot register a hook on a tensor that doesn't require gradient",
    "{call}: {operand} does not require grad, so no gradient will ever reach it and the hook would never run",
    "Find out why its history ended: explain_grad(t, loss).",
)
_plain(
    r"trying to differentiate twice a function that was marked with @once_differentiable",
    "{call} needs a second derivative, and the backward of this custom Function is marked once_differentiable",
    "Write its backward with torch operations on ctx.saved_tensors and remove the mark.",
)
_plain(
    r"derivative for '?([\w:.]+)'? is not implemented",
    "{call} needs the derivative of {0}, and torch has none",
    "Detach that input if it needs no gradient, or compute the value from other operations.",
)
_plain(
    r"Setting requires_grad=True on inference tensor outside InferenceMode",
    "{call}: {operand} was made in inference_mode, and such a tensor can never take part in a graph",
    "Clone it outside inference_mode, or make it under no_grad.",
)
_plain(
    r"Inplace update to inference tensor outside InferenceMode",
    "{call} writes into {operand}, which was made in inference_mode: it has no version counter, so autograd could not "
    "notice the write",
    "Clone it outside inference_mode, or make it under no_grad.",
)
_plain(
    r"ctx\.saved_tensors.*?only.*?forward|saved_for_backward can only|save_for_backward can only save variables, but "
    r"argument (\d+) is of type (\w+)",
    "{call}: save_for_backward takes tensors only",
    "Keep numbers and flags as attributes, such as ctx.scale = scale.",
)
_plain(
    r"Mismatch in shape: grad_output\[(\d+)\] has a shape of torch\.Size\(\[(.*?)\]\) and output\[\d+\] has a shape "
    r"of torch\.Size\(\[(.*?)\]\)",
    "{call} was given a gradient of shape ({1}) for an output of shape ({2}), and the two must be equal",
    "Give one number for each element of the output.",
)


@explains(r"a view of a leaf Variable that requires grad is being used in an in-place operation")
def _view_of_leaf(match: re.Match, failure: Failure) -> Answer:
    """A write into part of a weight, such as weight[:, 0] -= 1."""
    view = failure.operand(0, "")
    leaf = re.match(r"`([\w.]+)\[", view)
    of = f"leaf `{leaf[1]}`" if leaf else "a leaf that requires grad"
    return (
        f"{failure.call.at} writes into a view of {of} with grad mode on, so the leaf's own values would get a history",
        "For a deliberate change of a weight, put the line under torch.no_grad(); otherwise make a new tensor.",
    )


@explains(r"Inference tensors cannot be saved for backward")
def _inference(match: re.Match, failure: Failure) -> Answer | None:
    """An operator must save a tensor that was made in inference_mode."""
    found = [t for t in tensors_in((failure.args, failure.kwargs)) if t.is_inference()]
    if not found or failure.run is None:
        return None
    record = failure.run.record
    seen = record.tensors[failure.run.number(found[0])]
    name = record.shown(seen.number, "an input")
    made = record.events[seen.made].call.where if seen.made is not None else ""
    return (
        f"{name} is an inference tensor (it was made in inference_mode{made}, and has no version counter), and "
        f"{failure.call.shown} in {failure.call.at} must save it for backward, which is not allowed",
        "Make it under torch.no_grad() instead, or clone() it outside inference_mode.",
    )


@explains(r"Only Tensors created explicitly by the user .*? support the deepcopy")
def _deepcopy(match: re.Match, failure: Failure) -> Answer | None:
    """A module, or something else that was copied, holds a tensor with history."""
    tensor = next(iter(tensors_in(failure.args)), None)
    if tensor is None:
        return None
    where = _attribute(failure, tensor)
    name = f"attribute `{where}`" if where else f"a tensor of shape {tuple(tensor.shape)} in what was copied"
    return (
        f"{name} is not a leaf (grad_fn is {type(tensor.grad_fn).__name__}): it keeps the graph of the last forward "
        "alive, and deepcopy refuses it",
        f"Store {(where.rpartition('.')[2] + ' = ') if where else ''}h.detach(), or clear it after use.",
    )


def _attribute(failure: Failure, tensor: torch.Tensor) -> str:
    """Return where a tensor hangs: `model.feat`. Empty where no variable of the reader leads to it."""
    step = failure.error.__traceback__
    while step is not None:
        for name, value in list(step.tb_frame.f_locals.items()):
            if isinstance(value, torch.nn.Module):
                for path, module in value.named_modules():
                    for key, held in vars(module).items():
                        if held is tensor:
                            return ".".join(part for part in (name, path, key) if part)
        step = step.tb_next
    return ""


@explains(r"function (\w+?)Backward returned an incorrect number of gradients \(expected (\d+), got (\d+)\)")
def _number_of_gradients(match: re.Match, failure: Failure) -> Answer:
    name, wanted, got = match[1], int(match[2]), int(match[3])
    parameters = _forward_parameters(failure, name)
    takes = f" ({', '.join(parameters)})" if len(parameters) == wanted else ""
    values = "value" if got == 1 else "values"
    text = f"{name}.forward takes {wanted} argument{'s' * (wanted != 1)}{takes} but backward returned {got} {values}"
    if got < wanted:
        missing = [f"`{p}`" for p in parameters[got:]] if takes else []
        what = f" for {' and '.join(missing)}" if missing else f" for each of the last {wanted - got}"
        return text, f"Append None{what}, or a gradient if it needs one."
    return text, "Return one value for each argument of forward, in their order; ctx does not count."


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
