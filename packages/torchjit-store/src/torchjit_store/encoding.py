"""Object graphs to documents: what `torchjit_store.forms.encode` does.

`_Survey` gives each object a node: its kind, what its children are, and JSON-able data. `torchjit_store.layout` makes the document of them.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import sys
from collections import OrderedDict, deque
from collections.abc import Callable
from enum import Enum
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final, final

import attrs

from torchjit_core.expr import Expr, Operation, Symbol
from torchjit_core.guards import ClassAttrIs, Guard, IdIs, MroIs
from torchjit_core.location import CodeLocation
from torchjit_core.paths import AccessPath, Arg, Cell, Drawn, OffsetOf, Pinned, Referent, TypeOf
from torchjit_core.storing import Made, NotStorable, how_made, names_within, note_library
from torchjit_store import generated, library_values, numpy_values, ours
from torchjit_store.class_methods import is_class_method
from torchjit_store.deferred import Deferred
from torchjit_store.document import NOT_STORABLE, Data, Document, Externals, References
from torchjit_store.layout import laid_out
from torchjit_store.nodes import DEFERRED, NO_HEADER, ROOT, Header, Node, shown_type, way_to
from torchjit_store.shapes import class_shape

__all__ = ["encoded"]


def encoded(root: object, references: References, externals: Externals) -> Document:
    """See `forms.encode`."""
    survey = _Survey(references, externals)
    top = survey.node(root, None)
    try:
        survey.run()
        return laid_out(top, survey.blobs)
    finally:
        survey.forget_ways()


# ------------------------------------------------------------------------------------------------------------ survey
_ATOMS: Final = frozenset({type(None), bool, int, float, str})
_BIG: Final = 1 << 62


@final
class _Survey:
    """Gives objects their nodes."""

    def __init__(self, references: References, externals: Externals) -> None:
        self.references, self.externals = references, externals
        self.blobs: list[bytes] = []
        self._by_id: dict[int, Node] = {}
        self._by_value: dict[tuple[Any, ...], Node] = {}
        self._pending: list[Node] = []
        self._globals: dict[int, dict[str, None]] = {}
        self._values = _torch_values()
        self._kept: list[object] = []  # ids stand for them

    def node(self, obj: object, parent: Node | None) -> Node:
        """The node of an object, which is looked at later unless it has been met before."""
        return self._by_id.get(id(obj)) or self._new(obj, parent)

    def nodes(self, objects: Any, parent: Node) -> list[Node]:
        """Those of several."""
        known, new = self._by_id.get, self._new
        return [known(id(obj)) or new(obj, parent) for obj in objects]

    def _new(self, obj: object, parent: Node | None) -> Node:
        cls = type(obj)
        if cls in _ATOMS:
            found = self._atom((cls, repr(obj) if cls is float else obj), obj, parent)
        elif cls is CodeLocation:
            found = self._location(obj, parent)
        else:
            found = Node(obj, parent)
            self._pending.append(found)
        self._by_id[id(obj)] = found
        self._kept.append(obj)
        return found

    def exact(self, obj: object, parent: Node) -> Node:
        """The node of an object that must be the very one: no copy will do."""
        if type(obj) in _BY_CONTENT and obj is not _EMPTY_TUPLE:
            return self._referenced(obj, parent)
        if type(obj) in _COPIED_ATOMS and not _is_unique(obj):
            return self._referenced(obj, parent)
        if _is_wrapper_of_ours(obj):
            with contextlib.suppress(NotStorable):  # torchjit alone holds it
                return self._referenced(obj, parent)
        return self.node(obj, parent)

    def run(self) -> None:
        """Look at everything that can be reached."""
        pending = self._pending
        while True:
            while pending:
                node = pending.pop()
                if not node.kind:
                    self._look_at(node)
            if not self._fill_globals():
                return

    def forget_ways(self) -> None:
        """Cut the cycles of nodes and their parents, so that what was needed to write an entry goes without Python's collector."""
        for node in self._by_id.values():
            node.parent = None

    # ---------------------------------------------------------------------------------------------- one object
    def _look_at(self, node: Node) -> None:
        obj = node.obj
        rule = _RULES.get(type(obj))
        try:
            if rule is not None:
                rule(self, node, obj)
            else:
                self._look_at_other(node, obj)
        except NotStorable as error:
            if error.detail.startswith(ROOT):
                raise
            detail = f"{way_to(node)}: {error.detail or shown_type(obj)}"
            raise type(error)(error.reason, detail) from error

    def _look_at_other(self, node: Node, obj: Any) -> None:
        if not self._look_at_known(node, obj):
            self._look_at_kind(node, obj)

    def _look_at_known(self, node: Node, obj: Any) -> bool:
        """An object that is known by what made it, its value or its name; False for any other."""
        made = how_made(obj)
        if made is not None:
            self._made(node, made)
            return True
        described = None if self._values is None else self._values.describe(obj)
        if described is not None:
            node.become("value", (described[0],), raw=described[1])
            return True
        if type(obj).__module__ == "numpy" and numpy_values.is_scalar(obj):
            dtype, content = numpy_values.described(obj)
            node.become("numpy", (dtype,), raw=self.blob(content))
            return True
        external = self.externals.name(obj)
        if external is not None:
            node.become("external", (external[0],), [self.node(external[1], node)])
            return True
        name = ours.constant_name(obj) or _function_or_class_name(obj)
        if name is not None:
            node.become("named", (name[0],), raw=name[1])
        return name is not None

    def _look_at_kind(self, node: Node, obj: Any) -> None:
        """An object that is stored by its parts, as its class has it."""
        cls = type(obj)
        if cls is FunctionType:
            self._function(node, obj)
        elif cls is MethodType:
            node.become("method", (), self.nodes((obj.__func__, obj.__self__), node))
        elif cls is functools.partial:
            node.become("partial", (), self.nodes((obj.func, obj.args, obj.keywords), node))
        elif cls is BuiltinFunctionType and (type(obj.__self__) in _OWNERS or is_class_method(obj)):
            node.become("bound", (obj.__name__,), [self.node(obj.__self__, node)])
        elif self._values is not None and self._values.is_tensor(obj):
            self._tensor(node, obj)
        elif not issubclass(cls, type) and ours.is_ours(getattr(cls, "__module__", None)):
            self._instance(node, obj)
        else:
            self._program_object(node, obj)

    def _made(self, node: Node, made: Made) -> None:
        note_library(made)
        node.become("made", (), [self.node(made.maker, node), *self.nodes(made.arguments, node)])

    def _names_within(self, constants: Any, node: Node) -> list[Node]:
        """What gives names that occur in a text or in code to their objects again."""
        nodes = []
        for name, made in names_within(constants).items():
            found = self._by_value.get((Made, name))
            if found is None:
                found = self._by_value[Made, name] = Node(made, node)
                self._made(found, made)
            nodes.append(found)
        return nodes

    def _program_object(self, node: Node, obj: Any) -> None:
        """The program's own, or a date or the like that a capture has made."""
        try:
            self._refer(node)
        except NotStorable:
            described = library_values.described(obj)
            if described is None:
                raise
            node.become("library", described[0], self.nodes(described[1], node))

    def _refer(self, node: Node) -> None:
        node.become("reference", raw=self.references.reference(node.obj))

    def _referenced(self, obj: object, parent: Node) -> Node:
        """The node of an object to which a reference leads. One that was to be copied elsewhere becomes one."""
        node = self._by_id.get(id(obj))
        if node is None:
            node = Node(obj, parent)
        if node.kind != "reference":
            name = ours.constant_name(obj)
            try:
                if name is not None:
                    node.become("named", (name[0],), raw=name[1])
                else:
                    self._refer(node)
            except NotStorable as error:
                raise type(error)(error.reason, f"{way_to(node)}: {error.detail or shown_type(obj)}") from error
        self._by_id[id(obj)] = node
        return node

    # ---------------------------------------------------------------------------------------------- atoms
    def _atom(self, key: tuple[Any, ...], obj: Any, parent: Node | None) -> Node:
        found = self._by_value.get(key)
        if found is None:
            found = Node(obj, parent)
            names = self._names_within((obj,), found)
            self._by_value[key] = found
            if names:
                found.become("text", (), names, self.blob(obj.encode("utf-8", "surrogatepass")))
            elif _is_plain(obj):
                found.become("atom", raw=obj)
            else:
                found.become("number", (type(obj).__name__,), raw=self._number_text(obj))
        return found

    def _number_text(self, obj: Any) -> Data:
        if type(obj) is str:
            return self.blob(obj.encode("utf-8", "surrogatepass"))
        return hex(obj) if type(obj) is int else repr(obj)

    def blob(self, data: bytes) -> int:
        """The place of bytes beside the document."""
        self.blobs.append(data)
        return len(self.blobs) - 1

    def _location(self, obj: Any, parent: Node | None) -> Node:
        fields = (obj.filename, obj.function, obj.lineno, obj.end_lineno, obj.col, obj.end_col)
        key = (CodeLocation, *fields)
        found = self._by_value.get(key)
        if found is None:
            found = self._by_value[key] = Node(obj, parent)
            found.become("location", NO_HEADER, self.nodes(fields, found))
        return found

    # ---------------------------------------------------------------------------------------------- torchjit's own
    def _tensor(self, node: Node, tensor: Any) -> None:
        """The program's own tensor, or a constant that a capture has made: of what the program may write to, a copy would be stale."""
        assert self._values is not None
        try:
            self._refer(node)
        except NotStorable:
            data, content = self._values.tensor_bytes(tensor)
            node.become("value", ("tensor",), raw=[*data, self.blob(content)])

    def _instance(self, node: Node, obj: Any) -> None:
        cls: Any = type(obj)
        name = ours.name_of(cls)
        if name is None:
            raise NotStorable(NOT_STORABLE, f"an instance of {shown_type(obj)}, which no name leads to")
        if isinstance(obj, Enum):
            node.become("member", name, raw=obj.name)
            return
        if hasattr(cls, "__stored_state__"):
            state = dict(obj.__stored_state__())
            for field in getattr(cls, "__stored_exactly__", ()):
                for part in state[field]:
                    self.exact(part, node)
            node.become("state", name, [self.node(state, node)])
            return
        if isinstance(obj, tuple):
            node.become("named tuple", name, self.nodes(obj, node))
            return
        shape = class_shape(cls)
        if shape is None:
            self._refer_to_ours(node)
            return
        names, values = shape.state(obj)
        for field in getattr(cls, "__stored_exactly__", ()):
            self.exact(values[names.index(field)], node)
        node.become("instance", (*name, *names), self.nodes(values, node))

    def _refer_to_ours(self, node: Node) -> None:
        """What is more than its attributes, as the program holds it: a compiled function that calls one."""
        try:
            self._refer(node)
        except NotStorable as error:
            detail = f"{shown_type(node.obj)}, which is more than its attributes"
            raise NotStorable(NOT_STORABLE, detail) from error

    def _guard(self, node: Node, guard: Any) -> None:
        cls: Any = type(guard)
        header, values = _guard_fields(cls)
        if cls in _COMPARED_BY_IDENTITY:
            self.exact(guard.obj, node)
        node.become("instance", header, self.nodes(values(guard), node))

    def _class_attribute(self, node: Node, guard: ClassAttrIs) -> None:
        """Of an equal atom that a class holds, only the class leads to the very object."""
        if type(guard.obj) not in _COPIED_ATOMS or _is_unique(guard.obj):
            self._guard(node, guard)
            return
        node.become("class attribute", (), self.nodes((guard.cls, guard.name, guard.obj, guard.location), node))

    def _path(self, node: Node, path: Any) -> None:
        kind = type(path)
        if kind is Arg:
            children = self.nodes((path.key, path.name, path.forwarded), node)
        elif kind is Pinned:
            children = [self.exact(path.key, node), self.node(path.label, node)]
        elif kind is Drawn:
            children = [self.node(path.key, node)]
        elif kind in KEYLESS:
            children = [self.node(path.base, node)]
        else:
            children = self.nodes((path.base, path.key), node)
        node.become("path", _PATH_HEADERS[kind], children)

    def _mro(self, node: Node, guard: MroIs) -> None:
        if guard.mro is not guard.cls.__mro__:
            raise NotStorable(NOT_STORABLE, f"bases that {guard.cls.__qualname__} had before")
        node.become("mro", (), self.nodes((guard.cls, guard.location, *guard.mro), node))

    # ---------------------------------------------------------------------------------------------- functions
    def _function(self, node: Node, function: FunctionType) -> None:
        if generated.is_generated(function):
            first = [self._code(function.__code__, node), self._globals_of(function, node)]
            kind, header = "generated", NO_HEADER
        else:
            module = ours.module_of_function(function)
            found = None if module is None else ours.nested_code_name(module, function.__code__)
            if found is None:
                if module is not None:
                    raise NotStorable(NOT_STORABLE, f"{module}.{function.__code__.co_qualname}, which no name leads to")
                self._refer(node)
                return
            first, kind, header = [], "closure", (module, *found)
        names = (function.__name__, function.__qualname__)
        parts = (*names, function.__defaults__, function.__kwdefaults__, dict(function.__dict__) or None)
        cells = [self._cell(cell, node) for cell in function.__closure__ or ()]
        node.become(kind, header, [*first, *self.nodes(parts, node), *cells])

    def _code(self, code: CodeType, parent: Node) -> Node:
        node = self._by_id.get(id(code))
        if node is None:
            node = self._by_id[id(code)] = Node(code, parent)
            try:
                node.become("code", (), self._names_within((code,), node), self.blob(generated.code_bytes(code)))
            except ValueError as error:
                raise NotStorable(NOT_STORABLE, f"the code of {code.co_qualname}: {error}") from error
        return node

    def _cell(self, cell: CellType, parent: Node) -> Node:
        node = self._by_id.get(id(cell))
        if node is None or node.kind == "reference":
            if node is not None:
                return node
            node = self._by_id[id(cell)] = Node(cell, parent)
            try:
                node.become("cell", (), [self.node(cell.cell_contents, node)])
            except ValueError:
                node.become("cell")  # empty
        return node

    def _globals_of(self, function: FunctionType, parent: Node) -> Node:
        """The node of its globals, with the names that this function reads noted."""
        namespace = function.__globals__
        node = self._by_id.get(id(namespace))
        if node is None:
            node = self._by_id[id(namespace)] = Node(namespace, parent)
            node.become("globals")
            self._globals[id(namespace)] = dict.fromkeys(generated.always_kept(namespace))
        self._globals[id(namespace)] |= dict.fromkeys(generated.globals_read(function.__code__, namespace))
        return node

    def _fill_globals(self) -> bool:
        """Give the globals that were met the children that are missing. Were there any?"""
        more = False
        for key, names in self._globals.items():
            node = self._by_id[key]
            namespace: Any = node.obj
            there = {child.obj for child in node.children[::2]}
            for name in names:
                if name not in there:
                    node.children += (self.node(name, node), self._global(namespace, name, node))
                    more = True
        return more

    def _global(self, namespace: dict[str, Any], name: str, node: Node) -> Node:
        """What emitted code calls by a name is the program's very object, if it is the program's at all."""
        value = namespace[name]
        if "__emitted__" not in namespace or type(value) not in _BY_CONTENT:
            return self.node(value, node)
        try:
            return self._referenced(value, node)
        except NotStorable:
            if type(value) in _MUTABLE:
                raise
            return self.node(value, node)

    # ---------------------------------------------------------------------------------------------- containers
    def _sequence(self, node: Node, obj: Any) -> None:
        node.become(_SEQUENCES[type(obj)], (), self.nodes(obj, node))

    def _dict(self, node: Node, obj: dict[Any, Any]) -> None:
        items = OrderedDict.items(obj) if type(obj) is OrderedDict else obj.items()
        children = [child for key, value in items for child in self.nodes((key, value), node)]
        node.become("ordered" if type(obj) is OrderedDict else "dict", (), children)

    def _deque(self, node: Node, obj: deque[Any]) -> None:
        node.become("deque", (obj.maxlen,), self.nodes(obj, node))

    def _range(self, node: Node, obj: Any) -> None:
        node.become("range" if type(obj) is range else "slice", (), self.nodes((obj.start, obj.stop, obj.step), node))

    def _complex(self, node: Node, obj: complex) -> None:
        node.become("complex", (), self.nodes((obj.real, obj.imag), node))

    def _bytes(self, node: Node, obj: bytes) -> None:
        node.become("bytes", raw=self.blob(obj))

    def _reference(self, node: Node, obj: object) -> None:
        self._refer(node)

    def _single(self, node: Node, obj: object) -> None:
        node.become("single", raw=repr(obj))

    def _deferred(self, node: Node, deferred: Deferred[Any]) -> None:
        node.become(DEFERRED, NO_HEADER, [self.node(deferred.get(), node)])

    def _expression(self, node: Node, obj: Any) -> None:
        node.become("expression", (type(obj).__name__,), self.nodes(obj.__reduce__()[1], node))


