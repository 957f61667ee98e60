"""Write requirements.lock: one exact version for everything that pyproject.toml asks for.

    python tools/lock.py

It asks pip to resolve the list once for every Python and platform the course supports, with
`--dry-run`: only metadata is read, nothing is installed. The answers are merged into one file of
constraints. A version that differs between Pythons, or a package that only some platforms need,
gets an environment marker. Needs network and a recent pip; a few minutes.

pip takes the wheel tags of another platform as options, but reads environment markers (such as
`sys_platform == "win32"`) from the machine it runs on. So each run is a small program that sets
the marker values of the target first, and then calls pip.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
REFERENCE_TORCH = "2.13.0"  # the release whose outputs the notebooks store
PYTHONS = ("3.11", "3.12", "3.13")

HEADER = """\
# Exact versions for a reproducible set-up: Python 3.11, 3.12 and 3.13 on Linux, macOS and Windows.
# Written by `python tools/lock.py` from the ranges in pyproject.toml; do not edit by hand.
#
# Use it as constraints (pip install -c requirements.lock -e .), never as requirements (-r):
# it names NVIDIA packages that only torch's CUDA build on Linux needs, and -r would install them.
"""

RUN_PIP = """
import json, os, sys
import pip._vendor.packaging.markers as markers
own = markers.default_environment
markers.default_environment = lambda: {**own(), **json.loads(os.environ["COURSE_LOCK_MARKERS"])}
from pip._internal.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@dataclass(frozen=True)
class Platform:
    """A platform as pip's options and as environment markers see it."""

    sys_platform: str
    os_name: str
    platform_system: str
    platform_machine: str
    tags: tuple[str, ...]

    def markers(self, python: str) -> dict[str, str]:
        """Return the marker values of this platform with that Python, such as "3.12"."""
        names = ("sys_platform", "os_name", "platform_system", "platform_machine")
        own = {name: getattr(self, name) for name in names}
        return own | {"python_version": python, "python_full_version": f"{python}.0", "platform_release": ""}


def _manylinux(machine: str) -> tuple[str, ...]:
    return (*(f"manylinux_2_{minor}_{machine}" for minor in range(34, 16, -1)), f"manylinux2014_{machine}")


PLATFORMS = (
    Platform("linux", "posix", "Linux", "x86_64", _manylinux("x86_64")),
    Platform("linux", "posix", "Linux", "aarch64", _manylinux("aarch64")),
    Platform("darwin", "posix", "Darwin", "arm64", ("macosx_14_0_arm64",)),
    Platform("win32", "nt", "Windows", "AMD64", ("win_amd64",)),
)


def canonical(name: str) -> str:
    """Return a package name in its one normal form (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wanted() -> list[str]:
    """Return every requirement of pyproject.toml, extras and build backend included."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = data["project"]["optional-dependencies"].values()
    return data["project"]["dependencies"] + [r for extra in extras for r in extra] + data["build-system"]["requires"]


def resolve(python: str, platform: Platform) -> dict[str, str]:
    """Ask pip which versions it would install for one Python on one platform: name -> version."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-c", RUN_PIP, "install", "--quiet", "--dry-run", "--report", str(report)]
        command += ["--use-feature=fast-deps", "--only-binary=:all:", "--target", str(Path(folder) / "never")]
        command += ["--implementation", "cp", "--python-version", python]
        command += [f"--abi={abi}" for abi in (f"cp{python.replace('.', '')}", "abi3", "none")]
        command += [f"--platform={tag}" for tag in platform.tags]
        command += [*wanted(), f"torch=={REFERENCE_TORCH}"]
        environment = {k: v for k, v in os.environ.items() if k not in ("PIP_FIND_LINKS", "PIP_CONSTRAINT")}
        # This computer's own pip settings (a cap, a folder of wheels) must not shape the lock.
        environment["PIP_CONFIG_FILE"] = os.devnull
        environment["COURSE_LOCK_MARKERS"] = json.dumps(platform.markers(python))
        done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"pip found no answer for Python {python} on {platform.sys_platform}:\n{done.stderr}")
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {canonical(item["metadata"]["name"]): item["metadata"]["version"] for item in found}


def marker(where: set[tuple[str, Platform]]) -> str:
    """Return the marker that is true exactly on these (Python, platform) pairs, or "" for all of them."""
    pythons = [p for p in PYTHONS if any(p == python for python, _ in where)]
    platforms = [p for p in PLATFORMS if any(p == platform for _, platform in where)]
    if where != set(product(pythons, platforms)):  # different platforms for different Pythons
        return _either([marker({pair for pair in where if pair[0] == python}) for python in pythons])
    parts = []
    if pythons != list(PYTHONS):
        parts.append(_either([f'python_version == "{p}"' for p in pythons]))
    if platforms != list(PLATFORMS):
        systems = sorted({p.sys_platform for p in platforms})
        alike = [p for p in PLATFORMS if p.sys_platform in systems]
        if alike == platforms:
            parts.append(_either([f'sys_platform == "{s}"' for s in systems]))
        else:
            both = '(sys_platform == "{0.sys_platform}" and platform_machine == "{0.platform_machine}")'
            parts.append(_either([both.format(p) for p in platforms]))
    return " and ".join(parts)


def _either(terms: list[str]) -> str:
    return terms[0] if len(terms) == 1 else f"({' or '.join(terms)})"


def lines(answers: dict[tuple[str, Platform], dict[str, str]]) -> list[str]:
    """Merge the answers into sorted lines `name==version ; marker`."""
    result = []
    for name in sorted({name for answer in answers.values() for name in answer}):
        versions: dict[str, set[tuple[str, Platform]]] = {}
        for target, answer in answers.items():
            if name in answer:
                versions.setdefault(answer[name], set()).add(target)
        for version in sorted(versions, key=lambda v: min(PYTHONS.index(p) for p, _ in versions[v])):
            condition = marker(versions[version])
            result.append(f"{name}=={version}" + (f" ; {condition}" if condition else ""))
    return result


def main() -> None:
    """Resolve for every target and write the lock."""
    answers = {}
    for python, platform in product(PYTHONS, PLATFORMS):
        print(f"Python {python} on {platform.sys_platform} {platform.platform_machine} …", flush=True)
        answers[python, platform] = resolve(python, platform)
    text = HEADER + "\n".join(lines(answers)) + "\n"
    LOCK.write_text(text, encoding="utf-8", newline="\n")
    print(f"Wrote {LOCK.name}: {len(lines(answers))} lines.")


if __name__ == "__main__":
    main()
