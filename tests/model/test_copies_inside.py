"""What `find_copies` says of a copy inside an operator: its cause, and a remedy only where there is one."""

from __future__ import annotations

import copy
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers.model.copies import find_copies
from helpers.model.views import REPEATS

X = torch.randn(4, 6)
V = torch.randn(6)
ROWS = torch.tensor([0, 1])
Z = torch.randn(4, 4, dtype=torch.complex64)
SQUARE = torch.randn(5, 5) + 5 * torch.eye(5)


def kinds(fn) -> list[str]:
    return [c.kind for c in find_copies(fn).copies]


def always(fn) -> str:
    """Return what is said of a function whose copies no other layout or dtype would spare."""
    found = find_copies(fn)
    assert "made no hidden copy, only " in found.text, found.text
    assert "wanted strides" not in found.text
    assert (found.nbytes, found.remedy) == (0, "")
    return found.text


# The result starts as a copy

WRITE_TO_A_COPY = {
    "masked_fill": lambda t: t.masked_fill(t > 0, 1.0),
    "index_fill": lambda t: t.index_fill(0, ROWS, 1.0),
    "index_put": lambda t: t.index_put((ROWS,), V),
    "index_add": lambda t: t.index_add(0, ROWS, X[:2]),
    "index_copy": lambda t: t.index_copy(0, ROWS, X[:2]),
    "index_reduce": lambda t: t.index_reduce(0, ROWS, X[:2], "amax"),
    "put": lambda t: t.put(ROWS, V[:2]),
    "masked_scatter": lambda t: t.masked_scatter(t > 0, X),
    "scatter": lambda t: t.scatter(0, ROWS[None], 1.0),
    "scatter_add": lambda t: t.scatter_add(0, ROWS[None], X),
    "scatter_reduce": lambda t: t.scatter_reduce(0, ROWS[None], X, "sum"),
    "select_scatter": lambda t: t.select_scatter(V, 0, 0),
    "slice_scatter": lambda t: t.slice_scatter(X[:2], 0, 0, 2),
    "diagonal_scatter": lambda t: t.diagonal_scatter(V[:4]),
    "sort": lambda t: t.sort(),
    "msort": lambda t: t.msort(),
}


@pytest.mark.parametrize("name", WRITE_TO_A_COPY)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced"])
@pytest.mark.filterwarnings("ignore")
def test_an_operator_that_writes_to_a_copy_of_its_input_hides_nothing(name, layout):
    given = {"contiguous": X, "transposed": torch.randn(6, 4).T, "sliced": torch.randn(4, 12)[:, ::2]}[layout]
    text = always(lambda: WRITE_TO_A_COPY[name](given))
    assert "its result starts as a copy of its input, and it writes to that)" in text


def test_in_place_the_same_operators_copy_nothing():
    t = X.clone()
    assert find_copies(lambda: (t.masked_fill_(t > 0, 1.0), t.scatter_(0, ROWS[None], 1.0))).copies == ()
    assert find_copies(lambda: torch.sort(X, out=(torch.empty(4, 6), torch.empty(4, 6, dtype=torch.long)))).copies == ()


@pytest.mark.parametrize(
    "fills",
    [
        lambda: F.linear(X, X, torch.ones(4)),
        lambda: nn.GRU(6, 4)(X),
        lambda: F.linear(torch.ones(4, 6), torch.ones(4, 6), torch.ones(4)),
        lambda: F.conv2d(torch.ones(1, 3, 8, 8), torch.ones(2, 3, 3, 3), torch.ones(2)),
        lambda: X.clone().copy_(X),
        lambda: X.clone().__setitem__(slice(None), X.double()),
        lambda: X.cumsum(0) + X.tril() + X.softmax(1),
    ],
)
def test_a_step_that_fills_a_result_is_not_listed(fills):
    assert not [c for c in find_copies(fills).copies if c.kind == "inside" or "its result" in c.why]


# Operators that work on a copy


@pytest.mark.parametrize("search", [lambda t: t.kthvalue(1), lambda t: t.median(), lambda t: t.nanmedian()])
def test_a_search_works_on_a_copy_in_every_layout(search):
    for given in (X, X.T, torch.randn(4, 12)[:, ::2]):
        assert "it reorders elements while it searches, so it works on a copy" in always(
            lambda given=given: search(given)
        )


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda a: torch.linalg.solve(a, SQUARE), 2),
        (lambda a: torch.linalg.eig(a), 1),
        (lambda a: torch.linalg.eigh(a), 1),
        (lambda a: torch.linalg.svdvals(a), 1),
        (lambda a: torch.linalg.det(a), 1),
        (lambda a: torch.linalg.inv(a), 1),
        (lambda a: torch.linalg.qr(a), 1),
    ],
)
def test_the_copies_of_lapack_are_listed_and_no_layout_is_advised(function, count):
    for matrix in (SQUARE, SQUARE.mT):
        found = find_copies(lambda matrix=matrix: function(matrix))
        assert sum(c.nbytes == SQUARE.nbytes for c in found.copies) == count, found.copies
        assert found.facts["hidden"] == 0
    assert "a copy of " in always(lambda: function(SQUARE))


