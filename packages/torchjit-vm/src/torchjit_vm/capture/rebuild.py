"""Values to Python expressions that rebuild them in emitted code.

What the expression of a new object is, says the slot `rebuild` of its kind.
"""

from __future__ import annotations

import builtins
import keyword
import math
import types
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias, final

from torchjit_core.location import CodeLocation
from torchjit_core.paths import AccessPath, Arg, Attr, Cell, Drawn, InstanceAttr, Item, Pinned
from torchjit_core.reasons import GraphBreak
from torchjit_vm.capture import runtime
from torchjit_vm.capture.class_making import make_class, part_of
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.effect_records import MadeClass
from torchjit_vm.capture.reasons import REBUILD
from torchjit_vm.capture.type_slots import SLOTS
from torchjit_vm.capture.values import (
    DELETED,
    NEW,
    Const,
    DictValue,
    FunctionValue,
    GeneratorValue,
    Known,
    Leaf,
    ListValue,
    Obj,
    Value,
)

__all__ = ["Cycle", "Line", "NotRemade", "Rebuilder", "made_early", "write_attributes"]

Line: TypeAlias = "tuple[int, str, CodeLocation | None]"
"""Of emitted code: indentation, text, and the place in the program's source that tracebacks show for it."""

_LITERALS = (int, str, bytes, bool, type(None), type(Ellipsis))


@final
class Cycle(Exception):
    """A container holds itself: it must be made before its contents."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


@final
class NotRemade(Exception):
    """Emitted code cannot do with a class that the region made what the program does: its statement must run for real."""

    def __init__(self, made: MadeClass, detail: str) -> None:
        super().__init__(detail)
        self.made, self.detail = made, detail


def _name_of(obj: object) -> str:
    """What to call an object; a module is not asked, whose `__getattr__` may be the program's."""
    found = None if isinstance(obj, types.ModuleType) else getattr(obj, "__qualname__", None)
    return found if type(found) is str and found else type(obj).__name__


