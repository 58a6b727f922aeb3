"""Kernels that are put off to become part of a later one: programs for GPUs that need not exist, evaluated, against eager."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_map_only

from torchjit_inductor.ir.evaluate import evaluate_kernel
from torchjit_inductor.lowering.graph import lower_graph
from torchjit_inductor.schedule.cleanup import remove_dead_stores
from torchjit_inductor.schedule.fuse import fuse
from torchjit_inductor.schedule.updates import combine_small
from torchjit_inductor.steps import ExternStep, KernelStep, Program, TensorRef, memory_of

aten = torch.ops.aten
Function = Callable[..., Any]


def program_of(function: Function, inputs: Sequence[torch.Tensor]) -> Program:
    with FakeTensorMode():
        gm = make_fx(function)(*(torch.empty(x.shape, dtype=x.dtype, device="cuda") for x in inputs))
    program = lower_graph(gm, "graph")
    return remove_dead_stores(fuse(program, {}))


def run(program: Program, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The results: kernels by the evaluator of the loop IR, operators as they are, new memory full of garbage."""
    memory = {n: torch.full((b.span.evaluate({}),), 77).to(b.dtype) for n, b in program.buffers.items()}
    memory |= {str(n): x.clone().flatten() for n, x in zip(program.inputs, inputs, strict=True)}

    def tensor(ref: TensorRef) -> torch.Tensor:
        sizes, strides = ([e.evaluate({}) for e in part] for part in (ref.sizes, ref.strides))
        return torch.as_strided(memory[ref.buffer], sizes, strides, ref.offset.evaluate({}))

    for step in program.steps:
        if isinstance(step, KernelStep):
            evaluate_kernel(step.kernel, memory)
        else:
            made = step.op(*tree_map_only(TensorRef, tensor, step.args), **step.kwargs)
            memory[str(step.outputs[0])] = made.contiguous().flatten()
    return [tensor(ref) for ref in program.outputs]


