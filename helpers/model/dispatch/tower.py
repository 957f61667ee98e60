"""One call of an operator as a tower of keys: what became of each key from the call to its last kernel."""

from __future__ import annotations

from dataclasses import dataclass

from helpers.model.dispatch.trace import BELOW, EXCLUDED, FALLTHROUGH, MASKED, WINS, Dispatch, key_order

MISSING = "missing"  # the key won, and there is no kernel for it

_KINDS = {
    "kernel": "kernel",
    "autograd kernel": "autograd kernel",
    "math kernel": "math kernel, made of other operators",
    "nested kernel": "math kernel, made of other operators",
    "batched kernel": "made of other operators",
    "default backend kernel": "kernel for all backends",
    "backend fallback": "fallback, the same for all operators",
}


@dataclass(frozen=True)
class Floor:
    """One key of a tower. `step` counts the kernels that ran, from 1; 0 for a key at which none ran.

    `note` says what happened here. `carriers` are those who brought the key: argument names, and "thread".
    """

    key: str
    step: int
    note: str
    verdict: str
    carriers: tuple[str, ...]


@dataclass(frozen=True)
class Tower:
    """All keys of one call, the highest priority first. `sources` brought keys: the arguments, then "thread"."""

    operator: str
    floors: tuple[Floor, ...]
    sources: tuple[str, ...]

    @classmethod
    def of(cls, call: Dispatch) -> Tower:
        """Return the tower of a call, as the traced steps tell it."""
        steps = call.steps
        carriers = {**dict(call.arguments), "thread": call.included}
        fates: dict[str, tuple[int, str, str]] = {}  # step, note, verdict
        for number, step in enumerate(steps, 1):
            before = steps[number - 2] if number > 1 else None
            for rung in step.rungs:
                if rung.verdict == WINS:
                    note = _of_winner(step, number < len(steps))
                    fates[rung.key] = number, note, MISSING if step.kernel is None else WINS
                elif rung.verdict != BELOW:
                    fates.setdefault(rung.key, (0, _of_passed(rung.verdict, before), rung.verdict))
        known = {rung.key for step in steps for rung in step.rungs}
        floors = tuple(
            Floor(
                key,
                *fates.get(key, (0, "not reached", BELOW)),
                tuple(name for name, keys in carriers.items() if key in keys),
            )
            for key in key_order()
            if key in known
        )
        return cls(call.operator, floors, tuple(name for name, keys in carriers.items() if keys))

    @property
    def ran(self) -> tuple[Floor, ...]:
        """The keys whose kernels ran, in order."""
        return tuple(sorted((floor for floor in self.floors if floor.step), key=lambda floor: floor.step))

    @property
    def sentence(self) -> str:
        """The tower in words."""
        parts = [f"{floor.key}: {f'{floor.step}. ' if floor.step else ''}{floor.note}" for floor in self.floors]
        return f"{self.operator}, keys from the highest down. {'; '.join(parts)}."


def _of_winner(step: Dispatch, more: bool) -> str:
    if step.failed and not more:
        return "no kernel" if step.kernel is None else f"{_KINDS.get(step.kernel.kind, step.kernel.kind)}: it raised"
    if step.kernel is None:
        return "no kernel"
    words = _KINDS.get(step.kernel.kind, step.kernel.kind)
    if step.inferred:
        return f"{words} (inferred from the result)"
    return f"{words}: hands the call on" if more else words


def _of_passed(verdict: str, before: Dispatch | None) -> str:
    if verdict == FALLTHROUGH:
        return "passed over (fallthrough)"
    if verdict == MASKED:
        return f"passed over by the kernel at {before.key}" if before else "passed over"
    assert verdict == EXCLUDED
    return f"left out by the kernel at {before.key}" if before else "left out by this thread"
