"""The packages that draw graphs of PyTorch programs too, in an environment of their own: `.course/peers`.

It is made once, with pip, and holds no torch: it sees the packages of the environment that runs this, so that both
sides draw the same tensors. A peer that can't be had is told by `missing`; the others are used all the same.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

HOME = Path(__file__).resolve().parents[1] / ".course" / "peers"
# The only place for versions. Each peer with what it needs and the course does not have.
PINS = {
    "torchviz": ("torchviz==0.0.3", "graphviz==0.21"),
    "torchview": ("torchview==0.2.7", "graphviz==0.21"),
    "torchlens": ("torchlens==2.36.1", "graphviz==0.21", "safetensors==0.8.0", "tqdm==4.70.1"),
}
NO_DOT = (
    "dot is not on PATH, and torchviz, torchview and torchlens lay out with it: apt-get install graphviz "
    "(Debian and Ubuntu), and run this again"
)


def python() -> Path:
    """Return the interpreter of the peers' environment."""
    return HOME / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def missing() -> dict[str, str]:
    """Make the environment whole. Return the peers that can't be used, each with the reason in one line."""
    if shutil.which("dot") is None:
        return dict.fromkeys(PINS, NO_DOT)
    try:
        site = _environment()
    except (OSError, subprocess.SubprocessError) as error:
        return dict.fromkeys(PINS, f"{HOME} could not be made: {last_line(getattr(error, 'stderr', '') or str(error))}")
    return {name: reason for name, pins in PINS.items() if (reason := _installed(site, pins))}


def _environment() -> Path:
    """Make the environment unless it is there and runs on this Python; return its folder for packages."""
    paths = sysconfig.get_paths(vars={"base": str(HOME), "platbase": str(HOME)})
    site, here = Path(paths["purelib"]), f"{sysconfig.get_path('purelib')}\n"
    link = site / "course.pth"
    if not (link.exists() and link.read_text() == here and _runs()):
        shutil.rmtree(HOME, ignore_errors=True)
        command = [sys.executable, "-m", "venv", "--without-pip", str(HOME)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        link.write_text(here)
    return site


def _runs() -> bool:
    try:
        return subprocess.run([str(python()), "-c", ""], capture_output=True).returncode == 0
    except OSError:
        return False


def _installed(site: Path, pins: tuple[str, ...]) -> str:
    """Install what is not there yet; return why that failed, or nothing."""
    wanted = [pin for pin in pins if not (site / f"{pin.replace('==', '-')}.dist-info").exists()]
    if not wanted:
        return ""
    command = [sys.executable, "-m", "pip", "--python", str(python()), "install", "--no-deps", "--no-input", "-q"]
    done = subprocess.run([*command, *wanted], capture_output=True, text=True)
    return f"pip install {' '.join(wanted)} failed: {last_line(done.stderr)}" if done.returncode else ""


def last_line(said: str) -> str:
    """Return the last line of what a program said: with Python and pip, the message of the error."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("[notice]")]
    return lines[-1] if lines else "it said nothing"
