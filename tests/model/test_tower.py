"""A tower says of each key of a call what became of it, and who brought it."""

from dataclasses import replace

import pytest
import torch

from helpers.model.adapter import Kernel
from helpers.model.dispatch.tower import Tower
from helpers.model.dispatch.trace import Dispatch, Rung, trace_dispatch
from tests.model.dispatch_programs import PROGRAMS

X = torch.ones(2, 3, requires_grad=True)


def tower(fn, *args, call: int = 0) -> Tower:
    return Tower.of([found for _, found in trace_dispatch(fn, *args).outline()][call])


def notes(found: Tower) -> dict[str, str]:
    return {floor.key: floor.note for floor in found.floors}


def test_every_key_of_a_sum_has_its_fate_and_its_carriers():
    found = tower(torch.add, X, X)
    assert [(f.key, f.step, f.note) for f in found.floors] == [
        ("AutocastCPU", 0, "left out by this thread"),
        ("AutogradCPU", 1, "autograd kernel: hands the call on"),
        ("ADInplaceOrView", 0, "left out by the kernel at AutogradCPU"),
        ("BackendSelect", 0, "passed over (fallthrough)"),
        ("CPU", 2, "kernel"),
    ]
    assert found.sources == ("self", "other", "thread")
    assert {f.key: f.carriers for f in found.floors} == {
        "AutocastCPU": ("self", "other"),
        "AutogradCPU": ("self", "other"),
        "ADInplaceOrView": ("self", "other", "thread"),
        "BackendSelect": ("thread",),
        "CPU": ("self", "other"),
    }
    assert [f.key for f in found.ran] == ["AutogradCPU", "CPU"]


def test_a_kernel_made_of_other_operators_ends_the_way_of_its_call():
    found = tower(torch.nn.functional.linear, X, torch.ones(4, 3))
    assert notes(found)["AutogradCPU"] == "math kernel, made of other operators"
    assert notes(found)["CPU"] == "not reached"


def test_autocast_is_a_kernel_like_another():
    with torch.autocast("cpu", torch.bfloat16):
        found = tower(torch.mm, X, X.T)
    assert [(f.key, f.note) for f in found.ran] == [("AutocastCPU", "kernel")]


def test_a_key_that_only_the_result_tells_is_marked():
    found = tower(torch.empty, 2)
    assert notes(found)["CPU"] == "kernel (inferred from the result)"
    assert found.sources == ("thread",)


def test_what_the_thread_left_out_stays_so_when_a_kernel_leaves_it_out_too():
    kernel = Kernel("kernel", "")
    first, second = (
        Dispatch("aten::f", key, kernel, (), (), (), (Rung("ADInplaceOrView", "excluded"), Rung(key, "wins")))
        for key in ("BackendSelect", "CPU")
    )
    call = replace(first, inner=(replace(second, redispatch=True),))
    assert notes(Tower.of(call))["ADInplaceOrView"] == "left out by this thread"


def test_a_missing_kernel_and_one_that_raised_are_told_apart():
    sparse = torch.ones(2).to_sparse()
    assert notes(tower(torch.cumsum, sparse, 0))["SparseCPU"] == "no kernel"
    failed = tower(torch.mm, torch.ones(2, 3), torch.ones(2, 3))
    assert notes(failed)["CPU"] == "kernel: it raised"


def test_a_fallback_is_called_one():
    found = tower(lambda: torch.vmap(torch.sin)(X.detach()), call=1)
    assert notes(found)["FuncTorchDynamicLayerFrontMode"] == "fallback, the same for all operators"


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_floors_stand_in_the_dispatchers_order_and_each_step_has_one(program):
    for call in trace_dispatch(PROGRAMS[program]).calls:
        found = Tower.of(call)
        assert [f.key for f in found.ran] == [step.key for step in call.steps]
        first = [rung.key for rung in call.rungs]
        assert [f.key for f in found.floors if f.key in first] == first
        assert all(f"{f.key}: " in found.sentence for f in found.floors)
