"""Type promotion between operands, as eager does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from torchjit_core.expr import Expr
from torchjit_inductor.ir.dtypes import HALF, compute_dtype
from torchjit_inductor.ir.values import RunNumber, Value, cast, number_value, round_to
from torchjit_inductor.lowering.sizes import NotLowered
from torchjit_inductor.lowering.tensors import Lazy, Lowered, Operand, Point, TensorMeta
from torchjit_inductor.lowering.views import broadcast_index, check_broadcast

T = TypeVar("T")

__all__ = ["pointwise", "promoted", "rounded", "rounded_number", "rounded_scalar"]


def promoted(operands: Sequence[Operand]) -> torch.dtype:
    """`torch.result_type` over tensors and Python numbers: numbers and 0-d tensors only lift to another category."""
    best: dict[int, torch.dtype] = {}
    for operand in operands:
        if isinstance(operand, Lowered):
            rank, dtype = (0 if operand.sizes else 1), operand.dtype
        elif isinstance(operand, bool):
            rank, dtype = 2, torch.bool
        elif isinstance(operand, (float, RunNumber)):
            rank, dtype = 2, torch.get_default_dtype()
        elif isinstance(operand, (int, Expr)):
            rank, dtype = 2, torch.int64
        else:
            raise NotLowered(f"operand {operand!r}")
        best[rank] = torch.promote_types(best[rank], dtype) if rank in best else dtype
    result: torch.dtype | None = None
    for rank in (0, 1, 2):
        if rank in best and (result is None or _category(best[rank]) > _category(result)):
            result = best[rank] if result is None else _lifted(result, best[rank])
    if result is None:
        raise NotLowered("no operands")
    return result


def _category(dtype: torch.dtype) -> int:
    if dtype.is_complex:
        return 3
    return 2 if dtype.is_floating_point else int(dtype != torch.bool)


def _lifted(low: torch.dtype, high: torch.dtype) -> torch.dtype:
    return torch.promote_types(low, high) if not high.is_floating_point else high


def pointwise(
    meta: TensorMeta,
    formula: Callable[..., Value],
    *operands: Operand,
    dtype: torch.dtype | None = None,
    dtypes: Sequence[torch.dtype | None] = (),
) -> Lazy:
    """A formula applied element by element to broadcast operands.

    Args:
        meta: of the result.
        formula: takes one `Value` per operand, gives the result; its dtype is converted to the result's.
        operands: `Lowered` tensors or Python numbers.
        dtype: what operands are converted to first; by default the result's dtype.
        dtypes: one per operand instead (None keeps the operand's own).

    Raises:
        NotLowered: an operand's size may or may not be that of the result.
    """
    for operand in operands:
        if isinstance(operand, Lowered):
            check_broadcast(operand.sizes, meta.sizes)
    each = dtypes or (dtype or meta.dtype,) * len(operands)

    def read(operand: Operand, wanted: torch.dtype | None, point: Point) -> Value:
        if isinstance(operand, Lowered):
            value = operand.value(point.at(broadcast_index(point.index, operand.sizes)))
            if wanted is None:
                return value
            value = cast(value, compute_dtype(wanted))
            return round_to(value, wanted) if operand.sizes and _is_rounded(operand, wanted) else value
        if isinstance(operand, Expr):
            return number_value(operand, compute_dtype(wanted or torch.int64))
        return number_value(operand, compute_dtype(wanted or torch.get_default_dtype()))

    def value(point: Point) -> Value:
        made = formula(*(read(o, d, point) for o, d in zip(operands, each, strict=True)))
        return cast(made, compute_dtype(meta.dtype))

    return Lazy(meta.sizes, meta.dtype, meta.device, value)


def rounded(tensor: T) -> T | Lazy:
    """The same formula, rounded to its 16-bit type; anything else as it is."""
    if not isinstance(tensor, Lazy) or compute_dtype(tensor.dtype) == tensor.dtype:
        return tensor
    made = Lazy(tensor.sizes, tensor.dtype, tensor.device, lambda p: round_to(tensor.value(p), tensor.dtype))
    made.layout, made.origins = tensor.layout, tensor.origins
    return made


_HELD = frozenset((torch.bool, torch.int8, torch.uint8))
"""What the 16-bit types hold exactly. Neither of them holds the other one."""


def _is_rounded(operand: Lowered, dtype: torch.dtype) -> bool:
    """Does eager's CPU convert the operand in memory, to a 16-bit type that does not hold its values?"""
    if dtype not in HALF or operand.device.type != "cpu":
        return False
    return operand.dtype != dtype and operand.dtype not in _HELD


def rounded_number(operand: Operand, dtype: torch.dtype) -> Operand:
    """A Python number as eager passes it to a kernel of a 16-bit type: in that type. Anything else as it is."""
    if isinstance(operand, (int, float)) and not isinstance(operand, bool) and dtype in HALF:
        made = float(torch.tensor(operand, dtype=torch.float64).to(dtype))
        return made if isinstance(operand, float) or not made.is_integer() else int(made)
    return operand


def rounded_scalar(operand: Operand, meta: TensorMeta) -> Operand:
    """A number, or a tensor of one element, as eager's CPU passes it to a kernel of a 16-bit type. The second operand
    of products and quotients is taken in float32, everything else in the type of the result. Anything else as it is, and everything on GPUs.
    """
    if meta.device.type != "cpu":
        return operand
    if isinstance(operand, Lowered) and not operand.sizes and _is_rounded(operand, meta.dtype):
        compute = compute_dtype(meta.dtype)
        return Lazy((), meta.dtype, meta.device, lambda p: round_to(cast(operand.value(p), compute), meta.dtype))
    return rounded_number(operand, meta.dtype)
