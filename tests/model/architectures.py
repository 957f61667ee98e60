"""Known architectures in small widths, each with two faults that can be switched on in the middle of its forward.

`fault` is "", "edit" (an activation that was saved for backward is changed in place) or "cut" (it is detached).
`ARCHITECTURES` leads from a name to a function that makes `Built`. Nothing here is from another library than torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Built(NamedTuple):
    """A model, a function that computes its loss anew, and the name of a parameter that comes before the fault."""

    model: nn.Module
    loss: Callable[[], torch.Tensor]
    early: str


class EncoderBlock(nn.Module):
    """A block of the encoder in "Attention is all you need" (2017), with the norm first."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.fault = ""

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        h = F.relu(self.up(self.norm2(x)))
        if self.fault == "edit":
            h += 1
        if self.fault == "cut":
            h = h.detach()
        return x + self.down(h)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.blocks = nn.ModuleList(EncoderBlock(4) for _ in range(2))
        self.head = nn.Linear(4, 3)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


class Decoder(nn.Module):
    """A decoder with causal attention and tied embeddings, as in GPT-2 (2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(7, 4), nn.Parameter(torch.randn(5, 4))
        self.qkv, self.proj = nn.Linear(4, 12), nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight
        self.fault = ""

    def forward(self, tokens):
        x = self.embed(tokens) + self.position
        q, k, v = (part.unflatten(-1, (2, 2)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        if self.fault == "edit":
            mixed += 1
        if self.fault == "cut":
            mixed = mixed.detach()
        x = x + self.proj(mixed.transpose(1, 2).flatten(2))
        return self.head(self.norm(x))


class ResNet(nn.Module):
    """A stem and two residual blocks with BatchNorm, as in "Deep residual learning" (2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(4))
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(4))
        self.fc = nn.Linear(4, 3)
        self.fault = ""

    def forward(self, x):
        x = F.relu(self.bn(self.stem(x)))
        for i in (0, 2):
            y = F.relu(self.norms[i](self.convs[i](x)))
            if self.fault == "edit":
                y *= 2
            if self.fault == "cut":
                y = y.detach()
            x = F.relu(self.norms[i + 1](self.convs[i + 1](y)) + (x if self.fault != "cut" else 0))
        return self.fc(x.mean((2, 3)))


class Recurrent(nn.Module):
    """An LSTM over windows; the state goes on from one window to the next without its history (Williams, 1990)."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(3, 4), nn.Linear(4, 1)
        self.fault = ""

    def forward(self, windows):
        h = c = torch.zeros(windows.shape[1], 4)
        loss = torch.zeros(())
        for window in windows.split(2):
            h, c = h.detach(), c.detach()
            for x in window:
                h, c = self.cell(x, (h, c))
            out = h.tanh()
            if self.fault == "edit":
                out += 1
            if self.fault == "cut":
                out = out.detach()
            loss = loss + self.head(out).square().mean()
        return loss


class Autoencoder(nn.Module):
    """A VAE with reparameterization (Kingma and Welling, 2013)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 5), nn.Tanh())
        self.mean, self.log_variance = nn.Linear(5, 2), nn.Linear(5, 2)
        self.decoder = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 6))
        self.fault = ""

    def forward(self, x):
        h = self.encoder(x)
        if self.fault == "edit":
            h += 1
        if self.fault == "cut":
            h = h.detach()
        mean, log_variance = self.mean(h), self.log_variance(h)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1).mean()
        return F.mse_loss(self.decoder(z), x) + divergence


class Adversary(nn.Module):
    """A generator and a discriminator; the loss is that of the generator (Goodfellow and others, 2014)."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(2, 5), nn.LeakyReLU(0.2), nn.Linear(5, 3), nn.Tanh())
        self.discriminator = nn.Sequential(nn.Linear(3, 5), nn.LeakyReLU(0.2), nn.Linear(5, 1))
        self.fault = ""

    def forward(self, noise):
        made = self.generator(noise)
        if self.fault == "edit":
            made += 1
        if self.fault == "cut":
            made = made.detach()
        return F.binary_cross_entropy_with_logits(self.discriminator(made), torch.ones(len(noise), 1))


class Translator(nn.Module):
    """A GRU encoder and a GRU decoder with attention over the encoder's states (Bahdanau and others, 2014)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.encoder = nn.Embedding(7, 3), nn.GRU(3, 4, batch_first=True)
        self.decoder, self.query, self.out = nn.GRUCell(7, 4), nn.Linear(4, 4), nn.Linear(4, 7)
        self.fault = ""

    def forward(self, source, target):
        states, last = self.encoder(self.embed(source))
        h, losses = last[0], []
        for t in range(target.shape[1] - 1):
            weights = torch.bmm(states, self.query(h).unsqueeze(2)).softmax(1)
            if self.fault == "edit":
                weights += 1
            context = (weights * states).sum(1)
            h = self.decoder(torch.cat([self.embed(target[:, t]), context], 1), h)
            if self.fault == "cut":
                h = h.detach()
            losses.append(F.cross_entropy(self.out(h), target[:, t + 1]))
        return torch.stack(losses).mean()


