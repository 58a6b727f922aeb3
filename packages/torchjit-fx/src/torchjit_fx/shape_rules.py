"""Results of the commonest calls on symbolic sizes, without asking torch.

torch's metadata functions take 2 to 15 ms for a reshape or a batch norm over symbolic sizes. Where a short argument proves
what eager returns, for all sizes that the symbols stand for, it is made here; anything else is left to the fakes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from torchjit_core.expr import Expr, as_expr, constant
from torchjit_fx.flatten import Arguments
from torchjit_fx.leaves import SymLeaf, TensorLeaf
from torchjit_fx.metas import Made, Outcome
from torchjit_fx.modes import TorchModes
from torchjit_fx.records import RecordTable, TensorRecord

__all__ = ["outcome_by_rule"]


def outcome_by_rule(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], found: Arguments, modes: TorchModes, table: RecordTable
) -> Outcome | None:
    """What the call does, if a rule knows it for certain.

    Args:
        target: of the graph node: a function, or a method's name.
        args, kwargs: raw.
        found: their leaves.
        modes: ambient state.
        table: where records are interned.
    """
    rule = _RULES.get(target) if isinstance(target, str) or callable(target) else None
    if rule is None or not found.leaves or modes.inference:
        return None
    if any(leaf.record.inference or leaf.record.conj or leaf.record.neg for leaf in found.leaves):
        return None
    return rule(args, kwargs, found, modes, table)


def _dense(sizes: Sequence[Expr]) -> list[Expr]:
    strides: list[Expr] = [constant(1)] * len(sizes)
    for dim in range(len(sizes) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * sizes[dim + 1]
    return strides


def _is_dense(record: TensorRecord) -> bool:
    """Row-major for all values of the symbols, and never empty."""
    sizes = [as_expr(n) for n in record.sizes]
    if any((bound := n.bounds().lower) is None or bound < 1 for n in sizes):
        return False
    return all(
        n.value == 1 or as_expr(have) is want
        for n, have, want in zip(sizes, record.strides, _dense(sizes), strict=True)
    )


def _plain(e: Expr) -> int | Expr:
    return e if e.value is None else e.value


def _product(sizes: Sequence[Expr]) -> Expr:
    total = constant(1)
    for n in sizes:
        total = total * n
    return total


def _made(
    like: TensorRecord,
    sizes: Sequence[Expr],
    found: Arguments,
    modes: TorchModes,
    table: RecordTable,
    shares: int | None,
) -> Outcome:
    grad = bool(modes.grad) and any(leaf.record.requires_grad for leaf in found.leaves)
    dims, strides = tuple(map(_plain, sizes)), tuple(map(_plain, _dense(sizes)))
    offset = like.offset if shares is not None else 0
    record = table.get(like.dtype, like.device, dims, strides, offset, (grad, not grad, False, False, False))
    return Outcome(Made(record, shares, ()), (), (), False, True)


def _reshape(
    args: tuple[Any, ...], kwargs: dict[str, Any], found: Arguments, modes: TorchModes, table: RecordTable
) -> Outcome | None:
    """`view` and `reshape` of a row-major tensor, where the number of elements agrees as a polynomial."""
    leaf = args[0]
    wanted = args[1:] if len(args) != 2 or type(args[1]) in (int, SymLeaf) else args[1]
    if kwargs or not isinstance(leaf, TensorLeaf) or not isinstance(wanted, tuple | list) or not wanted:
        return None
    sizes: list[Expr] = []
    for n in wanted:
        if type(n) is int:
            sizes.append(constant(n))
        elif type(n) is SymLeaf and isinstance(n.expr, Expr):
            sizes.append(n.expr)
        else:
            return None
    if not _is_dense(leaf.record) or (leaf.record.requires_grad and not modes.grad):
        return None  # what such a view requires after a write is left to autograd itself
    count = _product([as_expr(n) for n in leaf.record.sizes])
    free = [i for i, n in enumerate(sizes) if n.value == -1]
    known = _product([n for n in sizes if n.value != -1])
    if len(free) > 1 or any((low := n.bounds().lower) is None or low < 1 for n in sizes if n.value != -1):
        return None
    if free:
        if not count.divisible_by(known):
            return None
        sizes[free[0]] = count // known
    elif known is not count:
        return None
    return _made(leaf.record, sizes, found, modes, table, 0)


def _batch_norm(
    args: tuple[Any, ...], kwargs: dict[str, Any], found: Arguments, modes: TorchModes, table: RecordTable
) -> Outcome | None:
    """Batch norm with given statistics: element by element."""
    names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    given = dict(zip(names, args, strict=False)) | kwargs
    leaf, channels = given.get("input"), None
    if given.get("training", False) is not False or not isinstance(leaf, TensorLeaf) or len(leaf.record.sizes) < 2:
        return None
    channels = leaf.record.sizes[1]
    for other in found.leaves:
        r = other.record
        if r.dtype != leaf.record.dtype or r.device != leaf.record.device:
            return None
        if other is not leaf and r.sizes != (channels,):
            return None
    autocast = modes.read(("autocast", leaf.record.device.type))
    if len(found.leaves) < 3 or autocast or not _is_dense(leaf.record):
        return None
    return _made(leaf.record, [as_expr(n) for n in leaf.record.sizes], found, modes, table, None)


def _alike(found: Arguments, modes: TorchModes) -> bool:
    """One floating dtype and one device, and no autocast that would change it."""
    first = found.leaves[0].record
    if not first.dtype.is_floating_point or modes.read(("autocast", first.device.type)):
        return False
    return all(leaf.record.dtype == first.dtype and leaf.record.device == first.device for leaf in found.leaves)


def _linear(
    args: tuple[Any, ...], kwargs: dict[str, Any], found: Arguments, modes: TorchModes, table: RecordTable
) -> Outcome | None:
    """A row-major input times a matrix: row-major."""
    given = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs
    x, weight, bias = given.get("input"), given.get("weight"), given.get("bias")
    if not isinstance(x, TensorLeaf) or not isinstance(weight, TensorLeaf) or len(given) > 3:
        return None
    if bias is not None and not (isinstance(bias, TensorLeaf) and bias.record.sizes == weight.record.sizes[:1]):
        return None
    if len(x.record.sizes) < 2 or len(weight.record.sizes) != 2 or x.record.sizes[-1] != weight.record.sizes[1]:
        return None
    if not _alike(found, modes) or not _is_dense(x.record):
        return None
    sizes = [*map(as_expr, x.record.sizes[:-1]), as_expr(weight.record.sizes[0])]
    return _made(x.record, sizes, found, modes, table, None)


def _addmm(
    args: tuple[Any, ...], kwargs: dict[str, Any], found: Arguments, modes: TorchModes, table: RecordTable
) -> Outcome | None:
    """`addmm(bias, x, weight)`."""
    if kwargs or len(args) != 3 or not all(isinstance(a, TensorLeaf) for a in args):
        return None
    bias, x, weight = (a.record for a in args)
    if len(x.sizes) != 2 or len(weight.sizes) != 2 or x.sizes[1] != weight.sizes[0] or bias.sizes != weight.sizes[1:]:
        return None
    if not _alike(found, modes) or not _is_dense(x):
        return None
    return _made(x, [as_expr(x.sizes[0]), as_expr(weight.sizes[1])], found, modes, table, None)


def _layer_norm(
    args: tuple[Any, ...], kwargs: dict[str, Any], found: Arguments, modes: TorchModes, table: RecordTable
) -> Outcome | None:
    """Layer norm of a row-major input."""
    given = dict(zip(("input", "normalized_shape", "weight", "bias", "eps"), args, strict=False)) | kwargs
    x, shape = given.get("input"), given.get("normalized_shape")
    if not isinstance(x, TensorLeaf) or not isinstance(shape, tuple | list) or not shape:
        return None
    inner = tuple(shape)
    if not all(type(n) is int for n in inner) or x.record.sizes[-len(inner) :] != inner:
        return None
    if any(leaf is not x and leaf.record.sizes != inner for leaf in found.leaves):
        return None
    if not _alike(found, modes) or not _is_dense(x.record):
        return None
    return _made(x.record, [as_expr(n) for n in x.record.sizes], found, modes, table, None)


_Rule = Callable[[tuple[Any, ...], dict[str, Any], Arguments, TorchModes, RecordTable], Outcome | None]
_RULES: dict[Any, _Rule] = {
    "view": _reshape, "reshape": _reshape, torch.reshape: _reshape, F.batch_norm: _batch_norm,
    F.linear: _linear, torch.addmm: _addmm, F.layer_norm: _layer_norm,
}  # fmt: skip