@final
class Rebuilder:
    """Writes the lines of one emitted function, and knows what it needs from outside.

    Attributes:
        lines: what is written by now.
        gathered: access path to parameter name, in order.
        constants: name to object, the function's globals.
        leaves: the leaves that the lines mention, with the name of each.
        classes: the names of classes that the region made; "" while one is being made.
        context_stores: how many stores to context variables are written.
        dropped: variables of objects that only weak references lead to.
        raising: the exception that the emitted code ends with: that gives it its traceback.
    """

    def __init__(self, domain: CaptureDomain, early: set[Value]) -> None:
        self.domain = domain
        self.early = early
        self.lines: list[Line] = []
        self.indent = 1
        self.location: CodeLocation | None = None
        self.gathered: dict[AccessPath, str] = {}
        self.constants: dict[str, Any] = {}
        self.leaves: dict[int, tuple[str, Leaf]] = {}
        self._names: dict[int, str] = {}
        self._memo: dict[Value, str] = {}
        self.made_later: dict[Const, str] = {}
        self._active: dict[Value, None] = {}
        self.classes: dict[type, str] = {}
        self._last: list[str] = []
        self._later: list[Callable[[], None]] = []
        self._count = 0
        self.raising: Value | None = None
        self.context_stores = 0
        self.dropped: list[str] = []

    def write(self, text: str) -> None:
        """Add a line at the current indentation."""
        self.lines.append((self.indent, text, self.location))

    def fresh(self, prefix: str = "v") -> str:
        """A new variable name."""
        self._count += 1
        return f"{prefix}{self._count}"

    def gather(self, path: AccessPath) -> str:
        """The name under which the object at a path is at hand."""
        if type(path) is Drawn:
            return str(path)
        if self.domain.made_classes and type(path.root()) is Pinned:
            text = _pinned_expr(self, path)
            if text is not None:
                return text
        if type(path) is Pinned:
            return self.constant(path.key, "pinned")
        name = self.gathered.get(path)
        if name is None:
            name = self.gathered[path] = f"a{len(self.gathered)}"
        return name

    def constant(self, obj: object, hint: str) -> str:
        """The name of a real object in the emitted function's globals."""
        name = self._names.get(id(obj))
        if name is None:
            base = "".join(c if c.isalnum() else "_" for c in hint).strip("_") or "constant"
            if base[0].isdigit() or keyword.iskeyword(base):
                base = "_" + base
            name = base
            while name in self.constants or _is_reserved(name):
                self._count += 1
                name = f"{base}_{self._count}"
            self.constants[name] = obj
            self._names[id(obj)] = name
        return name

    def runtime(self, function: Callable[..., object]) -> str:
        """The name of a function of this package's runtime, or of a builtin."""
        return self.constant(function, "_" + function.__name__)

    def expr(self, value: Value) -> str:
        """An expression for the object that a value stands for; the same object each time.

        Raises:
            Cycle: the value must be made early.
            GraphBreak: it cannot be rebuilt.
        """
        t = type(value)
        if t is Const:
            return self._const(value)  # type: ignore[arg-type]
        found = self._memo.get(value)
        if found is not None:
            return found
        if t is Leaf:
            return self._leaf(value)  # type: ignore[arg-type]
        if t is Known:
            obj = value.obj  # type: ignore[attr-defined]
            if self.domain.made_classes:
                text = _known_expr(self, obj)
                if text is not None:
                    self._memo[value] = text
                    return text
            return self.constant(obj, _name_of(obj))
        real = getattr(value, "real", NEW)
        if real is not NEW:
            path: AccessPath = value.path  # type: ignore[attr-defined]
            return self.gather(path)
        if value in self._active:
            raise Cycle(self._first_of_cycle(value))
        self._active[value] = None
        try:
            name = self._new(value)
        finally:
            del self._active[value]
        self._memo[value] = name
        return name

    def _new(self, value: Value) -> str:
        write = SLOTS[type(value)].rebuild
        if write is None:
            raise GraphBreak(REBUILD, type(value).__name__, self.domain.location())
        return write(self, value)

    def _first_of_cycle(self, value: Value) -> Value:
        """What has to be made early, of a value that contains itself: a list or dict on the way, if it is a tuple, say."""
        if can_be_early(value) or type(value) is GeneratorValue:
            return value
        return next((v for v in reversed(self._active) if can_be_early(v) and v not in self.early), value)

    def name(self, value: Value, name: str) -> None:
        """The object that a value stands for has this name."""
        self._memo[value] = name

    def named(self, value: Value) -> str:
        """The name that a value's object was given."""
        return self._memo[value]

    def rebuilt(self) -> frozenset[Value]:
        """The values that have an expression."""
        return frozenset(self._memo)

    def put_off(self, write: Callable[[], None]) -> None:
        """Let `flush` write this: contents of an object that is made early."""
        self._later.append(write)

    def flush(self) -> None:
        """Write what was put off: contents of objects that were made early."""
        while self._later:
            self._later.pop(0)()

    def at_end(self, text: str) -> None:
        """Write this when every object has its content."""
        self._last.append(text)

    def finish(self) -> None:
        """Write what waited for the contents of all objects."""
        for text in self._last:
            self.write(text)
        self._last.clear()

    def assign(self, text: str, prefix: str = "v") -> str:
        """Write `name = text` and return the name."""
        name = self.fresh(prefix)
        self.write(f"{name} = {text}")
        return name

    def _const(self, value: Const) -> str:
        if value.path is not None and (not value.used or _is_passed_on(value)):
            return self.gather(value.path)
        if not value.used and value.made is not None:
            return self._text(value)
        return self.literal(value.value)

    def literal(self, real: object) -> str:
        """A literal, or the name of a constant."""
        if type(real) in _LITERALS or (type(real) is float and math.isfinite(real)):
            text = repr(real)
            return f"({text})" if text[0] == "-" else text  # -1 ** x is another expression
        if self.domain.made_classes:
            _check_constant(self, real)
        return self.constant(real, type(real).__name__.lower())

    def _leaf(self, value: Leaf) -> str:
        found = self.leaves.get(id(value.payload))
        if found is None:
            found = self.leaves[id(value.payload)] = (f"t{len(self.leaves)}", value)
        return found[0]

    def has_leaf(self, value: Leaf) -> bool:
        """Do the lines mention this leaf?"""
        return id(value.payload) in self.leaves

    def join(self, items: list[Value]) -> str:
        """Expressions for values, with commas between them."""
        return ", ".join([self.expr(v) for v in items])

    def _text(self, value: Const) -> str:
        """The variable that holds the text of a number that varies between calls, made once."""
        found = self.made_later.get(value)
        if found is None:
            function, args = value.made or (str, ())
            text = f"{self.runtime(function)}({', '.join(self.expr(a) for a in args)})"
            found = self.made_later[value] = self.assign(text)
        return found


