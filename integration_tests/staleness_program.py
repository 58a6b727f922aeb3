"""The programs whose every fact `staleness_mutations` changes. Each world imports this file anew, under a name of its own.

Each entry in `ENTRIES` is called as `entry(world)` and reads its facts from as many kinds of places as Python has.
"""

# mypy: no-warn-return-any

from __future__ import annotations

import abc
import collections
import contextvars
import dataclasses
import enum
import functools
import sys
import threading
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

SCALE: Any = 2.0
COUNT: Any = 3
FLAG: Any = True
NAME: Any = "relu"
MAYBE: Any = None
TABLE: dict[Any, Any] = {"a": 1.0, "b": 2, "nested": {"x": [1, 2, 3]}, 7: 0.5, ("t", 1): 4.0}
ITEMS: list[Any] = [1.0, 2, (3, 4), {"deep": 5}]
CHOSEN: Any = {1, 2}
FROZEN: Any = frozenset({"p", "q"})
SHARED = torch.arange(6.0).reshape(2, 3) / 7
PAIR = collections.namedtuple("PAIR", "left right")
ORDERED: collections.OrderedDict[str, Any] = collections.OrderedDict(one=1.0, two=2.0)
DEFAULTED: collections.defaultdict[str, float] = collections.defaultdict(float, seen=1.5)
NAMESPACE = types.SimpleNamespace(gain=1.25, name="space", inner=types.SimpleNamespace(level=2))


class Mode(enum.Enum):
    ADD = 1
    MUL = 2


MODE: Any = Mode.ADD


@dataclasses.dataclass
class Config:
    hidden: Any = 3
    act: Any = "relu"
    rates: Any = (0.5, 0.25)
    table: Any = dataclasses.field(default_factory=lambda: {"k": 1.5})
    tensor: Any = None


class Slotted:
    __slots__ = ("first", "second")

    def __init__(self) -> None:
        self.first: Any = 1.5
        self.second: Any = 2


class Measured:
    """Computed attributes, a descriptor, `__getattr__`, `__len__` and `__call__`."""

    rate: Any = 0.75

    def __init__(self) -> None:
        self.base: Any = 2.0
        self.fields: Any = {"z": 3.0}

    @property
    def doubled(self) -> Any:
        return self.base * 2

    def __getattr__(self, name: str) -> Any:
        if name.startswith("dyn_"):
            return self.__dict__["fields"].get(name[4:], 0.125)
        raise AttributeError(name)

    def __len__(self) -> int:
        return len(self.fields)

    def __call__(self, x: Any) -> Any:
        return x * self.base

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Measured) and self.base == other.base

    __hash__ = None  # type: ignore[assignment]


CONFIG = Config()
SLOTTED = Slotted()
MEASURED = Measured()


def helper(x: Any, k: Any = 1.5, *, bias: Any = 0.25) -> Any:
    return x * k + bias


def other_helper(x: Any, k: Any = 3.0, *, bias: Any = -1.0) -> Any:
    return x / k - bias


def make_closure(start: Any) -> Callable[..., Any]:
    level: Any = start
    table: Any = {"c": 1.0}

    def inner(x: Any) -> Any:
        return x * level + table["c"] + (table.get("late") or 0)

    def change(new_level: Any, new_table: Any) -> None:
        nonlocal level, table
        level, table = new_level, new_table

    def empty() -> None:
        nonlocal level
        del level

    inner.change = change  # type: ignore[attr-defined]
    inner.empty = empty  # type: ignore[attr-defined]
    return inner


CLOSURE = make_closure(2.0)
PARTIAL: Any = functools.partial(helper, k=0.5)


def decorated(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs) * wrapper.weight  # type: ignore[attr-defined]

    wrapper.weight = 1.5  # type: ignore[attr-defined]
    return wrapper


@decorated
def wrapped(x: Any) -> Any:
    return x + 1


