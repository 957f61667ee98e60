"""The helpers hold on models that nobody wrote for them: eleven architectures, and the wrappers around models."""

from __future__ import annotations

import copy
from xml.etree import ElementTree

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from helpers import Graph, draw_graph, explain_error, explain_grad, explore_backward
from helpers.model.autograd.flow import Flow
from helpers.model.autograd.values import MOST_VALUES
from tests.model.architectures import ARCHITECTURES, Adversary, Built, Decoder, Encoder, Recurrent, switch


@pytest.fixture(autouse=True)
def same_numbers():
    torch.manual_seed(0)


@pytest.fixture(params=list(ARCHITECTURES))
def built(request) -> Built:
    return ARCHITECTURES[request.param]()


def paths(model: nn.Module) -> set[str]:
    return {name for name, _ in model.named_parameters(remove_duplicate=False)}


def parameter(built: Built) -> nn.Parameter:
    return dict(built.model.named_parameters())[built.early]


def told(finding, cause: str, *parts: str) -> None:
    assert finding.cause == cause, finding
    for part in parts:
        assert part in str(finding), f"{part!r} is not in: {finding}"


def assert_gradients_are_torchs(loss: torch.Tensor, model: nn.Module) -> None:
    flow = Flow.of(loss, model=model)
    named = dict(model.named_parameters())
    wanted = dict(zip(named, torch.autograd.grad(loss, list(named.values()), retain_graph=True), strict=True))
    steps = [step for step in flow.steps if flow.graph.nodes[step.node].kind == "leaf"]
    assert len(steps) == len(named)
    for step in steps:
        shown = torch.tensor(step.arrived[0].values)
        grad = wanted[flow.graph.nodes[step.node].names[0]]
        assert torch.allclose(shown, grad.flatten()[:MOST_VALUES].float(), rtol=1e-4, atol=1e-6)


def assert_everything_can_be_shown(loss: torch.Tensor, model: nn.Module) -> None:
    graph = Graph.of(loss, model=model)
    assert {name for leaf in graph.leaves for name in leaf.names} == paths(model)
    assert graph.saved_nbytes > 0
    for depth in (None, 0, 1, 2):
        ElementTree.fromstring(draw_graph(loss, model=model, depth=depth).svg)
    panel = explore_backward(loss, model=model)
    state = panel.receive({"changes": [["step", len(panel.app.flow.steps)]]})
    assert state["mood"] == ""
    ElementTree.fromstring(state["svg"])
    assert_gradients_are_torchs(loss, model)


# Each architecture


def test_every_parameter_is_named_drawn_and_gets_torchs_gradient(built):
    assert_everything_can_be_shown(built.loss(), built.model)


def test_a_model_that_is_well_is_told_before_and_after_backward(built):
    model, loss = built.model, built.loss()
    told(explain_grad(model, loss), "no backward yet", f"all {len(list(model.parameters()))} parameters of `model`")
    loss.backward()
    told(explain_grad(model, loss), "right")


def test_a_frozen_parameter_is_told(built):
    frozen, model = parameter(built), built.model
    frozen.requires_grad_(False)
    told(explain_grad(frozen, built.loss()), "requires_grad is False", "`frozen.requires_grad` is False")
    told(explain_grad(model, built.loss()), "no backward yet", "1 other is frozen")


def test_an_unused_module_is_named(built):
    model = built.model
    model.extra = nn.Linear(2, 2)
    told(explain_grad(model, built.loss()), "not used", "`extra` took no part in this forward, or its result was cut")
    told(explain_grad(model, built.loss), "not used", "`extra` took no part in the forward of this loss.")
    told(explain_grad(model.extra.weight, built.loss()), "not used", "`model.extra.weight` can't be reached")


def test_a_cut_is_found_with_its_line_and_no_module_is_said_to_be_unused(built):
    model, early = built.model, parameter(built)
    switch(model, "cut")
    told(explain_grad(early, built.loss()), "not used", "or its history was cut")
    told(explain_grad(model, built.loss()), "not used", "or ", "cut off, as detach() does")
    for finding in (explain_grad(early, built.loss), explain_grad(model, built.loss)):
        told(finding, "detach", "detach()` (line ", "of forward())")
        assert "took no part" not in finding.text
    whole = explain_grad(lambda: built.loss().backward())
    told(whole, "detach", "detach()` (line ", "of forward())")
    assert whole.line == explain_grad(model, built.loss).line


