"""`begin()` and `on_cuda()`, as a chapter calls them."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import warnings

import numpy
import pytest
import torch

from helpers.course.session import begin, on_cuda
from helpers.model.finding import HelperError


@pytest.fixture(autouse=True)
def _settings_are_put_back(monkeypatch):
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    monkeypatch.setenv("MATPLOTLIBRC", os.environ.get("MATPLOTLIBRC", ""))
    yield
    torch.set_printoptions(profile="default")


def test_begin_returns_the_device_that_was_asked_for(monkeypatch):
    monkeypatch.setenv("COURSE_DEVICE", "cpu")
    assert begin() == torch.device("cpu")


@pytest.mark.parametrize(("available", "device"), [(True, "cuda"), (False, "cpu")])
def test_auto_is_the_gpu_where_there_is_one(monkeypatch, available, device):
    monkeypatch.setenv("COURSE_DEVICE", "auto")
    monkeypatch.setattr("torch.cuda.is_available", lambda: available)
    assert begin().type == device


def test_begin_prints_nothing(capfd, monkeypatch):
    monkeypatch.setenv("COURSE_DEVICE", "cpu")
    begin()
    assert capfd.readouterr() == ("", "")


def test_calling_begin_again_gives_the_same_random_numbers(monkeypatch):
    monkeypatch.setenv("COURSE_DEVICE", "cpu")

    def draw():
        begin()
        return torch.rand(3).tolist(), random.random(), numpy.random.rand()

    assert draw() == draw()


def test_begin_resets_how_tensors_print(monkeypatch):
    monkeypatch.setenv("COURSE_DEVICE", "cpu")
    torch.set_printoptions(precision=1, sci_mode=True)
    begin()
    assert repr(torch.tensor([0.12345])) == "tensor([0.1235])"


def test_a_warning_is_one_line_without_a_path(monkeypatch):
    monkeypatch.setenv("COURSE_DEVICE", "cpu")
    begin()
    assert warnings.formatwarning("careful", UserWarning, "/home/x/y.py", 3) == "UserWarning: careful\n"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("gpu", "COURSE_DEVICE is 'gpu'; it must be 'auto', 'cpu' or 'cuda'."),
        ("", "COURSE_DEVICE is ''; it must be 'auto', 'cpu' or 'cuda'."),
        ("cuda", f"COURSE_DEVICE is 'cuda', but torch {torch.__version__} sees no GPU on this machine"),
    ],
)
def test_a_wrong_device_is_one_sentence(monkeypatch, value, sentence):
    monkeypatch.setenv("COURSE_DEVICE", value)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(HelperError) as error:
        begin()
    assert str(error.value).startswith(sentence)


def test_matplotlib_gets_the_courses_style_only_when_it_is_used():
    script = (
        "import sys\nfrom helpers.course.session import begin\nbegin()\n"
        "print('matplotlib' in sys.modules)\n"
        "import matplotlib\nprint(matplotlib.rcParams['axes.spines.top'], matplotlib.rcParams['figure.facecolor'])\n"
        "matplotlib.rcdefaults()\nbegin()\nprint(matplotlib.rcParams['axes.spines.top'])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env=os.environ | {"COURSE_DEVICE": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["False", "False white", "False"], done.stderr


def test_on_cuda_is_true_where_there_is_a_gpu(monkeypatch, capsys):
    monkeypatch.setenv("COURSE_DEVICE", "auto")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert on_cuda("any-cell") is True
    assert capsys.readouterr().out == ""


def test_on_cuda_says_that_no_recording_exists(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COURSE_DEVICE", "cpu")
    assert on_cuda("no-such-cell") is False
    assert "no recording of it exists yet" in capsys.readouterr().out
