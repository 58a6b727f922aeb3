"""Iterators, generators (partly consumed, passed around), itertools, comprehensions, unpacking, control flow."""

# mypy: ignore-errors
# ruff: noqa
# The programs are meant to be odd, and wrong on purpose here and there.

from __future__ import annotations

import functools
import itertools
import operator
from collections import deque

from vm_corpus import N, program


def count_up(n, log=None):
    i = 0
    try:
        while i < n:
            got = yield i
            if got is not None:
                i = got
            i += 1
    finally:
        if log is not None:
            log.append("closed")
    return ("end", i)


def delegating(n):
    result = yield from count_up(n)
    yield result


def flatten(items):
    for item in items:
        if isinstance(item, list):
            yield from flatten(item)
        else:
            yield item


@program(N(1))
def generator_basics(x):
    g = count_up(5)
    a = next(g)
    b = g.send(2)
    rest = list(g)
    return a, b, rest, list(delegating(2)), next(g, "done"), x


@program(N(1))
def generator_passed_around(x):
    def first(g):
        return next(g)

    def rest(g):
        return [v * x for v in g]

    g = count_up(4)
    return first(g), first(g), rest(g), rest(g)


@program(N(1), [])
def generator_close_and_throw(x, log):
    g = count_up(5, log)
    next(g)
    g.close()
    h = count_up(5, log)
    next(h)
    try:
        h.throw(ValueError("in"))
    except ValueError as e:
        log.append(str(e))
    try:
        next(h)
    except StopIteration as e:
        log.append(e.value)
    return log, x


@program(N(1))
def generator_return_value(x):
    def inner():
        yield 1
        return x

    def outer():
        got = yield from inner()
        yield got

    g = inner()
    next(g)
    try:
        next(g)
    except StopIteration as e:
        value = e.value
    return list(outer()), value


@program(N(1), [1, [2, [3, [4]]], 5])
def recursive_generators(x, items):
    return list(flatten(items)), sum(flatten(items)), x


@program(N(1))
def generator_expressions(x):
    g = (i * x for i in range(4) if i % 2)
    total = sum(i for i in range(5))
    nested = [list(a + b for a in range(2)) for b in range(2)]
    return (
        list(g),
        total,
        nested,
        any(i > 2 for i in range(4)),
        all(i for i in []),
        max(i % 3 for i in range(5)),
        ",".join(str(i) for i in range(3)),
        dict((i, x) for i in range(2)),
        tuple(i for i in (1, 2)),
        set(i % 2 for i in range(3)),
    )


@program(N(1))
def lazy_generators(x):
    log = []

    def gen():
        for i in range(3):
            log.append(("yield", i))
            yield i

    for v in gen():
        log.append(("got", v))
        if v == 1:
            break
    return log


@program(N(1))
def infinite_generators(x):
    def naturals():
        n = 0
        while True:
            yield n
            n += 1

    return (
        [n for n in itertools.islice(naturals(), 3)],
        next(n for n in naturals() if n > 3),
        [a for a, _ in zip(naturals(), "ab")],
        list(itertools.takewhile(lambda v: v < 3, naturals())),
        x,
    )


@program(N(1))
def stop_iteration_in_generator(x):
    def bad():
        yield 1
        raise StopIteration

    g = bad()
    next(g)
    try:
        next(g)
    except RuntimeError as e:
        return str(e), type(e.__cause__).__name__


@program(N(1))
def generator_exceptions(x):
    def gen():
        try:
            yield 1
        except KeyError:
            yield "caught"
        finally:
            yield "finally"

    g = gen()
    return next(g), g.throw(KeyError), next(g), list(g)


@program(N(1))
def generator_state_kept_in_object(x):
    class_ = {}

    def pump():
        total = x
        while True:
            add = yield total
            total = total + add

    class_["g"] = pump()
    next(class_["g"])
    return class_["g"].send(2), class_["g"].send(3)


@program(N(1))
def returned_generator(x):
    def gen(n):
        for i in range(n):
            yield x + i

    return gen(3)


@program(N(1))
def returned_started_generator(x):
    g = (i + 1 for i in range(4))
    next(g)
    return g


@program(iter([1, 2, 3]), N(1), breaks=None)
def real_iterator_argument(it, x):
    return next(it), [v for v in it], next(it, x)


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n


@program(Countdown(3), N(1))
def user_iterators(c, x):
    first = next(c)
    rest = list(c)
    return (
        first,
        rest,
        [v for v in Countdown(2)],
        dict(zip("ab", Countdown(2))),
        list(enumerate(Countdown(2))),
        tuple(map(str, Countdown(2))),
        next(Countdown(0), "none"),
        sum(Countdown(4)),
        x,
    )


