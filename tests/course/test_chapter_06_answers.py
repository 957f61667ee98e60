"""Chapter 06: right answers other than the printed solution pass, and any other answer gets a true sentence."""

from __future__ import annotations

import copy
import functools
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch

from helpers.course.exercises.chapter_06 import EXERCISES
from helpers.course.quiz import check
from helpers.model.adapter import operator_names, registrations
from tools.nbharness.run import run_notebooks

ROOT = Path(__file__).resolve().parents[2]
NAMES = {"torch": torch, "math": math, "np": np, "functools": functools}


@pytest.fixture(autouse=True, scope="module")
def by_hand():
    """Give the operator that the chapter defines before exercise 6.8; once, as torch 2.11 crashes when it is remade."""
    library = torch.library.Library("by_hand", "FRAGMENT")
    library.define("shares(Tensor x) -> Tensor")

    def shares(x: torch.Tensor) -> torch.Tensor:
        values = x.detach().numpy()
        return torch.from_numpy(values / values.sum(-1, keepdims=True))

    library.impl("shares", shares, "CPU")
    yield
    del library


def verdict(exercise: str, source: str):
    names = dict(NAMES)
    exec(source, names)
    return check(exercise, names["answer"])


def function(signature: str, *lines: str) -> str:
    return f"def answer({signature}):\n" + "\n".join(f"    {line}" for line in lines)


def pair(remember: str, *backward: str) -> str:
    body = "\n".join(f"    {line}" for line in backward)
    return f"def remember(ctx, inputs, output):\n    {remember}\n\ndef backward(ctx, g):\n{body}\n\nanswer = "


SAVE = "ctx.save_for_backward(*inputs)"

RIGHT = {
    "ex-entry": ['answer = ["aten::tanh.out", " tanh_out "]'],
    "ex-formula": ['answer = "acf"', 'answer = ("F", "C", "A")'],
    "ex-backward": [
        pair(
            SAVE,
            "x, y = ctx.saved_tensors",
            "n = (x * x + y * y).sqrt()",
            "return g * x / n, g * y / n",
        )
        + "(remember, backward)",
        pair(
            SAVE,
            "with torch.enable_grad():",
            "    x, y = (t.detach().requires_grad_() for t in ctx.saved_tensors)",
            "    return torch.autograd.grad(torch.hypot(x, y), (x, y), g)",
        )
        + "[remember, backward]",
        pair("ctx.angle = torch.atan2(inputs[1], inputs[0])", "return g * ctx.angle.cos(), g * ctx.angle.sin()")
        + "(remember, backward)",
    ],
    "ex-fake": [
        "answer = lambda x: x[:, None] - x",
        "answer = lambda x: torch.empty(x.shape * 2, dtype=x.dtype, device=x.device)",
        "answer = lambda x: x.new_zeros(x.numel(), x.numel())",
    ],
    "ex-alias": ['answer = "a, c and d"', 'answer = {"d", "c", "A"}'],
    "ex-schema": [
        'answer = "scale_(Tensor(a!) self, float f) -> ()"',
        'answer = " scale_(Tensor(z!) x, float factor=1.0) -> () "',
    ],
    "ex-missing": [
        function("library", 'library.impl("double", lambda x: x + x, "CPU")'),
        function("library", 'torch.library.impl(library, "double", "CPU")(lambda x: 2 * x)'),
        function("library", 'library.impl("double", lambda x: 2 * x, "CompositeExplicitAutograd")'),
    ],
    "ex-vmap": [
        function(
            "info, in_dims, x", "return torch.ops.by_hand.shares(x.transpose(0, in_dims[0]).contiguous()), 0"
        ).replace("x.transpose(0, in_dims[0]).contiguous()", "x.movedim(*in_dims, 0)"),
        function(
            "info, in_dims, x",
            "(d,) = in_dims",
            "y = x.movedim(d, 0)",
            "return torch.ops.by_hand.shares(y).movedim(0, -1), y.dim() - 1",
        ),
    ],
    "ex-cpp": [
        'answer = "clip(Tensor double_x, float low, float? high, int times=1) -> Tensor"',
        'answer = "clip(Tensor self, float low, float? high, int n=1) -> Tensor"',
        'answer = "clip(Tensor x, float low, float? high=None, int times=1) -> Tensor"',
        'answer = " clip(Tensor x, float low, float? high, int times = 1) -> Tensor "',
    ],
    "ex-device": [
        "answer = lambda x, *, out: np.negative(array_of(x), out=array_of(out)) is None or out",
        function("x, out", "array_of(out)[:] = 0 - array_of(x)", "return out"),
    ],
    "ex-fallback": ['answer = "ace"'],
}

