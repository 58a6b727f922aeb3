"""What CPython asks of an object, in which order and how far, and what it says to a wrong answer: special methods, lazy
iterators, containers that change while something looks at them, exceptions that existed before."""

# mypy: ignore-errors
# ruff: noqa
# The programs are meant to be odd, and wrong on purpose here and there.

import functools
import itertools
import math
import operator
from collections import Counter, OrderedDict, deque

from vm_corpus import N, program


def errs(*fs):
    r = []
    for f in fs:
        try:
            v = f()
            r.append(v if not hasattr(v, "__next__") else type(v).__name__)
        except Exception as e:
            r.append((type(e).__name__, str(e)))
    return r


@program(N(2.0), breaks=None)
def bad_protocols(x):
    class B:
        def __str__(self):
            return 5

        def __repr__(self):
            return 6

        def __bool__(self):
            return 2

        def __len__(self):
            return -1

        def __hash__(self):
            return "h"

        def __index__(self):
            return "i"

        def __int__(self):
            return "i"

        def __float__(self):
            return 1

        def __iter__(self):
            return 5

        def __format__(self, s):
            return 3

        def __contains__(self, v):
            return [1]

        def __bytes__(self):
            return "s"

        def __complex__(self):
            return 1

        def __round__(self):
            return "r"

        def __getitem__(self, k):
            return k

        def __reversed__(self):
            return 7

        def __length_hint__(self):
            return "q"

        def __dir__(self):
            return 3

        def __enter__(self):
            return 1

        def __next__(self):
            return 8

        def __instancecheck__(self, v):
            return [1]

    b = B()

    class L:
        def __len__(self):
            return "a"

    class L2:
        def __len__(self):
            return 2.5

    class I:
        def __iter__(self):
            return self

    class NoHash:
        __hash__ = None

    class EqOnly:
        def __eq__(self, o):
            return True

    class NI:
        def __init__(self):
            return 3

    class NC:
        __call__ = None
        __iter__ = None
        __contains__ = None
        __len__ = None
        __bool__ = None
        __getitem__ = None
        __add__ = None
        __eq__ = None

    n = NC()
    return errs(
        lambda: str(b),
        lambda: repr(b),
        lambda: f"{b}",
        lambda: f"{b!s}",
        lambda: bool(b),
        lambda: len(b),
        lambda: hash(b),
        lambda: {b: 1},
        lambda: [1, 2][b],
        lambda: int(b),
        lambda: float(b),
        lambda: list(b),
        lambda: 1 in b,
        lambda: bytes(b),
        lambda: complex(b),
        lambda: round(b),
        lambda: b[1],
        lambda: reversed(b),
        lambda: list(reversed(b)),
        lambda: operator.index(b),
        lambda: range(b),
        lambda: next(b),
        lambda: len(L()),
        lambda: bool(L()),
        lambda: len(L2()),
        lambda: iter(I()),
        lambda: hash(NoHash()),
        lambda: {NoHash()},
        lambda: hash(EqOnly()),
        lambda: n(),
        lambda: iter(n),
        lambda: 1 in n,
        lambda: [*b],
        lambda: (lambda *a: a)(*b),
        lambda: "%s" % b,
        lambda: "{}".format(b),
        lambda: not b,
        lambda: if_(b),
        lambda: [1, 2] * b,
        lambda: "ab" * L(),
        lambda: [1] * 1.5,
        lambda: [1][L()],
        lambda: sum(b),
        lambda: max(b),
        lambda: sorted(b),
        lambda: dict(b),
        lambda: tuple(b),
        lambda: map(len, b),
        lambda: zip(b),
        lambda: enumerate(b),
    ), x + 1


def if_(b):
    return 1 if b else 2


