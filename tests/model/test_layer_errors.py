"""`explain_error` for what convolutions, products of matrices and `cat` do not take; each remedy raises nothing."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import explain_error
from tests.model.failing import caught

CONV = nn.Conv2d(3, 4, 3)
GRAY, IMAGE, LAST = torch.ones(2, 1, 8, 8), torch.ones(2, 3, 8, 8), torch.ones(2, 8, 8, 3)
VIDEO = torch.ones(2, 5, 3, 8, 8)
A, B = torch.ones(2, 3, 4), torch.ones(2, 4, 5)
M, V = torch.ones(3, 4), torch.ones(4)


@pytest.mark.parametrize(
    ("broken", "healthy", "said", "remedy"),
    [
        (
            lambda: CONV(GRAY),
            lambda: nn.Conv2d(1, 4, 3)(GRAY),
            "takes 3 channels, and the input has 1, the size of dimension 1 of its shape (2, 1, 8, 8)",
            "in_channels=1",
        ),
        (
            lambda: CONV(LAST),
            lambda: CONV(LAST.permute(0, 3, 1, 2)),
            "has 8, the size of dimension 1 of its shape (2, 8, 8, 3)",
            "permute(0, 3, 1, 2)",
        ),
        (lambda: CONV(LAST[0]), lambda: CONV(LAST[0].permute(2, 0, 1)), "takes 3 channels, and the input has 8", ""),
        (lambda: nn.Conv2d(4, 4, 3, groups=2)(IMAGE), lambda: CONV(IMAGE), "takes 4 channels in 2 groups", "in_chan"),
        (lambda: nn.ConvTranspose2d(3, 4, 3)(GRAY), lambda: nn.ConvTranspose2d(1, 4, 3)(GRAY), "takes 3 channels", ""),
        (lambda: nn.Conv1d(3, 4, 3)(A[:, :1]), lambda: nn.Conv1d(1, 4, 3)(A[:, :1]), "takes 3 channels", "in_channels"),
        (
            lambda: F.conv2d(GRAY[0, 0], torch.ones(4, 1, 3, 3)),
            lambda: F.conv2d(GRAY[0, 0].unsqueeze(0), torch.ones(4, 1, 3, 3)),
            "conv2d takes an input of 3 dimensions (C, H, W) or, with a batch, of 4 (N, C, H, W), and it got 2",
            "unsqueeze(0)",
        ),
        (
            lambda: CONV(VIDEO),
            lambda: CONV(VIDEO.flatten(0, 1)),
            "and it got 5 (shape (2, 5, 3, 8, 8))",
            "flatten(0, 1)",
        ),
        (lambda: nn.Conv1d(1, 4, 3)(V), lambda: nn.Conv1d(1, 4, 3)(V.unsqueeze(0)), "2 dimensions (C, L)", "unsqueeze"),
        (
            lambda: nn.Conv2d(3, 4, 9)(IMAGE),
            lambda: nn.Conv2d(3, 4, 9, padding=1)(IMAGE),
            "a kernel of 9 x 9 over an input that is 8 x 8 with its padding",
            "more padding",
        ),
        (lambda: nn.MaxPool2d(2)(M), lambda: nn.MaxPool2d(2)(M.unsqueeze(0)), "an input of 3 dimensions", "unsqueeze"),
        (lambda: nn.BatchNorm2d(3)(IMAGE[0]), lambda: nn.BatchNorm2d(3)(IMAGE), "4 dimensions, and it got 3", "unsq"),
        (
            lambda: nn.BatchNorm2d(3)(GRAY),
            lambda: nn.BatchNorm2d(1)(GRAY),
            "made for 3 channels, and the input has 1",
            "",
        ),
    ],
)
def test_what_a_layer_takes(broken, healthy, said, remedy):
    found = explain_error(broken)
    assert found.known
    assert said in found.text
    assert remedy in found.remedy
    assert found.remedy
    assert explain_error(caught(broken)).known
    assert explain_error(healthy).error == ""


def test_a_batch_that_torch_added_is_not_told_as_the_shape_of_the_input():
    text = explain_error(caught(lambda: CONV(GRAY[0]))).text
    assert text.endswith("takes 3 channels, and the input has 1.")
    assert "dimension 0 of its shape (1, 8, 8)" in explain_error(lambda: CONV(GRAY[0])).text


@pytest.mark.parametrize(
    ("broken", "healthy", "said"),
    [
        (lambda: torch.bmm(M, M.T), lambda: torch.matmul(M, M.T), "of 3 dimensions each, and it got (3, 4) and (4, 3)"),
        (lambda: torch.bmm(A, M.T), lambda: torch.matmul(A, M.T), "and it got (2, 3, 4) and (4, 3)"),
        (lambda: torch.bmm(A, A), lambda: torch.bmm(A, A.mT), "on the left have 4 columns, so those on the right need"),
        (lambda: A @ A, lambda: A @ A.mT, "need as many rows, and they have 3"),
        (lambda: torch.bmm(A, B[:1]), lambda: torch.bmm(A, B[:1].expand(2, 4, 5)), "with 2 of them on the left and 1"),
        (lambda: torch.baddbmm(V, M, M), lambda: torch.addmm(V[:3], M, M.T), "it got (3, 4) and (3, 4)"),
        (
            lambda: torch.baddbmm(A, A, B),
            lambda: torch.baddbmm(A[..., :1], A, B),
            "the product of shapes (2, 3, 4) and (2, 4, 5) to a tensor of shape (2, 3, 4)",
        ),
        (lambda: torch.baddbmm(A, A, A), lambda: torch.baddbmm(A[..., :1], A, A.mT), "need as many rows, and they"),
        (lambda: torch.addmm(V, M, M.T), lambda: torch.addmm(V[:3], M, M.T), "to a tensor of shape (4,)"),
        (lambda: torch.mm(A, M.T), lambda: torch.matmul(A, M.T), "multiplies two matrices, of 2 dimensions each"),
        (lambda: torch.mv(M, M), lambda: torch.matmul(M, V), "multiplies a matrix by a vector"),
        (lambda: torch.dot(M, M), lambda: (M * M).sum(), "takes two vectors, and it got tensors of 2 and of 2"),
        (lambda: M.sum() @ M, lambda: M.sum() * M, "one is a single number"),
    ],
)
def test_matrices_that_do_not_fit(broken, healthy, said):
    found = explain_error(broken)
    assert found.known
    assert said in found.text
    assert found.remedy
    assert explain_error(caught(broken)).known
    assert explain_error(healthy).error == ""


@pytest.mark.parametrize(
    "join", [torch.cat, torch.stack, torch.hstack, torch.vstack, torch.dstack, nn.utils.rnn.pad_sequence]
)
def test_an_empty_list_has_nothing_to_join(join):
    rows: list[torch.Tensor] = []
    for found in (explain_error(lambda: join(rows)), explain_error(caught(lambda: join(rows)))):
        assert found.known
        assert "was given an empty list, and there must be at least one tensor" in found.text
        assert "torch.empty(0, n)" in found.remedy
    assert explain_error(lambda: join([*rows, torch.empty(0, 3)])).error == ""


def test_tensors_that_are_joined_have_one_number_of_dimensions():
    assert "two of them have 2 and 1" in explain_error(lambda: torch.cat([M, V])).text
    assert explain_error(lambda: torch.cat([M, V.unsqueeze(0)])).error == ""


def test_classes_are_counted_from_0_to_the_last_of_them():
    found = explain_error(lambda: F.one_hot(torch.tensor([5]), 3))
    assert "one of them is not smaller than num_classes" in found.text
    assert explain_error(lambda: F.one_hot(torch.tensor([5]), 6)).error == ""
