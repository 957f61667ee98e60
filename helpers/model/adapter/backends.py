"""A device written in Python, and libraries of kernels that can be taken back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from helpers.model.adapter.machinery import proves, take

_ROOT = Path(__file__).resolve().parents[3]


class DeviceModule:
    """What PyTorch asks of `torch.NAME`, the module of a device: one device, whose random numbers are the CPU's."""

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def manual_seed_all(self, seed: int) -> None:
        """Do nothing: `torch.manual_seed` seeds the CPU."""

    def get_rng_state(self, device: object = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: object = None) -> None:
        """Do nothing: who keeps random states keeps the CPU's too."""

    def _is_in_bad_fork(self) -> bool:
        return False


def make_python_device(name: str) -> None:
    """Give the key PrivateUse1 to a device of this name that has no kernel and no memory. Once a process.

    Experimental in torch: a device of one processor, without streams, whose guard and hooks do nothing.
    """
    make = take(torch.utils, "backend_registration", "_setup_privateuseone_for_python_backend")
    make(name, backend_module=DeviceModule())


def empty_on_private_device(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor of PrivateUse1's device: a shape, contiguous strides, and a storage of 0 bytes."""
    return take(torch, "_C", "_acc", "create_empty_tensor")(list(shape), dtype)


@contextmanager
def scoped_library(namespace: str, kind: str, key: str = "") -> Iterator[torch.library.Library]:
    """Give a `torch.library.Library`; everything that was registered through it is taken back at the end."""
    with take(torch.library, "_scoped_library")(namespace, kind, key) as library:
        yield library


def close_library(library: torch.library.Library) -> None:
    """Take back everything that was registered through a library. It can't be used any more."""
    take(library, "_destroy")()


# The proofs

_DEVICE_PROOF = """
import torch
from helpers.model.adapter import empty_on_private_device, make_python_device
make_python_device("proof")
t = empty_on_private_device((2, 3), torch.int64)
assert (t.device.type, t.shape, t.stride(), t.dtype) == ("proof", (2, 3), (3, 1), torch.int64)
t.untyped_storage().note = "kept"
assert t.detach().untyped_storage().note == "kept"
try:
    t + t
except NotImplementedError as error:
    assert "with arguments from the 'proof' backend" in str(error)
    print("proved")
"""


@proves(make_python_device)
@proves(empty_on_private_device)
def _python_device_works() -> bool:
    """Run in a process of its own, because a process can have one such device and keeps it."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(_ROOT)])}
    command = [sys.executable, "-c", _DEVICE_PROOF]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    return done.stdout.strip() == "proved"


@proves(scoped_library)
@proves(close_library)
def _libraries_work() -> bool:
    space, before = "adapter_proof_libraries", len(torch._C._dispatch_get_all_op_names())
    with scoped_library(space, "FRAGMENT") as library:
        library.define("f(Tensor x) -> Tensor")
        library.impl("f", lambda x: x + 1, "CPU")
        answer = getattr(torch.ops, space).f(torch.ones(2)).tolist()
    other = torch.library.Library(space, "FRAGMENT")
    other.define("f(Tensor x) -> Tensor")
    close_library(other)
    return answer == [2.0, 2.0] and len(torch._C._dispatch_get_all_op_names()) == before
