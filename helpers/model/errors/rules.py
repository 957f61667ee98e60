"""More explainers of `explain_error` for autograd: in-place rules, leaves, inference tensors, custom Functions."""

from __future__ import annotations

import re

import torch

from helpers.model.errors.failure import Answer, Failure, explains, explains_plainly
from helpers.model.watch import tensors_in

explains_plainly(
    r"grad can be implicitly created only for real scalar outputs but got torch\.(\w+)",
    "{call} starts from {operand}, which is {0}, and backward needs a real number to start from",
    "Make it real, with abs() or .real.",
)
explains_plainly(
    r"grad can be implicitly created only for scalar outputs",
    "{call} starts from {operand}, which has more than one element, and backward needs one number to start from",
    "Reduce it with sum() or mean(), or give the gradient of each element: t.backward(torch.ones_like(t)).",
)
explains_plainly(
    r"can't optimize a non-leaf Tensor",
    "{call} was given the result of an operation, and an optimizer can only change leaves",
    "Give it the leaf itself, such as the parameter; after .to(…), make it a leaf: w = w.detach().requires_grad_().",
)
explains_plainly(
    r"(?<!view of )a leaf Variable that requires grad is being used in an in-place operation",
    "{call} writes into {operand}, a leaf that requires grad, with grad mode on: its own values would get a history",
    "For a deliberate change of a weight, put the line under torch.no_grad(); otherwise make a new tensor.",
)
explains_plainly(
    r"Output (\d+) of (\w+) is a view and is being modified inplace.*?multiple views",
    "{call} writes into a view that {1} made as one of several, and autograd can't follow a write into one of them",
    "Take the piece by indexing, such as t[0], or clone() it before the write.",
)
explains_plainly(
    r"is a view (?:and its base or another view of its base has been|of a tensor that was) .*?no_grad|"
    r"view was created in no_grad mode and is being modified inplace with grad mode enabled",
    "{call} writes with grad mode on into a view that was made under no_grad, so the view has no history to continue",
    "Make the view and the write in the same mode, or clone() the view first.",
)
explains_plainly(
    r"[Oo]nly Tensors of floating point(?: and complex)? dtype can require gradients|"
    r"only (?:T|t)ensors of floating point dtype can require gradients",
    "{call} asks for gradients of whole numbers (Python ints give an int64 tensor), and a gradient needs a floating or "
    "complex dtype",
    "Write 1.0 in place of 1, or give dtype=torch.float32.",
)
explains_plainly(
    r"Can't call numpy\(\) on Tensor that requires grad",
    "{call}: {operand} requires grad, and a NumPy array can't carry its history",
    "Use t.detach().numpy() where the gradient may end; what you compute in NumPy gets none.",
)
explains_plainly(
    r"you can only change requires_grad flags of leaf variables",
    "{call}: {operand} is the result of a recorded operation, and its requires_grad follows from its inputs",
    "Use detach() for the same values without history; freeze the leaves instead.",
)
explains_plainly(
    r"can't retain_grad on Tensor that has requires_grad=False",
    "{call}: {operand} does not require grad, so no gradient will ever reach it",
    "Find out why its history ended: explain_grad(t, loss).",
)
explains_plainly(
    r"cannot register a hook on a tensor that doesn't require gradient",
    "{call}: {operand} does not require grad, so no gradient will ever reach it and the hook would never run",
    "Find out why its history ended: explain_grad(t, loss).",
)
explains_plainly(
    r"trying to differentiate twice a function that was marked with @once_differentiable",
    "{call} needs a second derivative, and the backward of this custom Function is marked once_differentiable",
    "Write its backward with torch operations on ctx.saved_tensors and remove the mark.",
)
explains_plainly(
    r"derivative for '?([\w:.]+)'? is not implemented",
    "{call} needs the derivative of {0}, and torch has none",
    "Detach that input if it needs no gradient, or compute the value from other operations.",
)
explains_plainly(
    r"Setting requires_grad=True on inference tensor outside InferenceMode",
    "{call}: {operand} was made in inference_mode, and such a tensor can never take part in a graph",
    "Clone it outside inference_mode, or make it under no_grad.",
)
explains_plainly(
    r"Inplace update to inference tensor outside InferenceMode",
    "{call} writes into {operand}, which was made in inference_mode: it has no version counter, so autograd could not "
    "notice the write",
    "Clone it outside inference_mode, or make it under no_grad.",
)
explains_plainly(
    r"ctx\.saved_tensors.*?only.*?forward|saved_for_backward can only|save_for_backward can only save variables, but "
    r"argument (\d+) is of type (\w+)",
    "{call}: save_for_backward takes tensors only",
    "Keep numbers and flags as attributes, such as ctx.scale = scale.",
)
explains_plainly(
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


explains_plainly(
    r"functions with out=\.\.\. arguments don't support automatic differentiation",
    "{call} writes into a tensor given as `out`, and such a write is not recorded, though an argument requires grad",
    "Leave out `out=` and use the result, or put the call under torch.no_grad().",
)
explains_plainly(
    r"hook '(.*?)' has changed the (size|type|device) of value",
    "{call} ran a hook ({0}) that returned a gradient of another {1} than it was given",
    "Return a gradient of the same shape, dtype and device, or None to leave it as it is.",
)
explains_plainly(
    r"expected Variable, but hook returned '(\w+)'",
    "{call} ran a hook that returned a value of type {0}, and a hook returns a tensor or None",
    "Return a tensor in place of the gradient, or nothing to leave it as it is.",
)
explains_plainly(
    r"optimizer got an empty parameter list",
    "{call} was given no parameters: the module has none, or a generator of parameters was used up before",
    "Give model.parameters() anew, and keep modules in attributes, ModuleList or ModuleDict.",
)
explains_plainly(
    r"attempting to assign a gradient of size '\[(.*?)\]' to a tensor of size '\[(.*?)\]'",
    "{call} is given a gradient of shape ({0}), and the tensor has shape ({1})",
    "A gradient has the shape of its tensor.",
)
explains_plainly(
    r"Can't detach views in-place",
    "{call} would cut a view off in place, and its base still has the history",
    "Use t = t.detach().",
)
explains_plainly(
    r"One of the differentiated Tensors does not require grad",
    "{call} asks for a gradient of a tensor that does not require grad",
    "Set requires_grad=True on it before the forward.",
)
explains_plainly(
    r"cannot assign '([\w.]+)' as parameter '(\w+)' \(torch\.nn\.Parameter or None expected\)",
    "{call}: a plain tensor can't take the place of the parameter `{1}`, as it would be no leaf that an "
    "optimizer holds",
    "Write into the parameter under torch.no_grad(), or assign a torch.nn.Parameter and make the optimizer anew.",
)
