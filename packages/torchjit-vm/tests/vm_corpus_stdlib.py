"""Strings, numbers, and what models use of the standard library."""

# mypy: ignore-errors
# ruff: noqa
# The programs are meant to be odd, and wrong on purpose here and there.

from __future__ import annotations

import bisect
import collections
import contextlib
import copy
import dataclasses
import functools
import heapq
import inspect
import logging
import math
import numbers
import operator
import os
import random
import re
import string
import sys
import time
import types
import typing
import warnings
import weakref
from typing import Any, Optional

from vm_corpus import N, program


@program("Hello, World", N(1))
def string_methods(s, x):
    return (
        s.upper(),
        s.lower(),
        s.title(),
        s.swapcase(),
        s.split(", "),
        s.split(),
        s.replace("l", "L", 1),
        s.find("o"),
        s.rfind("o"),
        s.index("W"),
        s.startswith(("He", "x")),
        s.endswith("d"),
        s.strip("Hd"),
        s.lstrip("H"),
        s.rstrip("d"),
        s.count("l"),
        s.partition(", "),
        s.rpartition("o"),
        s.center(20, "*"),
        s.ljust(15) + "|",
        s.zfill(15),
        s.isalpha(),
        "12".isdigit(),
        "a b".splitlines(),
        ",".join(["a", "b"]),
        s[1:5],
        s[::-1],
        s * 2,
        s + "!",
        "l" in s,
        len(s),
        s.encode(),
        b"ab".decode(),
        s.casefold(),
        s.removeprefix("Hello"),
        s.removesuffix("x"),
        s.expandtabs(),
        "%s-%d-%.2f" % ("a", 3, 1.5),
        f"{1} {2}",
        "{0[a]} {1.real}".format({"a": 1}, 5),
        s.translate({72: "J"}),
        ord("a"),
        chr(98),
        repr(s),
        ascii("é"),
        str(5),
        str(None),
        sorted(s)[:3],
        max(s),
        s < "I",
        s == "Hello, World",
        "a".isidentifier(),
        s.rsplit(",", 1),
        "\n".join(str(i) for i in range(3)),
        list(s[:2]),
    )


@program("name", 3, 2.5, N(1))
def f_strings(s, n, f, x):
    width = 6
    return f"{s}-{n:03d}-{f:.1f}-{s!r}-{n:>{width}}|{s:^8}|{n!s:>3}|{f=}|{{}}|{[n, s]}|{ {'a': n} }|{n if n else 'z'}|{'nested' + f'{n}'}|{n:,}|{0.5:%}|{255:#x}|{(1, 2)}|{None}|{True}"


@program("layer.0.weight", N(1))
def name_parsing(name, x):
    parts = name.split(".")
    index = int(parts[1]) if parts[1].isdigit() else None
    return (
        ".".join(parts[:-1] + ["bias"]),
        index,
        name.rsplit(".", 1)[0],
        any(k in name for k in ("weight", "bias")),
        f"{parts[0]}_{index}",
        x,
    )


class Version(str):
    """As `torch.__version__`: its text is what expressions look into."""

    __slots__ = ()


@program("ab12cd", Version("2.5.0"), N(1))
def regular_expressions(s, version, x):
    return (
        re.sub(r"\d+", "-", s),
        re.match(r"[a-z]+", s).group(0),
        re.findall(r"\d", s),
        bool(re.search("zz", s)),
        re.compile("b").split(s),
        re.match(r"(\d+)[.](\d+)", version).groups(),
        bool(re.compile("dev").search(version)),
        x,
    )


@program(7, 2, 2.5, N(1))
def arithmetic(a, b, f, x):
    return (
        a + b,
        a - b,
        a * b,
        a / b,
        a // b,
        a % b,
        a**b,
        -a,
        +a,
        ~a,
        a & b,
        a | b,
        a ^ b,
        a << b,
        a >> b,
        divmod(a, b),
        pow(a, b, 5),
        abs(-a),
        round(f),
        round(f, 1),
        int("12"),
        int("ff", 16),
        float("1.5"),
        complex(1, 2) * 1j,
        bool(a),
        a.bit_length(),
        f.is_integer(),
        (2.5).hex(),
        a < b < 3,
        a == 7.0,
        10**20,
        -7 // 2,
        -7 % 3,
        7 // -2,
        1e300 * 1e10,
        float("inf") > 1,
        int(2.9),
        f.as_integer_ratio(),
        a.real,
        a.to_bytes(2, "big"),
    )


