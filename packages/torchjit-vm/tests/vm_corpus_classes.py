"""Classes: made outside and inside, metaclasses, descriptors, attribute hooks, slots, dataclasses, attrs, enums."""

# mypy: ignore-errors
# ruff: noqa
# The programs are meant to be odd, and wrong on purpose here and there.

from __future__ import annotations

import abc
import collections.abc
import copy
import dataclasses
import enum
import functools
import types
import typing
from typing import Any, NamedTuple

import attrs
from vm_corpus import N, program


class Plain:
    shared = [0]
    count = 0

    def __init__(self, value, *more, scale=2, **rest):
        self.value, self.more, self.scale, self.rest = value, more, scale, rest

    def scaled(self, by=None):
        return self.value * (self.scale if by is None else by)

    @property
    def doubled(self):
        return self.value * 2

    @doubled.setter
    def doubled(self, value):
        self.value = value / 2

    @doubled.deleter
    def doubled(self):
        self.value = None

    @classmethod
    def make(cls, value):
        cls.count
        return cls(value, 1, kw=2)

    @staticmethod
    def join(a, b):
        return (a, b)

    @functools.cached_property
    def expensive(self):
        return [self.value, self.scale]

    def __repr__(self):
        return f"Plain({self.scale})"


class Child(Plain):
    def __init__(self, value):
        super().__init__(value, scale=5)
        self.own = True

    def scaled(self, by=None):
        return super().scaled(by) + 1

    @property
    def doubled(self):
        return super().doubled + 1

    @classmethod
    def make(cls, value):
        made = super().make(value) if False else cls(value)
        made.tag = "child"
        return made


@program(N(2))
def construct_and_call(x):
    p = Plain(x, 1, 2, scale=3, a=4)
    return p.scaled(), p.scaled(2), p.scaled(by=4), p.more, p.rest, p


@program(N(2))
def property_set_and_delete(x):
    p = Plain(x)
    a = p.doubled
    p.doubled = x * 8
    b = p.value
    del p.doubled
    return a, b, p.value


@program(N(2))
def class_and_static_methods(x):
    p = Plain.make(x)
    q = p.make(x + 1)
    return p, q, Plain.join(1, x), p.join(x, 2), type(q) is Plain


@program(N(2))
def super_calls(x):
    c = Child(x)
    return (
        c.scaled(),
        c.doubled,
        Child.make(x).tag,
        isinstance(c, Plain),
        issubclass(Child, Plain),
        Child.__mro__[1] is Plain,
    )


@program(N(2))
def cached_property_once(x):
    p = Plain(x)
    first = p.expensive
    first.append(9)
    return p.expensive is first, p.expensive, "expensive" in p.__dict__


@program(Plain(N(1)), N(2))
def cached_property_of_argument(p, x):
    return p.expensive + [x], p.expensive


@program(N(1))
def class_attribute_through_instance(x):
    p = Plain(x)
    before = p.count
    p.count = p.count + 1
    return before, p.count, Plain.count


@program(N(1))
def mutate_class_list(x):
    Plain.shared.append(1)
    n = len(Plain.shared)
    Plain.shared.pop()
    return n, Plain.shared


class ClassState:
    total = 0
    seen: list = []


@program(N(1))
def store_class_attribute(x):
    ClassState.total = 0
    ClassState.total += 1
    ClassState.total += 1
    return ClassState.total, ClassState().total


class NonData:
    def __get__(self, obj, owner):
        return ("nondata", obj is None, owner.__name__)


class Data:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner=None):
        if obj is None:
            return self
        return getattr(obj, self.name, "unset")

    def __set__(self, obj, value):
        setattr(obj, self.name, (value, "set"))

    def __delete__(self, obj):
        delattr(obj, self.name)


class Described:
    plain = NonData()
    data = Data()


@program(N(1))
def descriptors(x):
    d = Described()
    out = [d.plain, Described.plain, d.data]
    d.data = x
    out.append(d.data)
    d.plain = "shadow"
    out.append(d.plain)
    del d.data
    out.append(d.data)
    return out, Described.data is Described.__dict__["data"]


