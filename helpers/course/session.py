"""What every chapter starts with: `begin()`; and `on_cuda()` for cells that need a GPU."""

from __future__ import annotations

import os
import random
import sys
import warnings

import torch

from helpers.course.recordings import find_recording, labelled, source_hash
from helpers.draw.charts import STYLE
from helpers.model.finding import HelperError

SEED = 0


def begin() -> torch.device:
    """Make a chapter's results repeatable and return the device it runs on. Prints nothing; may be called again.

    - Random numbers of torch, Python and NumPy start from seed 0.
    - Tensors and arrays print with the libraries' standard number of digits.
    - A warning is one line, without the path of the file that caused it.
    - Matplotlib, when you use it, draws in the course's style.

    The environment variable COURSE_DEVICE chooses the device: `auto` (a GPU where torch sees one), `cpu` or `cuda`.
    Another value, or `cuda` without a GPU, is a HelperError.
    """
    device = _device()
    random.seed(SEED)
    torch.manual_seed(SEED)  # also seeds every GPU
    torch.set_printoptions(precision=4, threshold=1000, edgeitems=3, linewidth=80, sci_mode=None)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(SEED)
        numpy.set_printoptions(precision=8, threshold=1000, edgeitems=3, linewidth=75, suppress=False)
    warnings.formatwarning = _one_line
    _use_style()
    return device


def on_cuda(cell_id: str) -> bool:
    """Say whether the cell that asks may use a GPU; without one, show what the cell showed on a GPU and return False.

    Written as `if on_cuda("my-cell"):` around the cell's code, with the id of that cell. The recording is labelled
    with the machine it comes from. Where none exists, one sentence says so.
    """
    if _device().type == "cuda":
        return True
    recording = find_recording(cell_id)
    if recording is None:
        show_output(labelled("This cell needs a CUDA GPU, and no recording of it exists yet."))
        return False
    source = _running_source()
    for output in recording.replay(edited=source is not None and source_hash(source) != recording.source):
        show_output(output)
    return False


def _device() -> torch.device:
    wanted = os.environ.get("COURSE_DEVICE", "auto")
    if wanted not in ("auto", "cpu", "cuda"):
        raise HelperError(f"COURSE_DEVICE is {wanted!r}; it must be 'auto', 'cpu' or 'cuda'.")
    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise HelperError(
            f"COURSE_DEVICE is 'cuda', but torch {torch.__version__} sees no GPU on this machine; use 'auto' or 'cpu'."
        )
    return torch.device("cuda" if available and wanted != "cpu" else "cpu")


def _use_style() -> None:
    """Let matplotlib draw in the course's style, without importing it: its import reads this variable."""
    os.environ["MATPLOTLIBRC"] = str(STYLE)
    if "matplotlib" in sys.modules:
        import matplotlib

        matplotlib.rcParams.update(matplotlib.rc_params_from_file(STYLE, use_default_template=False))


def _one_line(message, category, filename, lineno, line=None) -> str:
    """Format a warning as a line without paths; stands in for `warnings.formatwarning`."""
    return f"{category.__name__}: {message}\n"


def _running_source() -> str | None:
    """Return the source of the cell that is running, or None outside a notebook."""
    from IPython import get_ipython

    shell = get_ipython()
    history = shell.history_manager.input_hist_raw if shell else []
    return history[-1] if len(history) > 1 else None


def show_output(output: dict) -> None:
    """Show one recorded output: print a stream, display the rest."""
    from IPython.display import display

    if output["output_type"] == "stream":
        stream = sys.stderr if output["name"] == "stderr" else sys.stdout
        stream.write(output["text"])
    else:
        display(output["data"], raw=True)
