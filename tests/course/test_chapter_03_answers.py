"""Chapter 03: right answers other than the printed solution pass, and any other answer gets a true sentence."""

from __future__ import annotations

import re

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.course.exercises.chapter_03 import EXERCISES
from helpers.course.quiz import check
from tests.wrong_answers.chapter_03 import PASS_ON, copies, count, flops


def verdict(exercise: str, source: str, name: str = "answer"):
    names = {"torch": torch, "TorchFunctionMode": TorchFunctionMode, "TorchDispatchMode": TorchDispatchMode}
    exec(source, names)
    return check(exercise, names[name])


RIGHT = {
    "ex-first": [
        'answer = "select.int"',
        "answer = torch.ops.aten.select.int",
        'answer = " aten.select.int "',
        'answer = "torch.ops.aten.select.int"',
        'answer = "aten::select.int()"',
    ],
    "ex-keys": [
        "@torch.inference_mode()\ndef answer():\n    return torch.zeros(2, 2, dtype=torch.complex128).mH",
        "def answer():\n    with torch.inference_mode():\n"
        "        return torch.view_as_complex(torch.ones(3, 2)).conj()",
    ],
    "ex-winner": [
        "answer = lambda k, e, f: next((x for x in k if x not in e | f), None)",
        "def answer(keys, excluded, fallthrough):\n    excluded |= fallthrough\n"
        "    left = [k for k in keys if k not in excluded]\n    return left[0] if left else None",
    ],
    "ex-paths": [
        'answer = (("AutogradCPU", "CPU"), ("AutogradMeta", "Meta"), ("SparseCPU",))',
        'answer = ["AutogradCPU → CPU", "AutogradMeta → Meta", "SparseCPU"]',
        'answer = ["AutogradCPU, CPU", "AutogradMeta, Meta", "SparseCPU"]',
        'answer = ["AutogradCPU -> CPU", "AutogradMeta -> Meta", "SparseCPU"]',
        'import numpy as np\nanswer = np.array(["AutogradCPU → CPU", "AutogradMeta → Meta", "SparseCPU"])',
    ],
    "ex-casts": ['answer = "ad"', 'answer = ("d", "a")'],
    "ex-linear": [
        'answer = "addmm"',
        "answer = torch.addmm",
        'answer = "torch.addmm"',
        "answer = torch.ops.aten.addmm.default",
        'answer = "aten::addmm.default"',
    ],
    "ex-composite": ['answer = "reshape, dropout, einsum"', 'answer = {"aten::einsum", "reshape", "dropout"}'],
    "ex-take": ["answer = torch.long", 'answer = "torch.int64"', 'answer = "long"'],
    "ex-no-kernel": ["answer = str(torch._C.DispatchKey.SparseCsrCPU)", 'answer = " SparseCsrCPU "'],
}
CLASSES = {
    "ex-count": (
        "Count",
        [
            count(
                "from collections import Counter\n"
                f"        self.counts = Counter(self.counts) + Counter([func.__name__])\n        {PASS_ON}"
            ),
            count(f"self.counts[func] = self.counts.get(func, 0) + 1\n        {PASS_ON}"),
        ],
    ),
    "ex-flops": (
        "Flops",
        [
            flops(
                'name = func.name()\n        if name.split("::")[1] in ("mm", "addmm", "bmm"):\n'
                "            out = func(*args, **(kwargs or {}))\n"
                "            self.total += 2 * out.numel() * args[-1].shape[-2]\n            return out\n"
                f"        {PASS_ON}"
            )
        ],
    ),
    "ex-copy-log": (
        "Copies",
        [
            copies(
                "copying = (torch.ops.aten.clone, torch.ops.aten._to_copy, torch.ops.aten.copy_)\n"
                "        if func.overloadpacket in copying:\n            self.found.append(str(func))\n"
                f"        {PASS_ON}"
            )
        ],
    ),
}
WRONG = {
    "ex-first": [
        ('answer = "aten::slice.Tensor"', "does not come first"),
        ("answer = torch.ops.aten.select", "has overloads"),
        ('answer = ""', "A text with the name"),
        ('answer = "selection"', "does not come first"),
        ('answer = "aten::select_copy.int"', "does not come first"),
        ("answer = torch.select", "has overloads"),
        ("answer = torch.nn.functional.linear", "does not come first"),
    ],
    "ex-keys": [
        ("answer = torch.ones(3)", r"make\(\) is wanted"),
        ("def answer():\n    return torch.ones(3)", "Make it where tensors get no Autograd key"),
        ("def answer():\n    return None", "make() returned None"),
        ("def answer():\n    return 1 / 0", "ZeroDivisionError"),
    ],
    "ex-winner": [
        ("answer = lambda keys: keys[0]", "raised TypeError|takes 1 positional"),
        ("answer = lambda k, e, f: 7", "One key is wanted, as a text"),
        ("answer = lambda k, e, f: None", "Return a key"),
        ('answer = lambda k, e, f: "GPU"', "It must be one of the keys"),
        ("answer = torch.nn.Linear", "winner"),
    ],
    "ex-paths": [
        ("answer = None", "Three lists of keys"),
        ("answer = [[], [], []]", "Line 1: a normal tensor asks Autograd first"),
        ("answer = [1, 2, 3]", "Line 1: a list of keys is wanted, and 1 came"),
        ('answer = [["AutogradCPU", "Meta"], ["Meta"], ["CPU"]]', "Line 1: look at the backend"),
    ],
    "ex-linear": [
        ('answer = ""', "A text"),
        ('answer = "bmm"', "is not called here"),
        ("answer = ['addmm']", "A text"),
    ],
    "ex-composite": [("answer = []", "reshape decides"), ("answer = [1]", "A list of names")],
    "ex-take": [
        ("answer = torch.bool", "is no index"),
        ("answer = torch.complex64", "is no index"),
        ("answer = torch.quint8", "is no index"),
        ("answer = lambda: 1", "a function came"),
        ("answer = torch.ones(2)", "a tensor of shape (2,) came"),
        ("answer = torch.uint8", "of the wrong size"),
    ],
    "ex-count": [
        ("answer = 3", "A class Count"),
        ("answer = dict", "A class Count"),
        (count("raise ValueError('no')").replace("Count", "answer"), "raised ValueError: no"),
        (count(f"self.counts = 3\n        {PASS_ON}").replace("Count", "answer"), "a dict is wanted"),
        (
            count(
                "self.counts[func.__name__] = self.counts.get(func.__name__, 0) + 1\n"
                f"        self.counts['x'] = 1\n        {PASS_ON}"
            ).replace("Count", "answer"),
            "counts has x, which was not called",
        ),
        (
            "class answer(TorchFunctionMode):\n    def __init__(self, size):\n        self.counts = {}\n"
            f"    def __torch_function__(self, func, types, args=(), kwargs=None):\n        {PASS_ON}",
            r"Count\(\) raised TypeError",
        ),
    ],
    "ex-flops": [
        ("answer = TorchFunctionMode", "A class Flops"),
        (
            "class answer(TorchDispatchMode):\n    total = torch.tensor(0)\n"
            "    def __torch_dispatch__(self, func, types, args=(), kwargs=None):\n        return func(*args)",
            "total belongs to the class",
        ),
        (flops("return func(*args)").replace("Flops", "answer"), "84 operations; yours counts 0"),
    ],
    "ex-copy-log": [
        ("answer = None", "A class Copies"),
        (copies(f"self.found = None\n        {PASS_ON}").replace("Copies", "answer"), "a list of names is wanted"),
    ],
    "ex-no-kernel": [('answer = "cpu"', "There is no key 'cpu'"), ("answer = None", "None came")],
}


