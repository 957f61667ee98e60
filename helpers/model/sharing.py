"""Who shares the memory of a tensor? `find_sharers`.

Three things lie on one memory without saying so: views (`_base` links them), aliases made by `detach()`,
`.data` or `state_dict()` (nothing links them), and NumPy arrays or buffers (not even the storage is the
same object). What they have in common is a range of bytes, so that is what is compared.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import torch

from helpers.model.entries import several_finding
from helpers.model.finding import HelperError, in_short
from helpers.model.lacking import is_container, nothing_held
from helpers.model.layout import no_strides
from helpers.model.memory import Ranges, array_base, memory_of
from helpers.model.owners import Held, Walk, has_memory, living_tensors, names_in, repeated
from helpers.model.retention import explain_storage  # noqa: F401  # the storage report is asked for beside this one
from helpers.model.sharers import NAMELESS, OPTIMIZED, Met, Sharers, is_record, single_finding
from helpers.model.source import caller_frame, pick, place_of


def find_sharers(t: Any, among: Any = None) -> Sharers:
    """Find the tensors, NumPy arrays and buffers that share memory with `t`.

    `t` is a tensor or an array, or a list, dict, state_dict or module of them. `among` is where to look:
    a dict of names, a module, an optimizer, a list. By default every name that the calling code can use
    and, for what has no name, every tensor that Python's garbage collector knows.
    Tensors without strides, such as sparse ones, have no range of bytes to compare: among others they are left out.
    Looking changes nothing and keeps nothing alive. Raises HelperError when nothing in `t`, or nothing in `among`,
    has memory.
    """
    frame = caller_frame()
    texts = place_of(frame).arguments if frame else ()
    names = names_in(frame) if frame else {}
    called = next((n for n, thing in names.items() if thing is t), "")
    written = _plainly(pick(texts, 0, "").strip("`"))
    name = called or written if among is None else written or called
    if isinstance(t, torch.Tensor) and memory_of(t) is None:
        reason = no_strides(t) or "a tensor came that has no storage"
        raise HelperError(f"find_sharers needs a tensor with memory, but {reason}")
    inner, walk = Walk(), Walk(without=t)
    skipped: dict[str, torch.Tensor] = {}
    try:
        # What hangs on a tensor, such as its grad, is no part of it.
        held = [Held(name, t)] if has_memory(type(t)) else chain(inner.start(name, t), repeated(name, t))
        own = list(_meet(held, skipped))
        if not own:
            came = nothing_held(t, skipped)
            raise HelperError(f"find_sharers takes a tensor or something that holds tensors, and {came}")
        if among is None:
            met = list(_meet(walk.names(names)))
            met += _nameless(met, own)
        else:
            passed: dict[str, torch.Tensor] = {}
            met = list(_meet(_walk_among(walk, among, pick(texts, 1, "among").strip("`")), passed))
            _require_place(among, met, passed)
        if len(own) == 1 and own[0].thing is t:
            if among is None and not name.isidentifier():
                name = next((m.names[0] for m in met if m.thing is t), name)
            return single_finding(own[0], met, name, everywhere=among is None)
        others, updating = _beyond(own, met)
        return several_finding(own, others, name, t, skipped, updating)
    finally:
        walk.close()
        inner.close()


def _beyond(own: list[Met], met: list[Met]) -> tuple[list[Met], list[str]]:
    """Return what was met under names that are not the entries' own, and the optimizers that hold entries."""
    names = {id(m.thing): set(m.names) for m in own}
    others, updating = [], []
    for m in met:
        left = [name for name in m.names if name not in names.get(id(m.thing), ())]
        if id(m.thing) in names:
            updating += [name.partition(OPTIMIZED)[0] for name in left if OPTIMIZED in name]
            left = [name for name in left if not is_record(name)]
        if left:
            others.append(replace(m, names=left))
    return others, list(dict.fromkeys(updating))


def _plainly(expression: str) -> str:
    """Return an expression as the names of a walk are written: `d["w"]` as `d['w']`, and `a + b` as `(a + b)`."""
    try:
        tree = ast.parse(expression, mode="eval").body
    except SyntaxError:
        return expression
    plain = ast.unparse(tree)
    whole = ast.Name | ast.Attribute | ast.Subscript | ast.Call | ast.List | ast.Tuple | ast.Dict | ast.Set
    return plain if isinstance(tree, whole | ast.ListComp | ast.DictComp | ast.Constant) else f"({plain})"


def _walk_among(walk: Walk, among: Any, text: str) -> Iterator[Held]:
    """Walk `among`; a dict that was written down in the call, or came from `locals()`, gives bare names."""
    if type(among) is dict and not text.isidentifier():
        return walk.names({str(name): thing for name, thing in among.items()})
    return walk.start(text, among)


def _require_place(among: Any, met: list[Met], skipped: dict[str, torch.Tensor]) -> None:
    """Raise HelperError unless something with memory was met in `among`: otherwise nothing was looked at."""
    if met:
        return
    named = skipped or is_container(among) or isinstance(among, torch.nn.Module)
    came = nothing_held(among, skipped) if named else f"{in_short(among)} came"
    raise HelperError(
        f"among is where to look: a dict of names, a module, an optimizer or a list, with tensors or arrays, and {came}"
    )


def _meet(held: Iterable[Held], skipped: dict[str, torch.Tensor] | None = None) -> Iterator[Met]:
    """Put the names of one thing together, in the order in which things were first met.

    Tensors without memory go into `skipped`.
    """
    met: dict[int, Met] = {}
    for one in held:
        if id(one.thing) in met:
            if one.name not in met[id(one.thing)].names:
                met[id(one.thing)].names.append(one.name)
        elif (block := memory_of(one.thing)) is not None:
            parameter = issubclass(type(one.thing), torch.nn.Parameter)
            met[id(one.thing)] = Met([one.name], one.thing, block, parameter)
        elif skipped is not None and issubclass(type(one.thing), torch.Tensor):
            skipped.setdefault(one.name, one.thing)
    yield from met.values()


def _nameless(met: list[Met], own: list[Met]) -> list[Met]:
    """Return the living tensors on the memory of `own` that were not met by name.

    An array made by `.numpy()` holds a tensor of its own as its base: the array stands for it, unless that tensor is
    all that is left of the one that the array was made from.
    """
    memory, asked = Ranges(m.block for m in own), {id(m.thing) for m in own}
    others = [m for m in met if id(m.thing) not in asked]
    known = asked | {id(m.thing) for m in others} | {id(array_base(m.thing)) for m in others}
    if any(memory.find(m.block) is not None for m in others):
        known |= {id(array_base(m.thing)) for m in own}
    found = []
    for tensor in living_tensors():
        block = None if id(tensor) in known else memory_of(tensor)
        if block is not None and memory.find(block) is not None:
            found.append(Met([NAMELESS], tensor, block, issubclass(type(tensor), torch.nn.Parameter)))
    return found
