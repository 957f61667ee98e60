"""`explain_error` on a backend of your own: which kernel is missing next. A process has one device, so each has one."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


# A backend of your own: one name a process, so each program has a process of its own

PRELUDE = """
import torch
from torch.library import Library
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend as set_up
from helpers import explain_dispatch, explain_error

class Tensor(torch.Tensor):
    @staticmethod
    def __new__(cls, real):
        made = torch._C._acc.create_empty_tensor(list(real.shape), real.dtype)
        made.__class__ = cls
        return made

    def __init__(self, real):
        self.real_one = real

def empty_strided(size, stride, *, dtype=None, **rest):
    return Tensor(torch.empty_strided(size, stride, dtype=dtype))

def empty(size, *, dtype=None, **rest):
    return Tensor(torch.empty(size, dtype=dtype))

def copy_from(source, target, non_blocking=False):
    if source.device.type == "cpu":
        target.real_one.copy_(source)
    else:
        target.copy_(source.real_one)
    return target

def say(fn):
    finding, error = explain_dispatch(fn), explain_error(fn)
    assert finding.text == error.text and error.known, (finding, error)
    print(finding)
"""


@pytest.fixture
def run(tmp_path):
    """A function: program -> the lines that it prints, in a process of its own."""
    return lambda program: lines_of(tmp_path / "program.py", program)


def lines_of(path, program: str) -> list[str]:
    path.write_text(PRELUDE + textwrap.dedent(program), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_backend_needs_three_kernels_before_a_tensor_can_move_there(run):
    lines = run(
        """
        set_up()
        move = lambda: torch.ones(2).to("privateuseone")
        say(move)
        library = Library("aten", "IMPL")
        library.impl("empty_strided", empty_strided, "PrivateUse1")
        say(move)
        library.impl("_copy_from", copy_from, "PrivateUse1")
        x = move()
        print(x.device, x.real_one.tolist())
        say(lambda: torch.empty(2, device="privateuseone"))
        library.impl("empty.memory_format", empty, "PrivateUse1")
        print(torch.empty(2, device="privateuseone").device)
        """
    )
    first, remedy, second, then, moved, third, last, made = lines
    assert (
        'PrivateUse1 has no kernel for aten::empty_strided, the first operator behind `torch.ones(2).to("priv' in first
    )
    assert "the minimal set is empty.memory_format, empty_strided and _copy_from, and none is there" in first
    assert 'impl("empty_strided", fn, "PrivateUse1"), and then empty.memory_format and _copy_from' in remedy
    assert "no kernel for aten::_copy_from" in second
    assert "of which empty_strided is there" in second
    assert "and then empty.memory_format" in then
    assert moved == "privateuseone:0 [1.0, 1.0]"
    assert "of which empty_strided and _copy_from are there" in third
    assert "and then" not in last
    assert made == "privateuseone:0"


def test_a_renamed_backend_is_called_by_its_name_and_the_next_operator_is_named(run):
    lines = run(
        """
        set_up("npu")
        library = Library("aten", "IMPL")
        library.impl("empty_strided", empty_strided, "PrivateUse1")
        library.impl("_copy_from", copy_from, "PrivateUse1")
        x = torch.ones(2).to("npu")
        say(lambda: torch.relu(x))
        say(lambda: x.view(2, 1))
        say(lambda: x + torch.ones(2))
        say(lambda: torch.utils.rename_privateuse1_backend("tpu"))
        say(lambda: set_up("npu"))

        def on_cpu(operator, *args, **kwargs):
            from torch.utils._pytree import tree_map_only
            real = operator(*tree_map_only(Tensor, lambda t: t.real_one, args), **kwargs)
            return tree_map_only(torch.Tensor, Tensor, real)

        rest = Library("_", "IMPL")
        rest.fallback(on_cpu, "PrivateUse1")
        print(torch.relu(x).real_one.tolist(), explain_dispatch(torch.relu, x).text)
        """
    )
    relu, boxed, view, _, devices, move, renamed, _, again, _, served = lines
    assert (
        "PrivateUse1 (the device `npu`) has no kernel for aten::relu, the next operator behind `torch.relu(x)`" in relu
    )
    assert "of the minimal set, empty.memory_format is missing too" in relu
    assert 'torch.library.Library("_", "IMPL").fallback(fn, "PrivateUse1")' in boxed
    assert "no kernel for aten::view" in view
    assert "got `x` on npu:0 and `torch.ones(2)` on cpu" in devices
    assert "Move `torch.ones(2)` first, with .to('npu:0')" in move
    assert "belongs to the device `npu` already" in renamed
    assert "the device `npu` is set up already" in again
    assert served.startswith("[1.0, 1.0] In aten::relu")
    assert "the fallback of PrivateUse1" in served


def test_a_device_that_was_never_set_up_is_told(run):
    lines = run('say(lambda: torch.ones(2).to("privateuseone"))')
    assert "no backend is set up for it in this process" in lines[0]


def test_a_renamed_device_without_a_module_is_told(run):
    lines = run("""
        torch.utils.rename_privateuse1_backend("npu")
        say(lambda: torch.ones(2).to("npu"))

        set_up("npu")
        say(lambda: torch.ones(2).to("npu"))
    """)
    assert "names the device `npu`, to which PrivateUse1 was renamed, and torch has no module torch.npu" in lines[0]
    assert '_setup_privateuseone_for_python_backend("npu")' in lines[1]
    assert "PrivateUse1 (the device `npu`) has no kernel for aten::" in lines[2]  # the remedy: one step further


def test_a_module_alone_makes_no_backend(run):
    lines = run("""
        class Module:
            is_available = staticmethod(lambda: True)
            current_device = staticmethod(lambda: 0)

        torch.utils.rename_privateuse1_backend("npu")
        torch._register_device_module("npu", Module)
        say(lambda: torch.ones(2).to("npu"))
    """)
    assert "needs a device guard, which sets the current device, and none is registered for `npu`" in lines[0]
