"""Hard cases of graphs, one row each: what must be seen in the picture, and in its sentence."""

import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from helpers import draw_graph
from helpers.draw.drawing import Drawing
from helpers.model.finding import HelperError
from tests.draw.test_graph_picture import SVG, parsed


class Case(NamedTuple):
    """`boxes`: the title of a box -> texts on one of the boxes with this title. `beside`: texts outside of boxes."""

    draw: Callable[[], Drawing]
    boxes: dict[str, set[str]]
    sentence: str
    beside: list[str]


CASES: dict[str, Case] = {}


def case(boxes: dict[str, set[str]], sentence: str = "", beside: list[str] | None = None):
    """Add a function that draws to the table, with what must be seen. Names come from its own variables."""

    def add(draw):
        CASES[draw.__name__] = Case(draw, boxes, sentence, ["gradient enters"] if beside is None else beside)
        return draw

    return add


# Saved tensors


@case(
    {"ExpBackward0": {"result freed"}, "CosBackward0": {"self = h (2,)"}},
    "1 saved tensor alive. 1 saved tensor freed, of ExpBackward0: backward can't run again.",
)
def freed_by_the_backward_of_another_loss():
    x = torch.rand(2, requires_grad=True)
    h = x.exp()
    h.sin().sum().backward()
    return draw_graph(h.cos().sum())


@case(
    {"ExpBackward0": {"! result = h (4,) changed 0→1"}},
    "Changed since it was saved: result (h) of ExpBackward0, from version 0 to 1; backward will refuse it.",
)
def changed_through_a_view():
    x = torch.rand(4, requires_grad=True)
    h = x.exp()
    h[:2].detach().zero_()
    return draw_graph(h.sum())


@case({"MulBackward0": {"! other = w (4,) changed 0→1"}}, "other (w) of MulBackward0, from version 0 to 1")
def a_view_of_a_leaf_was_written_to_under_no_grad():
    w = torch.rand(4, requires_grad=True)
    loss = (w * w).sum()
    with torch.no_grad():
        w[:2].zero_()
    return draw_graph(loss)


@case({"AddmmBackward0": {"! mat2 = weight (2, 1) changed 1→2"}}, "mat2 (weight) of AddmmBackward0")
def weights_stepped_between_forward_and_backward():
    model = nn.Linear(2, 1)
    loss = model(torch.ones(1, 2, requires_grad=True)).sum()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss.backward(retain_graph=True)
    optimizer.step()
    return draw_graph(loss, model=model)


@case({"MulBackward0": {"other packed", "self packed"}}, "3 saved tensors packed by a hook.")
def packed_by_a_hook_that_must_not_unpack():
    def unpack(packed):
        raise AssertionError("unpacked")

    x = torch.rand(3, requires_grad=True)
    with saved_tensors_hooks(lambda t: "a text", unpack):
        y = x.exp() * x
    return draw_graph(y.sum())


@case({"TanhBackward0": {"result recomputed"}}, "1 saved tensor to be recomputed by a checkpoint.")
def a_checkpoint_of_some_layers():
    x = torch.rand(2, requires_grad=True)
    layers, runs = nn.Sequential(nn.Tanh(), nn.Tanh()), []
    layers[0].register_forward_hook(lambda *_: runs.append(1))
    loss = checkpoint_sequential(layers, 2, x, use_reentrant=False).sum()
    drawing = draw_graph(loss)
    assert len(runs) == 1
    return drawing


@case({"CheckpointFunctionBackward": {"custom Function", "ctx.tensor_indices = [0]", "saved_tensors[0] = x (3,)"}})
def a_reentrant_checkpoint():
    x = torch.rand(3, requires_grad=True)
    return draw_graph(checkpoint(lambda t: t.exp().sin(), x, use_reentrant=True).sum())


# Hooks, views, custom Functions


@case(
    {
        "MulBackward0": {"h (3,)", "1 hook on the gradient of h", "h retains its grad"},
        "AccumulateGrad": {"2 hooks on the gradient of w", "1 hook after accumulation into w.grad"},
    }
)
def hooks_of_every_kind():
    w = torch.rand(3, requires_grad=True)
    w.register_hook(lambda grad: grad)
    w.register_hook(lambda grad: grad)
    w.register_post_accumulate_grad_hook(lambda t: None)
    h = w * 2
    h.register_hook(lambda grad: grad)
    h.retain_grad()
    return draw_graph(h.sum())


