"""Operators made with `torch.library.custom_op`: which operator they are, and whether they have a backward."""

from __future__ import annotations

import torch

from helpers.model.adapter.dispatch import operator_full_name
from helpers.model.adapter.machinery import proves, take


def custom_op_name(made: object) -> str:
    """Return the name of the operator that a `torch.library.CustomOpDef` made, such as `mylib::f`."""
    return operator_full_name(take(made, "_opoverload"))


def custom_op_has_backward(name: str) -> bool | None:
    """Say whether `register_autograd` was called for a custom operator; None where `custom_op` did not make it."""
    made = take(torch, "_library", "custom_ops", "OPDEFS").get(name)
    return None if made is None else take(made, "_backward_fn") is not None


@proves(custom_op_name)
@proves(custom_op_has_backward)
def _custom_op_works() -> bool:
    name = "adapter_proof_custom::doubled"

    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    made = torch.library.custom_op(name, doubled, mutates_args=())
    try:
        before = custom_op_has_backward(name)
        made.register_autograd(lambda ctx, grad: grad * 2)
        answers = custom_op_name(made), before, custom_op_has_backward(name), custom_op_has_backward("aten::add.Tensor")
    finally:
        take(torch, "_library", "custom_ops", "OPDEF_TO_LIB").pop(name)._destroy()  # nothing stays registered
    return answers == (name, False, True, None)
