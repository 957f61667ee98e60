"""The explainers of `explain_error` for sizes that must be equal, where nothing is broadcast."""

from __future__ import annotations

import re

from helpers.model.errors.failure import Answer, Failure, explains, explains_plainly
from helpers.model.words import counted

explains_plainly(
    r"Sizes of tensors must match except in dimension (\d+)\. Expected size (\d+) but got size (\d+) for tensor "
    r"number (\d+)",
    "{call} joins along dimension {0}, so all other sizes must be equal, and tensor {3} has {2} where the first one "
    "has {1}",
    "Choose the dimension that differs, or cut or pad the others to one size.",
)
explains_plainly(
    r"stack expects each tensor to be equal size, but got \[(.*?)\] at entry (\d+) and \[(.*?)\] at entry (\d+)",
    "{call} lays tensors on each other, so all need one shape, and tensor {1} has [{0}] and tensor {3} [{2}]",
    "Pad them to one shape, as torch.nn.utils.rnn.pad_sequence does, or join them with cat.",
)
explains_plainly(
    r"inconsistent tensor size, expected tensor \[(\d+)\] and src \[(\d+)\] to have the same number of elements",
    "{call} multiplies two vectors element by element and sums, so both need one size, and they have {0} and {1}",
    "Look at the shapes of both before this line; for a table of all products use torch.outer.",
)
explains_plainly(
    r"The shape of the mask \[(.*?)\] at index (\d+) does not match the shape of the indexed tensor \[(.*?)\]",
    "{call}: a mask has the sizes of the first dimensions of the tensor; it has [{0}], the tensor [{2}], and they "
    "differ in dimension {1}",
    "Make the mask from the same tensor, or select along a later dimension: t[:, mask].",
)
explains_plainly(
    r"Target (-?\d+) is out of bounds",
    "{call}: a class of the target is {0}, and the scores have a column for each class from 0 on, and none for {0}",
    "Count classes from 0; compare target.max() with the number of columns; a class to leave out is ignore_index.",
)


@explains(r"Error\(s\) in loading state_dict for (\w+):\s*(.*)")
def _state(match: re.Match, failure: Failure) -> Answer:
    """A saved state with other names or sizes than the module."""
    lines = [" ".join(line.split()).rstrip(".") for line in match[2].splitlines() if line.strip()]
    more = f"; and {counted(len(lines) - 2, 'more difference')}" if len(lines) > 2 else ""
    return (
        f"{failure.call.at}: the state does not fit this {match[1]}: {'; '.join(lines[:2])}{more}",
        "Build the module as it was when the state was saved. strict=False leaves out missing and unexpected names, "
        "but never other sizes.",
    )


explains_plainly(
    r"expects a non-empty TensorList|expected a non-empty list of Tensors|received an empty list of sequences",
    "{call} was given an empty list, and there must be at least one tensor, which says what the result is made of",
    "Look at what fills the list, such as a loop that never ran; for a result without rows write torch.empty(0, n).",
)
explains_plainly(
    r"Tensors must have same number of dimensions: got (\d+) and (\d+)",
    "{call} joins tensors of one number of dimensions, and two of them have {0} and {1}",
    "Add the missing dimension with unsqueeze, or lay tensors of one shape on each other with torch.stack.",
)
explains_plainly(
    r"Class values must be (smaller than num_classes|non-negative)",
    "{call}: classes are numbered from 0 to num_classes - 1, and one of them is not {0}",
    "Count classes from 0, and compare the largest and the smallest of them with num_classes.",
)
