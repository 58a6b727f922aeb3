"""Programs with graph breaks: anywhere, with state, effects, blocks and inlined callers."""

# The programs are meant to be odd, and wrong on purpose here and there.
# mypy: disable-error-code="arg-type,index,call-overload,attr-defined,call-arg,return-value,func-returns-value,no-untyped-call"

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

from vm_lazy import Num

PROGRAMS: list[tuple[int | None, Callable[..., Any], tuple[Any, ...]]] = []
N = Num


def program(breaks: int | None, *args: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a program with the number of breaks that its calls meet; None where restarts make it vary."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS.append((breaks, function, args))
        return function

    return register


@program(1, N(1), N(2))
def prints(x: Any, y: Any) -> Any:
    z = x + y
    print("value", z)
    return z * x


@program(1, N(5), N(2))
def branches(x: Any, y: Any) -> Any:
    if x > y:
        y = y * 2
    else:
        y = y - 1
    return y + x


@program(1, N(1), N(2))
def branches_other_way(x: Any, y: Any) -> Any:
    if x > y:
        y = y * 2
    return y + x


@program(2, N(1))
def conditional_expressions(x: Any) -> Any:
    a = x or 5
    b = (x - 1) and 6
    return a, b


def _inner(x: Any, log: list[Any]) -> Any:
    y = x * 2
    log.append("before")
    print("inner", y)
    log.append("after")
    return y + 1


def _middle(x: Any, log: list[Any]) -> Any:
    z = _inner(x + 1, log)
    return z * 3


@program(1, N(1), [])
def inlined_callers(x: Any, log: list[Any]) -> Any:
    before = x + 10
    r = _middle(x, log)
    log.append(r)
    return r + before


@program(None, N(1), [N(1), N(2), N(3)])
def loop_with_break_inside(x: Any, items: list[Any]) -> Any:
    total = x
    for i, item in enumerate(items):
        total = total + item
        print(i, item)
        total = total * 2
    return total


@program(None, N(3))
def while_on_leaf(x: Any) -> Any:
    n = 0
    while x > 0:
        x = x - 1
        n += 1
    return n, x


@program(None, N(3), [])
def effects_around(x: Any, log: list[Any]) -> Any:
    log.append(x)
    d = {"log": log, "x": x}
    print(len(log))
    log.append(d)
    d["y"] = x + 1
    print(len(log))
    return d


class Counter:
    def __init__(self, start: Any) -> None:
        print("making")
        self.n = start
        print("made")

    def bump(self, by: Any) -> Any:
        self.n = self.n + by
        print("bumped")
        return self

    @property
    def loud(self) -> Any:
        print("loud")
        return self.n

    @loud.setter
    def loud(self, value: Any) -> None:
        print("set")
        self.n = value


@program(None, N(3))
def objects(x: Any) -> Any:
    c = Counter(x).bump(1).bump(x)
    v = c.loud
    c.loud = v + 1
    return c, v


@program(None, N(3))
def breaks_in_try(x: Any) -> Any:
    log: list[Any] = []
    try:
        print("one")
        log.append(x + 1)
        int("no number")
        print("never")
    except ValueError as error:
        print("handling", error)
        log.append(x * 2)
        try:
            print("nested")
            raise KeyError("k")
        except KeyError as inner:
            log.append((inner.args, type(inner.__context__)))
            print("in handler")
            log.append(1)
    finally:
        print("finally")
        log.append("f")
    return log


def _fails(x: Any) -> Any:
    y = x + 1
    print("about to fail")
    raise RuntimeError("failed", 3)


@program(None, N(3))
def exception_crosses_frames(x: Any) -> Any:
    z = x * 2
    try:
        _fails(x)
    except RuntimeError as error:
        return error.args, z
    return None


@program(None, N(3))
def real_exception_from_break(x: Any) -> Any:
    try:
        value = _parse("12x")
    except ValueError as error:
        value = str(error)
    else:
        value = "none"
    return value, x + 1


def _parse(text: str) -> Any:
    random.seed(text)  # unknown to the VM
    return float(text)


@program(None, N(3))
def uncaught_after_break(x: Any) -> Any:
    print("x")
    raise LookupError("gone", 1)


@program(None, N(3))
def reraises(x: Any) -> Any:
    try:
        try:
            print(1)
            raise ValueError("a")
        except ValueError:
            print(2)
            raise
    except ValueError as error:
        return str(error), x - 1


class Block:
    def __init__(self, log: list[Any], swallow: bool = False) -> None:
        self.log, self.swallow = log, swallow

    def __enter__(self) -> Any:
        self.log.append("enter")
        return len(self.log)

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> bool:
        self.log.append(("exit", kind, str(value)))
        return self.swallow


@program(None, N(3), [])
def with_blocks(x: Any, log: list[Any]) -> Any:
    with Block(log) as n:
        x = x + n
        print("inside")
        x = x * 2
    with Block(log, swallow=True):
        print("before raise")
        raise ValueError("swallowed")
    print("after")
    return x


class LoudBlock(Block):
    def __enter__(self) -> Any:
        print("entering")
        return super().__enter__()

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> bool:
        print("leaving", kind)
        return super().__exit__(kind, value, traceback)


@program(None, N(3), [])
def loud_blocks(x: Any, log: list[Any]) -> Any:
    with LoudBlock(log) as n, LoudBlock(log, True):
        x = x + n
        raise KeyError("inside")
    return x, len(log)


@contextlib.contextmanager
def _scope(log: list[Any]) -> Iterator[int]:
    log.append("in")
    try:
        yield len(log)
    finally:
        log.append("out")


@program(None, N(3), [])
def break_inside_generator_manager(x: Any, log: list[Any]) -> Any:
    with _scope(log) as n:
        x = x + n
        print("inside")
        x = x * 2
    return x


@program(None, N(3))
def break_inside_generator(x: Any) -> Any:
    def gen() -> Iterator[Any]:
        for i in range(3):
            print("yielding", i)
            yield x + i

    return [v * 2 for v in gen()], sum(gen(), N(0))


@program(None, N(3))
def break_in_callback(x: Any) -> Any:
    def key(v: int) -> int:
        print("key", v)
        return -v

    return sorted([1, 3, 2], key=key), x + 1, list(map(key, [5]))


@program(None, N(3))
def closures_across(x: Any) -> Any:
    count = 0

    def bump() -> int:
        nonlocal count
        count += 1
        print("bump", count)
        return count

    a = bump()
    count += 10
    b = bump()
    return a, b, count, bump, x + count


@program(None, N(3))
def comprehension_breaks(x: Any) -> Any:
    return [(print(i), x + i)[1] for i in range(3)], {i: print(i) for i in range(2)}


@program(None, N(3))
def half_built_calls(x: Any) -> Any:
    def f(a: Any, b: Any, *args: Any, k: Any = None) -> Any:
        return [a, b, args, k]

    return f(x + 1, print("b"), *[x, print("c")], k=print("d")), f"{x + 1}{print('e')}" is None


@program(None, N(4), 3)
def nested_loops(x: Any, n: int) -> Any:
    out = []
    for i in range(n):
        for j in range(i):
            if x > i + j:
                out.append(x * j)
                continue
            out.append(-1)
            break
        else:
            print("else", i)
    return out


@program(None, N(3))
def unpacking_and_stores(x: Any) -> Any:
    a, b = (x, print("p"))
    items = [1, 2, 3]
    items[0] = print("s")
    d: dict[str, Any] = {"a": x}
    d[str(len(items))] = float(x)
    del items[1]
    return a, b, items, d, x.kind


@program(None, N(3))
def iterator_across(x: Any) -> Any:
    it = iter([x, x + 1, x + 2])
    first = next(it)
    print("between")
    rest = list(it)
    z = zip([1, 2], "ab", strict=True)
    e = enumerate([x, 1], 3)
    next(e)
    print("again")
    return first, rest, list(z), list(e)


@program(None, N(3))
def aliases_across(x: Any) -> Any:
    a: list[Any] = [x]
    b = [a, a]
    d = {"a": a, "b": b}
    b.append(d)
    print("break")
    a.append(1)
    return b, d["a"] is a, b[0] is b[1], b[2]["b"] is b


@program(None, N(3))
def recursion(x: Any) -> Any:
    def walk(n: int) -> Any:
        if n == 0:
            print("bottom")
            return x
        return walk(n - 1) + n

    return walk(3)


@program(None, N(3))
def early_return_in_finally(x: Any) -> Any:
    for i in range(3):
        try:
            print(i)
            if i == 1:
                return x + i
        finally:
            print("finally", i)
    return None


@program(None, N(3))
def lambda_default(x: Any) -> Any:
    fs = [lambda v, i=i: v + i for i in range(2)]
    print("made")
    return [f(x) for f in fs]


@program(None, N(3))
def class_statement(x: Any) -> Any:
    class Local:
        value = 3

        def method(self, y: Any) -> Any:
            return y * self.value

    return Local().method(x), Local.__name__


class Power:
    def __rpow__(self, base: Any) -> Any:
        print("rpow", base)
        return base

    def __neg__(self) -> Any:
        random.seed(1)
        return -7


def error(text: str) -> str:
    random.seed(text)
    return text


@program(None, N(3))
def negative_literals(x: Any) -> Any:
    return (-1) ** Power(), -Power() + 1, x + 1


@program(None, N(3))
def names_that_collide(x: Any) -> Any:
    a0 = t0 = v1 = r1 = x
    try:
        text = error("e")
        text += error("f")
    except ValueError:
        text = error("g")
    return text, a0, t0, v1, r1, error, list, print


_state: dict[str, Any] = {"n": 0}
_count: Any = 0


@program(None, N(3))
def globals_across(x: Any) -> Any:
    global _count
    _count = x
    _state["n"] = 1
    print(_state["n"])
    _count = _count + 1
    result = _count
    _state["n"] = 0
    _count = 0
    return result
