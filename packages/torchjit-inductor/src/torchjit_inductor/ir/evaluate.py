"""The executable meaning of a kernel: run it with torch on whole index grids.

Slow and obvious; generated code is tested against it. Values become tensors of shape (outer points, inner points).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torchjit_core.expr import Expr, Operation, Symbol
from torchjit_inductor.ir.kernel import LoopKernel, LoopVar, Store, iterations
from torchjit_inductor.ir.operations import OPERATIONS
from torchjit_inductor.ir.values import DOTS, BoundData, Value

__all__ = ["evaluate_kernel"]


def evaluate_kernel(
    kernel: LoopKernel, memory: Mapping[str, torch.Tensor], sizes: Mapping[Symbol, int] | None = None
) -> None:
    """Run a kernel.

    Args:
        kernel: any kernel that passes `verify`.
        memory: for each buffer a flat 1-d tensor that starts at its first element; written in place.
        sizes: the values of the size symbols.
    """
    sizes = sizes or {}
    env: dict[Symbol, torch.Tensor] = {s: torch.tensor([[n]]) for s, n in sizes.items()}
    env |= {s: g.reshape(-1, 1) for s, g in _grid(kernel.outer, sizes).items()}
    env |= {s: g.reshape(1, -1) for s, g in _grid(kernel.inner, sizes).items()}
    shape = (iterations(kernel.outer).evaluate(sizes), iterations(kernel.inner).evaluate(sizes))
    done: dict[Value, torch.Tensor] = {}
    for value in kernel.values:
        done[value] = _evaluate(value, done, env, memory, shape)
    for store in kernel.stores:
        bound = dict(zip(store.binders, (done[p] for p in store.positions), strict=True))
        _store(store, done[store.value], {**env, **bound}, memory, shape)


def _evaluate_index(index: Expr, env: Mapping[Symbol, torch.Tensor]) -> torch.Tensor:
    """An index expression over int64 tensors that broadcast."""
    total = torch.zeros((1, 1), dtype=torch.int64)
    for monomial, coefficient in index.terms:
        term = torch.full((1, 1), coefficient)
        for atom, power in monomial:
            base = env[atom] if isinstance(atom, Symbol) else _operation(atom, env)
            term = term * base**power
        total = total + term
    return total


def _operation(atom: object, env: Mapping[Symbol, torch.Tensor]) -> torch.Tensor:
    if not isinstance(atom, Operation):
        raise TypeError(f"unknown atom {atom!r}")
    left, right = _evaluate_index(atom.left, env), _evaluate_index(atom.right, env)
    return OPERATIONS[{"mod": "remainder", "max": "maximum", "min": "minimum"}.get(atom.kind, atom.kind)].meaning(
        left, right
    )


def _grid(loops: tuple[LoopVar, ...], sizes: Mapping[Symbol, int]) -> dict[Symbol, torch.Tensor]:
    ranges = [torch.arange(v.size.evaluate(sizes)) for v in loops]
    if not ranges:
        return {}
    return {v.symbol: g for v, g in zip(loops, torch.meshgrid(*ranges, indexing="ij"), strict=True)}


def _evaluate(
    value: Value,
    done: Mapping[Value, torch.Tensor],
    env: Mapping[Symbol, torch.Tensor],
    memory: Mapping[str, torch.Tensor],
    shape: tuple[int, int],
) -> torch.Tensor:
    args = [done[a] for a in value.args]
    if value.op == "constant":
        return torch.full((1, 1), value.data, dtype=value.dtype)
    if value.op == "index":
        return _evaluate_index(value.data.index, {**env, **dict(zip(value.data.binders, args, strict=True))})
    if value.op == "load":
        return _load(value, args, env, memory)
    if value.op == "bounded":
        return _bounded(value.data, args[0], _evaluate_index(value.data.index, env))
    if value.op == "scan":
        return _scan(value.data, args[0].expand(args[0].shape[0], shape[1]))
    if value.op == "sort":
        row = args[0].expand(args[0].shape[0], shape[1])
        return torch.sort(row, dim=1, descending=value.data.descending, stable=True)[value.data.positions]
    if value.op == "reduce":
        operand = args[0].to(value.dtype) * args[1].to(value.dtype) if value.data in DOTS else args[0]
        return _reduce(value.data, operand.expand(operand.shape[0], shape[1]))
    if value.op == "segment":
        return torch.stack([end <= args[0] for end in args[1:]]).sum(0)
    if value.op == "cast":
        return args[0].to(value.dtype)
    if value.op == "round_to":
        return args[0].to(value.data).to(torch.float32)
    if value.op == "where":
        return torch.where(args[0], args[1], args[2])
    return OPERATIONS[value.op].meaning(*args)


def _load(
    value: Value, args: list[torch.Tensor], env: Mapping[Symbol, torch.Tensor], memory: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    data = value.data
    index = _evaluate_index(data.index, {**env, **dict(zip(data.binders, args, strict=False))})
    if not data.masked:
        return memory[data.buffer][index].to(value.dtype)
    mask = args[-1]
    shape = torch.broadcast_shapes(index.shape, mask.shape)  # type: ignore[no-untyped-call]
    index, mask = index.expand(shape), mask.expand(shape)
    if not mask.any():
        return torch.full(index.shape, data.other, dtype=value.dtype)
    found = memory[data.buffer][torch.where(mask, index, index[mask][0])].to(value.dtype)
    return torch.where(mask, found, torch.tensor(data.other, dtype=value.dtype))


def _bounded(data: BoundData, at: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    if data.wrap:
        at = torch.where(at < 0, at + size, at)
    outside = (at < 0) | (at >= size)
    if outside.any():
        raise _position_error(data.error, int(at[outside][0]), data.dim, int(size))
    return at


def _position_error(error: str, position: int, dim: int, size: int) -> Exception:
    """Eager's exception for a computed position outside of a dimension; see `BoundData`."""
    if error == "embedding":
        return IndexError("index out of range in self")
    if error == "probability":
        return RuntimeError("all elements of input and target should be between 0 and 1")
    kind = IndexError if error == "index" else RuntimeError
    return kind(f"index {position} is out of bounds for dimension {dim} with size {size}")


