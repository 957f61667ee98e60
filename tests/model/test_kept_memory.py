"""What a tensor keeps alive beside its storage, memory that torch did not allocate, and work that stays small."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
from torch import nn

from helpers.model.adapter import weak_storage
from helpers.model.common import in_common
from helpers.model.finding import HelperError
from helpers.model.memory import block_of
from helpers.model.overlap import explain_overlap
from helpers.model.sharing import explain_storage, find_sharers


def test_a_loss_keeps_its_graph_and_its_value_does_not():
    big = torch.randn(100, 100, requires_grad=True)
    middle = big.exp()
    loss, saved = middle.sum(), weak_storage(middle)
    found = explain_storage(loss)
    assert "saving it writes nothing else; holding it also keeps the graph behind its grad_fn" in found.text
    assert "and holding it keeps nothing else" in explain_storage(loss.detach()).text
    losses = [loss]
    assert "holding it also keeps the graph" in explain_storage(losses).text
    assert "holding them also keeps the graph behind their grad_fn" in explain_storage([loss, big.sum()]).text
    assert "nothing else is kept or saved" in explain_storage([loss.detach(), torch.ones(2)]).text
    del loss, middle
    gc.collect()
    assert not saved.expired()
    losses.clear()
    gc.collect()
    assert saved.expired()


def test_a_grad_is_kept_too():
    p = torch.ones(3, requires_grad=True)
    assert "holding it keeps nothing else" in explain_storage(p).text
    p.sum().backward()
    assert "holding it also keeps its grad" in explain_storage(p).text
    half = torch.ones(4)[:2].requires_grad_()
    half.sum().backward()
    assert "keeps 2× its size; " in explain_storage(half).text
    assert "holding it also keeps its grad" in explain_storage(half).text


@pytest.mark.parametrize(
    "make",
    [lambda: torch.from_numpy(np.zeros(1000)[:4]), lambda: torch.frombuffer(bytearray(64), dtype=torch.int8, count=4)],
    ids=["array", "buffer"],
)
def test_memory_of_something_else_is_told(make):
    t = make()
    assert "holding it also keeps what owns its memory, such as a NumPy array" in explain_storage(t).text
    assert "torch did not allocate this memory, so something without a name here" in find_sharers(t).text
    own = t.clone()
    assert "NumPy" not in explain_storage(own).text + find_sharers(own).text


def test_a_named_array_is_the_owner_and_no_other_is_spoken_of():
    array = np.zeros(4)
    t = torch.from_numpy(array)
    assert "shared with `array`" in find_sharers(t).text
    assert "without a name" not in find_sharers(t).text


def test_the_tensor_behind_an_array_is_found_where_no_name_leads_to_it():
    alone = torch.zeros(1000)[:4].numpy()
    assert "is shared with a tensor without a name here" in find_sharers(alone).text.replace("are shared", "is shared")
    t = torch.zeros(4)
    array = t.numpy()
    assert "without a name" not in find_sharers(array).text
    assert "shared with `t`" in find_sharers(array).text


@pytest.mark.parametrize(
    "t",
    [
        torch.zeros(16000).unfold(0, 400, 160),
        torch.zeros(1000)[:10].expand(500, 10),
        torch.arange(6).as_strided((3, 3), (1, 1)),
    ],
    ids=["windows", "expanded", "strided"],
)
def test_no_clone_is_advised_that_would_be_larger_than_what_is_kept(t):
    found = explain_storage(t)
    clone = t.clone(memory_format=torch.contiguous_format).untyped_storage().nbytes()
    assert clone > t.untyped_storage().nbytes() == found.pinned_nbytes
    assert found.remedy == ""
    assert f"a clone() would take {clone:,}" in found.text
    assert found.used_nbytes < found.pinned_nbytes


def test_an_empty_view_keeps_its_block_and_no_ratio_is_told():
    base = torch.zeros(6)
    empty = base[3:3]
    assert "uses 0 of 24 storage bytes" in explain_storage(empty).text
    assert "keeps them all" in explain_storage(empty).text
    assert "×" not in explain_storage(empty).text + explain_storage([empty]).text
    assert base.numel() == 6


@pytest.mark.parametrize("shape", [(3, 10**9), (10**6, 10**6)], ids=["rows", "all"])
def test_sharers_of_an_expanded_tensor_cost_its_slots_and_not_its_elements(shape):
    column = torch.zeros(3 if shape[0] == 3 else 1, 1)
    t = column.expand(*shape)
    assert "shared with `column`" in find_sharers(t, among={"column": column}).text
    assert in_common(block_of(t), block_of(column)) == column.numel() * 4
    assert "one piece of memory" in find_sharers([t, t[:, 1:]]).text


def test_sharers_of_a_million_windows_are_compared_at_once():
    base = torch.zeros(10**6)
    windows = base.unfold(0, 1000, 1)
    assert in_common(block_of(windows), block_of(base)) == base.nbytes
    assert in_common(block_of(windows[:, :1]), block_of(base[999_001:])) == 0


def test_one_object_asked_by_another_expression_is_told():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    best = dict(model.named_parameters())
    found = find_sharers(best["weight"], among={"model": model})
    assert found.text.startswith("`best['weight']` and `model.weight` are one tensor;")
    saved = optimizer.state_dict()
    found = find_sharers(saved["state"][0]["exp_avg"], among=optimizer)
    assert found.text.startswith("`saved['state'][0]['exp_avg']` and `optimizer.state[…]['exp_avg']` are one tensor;")
    found = find_sharers(model.weight, among=optimizer)
    assert found.text.startswith("`model.weight` and `optimizer.param_groups[0]['params'][0]` are one tensor;")
    assert (
        find_sharers(best["weight"], among=best).text
        == "Nothing else in `among` shares the 16 bytes of `best['weight']`."
    )
    copied = {name: t.detach().clone() for name, t in best.items()}
    assert find_sharers(copied["weight"], among={"model": model}).text.startswith("Nothing in `among` shares")


def test_an_expression_in_two_parts_stands_in_parentheses():
    one, two = [torch.ones(2)], [torch.ones(2)[1:]]
    found = find_sharers(one + two, among={"two": two[0]})
    assert "`(one + two)[1]` is the same tensor object as `two`" in found.text


def test_entries_of_several_shapes_are_no_refilled_buffer():
    base = torch.zeros(4)
    assert "one piece of memory under several names" in find_sharers([base, base[:2]]).text
    buffer = np.zeros(2)
    assert "that was refilled" in find_sharers([torch.as_tensor(buffer) for _ in range(3)]).text


def test_elements_without_memory_have_no_overlap():
    t = torch.zeros(4)
    t.untyped_storage().resize_(0)
    with pytest.raises(HelperError, match="needs 16 bytes, and its storage was resized to 0"):
        explain_overlap(t)
    with pytest.raises(HelperError, match="`read` needs 16 bytes"):
        explain_overlap(torch.ones(4), t)
    assert explain_overlap(torch.ones(4)).kind == "none"


def test_a_subclass_that_refuses_every_function_is_compared_too():
    class Refusing(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise RuntimeError("no function is allowed")

    base = torch.zeros(4)
    t = base.as_subclass(Refusing)
    assert "shared with `base`" in find_sharers(t).text


def test_the_parameters_of_an_rnn_are_counted_once_and_are_not_tied():
    lstm = nn.LSTM(3, 2)
    assert find_sharers(lstm).text == "The 4 entries share memory with nothing, not even with each other."
    assert explain_storage(lstm).text.startswith("The 4 tensors of `lstm` use all 224 bytes of 4 storages:")
    tied = nn.ModuleList([lstm, lstm])
    assert "are one parameter: `tied[0].weight_ih_l0` and `tied[1].weight_ih_l0`" in find_sharers(tied).text


def test_arrays_beside_tensors_are_not_said_to_keep_nothing():
    found = explain_storage({"w": torch.zeros(3), "x": np.zeros((10, 10))[0]})
    assert found.text.endswith("nothing else of it is kept; 1 array or buffer beside the tensors was not looked at.")
    assert "not looked at" not in explain_storage({"w": torch.zeros(3)}).text


def test_a_part_with_a_graph_is_detached_before_it_is_cloned():
    layer = nn.Linear(10, 10)
    features = [torch.sigmoid(layer(torch.randn(50, 10)))[0] for _ in range(3)]
    found = explain_storage(features)
    assert found.remedy.startswith("detach().clone() each part before it is kept")
    saved = weak_storage(features[0]._base)
    kept = [f.clone() for f in features]
    del features
    assert not saved.expired()  # a clone alone holds the graph, and the graph what it saved
    kept = [f.detach().clone() for f in kept]
    assert saved.expired()
    assert explain_storage(kept).remedy == ""
    assert explain_storage([torch.zeros(9)[:2]]).remedy.startswith("clone() each part")


def test_an_owner_reads_all_that_the_entries_read():
    def entries():
        h = torch.randn(4, 3)
        head = h[1:3]
        return find_sharers({"logits": h, "probs": h.view(3, 4)}), head

    found, _ = entries()
    assert found.text == "Both entries start at the same address: they are one piece of memory under several names."
    assert found.remedy == "clone() each entry that shall be independent."


def test_only_memory_that_was_written_to_is_said_to_be_refilled():
    x = torch.zeros(3)
    assert "under several names" in find_sharers([x.detach(), x.data]).text
    x.add_(1)
    assert "that was refilled" in find_sharers([x.detach(), x.data]).text


def test_arrays_are_copied_by_copy():
    array = np.zeros(4)
    for entries in ([array, array[:2]], [array[:2], array[1:]], [array[:2], np.zeros(3), array[2:]]):
        assert "copy() " in find_sharers(entries).remedy
        assert "clone" not in find_sharers(entries).remedy
    assert "clone() " in find_sharers([torch.zeros(4)] * 2).remedy.replace("a clone()", "clone() ")