_SEQUENCES: Final[dict[type, str]] = {tuple: "tuple", list: "list", set: "set", frozenset: "frozenset"}
_MUTABLE: Final = frozenset({list, dict, set, OrderedDict, deque})
_BY_CONTENT: Final = frozenset({*_SEQUENCES, *_MUTABLE, slice, range, CellType, functools.partial, MethodType})
"""Types whose instances are copied where nothing depends on their identity."""
_COPIED_ATOMS: Final = frozenset({int, float, complex, str, bytes})
_EMPTY_TUPLE: Final = ()
_SMALL: Final = range(-5, 257)
"""Ints of which there is one each."""
_OWNERS: Final = frozenset({*_MUTABLE, str, bytes, int, float, tuple, frozenset, range})
_COMPARED_BY_IDENTITY: Final = frozenset({IdIs, ClassAttrIs})
"""Guards whose `obj` must be the very object."""
_PATH_HEADERS: Final = {cls: (cls.__name__,) for cls in AccessPath.__subclasses__()}
KEYLESS: Final = frozenset({Cell, TypeOf, Referent, OffsetOf})
"""Classes of paths that are steps without a key."""

_RULES: Final[dict[type, Callable[[_Survey, Node, Any], None]]] = {
    **{cls: _Survey._path for cls in AccessPath.__subclasses__()},
    **{cls: _Survey._guard for cls in Guard.__subclasses__()},
    MroIs: _Survey._mro,
    ClassAttrIs: _Survey._class_attribute,
    **{cls: _Survey._sequence for cls in _SEQUENCES},
    dict: _Survey._dict,
    OrderedDict: _Survey._dict,
    deque: _Survey._deque,
    range: _Survey._range,
    slice: _Survey._range,
    complex: _Survey._complex,
    bytes: _Survey._bytes,
    type(Ellipsis): _Survey._single,
    type(NotImplemented): _Survey._single,
    **{cls: _Survey._expression for cls in (Expr, Symbol, Operation)},
    CellType: _Survey._reference,
    Deferred: _Survey._deferred,
}