@program(N(1))
def arithmetic_errors(x):
    out = []
    for f in (
        lambda: 1 / 0,
        lambda: 1 % 0,
        lambda: 1 + "a",
        lambda: "a" + 1,
        lambda: "a" * "b",
        lambda: -"a",
        lambda: int("z"),
        lambda: [] - [],
        lambda: None + 1,
        lambda: 2 ** "a",
        lambda: 1 << -1,
        lambda: abs("a"),
        lambda: float("q"),
        lambda: round("a"),
        lambda: len(5),
        lambda: ~1.5,
        lambda: [1] * 1.5,
        lambda: {} @ {},
    ):
        try:
            f()
            out.append(None)
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out


@program(N(1), 4, 2.5)
def math_module(x, n, f):
    return (
        math.sqrt(n),
        math.floor(f),
        math.ceil(f),
        math.log(n),
        math.log2(n),
        math.log(n, 2),
        math.exp(1),
        math.pi,
        math.inf,
        math.isnan(f),
        math.prod([1, 2, 3]),
        math.gcd(12, 18),
        math.isclose(0.1 + 0.2, 0.3),
        math.factorial(4),
        math.sin(f),
        math.atan2(1, 2),
        math.hypot(3, 4),
        math.copysign(1, -2),
        math.trunc(-2.5),
        math.fsum([0.1] * 3),
        math.comb(5, 2),
        math.isqrt(17),
        math.degrees(math.pi),
        math.erf(0.5),
        math.fmod(7, 3),
        math.dist([0, 0], [3, 4]),
        math.modf(2.5),
        math.isinf(f),
        math.lcm(4, 6),
    )


@program(N(1))
def math_errors(x):
    out = []
    for f in (
        lambda: math.sqrt(-1),
        lambda: math.log(0),
        lambda: math.factorial(-1),
        lambda: math.floor("a"),
        lambda: math.exp(1e5),
    ):
        try:
            f()
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out


@program([3, 1, 2], N(1))
def operator_module(a, x):
    return (
        operator.add(1, 2),
        operator.itemgetter(1)(a),
        operator.itemgetter(0, 2)(a),
        operator.attrgetter("real")(3),
        operator.methodcaller("index", 2)(a),
        operator.getitem(a, 0),
        operator.contains(a, 3),
        operator.neg(x),
        operator.concat([1], [2]),
        operator.not_(a),
        operator.is_(a, a),
        operator.length_hint(a),
        operator.index(5),
        operator.mul(x, 3),
        operator.iadd(a, [9]),
        operator.countOf(a, 1),
        operator.indexOf(a, 2),
        operator.truediv(1, 2),
        operator.setitem(a, 0, 7),
        a,
        operator.eq(1, 1.0),
        operator.xor(5, 3),
    )


@functools.cache
def cached(n):
    return [n]


@functools.lru_cache
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


@functools.singledispatch
def kind(v):
    return "object"


@kind.register
def _(v: int):
    return "int"


@kind.register(list)
def _(v):
    return "list"


@program(N(1))
def functools_module(x):
    add = functools.partial(operator.add, 1)
    return (
        functools.reduce(operator.add, [1, 2, 3]),
        functools.reduce(lambda a, b: a * b, [x, x], 2),
        add(2),
        sorted([3, 1], key=functools.cmp_to_key(lambda a, b: b - a)),
        functools.reduce(lambda a, b: a + b, ["a", "b"]),
    )


@program(N(1))
def cached_functions(x):
    return fib(10), cached(3) is cached(3), cached(4), x


@program(N(1))
def single_dispatch(x):
    return kind(1), kind([]), kind("s"), kind(True), x


@functools.total_ordering
class Version:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n

    def __lt__(self, other):
        return self.n < other.n


@program(N(1))
def total_ordering(x):
    return Version(1) <= Version(2), Version(1) > Version(2), Version(3) >= Version(3), x


@program(N(1))
def random_state(x):
    r = random.Random(0)
    return r.random(), r.randint(1, 10), x


@program(N(1))
def random_module(x):
    random.seed(3)
    a = (
        random.random(),
        random.randint(0, 9),
        random.choice([1, 2, 3]),
        random.uniform(0, 1),
        random.sample(range(5), 2),
    )
    b = [1, 2, 3]
    random.shuffle(b)
    return a, b, x


