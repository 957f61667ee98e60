"""One list of dependencies: the lock covers it, environment.yml and the CI delegate to it."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
import sys
import tomllib
from itertools import product
from pathlib import Path

import pytest
import torch
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from rattler import MatchSpec

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
ENVIRONMENT = (ROOT / "environment.yml").read_text(encoding="utf-8")
PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = {
    "Linux on x86_64": ("linux", "posix", "Linux", "x86_64"),
    "Linux on aarch64": ("linux", "posix", "Linux", "aarch64"),
    "macOS": ("darwin", "posix", "Darwin", "arm64"),
    "Windows": ("win32", "nt", "Windows", "AMD64"),
}
TARGETS = list(product(PYTHONS, MACHINES))


def wanted() -> list[Requirement]:
    extras = PROJECT["project"]["optional-dependencies"].values()
    texts = PROJECT["project"]["dependencies"] + [text for extra in extras for text in extra]
    return [Requirement(text) for text in texts + PROJECT["build-system"]["requires"]]


def marker_values(python: str, machine: str) -> dict[str, str]:
    names = ("sys_platform", "os_name", "platform_system", "platform_machine")
    versions = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    return dict(zip(names, MACHINES[machine], strict=True)) | versions


@functools.cache
def locked(text: str, python: str, machine: str) -> dict[str, list[str]]:
    """The versions that the lock allows on one machine, by package."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate(marker_values(python, machine)):
                found.setdefault(canonicalize_name(requirement.name), []).append(str(requirement.specifier))
    return found


@pytest.mark.parametrize(("python", "machine"), TARGETS)
def test_the_lock_has_exactly_one_version_in_range_for_everything_asked_for(python: str, machine: str) -> None:
    found = locked(LOCK, python, machine)
    for requirement in wanted():
        pins = found.get(canonicalize_name(requirement.name), [])
        assert len(pins) == 1, f"{requirement.name}: {pins}"
        assert pins[0].startswith("=="), pins
        assert requirement.specifier.contains(pins[0].removeprefix("==")), f"{requirement} is locked to {pins[0]}"
    twice = {name: pins for name, pins in found.items() if len(pins) > 1}
    assert not twice, twice


def test_the_lock_holds_nothing_but_exact_versions_and_plain_markers() -> None:
    lines = [line for line in LOCK.splitlines() if line and not line.startswith("#")]
    assert len(lines) > 80
    for line in lines:
        requirement = Requirement(line)
        assert requirement.url is None, line
        assert not requirement.extras, line
        assert re.fullmatch(r"==[\w.!]+", str(requirement.specifier)), line  # no local part such as +cpu
        assert line.split("==")[0] == canonicalize_name(requirement.name), line
        assert requirement.marker is None or isinstance(requirement.marker, Marker)
    assert not re.search(r"https?://|file:|--|@|hash", "\n".join(lines))
    assert lines == sorted(lines, key=lambda line: line.split("==")[0])


def test_the_lock_pins_the_reference_torch_and_names_what_only_some_platforms_need() -> None:
    for python, machine in TARGETS:
        found = locked(LOCK, python, machine)
        assert found["torch"] == ["==2.13.0"]
        cuda = [name for name in found if name.startswith(("nvidia-", "triton", "cuda-"))]
        assert bool(cuda) == machine.startswith("Linux"), f"{machine}: {cuda}"
        assert ("pywinpty" in found) == (machine == "Windows")
        assert ("appnope" in found) == (machine == "macOS")
        assert ("pexpect" in found) == (machine != "Windows")


def test_the_environment_of_these_tests_agrees_with_the_lock() -> None:
    """Skipped where other releases were asked for on purpose (LOCK=off, TORCH=…)."""
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    machine = {"Linux": f"Linux on {platform.machine()}", "Darwin": "macOS"}.get(platform.system(), "Windows")
    if os.environ.get("LOCK") == "off" or Version(torch.__version__).base_version != "2.13.0":
        pytest.skip("other releases than the locked ones were asked for")
    found = locked(LOCK, python, machine)
    for requirement in wanted():
        version = Version(importlib.metadata.version(requirement.name)).public
        assert found[canonicalize_name(requirement.name)] == [f"=={version}"], requirement.name


