"""One notebook, two devices: references, recordings and their replay. A fake stands in for the GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version

import nbformat
import pytest

from helpers.course.recordings import Recording, read_recordings, recordings_path
from tools.nbharness.build import code, result, stdout, write_notebook
from tools.nbharness.conditions import Conditions
from tools.nbharness.run import ROOT, run_notebooks

BEGIN = "from helpers.course.session import begin, on_cuda\ndevice = begin()"
GPU_ONLY = "if on_cuda('gpu-only'):\n    print('ran on the GPU')\n    display('shown')"


@pytest.fixture(scope="module")
def course(tmp_path_factory, fake_gpu):
    """A notebook refreshed on a (fake) GPU, with its recordings."""
    path = write_notebook(
        tmp_path_factory.mktemp("devices") / "course.ipynb",
        code(BEGIN, id="begin"),
        code("device.type", id="differs", tags=("per-device",)),
        code("device.type + '!'", id="another", tags=("per-device",)),
        code(GPU_ONLY, id="gpu-only", tags=("requires-cuda",)),
        code("1 + 1", id="same-on-both"),
    )
    done = _refresh(path, fake_gpu)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="module")
def runs(course, fake_gpu):
    """The notebook and damaged copies of it, run on both devices: {(copy, device): {cell id: run}}."""
    copies = [course]
    for name in ("by-hand", "mixed"):
        path = course.with_name(f"{name}.ipynb")
        path.write_bytes(course.read_bytes())
        recordings_path(path).write_bytes(recordings_path(course).read_bytes())
        copies.append(path)
    _, by_hand, mixed = copies
    _change_recordings(by_hand, lambda cells: cells["gpu-only"]["outputs"][0].update(text="another GPU\n"), seal=False)

    def damage(cells):
        cells["gpu-only"]["outputs"][0].update(text="another GPU\n")
        del cells["another"]

    _change_recordings(mixed, damage, seal=True)
    notebook = nbformat.read(mixed, as_version=4)
    next(cell for cell in notebook.cells if cell.id == "differs").source += "  # changed"
    nbformat.write(notebook, mixed)
    found = {}
    for device, environment in (("cpu", None), ("cuda", fake_gpu)):
        for path, cells in run_notebooks(copies, device=device, environment=environment).items():
            found[path.stem, device] = {run.id: run for run in cells}
    return found


def _refresh(path, environment):
    return subprocess.run(
        [sys.executable, "tools/refresh.py", str(path), "--device=cuda"],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _change_recordings(path, change, *, seal):
    """Change the recordings of a notebook; `seal` renews the digests, as one who knows of them would."""
    target = recordings_path(path)
    content = json.loads(target.read_text())
    change(content["cells"])
    if seal:
        for cell_id, entry in content["cells"].items():
            entry.pop("digest")
            entry["digest"] = Recording(cell_id, **entry).digest
    target.write_text(json.dumps(content))


def test_cuda_refuses_to_start_without_a_gpu():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--device=cuda", "-q", "notebooks"],
        cwd=ROOT,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},  # hides a GPU that is there
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "sees no GPU on this machine" in done.stdout + done.stderr


@pytest.mark.parametrize(("available", "device"), [(True, "cuda"), (False, "cpu")])
def test_auto_takes_the_gpu_where_there_is_one(monkeypatch, tmp_path, available, device):
    monkeypatch.setattr("torch.cuda.is_available", lambda: available)
    assert Conditions("auto", tmp_path / "lock").device == device


def test_both_devices_pass_with_their_own_reference(runs):
    for device in ("cpu", "cuda"):
        cells = runs["course", device]
        assert {run.outcome for run in cells.values()} == {"same"}
        assert cells["differs"].outputs[0]["data"]["text/plain"] == repr(device)


def test_a_gpu_only_cell_replays_its_recording_under_a_label(course):
    cell = next(cell for cell in nbformat.read(course, as_version=4).cells if cell.id == "gpu-only")
    label = f"Recorded on Pretend GPU, torch {version('torch').split('+')[0]}, CUDA 12.9"
    assert cell.outputs[0].data["text/plain"] == label
    assert cell.outputs[1].text == "ran on the GPU\n"
    assert cell.outputs[2].data["text/plain"] == "'shown'"


def test_renewing_recordings_that_still_hold_changes_no_byte(course, fake_gpu):
    before = course.read_bytes(), recordings_path(course).read_bytes()
    assert _refresh(course, fake_gpu).stdout == "unchanged: 1 notebook\n"
    assert (course.read_bytes(), recordings_path(course).read_bytes()) == before


def test_a_recording_changed_by_hand_fails_on_both_devices(runs):
    for device in ("cpu", "cuda"):
        run = runs["by-hand", device]["gpu-only"]
        assert run.outcome in ("failed", "no-reference")
        assert "gpu-only" in run.sentence or "changed by hand" in run.outputs[0]["evalue"]


def test_a_changed_recording_with_a_fitting_digest_still_fails_on_both_devices(runs):
    # On the CPU the replay disagrees with the notebook, on a GPU the cell's own output with the recording.
    assert runs["mixed", "cpu"]["gpu-only"].outcome == "differs"
    assert runs["mixed", "cuda"]["gpu-only"].outcome == "differs"


def test_a_stale_recording_fails_on_both_devices_with_the_command(runs):
    for device in ("cpu", "cuda"):
        run = runs["mixed", device]["differs"]
        assert run.outcome == "no-reference"
        assert "stale" in run.sentence
        assert "make refresh DEVICE=cuda" in run.sentence


def test_a_missing_recording_fails_where_it_is_needed_with_the_command(runs):
    assert runs["mixed", "cpu"]["another"].outcome == "same"
    run = runs["mixed", "cuda"]["another"]
    assert run.outcome == "no-reference"
    assert "make refresh DEVICE=cuda" in run.sentence


def test_recordings_say_where_they_come_from(course):
    recordings = read_recordings(recordings_path(course))
    assert list(recordings) == ["differs", "another", "gpu-only"]
    assert recordings["gpu-only"].gpu == "Pretend GPU"
    assert recordings["gpu-only"].cuda == "12.9"


def test_a_ref_torch_cell_always_runs_and_is_compared_only_on_the_reference_torch(tmp_path):
    path = write_notebook(
        tmp_path / "words.ipynb",
        code("print('new words')", stdout("old words\n"), id="tagged", tags=("ref-torch",)),
        code("7", result("7"), id="plain"),
    )
    here = {run.id: run for run in run_notebooks([path])[path]}
    assert here["tagged"].outcome == "differs"
    there = {run.id: run for run in run_notebooks([path], environment=_other_torch(tmp_path))[path]}
    assert there["tagged"].outcome == "not-compared"
    assert "torch 2.99.0 is installed" in there["tagged"].sentence
    assert there["tagged"].outputs[0]["text"] == "new words\n"
    assert there["plain"].outcome == "same"


def test_the_reference_torch_is_the_one_of_the_lock(tmp_path):
    lock = tmp_path / "requirements.lock"
    lock.write_text("numpy==2.4.6\ntorch==1.0.0 ; python_version >= '3.11'\n")
    assert "comes from torch 1.0.0" in Conditions("cpu", lock).other_torch
    lock.write_text(f"torch=={version('torch')}\n")
    assert Conditions("cpu", lock).other_torch == ""


def _other_torch(folder) -> dict[str, str]:
    """Return an environment in which torch's metadata claims version 2.99.0."""
    (folder / "torch-2.99.0.dist-info").mkdir()
    (folder / "torch-2.99.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.99.0\n")
    return {"PYTHONPATH": str(folder)}
