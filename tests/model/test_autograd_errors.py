"""`explain_error` on autograd's own errors: which tensor, saved by which node, changed by which line."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import explain_error


def has(finding, *parts: str) -> None:
    """The finding is one that the tool knows, and its sentence and remedy hold these parts."""
    assert finding.known, finding.text
    for part in parts:
        assert part.lower() in str(finding).lower(), f"{part!r} is not in: {finding}"


# Versions


def edited_result():
    x = torch.randn(3, requires_grad=True)
    fine = x * 2
    fine += 1
    h = F.relu(fine)
    h += 1
    h.sum().backward()


@pytest.mark.parametrize("operator", ["sigmoid", "tanh", "exp", "sqrt", "relu"])
def test_a_result_that_was_edited_is_named_with_both_lines(operator):
    def broken():
        x = torch.rand(3, requires_grad=True)
        h = getattr(x, operator)()
        h += 1
        h.sum().backward()

    has(explain_error(broken), "result `h` at version 0", "`h += 1` (line 4 of broken())", "to version 1", "h = h + 1")


def test_only_the_write_that_matters_is_blamed():
    has(explain_error(edited_result), "`relu` in `F.relu(fine)` (line 5", "`h += 1` (line 6", "ReluBackward0")


def test_an_input_that_was_edited_is_told_from_a_result():
    def broken():
        a = torch.ones(3, requires_grad=True)
        b = a * 2
        c = b * b
        b.mul_(5)
        c.sum().backward()

    has(explain_error(broken), "saved its input `b` at version 0", "`b.mul_(5)` (line 5", "MulBackward0")


def test_a_write_through_a_view_is_found():
    def broken():
        a = torch.ones(3, requires_grad=True)
        b = a.exp()
        b[0] = 7.0
        b.sum().backward()

    has(explain_error(broken), "`b[0] = 7.0` (line 4", "ExpBackward0")


def test_an_optimizer_step_between_two_backwards_is_blamed_and_not_the_forward():
    def broken():
        g, d = nn.Linear(2, 2), nn.Linear(2, 1)
        step = torch.optim.SGD(d.parameters(), lr=0.1)
        score = d(g(torch.randn(4, 2)))
        score.mean().backward(retain_graph=True)
        step.step()
        (-score.mean()).backward()

    has(explain_error(broken), "`d.weight`", "`step.step()` (line 6", "Nothing in your forward is in place")


def test_a_detached_alias_is_followed_to_the_write():
    def broken():
        a = torch.ones(3, requires_grad=True)
        b = a.exp()
        alias = b.detach()
        alias.zero_()
        b.sum().backward()

    has(explain_error(broken), "`alias.zero_()` (line 5", "`b`")


def test_the_conflict_is_found_for_torch_autograd_grad_too():
    def broken():
        a = torch.ones(3, requires_grad=True)
        b = a.exp()
        b += 1
        torch.autograd.grad(b.sum(), a)

    has(explain_error(broken), "`b += 1` (line 4")


# Freed graphs


def test_a_hidden_state_that_is_carried_on_is_named():
    def broken():
        rnn, h = nn.RNN(2, 3), torch.zeros(1, 1, 3)
        for _ in range(2):
            out, h = rnn(torch.randn(4, 1, 2), h)
            out.sum().backward()

    has(explain_error(broken), "`h` entered this iteration with its graph", "h = h.detach()")


def test_a_cell_loop_with_a_carried_state_is_named():
    def broken():
        cell, state = nn.GRUCell(2, 3), torch.zeros(1, 3)
        for _ in range(3):
            state = cell(torch.randn(1, 2), state)
            state.pow(2).sum().backward()

    has(explain_error(broken), "`state` entered this iteration", "detach")


def test_what_was_computed_once_before_the_loop_is_named():
    def broken():
        w = torch.randn(3, 3, requires_grad=True)
        probs = (torch.eye(3) @ w).softmax(1)
        for _ in range(2):
            loss = -probs.diagonal().log().mean()
            loss.backward()

    has(explain_error(broken), "`probs` was computed once", "line 3 of broken()", "Compute it again")


def test_the_same_loss_twice_is_said_so():
    def broken():
        loss = torch.ones(3, requires_grad=True).exp().sum()
        loss.backward()
        loss.backward()

    has(explain_error(broken), "a second time", "`loss.backward()` (line 3", "retain_graph=True")


def test_two_losses_on_one_graph_are_told():
    def broken():
        h = torch.ones(3, requires_grad=True).exp()
        h.sum().backward()
        h.mean().backward()

    has(explain_error(broken), "`h` was computed once", "line 2 of broken()")


# Losses without a graph


def test_an_argmax_is_named_and_the_later_float_is_seen_through():
    def broken():
        net = nn.Linear(4, 6)
        coord = net(torch.randn(3, 4)).argmax(dim=1).float() / 5.0
        ((coord - 0.5) ** 2).mean().backward()

    has(explain_error(broken), "argmax(dim=1)` (line 3", "int64 result cannot", "the later `float`")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (lambda x: x.detach() * 2, "x.detach()"),
        (lambda x: x.data * 2, "x.data"),
        (lambda x: (x > 0).float(), "bool result cannot"),
        (lambda x: torch.tensor(x.tolist()), ".tolist()"),
        (lambda x: torch.tensor(x.sum().item()), ".item()"),
        (lambda x: torch.from_numpy(x.detach().numpy()), "plain numbers"),
        (lambda x: x.long().float(), "int64 result cannot"),
        (lambda x: x.sort().indices.double(), "int64 result cannot"),
    ],
)
def test_the_call_at_which_a_loss_lost_its_graph_is_named(code, said):
    def broken():
        x = torch.ones(3, requires_grad=True)
        code(x).sum().backward()

    finding = explain_error(broken)
    assert said in finding.text or "detach()" in finding.text, finding
    has(finding, "has no graph")


def test_no_grad_and_inference_mode_are_named():
    def under_no_grad():
        x = torch.ones(3, requires_grad=True)
        with torch.no_grad():
            y = x * 2
        y.sum().backward()

    def under_inference():
        x = torch.ones(3, requires_grad=True)
        with torch.inference_mode():
            y = x * 2
        y.sum().backward()

    has(explain_error(under_no_grad), "ran under no_grad", "line 4")
    has(explain_error(under_inference), "inference_mode")


def test_a_loss_from_plain_inputs_is_said_to_have_none_that_requires_grad():
    has(explain_error(lambda: torch.ones(3).sum().backward()), "nothing that it was computed from requires grad")


def test_more_than_one_element_is_told_with_the_remedy():
    has(explain_error(lambda: torch.ones(3, requires_grad=True).mul(2).backward()), "more than one element", "sum()")


def test_parameters_that_took_no_part_are_named_with_their_module():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.main, self.aux = nn.Linear(2, 1), nn.Linear(2, 1)

        def forward(self, x):
            return self.main(x)

    def broken():
        net = Net()
        torch.autograd.grad(net(torch.randn(4, 2)).sum(), list(net.parameters()))

    has(explain_error(broken), "2 of the 4", "`net.aux.weight` and `net.aux.bias`", "`net.aux` was never used")


# In place, leaves, dtypes, inference


def test_a_write_into_a_weight_names_it():
    def broken():
        layer = nn.Linear(3, 3)
        layer.weight[:, 0] -= 1.0

    has(explain_error(broken), "a view of leaf `layer.weight`", "torch.no_grad()")


def test_a_write_into_a_leaf_names_it():
    def broken():
        w = torch.ones(3, requires_grad=True)
        w += 1

    has(explain_error(broken), "`w`, a leaf that requires grad", "torch.no_grad()")


def test_whole_numbers_are_told_to_be_the_reason():
    has(explain_error(lambda: torch.tensor([1, 2], requires_grad=True)), "whole numbers", "1.0 in place of 1")
    has(explain_error(lambda: torch.arange(3).requires_grad_()), "whole numbers")


def test_an_inference_tensor_that_must_be_saved_is_named():
    def broken():
        with torch.inference_mode():
            features = torch.randn(2, 3)
        nn.Linear(3, 1)(features).sum().backward()

    has(explain_error(broken), "`features` is an inference tensor", "line 3 of broken()", "`linear`", "no_grad")


def test_numpy_on_a_tensor_that_requires_grad_is_told():
    has(explain_error(lambda: torch.ones(2, requires_grad=True).numpy()), "can't carry its history", "detach")


def test_a_module_that_keeps_a_result_is_told_where():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x):
            self.feat = self.fc(x)
            return self.feat.sum()

    def broken():
        net = Net()
        net(torch.randn(1, 2)).backward()
        return copy.deepcopy(net)

    has(explain_error(broken), "attribute `net.feat` is not a leaf", "AddmmBackward0", "detach()")


# Custom Functions


class TwoArguments(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, training):
        return x.sign()

    @staticmethod
    def backward(ctx, grad):
        return grad


class Split(torch.autograd.Function):
    @staticmethod
    def forward(x, scale):
        return x * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return grad


class WrongShape(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, b):
        return x[:2]

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Marks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        fresh = x.repeat_interleave(2)
        ctx.mark_dirty(fresh)
        return fresh

    @staticmethod
    def backward(ctx, grad):
        return grad.view(-1, 2).sum(1)


def test_a_wrong_number_of_gradients_names_the_arguments():
    def broken():
        TwoArguments.apply(torch.randn(3, requires_grad=True), True).sum().backward()

    has(explain_error(broken), "TwoArguments.forward takes 2 arguments (x, training)", "1 value", "None for `training`")


def test_the_split_form_of_a_function_is_counted_without_ctx():
    def broken():
        Split.apply(torch.randn(3, requires_grad=True), 2.0).sum().backward()

    has(explain_error(broken), "takes 2 arguments (x, scale)", "None for `scale`")


def test_a_gradient_of_the_wrong_shape_names_the_argument():
    def broken():
        b = torch.ones(2, 1, requires_grad=True)
        WrongShape.apply(torch.ones(3, requires_grad=True), b).sum().backward()

    has(explain_error(broken), "of shape (2) for `x`, whose shape is (3)", "has the shape of its input")


def test_mark_dirty_on_a_fresh_tensor_names_it():
    has(explain_error(lambda: Marks.apply(torch.randn(3, requires_grad=True))), "ctx.mark_dirty received `fresh`")


def test_nothing_of_a_failed_run_is_kept_alive():
    import gc
    import weakref

    kept = []

    def broken():
        x = torch.randn(3, requires_grad=True)
        h = x.exp()
        kept.append(weakref.ref(h))
        h += 1
        h.sum().backward()

    explain_error(broken)
    gc.collect()
    assert kept[0]() is None
