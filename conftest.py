"""pytest for this project: notebooks are tests too.

Every code cell of a notebook is run and its outputs are compared with the stored ones, by nbval in its strict mode,
with the cures of tools/nbharness. A cell is named by its id: `pytest notebooks/01_storage.ipynb`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import nbval
import pytest

ROOT = Path(__file__).resolve().parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tools.nbharness.cells import Collector, CourseCell  # noqa: E402  (the root must be on the path first)
from tools.nbharness.conditions import CONDITIONS, DEVICES, Conditions  # noqa: E402

CELL_SECONDS = 120
NBVAL_DEFAULT_SECONDS = 2000


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("course")
    group.addoption(
        "--device", choices=DEVICES, default="auto", help="what notebooks run on; cuda refuses without a GPU"
    )
    group.addoption("--notebook-report", metavar="FILE", help="write what every notebook cell did, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    if not nbval.__version__.startswith("0.11."):
        raise pytest.UsageError(f"nbval {nbval.__version__} is installed; tools/nbharness is written for 0.11.")
    options = config.option
    options.nbval_current_env = True
    if options.nbval_cell_timeout == NBVAL_DEFAULT_SECONDS:
        options.nbval_cell_timeout = CELL_SECONDS
    if options.nbval_sanitize_with is None:
        options.nbval_sanitize_with = str(ROOT / "nbval-sanitize.cfg")
    config.pluginmanager.register(Collector(), "course-notebooks")
    config.stash[CONDITIONS] = Conditions(options.device, ROOT / "requirements.lock")
    if options.device == "cuda":
        _ = config.stash[CONDITIONS].device  # refuses at once where there is no GPU


def pytest_report_header(config: pytest.Config) -> str:
    return f"notebooks: --device {config.option.device}"


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.option.notebook_report:
        report: dict[str, list] = {}
        for cell in _cells(session):
            report.setdefault(str(cell.path), []).append(
                {"id": cell.name, "outcome": cell.outcome, "sentence": cell.sentence, "outputs": cell.found}
            )
        Path(session.config.option.notebook_report).write_text(json.dumps(report), encoding="utf-8")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    session = terminalreporter._session
    loose = [cell for cell in _cells(session) if cell.outcome == "not-compared"]
    if loose:
        names = ", ".join(cell.name for cell in loose)
        terminalreporter.write_line(f"ran but not compared, as {loose[0].sentence}: {names}")


def _cells(session: pytest.Session) -> list[CourseCell]:
    return [item for item in getattr(session, "items", []) if isinstance(item, CourseCell)]
