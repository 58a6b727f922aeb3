"""Small programs, one per feature of the language, that are captured in one region each."""

# The programs are meant to be odd, and wrong on purpose here and there.
# mypy: disable-error-code="arg-type,index,call-overload,attr-defined,call-arg,return-value,func-returns-value,no-untyped-call"

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import operator
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from vm_lazy import Num, total

PROGRAMS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []


def program(*args: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS.append((function, args))
        return function

    return register


SCALE = 3
TABLE = {"a": 1, "b": [1, 2, 3]}
N = Num


class Point:
    kind = "point"
    __slots__ = ("x", "y")

    def __init__(self, x: Any, y: Any = 0) -> None:
        self.x = x
        self.y = y

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Point):
            return NotImplemented
        return Point(self.x + other.x, self.y + other.y)

    def __radd__(self, other: Any) -> Any:
        return Point(self.x + other, self.y)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and self.x == other.x

    def __iter__(self) -> Iterator[Any]:
        yield self.x
        yield self.y

    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> Any:
        return (self.x, self.y)[i]

    @property
    def sum(self) -> Any:
        return self.x + self.y

    @sum.setter
    def sum(self, value: Any) -> None:
        self.x = value
        self.y = 0

    @classmethod
    def origin(cls) -> Any:
        return cls(0, 0)

    @staticmethod
    def one() -> int:
        return 1


class Base:
    def __init__(self, scale: Any) -> None:
        self.scale = scale
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x * self.scale

    def __call__(self, x: Any) -> Any:
        return self.forward(x)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("dyn_"):
            return name[4:]
        raise AttributeError(f"no {name}")


class Derived(Base):
    def __init__(self, scale: Any) -> None:
        super().__init__(scale)
        self.extra = [1]

    def forward(self, x: Any) -> Any:
        return super().forward(x) + 1


class Color(enum.Enum):
    RED = 1
    BLUE = 2

    def describe(self) -> str:
        return f"{self.name}={self.value}"


class Pair(NamedTuple):
    first: Any
    second: Any = 5

    def both(self) -> Any:
        return self.first + self.second


@dataclasses.dataclass
class Config:
    width: int
    depth: int = 2
    names: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Frozen:
    width: int
    x: Any = None


class MyDict(dict[Any, Any]):
    def __missing__(self, key: Any) -> Any:
        return f"missing {key}"


class MyList(list[Any]):
    def first(self) -> Any:
        return self[0]