class UNet(nn.Module):
    """One way down, one way up, and the skip between them (Ronneberger and others, 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.middle = nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 4, 3, padding=1)
        self.up, self.last = nn.ConvTranspose2d(4, 2, 2, 2), nn.Conv2d(4, 1, 3, padding=1)
        self.fault = ""

    def forward(self, x):
        skip = F.relu(self.down(x))
        deep = F.relu(self.middle(F.max_pool2d(skip, 2)))
        if self.fault == "edit":
            deep += 1
        if self.fault == "cut":
            deep, skip = deep.detach(), skip.detach()
        return self.last(torch.cat([skip, self.up(deep)], 1))


class Mixture(nn.Module):
    """Experts that are weighted by a gate, each recomputed in backward by a checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(3, 2)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 3)) for _ in range(2))
        self.fault = ""

    def forward(self, x):
        gates = self.gate(x).softmax(-1)
        if self.fault == "edit":
            gates += 1
        if self.fault == "cut":
            gates = gates.detach()
        made = [checkpoint(expert, x, use_reentrant=False) for expert in self.experts]
        return (torch.stack(made, -1) * gates.unsqueeze(1)).sum(-1)


class Separable(nn.Module):
    """A depthwise convolution and a pointwise one between an expansion and a sum, as in MobileNetV2 (2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(3, 6, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU6())
        self.depthwise = nn.Sequential(nn.Conv2d(6, 6, 3, 1, 1, groups=6, bias=False), nn.BatchNorm2d(6), nn.Sigmoid())
        self.project = nn.Conv2d(6, 3, 1)
        self.fault = ""

    def forward(self, x):
        h = self.depthwise(self.expand(x))
        if self.fault == "edit":
            h += 1
        if self.fault == "cut":
            h = h.detach()
        return x + self.project(h)


class Sequences(nn.Module):
    """torch.nn.Transformer itself."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Linear(3, 4), nn.Linear(3, 4)
        self.transformer = nn.Transformer(4, 2, 1, 1, 8, dropout=0.1, batch_first=True)
        self.fault = ""

    def forward(self, source, target):
        memory = self.source(source).sigmoid()
        if self.fault == "edit":
            memory += 1
        if self.fault == "cut":
            memory = memory.detach()
        return self.transformer(memory, self.target(target))


def _squared(model: nn.Module, early: str, *inputs: torch.Tensor) -> Built:
    return Built(model, lambda: model(*inputs).square().mean(), early)


def _decoder() -> Built:
    model, tokens = Decoder(), torch.arange(10).view(2, 5) % 7
    return Built(model, lambda: F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()), "qkv.weight")


def _encoder() -> Built:
    model, tokens = Encoder(), torch.arange(10).view(2, 5) % 7
    return Built(model, lambda: F.cross_entropy(model(tokens), torch.tensor([0, 2])), "blocks.1.up.weight")


def _recurrent() -> Built:
    model, windows = Recurrent(), torch.randn(4, 2, 3)
    return Built(model, lambda: model(windows), "cell.weight_ih")


def _autoencoder() -> Built:
    model, x = Autoencoder(), torch.randn(4, 6)
    return Built(model, lambda: model(x), "encoder.0.weight")


def _adversary() -> Built:
    model, noise = Adversary(), torch.randn(4, 2)
    return Built(model, lambda: model(noise), "generator.0.weight")


def _translator() -> Built:
    model, tokens = Translator(), torch.arange(10).view(2, 5) % 7
    model.decoder = nn.GRUCell(3 + 4, 4)
    return Built(model, lambda: model(tokens, tokens.flip(1)), "query.weight")


ARCHITECTURES: dict[str, Callable[[], Built]] = {
    "transformer encoder": _encoder,
    "tied decoder": _decoder,
    "resnet": lambda: _squared(ResNet(), "convs.0.weight", torch.randn(2, 3, 4, 4)),
    "lstm": _recurrent,
    "vae": _autoencoder,
    "gan": _adversary,
    "seq2seq": _translator,
    "unet": lambda: _squared(UNet(), "middle.weight", torch.randn(2, 1, 4, 4)),
    "checkpointed mixture": lambda: _squared(Mixture(), "gate.weight", torch.randn(4, 3)),
    "depthwise": lambda: _squared(Separable(), "expand.0.weight", torch.randn(2, 3, 4, 4)),
    "nn.Transformer": lambda: _squared(Sequences(), "source.weight", torch.randn(2, 3, 3), torch.randn(2, 4, 3)),
}


def switch(model: nn.Module, fault: str) -> None:
    """Switch a fault on in every part of the model that knows it."""
    for part in model.modules():
        if hasattr(part, "fault"):
            part.fault = fault
