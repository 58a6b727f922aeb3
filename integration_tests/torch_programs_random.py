"""The default generator's state, read, set and seeded inside of a compiled function: each call is a break, with eager's numbers."""

# mypy: allow-untyped-defs

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch_programs import program, stateful

import torchjit

__all__: list[str] = []


@program(2)
def forked(x):
    before = torch.rand(3, 1)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        inside = F.dropout(x, 0.5)
    return before, inside, torch.rand(3, 1) + F.dropout(x, 0.5)


@program(3)
def forked_around_a_break(x):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        y = F.dropout(x, 0.5)
        torchjit.graph_break()
        y = y + torch.rand(3, 4)
    return y + torch.rand(3, 4)


@program(2)
def forked_around_an_exception(x):
    try:
        with torch.random.fork_rng():
            torch.manual_seed(7)
            x = x + torch.rand(3, 4)
            raise ValueError("inside")
    except ValueError:
        x = x * 2
    return x + torch.rand(3, 4)


@program(4)
def drawn_twice(x):
    state = torch.get_rng_state()
    first = torch.randn(3, 4)
    torch.set_rng_state(state)
    torch.random.set_rng_state(torch.random.get_rng_state())
    return x * first - torch.randn(3, 4), state


@program(3)
def seeded_again(x):
    generator = torch.manual_seed(5)
    y = x * torch.rand(3, 4)
    torch.random.manual_seed(-3)
    torch.manual_seed(True)
    return y + torch.randperm(4), generator is torch.default_generator


@program(1)
def seeded_out_of_range(x):
    try:
        torch.manual_seed(2**65)
    except RuntimeError:
        x = x + torch.rand(3, 4)
    return x


@program(1)
def set_to_no_state(x):
    try:
        torch.set_rng_state(torch.zeros(3, dtype=torch.uint8))
    except (RuntimeError, TypeError):
        x = x + torch.rand(3, 4)
    return x


@program(1)
def seeded_in_a_checkpoint(x):
    def body(t):
        torch.manual_seed(3)
        return F.dropout(t.sin(), 0.5)

    return torch.utils.checkpoint.checkpoint(body, x, use_reentrant=False)


@stateful(2, "a state kept between calls")
def _():
    kept = [torch.get_rng_state()]

    def f(x):
        torch.set_rng_state(kept[0])
        y = x + torch.rand(3)
        kept[0] = torch.get_rng_state()
        return y

    return f, (torch.randn(3),), ()


@stateful(2, "a seed per step")
def _():
    state = {"step": 0}

    def f(x):
        state["step"] += 1
        torch.manual_seed(state["step"])
        return x + torch.rand(3)

    return f, (torch.randn(3),), ()
