"""Values of library types: subclasses of str, int, float, bytes and deque, read-only views, bytearray, `dir`, `re.sub` with a function,
LRU caches made inside, `hash` of new objects."""

# mypy: ignore-errors
# ruff: noqa
# The programs are meant to be odd, and wrong on purpose here and there.

import functools
import inspect
import math
import re
import types
from collections import deque

from vm_corpus import N, program


class S(str):
    tag = 1

    def loud(self):
        return self.upper() + "!"

    def __add__(self, other):
        return S(str.__add__(self, other))


class I(int):
    def __new__(cls, v, unit="m"):
        self = super().__new__(cls, v)
        self.unit = unit
        return self

    def __repr__(self):
        return f"{int(self)}{self.unit}"


class F(float):
    pass


class B(bytes):
    pass


@program(S("abc"), I(3), F(1.5), N(2.0))
def atoms_outside(s, i, f, x):
    return (
        s.loud(),
        type(s + "d").__name__,
        s[1:],
        type(s[1:]).__name__,
        len(s),
        list(s),
        s == "abc",
        "b" in s,
        {s: 1}["abc"],
        i + 1,
        type(i + 1).__name__,
        i.unit,
        repr(i),
        str(i),
        f"{i}",
        -i,
        abs(i),
        i * 2.0,
        2 - i,
        i < 4,
        hash(i) == hash(3),
        f * 2,
        type(f * 2).__name__,
        isinstance(s, str),
        isinstance(i, S),
        x + i,
        [0, 1, 2, 3, 4][i],
        range(i),
        "a" * i,
        bool(i),
        divmod(i, 2),
        i.real,
        i.bit_length(),
        int(i),
        float(f),
        f.is_integer(),
        round(f),
        s.join(["x", s]),
        s,
    )


@program(N(2.0))
def atoms_made(x):
    s = S("ab")
    i = I(4, unit="k")
    f = F("2.5")
    b = B(b"xy")
    i.extra = [x]
    return (
        s,
        i,
        i.unit,
        f,
        b,
        s + "c",
        i + 1,
        f + i,
        s.upper(),
        {s: i},
        b[0],
        b[:1],
        sorted([I(3), I(1)]),
        max(F(1), F(2)),
        i == 4,
        s != "ab",
        x * f,
    )


@program(N(2.0))
def atoms_of_made_classes(x):
    class T(str):
        def __eq__(self, o):
            return str.__eq__(self, o) or o == "any"

        def __hash__(self):
            return str.__hash__(self)

        def __len__(self):
            return 42

        def __getitem__(self, k):
            return ("item", k)

        def __iter__(self):
            return iter([1, 2])

        def __contains__(self, k):
            return k == 7

        def __bool__(self):
            return False

        def __format__(self, spec):
            return "F" + spec

        def __str__(self):
            return "STR"

    t = T("q")

    class M(int):
        def __add__(self, o):
            return NotImplemented

        def __radd__(self, o):
            return ("radd", int(o))

        def __lt__(self, o):
            return "lt"

        def __index__(self):
            return 1

        def __int__(self):
            return 99

        def __neg__(self):
            return "neg"

    m = M(5)
    return (
        t == "any",
        t == "q",
        t == "z",
        len(t),
        t[3],
        list(t),
        7 in t,
        bool(t),
        f"{t:x}",
        str(t),
        repr(t),
        t.upper(),
        m + 1,
        1 + m,
        m < 3,
        m > 3,
        int(m),
        -m,
        [5, 6, 7][m],
        m - 1,
        m,
        t,
    )


@program(N(1.0))
def atom_errors(x):
    out = []
    for f in (
        lambda: I("q"),
        lambda: S("a") + 1,
        lambda: I(2) + "a",
        lambda: F("z"),
        lambda: S("a").nope,
        lambda: I(1) / I(0),
        lambda: S("abc")[10],
    ):
        try:
            f()
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out, x


class D(deque):
    def last(self):
        return self[-1]