@pytest.mark.parametrize("works", [lambda: F.cosine_similarity(X, X), lambda: X.to_sparse(), lambda: nn.GRU(6, 4)(X)])
def test_a_copy_in_the_layout_of_its_source_blames_no_layout(works):
    assert "it works on a copy in the same layout" in always(works)


def test_another_layout_is_still_the_cause_where_it_is():
    turned, plain = find_copies(lambda: X.T.softmax(1)), find_copies(lambda: X.softmax(1))
    assert "the operator wanted strides (4, 1) for shape (6, 4), and it was given (1, 6)" in turned.text
    assert "Keep the tensor in the layout that the operator wants" in turned.remedy
    assert plain.copies == ()
    inner = find_copies(lambda: nn.MultiheadAttention(6, 2)(X, X, X))
    assert inner.facts["hidden"]
    assert "The operator made this tensor itself" in inner.remedy


@pytest.mark.parametrize(
    ("reads", "shape"),
    [
        (lambda t: t.softmax(1), (4, 6)),
        (lambda t: torch.searchsorted(torch.arange(4.0), t), (4, 6)),
        (lambda t: F.max_pool2d(t, 2), (1, 3, 8, 8)),
        (lambda t: F.conv2d(t, torch.ones(2, 3, 3, 3)), (1, 3, 8, 8)),
        (lambda t: torch.mm(t, t), (4, 4)),
    ],
)
@pytest.mark.filterwarnings("ignore:torch.searchsorted")
def test_what_the_remedy_for_a_layout_advises_spares_the_copy(reads, shape):
    spread = torch.rand(*shape[:-1], 2 * shape[-1])[..., ::2]
    found = find_copies(lambda: reads(spread))
    layout = next(c for c in found.copies if c.kind == "inside")
    assert "Keep the tensor in the layout that the operator wants" in layout.remedy
    wanted = torch.empty_strided(layout.source_shape, layout.stride).copy_(spread)
    assert find_copies(lambda: reads(wanted)).copies == ()


def test_what_an_operator_expands_itself_is_not_the_reader_s_to_fold():
    own = find_copies(lambda: torch.cartesian_prod(V, V))
    assert "dimension 1 has stride 0 in what the operator reads" in own.text
    assert "matmul" not in own.remedy
    given = find_copies(lambda: V.expand(4, 6).softmax(1))
    assert given.remedy == find_copies(lambda: V.expand(4, 6).contiguous()).remedy == REPEATS


# Conjugate and negative views


@pytest.mark.parametrize(
    "reads", [lambda: Z.conj() + Z, lambda: Z.conj() @ Z, lambda: Z.conj().mul(2), lambda: torch.exp(Z.conj())]
)
def test_a_conjugate_view_that_is_written_out_is_named(reads):
    found = find_copies(reads)
    assert "what it reads is a conjugate view, whose elements are conjugated only when they are read" in found.text
    assert "wanted strides" not in found.text
    assert found.remedy == "Where several calls read it, call resolve_conj() once and go on with its result."


def test_a_negative_view_is_named_and_the_remedy_names_its_own_call():
    minus = Z.conj().imag
    found = find_copies(lambda: minus + 1)
    assert "a negative view, whose elements get their sign only when they are read" in found.text
    assert "resolve_neg() once" in found.remedy
    solved = minus.resolve_neg()
    assert find_copies(lambda: solved + 1).copies == ()


def test_resolving_was_asked_for_and_afterwards_nothing_copies():
    found = find_copies(lambda: Z.conj().resolve_conj())
    assert kinds(lambda: Z.conj().resolve_conj()) == ["asked"]
    assert "`resolve_conj` was called on a conjugate view" in found.text
    once = Z.conj().resolve_conj()
    assert find_copies(lambda: (once + Z, once @ Z, once.resolve_conj())).copies == ()
    assert "conjugates what it is given" in always(lambda: torch.linalg.vecdot(Z, Z))
    inner = find_copies(lambda: torch.linalg.pinv(Z))
    assert not [c for c in inner.copies if "resolve_conj" in c.remedy], "what it conjugates it made itself"


