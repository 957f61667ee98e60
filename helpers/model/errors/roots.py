"""What an explainer of autograd's errors asks of a failed call: its graph, and the reader's variables around it."""

from __future__ import annotations

from typing import Any

from helpers.model.autograd.graph import Graph
from helpers.model.autograd.names import Names
from helpers.model.autograd.reading import Live, read_graph
from helpers.model.errors.failure import Failure
from helpers.model.finding import HelperError
from helpers.model.owners import local_names
from helpers.model.source import is_library


def graph_of(failure: Failure) -> tuple[Graph, Live] | tuple[None, None]:
    """Return the graph of the tensors that backward was called on."""
    roots = failure.args[0] if failure.args else failure.kwargs.get("tensors", failure.kwargs.get("outputs"))
    try:
        return read_graph(roots, Names(variables_of(failure), None))
    except HelperError:  # nothing with a graph was given: then another explainer knows why
        return None, None


def variables_of(failure: Failure) -> dict[str, Any]:
    """Return the variables of the reader's code through which the error passed, the innermost last."""
    found: dict[str, Any] = {}
    step = failure.error.__traceback__
    while step is not None:
        if not is_library(step.tb_frame.f_code.co_filename):
            found |= local_names(step.tb_frame)
        step = step.tb_next
    return found
