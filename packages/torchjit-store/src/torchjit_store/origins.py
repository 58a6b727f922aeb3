"""References of an entry to what is not torchjit's: how each object is found again, and what it must be then.

`Origins` makes the table while an entry is stored. `Finder` finds and verifies the whole table in another process before
anything of the entry is used. A row of the table is `[step, parent, key, fingerprint]`: the object that `step` leads to from the
object of row `parent`, or a module of `sys.modules`, or a root that both processes have at hand. Rows come behind their parents. A
reference is the number of a row.

What an object holds for ever (a property's getter, a default) is a row of its own; `parts` says which row it must be, so an
object that looks the same in the place of another one is noticed.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any, NoReturn, TypeAlias, final

from torchjit_core.reasons import reason
from torchjit_core.storing import NotStorable, ReliedOn
from torchjit_store.fingerprints import Step, atom_text, class_name, describe, module_name, mro, namespace
from torchjit_store.ours import is_ours, resolve
from torchjit_store.reached import reach_digest
from torchjit_store.stale import Stale
from torchjit_store.steps import follow, held

__all__ = ["Finder", "Origins", "Stale"]

UNFINDABLE = reason(
    "TJ-STORE-021",
    "an entry relies on an object that has no way back",
    "A compiled entry is kept on disk with the way to each object that it relies on: a module and a name, or what holds it. "
    "This one was found neither in the modules of the functions that were compiled nor below the arguments of the call.",
    "Give it a name in a module, or pass it as an argument.",
)

Data: TypeAlias = Any
_MISSED = (LookupError, AttributeError, TypeError, ValueError)
"""What a step raises that leads nowhere."""


# --- storing -------------------------------------------------------------------------------------------------------------


@final
class Origins:
    """The table of one entry while it is stored.

    Args:
        functions: what the VM interpreted, and what `torchjit_core.storing.collecting_reliance` collected. All of it is verified when
            the entry is loaded, whether a guard names it or not.
        roots: what the loading process will have at hand, too, in the same order: the region's function, the arguments.

    Raises:
        NotStorable: one of the functions cannot be found again.
    """

    def __init__(
        self, functions: Iterable[FunctionType | CodeType | ReliedOn | NotStorable], roots: Iterable[object] = ()
    ) -> None:
        self._rows: list[list[Any]] = []
        self._objects: list[Any] = []
        self._row_of: dict[int, int] = {}
        self._described: dict[int, NotStorable | None] = {}
        self._texts: dict[int, str] = {}
        self._parts: list[list[Any]] = []
        given = list(functions)
        for refusal in given:
            if isinstance(refusal, NotStorable):
                raise refusal
        interpreted = [f for f in given if type(f) is FunctionType or type(f) is CodeType]
        for i, root in enumerate(roots):
            if atom_text(root) is None:
                self._add("root", None, i, root)
        noted = [f.function for f in given if isinstance(f, ReliedOn)]
        self._modules = _modules_of([*interpreted, *(f for f in noted if type(f) is FunctionType)])
        self._search = _Search(self, interpreted)
        inside = _nested(interpreted)
        self._functions = [self.reference(f) for f in interpreted if id(f) not in inside and not _is_polyfill(f)]
        self._relied_on = [[self._locate_known(f), reach_digest(f)] for f in noted]

    def reference(self, obj: object) -> int:
        """The number of an object's row.

        Raises:
            NotStorable: it cannot be found again, or what it is cannot be told.
        """
        row = self._row_of.get(id(obj))
        if row is None:
            row = self._locate(obj)
        failed = self._described[row] if row in self._described else self._describe(row)
        if failed is not None:
            raise failed
        return row

    def _locate_known(self, obj: object) -> int:
        row = self._row_of.get(id(obj))
        return self._locate(obj) if row is None else row

    def table(self) -> Data:
        """All references, with fingerprints; JSON can hold it.

        Raises:
            NotStorable: a way does not lead to its object any more.
        """
        for row, (step, parent, key, *_) in enumerate(self._rows):
            if row in self._texts:
                self._rows[row][3] = _digest(self._texts[row])
            if parent is not None and not _leads(self._objects[parent], step, key, self._objects[row]):
                raise NotStorable(UNFINDABLE, f"{_label(self._rows, row)} has changed meanwhile")
        places = [
            [row, obj.co_filename, obj.co_firstlineno, _last_line(obj)]
            for row, obj in enumerate(self._objects)
            if type(obj) is CodeType
        ]
        texts = [self._texts[row] for row in sorted(self._texts)]
        whole = _digest("\0\0".join(texts))
        return {
            "rows": self._rows,
            "parts": self._parts,
            "places": places,
            "functions": self._functions,
            "relied_on": self._relied_on,
            "digest": whole,
        }

    # Rows

    def _add(self, step: str, parent: int | None, key: Any, obj: Any) -> int:
        known = self._row_of.get(id(obj))
        if known is not None:
            return known
        self._row_of[id(obj)] = row = len(self._rows)
        self._rows.append([step, parent, key, None])
        self._objects.append(obj)
        return row

    def _add_way(self, row: int, start: Any, way: Sequence[Step]) -> int:
        """Rows for a way of steps from the object `start` of a row."""
        obj = start
        for step, key in way:
            obj = follow(obj, step, key)
            row = self._add(step, row, key, obj)
        return row

    def _describe(self, row: int) -> NotStorable | None:
        self._described[row] = None  # first: parts may lead back here
        try:
            description = describe(self._objects[row])
            for (step, key), part in description.parts:
                found = self._part(row, step, key, part)
                if self._rows[found][:3] != [step, row, key]:
                    self._parts.append([row, step, key, found])
        except NotStorable as error:
            self._described[row] = error
            return error
        self._texts[row] = description.text
        return None

    def _part(self, row: int, step: str, key: Any, part: Any) -> int:
        """The row of a part. Of one that nobody can describe identity alone counts: whoever relies on more refers to it itself.

        Code needs no name, and what has none hangs where it was found: parts are never searched for.
        """
        found = self._row_of.get(id(part))
        if found is None and type(part) is not CodeType:
            found = self.locate_by_name(part)
        if found is None and _leads(self._objects[row], step, key, part):
            found = self._add(step, row, key, part)
        if found is None:
            found = self._locate(part)
        if found not in self._described:
            self._describe(found)
        return found

    # Ways

    def _locate(self, obj: Any) -> int:
        row = self.locate_by_name(obj)
        if row is None:
            row = self._search.locate(obj)
        if row is None:
            raise NotStorable(UNFINDABLE, _shown(obj))
        return row

    def locate_by_name(self, obj: Any) -> int | None:
        """The row of an object that has a name, and is what the name leads to."""
        registry = _REGISTRIES.get(class_name(type(obj)))
        if registry is not None:
            own = namespace(obj)
            name = f"{own['_namespace']}::{own['_name']}" if registry == "operator" else own["qualname"]
            return self._add(registry, None, name, obj)
        if type(obj) is types.BuiltinFunctionType and type(obj.__self__) in _JSON_ATOMS:
            return self._add("method", None, [obj.__self__, obj.__name__], obj)
        if type(obj) is tuple and obj and issubclass(type(obj[0]), type) and mro(obj[0]) is obj:
            cls = self.row_of(obj[0])
            cls = self.locate_by_name(obj[0]) if cls is None else cls
            return None if cls is None else self.add_way(cls, [("mro", None)])
        for module, way in _named_ways(obj, self._modules):
            start = self.module(module)
            if start is None:
                continue
            end = _walk(self._objects[start], way, obj)
            if end is not None:
                return self._add_way(start, self._objects[start], end)
        return None

    def module(self, name: str) -> int | None:
        """The row of a module of this process."""
        found = sys.modules.get(name)
        return None if found is None else self._add("module", None, name, found)

    def row_of(self, obj: Any) -> int | None:
        return self._row_of.get(id(obj))

    def add_way(self, row: int, way: Sequence[Step]) -> int:
        return self._add_way(row, self._objects[row], way)


def _is_polyfill(function: FunctionType | CodeType) -> bool:
    """Is it torchjit's own, of which an entry's key has the digest?"""
    return type(function) is FunctionType and is_ours(function.__globals__.get("__name__"))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _reach_of(obj: Any) -> str:
    try:
        return reach_digest(obj)
    except NotStorable:
        return ""


def _text_of(obj: Any) -> str:
    try:
        return describe(obj).text
    except NotStorable:
        return "opaque"


def _leads(obj: Any, step: str, key: Any, wanted: Any) -> bool:
    try:
        return follow(obj, step, key) is wanted
    except _MISSED:
        return False


def _modules_of(functions: Iterable[FunctionType | CodeType]) -> tuple[str, ...]:
    """The names of the modules that hold the functions, `__main__` last."""
    names: dict[str, None] = {}
    codes = []
    for function in functions:
        if type(function) is FunctionType:
            name = module_name(function.__globals__)
            if name in sys.modules and namespace(sys.modules[name]) is function.__globals__:
                names[name] = None
        else:
            codes.append(function)
    files = {code.co_filename for code in codes}
    if files:
        for name, module in list(sys.modules.items()):
            if namespace(module).get("__file__") in files:
                names[name] = None
    return *names, "__main__"


def _named_ways(obj: Any, modules: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Modules, and qualified names in them, that may lead to an object."""
    exact = type(obj)
    if exact is FunctionType:
        if type(obj.__module__) is str:
            yield obj.__module__.replace("__mp_main__", "__main__"), tuple(obj.__qualname__.split("."))
        yield module_name(obj.__globals__), tuple(obj.__code__.co_qualname.split("."))
        yield from _other_names(obj)
    elif exact is CodeType:
        for module in modules:
            yield module, tuple(obj.co_qualname.split("."))
    elif issubclass(exact, type):
        module, qualname = _name_parts(obj)
        yield module, tuple(qualname.split("."))
        if module == "builtins":
            yield from (("types", (name,)) for name, cls in vars(types).items() if cls is obj)
    elif issubclass(exact, types.ModuleType):
        yield module_name(namespace(obj)), ()
        yield from ((module, ()) for module in _modules_over(namespace(obj)))
    elif exact is dict:
        if obj is sys.modules:
            yield "sys", ("modules",)
        elif type(obj.get("__name__")) is str:
            yield module_name(obj), ("__dict__",)
            yield from ((module, ("__dict__",)) for module in _modules_over(obj))
    elif exact in _DESCRIPTORS:
        module, qualname = _name_parts(obj.__objclass__)
        yield module, (*qualname.split("."), obj.__name__)
    elif exact is types.BuiltinFunctionType:
        owner = obj.__self__
        if issubclass(type(owner), types.ModuleType):
            yield str(namespace(owner).get("__name__")), (obj.__name__,)
        elif issubclass(type(owner), type):
            module, qualname = _name_parts(owner)
            yield module, (*qualname.split("."), obj.__name__)
        for module in (str(obj.__module__), "torch", "torch._C._nn", "torch._C", "builtins"):
            yield module, (obj.__name__,)
    elif exact in (staticmethod, classmethod, property, functools.cached_property):
        inner = next((f for f in _unwrapped(obj) if type(f) is FunctionType), None)
        if inner is not None:
            yield from _named_ways(inner, modules)


