"""The remedies work: what a diagnosis advises is done, and the program then runs and gets the right gradient."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from helpers import explain_error, explain_grad, explore_backward
from helpers.model.finding import HelperError


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor([float(v) for v in values or (1, 2, 3)], requires_grad=True)


class Twice(torch.autograd.Function):
    """A square whose backward records no graph."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return 2 * grad * ctx.saved_tensors[0]


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        return grad.view(7)


# Pairs: a program that fails, and the same with what the remedy says


def edited_by_a_module(inplace: bool = True):
    nn.Sequential(nn.Linear(3, 3), nn.Sigmoid(), nn.ReLU(inplace))(torch.ones(2, 3)).sum().backward()


def edited_by_an_embedding(clone: bool = False):
    table = nn.Embedding(5, 3, max_norm=0.1)
    w = table.weight.clone() if clone else table.weight
    y = (w * w).sum()
    table(torch.tensor([1])).sum().backward()
    y.backward()


def edited_through_an_index(new: bool = False):
    a = leaf()
    b = a * 2
    c = b * b
    if new:
        b = torch.cat([torch.zeros(1), b[1:]])
    else:
        b[0] = 0
    c.sum().backward()


def edited_attention(new: bool = False):
    q = torch.randn(1, 1, 3, 4, requires_grad=True)
    mixed = F.scaled_dot_product_attention(q, q, q)
    if new:
        mixed = mixed + 1
    else:
        mixed += 1
    mixed.sum().backward()


def complex_loss(real: bool = False):
    loss = (leaf() * 1j).sum()
    (loss.abs() if real else loss).backward()


def wrong_shape(right: bool = False):
    (leaf() * 2).backward(torch.ones(3 if right else 2))


def optimizer_of_a_result(made_leaf: bool = False):
    w = leaf() * 1
    if made_leaf:
        w = w.detach().requires_grad_()
    torch.optim.SGD([w], lr=0.1)


def second_derivative(create_graph: bool = False):
    x = leaf()
    (grad,) = torch.autograd.grad((x**3).sum(), x, create_graph=create_graph)
    grad.sum().backward()


def derivative_of_a_filled_grad(mended: bool = False):
    x = leaf()
    loss = (x**3).sum()
    if mended:
        (grad,) = torch.autograd.grad(loss, x, create_graph=True)
        grad.sum().backward()
    else:
        loss.backward()
        x.grad.sum().backward()


def asked_after_a_cut(mended: bool = False):
    layer = nn.Linear(3, 1)
    h = layer(torch.ones(2, 3))
    if not mended:
        h = h.detach()
    torch.autograd.grad((h * leaf(1)).sum(), list(layer.parameters()))


PAIRS = [
    (edited_by_a_module, (False,), ["its result, a tensor", "`relu` in `nn.Sequential(", "give it inplace=False"]),
    (edited_by_an_embedding, (True,), ["`table.weight`", "max_norm rescales its weight", "weight.clone()"]),
    (edited_through_an_index, (True,), ["its input `b`", "`b[0] = 0` (line 8 of", "Make a new tensor"]),
    (edited_attention, (True,), ["its result `mixed`", "`mixed += 1` (line 7 of", "h = h + 1"]),
    (complex_loss, (True,), ["which is complex64", "with abs()"]),
    (wrong_shape, (True,), ["shape (2) for an output of shape (3)"]),
    (optimizer_of_a_result, (True,), ["can only change leaves", "w = w.detach().requires_grad_()"]),
    (second_derivative, (True,), ["records no graph of the gradient itself", "Pass create_graph=True"]),
    (derivative_of_a_filled_grad, (True,), ["`x.grad` (line 9", "torch.autograd.grad(loss, x, create_graph=True)"]),
    (asked_after_a_cut, (True,), ["`layer.weight` and `layer.bias`", "`h.detach()` (line 5", "Leave out detach()"]),
]


@pytest.mark.parametrize(("program", "mended", "parts"), PAIRS, ids=lambda given: getattr(given, "__name__", ""))
def test_the_cause_is_named_and_the_remedy_works(program, mended, parts):
    finding = explain_error(program)
    assert finding.known, finding
    for part in parts:
        assert part in str(finding), f"{part!r} is not in: {finding}"
    assert "raised no error" in explain_error(program, *mended).text