class Base(nn.Module):
    factor: Any = 1.5
    unused: Any = 9

    def act(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)

    @property
    def gain(self) -> Any:
        return self._gain * 2

    @staticmethod
    def shift(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @classmethod
    def kind(cls) -> Any:
        return cls.factor


class Block(Base):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.norm = nn.BatchNorm1d(size)
        self.drop = nn.Dropout(0.3)
        self.mode = "plain"
        self._gain: Any = 0.5
        self.extra: Any = {"scale": 1.0, "keys": [1, 2]}
        self.steps: Any = [1.0, 0.5]
        self.options: Any = CONFIG
        self.register_buffer("offset", torch.full((size,), 0.25))
        self.register_parameter("late", None)

    def forward(self, x: torch.Tensor, *, boost: Any = 1.0) -> torch.Tensor:
        y = self.act(self.linear(x)) * self.gain + self.offset * boost
        for step in self.steps:
            y = y + step
        if self.late is not None:
            y = y + self.late
        if self.mode == "plain":
            y = self.shift(self.drop(y))
        if hasattr(self, "bonus"):
            y = y * self.bonus
        y = self.norm(y) * self.kind() * self.extra["scale"]
        return y + self.options.hidden + len(self.extra["keys"])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(3), Block(3)])
        self.named = nn.ModuleDict({"head": nn.Linear(3, 3), "tail": nn.Identity()})
        self.stack = nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.LayerNorm(3))
        self.rows = nn.ParameterList([nn.Parameter(torch.full((3,), 0.5))])
        self.plain: Any = torch.full((3,), 0.125)

    def forward(self, x: torch.Tensor) -> Any:
        for i, block in enumerate(self.blocks):
            x = block(x, boost=1.0 + i)
        for name, layer in self.named.items():
            x = layer(x) + len(name)
        for row in self.rows:
            x = x + row
        return self.stack(x) + self.plain, self.training, len(self.blocks)


def modules(world: Any) -> Any:
    """A tree of modules, called through `nn.Module.__call__` with its hooks."""
    return world.net(world.x)


def containers(world: Any, x: Any = None) -> Any:
    """Globals of every kind."""
    y = world.x * SCALE + COUNT
    if FLAG:
        y = y + 1
    y = getattr(torch, NAME)(y)
    y = y + TABLE["a"] + TABLE["nested"]["x"][1] + TABLE[7] + TABLE["t", 1]
    y = y + ITEMS[0] + ITEMS[2][1] + ITEMS[-1]["deep"] + len(ITEMS)
    for key, value in ORDERED.items():
        y = y + value * len(key)
    y = y + sum(1 for _ in TABLE) + (3 if 1 in CHOSEN else 4) + (0.5 if "p" in FROZEN else 0.25)
    y = y + DEFAULTED["seen"] + (1 if "unseen" in DEFAULTED else 2)
    if MAYBE is not None:
        y = y + MAYBE
    y = y + SHARED.sum() if MODE is Mode.ADD else y * SHARED.mean()
    return y, TABLE.get("b"), [k for k in ORDERED], COUNT


def objects(world: Any) -> Any:
    """Attributes: of instances, classes, slots, dataclasses, namespaces, properties, `__getattr__`."""
    y = world.x * CONFIG.hidden + CONFIG.rates[0] + CONFIG.table["k"]
    y = torch.tanh(y) if CONFIG.act == "relu" else torch.sin(y)
    if CONFIG.tensor is not None:
        y = y + CONFIG.tensor
    y = y + SLOTTED.first * SLOTTED.second
    y = MEASURED(y) + MEASURED.doubled + MEASURED.dyn_z + MEASURED.rate + len(MEASURED)
    y = y + NAMESPACE.gain * NAMESPACE.inner.level
    if hasattr(CONFIG, "bonus"):
        y = y + CONFIG.bonus
    if isinstance(CONFIG, Slotted) or not isinstance(world.measured, Measured):
        y = -y
    return y + (1 if world.measured == MEASURED else 2), NAMESPACE.name, getattr(MEASURED, "nothing", "missing")


def functions(world: Any, gain: Any = 1.0, *, lift: Any = 0.0) -> Any:
    """Inlined functions: their code, defaults, closures, attributes; partials, decorators, functions of torch. And its own."""
    y = helper(world.x) + helper(world.x, bias=2.0)
    y = CLOSURE(y) + world.inner(y)
    y = PARTIAL(y)
    y = wrapped(y)
    y = F.softplus(y) + torch.sigmoid(y)
    return (y + world.method(y)) * gain + lift


