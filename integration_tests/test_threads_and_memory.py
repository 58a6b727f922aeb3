"""Compiled callables in threads and coroutines; what is compiled dies with what it was made for."""

# mypy: allow-untyped-calls, no-warn-return-any

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torchjit

pytestmark = pytest.mark.usefixtures("older_objects_rest")


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Run `work(i)` in so many threads that start at the same moment; their results, or the first error."""
    barrier = threading.Barrier(count)
    results: list[Any] = [None] * count
    errors: list[BaseException] = []

    def run(i: int) -> None:
        barrier.wait()
        try:
            results[i] = work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "deadlock"
    if errors:
        raise errors[0]
    return results


@pytest.fixture
def eager_to_switch() -> Any:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_16_threads_compile_one_function_once(eager_to_switch: None) -> None:
    compiled = []

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        compiled.append(threading.get_ident())
        return gm.forward

    @torchjit.compile(backend=backend)
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).relu() + 1

    xs = [torch.full((4,), float(i)) for i in range(16)]
    for i, out in enumerate(together(16, lambda i: [f(xs[i]) for _ in range(20)])):
        assert all(torch.equal(o, xs[i] * 2 + 1) for o in out)
    assert len(compiled) == 1


def test_threads_compile_and_call_many_functions(eager_to_switch: None) -> None:
    """Each thread has its own function, its own shapes, grad mode and dtype, and all call a shared one too."""
    shared = torchjit.compile(lambda x: x.sin() + x.requires_grad, backend="eager", recompile_limit=100)

    def work(i: int) -> list[torch.Tensor]:
        f = torchjit.compile(lambda x: x * i + torch.is_grad_enabled(), backend="aot_eager")
        out = []
        for n in range(3):
            x = torch.ones(n + 2, i + 2, requires_grad=bool(i % 2))
            with torch.set_grad_enabled(i % 3 == 0):
                out += [f(x), shared(x)]
        return out

    for i, out in enumerate(together(16, work)):
        for n in range(3):
            x = torch.ones(n + 2, i + 2)
            assert torch.equal(out[2 * n], x * i + (i % 3 == 0))
            assert torch.equal(out[2 * n + 1], x.sin() + i % 2)


def test_threads_with_breaks_and_backward(eager_to_switch: None) -> None:
    """Breaks switch the frame hook on in one thread; backwards run in autograd's own threads."""
    model = torchjit.compile(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), backend="aot_eager")

    @torchjit.compile(backend="aot_eager")
    def f(x: torch.Tensor) -> torch.Tensor:
        y = model(x)
        torchjit.graph_break()
        return (y * 2).sum()

    def work(i: int) -> torch.Tensor:
        x = torch.full((2, 4), float(i), requires_grad=True)
        for _ in range(3):
            x.grad = None
            f(x).backward()
        assert x.grad is not None
        return x.grad

    grads = together(8, work)
    for i, grad in enumerate(grads):
        x = torch.full((2, 4), float(i), requires_grad=True)
        (model._torchjit_original(x) * 2).sum().backward()
        torch.testing.assert_close(grad, x.grad)


def test_reset_while_others_call(eager_to_switch: None) -> None:
    @torchjit.compile(backend="eager")
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.cos() + 1

    x = torch.ones(3)

    def work(i: int) -> Any:
        for _ in range(20):
            if i == 0:
                torchjit.reset()
            assert torch.equal(f(x), x.cos() + 1)

    together(6, work)


