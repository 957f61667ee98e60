"""Operators in C++, compiled on the reader's machine once and found again; and what is shown where that can't be done.

The source needs three small headers instead of `torch/extension.h`, which takes four times as long to compile. The
library links PyTorch's libraries and nothing of Python, so one build serves every Python version.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import torch

from helpers.course.environment import compiler_item
from helpers.course.recordings import COURSE_NOTEBOOKS, as_displays, labelled, stored_outputs
from helpers.course.session import show_output
from helpers.model.adapter import close_library, operator_names
from helpers.model.finding import HelperError, in_short

SECONDS = 300  # after this time a compiler is taken to hang
_loaded: dict[str, Path] = {}  # namespace -> the library that this process holds
_failed = ""  # why the last build failed
_asking = ""  # the cell that asked last
_builder = ""  # the cell whose build failed: it may try again
_said: set[str] = set()  # which reasons a cell has told in full


def can_build(cell_id: str) -> bool:
    """Say whether the cell that asks may use operators in C++; if not, show what the published cell shows.

    Written as `if can_build("my-cell"):` around the cell's code, with the id of that cell. It is False where there is
    no C++ compiler, and after a build that failed. The sentence above the outputs says which.
    """
    global _asking, _failed
    _asking = cell_id
    if cell_id == _builder:
        _failed = ""
    why = _failed or compiler_lack()
    if not why:
        return True
    said = why.split(". ")[0].rstrip(".") + "." if why in _said else why  # the remedy once, the cause each time
    _said.add(why)
    show_output(labelled(f"{said} What follows is from the published chapter."))
    for output in as_displays(stored_outputs(COURSE_NOTEBOOKS, cell_id)):
        show_output(output)
    return False


def compiler_lack() -> str:
    """Return why no operator can be compiled on this machine, in one sentence, or ""."""
    if platform.system() == "Windows":
        return "The course compiles its operators on Linux and macOS only."
    item = compiler_item()
    return "" if item.state == "ok" else f"There is no C++ compiler here. {item.text}"


def build_operators(source: str) -> Path | None:
    """Compile C++ source that holds a `TORCH_LIBRARY` block, load it, and return the library's file.

    The first time this takes about 15 seconds; the library is found again by the source and torch's version. When the
    compiler refuses the source, its first complaint is shown and None returned. Raises HelperError for a source
    without such a block, and for one whose namespace is registered already: C++ code can't be unloaded.
    """
    global _failed, _builder
    block = re.search(r"\bTORCH_LIBRARY\((\w+),", source) if isinstance(source, str) else None
    if block is None:
        raise HelperError(f"a source with a block TORCH_LIBRARY(name, library) is wanted, not {in_short(source)}")
    if lack := compiler_lack():
        raise HelperError(lack.rstrip("."))
    compiler = compiler_item().found
    digest = hashlib.sha256("\n".join((source, torch.__version__, compiler)).encode()).hexdigest()[:16]
    library = _folder() / f"{block[1]}-{digest}.so"
    if _loaded.get(block[1]) != library and _is_taken(block[1]):
        raise HelperError(
            f"this process holds other operators of the name {block[1]}, and C++ code can't be unloaded: restart the "
            "kernel and run the cells again"
        )
    print("Operators in C++: compiled the first time, in about 15 seconds, then found again … ", end="", flush=True)
    _failed = "" if library.exists() else _compile(compiler, source, library)
    print("not built." if _failed else "ready.")
    if _failed:
        _builder = _asking
        show_output(labelled(_failed))
        return None
    try:
        torch.ops.load_library(library)
    except OSError:  # a file that was damaged since it was built
        library.unlink(missing_ok=True)
        raise HelperError(f"the library of {block[1]} was damaged and is deleted: run the cell again") from None
    _loaded[block[1]] = library
    return library


def _is_taken(namespace: str) -> bool:
    """Say whether a namespace has operators or was claimed: then C++ that claims it would end the process."""
    if any(name.startswith(f"{namespace}::") for name in operator_names()):
        return True
    try:
        claim = torch.library.Library(namespace, "DEF")
    except RuntimeError:
        return True
    close_library(claim)
    return False


def _folder() -> Path:
    """Return the folder of built libraries: in the course's own local folder, or a temporary one."""
    for parent in (COURSE_NOTEBOOKS.parent / ".course", Path(tempfile.gettempdir(), f"course-{os.getuid()}")):
        folder = parent / "operators"
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        # Code is loaded from here, so the folder must be nobody else's.
        if os.access(folder, os.W_OK) and folder.stat().st_uid == os.getuid():
            return folder
    raise HelperError("no folder of yours can be written to, neither .course in the course nor one for temporary files")


def _compile(compiler: str, source: str, library: Path) -> str:
    """Compile; return "", or why not in one sentence. The file appears whole or not at all."""
    # The folders that torch.utils.cpp_extension would name. Its import takes a while, and complains without a GPU.
    home = Path(torch.__file__).parent
    with tempfile.TemporaryDirectory(dir=library.parent, prefix="building-") as folder:
        code, made = Path(folder, "operators.cpp"), Path(folder, library.name)
        code.write_text(source, encoding="utf-8")
        command = [compiler, "-std=c++20", "-O1", "-fPIC", "-shared", "-w", str(code), "-o", str(made)]
        command += [f"-I{home / 'include'}", f"-L{home / 'lib'}", f"-Wl,-rpath,{home / 'lib'}"]
        command += ["-lc10", "-ltorch_cpu"] + ([] if platform.system() == "Darwin" else ["-Wl,-z,defs"])
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"The C++ compiler did not end within {SECONDS} seconds."
        if done.returncode:
            return f"The C++ compiler refused the source: {_complaint(done.stderr)}."
        if trouble := _trial(made):
            return trouble
        made.replace(library)
    return ""


def _complaint(said: str) -> str:
    """Return what a compiler or linker said first of an error, with the line of the source where it names one."""
    if told := re.search(r"operators\.cpp:(\d+):.*?error: (.*)$", said, re.MULTILINE):
        return f"line {told[1]}: {told[2]}".rstrip("?.")
    line = re.search(r"operators\.cpp:(\d+):\d+:\s+required from here", said)  # an error inside PyTorch's own headers
    error = re.search(r"(?:error: |(?=undefined reference))(.*)$", said, re.MULTILINE)
    reason = error[1].rstrip("?.") if error else f"{said.strip()[-200:] or 'it gave no reason'}".rstrip("?.")
    return f"line {line[1]}: {reason}" if line else reason


def _trial(library: Path) -> str:
    """Load a new library in a process of its own; return "", or why it fails in one sentence.

    What C++ raises while it registers ends its whole process: a schema that can't be read, or that does not fit.
    """
    code = f"import torch\ntorch.ops.load_library({str(library)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=SECONDS)
    if not done.returncode:
        return ""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    raised = " ".join(lines).partition("what():")[2] or lines[-1] if lines else f"exit status {done.returncode}"
    reason = re.split(r"\.\s|Exception raised from|~~~", raised.strip())[0].strip().rstrip(".:")
    pointed = next((before for before, line in pairwise(lines) if line.endswith("<--- HERE")), "")
    return f"Compiled, but PyTorch refuses what it registers: {reason}{f', in {pointed}' if pointed else ''}."