@case({"CopySlices": {"base (3, 3)", "writes into a view"}, "AccumulateGrad": {"x (3,)"}}, "4 nodes, 1 of them a leaf")
def two_writes_into_views_of_one_tensor():
    x = torch.rand(3, requires_grad=True)
    base = torch.zeros(3, 3)
    base[1] = x
    base[:, 0].mul_(3)
    return draw_graph(base.sum())


class Scale(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, k):
        return x * k, x.detach() + 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.k = inputs[1]
        ctx.save_for_backward(inputs[0])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, grad, _):
        return grad * ctx.k, None


@case(
    {"ScaleBackward": {"custom Function", "ctx.k = 2.5", "saved_tensors[0] = x (3,)"}},
    beside=["0", "gradient enters"],
)
def a_function_with_setup_context():
    x = torch.rand(3, requires_grad=True)
    scaled, _ = Scale.apply(x, 2.5)
    return draw_graph(scaled.sum())


class Loop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.result = x * 2
        return ctx.result

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


@case({"LoopBackward": {"ctx.result = a tensor of shape (2,) ! its own output: a cycle"}})
def a_function_that_keeps_its_own_output():
    x = torch.rand(2, requires_grad=True)
    return draw_graph(Loop.apply(x).sum())


# Roots and outputs


@case({"TanhBackwardBackward0": {"g (3,)", "recorded by backward"}, "TanhBackward0": {"(3,)", "result (3,)"}})
def a_gradient_of_a_gradient():
    x = torch.rand(3, requires_grad=True)
    (g,) = torch.autograd.grad((x.tanh() ** 2).sum(), x, create_graph=True)
    return draw_graph((g**2).sum())


@case(
    {"UnbindBackward0": {"a, b, c", "3 outputs, each (2,)"}, "MulBackward0": {"other = b (2,)", "self = a (2,)"}},
    beside=["0", "1", "gradient enters: [0]", "gradient enters: [1] at output 2"],
)
def a_list_of_outputs_one_of_them_unbound():
    x = torch.rand(3, 2, requires_grad=True)
    a, b, c = x.unbind()
    return draw_graph([a * b, c])


@case({"LinalgSvdBackward0": {"3 outputs (3, 2), (2,), (2, 2)", "S (2,)"}}, beside=["1", "gradient enters"])
def outputs_of_different_shapes():
    x = torch.rand(3, 2, requires_grad=True)
    return draw_graph(torch.linalg.svd(x, full_matrices=False).S.sum())


@case(
    {"SumBackward0": {"()"}, "ExpBackward0": {"y (2,)"}, "AccumulateGrad": {"x (2,)"}},
    "The gradient enters at SumBackward0, ExpBackward0 and AccumulateGrad of x",
    ["gradient enters: late", "gradient enters: early, again", "gradient enters: leaf"],
)
def roots_within_the_graph_of_another_root():
    x = torch.rand(2, requires_grad=True)
    y = x.exp()
    return draw_graph({"late": y.sum(), "early": y, "again": y, "leaf": x})


@case(
    {"SplitBackward0": {"b 2 outputs, each (2,)"}},
    "2 nodes, 1 of them a leaf: x.",
    ["gradient enters at output 1"],
)
def a_gradient_edge_to_the_second_output():
    x = torch.rand(4, requires_grad=True)
    b = x.split(2)[1]
    return draw_graph(get_gradient_edge(b))


# Leaves


@case(
    {"AccumulateGrad": {"part.weight, first.0.weight,", "second.1.weight", "(2, 2)"}},
    "2 of them leaves: part.bias and part.weight.",
)
def two_models_that_share_a_part():
    part = nn.Linear(2, 2)
    first, second = nn.Sequential(part, nn.ReLU()), nn.Sequential(nn.Tanh(), part)
    x = torch.ones(1, 2)
    return draw_graph(first(x).sum() + second(x).sum())


@case(
    {
        "first: Sequential": {"4 operators"},
        "second: Sequential": {"4 operators"},
        "AccumulateGrad": {"first.0.bias, second.1.bias"},
    },
    "Grouped by module to depth 1 in 4 boxes.",
    ["gradient enters"],
)
def two_modules_that_share_a_part_at_depth_1():
    part = nn.Linear(2, 2)
    model = nn.ModuleDict({"first": nn.Sequential(part, nn.ReLU()), "second": nn.Sequential(nn.Tanh(), part)})
    x = torch.ones(1, 2)
    return draw_graph(model["first"](x).sum() + model["second"](x).sum(), model=model, depth=1)