def test_a_backward_that_records_no_graph_is_told():
    def step():
        x = leaf()
        (grad,) = torch.autograd.grad(Twice.apply(x).sum(), x, create_graph=True)
        grad.sum().backward()

    assert "marked once_differentiable" in explain_error(step).text


def test_a_tensor_without_a_name_stands_without_backquotes():
    finding = explain_error(lambda: torch.autograd.grad(leaf().sum(), leaf()))
    assert "from the loss, a tensor of shape (3,): it was never used in this forward" in finding.text


def test_an_error_inside_the_readers_backward_is_not_taken_for_one_of_the_call():
    loss = Raises.apply(leaf()).sum()
    finding = explain_error(lambda: loss.backward())
    assert finding.text.startswith("`return grad.view(7)` (line 3 of backward()) raised RuntimeError while `loss.back")
    assert "backward raises RuntimeError" in explain_grad(next(iter(leaves_of(loss))), loss).text


def leaves_of(loss: torch.Tensor):
    node = loss.grad_fn
    while node.next_functions:
        node = node.next_functions[0][0]
    yield node.variable


def test_a_result_without_a_named_leaf_is_not_said_to_be_bound_again():
    w = torch.rand(3, requires_grad=True) * 2
    finding = explain_grad(w, w.sum())
    assert "lies a leaf that gets the gradient, and no variable here names it" in finding.text
    w = w.detach().requires_grad_()
    assert explain_grad(w, w.sum()).cause == "no backward yet"


def test_a_loss_function_that_returns_nothing_gets_a_sentence():
    def forget():
        leaf().sum()

    with pytest.raises(HelperError, match="`forget` returned None, and the loss was wanted: end it with return loss"):
        explain_grad(leaf(), forget)


# Causes that a watched run can't be sure of, and one that it can


def test_a_number_that_was_only_shown_is_not_said_to_be_the_cause():
    p, layer, x = leaf(), nn.Linear(3, 1), torch.ones(2, 3)

    def shown():
        p.norm().item()
        return layer(x).sum()

    def used():
        return (layer(x) * p.norm().item()).sum()

    for f, line in ((shown, "`p.norm().item()` (line 2 of shown())"), (used, "(line 2 of used())")):
        finding = explain_grad(p, f)
        assert finding.text.startswith(
            "Either the loss was not computed from `p`, or its value came from plain numbers"
        )
        assert line in finding.text


def test_a_metric_beside_the_loss_is_not_said_to_be_the_cause():
    model, x = nn.ModuleDict({"a": nn.Linear(3, 1), "b": nn.Linear(3, 1)}), torch.ones(2, 3)

    def f():
        (model["b"](x) > 0).float().mean().item()
        return model["a"](x).sum()

    for finding in (explain_grad(model, f), explain_grad(lambda: f().backward())):
        assert "either the loss was not computed from them, or the graph ends at" in finding.text


def test_a_parameter_that_was_frozen_during_the_forward_is_told_and_the_remedy_works():
    layer, x = nn.Linear(3, 1), torch.ones(2, 3, requires_grad=True)

    def f(frozen: bool):
        layer.requires_grad_(not frozen)
        loss = layer(x).sum()
        layer.requires_grad_(True)
        return loss

    for t in (layer.weight, layer):
        finding = explain_grad(t, lambda: f(True))
        assert "requires_grad was False when `layer(x)` (line 3 of f()) ran" in finding.text
        assert finding.remedy == "Turn requires_grad on before the forward."
        assert explain_grad(t, lambda: f(False)).cause == "no backward yet"


# Why a gradient is zero


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda x: F.relu(x - 9).sum(), "as every input of relu was 0 or less"),
        (lambda x: F.relu(x - 2)[0], "as every input of relu at which a gradient arrives was 0 or less"),
        (lambda x: x.softmax(0).sum(), "the same gradient arrives for each of its outputs, and these always sum to 1"),
        (lambda x: (x * 1e4).softmax(0)[0], "its outputs are exactly 0 or 1 (saturated)"),
        (lambda x: F.layer_norm(x, (3,)).sum(), "and their mean is always the same"),
        (lambda x: (x @ torch.zeros(3, 2)).sum(), ""),
        (lambda x: (x[None] @ torch.zeros(3, 2)).sum(), "the other matrix is 0 everywhere"),
    ],
)
def test_the_cause_of_a_zero_is_the_right_one(make, why):
    x = leaf()
    finding = explain_grad(x, make(x))
    assert finding.cause == "zero"
    assert why in finding.text


