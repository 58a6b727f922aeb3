"""Raw arguments: finding the leaves in them, making a cache key of them, and mapping over them."""

from __future__ import annotations

import enum
from collections.abc import Callable
from types import EllipsisType, MemberDescriptorType, NoneType
from typing import Any, final

import torch

from torchjit_fx.leaves import InputLeaf, OpaqueLeaf, Raw, RawArgs, RawKwargs, SymLeaf, TensorLeaf
from torchjit_fx.records import is_structseq

__all__ = ["Arguments", "UnwritableArgument", "dimensions", "leaves_in", "map_raw", "without_enums"]

_TYPED_ATOMS = frozenset({int, float, bool, str, complex, bytes, NoneType})
_TORCH_ATOMS = frozenset({torch.dtype, torch.device, torch.layout, torch.memory_format, EllipsisType, NoneType})


class UnwritableArgument(Exception):
    """The argument cannot be part of a graph; `args[0]` says what it is."""


@final
class Arguments:
    """The leaves in the arguments of one call, and the key under which its metadata may be cached.

    Attributes:
        leaves: tensor leaves in order, with repetitions.
        sym: symbolic numbers among the arguments.
        key: hashable parts: records, typed constants, the structure, and which leaves share memory.
        symbolic: some record or number is symbolic.
        cacheable: False where the key does not say everything.
        wrapped: some leaf stands for a tensor that consists of others.
    """

    __slots__ = ("cacheable", "key", "leaves", "sym", "symbolic", "wrapped")

    def __init__(self, args: RawArgs, kwargs: RawKwargs) -> None:
        self.leaves: list[TensorLeaf] = []
        self.sym: list[SymLeaf] = []
        self.key: list[Any] = []
        self.symbolic = False
        self.cacheable = True
        self.wrapped = False
        for arg in args:
            self._add(arg)
        for name, arg in kwargs.items():
            self.key.append(name)
            self._add(arg)
        if len(self.leaves) > 1:
            self._add_sharing()

    def _add(self, arg: Raw) -> None:
        cls = type(arg)
        if cls is TensorLeaf or cls is InputLeaf:
            self.leaves.append(arg)
            self.key.append(arg.record)
            if arg.record.symbolic:
                self.symbolic = True
            elif arg.record.wrapping is not None:
                self._add_wrapped(arg)
        elif cls in _TYPED_ATOMS:
            self.key.append(cls)
            self.key.append(arg)
        elif cls in _TORCH_ATOMS:
            self.key.append(arg)
        else:
            self._add_other(cls, arg)

    def _add_wrapped(self, leaf: TensorLeaf) -> None:
        """A tensor that consists of others: an argument of the region must have been put together in the graph."""
        if type(leaf) is InputLeaf:
            raise UnwritableArgument(leaf)
        self.wrapped = True
        self.cacheable = False

    def _add_other(self, cls: type, arg: Raw) -> None:
        if cls is tuple or cls is list or cls is torch.Size or _is_tuple_type(cls):
            self.key.append(cls)
            self.key.append(len(arg))
            for item in arg:
                self._add(item)
        elif cls is slice:
            self.key.append(cls)
            for item in (arg.start, arg.stop, arg.step):
                self._add(item)
        elif cls is dict:
            self.key.append(cls)
            self.key.append(len(arg))
            for name, item in arg.items():
                self._add(name)
                self._add(item)
        elif cls is SymLeaf:
            self.sym.append(arg)
            self.symbolic = True
            key = arg.key
            if key is None:
                self.cacheable = False
            self.key.append(key)
        elif cls is range:
            self.key.append(arg)
        elif cls is OpaqueLeaf:
            raise UnwritableArgument(arg)
        elif marker_items(arg) is not None:
            self.key.append(arg.type)
            self._add(tuple(arg.items))
        else:
            raise UnwritableArgument(arg)

    def _add_sharing(self) -> None:
        """Which leaves are one, and which share memory: it decides whether a write is legal and what it reaches."""
        seen: dict[int, int] = {}
        pattern = [seen.setdefault(id(leaf.storage or leaf), len(seen)) for leaf in self.leaves]
        if len(seen) != len(pattern):
            self.key.append(tuple(pattern))
            same: dict[int, int] = {}
            self.key.append(tuple(same.setdefault(id(leaf), len(same)) for leaf in self.leaves))