def test_an_edited_activation_is_named_with_its_line(built):
    switch(built.model, "edit")
    for finding in (explain_error(lambda: built.loss().backward()), explain_grad(lambda: built.loss().backward())):
        assert "= " in finding.text
        assert "of forward()) changed it in place to version 1" in finding.text
        assert "saved its result" in finding.text
    told(explain_grad(built.model, built.loss()), "can't be computed", "changed in place since")


def test_the_remedy_for_an_edited_activation_works(built):
    assert "h = h + 1 in place of h += 1" in _remedy_of_an_edit(built)
    switch(built.model, "")
    assert "raised no error" in explain_error(lambda: built.loss().backward()).text


def _remedy_of_an_edit(built: Built) -> str:
    switch(built.model, "edit")
    return explain_error(lambda: built.loss().backward()).remedy


def test_a_second_backward_is_told_with_both_lines(built):
    def step():
        loss = built.loss()
        loss.backward()
        loss.backward()

    finding = explain_error(step)
    assert finding.known
    assert "(line 4 of step()) runs backward a second time" in finding.text
    assert "(line 3 of step()) has freed" in finding.text


# Training steps


def test_a_whole_training_loop_raises_no_false_alarm(built):
    model = built.model

    def train():
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        average = copy.deepcopy(model)
        for _ in range(2):
            model.train()
            optimizer.zero_grad()
            for _ in range(2):
                loss = built.loss() / 2
                loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            with torch.no_grad():
                for old, new in zip(average.parameters(), model.parameters(), strict=True):
                    old.lerp_(new, 0.1)
            model.eval()
            with torch.inference_mode():
                built.loss().item()

    told(explain_grad(train), "right")
    assert "raised no error" in explain_error(train).text


def test_a_detach_that_is_meant_raises_no_false_alarm():
    def quantize():
        encoder, book, decoder = nn.Linear(3, 3), nn.Embedding(4, 3), nn.Linear(3, 3)
        x = torch.randn(5, 3)
        z = encoder(x)
        q = book(torch.cdist(z, book.weight).argmin(1))
        straight = z + (q - z).detach()
        loss = F.mse_loss(decoder(straight), x) + F.mse_loss(q, z.detach()) + F.mse_loss(z, q.detach())
        loss.backward()

    def act():
        policy, value = nn.Linear(3, 2), nn.Linear(3, 1)
        states = torch.randn(4, 3)
        choice = torch.distributions.Categorical(logits=policy(states))
        actions = choice.sample()
        rewards = torch.tensor([float(action) for action in actions])
        guess = value(states).squeeze(1)
        loss = -(choice.log_prob(actions) * (rewards - guess.detach())).mean() + F.mse_loss(guess, rewards)
        loss.backward()

    def closure():
        model = nn.Linear(3, 1)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

        def again():
            optimizer.zero_grad()
            loss = model(torch.ones(2, 3)).square().sum()
            loss.backward()
            return loss

        optimizer.step(again)

    for step in (quantize, act, closure):
        told(explain_grad(step), "right")


def test_the_modules_of_a_trainer_are_named_by_its_attributes_and_what_it_leaves_out_is_said():
    class Trainer:
        def __init__(self):
            self.net, self.aux = nn.Linear(3, 1), nn.Linear(3, 1)
            self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

        def step(self):
            x = torch.ones(2, 3)
            (self.net(x) + self.aux(x)).sum().backward()
            self.optimizer.step()

    told(explain_grad(Trainer().step), "right", "`self.aux.weight` and `self.aux.bias` get gradients and no optimizer")


def test_a_gan_step_with_two_optimizers_is_right():
    def step():
        gan = Adversary()
        first = torch.optim.SGD(gan.generator.parameters(), lr=0.1)
        second = torch.optim.SGD(gan.discriminator.parameters(), lr=0.1)
        fake = gan.generator(torch.randn(4, 2))
        score = gan.discriminator(fake.detach())
        F.binary_cross_entropy_with_logits(score, torch.zeros(4, 1)).backward()
        second.step()
        F.binary_cross_entropy_with_logits(gan.discriminator(fake), torch.ones(4, 1)).backward()
        first.step()

    told(explain_grad(step), "right")
    assert "raised no error" in explain_error(step).text


def test_a_parameter_that_neither_of_two_optimizers_holds_is_named():
    def step():
        a, b, c = (nn.Linear(3, 1) for _ in range(3))
        first, second = (torch.optim.SGD(part.parameters(), lr=0.1) for part in (a, b))
        x = torch.ones(2, 3)
        (a(x) + b(x) + c(x)).sum().backward()
        first.step()
        second.step()

    told(explain_grad(step), "right", "`c.weight` and `c.bias` get gradients and no optimizer holds them")


