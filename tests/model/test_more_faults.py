"""Faults as people report them: the cause is named, the remedy mends it, and the healthy twin is not accused."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from helpers import explain_error

X = torch.linspace(-1, 1, 12).view(4, 3)


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor([float(v) for v in values or (1, 2, 3)], requires_grad=True)


# Graphs of earlier iterations that are carried on. Each program takes whether it is mended.


def in_a_dict(mended: bool):
    cell, state = nn.GRUCell(3, 3), {"h": torch.zeros(4, 3)}
    for _ in range(3):
        if mended:
            state["h"] = state["h"].detach()
        state["h"] = cell(X, state["h"])
        state["h"].sum().backward()


def in_a_list(mended: bool):
    cell, pair = nn.LSTMCell(3, 3), [torch.zeros(4, 3), torch.zeros(4, 3)]
    for _ in range(3):
        if mended:
            pair = [t.detach() for t in pair]
        pair = list(cell(X, pair))
        pair[0].sum().backward()


@dataclass
class State:
    h: torch.Tensor


def in_a_dataclass(mended: bool):
    cell, state = nn.GRUCell(3, 3), State(torch.zeros(4, 3))
    for _ in range(3):
        if mended:
            state.h = state.h.detach()
        state.h = cell(X, state.h)
        state.h.sum().backward()


def in_a_sum(mended: bool):
    net, total = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), 0
    for step in range(3):
        if mended and step:
            total = total.detach()
        total += net(X).pow(2).mean()
        total.backward()


def under_another_name(mended: bool):
    net, prev = nn.Linear(3, 1), None
    for _ in range(3):
        if mended and prev is not None:
            prev = prev.detach()
        out = net(X).exp()
        loss = out.mean() if prev is None else (out - prev).pow(2).mean()
        loss.backward()
        prev = out


def handed_over(mended: bool):
    cell, h = nn.GRUCell(3, 3), torch.zeros(4, 3)
    for _ in range(3):
        if mended:
            h = h.detach()
        new = cell(X, h)
        new.sum().backward()
        h = new


def in_a_bank(mended: bool):
    net, bank = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), []
    for _ in range(3):
        if mended:
            bank = [t.detach() for t in bank]
        z = net(X)
        bank.append(z)
        torch.cat(bank).pow(2).sum().backward()


def in_a_replay_memory(mended: bool):
    net, memory = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1)), []
    for step in range(3):
        v = net(X[step])
        loss = v.sum() + sum(v.pow(2).sum() for _, v in memory)
        loss.backward()
        memory.append((step, v.detach() if mended else v))


CARRIED = [
    (in_a_dict, '`state["h"]` entered', 'state["h"] = state["h"].detach()'),
    (in_a_list, "`pair` entered", "detach `pair`, or each tensor in it"),
    (in_a_dataclass, "`state.h` entered", "state.h = state.h.detach()"),
    (in_a_sum, "`total` entered", "total = total.detach()"),
    (under_another_name, "`prev` entered", "prev = prev.detach()"),
    (handed_over, "`h` entered", "h = h.detach()"),
    (in_a_bank, "`bank` entered", "detach `bank`, or each tensor in it"),
    (in_a_replay_memory, "`v` entered", "Store v.detach() in place of v in `memory`"),
]


@pytest.mark.parametrize(("program", "text", "remedy"), CARRIED, ids=lambda given: getattr(given, "__name__", ""))
def test_what_carries_an_old_graph_on_is_named_and_detaching_it_helps(program, text, remedy):
    finding = explain_error(program, False)
    assert text in finding.text
    assert remedy in finding.remedy
    assert "raised no error" in explain_error(program, True).text


# Writes between forward and backward


def clipped_weight(mended: bool):
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    loss = net(X).mean()
    if mended:
        loss.backward()
    with torch.no_grad():
        net[1].weight.clamp_(-0.01, 0.01)
    if not mended:
        loss.backward()


def test_a_weight_that_is_edited_too_early_is_to_be_edited_after_backward():
    finding = explain_error(clipped_weight, False)
    assert "`net[1].weight.clamp_(-0.01, 0.01)` (line 7 of clipped_weight()) changed it in place" in finding.text
    assert finding.remedy.startswith("Change these values after the last backward")
    assert "raised no error" in explain_error(clipped_weight, True).text


def test_a_function_with_the_name_of_the_operator_in_it_is_the_reader_s():
    def clamp_():
        std = leaf().exp()
        loss = (std**2).sum()
        std.clamp_(max=2)
        loss.backward()

    finding = explain_error(clamp_)
    assert "`std.clamp_(max=2)` (line 4 of clamp_()) changed it" in finding.text
    assert "A module in that call" not in finding.remedy


# Errors of plain Python that come of autograd


def through_numpy():
    error = nn.Linear(3, 1)(X).detach().numpy() - 1
    torch.tensor((error**2).mean()).backward()


def added_numbers():
    loss, net = 0.0, nn.Linear(3, 1)
    for x in X:
        loss += net(x).item()
    loss.backward()


def assigned_backward():
    loss = nn.Linear(3, 1)(X).sum().backward()
    loss.backward()


def a_pair():
    loss = nn.LSTM(3, 3)(X)
    loss.backward()


def norm_of_none():
    net = nn.ModuleDict({"a": nn.Linear(3, 1), "b": nn.Linear(3, 1)})
    net["a"](X).sum().backward()
    return sum(p.grad.norm() for p in net.parameters())


def result_without_grad():
    w = leaf() * 2
    w.sum().backward()
    return w.grad.norm()


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.saved_tensors[0] * grad


def two_groups():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    torch.optim.SGD([{"params": net.parameters()}, {"params": net[1].parameters(), "lr": 1.0}], lr=0.1)


def state_of_another_model():
    one, two = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    torch.optim.Adam(two.parameters()).load_state_dict(torch.optim.Adam(one.parameters()).state_dict())


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (through_numpy, ".numpy() takes the numbers out"),
        (added_numbers, "made by .item() at `net(x).item()` (line 4 of added_numbers())"),
        (assigned_backward, "`loss` is None (line 3 of assigned_backward()): what it was assigned from"),
        (a_pair, "`loss` is a tuple (line 3 of a_pair()), and backward starts from one tensor"),
        (norm_of_none, "): no backward has filled the gradient of `net.b.weight`"),
        (result_without_grad, "`w` is not a leaf (grad_fn is MulBackward0)"),
        (lambda: Square.forward(None, leaf()), "forward or backward was called directly"),
        (two_groups, "lists a parameter in two groups"),
        (lambda: torch.optim.SGD([nn.Linear(3, 3)], lr=0.1), "was given something of type Linear"),
        (state_of_another_model, "with another number of parameters in a group"),
    ],
)
@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_errors_far_from_their_cause_are_known(program, said):
    finding = explain_error(program)
    assert finding.known, finding
    assert said in finding.text
