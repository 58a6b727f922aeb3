"""Programs for `test_assertions`, in a file of their own: pytest rewrites the assertions of a test file."""

# mypy: allow-untyped-defs

from __future__ import annotations

import torch

LOG: list[int] = []


def message(x):
    y = x * 2
    assert (y == y).all(), "not a number"
    return y.sin()


def denied(x):
    assert not (x < 0).any()
    return x + 1


def both(x):
    assert x.sum() > -100 and x.max() < 100, "range"
    return x * 2


def before_effects(x):
    y = x.clone()
    y.add_(1)
    assert (y == y).all(), "not a number"
    LOG.append(1)
    x.mul_(2)
    return y


class Checked(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)

    def forward(self, x):
        assert (x == x).all(), "not a number"
        return self.inner(x)


def after_an_effect(x):
    LOG.append(1)
    assert (x == x).all()
    return x + 1


def between_an_effect_and_a_write(x):
    LOG.append(1)
    assert (x == x).all()
    x.mul_(2)
    return x + 1


def after_a_write(x):
    x.add_(1)
    assert (x == x).all()
    return x + 1


def caught(x):
    try:
        assert (x == x).all(), "not a number"
    except AssertionError:
        return x.nan_to_num() - 1
    return x + 1


def either(x):
    assert x.min() < 50 or x.max() > 50
    return x + 1


def in_a_block(x):
    with torch.no_grad():
        assert (x == x).all()
    return x + 1


def several(x):
    assert x > 0
    return x + 1


def computed_message(x):
    assert (x == x).all(), f"{x.shape}"
    return x + 1