# Conversions of the dtype


@pytest.mark.parametrize(
    ("mixed", "healthy"),
    [
        (lambda: X + X.double().mul_(1), lambda: X + X),
        (lambda: X.mul(X > 0), lambda: X.mul((X > 0).float())),
        (lambda: torch.where(X > 0, X, torch.zeros(1, dtype=torch.float64)), lambda: torch.where(X > 0, X, X)),
        (lambda: X.clone().add_(torch.ones(6, dtype=torch.float64)), lambda: X.clone().add_(V)),
    ],
)
def test_two_dtypes_are_told_to_become_one(mixed, healthy):
    found = find_copies(mixed)
    assert "the operator converted " in found.text
    assert found.remedy == "Bring the tensors to one dtype once, before the loop, and keep the result."
    assert find_copies(healthy).facts["hidden"] == 0


def test_one_tensor_that_is_computed_in_another_dtype_is_told_its_dtype():
    numbers = torch.arange(4)
    halves = find_copies(lambda: numbers / 2)
    assert "`div` copied 16 bytes inside (line 1 of the lambda): the operator converted int64 to float32" in halves.text
    assert "convert it to float32 once, before the loop" in halves.remedy
    assert "layout" not in halves.remedy
    assert "convert it to int64 once" in find_copies(lambda: (X > 0).sum()).remedy
    ready = numbers.float()
    assert find_copies(lambda: ready / 2).copies == ()


@pytest.mark.parametrize(
    "own", [lambda: torch.linalg.det(SQUARE), lambda: X.quantile(0.5), lambda: torch.combinations(V)]
)
def test_what_an_operator_converts_of_its_own_is_not_the_reader_s_to_mend(own):
    always(own)
    assert any("it converted a tensor that it made itself" in c.why for c in find_copies(own).copies)


def test_a_line_that_names_the_dtype_announces_the_conversion():
    half = X.half()
    found = find_copies(lambda: half.softmax(0, dtype=torch.float32))
    assert (found.facts["hidden"], found.facts["announced"]) == (0, 1)
    assert "float16 became float32" in found.text


def test_autocast_is_named_where_it_asked_for_the_dtype():
    layer = nn.Linear(6, 4)

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layer(X)

    def twice():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layer(X), layer(X)

    found = find_copies(step)
    assert "converted float32 to bfloat16, as autocast asks for" in found.text
    assert found.remedy.startswith("Put one autocast block around the whole step")
    assert find_copies(twice).nbytes == found.nbytes + X.nbytes // 2, "the parameters were converted once"


# The backward pass


def test_the_gradient_of_a_sum_that_is_written_out_is_named():
    def step(reduce):
        loss = reduce(nn.Linear(6, 5)(torch.ones(8, 6)))
        loss.backward()

    found = find_copies(step, torch.sum)
    assert "`loss.backward()` (line 3 of step()), 160 bytes: `mm` in the backward pass writes out" in found.text
    assert "a gradient of stride 0: one value for all, as that of a sum is" in found.text
    assert (found.facts["hidden"], found.remedy) == (0, "")
    assert find_copies(step, torch.mean).copies == ()


def test_a_snapshot_and_one_step_get_no_layout_to_mend():
    def fixed():
        model = nn.Linear(1, 1)
        best = copy.deepcopy(model.state_dict())
        model(torch.ones(1, 1)).sum().backward()
        return best

    found = find_copies(fixed)
    assert found.facts["hidden"] == 0
    assert "wanted strides" not in str(found)


def test_a_layout_in_the_backward_pass_is_not_mended_before_it():
    def step():
        x = torch.ones(1, 3, 8, 8).requires_grad_()
        y = F.conv2d(x, torch.ones(2, 3, 3, 3)).transpose(2, 3)
        (y * torch.ones(1, 2, 6, 6)).sum().backward()

    found = find_copies(step)
    (made,) = [c for c in found.copies if c.kind == "inside"]
    assert "in the backward pass wanted strides" in made.why
    assert found.remedy.startswith("A gradient or a saved tensor gets its layout from the calls of the forward pass")


# The reader's function ends the program


def test_a_function_that_ends_the_program_is_said_to_have_raised():
    found = find_copies(lambda: (X.T.contiguous(), sys.exit(3)))
    assert found.text.startswith("The lambda raised SystemExit at ")
    assert found.text.endswith("before it ended: 3.")
    assert found.remedy == "Leave out the call that ends the program, such as sys.exit()."
    assert [c.kind for c in found.copies] == ["contiguous"]

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_copies(interrupt)
    assert find_copies(lambda: X.T.contiguous()).facts["announced"] == 1, "the profiler was closed"
