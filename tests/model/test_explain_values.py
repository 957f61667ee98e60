"""`explain_grad` on gradients that are there: zero, not finite, changed by hooks, or of another moment."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import explain_grad

X = torch.linspace(-1, 1, 12).view(4, 3)


def leaf(*values: float, **options) -> torch.Tensor:
    return torch.tensor([float(v) for v in values or (1, 2, 3)], requires_grad=True, **options)


def told(finding, cause: str, *parts: str) -> None:
    assert finding.cause == cause, finding
    for part in parts:
        assert part in str(finding), f"{part!r} is not in: {finding}"


# Hooks


def test_a_hook_that_makes_a_gradient_zero_is_named_and_the_remedy_works():
    for on_leaf in (False, True):
        x = leaf()
        h = x * 2
        loss = (h * h).sum()
        handle = (x if on_leaf else h).register_hook(lambda g: g * 0)
        name, change = ("x", "[8, 16, 24]") if on_leaf else ("h", "[4, 8, 12]")
        finding = explain_grad(x, loss)
        told(finding, "zero", f"a hook on `{name}` changes its gradient from {change} to [0, 0, 0]", "remove()")
        assert "does not change with it" not in finding.text
        handle.remove()
        told(explain_grad(x, loss), "no backward yet")


def test_a_hook_on_a_result_without_a_name_is_told():
    x = leaf()
    h = x * 2
    h.register_hook(lambda g: g * 0)
    loss = (h * h).sum()
    del h
    told(explain_grad(x, loss), "zero", "a hook on the result whose node is MulBackward0 changes its gradient")


def test_a_hook_is_said_where_the_gradient_is_right_and_where_it_came_later():
    w = leaf()
    loss = (w * w).sum()
    loss.backward(retain_graph=True)
    handle = w.register_hook(lambda g: g * 2)
    changed = "a hook on `w` changes its gradient from [2, 4, 6] to [4, 8, 12]"
    told(explain_grad(w, loss), "scaled", "0.5 times", changed)
    w.grad = None
    loss.backward(retain_graph=True)
    finding = explain_grad(w, loss)
    told(finding, "right", "`w.grad` is what this loss gives with its hooks", changed)
    assert "nothing is wrong" not in finding.text
    handle.remove()
    w.register_hook(lambda g: None)
    w.grad = None
    loss.backward(retain_graph=True)
    told(explain_grad(w, loss), "right", "nothing is wrong")


def test_a_backward_hook_of_a_module_is_not_taken_for_an_operator():
    layer, x = nn.Linear(3, 3), leaf()
    handle = layer.register_full_backward_hook(lambda module, into, out: (into[0] * 0,))
    told(explain_grad(x, layer(x).sum()), "zero", "a backward hook of a module made it so")
    handle.remove()
    told(explain_grad(x, layer(x).sum()), "no backward yet")


# Zero


@pytest.mark.parametrize(
    ("f", "part"),
    [
        (lambda w: w.softmax(0).sum(), "these always sum to 1"),
        (lambda w: w[:, None].log_softmax(1).sum(), "a dimension of size 1 (its result has shape (3, 1)), so it is"),
        (lambda w: F.cross_entropy(w[:, None], torch.zeros(3, dtype=torch.long)), "so it is always 0"),
        (lambda w: F.layer_norm(w, (3,)).sum(), "their mean is always the same"),
        (lambda w: torch.tanh(w * 1e6).sum(), "exactly -1 or 1 (saturated)"),
        (lambda w: F.mse_loss(w, w.detach().clone()), "its input equals its target"),
        (lambda w: (w - w).sum(), "2 gradients that are not zero are sent to `w`, and their sum is 0"),
        (lambda w: (w - w.mean()).sum(), "their sum is 0"),
        (lambda w: ((w * 0) ** 2).sum(), "which it saved, is 0 everywhere"),
    ],
)
def test_only_what_the_saved_values_show_is_said_of_a_zero(f, part):
    w = leaf()
    finding = explain_grad(w, f(w))
    told(finding, "zero", part)
    assert ("saturated" in finding.text) == ("saturated" in part)


def test_a_matrix_of_zeros_upstream_is_named():
    a, b = nn.Linear(3, 3), nn.Linear(3, 1)
    nn.init.zeros_(b.weight)
    told(explain_grad(a.weight, b(a(X)).sum()), "zero", "`b.weight` is 0 everywhere")


def test_underflow_is_told_with_its_numbers_and_the_remedy_works():
    w = leaf(1, 1, dtype=torch.float16)
    finding = explain_grad(w, (w * 1e-4 * 1e-4).sum())
    told(finding, "zero", "0.0001 × 0.0001 is too small for float16", "(underflow)", "float32", "GradScaler")
    assert "factor is 0" not in finding.text
    single = leaf(1, 1)
    told(explain_grad(single, (single * 1e-4 * 1e-4).sum()), "no backward yet")
    told(explain_grad(w, (w * 1e-4 * 1e-4).sum() * 1024), "no backward yet")


def test_underflow_of_float64_gets_another_remedy():
    w = leaf(1, 1, dtype=torch.float64)
    told(explain_grad(w, (w * 1e-200 * 1e-200).sum()), "zero", "too small for float64", "or the loss, larger")
    told(explain_grad(w, (w * 1e-200 * 1e-200).sum() * 1e200), "no backward yet")


# Not finite


def test_a_gradient_of_sqrt_at_zero_gets_a_remedy_that_works():
    x = leaf(0, 1)
    told(explain_grad(x, x.sqrt().sum()), "not finite", "inf, 0.5 leave it", "(x + 1e-8).sqrt()")
    told(explain_grad(x, (x + 1e-8).sqrt().sum()), "no backward yet")
    one = leaf(0)
    told(explain_grad(one, one.sqrt().sum()), "not finite", "and inf leaves it")


@pytest.mark.parametrize(("f", "cause", "part"), [(torch.sqrt, "not finite", "nan or inf"), (F.relu, "zero", "zero")])
def test_a_gradient_is_looked_at_when_the_graph_is_freed(f, cause, part):
    x = leaf(0, -0.0)
    loss = (f(x) ** 2 / 2).sqrt().sum() if f is torch.sqrt else (f(x) * f(x)).sum()
    loss.backward()
    told(explain_grad(x, loss), cause, f"{part}; where it became so can't be looked for", "ask before backward")


# Modules


def test_gradients_of_a_module_are_looked_at():
    net = nn.Linear(3, 1)
    loss = net(X).sum()
    loss.backward()
    told(explain_grad(net, loss), "right", "all 2 parameters", "all have a gradient")
    net.bias.grad.zero_()
    told(explain_grad(net, loss), "right", "1 of them is zero")
    net.weight.grad.zero_()
    told(explain_grad(net, loss), "zero", "all their gradients are zero")
    net.weight.grad.fill_(float("nan"))
    told(explain_grad(net, loss), "not finite", "1 of 2 gradients holds nan or inf now: that of `weight`")


def test_backward_calls_that_added_up_in_a_module_are_counted_and_the_remedy_works():
    net = nn.Linear(3, 1)
    for mended in (False, True):
        for _ in range(3):
            if mended:
                net.zero_grad()
            net(X).sum().backward()
        finding = explain_grad(net, net(X).sum())
        told(finding, "right" if mended else "accumulated")
        assert mended or "3 times the gradient of this loss" in finding.text


def test_one_parameter_stands_in_the_singular():
    net = nn.Linear(3, 1, bias=False)
    told(explain_grad(net, net(X).sum()), "no backward yet", "the only parameter of `net`, and it has no gradient yet")
    net(X).sum().backward()
    told(explain_grad(net, net(X).sum()), "right", "and it has a gradient")


# Another moment


def test_a_step_of_an_optimizer_is_the_first_cause_and_the_remedy_works():
    for function, cause in ((torch.square, "scaled"), (torch.exp, "other gradients")):
        w = leaf()
        optimizer = torch.optim.SGD([w], lr=0.3)
        function(w).sum().backward()
        told(explain_grad(w, function(w).sum()), "right")
        optimizer.step()
        finding = explain_grad(w, function(w).sum())
        told(finding, cause, "Compare before optimizer.step()")
        assert "have changed since that backward, as optimizer.step() changes" in finding.text


def test_a_module_after_a_step_is_not_accused():
    net = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(X).square().mean().backward()
    optimizer.step()
    told(explain_grad(net, lambda: net(X).square().mean()), "right", "(optimizer.step() changes parameters)")


# The cut, from a watched run


def test_the_cut_of_a_new_leaf_is_told_for_a_module_and_for_a_tensor():
    net = nn.Linear(3, 1)

    def listed():
        return torch.tensor([net(X).mean(), net(X).sum()], requires_grad=True).mean()

    def parameter():
        return nn.Parameter(net(X)).square().mean()

    def variable():
        return torch.autograd.Variable(net(X).data, requires_grad=True).square().mean()

    for f, cause, part in ((listed, "copy", "torch.stack"), (parameter, "copy", "`net(X)` (line 2 of parameter())"),
                           (variable, "detach", "`net(X).data` (line 2 of variable())")):  # fmt: skip
        for t in (net, net.weight):
            finding = explain_grad(t, f)
            told(finding, cause, part)
            assert "took no part" not in finding.text
            assert finding.line == 2


def test_numpy_is_named_as_the_exit_after_detach():
    w, v = leaf(), leaf()
    finding = explain_grad(w, lambda: (torch.from_numpy(w.detach().numpy()) * v).sum())
    told(finding, "detach", "`w.detach()`", ".numpy() takes the numbers out", "in place of .numpy()")
    assert "Leave out detach()" not in finding.remedy
    told(explain_grad(w, lambda: (w * v).sum()), "no backward yet")


def test_a_product_of_a_leaf_is_not_said_to_be_bound_again_and_the_remedy_works():
    w = torch.randn(3, requires_grad=True) * 0.01
    finding = explain_grad(w, (w * w).sum())
    told(finding, "not a leaf", "no variable here names it", "make it a leaf when it is finished")
    w = (torch.rand(3) * 2).requires_grad_()
    told(explain_grad(w, (w * w).sum()), "no backward yet")
    d = torch.randn(3, requires_grad=True).double()
    told(explain_grad(d, (d * d).sum()), "not a leaf", "`d` is what this call made of it", "final dtype")
    d = torch.randn(3, dtype=torch.float64, requires_grad=True)
    told(explain_grad(d, (d * d).sum()), "no backward yet")
