"""The pytest collector and item that stand in for nbval's: one notebook, and one of its code cells."""

from __future__ import annotations

import nbformat
import nbval.plugin
import pytest
from nbformat.v4 import output_from_msg

from .conditions import CONDITIONS
from .differences import explain_difference
from .kernel import CourseKernel, KernelDiedError
from .normalise import without_widgets

OUTPUT_MESSAGES = ("stream", "display_data", "execute_result", "error")
DEVICE_TAGS = {"per-device", "requires-cuda"}


LONG = 1500
"""Characters from which on only an excerpt of a difference is shown."""


def excerpts(left: str, right: str, around: int = 200) -> tuple[str, str]:
    """Return both texts near the first character in which they differ."""
    pairs = enumerate(zip(left, right, strict=False))
    place = next((index for index, (a, b) in pairs if a != b), min(len(left), len(right)))
    begin = max(0, place - around)
    return tuple(f"(from character {begin}) {text[begin : place + around]}" for text in (left, right))


class Collector:
    """A pytest plugin that puts our collector in the place of nbval's, wherever the notebook lies."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path, parent):
        found = yield
        nbvals = nbval.plugin.IPyNbFile
        return [CourseFile.from_parent(parent, path=file_path) if type(it) is nbvals else it for it in found]


class CourseFile(nbval.plugin.IPyNbFile):
    """A notebook under test, with the device it runs on and the recordings that belong to it."""

    stopped = ""
    """Why the rest of this notebook is skipped; empty as long as every cell could run."""

    def collect(self):
        try:
            for item in super().collect():
                name = item.cell.get("id", item.name)
                yield CourseCell.from_parent(
                    self, name=name, cell_num=item.cell_num, cell=item.cell, options=item.options
                )
        except (nbformat.reader.NotJSONError, UnicodeDecodeError) as error:
            raise self.CollectError(f"{self.path.name} is not a notebook: {str(error)[:80]}") from None

    def setup(self) -> None:
        self.device = self.config.stash[CONDITIONS].device
        self.messages: list[dict] = []
        self.kernel = CourseKernel(
            self.path, self.device, startup_timeout=self.config.option.nbval_kernel_startup_timeout
        )
        self.setup_sanitize_files()

    def get_kernel_message(self, timeout: float | None = None, stream: str = "iopub") -> dict:
        """Pass a message on to nbval, and keep it: nbval merges the outputs, a stored notebook shows them in order."""
        message = super().get_kernel_message(timeout=timeout, stream=stream)
        self.messages.append(message)
        return message

    def teardown(self) -> None:
        if self.kernel is not None:
            self.kernel.stop()


class CourseCell(nbval.plugin.IPyNbCell):
    """A code cell under test. It is named by its cell id; `outcome` says how it went, for reports.

    Outcomes: same, differs, not-compared (a `ref-torch` cell on another torch, or one in C++ without a compiler),
    no-count (never run and stored), no-reference (the CUDA reference is missing, stale or damaged), failed (could not
    run), skipped.
    """

    def __init__(self, name, parent, cell_num, cell, options):
        super().__init__(name=name, parent=parent, cell_num=cell_num, cell=cell, options=options)
        self.tags = set(cell.metadata.get("tags", []))
        self.outcome = "skipped"
        self.sentence = ""
        self.found: list[dict] = []

    def outputs(self) -> list[dict]:
        """Return what this cell produced, in order of arrival; adjacent pieces of one stream are one output."""
        request = self.parent.kernel.last_request
        outputs: list[dict] = []
        for message in self.parent.messages:
            if message["parent_header"].get("msg_id") != request or message["msg_type"] not in OUTPUT_MESSAGES:
                continue
            output = output_from_msg(message)
            last = outputs[-1] if outputs else None
            if last and output.output_type == last.output_type == "stream" and output.name == last.name:
                last.text += output.text
            else:
                outputs.append(output)
        return without_widgets(outputs)

    def setup(self) -> None:
        """Do nothing: nbval marks cells after a timeout as expected failures here, `runtest` skips them."""

    def runtest(self) -> None:
        if self.parent.stopped:
            self.sentence = self.parent.stopped
            pytest.skip(self.sentence)
        self.parent.messages.clear()
        try:
            super().runtest()
        except KernelDiedError as error:
            self.raise_cell_error(str(error))
        except Exception:
            self.outcome = "failed" if self.outcome == "skipped" else self.outcome
            raise
        finally:
            self.found = self.outputs()
        if self.cell.execution_count is None:
            self.outcome = "no-count"
            self.raise_cell_error("This cell is stored without its execution count and outputs: run make refresh.")
        if self.outcome == "skipped":
            self.outcome = "same"

    def compare_outputs(self, test, ref, skip_compare=None) -> bool:
        """Compare as nbval does, with the reference that holds on this device and this torch."""
        conditions = self.config.stash[CONDITIONS]
        if "ref-torch" in self.tags and conditions.other_torch:
            self.outcome, self.sentence = "not-compared", conditions.other_torch
            return True
        if self.tags & DEVICE_TAGS:
            ref = self._device_reference(ref)
        same = super().compare_outputs(test, ref, skip_compare)
        # Asked only where the outputs differ: the answer needs torch, whose import takes seconds.
        if not same and "requires-compiler" in self.tags and conditions.no_compiler:
            self.outcome, self.sentence = "not-compared", conditions.no_compiler
            return True
        if not same:
            self.sentence = explain_difference(self._flat(ref), self._flat(test))
        return same

    def format_output_compare(self, key, left, right) -> None:
        """Show how two values differ; of long ones, such as drawings, the place. A full diff of those takes minutes."""
        if max(len(str(left)), len(str(right))) > LONG:
            left, right = excerpts(str(left), str(right))
        super().format_output_compare(key, left, right)

    def raise_cell_error(self, message: str, *args, **kwargs) -> None:
        """Raise nbval's error with our sentence. A cell that could not run stops the notebook."""
        if message == "Cell outputs differ":
            self.outcome, message = "differs", self.sentence or message
        elif message == "Unrun reference cell has outputs":
            self.outcome = "no-count"
            message = "This cell has stored outputs but no execution count: run make refresh."
        elif self.outcome == "skipped":
            self.outcome = "failed"
            self.parent.stopped = f"skipped: cell {self.name} above could not run"
        self.sentence = message
        super().raise_cell_error(f"{self.name}: {message}", *args, **kwargs)

    def _device_reference(self, stored: list) -> list:
        """Return what this cell must show on this device; fail with the renewing command where nothing says so."""
        # Imported here: `helpers` imports torch, which most runs of pytest do without.
        from helpers.course.recordings import read_recordings, recordings_path, source_hash
        from helpers.model.finding import HelperError

        renew = "make refresh DEVICE=cuda"
        self.outcome = "no-reference"
        try:
            recording = read_recordings(recordings_path(self.parent.path)).get(self.name)
        except HelperError as error:
            self.raise_cell_error(f"{error} Renew it with: {renew}")
        if recording is not None and recording.source != source_hash(self.cell.source):
            self.raise_cell_error(
                f"The CUDA reference of this cell is stale: its source changed. Renew it with: {renew}"
            )
        if recording is None and self.parent.device == "cuda":
            self.raise_cell_error(f"This cell has no CUDA reference yet. Make one with: {renew}")
        self.outcome = "skipped"
        if self.parent.device != "cuda":
            return stored
        return nbval.plugin.coalesce_streams([nbformat.from_dict(output) for output in recording.outputs])

    def _flat(self, outputs) -> dict[str, list]:
        """Return outputs by key, sanitised, without what nbval skips."""
        flat: dict[str, list] = {}
        for output in nbval.plugin.transform_streams_for_comparison(outputs):
            for key, value in {**output, **output.get("data", {})}.items():
                if key != "data" and key not in self.parent.skip_compare:
                    flat.setdefault(key, []).append(self.sanitize(value))
        return flat
