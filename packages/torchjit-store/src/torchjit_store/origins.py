"""References of an entry to what is not torchjit's: how each object is found again, and what it must be then.

`Origins` makes the table while an entry is stored; `finder` finds and verifies it in another process, and `table` says what it holds. Names are
tried first (`names`), then a search (`search`).

What an object holds for ever (a property's getter, a default) is a row of its own; `parts` says which row it must be, so an
object that looks the same in the place of another one is noticed.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any, final

from torchjit_core.reasons import reason
from torchjit_core.storing import NotStorable, ReliedOn
from torchjit_store.fingerprints import Step, atom_text, class_name, describe, is_static, mro, namespace
from torchjit_store.names import modules_of, named_ways, shown, walk
from torchjit_store.ours import is_our_function, is_ours
from torchjit_store.reached import reach_digest
from torchjit_store.search import Search
from torchjit_store.steps import follow
from torchjit_store.table import JSON_ATOMS, REGISTRIES, Data, Row, digest, label, leads

__all__ = ["Origins"]

UNFINDABLE = reason(
    "TJ-STORE-021",
    "an entry relies on an object that has no way back",
    "A compiled entry is kept on disk with the way to each object that it relies on: a module and a name, or what holds it. "
    "This one was found neither in the modules of the functions that were compiled nor below the arguments of the call.",
    "Give it a name in a module, or pass it as an argument.",
)


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
        self._rows: list[Row] = []
        self._objects: list[Any] = []
        self._row_of: dict[int, int] = {}
        self._described: dict[int, NotStorable | None] = {}
        self._texts: dict[int, str] = {}
        self._parts: list[list[Any]] = []
        given = list(functions)
        for refusal in given:
            if isinstance(refusal, NotStorable):
                raise refusal
        all_functions = [f for f in given if type(f) is FunctionType or type(f) is CodeType]
        interpreted = [f for f in all_functions if type(f) is CodeType or not is_our_function(f)]
        for i, root in enumerate(roots):
            if atom_text(root) is None:
                self._add("root", None, i, root)
        noted = [f.function for f in given if isinstance(f, ReliedOn)]
        self._modules = modules_of([*all_functions, *(f for f in noted if type(f) is FunctionType)])
        self._search = Search(lambda: self._seeds(all_functions), self._row_of.__contains__)
        inside = _nested(all_functions)
        self._functions = [self.reference(_original(f)) for f in interpreted if id(f) not in inside]
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
                self._rows[row][3] = digest(self._texts[row])
            if parent is not None and not leads(self._objects[parent], step, key, self._objects[row]):
                raise NotStorable(UNFINDABLE, f"{label(self._rows, row)} has changed meanwhile")
        places = [
            [row, obj.co_filename, obj.co_firstlineno, _last_line(obj)]
            for row, obj in enumerate(self._objects)
            if type(obj) is CodeType
        ]
        texts = [self._texts[row] for row in sorted(self._texts)]
        whole = digest("\0\0".join(texts))
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

    def _add_way(self, row: int, way: Sequence[Step]) -> int:
        """Rows for a way of steps from the object of a row."""
        obj = self._objects[row]
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
            found = self._locate_by_name(part)
        if found is None and leads(self._objects[row], step, key, part):
            found = self._add(step, row, key, part)
        if found is None:
            found = self._locate(part)
        if found not in self._described:
            self._describe(found)
        return found

    # Ways

    def _locate(self, obj: Any) -> int:
        row = self._locate_by_name(obj)
        if row is not None:
            return row
        found = self._search.way_to(obj)
        if found is None:
            raise NotStorable(UNFINDABLE, shown(obj))
        start, way = found
        return self._add_way(self._row_of[id(start)], way)

    def _seeds(self, functions: Iterable[FunctionType | CodeType]) -> Iterator[object]:
        """Where the search begins: roots, what was interpreted as far as it has a name, and its modules."""
        yield from [obj for obj, row in zip(self._objects, self._rows, strict=True) if row[0] == "root"]
        for function in functions:
            if id(function) in self._row_of or self._locate_by_name(function) is not None:
                yield function
        for name in self._modules:
            if not is_ours(name) and self._module(name) is not None:
                yield sys.modules[name]

    def _locate_by_name(self, obj: Any) -> int | None:
        """The row of an object that has a name, and is what the name leads to."""
        registry = REGISTRIES.get(class_name(type(obj)))
        if registry is not None:
            own = namespace(obj)
            name = f"{own['_namespace']}::{own['_name']}" if registry == "operator" else own[_NAMES[registry]]
            return self._add(registry, None, name, obj)
        if type(obj) is types.BuiltinFunctionType and type(obj.__self__) in JSON_ATOMS:
            return self._add("method", None, [obj.__self__, obj.__name__], obj)
        if type(obj) is tuple and obj and issubclass(type(obj[0]), type) and mro(obj[0]) is obj:
            cls = self._row_of.get(id(obj[0]))
            cls = self._locate_by_name(obj[0]) if cls is None else cls
            return None if cls is None else self._add_way(cls, [("mro", None)])
        for module, way in named_ways(obj, self._modules):
            start = self._module(module)
            if start is None:
                continue
            end = walk(self._objects[start], way, obj)
            if end is not None:
                return self._add_way(start, end)
        return self._locate_class(obj) if issubclass(type(obj), type) else None

    def _locate_class(self, cls: Any) -> int | None:
        """The row of a class of C that has no name in a module: that of pybind's classes, or an iterator's."""
        if class_name(cls) == "pybind11_builtins.pybind11_type":
            torchs, one = self._module("torch._C"), "ScriptFunction"
            if torchs is None or type(namespace(self._objects[torchs]).get(one)) is not cls:
                return None
            return self._add_way(torchs, (("entry", one), ("type", None)))
        base = self._locate_by_name(cls.__base__) if is_static(cls) else None
        way = ("static", class_name(cls))
        if base is None or not leads(self._objects[base], *way, cls):
            return None
        return self._add_way(base, [way])

    def _module(self, name: str) -> int | None:
        """The row of a module of this process."""
        found = sys.modules.get(name)
        return None if found is None else self._add("module", None, name, found)


_NAMES = {"kernels": "qualname", "operators": "name"}
"""Where what is registered has the name that it is registered under."""


def _original(function: FunctionType | CodeType) -> FunctionType | CodeType:
    """What was interpreted, or what it is an exact copy of: polyfills stand behind such copies."""
    wrapped = namespace(function).get("__wrapped__")
    if type(function) is not FunctionType or type(wrapped) is not FunctionType:
        return function
    parts = ("__code__", "__globals__", "__defaults__", "__kwdefaults__", "__closure__")
    return wrapped if all(getattr(wrapped, p) is getattr(function, p) for p in parts) else function


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


def _last_line(code: CodeType) -> int:
    last = max((line for _, _, line in code.co_lines() if line is not None), default=code.co_firstlineno)
    return max([last, *(_last_line(c) for c in code.co_consts if type(c) is CodeType)])
