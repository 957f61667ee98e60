"""Running a function under observation: copies, lost writes, errors, and that watching changes nothing."""

from __future__ import annotations

import gc
import linecache
import weakref
from contextlib import suppress

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers.model.adapter import dispatch_mode
from helpers.model.copies import find_copies
from helpers.model.dispatch.explain import explain_dispatch
from helpers.model.dispatch.trace import trace_dispatch
from helpers.model.errors.explain import explain_error
from helpers.model.finding import HelperError
from helpers.model.writes import find_lost_writes

TOOLS = (find_copies, find_lost_writes, explain_error)


def kinds(finding) -> list[tuple[str, str]]:
    return [(copy.call.name, copy.kind) for copy in finding.copies]


# What all three have in common


@pytest.mark.parametrize("tool", TOOLS)
def test_watching_changes_no_result(tool):
    results = []

    def step(x):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.ReLU(inplace=True), nn.Linear(8, 2))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            F.mse_loss(model(x.t().contiguous()), torch.ones(3, 2)).backward()
            optimizer.step()
        results.append([p.detach().clone() for p in model.parameters()])

    x = torch.arange(12.0).view(4, 3)
    step(x)
    tool(step, x)
    assert len(results) == 2
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("tool", TOOLS)
def test_the_same_tensor_comes_back_under_watch(tool):
    def same(x):
        assert x.contiguous() is x
        assert x.to(torch.float32) is x
        assert x.add_(0) is x
        assert x.view(4)._base is x

    found = tool(same, torch.ones(4))
    assert "raised" not in found.text or found.text == "`same` raised no error."


@pytest.mark.parametrize("tool", TOOLS)
def test_watching_keeps_nothing_alive(tool):
    alive = []

    def work(x):
        alive.append(weakref.ref(x))
        made = x.t().reshape(-1)
        alive.append(weakref.ref(made))
        made[0] = 1
        return made.view(5) if tool is explain_error else made

    gc.disable()  # what only the garbage collector would free is kept too long
    try:
        found = tool(work, torch.ones(2, 3))
        assert [r() for r in alive] == [None, None]
    finally:
        gc.enable()
    assert found.text


@pytest.mark.parametrize("tool", TOOLS)
def test_a_function_that_raises_leaves_nothing_alive(tool):
    alive = []

    def fail(x):
        made = x + 1
        alive.extend([weakref.ref(x), weakref.ref(made)])
        made.view(5)

    gc.disable()
    try:
        tool(fail, torch.ones(2, 3))
        assert [r() for r in alive] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("wrong", [torch.ones(3), None, 3, "view", nn.Linear])
def test_what_is_no_function_gets_one_sentence(tool, wrong):
    with pytest.raises(HelperError, match=f"{tool.__name__} takes a function to run"):
        tool(wrong)


@pytest.mark.parametrize("tool", [find_copies, find_lost_writes])
def test_a_function_that_raises_is_said_to_have_raised(tool):
    def fail():
        torch.ones(3)
        raise KeyError("mine")

    found = tool(fail)
    assert found.text.startswith('`fail` raised KeyError at `raise KeyError("mine")` (line 3 of fail())')


def test_lines_are_counted_in_the_cell_and_no_file_is_named():
    cell = "x = torch.ones(2, 3).t()\n\ndef inner():\n    return x.view(6)\n\ny = explain_error(inner)\n"
    name = "/tmp/ipykernel_77/123.py"
    linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
    scope = {"torch": torch, "explain_error": explain_error}
    exec(compile(cell, name, "exec"), scope)
    assert "`x.view(6)` (line 2 of inner())" in scope["y"].text
    assert "ipykernel" not in str(scope["y"])


def test_without_source_the_sentence_still_names_the_call():
    scope = {"torch": torch}
    exec("def hidden():\n    return torch.ones(2, 3).t().view(6)\n", scope)
    assert "`view` (line 2 of hidden()) fails" in explain_error(scope["hidden"]).text


def test_calls_in_comprehensions_belong_to_their_function():
    def rows():
        t = torch.zeros(2, 3).t()
        return [t.view(n) for n in (6,)]

    assert "(line 3 of rows())" in explain_error(rows).text


# Copies


