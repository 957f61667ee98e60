"""The CI calls what exists, and covers what it promises."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
JOBS = WORKFLOW["jobs"]
VERBS = set(re.search(r"^VERBS := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[1].split())


def commands(job: dict) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("name", JOBS)
def test_every_job_checks_out_the_code_has_a_time_limit_and_calls_only_verbs_that_exist(name: str) -> None:
    job = JOBS[name]
    assert job["steps"][0]["uses"].startswith("actions/checkout@")
    assert job["timeout-minutes"] <= 90
    called = [verb for text in commands(job) for verb in re.findall(r"(?:make|tools/course\.py) (\w+)", text)]
    assert called, "the job calls nothing of the course"
    assert set(called) <= VERBS
    assert "test" in called


def test_the_cpu_lane_runs_every_python_and_the_oldest_and_newest_torch() -> None:
    matrix = JOBS["cpu"]["strategy"]["matrix"]
    assert matrix["python"] == ["3.11", "3.12", "3.13"]
    assert [entry["torch"] for entry in matrix["include"]] == ["2.11.0+cpu", "2.15.0+cpu"]
    assert all("TORCH=${{ matrix.torch }}" in command for command in commands(JOBS["cpu"]))


def test_the_other_lanes_are_cuda_conda_other_systems_and_a_weekly_one_without_the_lock() -> None:
    assert any("make test DEVICE=cuda" in command for command in commands(JOBS["cuda"]))
    assert any(step.get("with", {}).get("environment-file") == "environment.yml" for step in JOBS["conda"]["steps"])
    assert JOBS["systems"]["strategy"]["matrix"]["os"] == ["macos-latest", "windows-latest"]
    assert WORKFLOW[True]["schedule"]  # YAML 1.1 reads the key `on` as true
    assert any("LOCK=off" in command for command in commands(JOBS["newest"]))
    assert "schedule" not in JOBS["newest"]["if"]


def test_the_local_gate_is_sound_bash_demands_a_browser_and_ends_with_make_test() -> None:
    script = ROOT / ".ci" / "run"
    subprocess.run(["bash", "-n", str(script)], check=True)
    lines = [line for line in script.read_text(encoding="utf-8").splitlines() if line.strip()]
    assert "set -euo pipefail" in lines
    assert "export COURSE_REQUIRE_BROWSER=1" in lines
    assert lines[-1].startswith("make test")


def test_the_list_of_verbs_in_help_is_that_of_the_makefile() -> None:
    from tools import course, verbs

    listed = re.findall(r"^make (\w+)", course.HELP, re.MULTILINE)
    assert set(listed) == VERBS == {*verbs.VERBS, "help"}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_every_command_and_file_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert set(re.findall(r"(?:^|`)make (\w+)", text, re.MULTILINE)) <= VERBS
    assert set(re.findall(r"tools[/\\]course\.py (\w+)", text)) <= VERBS
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (ROOT / target).exists(), target
