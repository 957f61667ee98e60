"""`trace_dispatch`: compared with the profiler of torch, program by program, and with torch's own rules."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import Counter
from contextlib import nullcontext

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from helpers.model.adapter import operator_names, profiled_events, quiet_profiler, thread_keys
from helpers.model.dispatch.trace import trace_dispatch
from helpers.model.finding import HelperError
from tests.model.dispatch_programs import PROGRAMS, WRAPPING
from tests.model.dispatch_trees import BY_MACHINE, BY_RELEASE, stored, tree

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # of what torch calls beta
STORED = stored()
# The profiler leaves out its own operators, and from torch 2.15 on those that torch.library.custom_op made.
OPERATORS = {
    name.partition(".")[0]
    for name in operator_names()
    if not name.startswith(("profiler::", "course_dispatch_tests::"))
}
X = torch.ones(2, 3, requires_grad=True)


def profiled(fn) -> list[str]:
    """Return the names of all operators that the profiler saw, in the order in which they began."""

    def walk(events):
        for event in events:
            if event.name in OPERATORS:
                yield event.name
            yield from walk(event.children)

    torch.manual_seed(0)
    with quiet_profiler() as profiler:
        fn()
    return list(walk(profiled_events(profiler)))


def traced(fn) -> list[str]:
    torch.manual_seed(0)
    return [name for name in trace_dispatch(fn).operators if name in OPERATORS]


def untouched() -> bool:
    """Say whether torch is as it was before any trace."""
    method = torch._ops.OpOverload._get_dispatch
    return method.__module__ == "torch._ops" and not torch._C._dispatch_tls_is_dispatch_key_included(
        torch._C.DispatchKey.PythonDispatcher
    )


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_calls_are_those_that_the_profiler_counts(program):
    PROGRAMS[program]()  # what happens only once is over
    assert traced(PROGRAMS[program]) == profiled(PROGRAMS[program])
    assert untouched()


@pytest.mark.parametrize("program", STORED)
def test_the_tree_is_the_same_on_every_supported_release(program):
    assert tree(program) == STORED[program]


def test_every_program_has_a_stored_tree_unless_the_machine_or_the_release_decides():
    assert set(STORED) == set(PROGRAMS) - BY_MACHINE - BY_RELEASE


@pytest.mark.parametrize("program", WRAPPING)
def test_only_the_wrapping_of_a_tensor_is_not_seen(program):
    fn, unseen = WRAPPING[program]
    fn()
    assert Counter(profiled(fn)) - Counter(traced(fn)) == Counter({"aten::detach": unseen})


@pytest.mark.parametrize("program", PROGRAMS)
def test_results_are_the_same_bits_as_without_a_trace(program):
    results = []
    torch.manual_seed(0)
    plain = PROGRAMS[program]()
    torch.manual_seed(0)
    assert trace_dispatch(lambda: results.append(PROGRAMS[program]())).error == ""
    for before, after in zip(tree_leaves(plain), tree_leaves(results[0]), strict=True):
        if isinstance(before, torch.Tensor) and not before.is_meta:
            assert (before.dtype, before.layout, type(before)) == (after.dtype, after.layout, type(after))
            assert before.requires_grad == after.requires_grad
            assert torch.equal(dense(before).nan_to_num(), dense(after).nan_to_num())


def test_a_number_that_an_operator_wants_as_a_tensor_stays_exact():
    for exponent in (torch.tensor(3, dtype=torch.float16), torch.tensor([2, 3]), torch.tensor(2.5)):
        results = []
        assert trace_dispatch(lambda e=exponent, r=results: r.extend((0.1**e, 3**e))).error == ""
        assert results[0].dtype == (0.1**exponent).dtype
        assert torch.equal(results[0], 0.1**exponent)
        assert torch.equal(results[1], 3**exponent)


def dense(t: torch.Tensor) -> torch.Tensor:
    if t.is_nested:
        return torch.cat([part.flatten() for part in t.unbind()])
    return t.detach().to_dense() if t.layout is not torch.strided else t.detach().resolve_conj().resolve_neg()


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_winner_is_the_highest_key_that_is_neither_excluded_nor_a_fallthrough(program):
    for dispatch in trace_dispatch(PROGRAMS[program]).dispatches:
        asked = [rung for rung in dispatch.rungs if rung.verdict in ("masked", "wins", "below")]
        assert asked, f"no key wins at {dispatch.operator}"
        assert asked[0] == asked[0].__class__(dispatch.key, "wins"), dispatch


def test_a_plain_sum_asks_autograd_first_and_then_the_backend():
    (add,) = trace_dispatch(lambda: X + X).roots
    assert (add.operator, add.path) == ("aten::add.Tensor", "AutogradCPU → CPU")
    assert [(r.key, r.verdict) for r in add.rungs] == [
        ("AutocastCPU", "excluded"),
        ("AutogradCPU", "wins"),
        ("ADInplaceOrView", "below"),
        ("BackendSelect", "below"),
        ("CPU", "below"),
    ]
    assert [(r.key, r.verdict) for r in add.steps[1].rungs][-2:] == [("BackendSelect", "fallthrough"), ("CPU", "wins")]
    assert add.merged == ("AutogradCPU", "ADInplaceOrView", "BackendSelect", "CPU")
    assert add.arguments[0] == ("self", ("AutocastCPU", "AutogradCPU", "ADInplaceOrView", "CPU"))
    assert [step.kernel.kind for step in add.steps] == ["autograd kernel", "kernel"]
    assert "RegisterCPU" in add.steps[1].kernel.registered


def test_autograd_is_asked_without_a_gradient_and_under_no_grad_but_not_for_inference_tensors():
    paths = []
    for x in (torch.ones(2), torch.ones(2, requires_grad=True)):
        paths.append(trace_dispatch(torch.sin, x).roots[0].path)
        with torch.no_grad():
            paths.append(trace_dispatch(torch.sin, x).roots[0].path)
    assert set(paths) == {"AutogradCPU → CPU"}
    with torch.inference_mode():
        inference = torch.ones(2)
        assert trace_dispatch(torch.sin, inference).roots[0].path == "CPU"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool, torch.complex64])
def test_no_dtype_changes_the_path(dtype):
    t = torch.ones(2, dtype=dtype)
    assert trace_dispatch(torch.mul, t, t).roots[0].path == "AutogradCPU → CPU"


def test_autocast_makes_calls_of_its_own_and_autograd_hands_the_same_call_on():
    with torch.autocast("cpu", torch.bfloat16):
        (linear,) = trace_dispatch(torch.nn.functional.linear, X, torch.ones(4, 3)).roots
    assert linear.path == "AutocastCPU"
    assert [call.name for call in linear.calls] == ["aten::to", "aten::to", "aten::linear"]
    assert linear.calls[0].calls[0].path == "AutogradCPU → BackendSelect → CPU"


def test_the_unseen_step_of_a_factory_is_told_from_its_result_and_marked():
    for device, key in (("cpu", "CPU"), ("meta", "Meta")):
        (call,) = trace_dispatch(lambda device=device: torch.empty(2, device=device)).roots
        assert [(s.key, s.inferred, s.redispatch) for s in call.steps] == [
            ("BackendSelect", False, False),
            (key, True, True),
        ]
    assert repr(trace_dispatch(torch.zeros, 2)).splitlines()[1] == (
        "  aten::empty.memory_format  BackendSelect → CPU (inferred)"
    )


@pytest.mark.parametrize("program", ["nested tensor", "linear", "custom op", "powers of a number", "backward"])
def test_a_function_mode_of_the_reader_is_asked_as_without_a_trace(program):
    class Notes(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            names.append(getattr(func, "__name__", ""))
            return func(*args, **(kwargs or {}))

    def under_a_mode():
        with Notes():
            return PROGRAMS[program]()

    names: list[str] = []
    under_a_mode()
    plain, names = names, []
    assert traced(under_a_mode) == traced(PROGRAMS[program])
    assert names == plain


def test_a_custom_operator_is_seen_with_what_its_kernel_calls():
    assert trace_dispatch(PROGRAMS["custom op"]).operators[:2] == ("course_dispatch_tests::triple", "aten::mul")


def test_an_operator_without_tensors_has_a_key_of_its_own():
    trace = trace_dispatch(torch.nn.functional.conv2d, torch.ones(1, 1, 5, 5), torch.ones(1, 1, 3, 3))
    assert {d.key for d in trace.dispatches if d.operator == "aten::_nnpack_available"} == {"Undefined"}


def test_the_error_is_the_one_that_torch_raises_without_a_trace():
    def broken():
        return torch.ones(2).to_sparse().cumsum(0)

    with pytest.raises(NotImplementedError) as plain:
        broken()
    caught = []

    def catches():
        try:
            broken()
        except NotImplementedError as error:
            caught.append(str(error))

    trace = trace_dispatch(catches)
    assert caught == [str(plain.value)]
    assert trace.error == ""
    assert trace.calls[-1].failed
    assert trace.calls[-1].steps[-1].kernel is None
    assert untouched()


def test_an_error_ends_the_trace_and_is_told():
    trace = trace_dispatch(lambda: (torch.ones(2) @ torch.ones(3)).sum())
    assert trace.error.startswith("RuntimeError: inconsistent tensor size")
    assert repr(trace).splitlines()[-1] == f"raised {trace.error}"
    assert trace.calls[-1].name == "aten::dot"
    assert trace.calls[-1].failed
    assert untouched()


def test_an_interrupt_passes_and_nothing_stays_patched():
    def interrupted():
        torch.ones(2).sin()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trace_dispatch(interrupted)
    assert untouched()
    assert traced(lambda: X.sin()) == ["aten::sin"]


def test_a_trace_within_a_trace_sees_its_part_and_the_outer_one_all():
    inner = []

    def both():
        X.sin()
        inner.append(trace_dispatch(lambda: X.cos()))
        X.tan()

    assert traced(both) == ["aten::sin", "aten::cos", "aten::tan"]
    assert inner[0].operators == ("aten::cos",)
    assert untouched()


@pytest.mark.parametrize("context", [nullcontext, torch._C._EnablePythonDispatcher])
def test_what_other_threads_do_is_neither_seen_nor_disturbed_nor_disturbs(context):
    results = []

    def other():
        with context():
            results.append(torch.ones(3).exp().sum().item())
            results.append(torch.ones(2).sin().sum().item())

    def main():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return X.sin()

    assert traced(main) == ["aten::sin"]
    assert results == [pytest.approx(3 * 2.718281828), pytest.approx(2 * 0.84147098)]


def test_the_python_dispatcher_of_torch_works_as_before():
    x = torch.ones(2)
    with torch._C._EnablePythonDispatcher():
        x.sin()  # fills torch's cache
    assert traced(lambda: x.sin()) == ["aten::sin"]
    with torch._C._EnablePythonDispatcher():
        assert torch.equal(x.sin(), torch.sin(x))


def test_no_tensor_is_kept():
    refs = []

    def run():
        t = torch.ones(4)
        refs.append(weakref.ref(t))
        return t * 2

    trace = trace_dispatch(run)
    gc.collect()
    assert trace.operators
    assert refs[0]() is None


def test_the_thread_has_the_same_keys_after_a_trace():
    before = thread_keys()
    trace_dispatch(lambda: X + X)
    assert thread_keys() == before


def test_a_function_that_calls_no_operator_says_so():
    assert repr(trace_dispatch(lambda: 3)) == "the lambda called no operator in this thread"


def test_a_long_trace_is_printed_in_part():
    lines = repr(trace_dispatch(lambda: [X.sin() for _ in range(200)])).splitlines()
    assert len(lines) == 61
    assert lines[-1] == "… 140 more calls"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (X, "trace_dispatch takes a function to run, and a Tensor came"),
        (None, "None came"),
        (torch.nn.Linear, "a class came"),
    ],
)
def test_what_is_no_function_is_refused_in_one_sentence(given, words):
    with pytest.raises(HelperError, match=words):
        trace_dispatch(given)


def test_a_generator_is_refused_because_nothing_of_it_has_run():
    def steps():
        yield X + X

    with pytest.raises(HelperError, match="nothing of it has run"):
        trace_dispatch(steps)