class Indexed:
    def __getitem__(self, i):
        if i > 2:
            raise IndexError
        return i * i


@program(N(1))
def sequence_protocol(x):
    return list(Indexed()), 4 in Indexed(), [v for v in Indexed()], tuple(reversed([1, 2])), x


@program([1, 2, 3], N(1))
def iterators_shared(items, x):
    it = iter(items)
    pairs = list(zip(it, it))
    jt = iter(items)
    a = next(jt)
    items.append(9)
    return pairs, a, list(jt), list(jt), iter(jt) is jt


@program(N(1))
def iter_with_sentinel(x):
    values = [1, 2, 0, 5]
    return list(iter(lambda: values.pop(0), 0)), values


@program([1, 2, 3, 4], N(1))
def itertools_all(a, x):
    return (
        list(itertools.chain(a, "b")),
        list(itertools.chain.from_iterable([[1], [2]])),
        list(itertools.islice(a, 1, 3)),
        list(itertools.product("ab", [1, 2])),
        list(itertools.permutations([1, 2, 3], 2)),
        list(itertools.combinations(a, 2)),
        list(itertools.accumulate(a)),
        list(itertools.accumulate(a, operator.mul, initial=2)),
        list(itertools.repeat(x, 2)),
        list(itertools.zip_longest([1], [2, 3], fillvalue=0)),
        list(itertools.starmap(pow, [(2, 3)])),
        list(itertools.dropwhile(lambda v: v < 3, a)),
        list(itertools.takewhile(lambda v: v < 3, a)),
        list(itertools.compress(a, [1, 0, 1, 0])),
        list(itertools.filterfalse(lambda v: v % 2, a)),
        list(itertools.pairwise(a)),
        list(itertools.islice(itertools.count(5, 2), 3)),
        list(itertools.islice(itertools.cycle([1, 2]), 5)),
        [(k, list(g)) for k, g in itertools.groupby([1, 1, 2])],
        list(itertools.combinations_with_replacement([1, 2], 2)),
        [list(i) for i in itertools.tee(a, 2)],
    )


@program([("a", 1), ("a", 2), ("b", 3)], N(1))
def groupby_key(rows, x):
    return {k: [v for _, v in g] for k, g in itertools.groupby(rows, key=lambda r: r[0])}, x


@program(N(1))
def itertools_partly_consumed(x):
    c = itertools.count()
    a = next(c), next(c)
    ch = itertools.chain([1, 2], [3])
    b = next(ch)
    cyc = itertools.cycle("ab")
    d = [next(cyc) for _ in range(3)]
    rep = itertools.repeat(x)
    return a, b, list(ch), d, next(rep), next(itertools.chain([], [4]))


@program([3, 1, 2], N(1))
def builtin_iterators(a, x):
    e = enumerate(a, 1)
    first = next(e)
    m = map(lambda p, q: p + q, a, [1, 1])
    z = zip(a, "abc", [x, x, x])
    f = filter(lambda v: v > 1, a)
    return (
        first,
        list(e),
        next(m),
        list(m),
        next(z),
        list(z),
        list(f),
        list(filter(None, [0, 1, ""])),
        list(reversed(a)),
        sum(map(len, ["a", "bc"])),
        list(map(str, a)),
        list(zip()),
        [*map(max, a, [2, 2, 2])],
    )


@program([1, 2], [1, 2, 3])
def zip_strict(a, b):
    out = []
    try:
        list(zip(a, b, strict=True))
    except ValueError as e:
        out.append(str(e))
    try:
        list(zip(b, a, strict=True))
    except ValueError as e:
        out.append(str(e))
    return out


@program([1, 2, 3], N(1))
def comprehensions(a, x):
    return (
        [v * x for v in a],
        {v: v * 2 for v in a},
        {v % 2 for v in a},
        [(p, q) for p in a for q in a if p < q],
        [[p for p in range(q)] for q in a],
        [y := 5, y + 1],
        [v for v in a if v > 1 if v < 3],
        {k: [w for w in range(k)] for k in a},
    )


@program([1, 2, 3, 4, 5], N(1))
def unpacking(a, x):
    p, *q, r = a
    [s, (t, *u)] = 1, (2, 3, 4)
    *v, w = "abc"
    m, n = n, m = (1, 2)
    f = lambda *args, **kw: (args, kw)
    return (
        p,
        q,
        r,
        s,
        t,
        u,
        v,
        w,
        m,
        n,
        f(*a[:2], *[x], k=1, **{"j": 2}),
        [*a, *"xy"],
        (*a, 1),
        {*a, 9} == {1, 2, 3, 4, 5, 9},
        {**{"a": 1}, "b": x},
    )


