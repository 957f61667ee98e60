"""Checks of chapter 03: keys, paths and operators. Each asks a live trace for the truth."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any

import torch

from helpers.model.adapter import kernel_table, tensor_keys
from helpers.model.dispatch.trace import DispatchTrace, key_order, trace_dispatch
from helpers.model.finding import in_short
from helpers.model.words import listed

from ..quiz import Outcome, from_numpy, right, same, wrong
from .asking import asks_for
from .letters import compare_letters


def operator_named(answer: Any) -> str | None:
    """Return an operator's name as the trace writes it, from a text or an operator; None for anything else."""
    if type(answer).__module__ == "torch._ops":
        answer = str(answer)
    elif isinstance(answer, BuiltinFunctionType):  # torch.addmm itself
        answer = answer.__name__
    if not isinstance(answer, str) or not answer.strip():
        return None
    name = answer.strip().removeprefix("torch.ops.").removeprefix("torch.").removesuffix("()").removesuffix(".default")
    name = name.replace("aten.", "aten::", 1)
    return name if "::" in name else f"aten::{name}"


def first_operator(answer: Any) -> Outcome:
    x = torch.arange(6.0).view(2, 3)
    truth = trace_dispatch(lambda: x[0]).calls[0].operator
    name = operator_named(answer)
    if name is None:
        return wrong('A text with the name of an operator is wanted, such as "aten::add.Tensor".')
    if name == truth:
        return right("An index with a number takes one slice.")
    base = truth.partition(".")[0]
    if name == base:
        return wrong(f"The operator is right. It has overloads: which one? Write {base}.… as the trace prints it.")
    if name.partition(".")[0] == base:
        return wrong("The operator is right, the overload is another.")
    if name.startswith("aten::as_strided"):
        return wrong("as_strided runs inside. Which operator called it?")
    if name.startswith("aten::index"):
        return wrong("index is for tensors of indices. Here the index is a plain number.")
    return wrong(f"{name} does not come first. Trace lambda: x[0] and read the first line.")


@asks_for("make()")
def make_keys(answer: Callable) -> Outcome:
    wanted = {"Conjugate", "AutocastCPU", "CPU"}
    made = answer()
    if not isinstance(made, torch.Tensor):
        return wrong(f"make() returned {in_short(made)}; a tensor is wanted.")
    found = set(tensor_keys(made))
    if found == wanted:
        return right("A conjugate view, and a tensor that Autograd is never asked about.")
    ordered = [key for key in key_order() if key in found ^ wanted]
    extra, lacking = [key for key in ordered if key in found], [key for key in ordered if key in wanted]
    parts = [f"It has {listed(extra)} too."] if extra else []
    parts += [f"It lacks {listed(lacking)}."] if lacking else []
    hint = ""
    if "AutogradCPU" in extra:
        hint = " Make it where tensors get no Autograd key."
    elif "Conjugate" in lacking:
        hint = " It comes with conj(), of a complex tensor."
    return wrong(f"{' '.join(parts)}{hint}")


def _real_dispatches() -> list[tuple[tuple[str, ...], set[str], set[str], str]]:
    """Return keys, excluded ones, fallthroughs and winner of real dispatches, each different one once."""
    x, z = torch.ones(2, 3), torch.ones(2, dtype=torch.complex64)

    def program() -> None:
        (x @ x.T).relu_()
        z.conj() * 2
        torch.mul(torch.eye(2, 3).to_sparse(), x)
        torch.empty(2, device="meta") + 1
        torch.vmap(torch.sin)(x)
        with torch.autocast("cpu", torch.bfloat16):
            torch.mm(x, x.T)
        with torch.inference_mode():
            torch.ones(2).exp()

    found = {}
    for d in trace_dispatch(program).dispatches:
        if not d.inferred:
            keys = tuple(rung.key for rung in d.rungs)
            sets = [frozenset(r.key for r in d.rungs if r.verdict == v) for v in ("excluded", "fallthrough")]
            found[keys, *sets] = d.key
    return [(keys, set(excluded), set(passed), key) for (keys, excluded, passed), key in found.items()]