@pytest.mark.parametrize(("exercise", "source"), [(name, source) for name in RIGHT for source in RIGHT[name]])
def test_another_right_answer_passes(exercise, source):
    found = verdict(exercise, source)
    assert found.status == "right", f"{found}\n{source}"


@pytest.mark.parametrize(
    ("exercise", "name", "source"), [(e, name, source) for e, (name, all_) in CLASSES.items() for source in all_]
)
def test_another_right_class_passes(exercise, name, source):
    found = verdict(exercise, source, name)
    assert found.status == "right", f"{found}\n{source}"


@pytest.mark.parametrize(("exercise", "source", "words"), [(name, *pair) for name in WRONG for pair in WRONG[name]])
def test_a_wrong_answer_is_told_its_own_reason(exercise, source, words):
    found = verdict(exercise, source)
    assert found.status == "wrong", f"{found}\n{source}"
    assert words in found.text or re.search(words, found.text), f"{found}\n{source}"


@pytest.mark.parametrize("exercise", ["ex-count", "ex-flops", "ex-copy-log"])
def test_a_class_without_the_method_is_not_attempted_yet(exercise):
    base = "TorchFunctionMode" if exercise == "ex-count" else "TorchDispatchMode"
    assert verdict(exercise, f"class answer({base}):\n    pass").status == "open"


@pytest.mark.parametrize("exercise", EXERCISES)
@pytest.mark.parametrize("answer", [None, 3, "x", [], {}, torch.ones(2), torch.nn.Linear, object(), float("nan")])
def test_odd_answers_get_a_sentence(exercise, answer):
    found = check(exercise, answer)
    assert found.status == "wrong"
    assert "Traceback" not in found.text
    assert 10 < len(found.text) < 400
