"""One operator as the installed torch knows it: `show_op` and the `Operator` that it returns.

All is read: the schema, tags and kernels from the running dispatcher, the entries from the yaml files in the wheel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any

import torch

from helpers.model.adapter import Kernel, find_operator, kernel_table, operator_schema, registrations
from helpers.model.adapter.dispatch import file_name
from helpers.model.dispatch.aliases import Aliases, describe_aliases, read_aliases
from helpers.model.dispatch.formulas import Gradient, find_gradient
from helpers.model.dispatch.opnames import name_operator
from helpers.model.dispatch.packaged import NATIVE, find_entry, find_source, has_file, read_dispatch, read_line
from helpers.model.finding import note, with_code

_RESOLVED = ("CPU", "CUDA", "Meta", "AutogradCPU")
# Groups of keys by the beginning of their names; what fits none is a backend.
_GROUPS = {
    "backends": (),
    "for all backends": ("Composite",),
    "autograd": ("Autograd", "ADInplaceOrView"),
    "autocast": ("Autocast",),
    "functorch": ("FuncTorch", "Batched", "VmapMode"),
    "others": (
        "BackendSelect",
        "Conj",
        "Functionalize",
        "Named",
        "Neg",
        "PreDispatch",
        "Python",
        "Tracer",
        "ZeroTensor",
    ),
}
_COMPOSITE = {
    "CompositeImplicitAutograd": "composite implicit: one kernel, made of other operators, for each backend without "
    "its own; autograd follows these",
    "CompositeExplicitAutograd": "composite explicit: one kernel for all backends; a gradient needs an Autograd kernel",
    "CompositeExplicitAutogradNonFunctional": "composite explicit, non-functional: one kernel for backends without "
    "their own, which calls the in-place or out= variant",
}


@dataclass(frozen=True, repr=False)
class Operator:
    """What torch knows of one operator.

    `entry` are the lines of `native_functions.yaml`, of the operator named in `made_from` where the operator was
    generated from another's entry, and "" where there are none. `structured` is "" for an operator that is not
    structured, "itself", or the operator whose structured kernel does its work. `composite` are its Composite keys.
    `registered` has each key and alias key with a kernel of its own, and the name of the file that registered it.
    `resolved` says in words what is called for CPU, CUDA, Meta and AutogradCPU. `where`: the text names the files.
    """

    name: str
    schema: str
    aliases: Aliases
    tags: tuple[str, ...]
    composite: tuple[str, ...]
    structured: str
    entry: str
    made_from: str
    gradient: Gradient
    registered: dict[str, str]
    resolved: dict[str, str]
    fallthroughs: tuple[str, ...] = ()
    where: bool = field(default=False, compare=False)

    @property
    def declared(self) -> dict[str, str]:
        """The keys under `dispatch:` in the operator's own entry, each with the name of its C++ function."""
        return {} if self.made_from else read_dispatch(self.entry)

    @property
    def formula(self) -> str:
        """The lines of `derivatives.yaml`, or ""."""
        return self.gradient.formula

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The keys with a registration of their own: backends, autograd, autocast and so on."""
        found = {group: tuple(key for key in self.registered if _group(key) == group) for group in _GROUPS}
        return {group: keys for group, keys in found.items() if keys}

    @property
    def memory(self) -> str:
        """What the schema says about memory, in words."""
        # torch's generator makes a kernel at ADInplaceOrView for an operator whose result is always a view.
        always = "ADInplaceOrView" in self.registered
        return describe_aliases(self.aliases, always, "maybe_aliasing_or_mutating" in self.tags)

    @property
    def form(self) -> str:
        """Structured, composite, both or neither, in words."""
        words = []
        if self.structured == "itself":
            words.append("structured: a meta function finds the result's shape, a kernel of each backend fills it")
        elif self.structured:
            words.append(f"structured_delegate: the structured kernel of {self.structured} does its work")
        words += [_COMPOSITE[key] for key in self.composite]
        return "; ".join(words) or "neither composite nor structured: each backend needs a kernel of its own"

    def __repr__(self) -> str:
        lines = [self.name]
        for label, body in self._parts():
            lines += [f"{label}:", *(f"    {line}" for line in body)] if len(body) > 1 else [f"{label}: {body[0]}"]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = [f"<div><b><code>{escape(self.name)}</code></b></div>"]
        for label, body in self._parts():
            head = f'<span style="color:#767676">{escape(label)}:</span>'
            if label == "schema":
                parts.append(f"<div>{head} <code>{escape(body[0])}</code></div>")
            elif len(body) == 1:
                parts.append(f"<div>{head} {with_code(body[0])}</div>")
            else:
                text = escape("\n".join(body))
                parts.append(f'<div>{head}<pre style="margin:2px 0 6px 2em;white-space:pre-wrap">{text}</pre></div>')
        return note("".join(parts), width=70)

    def _parts(self) -> list[tuple[str, list[str]]]:
        """Return what both forms show: a label and its lines. Parts of one line stand behind their label."""
        return [
            ("schema", [self.schema]),
            ("memory", [self.memory]),
            ("tags", [", ".join(self.tags) or "none"]),
            ("form", [self.form]),
            (self._entry_label(), self.entry.splitlines() or [_no_entry()]),
            *([("derivatives.yaml", self.formula.splitlines())] if self.formula else []),
            ("gradient", [self.gradient.text]),
            (
                "kernels registered",
                [f"{group}: {self._shown(keys)}" for group, keys in self.groups.items()] or ["none"],
            ),
            ("a call runs", [f"{key}: {words}" for key, words in self.resolved.items()]),
        ]

    def _entry_label(self) -> str:
        return f"{NATIVE} (generated from the entry of {self.made_from})" if self.made_from else NATIVE

    def _shown(self, keys: tuple[str, ...]) -> str:
        return ", ".join(self._shown_key(key) for key in keys)

    def _shown_key(self, key: str) -> str:
        notes = (["fallthrough"] if key in self.fallthroughs else []) + ([self.registered[key]] if self.where else [])
        return f"{key} ({', '.join(notes)})" if notes else key


def show_op(name: Any, *, where: bool = False) -> Operator:
    """Return what the installed torch knows of an operator, as an `Operator` that shows itself.

    `name` is "add.Tensor", "mylib::f", an operator such as `torch.ops.aten.add.Tensor`, one that
    `torch.library.custom_op` made, or a function of torch such as `torch.relu`. With `where=True` the text names the
    file of each registration; files are split anew in each release, so without it the text differs less.
    Raises HelperError where no operator is meant, or several are.
    """
    full = name_operator(name)
    short = full.removeprefix("aten::")
    operator, table, registered = find_operator(full), kernel_table(full), registrations(full)
    schema = str(operator_schema(operator))
    own = find_entry(NATIVE, short)
    made_from = "" if own else find_source(short)
    return Operator(
        name=full,
        schema=schema,
        aliases=read_aliases(schema),
        tags=tuple(sorted(tag.name for tag in operator.tags)),
        composite=tuple(key for key in _COMPOSITE if key in registered),
        structured="itself" if read_line(own, "structured") == "True" else read_line(own, "structured_delegate"),
        entry=own or find_entry(NATIVE, made_from),
        made_from=made_from,
        gradient=find_gradient(full),
        registered={key: file_name(place) for key, place in registered.items()},
        resolved={key: _in_words(key, table.get(key)) for key in _RESOLVED},
        fallthroughs=tuple(key for key in registered if key in table and table[key].fallthrough),
        where=where,
    )


def _in_words(key: str, kernel: Kernel | None) -> str:
    words = "none"
    if kernel is not None:
        words = "kernel of its own" if kernel.kind == "kernel" else kernel.kind
        if kernel.alias:
            words += f" ({kernel.alias})"
        if kernel.fallthrough:
            words = f"fallthrough ({words})"
    if key == "CUDA" and words != "kernel of its own" and not torch.backends.cuda.is_built():
        words += "; this build of torch has no CUDA"
    return words


def _no_entry() -> str:
    if has_file(NATIVE):
        return "no entry: the operator is registered by other code"
    return f"this installation has no {NATIVE}: the package torchgen or its packaged files are missing"


def _group(key: str) -> str:
    return next((group for group, starts in _GROUPS.items() if key.startswith(starts)), "backends")
