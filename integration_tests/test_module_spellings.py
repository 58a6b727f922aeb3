"""However the call of a compiled module is spelled, what binds alike to `forward`'s parameters is one specialisation."""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchjit

X = torch.linspace(-1, 1, 6).reshape(2, 3)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor, scale: float = 1.0, mask: Tensor | None = None, *, flip: bool = False) -> Tensor:
        y: Tensor = self.linear(x) * scale
        y = y if mask is None else y * mask
        return -y if flip else y


class Loose(nn.Module):
    def forward(self, x: Tensor, k: int = 2, *rest: Tensor, bias: float = 0.5, **named: Any) -> Any:
        return x * k + bias, sum(rest), tuple(named), tuple(named.values())


SAME: dict[str, Callable[[Any], Any]] = {
    "plain": lambda c: c(X),
    "all positional": lambda c: c(X, 1.0),
    "one keyword": lambda c: c(X, scale=1.0),
    "by name": lambda c: c(x=X),
    "in order": lambda c: c(x=X, scale=1.0),
    "out of order": lambda c: c(scale=1.0, x=X),
    "up to the end": lambda c: c(X, 1.0, None),
    "a hole": lambda c: c(X, mask=None),
    "keyword only": lambda c: c(X, flip=False),
    "everything": lambda c: c(flip=False, mask=None, x=X, scale=1.0),
}


def specialisations(compiled: Any) -> int:
    return len(compiled.compiled.specializations)


def compiled_by_method(module: nn.Module) -> Any:
    return torchjit.compile(module._call_impl, backend="eager", fullgraph=True)


def test_spellings_share_one_specialisation() -> None:
    module = Scaled()
    compiled = torchjit.compile(module, backend="eager", fullgraph=True)
    for name, call in SAME.items():
        torch.testing.assert_close(call(compiled), call(module), msg=name)
    assert specialisations(compiled) == 1


def test_values_other_than_defaults_share_too() -> None:
    module = Scaled()
    compiled = torchjit.compile(module, backend="eager", fullgraph=True)
    mask = X.abs()
    for call in (
        lambda c: c(X, 3.0, mask),
        lambda c: c(X, mask=mask, scale=3.0),
        lambda c: c(mask=mask, x=X, scale=3.0, flip=False),
    ):
        torch.testing.assert_close(call(compiled), call(module))
    assert specialisations(compiled) == 1
    for call in (lambda c: c(X, mask=mask, flip=True), lambda c: c(X, 1.0, mask, flip=True)):
        torch.testing.assert_close(call(compiled), call(module))
    assert specialisations(compiled) == 2


def test_where_torch_asks_for_the_method() -> None:
    """`module.compile()` compiles `_call_impl`."""
    module = Scaled()
    compiled = compiled_by_method(module)
    for call in SAME.values():
        torch.testing.assert_close(call(compiled), call(module))
    assert len(torchjit.compiler.compilation_of(compiled).specializations) == 1  # type: ignore[union-attr]


def test_rest_and_keywords_of_any_name_keep_their_places() -> None:
    module = Loose()
    compiled = torchjit.compile(module, backend="eager", fullgraph=True)
    for call in (
        lambda c: c(X, bias=0.5, k=2),
        lambda c: c(k=2, x=X),
        lambda c: c(X, 2, X, X),
        lambda c: c(X, 3, X, bias=1.5),
        lambda c: c(X, b=1, a=2),
        lambda c: c(b=1, x=X, bias=0.5, a=2),
        lambda c: c(X, a=2, b=1),
    ):
        found, wanted = call(compiled), call(module)
        torch.testing.assert_close(found[:2], wanted[:2])
        assert found[2:] == wanted[2:]
    # none, two of *rest, one of them with two other values, and two orders of **named
    assert specialisations(compiled) == 5


@pytest.mark.parametrize("with_kwargs", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_hooks_see_the_call_as_it_is_spelled(with_kwargs: bool, after: bool) -> None:
    seen: list[Any] = []

    def hook(module: nn.Module, args: Any, *more: Any) -> None:
        seen.append((len(args), sorted(more[0]) if with_kwargs else None))

    module = Scaled()
    compiled = torchjit.compile(module, backend="eager", recompile_limit=64)
    compiled(X, scale=1.0)
    (module.register_forward_hook if after else module.register_forward_pre_hook)(hook, with_kwargs=with_kwargs)
    for run in (module, compiled):
        for call in SAME.values():
            call(run)
    count = len(SAME)
    assert seen[:count] == seen[count:] and len(seen) == 2 * count


def test_global_hooks_see_the_call_as_it_is_spelled() -> None:
    module = Scaled()
    compiled = torchjit.compile(module, backend="eager")
    compiled(x=X)
    seen: list[int] = []
    handle = nn.modules.module.register_module_forward_pre_hook(lambda m, args: seen.append(len(args)))
    try:
        compiled(x=X)
        eager = len(seen)
        module(x=X)
    finally:
        handle.remove()
    assert seen[:eager] == seen[eager:]


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c(),
        lambda c: c(X, x=X),
        lambda c: c(X, 1.0, None, None),
        lambda c: c(X, sacle=1.0),
        lambda c: c(scale=1.0),
        lambda c: c(X, self=1),
    ],
)
def test_what_does_not_bind_raises_as_ever(call: Callable[[Any], Any]) -> None:
    module = Scaled()
    compiled = torchjit.compile(module, backend="eager")
    compiled(X)
    with pytest.raises(TypeError) as expected:
        call(module)
    with pytest.raises(TypeError) as found:
        call(compiled)
    assert str(found.value) == str(expected.value)
    torch.testing.assert_close(compiled(x=X), module(X))


def test_another_forward_is_noticed() -> None:
    module = Scaled()
    compiled = torchjit.compile(module, backend="eager")
    compiled(X, scale=1.0)
    module.forward = lambda *args, **kwargs: (len(args), sorted(kwargs))  # type: ignore[method-assign,assignment]
    assert compiled(X, scale=1.0) == (1, ["scale"])
    del module.forward
    torch.testing.assert_close(compiled(X, scale=1.0), module(X))

    class Changing(nn.Module):
        def forward(self, x: Tensor, a: float = 1.0, b: float = 2.0) -> Tensor:
            return x * a + b

    changing = torchjit.compile(Changing(), backend="eager")
    torch.testing.assert_close(changing(X, b=3.0), X + 3)

    def swapped(self: nn.Module, x: Tensor, b: float = 2.0, a: float = 1.0) -> Tensor:
        return x * a + b

    Changing.forward = swapped  # type: ignore[method-assign,assignment]
    torch.testing.assert_close(changing(X, b=3.0), X + 3)
    swapped.__defaults__ = (7.0, 5.0)
    torch.testing.assert_close(changing(X), X * 5 + 7)
    torch.testing.assert_close(changing(X, 2.0), X * 5 + 2)


def test_defaults_are_told_from_what_only_equals_them() -> None:
    class Typed(nn.Module):
        def forward(self, x: Tensor, k: Any = 1.0, z: float = 0.0) -> Any:
            return x * k, type(k).__name__, str(z)

    module = Typed()
    compiled = torchjit.compile(module, backend="eager")
    for k in (1.0, 1, True):
        for z in (0.0, -0.0):
            assert compiled(X, k, z=z)[1:] == module(X, k, z)[1:]
