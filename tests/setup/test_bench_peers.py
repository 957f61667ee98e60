"""`make bench ARGS=graphs`: what a peer answers is read, and one that is missing or fails is told with its message."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench import bench_graphs, peers


def test_an_answer_is_the_last_line_that_was_printed() -> None:
    said = 'a warning\n{"cpu_ms": [1.5, 2.5], "boxes": 3}\n'
    assert bench_graphs.answer(0, said, "") == {"cpu_ms": [1.5, 2.5], "boxes": 3}


@pytest.mark.parametrize(
    ("status", "said", "complained", "message"),
    [
        (1, "", "Traceback …\nModuleNotFoundError: No module named 'torchviz'\n", "No module named 'torchviz'"),
        (1, "", "", "it said nothing"),
        (-11, "", "", "ended by signal 11"),
        (0, "", "", "no answer came"),
        (0, "drawn!", "", "no answer came, but 'drawn!'"),
    ],
)
def test_a_peer_that_fails_is_told_with_its_message(status: int, said: str, complained: str, message: str) -> None:
    with pytest.raises(bench_graphs.PictureError, match=message):
        bench_graphs.answer(status, said, complained)


def test_a_ratio_is_to_a_peer_that_draws_the_autograd_graph() -> None:
    assert bench_graphs.fastest({"ours": 1.0, "torchview": 5.0, "torchviz": 9.0}) == ("torchviz", 9.0)
    assert bench_graphs.fastest({"ours": 1.0, "torchview": 5.0}) is None


def test_without_a_peer_our_own_targets_are_still_judged(capsys) -> None:
    bench_graphs.judge("ResNet-50", {"ours": 9.0})
    said = capsys.readouterr().out
    assert "no ratio, because no peer drew" in said
    assert '"measured": 9.0' in said


def test_the_table_has_a_dash_where_nothing_was_drawn() -> None:
    lines = bench_graphs.table({"ours": {"tiny": (0.31, 5)}, "torchviz": {}}).splitlines()
    assert lines[1].split()[:3] == ["ours", "0.3", "(5)"]
    assert lines[2].split() == ["torchviz", *"–––––"]
    assert len({len(line) for line in lines}) == 1


def test_every_graph_of_the_run_can_be_drawn() -> None:
    drawn_graph = pytest.importorskip("bench.drawn_graph", reason="it counts processor time as Unix does")
    assert tuple(drawn_graph.GRAPHS) == bench_graphs.GRAPHS
    assert set(peers.PINS) < set(drawn_graph.LIBRARIES)
    assert set(bench_graphs.DRAW_AUTOGRAD) <= set(peers.PINS)


def test_without_dot_every_peer_is_missing_and_the_remedy_is_told(monkeypatch) -> None:
    monkeypatch.setattr(peers.shutil, "which", lambda name: None)
    assert set(peers.missing()) == set(peers.PINS)
    assert all("apt-get install graphviz" in reason for reason in peers.missing().values())


def test_a_package_that_cannot_be_had_is_named_with_the_message_of_pip(tmp_path: Path, monkeypatch) -> None:
    tried = []

    def run(command, **options):
        tried.append(command[command.index("-q") + 1 :])
        failed = any("torchview" in word for word in command)
        said = "ERROR: No matching distribution found for torchview==0.2.7\n" if failed else ""
        return SimpleNamespace(returncode=int(failed), stderr=said)

    monkeypatch.setattr(peers.shutil, "which", lambda name: name)
    monkeypatch.setattr(peers, "_environment", lambda: tmp_path)
    monkeypatch.setattr(peers.subprocess, "run", run)
    (tmp_path / "graphviz-0.21.dist-info").mkdir()
    (reason,) = [peers.missing()[name] for name in peers.missing()]
    assert "torchview==0.2.7 failed: ERROR: No matching distribution found" in reason
    assert ["torchviz==0.0.3"] in tried  # and not graphviz, which is there


def test_an_environment_that_cannot_be_made_is_told_for_every_peer(monkeypatch) -> None:
    def fail():
        raise subprocess.CalledProcessError(1, ["venv"], stderr="Error: no space left on device\n")

    monkeypatch.setattr(peers.shutil, "which", lambda name: name)
    monkeypatch.setattr(peers, "_environment", fail)
    assert set(peers.missing()) == set(peers.PINS)
    assert all("could not be made: Error: no space left on device" in reason for reason in peers.missing().values())
