"""tools/lock.py: the answers for all machines become one file of constraints."""

from __future__ import annotations

from itertools import product

import pytest
from packaging.requirements import Requirement

from tools import lock

EVERYWHERE = set(product(lock.PYTHONS, lock.PLATFORMS))
PLACES = {
    "everywhere": EVERYWHERE,
    "one Python": {pair for pair in EVERYWHERE if pair[0] == "3.11"},
    "two Pythons": {pair for pair in EVERYWHERE if pair[0] != "3.11"},
    "Linux": {pair for pair in EVERYWHERE if pair[1].sys_platform == "linux"},
    "not Windows": {pair for pair in EVERYWHERE if pair[1].sys_platform != "win32"},
    "one machine": {pair for pair in EVERYWHERE if pair[1].platform_machine == "aarch64"},
    "one Python on one machine": {("3.12", lock.PLATFORMS[0])},
    "a different place for each Python": {("3.11", lock.PLATFORMS[0]), ("3.12", lock.PLATFORMS[3])},
}


@pytest.mark.parametrize("where", PLACES.values(), ids=PLACES.keys())
def test_a_marker_is_true_exactly_where_the_version_was_found(where) -> None:
    text = lock.marker(where)
    requirement = Requirement(f"x==1 ; {text}" if text else "x==1")
    for python, platform in EVERYWHERE:
        values = platform.markers(python)
        true_here = requirement.marker is None or requirement.marker.evaluate(values)
        assert true_here == ((python, platform) in where), f"{text!r} on {values}"


def test_equal_answers_are_one_line_and_different_ones_are_told_apart() -> None:
    answers = {(python, platform): {"same": "1.0"} for python, platform in EVERYWHERE}
    for python, platform in EVERYWHERE:
        answers[python, platform]["numpy"] = "2.4" if python == "3.11" else "2.5"
        if platform.sys_platform == "win32":
            answers[python, platform]["pywinpty"] = "3"
    assert lock.lines(answers) == [
        'numpy==2.4 ; python_version == "3.11"',
        'numpy==2.5 ; (python_version == "3.12" or python_version == "3.13")',
        'pywinpty==3 ; sys_platform == "win32"',
        "same==1.0",
    ]