@program(N(2.0), breaks=None)
def eager_iter_errors(x):
    I = itertools
    return errs(
        lambda: I.chain(5),
        lambda: list(I.chain(5)),
        lambda: I.chain.from_iterable(5),
        lambda: list(I.chain.from_iterable([5])),
        lambda: I.takewhile(len, 5),
        lambda: I.dropwhile(len, 5),
        lambda: I.islice(5, 1),
        lambda: I.islice([1], -1),
        lambda: I.islice([1], 1, 0, -1),
        lambda: I.islice([1], "a"),
        lambda: I.islice([1], 0, 2, 0),
        lambda: I.cycle(5),
        lambda: I.accumulate(5),
        lambda: I.groupby(5),
        lambda: I.zip_longest(5),
        lambda: I.starmap(len, 5),
        lambda: list(I.starmap(len, [5])),
        lambda: I.compress(5, []),
        lambda: I.filterfalse(None, 5),
        lambda: I.product(5),
        lambda: I.permutations(5),
        lambda: I.permutations([1], -1),
        lambda: I.combinations([1], -1),
        lambda: I.repeat(1, "a"),
        lambda: I.count("a"),
        lambda: I.tee(5),
        lambda: I.tee([], -1),
        lambda: I.pairwise(5),
        lambda: map(len, 5),
        lambda: map(len),
        lambda: filter(None, 5),
        lambda: zip(5),
        lambda: zip([1], 5),
        lambda: enumerate(5),
        lambda: enumerate([], "a"),
        lambda: reversed(5),
        lambda: reversed({1}),
        lambda: iter(5, 6),
        lambda: list(map(5, [1])),
        lambda: list(filter(5, [1])),
        lambda: I.islice(),
        lambda: next(I.islice([], 3)),
        lambda: next(iter([])),
        lambda: I.repeat(),
        lambda: next(I.cycle([])),
        lambda: I.groupby(),
        lambda: I.accumulate([1, "a"], operator.add),
        lambda: list(I.accumulate([1, "a"])),
    ), x + 1