@program([1, 2])
def unpacking_errors(a):
    out = []
    for src in ([1], [1, 2, 3], 5, None, {}):
        try:
            p, q = src
        except (ValueError, TypeError) as e:
            out.append(str(e))
    try:
        p, *q, r, s = a
    except ValueError as e:
        out.append(str(e))
    return out


@program(N(1), 3)
def loops_with_else(x, n):
    out = []
    for i in range(n):
        if i == 5:
            break
    else:
        out.append("for-else")
    while n:
        n -= 1
        if n == 1:
            continue
        out.append(n)
    else:
        out.append("while-else")
    for i in range(3):
        for j in range(3):
            if j == 1:
                break
            out.append((i, j))
        else:
            out.append("never")
        if i == 1:
            break
    return out, x


# The leaf kind of these tests cannot compare.
@program(N(1), [1, "a", (2, 3), {"k": 4}, [5, 6, 7], None, 1.5, True, N(2)], breaks=1)
def match_statement(x, subjects):
    out = []
    for s in subjects:
        match s:
            case True | False:
                out.append("bool")
            case 1:
                out.append("one")
            case str() as t:
                out.append(("str", t))
            case (a, b):
                out.append(("pair", a, b))
            case {"k": v, **rest}:
                out.append(("map", v, rest))
            case [first, *others] if len(others) == 2:
                out.append(("list", first, others))
            case None:
                out.append("none")
            case float(f):
                out.append(("float", f))
            case _:
                out.append("other")
    return out


class P2:
    __match_args__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b


@program(N(1))
def match_classes(x):
    def describe(p):
        match p:
            case P2(1, b=bb):
                return ("one", bb)
            case P2(a, P2(c, d)):
                return (a, c, d)
            case P2(a=a) if a == 5:
                return "five"
            case P2():
                return "any"
            case [P2(a, _), *_]:
                return ("list", a)
            case {"p": P2(b=b)}:
                return ("dict", b)
            case -1 | "x" | b"y":
                return "literal"
            case []:
                return "empty"
        return "none"

    return [
        describe(p)
        for p in (
            P2(1, x),
            P2(2, P2(3, 4)),
            P2(5, 0),
            P2(6, 0),
            [P2(7, 8), 1],
            {"p": P2(1, 2), "q": 1},
            -1,
            b"y",
            [],
            99,
        )
    ]


