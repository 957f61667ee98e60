"""The explainers of `explain_error` for storage and strides: overlap, memory of others, sizes that do not fit."""

from __future__ import annotations

import re

import torch

from helpers.model.adapter import device_of_private_key
from helpers.model.errors.failure import Answer, Failure, explains, explains_plainly, numbers_in
from helpers.model.memory import block_of
from helpers.model.overlap import OverlapFinding, overlap_finding
from helpers.model.watch import tensors_in


@explains(r"refer(s)? to a single memory location")
def _overlap(match: re.Match, failure: Failure) -> Answer | None:
    """A write that would disturb its own source, or that would write one slot several times."""
    written, sources = _written_and_read(failure)
    if written is None:
        return _overlap_in_general(failure)
    name = failure.operand(0, "the written tensor")
    if "out" in failure.kwargs:
        name = failure.call.keyword("out", "the tensor given as `out`")
    findings = [overlap_finding(written, None, name, "")]
    findings += [overlap_finding(written, t, name, failure.operand(i, "the source")) for i, t in sources]
    refused: OverlapFinding | None = next((f for f in findings if f.refused), None)
    if refused is None:
        return _overlap_in_general(failure)
    return f"{refused.text.rstrip('.')}{failure.call.where}", refused.remedy


def _overlap_in_general(failure: Failure) -> Answer:
    """The same where the tensors are not at hand: torch has one message for each of the two causes."""
    if "more than one element of the written-to tensor" in str(failure.error):
        return (
            f"{failure.call.at} writes in place to a tensor in which several elements lie in one slot, as after "
            "expand, and torch refuses that",
            "Clone the whole before the write, as in x = x.clone(), or write to the tensor from which it was expanded.",
        )
    return (
        f"{failure.call.at} writes to a part of a storage that overlaps with the part that it reads, so it would "
        "change elements that are still to be read, and torch refuses that",
        "Clone the source, with .clone().",
    )


def _written_and_read(failure: Failure) -> tuple[torch.Tensor | None, list[tuple[int, torch.Tensor]]]:
    """Return the tensor that a call writes, and the tensors it reads with their positions."""
    args = failure.args
    out = failure.kwargs.get("out")
    if isinstance(out, torch.Tensor):
        return out, [(i, t) for i, t in enumerate(args) if isinstance(t, torch.Tensor)]
    if not args or not isinstance(args[0], torch.Tensor):
        return None, []
    if failure.name == "__setitem__":
        with torch.no_grad():
            written = args[0][args[1]]  # a basic index, or there would have been nothing to refuse
        return written, [(2, args[2])] if isinstance(args[2], torch.Tensor) else []
    return args[0], [(i, t) for i, t in enumerate(args) if i and isinstance(t, torch.Tensor)]


@explains(r"stride.*in the given numpy array is negative|Negative strides are not supported")
def _negative_strides(match: re.Match, failure: Failure) -> Answer:
    array = failure.args[0] if failure.args else None
    strides = f" {tuple(array.strides)} in bytes" if hasattr(array, "strides") else ""
    if failure.name == "as_strided":
        return (
            f"{failure.call.at} asks for a negative stride, and torch has none",
            "Use flip, which copies.",
        )
    return (
        f"{failure.call.at} got a NumPy array with negative strides{strides}, as [::-1] makes, "
        "and a tensor has no negative strides, so it cannot share this memory",
        "Copy the array first, a[::-1].copy(), or flip the tensor; both copy.",
    )


@explains(
    r"sizes \[(.*?)\], strides \[(.*?)\], storage offset (\d+), and itemsize (\d+) requiring a storage size of (\d+) "
    r"are out of bounds for storage of size (\d+)"
)
def _out_of_storage(match: re.Match, failure: Failure) -> Answer:
    sizes, strides = (numbers_in(group) for group in match.groups()[:2])
    offset, itemsize, needed, there = (int(n) for n in match.groups()[2:])
    return (
        f"{failure.call.at}: shape {sizes} with strides {strides} from slot {offset} reaches "
        f"slot {needed // itemsize - 1}, and the storage has {there // itemsize} slots ({needed} bytes "
        f"needed, {there} there)",
        "The last slot is storage_offset + the sum of (size - 1) × stride: make it smaller than the number of slots.",
    )