@program(N(2.0), breaks=None)
def lazy_order(x):
    log = []

    def src(n, m):
        for i in range(m):
            log.append((n, i))
            yield i
        log.append((n, "end"))

    class It:
        def __init__(self, n):
            self.n = n
            self.i = 0

        def __iter__(self):
            log.append("iter" + self.n)
            return self

        def __next__(self):
            self.i += 1
            log.append((self.n, self.i))
            if self.i > 3:
                raise StopIteration
            return self.i

    I = itertools
    z = zip(src("a", 3), src("b", 2))
    next(z)
    next(z)
    log.append(next(z, "zend"))
    log.append(next(z, "zend2"))
    zl = I.zip_longest(It("c"), It("d"))
    log.append("made")
    next(zl)
    log.append(list(zl))
    m = map(lambda a, b: log.append((a, b)) or a, It("e"), src("f", 2))
    log.append(list(m))
    c = I.chain(It("g"), It("h"))
    log.append("made")
    next(c)
    log.append(list(c))
    s = I.islice(It("i"), 1, 3)
    log.append("made")
    log.append(list(s))
    t = I.takewhile(lambda v: log.append(("p", v)) or v < 2, It("j"))
    log.append("m")
    log.append(list(t))
    log.append(list(t))
    g = I.groupby(It("k"), lambda v: log.append(("key", v)) or v // 2)
    log.append("m")
    log.append([(a, list(b)) for a, b in g])
    a, b = I.tee(It("l"))
    log.append("m")
    next(a)
    next(b)
    next(b)
    log.append(list(a))
    p = I.product(It("n"), It("o"))
    log.append("m")
    next(p)
    ac = I.accumulate(It("q"), lambda u, v: log.append((u, v)) or u + v)
    next(ac)
    next(ac)
    cy = I.cycle(It("r"))
    [next(cy) for _ in range(5)]
    f = filter(lambda v: log.append(v) or v > 1, It("s"))
    next(f)
    e = enumerate(It("t"))
    next(e)
    d = I.dropwhile(lambda v: v < 2, It("u"))
    next(d)
    next(d)
    pw = I.pairwise(It("v"))
    next(pw)
    cp = I.compress(It("w"), It("x"))
    next(cp)
    sm = I.starmap(lambda *a: a, zip(It("y")))
    next(sm)
    log.append(any(v > 1 for v in It("z")))
    log.append(all(It("A")))
    log.append(2 in It("B"))
    log.append(sum(It("C")))
    log.append(max(It("D")))
    log.append(sorted(It("E")))
    log.append(dict(zip(It("F"), It("G"))))
    log.append(",".join(map(str, It("I"))))
    l = [1]
    l.extend(It("J"))
    l += It("K")
    log.append(l)
    log.append(set(It("M")))
    log.append(tuple(It("N")))
    log.append(deque(It("O"), 2))
    log.append({*It("P")})
    log.append(functools.reduce(operator.add, It("Q")))
    log.append(list(reversed([*It("R")])))
    log.append(dict.fromkeys(It("S")))
    log.append(Counter(It("T")))
    log.append("".join(str(v) for v in It("U")))
    log.append(min(It("V"), default=0))
    log.append(math.prod(It("W")))
    log.append(str(bytes(It("X"))))
    log.append(frozenset(It("Y")))
    log.append([*zip(*[It("Z")] * 2)])
    return log, x + 1


@program(N(2.0), breaks=None)
def properties(x):
    class P:
        def __init__(self):
            self._v = x

        @property
        def v(self):
            "doc"
            return self._v

        @v.setter
        def v(self, n):
            self._v = n

        @v.deleter
        def v(self):
            del self._v

        @property
        def ro(self):
            return 1

        @property
        def bad(self):
            raise AttributeError("inner")

        @functools.cached_property
        def cp(self):
            return [1]

        @staticmethod
        def s(a, b=2):
            return a, b

        @classmethod
        def c(cls, a):
            return cls.__name__, a

        @classmethod
        @property
        def both(cls):
            return "both"

        def __getattr__(self, n):
            return "ga:" + n

    p = P()
    p.v = p.v + 1
    r = [p.v, p.bad, p.cp is p.cp, p.s(1), P.s(1, 3), p.c(1), P.c(2), P.v.__doc__, P.v.fget(p), p._zz]
    del p.v
    r.append(p._v)
    r += errs(lambda: setattr(p, "ro", 1), lambda: delattr(p, "ro"), lambda: P.ro.__get__(p), lambda: P.ro.fset)

    class Q(P):
        @P.v.getter
        def v(self):
            return "q"

        ro = property(lambda s: super(Q, s).ro + 1)

    q = Q()
    r += [q.v, q.ro]
    q.v = 9
    r += [q._v]
    return r


@program(N(2.0), {"a": 1, "b": 2, "c": 3}, [1, 2, 3])
def live_iteration(x, d, l):
    r = []
    for k, v in d.items():
        r.append((k, v))
        d["c"] = x
        d["b"] = 20
    for v in d.values():
        r.append(v)
        d["c"] = "last"
    m = {"a": 1, "b": 2}
    for k, v in m.items():
        r.append(v)
        m["b"] = x
    it = iter(m.items())
    next(it)
    m["b"] = 7
    r.append(list(it))
    vi = m.values()
    m["b"] = 8
    r.append(list(vi))
    m["c"] = 9
    r.append(len(vi))
    rv = reversed(l)
    r.append(next(rv))
    l[0] = 9
    l[1] = x
    r.append(list(rv))
    rv = reversed(l)
    l.append(5)
    r.append(next(rv))
    r.append(list(rv))
    r.append(list(rv))
    q = [1, 2, 3]
    rv = reversed(q)
    next(rv)
    del q[:]
    r.append(list(rv))
    q.extend([1, 2, 3])
    r.append(list(rv))
    e = enumerate(q)
    next(e)
    q[1] = x
    r.append(list(e))
    for a in q:
        r.append(a)
        if len(q) < 5:
            q.insert(0, a)
    z = zip(q, q)
    next(z)
    q[1] = "z"
    r.append(next(z))
    it = iter(q)
    next(it)
    q.clear()
    r.append(next(it, "done"))
    q.append(1)
    r.append(next(it, "still"))
    rd = reversed({"a": 1, "b": x})
    r.append(list(rd))
    for k in list(m):
        del m[k]
    o = OrderedDict(a=1, b=2)
    for k, v in o.items():
        r.append(v)
        o["b"] = 5
    for k in reversed(o):
        r.append(k)
    return r


@program(N(2.0), [1, 2, 3])
def reversed_escape(x, l):
    r = reversed(l)
    next(r)
    s = reversed((1, x))
    t = reversed([1, x])
    next(t)
    u = reversed([1])
    list(u)
    return r, s, t, u


@program(N(2.0), [1, 2, 3], breaks=None)
def reversed_break(x, l):
    r = reversed(l)
    next(r)
    print("b")
    l[0] = x
    for k, v in {"a": 1, "b": x}.items():
        print(k)

    class S:
        def __len__(self):
            return 2

        def __getitem__(self, i):
            print("get", i)
            return i

    q = reversed(S())
    print("made")
    return list(r), list(q)


@program(N(2.0))
def reversed_errors(x):
    class S:
        def __len__(self):
            return 3

        def __getitem__(self, i):
            if i == 1:
                raise KeyError(i)
            return i

    class NoLen:
        def __getitem__(self, i):
            return i

    return errs(
        lambda: reversed({1}),
        lambda: reversed(5),
        lambda: reversed(S()),
        lambda: list(reversed(S())),
        lambda: reversed(NoLen()),
        lambda: reversed(map(len, [])),
        lambda: next(reversed([])),
        lambda: list(reversed(range(3))),
        lambda: reversed(frozenset()),
        lambda: next(reversed({"a": 1})),
        lambda: list(reversed({"a": 1}.items())),
    ), x + 1


class Own(Exception):
    pass


@program(N(2.0), Own("arg"), [])
def reraise_existing(x, e, l):
    try:
        try:
            {}["k"]
        except KeyError:
            raise e
    except Own as z:
        l.append(repr(z.__context__))
    try:
        {}["q"]
    except KeyError:
        e.n = 1
        raise e


@program(N(2.0), Own("arg"))
def reraise_from(x, e):
    try:
        1 / 0
    except ZeroDivisionError as z:
        raise e from z


@program(N(2.0), [3, 1, 2], breaks=None)
def sort_during(x, l):
    seen = []
    l.sort(key=lambda v: seen.append(len(l)) or v)

    class C:
        def __init__(self, v):
            self.v = v

        def __lt__(self, o):
            seen.append((self.v, o.v))
            return self.v < o.v

    a = [C(3), C(1), C(2)]
    a.sort()
    b = sorted(a, reverse=True)

    def bad(v):
        l.append(9)
        return v

    r = errs(
        lambda: l.sort(key=bad),
        lambda: l.sort(1),
        lambda: l.sort(key=5),
        lambda: l.sort(bad=3),
        lambda: sorted(5),
        lambda: sorted([1], [2]),
        lambda: l.sort(key=lambda v: 1 // 0),
    )
    return seen, l, [c.v for c in a], [c.v for c in b], r


@program(N(2.0))
def hashes(x):
    class H:
        def __init__(self, h):
            self.h = h

        def __hash__(self):
            return self.h

        def __eq__(self, o):
            return self.h == o.h

    return (
        [hash(H(-1)), hash(H(2**70)), hash(H(True)), {H(1): 1}[H(1)], len({H(1), H(1), H(2)}), H(2**61) in {H(2**61)}],
        errs(
            lambda: hash(H(None)),
            lambda: {H([]): 1},
            lambda: hash(H(1.0)),
            lambda: hash((1, H("q"))),
            lambda: {H(x): 1},
            lambda: {(1, []): 2},
            lambda: {(1, {}): 2},
        ),
        x,
    )


@program(N(2.0), breaks=None)
def answers(x):
    class A:
        def __init__(self, v):
            self.v = v

        def __bool__(self):
            return self.v

        def __len__(self):
            return self.v

        def __index__(self):
            return self.v

        def __str__(self):
            return self.v

        def __int__(self):
            return self.v

        def __contains__(self, k):
            return self.v

        def __eq__(self, o):
            return self.v

        def __iter__(self):
            return self.v

        def __next__(self):
            return self.v

        def __float__(self):
            return self.v

        def __getattr__(self, n):
            return self.v

        def __call__(self):
            return self.v

        def __enter__(self):
            return self.v

        def __exit__(self, *a):
            return self.v

        def __dir__(self):
            return self.v

        def __sizeof__(self):
            return self.v

        def __reversed__(self):
            return self.v

        def __length_hint__(self):
            return self.v

    r = []
    for v in (True, 1, 0, -1, None, "s", [], 2.5, x, (1,), iter([1, 2])):
        a = A(v)
        r += errs(
            lambda: bool(a),
            lambda: len(a),
            lambda: [1, 2][a],
            lambda: str(a),
            lambda: int(a),
            lambda: 1 in a,
            lambda: list(iter(a)),
            lambda: float(a),
            lambda: a.q,
            lambda: a(),
            lambda: f"{a}",
            lambda: "%s" % a,
            lambda: not a,
            lambda: [] if a else {},
            lambda: a and 1,
            lambda: a or 1,
        )
        try:
            with a as q:
                raise ValueError("w")
        except Exception as e:
            r.append((type(e), str(e)))
        r.append(q)
    return r


@program(N(2.0), breaks=None)
def hash_subs(x):
    class L(list):
        def __hash__(self):
            return len(self)

    class D(dict):
        __hash__ = object.__hash__

    class S(set):
        def __hash__(self):
            return 3

    class T(tuple):
        def __hash__(self):
            return 7

        def __eq__(self, o):
            return True

    class Q(deque):
        def __hash__(self):
            return 3

    l = L([1])
    d = D(a=1)
    s = S([1])
    return (
        {l: 1}[l],
        l in {L([1])},
        hash(l),
        {d: 2}[d],
        {s: 3}[s],
        hash(T()),
        {T([1]): x}[T()],
        {Q(): 1},
        errs(
            lambda: {[]: 1},
            lambda: {deque(): 1},
            lambda: {1: 1},
            lambda: hash({}.keys()),
            lambda: hash({}.values()) is not None,
        ),
    )


@program(N(2.0))
def methods_that_are_none(x):
    class Nothing:
        __len__ = __getitem__ = __neg__ = __iter__ = __hash__ = __setitem__ = __call__ = None

    n = Nothing()
    return errs(lambda: len(n), lambda: n[0], lambda: -n, lambda: iter(n), lambda: hash(n), lambda: n()), x + 1
