"""A walk through what the issue names of Python: itertools, functools, operator, collections, math, contextlib, typing, copy,
inspect, hooks of attributes and metaclasses, subclasses of containers, generators. Each program uses many functions of its family."""

# mypy: ignore-errors
# ruff: noqa
# The programs are meant to be odd, and wrong on purpose here and there.

import abc
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import inspect
import itertools
import math
import operator
import sys
import types
import typing
import weakref
from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict, deque, namedtuple

from vm_corpus import N, program

Num = N


@program(N(2.0))
def it_all(x):
    I = itertools
    return [
        list(v)
        for v in (
            I.accumulate([1, 2, 3]),
            I.accumulate([1, 2, 3], operator.mul, initial=2),
            I.chain([1], [2]),
            I.chain.from_iterable([[1], [2]]),
            I.combinations([1, 2, 3], 2),
            I.combinations_with_replacement([1, 2], 2),
            I.compress([1, 2, 3], [1, 0, 1]),
            I.dropwhile(lambda v: v < 2, [1, 2, 1]),
            I.filterfalse(lambda v: v % 2, [1, 2, 3]),
            I.islice(I.count(3, 2), 2),
            I.islice(I.cycle([1, 2]), 5),
            I.pairwise([1, 2, 3]),
            I.permutations([1, 2, 3], 2),
            I.product([1, 2], [3, 4]),
            I.product([0, 1], repeat=2),
            I.repeat(x, 2),
            I.starmap(operator.add, [(1, 2)]),
            I.takewhile(lambda v: v < 2, [1, 2, 1]),
            I.zip_longest([1, 2], [3], fillvalue=x),
        )
    ]


@program(N(2.0))
def it_group(x):
    return [(k, list(g)) for k, g in itertools.groupby([1, 1, 2, 3, 3], key=lambda v: v)], [
        list(t) for t in itertools.tee([1, 2, 3], 2)
    ]


@program(N(2.0))
def it_leaf(x):
    return (
        list(itertools.accumulate([x, x + 1, x + 2], operator.add)),
        [a + b for a, b in itertools.product([x], [1, 2])],
        list(itertools.chain([x], (x + 1,))),
    )


@program(N(2.0))
def it_count(x):
    c = itertools.count()
    r = [next(c), next(c)]
    return r, x + next(c)


@program(N(2.0))
def fn_all(x):
    f = functools.partial(operator.add, x)
    g = functools.reduce(lambda a, b: a * b, [x, 2, 3])

    @functools.wraps(f.func)
    def w(*a):
        return f(*a)

    return (
        f(1),
        g,
        w(2),
        w.__name__,
        functools.cmp_to_key(lambda a, b: b - a)(1) < functools.cmp_to_key(lambda a, b: b - a)(2),
    )


@functools.singledispatch
def sd(v):
    return "other"


@sd.register(int)
def _(v):
    return "int"


@sd.register
def _(v: list):
    return "list"


@program(N(2.0))
def fn_dispatch(x):
    return sd(1), sd([1]), sd("s"), sd(x), x + 1


class SDM:
    @functools.singledispatchmethod
    def f(self, v):
        return "o"

    @f.register
    def _(self, v: int):
        return "i"

    @functools.partialmethod
    def q(self):
        pass

    p = functools.partialmethod(lambda self, a, b: (a, b), 3)

    @functools.cached_property
    def c(self):
        return [1]


@program(N(2.0))
def fn_methods(x):
    s = SDM()
    return s.f(1), s.f("s"), s.p(4), s.c is s.c, x + 1


@functools.lru_cache(maxsize=None)
def lru(n):
    return n * 2


@program(N(2.0))
def fn_lru(x):
    return lru(3) + x, lru(3)


@functools.lru_cache
def lru_leaf(n):
    return n * 2


@program(N(2.0), breaks=1)  # the cache keeps the number itself
def fn_lru_leaf(x):
    return lru_leaf(x)


@program(N(2.0))
def fn_lru_inside(x):
    @functools.lru_cache(None)
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    return fib(6) + x


@program(N(2.0))
def fn_cache_inside(x):
    @functools.cache
    def f(n):
        return n + 1

    return f(1), x


