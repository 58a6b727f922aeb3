"""Errors that hang on what is in a tensor, and a `try` around them; models copied and changed inside."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch_programs import program, stateful

__all__: list[str] = []


@program(2, (3, 3), grad=False)
def factorised_with_jitter(x):
    for i in range(4):
        try:
            found = torch.linalg.cholesky(x @ x.T - 5 * torch.eye(3) + 10.0**i * torch.eye(3))
            break
        except torch.linalg.LinAlgError:
            continue
    return found, i


@program(1, (3, 3), grad=False)
def an_inverse_that_is_not_there(x):
    try:
        return torch.linalg.inv(x * 0)
    except RuntimeError as error:
        raise ValueError("singular") from error


@program(1, (3, 4))
def a_class_that_is_not_there(x):
    try:
        return F.cross_entropy(x, torch.tensor([0, 1, 9]))
    except (KeyError, IndexError):
        return x.sum()


def _looked_up(table, at):
    with torch.no_grad():
        return table[torch.tensor(at)] + F.embedding(torch.tensor(at), table)


@program(1, (3, 4))
def an_index_in_a_callee(x):
    try:
        y = _looked_up(x, [1, 7])
    except:  # noqa: E722
        y = x * 3
    return y


@program(0, (3, 4))
def nothing_that_catches_it(x):
    log = []
    try:
        y = _looked_up(x, [1, 2])
        try:
            y = y + F.cross_entropy(x, torch.tensor([0, 1, 2]))
        except (TypeError, AttributeError) as error:
            log.append(str(error))
        except torch.cuda.OutOfMemoryError:
            log.append("memory")
        try:
            cache = torch.zeros(4, 4)
            cache.index_copy_(0, torch.tensor([1, 3]), y[:2])
        except NotImplementedError:  # as Transformers' static caches do
            cache[[1, 3]] = y[:2]
        y = y + cache[1]
    finally:
        log.append("done")
    return y, log


class Quantised(nn.Module):
    def __init__(self, linear):
        super().__init__()
        weight = linear.weight.detach()
        scale = weight.abs().amax(1, keepdim=True) / 127
        self.register_buffer("scale", scale)
        self.register_buffer("weight", (weight / scale).round().to(torch.int8))
        self.bias = linear.bias

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype) * self.scale, self.bias)


@stateful(0, "a copy of a model with other layers")
def _():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

    def f(x):
        changed = copy.deepcopy(model)
        for name, child in changed.named_children():
            if isinstance(child, nn.Linear):
                setattr(changed, name, Quantised(child))
        return model(x), changed(x), sorted(dict(changed.named_buffers()))

    return f, (torch.randn(3, 4),), (model,)
