"""Coroutines that the program drives by hand."""

# mypy: ignore-errors
# ruff: noqa

import collections.abc
import inspect
import types

from vm_corpus import N, program


def drive(c, *sent):
    out = []
    try:
        out.append(c.send(None))
        for v in sent:
            out.append(c.send(v))
    except StopIteration as s:
        return out, s.value
    return out, "suspended"


@types.coroutine
def step(v):
    got = yield v
    return got


class Aw:
    def __init__(self, v):
        self.v = v

    def __await__(self):
        r = yield ("aw", self.v)
        return r


class Plain:
    def __await__(self):
        return iter([1, 2])


class Mgr:
    def __init__(self, log):
        self.log = log

    async def __aenter__(self):
        self.log.append("enter")
        await step("in")
        return self

    async def __aexit__(self, t, v, tb):
        self.log.append(t and t.__name__)
        await step("out")
        return t is KeyError


class Count:
    def __init__(self, n):
        self.n = n

    def __aiter__(self):
        return self

    async def __anext__(self):
        if not self.n:
            raise StopAsyncIteration
        self.n -= 1
        return await step(self.n)


async def simple(x):
    return x + 1


async def awaits(x):
    a = await simple(x)
    b = await step(a)
    c = await Aw(b)
    await Plain()
    return a + 1, b, c


@program(N(1.0))
def co_simple(x):
    return drive(simple(x)), drive(awaits(x), 5, 6, None, None)


@program(N(1.0))
def co_with(x):
    log = []

    async def f():
        async with Mgr(log) as m:
            y = x + 1
        async with Mgr(log):
            raise KeyError("k")
        return y

    return drive(f(), 1, 2, 3, 4, 5), log


@program(N(1.0))
def co_for(x):
    async def f():
        out = []
        async for v in Count(3):
            out.append(v)
        else:
            out.append("else")
        return out, [v async for v in Count(2)], {v: x async for v in Count(1)}

    return drive(f(), *range(10))


@program(N(1.0))
def co_errors(x):
    out = []

    async def bad():
        await 3

    async def bad2():
        async with 3:
            pass

    async def bad3():
        async for v in [1]:
            pass

    async def raises():
        raise ValueError("v")

    async def stops():
        raise StopIteration(4)

    async def aw2():
        await drive

    def tryit(f):
        c = None
        try:
            c = f()
            c.send(None)
        except BaseException as e:
            out.append((type(e).__name__, str(e), type(e.__cause__).__name__))

    for f in (bad, bad2, bad3, raises, stops, aw2):
        tryit(f)
    c = simple(x)
    try:
        next(c)
    except TypeError as e:
        out.append(str(e))
    try:
        list(c)
    except TypeError as e:
        out.append(str(e))
    try:
        c.send(3)
    except TypeError as e:
        out.append(str(e))
    try:
        c.send(None)
    except StopIteration as e:
        out.append(e.value)
    try:
        c.send(None)
    except RuntimeError as e:
        out.append(str(e))
    c.close()
    return out


@program(N(1.0))
def co_throw(x):
    log = []

    async def f():
        try:
            await step(1)
        except KeyError as e:
            log.append(e.args)
            return await step(2)
        finally:
            log.append("fin")

    c = f()
    a = c.send(None)
    b = c.throw(KeyError("q"))
    try:
        c.send(9)
    except StopIteration as s:
        r = s.value
    d = f()
    d.send(None)
    d.close()
    return a, b, r, log


@program(N(1.0))
def co_types(x):
    c = simple(x)
    r = (
        isinstance(c, types.CoroutineType),
        isinstance(c, collections.abc.Awaitable),
        inspect.iscoroutine(c),
        type(c).__name__,
        inspect.iscoroutinefunction(simple),
        inspect.isawaitable(c),
    )
    w = c.__await__()
    try:
        next(w)
    except StopIteration as s:
        r += (s.value,)
    return r


@program(N(1.0), breaks=2)
def co_escapes(x):
    c = simple(x)
    print("a")
    return drive(c)


@program(N(1.0), breaks=1)
def co_break(x):
    async def f(y):
        y = y + 1
        print("in")
        return y * 2

    return drive(f(x))


@program(N(1.0))
def gen_send_first(x):
    def g():
        yield 1

    try:
        g().send(1)
    except TypeError as e:
        return str(e), x


async def recur(n):
    return 0 if n == 0 else 1 + await recur(n - 1)


@program(N(1.0))
def co_recur(x):
    return drive(recur(20)), x
