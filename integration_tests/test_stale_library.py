"""Stale results by hand: what the fuzzer's programs do not reach, each as a program and the changes that it suffers."""

# mypy: allow-untyped-calls, no-warn-return-any

from __future__ import annotations

import abc
import collections
import contextvars
import dataclasses
import functools
import gc
import inspect
import logging
import math
import sys
import threading
import types
import typing
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compare import assert_same

import torchjit

Program = Callable[[torch.Tensor], Any]
Changes = Sequence[Callable[[], object]]
CASES: dict[str, Callable[[], tuple[Program, Changes]]] = {}


def case(make: Callable[[], tuple[Program, Changes]]) -> Callable[[], tuple[Program, Changes]]:
    CASES[make.__name__] = make
    return make


def outcome(program: Program) -> Any:
    try:
        return program(torch.linspace(-1, 1, 4))
    except Exception as error:
        return type(error).__name__


class Box:
    """Has attributes."""

    value: Any = 1

    def __init__(self, value: Any = 1) -> None:
        self.value = value


@case
def abstract_classes() -> tuple[Program, Changes]:
    class Kind(abc.ABC):
        pass

    class Some:
        pass

    some = Some()
    return lambda x: x * (2 if isinstance(some, Kind) else 3), [lambda: Kind.register(Some)]


@case
def protocols() -> tuple[Program, Changes]:
    @typing.runtime_checkable
    class Sized(typing.Protocol):
        size: Any

    class Some:
        pass

    some = Some()
    changes = [
        lambda: setattr(some, "size", 1),
        lambda: delattr(some, "size"),
        lambda: setattr(Some, "size", 1),
    ]
    return lambda x: x * (2 if isinstance(some, Sized) else 3), changes


@case
def metaclasses() -> tuple[Program, Changes]:
    class Meta(type):
        level: Any = 2

        @property
        def above(cls) -> Any:
            return cls.level

        def __getattr__(cls, name: str) -> Any:
            if name == "made":
                return 5
            raise AttributeError(name)

        def __len__(cls) -> int:
            return 3

    class Some(metaclass=Meta):
        pass

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * Some.level + Some.above + Some.made + len(Some)

    changes = [
        lambda: setattr(Meta, "level", 3),
        lambda: setattr(Meta, "above", property(lambda cls: 100)),
        lambda: setattr(Meta, "__getattr__", lambda cls, name: 9),
        lambda: setattr(Meta, "__len__", lambda cls: 20),
        lambda: setattr(Some, "made", 11),
        lambda: setattr(Meta, "__getattribute__", lambda cls, name: 6),
    ]
    return program, changes


@case
def bases() -> tuple[Program, Changes]:
    class First:
        def weight(self) -> int:
            return 1

    class Second:
        def weight(self) -> int:
            return 2

    class Child(First):
        def weight(self) -> int:
            return super().weight() + 10

    class Grandchild(Child):
        pass

    child = Grandchild()

    def program(x: torch.Tensor) -> Any:
        found = [c.__name__ for c in Grandchild.__mro__], len(Child.__bases__)
        return x * child.weight() + isinstance(child, First) + 2 * issubclass(Grandchild, (Second, int)), found

    changes = [
        lambda: setattr(Child, "__bases__", (Second,)),
        lambda: setattr(Child, "__bases__", (First, Second)),
        lambda: setattr(First, "weight", lambda self: 55),
        lambda: setattr(Grandchild, "__bases__", (First,)),
    ]
    return program, changes


@case
def descriptors() -> tuple[Program, Changes]:
    class Rate:
        def __get__(self, instance: Any, owner: Any = None) -> Any:
            return 5

    class Some:
        rate = Rate()

    some = Some()
    changes = [
        lambda: some.__dict__.update(rate=7),
        lambda: setattr(Rate, "__set__", lambda self, instance, value: None),
        lambda: setattr(Rate, "__get__", lambda self, instance, owner=None: 9),
        lambda: setattr(Some, "rate", 3),
    ]
    return lambda x: x * some.rate, changes


