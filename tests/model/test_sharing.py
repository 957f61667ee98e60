"""Sharing and retention: asked of live objects, checked against bytes, addresses and real files."""

from __future__ import annotations

import copy
import gc
import io
import weakref
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from helpers.model.finding import HelperError
from helpers.model.sharing import explain_storage, find_sharers


def written_by_save(obj) -> int:
    file = io.BytesIO()
    torch.save(obj, file)
    return file.tell()


# Who shares


def test_views_bases_and_aliases_are_told_apart():
    x = torch.arange(12.0)
    row = x.view(3, 4)[1]
    cut = x.detach()
    found = {s.name: s for s in find_sharers(x).sharers}
    assert set(found) == {"row", "cut"}
    assert found["row"].relation == "a view of it"
    assert (found["row"].shape, found["row"].offset, found["row"].nbytes) == ((4,), 4, 16)
    assert "without a view link" in found["cut"].relation
    assert {s.name: s.relation for s in find_sharers(row).sharers}["x"] == "its base"
    assert cut is not None


def test_arrays_and_buffers_on_the_memory_are_found():
    raw = bytearray(16)
    window = memoryview(raw)
    t = torch.frombuffer(raw, dtype=torch.float32)
    array = t.numpy()
    found = {s.name: s.kind for s in find_sharers(t).sharers}
    assert found == {"raw": "bytearray", "window": "memoryview", "array": "NumPy array"}
    assert window.nbytes == array.nbytes


def test_a_reversed_array_is_found_by_the_range_it_covers():
    array = np.zeros(6, dtype=np.float32)
    back = array[::-1]
    t = torch.from_numpy(array)
    assert {s.name for s in find_sharers(t).sharers} == {"array", "back"}
    assert back.strides == (-4,)


def test_an_array_can_be_asked_too():
    array = np.zeros(6, dtype=np.float32)
    t = torch.from_numpy(array[2:])
    found = find_sharers(array)
    assert [s.name for s in found.sharers] == ["t"]
    assert "array.copy()" in found.remedy
    assert t.shape == (4,)


def test_an_equal_copy_shares_nothing():
    x = torch.arange(12.0)
    y = x.clone()
    found = find_sharers(x)
    assert found.sharers == ()
    assert found.text == "No other name, tensor or array shares the 48 bytes of `x`."
    assert torch.equal(x, y)


def test_a_tensor_without_a_name_is_found_through_the_garbage_collector():
    def keep():
        hidden = x[1:]
        return lambda: hidden

    x = torch.arange(12.0)
    hold = [keep()]  # a closure in a list is reached by name; what an iterator holds is not
    nameless = iter([x[2:]])
    found = find_sharers(x)
    assert sorted(s.name for s in found.sharers) == ["a tensor without a name here", "hidden inside hold[0]"]
    assert next(nameless).shape == hold[0]()[1:].shape


def test_a_storage_that_only_a_graph_keeps_is_counted():
    w = torch.ones(3, requires_grad=True)
    y = w.exp()  # exp saves its own result for the backward pass
    z, plain = y.detach(), w.detach().clone()
    loss = y.sum()
    del y
    found = find_sharers(z)
    assert (found.sharers, found.unseen) == ((), 1)
    assert "1 more owner that no Python name shows, such as a graph that saved it, keeps them alive" in found.text
    loss.backward()  # frees what the graph saved
    assert find_sharers(z).unseen == 0
    assert find_sharers(plain).unseen == 0


def test_nested_holders_give_names_that_can_be_typed():
    @dataclass
    class State:
        best: dict

    class Slim:
        __slots__ = ("cache", "empty")

        def __init__(self, cache):
            self.cache = cache

    x = torch.arange(4.0)
    state = State({"w": [x[:2]]})
    slim = Slim(deque([(x[2:],)]))
    names = {s.name for s in find_sharers(x).sharers}
    assert names == {"state.best['w'][0]", "slim.cache[0][0]"}
    assert state.best["w"][0].tolist() == [0, 1]
    assert slim.cache[0][0].tolist() == [2, 3]


def test_parts_of_modules_and_optimizers_have_their_usual_names():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    saved = model.state_dict()
    found = find_sharers(saved, among=model)
    assert [s.name for s in found.sharers][:2] == ["model[0].weight", "model[0].bias"]
    weight = model[0].weight.data
    assert find_sharers(weight, among=optimizer).sharers[0].name == "optimizer.param_groups[0]['params'][0]"