def without_enums(args: RawArgs, kwargs: RawKwargs) -> tuple[Any, Any] | None:
    """Arguments with the number or text that a member of an enum is in its place; None if a graph cannot hold them either."""
    plain = _plain_members(args), _plain_members(kwargs)
    try:
        Arguments(*plain)
    except UnwritableArgument:
        return None
    return plain


def _plain_members(arg: Raw) -> Raw:
    cls = type(arg)
    if isinstance(arg, enum.Enum):
        return next((plain(arg) for base, plain in _PLAIN.items() if isinstance(arg, base)), arg)
    if cls is dict:
        return {name: _plain_members(item) for name, item in arg.items()}
    if cls is slice:
        return slice(_plain_members(arg.start), _plain_members(arg.stop), _plain_members(arg.step))
    return cls(_plain_members(item) for item in arg) if cls in (tuple, list) else arg


_PLAIN: dict[type, Callable[[Any], Any]] = {int: int.__int__, float: float.__float__, str: str.__str__}


def _is_tuple_type(cls: type) -> bool:
    return issubclass(cls, tuple) and (hasattr(cls, "_fields") or is_structseq(cls))


def marker_items(arg: Raw) -> Raw:
    """The items of an interpreter's marker for an object over raw items (`CaptureContext.new_object`), or None."""
    return arg.items if _is_marker(type(arg)) else None


def _is_marker(cls: type) -> bool:
    """By what the class is: an object of the program may have attributes of any name, and a `__getattr__` that notes questions."""
    if cls.__name__ != "NewObject":
        return False
    own = cls.__dict__
    return all(type(own.get(field)) is MemberDescriptorType for field in ("type", "items"))


def plain_sizes(arg: Raw) -> Raw:
    """A tuple for a marker of a `torch.Size`, other arguments as they are."""
    cls = type(arg)
    return arg.items if cls.__name__ == "NewObject" and _is_marker(cls) and arg.type is torch.Size else arg


def map_raw(arg: Raw, leaf: Callable[[Any], Any]) -> Raw:
    """Rebuild a raw value with `leaf(payload)` in the place of every payload.

    A marker for a torch.Size becomes a plain tuple, as graphs and fake tensors take it.
    """
    cls = type(arg)
    if cls is TensorLeaf or cls is InputLeaf or cls is SymLeaf:
        return leaf(arg)
    if cls is tuple:
        return tuple([map_raw(item, leaf) for item in arg])
    if cls in _ATOMS:
        return arg
    return _REBUILD.get(cls, _rebuild_other)(arg, leaf)


def leaves_in(value: Raw) -> list[Raw]:
    """The leaves in raw values, in order."""
    found: list[Raw] = []
    map_raw(value, found.append)
    return found


def _rebuild_other(arg: Raw, leaf: Callable[[Any], Any]) -> Raw:
    cls = type(arg)
    items = arg if issubclass(cls, tuple) else marker_items(arg)
    if items is None:
        return arg
    mapped = [map_raw(item, leaf) for item in items]
    if not issubclass(cls, tuple):
        return mapped if issubclass(arg.type, list) else tuple(mapped)
    return cls._make(mapped) if hasattr(cls, "_make") else cls(mapped)


_ATOMS = _TYPED_ATOMS | _TORCH_ATOMS
_REBUILD: dict[type, Callable[[Any, Callable[[Any], Any]], Any]] = {
    list: lambda arg, leaf: [map_raw(item, leaf) for item in arg],
    dict: lambda arg, leaf: {name: map_raw(item, leaf) for name, item in arg.items()},
    slice: lambda arg, leaf: slice(*[map_raw(end, leaf) for end in (arg.start, arg.stop, arg.step)]),
    torch.Size: lambda arg, leaf: arg if all(type(n) is int for n in arg) else tuple([map_raw(n, leaf) for n in arg]),
}
"""How containers are rebuilt, by their class."""


def dimensions(item: Raw) -> int | None:
    """How many dimensions a part of a key goes through; None where it is of an unusual kind."""
    if item is None or item is Ellipsis or type(item) is bool:
        return 0
    if isinstance(item, TensorLeaf):
        return len(item.record.sizes) if item.record.dtype in (torch.bool, torch.uint8) else 1
    return 1 if type(item) in (int, slice, SymLeaf) else None
