"""`explain_error` with an exception that was caught: the traceback still holds the tensors of a failed backward."""

from __future__ import annotations

import types
import unittest
from contextlib import suppress
from pathlib import Path

import pytest
import torch
import torch.nn as nn

from helpers import explain_dispatch, explain_error
from helpers.model.finding import HelperError
from tests.model.failing import caught


def edited():
    h = torch.ones(3, requires_grad=True).exp()
    h += 1
    h.sum().backward()


def twice():
    probs = torch.ones(3, requires_grad=True).exp()
    probs.sum().backward()
    probs.log().sum().backward()


def test_a_version_conflict_names_node_and_tensor_and_asks_for_a_watched_run():
    finding = explain_error(caught(edited))
    assert finding.known
    assert "ExpBackward0 saved its result `h` at version 0" in finding.text
    assert "explain_error(f)" in finding.remedy


def test_a_freed_graph_names_the_result_that_was_used_again():
    finding = explain_error(caught(twice))
    assert "ExpBackward0, which made `probs`" in finding.text
    assert "add them and call backward once" in finding.remedy


def test_unused_parameters_are_named():
    def broken():
        net = nn.ModuleDict({"main": nn.Linear(2, 1), "aux": nn.Linear(2, 1)})
        torch.autograd.grad(net["main"](torch.ones(1, 2)).sum(), list(net.parameters()))

    assert "aux.weight" in explain_error(caught(broken)).text


def test_a_loss_without_graph_promises_no_more_than_it_knows():
    finding = explain_error(caught(lambda: torch.ones(3).sum().backward()))
    assert finding.known
    assert "ended before backward, or never began" in finding.text


def test_an_error_that_needs_no_record_gets_no_call_for_one():
    finding = explain_error(caught(lambda: torch.tensor([1], requires_grad=True)))
    assert finding.known
    assert "explain_error(f)" not in finding.remedy


def test_an_unknown_error_is_said_to_be_unknown():
    finding = explain_error(caught(lambda: torch.linalg.inv(torch.zeros(2, 2))))
    assert not finding.known
    assert "explain_error(f)" in finding.remedy


def test_an_exception_without_a_traceback_is_no_crash():
    assert "ValueError" in explain_error(ValueError("mine")).text


def test_something_else_is_refused():
    with pytest.raises(HelperError, match="takes a function"):
        explain_error("RuntimeError")


class NoBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2


class Number(NoBackward):
    @staticmethod
    def backward(ctx, gradient):
        return 3


class SavesNumber(Number):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(3)
        return x * 1


class MarksLeaf(Number):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.add_(1)


def x() -> torch.Tensor:
    return torch.ones(3, requires_grad=True)


def hooked(hook):
    h = x() * 2
    h.register_hook(hook)
    h.sum().backward()


def read_a_gradient():
    h = x() * 2
    return h.grad.norm()


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (lambda: torch.add(x(), 1, out=torch.empty(3)), "such a write is not recorded"),
        (lambda: hooked(lambda g: g[:1]), "returned a gradient of another size"),
        (lambda: hooked(lambda g: 3), "returned a value of type int"),
        (lambda: torch.optim.SGD([], lr=0.1), "was given no parameters"),
        (lambda: torch.optim.SGD([x() * 2], lr=0.1), "an optimizer can only change leaves"),
        (lambda: NoBackward.apply(x()).sum().backward(), "has a forward and no backward"),
        (lambda: Number.apply(x()).sum().backward(), "returned a value of type int"),
        (lambda: Number()(x()), "calls an instance of a Function"),
        (lambda: MarksLeaf.apply(x()), "marked it dirty"),
        (lambda: SavesNumber.apply(x()), "takes tensors only"),
        (lambda: torch.func.grad(lambda t: Number.apply(t).sum())(torch.ones(3)), "forward has no ctx"),
        (lambda: setattr(nn.Linear(2, 2), "weight", torch.ones(2, 2)), "take the place of the parameter `weight`"),
        (lambda: setattr(x(), "grad", torch.ones(2)), "given a gradient of shape (2)"),
        (lambda: x().view(3).detach_(), "its base still has the history"),
        (lambda: torch.autograd.grad(x().sum(), torch.ones(2)), "does not require grad"),
        (
            lambda: torch.autograd.gradcheck(lambda t: t**3, torch.tensor([9.0], requires_grad=True)),
            "numerical and analytical derivatives differ, of output 0 by input 0",
        ),
        (read_a_gradient, "`h.grad` is None (line 3 of read_a_gradient())"),
    ],
)
@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.filterwarnings("ignore:Input #0 requires gradient")
def test_the_errors_that_readers_meet_are_known(program, said):
    finding = explain_error(program)
    assert finding.known, finding
    assert said in finding.text


def test_a_pair_that_is_carried_on_is_named_as_the_reader_wrote_it():
    def broken():
        lstm, state = nn.LSTM(2, 3), (torch.zeros(1, 1, 3), torch.zeros(1, 1, 3))
        for _ in range(2):
            out, state = lstm(torch.ones(4, 1, 2), state)
            out.sum().backward()

    finding = explain_error(broken)
    assert "`state` entered this iteration" in finding.text
    assert "detach `state`, or each tensor in it" in finding.remedy


def test_two_losses_outside_a_loop_are_not_told_to_be_computed_in_every_iteration():
    finding = explain_error(twice)
    assert "`probs` was computed once" in finding.text
    assert "Add the losses and call backward once" in finding.remedy


def mismatched():
    return torch.ones(2) @ torch.ones(3)


def library_that_tries() -> types.ModuleType:
    """Return a module of an installed package whose function catches an error of torch itself."""
    source = "def attempt(risky):\n    try:\n        risky()\n    except RuntimeError:\n        return 'failed'\n"
    module = types.ModuleType("tries")
    exec(compile(source, str(Path(torch.__file__).parent / "tries.py"), "exec"), vars(module))
    return module


def test_an_error_that_the_reader_caught_is_told():
    def careful():
        with suppress(RuntimeError):
            mismatched()

    assert explain_error(careful).text.startswith("`careful` raised no error to the outside: it caught a RuntimeError")


def test_an_error_that_a_library_caught_inside_is_none_of_the_readers():
    library = library_that_tries()
    assert explain_error(lambda: library.attempt(mismatched)).text == "The lambda raised no error."
    assert "caught" not in explain_dispatch(lambda: library.attempt(mismatched)).text


def test_an_error_that_the_reader_caught_is_told_also_where_a_library_caught_another_after_it():
    library = library_that_tries()

    def careful():
        try:
            mismatched()
        except RuntimeError:
            library.attempt(lambda: torch.ones(2).view(3))

    text = explain_error(careful).text
    assert "it caught a RuntimeError itself" in text
    assert "mismatched" in text


def test_an_error_that_a_test_expected_is_told():
    def careful():
        with unittest.TestCase().assertRaises(RuntimeError):  # noqa: PT027 - what a reader's own test does
            mismatched()

    assert "it caught a RuntimeError itself" in explain_error(careful).text
