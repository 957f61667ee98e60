"""The environment report names each lack, what it costs, and the layer that is at fault."""

import re

import pytest

from helpers.course import environment
from helpers.course.environment import (
    Environment,
    EnvironmentApp,
    Item,
    compiler_item,
    gpu_item,
    memory_item,
    python_item,
    report_environment,
    torch_item,
)


@pytest.mark.parametrize(
    ("version", "state"),
    [((3, 10, 9), "stop"), ((3, 11, 0), "ok"), ((3, 13, 9), "ok"), ((3, 14, 0), "lack")],
)
def test_python_is_judged_by_the_supported_range(version, state):
    assert python_item(version).state == state


@pytest.mark.parametrize(
    ("version", "state"),
    [("2.10.1", "stop"), ("2.11.0", "ok"), ("2.13.0+cpu", "ok"), ("2.15.1", "ok"), ("2.16.0", "lack"), ("3.0", "lack")],
)
def test_torch_is_judged_by_the_supported_range(version, state):
    assert torch_item(version).state == state


def test_a_build_without_cuda_beside_a_driver_is_named_as_the_cause():
    item = gpu_item(build=None, driver="570.1", usable=False)
    assert item.state == "lack"
    assert "built without CUDA" in item.found
    assert "install a CUDA build" in item.text


def test_a_driver_that_torch_cannot_use_is_named_as_the_cause():
    item = gpu_item(build="13.0", driver="470.1", usable=False)
    assert "update the driver" in item.text


def test_in_wsl_the_windows_side_is_named(monkeypatch):
    monkeypatch.setattr(environment, "_in_wsl", lambda: True)
    # gpu_item(driver="") would ask nvidia-smi only when driver is None
    assert "driver belongs to Windows" in gpu_item(build="13.0", driver="", usable=False).text


@pytest.mark.parametrize("build", [None, "13.0"])
def test_no_gpu_costs_only_the_recorded_cells(build, monkeypatch):
    monkeypatch.setattr(environment, "_in_wsl", lambda: False)
    item = gpu_item(build=build, driver="", usable=False)
    assert item.state == "lack"
    assert "replays recorded" in item.text


def test_a_usable_gpu_is_fine():
    assert gpu_item(build="13.0", driver="580", usable=True).state == "ok"


def test_an_nvidia_smi_that_fails_or_hangs_means_no_driver(monkeypatch, tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho NVIDIA-SMI has failed\nexit 9\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment._driver() == ""
    program.write_text("#!/bin/sh\necho 580.65\n")
    assert environment._driver() == "580.65"


def test_a_missing_compiler_is_a_lack_with_a_remedy():
    item = compiler_item(find=lambda name: None)
    assert item.state == "lack"
    assert re.search("install|run", item.text)
    assert compiler_item(find=lambda name: f"/bin/{name}").state == "ok"


def test_little_memory_is_a_lack():
    assert memory_item(900_000_000).state == "lack"
    assert memory_item(1_100_000_000).state == "ok"
    assert "1.1 GB" in memory_item(1_100_000_000).found


def test_only_a_stop_makes_a_machine_unfit():
    ok, lack, stop = (Item("part", "found", state, "text") for state in ("ok", "lack", "stop"))
    assert Environment((ok, lack)).fit
    assert not Environment((ok, stop)).fit
    assert Environment((ok, stop)).text.splitlines()[1] == "✗ part: found. text"


@pytest.mark.parametrize(
    ("state", "sentence"),
    [("ok", "whole course"), ("lack", "What it lacks for later ones: part"), ("stop", "marked ✗")],
)
def test_the_sentence_says_whether_the_reader_can_go_on(state, sentence):
    app = EnvironmentApp(lambda: Environment((Item("part", "found", state, "text"),)))
    assert sentence in app.view().sentence


def test_look_again_reads_the_machine_anew():
    states = iter(["stop", "ok"])
    app = EnvironmentApp(lambda: Environment((Item("part", "found", next(states), "text"),)))
    app.change("look", "look again")
    assert app.environment.fit


def test_the_stored_form_is_the_same_on_every_machine():
    report = report_environment()
    bundle = report._repr_mimebundle_()
    assert "live table" in bundle["text/plain"]
    assert not re.search(r"\d+\.\d+", bundle["text/plain"] + bundle["text/html"])
    assert report.fit is True
    assert len(report.text.splitlines()) == 5