@program(5, N(1))
def heap_and_bisect(n, x):
    h = [5, 1, 3]
    heapq.heapify(h)
    heapq.heappush(h, 0)
    return (
        heapq.heappop(h),
        h,
        bisect.bisect([1, 3, 5], 3),
        bisect.bisect_left([1, 3, 5], 3),
        heapq.nlargest(2, [1, 3, 2]),
        x,
    )


def documented(a, b: int = 2, *args: str, c, d: int | None = None, **kw) -> float:
    """A docstring."""
    return a


@program(N(1))
def inspect_signature(x):
    s = inspect.signature(documented)
    names = list(s.parameters)
    bound = s.bind(1, c=2)
    return (
        names,
        s.parameters["b"].default,
        s.parameters["c"].default is inspect.Parameter.empty,
        "d" in s.parameters,
        bound.arguments,
        str(s),
        inspect.isfunction(documented),
        inspect.getfullargspec(documented).args,
        x,
    )


class Hooks:
    def step(self, batch, index: int = 3, *rest, flag=False, other: str, **more) -> list:
        return batch

    @classmethod
    def made(cls, batch):
        return batch

    @staticmethod
    def plain(batch, /, loader):
        return batch


def with_hooks():
    made, other = Hooks(), Hooks()
    made.step = other.step
    made.late = (lambda self, loader=2: loader).__get__(other)
    made.free = lambda *loaders: loaders
    return made


@program(with_hooks(), N(1))
def argument_specs_of_hooks(hooks, x):
    def local(a, b=x, *, c, d=4): ...

    found = [inspect.getfullargspec(f) for f in (hooks.step, hooks.made, hooks.plain, hooks.late, hooks.free)]
    of_local = inspect.getfullargspec(local)
    return found, of_local.defaults[0] is x, of_local[:3], of_local[4:], "loader" in found[2].args[1:], x + len(found)


@program(N(1))
def signature_filters_arguments(x):
    accepted = set(inspect.signature(documented).parameters.keys())
    kwargs = {k: v for k, v in {"a": x, "b": 3, "zz": 4, "c": 1}.items() if k in accepted}
    return documented(**kwargs), sorted(kwargs)


@program(N(1))
def function_attributes(x):
    def f(a, b=2):
        return a

    f.tag = 5
    return (
        documented.__name__,
        documented.__doc__,
        documented.__defaults__,
        documented.__kwdefaults__,
        documented.__annotations__,
        documented.__code__.co_varnames[:2],
        documented.__module__ == __name__,
        f.tag,
        f.__defaults__,
        f.__name__,
        f.__code__.co_argcount,
        hasattr(f, "nope"),
        documented.__code__.co_flags & 4,
    )


# `TypeVar` looks at its caller.
@program(N(1), breaks=None)
def typing_module(x):
    def generic(v: list[int]) -> int | None:
        return v

    T = typing.TypeVar("T")
    return (
        typing.cast(int, x),
        typing.get_origin(list[int]),
        typing.get_args(dict[str, int]),
        Optional[int] is not None,
        list[int] == list[int],
        typing.TYPE_CHECKING,
        generic(1),
        Any is Any,
        typing.get_type_hints(kind) if False else None,
    )


# The leaf kind of these tests cannot be copied.
@program(N(1), breaks=1)
def copy_module(x):
    a = {"k": [1, (2, [3])], "o": collections.OrderedDict(z=[1])}
    b = copy.deepcopy(a)
    b["k"][1][1].append(4)
    c = copy.copy(a)
    c["k"].append(5)
    return a, b, c, copy.copy([1]), copy.deepcopy((1, 2)), copy.copy(x) is x or True


@program(N(1), [])
def contextlib_module(x, log):
    @contextlib.contextmanager
    def cm(v):
        log.append(("enter", v))
        try:
            yield v
        except KeyError:
            log.append("swallowed")
        finally:
            log.append("exit")

    with cm(1) as a, cm(2) as b:
        log.append(a + b)
    with cm(3):
        raise KeyError("x")
    with contextlib.suppress(ValueError, TypeError):
        raise ValueError
    with contextlib.nullcontext(5) as c:
        log.append(c)
    with contextlib.ExitStack() as stack:
        stack.enter_context(cm(4))
        stack.callback(log.append, "callback")
        log.append("inside")
    with contextlib.closing(Closeable(log)):
        pass
    return log


class Closeable:
    def __init__(self, log):
        self.log = log

    def close(self):
        self.log.append("closed")


class Deco(contextlib.ContextDecorator):
    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False


@Deco()
def decorated_by_manager(v):
    return v * 2


