"""Python's random numbers in compiled functions: eager's results in every call, and eager's state of the generators."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchjit

OWN = random.Random(5)


def scaled(x):
    return x * random.random()


def several(x):
    return x + random.uniform(-1, 1) * 2 + random.gauss(0, 1)


def own_generator(x, generator=OWN):
    return x * generator.random() + generator.getrandbits(5)


def as_a_size(x):
    return x[: random.randint(1, 3)].sum() + random.randrange(10)


def returned(x):
    value = random.betavariate(2, 3)
    return x.sin(), value, value * 2, [value]


def in_a_loop(x):
    for _ in range(3):
        x = x + random.normalvariate(0, 0.1)
    return x.sum()


def raised(x):
    kept = random.random()
    if x.shape[0] == 4:
        raise ValueError(kept)
    return x


def decided(x):
    if random.random() < 0.5:
        return x * 2
    return x - random.random()


def shuffled(x):
    y = x * random.random()
    items = [1, 2, 3]
    random.shuffle(items)
    return y * random.random() + items[0]


def chosen(x):
    return x * random.choice([1, 2, 5]) + random.choice((0.5, 0.25)) + random.choice(range(4))


def several_chosen(x):
    first, second = random.sample([3, 1, 4, 1, 5], 2)
    weighted = random.choices([0.5, 1.5, 2.5], weights=[1, 2, 3], k=3)
    return x * first - second + sum(weighted), weighted, random.sample(range(9), k=2)


def words(x):
    return x + random.random(), random.choice(["a", "b", "c"])


def layers_in_any_order(x):
    steps = [torch.sin, torch.cos, torch.tanh]
    random.shuffle(steps)
    for step in steps:
        x = step(x)
    return x


def seeded_here(x):
    before = random.random()
    random.seed(11)
    steps = [torch.sin, torch.cos, torch.tanh, "last"]
    random.shuffle(steps)
    return x * before + random.random(), steps.index("last"), random.choice("abc"), random.sample(steps, 2)


def state_kept(x):
    state = random.getstate()
    random.seed(0)
    fixed = x * random.gauss(0, 1)
    random.setstate(state)
    return fixed + random.random()


def made_here(x):
    own = random.Random(x.shape[0])
    order = list(range(4))
    own.shuffle(order)
    return x[order] * own.random(), own


def too_many(x):
    try:
        random.sample([1, 2], 3)
    except ValueError as error:
        return x * random.random(), str(error)


def wrong_bounds(x):
    try:
        random.randint(3, 1)
    except ValueError as error:
        return x * random.random(), str(error)


class Stochastic(nn.Module):
    """Skips its layer at random."""

    def __init__(self):
        super().__init__()
        self.generator = OWN
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        if self.training and self.generator.random() < 0.4:
            return x
        return self.layer(x) * self.generator.uniform(0, 1)


PROGRAMS = (
    (scaled, 0), (several, 0), (own_generator, 0), (as_a_size, 0), (returned, 0), (in_a_loop, 0), (raised, 0),
    (decided, 1), (shuffled, 0), (wrong_bounds, 1), (Stochastic(), 1), (chosen, 0), (several_chosen, 0), (words, 1),
    (layers_in_any_order, 1), (seeded_here, 0), (state_kept, 1), (made_here, 0), (too_many, 1),
)  # fmt: skip


def _close(a, b):
    if isinstance(a, torch.Tensor):
        return torch.allclose(a, b)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(_close, a, b))
    if isinstance(a, random.Random):
        return type(a) is type(b) and a.getstate() == b.getstate()
    return type(a) is type(b) and a == b


def _states():
    return random.getstate(), OWN.getstate()


def _calls(function, x):
    random.seed(1)
    OWN.seed(2)
    found = []
    for _ in range(6):
        try:
            result = function(x)
        except ValueError as error:
            result = error.args
        found.append((result, _states()))
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(("program", "breaks"), PROGRAMS, ids=lambda p: getattr(p, "__name__", ""))
def test_results_and_states(program, breaks, backend):
    torchjit.reset()
    x = torch.randn(4, 4)
    expected = _calls(program, x)
    actual = _calls(torchjit.compile(program, backend=backend), x)
    assert all(map(_close, actual, expected))
    random.seed(1)
    OWN.seed(2)
    if program is not raised:
        assert torchjit.explain(program)(x).graph_break_count == breaks


def test_a_number_is_never_a_constant():
    compiled = torchjit.compile(scaled, backend="aot_eager", fullgraph=True)
    x = torch.ones(3)
    assert len({compiled(x)[0].item() for _ in range(20)}) == 20


def test_a_generator_of_another_class_draws_for_real():
    class Halved(random.Random):
        def random(self):
            return super().random() / 2

    own = Halved(3)

    def program(x):
        return x * own.random()

    compiled = torchjit.compile(program, backend="eager")
    x = torch.ones(3)
    state = own.getstate()
    expected = [program(x) for _ in range(3)]
    own.setstate(state)
    assert all(map(torch.equal, [compiled(x) for _ in range(3)], expected))


def test_the_generator_is_seeded_between_graphs():
    def f(x):
        with torch.random.fork_rng():
            torch.manual_seed(7)
            y = F.dropout(x.sin(), 0.5)
        return y + torch.rand_like(x) * 2

    compiled = torchjit.compile(f)
    sides = []
    for g in (f, compiled):
        torch.manual_seed(1)
        x = torch.linspace(0.1, 1, 32).requires_grad_()
        y = g(x)
        y.sum().backward()
        sides.append((y, x.grad, torch.get_rng_state()))
    torch.testing.assert_close(sides[1], sides[0])
