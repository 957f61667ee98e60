"""Programs whose dispatches are compared with what the profiler of torch counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode  # a supported name with a private path
from torch.func import functionalize, grad, jvp, vmap
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode


def _leaf(*shape: int) -> torch.Tensor:
    return torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape).requires_grad_()


X, Y, W = _leaf(2, 3), _leaf(2, 3), _leaf(4, 3)
IMAGE, KERNELS = _leaf(1, 2, 6, 6), _leaf(3, 2, 3, 3)
HEADS = _leaf(1, 2, 4, 8)
WAVE = torch.tensor([1 + 2j, 3 - 1j])


class _Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * 2


class _PassOn(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return func(*args, **(kwargs or {}))


@torch.library.custom_op("course_dispatch_tests::triple", mutates_args=())
def triple(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@triple.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


triple.register_autograd(lambda ctx, g: g * 3)


def _in(context: Callable[[], Any], fn: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        with context():
            return fn()

    return run


def _backward(fn: Callable[[], torch.Tensor]) -> Callable[[], Any]:
    return lambda: torch.autograd.grad(fn().sum(), [X])


def _step() -> Callable[[], None]:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        model(X.detach()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


_LSTM = nn.LSTM(3, 2)


def _write(t: torch.Tensor) -> torch.Tensor:
    return t.detach().clone()


PROGRAMS: dict[str, Callable[[], Any]] = {
    "add": lambda: X + Y,
    "add a number": lambda: X + 1,
    "chained arithmetic": lambda: (X * 2 - Y) / (Y.abs() + 1) ** 2,
    "powers of a number": lambda: (2.0**X, 2 ** torch.arange(3)),
    "comparison": lambda: (X > 0) & ~(Y < 0.5),
    "matmul": lambda: X @ W.T,
    "batched matmul": lambda: HEADS @ HEADS.transpose(-1, -2),
    "linear": lambda: F.linear(X, W),
    "linear with bias": lambda: F.linear(X, W, W[:, 0]),
    "convolution": lambda: F.conv2d(IMAGE, KERNELS, padding=1),
    "pooling": lambda: F.max_pool2d(IMAGE, 2),
    "attention": lambda: F.scaled_dot_product_attention(HEADS, HEADS, HEADS),
    "attention with a mask": lambda: F.scaled_dot_product_attention(HEADS, HEADS, HEADS, is_causal=True),
    "einsum": lambda: torch.einsum("bi,oi->bo", X, W),
    "softmax and loss": lambda: F.cross_entropy(X, torch.tensor([0, 2])),
    "layer norm": lambda: F.layer_norm(X, (3,)),
    "batch norm": lambda: F.batch_norm(IMAGE, torch.zeros(2), torch.ones(2), training=True),
    "dropout": lambda: F.dropout(X, 0.5),
    "embedding": lambda: F.embedding(torch.tensor([0, 2]), W),
    "recurrent": lambda: _LSTM(X.unsqueeze(0)),
    "index": lambda: X[torch.tensor([0, 1]), torch.tensor([2, 0])],
    "mask": lambda: X[X > 0],
    "slice": lambda: X[:, 1:],
    "assignment": lambda: _write(X).__setitem__((slice(None), 1), 7.0),
    "in-place": lambda: _write(X).add_(1).relu_(),
    "out": lambda: torch.add(X.detach(), 1, out=torch.empty(2, 3)),
    "views": lambda: X.T.unsqueeze(0).expand(2, 3, 2).permute(2, 0, 1)[0].reshape(-1),
    "copying reshape": lambda: X.T.reshape(6),
    "factories": lambda: (torch.zeros(2), torch.arange(3), torch.rand(2, 2), torch.full((2,), 7)),
    "from data": lambda: torch.tensor([1.0, 2.0]),
    "to another dtype": lambda: X.to(torch.float64).int(),
    "item": lambda: X.sum().item(),
    "cat and split": lambda: torch.cat([X, Y]).split(1),
    "sort and topk": lambda: (X.sort(), X.topk(2)),
    "norm and std": lambda: (X.norm(), X.std(), X.var(0)),
    "autocast": _in(lambda: torch.autocast("cpu", torch.bfloat16), lambda: F.linear(X, W)),
    "autocast of float32 operators": _in(lambda: torch.autocast("cpu", torch.bfloat16), lambda: (X @ W.T).exp()),
    "inference mode": _in(torch.inference_mode, lambda: X * 2 + 1),
    "no_grad": _in(torch.no_grad, lambda: X * 2 + 1),
    "vmap": lambda: vmap(lambda row: row.sin() @ row)(X.detach()),
    "vmap with randomness": lambda: vmap(lambda row: row + torch.rand(3), randomness="different")(X.detach()),
    "grad of func": lambda: grad(lambda t: (t**2).sum())(X.detach()),
    "jvp": lambda: jvp(torch.sin, (X.detach(),), (torch.ones(2, 3),)),
    "meta": lambda: torch.empty(2, 3, device="meta") @ torch.empty(3, 4, device="meta"),
    "sparse": lambda: torch.eye(3).to_sparse() @ torch.ones(3, 2),
    "sparse times dense": lambda: torch.eye(2, 3).to_sparse() * Y.detach(),
    "sparse csr": lambda: torch.eye(3).to_sparse_csr() @ torch.ones(3, 2),
    "conj": lambda: WAVE.conj() * 2,
    "conj matmul": lambda: WAVE.conj() @ WAVE,
    "negative view": lambda: WAVE.conj().imag + 1,
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8).dequantize(),
    "functionalize": lambda: functionalize(lambda t: t.clone().add_(1))(X.detach()),
    "custom op": lambda: triple(X),
    "custom function": lambda: _Double.apply(X),
    "dispatch mode": _in(_PassOn, lambda: F.linear(X, W).relu()),
    "nested tensor": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]) * 2,
    "backward": _backward(lambda: (X * 2).exp()),
    "backward of linear": _backward(lambda: F.linear(X, W)),
    "backward of a custom op": _backward(lambda: triple(X)),
    "backward of a custom function": _backward(lambda: _Double.apply(X)),
    "checkpoint": _backward(lambda: torch.utils.checkpoint.checkpoint(torch.sin, X, use_reentrant=False)),
    "double backward": lambda: torch.autograd.grad(torch.autograd.grad((X**3).sum(), X, create_graph=True)[0].sum(), X),
    "training step": _step(),
}
# Torch turns the watching off while it wraps a tensor as a parameter or a fake one: these `detach` are not seen.
WRAPPING: dict[str, tuple[Callable[[], Any], int]] = {
    "parameters": (lambda: nn.Linear(3, 4), 2),
    "fake tensors": (_in(FakeTensorMode, lambda: torch.empty(2, 3) @ torch.empty(3, 4)), 3),
}