WRONG = {
    "ex-entry": [
        ('answer = ("sinh.out", "tanh_out")', "'sinh.out' does not do the work of tanh"),
        ("answer = (1, 2)", "Two names are wanted"),
    ],
    "ex-formula": [('answer = "x"', "There is no 'x'"), ("answer = [1]", "A list of letters")],
    "ex-backward": [
        ("answer = lambda ctx, g: g", "Two functions are wanted"),
        ("answer = (1, 2)", "Two functions are wanted"),
        (pair("pass", "return ctx.saved_tensors") + "(remember, backward)", "Backward returned ()"),
        (pair(SAVE, "raise ValueError('no')") + "(remember, backward)", "raised ValueError: no"),
        (pair("ctx.x = inputs.x", "return g, g") + "(remember, backward)", "raised AttributeError"),
        (pair(SAVE, "return g, g, g") + "(remember, backward)", "a gradient for x and one for y are wanted"),
        (pair(SAVE, "return 1, 2") + "(remember, backward)", "returned 1 as a gradient; a tensor is wanted"),
        (pair(SAVE, "return g[:1], g") + "(remember, backward)", "has the shape of its input, (2,); yours has (1,)"),
        (pair(SAVE, "return [g, g]") + "(remember, backward)", "returned a list; a tuple is wanted"),
        (pair("inputs[1].mul_(2)", "return g, g") + "(remember, backward)", "Your function remember wrote into y"),
        (pair("output.data.zero_()", "return g, g") + "(remember, backward)", "remember wrote into output"),
        (pair(SAVE, "x, y = ctx.saved_tensors", "x.mul_(2)", "return g, g") + "(remember, backward)", "wrote into x"),
        (pair(SAVE, "return g.numpy(), g.numpy()") + "(remember, backward)", "as a gradient; a tensor is wanted"),
        (pair(SAVE, "return g.view(2, 1), g") + "(remember, backward)", "has the shape of its input, (2,); yours"),
        (pair(SAVE, "g.neg_()", "return g, g") + "(remember, backward)", "backward wrote into gradient"),
    ],
    "ex-fake": [
        ("answer = lambda: 3", "raised TypeError"),
        ("answer = lambda x: None", "returned None"),
        ("answer = lambda x: torch.ones(2).to(x.device)", "gives the shape (3, 3), and your fake kernel (2,)"),
        ("answer = lambda x: [v - w for v in x.tolist() for w in x.tolist()]", "raised"),
        (function("x", "raise KeyError('k')"), "raised KeyError"),
    ],
    "ex-alias": [("answer = []", "contiguous already"), ("answer = 7", "A list of letters")],
    "ex-schema": [
        ('answer = "scale(Tensor(a!) x, float factor) -> ()"', "starts with the operator's name"),
        ('answer = "scale_(Tensor(a!) x, int factor) -> ()"', "your schema Tensor, int"),
        ('answer = "scale_(" * 50', "torch can't read this schema"),
        ('answer = "scale_.a.b(Tensor x) -> ()"', "starts with the operator's name"),
    ],
    "ex-missing": [
        (function("library", 'library.impl("double", lambda x: x.mul_(2), "CPU")'), "writes into x"),
        (function("library", 'library.impl("double", lambda x: (2 * x).double(), "CPU")'), "gives torch.float64"),
        (function("library", 'library.impl("double", lambda x: 2 * x, "CPU")', "library._destroy()"), "leave it open"),
        (function("library", "import sys", "sys.exit(2)"), "raised SystemExit"),
        (function("library", 'library.impl("double", lambda: 1, "CPU")'), "raised TypeError"),
        (function("library", 'library.impl("double", lambda x: None, "CPU")'), "gives|raised"),
        (function("library", 'library.impl("twice", lambda x: 2 * x, "CPU")'), "still says"),
        (function("library", 'library.impl("double", lambda x: 2 * x, "GPU")'), "raised"),
        (function("", "pass"), "raised TypeError"),
        (function("library", "raise ValueError('no')"), "raised ValueError: no"),
    ],
    "ex-vmap": [
        (function("x", "return x"), "raised TypeError"),
        (function("info, in_dims, x", "return None"), "The rule returned None; a pair is wanted"),
        (function("info, in_dims, x", "return x, 7"), "raised|other numbers than a loop"),
        (function("info, in_dims, x", "return x, 0"), "other numbers than a loop"),
        (function("info, in_dims, x", "raise KeyError('k')"), "raised KeyError"),
        (
            function("info, in_dims, x", "x = x.movedim(in_dims[0], 0)", "return x / x.sum(-1, keepdim=True), 0"),
            "ran the kernel 0 times",
        ),
    ],
    "ex-cpp": [
        (
            'answer = "clip(Tensor(a!) x, float low, float? high, int times=1) -> Tensor(a!)"',
            "no letter in parentheses",
        ),
        ('answer = "clip(Tensor x, double low, float? high, int times=1) -> Tensor"', "double is C++"),
        ('answer = "clip(" * 5000', "one short line"),
        ('answer = "clop(Tensor x) -> Tensor"', "starts with the operator's name"),
        ('answer = "clip() -> Tensor"', "Your schema has 0 arguments, and the function 4"),
        ('answer = "clip(Tensor x, float low, float? high, int times=1) -> (Tensor, Tensor)"', "returns one tensor"),
        (
            'answer = "clip(Tensor x, float low, float? high, int times=1, int more=2) -> Tensor"',
            "Your schema has 5 arguments, and the function 4",
        ),
        ('answer = "clip(at::Tensor x) -> at::Tensor"', "at:: is C++"),
    ],
    "ex-device": [
        ("answer = lambda x, *, out: None", "holds|raised"),
        ("answer = lambda: 1", "raised TypeError"),
        (function("x, *, out", "raise KeyError('k')"), "raised KeyError"),
        (function("x, *, out", "array_of(out)[...] = array_of(x)", "return out"), "write -x into it"),
    ],
    "ex-fallback": [('answer = "ab"', "Nobody wrote relu"), ("answer = 3", "A list of letters")],
}
ODD = ["None", "'a string'", "int", "torch.ones(2)", "3.5", "[]", "{}", "lambda: 1", "lambda *a, **k: 1", "object()"]
DEVICE = ("ex-device", "ex-fallback")