@program(D([1, 2], maxlen=3), N(1.0))
def deque_subclass(d, x):
    d.append(x)
    e = d + D([9])
    g = d * 2
    c = d.copy()
    return (
        d.last(),
        type(e).__name__,
        list(e),
        e.maxlen,
        type(g).__name__,
        list(g),
        type(c).__name__,
        c.maxlen,
        list(c),
        isinstance(c, deque),
        deque([1]) * 3,
        deque([1], 2) + deque([2, 3]),
    )


MP = types.MappingProxyType
CONSTS = MP({"a": 1, "b": [2]})


@program({"a": 1}, N(1.0))
def proxies(d, x):
    p = MP(d)
    q = MP({"k": x})
    d["z"] = 3
    out = []
    try:
        p["a"] = 1
    except TypeError as e:
        out.append(str(e))
    try:
        p["nope"]
    except KeyError as e:
        out.append(str(e))
    try:
        del p["a"]
    except TypeError as e:
        out.append(str(e))
    return (
        p["z"],
        len(p),
        list(p),
        dict(p),
        p.get("q", 4),
        "a" in p,
        p.copy(),
        type(p.copy()),
        q["k"],
        {**p},
        out,
        p == {"a": 1, "z": 3},
        p | {"n": 1},
        isinstance(p, dict),
        CONSTS["a"],
        type(p).__name__,
    )


@program({"a": 1}, N(1.0), breaks=1)
def proxy_break(d, x):
    p = MP(d)
    print("here")
    d["b"] = 2
    return p, p["b"], x


PROXY_OF_TWO = MP({"a": 1, "bb": 2})


@program(N(1.0), breaks=None)
def proxy_loops_around_breaks(x):
    for k in PROXY_OF_TWO.keys():
        print(k)
        x = x + len(k)
    for k, v in PROXY_OF_TWO.items():
        print(k)
        x = x * 2 + v
    for k in PROXY_OF_TWO:
        print(k)
        x = x * 3 + len(k)
    return x


@program(N(1.0), breaks=None)
def new_proxy_around_breaks(x):
    made = MP({"a": 1, "bb": 2})
    for v in made.values():
        print(v)
        x = x * 2 + v
    return x


@program(N(1.0))
def proxy_iterator_leaves(x):
    left = iter(PROXY_OF_TWO.items())
    next(left)
    return x * 2, list(left), iter(PROXY_OF_TWO)


@program(N(1.0), breaks=None)
def parameters_of_a_signature_around_breaks(x):
    for name in inspect.signature(proxy_break).parameters.keys():
        print(name)
        x = x + len(name)
    return x


@program(bytearray(b"abc"), N(1.0))
def bytearrays(b, x):
    b.append(100)
    b[0] = 65
    b += b"xyz"
    b.extend([1, 2])
    c = bytearray(4)
    c[1:3] = b"\x01\x02"
    d = c + b"q"
    e = b[1:3]
    out = []
    for f in (lambda: b.append(300), lambda: {b: 1}, lambda: b["a"], lambda: b.pop(1000)):
        try:
            f()
        except Exception as ex:
            out.append((type(ex).__name__, str(ex)))
    del b[2]
    return (
        b,
        c,
        d,
        e,
        e.decode(),
        b.hex(),
        list(c),
        65 in b,
        b == bytes(b),
        bytes(c),
        len(b),
        out,
        bytearray("é", "utf8"),
        repr(c),
        bool(bytearray()),
        b.find(b"x"),
        [v for v in e],
        e.upper(),
        c * 2,
        b"z" + e,
        x,
        b.pop(),
        sorted(c),
        b.split(b"x"),
        isinstance(b, bytes),
    )


class A:
    k = 1

    def __init__(self):
        self.z = 2

    def m(self):
        pass


class WithDir(A):
    def __dir__(self):
        return ["q", "b"]


class Slots:
    __slots__ = ("s",)


@program(A(), N(1.0), breaks=7)
def directories(a, x):
    a.fresh = 3
    n = A()
    n.other = 1
    return (
        dir(a),
        [v for v in dir(n) if v[0] != "_"],
        dir(WithDir()),
        dir(A)[-3:],
        "sqrt" in dir(math),
        dir(3)[-2:],
        [v for v in dir(Slots()) if v[0] != "_"],
        x,
    )


