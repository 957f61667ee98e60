"""Chapter 02: right answers other than the printed solution pass, and any other answer gets a true sentence."""

from __future__ import annotations

import math

import nbformat
import numpy as np
import pytest
import torch

from helpers.course.exercises.chapter_02 import EXERCISES
from helpers.course.quiz import check
from helpers.course.story import GaussianNLL, gaussian_nll

NOTEBOOK = nbformat.read("notebooks/02_autograd.ipynb", as_version=4)
TINY = "\n".join(cell.source for cell in NOTEBOOK.cells if cell.id in ("tiny-class", "tiny-sort", "tiny-backward"))


def verdict(exercise: str, source: str, name: str = "answer"):
    """Check what `source` gives `name` to; it is run as a cell is, beside the cell of the class Value."""
    names = {"torch": torch, "math": math, "np": np, "GaussianNLL": GaussianNLL, "gaussian_nll": gaussian_nll}
    exec(f"import functools\n{TINY}\n{source}", names)
    return check(exercise, names[name])


def function(signature: str, *lines: str) -> str:
    return f"def answer({signature}):\n" + "\n".join(f"    {line}" for line in lines)


def mended(*lines: str) -> str:
    body = "\n".join(
        f"        {line}" for line in ("mean, log_var, target = ctx.saved_tensors", "e = target - mean", *lines)
    )
    return f"class answer(GaussianNLL):\n    @staticmethod\n    def backward(ctx, gradient):\n{body}\n"


ACCUMULATE = ("total = sum(t.numel() for _, t in parts)", "model.zero_grad()")
GAN = ("fake = g(noise)", "d_optimizer.zero_grad()", "d(fake.detach()).mean().backward()", "d_optimizer.step()")

