"""The opening story: a loss that falls for fifty steps, turns, and ends in NaN.

A network predicts a mean and the logarithm of a variance. The loss is written by hand, forward
and backward. One of the two is wrong. Chapter 00 meets the fault from the outside; later chapters
have the tools to find it.
"""

from __future__ import annotations

import torch
from torch import nn


def gaussian_nll(mean: torch.Tensor, log_var: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the mean negative log-likelihood of `target` under a normal distribution, without its constant.

    The three arguments have one shape; the result is 0-d.
    """
    error = target - mean
    return 0.5 * (log_var + error**2 / log_var.exp()).mean()


class GaussianNLL(torch.autograd.Function):
    """`gaussian_nll` with a gradient written by hand."""

    @staticmethod
    def forward(ctx, mean, log_var, target):
        ctx.save_for_backward(mean, log_var, target)
        return gaussian_nll(mean, log_var, target)

    @staticmethod
    def backward(ctx, grad):
        mean, log_var, target = ctx.saved_tensors
        error = target - mean
        grad_mean = -error / log_var.exp()
        grad_log_var = 0.5 * (1 + error**2 / log_var.exp())
        return grad * grad_mean / mean.numel(), grad * grad_log_var / mean.numel(), None


def noisy_sine(device: torch.device | str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets of shape (64, 1): a sine with a little noise, the same in every run."""
    x = torch.linspace(-1, 1, 64)[:, None]
    noise = torch.randn(64, 1, generator=torch.Generator().manual_seed(0))
    return x.to(device), (torch.sin(3 * x) + 0.1 * noise).to(device)


def train(loss_function, *, steps: int = 150, device: torch.device | str = "cpu") -> list[float]:
    """Train a small network with plain SGD and return the loss of every step.

    `loss_function(mean, log_var, target)` returns a 0-d tensor; each argument has shape (64, 1).
    """
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 2)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.005)
    x, target = noisy_sine(device)
    losses = []
    for _ in range(steps):
        mean, log_var = net(x).chunk(2, dim=1)
        loss = loss_function(mean, log_var, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
