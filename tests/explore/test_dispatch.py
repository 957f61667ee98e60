"""`explore_dispatch`: each switch says what it changed, and the stepper goes through a trace."""

from __future__ import annotations

from collections import namedtuple

import pytest
import torch

from helpers.explore.dispatch import ALL, BACK, ON, DispatchExplorer, TraceStepper, explore_dispatch
from helpers.explore.panel import NO_VALUE, Panel
from helpers.model.dispatch.trace import trace_dispatch
from helpers.model.finding import HelperError

X, W = torch.ones(2, 3), torch.ones(4, 3)
linear = torch.nn.functional.linear


def change(panel: Panel, *changes) -> dict:
    return panel.receive({"changes": [list(one) for one in changes], "token": "1-1"})


def control(state: dict, name: str) -> dict:
    return next(c for c in state["controls"] + state["actions"] if c["name"] == name)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int64", "bool"])
def test_no_dtype_changes_a_key(dtype):
    state = change(explore_dispatch(torch.mul, X, X), ("dtype", dtype))
    assert state["sentence"] == f"dtype is {dtype} now. Every call meets the same keys as before."


@pytest.mark.parametrize(
    ("switch", "value", "said"),
    [
        ("requires_grad", "yes", "Every call meets the same keys as before."),
        ("mode", "no_grad", "Every call meets the same keys as before."),
        ("mode", "inference_mode", "AutogradCPU runs no more."),
        ("device", "meta", "AutogradMeta, BackendSelect and Meta run now; AutogradCPU and CPU run no more."),
        ("autocast", "bfloat16", "Every call meets the same keys as before."),
    ],
)
def test_a_switch_says_which_keys_it_changed(switch, value, said):
    state = change(explore_dispatch(torch.add, X, X), (switch, value))
    assert state["sentence"] == f"{switch} is {value} now. {said}"
    assert control(state, switch)["value"] == value


def test_autocast_changes_an_operator_that_it_casts():
    state = change(explore_dispatch(linear, X, W), ("autocast", "bfloat16"))
    assert state["sentence"] == "autocast is bfloat16 now. AutocastCPU and BackendSelect run now."


def test_a_sparse_layout_changes_the_backend_key():
    state = change(explore_dispatch(torch.neg, X), ("layout", "sparse_coo"))
    assert "SparseCPU" in state["sentence"]
    assert "SparseCPU" in state["alt"]


def test_the_switches_start_as_the_readers_tensor_is():
    state = explore_dispatch(torch.sin, torch.ones(2, dtype=torch.float64, requires_grad=True)).state()
    assert control(state, "dtype")["value"] == "float64"
    assert control(state, "requires_grad")["value"] == "yes"
    state = explore_dispatch(torch.sin, torch.ones(2, dtype=torch.complex64)).state()
    assert control(state, "dtype")["options"][0] == control(state, "dtype")["value"] == "complex64"


def test_a_whole_number_offers_no_gradient():
    panel = explore_dispatch(torch.sin, torch.ones(2, requires_grad=True))
    state = change(panel, ("dtype", "int64"))
    assert control(state, "requires_grad") | {"kind": ""} == {
        "name": "requires_grad",
        "label": "requires_grad",
        "options": ("no",),
        "value": "no",
        "kind": "",
    }


def test_a_call_that_raises_is_told_and_the_tower_shows_where():
    state = change(explore_dispatch(torch.cumsum, X, 0), ("layout", "sparse_coo"))
    assert "It raised NotImplementedError: Could not run 'aten::cumsum'" in state["sentence"]
    assert state["mood"] == "wrong"


def test_arguments_that_cannot_be_made_so_leave_everything_as_it_was():
    panel = explore_dispatch(torch.neg, X)
    change(panel, ("device", "meta"))
    state = change(panel, ("layout", "sparse_coo"))
    assert state["sentence"].startswith("These arguments can't be made sparse_coo: aten::_to_sparse")
    assert control(state, "layout")["value"] == "strided"
    assert control(state, "device")["value"] == "meta"
    assert change(panel, ("device", "cpu"))["mood"] == ""


