"""What `find_sharers` says of things on one storage, held to what a write really shows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from helpers.model.sharing import find_sharers


def test_views_without_a_common_element_do_not_see_each_others_writes():
    base = torch.zeros(10)
    head, tail, odd, even = base[:2], base[5:], base[1::2], base[::2]
    for one, other in [(head, tail), (odd, even), (base[3:3], base)]:
        found = find_sharers(one, among={"other": other})
        assert "with no element in common: a write to one is not seen through another" in found.text
        assert found.text.startswith("The storage of ")
        assert "(40 bytes)" in found.text
    q, k, v = torch.randn(4, 12).chunk(3, 1)
    found = find_sharers(q, among={"k": k, "v": v})
    assert "no element in common" in found.text
    assert q.untyped_storage().data_ptr() == v.untyped_storage().data_ptr()


@pytest.mark.parametrize("seed", range(300))
def test_what_find_sharers_says_of_two_views_is_what_a_write_shows(seed):
    random = torch.Generator().manual_seed(seed)

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=random))

    def view(x: torch.Tensor) -> torch.Tensor:
        for _ in range(number(1, 3)):
            d = number(0, x.ndim - 1)
            if x.shape[d] > 1:
                start = number(0, x.shape[d] - 1)
                x = x.narrow(d, start, number(1, x.shape[d] - start))
            if number(0, 1) and x.ndim > 1:
                x = x.transpose(0, 1)
            if number(0, 1) and x.shape[0] > 2:
                x = x[:: number(1, 3)]
        return x

    base = torch.zeros(number(2, 6), number(2, 6))
    one, other = view(base), view(base)
    other.fill_(1)
    seen = bool(one.any())
    found = find_sharers(one, among={"other": other})
    assert ("with no element in common" in found.text) == (not seen)
    if "seen through all" in found.text:
        assert bool(one.all())
        assert one.numel() == other.numel()


def test_readers_and_neighbours_on_one_storage_are_told_apart():
    base = torch.zeros(10)
    head, first, tail = base[:4], base[:1], base[8:]
    found = find_sharers(head, among={"first": first, "tail": tail})
    assert "is shared with `first`" in found.text
    assert "it also holds `tail`" in found.text
    assert [s.name for s in found.sharers] == ["first", "tail"]


def test_a_second_name_of_one_tensor_is_told():
    first = torch.ones(3)
    second = first
    found = find_sharers(first)
    assert found.text == "`first` and `second` are one tensor; no other tensor or array shares the 12 bytes of `first`."
    assert found.also == ("second",)
    embedding, head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    head.weight = embedding.weight
    found = find_sharers(embedding.weight, among={"embedding": embedding, "head": head})
    assert found.text.startswith("`embedding.weight` and `head.weight` are one tensor;")
    assert find_sharers(torch.ones(3), among={"first": first}).also == ()
    assert second is first


def test_a_tensor_asked_by_an_expression_is_called_by_a_name_that_leads_to_it():
    holder = {"tail": None, "base": torch.ones(4)}
    holder["tail"] = holder["base"][1:]
    found = find_sharers(holder.get("base"))
    assert found.text.startswith("The 16 bytes of `holder['base']` are shared with `holder['tail']` (a view of it")
    assert found.remedy == "holder['base'].clone() has memory of its own."
    named = holder["base"]
    assert find_sharers(holder.get("base")).remedy == "named.clone() has memory of its own."
    assert named.numel() == 4


def test_parameters_on_one_block_are_tied_only_where_they_begin_together():
    flat = torch.zeros(12)
    model = nn.ParameterDict({"a": nn.Parameter(flat[:6]), "b": nn.Parameter(flat[6:])})
    assert find_sharers(model).text.startswith("Both entries lie in one block of 48 bytes, which belongs to tensor")
    model["b"] = nn.Parameter(flat[:6])
    assert find_sharers(model).text.startswith("2 of 2 entries are parameters on one memory")


def test_three_places_of_a_shared_parameter_are_named_and_more_are_counted():
    shared = nn.Linear(2, 2, bias=False)
    m = nn.ModuleList([shared] * 3)
    assert "`m[0].weight` and `m[1].weight` and `m[2].weight`; a step" in find_sharers(m).text
    m = nn.ModuleList([shared] * 5)
    assert "`m[0].weight`, `m[1].weight`, `m[2].weight` and 2 more; a step" in find_sharers(m).text


def test_a_gradient_is_no_part_of_the_tensor_that_is_asked():
    p = torch.ones(2, requires_grad=True)
    cut = p.detach()
    before = find_sharers(p).text
    p.sum().backward()
    assert find_sharers(p).text == before
    assert "`cut`" in before
    assert cut.shape == p.grad.shape


def test_the_optimizer_of_a_model_is_no_reason_to_clone():
    model = nn.Linear(2, 2)
    plain = find_sharers(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = find_sharers(model)
    assert found.text.startswith(plain.text.removesuffix("."))
    assert "; `optimizer` holds parameters among them to update them." in found.text
    assert found.remedy == ""
    weight = model.weight
    assert "param_groups" not in find_sharers(weight).text
    assert optimizer.param_groups[0]["params"][0] is weight


def test_entries_of_one_block_say_whether_they_have_elements_in_common():
    block = torch.arange(8.0)
    found = find_sharers([block[:5], block[3:]])
    assert found.text.startswith(
        "Both list entries lie in one block of 32 bytes, which belongs to tensor `block`: some of"
    )
    assert "a write to such an element is seen through each that reads it" in found.text
    assert found.remedy == "clone() each entry that shall be independent, at the moment of storing."
    apart = find_sharers([block[:3], block[3:]])
    assert "an entry kept keeps the whole block alive" in apart.text
    assert apart.remedy == "clone() an entry to cut it loose."
    found = find_sharers({"a": block[:3], "b": block[3:], "c": torch.ones(2)}, among={"d": torch.ones(2)})
    assert found.text.startswith("2 of 3 entries lie in one block, with no element in common")


def test_a_block_of_an_array_has_the_size_of_the_array():
    array = np.zeros(6)
    found = find_sharers([torch.from_numpy(array[:4]), torch.from_numpy(array[2:])])
    assert "one block of 48 bytes, which belongs to NumPy array `array`" in found.text
    assert "read the same elements" in found.text


def test_an_entry_beside_something_outside_is_not_said_to_follow_it():
    block = torch.arange(8.0)
    rest = block[4:]
    found = find_sharers([block[:2]], among={"rest": rest})
    assert "no element in common" in found.text
    assert "seen through" not in found.text


def test_arrays_with_gaps_and_backward_steps_are_compared_element_by_element():
    array = np.zeros(8)
    even, odd, back = array[::2], array[1::2], array[::-2]
    assert "no element in common" in find_sharers(even, among={"odd": odd}).text
    assert "shared with `back`" in find_sharers(odd, among={"back": back}).text
    square = np.zeros((4, 6))
    upside_down, right, upper = square[::-1, :3], square[:, 3:], square[:2]
    assert "no element in common" in find_sharers(upside_down, among={"right": right}).text
    assert "shared with `upper`" in find_sharers(upside_down, among={"upper": upper}).text
    records = np.zeros(3, dtype=[("a", "i1"), ("b", "f4")])
    assert find_sharers(records["b"], among={"records": records}).sharers
