"""Compiled functions under the tools: what is told is about the function, not about the compiler."""

from __future__ import annotations

import warnings

import pytest
import torch

from helpers import explain_dispatch, explain_grad, find_copies, find_lost_writes, trace_dispatch


@pytest.fixture(scope="module")
def doubled():
    """A compiled function that has run, so that torch.compile has made its code."""
    function = torch.compile(lambda x: (2 * torch.sin(x)).view(1, 3), backend="aot_eager", fullgraph=True)
    function(torch.ones(3))
    return function


def test_explain_dispatch_tells_of_the_operators_that_were_written(doubled):
    finding = explain_dispatch(doubled, torch.ones(3))
    assert finding.operator == "aten::sin"
    assert finding.calls == 3


def test_the_finders_run_a_compiled_function_as_it_was_written(doubled):
    assert find_copies(doubled, torch.ones(3)).copies == ()
    assert "raised" not in find_lost_writes(doubled, torch.ones(3)).text
    copying = torch.compile(lambda x: x.T.contiguous(), backend="aot_eager")
    assert [copy.kind for copy in find_copies(copying, torch.ones(2, 3)).copies] == ["contiguous"]


def test_a_watched_step_of_a_compiled_module_warns_of_nothing_of_the_tool():
    net = torch.nn.Linear(3, 1)
    compiled = torch.compile(net, backend="aot_eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "reached" in explain_grad(net.weight, lambda: compiled(torch.ones(3)).sum()).text


def test_a_trace_shows_what_the_compiled_code_calls_and_the_stance_is_as_before(doubled):
    explain_dispatch(doubled, torch.ones(3))
    assert trace_dispatch(doubled, torch.ones(3)).roots[0].operator == "aten::sin"


def test_an_export_that_fails_by_being_watched_is_not_the_readers_error():
    def export():
        return torch.export.export(torch.nn.Linear(3, 1), (torch.ones(2, 3),))

    assert "fails only while it is watched" in explain_dispatch(export).text
