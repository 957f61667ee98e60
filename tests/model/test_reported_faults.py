"""Sentences of the diagnoses that a reader found to be false, one test for each kind."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from helpers.model.copies import find_copies
from helpers.model.overlap import explain_overlap
from helpers.model.views import explain_view
from helpers.model.writes import find_lost_writes

MODEL = settings.get_profile("model")


# Copies: what is advised copies nothing, and what is warned of copies


def grouped() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(1, 2, 4, 64, 16), torch.zeros(1, 2, 64, 16)


def test_a_matmul_that_broadcasts_copies_and_stride_0_is_named():
    q, k = grouped()
    found = find_copies(lambda: q @ k[:, :, None].transpose(-1, -2))
    assert "`matmul` copied 32,768 bytes inside" in found.text
    assert "dimension 2 has stride 0 in what the operator reads" in found.text
    assert found.remedy == find_copies(lambda: k[:, :, None].expand(1, 2, 4, 64, 16).reshape(1, 8, 64, 16)).remedy
    assert "a matmul mostly copies" in found.remedy


def test_what_the_remedy_for_an_expanded_dimension_advises_copies_nothing():
    q, k = grouped()
    assert find_copies(lambda: q.reshape(1, 2, 256, 16) @ k.transpose(-1, -2)).copies == ()
    assert find_copies(lambda: q * k[:, :, None].expand(1, 2, 4, 64, 16)).copies == ()
    heads = q.view(1, 8, 64, 16)
    assert find_copies(lambda: F.scaled_dot_product_attention(heads, k, k, enable_gqa=True)).copies == ()
    dropped = find_copies(lambda: F.scaled_dot_product_attention(heads, k, k, dropout_p=0.1, enable_gqa=True))
    assert dropped.facts["hidden"] == 2, "the remedy says that dropout on the CPU copies"


def test_the_sentence_of_a_reshape_has_one_number_format_and_speaks_of_no_view():
    text = find_copies(lambda: torch.zeros(64, 32).t().reshape(-1)).text
    assert "copied 8,192 bytes: dimensions 0 and 1 cannot merge" in text
    assert "view" not in text
    assert "= 64 × 32 = 2,048" in text
    assert "`reshape` copies 8,192 bytes" in explain_view(torch.zeros(64, 32).t(), 2048).text


# Lost writes through torch.nn


@pytest.mark.parametrize(
    "write",
    [
        lambda x, i: F.relu(x[i], inplace=True),
        lambda x, i: F.relu(x[i], True),
        lambda x, i: nn.ReLU(inplace=True)(x[i]),
        lambda x, i: nn.init.zeros_(x[i]),
        lambda x, i: nn.init.normal_(x[i]),
        lambda x, i: nn.init.eye_(x[i]),
        lambda x, i: F.dropout(x[i], inplace=True),
        lambda x, i: nn.Sequential(nn.Dropout(inplace=True), nn.ReLU(inplace=True))(x[i]),
    ],
)
def test_a_function_of_torch_nn_loses_a_write_as_a_method_does(write):
    def work(x, i):
        write(x, i)
        return x

    found = find_lost_writes(work, torch.ones(3, 4), torch.tensor([0]))
    assert found.facts["lost"] == 1, found.text
    assert "`x[i]` is advanced indexing" in found.text
    assert found.remedy == "Write the result back with one subscript, x[i] = …: that writes to x itself."


def test_what_torch_nn_writes_is_no_alarm_where_it_is_used_or_not_meant():
    def work(x, i):
        y = F.relu(x[i], inplace=True)
        z = nn.Dropout(inplace=True)(x[i]).sum()
        w = nn.init.zeros_(x[i])
        F.batch_norm(x, x.mean(0), x.var(0), training=True)
        nn.BatchNorm1d(4)(x * 2)
        mean = torch.zeros(4).clone()
        F.instance_norm(x[None, :, :].transpose(1, 2), mean, mean + 1)
        F.embedding(i, x.clone(), max_norm=1.0)
        F.gumbel_softmax(x * 2, hard=True)
        weight = torch.tensor([1.0, 2.0], requires_grad=True)
        bias = nn.Parameter(torch.ones(2) * 2)
        optimizer = torch.optim.SGD([weight, bias], lr=0.1)
        (weight * bias).sum().backward()
        nn.utils.clip_grad_norm_([weight, bias], 1.0)
        optimizer.step()
        return y, z, w

    found = find_lost_writes(work, torch.ones(3, 4), torch.tensor([0]))
    assert found.lost == (), found.text


# The remedy keeps the meaning


def remedy(fn) -> str:
    found = find_lost_writes(fn, torch.ones(4, 3))
    assert found.facts["lost"], found.text
    return found.remedy


def test_two_subscripts_become_one_only_where_that_means_the_same():
    def sliced(x):
        x[x[:, 0] > 0][:, 1] = 5

    def row(x):
        x[torch.tensor([1, 2])][0] = 5

    def pairs(x):
        x[[0, 1]][:, [0, 1]] = 5

    def later(x):
        x[:, [0, 1]][:, 0] = 5

    def table(x):
        index = torch.tensor([[0, 1], [2, 3]])
        x[index][:, 0] = 5

    one = "Put both into one subscript, x[x[:, 0] > 0, 1] = …: that writes to x itself."
    assert remedy(sliced) == one
    back = "Write the result back with one subscript, x[{}] = …: that writes to x itself."
    assert remedy(row) == back.format("torch.tensor([1, 2])")
    assert remedy(pairs) == back.format("[0, 1]")
    assert remedy(later) == back.format(":, [0, 1]")
    assert remedy(table) == back.format("index")


def test_the_remedy_for_a_method_out_or_a_loop_names_the_selection():
    def method(x):
        x[x > 0].fill_(0)

    def out(x):
        torch.add(x[[0]], 1, out=x[[1]])

    def loop(x):
        for part in x[[0, 1]]:
            part.add_(1)

    def twice(x):
        x[[0, 1]][[0]].zero_()

    assert "x[x > 0] = …" in remedy(method)
    assert "x[[1]] = …" in remedy(out)
    assert "x[[0, 1]] = …" in remedy(loop)
    assert "t[index] = …: that writes to the tensor t itself" in remedy(twice)


# Overlap: only a slot that another index reads makes the order matter


def test_a_slot_that_is_read_for_its_own_write_does_not_depend_on_the_order():
    x = torch.arange(9.0).view(3, 3)
    found = explain_overlap(x[0], x.diagonal())
    assert "each shared slot is read for its own write only" in found.text
    assert "torch does not refuse the write" in found.text
    assert (found.refused, found.remedy, found.facts["order_matters"]) == (False, "", False)
    row = torch.arange(3.0)
    found = explain_overlap(row.as_strided((1, 3), (3, 1)), row.as_strided((1, 3), (1, 1)))
    assert found.refused
    assert "torch refuses the write all the same" in found.text
    assert "Clone the source" in found.remedy


def test_a_column_that_is_broadcast_over_its_neighbours_depends_on_the_order():
    x = torch.arange(6.0).view(2, 3)
    found = explain_overlap(x[:, :2], x[:, 0:1].expand(2, 2))
    assert "the result can depend on the order" in found.text
    assert explain_overlap(x[:, :2], x[:, 0:1]).facts["order_matters"]
    assert explain_overlap(x[:, :1], x[:, 0:1].expand(2, 2)).facts["order_matters"] is None, "no such write exists"


@settings(MODEL, max_examples=300)
@given(st.data())
def test_the_order_matters_exactly_where_two_orders_give_two_results(data):
    shape = data.draw(st.lists(st.integers(1, 3), max_size=2))
    strides = st.lists(st.integers(0, 4), min_size=len(shape), max_size=len(shape))
    where = data.draw(strides), data.draw(st.integers(0, 4)), data.draw(strides), data.draw(st.integers(0, 4))
    t = torch.arange(1.0, 30.0)
    found = explain_overlap(t.as_strided(shape, where[0], where[1]), t.as_strided(shape, where[2], where[3]))
    if found.kind != "partial":
        return
    clean = t.clone()
    clean.as_strided(shape, where[0], where[1]).copy_(t.as_strided(shape, where[2], where[3]).clone() + 100)
    indices = [tuple(map(int, i)) for i in torch.ones(shape).nonzero()]
    changed = False
    for order in (indices, indices[::-1]):
        each = t.clone()
        for i in order:
            each.as_strided(shape, where[0], where[1])[i] = each.as_strided(shape, where[2], where[3])[i] + 100
        changed |= not torch.equal(each, clean)
    assert found.facts["order_matters"] == changed
