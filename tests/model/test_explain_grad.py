"""`explain_grad`: every cause of a missing, zero or unexpected gradient gets its own sentence, with the line."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from helpers import explain_grad
from helpers.model.finding import HelperError


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor([float(v) for v in values or (1, 2, 3)], requires_grad=True)


def told(finding, cause: str, *parts: str) -> None:
    assert finding.cause == cause, finding
    for part in parts:
        assert part.lower() in str(finding).lower(), f"{part!r} is not in: {finding}"


# A tensor and a loss


def test_a_leaf_whose_gradient_is_right_is_called_right():
    x = leaf()
    loss = (x * x).sum()
    loss.backward(retain_graph=True)
    told(explain_grad(x, loss), "right", "nothing is wrong")


def test_a_backward_that_has_not_run_is_the_reason():
    x = leaf()
    told(explain_grad(x, (x * x).sum()), "no backward yet", "`x.grad` is None", "loss.backward()")


def test_a_gradient_that_was_set_to_none_is_told():
    x = leaf()
    loss = x.exp().sum()
    loss.backward()
    x.grad = None
    told(explain_grad(x, loss), "set to None", "zero_grad()")


@pytest.mark.parametrize("calls", [2, 3, 10])
def test_backward_calls_that_added_up_are_counted(calls):
    x = leaf()
    for _ in range(calls):
        (x * x).sum().backward()
    told(explain_grad(x, (x * x).sum()), "accumulated", f"{calls} times the gradient")


def test_a_scaled_gradient_and_a_foreign_one_are_told_apart():
    x = leaf()
    ((x * x).sum() / 4).backward()
    told(explain_grad(x, (x * x).sum()), "scaled", "0.25 times")
    (x.exp().sum()).backward()
    told(explain_grad(x, (x * x).sum()), "other gradients")


def test_whole_numbers_frozen_and_inference_tensors_are_told_apart():
    x = leaf()
    loss = (x * x).sum()
    told(explain_grad(torch.tensor([1, 2]), loss), "integer", "int64")
    told(explain_grad(torch.ones(2), loss), "requires_grad is False")
    with torch.inference_mode():
        t = torch.ones(2)
    told(explain_grad(t, loss), "inference tensor")


def test_a_result_is_no_leaf_and_its_leaf_is_named():
    x = leaf()
    y = x * 2
    told(explain_grad(y, y.sum()), "not a leaf", "MulBackward0", "`x`", "retain_grad()")


def test_a_name_that_was_bound_again_is_told():
    x = leaf()
    x = x.to(torch.float64)
    loss = (x**2).sum()
    loss.backward(retain_graph=True)
    told(explain_grad(x, loss), "not a leaf", "ToCopyBackward0", "a leaf without a name that did receive a gradient")


def test_a_result_that_retains_its_grad_is_judged_by_its_value():
    x = leaf()
    y = x * 2
    y.retain_grad()
    loss = y.exp().sum()
    loss.backward(retain_graph=True)
    told(explain_grad(y, loss), "right")


def test_a_tensor_that_the_loss_does_not_use_is_told():
    x, w = leaf(), leaf()
    told(explain_grad(w, x.sum()), "not used", "`w` can't be reached")


def test_a_detached_alias_in_the_loss_is_seen_without_a_watched_run():
    x, w = leaf(), leaf()
    told(explain_grad(x, (x.detach() * w).sum()), "detach", "uses the values of `x`", "MulBackward0")


def test_a_copy_that_took_the_place_of_a_leaf_is_told():
    w = leaf()
    told(explain_grad(w, (nn.Parameter(w.detach().clone()) * 2).sum()), "copy", "same values")


def test_a_loss_that_is_a_number_or_a_leaf_is_told():
    x = leaf()
    told(explain_grad(x, 3.5), "number", "3.5")
    told(explain_grad(x, torch.tensor(3.0, requires_grad=True)), "fresh leaf", "a leaf itself")
    told(explain_grad(x, torch.tensor(3.0)), "no graph")


# The line, from a watched run


@pytest.mark.parametrize(
    ("cut", "cause", "said"),
    [
        (lambda x: x.detach(), "detach", "x.detach()"),
        (lambda x: x.data, "detach", "x.data"),
        (lambda x: torch.tensor(x.tolist()), "number", ".tolist()"),
        (lambda x: torch.tensor(x.sum().item()), "number", ".item()"),
        (lambda x: x.round().int().float(), "integer", "int32"),
        (lambda x: (x > 1).float(), "integer", "bool"),
        (lambda x: torch.tensor(float(x.sum())), "number", "float()"),
        (lambda x: torch.from_numpy(x.detach().numpy()), "detach", "x.detach()"),
    ],
)
def test_a_watched_run_names_the_line_of_the_cut(cut, cause, said):
    x, w = leaf(), leaf()

    def f():
        return (cut(x) * w).sum()

    finding = explain_grad(x, f)
    told(finding, cause, said)
    assert finding.line is not None


def test_no_grad_inside_the_forward_is_named_with_its_line():
    x, w = leaf(), leaf()

    def f():
        with torch.no_grad():
            h = x * 2
        return (h * w).sum()

    finding = explain_grad(x, f)
    told(finding, "no_grad", "`x * 2` (line 3 of f())")
    assert finding.line == 3


def test_a_loss_function_that_raises_is_reported():
    def f():
        raise ValueError("mine")

    told(explain_grad(leaf(), f), "raised", "ValueError", "mine")


# Zero and not finite


@pytest.mark.parametrize(
    ("f", "node", "why"),
    [
        (lambda x: torch.relu(-x).sum(), "ReluBackward0", "0 or less"),
        (lambda x: x.round().sum(), "RoundBackward0", "derivative of round"),
        (lambda x: (x * 0).sum(), "MulBackward0", "other factor is 0"),
        (lambda x: x.clamp(max=-5).sum(), "ClampBackward1", "outside the range"),
        (lambda x: torch.sigmoid(x * 1e6).sum(), "SigmoidBackward0", "saturated"),
        (lambda x: torch.where(x > 9, x, x.detach()).sum(), "WhereBackward0", "other branch"),
    ],
)
def test_the_operator_that_makes_a_gradient_zero_is_named(f, node, why):
    x = leaf()
    finding = explain_grad(x, f(x))
    told(finding, "zero", why)
    assert node.rstrip("01") in finding.text


def test_a_dead_part_of_a_network_is_found_on_the_way_to_its_weight():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    with torch.no_grad():
        net[0].bias.fill_(-100.0)
    told(explain_grad(net[0].weight, net(torch.ones(4, 2)).sum()), "zero", "ReluBackward0")


def test_the_birth_of_a_gradient_that_is_not_finite_is_named():
    x = leaf(0, 1)
    told(explain_grad(x, x.sqrt().sum()), "not finite", "SqrtBackward0", "inf")
    told(explain_grad(x, torch.where(x > 0, x.log(), torch.zeros(2)).sum()), "not finite", "LogBackward0")


# Modules and optimizers


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.main, self.aux = nn.Linear(2, 1), nn.Linear(2, 1)

    def forward(self, x):
        return self.main(x)


def test_a_part_of_a_module_that_took_no_part_is_named():
    net = Net()
    told(explain_grad(net, net(torch.ones(4, 2)).sum()), "not used", "2 of 4", "`aux.weight` and `aux.bias`", "`aux`")


def test_modules_in_a_plain_list_are_told():
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Linear(2, 2)]
            self.last = nn.Linear(2, 1)

        def forward(self, x):
            return self.last(self.layers[0](x))

    net = Hidden()
    told(explain_grad(net, net(torch.ones(1, 2)).sum()), "plain list", "`layers` is a plain list", "ModuleList")


def test_a_module_that_is_well_and_a_frozen_one_are_told():
    net = nn.Linear(2, 1)
    loss = net(torch.ones(1, 2)).sum()
    told(explain_grad(net, loss), "no backward yet", "all 2 parameters")
    loss.backward()
    told(explain_grad(net, loss), "right")
    x = leaf(1, 2)
    net.requires_grad_(False)
    told(explain_grad(net, net(x).sum()), "requires_grad is False", "all 2 parameters")


def test_an_optimizer_that_holds_old_parameters_is_told():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net[1] = nn.Linear(2, 3)
    loss = net(torch.ones(4, 2)).sum()
    loss.backward()
    finding = explain_grad(net, loss, optimizer=optimizer)
    told(finding, "not in the optimizer", "`1.weight` and `1.bias` have a gradient", "2 parameters that no module owns")
    told(explain_grad(net[1].weight, loss, optimizer=optimizer), "not in the optimizer", "holds 4 tensors")


# A whole step


def test_a_step_with_a_replaced_head_is_told():
    def step():
        net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net[1] = nn.Linear(2, 3)
        net(torch.ones(4, 2)).sum().backward()
        optimizer.step()

    told(explain_grad(step), "not in the optimizer", "`net.1.weight`", "was replaced after the optimizer was made")


def test_a_step_whose_loss_came_from_item_is_told():
    def step():
        policy, loss = nn.Linear(3, 4), 0.0
        for _ in range(2):
            loss = loss - policy(torch.ones(1, 3)).log_softmax(1)[0, 1].item()
        loss = torch.tensor(loss, requires_grad=True)
        loss.backward()

    told(explain_grad(step), "fresh leaf", "`loss` is a leaf itself", ".item()", "line 4 of step()")


def test_a_grad_that_was_read_as_none_is_explained():
    def step():
        x = torch.ones(3, requires_grad=True)
        x = x.to(torch.float64)
        (x**2).sum().backward()
        return x.grad

    told(explain_grad(step), "not a leaf", "`x` is not a leaf", "ToCopyBackward0")


def test_a_grad_read_as_none_after_a_cut_is_explained_with_the_line():
    def step():
        w, v = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        h = w.detach() * v
        h.sum().backward()
        return w.grad

    told(explain_grad(step), "detach", "no backward reached `w`", "line 3 of step()")


def test_parameters_that_took_no_part_in_a_step_are_named():
    def step():
        net = Net()
        net(torch.ones(4, 2)).sum().backward()

    told(explain_grad(step), "not used", "`net.aux.weight` and `net.aux.bias`", "`net.aux` took no part")


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.x * grad


def test_a_value_on_ctx_that_was_changed_is_told():
    def step():
        a = torch.tensor([3.0], requires_grad=True)
        h = a * 1
        y = Square.apply(h)
        h.add_(100)
        y.sum().backward()

    told(explain_grad(step), "unchecked save", "`h.add_(100)` (line 5 of step())", "version 0 → 1", "ctx.x")


def test_an_error_in_a_step_is_explained():
    def step():
        h = torch.ones(3, requires_grad=True).exp()
        h += 1
        h.sum().backward()

    told(explain_grad(step), "raised", "`h += 1` (line 3 of step())")


def test_a_gan_step_in_the_right_order_and_a_step_without_backward_are_told():
    def right():
        g, d = nn.Linear(2, 2), nn.Linear(2, 1)
        fake = g(torch.randn(4, 2))
        d(fake.detach()).mean().backward()
        (-d(fake).mean()).backward()

    told(explain_grad(right), "right")
    told(explain_grad(lambda: torch.ones(2)), "no backward")


# Input and traces


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((3,), "3 came as t"),
        (("w",), "'w' came as t"),
        ((leaf(), "loss"), "'loss' came as loss"),
        ((leaf(), [leaf()]), "came as loss"),
        ((nn.Linear(1, 1),), "a module came without a loss"),
    ],
)
def test_wrong_input_gets_a_sentence(arguments, sentence):
    with pytest.raises(HelperError, match=sentence):
        explain_grad(*arguments)


def test_a_wrong_optimizer_gets_a_sentence():
    with pytest.raises(HelperError, match="optimizer is 3"):
        explain_grad(leaf(), leaf().sum(), optimizer=3)


def test_nothing_of_the_readers_changes():
    x = leaf()
    y = x * x
    loss = y.sum()
    before = (x.grad, x._version, y._version, x._backward_hooks, y._backward_hooks)
    explain_grad(x, loss)
    assert (x.grad, x._version, y._version, x._backward_hooks, y._backward_hooks) == before
    loss.backward()
    assert torch.equal(x.grad, 2 * x.detach())