def test_every_locked_release_supports_the_pythons_it_is_locked_for() -> None:
    """As far as the packages installed here tell; the lock was made by asking pip for every Python."""
    checked = 0
    for found in importlib.metadata.distributions():
        name, pin = canonicalize_name(found.metadata["Name"]), f"=={Version(found.version).public}"
        allowed = SpecifierSet(found.metadata.get("Requires-Python", ""))
        for python, machine in TARGETS:
            if pin in locked(LOCK, python, machine).get(name, []):
                assert allowed.contains(f"{python}.0"), f"{name} {pin} needs Python {allowed}"
                checked += 1
    assert checked > 300


def test_the_supported_pythons_and_torch_releases_are_as_promised() -> None:
    python = SpecifierSet(PROJECT["project"]["requires-python"])
    assert [python.contains(f"3.{minor}") for minor in range(10, 15)] == [False, True, True, True, False]
    torch = next(requirement for requirement in wanted() if requirement.name == "torch").specifier
    releases = ("2.10.0", "2.11.0", "2.13.0", "2.15.0", "2.16.0")
    assert [torch.contains(release) for release in releases] == [False, True, True, True, False]


def faults(text: str) -> list[str]:
    """Everything that is wrong with an environment.yml, strictly read."""
    data = yaml.safe_load(text)
    found = []
    if set(data) != {"name", "channels", "dependencies"}:
        found.append(f"unexpected keys: {sorted(data)}")
    if data.get("channels") != ["conda-forge", "nodefaults"]:
        found.append("channels must be conda-forge and nodefaults")
    packages = {}
    for item in data.get("dependencies", []):
        if isinstance(item, str):
            try:
                spec = MatchSpec(item, strict=True)
            except Exception as error:
                found.append(f"{item!r} is no conda requirement: {error}")
            else:
                packages[spec.name.normalized] = item
    if set(packages) != {"python", "pip"}:
        found.append(f"conda installs python and pip only, not {sorted(packages)}: the rest comes from pyproject.toml")
    python = re.fullmatch(r"python=(\d+\.\d+)", packages.get("python", ""))
    if python is None:
        found.append("python needs exactly one minor version, such as python=3.12")
    elif not SpecifierSet(PROJECT["project"]["requires-python"]).contains(python[1]):
        found.append(f"Python {python[1]} is not one that pyproject.toml allows")
    pip = [item["pip"] for item in data.get("dependencies", []) if isinstance(item, dict) and set(item) == {"pip"}]
    lines = [line for line in (pip[0] if pip else []) if not line.startswith("--extra-index-url ")]
    if len(pip) != 1 or lines != ["-c requirements.lock", "-e .[test]"]:
        found.append(f"pip must install this project with the lock as constraints, and nothing else: {lines}")
    extras = set(PROJECT["project"]["optional-dependencies"])
    found += [f"no extra {extra}" for extra in re.findall(r"\[(\w+)\]", " ".join(lines)) if extra not in extras]
    return found


def test_environment_yml_parses_strictly_and_delegates_to_the_one_list() -> None:
    assert faults(ENVIRONMENT) == []


PLANTED = {
    "a range for python": ("python=3.12", "python>=3.11"),
    "a python that is not supported": ("python=3.12", "python=3.10"),
    "a patch release": ("python=3.12", "python=3.12.1"),
    "a spelling conda does not know": ("python=3.12", "python=>3.12"),
    "a package of its own": ("  - pip\n", "  - pip\n  - numpy=2\n"),
    "no pip": ("  - pip\n", ""),
    "the lock as requirements": ("-c requirements.lock", "-r requirements.lock"),
    "a version repeated for pip": ("- -e .[test]", "- -e .[test]\n      - torch==2.13.0"),
    "an extra that does not exist": ("-e .[test]", "-e .[tests]"),
    "another channel": ("nodefaults", "defaults"),
    "a key that conda ignores": ("name:", "nmae: x\nname:"),
}


@pytest.mark.parametrize(("right", "wrong"), PLANTED.values(), ids=PLANTED.keys())
def test_a_planted_mistake_in_environment_yml_is_found(right: str, wrong: str) -> None:
    assert right in ENVIRONMENT
    assert faults(ENVIRONMENT.replace(right, wrong, 1)) != []
