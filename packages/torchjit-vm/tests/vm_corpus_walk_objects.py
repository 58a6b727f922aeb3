"""A second walk through what the issue names of Python: functions, classes, descriptors, metaclasses, dataclasses, enums, named tuples,
generators, sorting, matching and texts."""

# mypy: ignore-errors
# ruff: noqa

import dataclasses
import enum
import itertools
import operator
import string
import typing
from collections import namedtuple

from vm_corpus import N, program


# functions, defaults, closures
@program(N(1.0), breaks=1)
def closures(x):
    fs = []
    for i in range(3):

        def f(a, /, b=i, *args, c=[], **kw):
            c.append(b)
            nonlocal_x[0] += 1
            return a, b, args, list(c), kw

        nonlocal_x = [0]
        fs.append(f)

    def counter():
        n = 0

        def inc(k=1):
            nonlocal n
            n += k
            return n

        return inc, lambda: n

    inc, get = counter()
    inc()
    inc(5)
    fs[0].__defaults__ = (9,)
    return fs[0](1), fs[1](x, 2, 3, z=4), fs[2](0, c=[1]), get(), fs[0].__name__


@program(N(1.0))
def arg_errors(x):
    def f(a, b=1, *, c):
        return a

    out = []
    for call in (
        lambda: f(),
        lambda: f(1),
        lambda: f(1, 2, 3, c=1),
        lambda: f(1, c=2, d=3),
        lambda: f(1, a=1, c=1),
        lambda: f(*[1, 2], **{"c": 3, "b": 1}),
        lambda: (lambda: 0)(1),
        lambda: f(**{1: 2}),
    ):
        try:
            out.append(call())
        except TypeError as e:
            out.append(str(e))
    return out, x


# classes
class Desc:
    def __set_name__(self, o, n):
        self.n = "_" + n

    def __get__(self, i, o=None):
        return self if i is None else i.__dict__.get(self.n, "unset")

    def __set__(self, i, v):
        i.__dict__[self.n] = ("set", v)

    def __delete__(self, i):
        del i.__dict__[self.n]


class NonData:
    def __get__(self, i, o):
        return ("nd", i is None)


class Base:
    registry = []
    d = Desc()
    nd = NonData()

    def __init_subclass__(cls, **kw):
        super().__init_subclass__()
        Base.registry.append((cls.__name__, kw))

    @classmethod
    def make(cls, *a):
        return cls(*a)

    @staticmethod
    def st(v):
        return v

    def __getattribute__(self, n):
        if n == "magic":
            return 42
        return super().__getattribute__(n)


class Derived(Base, tag=1):
    __slots__ = ("s",)

    def __init__(self, v=0):
        self.s = v

    def __eq__(self, o):
        return isinstance(o, Derived) and self.s == o.s

    __hash__ = None


@program(N(1.0))
def descriptors(x):
    d = Derived.make(x)
    r = [d.d]
    d.d = 3
    r.append(d.d)
    del d.d
    r.append(d.d)
    r += [d.nd, Derived.nd, Derived.d is Base.__dict__["d"], d.magic, d.st(4), d.s + 1, Base.registry, d == 5]
    d.nd = "inst"
    r.append(d.nd)
    try:
        hash(d)
    except TypeError as e:
        r.append(str(e))
    try:
        del d.d
    except KeyError as e:
        r.append(repr(e))
    return r


class Meta(type):
    def __new__(m, n, b, ns, **k):
        ns["added"] = k
        return super().__new__(m, n, b, ns)

    def __init__(c, n, b, ns, **k):
        super().__init__(n, b, ns)
        c.inited = True

    def __call__(c, *a, **k):
        o = super().__call__(*a, **k)
        o.called = True
        return o

    def __getattr__(c, n):
        return ("meta", n)

    def __len__(c):
        return 7

    def __contains__(c, v):
        return v == 1

    def __iter__(c):
        return iter("ab")

    def __getitem__(c, k):
        return ("item", k)

    @property
    def prop(c):
        return c.__name__


class WithMeta(metaclass=Meta, opt=3):
    def __init__(self, v=1):
        self.v = v


