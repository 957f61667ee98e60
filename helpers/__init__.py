"""The course's tools: draw a tensor's storage, explore it, explain what torch does with it.

Three layers, each in its folder, with imports only downward: `model` says what is so, `draw` makes
pictures of it, `explore` puts controls around the pictures. `course` holds what a chapter needs:
its start, its questions, its report on this machine. Every name below may be used in a notebook
after `from helpers import *`.
"""

from helpers.at_first_use import AtFirstUse
from helpers.course.quiz import check, predict, show_progress
from helpers.course.session import begin, on_cuda
from helpers.model.autograd.graph import Graph
from helpers.model.layout import Layout

check_function = AtFirstUse("helpers.model.functions.check", "check_function")
draw_cost = AtFirstUse("helpers.draw.charts", "draw_cost")
draw_dispatch = AtFirstUse("helpers.draw.dispatch", "draw_dispatch")
draw_graph = AtFirstUse("helpers.draw.graph", "draw_graph")
draw_layout = AtFirstUse("helpers.draw.storage", "draw_layout")
draw_lines = AtFirstUse("helpers.draw.charts", "draw_lines")
draw_map = AtFirstUse("helpers.draw.map", "draw_map")
draw_storage = AtFirstUse("helpers.draw.storage", "draw_storage")
drill = AtFirstUse("helpers.course.drill", "drill")
explain_dispatch = AtFirstUse("helpers.model.dispatch.explain", "explain_dispatch")
explain_error = AtFirstUse("helpers.model.errors.explain", "explain_error")
explain_grad = AtFirstUse("helpers.model.gradients.explain", "explain_grad")
explain_overlap = AtFirstUse("helpers.model.overlap", "explain_overlap")
explain_storage = AtFirstUse("helpers.model.sharing", "explain_storage")
explain_view = AtFirstUse("helpers.model.views", "explain_view")
explore_backward = AtFirstUse("helpers.explore.backward", "explore_backward")
explore_dispatch = AtFirstUse("helpers.explore.dispatch", "explore_dispatch")
explore_layout = AtFirstUse("helpers.explore.layout", "explore_layout")
find_copies = AtFirstUse("helpers.model.copies", "find_copies")
find_lost_writes = AtFirstUse("helpers.model.writes", "find_lost_writes")
find_sharers = AtFirstUse("helpers.model.sharing", "find_sharers")
report_environment = AtFirstUse("helpers.course.environment", "report_environment")
show_kernel = AtFirstUse("helpers.model.dispatch.sources", "show_kernel")
show_op = AtFirstUse("helpers.model.dispatch.operators", "show_op")
tensor_keys = AtFirstUse("helpers.model.adapter", "tensor_keys")
trace_dispatch = AtFirstUse("helpers.model.dispatch.trace", "trace_dispatch")

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
