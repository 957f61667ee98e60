"""Training steps as people report them: the fault is told, the mended step and its look-alikes are right."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import explain_grad

X = torch.linspace(-1, 1, 12).view(4, 3)


def sgd(*parts: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD([p for part in parts for p in part.parameters()], lr=0.01)


# Training steps. Each program takes whether it is mended.


class Net(nn.Module):
    def __init__(self, kind: str):
        super().__init__()
        self.first, one = nn.Linear(3, 3), torch.ones(3)
        made = {
            "plain": lambda: torch.ones(3, requires_grad=True),
            "parameter": lambda: nn.Parameter(one),
            "partial": lambda: partial(torch.mul, nn.Parameter(one)),
            "nested": lambda: [[nn.Linear(3, 3)], [nn.Linear(3, 3)]],
        }
        self.extra = made[kind]()

    def forward(self, x):
        x = self.first(x)
        for part in self.extra if isinstance(self.extra, list) else []:
            x = part[0](x)
        if isinstance(self.extra, list):
            return x
        return self.extra(x) if callable(self.extra) and not isinstance(self.extra, torch.Tensor) else x * self.extra


def trained(net: nn.Module):
    optimizer = sgd(net)
    net(X).sum().backward()
    optimizer.step()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("plain", "attribute `extra` is a plain tensor that requires grad and no Parameter"),
        ("partial", "attribute `extra` is a plain partial with 1 parameter"),
        ("nested", "attribute `extra` is a plain list with 4 parameters"),
    ],
)
def test_parameters_that_no_module_lists_are_found(kind, said):
    assert said in str(explain_grad(lambda: trained(Net(kind)))).replace("Attribute", "attribute")


def test_a_parameter_is_no_plain_tensor_and_one_that_the_optimizer_holds_is_no_fault():
    def held():
        net = Net("plain")
        optimizer = torch.optim.SGD([*net.parameters(), net.extra], lr=0.1)
        net(X).sum().backward()
        optimizer.step()

    assert explain_grad(lambda: trained(Net("parameter"))).cause == "right"
    assert explain_grad(held).cause == "right"


def bound_again(mended: bool):
    net = nn.Linear(3, 2)
    optimizer = sgd(net)
    net.weight = nn.Parameter(net.weight.detach() * 2)
    if mended:
        optimizer = sgd(net)
    net(X).sum().backward()
    optimizer.step()


def of_another_model(mended: bool):
    old, new = nn.Linear(3, 2), nn.Linear(3, 2)
    optimizer = sgd(new if mended else old)
    new(X).sum().backward()
    optimizer.step()


def inner_loop(mended: bool):
    net = nn.Linear(3, 1)
    optimizer, weights = sgd(net), list(net.parameters())
    grads = torch.autograd.grad(F.linear(X, *weights).pow(2).mean(), weights, create_graph=mended)
    fast = [p - 0.1 * g for p, g in zip(weights, grads, strict=True)]
    if not mended:
        fast = [t.detach().requires_grad_() for t in fast]
    F.linear(X, *fast).pow(2).mean().backward()
    optimizer.step()


def penalty(mended: bool):
    net, scale = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1)), nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([scale, *net.parameters()], lr=0.1)
    x = X.clone().requires_grad_()
    y = net(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=mended)
    (scale * (g.norm(dim=1) - 1).pow(2).mean() + (y.mean() if mended else 0)).backward()
    optimizer.step()


def wrapped(mended: bool):
    net = nn.Linear(3, 2)
    optimizer = sgd(net)
    loss = net(X).sum()
    if not mended:
        loss = torch.autograd.Variable(loss.data, requires_grad=True)
    loss.backward()
    optimizer.step()


def rounded(mended: bool):
    net = nn.Linear(3, 2)
    optimizer, x = sgd(net), net(X)
    y = x + (x.round() - x).detach() if mended else x.round()
    y.sum().backward()
    optimizer.step()


def added_up(mended: bool):
    net, total = nn.Linear(3, 1), 0
    optimizer = sgd(net)
    for _ in range(4):
        optimizer.zero_grad()
        loss = net(X).pow(2).mean()
        loss.backward()
        optimizer.step()
        total += loss.item() if mended else loss


def collected(mended: bool):
    net, outputs = nn.Linear(3, 1), []
    optimizer = sgd(net)
    for _ in range(4):
        optimizer.zero_grad()
        out = net(X)
        out.pow(2).mean().backward()
        optimizer.step()
        outputs.append(out.detach() if mended else out)


def averaged(mended: bool):
    net, average = nn.Linear(3, 1), 0
    optimizer = sgd(net)
    for _ in range(4):
        optimizer.zero_grad()
        loss = net(X).pow(2).mean()
        loss.backward()
        optimizer.step()
        average = 0.9 * average + 0.1 * (loss.detach() if mended else loss)


STEPS = [
    (bound_again, "not in the optimizer", "`net.weight` has a gradient but is in no param group"),
    (of_another_model, "no gradient to use", "`new.weight` and `new.bias` get gradients, and no optimizer holds them"),
    (inner_loop, "no gradient to use", "the graph ends at `t.detach()` (line 7 of inner_loop())"),
    (penalty, "no graph of the gradient", "which records no graph of the gradient itself"),
    (wrapped, "fresh leaf", "the graph ends at `loss.data` (line 6 of wrapped())"),
    (rounded, "zero", "the derivative of `round`, in `x.round()` (line 4 of rounded()), is 0 everywhere"),
    (added_up, "kept graph", "`total += loss.item() if mended else loss` (line 9 of added_up()) adds up losses"),
    (averaged, "kept graph", "(line 9 of averaged()) adds up losses with their history"),
    (collected, "kept graph", "The results of `net(X)` (line 6 of collected()) from 2 earlier iterations"),
]


@pytest.mark.parametrize(("program", "cause", "said"), STEPS, ids=lambda given: getattr(given, "__name__", ""))
def test_a_faulty_step_is_told_and_the_mended_one_is_right(program, cause, said):
    finding = explain_grad(lambda: program(False))
    assert finding.cause == cause, finding
    assert said in finding.text
    mended = explain_grad(lambda: program(True))
    assert mended.cause == "right", mended


def sum_of_parts():
    net = nn.Linear(3, 1)
    optimizer = sgd(net)
    for _ in range(4):
        optimizer.zero_grad()
        total = 0
        for x in X:
            total = total + net(x).pow(2).mean()
        total.backward()
        optimizer.step()


def saliency():
    net, x = nn.Linear(3, 1), X.clone().requires_grad_()
    return torch.autograd.grad(net(x).sum(), x)


def gradients_by_hand():
    net = nn.Linear(3, 1)
    optimizer, weights = sgd(net), list(net.parameters())
    for p, g in zip(weights, torch.autograd.grad(net(X).pow(2).mean(), weights), strict=True):
        p.grad = g
    optimizer.step()


def carried_state():
    cell, h = nn.GRUCell(3, 3), torch.zeros(4, 3)
    optimizer = sgd(cell)
    for _ in range(4):
        optimizer.zero_grad()
        h = cell(X, h.detach())
        h.sum().backward()
        optimizer.step()


def losses_of_samples():
    net = nn.Linear(3, 1)
    optimizer = sgd(net)
    for loss in [net(x).pow(2).mean() for x in X]:
        loss.backward()
    optimizer.step()


def two_losses_on_one_graph():
    net = nn.Linear(3, 3)
    optimizer = sgd(net)
    for _ in range(4):
        optimizer.zero_grad()
        h = net(X)
        one, two = h.pow(2).mean(), h.abs().mean()
        one.backward(retain_graph=True)
        two.backward()
        (one + two).item()
        optimizer.step()


class KeepsInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.x = nn.Linear(3, 1), None

    def forward(self, x):
        self.x = x
        return self.layer(x)


def input_in_an_attribute():
    net, x = KeepsInput(), X.clone().requires_grad_()
    optimizer = sgd(net)
    net(x).sum().backward()
    optimizer.step()


def idle_at_first():
    net = nn.Linear(3, 1)
    optimizer = sgd(net)
    optimizer.step()
    net(X).sum().backward()
    optimizer.step()


ALIKE = [losses_of_samples, two_losses_on_one_graph, input_in_an_attribute, idle_at_first]


@pytest.mark.parametrize("step", [*ALIKE, sum_of_parts, saliency, gradients_by_hand, carried_state])
def test_steps_that_look_like_these_faults_are_right(step):
    assert explain_grad(step).cause == "right"
