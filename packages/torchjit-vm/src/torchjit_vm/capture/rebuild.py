"""Values to Python expressions that rebuild them in emitted code."""

from __future__ import annotations

import _thread
import contextvars
import functools
import inspect
import itertools
import keyword
import math
import operator
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast, final

from torchjit_core.location import CodeLocation
from torchjit_core.paths import AccessPath, Drawn, Pinned, own_attr
from torchjit_core.reasons import GraphBreak
from torchjit_vm.assembly import suspended_function
from torchjit_vm.capture import containers, iteration, runtime
from torchjit_vm.capture.atoms import base_of
from torchjit_vm.capture.contexts import write_context_stores
from torchjit_vm.capture.coroutines import AwaitIterator
from torchjit_vm.capture.draws import state_of
from torchjit_vm.capture.iteration import kind_of
from torchjit_vm.capture.lru_caches import lru_arguments
from torchjit_vm.capture.reasons import REBUILD
from torchjit_vm.capture.rebuild_classes import check_constant, known_expr, pinned_expr
from torchjit_vm.capture.source import Standin, raised_in
from torchjit_vm.capture.twins import WRAPPED
from torchjit_vm.capture.values import (
    DELETED,
    NEW,
    AtomObject,
    BoundMethod,
    ByteArray,
    CellValue,
    Const,
    DictValue,
    DictView,
    FunctionValue,
    GeneratorValue,
    IdValue,
    InstanceDict,
    Known,
    Leaf,
    ListValue,
    Obj,
    RandomState,
    SetValue,
    SliceValue,
    TracebackValue,
    TupleValue,
    Value,
)
from torchjit_vm.capture.weak_references import is_held, is_new
from torchjit_vm.liveness import live_locals
from torchjit_vm.region import Region

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["Cycle", "Rebuilder", "StartedGenerator"]

_FROM_ARGUMENTS = frozenset({operator.itemgetter, operator.attrgetter, operator.methodcaller})
"""Classes whose new instances are rebuilt by a call with their `args` and `kwargs`."""
_OF_WRAPPERS = frozenset({*functools.WRAPPER_ASSIGNMENTS, "__wrapped__", "cache_parameters"})
_LITERALS = (int, str, bytes, bool, type(None), type(Ellipsis))
_BASES = (OrderedDict, defaultdict, dict, list, set, frozenset, tuple)


