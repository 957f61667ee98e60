"""What the tests in a browser need of the machine."""

from __future__ import annotations

import os

import pytest

from tools.nbharness.lab import find_chromium

NO_CHROMIUM = "no Chromium on this machine (COURSE_CHROMIUM names one that is not on PATH)"


@pytest.fixture(scope="module")
def chromium() -> str:
    """The path of a Chromium. Without one the tests are skipped, or fail where a browser is required."""
    path = find_chromium()
    if path is None:
        if os.environ.get("COURSE_REQUIRE_BROWSER") == "1":
            pytest.fail(f"COURSE_REQUIRE_BROWSER is 1, and there is {NO_CHROMIUM}")
        pytest.skip(NO_CHROMIUM)
    return path
