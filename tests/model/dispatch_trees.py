"""The trees of the traced programs, as they are on every supported release of torch (2.11 to 2.15).

`python tests/model/dispatch_trees.py` writes them anew, to dispatch_trees.txt. Programs whose operators choose a kernel
by the processor, or by the libraries that a build has, are left out.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from helpers.model.dispatch.trace import trace_dispatch
from tests.model.dispatch_programs import PROGRAMS

FILE = Path(__file__).with_suffix(".txt")
BY_MACHINE = {
    "convolution", "attention", "attention with a mask", "recurrent", "layer norm", "batch norm", "softmax and loss",
    "sparse", "sparse csr", "quantized", "nested tensor", "checkpoint", "training step",
}  # fmt: skip

# torch 2.15 fills with the number itself, where earlier releases make a tensor of it first.
BY_RELEASE = {"assignment"}


def tree(program: str) -> str:
    """Run a program twice and return the tree of the second run: the first does what happens only once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        PROGRAMS[program]()
        torch.manual_seed(0)
        return repr(trace_dispatch(PROGRAMS[program]))


def stored() -> dict[str, str]:
    """Return the stored tree of each program."""
    parts = FILE.read_text(encoding="utf-8").split("\n\n")
    return {part.splitlines()[0].removeprefix("# "): "\n".join(part.splitlines()[1:]) for part in parts if part}


if __name__ == "__main__":
    kept = [name for name in PROGRAMS if name not in BY_MACHINE | BY_RELEASE]
    FILE.write_text("\n\n".join(f"# {name}\n{tree(name)}" for name in kept) + "\n", encoding="utf-8")