@case
def single_dispatch() -> tuple[Program, Changes]:
    @functools.singledispatch
    def size(value: Any) -> Any:
        return 1

    box = Box()
    changes = [
        lambda: size.register(Box)(lambda value: 2),
        lambda: size.register(Box)(lambda value: 3),
        lambda: size.register(object)(lambda value: 4),
    ]
    return lambda x: x * size(box), changes


@case
def single_dispatch_order() -> tuple[Program, Changes]:
    """Registering a base, too, with an abstract class puts that one behind the base: no answer of `issubclass` changes."""

    class Kind(abc.ABC):
        pass

    class First:
        pass

    class Thing(First):
        pass

    @functools.singledispatch
    def size(value: Any) -> Any:
        return 1

    size.register(First)(lambda value: 2)
    size.register(Kind)(lambda value: 3)
    thing = Thing()
    changes = [lambda: Kind.register(Thing), lambda: Kind.register(First)]
    return lambda x: x * size(thing), changes


@case
def caches() -> tuple[Program, Changes]:
    factor = [1]

    @functools.lru_cache
    def cached(n: int) -> int:
        return factor[0] + n

    class Some:
        @functools.cached_property
        def rate(self) -> Any:
            return factor[0]

    some = Some()
    changes = [
        lambda: factor.__setitem__(0, 5),
        cached.cache_clear,
        lambda: some.__dict__.pop("rate"),
        lambda: setattr(Some.__dict__["rate"], "func", lambda self: 7) or some.__dict__.pop("rate"),
    ]
    return lambda x: x * cached(2) + some.rate, changes


@case
def views() -> tuple[Program, Changes]:
    table: dict[str, Any] = {"a": 1.0}
    view = types.MappingProxyType(table)

    def program(x: torch.Tensor) -> Any:
        return x * view["a"] + len(view) + len(vars(Box)), list(view)

    changes = [
        lambda: table.update(a=2.0),
        lambda: table.update(b=2.0),
        lambda: setattr(Box, "more", 1),
        lambda: delattr(Box, "more"),
    ]
    return program, changes


@case
def names() -> tuple[Program, Changes]:
    class Some:
        pass

    def helper(x: torch.Tensor) -> torch.Tensor:
        return x

    def program(x: torch.Tensor) -> Any:
        of_class = Some.__name__, Some.__qualname__, Some.__module__, Some.__doc__
        return x, of_class, helper.__name__, helper.__qualname__, helper.__doc__, helper.__module__

    owners: list[Any] = [Some, helper]
    changes = [
        functools.partial(setattr, owner, name, "changed")
        for owner in owners
        for name in ("__name__", "__qualname__", "__module__", "__doc__")
    ]
    return program, changes


@case
def an_argument_s_function() -> tuple[Program, Changes]:
    def helper(x: torch.Tensor) -> torch.Tensor:
        return x

    return functools.partial(_named, helper), [lambda: setattr(helper, "__name__", "other")]


def _named(function: Any, x: torch.Tensor) -> Any:
    return function(x) * 2, function.__name__


@case
def imports() -> tuple[Program, Changes]:
    module: Any = types.ModuleType("stale_library_module")
    module.value = 2
    sys.modules[module.__name__] = module

    def program(x: torch.Tensor) -> torch.Tensor:
        import stale_library_module  # type: ignore[import-not-found]  # noqa: PLC0415
        from stale_library_module import value  # noqa: PLC0415

        return x * value + stale_library_module.value

    def replace() -> None:
        other: Any = types.ModuleType(module.__name__)
        other.value = 9
        sys.modules[module.__name__] = other

    return program, [lambda: setattr(module, "value", 3), replace]