class Dynamic:
    def __init__(self):
        self.store = {}

    def __getattr__(self, name):
        try:
            return self.__dict__["store"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        if name == "store":
            object.__setattr__(self, name, value)
        else:
            self.store[name] = value

    def __delattr__(self, name):
        del self.store[name]


@program(N(3))
def getattr_hooks(x):
    d = Dynamic()
    d.a = x
    d.b = 2
    out = [d.a, d.b, hasattr(d, "c"), getattr(d, "c", "default")]
    del d.b
    out.append(hasattr(d, "b"))
    try:
        d.zz
    except AttributeError as e:
        out.append(str(e))
    return out, d.store


@program(Dynamic(), N(3))
def getattr_hooks_on_argument(d, x):
    d.a = x
    return d.a * 2, hasattr(d, "q")


class Counting:
    def __init__(self):
        object.__setattr__(self, "reads", 0)
        self.v = 3

    def __getattribute__(self, name):
        if name != "reads":
            object.__setattr__(self, "reads", object.__getattribute__(self, "reads") + 1)
        return object.__getattribute__(self, name)


@program(N(3))
def getattribute_hook(x):
    c = Counting()
    c.v, c.v
    return c.v * x, c.reads


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


class SlottedChild(Slotted):
    __slots__ = ("c",)


@program(N(3))
def slots(x):
    s = SlottedChild(x)
    s.c = 1
    out = [s.a, s.c, hasattr(s, "b")]
    s.b = s.a
    del s.c
    out.append(hasattr(s, "c"))
    try:
        s.zz = 1
    except AttributeError as e:
        out.append(str(e))
    try:
        s.c
    except AttributeError as e:
        out.append(type(e).__name__)
    return out, s


@program(Slotted(N(4)), N(3))
def slots_of_argument(s, x):
    s.b = x
    s.a = s.a + 1
    return s.b, getattr(s, "a")


@program(Slotted(N(4)), N(3))
def empty_slot_of_argument(s, x):
    return hasattr(s, "b"), getattr(s, "b", x)


class Meta(type):
    registry: list = []

    def __new__(mcls, name, bases, namespace, **kwargs):
        made = super().__new__(mcls, name, bases, namespace)
        made.extra = kwargs.get("extra", "none")
        return made

    def __call__(cls, *args, **kwargs):
        made = super().__call__(*args, **kwargs)
        made.made_by = cls.__name__
        return made

    @property
    def label(cls):
        return f"<{cls.__name__}>"

    def describe(cls, x):
        return (cls.extra, x)

    def __len__(cls):
        return 7

    def __getitem__(cls, key):
        return (cls.__name__, key)

    def __iter__(cls):
        return iter([1, 2])

    def __contains__(cls, x):
        return x == 5


class WithMeta(metaclass=Meta, extra="yes"):
    def __init__(self, x):
        self.x = x


@program(N(3))
def metaclass_features(x):
    w = WithMeta(x)
    return w.made_by, WithMeta.label, WithMeta.describe(x), len(WithMeta), WithMeta["k"], type(WithMeta) is Meta


@program(N(3))
def metaclass_iteration(x):
    return list(WithMeta), 5 in WithMeta, 6 in WithMeta, x


class Singleton:
    _instance = None

    def __new__(cls, *args):
        made = super().__new__(cls)
        made.born = args
        return made

    def __init__(self, *args):
        self.args = args


@program(N(3))
def new_and_init(x):
    s = Singleton(x, 1)
    return s.born, s.args


class Weird:
    def __new__(cls, x):
        return [x]


@program(N(3))
def new_returns_other(x):
    return Weird(x)


class Immutable(tuple):
    def __new__(cls, a, b):
        return super().__new__(cls, (a, b))

    @property
    def first(self):
        return self[0]


@program(N(3))
def tuple_subclass(x):
    t = Immutable(x, 2)
    a, b = t
    return t, t.first, len(t), b, t == (x, 2), t[1:], t + (1,)


@dataclasses.dataclass
class Base:
    x: Any
    y: int = 3
    tags: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.sum = self.x + self.y


@dataclasses.dataclass(order=True, frozen=True)
class Ordered:
    a: int
    b: str = "b"


@dataclasses.dataclass(kw_only=True, slots=True)
class Slim:
    u: Any
    v: Any = None


@dataclasses.dataclass
class Sub(Base):
    z: Any = None
    skip: dataclasses.InitVar[int] = 0

    def __post_init__(self, skip):
        super().__post_init__()
        self.skipped = skip


@program(N(3))
def dataclass_objects(x):
    b = Base(x)
    c = Base(x, 4, [1])
    b.tags.append(x)
    return b, c, b.sum, b.tags, dataclasses.is_dataclass(b), [f.name for f in dataclasses.fields(b)]


@program(N(3))
def dataclass_order_hash(x):
    a, b = Ordered(1), Ordered(1, "c")
    try:
        a.a = 2
    except dataclasses.FrozenInstanceError as e:
        caught = str(e)
    return a < b, a == Ordered(1), a != b, max(a, b), hash(a) == hash(Ordered(1)), caught, repr(a)


@program(N(3))
def dataclass_in_dict_key(x):
    table = {Ordered(1): x, Ordered(2): 2}
    return table[Ordered(1)], Ordered(3) in table, len({Ordered(1), Ordered(1)})


@program(N(3))
def dataclass_slots_and_inheritance(x):
    s = Slim(u=x)
    t = Sub(x, 1, z=2, skip=7)
    return s, s.v, t, t.skipped, t.sum


@program(N(3))
def dataclass_replace_asdict(x):
    b = Ordered(1, "q")
    c = dataclasses.replace(b, a=5)
    s = Slim(u=2, v=[1, 2])
    return c, dataclasses.asdict(s), dataclasses.astuple(b)


@program(N(3))
def dataclass_asdict_leaf(x):
    return dataclasses.asdict(Slim(u=1, v={"k": (1, 2)})), [getattr(Base(x), f.name) for f in dataclasses.fields(Base)]


@attrs.define
class Defined:
    a: Any
    b: int = 2
    c: list = attrs.field(factory=list)


@attrs.frozen
class FrozenAttrs:
    a: Any
    b: Any = attrs.field(default=3, converter=lambda v: v + 1)


# The leaf kind of these tests cannot compare.
@program(N(3), breaks=1)
def attrs_objects(x):
    d = Defined(x, c=[x])
    f = FrozenAttrs(x, 5)
    d.b = d.b + f.b
    return d.a, d.b, d.c, f.a, f.b, d == Defined(x, 8, [x]), attrs.has(Defined)


@program(N(3))
def attrs_frozen_store(x):
    f = FrozenAttrs(x)
    try:
        f.a = 1
    except attrs.exceptions.FrozenInstanceError as e:
        return type(e).__name__, f.b
    return None


@program(N(3))
def attrs_evolve(x):
    return attrs.evolve(Defined(x), b=9).b, attrs.asdict(Defined(1, 2, [3]))


class Pair(NamedTuple):
    first: Any
    second: Any = 5

    def total(self):
        return self.first + self.second

    @property
    def swapped(self):
        return Pair(self.second, self.first)


@program(N(3))
def named_tuples(x):
    p = Pair(x)
    a, b = p
    q = p._replace(second=7)
    return (
        p.total(),
        p.swapped,
        q,
        q._asdict(),
        Pair._fields,
        Pair._make([1, x]),
        p.second == b,
        p[0],
        p._field_defaults,
    )


Point = __import__("collections").namedtuple("Point", "x y", defaults=[0])


# The leaf kind of these tests cannot compare.
@program(N(3), breaks=1)
def collections_namedtuple(x):
    p = Point(x)
    return p, p.x, p.y, Point(y=1, x=x), isinstance(p, tuple), len(p), p._replace(y=x), p.index(0)


class Color(enum.Enum):
    RED = 1
    GREEN = "g"

    @property
    def pretty(self):
        return self.name.lower()

    @classmethod
    def default(cls):
        return cls.RED


class Flags(enum.IntFlag):
    A = 1
    B = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10


class Mode(str, enum.Enum):
    TRAIN = "train"
    EVAL = "eval"


@program(Color.RED, N(2))
def enums(c, x):
    return (
        c.name,
        c.value,
        c.pretty,
        c is Color.RED,
        Color("g"),
        Color["RED"],
        Color.default(),
        [m.name for m in Color],
        x,
    )


@program(Level.HIGH, Mode.TRAIN, N(2))
def int_and_str_enums(level, mode, x):
    return (
        x * level,
        level > Level.LOW,
        level + 1,
        mode == "train",
        mode.value,
        Mode("eval") is Mode.EVAL,
        f"{level.value}",
        mode.upper(),
    )


@program(Flags.A, N(2))
def flag_enums(f, x):
    return f | Flags.B, Flags.A in (f | Flags.B), bool(f & Flags.B), (f | Flags.B).value, x


@program(Color.GREEN, {Color.RED: N(1), Color.GREEN: N(2)})
def enum_keys(c, table):
    table[Color.RED] = 0
    return table[c], {Color.RED: 1}.get(c), Color.RED in table, list(table)


@program(N(2))
def enum_errors(x):
    out = []
    try:
        Color("nope")
    except ValueError as e:
        out.append(str(e))
    try:
        Color["NOPE"]
    except KeyError as e:
        out.append(repr(e))
    return out, x


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...

    def twice(self):
        return self.area() * 2


class Square(Shape):
    def __init__(self, side):
        self.side = side

    def area(self):
        return self.side * self.side


@program(N(2))
def abstract_classes(x):
    s = Square(x)
    try:
        Shape()
    except TypeError as e:
        message = str(e)
    return s.twice(), isinstance(s, Shape), issubclass(Square, abc.ABC), message


class Sized2:
    def __len__(self):
        return 2

    def __iter__(self):
        return iter("ab")

    def __contains__(self, item):
        return item == "a"


@program(N(2), [1], {"a": 1})
def abc_checks(x, items, table):
    gen = (i for i in ())
    s = Sized2()
    checks = (
        collections.abc.Sized,
        collections.abc.Iterable,
        collections.abc.Collection,
        collections.abc.Sequence,
        collections.abc.Mapping,
        collections.abc.Callable,
        collections.abc.Iterator,
        collections.abc.Hashable,
        collections.abc.MutableMapping,
        collections.abc.Generator,
    )
    return [[isinstance(v, c) for c in checks] for v in (s, items, table, (1,), "s", 3, len, int)], isinstance(
        gen, collections.abc.Generator
    )


@program(N(2))
def isinstance_forms(x):
    return (
        isinstance(1, (str, (int, float))),
        isinstance("a", int | str),
        isinstance(None, types.NoneType),
        isinstance(True, int),
        isinstance(x, N),
        isinstance([], list),
        issubclass(bool, (int, str)),
        isinstance(int, type),
        isinstance(None, int | None),
    )


class Proto(typing.Protocol):
    def area(self): ...


@typing.runtime_checkable
class RuntimeProto(typing.Protocol):
    def area(self): ...


@program(N(2))
def protocols(x):
    return isinstance(Square(x), RuntimeProto), isinstance(3, RuntimeProto)


class Ops:
    def __init__(self, v):
        self.v = v

    def __add__(self, o):
        return Ops(self.v + (o.v if isinstance(o, Ops) else o))

    def __radd__(self, o):
        return Ops(o + self.v)

    def __iadd__(self, o):
        self.v = self.v + o
        return self

    def __neg__(self):
        return Ops(-self.v)

    def __matmul__(self, o):
        return ("matmul", self.v, o)

    def __rmatmul__(self, o):
        return ("rmatmul", o)

    def __eq__(self, o):
        return isinstance(o, Ops) and self.v == o.v

    def __hash__(self):
        return hash(str(self.v))

    def __lt__(self, o):
        return self.v < o.v

    def __bool__(self):
        return False

    def __len__(self):
        return 3

    def __getitem__(self, i):
        if isinstance(i, slice):
            return (i.start, i.stop, i.step)
        if i >= 3:
            raise IndexError(i)
        return i * 10

    def __setitem__(self, i, v):
        self.v = (i, v)

    def __delitem__(self, i):
        self.v = ("deleted", i)

    def __contains__(self, item):
        return item == 1

    def __call__(self, *args, **kwargs):
        return args, kwargs

    def __int__(self):
        return 12

    def __float__(self):
        return 1.5

    def __index__(self):
        return 2

    def __abs__(self):
        return 99

    def __round__(self, n=None):
        return ("round", n)

    def __reversed__(self):
        return iter([3, 2, 1])

    def __format__(self, spec):
        return f"<{spec}>"

    def __str__(self):
        return "ops"

    def __divmod__(self, o):
        return ("divmod", o)

    def __pow__(self, o, m=None):
        return ("pow", o, m)

    def __enter__(self):
        return self

    def __exit__(self, *a):
        return True


# The leaf kind of these tests cannot compare.
@program(N(2), breaks=2)
def operator_overloads(x):
    o = Ops(x)
    a = o + 1
    b = 1 + o
    c = o
    c += 5
    return a, b, c is o, -o, o @ 3, 3 @ o, o == Ops(3), o != Ops(3), sum([Ops(1), Ops(2)], Ops(0))


@program(N(2))
def container_overloads(x):
    o = Ops(1)
    out = [o[1], o[1:2], o[:: x is None], 1 in o, 2 in o, list(o), len(o), bool(o), not o, list(reversed(o))]
    o[4] = x
    out.append(o.v)
    del o[7]
    return out, o.v


@program(N(2))
def conversion_overloads(x):
    o = Ops(1)
    return (
        int(o),
        float(o),
        abs(o),
        round(o),
        round(o, 2),
        f"{o:abc}",
        str(o),
        f"{o!s}",
        [5, 6, 7][o],
        divmod(o, 3),
        o**2,
        pow(o, 2, 3),
        o(1, k=x),
        range(o),
    )


@program(N(2))
def user_hash_keys(x):
    table = {Ops(1): x}
    table[Ops(1)] = 5
    table[Ops(2)] = 6
    return (
        table[Ops(1)],
        len(table),
        Ops(2) in table,
        Ops(3) in table,
        {Ops(1), Ops(1)} == {Ops(1)},
        table.get(Ops(9), "no"),
        hash(Ops(1)) == hash(Ops(1)),
    )


@program(N(2))
def sorting_user_objects(x):
    items = [Ops(3), Ops(1), Ops(2)]
    return [o.v for o in sorted(items)], min(items).v, max(items).v, [o.v for o in sorted(items, reverse=True)]


class Partial:
    method = functools.partialmethod(lambda self, a, b: (self.t, a, b), 1)

    def __init__(self, t):
        self.t = t

    @functools.singledispatchmethod
    def kind(self, arg):
        return "other"

    @kind.register
    def _(self, arg: int):
        return "int"


@program(N(2))
def partial_method(x):
    return Partial(x).method(2), Partial(x).method(b=3)


# The library code behind it differs between versions.
@program(N(2), breaks=None)
def singledispatch_method(x):
    return Partial(x).kind(1), Partial(x).kind("s")


@program(N(2))
def class_inside(x):
    class Local:
        factor = 3

        def __init__(self, v):
            self.v = v

        def scaled(self):
            return self.v * self.factor

    return Local(x).scaled(), Local.__name__, Local.factor


@program(N(2))
def class_inside_closure(x):
    class Local(Plain):
        def scaled(self, by=None):
            return super().scaled(by) + x

        @property
        def twice(self):
            return self.value * 2

    made = Local(x)
    return made.scaled(), made.twice, isinstance(made, Plain), [c.__name__ for c in Local.__mro__]


@program(N(2))
def class_inside_loop(x):
    out = []
    for i in range(2):

        class Item:
            index = i
            values = [i * k for k in range(3)]

        out.append((Item.index, Item().values))
    return out, x


# From 3.13 on `==` of dataclasses compares field by field, and only the graph knows the first one.
@program(N(2), breaks=None)
def dataclass_inside(x):
    @dataclasses.dataclass
    class Local:
        a: Any
        b: int = 2

    made = Local(x)
    return made.a, made.b, made == Local(x)


@program(N(2))
def namedtuple_inside(x):
    import collections

    Row = collections.namedtuple("Row", "a b")
    return Row(1, x).b


@program(N(2))
def type_call_three(x):
    Made = type("Made", (Plain,), {"extra": 5, "get": lambda self: self.value})
    made = Made(x)
    return made.extra, made.get(), Made.__name__


@program(N(2), breaks=1)
def class_with_init_subclass(x):
    class Root:
        names = []

        def __init_subclass__(cls, label=None, **kwargs):
            super().__init_subclass__(**kwargs)
            cls.names.append(label)

    class A(Root, label="a"):
        pass

    return Root.names, A.names, x


@program(Plain(N(1), scale=4), N(2), breaks=1)
def reflection(p, x):
    names = [n for n in vars(p) if not n.startswith("_")]
    setattr(p, "new", x)
    p.__dict__["direct"] = 4
    delattr(p, "new")
    return (
        names,
        hasattr(p, "new"),
        p.direct,
        getattr(p, "scaled")(2),
        type(p).__name__,
        p.__class__ is Plain,
        callable(p.scaled),
        callable(p),
        "value" in dir(p),
        p.__module__ == Plain.__module__,
        type(p).__dict__["count"],
    )


@program(Plain(N(1)), N(2))
def dict_views_of_instance(p, x):
    p.__dict__.update(q=x)
    items = sorted(p.__dict__)
    p.__dict__.pop("scale")
    return items, list(p.__dict__.keys()), len(vars(p))


@program(N(2))
def copies_of_objects(x):
    p = Plain([1, [2]], scale=x)
    q, r = copy.copy(p), copy.deepcopy(Plain([1, [2]]))
    q.value.append(3)
    r.value[1].append(4)
    return p.value, q.value, r.value, q.scale is x


class Copied:
    def __init__(self, v):
        self.v = v

    def __copy__(self):
        return Copied(("copied", self.v))

    def __deepcopy__(self, memo):
        return Copied(("deep", copy.deepcopy(self.v, memo)))


@program(N(2))
def copy_hooks(x):
    c = Copied([1])
    return copy.copy(c).v, copy.deepcopy(c).v, copy.deepcopy([c, c])[0].v, x


class Stateful:
    def __init__(self, v):
        self.v = v

    def __getstate__(self):
        return {"v": self.v, "extra": 1}

    def __setstate__(self, state):
        self.__dict__.update(state)


@program(N(2))
def copy_with_state(x):
    return vars(copy.copy(Stateful(3))), vars(copy.deepcopy(Stateful([3]))), x


class Node:
    def __init__(self, v):
        self.v = v
        self.next = None


# The leaf kind of these tests cannot be copied.
@program(N(2), breaks=1)
def cyclic_objects(x):
    a, b = Node(x), Node(1)
    a.next, b.next = b, a
    c = copy.deepcopy(b.next.next)
    return a, c.next.next is c


@program(Plain(N(1)), N(2))
def method_objects(p, x):
    m = p.scaled
    f = Plain.scaled
    return m(), m.__self__ is p, m.__func__ is f, f(p, 3), m.__name__, f.__qualname__, m == p.scaled


@program(N(1))
def unbound_and_builtin_methods(x):
    return (
        list.append,
        str.upper("a"),
        dict.get({"a": x}, "a"),
        int.__add__(1, 2),
        list.__len__([1]),
        object.__repr__ is not None,
    )


class GenericBox(typing.Generic[typing.TypeVar("T")]):
    def __init__(self, v):
        self.v = v


@program(N(1))
def generic_classes(x):
    return GenericBox(x).v, GenericBox[int](x).v, isinstance(GenericBox(1), GenericBox)


class Mixin:
    def hello(self):
        return ["mixin"] + super().hello()


class Root:
    def hello(self):
        return ["root"]


class Multi(Mixin, Root):
    def hello(self):
        return ["multi"] + super().hello()


@program(N(1))
def cooperative_super(x):
    return Multi().hello(), super(Multi, Multi()).hello(), super(Mixin, Multi()).hello(), x


class Intercepting:
    def __init__(self):
        self.kept = 1

    def __getattribute__(self, name):
        if name.startswith("x_"):
            return name
        if name == "broken":
            raise KeyError(name)
        return super().__getattribute__(name)

    def __getattr__(self, name):
        if name == "late":
            return 5
        raise AttributeError(name)


@program(N(1))
def getattribute_then_getattr(x):
    g = Intercepting()
    try:
        g.broken
    except KeyError as error:
        caught = error.args
    return g.x_a, g.kept, g.late, getattr(g, "no", 3), hasattr(g, "no"), caught, x + g.kept
