"""The course's tools: draw a tensor's storage, explore it, explain what torch does with it.

Three layers, each in its folder, with imports only downward: `model` says what is so, `draw` makes
pictures of it, `explore` puts controls around the pictures. `course` holds what a chapter needs:
its start, its questions, its report on this machine. Every name below may be used in a notebook
after `from helpers import *`.
"""

from helpers.course.drill import drill
from helpers.course.environment import report_environment
from helpers.course.quiz import check, predict, show_progress
from helpers.course.session import begin, on_cuda
from helpers.draw.charts import draw_cost, draw_lines
from helpers.draw.dispatch import draw_dispatch
from helpers.draw.graph import draw_graph
from helpers.draw.map import draw_map
from helpers.draw.storage import draw_layout, draw_storage
from helpers.explore.backward import explore_backward
from helpers.explore.dispatch import explore_dispatch
from helpers.explore.layout import explore_layout
from helpers.model.adapter import tensor_keys
from helpers.model.autograd.graph import Graph
from helpers.model.copies import find_copies
from helpers.model.dispatch.explain import explain_dispatch
from helpers.model.dispatch.operators import show_op
from helpers.model.dispatch.sources import show_kernel
from helpers.model.dispatch.trace import trace_dispatch
from helpers.model.errors.explain import explain_error
from helpers.model.functions.check import check_function
from helpers.model.gradients.explain import explain_grad
from helpers.model.layout import Layout
from helpers.model.overlap import explain_overlap
from helpers.model.sharing import explain_storage, find_sharers
from helpers.model.views import explain_view
from helpers.model.writes import find_lost_writes

__all__ = [
    "Graph",
    "Layout",
    "begin",
    "check",
    "check_function",
    "draw_cost",
    "draw_dispatch",
    "draw_graph",
    "draw_layout",
    "draw_lines",
    "draw_map",
    "draw_storage",
    "drill",
    "explain_dispatch",
    "explain_error",
    "explain_grad",
    "explain_overlap",
    "explain_storage",
    "explain_view",
    "explore_backward",
    "explore_dispatch",
    "explore_layout",
    "find_copies",
    "find_lost_writes",
    "find_sharers",
    "on_cuda",
    "predict",
    "report_environment",
    "show_kernel",
    "show_op",
    "show_progress",
    "tensor_keys",
    "trace_dispatch",
]
