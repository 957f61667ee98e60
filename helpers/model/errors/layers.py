"""The explainers of `explain_error` for what layers take: channels of a convolution, matrices and batches of them."""

from __future__ import annotations

import re

from helpers.model.errors.failure import Answer, Failure, explains, explains_plainly, numbers_in
from helpers.model.watch import tensors_in

_SIZES = {1: "L", 2: "H, W", 3: "D, H, W"}  # what stands after the channels, for each number of dimensions of a kernel


def _input(failure: Failure, said: str) -> tuple[int, ...]:
    """Return the shape of the input; () where torch's message may say it with a batch of 1 that it added."""
    t = next(iter(tensors_in(failure.args)), None)
    if t is not None and failure.name.startswith("conv"):
        return tuple(t.shape)
    return numbers_in(said) if not said.startswith("1,") else ()


@explains(
    r"Given (groups|transposed)=(\d+), weight of size \[(.*?)\], expected input\[(.*?)\] to have (\d+) channels, "
    r"but got (\d+) channels"
)
def _channels(match: re.Match, failure: Failure) -> Answer:
    """A convolution got another number of channels than its weight has."""
    weight, shape = numbers_in(match[3]), _input(failure, match[4])
    dim = len(shape) - len(weight) + 1
    wanted, came = int(match[5]), int(match[6])
    groups = f" in {match[2]} groups" if match[1] == "groups" and match[2] != "1" else ""
    where = f", the size of dimension {dim} of its shape {shape}" if shape else ""
    remedy = f"Give the module in_channels={came}, or an input with {wanted} channels."
    if shape and shape[-1] == wanted:
        order = [*range(dim), len(shape) - 1, *range(dim, len(shape) - 1)]
        remedy = (
            f"Its last dimension has {wanted}: if these are the channels, bring them in place, permute{tuple(order)}."
        )
    return (
        f"{failure.call.at}: a weight of shape {weight} takes {wanted} channels{groups}, and the input has "
        f"{came}{where}",
        remedy,
    )


@explains(r"Expected (\d)D \(unbatched\) or (\d)D \(batched\) input to (\w+), but got input of size: \[(.*?)\]")
def _dimensions(match: re.Match, failure: Failure) -> Answer:
    """A convolution got too few or too many dimensions."""
    alone, name, shape = int(match[1]), match[3], numbers_in(match[4])
    sizes = _SIZES[alone - 1]
    remedy = "Add what is missing with unsqueeze(0): the channels stand before the sizes, and the batch before both."
    if len(shape) > alone + 1:
        remedy = f"Join the dimensions before the channels into one batch: flatten(0, {len(shape) - alone - 1})."
    return (
        f"{failure.call.at}: {name} takes an input of {alone} dimensions (C, {sizes}) or, with a batch, of {alone + 1} "
        f"(N, C, {sizes}), and it got {len(shape)} (shape {shape})",
        remedy,
    )


explains_plainly(
    r"Calculated padded input size per channel: \((.*?)\)\. Kernel size: \((.*?)\)",
    "{call} moves a kernel of {1} over an input that is {0} with its padding, and the kernel does not fit in",
    "Use a smaller kernel or more padding, or fewer layers before it that make the input smaller.",
)
explains_plainly(
    r"[Ee]xpected (\d)D (?:or (\d)D )?input \(got (\d)D input\)",
    "{call}: the module takes an input of {0} dimensions, and it got {2}",
    "Look at the shape before this line; a batch comes first, then the channels: unsqueeze adds what is missing.",
)
explains_plainly(
    r"non-empty (\d)D or (\d)D \(batch mode\) tensor expected for input",
    "{call} takes an input of {0} dimensions, channels and sizes, or of {1} with a batch, and no size may be 0",
    "Look at the shape before this line; unsqueeze(0) adds what is missing.",
)
explains_plainly(
    r"running_mean should contain (\d+) elements not (\d+)",
    "{call}: the module was made for {1} channels, and the input has {0} in dimension 1",
    "Make num_features the number of channels of the input.",
)