def test_a_table_of_which_only_padding_was_looked_up_is_told():
    table = nn.Embedding(5, 3, padding_idx=0)
    assert "padding_idx" in explain_grad(table.weight, table(torch.tensor([0])).sum()).text


def test_an_error_is_explained_while_a_mode_of_the_reader_is_active():
    class Passes(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Passes():
        finding = explain_error(lambda: leaf().view(7))
    assert finding.known
    assert "it holds 7 elements" in finding.text


# Programs that hide or repeat a gradient


def checkpointed(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    return checkpoint(lambda t: layer(t).exp(), x, use_reentrant=True).sum()


def test_what_a_reentrant_checkpoint_hides_is_not_called_unused():
    layer, x = nn.Linear(3, 3), torch.ones(2, 3, requires_grad=True)
    for t in (layer.weight, layer):
        finding = explain_grad(t, checkpointed(x, layer))
        assert finding.cause == "hidden by a checkpoint", finding

    def step():
        layer(x)
        checkpointed(x, layer).backward()

    assert explain_grad(step).cause == "right"
    assert explain_grad(layer.weight, checkpoint(layer, x, use_reentrant=False).sum()).cause == "other gradients"


@pytest.mark.filterwarnings("ignore:None of the inputs")
def test_a_reentrant_checkpoint_without_an_input_that_requires_grad_is_mended_by_the_remedy():
    layer, x = nn.Linear(3, 3), torch.ones(2, 3)
    finding = explain_error(lambda: checkpointed(x, layer).backward())
    assert "Inside a checkpoint, use_reentrant=False does that." in finding.remedy
    assert explain_grad(lambda: checkpoint(layer, x, use_reentrant=False).sum().backward()).cause == "right"


def test_a_gradient_that_a_helper_asks_for_is_no_backward_of_the_program():
    def step():
        x = leaf()
        loss = (x * x).sum()
        explore_backward(loss)
        explain_grad(x, loss)

    assert explain_grad(step).cause == "no backward"


def test_helpers_run_in_many_threads_at_once():
    def work(_):
        x = leaf()
        h = x * 2
        h.retain_grad()
        loss = (h * h).sum()
        steps = len(explore_backward(loss).app.flow.steps)
        return steps, h.grad, explain_grad(x, loss).cause, explain_error(lambda: x.view(7)).known

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, range(40))) == {(4, None, "no backward yet", True)}


def test_helpers_run_inside_a_backward():
    seen = []

    def look(grad):
        y = leaf()
        with torch.enable_grad():  # inside a hook grad mode is off
            loss = (y * y).sum()
        seen.append((explain_grad(y, loss).cause, explore_backward(loss).state()["mood"]))

    x = leaf()
    x.register_hook(look)
    (x * x).sum().backward()
    assert seen == [("no backward yet", "")]


# Writes that autograd does not notice


def test_a_write_through_data_between_forward_and_backward_is_told():
    def step(early: bool):
        layer = nn.Linear(3, 1)
        if early:
            layer.weight.data.mul_(0.5)
        loss = layer(torch.ones(2, 3, requires_grad=True)).sum()
        if not early:
            layer.weight.data.mul_(0.5)
        loss.backward()

    finding = explain_grad(lambda: step(False))
    assert finding.cause == "unnoticed write"
    assert "`layer.weight.data.mul_(0.5)` (line 7 of step()) changed the values of `layer.weight`" in finding.text
    assert "silently wrong" in finding.text
    assert explain_grad(lambda: step(True)).cause == "right"


def test_a_step_through_data_after_backward_is_no_fault():
    def train():
        w = leaf()
        for _ in range(3):
            (w * w).sum().backward()
            w.data -= 0.1 * w.grad
            w.grad = None

    assert explain_grad(train).cause == "right"
