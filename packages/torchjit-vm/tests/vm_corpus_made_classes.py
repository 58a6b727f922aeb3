"""Classes that a region makes: statements with all that may stand in one, `type()`, decorators, what escapes."""

# mypy: ignore-errors
# ruff: noqa
# The programs are meant to be odd, and wrong on purpose here and there.

import abc
import collections
import contextlib
import dataclasses
import enum
import functools
import sys
import threading
import typing

import attrs
from vm_corpus import N, program


class Base:
    registry = []

    def __init__(self, v):
        self.v = v

    def f(self):
        return self.v + 1


class Hook:
    seen = []

    def __init_subclass__(cls, tag=None, **kw):
        super().__init_subclass__(**kw)
        cls.tag = tag


@program(N(2.0))
def methods_of_all_kinds(x):
    class A(Base):
        k = 3

        def __init__(self, v):
            super().__init__(v * 2)

        def f(self):
            return super().f() + self.k

        @property
        def d(self):
            return self.v + x

        @classmethod
        def mk(cls, v):
            return cls(v)

        @staticmethod
        def s(a):
            return a * 2

    a = A(x)
    return a.f(), a.d, A.mk(x).v, A.s(x), isinstance(a, Base), A.__name__, A.__qualname__, A.__module__


@program(N(2.0))
def class_cell(x):
    class A(Base):
        y = x + 1

        def g(self):
            return self.y + __class__.y

    return A, A(x), A(x).g(), A.g


@program(N(2.0), breaks=3)
def hook_of_a_base(x):
    class A(Hook, tag="t"):
        pass

    class B(A):
        q = x

    return A.tag, B.tag, B().q


@program(N(2.0))
def descriptor_is_told_its_name(x):
    class D:
        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, obj, cls=None):
            return (self.name, obj.z if obj is not None else None)

        def __set__(self, obj, v):
            obj.z = v + 1

    class A:
        d = D()
        e = D()

    a = A()
    a.d = x
    return a.d, a.e, A.d


@program(N(2.0))
def metaclass_with_everything(x):
    class M(type):
        def __new__(m, name, bases, ns, **kw):
            ns["extra"] = x + 1
            return super().__new__(m, name, bases, ns)

        def __init__(cls, name, bases, ns, **kw):
            cls.kw = kw

        def __call__(cls, *a):
            o = super().__call__(*a)
            o.made = True
            return o

        @property
        def pp(cls):
            return cls.extra

        def meth(cls):
            return cls.__name__

    class A(metaclass=M, flag=3):
        def __init__(self, v):
            self.v = v

    a = A(x)
    return a.extra, A.kw, a.made, A.pp, A.meth(), a.v, type(A) is M


@program(N(2.0))
def type_with_three_arguments(x):
    A = type("A", (Base,), {"z": x, "f": lambda self: self.z + self.v})
    return A(x).f(), A.__name__, A.__bases__, A(x).z


@program(N(2.0), breaks=None)
def dataclass_defaults(x):
    @dataclasses.dataclass
    class P:
        a: object
        b: object = x
        c: list = dataclasses.field(default_factory=list)

    p = P(x + 1)
    p.c.append(2)
    return p.a + p.b, p.c, p == P(p.a, p.b, p.c), dataclasses.replace(p, a=1).a


@program(N(2.0))
def dataclass_frozen_and_ordered(x):
    @dataclasses.dataclass(frozen=True, order=True)
    class P:
        a: int
        b: int = 2

    return P(1) < P(2), P, P(1), repr(P(3))


@program(N(2.0))
def enum_with_a_method(x):
    class C(enum.Enum):
        RED = 1
        BLUE = 2

        def who(self):
            return self.name, self.value

    return C.RED.who(), C(2).name, [c.name for c in C], x + C.BLUE.value, C["RED"] is C.RED


@program(N(2.0))
def enum_with_auto(x):
    class C(enum.IntEnum):
        RED = enum.auto()
        BLUE = enum.auto()

    return x + C.BLUE, C.RED < C.BLUE


@program(N(2.0))
def enum_escapes(x):
    class C(enum.Enum):
        RED = 1

    return C, C.RED


