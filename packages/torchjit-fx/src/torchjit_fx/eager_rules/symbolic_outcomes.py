"""Results of the commonest calls on symbolic sizes, without asking torch.

torch's metadata functions take 2 to 15 ms for a reshape or a batch norm over symbolic sizes. Where a short argument proves
what eager returns, for all sizes that the symbols stand for, it is made here; anything else is left to the fakes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, final

import attrs

from torchjit_core.expr import Expr, as_expr, constant
from torchjit_fx.flatten import Arguments
from torchjit_fx.leaves import Raw, SymLeaf, TensorLeaf
from torchjit_fx.modes import TorchModes
from torchjit_fx.outcomes import Made, Outcome
from torchjit_fx.records import RecordTable, TensorRecord
from torchjit_torch.layouts import contiguous_strides

__all__ = [
    "SymbolicCall", "SymbolicOutcome", "addmm", "batch_norm", "layer_norm", "linear", "outcome_by_rule", "reshape",
]  # fmt: skip


@final
@attrs.frozen
class SymbolicCall:
    """A call on leaves of which some have sizes that vary.

    Attributes:
        args, kwargs: raw.
        found: their leaves.
        modes: ambient state.
        table: where records are interned.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    found: Arguments
    modes: TorchModes
    table: RecordTable

    def named(self, *names: str) -> dict[str, Any]:
        """The arguments by name."""
        return dict(zip(names, self.args, strict=False)) | self.kwargs

    def makes(self, like: TensorRecord, sizes: Sequence[Expr], shares: int | None = None) -> Outcome:
        """That it gives a row-major tensor of these sizes."""
        grad = bool(self.modes.grad) and any(leaf.record.requires_grad for leaf in self.found.leaves)
        dims = tuple(map(_plain, sizes))
        strides = contiguous_strides(dims)
        offset = like.offset if shares is not None else 0
        flags = (grad, not grad, False, False, False)
        record = self.table.get(like.dtype, like.device, dims, strides, offset, flags)
        return Outcome(Made(record, shares, ()), (), (), False, True)

    def is_alike(self) -> bool:
        """One floating dtype and one device, and no autocast that would change it."""
        first = self.found.leaves[0].record
        if not first.dtype.is_floating_point or self.modes.read(("autocast", first.device.type)):
            return False
        records = [leaf.record for leaf in self.found.leaves]
        return all(r.dtype == first.dtype and r.device == first.device for r in records)


SymbolicOutcome: TypeAlias = "Callable[[SymbolicCall], Outcome | None]"
"""What the call does for all sizes that the symbols stand for, None where that is not certain."""


def outcome_by_rule(rule: SymbolicOutcome, call: SymbolicCall) -> Outcome | None:
    """What the call does, if its rule knows it for certain."""
    if not call.found.leaves or call.modes.inference:
        return None
    if any(leaf.record.inference or leaf.record.conj or leaf.record.neg for leaf in call.found.leaves):
        return None
    return rule(call)


def _is_dense(record: TensorRecord) -> bool:
    """Row-major for all values of the symbols, and never empty."""
    sizes = [as_expr(n) for n in record.sizes]
    if any((bound := n.bounds().lower) is None or bound < 1 for n in sizes):
        return False
    return all(
        n.value == 1 or as_expr(have) is as_expr(want)
        for n, have, want in zip(sizes, record.strides, contiguous_strides(sizes), strict=True)
    )


def _plain(e: Expr) -> int | Expr:
    return e if e.value is None else e.value


def reshape(call: SymbolicCall) -> Outcome | None:
    """`view` and `reshape` of a row-major tensor, where the number of elements agrees as a polynomial."""
    leaf, args = call.args[0], call.args
    wanted = args[1:] if len(args) != 2 or type(args[1]) in (int, SymLeaf) else args[1]
    if call.kwargs or not isinstance(leaf, TensorLeaf) or not isinstance(wanted, tuple | list) or not wanted:
        return None
    sizes = [_size(n) for n in wanted]
    if None in sizes or not _is_dense(leaf.record) or (leaf.record.requires_grad and not call.modes.grad):
        return None  # what such a view requires after a write is left to autograd itself
    inferred = _with_free_size(
        [n for n in sizes if n is not None], math.prod(map(as_expr, leaf.record.sizes), start=constant(1))
    )
    return None if inferred is None else call.makes(leaf.record, inferred, 0)