@program(N(2.0))
def op_all(x):
    o = operator
    l = [1, 2, 3]
    d = {}
    o.setitem(d, "a", x)
    o.iadd(l, [4])
    return (
        o.itemgetter(1, 2)(l),
        o.attrgetter("value")(types.SimpleNamespace(value=x)),
        o.methodcaller("count", 1)(l),
        o.concat([1], [2]),
        o.contains(l, 2),
        o.countOf(l, 1),
        o.indexOf(l, 2),
        o.getitem(d, "a"),
        o.index(3),
        o.truth([]),
        o.not_(1),
        o.is_(x, x),
        o.length_hint(l),
        o.inv(3),
        o.matmul if False else 0,
        o.pow(2, 3),
        o.call(len, l) if hasattr(o, "call") else 0,
        o.delitem(l, 0),
        l,
    )


@program(N(2.0))
def col_counter(x):
    c = Counter("abca")
    c.update("a")
    c["z"] += 2
    d = Counter(a=1, b=5)
    return (
        c.most_common(2),
        dict(c + d),
        dict(c - d),
        dict(c & d),
        dict(c | d),
        sum(c.values()),
        list(c.elements()),
        c["nope"],
        +c == c,
        c.total(),
        x,
    )


@program(N(2.0))
def col_dd(x):
    d = defaultdict(list)
    d["a"].append(x)
    d["b"].extend([1, 2])
    e = defaultdict(int)
    e["q"] += 1
    return d, dict(e), d.get("zz"), "zz" in d, list(d.items())


@program(N(2.0))
def col_od(x):
    d = OrderedDict(a=1, b=x)
    d.move_to_end("a")
    d["c"] = 3
    p = d.popitem(last=False)
    return d, p, list(reversed(d)), d == OrderedDict(a=1, c=3)


@program(N(2.0))
def col_deque(x):
    q = deque([1, 2, 3], maxlen=4)
    q.append(x)
    q.appendleft(0)
    q.rotate(1)
    q.extendleft([7])
    return q, q.pop(), q.popleft(), q.index(2) if 2 in q else None, q.count(1), list(reversed(q)), q.maxlen, q.copy()


@program(N(2.0))
def col_chain(x):
    c = ChainMap({"a": 1}, {"b": x, "a": 2})
    return c["a"], c["b"], list(c), len(c), "z" in c, c.new_child({"q": 1})["q"]


class UD(UserDict):
    pass


@program(N(2.0))
def col_user(x):
    u = UD(a=1)
    u["b"] = x
    return u["b"], len(u), list(u), u.get("c", 3)


NT = namedtuple("NT", "a b", defaults=[3])


@program(N(2.0))
def col_nt(x):
    n = NT(x)
    return n.a, n._replace(b=4), n._asdict(), NT._make([1, 2]), n._fields, n[0], [*n]


@program(N(2.0))
def math_all(x):
    m = math
    return (
        m.sqrt(4),
        m.floor(2.5),
        m.ceil(2.1),
        m.gcd(4, 6),
        m.lcm(4, 6),
        m.factorial(5),
        m.comb(5, 2),
        m.perm(4, 2),
        m.isclose(1, 1.0),
        m.inf,
        m.isnan(m.nan),
        m.hypot(3, 4),
        m.dist([0, 0], [3, 4]),
        m.prod([1, 2, 3]),
        m.fsum([0.1] * 3),
        m.modf(2.5),
        m.frexp(8),
        m.ldexp(1, 3),
        m.trunc(2.7),
        m.copysign(1, -2),
        m.log(8, 2),
        m.tau,
        m.isqrt(17),
        m.remainder(7, 3),
        m.fmod(7, 3),
        x,
    )


@program(N(2.0))
def ctx_all(x):
    out = []

    @contextlib.contextmanager
    def cm(n):
        out.append(n)
        try:
            yield n + 1
        finally:
            out.append(-n)

    with cm(1) as a, contextlib.suppress(KeyError), contextlib.nullcontext(5) as c:
        {}["k"]
    with contextlib.ExitStack() as st:
        b = st.enter_context(cm(2))
        st.callback(out.append, "cb")
        st.push(lambda *e: out.append("p"))
    with contextlib.closing(types.SimpleNamespace(close=lambda: out.append("closed"))):
        pass
    return out, a, b, c, x


@program(N(2.0))
def ctx_deco(x):
    @contextlib.contextmanager
    def cm():
        yield

    @cm()
    def f(v):
        return v + 1

    return f(x)


@program(N(2.0), breaks=1)
def ctx_redirect(x):
    import io

    s = io.StringIO()
    with contextlib.redirect_stdout(s):
        pass
    return x


# What typing keeps in its caches may have to be made first.
@program(N(2.0), breaks=None)
def typ_all(x):
    T = typing
    return (
        T.cast(int, x),
        T.Optional[int] == T.Union[int, None],
        T.get_origin(T.List[int]),
        T.get_args(T.Dict[str, int]),
        T.TYPE_CHECKING,
        isinstance([], T.List) if False else 0,
        list[int],
        T.Any is T.Any,
        T.NamedTuple is not None,
    )


