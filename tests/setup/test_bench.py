"""`make bench`: targets are compared in the right direction, and a benchmark that breaks is not a success."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import bench


def test_a_result_needs_exactly_one_target() -> None:
    for targets in ({}, {"at_least": 1, "at_most": 2}):
        with pytest.raises(ValueError, match="one target"):
            bench.report("x", 1.0, **targets)


@pytest.mark.parametrize(
    ("measured", "targets", "met"),
    [
        (100, {"at_least": 100}, True),
        (99, {"at_least": 100}, False),
        (1, {"at_most": 1}, True),
        (1.01, {"at_most": 1}, False),
    ],
)
def test_a_target_is_met_on_the_right_side(measured: float, targets: dict, met: bool, capsys) -> None:
    bench.report("x", measured, **targets)
    found = bench.results("noise\n" + capsys.readouterr().out)
    assert [bench.met(result) for result in found] == [met]
    assert ("met" if met else "MISSED") in bench.table(found)


PROGRAMS = {
    "good": ("from tools.bench import report\nreport('x', 1, at_most=2)", 0),
    "missed": ("from tools.bench import report\nreport('x', 3, at_most=2)", 1),
    "silent": ("pass", 1),
    "own sentence": ("print('64 cells: 1 ms (at most 2 ms)')", 0),
    "own sentence, missed": ("print('64 cells: 3 ms (at most 2 ms)')\nraise SystemExit(1)", 1),
    "broken": ("from tools.bench import report\nreport('x', 1, at_most=2)\nraise SystemExit(3)", 1),
}


@pytest.mark.parametrize(("text", "status"), PROGRAMS.values(), ids=PROGRAMS.keys())
def test_the_run_fails_when_a_target_is_missed_or_a_benchmark_breaks(
    text: str, status: int, tmp_path: Path, monkeypatch, capsys
) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "bench_one.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(Path(bench.__file__).parents[1]))
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    assert bench.main([]) == status
    assert bench.main(["two"]) == 2
