"""What rows are sorted as, and their elements, as C text (see `sort.h`)."""

from __future__ import annotations

import torch

from torchjit_inductor.cpp.text import VECTOR
from torchjit_inductor.ir.values import Value

__all__ = ["is_wide", "low_text", "sorted_text", "word_text"]


def is_wide(dtype: torch.dtype) -> bool:
    """Have elements of the type a word of their own, apart from their positions?"""
    return dtype.itemsize == 8


def word_text(operand: str, dtype: torch.dtype, descending: bool) -> str:
    """Lanes as integers of the order in which they are sorted.

    Args:
        operand: a vector.
        dtype: its type.
    """
    down, integer = str(descending).lower(), "vi64" if is_wide(dtype) else "vi32"
    if dtype.is_floating_point:
        return f"float_word<{down}, {integer}>({operand})"
    lanes = f"{operand} & 1" if dtype == torch.bool else f"convert<{integer}>({operand})"
    return f"sort_word<{down}>({lanes})"


def low_text(operand: str, dtype: torch.dtype, position: str) -> str:
    """What lies below the words: positions, and in bit 0 whether a float is -0.

    Args:
        position: of the vector's first lane in the row.
    """
    positions = f"(splat<vi64>((i64){position}) + iota<vi64>()) << 1"
    if not dtype.is_floating_point:
        return positions
    integer = "vi64" if is_wide(dtype) else "vi32"
    return f"{positions} | (convert<vi64>(is_negative_zero<{integer}>({operand})) & 1)"


def sorted_text(value: Value, row: str, part: str, position: str) -> str:
    """Lanes of a `sort`.

    Args:
        row: the sorted row.
        part: the length of its arrays.
        position: of the first lane.
    """
    dtype, descending = value.args[0].dtype, value.data.descending
    word = f"ld<vi64>(full, {row} + {position}, n)"
    low = f"ld<vi64>(full, {row} + 2 * {part} + {position}, n)" if is_wide(dtype) else word
    if value.data.positions:
        return f"{low} >> 1" if is_wide(dtype) else f"({low} & 0xffffffffl) >> 1"
    down = str(descending).lower()
    if not is_wide(dtype):
        word = f"convert<vi32>({word} >> 32)"
    if dtype.is_floating_point:
        negative = f"{low} & 1" if is_wide(dtype) else f"convert<vi32>({low} & 1)"
        return f"float_of<{down}, {VECTOR[dtype]}>({word}, {negative})"
    integer = f"sort_word<{down}>({word})"
    return f"({integer}) != 0" if dtype == torch.bool else f"convert<{VECTOR[dtype]}>({integer})"