def _size(n: Raw) -> Expr | None:
    if type(n) is int:
        return constant(n)
    return n.expr if type(n) is SymLeaf and isinstance(n.expr, Expr) else None


def _with_free_size(sizes: list[Expr], count: Expr) -> list[Expr] | None:
    """These sizes, with that for -1; None where they do not surely have `count` elements."""
    free = [i for i, n in enumerate(sizes) if n.value == -1]
    others = [n for n in sizes if n.value != -1]
    if len(free) > 1 or any((low := n.bounds().lower) is None or low < 1 for n in others):
        return None
    known = math.prod(others, start=constant(1))
    if not free:
        return sizes if known is count else None
    if not count.divisible_by(known):
        return None
    return [*sizes[: free[0]], count // known, *sizes[free[0] + 1 :]]


def batch_norm(call: SymbolicCall) -> Outcome | None:
    """Batch norm with given statistics: element by element."""
    given = call.named("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    leaf, channels = given.get("input"), None
    if given.get("training", False) is not False or not isinstance(leaf, TensorLeaf) or len(leaf.record.sizes) < 2:
        return None
    channels = leaf.record.sizes[1]
    for other in call.found.leaves:
        r = other.record
        if r.dtype != leaf.record.dtype or r.device != leaf.record.device:
            return None
        if other is not leaf and r.sizes != (channels,):
            return None
    autocast = call.modes.read(("autocast", leaf.record.device.type))
    if len(call.found.leaves) < 3 or autocast or not _is_dense(leaf.record):
        return None
    return call.makes(leaf.record, [as_expr(n) for n in leaf.record.sizes])


def linear(call: SymbolicCall) -> Outcome | None:
    """A row-major input times a matrix: row-major."""
    given = call.named("input", "weight", "bias")
    x, weight, bias = given.get("input"), given.get("weight"), given.get("bias")
    if not isinstance(x, TensorLeaf) or not isinstance(weight, TensorLeaf) or len(given) > 3:
        return None
    if bias is not None and not (isinstance(bias, TensorLeaf) and bias.record.sizes == weight.record.sizes[:1]):
        return None
    if len(x.record.sizes) < 2 or len(weight.record.sizes) != 2 or x.record.sizes[-1] != weight.record.sizes[1]:
        return None
    if not call.is_alike() or not _is_dense(x.record):
        return None
    sizes = [*map(as_expr, x.record.sizes[:-1]), as_expr(weight.record.sizes[0])]
    return call.makes(x.record, sizes)


def addmm(call: SymbolicCall) -> Outcome | None:
    """`addmm(bias, x, weight)`."""
    if call.kwargs or len(call.args) != 3 or not all(isinstance(a, TensorLeaf) for a in call.args):
        return None
    bias, x, weight = (a.record for a in call.args)
    if len(x.sizes) != 2 or len(weight.sizes) != 2 or x.sizes[1] != weight.sizes[0] or bias.sizes != weight.sizes[1:]:
        return None
    if not call.is_alike() or not _is_dense(x):
        return None
    return call.makes(x, [as_expr(x.sizes[0]), as_expr(weight.sizes[1])])


def layer_norm(call: SymbolicCall) -> Outcome | None:
    """Layer norm of a row-major input."""
    given = call.named("input", "normalized_shape", "weight", "bias", "eps")
    x, shape = given.get("input"), given.get("normalized_shape")
    if not isinstance(x, TensorLeaf) or not isinstance(shape, tuple | list) or not shape:
        return None
    inner = tuple(shape)
    if not all(type(n) is int for n in inner) or x.record.sizes[-len(inner) :] != inner:
        return None
    if any(leaf is not x and leaf.record.sizes != inner for leaf in call.found.leaves):
        return None
    if not call.is_alike() or not _is_dense(x.record):
        return None
    return call.makes(x.record, [as_expr(n) for n in x.record.sizes])