@case
def weakly_held() -> tuple[Program, Changes]:
    held = {"box": Box(2)}
    reference, proxy = weakref.ref(held["box"]), weakref.proxy(held["box"])
    method = weakref.WeakMethod(held["box"].__init__)  # type: ignore[misc]
    values: Any = weakref.WeakValueDictionary(held)

    def program(x: torch.Tensor) -> Any:
        found = reference()
        y = x * 5 if found is None else x * found.value
        return y + len(values), method() is None, proxy.value if found is not None else "dead"

    return program, [lambda: setattr(held["box"], "value", 7), lambda: (held.clear(), gc.collect())]


@case
def state_of_the_thread() -> tuple[Program, Changes]:
    local, variable = threading.local(), contextvars.ContextVar("variable", default=1)
    local.rate = 1

    def program(x: torch.Tensor) -> Any:
        local.seen = 3
        y = x * local.rate + local.seen + variable.get()
        del local.seen
        return y, hasattr(local, "seen")

    changes = [
        lambda: setattr(local, "rate", 3),
        lambda: variable.set(4),
        lambda: delattr(local, "rate"),
    ]
    return program, changes


@case
def stands_for_another() -> tuple[Program, Changes]:
    class Pretender:
        @property
        def __class__(self) -> Any:  # type: ignore[override]
            return Box

    pretender, proxied = Pretender(), Box(3)
    proxy = weakref.proxy(proxied)

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * isinstance(pretender, Box) + isinstance(proxy, Box) + proxy.value

    return program, [lambda: setattr(proxied, "value", 4)]


@case
def own_frame() -> tuple[Program, Changes]:
    def program(x: torch.Tensor) -> Any:
        scale = 3
        y = x * scale
        here = inspect.currentframe()
        assert here is not None
        return y * eval("scale + FACTOR"), dir(), sorted(vars()), here.f_code.co_name, here.f_globals["FACTOR"]

    return program, [lambda: globals().update(FACTOR=4)]


FACTOR = 2


@case
def torch_classes() -> tuple[Program, Changes]:
    sine, times, relu = torch.Tensor.sin, torch.Tensor.__mul__, F.relu

    def program(x: torch.Tensor) -> Any:
        return F.relu(x.sin() * 2), hasattr(x, "stale_library_method")

    def restore() -> None:
        torch.Tensor.sin, torch.Tensor.__mul__, F.relu = sine, times, relu  # type: ignore[method-assign]
        del torch.Tensor.stale_library_method  # type: ignore[attr-defined]

    changes = [
        lambda: setattr(torch.Tensor, "stale_library_method", lambda self: self),
        lambda: setattr(torch.Tensor, "sin", lambda self: torch.cos(self)),
        lambda: setattr(torch.Tensor, "__mul__", lambda self, other: torch.sub(self, other)),
        lambda: setattr(F, "relu", torch.tanh),
        restore,
    ]
    return program, changes


@case
def state_of_torch() -> tuple[Program, Changes]:
    threads = torch.get_num_threads()

    def program(x: torch.Tensor) -> Any:
        with torch.autocast("cpu"):
            dtype = torch.mm(x.reshape(2, 2), x.reshape(2, 2)).dtype
        state = torch.is_anomaly_enabled(), torch.get_num_threads(), torch.get_float32_matmul_precision()
        return x * 2, dtype, state, torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()

    changes = [
        lambda: torch.autograd.set_detect_anomaly(True),
        lambda: torch.autograd.set_detect_anomaly(False),
        lambda: torch.set_num_threads(threads + 1),
        lambda: torch.set_num_threads(threads),
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: torch.set_float32_matmul_precision("highest"),
        lambda: torch.set_autocast_dtype("cpu", torch.float16),
        lambda: torch.set_autocast_dtype("cpu", torch.bfloat16),
        lambda: torch.set_autocast_cache_enabled(False),
        lambda: torch.set_autocast_cache_enabled(True),
    ]
    return program, changes


@case
def containers() -> tuple[Program, Changes]:
    queue, counts = collections.deque([1, 2, 3]), collections.Counter(a=2)
    chain = collections.ChainMap({"a": 1}, {"a": 5, "b": 2})

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * queue[0] + len(queue) + counts["a"] + counts["zz"] + chain["a"] + chain["b"] + sum(queue)

    changes = [
        lambda: queue.appendleft(9),
        lambda: queue.rotate(1),
        lambda: counts.update("aaa"),
        lambda: counts.update(zz=3),
        lambda: chain.maps[1].update(b=9),
        lambda: chain.maps.insert(0, {"a": 77}),
    ]
    return program, changes


