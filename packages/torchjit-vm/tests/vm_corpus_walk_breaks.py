"""Breaks at every kind of place: comprehensions, generators, half-built calls, blocks, loops, hooks of classes, closures, class bodies."""

# mypy: ignore-errors
# ruff: noqa

import contextlib
import functools
import sys

from vm_corpus import N, program

G = {"n": 0}
COUNT = 0


# effects with exceptions leaving, breaks everywhere
@program(N(1.0), [1], {"a": 1})
def effects_exc(x, l, d):
    global COUNT
    COUNT = 1
    l.append(2)
    d["b"] = x
    d.pop("a")
    l[0] = 9
    raise ValueError(COUNT)


@program(N(1.0), [1], breaks=1)
def break_in_comp(x, l):
    return [print(v) or v + x for v in l], [v for v in range(2)]


@program(N(1.0), breaks=None)
def break_in_gen(x):
    def g():
        for i in range(3):
            print(i)
            yield x + i

    return sum(g(), 0), list(g())


@program(N(1.0), breaks=1)
def break_half_call(x):
    def f(*a, **k):
        return a, k

    return f(1, [2, x], print("p"), k={"z": x + 1}, **{"q": 3})


@program(N(1.0), breaks=1)
def break_in_nested_with(x):
    log = []

    @contextlib.contextmanager
    def cm(n):
        log.append(n)
        try:
            yield n
        except KeyError:
            log.append(("k", n))
        finally:
            log.append(-n)

    def inner(v):
        with cm(2):
            print("x")
            raise KeyError(v)

    with cm(1) as a:
        inner(3)
    return log, x + a


@program(N(1.0), breaks=1)
def break_try_finally(x):
    log = []
    for i in range(2):
        try:
            if i:
                continue
            try:
                print("q")
                return log
            finally:
                log.append("f")
        finally:
            log.append(i)
    return log


@program(N(1.0), breaks=None)
def break_in_property(x):
    class C:
        @property
        def p(self):
            print("p")
            return 3

        def __getitem__(self, k):
            print("g")
            return k

        def __add__(self, o):
            print("+")
            return o

        def __bool__(self):
            print("b")
            return False

        def __eq__(self, o):
            print("=")
            return True

        def __hash__(self):
            print("h")
            return 1

        def __len__(self):
            print("l")
            return 2

        def __iter__(self):
            print("i")
            yield 1

        def __contains__(self, v):
            print("c")
            return True

        def __enter__(self):
            print("en")
            return self

        def __exit__(self, *a):
            print("ex")

        def __call__(self, v):
            print("call")
            return v

        def __setattr__(self, n, v):
            print("set")
            object.__setattr__(self, n, v)

        def __format__(self, s):
            print("fmt")
            return "F"

        def __repr__(self):
            print("rp")
            return "R"

        def __lt__(self, o):
            print("lt")
            return True

    c = C()
    c.z = 1
    with c as q:
        pass
    return (
        c.p,
        c[1],
        c + 2,
        bool(c),
        not c,
        c == 3,
        {c: 1}[c],
        len(c),
        list(c),
        3 in c,
        c(x),
        f"{c} {c!r}",
        c < 1,
        1 if c else 2,
        [v for v in c],
        c.z,
        sorted([c, c])[0] is c,
        max([c, c]) is c,
    )


@program(N(1.0), breaks=None)
def break_in_sort_key(x):
    def k(v):
        print(v)
        return -v

    return (
        sorted([1, 3, 2], key=k),
        min([1, 2], key=k),
        list(map(k, [1])),
        list(filter(k, [0, 1])),
        functools.reduce(lambda a, b: print(a) or a + b, [1, 2, 3]),
    )


@program(N(1.0), breaks=None)
def break_recursion(x):
    def f(n):
        if n == 0:
            return x
        print(n)
        return f(n - 1) + 1

    return f(4)


@program(N(1.0), breaks=None)
def break_loop(x):
    out = []
    for i in range(5):
        print(i)
        if i == 3:
            break
        x = x + i
        out.append(i)
    else:
        out.append("never")
    while len(out) < 6:
        out.append(print("w"))
    return x, out


@program(N(1.0), breaks=1)
def break_walrus_match(x):
    match (y := print("m"), x):
        case (None, z):
            w = z + 1
    return w, y


@program(N(1.0), breaks=1)
def break_star(x):
    a, *b = [1, print("s"), 3]
    (c, d), e = (a, b), x
    return c, d, e + 1, [*b, *range(2)], {**{"a": 1}, "b": a}


@program(N(1.0), breaks=1)
def break_closure(x):
    n = 0

    def inc():
        nonlocal n
        n += 1
        print(n)
        n += 10
        return n

    r = inc()
    return r, n, (lambda: n + 1)()


@program(N(1.0), breaks=1)
def break_chained_cmp(x):
    def f(v):
        print(v)
        return v

    return 1 < f(2) < 3 < 4, x


@program(N(1.0), breaks=1)
def break_del(x):
    a = 1
    b = [1, 2, 3]
    del b[print("d") or 0], a
    try:
        a
    except UnboundLocalError as e:
        return str(e), b, x


@program(N(1.0), breaks=1)
def break_gen_alive(x):
    def g():
        try:
            yield 1
            got = yield x
            yield got
        finally:
            log.append("fin")

    log = []
    it = g()
    next(it)
    print("mid")
    r = [next(it), it.send("v")]
    it.close()
    return r, log


@program(N(1.0))
def break_except_star(x):
    out = []
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2)])
    except* ValueError as e:
        print("v")
        out.append([type(v).__name__ for v in e.exceptions])
    except* KeyError as e:
        out.append(e.exceptions[0].args)
    return out, x


@program(N(1.0), breaks=1)
def break_super(x):
    class A:
        def f(self, v):
            print("A")
            return v + 1

    class B(A):
        def f(self, v):
            return super().f(v) * 2

    return B().f(x)


@program(N(1.0), breaks=1)
def break_in_class_body(x):
    class A:
        print("body")
        v = 3

    return A.v, x


@program(N(1.0), breaks=2)
def break_both_branches(x):
    r = print("a") if G["n"] == 0 else 1
    try:
        raise KeyError
    except KeyError:
        print("handler")
        import sys as s

        t = s.exc_info()[0]
    return r, t, sys.exc_info()[0], x


@program(N(1.0), breaks=1)
def break_yield_from(x):
    def g():
        r = yield from h()
        yield r

    def h():
        yield 1
        yield x
        return "ret"

    it = g()
    a = next(it)
    print("b")
    return a, list(it)
