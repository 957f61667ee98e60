"""Models with the depth and the joints of known ones, in small widths, for pictures of their graphs."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Bottleneck(nn.Module):
    """A residual block with three convolutions, as in ResNet-50."""

    def __init__(self, before: int, width: int, stride: int = 1) -> None:
        super().__init__()
        after = 2 * width
        self.conv1, self.bn1 = nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after)
        self.downsample = None
        if before != after or stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """Sixteen bottlenecks in four layers, as in ResNet-50."""

    def __init__(self, counts: tuple[int, ...] = (3, 4, 6, 3)) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3, bias=False, padding=1), nn.BatchNorm2d(4)
        before = 4
        for i, count in enumerate(counts):
            width, blocks = 2 * (i + 1), []
            for j in range(count):
                blocks.append(Bottleneck(before, width, 2 if i and j == 0 else 1))
                before = 2 * width
            self.add_module(f"layer{i + 1}", nn.Sequential(*blocks))
        self.layers = len(counts)
        self.fc = nn.Linear(before, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        for i in range(self.layers):
            x = getattr(self, f"layer{i + 1}")(x)
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).split(width, dim=2)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """A GPT-2 whose last layer uses the weight of the first one."""

    def __init__(self, layers: int, width: int = 8, heads: int = 2, words: int = 11) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(16, width)
        self.h = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, words, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, words):
        x = self.wte(words) + self.wpe(torch.arange(words.shape[1]))
        return self.lm_head(self.ln_f(self.h(x)))


class Recurrent(nn.Module):
    """An LSTM cell that is called in a loop, with a head at each step or only at the end."""

    def __init__(self, *, head_each_step: bool = False) -> None:
        super().__init__()
        self.cell, self.head, self.head_each_step = nn.LSTMCell(3, 4), nn.Linear(4, 2), head_each_step

    def forward(self, steps):
        h = c = torch.zeros(steps.shape[1], 4)
        outputs = []
        for x in steps:
            h, c = self.cell(x, (h, c))
            if self.head_each_step:
                outputs.append(self.head(h))
        return torch.stack(outputs).sum() if outputs else self.head(h).sum()


def resnet_loss(model: nn.Module | None = None) -> tuple[nn.Module, torch.Tensor]:
    model = ResNet() if model is None else model
    return model, F.cross_entropy(model(torch.rand(2, 3, 16, 16)), torch.tensor([0, 1]))


def gpt_loss(layers: int) -> tuple[nn.Module, torch.Tensor]:
    model = GPT(layers)
    words = torch.arange(6).view(1, 6)
    return model, F.cross_entropy(model(words).flatten(0, 1), words.flatten())


def recurrent_loss(steps: int, **options: bool) -> tuple[nn.Module, torch.Tensor]:
    model = Recurrent(**options)
    return model, model(torch.rand(steps, 2, 3))


def encoder_loss() -> tuple[nn.Module, torch.Tensor]:
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
    return model, model(torch.rand(3, 2, 8)).sum()


def mlp_loss() -> tuple[nn.Module, torch.Tensor]:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return model, F.cross_entropy(model(torch.rand(3, 4)), torch.tensor([0, 1, 1]))
