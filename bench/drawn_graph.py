"""Draw one graph with one library, several times, and say what it cost: `python -m bench.drawn_graph LIBRARY GRAPH`.

A process for each pair, so that what one library changes in torch helps or harms no other. The last line it prints is
the answer, as JSON: `cpu_ms` of every draw (user and system time of this process and all that it started, such as
dot), and `boxes`, the number of nodes in the picture. `bench_graphs` reads it.

What is timed starts at the live result and ends at the SVG. torchview and torchlens watch a forward run, which is
therefore part of theirs.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tests.draw.models import GPT, ResNet

DRAWS, ENOUGH_MS = 9, 8_000  # as many draws, and no new one after so much time


class Polynomial(nn.Module):
    def forward(self, x):
        return x**2 + 3 * x + 1


class Loss(nn.Module):
    """A model with its loss, so that all libraries see the whole way to one number."""

    def __init__(self, model: nn.Module, targets: torch.Tensor) -> None:
        super().__init__()
        self.model, self.targets = model, targets

    def forward(self, x):
        return F.cross_entropy(self.model(x).flatten(0, -2), self.targets)


def polynomial() -> tuple[nn.Module, torch.Tensor]:
    return Polynomial(), torch.arange(4.0, requires_grad=True)


def mlp() -> tuple[nn.Module, torch.Tensor]:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return Loss(model, torch.tensor([0, 1, 1])), torch.rand(3, 4)


def resnet() -> tuple[nn.Module, torch.Tensor]:
    return Loss(ResNet(), torch.tensor([0, 1])), torch.rand(2, 3, 16, 16)


def gpt(layers: int) -> tuple[nn.Module, torch.Tensor]:
    return Loss(GPT(layers), torch.arange(6)), torch.arange(6).view(1, 6)


GRAPHS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "tiny": polynomial,
    "MLP": mlp,
    "ResNet-50": resnet,
    "GPT-2, 12 layers": lambda: gpt(12),
    "GPT-2, 48 layers": lambda: gpt(48),
}


def ours(model: nn.Module, x: torch.Tensor, loss: torch.Tensor) -> str:
    from helpers import draw_graph

    model = getattr(model, "model", model)
    return draw_graph(loss, model=model).svg


def ours_at_depth_2(model: nn.Module, x: torch.Tensor, loss: torch.Tensor) -> str:
    from helpers import draw_graph

    model = getattr(model, "model", model)
    return draw_graph(loss, model=model, depth=2).svg


def torchviz(model: nn.Module, x: torch.Tensor, loss: torch.Tensor) -> str:
    make_dot = importlib.import_module("torchviz").make_dot
    return make_dot(loss, params=dict(model.named_parameters())).pipe(format="svg", encoding="utf-8")


def torchview(model: nn.Module, x: torch.Tensor, loss: torch.Tensor) -> str:
    draw: Any = importlib.import_module("torchview").draw_graph
    drawn = draw(model, input_data=x, depth=100, device="cpu", mode="train")  # every operation, not only three levels
    return drawn.visual_graph.pipe(format="svg", encoding="utf-8")


def torchlens(model: nn.Module, x: torch.Tensor, loss: torch.Tensor) -> str:
    trace = importlib.import_module("torchlens").trace(model, x)
    with tempfile.TemporaryDirectory() as folder:
        trace.draw(vis_outpath=f"{folder}/graph", vis_fileformat="svg", vis_save_only=True)
        return next(Path(folder).glob("*.svg")).read_text(encoding="utf-8")


LIBRARIES = {draw.__name__: draw for draw in (ours, ours_at_depth_2, torchviz, torchview, torchlens)}


def cpu_ms() -> float:
    """Return the processor time of this process and of all that it started and waited for, so far."""
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return 1000 * sum(use.ru_utime + use.ru_stime for use in uses)


def measured(library: str, graph: str) -> dict[str, Any]:
    """Draw, and return the answer."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sys.setrecursionlimit(100_000)  # torchviz walks by recursion: 1,000 calls would not last for 48 layers
    draw = LIBRARIES[library]
    small, x = polynomial()
    draw(small, x, small(x))  # the first picture of a process also imports and opens things
    model, x = GRAPHS[graph]()
    loss, spent = model(x), []
    while len(spent) < DRAWS and sum(spent) < ENOUGH_MS:
        start = cpu_ms()
        svg = draw(model, x, loss)
        spent.append(round(cpu_ms() - start, 3))
    if "<svg" not in svg:
        raise ValueError(f"no SVG came: {svg[:60]!r}")
    return {"cpu_ms": spent, "boxes": svg.count("data-box=") + svg.count('class="node"')}


if __name__ == "__main__":
    print(json.dumps(measured(*sys.argv[1:])))
