"""The code of one kernel, as far as it is in your installation: `show_kernel`."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from html import escape
from typing import Any

from helpers.model.adapter import Kernel, kernel_table, python_kernel
from helpers.model.dispatch.opnames import name_operator
from helpers.model.dispatch.trace import key_order
from helpers.model.finding import HelperError, in_short, note
from helpers.model.words import quoted


@dataclass(frozen=True, repr=False)
class KernelSource:
    """Where the kernel of an operator for one key comes from. `code` is its Python source, or "" where it is compiled.

    `kind` is the dispatcher's word for the kernel. `file` is the name of the file that registered it, and differs
    between releases for compiled kernels.
    """

    operator: str
    key: str
    kind: str
    file: str
    code: str

    @property
    def sentence(self) -> str:
        where = "Python" if self.code else "compiled; its source is not in your installation"
        if not self.code and self.file.endswith(".py"):
            where = "Python; torch does not say which function it is"
        return f"{self.operator} at {self.key}: {self.kind}, registered in {self.file}, {where}."

    def __repr__(self) -> str:
        return f"{self.sentence}\n\n{self.code}".strip()

    def _repr_html_(self) -> str:
        code = f'<pre style="margin:6px 0 0 0">{escape(self.code)}</pre>' if self.code else ""
        return note(f"{escape(self.sentence)}{code}", width=70)


def show_kernel(operator: Any, key: str) -> KernelSource:
    """Return what runs for an operator at a dispatch key, with its source where it is written in Python.

    `operator` is named as for `show_op`. Kernels for `Meta` are often Python; those that compute are compiled. Raises
    HelperError for an unknown operator or key, and where the operator has no kernel for the key.
    """
    name = name_operator(operator, helper="show_kernel")
    table = kernel_table(name)
    known = {known.lower(): known for known in key_order()}
    given = key if isinstance(key, str) else str(key).rpartition("DispatchKey.")[2]
    if given not in known.values():
        near = f"did you mean {known[given.lower()]}?" if given.lower() in known else f"{name} has {_own(table)}"
        raise HelperError(f"there is no dispatch key {in_short(key)}; {near}")
    key = given
    kernel = table.get(key)
    if kernel is None or kernel.fallthrough:
        what = "only a fallthrough" if kernel else "no kernel"
        raise HelperError(f"{name} has {what} at {key}; it has {_own(table)}")
    function = python_kernel(name, key)
    code = inspect.getsource(inspect.unwrap(function)).rstrip() if function is not None else ""
    return KernelSource(name, key, kernel.kind, kernel.file, code)


def _own(table: dict[str, Kernel]) -> str:
    """Return the keys for which an operator has a kernel of its own, the plain backends first."""
    keys = [key for key, kernel in table.items() if kernel.kind == "kernel" and not kernel.fallthrough]
    return quoted(sorted(keys, key=len)) or "no kernel of its own"
