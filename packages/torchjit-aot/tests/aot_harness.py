"""Runs a function eagerly and compiled, and compares everything that a user can see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

import torchjit_aot
from torchjit_aot import AotSettings

STRICT = AotSettings(fallback=False)


def graph_of(f: Callable[..., Any], count: int) -> fx.GraphModule:
    """A graph that calls `f`."""
    graph = fx.Graph()
    inputs = [graph.placeholder(f"arg{i}") for i in range(count)]
    graph.output(graph.call_function(f, tuple(inputs)))
    return fx.GraphModule({}, graph)


def _shared(args: Sequence[Any]) -> dict[int, torch.Tensor]:
    """For arguments of one storage, none of which requires grad: copies on one storage, with one version counter."""
    groups: dict[int, list[int]] = {}
    for i, arg in enumerate(args):
        if isinstance(arg, torch.Tensor) and not arg.requires_grad:
            groups.setdefault(arg.untyped_storage()._cdata, []).append(i)
    made: dict[int, torch.Tensor] = {}
    for members in groups.values():
        if len(members) > 1:
            first = args[members[0]]
            flat = torch.empty(0, dtype=first.dtype).set_(first.untyped_storage().clone())
            for i in members:
                made[i] = flat.as_strided(args[i].shape, args[i].stride(), args[i].storage_offset())
    return made


def fresh(args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Copies of the arguments, and the leaves behind them. A non-leaf stays a non-leaf, what shares memory shares it."""
    made: list[Any] = []
    leaves: list[Any] = []
    shared = _shared(args)
    for i, arg in enumerate(args):
        if i in shared:
            made.append(shared[i])
            leaves.append(shared[i])
            continue
        if not isinstance(arg, torch.Tensor):
            made.append(arg)
            leaves.append(None)
            continue
        leaf = torch.empty_strided(arg.size(), arg.stride(), dtype=arg.dtype).copy_(arg.detach())
        leaf.requires_grad_(arg.requires_grad)
        leaves.append(leaf)
        made.append(leaf if arg.is_leaf else leaf.clone(memory_format=torch.preserve_format))
    return made, leaves


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in nested containers."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [t for item in value for t in tensors(item)]
    return []


def relations(outputs: Sequence[torch.Tensor], inputs: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Which outputs are inputs, and which tensors share storage."""
    everything = [*(i for i in inputs if isinstance(i, torch.Tensor)), *outputs]
    found = []
    for k, out in enumerate(outputs):
        same = tuple(i for i, t in enumerate(everything) if t is out)
        shared = tuple(
            i for i, t in enumerate(everything) if t.untyped_storage()._cdata == out.untyped_storage()._cdata
        )
        found.append((k, same, shared, out.requires_grad, out.is_leaf, out.dtype, tuple(out.shape), out.stride()))
    return found


def loss_of(outputs: Sequence[torch.Tensor], only: int | None = None) -> torch.Tensor | None:
    """A scalar that gives each output an uneven gradient, or only one of those that take any."""
    total = None
    asked = [k for k, out in enumerate(outputs) if out.requires_grad]
    for k, out in enumerate(outputs):
        if out.requires_grad and (only is None or k == asked[only % len(asked)]):
            weight = torch.linspace(0.5, 1.5 + k, out.numel()).reshape(out.shape).to(out.dtype)
            term = (out * weight).sum()
            if term.is_complex():
                term = term.abs()
            total = term if total is None else total + term
    return total


def assert_same(a: Any, b: Any, *, exact: bool = True) -> None:
    """Equal values; gradients may differ by rounding (`exact=False`)."""
    if a is None or b is None:
        assert a is None and b is None, f"{a} against {b}"
        return
    options: dict[str, Any] = {"rtol": 0, "atol": 0} if exact else {}
    torch.testing.assert_close(b, a, equal_nan=True, check_stride=False, **options)


def run_both(
    f: Callable[..., Any],
    args: Sequence[Any],
    *,
    calls: int = 2,
    settings: AotSettings = STRICT,
    compiler: Any = torchjit_aot.run_eagerly,
    exact: bool = True,
    relate: bool = True,
) -> Callable[..., Any]:
    """Compile for `args`, then compare `calls` calls with eager ones: outputs, aliasing, gradients, mutations, versions,

    and where the random generator stands. In further calls only one of several outputs gets a gradient.
    """
    example, _ = fresh(args)
    compiled = torchjit_aot.compile(graph_of(f, len(args)), example, compiler=compiler, settings=settings)
    asked = 0
    for seed in range(calls + 3):
        if seed >= calls + asked:
            break
        observed = []
        for run in (f, compiled):
            mine, leaves = fresh(args)
            versions = [t._version if isinstance(t, torch.Tensor) else None for t in mine]
            torch.manual_seed(seed)
            result = run(*mine)
            outputs = tensors(result)
            moved = [t._version != v for t, v in zip(mine, versions, strict=True) if isinstance(t, torch.Tensor)]
            related = relations(outputs, mine)
            values = [t.detach().clone() for t in outputs]
            asked = sum(out.requires_grad for out in outputs) if len(outputs) > 1 else 0
            loss = loss_of(outputs, None if seed < calls else seed - calls)
            if loss is not None:
                loss.backward()  # type: ignore[no-untyped-call]
            grads = [leaf.grad if leaf is not None else None for leaf in leaves]
            state = torch.random.get_rng_state()
            mutated = [t.detach().clone() if isinstance(t, torch.Tensor) else None for t in mine]
            observed.append((result, values, related, moved, grads, mutated, state))
        want, have = observed
        assert type(want[0]) is type(have[0])
        for a, b in zip(want[1], have[1], strict=True):
            assert_same(a, b, exact=exact)
        if relate:
            assert want[2] == have[2]
        assert want[3] == have[3], "version counters"
        for a, b in zip(want[4], have[4], strict=True):  # type: ignore[assignment]
            assert_same(a, b, exact=False)
        for a, b in zip(want[5], have[5], strict=True):  # type: ignore[assignment]
            assert_same(a, b, exact=exact)
        assert torch.equal(want[6], have[6]), "the random generator stands elsewhere"
    return compiled