@program(N(2.0))
def named_tuple_statement(x):
    class P(typing.NamedTuple):
        a: object
        b: object = 3

        def s(self):
            return self.a + self.b

    p = P(x)
    return p.s(), p._replace(b=4).s(), P._fields, p


@program(N(2.0))
def abstract_class(x):
    class A(abc.ABC):
        @abc.abstractmethod
        def f(self): ...
        def g(self):
            return self.f() + 1

    class B(A):
        def f(self):
            return x

    try:
        A()
    except TypeError as e:
        t = True
    return B().g(), isinstance(B(), A), t


@program(N(2.0))
def slots_made_inside(x):
    class A:
        __slots__ = ("a", "b")

        def __init__(self):
            self.a = x

    a = A()
    try:
        a.c = 1
    except AttributeError:
        t = True
    return a.a, t, hasattr(a, "b"), a


@program(N(2.0))
def class_attributes_stored_and_deleted(x):
    class A:
        pass

    A.q = x

    def f(self):
        return self.q + 2

    A.f = f
    r = A().f()
    A.me = A()
    del A.q
    return r, hasattr(A, "q"), A, A.me


@program(N(2.0))
def subclasses_of_containers_and_exceptions(x):
    class A(dict):
        def __missing__(self, k):
            return x

    class L(list):
        def total(self):
            return self[0] + self[1]

    class E(ValueError):
        def __init__(self, m):
            super().__init__(m)
            self.m = m

    a = A()
    a[1] = 2
    try:
        raise E(x)
    except ValueError as e:
        m = e.m
    return a["z"], a[1], L([x, 1]).total(), m, a


class G(typing.Generic[typing.TypeVar("T")]):
    pass


@program(N(2.0))
def generic_base(x):
    class A(G[int]):
        v = x

    return A().v


@program(N(2.0))
def total_ordering_inside(x):
    @functools.total_ordering
    class A:
        def __init__(s, v):
            s.v = v

        def __eq__(s, o):
            return s.v == o.v

        def __lt__(s, o):
            return s.v < o.v

    return A(1) <= A(2), A(2) >= A(3), x + 1


@program(N(2.0))
def class_holds_itself(x):
    class A:
        _m = []

        def add(self):
            self._m.append(x)

    A().add()
    A._m.append(A)

    class B(A):
        def add(self):
            super().add()
            return super()._m

    return B().add(), B


@program(N(2.0))
def attrs_class_inside(x):
    @attrs.define
    class A:
        a: object
        b: object = 2

    return A(x).a + A(x).b, A(1) == A(1)


@program(N(2.0))
def prepared_namespace(x):
    class Meta(type):
        @classmethod
        def __prepare__(m, name, bases):
            return {"pre": x}

    class A(metaclass=Meta):
        y = pre + 1

    return A.y, A.pre


@program(N(2.0))
def statements_in_a_body(x):
    class A:
        for i in range(3):
            if i == 1:
                break
        else:
            i = 10
        items = [j for j in range(3)]

        def __repr__(self):
            return "A!"

        del i

    return hasattr(A, "i"), A.items, repr(A()), f"{A()}"


@program(N(2.0))
def special_methods(x):
    class A:
        """doc"""

        a: int = 1

        def __eq__(self, o):
            return True

        def __enter__(self):
            return x

        def __exit__(self, *a):
            return True

        def __iter__(self):
            yield x
            yield 1

        def __getattr__(self, n):
            return n

        def __call__(self, y):
            return y + x

        def __getitem__(self, k):
            return k

        def __len__(self):
            return 2

        def __add__(self, o):
            return x + o

    with A() as y:
        raise ValueError
    return A.__doc__, A.__annotations__, A().zz, A()(2), A()[3], len(A()), A() + 1, list(A()), y


@program(N(2.0))
def one_statement_two_classes(x):
    def make(n):
        class A:
            def f(self):
                return x + n

        return A

    a, b = make(1), make(2)
    return a().f(), b().f(), a is b, [a, b]


class Proto(typing.Protocol):
    def f(self): ...


