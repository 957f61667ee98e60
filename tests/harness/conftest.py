"""What several tests of the harness share."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def fake_gpu() -> dict[str, str]:
    """Return an environment in which torch claims to see a GPU, in every Python that is started with it."""
    return {"PYTHONPATH": str(Path(__file__).parent / "fake_gpu")}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `notebook` runs once for each notebook of the course."""
    if "notebook" in metafunc.fixturenames:
        notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
        metafunc.parametrize("notebook", notebooks, ids=[path.stem for path in notebooks], scope="module")


@pytest.fixture(scope="session")
def notebooks() -> list[Path]:
    """Return the notebooks of the course."""
    return sorted((ROOT / "notebooks").glob("*.ipynb"))