# A device is for life, so the exercises about it are judged in a process of their own.
IN_DEVICE = """
import functools, json, math, os, sys
from helpers.course.device import array_of, hold, open_device
import numpy as np
import torch
from helpers.course.quiz import check
kernels = open_device("abacus")
for name in ("mm.out", "sub.out", "as_strided"):
    kernels.impl(name, lambda *args, **kwargs: None)
told = []
for exercise, source in json.loads(sys.stdin.read()):
    names = dict(globals())
    exec(source, names)
    found = check(exercise, names["answer"])
    told.append((found.status, found.text))
print(json.dumps(told), flush=True)
os._exit(0)  # at a plain end, autograd's thread of the device may be cut off, which aborts the process
"""


def in_device(asked: list[tuple[str, str]]) -> list[tuple[str, str]]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-c", IN_DEVICE]
    done = subprocess.run(
        command, env=environment, input=json.dumps(asked), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def registered() -> dict[str, dict[str, str]]:
    """Return the operators of the course, with the keys that have a kernel."""
    return {name: registrations(name) for name in operator_names() if name.startswith(("course", "by_hand"))}


def plain(cases: dict) -> dict:
    return {name: entries for name, entries in cases.items() if name not in DEVICE}


@pytest.mark.parametrize(("exercise", "source"), [(name, source) for name, s in plain(RIGHT).items() for source in s])
def test_another_right_answer_passes(exercise, source):
    before = registered()
    found = verdict(exercise, source)
    assert found.status == "right", f"{found}\n{source}"
    assert registered() == before, "a check leaves nothing registered"


@pytest.mark.parametrize(
    ("exercise", "source", "words"), [(name, *case) for name, cases in plain(WRONG).items() for case in cases]
)
def test_a_wrong_answer_is_told_its_own_reason(exercise, source, words):
    before = registered()
    found = verdict(exercise, source)
    assert found.status == "wrong", f"{found}\n{source}"
    assert any(part in found.text for part in words.split("|")), found.text
    assert registered() == before, "a check leaves nothing registered"


@pytest.mark.parametrize("exercise", [name for name in EXERCISES if name not in DEVICE])
@pytest.mark.parametrize("odd", ODD)
def test_an_odd_answer_gets_a_sentence(exercise, odd):
    found = verdict(exercise, f"answer = {odd}")
    assert found.status == "wrong", found
    assert found.text.endswith("."), found
    assert "Traceback" not in found.text
    assert "_Watched" not in found.text
    assert " at 0x" not in found.text


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_same_answer_may_be_checked_again(exercise):
    if exercise not in DEVICE:
        assert [verdict(exercise, RIGHT[exercise][0]).status for _ in range(3)] == ["right"] * 3


def test_answers_about_the_device_are_judged_by_the_device():
    asked = [(name, source) for name in DEVICE for source in RIGHT[name] * 2]
    assert {status for status, _ in in_device(asked)} == {"right"}


def test_wrong_and_odd_answers_about_the_device_get_their_sentence():
    cases = [(name, source, words) for name in DEVICE for source, words in WRONG[name]]
    cases += [(name, f"answer = {odd}", ".") for name in DEVICE for odd in ODD]
    told = in_device([(name, source) for name, source, _ in cases])
    for (name, source, words), (status, text) in zip(cases, told, strict=True):
        assert status == "wrong", f"{name}: {text}\n{source}"
        assert any(part in text for part in words.split("|")), f"{name}: {text}\n{source}"


@pytest.mark.parametrize(("exercise", "words"), [("ex-device", "run the cell"), ("ex-fallback", "run the cells above")])
def test_without_a_device_the_check_says_what_to_run(exercise, words):
    assert words in verdict(exercise, "answer = lambda x, *, out: out").text


def test_the_chapter_runs_twice_in_one_kernel(tmp_path):
    notebook = nbformat.read(ROOT / "notebooks/06_registration.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    again = copy.deepcopy(cells)
    for cell in again:
        cell.id += "-again"
    path = (tmp_path / "06_registration.ipynb").resolve()
    nbformat.write(nbformat.v4.new_notebook(cells=[*cells, *again]), path)
    runs = run_notebooks([path])[path]
    assert len(runs) == 2 * len(cells)
    assert [(run.id, run.sentence) for run in runs if run.outcome not in ("same", "not-compared")] == []