RIGHT = {
    "ex-next": [
        'answer = ["MulBackward0", "torch::autograd::AccumulateGrad"]',
        'answer = ("MulBackward0 ", " AccumulateGrad")',
        'answer = "MulBackward0, AccumulateGrad"',
        'answer = iter(["<MulBackward0 object at 0x7f01>", "AccumulateGrad"])',
    ],
    "ex-order": [
        'answer = "AddBackward0 SinBackward0 ExpBackward0 MulBackward0"',
        'answer = ["AddBackward0", "SinBackward0", "torch::autograd::AccumulateGrad", "ExpBackward0", "MulBackward0"]',
    ],
    "ex-power": [
        "answer = lambda x, n: math.prod([x] * (n - 1), start=x)",
        "answer = lambda x, n: x if n == 1 else answer(x, n // 2) * answer(x, n - n // 2)",
        function("x, n", "result = x", "for _ in range(n - 1):", "    result = x.mul(result)", "return result"),
    ],
    "ex-recorded": ['answer = "acf"', 'answer = {"a", "C", "f"}', 'answer = np.array(["a", "c", "f"])'],
    "ex-convert": [
        "answer = lambda: torch.ones(3).double().requires_grad_()",
        "answer = lambda: torch.nn.Parameter(torch.ones(3, dtype=torch.float64))",
        "answer = lambda: torch.ones(3, requires_grad=True).to(torch.float64).detach().requires_grad_()",
    ],
    "ex-accumulate": [
        function(
            "model, parts",
            *ACCUMULATE,
            "loss = sum((model(i) - t).pow(2).sum() for i, t in parts) / total",
            "loss.backward()",
        ),
        function(
            "model, parts",
            *ACCUMULATE,
            "for i, t in parts:",
            "    loss = torch.nn.functional.mse_loss(model(i), t)",
            "    (loss * t.numel() / total).backward()",
        ),
        function(
            "model, parts",
            "inputs, targets = (torch.cat(c) for c in zip(*parts))",
            "loss = (model(inputs) - targets).pow(2).mean()",
            "for p, g in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters()))):",
            "    p.grad = g",
        ),
    ],
    "ex-carried": [
        function(
            "cell, inputs",
            "h = torch.zeros(1, 3)",
            "for x in inputs:",
            "    h = cell(x, h)",
            "    h.sum().backward()",
            "    h = h.detach()",
            "return h",
        ),
        function(
            "cell, inputs",
            "h, total = torch.zeros(1, 3), 0",
            "for x in inputs:",
            "    h = cell(x, h.detach())",
            "    total = total + h.sum()",
            "total.backward()",
            "return h",
        ),
        function(
            "cell, inputs",
            "h = torch.zeros(1, 3)",
            "for x in inputs:",
            "    h = cell(x, h.detach_())",
            "    h.sum().backward()",
            "return h",
        ),
    ],
    "ex-saves": ['answer = "a, d and f"'],
    "ex-gan": [
        function(
            "g, d, d_optimizer, noise",
            "with torch.no_grad():",
            "    fake = g(noise)",
            "d_optimizer.zero_grad()",
            "d(fake).mean().backward()",
            "d_optimizer.step()",
            "d.requires_grad_(False)",
            "(-d(g(noise)).mean()).backward()",
            "d.requires_grad_(True)",
        ),
        function("g, d, d_optimizer, noise", *GAN, "d(fake).mean().neg().backward()"),
        function(
            "g, d, d_optimizer, noise",
            "fake = g(noise)",
            "d_optimizer.zero_grad()",
            "d(fake).mean().backward(retain_graph=True, inputs=list(d.parameters()))",
            "d_optimizer.step()",
            "(-d(fake).mean()).backward()",
        ),
    ],
    "ex-halve": [
        function("layer", "with torch.no_grad():", "    layer.weight.copy_(layer.weight / 2)"),
        function("layer", "layer.weight.detach().mul_(0.5)"),
        function("layer", "layer.weight.data.mul_(0.5)"),
        function("layer", "layer.weight.requires_grad_(False).mul_(0.5).requires_grad_()"),
    ],
    "ex-cut": [
        f"answer = {text!r}"
        for text in (
            "to",
            ".to",
            "to()",
            "`to`",
            "Tensor.to",
            ".to(torch.uint8)",
            "(opening * 4).round().to(torch.uint8)",
            "mask = (opening * 4).round().to(torch.uint8)",
            "the call to",
        )
    ],
    "ex-hook": [
        function("h, seen", "def hook(g):", "    seen.append(g.abs().amax())", "return h.register_hook(hook)"),
        function("h, seen", "return h.register_hook(lambda g: seen.append(max(g.max().item(), -g.min().item())))"),
    ],
    "ex-softplus": [
        "class answer(torch.autograd.Function):\n    @staticmethod\n    def forward(x):\n"
        "        return torch.nn.functional.softplus(x)\n\n"
        "    @staticmethod\n    def setup_context(ctx, inputs, output):\n"
        "        ctx.save_for_backward(*inputs)\n\n    @staticmethod\n    def backward(ctx, g):\n"
        "        return g / (1 + torch.exp(-ctx.saved_tensors[0]))"
    ],
    "ex-relu": [
        "answer = lambda x, gradient: gradient * (x > 0)",
        "answer = lambda x, gradient: torch.where(x > 0, gradient, 0.0)",
        "answer = lambda x, gradient: (gradient * (x > 0)).float()",
    ],
    "ex-story": [
        mended(
            "n = mean.numel()",
            "v = torch.exp(-log_var)",
            "return -gradient * e * v / n, gradient * (1 - e * e * v) / (2 * n), None",
        ),
        mended(
            "with torch.enable_grad():",
            "    m, s = mean.detach().requires_grad_(), log_var.detach().requires_grad_()",
            "    a, b = torch.autograd.grad(gaussian_nll(m, s, target), (m, s))",
            "return gradient * a, gradient * b, None",
        ),
    ],
    "ex-verdicts": [
        f"answer = {text!r}"
        for text in (
            "B",
            " b. ",
            ["b"],
            "gradient * x.sum() + (gradient * x).sum()",
            "`gradient*x.sum() + (gradient*x).sum()`",
            "b. gradient * x.sum() + (gradient * x).sum()",
        )
    ],
    "ex-tiny": [
        "answer = lambda v: Value(math.tanh(v.data), [(v, 1 / math.cosh(v.data) ** 2)])",
        function("v", "t = np.tanh(v.data)", "return Value(t, ((v, 1 - t * t),), 'Tanh')"),
        "def two(base, v):\n    t = math.tanh(v.data)\n    return Value(t, [(v, 1 - t**2)])\n"
        "answer = functools.partial(two, 1)",
    ],
}

