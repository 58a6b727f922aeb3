"""Graph breaks anywhere: one obstacle is one break, whatever surrounds it."""

# mypy: ignore-errors
# ruff: noqa
# The programs are meant to be odd, and wrong on purpose here and there.

from __future__ import annotations

import contextlib
import zlib

from vm_corpus import N, program


class Scope:
    def __init__(self, log, name="scope", swallow=()):
        self.log, self.name, self.swallow = log, name, swallow

    def __enter__(self):
        self.log.append(("enter", self.name))
        return self.name

    def __exit__(self, kind, value, tb):
        self.log.append(("exit", self.name, kind and kind.__name__))
        return isinstance(value, self.swallow)


@contextlib.contextmanager
def scope(log, name):
    log.append(("in", name))
    try:
        yield name
    except KeyError as e:
        log.append(("caught", e.args))
    finally:
        log.append(("out", name))


@program(N(1), [], breaks=1)
def in_with(x, log):
    with Scope(log) as name:
        y = x * 2
        print(name)
        y = y + 1
    return y, log


@program(N(1), [], breaks=1)
def in_nested_with(x, log):
    with Scope(log, "a"), Scope(log, "b"):
        with Scope(log, "c"):
            print("inside")
            x = x + 1
        x = x * 2
    return x


@program(N(1), [], breaks=1)
def raises_after_break_in_with(x, log):
    with Scope(log, "a", (ValueError,)):
        print("inside")
        raise ValueError("swallowed")
    return x + 1


def helper(x, log):
    with Scope(log, "helper"):
        x = x * 2
        print("in helper")
        return x + 1


@program(N(1), [], breaks=1)
def in_with_of_callee_in_with(x, log):
    with Scope(log, "caller"):
        y = helper(x, log) * 3
    return y + 1


@program(N(1), [], breaks=1)
def in_try_finally(x, log):
    try:
        try:
            print("a")
            x = x + 1
            {}["missing"]
        finally:
            log.append("finally")
    except KeyError as e:
        log.append(e.args)
    return x


@program(N(1), [], breaks=1)
def in_except(x, log):
    try:
        raise ValueError("v")
    except ValueError as e:
        print("handling", e)
        log.append(str(e))
        x = x * 2
    else:
        log.append("never")
    return x


@program(N(1), [], breaks=1)
def in_finally(x, log):
    try:
        x = x * 2
    finally:
        print("finally")
        log.append(1)
    return x


@program(N(1), [], breaks=1)
def in_finally_with_return_pending(x, log):
    def f():
        try:
            return x * 2
        finally:
            print("finally")

    return f()


@program(N(1), [N(1), N(2), N(3)], breaks=None)
def in_loop(x, items):
    for i, v in enumerate(items):
        x = x + v
        print(i)
    return x


@program(N(1), [1, 2], breaks=None)
def in_comprehension(x, items):
    def show(v):
        print(v)
        return v

    return [x * show(v) for v in items]


@program(N(1), breaks=2)
def in_half_built_call(x):
    def f(*args, **kwargs):
        return args, kwargs

    return f(x * 2, print("a"), *[x], k=x + 1, z=print("b"))


@program(N(1), breaks=1)
def in_half_built_containers(x):
    return [x, {"k": x * 2, "p": print("p"), "q": (x + 1, x)}, x]


@program(N(1), [], breaks=1)
def in_contextmanager_body(x, log):
    with scope(log, "s") as name:
        x = x * 2
        print(name)
        x = x + 1
    return x, log


@program(N(1), [], breaks=1)
def in_contextmanager_body_raises(x, log):
    with scope(log, "s"):
        print("a")
        raise KeyError("k")
    return x * 2, log


def three_deep(x, log):
    def two(x):
        def one(x):
            print("one")
            log.append("after")
            return x + 1

        return one(x * 2) * 3

    return two(x) + 5


@program(N(1), [], breaks=1)
def deep_inline(x, log):
    return three_deep(x, log) * 2, log


@program(N(1), [], breaks=1)
def state_on_objects(x, log):
    class_ = log
    d = {"x": x}
    d["log"] = class_
    class_.append(d)
    print(len(class_))
    d["y"] = x * 2
    class_[0]["z"] = 1
    return d


def gen(log, n):
    for i in range(n):
        log.append(i)
        yield i


