"""Questions of chapter 06: what the reader predicts, and the list of its exercises.

Each truth is computed on real torch. The checks stand in `operator_checks` and `registration_checks`.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch

from helpers.model.adapter import find_operator, kernel_table, scoped_library
from helpers.model.dispatch.operators import show_op
from helpers.model.dispatch.trace import trace_dispatch

from ..quiz import Exercise, Prediction
from . import operator_checks, registration_checks


def _cpu_line_of_add() -> str:
    return "it has no line for CPU" if "CPU" not in show_op("add.Tensor").declared else "add_cpu"


def _numpy_in_the_trace() -> str:
    trace = trace_dispatch(lambda x: torch.from_numpy(np.logaddexp(x.numpy(), -x.numpy())), torch.ones(2))
    return "neither" if not any("log" in name for name in trace.operators) else "logaddexp"


def _missing_autograd_kernel() -> str:
    def kernel(x: torch.Tensor) -> torch.Tensor:
        values = x.detach().numpy()
        return torch.from_numpy(np.logaddexp(values, -values))

    with scoped_library("course_prediction", "FRAGMENT") as library, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.define("log_cosh(Tensor x) -> Tensor")
        library.impl("log_cosh", kernel, "CPU")
        w = torch.tensor([100.0], requires_grad=True)
        try:
            (find_operator("course_prediction::log_cosh")(w) + w).sum().backward()
        except RuntimeError:
            return "backward raises"
        return str(int(w.grad.item()))


def _first_of_the_device() -> str:
    trace = trace_dispatch(lambda: torch.ones(2).to("meta"))
    calls = (d for d in trace.dispatches if d.key == "Meta")  # the device that every torch has
    return next(d.name for d in calls if d.kernel.kind == "kernel").removeprefix("aten::")


def _kernel_of_a_product() -> str:
    kernel = kernel_table("aten::mm")["PrivateUse1"]
    return "mm.out" if kernel.alias == "CompositeExplicitAutogradNonFunctional" else "mm"


PREDICTIONS = {
    "cpu-line-of-add": Prediction(
        _cpu_line_of_add,
        {
            "add_cpu": "Many tutorials print this line. It was so years ago, before structured kernels.",
            "add": "The name of an operator is not the name of a kernel. Read the entry.",
        },
    ),
    "numpy-in-trace": Prediction(
        _numpy_in_the_trace,
        {
            "log_cosh": "A Python function has no name for the dispatcher. Only calls of operators arrive there.",
            "logaddexp": "NumPy's logaddexp is not PyTorch's. It reads the memory itself.",
        },
    ),
    "missing-autograd": Prediction(
        _missing_autograd_kernel,
        {
            "backward raises": "custom_op would see to that. This operator was registered piece by piece.",
            "2": "Who would have told autograd the slope of this kernel? It computes in NumPy.",
        },
    ),
    "first-device-operator": Prediction(
        _first_of_the_device,
        {
            "to.device": "to is a composition: one kernel for all devices, which calls other operators.",
            "copy_": "A copy needs a target first, and somebody has to make it.",
        },
    ),
    "kernel-of-mm": Prediction(
        _kernel_of_a_product,
        {
            "mm": "mm has a kernel for all devices: it makes the result and calls the out= variant.",
            "matmul": "matmul is a composition. For two matrices it calls mm.",
        },
    ),
}

EXERCISES = {
    "ex-entry": Exercise("6.1", "Read an entry", operator_checks.structured_work),
    "ex-formula": Exercise("6.2", "Which have a formula?", operator_checks.own_formula),
    "ex-backward": Exercise("6.3", "Write a backward", registration_checks.hypot_backward),
    "ex-fake": Exercise("6.4", "Repair: a fake kernel", registration_checks.pairs_fake),
    "ex-alias": Exercise("6.5", "Who returns its input?", registration_checks.aliasing),
    "ex-schema": Exercise("6.6", "Repair: a hidden write", registration_checks.mutation_schema),
    "ex-missing": Exercise("6.7", "Register a missing kernel", registration_checks.missing_kernel),
    "ex-vmap": Exercise("6.8", "A rule for vmap", registration_checks.vmap_rule),
    "ex-cpp": Exercise("6.9", "The schema of a C++ function", operator_checks.cpp_schema),
    "ex-device": Exercise("6.10", "The next kernel of the device", operator_checks.device_kernel),
    "ex-fallback": Exercise("6.11", "Kernel or fallback?", operator_checks.own_kernels),
}
