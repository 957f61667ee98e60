"""The opening story must go wrong for the reason that the course gives, and for no other."""

import math

import torch
from torch.autograd import gradcheck

from helpers.course.story import GaussianNLL, gaussian_nll, noisy_sine, train


def _arguments(dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(5, 1, dtype=dtype, generator=generator) for _ in range(3)]


def test_the_loss_falls_turns_and_ends_in_nan():
    losses = train(GaussianNLL.apply)
    assert losses[50] < losses[0]
    assert max(value for value in losses if math.isfinite(value)) > 1
    assert math.isnan(losses[-1])


def test_the_same_forward_with_torchs_gradient_trains():
    losses = train(gaussian_nll)
    assert all(map(math.isfinite, losses))
    assert losses[-1] < losses[50] < losses[0]


def test_the_value_is_right_and_equals_torchs_own():
    mean, log_var, target = _arguments()
    torchs = torch.nn.functional.gaussian_nll_loss(mean, target, log_var.exp())
    assert torch.allclose(GaussianNLL.apply(mean, log_var, target), torchs)


def test_only_the_gradient_of_log_var_is_wrong():
    mean, log_var, target = _arguments()
    mean.requires_grad_()
    assert gradcheck(lambda m: GaussianNLL.apply(m, log_var, target), mean)
    mean.requires_grad_(False)
    log_var.requires_grad_()
    assert not gradcheck(lambda s: GaussianNLL.apply(mean, s, target), log_var, raise_exception=False)


def test_the_data_are_finite_and_the_same_in_every_run():
    first, second = noisy_sine(), noisy_sine()
    assert all(t.isfinite().all() for t in first)
    assert torch.equal(first[1], second[1])
