"""Typical wrong answers of chapter 03, each with a pattern for the message it must get."""


def mode(name: str, base: str, method: str, body: str, start: str = "") -> str:
    """Return the source of a mode with one method."""
    opening = f"    def __init__(self):\n        super().__init__()\n        {start}\n" if start else ""
    return (
        f"class {name}({base}):\n{opening}    def {method}(self, func, types, args=(), kwargs=None):\n        {body}\n"
    )


def count(body: str) -> str:
    return mode("Count", "TorchFunctionMode", "__torch_function__", body, "self.counts = {}")


def flops(body: str, start: str = "self.total = 0") -> str:
    return mode("Flops", "TorchDispatchMode", "__torch_dispatch__", body, start)


def copies(body: str) -> str:
    return mode("Copies", "TorchDispatchMode", "__torch_dispatch__", body, "self.found = []")


PASS_ON = "return func(*args, **(kwargs or {}))"

WRONG = {
    "ex-first": [
        ('operator = "aten::index.Tensor"', "index is for tensors"),
        ('operator = "aten::select"', "Write aten::select.… as the trace prints it"),
        ('operator = "aten::as_strided"', "Which operator called it"),
        ('operator = "aten::select.Dimname"', "the overload is another"),
        ("operator = 3", "A text with the name"),
    ],
    "ex-keys": [
        (
            "def make():\n    return torch.ones(3, dtype=torch.complex64).conj()",
            "It has AutogradCPU and ADInplaceOrView too",
        ),
        (
            "def make():\n    with torch.inference_mode():\n        return torch.ones(3).conj()",
            r"It comes with conj\(\), of a complex tensor",
        ),
        (
            "def make():\n    with torch.inference_mode():\n        return torch.ones(3, dtype=torch.complex64).conj_physical()",
            "It lacks Conjugate",
        ),
        ('def make():\n    return ["Conjugate", "AutocastCPU", "CPU"]', "a tensor is wanted"),
    ],
    "ex-winner": [
        ("def winner(keys, excluded, fallthrough):\n    return keys[0]", "is excluded"),
        (
            "def winner(keys, excluded, fallthrough):\n    return [k for k in keys if k not in excluded][0]",
            "is a fallthrough|list index|IndexError",
        ),
        (
            "def winner(keys, excluded, fallthrough):\n    left = [k for k in keys if k not in excluded | fallthrough]\n"
            "    return left[-1] if left else None",
            "the highest first: take the first",
        ),
        (
            "def winner(keys, excluded, fallthrough):\n    left = [k for k in keys if k not in excluded | fallthrough]\n"
            "    return left[0]",
            "IndexError|list index out of range",
        ),
        (
            "def winner(keys, excluded, fallthrough):\n    return [k for k in keys if k not in excluded | fallthrough]",
            "One key is wanted, as a text",
        ),
        (
            "def winner(keys, excluded, fallthrough):\n    left = [k for k in keys if k not in excluded | fallthrough]\n"
            '    return left[0] if left else "CPU"',
            "No key is left",
        ),
    ],
    "ex-paths": [
        ('paths = [["CPU"], ["Meta"], ["SparseCPU"]]', "Line 1: a normal tensor asks Autograd first"),
        (
            'paths = [["AutogradCPU", "CPU"], ["AutogradMeta", "Meta"], ["AutogradCPU", "SparseCPU"]]',
            "Line 3: an inference tensor has no Autograd key",
        ),
        ('paths = [["CPU", "AutogradCPU"], ["AutogradMeta", "Meta"], ["SparseCPU"]]', "Line 1: the keys are right"),
        ('paths = [["AutogradCPU", "CPU"], ["AutogradCPU", "Meta"], ["SparseCPU"]]', "Line 2: look at the backend"),
        (
            'paths = [["AutogradCPU", "ADInplaceOrView", "CPU"], ["AutogradMeta", "Meta"], ["SparseCPU"]]',
            "Line 1: only keys whose kernel runs",
        ),
        ('paths = ["AutogradCPU", "CPU"]', "Three lists of keys"),
        ('paths = [["AutogradGPU", "CPU"], ["Meta"], ["SparseCPU"]]', "Line 1: there is no key 'AutogradGPU'"),
    ],
    "ex-casts": [
        ('casts = ["a", "b", "d"]', "An addition is not on autocast's list"),
        ('casts = ["a", "c", "d"]', "bfloat16 already"),
        ('casts = ["a"]', "linear is on autocast's list"),
        ('casts = ["a", "d", "e"]', "A view computes nothing"),
    ],
    "ex-linear": [
        ('operator = "aten::mm"', "mm is called without a bias"),
        ('operator = "aten::linear"', "is composite"),
        ('operator = "aten::t"', "is called, but it does not multiply"),
        ('operator = "aten::bmm"', "is not called here"),
        ("operator = None", "A text with the name"),
    ],
    "ex-composite": [
        ('composite = ["reshape", "relu", "einsum"]', "relu has a kernel for CPU"),
        ('composite = ["reshape", "einsum"]', "dropout calls other operators"),
        ('composite = ["exp"]', "reshape decides"),
        ('composite = ["linear"]', "'linear' is not one of the five"),
        ("composite = 3", "A list of names"),
    ],
    "ex-take": [
        ("dtype = torch.int32", "whole, but of the wrong size"),
        ("dtype = torch.float32", "is no index"),
        ('dtype = "index"', "A dtype is wanted"),
    ],
    "ex-count": [
        (count("self.counts[func.__name__] = self.counts.get(func.__name__, 0) + 1"), "return what func returned"),
        (count(f"self.counts[func.__name__] = 1\n        {PASS_ON}"), "sin was called 3 times; counts has 1"),
        (count(PASS_ON), "counts has none"),
        (
            count("self.counts[func.__name__] = self.counts.get(func.__name__, 0) + 1\n        return func(*args)"),
            "differs|raised",
        ),
        (
            mode("Count", "TorchFunctionMode", "__torch_function__", PASS_ON),
            "has no attribute counts",
        ),
        ("Count = TorchFunctionMode()", "Give the class itself"),
    ],
    "ex-flops": [
        (
            flops(
                "if func is torch.ops.aten.mm.default:\n            self.total += 2 * args[0].numel() * args[1].shape[1]\n"
                f"        {PASS_ON}"
            ),
            "A linear layer with a bias takes",
        ),
        (
            flops(
                "aten = torch.ops.aten\n        if func in (aten.mm.default, aten.addmm.default, aten.bmm.default):\n"
                "            a, b = args[-2:]\n            self.total += a.numel() * b.shape[-1]\n"
                f"        {PASS_ON}"
            ),
            "A multiply and an add count 2",
        ),
        (flops(PASS_ON), "A product of matrices takes 84 operations; yours counts 0"),
        (flops("self.total += 1"), "return what func returned"),
        (flops(PASS_ON, "self.total = None"), "a number is wanted"),
    ],
    "ex-copy-log": [
        (
            copies(f'if "clone" in func.name():\n            self.found.append("aten::clone")\n        {PASS_ON}'),
            "x.double",
        ),
        (copies(f"self.found.append(func.name())\n        {PASS_ON}"), "found has"),
        (copies(PASS_ON), "x.T.reshape.6. calls aten::clone; found has nothing"),
    ],
    "ex-no-kernel": [
        ('key = "SparseCPU"', "the other sparse layout"),
        ('key = "AutogradCPU"', "handed the call on"),
        ('key = "CPU"', "did not ask for CPU"),
        ('key = "Sparse"', "There is no key"),
        ("key = 5", "The name of a key"),
    ],
}