@program(N(2.0))
def protocol_inside(x):
    class A(typing.Protocol):
        def f(self): ...

    class B(A):
        def f(self):
            return x

    return B().f()


class Registry(type):
    classes = []

    def __init__(cls, name, bases, ns):
        super().__init__(name, bases, ns)
        Registry.classes.append(name)


class Auto:
    subs = {}

    def __init_subclass__(cls, **kw):
        Auto.subs[cls.__name__] = len(Auto.subs)
        super().__init_subclass__(**kw)


@program(N(2.0))
def metaclass_counts(x):
    class A(metaclass=Registry):
        pass

    return len(Registry.classes) and A.__name__


@program(N(2.0), breaks=7)
def hooks_through_three_classes(x):
    class A(Auto):
        v = x

    class B(A):
        def __init_subclass__(cls, z):
            cls.z = z

    class C(B, z=x):
        pass

    try:

        class D(B):
            pass
    except TypeError as e:
        m = str(e)
    return A().v, C.z, Auto.subs.get("A") is None, m


@program(N(2.0), breaks=1)
def break_between_two_classes(x):
    class A:
        def f(self, out):
            out.append(self)
            return x

    o = []
    r = A().f(o)
    breakpoint_fn(o)

    class B(A):
        def f(self, out):
            return super().f(out) + 1

    return r, B().f(o), [type(i).__name__ for i in o]


def breakpoint_fn(o):
    o.append(1)
    threading.current_thread()


@program(N(2.0), breaks=1)
def cached_members(x):
    class Stack:
        def __init__(self):
            self.items = []

        def push(self, v):
            self.items.append(v)
            return self

        def __len__(self):
            return len(self.items)

        def __bool__(self):
            return False

        def __contains__(self, v):
            return any(v is i for i in self.items)

        @functools.cached_property
        def first(self):
            return self.items[0]

        @functools.lru_cache
        def cached(self):
            return 3

    s = Stack().push(x).push(x + 1)
    return len(s), bool(s), x in s, s.first, s.items[1]


@program(N(2.0))
def layout_conflict(x):
    try:

        class A(int, str):
            pass
    except TypeError as e:
        return str(e)


@program(N(2.0))
def own_getattribute_and_hash(x):
    class A:
        def __getattribute__(self, n):
            return object.__getattribute__(self, "_" + n) if not n.startswith("_") else object.__getattribute__(self, n)

        def __init__(self):
            self._v = x

        def __hash__(self):
            return 3

        def __eq__(self, o):
            return isinstance(o, A)

    a = A()
    d = {a: 1}
    return a.v, d[A()], a == A()


@program(N(2.0))
def dataclass_with_slots(x):
    @dataclasses.dataclass(slots=True)
    class P:
        a: object
        b: int = 2

        def f(self):
            return self.a + self.b

    @dataclasses.dataclass
    class Q(P):
        c: int = 3

        def __post_init__(self):
            self.d = self.a + self.c

    q = Q(x)
    return P(x).f(), q.d, q, P


@program(N(2.0))
def own_new(x):
    class A:
        n = 0

        def __new__(cls, *a):
            cls.n += 1
            return super().__new__(cls)

        def __init__(self, v):
            self.v = v

    A(x)
    b = A(x)
    return A.n, b.v, b


@program(N(2.0))
def context_managers_made_inside(x):
    @contextlib.contextmanager
    def cm():
        yield x

    class A(contextlib.ContextDecorator):
        def __enter__(self):
            return self

        def __exit__(self, *e):
            return False

    with A() as a, cm() as y:
        z = y + 1
    return z


@program(N(2.0))
def nested_classes(x):
    class Outer:
        class Inner:
            v = x

        def mk(self):
            return self.Inner()

    return Outer().mk().v, Outer.Inner.__qualname__, Outer


@program(N(2.0))
def match_on_a_class(x):
    class Node:
        __match_args__ = ("a", "b")

        def __init__(self, a, b):
            self.a, self.b = a, b

    match Node(x, 1):
        case Node(a, 1):
            return a


@program(N(2.0))
def exception_classes(x):
    class E1(Exception):
        pass

    class E2(E1):
        pass

    try:
        raise E2("z")
    except E1 as e:
        return type(e).__name__, e.args, e


