"""What type checkers see of decorated functions and compiled modules: read by mypy in tools/check_types.sh, not run."""

from collections.abc import Callable
from typing import Any, assert_type

import torch

import torchjit


def halve(x: torch.Tensor, times: int = 1) -> torch.Tensor:
    return x / (2 * times)


@torchjit.compile
def plain(x: torch.Tensor, *, scale: float = 2.0) -> torch.Tensor:
    return x * scale


@torchjit.compile(backend="eager", fullgraph=True)
def with_arguments(x: torch.Tensor, name: str = "") -> tuple[torch.Tensor, str]:
    return x + 1, name


@torchjit.compile(backend="eager")
async def asynchronous(x: torch.Tensor) -> torch.Tensor:
    return x


class Layer(torch.nn.Module):
    width: int = 3

    @torchjit.compile(backend="eager")
    def scaled(self, x: torch.Tensor, by: float) -> torch.Tensor:
        return x * by

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.width


@torchjit.register_backend
def mine(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    return gm.forward


@torchjit.register_backend(name="other", tags=("debug",))
def other(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    return gm.forward


@torchjit.disable
def disabled(x: torch.Tensor) -> int:
    return len(x)


@torchjit.disable(reason="it prints")
def disabled_too(x: torch.Tensor) -> int:
    return len(x)


@torchjit.allow_in_graph
def allowed(x: torch.Tensor) -> torch.Tensor:
    return x


@torchjit.assume_constant_result
def constant(name: str) -> int:
    return len(name)


@torchjit.substitute_in_graph(halve)
def substitute(x: torch.Tensor, times: int = 1) -> torch.Tensor:
    return x


@torchjit.set_stance("force_eager")
def eagerly(x: torch.Tensor) -> int:
    return len(x)


@torchjit.config.patch(recompile_limit=2)
def patched(x: torch.Tensor) -> int:
    return len(x)


@torchjit.error_on_graph_break(True)
def strict(x: torch.Tensor) -> int:
    return len(x)


one = torch.ones(2)
assert_type(plain(one, scale=3.0), torch.Tensor)
assert_type(with_arguments(one, "name"), tuple[torch.Tensor, str])
assert_type(torchjit.compile(halve)(one, times=2), torch.Tensor)
assert_type(torchjit.compile(halve, backend="eager")(one), torch.Tensor)
assert_type(torchjit.compile(Layer()), Layer)
assert_type(torchjit.compile(dynamic=True, backend="eager")(Layer()).width, int)
assert_type(Layer().scaled(one, 2.0), torch.Tensor)
assert_type(disabled(one), int)
assert_type(disabled_too(one), int)
assert_type(torchjit.disable(Layer()), Layer)
assert_type(constant("name"), int)
assert_type(allowed(one), torch.Tensor)
assert_type(substitute(one, 2), torch.Tensor)
assert_type(eagerly(one), int)
assert_type(patched(one), int)
assert_type(strict(one), int)


async def awaits() -> None:
    assert_type(await asynchronous(one), torch.Tensor)


def mistakes() -> None:
    plain("wrong", 1)  # wrong
    with_arguments(one, 2)  # wrong
    Layer().scaled(one)  # wrong
    torchjit.compile(halve)(one, time=2)  # wrong
    torchjit.compile(Layer()).wide()  # wrong
    torchjit.compile(3)  # wrong
    torchjit.compile(halve, dynamc=True)  # wrong
    torchjit.compile(backend=3)  # wrong
    disabled_too("wrong")  # wrong
    substitute("wrong")  # wrong
    eagerly("wrong")  # wrong
    patched("wrong")  # wrong
    strict("wrong")  # wrong
    constant(1)  # wrong
    allowed("wrong")  # wrong
    mine(1, [one])  # wrong
    other(1, [one])  # wrong
