"""Documents to object graphs: what `torchjit_store.forms.decode` does.

Objects are made batch by batch into one list, to which later batches refer by position. Nothing is called but constructors of the types
listed here, `__restore_state__` of torchjit's classes, and functions that torchjit has declared makers.
"""

from __future__ import annotations

import functools
import json
import sys
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from enum import Enum
from operator import setitem
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType
from typing import Any, Final, final

from torchjit_core.collector import collector_paused
from torchjit_core.expr import Expr, Operation, Symbol
from torchjit_core.guards import ClassAttrIs, MroIs
from torchjit_core.location import CodeLocation
from torchjit_core.paths import (
    AccessPath,
    Arg,
    Attr,
    Cell,
    Computed,
    Drawn,
    InstanceAttr,
    Item,
    OffsetOf,
    Pinned,
    Referent,
    SizeOf,
    StrideOf,
    TypeOf,
)  # fmt: skip
from torchjit_core.storing import is_maker
from torchjit_store import generated, library_values, numpy_values, ours
from torchjit_store.class_methods import class_method
from torchjit_store.deferred import Deferred
from torchjit_store.document import FORMAT, Data, Document, Externals, FormatError, Lookup, text_of
from torchjit_store.fingerprints import atom_text, mro, namespace
from torchjit_store.shapes import ClassShape, class_shape
from torchjit_store.stale import Stale

__all__ = ["decoded"]


def decoded(document: Document, lookup: Lookup, externals: Externals) -> object:
    """The object graph of a document.

    Raises:
        Stale: what it refers to is not there, or is not what it was.
        Exception: the document is damaged; any other.
    """
    data = document.data
    if data["format"] != FORMAT:
        raise FormatError(f"format {data['format']!r}")
    building = _Building(document.blobs, lookup, externals, data.get("deferred"))
    building.read(data)
    return building.values[_position(data["root"])]


_ATOMS: Final = frozenset({type(None), bool, int, float, str})
Columns = Sequence[Sequence[Any]]