@program("a1b22", N(1.0), breaks=7)
def substitute_by_function(s, x):
    seen = []

    def f(m):
        seen.append(m.group())
        return str(len(m.group()) + len(seen))

    pat = re.compile(r"[0-9]+")
    out = []
    try:
        re.sub("a", lambda m: 3, s)
    except TypeError as e:
        out.append(str(e))
    try:
        re.sub("a", lambda m: 1 / 0, s)
    except ZeroDivisionError as e:
        out.append(str(e))
    return (
        re.sub(r"\d", f, s),
        pat.sub(f, s, count=1),
        re.subn("x*", lambda m: "-", "abxd"),
        pat.subn(f, s),
        re.sub("A", str.lower and (lambda m: m[0].upper()), s, flags=re.I),
        re.sub("b", r"<\g<0>>", s),
        pat.sub("N", s),
        seen,
        x,
        out,
        re.sub("B", "q", s, flags=re.IGNORECASE),
    )


@program(N(1.0))
def cached_inside(x):
    calls = []

    @functools.lru_cache
    def f(n):
        "doc"
        calls.append(n)
        return n * 2

    @functools.lru_cache(maxsize=2)
    def g(a, *, k=1):
        calls.append((a, k))
        return a + k

    @functools.cache
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    @functools.lru_cache(maxsize=None, typed=True)
    def t(v):
        calls.append(v)
        return v

    @functools.lru_cache(0)
    def zero(v):
        calls.append(("z", v))
        return v

    r = [
        f(1),
        f(1),
        f(2),
        f(1.0),
        f(True),
        g(1),
        g(2),
        g(1),
        g(3),
        g(2),
        g(1, k=1),
        fib(20),
        t(1),
        t(1.0),
        t(1),
        zero(1),
        zero(1),
    ]
    y = [f(x), f(x)]
    info = [tuple(h.cache_info()) for h in (f, g, fib, t, zero)]
    f.cache_clear()
    return (
        r,
        calls,
        info,
        f.cache_info(),
        f.__name__,
        f.__doc__,
        f.__wrapped__(5),
        y,
        g.cache_parameters(),
        g.cache_info().hits,
        str(g.cache_info()),
    )


@program(N(1.0), breaks=3)  # a full cache drops an entry once in each of the two calls
def cached_escapes(x):
    @functools.lru_cache(maxsize=3)
    def f(n):
        return [n]

    f(1)
    f(2)
    f(1)
    f(3)
    f(4)
    f.tag = 3
    print("x")
    return f(1), f(2) is f(2), f.tag, f.__name__, f(4)


@program(N(1.0), breaks=3)
def cached_raises(x):
    @functools.lru_cache
    def f(n):
        if n:
            raise ValueError(n)
        return n

    out = []
    for i in (1, 0, 1, 0):
        try:
            out.append(f(i))
        except ValueError as e:
            out.append(str(e))
    try:
        f([1])
    except TypeError as e:
        out.append(str(e))
    print(f.cache_info())
    return out, f.cache_info()


@program(A(), N(1.0))
def hashes(a, x):
    n = A()
    m = A()

    class H:
        def __init__(self, o):
            self.o = o

        def __hash__(self):
            return hash((self.o, 1))

        def __eq__(self, other):
            return self.o is other.o

    class G:
        def __init__(self, o):
            self.o = o

        def __hash__(self):
            return hash(self.o)

        def __eq__(self, other):
            return self.o is other.o

    d = {H(n): 1, H(m): 2}
    d[H(n)] = 5
    g = {G(a): 1}
    g[G(a)] = 2
    return hash(n) == hash(n), len(d), d[H(m)], len(g), hash(a) == hash(a), isinstance(hash(n), int), x


@program(A(), N(1.0))
def hash_unhashable(a, x):
    out = []
    for v in ([], {}, set(), ([],), bytearray()):
        try:
            hash(v)
        except TypeError as e:
            out.append(str(e))
    return out, x


@program(N(1.0), breaks=1)
def hash_number(x):
    n = A()
    return hash(n) % 1, id(n) % 1, x