@program(N(2.0), breaks=1)
def implicit_class_methods(x):
    class A:
        def __init_subclass__(cls):
            cls.tagged = True

        def __class_getitem__(cls, k):
            return (cls.__name__, k)

    class B(A):
        pass

    return B.tagged, A[3], B[2], hasattr(A, "tagged")


@program(N(2.0))
def methods_added_later(x):
    class A:
        def f(self):
            return self.g()

    A.g = lambda self: x
    B = type("B", (A,), dict(g=lambda self: x + 1))
    return A().f(), B().f(), B.__mro__[1] is A, issubclass(B, A), type(B()) is B


@program(N(2.0))
def flag_inside(x):
    class C(enum.Flag):
        A = 1
        B = 2

    return (C.A | C.B).value, C.A in (C.A | C.B)


@program(N(2.0), breaks=1)
def class_as_a_key(x):
    class A:
        pass

    a = A()
    a.v = x
    return {A: 1}[A], id(A) == id(type(a)), a.__class__ is A, repr(A)[:8]


@program(N(2.0))
def named_tuple_function(x):
    P = collections.namedtuple("P", "a b")
    return P(x, 1).a


@program(N(2.0))
def property_with_all_accessors(x):
    class A:
        @property
        def v(self):
            return self._v

        @v.setter
        def v(self, n):
            self._v = n + 1

        @v.deleter
        def v(self):
            del self._v

        w = property(lambda self: x)

    a = A()
    a.v = x
    r = a.v
    del a.v
    return r, hasattr(a, "_v"), a.w, A


@program(N(2.0))
def generator_method(x):
    class A:
        def gen(self):
            yield x
            yield __class__.__name__

    return list(A().gen()), A().gen()


kept = []


@program(N(2.0))
def class_in_a_global_list(x):
    class A:
        v = x

    kept.append(A)
    a = kept.pop()
    return a.v + 1


@program(N(2.0))
def objects_in_a_namespace_keep_their_identity(x):
    import logging

    formatter = logging.Filter("name")

    class A:
        held = formatter
        items = [x]

    A.items.append(A.held)
    return A.held is formatter, A().held is formatter, A.items[1] is formatter


# Since 3.13 a partial is a descriptor that warns: the class statement cannot be followed, nor what reads it.
@program(N(2.0), breaks=5 if sys.version_info >= (3, 13) else 0)
def a_partial_in_a_namespace_keeps_its_identity(x):
    add = functools.partial(max, 1)

    class A:
        largest = add

    return A.largest is add, A.largest(3), x + 1


@program(N(2.0), breaks=15)
def hooks_of_subclasses_below_classes_of_all_layouts(x):
    made = []

    class Base(abc.ABC):
        __slots__ = ("__p", "u")

        def __init_subclass__(cls, **keywords):
            made.append(cls.__name__)

    class A(Base):
        def __init__(self):
            self.u, self.w = x, 2

    class B(A):
        pass

    class Slotted:
        __slots__ = ("q",)

        def __init_subclass__(cls, **keywords):
            made.append(keywords)

    class Plain(Slotted, more=1):
        pass

    class Below(Plain, more=2):
        __slots__ = ("z",)

    class Mixed:
        def __init_subclass__(cls, **keywords):
            super().__init_subclass__(**keywords)
            made.append(cls.__mro__[1].__name__)

    class C(Mixed, abc.ABC):
        pass

    class D(C):
        __slots__ = ()

    class E(D, dict):
        @abc.abstractmethod
        def abstract(self): ...

    class F(E):
        def abstract(self):
            return self["a"]

    b, f, g = B(), F(a=x), Below()
    g.q, g.z, g.r = x, 1, 2
    layouts = (
        hasattr(g, "__dict__"),
        hasattr(b, "__dict__"),
        F.__base__.__name__,
        [c.__name__ for c in F.__mro__],
        type(F).__name__,
    )
    return (
        b.u + b.w,
        f.abstract(),
        g.q + g.r,
        made,
        layouts,
        isinstance(b, Base),
        [c.__name__ for c in Below.__mro__],
    )
