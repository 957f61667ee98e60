"""Which keys stand for a backend, what they are called in a sentence, and which of an operator's kernels are real."""

from __future__ import annotations

import re
from typing import NamedTuple

import torch

from helpers.model.adapter import device_of_private_key, tensor_keys
from helpers.model.words import listed

# Keys at which no backend's kernel can stand: layers of the dispatcher, and aliases.
_LAYERS = re.compile(
    r"BackendSelect|Python|Fake|FuncTorch|Functionalize|Named|Conj|Neg|ZeroT|ADInplace|Autograd|Tracer|Autocast|Batched|"
    r"Vmap|PreDispatch|TESTING|Deferred|Composite|Undefined|ThreadLocal"
)
# What comes before the backend in the name of a key, what such a tensor is called, and how to get a plain one from it.
_LAYOUTS = {
    "SparseCsr": ("compressed sparse", "to_dense()"),
    "Sparse": ("sparse", "to_dense()"),
    "Quantized": ("quantized", "dequantize()"),
    "NestedTensor": ("nested", "to_padded_tensor(0.0), or work on t.unbind(), which is a list of plain tensors"),
    "Mkldnn": ("MKL-DNN", "to_dense()"),
}
_FROM_PLAIN = {
    "SparseCsr": "to_sparse_csr()",
    "Sparse": "to_sparse()",
    "Quantized": "torch.quantize_per_tensor(t, scale, zero_point, dtype)",
    "NestedTensor": "torch.nested.nested_tensor([…])",
    "Mkldnn": "to_mkldnn()",
}
_LINE = re.compile(r"^(\w+): (fallthrough )?registered (?:at|by) .*\[([\w ]+)\]$", re.MULTILINE)


class Table(NamedTuple):
    """The kernels that an operator has, as torch lists them in its message. `keys` counts all that it names.

    `own` are the backends for which one was registered, `shared` those that use one kernel for all backends.
    """

    keys: int
    own: tuple[str, ...]
    shared: tuple[str, ...]

    @classmethod
    def read(cls, message: str) -> Table:
        """Read the table in the message of a call that found no kernel."""
        named = re.search(r"(?:these backends: |Available functions are )\[(.*?)\]", message)
        real: dict[str, list[str]] = {"kernel": [], "default backend kernel": []}
        for key, fallthrough, kind in _LINE.findall(message):
            if kind in real and not fallthrough and is_backend(key):
                real[kind].append(key)
        return cls(
            len(named[1].split(", ")) if named else 0, tuple(real["kernel"]), tuple(real["default backend kernel"])
        )


def is_backend(key: str) -> bool:
    """Say whether a key stands for a backend: a device and a layout, such as "CPU" or "SparseCPU"."""
    return not _LAYERS.match(key)


def layout_of(key: str) -> tuple[str, str]:
    """Return the layout and the device in the name of a backend's key: ("Sparse", "CPU"), ("", "CPU")."""
    layout = next((name for name in _LAYOUTS if key.startswith(name)), "")
    return layout, key.removeprefix(layout)


def tensors_of(key: str) -> str:
    """Return what tensors with the key of a backend are called: "sparse CPU tensors"."""
    layout, device = layout_of(key)
    device = {"Meta": "meta", "PrivateUse1": f"`{device_of_private_key()}`"}.get(device, device)
    return " ".join(word for word in (_LAYOUTS.get(layout, ("",))[0], device, "tensors") if word)


def to_plain(key: str) -> str:
    """Return the call that makes a plain tensor of one with this key; "" for a plain one."""
    return _LAYOUTS.get(layout_of(key)[0], ("", ""))[1]


def from_plain(key: str) -> str:
    """Return the call that makes a tensor with this key from a plain one; "" for a plain one."""
    return _FROM_PLAIN.get(layout_of(key)[0], "")


def backend_of(t: torch.Tensor) -> str:
    """Return the key of a tensor's backend."""
    return next((key for key in tensor_keys(t) if is_backend(key)), "Undefined")


def in_words(kernels: tuple[str, ...]) -> str:
    """Return "a kernel for CPU only", "kernels for CPU and CUDA", or "no kernel at all"."""
    if not kernels:
        return "no kernel at all"
    return f"a kernel for {kernels[0]} only" if len(kernels) == 1 else f"kernels for {listed(kernels, 8)} only"


_TORCHS = ("aten", "prim", "prims", "profiler", "quantized", "mkldnn", "sparse")  # namespaces


def is_of_torch(operator: str) -> bool:
    """Say whether an operator is one of torch's own, by its namespace."""
    return operator.partition("::")[0] in _TORCHS


def without_overload(operator: str) -> tuple[str, str]:
    """Return the namespace of an operator, and its name with overload as `Library.impl` takes it."""
    space, _, name = operator.partition("::")
    return space, name