@asks_for("winner(keys, excluded, fallthrough)")
def winner(answer: Callable) -> Outcome:
    answer(("CPU",), set(), set())  # a stub ends here, before real dispatches are gathered
    cases = _real_dispatches()
    for keys, excluded, passed, truth in [*cases, (("CPU",), {"CPU"}, set(), None), ((), set(), set(), None)]:
        given = set(excluded), set(passed)
        found = answer(keys, *given)
        if found == truth:
            continue
        call = f"winner({in_short(keys)}, excluded={in_short(excluded)}, fallthrough={in_short(passed)})"
        if truth is None:
            return wrong(f"No key is left in {call}: return None. Yours gave {in_short(found)}.")
        why = _about_winner(found, keys, excluded, passed, truth)
        return wrong(f"For {', '.join(keys)} yours gave {in_short(found)}; the dispatcher chose {truth}. {why}")
    return right(f"The same as the dispatcher in {len(cases)} real dispatches.")


def _about_winner(found: Any, keys: tuple[str, ...], excluded: set[str], passed: set[str], truth: str) -> str:
    if found is None:
        return "Return a key."
    if not isinstance(found, str):
        return "One key is wanted, as a text."
    if found in excluded:
        return f"{found} is excluded."
    if found in passed:
        return f"{found} is a fallthrough: the dispatcher skips it."
    if found in keys and keys.index(found) > keys.index(truth):
        return "The keys come with the highest first: take the first that is left."
    return "It must be one of the keys."


def paths(answer: Any) -> Outcome:
    with torch.inference_mode():
        inference = torch.ones(2).to_sparse()
    calls = ((torch.exp, torch.ones(2)), (torch.exp, torch.ones(2, device="meta")), (torch.neg, inference))
    truth = [[step.key for step in trace_dispatch(fn, t).calls[0].steps] for fn, t in calls]
    answer = from_numpy(answer)
    parts = list(answer) if isinstance(answer, (list, tuple)) else None
    if parts is None or len(parts) != 3:
        return wrong('Three lists of keys are wanted, for example [["AutogradCPU", "CPU"], …].')
    for line, (part, keys) in enumerate(zip(parts, truth, strict=True), 1):
        found = [key.strip() for key in re.split(r"→|->|,", part)] if isinstance(part, str) else part
        if not isinstance(found, (list, tuple)) or not all(isinstance(key, str) for key in found):
            return wrong(f"Line {line}: a list of keys is wanted, and {in_short(part)} came.")
        if not same(list(found), keys):
            return wrong(f"Line {line}: {_about_path(list(found), keys, line)}")
    return right("The tensor decides who is asked.")


def _about_path(found: list[str], keys: list[str], line: int) -> str:
    if unknown := next((key for key in found if key not in key_order()), None):
        return f"there is no key {in_short(unknown)}."
    if sorted(found) == sorted(keys):
        return "the keys are right, and the order is not: the highest comes first."
    if any(key.startswith("Autograd") for key in found) and not any(key.startswith("Autograd") for key in keys):
        return "an inference tensor has no Autograd key."
    if not any(key.startswith("Autograd") for key in found) and any(key.startswith("Autograd") for key in keys):
        return "a normal tensor asks Autograd first, also without requires_grad."
    if {"ADInplaceOrView", "BackendSelect"} & set(found):
        return "only keys whose kernel runs are wanted: a fallthrough runs none."
    return "look at the backend of the tensor: where is it, and what is its layout?"


def casts(answer: Any) -> Outcome:
    x, y, b = torch.ones(2, 3), torch.ones(2, 3), torch.ones(3, 2)
    low = torch.ones(3, 3, dtype=torch.bfloat16)
    lines = {
        "a": lambda: torch.mm(x, b),
        "b": lambda: x + y,
        "c": lambda: torch.mm(low, low),
        "d": lambda: torch.nn.functional.linear(x, y),
        "e": lambda: x.T,
    }
    truth = {letter for letter, line in lines.items() if _casts(line)}
    why = {
        "a": "mm is on autocast's list, and its inputs are float32.",
        "b": "An addition is not on autocast's list: its key is a fallthrough there.",
        "c": "In c both matrices are bfloat16 already: the kernel of AutocastCPU runs and finds nothing to cast.",
        "d": "linear is on autocast's list, as all products of matrices.",
        "e": "A view computes nothing, so there is nothing to cast.",
    }
    return compare_letters(answer, truth, why, "Products of matrices, where the dtype is not low already.")