@final
class Cycle(Exception):
    """A container holds itself: it must be made before its contents."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


@final
class StartedGenerator(Exception):
    """A generator that has started is alive at the end of a region."""

    def __init__(self, generator: GeneratorValue) -> None:
        super().__init__()
        self.generator = generator


@final
class Rebuilder:
    """Writes the lines of one emitted function, and knows what it needs from outside.

    Attributes:
        lines: (indentation, text, source location).
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
        self.lines: list[tuple[int, str, CodeLocation | None]] = []
        self.indent = 1
        self.location: CodeLocation | None = None
        self.gathered: dict[AccessPath, str] = {}
        self.constants: dict[str, Any] = {}
        self.leaves: dict[int, tuple[str, Leaf]] = {}
        self._names: dict[int, str] = {}
        self._memo: dict[Value, str] = {}
        self._active: set[Value] = set()
        self.classes: dict[type, str] = {}
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
            text = pinned_expr(self, path)
            if text is not None:
                return text
        if type(path) is Pinned:
            return self.constant(path.key, "pinned")
        name = self.gathered.get(path)
        if name is None:
            name = self.gathered[path] = f"a{len(self.gathered)}"
        return name

    def constant(self, obj: Any, hint: str) -> str:
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

    def runtime(self, function: Callable[..., Any]) -> str:
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
                text = known_expr(self, obj)
                if text is not None:
                    self._memo[value] = text
                    return text
            return self.constant(obj, getattr(obj, "__qualname__", None) or type(obj).__name__)
        real = getattr(value, "real", NEW)
        if real is not NEW:
            path: AccessPath = value.path  # type: ignore[attr-defined]
            return self.gather(path)
        if value in self._active:
            raise Cycle(value)
        self._active.add(value)
        try:
            name = _REBUILD[t](self, value) if t in _REBUILD else self._other(value)
        finally:
            self._active.discard(value)
        self._memo[value] = name
        return name

    def name(self, value: Value, name: str) -> None:
        """The object that a value stands for has this name."""
        self._memo[value] = name

    def rebuilt(self) -> frozenset[Value]:
        """The values that have an expression."""
        return frozenset(self._memo)

    def flush(self) -> None:
        """Write what was put off: contents of objects that were made early."""
        while self._later:
            self._later.pop(0)()

    def assign(self, text: str, prefix: str = "v") -> str:
        """Write `name = text` and return the name."""
        name = self.fresh(prefix)
        self.write(f"{name} = {text}")
        return name

    def _const(self, value: Const) -> str:
        if not value.used and value.path is not None:
            return self.gather(value.path)
        return self.literal(value.value)

    def literal(self, real: Any) -> str:
        """A literal, or the name of a constant."""
        if type(real) in _LITERALS or (type(real) is float and math.isfinite(real)):
            text = repr(real)
            return f"({text})" if text[0] == "-" else text  # -1 ** x is another expression
        if self.domain.made_classes:
            check_constant(self, real)
        return self.constant(real, type(real).__name__.lower())

    def _leaf(self, value: Leaf) -> str:
        found = self.leaves.get(id(value.payload))
        if found is None:
            found = self.leaves[id(value.payload)] = (f"t{len(self.leaves)}", value)
        return found[0]

    def has_leaf(self, value: Leaf) -> bool:
        """Do the lines mention this leaf?"""
        return id(value.payload) in self.leaves

    def _early(self, value: Value, empty: str, fill: Callable[[str], None]) -> str | None:
        """Make a value that contains itself before its contents."""
        if value not in self.early:
            return None
        name = self._memo[value] = self.assign(empty)
        self._later.append(lambda: fill(name))
        return name

    def _list(self, value: ListValue) -> str:
        items = value.items or []
        if value.cls is deque:
            bound = "" if value.limit is None else f", {value.limit}"
            return self.assign(f"{self.runtime(deque)}([{self._join(items)}]{bound})")
        if value.cls is not list:
            base = self.runtime(deque) if issubclass(value.cls, deque) else "list"
            name = self.assign(f"{self.runtime(runtime.new)}({base}, {self.expr(Known(value.cls))})")
            self._memo[value] = name
            if value.limit is not None:
                self.write(f"{base}.__init__({name}, maxlen={value.limit})")
            self.write(f"{base}.extend({name}, [{self._join(items)}])")
            self._attributes(value, name)
            return name
        early = self._early(value, "[]", lambda name: self.write(f"{name}.extend([{self._join(items)}])"))
        return early or self.assign(f"[{self._join(items)}]")

    def _join(self, items: list[Value]) -> str:
        return ", ".join([self.expr(v) for v in items])

    def _tuple(self, value: TupleValue) -> str:
        items = value.items or []
        text = f"({self._join(items)}{',' if len(items) == 1 else ''})"
        if value.cls is tuple:
            return text if not items else self.assign(text)
        cls = self.expr(Known(value.cls))
        if isinstance(value.cls.__new__, types.BuiltinFunctionType) and value.cls.__new__ is not tuple.__new__:
            return self.assign(f"{cls}({text})")
        name = self.assign(f"tuple.__new__({cls}, {text})")
        self._attributes(value, name)
        return name

    def _dict(self, value: DictValue) -> str:
        pairs = [e for e in value.entries.values() if e is not None]
        if value.cls is dict:
            early = self._early(value, "{}", lambda name: self._fill_dict(name, value))
            return early or self.assign("{" + ", ".join(f"{self.expr(k)}: {self.expr(v)}" for k, v in pairs) + "}")
        if value.behind is not None:
            return self.assign(f"{self.runtime(types.MappingProxyType)}({self.expr(value.behind)})")
        if value.cls is defaultdict:
            factory = "None" if value.factory is None else self.expr(value.factory)
            name = self.assign(f"{self.runtime(defaultdict)}({factory})")
        elif value.cls is OrderedDict:
            name = self.assign(f"{self.runtime(OrderedDict)}()")
        else:
            base = _base(value.cls)
            name = self.assign(f"{self.runtime(runtime.new)}({self.runtime(base)}, {self.expr(Known(value.cls))})")
            if value.factory is not None:
                self.write(f"{name}.default_factory = {self.expr(value.factory)}")
        self._memo[value] = name
        self._fill_dict(name, value)
        self._attributes(value, name)
        return name

    def _fill_dict(self, name: str, value: DictValue) -> None:
        pairs = [e for e in value.entries.values() if e is not None]
        if pairs:
            text = ", ".join(f"({self.expr(k)}, {self.expr(v)})" for k, v in pairs)
            self.write(f"{self.runtime(runtime.fill_dict)}({self.runtime(_base(value.cls))}, {name}, [{text}])")

    def _set(self, value: SetValue) -> str:
        items = list((value.entries or {}).values())
        if value.cls is set and items:
            return self.assign("{" + self._join(items) + "}")
        if value.cls in (set, frozenset):
            return self.assign(f"{self.runtime(value.cls)}([{self._join(items)}])")
        base = "frozenset" if issubclass(value.cls, frozenset) else "set"
        arguments = f", [{self._join(items)}]" if base == "frozenset" else ""
        name = self.assign(f"{self.runtime(runtime.new)}({base}, {self.expr(Known(value.cls))}{arguments})")
        if base == "set":
            self.write(f"set.update({name}, [{self._join(items)}])")
        self._attributes(value, name)
        return name

    def _object(self, value: Obj) -> str:
        cls = value.cls
        if cls is functools.partial:
            func, args, keywords = (self.expr(cast(Value, value.attrs[n])) for n in ("func", "args", "keywords"))
            name = self._memo[value] = self.assign(f"{self.runtime(functools.partial)}({func}, *{args}, **{keywords})")
            for key, content in value.attrs.items():
                if key not in ("func", "args", "keywords") and content is not DELETED:
                    self.write(f"{name}.{key} = {self.expr(cast(Value, content))}")
            return name
        if cls is contextvars.Token:  # which the store gives
            write_context_stores(self.domain, self)
            return self._memo[value]
        if value in self.domain.caches:
            return self._cached_function(value)
        if cls in WRAPPED:
            given = ", ".join(self.expr(cast(Value, value.attrs[n])) for n in WRAPPED[cls])
            return self.assign(f"{self.runtime(cls)}({given})")
        if cls is _thread.RLock:
            return self.assign(f"{self.runtime(_thread.RLock)}()")
        if issubclass(cls, weakref.ReferenceType):
            return self._reference(value)
        if cls in _FROM_ARGUMENTS:
            rest = self.expr(cast(Value, value.attrs["args"]))
            named = value.attrs.get("kwargs")
            keywords = "" if named is None else f", **{self.expr(cast(Value, named))}"
            return self.assign(f"{self.runtime(cls)}(*{rest}{keywords})")
        state = state_of(self.domain, value)
        if isinstance(value, AtomObject):
            plain = base_of(value)
            name = self.assign(
                f"{self.runtime(runtime.new)}({type(plain.value).__name__}, {self.expr(Known(cls))}, {self.expr(plain)})"
            )
        elif state is not None:
            name = self.assign(f"{self.runtime(runtime.random_generator)}({self.constant(state, 'state')})")
        elif cls is types.SimpleNamespace:
            name = self.assign(f"{self.runtime(types.SimpleNamespace)}()")
        elif issubclass(cls, BaseException):
            arguments = self.domain.unpack_all(cast(Value, value.attrs.get("args", TupleValue([]))))
            known = self.expr(Known(cls))
            name = self.assign(f"{known}.__new__({known}{''.join(', ' + self.expr(a) for a in arguments)})")
            self._memo[value] = name
        else:
            name = self.assign(f"{self.runtime(runtime.new)}(object, {self.expr(Known(cls))})")
        self._memo[value] = name
        self._attributes(value, name)
        if issubclass(cls, BaseException) and value in self.domain.thrown and value is not self.raising:
            self._trace(value, name)
        return name

    def _reference(self, value: Obj) -> str:
        """A weak reference, of a class derived from it with what the class adds."""
        items = cast(TupleValue, value.attrs["args"]).items or []
        given = self._join(items)
        if is_new(items[0]) and not is_held(self.domain, items[0]):
            self.dropped.append(self.expr(items[0]))
        if value.cls is weakref.ReferenceType:
            return self.assign(f"{self.runtime(weakref.ref)}({given})")
        cls = self.expr(Known(value.cls))
        name = self.assign(f"{self.runtime(runtime.new)}({self.runtime(weakref.ref)}, {cls}, {given})")
        self._attributes(value, name, frozenset({"args"}))
        return name

    def _cached_function(self, value: Obj) -> str:
        """A function with an LRU cache that the region made, and may have called."""
        given, entries = lru_arguments(self.domain, value)
        texts = [self.expr(v) for v in given]
        rows = ", ".join(self.expr(e) for e in entries)
        make = self.runtime(runtime.lru_cached)
        name = self.assign(f"{make}({', '.join(texts[:3])}, [{rows}], {', '.join(texts[3:])})")
        self._memo[value] = name
        for key, content in value.attrs.items():
            if key not in _OF_WRAPPERS and content is not DELETED:
                self.write(f"setattr({name}, {key!r}, {self.expr(cast(Value, content))})")
        return name

    def _trace(self, value: Obj, name: str) -> None:
        """Write what gives an exception that was raised in the region its traceback."""
        frames = tuple(Standin.places(self.domain, value))
        if frames and "__traceback__" not in value.attrs:
            raiser = raised_in(frames)
            self.write(f"{self.runtime(runtime.trace)}({name}, {self.constant(raiser, 'raise_')})")

    def _attributes(self, value: Obj, name: str, but: frozenset[str] = frozenset()) -> None:
        """Write the attributes of a new object."""
        self._memo[value] = name
        pairs: list[str] = []
        for key, content in value.attrs.items():
            if content is DELETED or key in but:
                continue
            if key in _exception_arguments(value.cls):
                continue
            pairs.append(f"{key!r}: {self.expr(cast(Value, content))}")
        if pairs:
            self.write(f"{self.runtime(runtime.restore)}({name}, {{{', '.join(pairs)}}})")

    def _byte_array(self, value: ByteArray) -> str:
        return self.assign(f"bytearray({bytes(value.data or b'')!r})")

    def _cell(self, value: CellValue) -> str:
        name = self._memo[value] = self.assign(f"{self.runtime(types.CellType)}()")
        content = value.content
        if content is not None:
            self._later.append(lambda: self.write(f"{name}.cell_contents = {self.expr(content)}"))
        return name

    def _function(self, value: FunctionValue) -> str:
        code = self.constant(value.code, f"code_{value.name}")
        globals_ = self.constant(value.globals, "globals_")
        defaults = f"({''.join(self.expr(v) + ', ' for v in value.defaults)})"
        kwdefaults = "{" + ", ".join(f"{k!r}: {self.expr(v)}" for k, v in value.kwdefaults.items()) + "}"
        closure = f"({''.join(self.expr(v) + ', ' for v in value.closure)})"
        names = repr((value.name, value.qualname))
        make = self.runtime(runtime.function)
        name = self.assign(f"{make}({code}, {globals_}, {names}, {defaults}, {kwdefaults}, {closure})")
        self._memo[value] = name
        if value.annotations is not None:
            items = self.domain.unpack_all(value.annotations) if not isinstance(value.annotations, DictValue) else None
            if items is None:
                self.write(f"{name}.__annotations__ = {self.expr(value.annotations)}")
            else:
                pairs = zip(items[::2], items[1::2], strict=True)
                text = ", ".join(f"{self.expr(k)}: {self.expr(v)}" for k, v in pairs)
                self.write(f"{name}.__annotations__ = {{{text}}}")
        for key, content in value.attrs.items():
            if content is not DELETED:
                self.write(f"setattr({name}, {key!r}, {self.expr(cast(Value, content))})")
        return name

    def _method(self, value: BoundMethod) -> str:
        function, self_ = self.expr(value.function), self.expr(value.self_)
        if isinstance(value.function, FunctionValue) or hasattr(getattr(value.function, "obj", None), "__get__"):
            # CPython 3.11 crashes when the C methods of some heap types are bound without the type.
            return self.assign(f"{function}.__get__({self_}, type({self_}))")
        return self.assign(f"{self.runtime(types.MethodType)}({function}, {self_})")

    def _slice(self, value: SliceValue) -> str:
        return self.assign(f"slice({self.expr(value.start)}, {self.expr(value.stop)}, {self.expr(value.step)})")

    def _id(self, value: IdValue) -> str:
        if type(value.target) is Known:  # not an object's: the thread's
            return self.assign(f"{self.runtime(value.target.obj)}()")
        return self.assign(f"{self.runtime(value.function)}({self.expr(value.target)})")

    def _random_state(self, value: RandomState) -> str:
        return str(Drawn.of(value.number))

    def _traceback(self, value: TracebackValue) -> str:
        return self.assign(f"{self.expr(value.exception)}.__traceback__")  # now: a break may add to it

    def _view(self, value: DictView) -> str:
        return self.assign(f"{self.expr(value.target)}.{value.kind}()")

    def _instance_dict(self, value: InstanceDict) -> str:
        return f"{self.runtime(own_attr)}({self.expr(value.owner)}, '__dict__')"

    def _generator(self, value: GeneratorValue) -> str:
        frame = value.frame
        function = frame.function
        if value.finished:
            return self.assign(f"{self.runtime(runtime.exhausted)}()")
        if value.started:
            return self._suspended(value)
        if function is None:
            raise StartedGenerator(value)
        if value.original is not None:
            original, args, kwargs = value.original
            texts = [self.expr(a) for a in args] + [f"{k}={self.expr(v)}" for k, v in kwargs.items()]
            return self.assign(f"{self.runtime(original)}({', '.join(texts)})")
        code = frame.code.code
        slots = [self.domain.cell_get(v) if type(v) is CellValue else v for v in frame.fast]
        texts = []
        for i in range(code.co_argcount):
            texts.append(self._argument(value, slots[i]))
        at = code.co_argcount + code.co_kwonlyargcount
        if code.co_flags & inspect.CO_VARARGS:
            texts.append("*" + self._argument(value, slots[at]))
            at += 1
        for i in range(code.co_argcount, code.co_argcount + code.co_kwonlyargcount):
            texts.append(f"{code.co_varnames[i]}={self._argument(value, slots[i])}")
        if code.co_flags & inspect.CO_VARKEYWORDS:
            texts.append("**" + self._argument(value, slots[at]))
        if code.co_varnames[:1] == (".0",):
            raise StartedGenerator(value)
        return self.assign(f"{self.expr(function)}({', '.join(texts)})")

    def _suspended(self, value: GeneratorValue) -> str:
        """A real generator that stands where the interpreted one does."""
        frame = value.frame
        code, at = frame.code, frame.pc - 1
        # In `early`: it holds itself, and a real one cannot be made before its contents.
        if kind_of(value) == "coroutine":
            raise StartedGenerator(value)
        if value.running or value.original is not None or value in self.early or code.names[at] != "YIELD_VALUE":
            raise StartedGenerator(value)
        live = live_locals(code, frame.pc)
        row = code.handler_of(at)
        if row is not None:
            live |= live_locals(code, row.target)
        shared = {*code.code.co_cellvars, *code.code.co_freevars}
        stack = [None if v is None else self.expr(v) for v in frame.stack]
        cells = {i: self.expr(v) for i, v in enumerate(frame.fast) if type(v) is CellValue and code.locals[i] in shared}
        chosen = {i: self.expr(v) for i, v in enumerate(frame.fast) if v is not None and i in live and i not in cells}
        region = Region(
            code=code.code,
            globals=frame.globals,
            offset=code.offsets[at],
            stack=(*(t is not None for t in stack), True),
            locals=tuple(chosen),
            cells=tuple(cells),
            handled=value.handled is not None,
        )
        slots = [*(t for t in stack if t is not None), "None", *chosen.values(), *cells.values()]
        if value.handled is not None:
            slots.append(self.expr(value.handled))
        made = self.constant(suspended_function(region), f"suspended_{code.code.co_name}_{region.offset}")
        return self.assign(f"{self.runtime(runtime.suspended)}({', '.join([made, *slots])})")

    def _argument(self, value: GeneratorValue, content: Value | None) -> str:
        if content is None:
            raise StartedGenerator(value)
        return self.expr(content)

    def _other(self, value: Value) -> str:
        if isinstance(value, iteration.IteratorValue):
            return self.assign(self._iterator(value))
        if isinstance(value, Obj):
            return self._object(value)
        raise GraphBreak(REBUILD, type(value).__name__, self.domain.location())

    def _deque_iterator(self, value: iteration.SequenceIterator, sequence: str) -> str:
        if value.stale(self.domain):
            return f"{self.runtime(runtime.stale_iterator)}({sequence}, {len(value.sequence.items or ())})"
        if value.sequence in self.domain.touched:  # which is written to later than here
            return f"iter([{self._join((value.sequence.items or [])[value.index :])}])"
        return f"{self.runtime(runtime.advanced)}(iter({sequence}), {value.index})"

    def _owned_iterator(self, value: iteration.ListIterator) -> str:
        """Over what is left of a dict or set; the real iterator notices when its size changes."""
        owner, rest = value.owner, value.items[value.index :]
        if isinstance(owner, Obj) and value.stale(self.domain):
            entries = owner.entries or {}
            size = sum(e is not None for e in entries.values())
            if isinstance(owner, DictValue):
                size = containers.dict_length(self.domain, owner)
            return f"{self.runtime(runtime.stale_iterator)}({self.expr(owner)}, {size})"
        if isinstance(owner, DictValue) and not value.done and owner not in self.domain.touched:
            keys = [entry[0] for entry in owner.entries.values() if entry is not None]
            if owner.loaded and (value.kind != "keys" or keys == value.items):
                view = f"{self.runtime(_base(owner.cls))}.{value.kind}({self.expr(owner)})"
                return f"{self.runtime(runtime.advanced)}(iter({view}), {value.index})"
        constant = all(type(item) is Const for item in value.items)  # else a set's order may be another one
        if isinstance(owner, SetValue) and constant and not value.done and owner not in self.domain.touched:
            return f"{self.runtime(runtime.advanced)}(iter({self.expr(owner)}), {value.index})"
        return f"iter([{self._join(rest)}])"

    def _iterator(self, value: iteration.IteratorValue) -> str:
        if isinstance(value, iteration.SequenceIterator):
            sequence = self.expr(value.sequence)
            if value.index >= 1 << 62:
                return "iter(())"
            if value.size >= 0:
                return self._deque_iterator(value, sequence)
            return (
                f"{self.runtime(runtime.list_iterator)}({sequence}, {value.index})"
                if value.index
                else f"iter({sequence})"
            )
        if isinstance(value, iteration.RangeIterator):
            return f"iter({value.range[value.index :]!r})"
        if isinstance(value, iteration.ListIterator):
            return self._owned_iterator(value)
        if isinstance(value, iteration.EnumerateIterator):
            return f"enumerate({self.expr(value.inner)}, {value.count})"
        if isinstance(value, iteration.ZipIterator):
            strict = ", strict=True" if value.strict else ""
            return f"zip({self._join(value.inner)}{strict})"
        if isinstance(value, iteration.MapIterator):
            return f"map({self.expr(value.function)}, {self._join(value.inner)})"
        if isinstance(value, iteration.FilterIterator):
            return (
                f"filter({'None' if value.function is None else self.expr(value.function)}, {self.expr(value.inner)})"
            )
        if isinstance(value, iteration.RealIterator):
            if value.repeated is not None:
                return f"{self.runtime(itertools.repeat)}({self.expr(value.repeated)})"
            return f"{self.runtime(itertools.count)}{value.source.__reduce__()[1]!r}"
        if isinstance(value, iteration.Indexing):
            start = self.runtime(runtime.list_iterator)
            return f"{start}({self.expr(value.sequence)}, {value.index})"
        if isinstance(value, AwaitIterator):
            return f"{self.expr(value.coroutine)}.__await__()"
        if isinstance(value, iteration.ChainIterator):
            chain = self.runtime(itertools.chain)
            rest = f"{chain}.from_iterable({self.expr(value.pending)})"
            return rest if value.current is None else f"{chain}({self.expr(value.current)}, {rest})"
        raise GraphBreak(REBUILD, type(value).__name__, self.domain.location())