@program(N(1), [], breaks=None)
def between_generator_items(x, log):
    for i in gen(log, 3):
        x = x + i
        print(i)
    return x, log


@program(N(1), breaks=None)
def in_generator(x):
    def noisy():
        for i in range(3):
            print("yield", i)
            yield x * i

    return list(noisy())


@program(N(1), breaks=1)
def closure_cells_across(x):
    n = 1

    def bump():
        nonlocal n
        n += 1
        return n

    bump()
    print(n)
    bump()
    return n, bump, x * n


@program(N(1), [], breaks=1)
def uncaught_after_break(x, log):
    log.append(1)
    print("a")
    log.append(2)
    raise LookupError(x * 2)


# Two obstacles.
@program(N(1), [], breaks=2)
def exception_from_breaking_call(x, log):
    with contextlib.suppress(ValueError):
        log.append("before")
        zlib.decompressobj().decompress(b"", -1)
        log.append("never")
    return x + 1


@program(N(1), {"mode": "train"}, breaks=1)
def early_return_after_break(x, state):
    if state["mode"] == "train":
        print("training")
        return x * 2
    return x


@program(N(3), [], breaks=None)
def while_with_break_and_else(x, log):
    n = 0
    while n < 3:
        n += 1
        if n == 2:
            print("two")
            continue
        log.append(n)
    else:
        log.append("else")
    return x, log


class Module:
    def __init__(self):
        self.calls = 0
        self.children = [1, 2]

    def __call__(self, x):
        self.calls += 1
        for c in self.children:
            x = self.forward(x, c)
        return x

    def forward(self, x, c):
        if c == 2:
            print("two")
        return x * c


@program(Module(), N(3), breaks=1)
def module_with_break_in_child(m, x):
    return m(x) + m.calls


def counter(log, start, x):
    total = start
    try:
        while True:
            try:
                got = yield total
            except ValueError as e:
                log.append(("error", str(e)))
                got = x
            total = total + (1 if got is None else got)
    finally:
        log.append("closed")


@program(N(1), [], breaks=1)
def started_generator_across_a_break(x, log):
    g = counter(log, x, x * 3)
    next(g)
    a = g.send(x)
    print("between")
    b = g.send(2)
    c = g.throw(ValueError("v"))
    g.close()
    return a, b, c, next(g, "end"), log


@program(N(1), [], breaks=1)
def delegating_generator_across_a_break(x, log):
    def outer():
        n = 0

        def bump():
            nonlocal n
            n += 1
            return n

        yield bump()
        yield from counter(log, x, x)
        yield bump()

    g = outer()
    a = [next(g), next(g)]
    print("between")
    b = a, g.send(x), g.send(None)
    g.close()
    return b


@program(N(1), [], breaks=1)
def generator_in_its_handler_across_a_break(x, log):
    def gen():
        try:
            raise KeyError("k")
        except KeyError as e:
            yield x
            log.append(repr(e))
            try:
                raise
            except KeyError as again:
                yield again is e

    g = gen()
    a = next(g)
    print("between")
    return a, next(g), list(g), log


@program(N(1), breaks=1)
def generator_expression_across_a_break(x):
    data = [1, 2, 3, 4]
    g = (v * x for v in data if v % 2 == 0)
    a = next(g)
    print("between")
    data.append(6)
    return a, list(g)


@program(N(1), breaks=0)
def returned_generators_started_and_ended(x):
    def gen(n):
        for i in range(n):
            yield [i, x]

    a, b, c = gen(3), gen(1), gen(2)
    next(a)
    list(b)
    return a, b, c


@program(N(1), [], breaks=2)
def nested_contextmanagers(x, log):
    with scope(log, "outer"):
        with scope(log, "inner") as name:
            print(name)
            x = x * 2
        print("between")
        {}["missing"]
    return x, log


def managed(x, log):
    with scope(log, "callee"):
        print("in callee")
        return x * 2


@program(N(1), [], breaks=1)
def contextmanager_in_callee_in_contextmanager(x, log):
    with scope(log, "caller"):
        y = managed(x, log) + 1
    return y, log


@program(N(1), [], breaks=None)
def generator_dropped_in_its_try(x, log):
    for v in counter(log, x, x):
        break
    return v, log


@program(N(1), [], breaks=None)
def generator_dropped_in_its_with(x, log):
    def gen():
        with Scope(log, "gen"):
            yield x
            yield x * 2

    return next(gen()), log