# Matrices

_INNER = "Compare the last dimension of the first with the one before the last of the second."


@explains(r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)")
def _matmul(match: re.Match, failure: Failure) -> Answer:
    rows, inner, other, columns = match.groups()
    if failure.name == "linear":
        return (
            f"{failure.call.at} multiplies by a weight of shape ({columns}, {other}), so the last "
            f"dimension of its input must have size {other}, and it has {inner}",
            "Compare in_features with the last dimension of what comes in.",
        )
    return (
        f"{failure.call.at}: a ({rows}, {inner}) matrix needs a partner with {inner} rows, and "
        f"({other}, {columns}) has {other}",
        _INNER,
    )


@explains(
    r"batch[12] must be a 3D tensor|Expected size for first two dimensions of batch2 tensor to be: \[(\d+), (\d+)\] "
    r"but got: \[(\d+), (\d+)\]"
)
def _batches(match: re.Match, failure: Failure) -> Answer:
    """Batches of matrices that are no batches, or that do not fit together."""
    if match[1] is None:
        return _no_batches(failure)
    batch, inner, other, rows = match.groups()
    if batch != other:
        return (
            f"{failure.call.at} multiplies matrix by matrix, with {batch} of them on the left and {other} on the right",
            "Give both the same number of matrices, such as by expand where one side has 1.",
        )
    return (
        f"{failure.call.at}: the matrices on the left have {inner} columns, so those on the right need as many rows, "
        f"and they have {rows}",
        f"{_INNER} t.mT transposes each matrix.",
    )


def _no_batches(failure: Failure) -> Answer:
    shapes = [str(tuple(t.shape)) for t in tensors_in(failure.args)][-2:]
    came = f"got {' and '.join(shapes)}" if shapes else "got another number of dimensions"
    return (
        f"{failure.call.at} multiplies two batches of matrices, of 3 dimensions each, and it {came}",
        "Use torch.matmul, which takes one matrix as well, or add the batch with unsqueeze(0).",
    )


@explains(r"expanded size of the tensor \((\d+)\) must match|Dimension out of range")
def _added(match: re.Match, failure: Failure) -> Answer | None:
    """The tensor that a product is added to does not broadcast to the product."""
    if failure.name not in ("baddbmm", "addmm", "addbmm", "addmv") or len(failure.args) < 3:
        return None
    if failure.name == "baddbmm" and any(t.ndim != 3 for t in failure.args[1:3]):
        return _no_batches(failure)
    added, left, right = (tuple(t.shape) for t in failure.args[:3])
    return (
        f"{failure.call.at} adds the product of shapes {left} and {right} to a tensor of shape {added}, which does not "
        "broadcast to the shape of the product",
        "Give what is added the shape of the product; a bias with one number for each column broadcasts.",
    )


explains_plainly(
    r"(?:self|mat2) must be a matrix",
    "{call} multiplies two matrices, of 2 dimensions each, and one of them has another number",
    "Use torch.matmul, which takes vectors and batches as well.",
)
explains_plainly(
    r"1D tensors expected, but got (\d)D and (\d)D tensors",
    "{call} takes two vectors, and it got tensors of {0} and of {1} dimensions",
    "Use @ for matrices, or (a * b).sum() for the sum of all products.",
)
explains_plainly(
    r"both arguments to matmul need to be at least 1D, but they are (\d)D and (\d)D",
    "{call} multiplies vectors or matrices, and it got tensors of {0} and of {1} dimensions: one is a single number",
    "Use * to multiply by a number.",
)
explains_plainly(
    r"vector \+ matrix @ vector expected, got (\d), (\d), (\d)",
    "{call} multiplies a matrix by a vector, and it got tensors of {1} and of {2} dimensions",
    "Use torch.matmul, which takes matrices and batches as well.",
)
