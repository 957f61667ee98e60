"""The device in Python of chapter 6. Each test runs in a process of its own: a device is for the life of a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START = """
import numpy as np
import torch
from helpers.course.device import array_of, fallback_library, hold, open_device, to_device, to_host
from helpers.model.finding import HelperError

def refused(function):
    try:
        return function()
    except HelperError as error:
        return str(error)

"""


# Python ends with `os._exit`: at a plain end, autograd's thread of the device may be cut off, which aborts the process.
END = ["import os, sys", "sys.stdout.flush()", "os._exit(0)"]


def run(*lines: str) -> list[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-c", START + "\n".join([*lines, *END])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_tensor_of_the_device_keeps_its_array_through_detach():
    lines = run(
        'open_device("abacus")',
        "memory = np.arange(6.0, dtype=np.float32).reshape(2, 3)",
        "t = hold(memory)",
        "print(t.device, tuple(t.shape), t.dtype, array_of(t) is memory, array_of(t.detach()) is memory)",
        "print(array_of(hold(3)).shape, hold(3).dtype, hold([1, 2], torch.float64).dtype, array_of(2.5))",
    )
    assert lines == ["abacus:0 (2, 3) torch.float32 True True", "() torch.int64 torch.float64 2.5"]


def test_opening_again_takes_kernels_and_fallback_back():
    ask = "print(refused_by(lambda: torch.ones(2).to('abacus')))"
    lines = run(
        "def refused_by(call):",
        "    try:",
        "        return call().device.type",
        "    except NotImplementedError as error:",
        "        return str(error).split(' with')[0]",
        'kernels = open_device("abacus")',
        ask,
        "kernels.impl('empty_strided', lambda size, stride, **o: hold(np.zeros(size), torch.float32))",
        ask,
        "fallback_library().fallback(lambda op, *args, **kwargs: args[1])",
        ask,
        "fallback_library()",
        ask,
        'kernels = open_device("abacus")',
        ask,
    )
    missing = [f"Could not run 'aten::{name}'" for name in ("empty_strided", "_copy_from")]
    assert lines == [missing[0], missing[1], "abacus", missing[1], missing[0]]


def test_backward_before_the_device_is_named_as_the_cause():
    lines = run(
        "torch.ones(2, requires_grad=True).sum().backward()",
        'print(refused(lambda: open_device("abacus")))',
        'print(refused(lambda: open_device("abacus")))',
    )
    assert len(lines) == 2
    assert all("backward has run in this process before there was a device" in line for line in lines)


def test_backward_on_the_cpu_works_beside_the_device():
    lines = run(
        'open_device("abacus")',
        "x = torch.ones(2, requires_grad=True)",
        "(3 * x).sum().backward()",
        "print(x.grad.tolist())",
        "torch.manual_seed(1)",
        "print(torch.equal(torch.get_rng_state(), torch.abacus.get_rng_state()))",
    )
    assert lines == ["[3.0, 3.0]", "True"]


def test_arguments_go_to_the_host_and_back_on_the_same_memory():
    lines = run(
        'open_device("abacus")',
        "t = hold(np.ones(2, np.float32))",
        "there = to_host([t, (t, 3), {'d': t.device}, None])",
        "there[0][0] = 5",
        "print(array_of(t).tolist(), there[1][1], there[2]['d'], there[3])",
        "back = to_device((there[0], 4))",
        "back[0].untyped_storage().memory[1] = 7",
        "print(array_of(t).tolist(), back[0].device.type, back[1])",
    )
    assert lines == ["[5.0, 1.0] 3 cpu None", "[5.0, 7.0] abacus 4"]


def test_a_wrong_input_is_one_sentence():
    before = {
        "open_device('Abacus')": "a name in small letters such as 'abacus', not 'Abacus'",
        "open_device(3)": "a name in small letters such as 'abacus', not 3",
        "open_device('cuda')": "torch takes no device of the name 'cuda'",
        "hold(1.0)": "there is no device yet",
        "fallback_library()": "there is no device yet",
    }
    after = {
        "open_device('two')": "this process has the device 'one' already",
        "hold('text')": "can't hold an array of dtype <U4",
        "hold(1.0, torch.bfloat16)": "can't hold torch.bfloat16: NumPy has no such dtype",
        "hold(1.0, 'float32')": "can't hold 'float32'",
        "array_of(None)": "wants a tensor of the device or a number, not None",
        "array_of(torch.ones(2, device='meta'))": "on meta has no memory",
    }
    ask = "print(refused(lambda: {}))"
    told = run(*map(ask.format, before), 'open_device("one")', *map(ask.format, after))
    assert len(told) == len(before) + len(after)
    for words, line in zip([*before.values(), *after.values()], told, strict=True):
        assert words in line


def test_a_storage_out_of_sight_is_not_called_an_emptied_one():
    lines = run(
        "from helpers import explain_storage",
        'open_device("abacus")',
        "held, emptied = hold([1.0, 2.0]), torch.ones(2)",
        "emptied.untyped_storage().resize_(0)",
        "print(explain_storage(held))",
        "print(explain_storage(emptied).text)",
    )
    assert lines[0].endswith("is on the device abacus, whose memory PyTorch does not see: its storage tells 0 bytes.")
    assert "was resized to 0 bytes" in lines[1]


def test_a_tensor_that_cannot_be_printed_is_not_told_that_its_memory_belongs_to_someone_else():
    lines = run(
        "from helpers import explain_error",
        'kernels = open_device("abacus")',
        "kernels.impl('empty_strided', lambda size, stride, dtype=None, **o: hold(np.zeros(size), dtype))",
        "kernels.impl('as_strided', lambda x, size, *rest: hold(array_of(x).reshape(size).copy()))",
        "rest = fallback_library()",
        "run_on_cpu = lambda op, *args, **more: to_device(op(*to_host(args), **to_host(more)))",
        "rest.fallback(run_on_cpu, 'PrivateUse1')",
        "held = hold(np.ones(2, np.float32))",
        "print(explain_error(lambda: repr(held)))",
    )
    assert "the memory of this device cannot grow" in lines[0]
    assert "t.cpu()" in lines[1]