@program(N(2.0), breaks=1)
def cp_all(x):
    l = [1, [x]]
    d = {"a": l}
    a = copy.copy(d)
    b = copy.deepcopy(d)
    s = copy.copy(SDM())
    return a["a"] is l, b["a"] is l, b["a"][1] is l[1], b, copy.copy([1]), copy.deepcopy((1, 2)), type(s).__name__


@program(N(2.0), breaks=1)
def insp(x):
    def f(a, b: int = 2, *c, d, **e):
        pass

    s = inspect.signature(f)
    return (
        list(s.parameters),
        s.parameters["b"].default,
        str(s),
        inspect.isfunction(f),
        inspect.isclass(int),
        inspect.ismethod(SDM().f),
        x,
    )


@program(N(2.0))
def insp2(x):
    s = inspect.signature(col_nt)
    b = s.bind(x)
    b.apply_defaults()
    return list(b.arguments), b.args


class Meta(type):
    def __getattr__(cls, n):
        return n

    def __getitem__(cls, k):
        return k

    def __len__(cls):
        return 3

    def __contains__(cls, v):
        return v == 1

    def __iter__(cls):
        return iter([1, 2])

    def __eq__(cls, o):
        return cls is o

    def __hash__(cls):
        return 5

    def __instancecheck__(cls, o):
        return o == 3


class WithMeta(metaclass=Meta):
    pass


@program(N(2.0))
def meta_ops(x):
    return (
        WithMeta.zz,
        WithMeta[3],
        len(WithMeta),
        1 in WithMeta,
        list(WithMeta),
        isinstance(3, WithMeta),
        WithMeta == WithMeta,
        x,
    )


class GA:
    def __init__(self):
        self.v = 1

    def __getattribute__(self, n):
        if n == "magic":
            return 42
        return super().__getattribute__(n)

    def __getattr__(self, n):
        if n.startswith("dyn_"):
            return n
        raise AttributeError(n)

    def __setattr__(self, n, v):
        super().__setattr__(n, v)

    def __delattr__(self, n):
        super().__delattr__(n)


@program(N(2.0))
def attrs_all(x):
    g = GA()
    g.q = x
    r = [g.magic, g.v, g.dyn_1, hasattr(g, "nope"), getattr(g, "nope", 7)]
    del g.q
    r.append(hasattr(g, "q"))
    setattr(g, "w", x)
    delattr(g, "w")
    r.append("w" in g.__dict__)
    return r, vars(g)


class Sl:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a = 1


@program(N(2.0))
def slots_all(x):
    s = Sl()
    s.b = x
    del s.a
    return hasattr(s, "a"), s.b, Sl.__slots__


@program(N(2.0))
def hash_id(x):
    o = object()
    t = (1, "a")
    return (
        hash(t) == hash((1, "a")),
        id(o) == id(o),
        hash(o) == hash(o) if False else 1,
        {t: x}[(1, "a")],
        hash("a") == hash("a"),
        hash(SDM) is not None,
    )


@program(N(2.0))
def hash_new(x):
    a = SDM()
    d = {a: 1}
    s = {a}
    return d[a], a in s, hash(a) == hash(a), x


class Sub(dict):
    def __setitem__(self, k, v):
        super().__setitem__(k, v * 2)


class SubL(list):
    def append(self, v):
        super().append(v)
        self.n = len(self)


class SubC(Counter):
    pass


class SubD(defaultdict):
    def __missing__(self, k):
        self[k] = r = k * 2
        return r


class SubOD(OrderedDict):
    pass


class SubQ(deque):
    def push(self, v):
        self.append(v)


class SubS(set):
    pass


class SubT(tuple):
    def __new__(cls, *a):
        return super().__new__(cls, a)


class SubStr(str):
    def shout(self):
        return self.upper()


class SubI(int):
    def dbl(self):
        return self * 2


class SubF(float):
    pass


@program(N(2.0))
def subs(x):
    a = Sub()
    a["k"] = 2
    b = SubL()
    b.append(x)
    c = SubC("aab")
    d = SubD()
    e = SubOD(a=1)
    e.move_to_end("a")
    q = SubQ([1])
    q.push(2)
    s = SubS([1])
    s.add(2)
    t = SubT(1, 2)
    return a, b, b.n, c.most_common(1), d[3], d, e, list(q), sorted(s), t, t[0]