def can_be_early(value: Value) -> bool:
    """Can a value be made before its contents?"""
    return isinstance(value, (ListValue, DictValue)) and value.cls in (list, deque, dict) and value.real is NEW


def _is_passed_on(value: Const) -> bool:
    """Is this the caller's own object, of which there may be others that are equal? A literal would be one."""
    real = value.value
    if type(real) is int:
        return type(value.path) in _PLACES and not -5 <= real <= 256
    return type(real) in (tuple, frozenset, str, bytes, float, complex) and type(value.path) in _PLACES


_PLACES = (Arg, Attr, InstanceAttr, Item, Cell)
"""Where objects lie. What is computed is new each time."""


def _is_reserved(name: str) -> bool:
    """Names that the emitter uses for variables and parameters, or that are builtins."""
    if name[0] in "avtrxcd" and name[1:].isdigit():
        return True
    return name in _RESERVED


_RESERVED = frozenset({"graph", "out", "error", "graph_is_over", *vars(builtins)})


def made_early(out: Rebuilder, value: Value, empty: str, fill: Callable[[str], None]) -> str | None:
    """Make a value that contains itself before its contents; None if it does not."""
    if value not in out.early:
        return None
    name = out.assign(empty)
    out.name(value, name)
    out.put_off(lambda: fill(name))
    return name


def write_attributes(out: Rebuilder, value: Obj, name: str, but: frozenset[str] = frozenset()) -> None:
    """Write the attributes of a new object."""
    out.name(value, name)
    pairs: list[str] = []
    for key, content in value.attrs.items():
        if content is DELETED or key in but:
            continue
        if key in _exception_arguments(value.cls):
            continue
        pairs.append(f"{key!r}: {out.expr(content)}")
    if pairs:
        out.write(f"{out.runtime(runtime.restore)}({name}, {{{', '.join(pairs)}}})")


def _exception_arguments(cls: type) -> tuple[str, ...]:
    """The attributes of an exception that its arguments give it."""
    if not issubclass(cls, BaseException):
        return ()
    if issubclass(cls, BaseExceptionGroup):
        return ("args", "message", "exceptions")
    return ("args",)


# Classes that the region made: made anew in each call, then changed as the region changed them.


def _known_expr(out: Rebuilder, obj: object) -> str | None:
    """An expression for an object that is, or belongs to, a class that the region made; None for others."""
    domain = out.domain
    if isinstance(obj, type) and obj in domain.made_classes:
        return _class_expr(out, obj)
    part = domain.class_parts.get(id(obj))
    if part is not None:
        return out.assign(f"{out.runtime(part_of)}({_class_expr(out, part[0])}, {part[1]!r})")
    value = domain.interned.get(id(obj)) if id(obj) in domain.stand_in_ids else None
    return None if value is None or type(value) is Known else out.expr(value)