def other_functions(world: Any, gain: Any = 2.0, *, lift: Any = 1.0) -> Any:
    return helper(world.x) * gain - lift


class Holder:
    weight: Any = 0.5

    def method(self, y: Any) -> Any:
        return y * self.weight


def tensors(world: Any) -> Any:
    """Several inputs, all their metadata, aliases and identities."""
    a, b = world.x, world.y
    out = a.reshape(-1).float().sum() + b.reshape(-1).float().sum()
    facts: list[Any] = [a.dtype, str(b.device), a.is_contiguous(), a.requires_grad, a.dim(), b.is_leaf, a is b]
    if a.dim() == 2 and a.stride(0) > 1:
        out = out + a.t().reshape(-1)[0].float()
    facts += [torch.is_grad_enabled(), torch.get_default_dtype(), torch.is_autocast_enabled("cpu"), tuple(b.shape)]
    facts.append(torch.ones(2) @ torch.ones(2, 2) if a.device.type == "cpu" else None)
    for t in world.more:
        out = out + t.float().sum()
    a.add_(1) if world.write and not a.requires_grad and a.dtype is torch.float32 else None
    return (out if out.device.type != "meta" else out.shape), facts, b.reshape(-1).float().sum(), world.options.get("k")


class Kind(abc.ABC):
    """Others are registered with it."""


@typing.runtime_checkable
class Named(typing.Protocol):
    name: Any


class Meta(type):
    level: Any = 2

    @property
    def doubled(cls) -> Any:
        return cls.level * 2

    def __getattr__(cls, name: str) -> Any:
        if name == "made_up":
            return 0.5
        raise AttributeError(name)

    def __len__(cls) -> int:
        return 3


class First:
    def weight(self) -> Any:
        return 1.0


class Second:
    def weight(self) -> Any:
        return 4.0


class Scaled:
    """A descriptor."""

    factor: Any = 1.5

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self.factor


class Thing(First, metaclass=Meta):
    scaled = Scaled()

    def weight(self) -> Any:
        return super().weight() + 0.5


class Other:
    pass


@functools.singledispatch
def dispatched(value: Any) -> Any:
    return 1.0


CALLS: Any = [1.0]


@functools.lru_cache
def cached(n: Any) -> Any:
    return CALLS[0] + n


THING = Thing()
REFERENCE = weakref.ref(THING)
BEHIND: dict[str, Any] = {"one": 1.0}
VIEW = types.MappingProxyType(BEHIND)
LOCAL = threading.local()
LOCAL.rate = 1.5
VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("VARIABLE", default=0.5)
IMPORTED = types.ModuleType(f"{__name__}_imported")
IMPORTED.value = 2.0  # type: ignore[attr-defined]
sys.modules[IMPORTED.__name__] = IMPORTED
exec(f"def read():\n    import {IMPORTED.__name__} as found\n    return found.value", globals())


def library(world: Any) -> Any:
    """What classes, metaclasses, caches and views of the standard library say."""
    thing = THING
    y = world.x * thing.weight() + thing.scaled + Thing.doubled + Thing.made_up + len(Thing)
    y = y + (1 if isinstance(thing, Kind) else 2) + (4 if isinstance(thing, Named) else 8)
    y = y + (16 if isinstance(thing, Second) else 32) + (64 if issubclass(Thing, (Other, Second)) else 128)
    y = y + dispatched(thing) + cached(2) + VIEW["one"] + len(VIEW)
    y = y + len(dispatched.__name__) + len(Thing.__name__) + len(Thing.__mro__) + len(helper.__doc__ or "")
    y = (
        y
        + globals()["read"]()
        + len(vars(Thing))
        + VARIABLE.get()
        + LOCAL.rate
        + (0 if REFERENCE() is None else REFERENCE().weight())
    )
    return y, Thing.__qualname__, helper.__name__, [b.__name__ for b in Thing.__bases__]


ENTRIES: dict[str, Callable[[Any], Any]] = {
    e.__name__: e for e in (modules, containers, objects, functions, library, tensors)
}
