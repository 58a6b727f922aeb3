"""Rows that are sorted in registers, as Triton text: what is sorted for an element, and the element again.

As in the C backend (`cpp/sort.h`) the keys of a row are all different, so that `tl.sort`, which is not stable, gives the one stable
order, and hold all of an element, so that nothing is gathered. Elements of 16 bits have keys of 32 bits, which sort in half the time.
"""

from __future__ import annotations

import torch

from torchjit_inductor.ir.kernel import LoopKernel, iterations
from torchjit_inductor.ir.values import Value
from torchjit_inductor.lowering import sort
from torchjit_inductor.triton.operations import cast_text, type_name

__all__ = ["key_text", "last_key", "sorted_text", "why_not_sorted"]

_SMALL = (torch.int8, torch.uint8, torch.int16, torch.bool)


def why_not_sorted(kernel: LoopKernel) -> str | None:
    """Why a kernel's sorts cannot be compiled, or None; also for kernels without."""
    sorts = [v for v in kernel.values if v.op == "sort"]
    if not sorts:
        return None
    size = iterations(kernel.inner).value
    if size is None or size > sort.MOST_ON_GPUS:
        return f"a sort of {'rows' if size is None else size} elements"
    wide = [v.args[0].dtype for v in sorts if v.args[0].dtype.itemsize == 8]
    return f"a sort of {wide[0]}" if wide else None


def _half(operand: Value) -> bool:
    return operand.dtype in _SMALL or operand.op == "round_to"


def key_text(operand: Value, text: str, position: str, descending: bool) -> str:
    """The keys of a tile.

    Args:
        operand: what is sorted.
        text: its name.
        position: in the row, of 32 bits.
    """
    half = _half(operand)
    if not operand.dtype.is_floating_point:
        return f"tj.sort_key({cast_text(text, operand.dtype, torch.int32)}, {position} * 2, {half}, {descending})"
    narrow = f"{text}.to({type_name(operand.data)})" if half else text
    return f"tj.float_sort_key({narrow}, {position}, {half}, {descending})"


def last_key(operand: Value) -> str:
    """A key behind all others."""
    return str(0x7FFFFFFF if _half(operand) else 0x7FFFFFFFFFFFFFFF)


def sorted_text(value: Value, key: str) -> str:
    """A `sort`, from the name of the sorted keys."""
    operand, descending = value.args[0], value.data.descending
    half = _half(operand)
    if value.data.positions:
        return f"tj.sorted_position({key}, {half})"
    if not operand.dtype.is_floating_point:
        return cast_text(f"tj.sorted_word({key}, {half}, {descending})", torch.int32, operand.dtype)
    bits = f"tj.sorted_bits({key}, {half}, {descending})"
    if half:
        return f"{bits}.to({type_name(operand.data)}, bitcast=True).to(tl.float32)"
    return f"{bits}.to(tl.float32, bitcast=True)"