@program(N(2.0))
def subs_imm(x):
    return SubStr("a").shout(), SubI(3).dbl(), SubF(1.5) + 1, SubStr("ab")[0], SubI(2) + x


@program(N(2.0))
def strs(x):
    s = "Hello World"
    return (
        s.split(),
        s.partition(" "),
        s.lower().title(),
        s.replace("l", "L"),
        s.encode(),
        "{:>5}|{!r}".format(3, "q"),
        f"{3.14159:.2f} {s!r:>15} {5:03d}",
        "%s-%d" % ("a", 3),
        s.find("o"),
        s[::-1],
        ",".join(map(str, range(3))),
        s.startswith(("H", "J")),
        "a,b".rsplit(",", 1),
        s.translate(str.maketrans("lo", "01")),
        s.zfill(15),
        "x".center(5, "*"),
        s.isalpha(),
        s.casefold(),
        b"ab".hex(),
        "é".encode("utf8").decode("utf8"),
        x,
    )


@program(N(2.0), breaks=1)
def comps(x):
    def f(*a, k=1, **kw):
        return a, k, kw

    a, *b, c = range(5)
    d = {**{"a": 1}, "b": 2}
    (p, q), r = (1, 2), 3
    if (n := len(b)) > 2:
        z = n
    match d:
        case {"a": 1, **rest}:
            m = rest
    match [1, 2, 3]:
        case [1, *tail]:
            m2 = tail
    match x:
        case Num(value=v):
            m3 = "num"
        case _:
            m3 = "no"
    return (
        f(*b, k=2, **d),
        a,
        b,
        c,
        p,
        q,
        r,
        z,
        m,
        m2,
        m3,
        1 < 2 < 3,
        [i for i in range(3) if i],
        {k: v for k, v in d.items()},
        {i % 2 for i in range(4)},
        sorted(["b", "a"], key=str.lower, reverse=True),
        max([1, 2], key=lambda v: -v),
        min([], default=x),
        sum([x, x], start=x) if False else 0,
        any([]),
        all([]),
        list(zip([1], [2])),
        list(enumerate("ab", 1)),
        divmod(7, 2),
        round(2.567, 1),
        abs(-3),
        pow(2, 3, 5),
        bin(5),
        ord("a"),
        chr(98),
        list(map(lambda a, b: a + b, [1], [2])),
        list(filter(None, [0, 1])),
        slice(1, 2).indices(5),
        reversed([1, 2]),
        isinstance(True, int),
        issubclass(bool, int),
        callable(f),
        iter([1]),
        type(x).__name__,
    )


@program(N(2.0))
def gens(x):
    def g(n):
        r = yield n
        while r:
            r = yield r * 2
        return "done"

    def h():
        v = yield from g(1)
        yield v

    a = h()
    o = [next(a), a.send(3), a.send(4), next(a)]
    b = (i * 2 for i in range(5))
    o.append(next(b))
    o.append(list(b))
    return o, b


@program(N(2.0))
def gens_throw(x):
    def g():
        try:
            yield 1
        except ValueError as e:
            yield str(e)
        finally:
            pass

    a = g()
    next(a)
    return a.throw(ValueError("q")), list(a), x


@program(N(2.0))
def abcs(x):
    from collections import abc as A

    class S(A.Sequence):
        def __getitem__(s, i):
            if i > 2:
                raise IndexError
            return i

        def __len__(s):
            return 3

    class M(A.MutableMapping):
        def __init__(s):
            s.d = {}

        def __getitem__(s, k):
            return s.d[k]

        def __setitem__(s, k, v):
            s.d[k] = v

        def __delitem__(s, k):
            del s.d[k]

        def __iter__(s):
            return iter(s.d)

        def __len__(s):
            return len(s.d)

    s = S()
    m = M()
    m["a"] = x
    m.update(b=2)
    m.setdefault("c", 3)
    return (
        list(s),
        1 in s,
        s.index(2),
        list(reversed(s)),
        isinstance(s, A.Sequence),
        m.pop("b"),
        list(m.items()),
        isinstance({}, A.Mapping),
        isinstance([], A.Hashable),
        issubclass(int, A.Hashable),
        isinstance(abs, A.Callable),
        m == m,
    )


class Desc:
    def __set_name__(self, o, n):
        self.n = "_" + n

    def __get__(self, o, t=None):
        return self if o is None else getattr(o, self.n, None)

    def __set__(self, o, v):
        setattr(o, self.n, v)

    def __delete__(self, o):
        delattr(o, self.n)


class HasDesc:
    d = Desc()


@program(N(2.0))
def descs(x):
    h = HasDesc()
    h.d = x
    r = h.d
    del h.d
    return r, h.d, type(HasDesc.d).__name__