def test_asyncio() -> None:
    """Coroutines that wait inside a graph break: no eager flag, grad mode or hook leaks into another one."""

    @torchjit.compile(backend="eager")
    def step(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        torchjit.graph_break()
        return y + torch.is_grad_enabled()

    async def work(i: int) -> list[float]:
        x, found = torch.full((2,), float(i)), []
        for _ in range(5):
            with torch.set_grad_enabled(i % 2 == 0):
                found.append(step(x)[0].item())
            await asyncio.sleep(0)
        return found

    async def main() -> list[list[float]]:
        return await asyncio.gather(*(work(i) for i in range(10)))

    assert asyncio.run(main()) == [[2.0 * i + (i % 2 == 0)] * 5 for i in range(10)]


def test_a_compiled_coroutine_function() -> None:
    """It cannot be captured: it runs as it is, and says so once."""

    @torchjit.compile(backend="eager")
    async def f(x: torch.Tensor) -> torch.Tensor:
        await asyncio.sleep(0)
        return x * 2 + torch.is_grad_enabled()

    async def main() -> Any:
        return await asyncio.gather(*(f(torch.full((1,), float(i))) for i in range(4)))

    with torchjit.config.patch(on_error="eager"), pytest.warns(RuntimeWarning, match="coroutine"):
        assert [t.item() for t in asyncio.run(main())] == [1.0, 3.0, 5.0, 7.0]
    assert [t.item() for t in asyncio.run(main())] == [1.0, 3.0, 5.0, 7.0]


# ---------------------------------------------------------------------- memory
def alive(ref: Callable[[], Any]) -> bool:
    gc.collect()
    return ref() is not None


def test_a_deleted_model_dies() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU())
    fast = torchjit.compile(model, backend="aot_eager")
    fast(torch.ones(2, 4)).sum().backward()
    module, weight = weakref.ref(model), weakref.ref(model[0].weight)
    del model, fast
    assert not alive(module)
    assert not alive(weight)


def test_a_compiled_function_dies_with_what_it_closes_over() -> None:
    def make() -> tuple[Any, Any]:
        model = nn.Linear(4, 4)

        @torchjit.compile(backend="eager")
        def f(x: torch.Tensor) -> torch.Tensor:
            y = model(x)
            torchjit.graph_break()
            return y + 1

        f(torch.ones(2, 4))
        return weakref.ref(model), weakref.ref(f.__wrapped__)

    for ref in make():
        assert not alive(ref)


def test_inputs_do_not_stay() -> None:
    @torchjit.compile(backend="aot_eager")
    def f(x: torch.Tensor, model: Any) -> torch.Tensor:
        return model(x) + 1

    x, model = torch.ones(2, 4), nn.Linear(4, 4)
    f(x, model)
    kept = weakref.ref(x), weakref.ref(model)
    del x, model
    assert [alive(ref) for ref in kept] == [False, False]


def test_an_id_that_is_used_again_is_not_the_old_object() -> None:
    class Config:
        def __init__(self, scale: float) -> None:
            self.scale = scale

    @torchjit.compile(backend="eager", recompile_limit=100)
    def f(x: torch.Tensor, config: Config) -> torch.Tensor:
        return x * config.scale

    x = torch.ones(2)
    for i in range(30):
        assert f(x, Config(float(i % 7)))[0].item() == i % 7


def blocks_per_round(rounds: int, work: Callable[[], None]) -> float:
    """Allocated blocks that each round adds, after a warm-up."""
    for _ in range(5):
        work()
    gc.collect()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(rounds):
        work()
    gc.collect()
    gc.collect()  # what the finalizers of the first one let go
    return (sys.getallocatedblocks() - before) / rounds


@pytest.mark.parametrize("rounds", [25, pytest.param(10_000, marks=pytest.mark.slow)])
def test_memory_does_not_grow_with_compilations(rounds: int) -> None:
    """New functions, guards, a break with its continuation, and `reset`."""
    x = torch.ones(2, 3)

    def work() -> None:
        weight = torch.ones(3)

        @torchjit.compile(backend="eager")
        def f(x: torch.Tensor) -> torch.Tensor:
            y = x * weight
            torchjit.graph_break()
            return y + 1

        f(x)
        torchjit.reset()

    assert blocks_per_round(rounds, work) < 5


@pytest.mark.parametrize("rounds", [25, pytest.param(10_000, marks=pytest.mark.slow)])
def test_memory_does_not_grow_with_resets_of_one_function(rounds: int) -> None:
    x = torch.ones(2, 3)

    @torchjit.compile(backend="eager")
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).relu()

    def work() -> None:
        f(x)
        torchjit.reset()

    assert blocks_per_round(rounds, work) < 5
