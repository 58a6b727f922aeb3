"""What a first call was given goes when the program lets go of it; code objects go with their functions."""

# mypy: allow-untyped-calls, no-warn-return-any

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import torchjit

pytestmark = pytest.mark.usefixtures("older_objects_rest")

weight = torch.nn.Linear(3, 3)


def broken(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    print(end="")
    return y * 2


def branches(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.sum() > 0 else x


def with_lambdas(x: torch.Tensor) -> list[torch.Tensor]:
    return [f(x) for f in [lambda k, i=i: k * i for i in range(3)]]


def rows(x: torch.Tensor) -> Any:
    for i in range(3):
        yield x * i


def with_generator(x: torch.Tensor) -> torch.Tensor:
    return sum(rows(x), start=torch.zeros(3))


def left_generator(x: torch.Tensor) -> torch.Tensor:
    for row in rows(x):
        return row + 1
    return x


def generator_over_break(x: torch.Tensor) -> list[torch.Tensor]:
    out = []
    for row in rows(x):
        print(end="")
        out.append(row + 1)
    return out


def raising(x: torch.Tensor) -> torch.Tensor:
    def inner(y: torch.Tensor) -> torch.Tensor:
        raise ValueError(y)

    return inner(x * 2)


def raising_after_break(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    print(end="")
    return y @ torch.ones(5)


def caught(x: torch.Tensor) -> torch.Tensor:
    try:
        return x @ torch.ones(5)
    except RuntimeError:
        return x + 1


def caught_below(x: torch.Tensor) -> torch.Tensor:
    return caught(x) * 2


def raising_from(x: torch.Tensor) -> torch.Tensor:
    try:
        return x @ torch.ones(5)
    except RuntimeError as error:
        raise ValueError(3) from error


def raised_below(x: torch.Tensor) -> torch.Tensor:
    def inner(y: torch.Tensor) -> torch.Tensor:
        try:
            print(end="")
            int("q")
        except TypeError:
            y = y + 1
        return y

    return inner(x) * 2


def backward_inside(x: torch.Tensor) -> torch.Tensor | None:
    w = torch.ones(3, requires_grad=True)
    with torch.enable_grad():
        (w * x.detach()).sum().backward()
    return w.grad


def writing(x: torch.Tensor) -> torch.Tensor:
    x.detach().add_(1)
    return x * 2


def writing_around_break(x: torch.Tensor) -> torch.Tensor:
    x.detach()[0] = 5
    print(end="")
    return x + 1


def several(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x * 2, (x + 1).sum(), weight(x)


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "plain": lambda x: x * 2 + 1, "break": broken, "branch": branches, "lambdas": with_lambdas,
    "module": lambda x: weight(x), "view": lambda x: x.view(-1)[1:], "array": lambda x: torch.from_numpy(x.detach().numpy() * 2),
    "generator": with_generator, "left generator": left_generator, "generator over break": generator_over_break,
    "raising": raising, "raising after break": raising_after_break, "caught": caught, "caught below": caught_below,
    "raising from": raising_from, "raised below": raised_below, "backward inside": backward_inside, "writing": writing,
    "writing around break": writing_around_break, "several": several,
}  # fmt: skip


def failing(gm: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    raise RuntimeError("this backend fails")


def outlives(function: Callable[[torch.Tensor], Any], train: bool) -> bool:
    """Is what a function was given still there once the caller has let go of it?"""
    x = torch.ones(3, requires_grad=train)
    reference = weakref.ref(x)
    with contextlib.suppress(ValueError, RuntimeError), torch.set_grad_enabled(train):
        result = function(x)
        if isinstance(result, torch.Tensor) and result.requires_grad:
            result.sum().backward()
        del result
    del x
    return reference() is not None


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", failing])
@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.usefixtures("no_collector")
def test_inputs_of_a_first_call_go_at_once(backend: Any, train: bool) -> None:
    kept = [torchjit.compile(p, backend=backend, on_error="eager") for p in PROGRAMS.values()]
    late = [name for name, compiled in zip(PROGRAMS, kept, strict=True) if outlives(compiled, train)]
    assert late == []


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.usefixtures("no_collector")
def test_inputs_of_compiled_graphs_go_at_once(train: bool) -> None:
    names = ["several", "writing", "generator over break", "raising after break"]
    kept = [torchjit.compile(PROGRAMS[name]) for name in names]
    assert [name for name, compiled in zip(names, kept, strict=True) if outlives(compiled, train)] == []


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        print(end="")
        return y + 1


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_parameters_go_with_their_model(backend: str) -> None:
    references = []
    of_argument = torchjit.compile(lambda model, x: model(x), backend=backend)
    for start in (
        lambda model: torchjit.compile(model, backend=backend),
        lambda model: torchjit.compile(lambda x: model(x), backend=backend),
        lambda model: torchjit.compile(model.forward, backend=backend),
        lambda model: lambda x: of_argument(model, x),
    ):
        model = Block()
        references.append(weakref.ref(model.linear.weight))
        compiled = start(model)
        compiled(torch.ones(2, 3)).sum().backward()
        del model, compiled
    gc.collect()
    assert [r() is None for r in references] == [True] * 4


class Straight(torch.nn.Module):
    """One graph, and no break."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("scale", torch.full((3,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu() * self.scale


class Holder(Straight):
    """Holds what was compiled of it."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = [torchjit.compile(self, backend="eager")]


def _uses(compiled: Any) -> None:
    compiled(torch.ones(2, 3)).sum().backward()
    with torch.no_grad():
        compiled(torch.ones(4, 3))


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("make", [Straight, Block])
def test_a_module_goes_with_what_was_compiled_of_it(make: Callable[[], Any], backend: str) -> None:
    """Also without a collection: never called, called, hooked, compiled twice."""
    for prepare in (
        lambda compiled: None,
        _uses,
        lambda compiled: (compiled.register_forward_hook(lambda *_: None), _uses(compiled)),
        lambda compiled: _uses(torchjit.compile(compiled, backend=backend)),
    ):
        module = make()
        compiled = torchjit.compile(module, backend=backend)
        prepare(compiled)
        references = [weakref.ref(module), *map(weakref.ref, module.state_dict(keep_vars=True).values())]
        del compiled
        assert references[0]() is module
        del module
        assert [r() is None for r in references] == [True] * len(references)


@pytest.mark.usefixtures("no_collector")
def test_a_module_stays_with_what_was_compiled_of_it() -> None:
    module = Straight()
    compiled = torchjit.compile(module, backend="eager")
    reference = weakref.ref(module)
    del module
    torchjit.compile(compiled, backend="eager")  # and another is dropped
    made = type(torchjit.compile(Straight(), backend="eager"))()  # the class outlives its instance
    assert type(made) is Straight and made(torch.ones(1, 3)).shape == (1, 3)
    assert compiled(torch.ones(1, 3)).shape == (1, 3)
    assert reference() is compiled._orig_mod


def test_a_module_that_holds_what_was_compiled_of_it_goes_with_a_collection() -> None:
    module = Holder()
    module.kept[0](torch.ones(2, 3))
    references = [weakref.ref(module), weakref.ref(module.linear.weight)]
    del module
    gc.collect()
    assert [r() is None for r in references] == [True, True]


def test_code_objects_go_with_their_functions() -> None:
    references = []
    for number in range(5):
        names: dict[str, Any] = {}
        exec(f"def f(x):\n  g = lambda z: z + {number}\n  print(end='')\n  return g(x * {number})", names)
        references.append(weakref.ref(names["f"].__code__))
        torchjit.compile(names["f"], backend="eager")(torch.ones(2))
    del names
    torchjit.reset()
    gc.collect()
    gc.collect()
    assert [r() for r in references] == [None] * 5