def test_one_call_of_several_can_be_shown_alone():
    panel = explore_dispatch(linear, X, W)
    state = panel.state()
    options = control(state, "shown")["options"]
    assert options[0] == ALL
    assert options[1] == "1 · aten::linear"
    assert len(options) == 1 + len(trace_dispatch(linear, X, W).calls)
    assert "keys from the highest down" in change(panel, ("shown", options[2]))["alt"]
    # a call that is gone after a switch is not shown any more
    change(panel, ("shown", options[-1]))
    assert control(change(panel, ("mode", "inference_mode")), "shown")["value"] in (ALL, options[-1])


def test_the_readers_tensors_stay_as_they_are():
    t = torch.ones(2, requires_grad=True)
    panel = explore_dispatch(torch.sin, t)
    for name, value in (("requires_grad", "no"), ("dtype", "float16"), ("device", "meta"), ("mode", "inference_mode")):
        change(panel, (name, value))
    assert (t.requires_grad, t.dtype, t.device.type, t.grad_fn, t._version) == (True, torch.float32, "cpu", None, 0)
    assert not torch.is_inference_mode_enabled()


_Pair = namedtuple("_Pair", "a b")


def conjugate() -> torch.Tensor:
    return torch.ones(3, dtype=torch.complex64).conj()


def inference() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(3)


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (torch.index_select, (X, 0, torch.tensor([0, 1]))),
        (torch.nn.functional.cross_entropy, (X, torch.tensor([0, 1]))),
        (torch.nn.functional.embedding, (torch.tensor([0, 1]), X)),
        (torch.where, (X > 0, X, X.clone().requires_grad_())),
        (torch.mul, (torch.eye(2, 3).to_sparse(), X)),
        (torch.mul, (conjugate(), conjugate())),
        (torch.neg, (conjugate().imag,)),
        (torch.exp, (inference(),)),
        (lambda d: d["a"] + d["b"][0], ({"a": X, "b": [X]},)),
        (lambda pair: pair.a + pair.b, (_Pair(X, X),)),
        (torch.nn.Linear(3, 2), (X,)),
        (lambda module, t: module(t), (torch.nn.Linear(3, 2), X)),
    ],
)
def test_before_a_switch_is_touched_the_trace_is_that_of_the_readers_own_call(fn, args):
    app = DispatchExplorer(fn, args)
    assert repr(app.trace) == repr(trace_dispatch(fn, *args))
    for name, value in (("device", "meta"), ("device", app.given["device"]), ("mode", "no_grad"), ("mode", "normal")):
        app.change(name, value)
    assert repr(app.trace) == repr(trace_dispatch(fn, *args))


def test_an_argument_keeps_its_gradient_where_the_first_one_has_none():
    app = DispatchExplorer(torch.where, (X > 0, X, X.clone().requires_grad_()))
    assert [app.made(t).requires_grad for t in app.args] == [False, False, True]


def test_a_module_goes_with_its_input_and_stays_as_it_was():
    net = torch.nn.Linear(3, 2)
    panel = explore_dispatch(net, X)
    assert change(panel, ("dtype", "float64"))["mood"] == ""
    assert change(panel, ("device", "meta"))["mood"] == ""
    assert (net.weight.dtype, net.weight.device.type) == (torch.float32, "cpu")


def test_a_tensor_in_a_dict_is_a_copy():
    given = {"a": torch.zeros(2)}
    panel = explore_dispatch(lambda d: d["a"].add_(1), given)
    change(panel, ("mode", "no_grad"))
    assert given["a"].tolist() == [0, 0]


def test_the_readers_random_numbers_are_not_used_up():
    torch.manual_seed(0)
    wanted = torch.rand(3)
    torch.manual_seed(0)
    change(explore_dispatch(torch.nn.functional.dropout, X), ("mode", "no_grad"))
    assert torch.equal(torch.rand(3), wanted)