def _pinned_expr(out: Rebuilder, path: AccessPath) -> str | None:
    """The same for what a path leads to that starts at such an object.

    Raises:
        NotRemade: it is something inside the object.
    """
    root = path.root().key
    found = _known_expr(out, root)
    if found is not None and path.base is not None:
        raise NotRemade(_owner(out, root), f"something inside the class is needed: {path}")
    return found


def _owner(out: Rebuilder, obj: Any) -> MadeClass:
    """The class that an object is, or belongs to."""
    domain = out.domain
    cls = domain.class_parts[id(obj)][0] if id(obj) in domain.class_parts else obj
    return domain.made_classes.get(cls) or next(iter(domain.made_classes.values()))


def _class_expr(out: Rebuilder, cls: type) -> str:
    """The class of this call."""
    found = out.classes.get(cls)
    if found is not None:
        if not found:
            raise NotRemade(out.domain.made_classes[cls], f"{cls.__qualname__} is needed for its own making")
        return found
    out.classes[cls] = ""
    made = out.domain.made_classes[cls]
    if made.make is None:
        assert made.before is not None  # see MadeClass
        _class_expr(out, made.before)
        if out.classes[cls]:
            return out.classes[cls]
        raise NotRemade(made, f"a decorator's class {cls.__qualname__} is needed before the decorator runs")
    bases = "".join(out.expr(b) + ", " for b in made.bases)
    later = {k for k, v in made.namespace.items() if made.make is make_class and _put_off(k, v)}
    namespace = ", ".join(f"{k!r}: {'None' if k in later else out.expr(v)}" for k, v in made.namespace.items())
    keywords = ", ".join(f"{k!r}: {out.expr(v)}" for k, v in made.keywords.items())
    make, meta = out.runtime(made.make), out.expr(made.meta)
    name = out.assign(f"{make}({meta}, {made.name!r}, ({bases}), {{{namespace}}}, {{{keywords}}})", "x")
    out.classes[cls] = name
    for key, value in made.namespace.items():
        if key in later:
            out.write(f"type.__setattr__({name}, {key!r}, {out.expr(value)})")
    _replay(out, cls, name)
    return name


def _put_off(key: str, value: Value) -> bool:
    """May this be stored after the class is made? It may hold instances of the class."""
    if key.startswith("__") or isinstance(value, (Const, Known, FunctionValue)):
        return False
    return not (isinstance(value, Obj) and value.cls in (staticmethod, classmethod, property))


def _replay(out: Rebuilder, cls: type, name: str) -> None:
    """What happened to the class after it was made."""
    for entry in out.domain.made_classes[cls].log:
        if entry[0] == "set":
            out.write(f"type.__setattr__({name}, {entry[1]!r}, {out.expr(entry[2])})")
        elif entry[0] == "delete":
            out.write(f"type.__delattr__({name}, {entry[1]!r})")
        else:
            _, function, rest, named, result = entry
            texts = [name, *map(out.expr, rest), *(f"{k}={out.expr(v)}" for k, v in named.items())]
            text = f"{out.constant(function, '_' + getattr(function, '__name__', 'decorator'))}({', '.join(texts)})"
            if result is None:
                out.write(text)
            else:
                out.classes[result] = out.assign(text, "x")
                _replay(out, result, out.classes[result])


def _check_constant(out: Rebuilder, obj: object) -> None:
    """A constant that is computed at capture may not hold such a class.

    Raises:
        NotRemade: it does.
    """
    if _holds_made_class(out, obj):
        raise NotRemade(next(iter(out.domain.made_classes.values())), "a constant with the class is needed")


def _holds_made_class(out: Rebuilder, obj: object) -> bool:
    """Is this constant a container with such a class?"""
    if isinstance(obj, (tuple, frozenset)):
        return any(_holds_made_class(out, item) for item in obj)
    return isinstance(obj, type) and obj in out.domain.made_classes