@program(N(1.0))
def metaclasses(x):
    o = WithMeta(x)

    class Inner(WithMeta, opt=4):
        pass

    i = Inner(2)
    return (
        o.called,
        WithMeta.added,
        WithMeta.nope,
        len(WithMeta),
        1 in WithMeta,
        list(WithMeta),
        WithMeta[3],
        WithMeta.prop,
        i.v,
        Inner.added,
        Inner.prop,
        o.v + 1,
        isinstance(i, WithMeta),
        type(Inner) is Meta,
    )


@dataclasses.dataclass(order=True)
class P:
    a: int
    b: list = dataclasses.field(default_factory=list, compare=False)
    c: typing.ClassVar[int] = 3
    _: dataclasses.KW_ONLY
    k: int = 4

    def __post_init__(self):
        self.z = self.a * 2


@dataclasses.dataclass(frozen=True, slots=True)
class FZ:
    a: int
    t: tuple = ()


@program(N(1.0))
def dataclass_all(x):
    p = P(1, [x])
    q = dataclasses.replace(p, a=3, k=9)
    f = FZ(2, (x,))
    out = []
    try:
        f.a = 3
    except dataclasses.FrozenInstanceError as e:
        out.append(str(e))
    return (
        p < q,
        p == P(1, k=4),
        repr(P(1)),
        dataclasses.asdict(P(2)),
        dataclasses.astuple(P(2)),
        [fl.name for fl in dataclasses.fields(p)],
        q.z,
        hash(FZ(1)) == hash(FZ(1)),
        out,
        f,
        dataclasses.is_dataclass(p),
        p.__match_args__,
        P.c,
    )


class Color(enum.Enum):
    R = 1
    G = 2
    ALIAS = 1

    @property
    def low(self):
        return self.name.lower()

    @classmethod
    def first(cls):
        return next(iter(cls))


class Fl(enum.IntFlag):
    A = 1
    B = 2
    C = 4


class SE(str, enum.Enum):
    X = "x"
    Y = "y"


class Auto(enum.Enum):
    def _generate_next_value_(name, start, count, last):
        return name * 2

    P = enum.auto()
    Q = enum.auto()


@program(N(1.0))
def enums(x):
    out = []
    try:
        Color(9)
    except ValueError as e:
        out.append(str(e))
    try:
        Color["Z"]
    except KeyError as e:
        out.append(str(e))
    try:
        Color.R = 3
    except AttributeError as e:
        out.append(str(e))
    return (
        Color.R.low,
        Color(2),
        Color["G"],
        Color.ALIAS is Color.R,
        list(Color),
        len(Color),
        Color.first(),
        Color.R in Color,
        Fl.A | Fl.B,
        Fl.A in (Fl.A | Fl.C),
        (Fl.A | Fl.B).name,
        ~Fl.A,
        SE.X == "x",
        SE.X.upper(),
        f"{SE.X.value}",
        str(Color.R),
        repr(Color.G),
        {Color.R: x}[Color(1)] + 1,
        Auto.Q.value,
        out,
        Color.__members__["R"],
        isinstance(Color.R, Color),
        hash(Color.R) == hash(Color(1)),
        Fl(3),
        int(Fl.B) + 1,
        Fl.B + 1,
        bool(Fl(0)),
    )


class NT(typing.NamedTuple):
    a: int
    b: str = "z"

    def m(self):
        return self.a, self.b


PT = namedtuple("PT", "x y", defaults=[5])


@program(N(1.0))
def named(x):
    n = NT(x)
    p = PT(1)
    out = []
    try:
        p.x = 3
    except AttributeError as e:
        out.append(str(e))
    try:
        NT()
    except TypeError as e:
        out.append(str(e).replace("NT.__new__", "__new__"))
    a, b = n
    return (
        n.m(),
        p._replace(y=7),
        p._asdict(),
        PT._fields,
        PT._make([3, 4]),
        n[1],
        p + (1,),
        p == (1, 5),
        repr(p),
        PT._field_defaults,
        out,
        a + 1,
        len(n),
        max(PT(1, 2), PT(0, 9)),
        isinstance(n, tuple),
        p.index(5),
        NT.__annotations__ and True,
    )


