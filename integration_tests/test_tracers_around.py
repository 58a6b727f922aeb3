"""Another tracer, or a mode of the program, around compiled code sees plain operations, however warm that code is."""

# mypy: allow-untyped-calls

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import torchjit
from torchjit_guards import native_reads

X = torch.linspace(-1, 1, 9).reshape(3, 3)
Y = X.exp()


def f(x: Tensor) -> Tensor:
    return (x @ x).sin() * 2


class Outer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        inner = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
        self.inner = torchjit.compile(inner, backend="aot_eager")
        self.last = torch.nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(self.inner(x))
        return result


def compiled_f(*, warm: bool) -> Callable[[Tensor], Tensor]:
    run: Callable[[Tensor], Tensor] = torchjit.compile(f, backend="aot_eager")
    if warm:
        run(X)
        run(X.clone().requires_grad_())
    return run


def outer(*, warm: bool) -> Outer:
    module = Outer().eval()
    if warm:
        module(X)
        with torch.no_grad():
            module(X)
    return module


def jit_traced(function: Callable[..., Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        return torch.jit.trace(function, X, check_trace=False)


def exported(function: Callable[..., Any]) -> Any:
    class Whole(torch.nn.Module):
        def forward(self, x: Tensor) -> Any:
            return function(x)

    return torch.export.export(Whole(), (X,)).module()


def made_fx(function: Callable[..., Any]) -> Any:
    return make_fx(function)(X)


TRACERS = pytest.mark.parametrize("trace", [jit_traced, made_fx, torch.fx.symbolic_trace, exported])
WARM = pytest.mark.parametrize("warm", [False, True])


@TRACERS
@WARM
def test_a_trace_over_a_compiled_function_holds_its_operations(trace: Callable[..., Any], warm: bool) -> None:
    run = compiled_f(warm=warm)
    traced = trace(lambda x: run(x) + x)
    torch.testing.assert_close(traced(Y), f(Y) + Y)
    torch.testing.assert_close(run(Y), f(Y))
    assert len(run.compiled.stats.regions) == (2 if warm else 1)  # type: ignore[attr-defined]


@pytest.mark.parametrize("trace", [jit_traced, torch.fx.symbolic_trace])
@pytest.mark.parametrize("grad", [False, True])
def test_a_trace_over_a_module_with_a_compiled_part(trace: Callable[..., Any], grad: bool) -> None:
    module = outer(warm=True)
    with torch.set_grad_enabled(grad):
        torch.testing.assert_close(trace(module)(Y), module(Y))


def test_export_of_a_module_with_a_compiled_part() -> None:
    module = outer(warm=True)
    torch.testing.assert_close(torch.export.export(module, (X,)).module()(Y), module(Y))


class Calls(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", [Calls, Operators])
@WARM
def test_modes_of_the_program_see_each_operation(kind: Any, warm: bool) -> None:
    seen = []
    for function in (f, compiled_f(warm=warm)):
        with kind() as mode:
            function(X)
        seen.append(mode.names)
    assert seen[0] == seen[1] and len(seen[0]) == 3


@WARM
def test_operations_are_counted_and_faked(warm: bool) -> None:
    run = compiled_f(warm=warm)
    with FlopCounterMode(display=False) as counted:
        run(X)
    assert counted.get_total_flops() == 2 * 3 * 3 * 3
    with FakeTensorMode() as mode:
        assert type(run(mode.from_tensor(X))).__name__ == "FakeTensor"


def test_randomness_under_vmap() -> None:
    """The input does not show that vmap is at work: it is not mapped over."""

    def noisy(x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x, 0.5, training=True)

    run = torchjit.compile(noisy, backend="aot_eager")
    ones = torch.ones(1000)
    run(ones)

    def mapped(randomness: str) -> Tensor:
        result: Tensor = torch.vmap(lambda i: run(ones) + i, randomness=randomness)(torch.zeros(2))
        return result

    different = mapped("different")
    assert not torch.equal(different[0], different[1])
    with pytest.raises(RuntimeError, match="random operation"):
        mapped("error")


@WARM
def test_transformations_of_functions(warm: bool) -> None:
    run = compiled_f(warm=warm)
    for function in (torch.func.jacrev, torch.func.jacfwd, torch.func.hessian):
        torch.testing.assert_close(function(run)(X), function(f)(X))
    tangents = (torch.ones_like(X),)
    torch.testing.assert_close(torch.func.jvp(run, (X,), tangents), torch.func.jvp(f, (X,), tangents))


@pytest.mark.parametrize("read", [native_reads.is_jit_tracing, native_reads.is_functorch_active])
def test_the_states_are_read_without_python(read: Callable[[], bool]) -> None:
    assert native_reads.native_read(read, False) is not None