def _casts(line: Callable[[], Any]) -> bool:
    with torch.autocast("cpu", torch.bfloat16):
        trace = trace_dispatch(line)
    ran = any(step.key == "AutocastCPU" for call in trace.calls for step in call.steps)
    return ran and "aten::_to_copy" in trace.operators


def linear_with_bias(answer: Any) -> Outcome:
    trace = trace_dispatch(torch.nn.functional.linear, torch.ones(2, 3), torch.ones(4, 3), torch.ones(4))
    name = operator_named(answer)
    if name is None:
        return wrong('A text with the name of an operator is wanted, such as "aten::mm".')
    if name.partition(".")[0] == "aten::addmm" and "aten::addmm" in trace.operators:
        return right("A product of matrices and an addition in one kernel.")
    if name == "aten::mm":
        return wrong("mm is called without a bias. With one, trace it again.")
    if name.partition(".")[0] in ("aten::linear", "aten::matmul"):
        return wrong(f"{name} is composite: it computes nothing by itself.")
    if name.partition(".")[0] in trace.operators:
        return wrong(f"{name} is called, but it does not multiply.")
    return wrong(f"{name} is not called here. Trace linear with three tensors.")


_WHY = {
    "reshape": "reshape decides between view and a copy, and calls one of them.",
    "relu": "relu has a kernel for CPU.",
    "dropout": "dropout calls other operators, such as bernoulli_ and mul.",
    "exp": "exp has a kernel for CPU.",
    "einsum": "einsum permutes, and calls a product of matrices.",
}


def composite(answer: Any) -> Outcome:
    truth = {name for name in _WHY if kernel_table(f"aten::{name}")["AutogradCPU"].kind == "math kernel"}
    answer = from_numpy(answer)
    parts = re.split(r"[,\s]+", answer.strip()) if isinstance(answer, str) else answer
    if not isinstance(parts, (list, tuple, set, frozenset)) or not all(isinstance(part, str) for part in parts):
        return wrong('A list of names is wanted, for example ["relu", "exp"].')
    names = {part.strip().removeprefix("aten::") for part in parts}
    if unknown := sorted(names - set(_WHY)):
        return wrong(f"{in_short(unknown[0])} is not one of the five.")
    different = [name for name in _WHY if (name in names) != (name in truth)]
    if not different:
        return right("None of the three has a kernel of its own.")
    return wrong(f"Not yet. {_WHY[different[0]]}")


def take_index(answer: Any) -> Outcome:
    if isinstance(answer, str) and isinstance(getattr(torch, answer.removeprefix("torch."), None), torch.dtype):
        answer = getattr(torch, answer.removeprefix("torch."))
    if not isinstance(answer, torch.dtype):
        return wrong(f"A dtype is wanted, such as torch.float32, and {in_short(answer)} came.")
    if _takes(answer):
        return right("The kernel for Meta refuses all others, as that for CPU does.")
    whole = re.match(r"torch\.u?int\d+$", str(answer))
    what = "is whole, but of the wrong size" if whole else "is no index"
    return wrong(f"{answer} {what}: read the first check in show_kernel('take', 'Meta').")


def _takes(dtype: torch.dtype) -> bool:
    try:
        torch.take(torch.empty(4, device="meta"), torch.empty(2, device="meta", dtype=dtype))
    except RuntimeError:
        return False
    return True


def missing_key(answer: Any) -> Outcome:
    trace = _csr_trace()
    truth = next(d.key for d in trace.dispatches if d.failed and d.kernel is None)
    if not isinstance(answer, str):
        return wrong(f'The name of a key is wanted, such as "CPU", and {in_short(answer)} came.')
    key = answer.strip().removeprefix("DispatchKey.")
    if key == truth:
        return right("It is in the first sentence of the error.")
    if key == "SparseCPU":
        return wrong("That is the key of the other sparse layout, COO. Here the rows are compressed.")
    if key == "AutogradCPU":
        return wrong("A kernel for it ran, and handed the call on.")
    if key not in key_order():
        return wrong(f"There is no key {in_short(key)}.")
    return wrong(f"The call did not ask for {key}: read the first sentence of the error.")


def _csr_trace() -> DispatchTrace:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls this layout beta, once a process
        return trace_dispatch(lambda: torch.eye(3).to_sparse_csr().cumsum(0))