def test_reshape_tells_a_view_from_a_copy():
    def work():
        x = torch.ones(2, 3)
        x.reshape(6)
        x.t().reshape(6)
        x.flatten()

    found = find_copies(work)
    assert kinds(found) == [("reshape", "reshape")]
    assert found.copies[0].nbytes == 24
    assert "dimensions 0 and 1 cannot merge" in found.text.lower()
    assert found.kept == ("`x.reshape(6)` made a view", "`x.flatten()` made a view")


def test_contiguous_and_to_copy_only_when_they_must():
    def work(x):
        x.contiguous()
        x.t().contiguous()
        x.to(torch.float32)
        x.to(torch.float64)
        x.float()

    found = find_copies(work, torch.ones(2, 3))
    assert kinds(found) == [("contiguous", "contiguous"), ("to", "conversion")]
    assert [c.nbytes for c in found.copies] == [24, 48]
    assert "the strides (1, 3) became (2, 1)" in found.copies[0].why
    assert "float32 became float64" in found.copies[1].why
    assert found.kept == (
        "`x.contiguous()` returned the same tensor",
        "`x.to(torch.float32)` returned the same tensor",
        "`x.float()` returned the same tensor",
    )


def test_matmul_takes_a_transposed_operand_without_a_copy():
    a, b = torch.ones(8, 4), torch.ones(6, 4)
    found = find_copies(lambda: a @ b.t())
    assert found.copies == ()
    assert found.text == "The lambda made no hidden copy."
    assert [c.kind for c in find_copies(lambda: a[:, ::2] @ b[:, ::2].t()).copies] == ["inside", "inside"]


def test_contiguous_before_a_convolution_moves_the_copy_and_does_not_remove_it():
    x, w = torch.ones(2, 3, 8, 8).transpose(2, 3), torch.ones(4, 3, 3, 3)
    without = find_copies(lambda: F.conv2d(x, w))
    with_it = find_copies(lambda: F.conv2d(x.contiguous(), w))
    assert sum(c.nbytes for c in with_it.copies if c.source_shape == tuple(x.shape)) == 1536
    assert sum(c.nbytes for c in without.copies if c.source_shape == tuple(x.shape)) == 1536
    assert "contiguous() right before it moves the copy" in without.remedy


def test_operators_that_cannot_but_copy_are_not_called_hidden():
    x = torch.ones(4, 4)
    for fn, name in (
        (lambda: x.flip(0), "flip"),
        (lambda: x[[0, 1]], "__getitem__"),
        (lambda: torch.cat([x, x]), "cat"),
        (lambda: x.index_select(0, torch.tensor([1])), "index_select"),
    ):
        found = find_copies(fn)
        assert kinds(found) == [(name, "always")]
        assert found.facts["hidden"] == 0
    assert find_copies(lambda: x[1:, 0]).copies == ()


def test_a_clone_was_asked_for():
    found = find_copies(lambda: torch.ones(3).clone())
    assert kinds(found) == [("clone", "asked")]
    assert "made no hidden copy, only 1 that was asked for" in found.text


def test_the_module_is_named_when_a_model_is_watched_directly():
    net = nn.Sequential(nn.Softmax(dim=1))
    found = find_copies(net, torch.ones(3, 5).t())
    assert "(in Softmax.forward)" in found.text
    assert found.copies[0].nbytes == 60


def test_copies_of_the_backward_pass_stand_at_its_line():
    def step():
        x = torch.ones(4, 4, requires_grad=True)
        y = (x @ x).sum()
        y.backward()

    places = {str(c.call.place) for c in find_copies(step).copies}
    assert places == {"line 4 of step()"}


def test_a_second_profiler_is_refused_in_one_sentence():
    with torch.autograd.profiler.profile(), pytest.raises(HelperError, match="needs the profiler of torch for itself"):
        find_copies(lambda: torch.ones(3))


# Lost writes


