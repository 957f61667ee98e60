"""One kernel for one notebook, started so that it behaves as it does under JupyterLab.

nbval's own kernel differs from JupyterLab's in four ways, cured here:
- ipykernel stops watching C-level output when it sees `PYTEST_CURRENT_TEST`;
- cells run without history, so that `_`, `Out` and a trailing `;` behave differently;
- a kernel that died is only noticed when the cell's time is up;
- the reader's own start-up files and settings take part in the result.
"""

from __future__ import annotations

import os
import tempfile
import time
from functools import cache
from pathlib import Path
from queue import Empty

from nbval.kernel import CURRENT_ENV_KERNEL_NAME, RunningKernel, start_new_kernel

POLL_SECONDS = 0.5
"""How long a dead kernel may go unnoticed."""

ROOT = Path(__file__).resolve().parents[2]

# Variables that change what a cell prints, or how IPython starts.
_UNWANTED = ("PYTEST_CURRENT_TEST", "PYTHONSTARTUP", "PYTHONWARNINGS", "MPLBACKEND")


class KernelDiedError(RuntimeError):
    """The kernel's process ended while a cell ran. The text is one sentence."""


@cache
def _scratch() -> tempfile.TemporaryDirectory:
    """Return a folder that lives as long as this process: an IPython profile of its own and an empty matplotlibrc."""
    folder = tempfile.TemporaryDirectory(prefix="course-kernels-")
    Path(folder.name, "matplotlibrc").touch()
    profile = Path(folder.name, "ipython", "profile_default")
    profile.mkdir(parents=True)
    # The history of a test is not kept, and so needs no file.
    settings = 'c = get_config()\nc.HistoryManager.hist_file = ":memory:"\n'
    (profile / "ipython_kernel_config.py").write_text(settings, encoding="utf-8")
    return folder


def kernel_environment(notebook: Path, device: str) -> dict[str, str]:
    """Return the environment of a notebook's kernel; `device` is "cpu" or "cuda"."""
    environment = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
    scratch = Path(_scratch().name)
    search_path = [environment.get("PYTHONPATH", ""), str(ROOT)]
    environment |= {
        # the helpers of this checkout, whatever is installed
        "PYTHONPATH": os.pathsep.join(filter(None, search_path)),
        "COURSE_DEVICE": device,
        "IPYTHONDIR": str(scratch / "ipython"),
        # Only the settings are replaced: matplotlib's font cache stays where it is, it takes seconds to build.
        "MATPLOTLIBRC": str(scratch / "matplotlibrc"),
        "JPY_SESSION_NAME": str(notebook),
        # One thread: sums then don't depend on the number of cores, and small operations don't wait for each other
        # on a busy machine (measured: a small training loop takes a tenth of the time).
        "OMP_NUM_THREADS": "1",
    }
    return environment


class CourseKernel(RunningKernel):
    """nbval's kernel with history, an environment of its own, and a watch on the process."""

    def __init__(self, notebook: Path, device: str, startup_timeout: float = 60):
        self.last_request = ""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `stop`)
        self.km, self.kc = start_new_kernel(
            kernel_name=CURRENT_ENV_KERNEL_NAME,
            startup_timeout=startup_timeout,
            cwd=str(notebook.parent),
            env=kernel_environment(notebook, device),
            stderr=self._stderr,
        )
        self._ensure_iopub_up()

    def execute_cell_input(self, cell_input: str, allow_stdin: bool | None = None) -> str:
        """Send a cell and return the id of the request. Cells run with history, as in JupyterLab."""
        self.last_request = self.kc.execute(
            cell_input, store_history=True, allow_stdin=allow_stdin, stop_on_error=False
        )
        return self.last_request

    def await_reply(self, msg_id: str, timeout: float | None = None) -> None:
        """Wait for the reply to a request.

        `Empty` when `timeout` seconds passed, `KernelDiedError` when the process ended.
        """
        deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
        while (left := deadline - time.monotonic()) > 0:
            try:
                message = self.get_message(stream="shell", timeout=min(POLL_SECONDS, left))
            except Empty:
                if not self.is_alive():
                    raise KernelDiedError(self._last_words()) from None
                continue
            if message["parent_header"].get("msg_id") == msg_id:
                if message["content"]["status"] == "aborted":
                    raise RuntimeError("The kernel aborted the request.")
                return
        raise Empty

    def stop(self) -> None:
        """End the kernel, also one that died already."""
        if hasattr(self, "km"):
            super().stop()
        self._stderr.close()

    def _last_words(self) -> str:
        code = getattr(getattr(self.km.provisioner, "process", None), "returncode", None)
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").split("\n")
        words = next((line for line in lines if "Fatal" in line or "rror" in line), "")
        return f"The kernel died while this cell ran (exit status {code}).{' It said: ' + words if words else ''}"