@explains(r"resize storage that is not resizable")
def _not_resizable(match: re.Match, failure: Failure) -> Answer:
    device = next((t.device.type for t in tensors_in(failure.args)), "cpu")
    if device == device_of_private_key():
        return (
            f"{failure.call.at} asks the device {device} for a result of a size that is known only while it is "
            "computed, and the memory of this device cannot grow",
            "Take the tensor to the CPU first, t.cpu(); to print one, too.",
        )
    block, name = block_of(failure.args[0]) if failure.args else None, failure.operand(0, "the tensor")
    size = f" of {block.nbytes:,} bytes" if block else ""
    return (
        f"the memory of {name}{size} belongs to someone else, such as a NumPy array or a file, "
        f"so torch cannot make it larger in {failure.call.at}",
        "clone() the tensor first: a clone has a storage that torch owns.",
    )


@explains(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension (\d+)")
def _broadcast(match: re.Match, failure: Failure) -> Answer:
    a, b, dim = match.groups()
    shapes = " and ".join(str(tuple(t.shape)) for t in tensors_in(failure.args)[:2])
    shapes = f"shapes {shapes}" if shapes else "the shapes"
    return (
        f"{failure.call.at}: {shapes} do not broadcast, because sizes {a} and {b} meet in "
        f"dimension {dim} (counted so that the last dimensions stand under each other) and neither is 1",
        "Bring the dimension in place with unsqueeze or transpose before the operation.",
    )


# These need nothing but the call and the numbers of torch's message.

explains_plainly(
    r"step must be greater than zero",
    "{call} asks for a step that is not positive, and torch has no negative strides: a reversed order cannot be a view",
    "Use flip, such as x.flip(0): it copies. A step of 0 has no meaning.",
)
explains_plainly(
    r"cannot resize variables that require grad|set_\w+ is not allowed on a Tensor created from",
    "{call} would change the size of a tensor whose size others rely on: {operand} requires grad, or shares its values "
    "with a tensor that does",
    "Make a new tensor of the wanted size and copy the values.",
)
explains_plainly(
    r"expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\) at non-singleton dimension (\d+)",
    "{call} would make dimension {2} of size {1} into size {0}, and expand repeats only a dimension of size 1, "
    "by stride 0",
    "Use repeat, which writes the repetitions out, or unsqueeze a dimension of size 1 and expand that.",
)
explains_plainly(
    r"expanded size of the tensor \(-\d+\) isn't allowed in a leading, non-existing dimension (\d+)",
    "{call} gives a negative size to dimension {0}, which is new, and -1 keeps the size of a dimension that is there",
    "Give each new dimension its size; new ones stand on the left.",
)
explains_plainly(
    r"number of sizes provided \((\d+)\) must be greater or equal to the number of dimensions in the tensor \((\d+)\)",
    "{call} gives sizes for dimensions, {0} of them, and {operand} has {1}: expand keeps each",
    "Give a size for each dimension, -1 for those that stay as they are.",
)
explains_plainly(
    r"Trying to create tensor with negative dimension (-\d+)|Dimension size must be non-negative",
    "{call} asks for a tensor with a negative size, and a size is 0 or more",
    "Look at how it was computed, such as a difference of two sizes; -1 has a meaning for view, reshape and expand.",
)
explains_plainly(
    r"maximum size for tensor at dimension (\d+) is (\d+) but size is (\d+)",
    "{call} asks for windows of {2} in dimension {0}, which has size {1}",
    "",
)
explains_plainly(
    r"result type (\w+) can't be cast to the desired output type (\w+)",
    "{call} writes in place into {1} elements, and its result would be {0}: the storage keeps its dtype",
    "Use the operation that makes a new tensor, or convert with to(dtype) first.",
)