def test_writes_that_are_read_returned_or_kept_are_not_lost():
    kept, table = [], {}

    class Box:
        pass

    box = Box()

    def work():
        x, i = torch.zeros(3, 4), torch.tensor([0, 1])
        a = x[i]
        a[0] = 1
        total = a.sum()
        x[i] += 1
        x[:, 0][x[:, 0] >= 0] = 3
        b = x.clone()
        b[0] = 2
        kept.append(b)
        table["c"] = x[i].mul_(2)
        box.d = x[i].add_(1)[0]
        e = x.clone().mul_(2)
        array = e.numpy()
        view = x.reshape(-1)
        view[0] = 7
        buffer = torch.empty(3)
        buffer.fill_(1)
        text = x[i].add_(1).tolist()
        torch.add(x, 1, out=table["c"].new_empty(3, 4)).sum()
        return total, x[i].add_(1), array.sum(), text

    found = find_lost_writes(work)
    assert found.lost == ()
    assert found.text == "`work` lost no write: no operator of torch wrote into a copy that nothing read."


def test_a_write_read_only_by_a_later_in_place_write_is_still_lost():
    def work():
        x = torch.zeros(3, 4)
        x[[0]].add_(1).mul_(2)

    (lost,) = find_lost_writes(work).lost
    assert lost.write.name == "mul_"


def test_writes_of_library_code_are_not_judged():
    def train():
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 2))
        for kind in (torch.optim.Adam, torch.optim.SGD, torch.optim.LBFGS):
            optimizer = kind(model.parameters())

            def closure():
                loss = F.cross_entropy(model(torch.ones(6, 4)), torch.zeros(6, dtype=torch.long))
                loss.backward()
                return loss

            optimizer.step(closure)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        layer(torch.ones(2, 5, 8)).sum().backward()
        x = torch.eye(3).requires_grad_()
        torch.linalg.inv(x).sum().backward()
        F.gumbel_softmax(torch.ones(3, 4), hard=True)
        F.batch_norm(torch.ones(3, 4), torch.zeros(4).clone(), torch.ones(4).clone(), training=True)

    assert find_lost_writes(train).lost == ()


def test_the_version_is_only_called_unchanged_when_it_is():
    def untouched():
        x = torch.zeros(3)
        x[[0]].add_(1)

    def touched():
        x = torch.zeros(3)
        y = x[[0]]
        x.add_(1)
        y.add_(1)

    assert "x was never touched (version still 0)" in find_lost_writes(untouched).text
    assert "it never reached x" in find_lost_writes(touched).text


def test_a_loop_is_counted_and_several_lines_are_told():
    def loop():
        x = torch.zeros(3)
        for _ in range(4):
            x[[0]].add_(1)
        x.clone().zero_()

    found = find_lost_writes(loop)
    assert "went to that temporary 4 times" in found.text
    assert "so does the write `x.clone().zero_()` (line 5 of loop())" in found.text
    assert found.facts["lost"] == 5


# Errors


def test_no_error_is_a_sentence():
    assert explain_error(lambda: torch.ones(3)).text == "The lambda raised no error."


def test_plain_python_errors_are_told_apart():
    def divide(x):
        x.sum()
        return 1 / 0

    found = explain_error(divide, torch.ones(3))
    assert not found.from_torch
    expected = (
        "`divide` raised ZeroDivisionError at `return 1 / 0` (line 3 of divide()) in plain Python, not in a torch call"
    )
    assert expected in found.text


def test_an_error_that_was_caught_before_does_not_confuse():
    def careful():
        with suppress(RuntimeError):
            torch.ones(6).view(4)
        return [][1]

    assert "in plain Python" in explain_error(careful).text


def test_an_error_raised_from_a_torch_error_explains_the_torch_error():
    def load():
        try:
            torch.ones(6).view(4)
        except RuntimeError as error:
            raise ValueError("bad batch") from error

    found = explain_error(load)
    assert found.error == "ValueError"
    assert found.text.startswith("ValueError (bad batch) was raised because a torch call had failed")
    assert "4 elements, but the tensor has 6" in found.text


def test_an_unknown_error_is_said_to_be_unknown_with_the_first_line_of_torch():
    found = explain_error(lambda: torch.linalg.inv(torch.zeros(2, 2)))
    assert not found.known
    assert "which this tool does not know; torch says: linalg.inv: The diagonal element 1 is zero" in found.text