WRONG = {
    "ex-next": [
        ('answer = ["Mul", "AccumulateGrad"]', "The nodes are right. PyTorch writes MulBackward0, not 'Mul'."),
        ('answer = ["MulBackward", "accumulategrad"]', "PyTorch writes MulBackward0, not 'MulBackward'"),
        ('answer = ["AccumulateGrad", "Mul"]', "from left to right. PyTorch writes MulBackward0"),
        ('answer = "MulBackward0"', "Two names are wanted"),
    ],
    "ex-order": [
        ('answer = ["Add", "Sin", "Exp", "Mul"]', "The order is right. PyTorch writes AddBackward0, not 'Add'."),
        ('answer = ["Add", "Exp", "Sin", "Mul"]', "sin last"),
        ('answer = ["AddBackward0", "MulBackward0", "ExpBackward0", "SinBackward0"]', "an input of exp"),
    ],
    "ex-power": [
        (function("x, n", "r = x", "for _ in range(n - 1):", "    r = r * x.item()", "return r"), "is 1.1, and n * x"),
        (function("x, n", "r = x", "for _ in range(n - 1):", "    r = r * x.detach()", "return r"), "gets no gradient"),
        ("answer = lambda x, n: torch.ones(2)", "has the wrong value"),
    ],
    "ex-accumulate": [
        (
            function(
                "model, parts",
                *ACCUMULATE,
                "for i, t in parts:",
                "    ((model(i) - t).pow(2).sum() / total).backward()",
                "model.bias.grad = None",
            ),
            "gradient of model.bias is None",
        ),
        ("answer = lambda model, parts: None", "the one from before the call"),
        (
            function("model, parts", *ACCUMULATE, "for i, t in parts:", "    model(i).mean().backward()"),
            "The gradient of model.weight is wrong for parts of [2, 2] rows",
        ),
        (
            function(
                "model, parts",
                *ACCUMULATE,
                "for i, t in parts:",
                "    ((model(i) - t).pow(2).sum() / total).backward()",
                "torch.optim.SGD(model.parameters(), lr=0.1).step()",
            ),
            "changed model.weight itself",
        ),
    ],
    "ex-carried": [
        (
            function(
                "cell, inputs",
                "h = torch.zeros(1, 3)",
                "for x in inputs:",
                "    h = cell(x, h.detach())",
                f"    h.sum().backward({keep}=True)",
                "return h",
            ),
            "still there after its backward",
        )
        for keep in ("retain_graph", "create_graph")
    ]
    + [
        (
            function(
                "cell, inputs",
                "h = torch.zeros(1, 3)",
                "for x in inputs:",
                "    h = cell(x, h)",
                "    h.sum().backward(retain_graph=True)",
                "    h.detach_()",
                "return h",
            ),
            "still there after its backward",
        ),
        (function("cell, inputs", "return None"), "train returned None; the last h is wanted"),
        (function("cell, inputs", "return 3"), "train returned 3; the last h is wanted"),
    ],
    "ex-gan": [
        (function("g, d, d_optimizer, noise", *GAN, "d(fake).mean().backward()"), "the minus of"),
        (
            function(
                "g, d, d_optimizer, noise",
                "fake = g(noise)",
                "d_optimizer.zero_grad()",
                "(-d(fake).mean()).backward()",
                "d_optimizer.zero_grad()",
                "d(fake.detach()).mean().backward()",
                "d_optimizer.step()",
            ),
            "that of the old d",
        ),
        (
            function(
                "g, d, d_optimizer, noise",
                "fake = g(noise)",
                "d_optimizer.zero_grad()",
                "d(fake).mean().backward()",
                "d_optimizer.step()",
            ),
            "with the old d: the new score and the minus are missing",
        ),
        (
            function(
                "g, d, d_optimizer, noise",
                "d_optimizer.zero_grad()",
                "d(g(noise)).mean().backward()",
                "d_optimizer.step()",
                "d(g(noise)).mean().backward()",
            ),
            "has sent a gradient into g. And g has the gradient of d(fake).mean()",
        ),
        (
            function("g, d, d_optimizer, noise", *GAN, "(-d(fake).mean()).backward()", "g.weight.data.mul_(2)"),
            "parameters of g have changed",
        ),
    ],
    "ex-halve": [
        (function("layer", "layer.weight.data = layer.weight.data * 0.5"), "not in place"),
        (
            function("layer", "with torch.no_grad():", "    layer.weight *= 0.5", "    layer.bias *= 0.5"),
            "The bias has changed too",
        ),
    ],
    "ex-cut": [
        ('answer = "self.head(hidden * mask / 4)"', "head is recorded"),
        ('answer = "(opening * 4).round()"', "round is recorded"),
        ('answer = ""', "names the call"),
    ],
    "ex-hook": [
        (function("h, seen", "h.register_hook(lambda g: seen.append(g.abs().max()))", "return seen"), "the handle"),
        (
            function(
                "h, seen", "h.register_hook(lambda g: seen.append(g.abs().max()))", "return h.register_hook(print)"
            ),
            "the hook still runs",
        ),
        (function("h, seen", "return h.register_hook(seen.append)"), "the largest absolute value"),
    ],
    "ex-softplus": [
        (
            "class answer(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return None",
            "forward is not log",
        ),
        (
            "class answer(torch.autograd.Function):\n    @staticmethod\n"
            "    def forward(ctx, x):\n        return x.nothing",
            "`answer` raised AttributeError",
        ),
    ],
    "ex-story": [
        (
            mended(
                "n = mean.numel()",
                "v = torch.exp(-log_var)",
                "return -e * v / n, (1 - e * e * v) / (2 * n), None",
            ),
            "incoming gradient",
        ),
        (mended("return gradient * e"), "takes 3 arguments (mean, log_var, target) but backward returned 1 value"),
        (mended("return None"), "backward returned 1 value"),
        (mended("return None, None, None"), "returns None for `mean`, which needs a gradient"),
        (mended("raise ValueError('no')"), "answer.backward raises ValueError: no"),
        (mended("return gradient, gradient * e, None"), "shape"),
    ],
    "ex-verdicts": [
        ('answer = "c"', "c lets an element"),
        ('answer = "gradient * x.sum()"', "a forgets"),
        ('answer = ""', "One letter is wanted"),
        ('answer = "gradient * 2"', "One letter is wanted, a, b or c"),
        ('answer = "ab"', "One letter is wanted"),
    ],
    "ex-tiny": [
        ("answer = None", "A function tanh(value) is wanted, and None came"),
        ("answer = math.tanh", "not a function of your own"),
        ("answer = torch.tanh", "not a function of your own"),
        ("answer = torch.nn.functional.tanh", "not a function of your own"),
        (
            function("v", "t = torch.tanh(torch.tensor(v.data))", "return Value(t, [(v, 1 - t**2)])"),
            "right to 7 digits only",
        ),
        (
            function("v", "v.data = t = math.tanh(v.data)", "return Value(t, [(v, 1 - t**2)])"),
            "changed the data of its input from -1.5",
        ),
        (function("v", "t = math.tanh(v.data)", "return Value(t, [v, 1 - t**2])"), "pairs is wanted, (value, slope)"),
        (function("v", "t = math.tanh(v.data)", "return Value(t, [(v, None)])"), "The slope is None"),
        (function("v", "return Value(v, [(v, 1)])"), "it should be"),
    ],
}