def _scan(kind: str, x: torch.Tensor) -> torch.Tensor:
    if kind in ("max", "min"):
        return (x.cummax(1) if kind == "max" else x.cummin(1)).values
    return x.cumsum(1, dtype=x.dtype) if kind == "sum" else x.cumprod(1, dtype=x.dtype)


def _reduce(kind: str, x: torch.Tensor) -> torch.Tensor:
    if kind == "welford_mean":
        return x.mean(1, keepdim=True)
    if kind == "welford_m2":
        return (x - x.mean(1, keepdim=True)).square().sum(1, keepdim=True)
    if kind in ("sum", "prod", *DOTS):
        return x.prod(1, keepdim=True, dtype=x.dtype) if kind == "prod" else x.sum(1, keepdim=True, dtype=x.dtype)
    reduced: torch.Tensor = getattr(x, {"max": "amax", "min": "amin"}.get(kind, kind))(1, keepdim=True)
    return reduced


def _store(
    store: Store,
    value: torch.Tensor,
    env: Mapping[Symbol, torch.Tensor],
    memory: Mapping[str, torch.Tensor],
    shape: tuple[int, int],
) -> None:
    shape = (shape[0], 1 if store.outer else shape[1])
    index = _evaluate_index(store.index, env).expand(shape).reshape(-1)
    target = memory[store.buffer]
    flat = value.expand(shape).reshape(-1).to(target.dtype)
    if store.mode == "sum":
        target[index] = 0
    if store.mode != "set":
        target.index_put_((index,), flat, accumulate=True)
    else:
        target[index] = flat
