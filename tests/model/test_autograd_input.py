"""Wrong, odd and empty input to the autograd helpers gets one sentence; code of any kind may call them."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn

from helpers import Graph, check_function, draw_graph, explain_error, explain_grad, explore_backward
from helpers.model.finding import HelperError

HELPERS = [Graph.of, draw_graph, explore_backward, explain_grad]


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor([float(v) for v in values or (1, 2, 3)], requires_grad=True)


class BadRepr:
    def __repr__(self):
        raise RuntimeError("repr")


class BadAttributes:
    def __getattr__(self, name):
        raise RuntimeError(name)


class BadEquality:
    __hash__ = None

    def __eq__(self, other):
        raise RuntimeError("eq")


class BadClass:
    @property
    def __class__(self):
        raise RuntimeError("class")


class BadTextError(Exception):
    def __str__(self):
        raise RuntimeError("str")


class BadCallable:
    def __call__(self, *inputs):
        raise BadTextError

    def __getattr__(self, name):
        raise RuntimeError(name)

    __repr__ = BadRepr.__repr__


class Uninitialized(nn.Module):
    def __init__(self):
        pass


class BadModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def named_parameters(self, *_, **__):
        raise RuntimeError("named_parameters")

    def forward(self, x):
        return self.layer(x)


ODD = [
    3, "loss", b"loss", None, 1.5, float("nan"), [], [None], {}, (), {"a": None}, [[leaf()]], [leaf().sum(), 3],
    {leaf()}, range(3), iter([1]), object, torch.Tensor, torch, torch.float32, torch.device("cpu"), torch.tensor(3),
    BadRepr(), BadAttributes(), BadEquality(), {BadRepr(): 1}, {"a": BadRepr()},
]  # fmt: skip


@pytest.mark.parametrize("given", ODD, ids=lambda given: type(given).__name__)
def test_odd_input_gets_a_sentence_or_a_finding(given):
    for helper in (*HELPERS, explain_error, check_function):
        answered(helper, given)
    loss = (leaf() * 2).sum()
    answered(explain_grad, leaf(), given)
    answered(explain_grad, nn.Linear(2, 2), given)
    answered(explain_grad, given, loss)
    answered(Graph.of(loss).find, given)
    answered(check_function, torch.exp, given)
    for keyword in ("model", "depth", "expand"):
        answered(functools.partial(draw_graph, loss, **({"model": nn.Linear(2, 2)} | {keyword: given})))
    answered(functools.partial(explore_backward, loss, model=given))
    answered(functools.partial(explain_grad, leaf(), loss, optimizer=given))


def answered(helper, *given) -> str:
    """Return the one line that came; any other exception than HelperError fails the test."""
    try:
        answer = str(getattr(helper(*given), "text", ""))
    except HelperError as error:
        answer = str(error)
        assert answer
    assert "\n" not in answer
    return answer


def test_the_keys_of_a_dict_may_be_anything():
    assert Graph.of({1: leaf() * 2, BadRepr(): leaf() * 3}).names == ("1", "a BadRepr")


def test_odd_variables_of_the_caller_are_no_obstacle():
    class Gone:
        pass

    gone = Gone()
    proxy = weakref.proxy(gone)
    del gone
    odd = BadClass(), BadRepr(), BadAttributes(), BadEquality()
    one, two, three, four = odd
    broken, module = BadModule(), Uninitialized()
    w = leaf()
    loss = (w * w).sum()
    assert Graph.of(loss).find("w").kind == "leaf"
    assert explain_grad(w, loss).cause == "no backward yet"
    assert explore_backward(loss).state()["mood"] == ""

    def step():
        copy, bad, dead, model, empty = w, one, proxy, broken, module
        h = model(copy).exp()
        h += 1
        h.sum().backward()
        return bad, dead, empty

    assert "`h += 1` (line 4 of step())" in explain_error(step).text
    assert explain_grad(step).cause == "raised"
    del two, three, four


@pytest.mark.parametrize("module", [Uninitialized(), BadModule()])
def test_a_module_that_can_not_list_its_parameters_gets_a_sentence(module):
    loss = (leaf() * 2).sum()
    for call in (lambda: Graph.of(loss, model=module), lambda: explain_grad(module, loss)):
        with pytest.raises(HelperError, match=f"the parameters of an? {type(module).__name__} can't be listed"):
            call()


def test_a_lazy_parameter_is_told():
    module = nn.LazyLinear(2)
    assert explain_grad(module.weight, leaf().sum()).cause == "no shape yet"
    module(torch.ones(1, 3))
    assert explain_grad(module.weight, module(torch.ones(1, 3)).sum()).cause == "no backward yet"


def test_a_function_whose_error_can_not_be_read_is_told():
    for finding in (explain_error(BadCallable()), explain_grad(BadCallable()), explain_grad(leaf(), BadCallable())):
        assert "BadTextError" in finding.text
        assert "its own text can't be read" in finding.text
    assert "BadTextError" in check_function(BadCallable(), leaf()).text


def test_a_partial_is_called_by_its_function():
    def step(x):
        return x

    assert "`step` ran no backward" in explain_grad(functools.partial(step, 1)).text


# Tensors of other kinds


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_read(layout):
    t = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout, requires_grad=True)
    loss = torch.nested.to_padded_tensor(t, 0.0).sum()
    assert Graph.of(loss).find("t").outputs[0][0] == ()
    assert "svg" in draw_graph(loss).svg
    assert explain_grad(t, loss).cause == "no backward yet"
    loss.backward(retain_graph=True)
    assert explain_grad(t, loss).cause == "right"
    assert answered(explore_backward, t * 2).startswith("the tensor is nested, and backward starts from one number")


def test_meta_tensors_have_a_graph_and_no_values():
    t = torch.ones(3, device="meta", requires_grad=True)
    loss = (t * t).sum()
    assert "svg" in draw_graph(loss).svg
    assert "meta device" in answered(explain_grad, t, loss)
    assert "meta device" in answered(explore_backward, loss)


def test_a_subclass_whose_torch_function_raises_is_read():
    class Closed(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise RuntimeError("closed")

    with torch._C.DisableTorchFunctionSubclass():
        t = torch.ones(3).as_subclass(Closed).requires_grad_()
        loss = (t * t).sum()
    assert Graph.of(loss).find("t").kind == "leaf"
    assert explain_grad(t, loss).cause == "no backward yet"
    assert "svg" in draw_graph(loss).svg


def test_sparse_and_complex_gradients_are_compared():
    table = nn.Embedding(5, 3, sparse=True)
    z = torch.tensor([1 + 2j], requires_grad=True)
    for t, loss in ((table.weight, table(torch.tensor([1, 1])).sum()), (z, (z * z.conj()).real.sum())):
        loss.backward(retain_graph=True)
        assert explain_grad(t, loss).cause == "right"
        loss.backward(retain_graph=True)
        assert "is 2 times the gradient" in explain_grad(t, loss).text


def test_a_tensor_without_elements_is_told():
    empty = torch.ones(0, requires_grad=True)
    assert explain_grad(empty, (empty * 2).sum()).cause == "empty"


@pytest.mark.parametrize(("factor", "cause"), [(0.0, "zero"), (float("inf"), "not finite"), (1.0, "no backward yet")])
def test_a_chain_of_twenty_thousand_is_judged(factor, cause):
    x = leaf()
    h = x
    for _ in range(20_001):
        h = h * 1.0
    assert explain_grad(x, (h * factor).sum()).cause == cause


def test_a_graph_of_fifty_thousand_nodes_is_drawn_in_part():
    h = leaf()
    for _ in range(50_000):
        h = h * 1.0
    assert "Drawn are the first 1,000 of 50,001 boxes" in draw_graph(h).sentence


def test_the_cut_of_a_long_run_is_found_quickly():
    def step():
        h = leaf()
        for _ in range(3000):
            h = h * 1.0
        h = h.detach()
        for _ in range(3000):
            h = h * 1.0
        h.sum().backward()

    assert "`h.detach()` (line 5 of step())" in explain_error(step).text


# Code of every kind


def test_names_are_found_in_comprehensions_and_classes():
    w = leaf()
    loss = (w * w).sum()
    assert [Graph.of(loss).leaves[0].names for _ in range(1)] == [("w",)]
    assert list(explain_grad(w, loss).name for _ in range(1)) == ["w"]  # noqa: C400  # a generator is meant

    class Body:
        inner = leaf()
        names = Graph.of((inner * 2).sum()).leaves[0].names

    assert Body.names == ("inner",)


def test_names_are_found_in_async_code_generators_and_threads():
    def names():
        w = leaf()
        return Graph.of((w * w).sum()).leaves[0].names

    async def later():
        w = leaf()
        await asyncio.sleep(0)
        return Graph.of((w * w).sum()).leaves[0].names

    def one_by_one():
        w = leaf()
        yield Graph.of((w * w).sum()).leaves[0].names

    found: list = []
    thread = threading.Thread(target=lambda: found.append(names()))
    thread.start()
    thread.join()
    assert [asyncio.run(later()), *one_by_one(), *found] == [("w",)] * 3


def test_variables_that_shadow_builtins_are_names_like_others():
    list = leaf()
    tuple = (list * list).sum()
    assert Graph.of(tuple).leaves[0].names == ("list",)
    assert "`list.grad`" in explain_grad(list, tuple).text


def test_an_error_in_a_thread_is_not_called_plain_python():
    def step():
        def work():
            h = leaf().exp()
            h += 1
            h.sum().backward()

        with ThreadPoolExecutor(1) as pool:
            pool.submit(work).result()

    finding = explain_error(step)
    assert "`h.sum().backward()`" in finding.text
    assert "plain Python" not in finding.text
    assert finding.from_torch


def test_code_without_a_source_is_answered():
    code = (
        "from helpers import *; import torch; x = torch.ones(2, requires_grad=True); l = (x * x).sum(); "
        "print(draw_graph(l), explore_backward(l).state()['sentence'], explain_grad(x, l)); "
        "print(explain_error(lambda: x.exp().add_(1).sum().backward()))"
    )
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    assert " can be reached from the loss" in done.stdout  # Python 3.13 knows the source, and so the name
    assert "(line 1 of the lambda)" in done.stdout