@case({"AccumulateGrad": {"w (2,)"}, "StackBackward0": {"(3, 2)"}}, "1 of them a leaf: w.", ["×2", "gradient enters"])
def a_leaf_used_several_times_by_one_operator():
    w = torch.rand(2, requires_grad=True)
    return draw_graph(w * w + torch.stack([w, w, w]).sum(0))


@case({"AccumulateGrad": {"w ()"}, "MulBackward0": {"()"}}, "61 nodes, 1 of them a leaf: w.")
def a_leaf_used_by_thirty_operators():
    w = torch.rand((), requires_grad=True)
    return draw_graph(sum([w * i for i in range(30)]))


@case({"AccumulateGrad": {"(2,)"}}, "3 nodes, 1 of them a leaf. The gradient")
def a_leaf_without_a_name():
    return draw_graph((torch.rand(2, requires_grad=True) * 2).sum())


@case({"AccumulateGrad": {"…_block_with_a_very_long_name.0.weight (2, 2)"}})
def very_long_names():
    name = 3 * "encoder_block_with_a_very_long_name"
    model = nn.ModuleDict({name: nn.Sequential(nn.Linear(2, 2))})
    return draw_graph(model[name](torch.ones(1, 2)).sum(), model=model)


@case({"…ock_with_a_very_long_name: Sequential": {"3 operators, 2 leaves"}})
def very_long_names_of_groups():
    name = 3 * "encoder_block_with_a_very_long_name"
    model = nn.ModuleDict({name: nn.Sequential(nn.Linear(2, 2))})
    return draw_graph(model[name](torch.ones(1, 2)).sum(), model=model, depth=1)


@case({"AccumulateGrad": {"x (2,)"}}, beside=["gradient enters: <a & b>"])
def names_that_are_no_xml():
    x = torch.rand(2, requires_grad=True)
    return draw_graph({"<a & b>": x.sum()})


# Kinds of tensors


@case({"MulBackward0": {"()", "self = z ()"}, "ViewAsRealBackward0": {"(2,)"}, "AccumulateGrad": {"z ()"}})
def a_complex_number():
    z = torch.tensor(1 + 2j, requires_grad=True)
    return draw_graph((z * z.conj()).real)


@case({"AccumulateGrad": {"x (0, 3)"}})
def a_tensor_without_elements():
    x = torch.rand(0, 3, requires_grad=True)
    return draw_graph(x.sum())


@case({"MulBackward0": {"self = x (2,)"}})
def a_tensor_without_data():
    x = torch.rand(2, device="meta", requires_grad=True)
    return draw_graph((x * x).sum())


@case(
    {
        "EmbeddingBackward0": {"scale_grad_by_freq=False, sparse=True", "indices (3,)"},
        "AccumulateGrad": {"weight (5, 2)"},
    }
)
def an_embedding_with_sparse_gradients():
    model = nn.Embedding(5, 2, sparse=True)
    return draw_graph(model(torch.tensor([1, 2, 1])).sum(), model=model)


@case({"SparseAddmmBackward0": {"(3, 1)", "mat1 (3, 3)"}, "AccumulateGrad": {"a (3, 3)"}})
def a_sparse_leaf():
    a = torch.eye(3).to_sparse().requires_grad_()
    return draw_graph(torch.sparse.mm(a, torch.ones(3, 1)).sum())