GLOB = [1]


CNT = 0


def f():
    pass


@program(N(2.0))
def exc(x):
    out = []
    try:
        try:
            1 / 0
        except ZeroDivisionError as e:
            raise ValueError("a") from e
        finally:
            out.append("f")
    except ValueError as e:
        out.append(type(e.__cause__).__name__)
    else:
        out.append("no")
    try:
        int("z")
    except (ValueError, TypeError) as e:
        out.append(str(e))
    try:
        [][1]
    except LookupError as e:
        out.append(e.args)
    for i in range(3):
        try:
            if i == 1:
                continue
            if i == 2:
                break
        finally:
            out.append(i)

    def g():
        try:
            return 1
        finally:
            out.append("ret")

    return out, g(), x


@program(N(2.0))
def wr(x):
    class A:
        pass

    a = A()
    r = weakref.ref(a)
    return r() is a, x


@program(N(2.0))
def sns(x):
    n = types.SimpleNamespace(a=1, b=x)
    n.c = 3
    return n, n == types.SimpleNamespace(a=1, b=n.b, c=3), vars(n)


@program(N(2.0))
def mtypes(x):
    t = types
    return (
        isinstance(lambda: 0, t.FunctionType),
        t.MappingProxyType({"a": 1})["a"],
        t.MethodType(lambda s: s, x)(),
        isinstance(len, t.BuiltinFunctionType),
    )


@program(N(2.0), breaks=2)
def bytesx(x):
    b = bytearray(b"ab")
    b.append(99)
    m = memoryview(b"abc")
    return bytes(b), b[0], m[1], x


@program(N(2.0))
def deleting(x):
    d = {"a": 1, "b": 2}
    del d["a"]
    l = [1, 2, 3, 4]
    del l[1:3]
    a = 1
    del a
    s = SDM()
    s.z = 1
    del s.z
    return d, l, hasattr(s, "z"), x


@program(N(2.0))
def loops(x):
    t = 0
    for i in range(50):
        if i % 7 == 3:
            continue
        t += i
    else:
        t += 1
    while t > 10:
        t -= 7
    return t, x


@program(N(2.0))
def rec(x):
    def fact(n):
        return 1 if n == 0 else n * fact(n - 1)

    return fact(10), x


@program(N(2.0), breaks=1)
def dyn(x):
    return eval("1+1"), x


@program(N(2.0))
def glb(x):
    return "GLOB" in globals(), x


@program(N(2.0))
def loc(x):
    y = 1
    return sorted(locals()), x


@program(N(2.0), breaks=1)
def pr(x):
    print("hi", 3)
    return x


@program(N(2.0), breaks=1)
def dirx(x):
    return "count" in dir([]), x


@program(N(2.0))
def strm(x):
    import string, re

    return (
        string.ascii_lowercase[:3],
        re.sub("a", "b", "aa"),
        re.match(r"(\d+)", "12x").group(1),
        [m.start() for m in re.finditer("a", "aba")],
        x,
    )


@program(N(2.0))
def dt(x):
    import datetime

    return datetime.timedelta(days=1).total_seconds(), x


@program(N(2.0))
def dec(x):
    import decimal, fractions

    return fractions.Fraction(1, 2) + 1, x


@program(N(2.0))
def hq(x):
    import heapq, bisect

    h = [3, 1, 2]
    heapq.heapify(h)
    heapq.heappush(h, 0)
    return heapq.heappop(h), heapq.nlargest(2, [1, 2, 3]), bisect.bisect([1, 2, 3], 2), h, x


@program(N(2.0), breaks=1)
def tm(x):
    import time

    t = time.perf_counter()
    return x


@program(N(2.0))
def osx(x):
    import os

    return os.path.join("a", "b"), os.environ.get("NOPE_X"), x


@program(N(2.0))
def jsn(x):
    import json

    return json.dumps({"a": 1}), x


@program(N(2.0))
def enumx(x):
    class C(enum.Enum):
        A = 1

    return C.A.name, C(1) is C.A, C["A"].value, list(C)[0].value, len(C), isinstance(C.A, C), x


class WeakKey:
    pass


weak_key = WeakKey()
by_weak_key = weakref.WeakKeyDictionary({weak_key: 3})


@program(N(2.0), breaks=None)
def weak_keys(x):
    other = WeakKey()
    return (
        x * by_weak_key[weak_key],
        weak_key in by_weak_key,
        by_weak_key.get(other, 5),
        other in by_weak_key,
        len(by_weak_key),
    )