ERRORS = {
    "wrong count": (lambda x: x.view(4, 2), ["(4, 2)", "8 elements", "has 6"]),
    "not divisible": (lambda x: x.reshape(4, -1), ["(4, -1)", "does not divide 6"]),
    "two unknown": (lambda x: x.view(-1, -1), ["2 of its sizes are -1"]),
    "incompatible": (lambda x: x.t().view(6), ["`x.t()` has shape (2, 3) and strides (1, 2)", "cannot merge"]),
    "view_as": (lambda x: x.t().view_as(torch.ones(6)), ["cannot merge"]),
    "negative step": (lambda x: x[::-1], ["`x[::-1]`", "no negative strides", "flip"]),
    "negative array": (lambda x: torch.from_numpy(np.arange(3)[::-1]), ["from_numpy", "negative strides", "copy()"]),
    "negative as_tensor": (lambda x: torch.as_tensor(np.arange(3)[::-1]), ["(-8,) in bytes"]),
    "as_strided": (lambda x: x.as_strided((4,), (2,)), ["reaches slot 6", "has 6 slots", "28 bytes needed, 24 there"]),
    "as_strided negative": (lambda x: x.as_strided((2,), (-1,)), ["asks for a negative stride"]),
    "resize": (lambda x: torch.from_numpy(np.zeros(3)).resize_(9), ["24 bytes belongs to someone else", "clone()"]),
    "resize grad": (lambda x: torch.ones(3, requires_grad=True).resize_(9), ["change the size"]),
    "dimension": (lambda x: x.transpose(0, 2), ["`x` has 2 dimensions (shape (3, 2))", "asks for dimension 2"]),
    "permute": (lambda x: x.permute(0, 1, 2), ["`x` has 2 dimensions", "names 3"]),
    "expand": (lambda x: x.expand(6, 2), ["dimension 0 of size 3 into size 6", "stride 0"]),
    "broadcast": (lambda x: x + torch.ones(3), ["shapes (3, 2) and (3,) do not broadcast", "sizes 2 and 3"]),
    "index": (lambda x: x[5], ["size 3", "from 0 to 2", "asks for 5"]),
    "expanded write": (lambda x: x[0].expand(4, 2).add_(1), ["Dimension 0", "stride 0", "8 elements are 2 slots"]),
    "narrow": (lambda x: x.narrow(0, 2, 3), ["indices 2 to 4", "the last index is 2"]),
    "unfold": (lambda x: x.unfold(0, 5, 1), ["windows of 5 in dimension 0, which has size 3"]),
    "view dtype": (lambda x: x.t()[:, :2].view(torch.float64), ["stride of 1, and it has 2"]),
    "result dtype": (lambda x: torch.ones(3, dtype=torch.int64).add_(1.5), ["Long", "Float"]),
    "matmul": (lambda x: x @ x, ["(3, 2) matrix needs a partner with 2 rows, and (3, 2) has 3"]),
    "linear": (lambda x: nn.Linear(5, 1)(x), ["must have size 5, and it has 2"]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_known_errors_name_cause_and_numbers(name):
    fn, pieces = ERRORS[name]
    found = explain_error(fn, torch.ones(3, 2))
    assert found.known, found.text
    assert all(piece in str(found) for piece in pieces), str(found)
    assert "(line 1 of the lambda)" in found.text
    assert found.text.count(". ") == 0, "one sentence"


@pytest.mark.parametrize("tool", [*TOOLS, explain_dispatch, trace_dispatch])
def test_the_function_gets_its_arguments_also_by_name(tool):
    given = []

    def add(x, *, alpha):
        given.append(alpha)
        return torch.add(x, x, alpha=alpha)

    tool(add, torch.ones(2), alpha=3)
    assert given == [3]


def test_a_dispatch_mode_of_the_reader_hides_no_copy_and_sees_no_operator_of_the_tool():
    seen = []

    class PassOn(dispatch_mode()):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = torch.arange(6.0).view(2, 3)

    def watched():
        with PassOn():
            return x.T.reshape(6)

    inside = find_copies(watched)
    with PassOn():
        outside = find_copies(lambda: x.T.reshape(6))
    assert [copy.nbytes for copy in inside.copies] == [copy.nbytes for copy in outside.copies] == [24]
    assert seen == 2 * ["aten.permute.default", "aten.clone.default", "aten._unsafe_view.default"]