def test_two_modules_of_one_class_keep_their_own_names():
    def step():
        gan = Adversary()
        score = gan.discriminator(torch.randn(4, 3))
        (gan.generator(torch.randn(4, 2)).sum() + score.detach().sum()).backward()

    told(explain_grad(step), "detach", "4 of 8 parameters", "`gan.discriminator.0.weight`", "`score.detach()` (line 4")


def test_a_state_that_is_carried_on_is_named_and_the_remedy_works():
    def train(cut: bool):
        model = Recurrent()
        h = c = torch.zeros(2, 4)
        for window in torch.randn(3, 2, 3):
            if cut:
                h, c = h.detach(), c.detach()
            h, c = model.cell(window, (h, c))
            model.head(h).mean().backward()

    finding = explain_error(train, False)
    assert "`h` entered this iteration with its graph" in finding.text
    assert "h = h.detach()" in finding.remedy
    assert "raised no error" in explain_error(train, True).text


def test_accumulated_and_scaled_gradients_are_told_apart():
    model, x = nn.Linear(3, 1), torch.ones(2, 3)
    for _ in range(4):
        (model(x).mean() / 4).backward()
    told(explain_grad(model.weight, model(x).mean()), "right")
    told(explain_grad(model.weight, model(x).mean() / 4), "accumulated", "4 backward calls", "compare with 4 times")
    model.zero_grad()
    torch.amp.GradScaler("cpu").scale(model(x).mean()).backward()
    told(explain_grad(model.weight, model(x).mean()), "scaled", "65,536 times", "GradScaler")
    model.zero_grad()
    torch.amp.GradScaler("cpu", enabled=False).scale(model(x).mean()).backward()
    told(explain_grad(model.weight, model(x).mean()), "right")


# Wrappers


class Wrapper(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        return self.module(*inputs)


def tokens() -> torch.Tensor:
    return torch.arange(10).view(2, 5) % 7


def test_tied_and_shared_modules_stand_under_every_name():
    decoder = Decoder()
    tied = next(
        leaf for leaf in Graph.of(decoder(tokens()).sum(), model=decoder).leaves if "embed.weight" in leaf.names
    )
    assert tied.names == ("embed.weight", "head.weight")
    layer = nn.Linear(3, 3)
    shared = nn.Sequential(layer, nn.Tanh(), layer, nn.Tanh(), layer)
    assert_everything_can_be_shown(shared(torch.randn(2, 3)).sum(), shared)


def test_a_wrapped_model_is_named_by_its_whole_path():
    model = Wrapper(Wrapper(Encoder()))
    loss = model(tokens()).square().mean()
    assert_everything_can_be_shown(loss, model)
    assert Graph.of(loss, model=model).find("module.module.head.bias").kind == "leaf"


@pytest.mark.parametrize("wrap", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_a_parametrized_layer_is_shown_and_its_weight_is_told_to_be_made_anew(wrap):
    model = nn.Sequential(wrap(nn.Linear(3, 4)), nn.Tanh(), nn.Linear(4, 1))
    loss = model(torch.randn(5, 3)).mean()
    before = [buffer.clone() for buffer in model.buffers()]
    assert_everything_can_be_shown(loss, model)
    assert all(map(torch.equal, before, model.buffers()))
    told(explain_grad(model, loss), "no backward yet", "all ")
    told(explain_grad(model[0].weight, loss), "another result", "parametrizations.weight.original", "is read")


def test_a_functional_call_reaches_the_tensors_that_were_given_and_not_the_module():
    model = nn.Linear(3, 1)
    given = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    loss = torch.func.functional_call(model, given, torch.ones(2, 3)).mean()
    told(explain_grad(given["weight"], loss), "no backward yet")
    told(explain_grad(model, loss), "not used", "2 of 2 parameters of `model`")


def test_a_step_of_meta_learning_is_right():
    def step():
        model, x = nn.Linear(3, 1), torch.ones(2, 3)
        grads = torch.autograd.grad(model(x).mean(), list(model.parameters()), create_graph=True)
        fast = {name: p - 0.1 * g for (name, p), g in zip(model.named_parameters(), grads, strict=True)}
        torch.func.functional_call(model, fast, x).square().mean().backward()

    told(explain_grad(step), "right")


def test_autocast_changes_nothing_in_the_names_and_gradients():
    model = Encoder()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(tokens()).float().square().mean()
        assert_everything_can_be_shown(loss, model)
    told(explain_grad(model, loss), "no backward yet")