@case(
    {"UnbindBackwardAutogradNestedTensor0": {"p, q", "2 outputs (2, 3), (4, 3)"}, "AccumulateGrad": {"a (2, 3)"}},
    beside=["1", "0", "gradient enters"],
)
def a_nested_tensor_unbound():
    a, b = torch.rand(2, 3, requires_grad=True), torch.rand(4, 3, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors are a prototype, which torch says once
        p, q = (torch.nested.as_nested_tensor([a, b]) * 2).unbind()
    return draw_graph(p.sum() + q.sum())


# What torch.func leaves behind


@case({"AccumulateGrad": {"w (3,)"}, "MulBackward0": {"g (3,)"}}, "3 nodes, 1 of them a leaf: w.")
def a_gradient_of_torch_func_that_depends_on_a_leaf():
    w = torch.rand(3, requires_grad=True)
    g = torch.func.grad(lambda t: (t * w).sum())(torch.rand(3))
    return draw_graph(g.sum())


@case({"AccumulateGrad": {"t (3,)"}, "MulBackward0": {"(3,)"}})
def within_a_gradient_of_torch_func():
    drawn = []

    def loss(t):
        drawn.append(draw_graph((t * 2).sum()))
        return (t * 2).sum()

    torch.func.grad(loss)(torch.rand(3))
    return drawn[0]


@case({"VmappedScaleBackward": {"custom Function"}, "AccumulateGrad": {"w (2, 3)"}}, beside=["0", "gradient enters"])
def a_function_under_vmap():
    w = torch.rand(2, 3, requires_grad=True)
    scaled, _ = torch.vmap(Scale.apply, in_dims=(0, None))(w, 2.5)
    return draw_graph(scaled.sum())


@pytest.fixture(params=CASES.values(), ids=CASES.keys(), scope="module")
def drawn(request) -> tuple[Case, Drawing]:
    return request.param, request.param.draw()


def test_what_must_be_seen_is_seen(drawn) -> None:
    wanted, drawing = drawn
    shown = list(parsed(drawing)[0].values())
    for title, texts in wanted.boxes.items():
        alike = [set(box.texts) for box in shown if box.texts[0] == title]
        assert any(texts <= found for found in alike), (title, alike or [box.texts for box in shown])
    assert wanted.sentence in drawing.sentence


def test_what_stands_beside_the_boxes_is_all_there(drawn) -> None:
    wanted, drawing = drawn
    free = [
        "".join(text.itertext())
        for group in ET.fromstring(drawing.svg).iter(f"{SVG}g")
        if "fill:" in group.get("style", "")
        for text in group.iter(f"{SVG}text")
    ]
    assert sorted(free) == sorted(wanted.beside)


def test_boxes_hold_their_texts_and_keep_apart(drawn) -> None:
    drawing = drawn[1]
    root, shown = ET.fromstring(drawing.svg), list(parsed(drawing)[0].values())
    for i, a in enumerate(shown):
        assert max(map(len, a.texts)) * 6.6 <= a.width + 2
        assert a.width <= 450
        assert a.x + a.width <= float(root.get("width"))
        for b in shown[:i]:
            beside = a.x + a.width <= b.x or b.x + b.width <= a.x
            assert beside or a.y + a.height <= b.y or b.y + b.height <= a.y


def test_a_picture_has_no_addresses_and_is_the_same_next_time(drawn) -> None:
    wanted, drawing = drawn
    assert not re.search(r"0x[0-9a-f]{6}|\d{9}", drawing.svg)
    assert wanted.draw().svg == drawing.svg


# What is no row of the table


def test_a_live_chain_of_3000_operators_is_drawn_and_can_still_be_run():
    x = t = torch.rand((), requires_grad=True)
    for _ in range(3_000):
        t = t * 1.0
    drawing = draw_graph(t)
    assert len(parsed(drawing)[0]) == 3_001
    assert "the longest path has 3,001 nodes" in drawing.sentence
    t.backward()
    assert x.grad == 1


def test_drawing_leaves_hooks_and_saved_tensors_as_they_were():
    ran = []
    x = torch.rand(3, requires_grad=True)
    with saved_tensors_hooks(lambda t: t, lambda t: ran.append("unpacked") or t):
        h = x.exp()
    h.register_hook(lambda grad: ran.append("hook"))
    draw_graph(h.sum())
    assert not ran
    h.sum().backward()
    assert ran == ["hook", "unpacked"]
    assert torch.equal(x.grad, x.exp())


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: torch.ones(2) * 2, r"shape \(2,\) has no graph: its requires_grad is False"),
        (lambda: [torch.ones(2, requires_grad=True).sum(), torch.ones(3)], r"as \[1\] has no graph"),
        (lambda: {"loss": torch.ones(3)}, r"as loss has no graph"),
        (lambda: torch.tensor(3), "only floating and complex tensors have gradients"),
        (list, "an empty list came"),
        (dict, "an empty dict came"),
        (lambda: {"a": [torch.ones(2, requires_grad=True)]}, "came as a, and a tensor with a graph was wanted"),
    ],
)
def test_what_has_no_history_gets_a_sentence_and_no_empty_picture(made, message):
    with pytest.raises(HelperError, match=message):
        draw_graph(made())
