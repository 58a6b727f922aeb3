"""The array in a frame that holds plain locals, then cells, then free variables: adding places to it.

Indices into it are the arguments of LOAD_FAST, LOAD_DEREF and their kin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from torchjit_vm.assembly.listing import Instruction, Item, Listing
from torchjit_vm.assembly.opcodes import CHECKED_LOAD, FREE_OPS, LOCALS_OPS, MAX_PAIRED, OPCODES, PAIRS, PLAIN_LOADS

__all__ = ["add_locals", "check_loads"]

_INDEXED = FREE_OPS | LOCALS_OPS


def add_locals(listing: Listing, names: tuple[str, ...]) -> Listing:
    """Add plain locals behind the existing ones; cells and free variables move up.

    Args:
        listing: its `code` gets the longer `co_varnames`; its bytecode is that of the old code until it is assembled.
        names: of the new locals, not yet in use in this code.
    """
    code = listing.code
    nlocals = len(code.co_varnames)

    def moved(index: int) -> int:
        return index if index < nlocals else index + len(names)

    return attrs.evolve(
        _mapped(listing, lambda name, index: (name, moved(index))),
        code=code.replace(co_varnames=code.co_varnames + names, co_nlocals=nlocals + len(names)),
    )


def check_loads(listing: Listing, unbound: Callable[[int], bool]) -> Listing:
    """Let loads of the places that may be `unbound` raise UnboundLocalError.

    The compiler leaves the check out (since 3.12) where it proved, for a frame that runs from its start, that the
    variable is bound; on an empty place such a load crashes the process.
    """

    def checked(name: str, index: int) -> tuple[str, int]:
        return (CHECKED_LOAD if name in PLAIN_LOADS and unbound(index) else name), index

    return _mapped(listing, checked)


def _mapped(listing: Listing, change: Callable[[str, int], tuple[str, int]]) -> Listing:
    """Apply `change` to (name, index) of each instruction with an index; packed ones are taken as the two they are."""
    items: list[Item] = []
    for item in listing.items:
        if type(item) is not Instruction or OPCODES[item.name] not in _INDEXED:
            items.append(item)
        elif item.name in PAIRS:
            items.extend(_mapped_pair(item, change))
        else:
            name, index = change(item.name, item.arg)
            items.append(attrs.evolve(item, name=name, arg=index))
    return attrs.evolve(listing, items=tuple(items))


def _mapped_pair(pair: Instruction, change: Callable[[str, int], tuple[str, int]]) -> Iterator[Instruction]:
    names = PAIRS[pair.name]
    (first, a), (second, b) = change(names[0], pair.arg >> 4), change(names[1], pair.arg & MAX_PAIRED)
    if (first, second) == names and max(a, b) <= MAX_PAIRED:
        yield attrs.evolve(pair, arg=a << 4 | b)
        return
    yield attrs.evolve(pair, name=first, arg=a)
    yield attrs.evolve(pair, name=second, arg=b, offset=None)  # only the first half is at the pair's offset