@functools.cache
def _guard_fields(cls: Any) -> tuple[Header, Callable[[object], tuple[Any, ...]]]:
    """The header of a class of guards, and what gives the values of its fields."""
    names = tuple(field.name for field in attrs.fields(cls))
    return (cls.__module__, cls.__qualname__, *names), operator.attrgetter(*names)


def _is_wrapper_of_ours(obj: Any) -> bool:
    """Is it a nested function of torchjit's that the program holds, such as `torchjit.disable` gives?"""
    if type(obj) is not FunctionType or generated.is_generated(obj) or how_made(obj) is not None:
        return False
    return ours.module_of_function(obj) is not None and _function_or_class_name(obj) is None


def _is_unique(obj: Any) -> bool:
    """Is there one object for this atom in each process? Of strings that look like names the compiler makes one."""
    if type(obj) is int:
        return obj in _SMALL
    return type(obj) is str and obj.isascii() and obj.replace("_", "a").isalnum()


def _is_plain(obj: object) -> bool:
    """Does JSON hold the atom as it is?"""
    if type(obj) is int:
        return -_BIG < obj < _BIG
    if type(obj) is float:
        return math.isfinite(obj)
    return type(obj) is not str or obj.isascii() or not any("\ud800" <= c <= "\udfff" for c in obj)


def _torch_values() -> Any:
    """`torch_values`, where torch is loaded."""
    if "torch" not in sys.modules:
        return None
    from torchjit_store import torch_values  # noqa: PLC0415  # imports torch

    return torch_values


def _function_or_class_name(obj: object) -> tuple[str, str] | None:
    """The name of a module, class or function of ours, or of what stands for a function (`functools.cache`)."""
    if issubclass(type(obj), (type, FunctionType, ModuleType, functools._lru_cache_wrapper, BuiltinFunctionType)):
        return ours.name_of(obj)
    return None