def steps_of(function: Function, *inputs: torch.Tensor) -> list[str]:
    """The program computes what eager does; its steps: names of operators, and how many buffers a kernel writes."""
    program = program_of(function, inputs)
    for got, want in zip(run(program, inputs), function(*inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    return [s.op.__name__ if isinstance(s, ExternStep) else f"kernel of {len(s.writes)}" for s in program.steps]


def square(seed: int, n: int = 16) -> torch.Tensor:
    return torch.randn(n, n, generator=torch.Generator().manual_seed(seed))


def gated(g: torch.Tensor, u: torch.Tensor, dy: torch.Tensor, w: torch.Tensor, z: torch.Tensor) -> Any:
    """The backward of a gated layer, as its graph is built: what is computed again, the weight's gradient, the operand's."""
    loss = (z @ z).sum()  # where most memory is in use
    a = F.silu(g) * u
    dw = dy.t() @ a
    da = dy @ w
    return loss, dw, da * F.silu(g), torch.ops.aten.silu_backward(da * u, g)


def test_values_computed_again_wait_for_the_kernel_that_reads_the_same() -> None:
    inputs = [*(square(k) for k in range(4)), square(4, 40)]
    # The product for the weight comes last: nobody waits for it.
    assert steps_of(gated, *inputs) == ["mm.default", "kernel of 1", "mm.default", "kernel of 3", "mm.default"]
    # Without that memory the operands of the first product would have to live for longer than there is memory.
    inputs[-1] = square(4, 4)
    assert steps_of(gated, *inputs)[-4:] == ["kernel of 1", "mm.default", "mm.default", "kernel of 2"]


def test_a_norm_computed_again_is_part_of_its_backward() -> None:
    def function(x: torch.Tensor, mean: torch.Tensor, dy: torch.Tensor, w: torch.Tensor) -> Any:
        inverse = torch.rsqrt(mean + 1e-5)
        y = x * inverse
        dw = dy.t() @ y
        d = dy @ w
        return dw, d * inverse - x * (d * y).sum(1, keepdim=True)

    inputs = [square(0), square(1)[:, :1].abs().contiguous(), square(2), square(3)]
    assert steps_of(function, *inputs) == ["mm.default", "kernel of 2", "mm.default"]


def test_what_a_kernel_waits_for_is_not_put_off() -> None:
    def function(g: torch.Tensor, dy: torch.Tensor) -> Any:
        a = g.exp().sin().cos()
        da = dy @ a  # reads the first kernel's result, and the second reads this
        return a, da * g.exp().sin()

    assert len(steps_of(function, square(0), square(1))) == 3


def test_random_numbers_keep_their_turn() -> None:
    def function(g: torch.Tensor, dy: torch.Tensor, w: torch.Tensor) -> Any:
        a = g.exp().sin().cos()
        noise = aten.bernoulli.p(a, 0.5)
        da = dy @ w
        return noise, da * a

    program = program_of(function, [square(k) for k in range(3)])
    assert [type(s) for s in program.steps] == [KernelStep, ExternStep, ExternStep, KernelStep]


def test_memory_stays_within_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(*inputs: torch.Tensor) -> Any:
        # Operands of the products for weights, which would live until the last product is done.
        g, dy, w, *more = inputs
        a = g.exp().sin().cos()
        parts = [(x * 2).sin() @ a for x in more]
        return *parts, (dy @ w) * a

    inputs = [square(k) for k in range(7)]
    assert len(steps_of(function, *inputs)) < len(_without(monkeypatch, function, inputs))

    def large(*inputs: torch.Tensor) -> Any:
        return *function(*inputs)[:-1], function(*inputs)[-1].mean(0)

    peaks = [max(_in_use(p)) for p in (program_of(large, inputs), _plain(monkeypatch, large, inputs))]
    assert peaks[0] <= peaks[1]


def _plain(monkeypatch: pytest.MonkeyPatch, function: Function, inputs: Sequence[torch.Tensor]) -> Program:
    with monkeypatch.context() as patch:
        patch.setattr("torchjit_inductor.schedule.fuse.fuse_delayed", lambda program, *_: program)
        return program_of(function, inputs)


def _without(monkeypatch: pytest.MonkeyPatch, function: Function, inputs: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    return _plain(monkeypatch, function, inputs).steps


def _in_use(program: Program) -> list[int]:
    """Bytes of all buffers from their first to their last use."""
    uses: dict[str, list[int]] = {}
    for position, step in enumerate(program.steps):
        for name in (*step.reads, *step.writes):
            uses.setdefault(name, []).append(position)
    kept = {o.buffer for o in program.outputs}
    total = [0] * len(program.steps)
    for name, at in uses.items():
        buffer = program.buffers[name]
        first = at[0] if any(name in s.writes for s in program.steps) else 0
        for position in range(first, len(total) if name in kept else at[-1] + 1):
            total[position] += buffer.span.evaluate({}) * buffer.dtype.itemsize
    return total


@pytest.mark.parametrize("seed", range(6))
def test_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products, formulas, sums of rows and small kernels in any order: the results, and the memory in use."""
    rng = random.Random(seed)
    plan = [
        (rng.choice(["mm", "mul", "sin", "norm", "turn", "roll", "small"]), rng.random(), rng.random())
        for _ in range(10)
    ]
    wanted = [rng.random() < 0.4 for _ in plan]

    def function(*inputs: torch.Tensor) -> Any:
        values = list(inputs)
        for kind, one, other in plan:
            a, b = values[int(one * len(values))], values[int(other * len(values))]
            made = {
                "mm": lambda a, b: a @ b / 8,
                "mul": lambda a, b: (a * b).tanh(),
                "sin": lambda a, b: a.sin() + b,
                "norm": lambda a, b: a / (1 + a.abs().sum(1, keepdim=True)) + b,
                "turn": lambda a, b: a.view(2, 4, 2, 4).transpose(1, 2).reshape(8, 8) * b,
                "roll": lambda a, b: a.roll((3, -2), (0, 1)) + b,
                "small": lambda a, b: a * b.cos()[:1].exp().sin(),
            }[kind](a, b)
            values.append(made)
        return [v + 0 for v, keep in zip(values[len(inputs) :], wanted, strict=True) if keep] or [values[-1] + 0]

    inputs = [square(k, 8) for k in range(3)]
    program = program_of(function, inputs)
    assert max(_in_use(program)) <= max(_in_use(_plain(monkeypatch, function, inputs)))
    for made in (program, combine_small(program, {})):
        for got, want in zip(run(made, inputs), function(*inputs), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_names_of_memory_that_is_shared() -> None:
    def step(reads: tuple[str, ...], writes: str, aliases: tuple[str, ...]) -> Any:
        return ExternStep(aten.view.default, (), {}, (writes,), True, reads, (), aliases, None)  # type: ignore[arg-type]

    found = memory_of([step(("a", "x"), "b", ("a",)), step(("c",), "d", ("c",)), step(("b", "d"), "e", ("b", "d"))])
    assert found == {"b": {"a", "b"}, "d": {"c", "d"}, "e": {"a", "b", "c", "d", "e"}}