def _other_names(function: FunctionType) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Names of a function that calls itself otherwise: one that a factory has made, or in a module with another name than its own."""
    qualname = tuple(function.__qualname__.split("."))
    holders = _modules_over(function.__globals__)
    yield from ((module, qualname) for module in holders)
    for module in dict.fromkeys((str(function.__module__), *holders)):
        space = namespace(sys.modules.get(module))
        yield from ((module, (name,)) for name, value in list(space.items()) if value is function)


def _modules_over(space: Mapping[str, Any]) -> list[str]:
    """The names under which the module with this dict was imported: `_collections_abc` says that it is `collections.abc`."""
    return [name for name, module in list(sys.modules.items()) if namespace(module) is space]


_DESCRIPTORS = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType,
)  # fmt: skip


def _name_parts(cls: type) -> tuple[str, str]:
    name = class_name(cls)
    qualname: str = type.__dict__["__qualname__"].__get__(cls)
    return name[: -len(qualname) - 1], qualname


def _unwrapped(obj: Any) -> Iterator[Any]:
    for _, found in _peeled(obj):
        yield found


def _peeled(obj: Any) -> Iterator[tuple[tuple[Step, ...], Any]]:
    """The object, and what it wraps, with the steps that lead there."""
    way: tuple[Step, ...] = ()
    for _ in range(8):
        yield way, obj
        step = _PEELS.get(type(obj), ("entry", "__wrapped__"))
        try:
            obj = follow(obj, *step)
        except _MISSED:
            return
        way = (*way, step)


_PEELS: dict[type, Step] = {
    staticmethod: ("attr", "__func__"),
    classmethod: ("attr", "__func__"),
    property: ("attr", "fget"),
    functools.partial: ("attr", "func"),
    functools.cached_property: ("entry", "func"),
}


def _walk(start: Any, names: tuple[str, ...], wanted: Any) -> tuple[Step, ...] | None:
    """The steps from a module along a qualified name to the wanted object, or None if they lead elsewhere."""
    if names == ("__dict__",):
        return (("dict", None),) if namespace(start) is wanted else None
    way: tuple[Step, ...] = ()
    obj = start
    for i, name in enumerate(names):
        if name == "<locals>":
            return _walk_code(obj, way, names[i + 1 :], wanted)
        space = namespace(obj)
        if name not in space:
            return None
        obj = space[name]
        way = (*way, ("entry", name))
    for more, found in _peeled(obj):
        if found is wanted:
            return way + more
        if type(found) is FunctionType and found.__code__ is wanted:
            return (*way, *more, ("code", None))
    return way if obj is wanted else None


def _walk_code(outer: Any, way: tuple[Step, ...], names: tuple[str, ...], wanted: Any) -> tuple[Step, ...] | None:
    """The steps to the code of a nested function, through the constants of the code around it."""
    if type(wanted) is not CodeType:
        return None
    for more, found in _peeled(outer):
        if type(found) is FunctionType:
            inner = constants_to(found.__code__, wanted)
            if inner is not None:
                return (*way, *more, ("code", None), *inner)
    return None


def constants_to(code: CodeType, wanted: CodeType) -> tuple[Step, ...] | None:
    """The steps from a code object to one among its constants, at any depth."""
    for i, constant in enumerate(code.co_consts):
        if type(constant) is CodeType:
            if constant is wanted:
                return (("const", i),)
            inner = constants_to(constant, wanted)
            if inner is not None:
                return (("const", i), *inner)
    return None


def _nested(functions: Iterable[FunctionType | CodeType]) -> set[int]:
    """The ids of all code objects in the constants of functions: the fingerprint of the code around them has theirs."""
    inside: set[int] = set()
    todo = [f.__code__ for f in functions if type(f) is FunctionType]
    while todo:
        for constant in todo.pop().co_consts:
            if type(constant) is CodeType:
                inside.add(id(constant))
                todo.append(constant)
    return inside


def _shown(obj: Any) -> str:
    exact = type(obj)
    if exact is FunctionType or exact is CodeType:
        code = obj if exact is CodeType else obj.__code__
        return f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
    return f"an object of type {class_name(exact)}"


@final
class _Search:
    """Breadth first from the roots and the interpreted functions, as far as needed; identity decides.

    It goes on where it stopped when the next object is looked for, so all searches of an entry together visit each object once.
    """

    _LIMIT = 40_000

    def __init__(self, origins: Origins, functions: Sequence[FunctionType | CodeType]) -> None:
        self._origins, self._functions = origins, functions
        self._from: dict[int, tuple[int, Step] | None] = {}
        self._kept: list[Any] = []
        self._near: deque[Any] = deque()
        self._far: deque[Any] = deque()
        self._modules: set[int] = set()
        self._started = False

    def locate(self, obj: Any) -> int | None:
        """The row of an object, or None: nothing within reach leads to it."""
        if not self._started:
            self._started = True
            self._start()
        wanted = id(obj)
        while wanted not in self._from:
            if (not self._near and not self._far) or len(self._kept) > self._LIMIT:
                return None
            self._expand(self._near.popleft() if self._near else self._far.popleft())
        return self._way_to(wanted)

    def _way_to(self, wanted: int) -> int:
        way: list[Step] = []
        at = wanted
        while True:
            row = self._origins._row_of.get(at)
            if row is not None:
                return self._origins.add_way(row, way[::-1])
            before = self._from[at]
            if before is None:
                raise AssertionError("a seed of the search has a row")
            at, step = before
            way.append(step)

    def _start(self) -> None:
        for obj in list(self._origins._objects):
            if self._origins._rows[self._origins._row_of[id(obj)]][0] == "root":
                self._seed(obj)
        for function in self._functions:
            if self._origins.row_of(function) is not None or self._origins.locate_by_name(function) is not None:
                self._seed(function)
        for name in self._origins._modules:
            if self._origins.module(name) is not None:
                module = sys.modules[name]
                self._modules.add(id(module))
                self._seed(module)

    def _seed(self, obj: Any) -> None:
        if id(obj) not in self._from:
            self._from[id(obj)] = None
            self._kept.append(obj)
            self._near.append(obj)

    def _expand(self, obj: Any) -> None:
        known, parent = self._from, id(obj)
        for step, value in self._held(obj):
            key = id(value)
            if key in known:
                continue
            atom = atom_text(value) is not None
            if atom and type(value) not in _UNIQUE:
                continue
            known[key] = parent, step
            self._kept.append(value)
            if atom:
                continue
            if issubclass(type(value), types.ModuleType) and key not in self._modules:
                self._far.append(value)
            else:
                self._near.append(value)

    def _held(self, obj: Any) -> Iterable[tuple[Step, Any]]:
        if not issubclass(type(obj), types.ModuleType):
            return held(obj)
        space = namespace(obj)
        if str(space.get("__name__")).startswith("torchjit"):
            return ()
        return [(("entry", n), v) for n, v in list(space.items()) if type(n) is str and not n.startswith("__")]


_UNIQUE = frozenset({int, float, complex, str, bytes})
"""Atoms that a guard may compare by identity, as it does what a class holds; whoever finds them compares the value."""


def _last_line(code: CodeType) -> int:
    last = max((line for _, _, line in code.co_lines() if line is not None), default=code.co_firstlineno)
    return max([last, *(_last_line(c) for c in code.co_consts if type(c) is CodeType)])


# --- loading -------------------------------------------------------------------------------------------------------------


@final
class Finder:
    """The objects of a table in this process, all of them found and verified.

    Args:
        table: from `Origins.table`.
        roots: as for `Origins`, of this process.

    Raises:
        Stale: one is not there, or is not what it was.
    """

    def __init__(self, table: Data, roots: Iterable[object] = ()) -> None:
        self._rows = table["rows"]
        self._roots = tuple(roots)
        self._objects: list[Any] = []
        texts = []
        for row, (step, parent, key, fingerprint) in enumerate(self._rows):
            obj = self._found(row, step, parent, key)
            self._objects.append(obj)
            if fingerprint is not None:
                texts.append(_text_of(obj))
        if _digest("\0\0".join(texts)) != table["digest"]:  # one digest for all: the others say which
            self._find_changed(texts)
        for row, step, key, part in table["parts"]:
            if not self._holds(self._objects[row], step, key, self._objects[part]):
                raise Stale(f"{_label(self._rows, row)} changed")
        for row, reached in table["relied_on"]:
            if _reach_of(self._objects[row]) != reached:
                raise Stale(f"what {_label(self._rows, row)} reaches changed")
        self._places = self._moves(table["places"])

    def find(self, data: Data) -> object:
        """The object of a reference.

        Raises:
            Stale: it is no reference of this table.
        """
        if type(data) is not int or not 0 <= data < len(self._objects):
            raise Stale("a reference without a row")
        return self._objects[data]

    def moved(self, filename: str, line: int) -> tuple[str, int]:
        """Where a place of the time of saving is now: functions move in files, and files move."""
        best: tuple[int, str, int] | None = None
        for first, last, now, shift in self._places.get(filename, ()):
            if first <= line <= last and (best is None or last - first < best[0]):
                best = last - first, now, shift
        return (filename, line) if best is None else (best[1], line + best[2])

    def _found(self, row: int, step: str, parent: int | None, key: Any) -> Any:
        if step == "module":
            try:
                return sys.modules.get(key) or resolve(key, "")
            except LookupError:  # the program imports its own
                raise Stale(f"{key} is not imported") from None
        if step in _REGISTRIES.values():
            return _registered(step, key)
        if step == "method":
            return getattr(key[0], key[1])  # of a str or a number
        if step == "root":
            if key >= len(self._roots):
                raise Stale("other arguments")
            return self._roots[key]
        try:
            return follow(self._objects[parent], step, key)  # type: ignore[index]  # only roots and modules have no parent
        except _MISSED:
            raise Stale(f"{_label(self._rows, row)} is gone") from None

    def _find_changed(self, texts: list[str]) -> NoReturn:
        now = iter(texts)
        for row, (_, _, _, fingerprint) in enumerate(self._rows):
            if fingerprint is not None and _digest(next(now)) != fingerprint:
                raise Stale(f"{_label(self._rows, row)} changed")
        raise Stale("a table that does not agree with itself")

    def _holds(self, obj: Any, step: str, key: Any, part: Any) -> bool:
        if step == "member":
            return type(obj) is frozenset and any(member is part for member in obj)
        return _leads(obj, step, key, part)

    def _moves(self, places: list[list[Any]]) -> dict[str, list[tuple[int, int, str, int]]]:
        moves: dict[str, list[tuple[int, int, str, int]]] = {}
        for row, filename, first, last in places:
            code = self._objects[row]
            moves.setdefault(filename, []).append((first, last, code.co_filename, code.co_firstlineno - first))
        return moves


_JSON_ATOMS = frozenset({str, int, float, bool})
_REGISTRIES = {
    "torch._library.custom_ops.CustomOpDef": "operator",
    "torch._library.simple_registry.SimpleOperatorEntry": "kernels",
}
"""Where torch keeps what a program registers for operators, and the steps that lead there."""


def _registered(step: str, name: str) -> Any:
    """What torch has for a custom operator.

    Raises:
        Stale: there is no such operator.
    """
    modules = sys.modules
    if step == "operator":
        found = namespace(modules["torch._library.custom_ops"])["OPDEFS"].get(name)
    else:
        found = namespace(modules["torch._library.simple_registry"])["singleton"]._data.get(name)
    if found is None:
        raise Stale(f"the operator {name} is gone")
    return found


_SAID = {"code": "the code of {}", "mro": "the bases of {}", "content": "the content of {}", "cell": "a cell of {}"}


def _label(rows: list[list[Any]], row: int) -> str:
    """What people call the object of a row."""
    step, parent, key, _ = rows[row]
    if parent is None:
        return f"argument {key}" if step == "root" else str(key)
    base = _label(rows, parent)
    if step in _SAID:
        return _SAID[step].format(base)
    if step in ("default", "kwdefault"):
        return f"default {key!r} of {base}"
    if step == "const":
        return base
    return (
        f"{base}.{key}"
        if step in ("entry", "attr", "slot")
        else f"{base}[{key!r}]"
        if step == "item"
        else f"{base}.{step}"
    )