def test_a_gradient_that_a_dtype_hides_comes_back_with_the_dtype():
    panel = explore_dispatch(torch.sin, torch.ones(2, requires_grad=True))
    assert control(change(panel, ("dtype", "int64")), "requires_grad")["value"] == "no"
    assert control(change(panel, ("dtype", "float32")), "requires_grad")["value"] == "yes"


def test_an_inference_tensor_stays_one_in_another_dtype():
    state = change(explore_dispatch(torch.exp, inference()), ("dtype", "float64"))
    assert state["sentence"] == "dtype is float64 now. Every call meets the same keys as before."


def test_choosing_a_call_says_where_that_one_went():
    panel = explore_dispatch(linear, X, W)
    options = control(panel.state(), "shown")["options"]
    assert change(panel, ("mode", "no_grad"), ("shown", options[2]))["sentence"].startswith("aten::t: AutogradCPU →")


def test_tensors_in_lists_are_switched_too():
    panel = explore_dispatch(torch.cat, [X, X])
    assert "Meta" in change(panel, ("device", "meta"))["sentence"]


@pytest.mark.parametrize(
    "message",
    [
        ("dtype", "float99"),
        ("dtype", 3),
        ("mode", None),
        ("colour", "red"),
        ("shown", "7 · aten::none"),
        ("shown", None),
        ("device", ["cpu"]),
    ],
)
def test_a_value_that_is_no_option_is_refused(message):
    panel = explore_dispatch(linear, X, W)
    before = panel.state()
    state = change(panel, message)
    assert state["sentence"] == NO_VALUE
    assert state["controls"] == before["controls"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((X,), "explore_dispatch takes a function to run, and a Tensor came"),
        ((torch.zeros, 3), r"explore_dispatch\(f, x\) switches the tensors that f is given, and no tensor came"),
        ((None,), "None came"),
        ((trace_dispatch(lambda: 1),), "called no operator: there is nothing to step through"),
    ],
)
def test_other_input_is_refused_in_one_sentence(given, words):
    with pytest.raises(HelperError, match=words):
        explore_dispatch(*given)


def test_the_stepper_follows_every_dispatch_in_order():
    trace = trace_dispatch(linear, X, W)
    panel = explore_dispatch(trace)
    said = [change(panel, ("step", n))["sentence"] for n in range(1, len(trace.dispatches) + 1)]
    assert said[:5] == [
        "aten::linear at AutogradCPU: math kernel, made of other operators. It calls aten::t and aten::matmul.",
        "aten::linear › aten::t at AutogradCPU: autograd kernel: hands the call on.",
        "aten::linear › aten::t at ADInplaceOrView: kernel: hands the call on.",
        "aten::linear › aten::t at CPU: kernel for all backends. It calls aten::transpose.int.",
        "aten::linear › aten::t › aten::transpose.int at CPU: kernel for all backends. It calls aten::as_strided.",
    ]
    assert [s.partition(" at ")[2].partition(":")[0] for s in said] == [d.key for d in trace.dispatches]


def test_buttons_and_slider_stay_within_the_steps():
    panel = explore_dispatch(trace_dispatch(torch.add, X, X))
    assert control(change(panel, ("move", BACK)), "step")["value"] == 1
    assert control(change(panel, ("move", ON)), "step")["value"] == 2
    assert control(change(panel, ("move", ON)), "step")["value"] == 2
    assert control(change(panel, ("step", 99)), "step")["value"] == 2
    assert change(panel, ("move", "sideways"))["sentence"] == NO_VALUE
    assert change(panel, ("step", "x"))["sentence"] == NO_VALUE


def test_the_still_forms_show_the_picture_and_what_to_do():
    for app in (TraceStepper(trace_dispatch(linear, X, W)), DispatchExplorer(linear, (X, W))):
        html, text = app.still()
        assert html.startswith("<img ")
        assert "Run this cell in JupyterLab" in html
        assert text == app.still()[1]
        assert "linear at depth 0" in text