@program(N(1), 5)
def walrus(x, n):
    if (half := n // 2) > 1:
        n = half
    while (n := n - 1) > 0:
        pass
    data = [last := i for i in range(3)]
    return half, n, data, last, [z for v in range(4) if (z := v * v) > 2]


@program(N(1), 5)
def comparison_chains(x, n):
    calls = []

    def f(v):
        calls.append(v)
        return v

    return 1 < n < 10, 1 < f(n) <= f(5) != f(6), f(9) < f(1) < f(2), 1 in [1] in [[1]], None is None is not n, calls, x


@program(N(1), 5, "")
def boolean_operators(x, n, s):
    return (
        s or n,
        n and s,
        not s,
        s or None or 0,
        n or x,
        (s and x),
        bool(s) is not True,
        n if s else -n,
        [] or {} or "d",
    )


@program(N(1))
def closures_and_nonlocal(x):
    def counter(start):
        n = start

        def bump(by=1):
            nonlocal n
            n += by
            return n

        def read():
            return n

        return bump, read

    bump, read = counter(5)
    bump()
    bump(by=3)
    fs = [lambda: i for i in range(3)]
    gs = [lambda i=i: i for i in range(3)]
    return read(), [f() for f in fs], [g() for g in gs], bump


@program(N(1), 5)
def recursion_and_defaults(x, n):
    def fact(k):
        return 1 if k <= 1 else k * fact(k - 1)

    def mutable(v, acc=[]):
        acc.append(v)
        return acc

    def kw(a, /, b, *, c=3, **rest):
        return a, b, c, rest

    is_even = lambda k: True if k == 0 else is_odd(k - 1)
    is_odd = lambda k: False if k == 0 else is_even(k - 1)
    return fact(n), mutable(1), mutable(2), kw(1, b=2), kw(1, 2, c=4, d=5), is_even(n), x


@program(N(1))
def call_errors(x):
    def f(a, b, /, c, *, d, e=1):
        return 1

    def g(a, b=2):
        return 1

    out = []
    for call in (
        lambda: f(),
        lambda: f(1, 2, 3),
        lambda: f(1, 2, 3, 4, d=1),
        lambda: f(1, b=2, c=3, d=4),
        lambda: g(1, a=2),
        lambda: g(1, zz=3),
        lambda: g(1, 2, 3),
        lambda: g(*5),
        lambda: g(**5),
        lambda: g(**{1: 2}),
        lambda: g(b=1),
        lambda: out[0](),
        lambda: x.nope,
        lambda: g(1, **{"a": 1}),
    ):
        try:
            call()
        except TypeError as e:
            out.append(str(e).replace("vm_corpus_iteration.", ""))
    return out


def decorator(scale):
    def wrap(fn):
        @functools.wraps(fn)
        def inner(*args, **kwargs):
            return fn(*args, **kwargs) * scale

        return inner

    return wrap


@decorator(3)
def decorated(x, y=1):
    """doc"""
    return x + y


@program(N(1))
def decorators(x):
    @decorator(2)
    def local(v):
        return v + 1

    return decorated(x), local(x), decorated.__name__, local.__name__, decorated.__doc__, decorated.__wrapped__(x, 2)


def deleted_variables_program(x):
    a = x
    del a
    try:
        return a
    except UnboundLocalError as e:
        return str(e)


@program(N(1))
def deleted_variables(x):
    return deleted_variables_program(x)


@program(N(1))
def names_and_scopes(x):
    out = []
    try:
        undefined_name  # noqa: F821
    except NameError as e:
        out.append(str(e))

    def late():
        return later

    try:
        late()
    except NameError as e:
        out.append(str(e))
    later = 5
    out.append(late())
    return out, [q for q in range(2)], x


GLOBAL = 1
TABLE = {"a": 1}


@program(N(1))
def globals_written(x):
    global GLOBAL, FRESH
    GLOBAL = 1
    GLOBAL += 1
    FRESH = x
    TABLE["b"] = GLOBAL
    del TABLE["a"]
    TABLE["a"] = 1
    return GLOBAL, FRESH, TABLE, "GLOBAL" in globals(), globals()["GLOBAL"]


@program(N(1))
def star_arguments(x):
    def f(*args, k=1, **kw):
        return args, k, kw

    p = functools.partial(f, 1, k=2)
    return (
        f(*[1, x], *(2,)),
        f(**{"k": 3, "z": 4}),
        p(2, y=x),
        p.func is f,
        p.args,
        p.keywords,
        functools.partial(p, 9)(),
    )


@program(deque([1, 2, 3]), N(1))
def loops_that_change_their_container(d, x):
    a = [1, 2, 3]
    for v in a:
        if v < 3:
            a.append(v + 10)
        if len(a) > 8:
            break
    for v in a[:]:
        if v % 2:
            a.remove(v)
    while d:
        d.popleft()
        if len(d) == 1:
            d.append(5)
            break
    return a, d


@program(N(1))
def lambda_tables(x):
    table = {
        "add": lambda a, b: a + b,
        "mul": operator.mul,
        "neg": operator.neg,
        "get": operator.itemgetter(1),
        "attr": operator.attrgetter("__class__"),
        "m": operator.methodcaller("upper"),
    }
    return (
        table["add"](x, 1),
        table["mul"](x, 2),
        table["neg"](x),
        table["get"]([1, x]),
        table["attr"](1),
        table["m"]("a"),
        operator.itemgetter(0, 1)([x, 2]),
    )


@program(N(1), [])
def throwing_through_yield_from(x, log):
    def inner():
        try:
            while True:
                try:
                    yield x
                except KeyError as e:
                    log.append(("inner", e.args))
                    yield "handled"
                except ValueError:
                    return "returned"
        finally:
            log.append("inner closed")

    def outer():
        try:
            got = yield from inner()
            log.append(got)
            yield "after"
        except TypeError as e:
            yield ("outer", str(e))
        finally:
            log.append("outer closed")

    a, b, c = outer(), outer(), outer()
    out = [next(a), a.throw(KeyError("k")), next(a), a.throw(ValueError("v"))]
    a.close()
    out += [next(b), b.throw(TypeError("t"))]
    b.close()
    next(c)
    c.close()
    return out, log


@program(N(1))
def generator_closed_with_a_value(x):
    def counting():
        try:
            while True:
                yield x
        except GeneratorExit:
            return 5

    def ending():
        yield 1

    started, other, fresh = counting(), ending(), counting()
    next(started), next(other)
    return started.close(), started.close(), other.close(), fresh.close()