@program(N(1))
def context_decorators(x):
    @contextlib.contextmanager
    def scope():
        yield

    @scope()
    def inner(v):
        return v + 1

    return decorated_by_manager(x), inner(x)


class Owner:
    pass


@program(Owner(), N(1))
def weak_references(o, x):
    r = weakref.ref(o)
    return r() is o, x


@program(N(1))
def simple_namespaces(x):
    n = types.SimpleNamespace(a=x, b=2)
    n.c = 3
    n.b += 1
    return n.a, n.b, vars(n)["c"], hasattr(n, "d"), n, n == types.SimpleNamespace(a=x, b=3, c=3)


logger = logging.getLogger("vm_corpus")


@program(N(1))
def logging_calls(x):
    logger.debug("value %s", 3)
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("never")
    return x + 1


@program(N(1), breaks=None)
def warnings_calls(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("careful", UserWarning)
    return x + 1


@program(N(1))
def sys_and_os(x):
    return (
        sys.version_info >= (3, 8),
        sys.maxsize > 0,
        os.environ.get("TORCHJIT_NOT_SET"),
        os.path.join("a", "b"),
        os.sep,
        sys.platform == "win32",
        os.getenv("TORCHJIT_NOT_SET", "d"),
        "PATH" in os.environ,
        x,
    )


@program(N(1), breaks=None)
def clocks(x):
    return time.time() > 0, time.perf_counter() > 0, x


@program(N(1), 3, 1.5)
def number_abcs(x, n, f):
    return (
        isinstance(n, numbers.Number),
        isinstance(f, numbers.Integral),
        isinstance(n, numbers.Real),
        isinstance(True, numbers.Integral),
    )


@program(N(1), breaks=1)
def string_module(x):
    return string.ascii_lowercase[:3], string.Template("$a b").substitute(a=1), x


@program(N(1), {"a": 1, "b": {"c": 2}})
def tree_map_style(x, tree):
    def tree_map(f, t):
        if isinstance(t, dict):
            return {k: tree_map(f, v) for k, v in t.items()}
        if isinstance(t, (list, tuple)):
            return type(t)(tree_map(f, v) for v in t)
        return f(t)

    return tree_map(lambda v: v * x if not isinstance(v, N) else v, tree), tree_map(str, [1, (2, {"k": 3})])


@dataclasses.dataclass
class ModelConfig:
    hidden_size: int = 8
    num_layers: int = 2
    act: str = "relu"
    extra: dict = dataclasses.field(default_factory=dict)
    use_cache: bool | None = None

    def to_dict(self):
        return {k: v for k, v in self.__dict__.items() if v is not None}


ACT = {"relu": lambda v: v * 2, "gelu": lambda v: v * 3}


@program(N(1), ModelConfig(extra={"rope": {"type": "linear", "factor": 2.0}}))
def config_driven(x, config):
    use_cache = config.use_cache if config.use_cache is not None else getattr(config, "missing", False)
    rope = config.extra.get("rope") or {}
    kind_ = rope.get("type", "default")
    for i in range(config.num_layers):
        x = ACT[config.act](x) + i
    if kind_ == "linear" and "factor" in rope:
        x = x / rope["factor"]
    outputs = (x, None, () if use_cache else None)
    return tuple(v for v in outputs if v is not None), config.to_dict()


class Hooked:
    def __init__(self):
        self._hooks = collections.OrderedDict()
        self.calls = 0

    def register(self, fn):
        key = len(self._hooks)
        self._hooks[key] = fn
        return lambda: self._hooks.pop(key)

    def __call__(self, v, **kwargs):
        self.calls += 1
        result = v * 2
        for hook in self._hooks.values():
            out = hook(self, (v,), result)
            if out is not None:
                result = out
        return result


@program(N(1), Hooked())
def hooks_style(x, h):
    remove = h.register(lambda m, i, o: o + 1)
    h.register(lambda m, i, o: None)
    a = h(x)
    remove()
    return a, h(x), h.calls, len(h._hooks)


class Cache:
    def __init__(self):
        self.keys: list = []
        self._seen = 0

    def update(self, k, layer):
        if len(self.keys) <= layer:
            self.keys.append(k)
        else:
            self.keys[layer] = self.keys[layer] + k
        if layer == 0:
            self._seen += 1
        return self.keys[layer]

    def __len__(self):
        return len(self.keys)

    def __iter__(self):
        yield from self.keys

    def __getitem__(self, i):
        if i < len(self):
            return self.keys[i]
        raise KeyError(f"only {len(self)} layers")

    @property
    def seen(self):
        return self._seen


@program(N(1), Cache())
def cache_style(x, cache):
    for step in range(2):
        for layer in range(2):
            x = cache.update(x, layer)
    try:
        cache[9]
    except KeyError as e:
        message = str(e)
    return x, len(cache), list(cache), cache.seen, message, bool(cache), cache


@program(N(1), breaks=None)
def identity_functions(x):
    class_ = Owner
    return (
        id(class_) == id(Owner),
        hash("a") == hash("a"),
        id(x) == id(x),
        type(x) is N,
        x is x,
        hash(3),
        hash((1, "a")) == hash((1, "a")),
    )


@program(N(1), [1, 2])
def identity_of_arguments(x, a):
    b = a
    seen = {id(a)}
    return id(a) == id(b), id(b) in seen, x


# A bytearray is opaque.
@program(N(1), breaks=None)
def builtin_functions(x):
    return (
        abs(-1),
        all([1, x is None]),
        any([0, ""]),
        bin(5),
        bool([]),
        bytes([1, 2]),
        callable(len),
        chr(65),
        divmod(7, 2),
        format(3.14159, ".2f"),
        hex(255),
        int("7"),
        isinstance(1, int),
        len("abc"),
        max(1, 2),
        min([3, 1]),
        oct(8),
        ord("A"),
        pow(2, 3),
        range(3),
        repr([1]),
        round(2.567, 2),
        sorted([2, 1]),
        str(1.5),
        sum([1, 2], 10),
        tuple([1]),
        int,
        list(zip([1], [2])),
        vars(types.SimpleNamespace(a=1)),
        max("a", "b", key=ord),
        sum([[1], [2]], []),
        min((1, 2), (1, 1)),
        frozenset([1]),
        complex(1),
        bytearray(b"a") == b"a",
        hash(1),
        slice(1),
        max({"a": 3}),
        getattr(3, "real"),
    )


@program(N(1))
def assert_statements(x):
    assert x is not None, "never"
    try:
        assert isinstance(x, int), f"bad {1}"
    except AssertionError as e:
        return str(e)


@program(3)
def assert_uncaught(n):
    assert n < 2, "too big"


@program(N(1))
def string_building(x):
    out = ""
    for i in range(3):
        out += str(i)
    parts = []
    parts.append("a")
    return out + "".join(parts) + "%d" % 3 + "%(k)s" % {"k": 1}, x


@program(N(1))
def imports_inside(x):
    import collections.abc as cabc
    import math as m
    from os import path
    from os.path import join as j

    return m.sqrt(4), cabc.Mapping is collections.abc.Mapping, path is os.path, j("a", "b"), x


# A first import runs for real.
@program(N(1), breaks=1)
def import_errors(x):
    try:
        import torchjit_no_such_module  # noqa: F401
    except ImportError as e:
        return type(e).__name__, e.name


@program(N(1))
def iterators_of_constants_are_new_in_each_call(x):
    import re

    pattern = re.compile("a")
    found = pattern.finditer("aba")
    first = next(found).start()
    rest = [m.start() for m in re.finditer("a", "aba")]
    text, numbers = "ab".__iter__(), range(3).__iter__()
    return first, [m.span() for m in found], rest, next(text), next(numbers), b"ab".__iter__().__next__(), text, x


# A scanner has a state, and runs for real.
@program(N(1), breaks=None)
def scanner(x):
    import re

    s = re.compile("a").scanner("aa")
    return s.match().start(), s.match().start(), x


@program(N(1), breaks=1)
def signature_of_a_function_made_inside(x):
    import inspect

    def made(a, b: int = 2, *c, d=3, **e):
        pass

    found = inspect.signature(made)
    return str(found), [p.name for p in found.parameters.values()], found.parameters["d"].default, x


# The cache is made for real.
@program(N(1), breaks=None)
def cache_made_inside(x):
    @functools.lru_cache(maxsize=None)
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    return fib(10), x


class Odd(type):
    def __getattr__(cls, name):
        return name

    def __getitem__(cls, key):
        return key

    def __len__(cls):
        return 3

    def __contains__(cls, value):
        return value == 1

    def __iter__(cls):
        return iter([1, 2])

    def __instancecheck__(cls, value):
        return value == 3


class WithOdd(metaclass=Odd):
    pass


@program(N(1))
def operators_of_a_metaclass(x):
    return WithOdd.zz, WithOdd[3], len(WithOdd), 1 in WithOdd, list(WithOdd), isinstance(3, WithOdd), x
