"""Training steps in one function: the loss, its backward, the optimizer's step, averages and scaling, inside the region."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, parameters_to_vector
from torch_programs import program, stateful

__all__: list[str] = []

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    "Adam": {"lr": 0.01, "amsgrad": True},
    "AdamW": {"lr": 0.01},
    "Adamax": {"lr": 0.01},
    "NAdam": {"lr": 0.01},
    "RAdam": {"lr": 0.01},
    "RMSprop": {"lr": 0.01, "momentum": 0.9, "centered": True},
    "Rprop": {"lr": 0.01},
    "ASGD": {"lr": 0.01},
    "Adadelta": {},
    "Adagrad": {"lr": 0.01},
}


def _model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def _step_of(name: str, options: dict[str, Any]) -> None:
    @stateful(1 if name == "Adagrad" else 0, f"step of {name}")
    def _() -> Any:
        model = _model()
        optimizer = getattr(torch.optim, name)(model.parameters(), **options)
        for p in model.parameters():
            p.grad = torch.randn_like(p)

        def f(x):
            optimizer.step()
            return x + 1

        return f, (torch.randn(3, 4),), (model,)


for _name, _options in OPTIMIZERS.items():
    _step_of(_name, _options)


@stateful(1, "step of Adafactor")  # which reads numbers out of each parameter
def _() -> Any:
    model = _model()
    optimizer = torch.optim.Adafactor(model.parameters(), lr=0.01)
    for p in model.parameters():
        p.grad = torch.randn_like(p)

    def f(x):
        optimizer.step()
        return x + 1

    return f, (torch.randn(3, 4),), (model,)


@stateful(1, "step of LBFGS")  # which decides about data all the time
def _() -> Any:
    model = _model()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def f(x):
        def closure():
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        return optimizer.step(closure).detach() * 2

    return f, (torch.randn(3, 4),), (model,)


@stateful(0, "gradients set aside")
def _() -> Any:
    model = _model()
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    kept: list[Any] = []

    def f(x):
        kept[:] = [p.grad for p in model.parameters()]
        for i, p in enumerate(model.parameters()):
            p.grad = None if i % 2 else p.grad * 0.5
            p.note = (i, x.sum())
        return x + sum(p.grad.sum() for p in model.parameters() if p.grad is not None), model[0].weight.note

    return f, (torch.randn(3, 4, requires_grad=True),), (model, kept)


@stateful(0, "attributes of tensors")
def _() -> Any:
    shared = torch.randn(4)
    shared.config = {"scale": 2.0, "names": ["a"]}

    def f(x):
        y = x * shared.config["scale"]
        y.parts = [x + 1, len(shared.config["names"])]
        shared.seen = getattr(shared, "seen", 0) + 1
        assert hasattr(y, "parts") and not hasattr(y, "others")
        return y, y.parts[0] * shared.seen, y.parts[1]

    return f, (torch.randn(3, 4, requires_grad=True),), (shared,)


@stateful(2, "training step")
def _() -> Any:
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def f(x):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x[:, :2])
        loss.backward()
        optimizer.step()
        return loss.detach()

    return f, (torch.randn(3, 4),), (model,)


@stateful(1, "training step with clipping")
def _() -> Any:
    model = _model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    def f(x):
        loss = model(x).square().mean()
        loss.backward()
        norm = clip_grad_norm_(model.parameters(), 1.0)
        clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach(), norm

    return f, (torch.randn(3, 4),), (model,)


@stateful(2, "accumulated gradients")
def _() -> Any:
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def f(x):
        for part in x.split(2):
            (model(part).square().mean() / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
        return x + 1

    return f, (torch.randn(4, 4),), (model,)


@stateful(3, "gradient scaler")
def _() -> Any:
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x).float().square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return f, (torch.randn(3, 4),), (model,)


@stateful(0, "exponential average")
def _() -> Any:
    model = _model()
    average = copy.deepcopy(model)

    def f(x):
        with torch.no_grad():
            torch._foreach_mul_(list(average.parameters()), 0.9)
            torch._foreach_add_(list(average.parameters()), list(model.parameters()), alpha=0.1)
        return average(x)

    return f, (torch.randn(3, 4),), (model, average)


@stateful(2, "averaged model")
def _() -> Any:
    model = _model()
    average = torch.optim.swa_utils.AveragedModel(model)

    def f(x):
        average.update_parameters(model)
        return average(x)

    return f, (torch.randn(3, 4),), (model, average)


@stateful(0, "scheduler and step")
def _() -> Any:
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for p in model.parameters():
        p.grad = torch.randn_like(p)

    def f(x):
        optimizer.step()
        scheduler.step()
        return x * 2

    return f, (torch.randn(3, 4),), (model,)


@stateful(0, "gradient by autograd.grad")
def _() -> Any:
    model = _model()

    def f(x):
        loss = model(x).square().mean()
        grads = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for p, g in zip(model.parameters(), grads, strict=True):
                p -= 0.1 * g
        return loss.detach()

    return f, (torch.randn(3, 4),), (model,)


@program(0)
def gradients_that_are_not_there(x):
    y, other = (x**3).sum(), torch.ones(2, requires_grad=True)
    none = torch.autograd.grad(y, [other], allow_unused=True, retain_graph=True)
    zero = torch.autograd.grad(y, [other], allow_unused=True, retain_graph=True, materialize_grads=True)
    both = torch.autograd.grad(y, [other, x], allow_unused=True)
    return none[0], zero[0], both[0], both[1]


@program(0)
def gradient_penalty(x):
    y = x.detach().requires_grad_()
    score = (y**3).sum()
    (g,) = torch.autograd.grad(score, y, create_graph=True)
    return g.norm() * 2 + x.sum()


@stateful(0, "adversarial input")
def _() -> Any:
    model = _model()

    def f(x):
        delta = torch.zeros_like(x, requires_grad=True)
        loss = model(x + delta).sum()
        g = torch.autograd.grad(loss, delta)[0]
        return model(x + 0.1 * g.sign())

    return f, (torch.randn(3, 4),), (model,)


@stateful(0, "losses and metrics")
def _() -> Any:
    model = _model()
    weights = torch.tensor([0.3, 0.7])

    def f(x):
        logits = model(x)
        target = torch.tensor([0, 1, 0])
        loss = F.cross_entropy(logits, target, weight=weights, label_smoothing=0.1)
        accuracy = (logits.argmax(-1) == target).float().mean()
        return loss, {"accuracy": accuracy, "norm": parameters_to_vector(model.parameters()).norm()}

    return f, (torch.randn(3, 4, requires_grad=True),), (model,)


@stateful(0, "frozen layers")
def _() -> Any:
    model = _model()

    def f(x):
        for p in model[0].parameters():
            if p.requires_grad:
                x = x + p.sum() * 0
        with torch.set_grad_enabled(not model.training):
            y = model[0](x)
        return model[2](model[1](y)), [p.requires_grad for p in model.parameters()]

    return f, (torch.randn(3, 4, requires_grad=True),), (model,)