@case
def subclasses_of_containers() -> tuple[Program, Changes]:
    class Table(dict[str, Any]):
        default = 7

        def __missing__(self, key: str) -> Any:
            return self.default

    class Row(list[Any]):
        pass

    table, row = Table(a=1), Row([1, 2])
    changes = [
        lambda: table.update(zz=2),
        lambda: table.pop("zz"),
        lambda: setattr(Table, "default", 8),
        lambda: setattr(Table, "__missing__", lambda self, key: 5),
        lambda: setattr(Table, "__getitem__", lambda self, key: 6),
        lambda: setattr(Row, "__len__", lambda self: 42),
        lambda: setattr(Row, "__getitem__", lambda self, i: 31),
    ]
    return lambda x: x * table["a"] + table["zz"] + len(row) + row[0], changes


@case
def a_dict_with_attributes() -> tuple[Program, Changes]:
    class Options(dict[str, Any]):
        __getattr__ = dict.__getitem__

    options = Options(rate=1.0, nested={"a": 2})
    changes = [
        lambda: options.update(rate=3.0),
        lambda: options["nested"].update(a=5),
        lambda: setattr(Options, "__getattr__", lambda self, name: 50),
        lambda: delattr(Options, "__getattr__"),
    ]
    return lambda x: x * options.rate + options["nested"]["a"] + len(options), changes


@case
def equality_of_objects() -> tuple[Program, Changes]:
    class Key:
        def __init__(self, value: int) -> None:
            self.value = value

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Key) and self.value == other.value

        def __hash__(self) -> int:
            return 1

    key, probe = Key(1), Key(1)
    table, row = {key: 2.0}, [Key(3), key]
    changes = [
        lambda: setattr(key, "value", 2),
        lambda: setattr(probe, "value", 2),
        lambda: setattr(Key, "__eq__", lambda self, other: False),
    ]
    return lambda x: x * table.get(probe, 5.0) + (probe in row) + row.count(probe), changes


@case
def numbers() -> tuple[Program, Changes]:
    held: dict[str, Any] = {"nan": math.nan, "zero": 0.0, "one": 1, "yes": True}

    def program(x: torch.Tensor) -> Any:
        return x * held["nan"] + math.copysign(1, held["zero"]), type(held["one"]), isinstance(held["yes"], bool)

    changes = [
        lambda: held.update(nan=1.0),
        lambda: held.update(zero=-0.0),
        lambda: held.update(one=True),
        lambda: held.update(yes=1),
    ]
    return program, changes


@case
def data_classes() -> tuple[Program, Changes]:
    @dataclasses.dataclass
    class Config:
        scale: Any = 1
        rows: list[Any] = dataclasses.field(default_factory=lambda: [1])

    config = Config()

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * config.scale + len(config.rows) + dataclasses.replace(config, scale=3).scale + Config().scale

    changes = [
        lambda: setattr(config, "scale", 2),
        lambda: config.rows.append(5),
        lambda: setattr(
            Config, "__init__", lambda self, scale=77, rows=None: self.__dict__.update(scale=scale, rows=rows)
        ),
    ]
    return program, changes


@case
def log_levels() -> tuple[Program, Changes]:
    logger = logging.getLogger("stale_library")
    changes = [
        lambda: logger.setLevel(logging.DEBUG),
        lambda: logging.disable(logging.CRITICAL),
        lambda: logging.disable(logging.NOTSET),
        lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1),
    ]
    return lambda x: x * 2 + logger.isEnabledFor(logging.DEBUG) + sys.getrecursionlimit(), changes