@final
class _Building:
    """The objects so far."""

    def __init__(self, blobs: tuple[bytes, ...], lookup: Lookup, externals: Externals, rest: Data = None) -> None:
        self.blobs, self.lookup, self.externals, self.rest = blobs, lookup, externals, rest
        self.values: list[Any] = []

    def read(self, data: Data) -> None:
        """Make the objects of a section."""
        atoms = data["atoms"]
        if any(type(atom) not in _ATOMS for atom in atoms):
            raise FormatError("an atom that is none")
        self.values += [sys.intern(atom) if type(atom) is str else atom for atom in atoms]
        take = _Positions(self.blob(data["positions"])).take
        late = [(*self.empty(kind, tuple(header), count), take(size)) for kind, header, count, _, size in data["late"]]
        for kind, header, count, raws, size in data["batches"]:
            self.add(kind, tuple(header), count, raws, take(size))
        for kind, header, made, flat in late:
            self.fill(kind, header, made, flat)

    def read_rest(self, place: int) -> object:
        """An object of what was deferred. The objects so far stay as they are: several threads may ask."""
        building = _Building(self.blobs, self.lookup, self.externals)
        building.values = self.values.copy()
        with collector_paused():
            building.read(json.loads(self.blob(self.rest)))
        return building.values[place]

    def add(self, kind: str, header: tuple[Any, ...], count: int, raws: Any, flat: list[int]) -> None:
        """Make the objects of a batch."""
        rule = _RULES.get(kind)
        if rule is None:
            raise FormatError(f"unknown kind {kind!r}")
        _check_count(count)
        single = _SINGLE.get(kind) if count == 1 else None
        if single is not None:  # one that may be long: not as columns of one each
            made = [single(self.column(flat))]
        else:
            made = rule(self, header, self.columns(count, flat), raws if raws else [None] * count)
        if len(made) != count:
            raise FormatError("a batch of another length")
        self.values += made

    def columns(self, count: int, flat: list[int]) -> Columns:
        """The children of a batch, place by place."""
        if not flat:
            return ()
        found = self.column(flat)
        if count == len(found):
            return (found,)
        if len(found) % count:
            raise FormatError("ragged columns")
        return [found[i : i + count] for i in range(0, len(found), count)]

    def column(self, flat: list[int]) -> list[Any]:
        """Objects by position."""
        values = self.values
        return [values[i] for i in flat]

    def empty(self, kind: str, header: tuple[Any, ...], count: int) -> tuple[str, tuple[Any, ...], list[Any]]:
        """Make the objects of a late batch, without what they hold."""
        make = _EMPTY.get(kind)
        if make is None:
            raise FormatError(f"{kind!r} cannot be late")
        _check_count(count)
        made = make(header, count)
        self.values += made
        return kind, header, made

    def fill(self, kind: str, header: tuple[Any, ...], made: list[Any], flat: list[int]) -> None:
        """Give them what they hold."""
        if made:
            _FILL[kind](made, header, self.columns(len(made), flat))

    # -------------------------------------------------------------------------------------------- kinds with raw data
    def numbers(self, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
        """Atoms that JSON does not hold."""
        (kind,) = header
        if kind == "str":
            return [self.blob(raw).decode("utf-8", "surrogatepass") for raw in raws]
        return [_NUMBERS[kind](text_of(raw)) for raw in raws]

    def texts(self, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
        """Texts that hold names; those have been given to their objects by the children."""
        return self.numbers(("str",), columns, raws)

    def blob(self, place: Data) -> bytes:
        """Bytes beside the document."""
        return self.blobs[_position(place)]

    def bytes(self, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
        """Bytes."""
        return [self.blob(raw) for raw in raws]

    def deferred(self, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
        """What is read later."""
        return [Deferred.unread(functools.partial(self.read_rest, _position(raw))) for raw in raws]

    def numpy_scalars(self, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
        """Numbers of NumPy."""
        return [numpy_values.built(text_of(header[0]), self.blob(raw)) for raw in raws]

    def code(self, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
        """Code of generated functions, with positions where the user's functions are now."""
        moved = self.lookup.moved
        return [generated.moved_code(generated.code_from(self.blob(raw)), moved) for raw in raws]

    def torch_values(self, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
        """Values of torch."""
        if "torch" not in sys.modules:
            raise Stale("torch is not imported")
        from torchjit_store import torch_values  # noqa: PLC0415  # imports torch

        return [torch_values.build(header[0], raw, self.blobs) for raw in raws]

    def references(self, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
        """Objects of the program."""
        return [self.lookup.find(raw) for raw in raws]

    def external(self, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
        """What the caller makes."""
        return [self.externals.build(text_of(header[0]), payload) for payload in columns[0]]

    def locations(self, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
        """Places in the program's files, where they are now."""
        moved = self.lookup.moved
        made = []
        for filename, function, lineno, end, col, end_col in zip(*columns, strict=True):
            now, line = moved(filename, lineno)
            end = None if end is None else end + line - lineno
            made.append(CodeLocation(now, function, line, end, col, end_col))
        return made


@final
class _Positions:
    """Which objects the batches of a section hold, in the order in which they are read. None is negative."""

    def __init__(self, packed: bytes) -> None:
        column = array("I")
        column.frombytes(packed)
        self._all, self._taken = column.tolist(), 0

    def take(self, size: Data) -> list[int]:
        """So many more of them."""
        start, end = self._taken, self._taken + _position(size)
        if end > len(self._all):
            raise FormatError("too few positions")
        self._taken = end
        return self._all[start:end]


def _position(place: Data) -> int:
    if type(place) is not int or place < 0:
        raise FormatError(f"{place!r} is no position")
    return place


_MOST: Final = 1_000_000


def _check_count(count: Data) -> None:
    if type(count) is not int or not 0 < count <= _MOST:
        raise FormatError(f"a batch of {count!r}")


# -------------------------------------------------------------------------------------------------------- containers
def _rows(columns: Columns, count: int) -> list[tuple[Any, ...]]:
    return list(zip(*columns, strict=True)) if columns else [()] * count


def _containers(make: Callable[[Any], Any]) -> Callable[..., list[Any]]:
    def rule(building: _Building, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
        return [make(row) for row in _rows(columns, len(raws))]

    return rule


def _dict(row: Sequence[Any]) -> dict[Any, Any]:
    return dict(zip(row[::2], row[1::2], strict=True))


_SINGLE: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "tuple": tuple,
    "list": list,
    "set": set,
    "frozenset": frozenset,
    "dict": _dict,
}
"""How one container is made of what is in it."""


def _dicts(building: _Building, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
    return list(map(_dict, _rows(columns, len(raws))))


def _ordered_dicts(building: _Building, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
    return [OrderedDict(zip(row[::2], row[1::2], strict=True)) for row in _rows(columns, len(raws))]


def _deques(building: _Building, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
    return [deque(row, header[0]) for row in _rows(columns, len(raws))]


def _singles(building: _Building, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
    return [{"Ellipsis": Ellipsis, "NotImplemented": NotImplemented}[raw] for raw in raws]


def _real(data: Any) -> float:
    if type(data) is not float:
        raise FormatError(f"{data!r} is no float")
    return data


def _complexes(building: _Building, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
    return [complex(_real(real), _real(imag)) for real, imag in zip(*columns, strict=True)]


def _library_values(building: _Building, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
    module, name = map(text_of, header)
    return [library_values.built(module, name, list(row)) for row in zip(*columns, strict=True)]


_NUMBERS: Final[dict[str, Callable[[str], Any]]] = {"int": lambda text: int(text, 16), "float": float}


# --------------------------------------------------------------------------------------------------------- torchjit's
def _named(building: _Building, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
    return [ours.resolve(text_of(header[0]), text_of(raw)) for raw in raws]


def _class(header: tuple[Any, ...]) -> type:
    found = ours.resolve(text_of(header[0]), text_of(header[1]))
    if not isinstance(found, type):
        raise FormatError(f"{header[1]} is no class")
    return found


def _members(building: _Building, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
    cls = _class(header)
    if not issubclass(cls, Enum):
        raise FormatError(f"{cls.__qualname__} is no enumeration")
    return [cls.__members__[raw] for raw in raws]


def _named_tuples(building: _Building, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
    cls = _class(header)
    if not issubclass(cls, tuple):
        raise FormatError(f"{cls.__qualname__} is no tuple")
    return [tuple.__new__(cls, row) for row in _rows(columns, len(raws))]


def _shape(header: tuple[Any, ...]) -> tuple[type, ClassShape]:
    cls = _class(header)
    shape = class_shape(cls)
    if shape is None:
        raise FormatError(f"{cls.__qualname__} is more than its attributes")
    return cls, shape


def _empty_instances(header: tuple[Any, ...], count: int) -> list[Any]:
    cls, _ = _shape(header)
    new = object.__new__
    return [new(cls) for _ in range(count)]


def _fill_instances(made: list[Any], header: tuple[Any, ...], columns: Columns) -> None:
    _, shape = _shape(header)
    for name, column in zip(header[2:], columns, strict=True):
        deque(map(shape.setter(text_of(name)), made, column), maxlen=0)


def _instances(building: _Building, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
    made = _empty_instances(header, len(raws))
    _fill_instances(made, header, columns)
    return made


def _empty_states(header: tuple[Any, ...], count: int) -> list[Any]:
    cls = _class(header)
    if not callable(getattr(cls, "__restore_state__", None)):
        raise FormatError(f"{cls.__qualname__} does not restore itself")
    return [object.__new__(cls) for _ in range(count)]


def _fill_states(made: list[Any], header: tuple[Any, ...], columns: Columns) -> None:
    for obj, state in zip(made, columns[0], strict=True):
        obj.__restore_state__(state)


def _states(building: _Building, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
    made = _empty_states(header, len(raws))
    _fill_states(made, header, columns)
    return made


def _made(building: _Building, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
    made = []
    for function, *arguments in zip(*columns, strict=True):
        if not is_maker(function):
            raise FormatError(f"{function!r} is no maker")
        made.append(function(*arguments))
    return made


def _mros(building: _Building, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
    made = []
    for cls, location, *bases in zip(*columns, strict=True):
        if not isinstance(cls, type):
            raise FormatError("bases of what is no class")
        now = mro(cls)
        if len(now) != len(bases) or any(a is not b for a, b in zip(now, bases, strict=True)):
            raise Stale(f"{cls.__qualname__} has other bases")
        made.append(MroIs(cls, now, location))
    return made


def _class_attributes(building: _Building, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
    made = []
    for cls, name, was, location in zip(*columns, strict=True):
        if not isinstance(cls, type):
            raise FormatError("an attribute of what is no class")
        holder = next((base for base in mro(cls) if name in namespace(base)), None)
        now = None if holder is None else namespace(holder)[name]
        if atom_text(now) != atom_text(was):
            raise Stale(f"{cls.__qualname__}.{name} changed")
        made.append(ClassAttrIs(cls, name, now, location))
    return made


_KEYED: Final[dict[str, Callable[[Any, Any], AccessPath]]] = {
    Attr.__name__: AccessPath.attr,
    InstanceAttr.__name__: AccessPath.instance_attr,
    Item.__name__: AccessPath.item,
    Computed.__name__: AccessPath.computed,
    SizeOf.__name__: AccessPath.size,
    StrideOf.__name__: AccessPath.stride,
}
_KEYLESS: Final[dict[str, Callable[[Any], AccessPath]]] = {
    Cell.__name__: AccessPath.cell,
    TypeOf.__name__: AccessPath.type_of,
    Referent.__name__: AccessPath.referent,
    OffsetOf.__name__: AccessPath.offset,
}
_ROOTS: Final[dict[str, Callable[..., AccessPath]]] = {
    Arg.__name__: Arg.of,
    Pinned.__name__: Pinned.of,
    Drawn.__name__: Drawn.of,
}
_PATHS: Final = frozenset(AccessPath.__subclasses__())


def _paths(building: _Building, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
    (name,) = header
    if name in _ROOTS:
        return list(map(_ROOTS[name], *columns))
    if not set(map(type, columns[0])) <= _PATHS:
        raise FormatError("a step from what is no path")
    if name in _KEYED:
        bases, keys = columns
        return list(map(_KEYED[name], bases, keys))
    (bases,) = columns
    return list(map(_KEYLESS[name], bases))


_EXPRESSIONS: Final[dict[str, Any]] = {cls.__name__: cls for cls in (Expr, Symbol, Operation)}


def _expressions(building: _Building, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
    return list(map(_EXPRESSIONS[header[0]], *columns))


# ---------------------------------------------------------------------------------------------------------- functions
def _empty_cells(header: tuple[Any, ...], count: int) -> list[Any]:
    return [CellType() for _ in range(count)]


def _fill_cells(made: list[Any], header: tuple[Any, ...], columns: Columns) -> None:
    for cell, content in zip(made, columns[0] if columns else (), strict=bool(columns)):
        cell.cell_contents = content


def _globals(header: tuple[Any, ...], count: int) -> list[Any]:
    return [generated.new_globals() for _ in range(count)]


def _generated(building: _Building, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
    return [_function(code, namespace, *parts) for code, namespace, *parts in zip(*columns, strict=True)]


def _closures(building: _Building, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
    module, qualname, number = header
    code = ours.find_code(text_of(module), text_of(qualname), _position(number))
    namespace = sys.modules[module].__dict__
    return [_function(code, namespace, *parts) for parts in zip(*columns, strict=True)]


def _function(
    code: CodeType, namespace: dict[str, Any], name: str, qualname: str, defaults: Any, keywords: Any, members: Any, *cells: CellType
) -> FunctionType:  # fmt: skip
    made = FunctionType(code, namespace, name, defaults, cells or None)
    made.__qualname__ = qualname
    made.__kwdefaults__ = keywords
    if members is not None:
        made.__dict__.update(members)
    return made


def _methods(building: _Building, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
    if not all(map(callable, columns[0])):
        raise FormatError("a method of what is no function")
    return list(map(MethodType, *columns))


def _partials(building: _Building, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
    return [functools.partial(function, *args, **keywords) for function, args, keywords in zip(*columns, strict=True)]


_OWNERS: Final = (list, dict, set, deque, OrderedDict, str, bytes, int, float, tuple, frozenset, range)


def _bound(building: _Building, header: tuple[Any, ...], columns: Columns, raws: list[Any]) -> list[Any]:
    made = []
    for owner in columns[0]:
        if issubclass(type(owner), type):
            made.append(class_method(owner, text_of(header[0])))
            continue
        if type(owner) not in _OWNERS:
            raise FormatError("a method of what is no container")
        method = getattr(owner, text_of(header[0]))
        if not isinstance(method, BuiltinFunctionType):
            raise FormatError("no method")
        made.append(method)
    return made


# -------------------------------------------------------------------------------------------------------------- rules
def _fill_lists(made: list[Any], header: tuple[Any, ...], columns: Columns) -> None:
    for obj, row in zip(made, _rows(columns, len(made)), strict=True):
        obj.extend(row)


def _fill_sets(made: list[Any], header: tuple[Any, ...], columns: Columns) -> None:
    for obj, row in zip(made, _rows(columns, len(made)), strict=True):
        obj.update(row)


def _fill_dicts(made: list[Any], header: tuple[Any, ...], columns: Columns) -> None:
    for obj, row in zip(made, _rows(columns, len(made)), strict=True):
        deque(map(setitem, [obj] * (len(row) // 2), row[::2], row[1::2]), maxlen=0)


_EMPTY: Final[dict[str, Callable[[tuple[Any, ...], int], list[Any]]]] = {
    "cell": _empty_cells,
    "globals": _globals,
    "instance": _empty_instances,
    "state": _empty_states,
    "list": lambda header, count: [[] for _ in range(count)],
    "set": lambda header, count: [set() for _ in range(count)],
    "dict": lambda header, count: [{} for _ in range(count)],
    "ordered": lambda header, count: [OrderedDict() for _ in range(count)],
    "deque": lambda header, count: [deque(maxlen=header[0]) for _ in range(count)],
}
_FILL: Final[dict[str, Callable[[list[Any], tuple[Any, ...], Columns], None]]] = {
    "cell": _fill_cells,
    "globals": _fill_dicts,
    "instance": _fill_instances,
    "state": _fill_states,
    "list": _fill_lists,
    "set": _fill_sets,
    "dict": _fill_dicts,
    "ordered": _fill_dicts,
    "deque": _fill_lists,
}
_RULES: Final[dict[str, Callable[[_Building, tuple[Any, ...], Columns, list[Any]], list[Any]]]] = {
    "number": _Building.numbers,
    "deferred": _Building.deferred,
    "bytes": _Building.bytes,
    "numpy": _Building.numpy_scalars,
    "single": _singles,
    "complex": _complexes,
    "library": _library_values,
    "range": _containers(lambda row: range(*row)),
    "slice": _containers(lambda row: slice(*row)),
    "tuple": _containers(tuple),
    "list": _containers(list),
    "set": _containers(set),
    "frozenset": _containers(frozenset),
    "dict": _dicts,
    "ordered": _ordered_dicts,
    "deque": _deques,
    "value": _Building.torch_values,
    "external": _Building.external,
    "reference": _Building.references,
    "made": _made,
    "named": _named,
    "member": _members,
    "named tuple": _named_tuples,
    "instance": _instances,
    "state": _states,
    "location": _Building.locations,
    "path": _paths,
    "mro": _mros,
    "class attribute": _class_attributes,
    "expression": _expressions,
    "text": _Building.texts,
    "code": _Building.code,
    "generated": _generated,
    "closure": _closures,
    "method": _methods,
    "partial": _partials,
    "bound": _bound,
}
