"""Custom Functions as people report them: the cause is named, where the Function runs and where it is checked."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd import Function

from helpers import check_function, explain_error, explain_grad

X = torch.linspace(-1, 1, 12).view(4, 3)


def real(*values: float) -> torch.Tensor:
    return torch.tensor(values or (0.3, -1.2, 2.0), dtype=torch.float64, requires_grad=True)


def made(forward, backward) -> type[Function]:
    return type("Mine", (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


class Twice(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


class Listed(Twice):
    @staticmethod
    def forward(ctx, xs):
        return xs[0] * 2


class Marked(Twice):
    @staticmethod
    def forward(ctx, x):
        y = x * 2
        ctx.mark_non_differentiable(y)
        return y


class Both(Twice):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, grad):
        return grad * 5


class Picked(Twice):
    @staticmethod
    def forward(ctx, x):
        return x.argmax()


# Where a graph ends in a custom Function


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            lambda: Listed.apply([real()]).sum().backward(),
            "custom Function Listed, at `xs[0] * 2` (line 3 of forward())",
        ),
        (lambda: Marked.apply(real()).sum().backward(), "custom Function Marked, at `x * 2` (line 3 of forward())"),
        (lambda: Picked.apply(real()).backward(), "the input of `argmax` required grad, its int64 result cannot"),
    ],
)
def test_a_result_that_apply_does_not_link_is_not_blamed_on_no_grad_alone(program, said):
    finding = explain_error(program)
    assert said in finding.text
    assert "which ran under no_grad" not in finding.text


def train(link):
    encoder, head = nn.Linear(3, 3), nn.Linear(3, 1)
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
    head(link(encoder(X))).sum().backward()
    optimizer.step()


def test_a_right_function_is_not_blamed_for_a_cut_after_it():
    assert explain_grad(lambda: train(Twice.apply)).cause == "right"
    assert explain_grad(lambda: train(lambda h: Listed.apply([h]))).cause == "custom function"
    assert explain_grad(lambda: train(lambda h: Twice.apply(h).detach())).cause == "detach"
    assert explain_grad(lambda: train(lambda h: Twice.apply(h.detach()))).cause == "detach"


def test_the_loss_itself_may_come_from_the_function():
    layer = nn.Linear(3, 1)
    finding = explain_grad(layer.weight, lambda: Listed.apply([layer(X)]).sum() + real().sum())
    assert finding.cause == "custom function"
    assert "Give Listed.apply its tensors one by one" in finding.remedy


def test_a_backward_with_too_few_arguments_is_explained():
    assert "takes 1 gradient, and forward returns 2 results" in check_function(Both, real()).text
    finding = explain_error(lambda: sum(Both.apply(real())).sum().backward())
    assert finding.known, finding
    assert "takes 1 gradient and forward returned 2 results" in finding.text


# What `check_function` finds


def kept(ctx, a, b):
    ctx.save_for_backward(a, b)
    return a**2 * b


def swapped(ctx, g):
    a, b = ctx.saved_tensors
    return g * a**2, g * 2 * a * b


def test_gradients_in_the_wrong_order_are_told_as_such():
    finding = check_function(made(kept, swapped), real(), real(0.5, 1.5, -0.7))
    assert finding.verdict == "wrong formula"
    assert "the gradients of `a` and `b` stand in each other's place" in finding.text
    right = made(kept, lambda ctx, g: swapped(ctx, g)[::-1])
    assert check_function(right, real(), real(0.5, 1.5, -0.7)).verdict == "passes"


def test_two_wrong_gradients_are_not_said_to_be_swapped():
    wrong = made(kept, lambda ctx, g: tuple(3 * t for t in swapped(ctx, g)[::-1]))
    assert "each other's place" not in check_function(wrong, real(), real(0.5, 1.5, -0.7)).text


def saved(ctx, x):
    ctx.save_for_backward(x)
    return x**2


def test_a_backward_that_changes_what_was_saved_is_told():
    wrong = made(saved, lambda ctx, g: ctx.saved_tensors[0].mul_(2) * g)
    finding = check_function(wrong, real())
    assert finding.verdict == "changes a saved tensor"
    assert "changes `ctx.saved_tensors[0]` in place" in finding.text
    assert check_function(made(saved, lambda ctx, g: ctx.saved_tensors[0] * 2 * g), real()).verdict == "passes"


def test_a_result_that_is_changed_after_it_was_saved_is_told():
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y.add_(1)

    finding = check_function(made(forward, lambda ctx, g: g * ctx.saved_tensors[0]), real())
    assert "forward writes in place into what it saves as ctx.saved_tensors[0]" in finding.text
    assert check_function(made(forward, lambda ctx, g: g * (ctx.saved_tensors[0] - 1)), real()).verdict == "passes"


def test_a_second_derivative_that_no_grad_takes_away_is_mended_by_the_remedy():
    def backward(ctx, g):
        with torch.no_grad():
            return 2 * ctx.saved_tensors[0] * g

    finding = check_function(made(saved, backward), real())
    assert finding.verdict == "second derivative lost"
    assert "or no_grad" in finding.remedy
