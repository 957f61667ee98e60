"""Questions of chapter 03: what the reader predicts, and the list of its exercises.

Each truth is read off a live trace. The checks stand in `dispatch_checks` and `mode_checks`.
"""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode

from helpers.model.adapter import tensor_keys
from helpers.model.dispatch.trace import trace_dispatch

from ..quiz import Exercise, Prediction
from . import dispatch_checks, mode_checks


def _kernels_of_add() -> str:
    return str(len(trace_dispatch(torch.add, torch.ones(2), torch.ones(2)).calls[0].steps))


def _sets_of_dtypes() -> str:
    dtypes = (torch.float32, torch.float16, torch.int64, torch.bool, torch.complex64)
    return str(len({tensor_keys(torch.ones(2, dtype=dtype)) for dtype in dtypes}))


def _sparse_times_dense() -> str:
    call = trace_dispatch(torch.mul, torch.eye(2).to_sparse(), torch.ones(2, 2)).calls[0]
    ran = [step.key for step in call.steps if step.key in ("SparseCPU", "CPU")]
    return ran[0] if len(ran) == 1 else "first one, then the other"


def _path_under_no_grad() -> str:
    x = torch.ones(2, requires_grad=True)
    before = trace_dispatch(torch.exp, x).calls[0].path
    with torch.no_grad():
        after = trace_dispatch(torch.exp, x).calls[0].path
    if after == before:
        return "nothing"
    return "only CPU is left" if after == "CPU" else "AutogradCPU is skipped"


def _kernel_of_linear() -> str:
    calls = trace_dispatch(torch.nn.functional.linear, torch.ones(2, 3), torch.ones(4, 3)).calls
    return "yes, a fast one" if calls[0].steps[-1].key == "CPU" else "no, it calls others"


def _seen_by_a_function_mode() -> str:
    seen = []

    class Notes(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    x, weight = torch.ones(2, 3), torch.ones(4, 3)
    with Notes():
        torch.nn.functional.linear(x, weight) + 1
    both = {"linear", "add"}
    return "linear and add" if set(seen) == both else "all of these" if both < set(seen) else "t, mm and add"


PREDICTIONS = {
    "kernels-of-add": Prediction(
        _kernels_of_add,
        {
            "1": "One kernel adds. But before it another one is asked, and it decides whether to record a node.",
            "3": "Five keys take part in this call, and most of them have nothing to run for an addition.",
        },
    ),
    "keys-of-dtypes": Prediction(
        _sets_of_dtypes,
        {
            "2": "Floating and whole numbers differ in much, but not in their keys. The kernel looks at the dtype.",
            "5": "The kernel for CPU handles all dtypes: it holds one loop for each and chooses by itself.",
        },
    ),
    "sparse-times-dense": Prediction(
        _sparse_times_dense,
        {
            "CPU": "Both keys are in the set. The order of the keys decides, and CPU stands at its end.",
            "first one, then the other": "The kernel of a backend does the work; it does not hand the call on.",
        },
    ),
    "path-under-no-grad": Prediction(
        _path_under_no_grad,
        {
            "AutogradCPU is skipped": "The key belongs to the tensor, and no_grad does not touch tensors or keys.",
            "only CPU is left": "That is what inference_mode does. no_grad sets a flag that the autograd kernel reads.",
        },
    ),
    "linear-kernel": Prediction(
        _kernel_of_linear,
        {"yes, a fast one": "The fast kernel is that of mm or addmm. linear only calls it."},
    ),
    "function-log": Prediction(
        _seen_by_a_function_mode,
        {
            "t, mm and add": "These are the operators inside. Python called linear and the addition.",
            "all of these": "A function mode is asked where Python calls C++. What C++ calls stays there.",
        },
    ),
}

EXERCISES = {
    "ex-first": Exercise("3.1", "The operator of an index", dispatch_checks.first_operator),
    "ex-keys": Exercise("3.2", "A tensor with three keys", dispatch_checks.make_keys),
    "ex-winner": Exercise("3.3", "The dispatcher's decision", dispatch_checks.winner),
    "ex-paths": Exercise("3.4", "Three paths", dispatch_checks.paths),
    "ex-casts": Exercise("3.5", "What does autocast cast?", dispatch_checks.casts),
    "ex-linear": Exercise("3.6", "linear with a bias", dispatch_checks.linear_with_bias),
    "ex-composite": Exercise("3.7", "Which are composite?", dispatch_checks.composite),
    "ex-take": Exercise("3.8", "Read a Meta kernel", dispatch_checks.take_index),
    "ex-count": Exercise("3.9", "Count calls", mode_checks.count_calls),
    "ex-flops": Exercise("3.10", "Count FLOPs", mode_checks.count_flops),
    "ex-copy-log": Exercise("3.11", "Find hidden copies", mode_checks.log_copies),
    "ex-no-kernel": Exercise("3.12", "Which key has no kernel?", dispatch_checks.missing_key),
}
