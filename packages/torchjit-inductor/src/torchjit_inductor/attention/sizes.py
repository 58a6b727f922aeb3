"""Sizes of attention that vary from call to call: arguments of its kernels instead of numbers in their texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, final

import attrs

from torchjit_core.expr import Expr, Symbol, as_expr
from torchjit_inductor.attention.call import symbols_of
from torchjit_inductor.lowering.tensors import Strided, TensorMeta
from torchjit_inductor.triton.expressions import host_text, triton_text

__all__ = [
    "LONGEST",
    "NARROW",
    "NOTHING",
    "TILE",
    "Number",
    "Varying",
    "by_sizes",
    "covers",
    "divides",
    "even_units",
    "numbers_of",
    "plain",
    "size_text",
    "typical",
    "varying_sizes",
]

Number: TypeAlias = "int | Expr"
"""A size or stride: an int, or an expression over arguments of the kernels."""

LONGEST = 1 << 24
"""Lengths up to here let indices be computed in 32 bits."""
NARROW = 2**31 - 2**20
"""Positions below need 32 bits; those of the last tile may lie a little beyond the end."""
TILE = 128
"""The longest side of a tile."""
_UNKNOWN = 1024


@final
@attrs.frozen
class Varying:
    """What kernels rely on of the sizes that vary.

    Attributes:
        symbols: of the graph, in the order of the kernels' arguments.
        hints: a typical value of each.
        lengths: is it batch, or a length of queries or keys?
        units: each is a multiple of; kernels get the quotient, and what is computed from it, such as strides, is seen to be a multiple, too.
        wide: positions need 64 bits.
    """

    symbols: tuple[Symbol, ...] = ()
    hints: tuple[int, ...] = ()
    lengths: tuple[bool, ...] = ()
    units: tuple[int, ...] = ()
    wide: bool = False

    @property
    def arguments(self) -> tuple[Symbol, ...]:
        """Under names that clash with nothing in the texts, the same in all graphs."""
        found = []
        for n, (symbol, unit) in enumerate(zip(self.symbols, self.units, strict=True)):
            low, high = symbol.bounds.lower or 0, symbol.bounds.upper
            if self.lengths[n] and not self.wide:
                high = LONGEST if high is None else min(high, LONGEST)
            found.append(Symbol(f"n{n}", -(-low // unit), None if high is None else high // unit))
        return tuple(found)

    @property
    def renamed(self) -> dict[Symbol, Expr]:
        """The symbols in terms of the arguments."""
        return {s: as_expr(a) * unit for s, a, unit in zip(self.symbols, self.arguments, self.units, strict=True)}

    @property
    def usual(self) -> dict[Symbol, int]:
        """A typical value of each argument."""
        return {a: hint // unit for a, hint, unit in zip(self.arguments, self.hints, self.units, strict=True)}


NOTHING = Varying()
"""All sizes are numbers."""


def varying_sizes(places: Sequence[Strided], metas: Sequence[TensorMeta], hints: Mapping[Symbol, int]) -> Varying:
    """What varies in a call, with nothing known of it.

    Args:
        places: query, key, value, and other operands.
        metas: of the results.
        hints: typical values.
    """
    symbols = symbols_of(places, metas)
    lengths = {s for t in places[:3] for dim in (0, 2) for s in t.sizes[dim].symbols}
    usual = tuple(max(hints.get(s, _UNKNOWN), 1) for s in symbols)
    return Varying(symbols, usual, tuple(s in lengths for s in symbols), (1,) * len(symbols))


def even_units(varying: Varying, places: Sequence[Strided], blocks: tuple[int, int]) -> tuple[int, ...]:
    """Of which each symbol is a multiple where no tile and no block of the lists reaches beyond an end.

    Args:
        varying: the symbols.
        places: query, key and other operands.
        blocks: sizes of the lists' blocks of queries and keys.
    """
    units = dict.fromkeys(varying.symbols, 1)
    for place, block in zip(places, blocks, strict=False):
        symbol = place.sizes[2].as_symbol
        if symbol is not None:
            units[symbol] = math.lcm(units[symbol], TILE, block if block < LONGEST else 1)
    return tuple(units.values())


# --------------------------------------------------------------------------------------------------- while it is written


def plain(value: Expr) -> Number:
    """An int where it is one."""
    return value if value.value is None else value.value


def size_text(size: Number) -> str:
    """In a kernel, as an operand of anything."""
    if isinstance(size, int):
        return str(size)
    text = triton_text(size, lambda s: s.name)
    return text if text.isalnum() else f"({text})"


def typical(size: Number, varying: Varying) -> int:
    """A value of it."""
    return size if isinstance(size, int) else size.evaluate(varying.usual)


def divides(part: int, size: Number) -> bool:
    """Is it a multiple, whatever the call?"""
    return size % part == 0 if isinstance(size, int) else size.divisible_by(part)


def covers(block: int, size: Number) -> bool:
    """Is the block no shorter, whatever the call?"""
    if isinstance(size, int):
        return block >= size
    most = size.bounds().upper
    return block >= LONGEST if most is None else block >= most


# ----------------------------------------------------------------------------------------------------------- in a call


def numbers_of(symbols: Sequence[Symbol], numbers: Sequence[Number]) -> Callable[..., tuple[int, ...]]:
    """A function from values of the symbols to those of the numbers."""
    names = {s: s.name for s in symbols}
    texts = "".join(f"{host_text(as_expr(n), names)}, " for n in numbers)
    made: Callable[..., tuple[int, ...]] = eval(f"lambda {', '.join(names.values())}: ({texts})")
    return made


def by_sizes(
    varying: Varying, units: tuple[int, ...], extents: Sequence[Number], make: Callable[[Varying], Callable[..., Any]]
) -> Callable[..., Any]:
    """A function of tensors and of the symbols' values that calls what was made for such values.

    Args:
        varying: with nothing known.
        units: see `even_units`.
        extents: over the arguments: what has to be narrow for positions of 32 bits.
        make: for values of which something is known, a function of tensors and of the kernels' arguments. For the typical values it is
            called now.
    """
    count = len(varying.symbols)
    reach = numbers_of(varying.arguments, extents)
    lengths = [n for n, length in enumerate(varying.lengths) if length]
    made: dict[tuple[bool, bool], tuple[tuple[int, ...], Callable[..., Any]]] = {}

    def fitting(values: Sequence[int]) -> tuple[tuple[int, ...], Callable[..., Any]]:
        wide = max(reach(*values), default=0) >= NARROW or any(values[n] > LONGEST for n in lengths)
        even = not any(value % unit for value, unit in zip(values, units, strict=True))
        found = made.get((even, wide))
        if found is None:
            known = attrs.evolve(varying, units=units if even else varying.units, wide=wide)
            found = made[even, wide] = known.units, make(known)
        return found

    fitting(varying.hints)

    def call(*given: Any) -> Any:
        values = given[-count:]
        known, function = fitting(values)
        return function(*given[:-count], *[value // unit for value, unit in zip(values, known, strict=True)])

    return call