@pytest.mark.parametrize(("exercise", "source"), [(name, source) for name in RIGHT for source in RIGHT[name]])
def test_another_right_answer_passes(exercise, source):
    found = verdict(exercise, source)
    assert found.status == "right", f"{found}\n{source}"


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph")
@pytest.mark.parametrize(("exercise", "source", "words"), [(name, *pair) for name in WRONG for pair in WRONG[name]])
def test_a_wrong_answer_is_told_its_own_reason(exercise, source, words):
    found = verdict(exercise, source)
    assert found.status == "wrong", f"{found}\n{source}"
    assert words in found.text, f"{found}\n{source}"


def test_the_praise_for_halving_says_whether_the_write_was_seen():
    assert "has seen it" in verdict("ex-halve", RIGHT["ex-halve"][0]).text
    assert "did not see it" in verdict("ex-halve", RIGHT["ex-halve"][2]).text


class Plain:
    """An answer that is a class."""


class Odd:
    """An answer whose attributes, its class among them, raise."""

    def __getattribute__(self, name):
        raise ValueError("odd")


def raising(*args):
    raise ValueError("no such luck")


ODD = [
    None, "", " ", [], (), {}, set(), object(), Plain, Odd(), int, torch.autograd.Function, torch.nn.Linear, raising,
    lambda *args: None, lambda *args: math.nan, lambda *args: args, lambda *args: (x for x in args),
    lambda *args: np.ones(3), lambda *args: torch.ones(3, 3), lambda *args: torch.empty(3, device="meta"),
    lambda: None, math.tanh, torch.tanh, torch.nn.Tanh(), print, math.nan, [math.nan], ["", None], [[]], True,
    np.float64(1), np.nan, np.array([1.0, 2.0]), np.array("a"), torch.ones(2), torch.tensor(1),
]  # fmt: skip


@pytest.mark.parametrize("exercise", EXERCISES)
def test_an_odd_answer_gets_a_sentence(exercise):
    answers = [*ODD, (letter for letter in "xy")]
    for answer in answers:
        found = check(exercise, answer)
        assert found.status == "wrong" or (answer is torch.autograd.Function and found.status == "open"), (
            answer,
            found,
        )
        if type(answer) is Odd:
            continue
        for words in ("reading it", "Traceback", "object has no attribute", "not callable"):
            assert words not in found.text, (type(answer), found.text)


def test_a_function_that_raises_is_quoted():
    assert "raising(" in check("ex-power", raising).text
    assert "raised ValueError: no such luck" in check("ex-power", raising).text
