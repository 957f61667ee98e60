"""`explain_grad(step)`: a healthy training step is never accused, a faulty one is, and what the remedy says works."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import Graph, draw_graph, explain_error, explain_grad
from helpers.model.finding import HelperError

X = torch.linspace(-1, 1, 12).view(4, 3)


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor([float(v) for v in values or (1, 2, 3)], requires_grad=True)


def sgd(*parts: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD([p for part in parts for p in part.parameters()], lr=0.01, momentum=0.9)


# Healthy programs


def generator_without_optimizer():
    generator, judge = nn.Linear(3, 3), nn.Linear(3, 1)
    optimizer = sgd(judge)
    judge(generator(X)).mean().backward()
    optimizer.step()


def teacher_without_grad():
    teacher, student = nn.Linear(3, 3), nn.Linear(3, 3)
    optimizer = sgd(student)
    with torch.no_grad():
        target = teacher(X)
    F.mse_loss(student(X), target).backward()
    optimizer.step()


def q_learning():
    net = nn.Linear(3, 2)
    target = copy.deepcopy(net)
    optimizer = sgd(net)
    for _ in range(2):
        best = 1 + 0.9 * target(X).max(1).values.detach()
        optimizer.zero_grad()
        F.mse_loss(net(X)[:, 0], best).backward()
        optimizer.step()


def judge_alone():
    generator, judge = nn.Linear(3, 3), nn.Linear(3, 1)
    optimizer = sgd(judge)
    fake = generator(X)
    judge(fake.detach()).mean().backward()
    optimizer.step()


def frozen_encoder():
    encoder, head = nn.Linear(3, 3), nn.Linear(3, 1)
    optimizer = sgd(head)
    head(encoder(X)).mean().backward()
    optimizer.step()


def attack():
    net, delta = nn.Linear(3, 1), torch.zeros(4, 3, requires_grad=True)
    optimizer = torch.optim.SGD([delta], lr=0.1)
    net(X + delta).mean().backward()
    optimizer.step()


def moving_average():
    net = nn.Linear(3, 1)
    average = copy.deepcopy(net)
    optimizer = sgd(net)
    (F.mse_loss(net(X), average(X)) + net(X).mean()).backward()
    optimizer.step()
    with torch.no_grad():
        for old, new in zip(average.parameters(), net.parameters(), strict=True):
            old.lerp_(new, 0.1)


def gan():
    generator, judge = nn.Linear(3, 3), nn.Linear(3, 1)
    first, second = sgd(generator), sgd(judge)
    for _ in range(3):
        fake = generator(X)
        second.zero_grad()
        F.softplus(judge(fake.detach()) - judge(X)).mean().backward()
        second.step()
        first.zero_grad()
        F.softplus(-judge(fake)).mean().backward()  # leaves gradients in the judge, too
        first.step()


def zeros_in_place_of_none():
    net = nn.Linear(3, 1)
    optimizer = sgd(net)
    for _ in range(3):
        optimizer.zero_grad(set_to_none=False)
        net(X).square().mean().backward()
        optimizer.step()


def cleared_by_hand():
    net = nn.Linear(3, 1)
    optimizer = sgd(net)
    for _ in range(3):
        net(X).square().mean().backward()
        optimizer.step()
        for p in net.parameters():
            p.grad.zero_()


def adding_up_on_purpose():
    net = nn.Linear(3, 1)
    optimizer = sgd(net)
    for number in range(6):
        (net(X).square().mean() / 3).backward()
        if number % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()


def scaler_that_skips():
    net = nn.Linear(3, 1)
    optimizer, scaler = sgd(net), torch.amp.GradScaler("cpu")
    for factor in (float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale(net(X).square().mean() * factor).backward()
        scaler.step(optimizer)
        scaler.update()


def low_rank():
    net, down, up = nn.Linear(3, 3), nn.Linear(3, 2, bias=False), nn.Linear(2, 3, bias=False)
    nn.init.zeros_(up.weight)
    optimizer = sgd(down, up)
    (net(X) + up(down(X))).square().mean().backward()
    optimizer.step()


def langevin():
    energy, x = nn.Linear(3, 1), X.clone().requires_grad_()
    for _ in range(3):
        energy(x).square().sum().backward()
        x = (x - 0.1 * x.grad).detach().requires_grad_()


def by_hand():
    w = leaf()
    for _ in range(3):
        (w * w).sum().backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
            w.grad = None


def rebuilt_by_hand():
    w = leaf()
    for _ in range(3):
        (w * w).sum().backward()
        with torch.no_grad():
            w = (w - 0.1 * w.grad).requires_grad_()


def penalty():
    judge = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    optimizer = sgd(judge)
    mixed = X.clone().requires_grad_()
    (slope,) = torch.autograd.grad(judge(mixed).sum(), mixed, create_graph=True)
    (judge(X).mean() + (slope.norm(dim=1) - 1).square().mean()).backward()
    optimizer.step()


def a_batch_without_loss():
    net = nn.Linear(3, 1)
    optimizer = sgd(net)
    for margin in (-100.0, 1.0):
        optimizer.zero_grad()
        F.relu(net(X) + margin).mean().backward()
        optimizer.step()


def step_inside_backward():
    net = nn.Linear(3, 1)
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in net.parameters()}

    def update(p: torch.Tensor):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(update)
    for _ in range(2):
        net(X).square().mean().backward()


def one_optimizer_for_more():
    encoder, head, other = nn.Linear(3, 3), nn.Linear(3, 1), nn.Linear(3, 1)
    optimizer = sgd(head, other)
    for part in (head, other):
        optimizer.zero_grad()
        part(encoder(X)).mean().backward()
        optimizer.step()


def a_head_that_rests():
    encoder, heads = nn.Linear(3, 3), {"a": nn.Linear(3, 1), "b": nn.Linear(3, 1)}
    optimizer = sgd(*heads.values())
    heads["a"](encoder(X)).mean().backward()
    optimizer.step()


def a_closure():
    net = nn.Linear(3, 1)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)

    def again():
        optimizer.zero_grad()
        loss = net(X).square().mean() + 1
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(again)


def a_parameter_made_of_data():
    table = nn.Embedding(4, 3)
    table.weight = nn.Parameter(torch.ones(4, 3) * 2)
    optimizer = sgd(table)
    table(torch.arange(4)).square().mean().backward()
    optimizer.step()


def a_parameter_made_from_another_model():
    source, net = nn.Linear(3, 1), nn.Linear(3, 1)
    net.weight = nn.Parameter(source.weight.detach().clone())
    optimizer = sgd(net)
    net(X).square().mean().backward()
    optimizer.step()


def column_written():
    net = nn.Linear(3, 2)
    with torch.no_grad():
        net.weight[:, 0] -= 1.0
    net(X).mean().backward()


def row_multiplied():
    net = nn.Linear(3, 2)
    with torch.no_grad():
        net.weight[0] *= 2
    net(X).mean().backward()


def row_multiplied_by_a_method():
    net = nn.Linear(3, 2)
    with torch.no_grad():
        net.weight[1].mul_(2)
    net(X).mean().backward()


def sharpness_aware():
    net = nn.Linear(3, 1)
    optimizer = sgd(net)
    net(X).square().mean().backward()
    moves = [0.05 * p.grad / p.grad.norm() for p in net.parameters()]
    for sign in (1, -1):
        with torch.no_grad():
            for p, move in zip(net.parameters(), moves, strict=True):
                p.add_(sign * move)
        if sign == 1:
            optimizer.zero_grad()
            net(X).square().mean().backward()
    optimizer.step()


def by_turns():
    a, b = nn.Linear(3, 3), nn.Linear(3, 1)
    optimizers = sgd(a), sgd(b)
    for number in range(4):
        loss = b(a(X)).square().mean()
        a.zero_grad()
        b.zero_grad()
        loss.backward()
        optimizers[number % 2].step()


class Perceptual(nn.Module):
    """A frozen part in a plain list is hidden from state_dict() on purpose."""

    def __init__(self) -> None:
        super().__init__()
        self.judge, self.net = [nn.Linear(3, 3).requires_grad_(False)], nn.Linear(3, 3)

    def forward(self, x):
        return F.mse_loss(self.judge[0](self.net(x)), self.judge[0](x))


def frozen_in_a_list():
    model = Perceptual()
    optimizer = sgd(model)
    model(X).backward()
    optimizer.step()


def sparse_table():
    table = nn.Embedding(10, 3, sparse=True)
    optimizer = torch.optim.SparseAdam(table.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        table(torch.tensor([1, 2])).square().mean().backward()
        optimizer.step()


def carried_state():
    net, state = nn.GRU(3, 4), None
    optimizer = sgd(net)
    for _ in range(2):
        optimizer.zero_grad()
        y, state = net(X[:, None], state)
        y.mean().backward()
        optimizer.step()
        state = state.detach()


def average_through_data():
    net = nn.Linear(3, 1)
    average = copy.deepcopy(net).requires_grad_(False)
    optimizer = sgd(net)
    for _ in range(2):
        optimizer.zero_grad()
        F.mse_loss(net(X), average(X) + 1).backward()
        optimizer.step()
        for old, new in zip(average.parameters(), net.parameters(), strict=True):
            old.data.mul_(0.9).add_(new.data, alpha=0.1)


HEALTHY = [
    generator_without_optimizer, teacher_without_grad, q_learning, judge_alone, frozen_encoder, attack, moving_average,
    gan, zeros_in_place_of_none, cleared_by_hand, adding_up_on_purpose, scaler_that_skips, low_rank, langevin, by_hand,
    rebuilt_by_hand, penalty, a_batch_without_loss, step_inside_backward, one_optimizer_for_more, a_head_that_rests,
    a_closure, a_parameter_made_of_data, a_parameter_made_from_another_model, column_written, row_multiplied,
    row_multiplied_by_a_method, sharpness_aware, by_turns, frozen_in_a_list, sparse_table, carried_state,
    average_through_data,
]  # fmt: skip


@pytest.mark.parametrize("step", HEALTHY, ids=lambda step: step.__name__)
def test_a_healthy_step_is_not_accused(step):
    finding = explain_grad(step)
    assert finding.cause == "right", finding
    assert "could not be judged" not in finding.text
    assert "raised no error" in explain_error(step).text


def test_parameters_that_get_a_gradient_and_no_step_are_said():
    assert "`encoder.weight` and `encoder.bias` get gradients and no optimizer holds them" in str(
        explain_grad(frozen_encoder)
    )


# Faulty programs, each with what the remedy says


def detached(mended: bool):
    v, w = leaf(), leaf()
    (v * (w if mended else w.detach())).sum().backward()


def unused(mended: bool):
    v, w = leaf(), leaf()
    (v * w if mended else v * 2).sum().backward()


def parameter_of_a_result(mended: bool):
    w = leaf()
    v = w * 2 if mended else nn.Parameter(w * 2)
    v.sum().backward()


def root_of_zero(mended: bool):
    w = leaf(0, 1)
    (w + 1e-8 if mended else w).sqrt().sum().backward()


def nothing_but_zeros(mended: bool):
    w = leaf()
    F.relu(w if mended else -w).sum().backward()


def cleared_too_late(mended: bool):
    net = nn.Linear(3, 1)
    optimizer = sgd(net)
    if mended:
        optimizer.zero_grad()
    net(X).sum().backward()
    if not mended:
        optimizer.zero_grad()
    optimizer.step()


def never_cleared(mended: bool):
    net = nn.Linear(3, 1)
    optimizer = sgd(net)
    for _ in range(2):
        if mended:
            optimizer.zero_grad()
        net(X).square().sum().backward()
        optimizer.step()


def data_written(mended: bool):
    w = leaf()
    if mended:
        w.data *= 2
    loss = (w * w).sum()
    if not mended:
        w.data *= 2
    loss.backward()


class Hidden(nn.Module):
    def __init__(self, mended: bool) -> None:
        super().__init__()
        layers = [nn.Linear(3, 3), nn.Linear(3, 3)]
        self.layers = nn.ModuleList(layers) if mended else layers
        self.last = nn.Linear(3, 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


def plain_list(mended: bool):
    net = Hidden(mended)
    optimizer = sgd(net)
    net(X).sum().backward()
    optimizer.step()


def tensor_of_losses(mended: bool):
    net = nn.Linear(3, 1)
    losses = [net(X).mean(), net(X).square().mean()]
    (torch.stack(losses) if mended else torch.tensor(losses, requires_grad=True)).mean().backward()


def variable_of_data(mended: bool):
    net = nn.Linear(3, 1)
    y = net(X)
    (y if mended else torch.autograd.Variable(y.data, requires_grad=True)).square().mean().backward()


def made_in_inference_mode(mended: bool):
    with torch.inference_mode(not mended):
        net = nn.Linear(3, 1)
    (net(X) * leaf(1)).mean().backward()


def replaced(mended: bool):
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    if mended:
        net[1] = nn.Linear(3, 2)
    optimizer = sgd(net)
    if not mended:
        net[1] = nn.Linear(3, 2)
    net(X).mean().backward()
    optimizer.step()


def made_again(mended: bool):
    net = nn.Linear(3, 1)
    optimizer = sgd(net)
    net = nn.Linear(3, 1)
    if mended:
        optimizer.add_param_group({"params": net.parameters()})
    net(X).mean().backward()
    optimizer.step()


FAULTY = [
    (detached, "detach", ["No backward reached `w`", "`w.detach()` (line 3 of detached())"]),
    (unused, "not used", ["No backward reached", "no loss was computed from it"]),
    (parameter_of_a_result, "copy", ["No backward reached `w`", "`w * 2` (line 3 of", "nn.Parameter(t)"]),
    (
        root_of_zero,
        "not finite",
        ["The only gradient holds nan or inf after `", "(line 3 of root_of_zero()): that of `w`"],
    ),
    (nothing_but_zeros, "zero", ["Every gradient", "is zero"]),
    (cleared_too_late, "cleared", ["all 2 parameters", "`optimizer.zero_grad()` (line 8 of", "before backward()"]),
    (
        never_cleared,
        "accumulated",
        ["`net.weight` and `net.bias` were used by a step", "(line 7 of", "zero_grad() before each"],
    ),
    (data_written, "unnoticed write", ["(line 7 of data_written())", "before the forward"]),
    (plain_list, "plain list", ["`layers` is a plain list with 4 parameters, 4 of which", "ModuleList"]),
    (tensor_of_losses, "copy", ["(line 4 of", "torch.stack for a list of tensors"]),
    (variable_of_data, "detach", ["`y.data` (line 4 of"]),
    (made_in_inference_mode, "inference tensor", ["`net.weight` was made in inference_mode", "outside inference_mode"]),
    (replaced, "not in the optimizer", ["`net.1.weight` and `net.1.bias`", "holds 2 parameters that no module owns"]),
    (made_again, "not in the optimizer", ["`net.weight` and `net.bias`", "add_param_group"]),
]


@pytest.mark.parametrize(("step", "cause", "parts"), FAULTY, ids=[step.__name__ for step, *_ in FAULTY])
def test_a_faulty_step_is_told_and_the_remedy_works(step, cause, parts):
    finding = explain_grad(lambda: step(False))
    assert finding.cause == cause, finding
    for part in parts:
        assert part in str(finding), f"{part!r} is not in: {finding}"
    assert explain_grad(lambda: step(True)).cause == "right", explain_grad(lambda: step(True))


def test_a_gradient_that_is_not_finite_when_an_optimizer_steps_is_told():
    def step():
        net = nn.Linear(3, 1)
        optimizer = sgd(net)
        (net(X) * float("nan")).sum().backward()
        optimizer.step()

    finding = explain_grad(step)
    assert finding.cause == "not finite"
    assert "2 of 2 gradients hold nan or inf when the optimizer steps: those of" in finding.text


# Views of which torch refuses to tell the graph


def stale_view() -> torch.Tensor:
    layer = nn.Linear(3, 2)
    with torch.no_grad():
        view = layer.weight[:, 0]
        view -= 1
    return view


def test_a_view_that_was_written_to_under_no_grad_gets_a_sentence():
    view, x = stale_view(), leaf()
    for look in (Graph.of, draw_graph):
        with pytest.raises(HelperError, match="is a view that was made under no_grad, and its memory was written to"):
            look(view)
    assert explain_grad(view).cause == explain_grad(view, x.sum()).cause == explain_grad(x, view).cause == "stale view"


def test_such_a_view_beside_a_healthy_loss_disturbs_nothing():
    view, x = stale_view(), leaf()
    assert explain_grad(x, (x * x).sum()).cause == "no backward yet"
    assert len(Graph.of((x * x).sum()).nodes) == 3
    assert view.shape == (2,)