class Oops(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class Manager:
    def __init__(self, log: list[Any], swallow: bool = False) -> None:
        self.log, self.swallow = log, swallow

    def __enter__(self) -> Any:
        self.log.append("enter")
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> bool:
        self.log.append(("exit", kind))
        return self.swallow


@contextlib.contextmanager
def logged(log: list[Any], name: str) -> Iterator[str]:
    log.append(f"in {name}")
    try:
        yield name
    finally:
        log.append(f"out {name}")


@program(N(2), N(3))
def arithmetic(x: Any, y: Any) -> Any:
    z = (x + y) * 2 - 1 / (x + 1)
    z += y
    return -z, 3 - z, x < y


@program(N(2), 5)
def arguments(x: Any, n: int, *rest: Any) -> Any:
    def inner(a: Any, b: Any = 2, *args: Any, c: Any, d: Any = 4, **kw: Any) -> Any:
        return [a, b, args, c, d, kw]

    return inner(x, c=1), inner(1, 2, 3, x, c=5, e=6), inner(*[1, x], **{"c": n, "z": x}), rest


@program(N(2))
def loops(x: Any) -> Any:
    out = []
    for i in range(5):
        if i == 1:
            continue
        if i == 4:
            break
        out.append(x * i)
    else:
        out.append("no")
    n = 3
    while n:
        n -= 1
        x = x + n
    else:
        out.append("done")
    return out, x


@program(N(2))
def comprehensions(x: Any) -> Any:
    return (
        [x + i for i in range(3) if i != 1],
        {i: x * i for i in range(2)},
        {i % 2 for i in range(5)},
        list(a + b for a in (x, 1) for b in (1, 2)),
        [[y for y in range(z)] for z in range(3)],
    )


@program(N(1), [N(2), N(3)], {"k": N(4), "l": 5})
def containers(x: Any, items: list[Any], table: dict[str, Any]) -> Any:
    a, *b = items
    first, (second, third) = x, (a, table["k"])
    merged = {**table, "m": x}
    both = [*items, *table.values()]
    items[0] = x
    items.append(second)
    table["new"] = items
    del table["l"]
    return (
        a,
        b,
        first,
        second,
        third,
        merged,
        both,
        items[::-1],
        items[-1],
        len(table),
        "new" in table,
        table.get("z", 7),
    )


@program([3, 1, 2])
def list_methods(items: list[Any]) -> Any:
    items.sort()
    copy = items.copy()
    items.insert(0, 9)
    popped = items.pop()
    items.extend(range(2))
    items.remove(0)
    items.reverse()
    items += [7]
    items[1:2] = ["a", "b"]
    del items[0]
    return (
        copy,
        popped,
        items.index("a"),
        items.count(1),
        sorted(copy, reverse=True),
        sorted("hello", key=ord),
        items * 2,
    )


@program({"a": 1, "b": 2})
def dict_methods(table: dict[str, Any]) -> Any:
    out = [table.pop("a"), table.setdefault("c", 3), table.pop("zz", None), list(table.items()), list(table)]
    table.update({"d": 4}, e=5)
    copy = table.copy()
    table.clear()
    table["a"] = 0
    return out, copy, dict(x=1), dict([("p", 2)]), dict.fromkeys("ab", 0), copy | {"q": 1}, copy.keys() & {"d"}


@program({1, 2, 3})
def set_methods(s: set[int]) -> Any:
    s.add(9)
    s.discard(1)
    s |= {4}
    return s | {7}, s & {2, 3}, s - {2}, s ^ {2, 100}, {1} <= s, s.isdisjoint({50}), frozenset(s), 9 in s, len(s)


@program(Config(1, names=["n"]), Base(2), [[1], N(2)])
def copies(c: Config, b: Base, items: list[Any]) -> Any:
    import copy

    again = copy.copy(items)
    deep = copy.deepcopy([c, c, items[0]])
    members = copy.deepcopy(b.__dict__)
    members["scale"] = 9
    deep[0].names.append("m")
    return again, deep, members, copy.copy(b), vars(c).copy(), dataclasses.asdict(c)


@program({"b", "a", "c", 5})
def set_order(s: set[Any]) -> Any:
    made = {3, 100, 1, 64}
    made.add(7)
    return list(s), sorted(made), [v for v in {1, 2}], tuple(frozenset([8])), sorted({"q", "p"} | {"r"})


@program(N(2))
def collections_types(x: Any) -> Any:
    d: Any = defaultdict(list)
    d["a"].append(x)
    o = OrderedDict(a=1)
    o["b"] = x
    o.move_to_end("a")
    q = deque([1, 2])
    q.append(x)
    q.appendleft(0)
    q.popleft()
    p = Pair(x)
    m = MyDict(a=1)
    lst = MyList([1, x])
    lst.append(3)
    return d, o, q, p, p.first, p.both(), p._replace(second=1), m["a"], m["b"], lst, lst.first(), isinstance(lst, list)


@program(Point(N(1), N(2)))
def user_objects(p: Point) -> Any:
    q = Point(p.x, 3) + p
    p.y = q.x
    q.sum = 5
    a, b = p
    return q, p.sum, Point.origin(), Point.one(), p.kind, len(p), p[0], a, b, 5 + q, p == 3, p != 4, bool(p)


@program(Base(2), Derived(3), N(1))
def inheritance(b: Base, d: Derived, x: Any) -> Any:
    r = b(x), d(x), d.dyn_foo, hasattr(d, "nothing"), getattr(b, "none", 5), isinstance(d, Base)
    made = Derived(x)
    made.extra.append(b)
    setattr(d, "late", x)  # noqa: B010
    return r, made, d.calls, type(d).__name__, d.__class__ is Derived, vars(b)["calls"], "scale" in d.__dict__


@program(N(2))
def closures(x: Any) -> Any:
    count = 0

    def bump(n: int = 1) -> int:
        nonlocal count
        count += n
        return count

    fs = [lambda y, i=i: y + i for i in range(3)]
    bump()
    bump(5)

    def fact(n: int) -> int:
        return 1 if n <= 1 else n * fact(n - 1)

    return (
        count,
        [f(x) for f in fs],
        fact(5),
        bump,
        functools.partial(bump, 2)(),
        functools.reduce(operator.add, [x, 1, 2]),
    )


@program(N(2))
def generators(x: Any) -> Any:
    def gen(n: int) -> Iterator[Any]:
        got = yield x
        for i in range(n):
            got = yield (i, got)
        return "end"  # noqa: B901

    def outer() -> Iterator[Any]:
        result = yield from gen(2)
        yield result

    g: Any = gen(3)
    first = next(g)
    sent = g.send("hello")
    g.close()
    return first, sent, list(outer()), list(zip(gen(1), "ab")), sum(i for i in range(4)), next(iter([]), "empty")  # noqa: B905


@program(N(2))
def iterators(x: Any) -> Any:
    return (
        list(enumerate([x, 1], 5)),
        list(zip([1, 2], (x, x), strict=True)),
        list(map(lambda a, b: a + b, [1, 2], [x, x])),
        list(filter(None, [0, 1, 2])),
        list(reversed([1, 2, x])),
        list(itertools.chain([1], (2, x))),
        list(itertools.islice(itertools.count(3), 2)),
        list(itertools.product([1, 2], "ab")),
        list(itertools.accumulate([1, 2, 3])),
        any([0, 1]), all([]), max(3, 1), min([4, 2], key=lambda v: -v), sum([x, x], x), max([], default=3),
    )  # fmt: skip


@program(N(2))
def exceptions(x: Any) -> Any:
    log: list[Any] = []

    def risky(n: int) -> Any:
        if n == 0:
            raise ValueError("zero", n)
        if n == 1:
            raise Oops(7)
        if n == 2:
            return {}["key"]
        if n == 3:
            return [][1]
        if n == 4:
            return 1 / 0
        if n == 5:
            raise KeyError from ValueError("cause")
        return x

    for n in range(7):
        try:
            log.append(risky(n))
        except (ValueError, Oops) as error:
            log.append((type(error), error.args, str(error), getattr(error, "code", None)))
        except LookupError as error:
            log.append(("lookup", error.args, error.__cause__))
        except ArithmeticError as error:
            log.append(str(error))
        else:
            log.append("else")
        finally:
            log.append("finally")
    try:
        try:
            raise ValueError("a")
        except ValueError:
            raise TypeError("b")  # noqa: B904
    except TypeError as error:
        log.append(error)
    return log


@program([], N(1))
def managers(log: list[Any], x: Any) -> Any:
    with Manager(log) as m, logged(log, "a") as name:
        log.append(name)
        x = x + 1
    with Manager(log, swallow=True):
        raise ValueError("swallowed")
    with contextlib.suppress(KeyError):
        {}["a"]  # noqa: B018
    with contextlib.nullcontext(5) as five:
        x = x * five
    try:
        with logged(log, "b"):
            raise RuntimeError("through")
    except RuntimeError as error:
        log.append(str(error))
    return x, m is not None


@program([], N(1))
def raises_after_effects(log: list[Any], x: Any) -> Any:
    log.append(x + 1)
    raise Oops(3)


@program({"a": 1})
def raises_key_error(table: dict[str, int]) -> Any:
    table["b"] = 2
    return table["c"]


@program(3)
def raises_from(n: int) -> Any:
    try:
        return 1 / (n - 3)
    except ZeroDivisionError as error:
        raise ValueError("chained") from error


@program(1)
def raises_type_error(n: Any) -> Any:
    def two(a: Any, b: Any) -> Any:
        return a

    return two(n)


@program(N(2), "text", 3.5)
def strings(x: Any, s: str, f: float) -> Any:
    return (
        f"{s!r:>8}|{f:.2f}|{s}|{1:03d}", s.upper(), s.split("x"), ",".join([s, s]), "%s-%d" % (s, 4),  # noqa: UP031
        f"{s} {1}", s[1:3], s[0], s * 2, "ex" in s, len(s), s.startswith(("te", "z")), str(5), repr(s),
        int("7"), float("2.5"), ord("a"), chr(98), s.encode(), str([1, "a"]), str((1,)), f"{[1, 2]}",
    )  # fmt: skip


@program((1, {"k": [N(2)]}), Point(1, 2))
def matching(data: Any, p: Any) -> Any:
    out: list[Any] = []
    for subject in (data, p, [1, 2, 3], "str", 5, {"a": 1, "b": 2}, Config(3), None):
        match subject:
            case (1, {"k": [inner]}):
                out.append(inner)
            case Point(x=1, y=y):
                out.append(y)
            case [1, *rest]:
                out.append(rest)
            case str(text):
                out.append(text)
            case int() | None:
                out.append("int or none")
            case {"a": a, **others}:
                out.append((a, others))
            case Config(width, depth=2) if width > 2:
                out.append(width)
            case _:
                out.append("?")
    return out


@program(N(1))
def walrus_and_chains(x: Any) -> Any:
    if (n := len([1, 2])) > 1:
        x = x + n
    a = 1 < n < 3
    b = 1 if not a else 2
    c = None or "default"
    d = 0 and 5
    e = x is not None and x
    return x, a, b, c, d, e, n is None, (lambda *a, **k: (a, k))(1, z=2)


@program(N(1))
def global_names(x: Any) -> Any:
    global _written
    _written = x * SCALE
    TABLE["c"] = x
    TABLE["b"].append(4)
    out = _written, TABLE["a"], math.sqrt(16), math.pi, operator.itemgetter
    TABLE["b"].pop()
    del TABLE["c"]
    return out


_written: Any = None


@program(N(1))
def dataclass_objects(x: Any) -> Any:
    c = Config(3, names=["a"])
    c.depth += 1
    f = Frozen(2, x)
    try:
        f.width = 3  # type: ignore[misc]
    except dataclasses.FrozenInstanceError as error:
        message = str(error)
    return c, f, c == Config(3, 3, ["a"]), message, dataclasses.replace(c, width=9)


@program(Color.RED)
def enums(c: Color) -> Any:
    return (
        c is Color.RED,
        c.name,
        c.value,
        c.describe(),
        Color(2),
        [m.name for m in Color],
        c == Color.BLUE,
        Color["RED"],
    )


@program([N(1)], [N(2)])
def aliases(a: list[Any], b: list[Any]) -> Any:
    c = a
    c.append(b)
    b.append(a)
    d: dict[str, Any] = {}
    d["self"] = d
    return a is c, a is b, [a, a, b], d


@program(N(2))
def undone_effects(x: Any) -> Any:
    old = TABLE["a"]
    TABLE["a"] = 50
    y = x * TABLE["a"]
    TABLE["a"] = old
    return y


@program(N(3))
def in_place(x: Any) -> Any:
    y = x.add_(2)
    z = y is x
    w = total(x, y, 1)
    return w, z, x.double(), x.half


@program(5)
def deletes(n: int) -> Any:
    a = [1, 2, 3]
    del a[0], n
    p = Point(1)
    del p.x
    try:
        return n  # noqa: F821
    except UnboundLocalError:
        return a, hasattr(p, "x")


@program(N(2))
def slices(x: Any) -> Any:
    a = [x, 1, 2, 3]
    s = slice(1, None, 2)
    a[1:3] = [9]
    return a[s], a[:-1], (1, 2, 3)[::2], "abc"[1:], s, a[slice(0, 1)]


@program(N(1))
def counter(x: Any) -> Any:
    c = collections.namedtuple  # noqa: PYI024
    made = Pair(1, 2)
    first, second = made
    return c is collections.namedtuple, first, second, made[0], made == (1, 2), tuple(made), len(made), made < (2, 0)


@program(3)
def recursion(n: int) -> Any:
    def walk(k: int) -> Any:
        return [] if k == 0 else [k, walk(k - 1), walk(k - 1)]

    return walk(n)


@program(N(2), N(2))
def returns_arguments(x: Any, y: Any) -> Any:
    return x, y, x


@program(0)
def returns_constant(n: int) -> Any:
    return 1, "a", None, 2.5, float("inf"), b"x", (1, (2,)), -0.0, ..., 10**30


@program([1, 2, 3, 4])
def nested_functions(items: list[int]) -> Any:
    def compose(*functions: Any) -> Any:
        def composed(v: Any) -> Any:
            for f in functions:
                v = f(v)
            return v

        return composed

    square: Any = lambda v: v * v  # noqa: E731
    return list(map(compose(square, str, len), items)), compose(square)


class _Marking(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return getattr(instance, "marked", False) is True or super().__instancecheck__(instance)


class _Marked(metaclass=_Marking):
    pass


class _Outsider:
    marked = True


@program(N(2), _Outsider())
def metaclass_instance_check(x: Any, outsider: Any) -> Any:
    return isinstance(x, _Marked), isinstance(outsider, _Marked), isinstance(_Marked(), _Marked), x + 1