def _is_reserved(name: str) -> bool:
    """Names that the emitter uses for variables and parameters, or that are builtins."""
    if name[0] in "avtrxcd" and name[1:].isdigit():
        return True
    return name in _RESERVED


_RESERVED = frozenset(
    [
        "list",
        "dict",
        "set",
        "tuple",
        "frozenset",
        "slice",
        "iter",
        "next",
        "zip",
        "map",
        "filter",
        "enumerate",
        "range",
        "reversed",
        "vars",
        "setattr",
        "delattr",
        "object",
        "type",
        "super",
        "bool",
        "format",
        "str",
        "int",
        "float",
        "complex",
        "bytes",
        "bytearray",
        "repr",
        "ascii",
        "isinstance",
        "BaseException",
        "graph",
        "out",
        "error",
    ]
)


def _exception_arguments(cls: type) -> tuple[str, ...]:
    """The attributes of an exception that its arguments give it."""
    if not issubclass(cls, BaseException):
        return ()
    if issubclass(cls, BaseExceptionGroup):
        return ("args", "message", "exceptions")
    return ("args", "value") if issubclass(cls, StopIteration) else ("args",)


def _base(cls: type) -> type:
    """The C class that stores the items of a container class."""
    for owner in cls.__mro__:
        if owner in _BASES:
            return owner
    return object


_REBUILD: dict[type, Callable[[Rebuilder, Any], str]] = {
    ListValue: Rebuilder._list,
    TupleValue: Rebuilder._tuple,
    DictValue: Rebuilder._dict,
    SetValue: Rebuilder._set,
    Obj: Rebuilder._object,
    AtomObject: Rebuilder._object,
    ByteArray: Rebuilder._byte_array,
    CellValue: Rebuilder._cell,
    FunctionValue: Rebuilder._function,
    BoundMethod: Rebuilder._method,
    SliceValue: Rebuilder._slice,
    DictView: Rebuilder._view,
    IdValue: Rebuilder._id,
    TracebackValue: Rebuilder._traceback,
    RandomState: Rebuilder._random_state,
    InstanceDict: Rebuilder._instance_dict,
    GeneratorValue: Rebuilder._generator,
}