# generators passed around and partly consumed
@program(N(1.0))
def generators(x):
    log = []

    def g(n):
        try:
            for i in range(n):
                got = yield i
                log.append(got)
            return "done"
        finally:
            log.append("closed")

    def outer():
        r = yield from g(2)
        yield r
        yield from [x, 5]

    a = g(3)
    next(a)
    a.send("s")

    def take(it, k):
        return [next(it) for _ in range(k)]

    o = outer()
    r = [take(o, 2), list(o), list(a)]
    b = g(1)
    next(b)
    b.close()
    c = g(5)
    next(c)
    try:
        c.throw(ValueError("t"))
    except ValueError as e:
        r.append(str(e))
    z = zip(g(2), itertools.count(10))
    r.append(list(z))
    r.append(sum(v * v for v in g(3)))
    r.append(next(g(0), "dflt"))
    d = {k: v for k, v in zip(g(2), "ab")}
    return r, log, d, [*g(1)], max(g(3)), sorted(g(3), reverse=True)


@program(N(1.0))
def sort_all(x):
    L = [("b", 2), ("a", 2), ("c", 1)]
    L.sort(key=operator.itemgetter(1))
    M = sorted(L, key=lambda p: (-p[1], p[0]))
    q = [3, 1, 2]
    q.sort(reverse=True)

    class V:
        def __init__(s, v):
            s.v = v

        def __lt__(s, o):
            return s.v < o.v

        def __repr__(s):
            return f"V{s.v}"

    out = []
    try:
        sorted([1, "a"])
    except TypeError as e:
        out.append(str(e))
    return (
        L,
        M,
        q,
        repr(sorted([V(3), V(1)])),
        min([V(2), V(1)]).v,
        out,
        1 < 2 < 3 > 2 != 5,
        sorted("hello", key=str.upper),
        x,
    )


@program(N(1.0), {"kind": "circle", "r": 2}, [1, [2, 3]], P(3))
def matching(x, d, l, p):
    def m(v):
        match v:
            case {"kind": "circle", "r": r, **rest}:
                return "c", r, rest
            case [a, [b, *c]]:
                return a, b, c
            case P(a=3, k=k):
                return "P", k
            case int(n) if n > 5:
                return "big", n
            case 1 | 2 as q:
                return "small", q
            case str() as s:
                return s
            case (a, b):
                return "pair"
            case Color.R:
                return "red"
            case None:
                return "none"
            case FZ(1, (t,)):
                return "fz", t
            case _:
                return "?"

    return [m(v) for v in (d, l, p, 7, 2, "s", (1, 2), Color.R, None, FZ(1, (x,)), 3.5, [], {"kind": "x"})]


@program(N(1.0), "héllo {0}", breaks=1)
def strings(x, s):
    w = 7
    return (
        f"{w:>5}|{w!r:<4}|{3.14159:.{2}f}|{'ab'}|{w=}|{[1, 2]}|{ {'a': 1}['a'] }",
        s.format(3),
        "%s-%d-%5.1f" % ("a", 3, 2.5),
        "{a.imag} {b[0]}".format(a=2j, b=[9]),
        s.encode(),
        s.split(),
        s.title(),
        "a,b".partition(","),
        s.translate({104: "H"}),
        "x".join(map(str, range(3))),
        s[::-1],
        s.find("l"),
        "abc".startswith(("x", "a")),
        s.upper().isupper(),
        "a\tb".expandtabs(4),
        "ab".center(6, "*"),
        s.removeprefix("hé"),
        string.Template("$a").substitute(a=1),
        "é".casefold(),
        "1_000".isdigit(),
        int("1_0"),
        "a\nb".splitlines(),
        b"ab".hex(),
        bytes([1, 2]),
        "%(k)s" % {"k": 5},
        format(255, "#x"),
        format(3.0, "e"),
        "ab" * 2,
        "b" in "abc",
        ord("a"),
        chr(98),
        ascii("é"),
    )
