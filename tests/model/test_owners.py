"""The walk through the reader's names: what it enters, and what it must not enter."""

from __future__ import annotations

import threading

import pytest
import torch

from helpers.explore.layout import explore_layout
from helpers.model.autograd.graph import Graph
from helpers.model.owners import Walk


def met(thing) -> tuple[list[str], int]:
    """Return the names of the tensors that a walk finds, and how many objects it entered."""
    walk = Walk()
    names = [held.name for held in walk.start("thing", thing) if isinstance(held.thing, torch.Tensor)]
    return names, len(walk._seen)


class Worker(threading.Thread):
    def __init__(self):
        super().__init__()
        self.batch = torch.ones(3)


def test_a_readers_class_is_entered_whatever_it_is_derived_from():
    assert "thing.batch" in met(Worker())[0]


def test_a_shown_panel_is_entered_and_its_way_to_the_kernel_is_not():
    panel = explore_layout(torch.arange(6).view(2, 3))
    hidden, _ = met(panel)
    panel._live()
    shown, entered = met(panel)
    assert hidden == shown != []
    assert entered < 200


def test_a_graph_that_was_read_costs_the_walk_nothing():
    h = torch.ones(1, requires_grad=True)
    for _ in range(2_000):
        h = h * 1.0
    assert met([Graph.of(h)])[1] == met([])[1]


@pytest.mark.parametrize("make", [list, lambda t: {"key": t}, lambda t: (t,)], ids=["list", "dict", "tuple"])
def test_containers_are_entered(make):
    assert len(met(make([torch.ones(2)]))[0]) == 1
