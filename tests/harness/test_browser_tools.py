"""The parts of the browser tests that need no browser."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys

import pytest

from tools.nbharness.lab import find_chromium
from tools.nbharness.run import ROOT


@pytest.fixture(scope="module")
def tiles():
    return runpy.run_path(str(ROOT / "tests" / "browser" / "screenshots.py"))["tiles"]


def test_tiles_end_between_cells_and_cover_everything(tiles):
    assert tiles([400, 900, 1400, 2100, 2500], 1500) == [(0, 1400), (1400, 2500)]


def test_a_cell_taller_than_a_tile_is_cut(tiles):
    assert tiles([200, 3500], 1500) == [(0, 200), (200, 1700), (1700, 3200), (3200, 3500)]


def test_a_named_chromium_comes_first(monkeypatch):
    monkeypatch.setenv("COURSE_CHROMIUM", "/opt/my-chromium")
    assert find_chromium() == "/opt/my-chromium"


@pytest.mark.parametrize(("required", "outcome"), [("0", "skipped"), ("1", "error")])
def test_without_a_chromium_the_browser_tests_are_skipped_or_fail_with_the_reason(required, outcome, tmp_path):
    variables = os.environ | {"PATH": str(tmp_path), "COURSE_REQUIRE_BROWSER": required}
    variables.pop("COURSE_CHROMIUM", None)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rsE", "-q", "-p", "no:cacheprovider", "tests/browser"],
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f" {outcome}" in done.stdout.splitlines()[-1]
    assert "no Chromium on this machine" in done.stdout
    assert (done.returncode == 0) == (outcome == "skipped")
