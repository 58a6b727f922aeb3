"""Objects as keys of dicts and elements of sets: what was captured with some of them serves no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import torchjit


class Plain:
    pass


def known_function() -> None:
    pass


KNOWN = Plain()
FUNCTIONS = {known_function}
KINDS: dict[str, Callable[[], Any]] = {
    "object": Plain,
    "tensor": lambda: torch.ones(1),
    "function": lambda: lambda: 0,
}


def check(f: Callable[..., Tensor], *calls: tuple[Any, ...]) -> None:
    """Each call gives what eager Python gives, and leaves its dicts the same."""
    run = torchjit.compile(f, backend="eager")
    for args in calls:
        wanted, found = ([dict(a) if type(a) is dict else a for a in args] for _ in range(2))
        torch.testing.assert_close(run(*found), f(*wanted))
        assert found == wanted


PROGRAMS_ON_DICTS: dict[str, Callable[..., Tensor]] = {
    "get": lambda d, p, x: x * d.get(p, 5),
    "in": lambda d, p, x: x * 2 if p in d else x,
    "iterate": lambda d, p, x: x * sum(d.values()) if p in d else x,
    "store": lambda d, p, x: (d.__setitem__(p, 3), x * len(d))[1],
    "pop": lambda d, p, x: x * d.pop(p, 7),
    "setdefault": lambda d, p, x: x * d.setdefault(p, 7),
}
PROGRAMS_ON_PAIRS: dict[str, Callable[..., Tensor]] = {
    "in a dict": lambda p, q, x: x * 2 if q in {p: 1} else x,
    "in a set": lambda p, q, x: x * 2 if q in {p} else x,
    "size": lambda p, q, x: x * len({p: 1, q: 2}),
    "ids": lambda p, q, x: x * len({id(p), id(q)}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROGRAMS_ON_DICTS)
def test_keys_of_a_dict_of_the_caller(name: str, kind: str) -> None:
    a, b, x = KINDS[kind](), KINDS[kind](), torch.ones(1)
    check(PROGRAMS_ON_DICTS[name], ({a: 4}, a, x), ({a: 4}, b, x), ({b: 3}, b, x), ({b: 3, a: 1}, b, x))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROGRAMS_ON_PAIRS)
def test_keys_of_a_dict_of_the_program(name: str, kind: str) -> None:
    a, b, x = KINDS[kind](), KINDS[kind](), torch.ones(1)
    check(PROGRAMS_ON_PAIRS[name], (a, b, x), (a, a, x), (b, a, x))


@pytest.mark.parametrize("kind", KINDS)
def test_keys_in_tuples_and_numbers_of_objects(kind: str) -> None:
    a, b, x = KINDS[kind](), KINDS[kind](), torch.ones(1)
    check(lambda d, p, x: x * 2 if (p, 1) in d else x, ({(a, 1): 1}, a, x), ({(a, 1): 1}, b, x), ({(b, 1): 1}, b, x))
    if kind != "function":  # whose id() breaks the graph
        check(lambda d, p, x: x * 2 if id(p) in d else x, ({id(a): 4}, b, x), ({id(a): 4}, a, x), ({id(b): 4}, b, x))


def test_keys_beside_global_objects() -> None:
    x = torch.ones(1)
    check(lambda p, x: x * 2 if p in {KNOWN: 1} else x, (Plain(), x), (KNOWN, x))
    check(lambda p, x: x * 2 if p in FUNCTIONS else x, (lambda: 0, x), (known_function, x))


@pytest.mark.parametrize("make", [torch.optim.RMSprop, torch.optim.Adam])
def test_one_compiled_step_for_several_optimizers(make: Any) -> None:
    def train(step: Callable[[Any], Any]) -> list[Any]:
        torch.manual_seed(0)
        seen: list[Any] = []
        for _ in range(2):
            model = torch.nn.Linear(2, 2)
            optimizer = make(model.parameters(), lr=0.01)
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.randn(3, 2)).square().sum().backward()
                step(optimizer)
            seen.append([p.detach() for p in model.parameters()])
        return seen

    def step(optimizer: Any) -> None:
        optimizer.step()

    torch.testing.assert_close(train(torchjit.compile(step, backend="eager")), train(step))


def looked_up(d: dict[torch.Tensor, int]) -> int:
    return sum(d[p] for p in d) + sum(p in d for p in list(d))


def deleted(d: dict[torch.Tensor, int]) -> int:
    for p in list(d):
        del d[p]
    return len(d)


def popped(d: dict[torch.Tensor, int]) -> int:
    return d.pop(next(iter(d)))


def stored(d: dict[torch.Tensor, int]) -> list[int]:
    for p in d:
        d[p] = d[p] + 1
    return list(d.values())


def cleared(d: dict[torch.Tensor, int]) -> int:
    d.clear()
    return len(d)


@pytest.mark.parametrize("function", [looked_up, deleted, popped, stored, cleared])
def test_tensors_that_a_dict_gives_are_its_keys(function: Any) -> None:
    def program(x: torch.Tensor, d: dict[torch.Tensor, int]) -> Any:
        return x + 1, function(d)

    compiled = torchjit.compile(program, backend="eager", on_error="raise", fullgraph=True)
    for _ in range(2):
        keys = [torch.ones(2), torch.nn.Parameter(torch.ones(2))]
        mine, other = ({k: n for n, k in enumerate(keys)} for _ in range(2))
        assert compiled(torch.ones(2), mine)[1] == program(torch.ones(2), other)[1]
        assert list(map(id, mine)) == list(map(id, other)) and list(mine.values()) == list(other.values())


def test_state_of_an_optimizer_is_emptied_behind_a_break() -> None:
    def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
        optimizer.step()
        model(x).sum().backward()
        optimizer.state.clear()
        return x + 1

    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters())
    compiled = torchjit.compile(step, backend="eager", on_error="raise")
    model(torch.ones(4)).sum().backward()
    for _ in range(2):
        compiled(model, optimizer, torch.ones(4))
        assert not optimizer.state


def test_tuples_of_classes_and_objects_that_are_keys() -> None:
    """Parts of such a tuple are the class and the object themselves, whether the key is read or looked up."""
    part, weight = Plain(), torch.nn.Parameter(torch.ones(1))
    table: dict[Any, int] = {(Plain, 3): 2, (KNOWN, (int, "x")): 3, (part, 1): 5, (weight, "w"): 7}
    pairs = {(Plain, torch.sin), (int, torch.cos)}

    def f(x: Tensor) -> Any:
        found = [(k[0] is Plain, k[0] is part, k[0] is weight, v) for k, v in table.items()]
        found += [issubclass(bool, k[1][0]) for k in table if type(k[1]) is tuple]
        for cls, function in sorted(pairs, key=str):
            x = function(x) if issubclass(bool, cls) else x
        for k in table:
            x = x * k[0] if k[0] is weight else x
        return (
            x,
            found,
            table[Plain, 3],
            table[part, 1],
            table[weight, "w"],
            (Plain, 4) in table,
            (int, torch.sin) in pairs,
        )

    run = torchjit.compile(f, fullgraph=True, backend="eager")
    for _ in range(2):
        assert run(torch.ones(1)) == f(torch.ones(1))


def test_divergence_of_distributions_whose_formula_is_not_known_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """`kl_divergence` looks for its formula among pairs of classes, once."""
    monkeypatch.setattr(torch.distributions.kl, "_KL_MEMOIZE", {})
    normal = torch.distributions.Normal

    def f(x: Tensor) -> Tensor:
        return torch.distributions.kl_divergence(normal(x, 1.0), normal(0.0, 2.0))

    found = torchjit.compile(f, backend="eager")(torch.ones(3))
    torch.testing.assert_close(found, f(torch.ones(3)))