def test_dicts_written_in_the_call_give_bare_names():
    x = torch.arange(4.0)
    assert find_sharers(x, {"first": x[:1]}).sharers[0].name == "first"
    mine = {"first": x[:1]}
    assert find_sharers(x, mine).sharers[0].name == "mine['first']"


def test_a_shallow_copy_of_a_model_holds_the_very_same_parameters():
    model = nn.Linear(2, 2)
    twin = copy.copy(model)
    found = find_sharers(twin, {"model": model})
    assert "`twin.weight` is the same tensor object as `model.weight` (2 of 2 entries" in found.text
    assert find_sharers(twin).facts["pairs"] == 2
    assert find_sharers(copy.deepcopy(model), {"model": model}).sharers == ()


def test_looking_runs_none_of_the_readers_code_and_survives_cycles():
    calls = []

    class Loud(dict):
        instances: ClassVar[list] = []

        @property
        def tensor(self):
            calls.append("property")

        def __getattr__(self, name):
            calls.append(name)
            raise AttributeError(name)

        def __iter__(self):
            calls.append("iter")
            return super().__iter__()

        def items(self):
            calls.append("items")
            return super().items()

        @property
        def __class__(self):
            calls.append("class")
            return dict

        def __eq__(self, other):
            calls.append("eq")
            return True

        __hash__ = None

    class Touchy(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            calls.append(func)
            return super().__torch_function__(func, types, args, kwargs)

    x = torch.arange(4.0)
    loud = Loud(a=x[1:])
    touchy = x[2:].as_subclass(Touchy)
    ring = [loud]
    ring.append(ring)
    loud["self"] = ring
    calls.clear()
    names = {s.name for s in find_sharers(x).sharers}
    explain_storage(ring)
    assert calls == []
    assert names == {"loud['a']", "touchy"}
    assert type(touchy) is Touchy


def test_looking_keeps_nothing_alive():
    x = torch.arange(4.0)
    held = [x[1:]]
    alive = [weakref.ref(x), weakref.ref(held[0])]
    results = [find_sharers(x), find_sharers(held), explain_storage(held), explain_storage(x)]
    del x, held
    gc.collect()
    assert [r() for r in alive] == [None, None]
    assert all(isinstance(str(r), str) for r in results)


def test_locals_of_the_reader_are_left_as_they_are():
    x = torch.arange(4.0)
    mine = locals()
    find_sharers(x)
    assert mine["x"] is x


def test_huge_containers_end():
    x = torch.arange(4.0)
    numbers = list(range(300_000))
    parts = [[x[i % 4 :]] for i in range(2000)]
    assert len(find_sharers(x).sharers) == 2000
    assert len(numbers) + len(parts) == 302_000


def test_nothing_to_look_at_is_one_sentence():
    for nothing in ([], {}, 3, "x", nn.ReLU(), [torch.eye(2).to_sparse()]):
        with pytest.raises(HelperError, match="find_sharers takes a tensor"):
            find_sharers(nothing)
        with pytest.raises(HelperError):
            explain_storage(nothing)


def test_no_address_stands_in_a_text():
    x = torch.arange(4.0)
    views = [x[1:], x.numpy(), x.detach()]
    texts = [str(find_sharers(x)), str(find_sharers(views)), str(explain_storage(views))]
    assert not any(str(x.data_ptr()) in text or hex(x.data_ptr()) in text or "0x" in text for text in texts)


# What is kept and saved


def kinds():
    big = torch.zeros(1000, 10)
    linear = nn.Linear(4, 4)
    return {
        "slice": big[3],
        "column": big[:, 2],
        "detached slice": big[3].detach(),
        "list of chunks": list(big.chunk(5)),
        "rows of different blocks": [torch.zeros(100, 4)[i] for i in range(7)],
        "expanded": torch.ones(1).expand(1000),
        "nested": {"a": [big[1], {"b": big[2]}], "c": (linear.weight,)},
        "state dict": linear.state_dict(),
        "other dtype": big.view(torch.int16)[5:7],
        "empty": big[:0],
        "0-d": big[0, 0],
    }


@pytest.mark.parametrize("kind", kinds())
def test_the_saved_bytes_are_those_of_the_file(kind):
    obj = kinds()[kind]
    found = explain_storage(obj)
    headers = written_by_save(obj) - found.saved_nbytes
    tensors = found.facts.get("tensors", 1)
    assert 0 < headers < 3000 + 600 * tensors


@pytest.mark.parametrize("kind", kinds())
def test_used_bytes_are_the_different_bytes_that_can_be_read(kind):
    obj = kinds()[kind]
    found = explain_storage(obj)
    by_storage: dict[int, set[int]] = {}
    pinned: dict[int, int] = {}

    def visit(thing):
        if isinstance(thing, torch.Tensor):
            key, size = thing.untyped_storage()._cdata, thing.element_size()
            pinned[key] = thing.untyped_storage().nbytes()
            slots = torch.arange(pinned[key] // size).as_strided(thing.shape, thing.stride(), thing.storage_offset())
            for slot in slots.flatten().tolist():
                by_storage.setdefault(key, set()).update(range(slot * size, (slot + 1) * size))
        else:
            for part in thing.values() if isinstance(thing, dict) else thing:
                visit(part)

    visit(obj)
    assert found.used_nbytes == sum(map(len, by_storage.values()))
    assert found.pinned_nbytes == sum(pinned.values())


def test_tied_weights_are_counted_once():
    model = nn.Sequential(OrderedDict(embed=nn.Embedding(10, 4), head=nn.Linear(4, 10, bias=False)))
    model.head.weight = model.embed.weight
    found = explain_storage(model)
    assert (found.pinned_nbytes, found.storages) == (160, 1)
    assert "`model.embed.weight` and `model.head.weight` lie on one storage, which is counted once" in found.text
    assert found.saved_nbytes == 160


def test_gradients_of_a_model_are_not_part_of_its_report():
    model = nn.Linear(4, 4)
    before = explain_storage(model).pinned_nbytes
    model(torch.ones(1, 4)).sum().backward()
    assert explain_storage(model).pinned_nbytes == before == 80


def test_hundreds_of_slices_name_the_worst_and_the_sum():
    kept = [torch.zeros(1000, 10)[i] for i in range(200)]
    found = explain_storage(kept)
    assert (found.used_nbytes, found.pinned_nbytes) == (8000, 8_000_000)
    assert "The 200 tensors of `kept` use 8,000 bytes and keep 8,000,000 bytes alive in 200 storages" in found.text
    assert "1,000× as much: `kept[0]` uses 40 of 40,000 storage bytes" in found.text
    assert len(found.keepers) == 200


def test_chunks_that_are_all_kept_waste_nothing_and_one_chunk_wastes_the_rest():
    block = torch.zeros(100, 10)
    parts = list(block.chunk(10))
    assert "use all 4,000 bytes of 1 storage" in explain_storage(parts).text
    one = parts[3]
    assert "`one` uses 400 of 4,000 storage bytes (storage_offset 300, 100 elements)" in explain_storage(one).text


def test_an_expanded_tensor_has_a_storage_smaller_than_its_elements():
    wide = torch.ones(1).expand(1000)
    found = explain_storage(wide)
    assert (found.used_nbytes, found.pinned_nbytes) == (4, 4)
    assert "1,000 elements, 4,000 bytes if each had its own, but uses a storage of 4 bytes" in found.text
    assert wide.clone().untyped_storage().nbytes() == 4000  # as the text says


def test_a_storage_resized_to_nothing_is_told():
    x = torch.ones(10)
    x.untyped_storage().resize_(0)
    assert "`x` has 10 elements but its storage was resized to 0 bytes" in explain_storage(x).text


def test_a_base_is_only_called_nameless_when_no_name_leads_to_it():
    a = torch.zeros(1000)
    b = a[:4]
    found = explain_storage(b)
    assert found.facts["base_name"] == "a"
    assert "no name refers to" not in found.text
    del a
    assert "b._base keeps that tensor and its storage alive" in explain_storage(b).text


def test_a_base_that_the_caller_of_the_caller_names_is_not_called_nameless():
    def report(t):
        return explain_storage(t)

    base = torch.zeros(1000)
    found = report(base[:10])
    assert found.facts["base_name"] == "base"
    assert "`t` uses 40 of 4,000 storage bytes" in found.text
    assert "no name" not in found.text