@case
def tensors_with_own_attributes_under_names_of_methods() -> tuple[Program, Changes]:
    table, parameter = torch.ones(3), torch.nn.Parameter(torch.ones(3))
    child = torch.ones(3).as_subclass(type("Child", (torch.Tensor,), {"level": lambda self: 3}))

    def program(x: torch.Tensor) -> torch.Tensor:
        for tensor in (table, child, parameter):
            x = x * 2 + (tensor.mean() if callable(tensor.mean) else tensor.mean)
        level: Any = child.level  # type: ignore[attr-defined]
        return x + (level() if callable(level) else level)

    changes = [
        lambda: setattr(table, "mean", 7.0),
        lambda: setattr(table, "mean", torch.full((3,), 5.0)),
        lambda: setattr(child, "mean", 2),
        lambda: setattr(child, "level", 4.0),
        lambda: setattr(parameter, "mean", 0.25),
        lambda: delattr(table, "mean"),
    ]
    return program, changes


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """State of the process that the cases change."""
    limit = sys.getrecursionlimit()
    yield
    sys.setrecursionlimit(limit)
    sys.modules.pop("stale_library_module", None)
    globals().update(FACTOR=2)


@pytest.mark.parametrize("name", list(CASES))
def test_changes_are_seen(name: str) -> None:
    program, changes = CASES[name]()
    compiled = torchjit.compile(program, backend="aot_eager", recompile_limit=100)
    assert_same(outcome(compiled), outcome(program), equal_nan=True)
    for change in changes:
        change()
        want = outcome(program)
        for _ in range(5):  # so that a snapshot of the guards is taken
            assert_same(outcome(compiled), want, equal_nan=True)


def test_a_weak_reference_stays_weak() -> None:
    """What is compiled keeps no object alive that the program holds weakly."""
    held = [Box(2)]
    reference = weakref.ref(held[0])

    @torchjit.compile(backend="eager")
    def f(x: torch.Tensor) -> torch.Tensor:
        found = reference()
        return x if found is None else x * found.value

    for _ in range(5):
        assert f(torch.ones(1)).item() == 2
    held.clear()
    assert reference() is None
    assert f(torch.full((1,), 9.0)).item() == 9


def test_a_miss_of_bases_says_so() -> None:
    class First:
        pass

    class Second:
        pass

    class Child(First):
        pass

    child = Child()
    compiled: Any = torchjit.compile(lambda x: x * isinstance(child, First), backend="eager")
    assert compiled(torch.ones(1)).item() == 1
    Child.__bases__ = (Second,)
    assert compiled(torch.ones(1)).item() == 0
    (miss,) = compiled.compiled.stats.recompiles
    names = [c.__qualname__ for c in (First, Second)]
    assert (names[0] in miss.expected, names[1] in miss.actual) == (True, True)
    assert miss.location is not None and "isinstance" in miss.location.line() and "patch" in miss.advice


def test_a_submodule_is_imported_by_its_package_s_name() -> None:
    """`from package import name` loads a submodule; where there is none, the error is eager's, until there is one."""
    import wsgiref  # noqa: PLC0415  nothing else needs it

    def loads(x: torch.Tensor) -> torch.Tensor:
        from wsgiref import headers  # noqa: PLC0415  that is what is tested

        return x * len(headers.__name__)

    def misses(x: torch.Tensor) -> torch.Tensor:
        try:
            from wsgiref import stale_library  # type: ignore[attr-defined]  # noqa: PLC0415  that is what is tested
        except ImportError as error:
            return x + len(str(error.name))
        return x * stale_library  # type: ignore[no-any-return]

    sys.modules.pop("wsgiref.headers", None)
    vars(wsgiref).pop("headers", None)
    ones = torch.ones(1)
    compiled = [torchjit.compile(f, backend="eager") for f in (loads, misses)]
    assert [f(ones).item() for f in (*compiled, *compiled)] == [15, 8, 15, 8]
    try:
        vars(wsgiref)["stale_library"] = 2.5
        assert compiled[1](ones).item() == 2.5
    finally:
        del vars(wsgiref)["stale_library"]
