"""Changes of what the standard library keeps: registries, caches, views, names, bases, metaclasses."""

# mypy: allow-untyped-calls

from __future__ import annotations

import random
import sys
import types
from typing import Any

from staleness_registry import TAME, mutation


@mutation("library")
def bases(w: Any, r: random.Random) -> None:
    m = w.m
    m.Thing.__bases__ = r.choice([(m.First,), (m.Second,), (m.Second, m.First), (m.First, m.Second)])


@mutation("library")
def inherited_method(w: Any, r: random.Random) -> None:
    owner, weight = r.choice([w.m.First, w.m.Second]), r.choice(TAME)
    owner.weight = lambda self: weight


@mutation("library")
def registered(w: Any, r: random.Random) -> None:
    """For good: an abstract class forgets nothing."""
    if r.random() < 0.2:
        w.m.Kind.register(r.choice([w.m.Thing, w.m.Other, w.m.First]))


@mutation("library")
def protocol(w: Any, r: random.Random) -> None:
    owner = r.choice([w.m.THING, w.m.Thing])
    if "name" in vars(owner):
        del owner.name
    else:
        owner.name = "thing"


@mutation("library")
def metaclass(w: Any, r: random.Random) -> None:
    m, number = w.m, r.choice([1, 2, 5])
    r.choice(
        [
            lambda: setattr(m.Meta, "level", number),
            lambda: setattr(m.Meta, "doubled", property(lambda cls: number)),
            lambda: setattr(m.Meta, "__getattr__", lambda cls, name: number),
            lambda: setattr(m.Meta, "__len__", lambda cls: number),
            lambda: setattr(m.Thing, "level", number),
            lambda: setattr(m.Thing, "made_up", number),
            lambda: delattr(m.Thing, "made_up"),
        ]
    )()


@mutation("library")
def descriptor(w: Any, r: random.Random) -> None:
    m, number = w.m, r.choice(TAME)
    r.choice(
        [
            lambda: setattr(m.Scaled, "factor", number),
            lambda: setattr(m.Scaled, "__get__", lambda self, instance, owner=None: number),
            lambda: setattr(m.Scaled, "__set__", lambda self, instance, value: None),
            lambda: delattr(m.Scaled, "__set__"),
            lambda: m.THING.__dict__.update(scaled=number),
            lambda: m.THING.__dict__.pop("scaled", None),
        ]
    )()


@mutation("library")
def dispatch(w: Any, r: random.Random) -> None:
    number = r.choice(TAME)
    w.m.dispatched.register(r.choice([object, w.m.Thing, w.m.First, w.m.Kind]))(lambda value: number)


@mutation("library")
def cache(w: Any, r: random.Random) -> None:
    w.m.CALLS[0] = r.choice(TAME)
    if r.random() < 0.5:
        w.m.cached.cache_clear()


@mutation("library")
def behind_a_view(w: Any, r: random.Random) -> None:
    m = w.m
    r.choice(
        [
            lambda: m.BEHIND.update(one=r.choice(TAME)),
            lambda: m.BEHIND.update(two=r.choice(TAME)),
            lambda: m.BEHIND.pop("two", None),
            lambda: setattr(m, "VIEW", types.MappingProxyType({"one": r.choice(TAME)})),
            lambda: setattr(m, "VIEW", types.MappingProxyType(m.BEHIND)),
        ]
    )()


@mutation("library")
def names(w: Any, r: random.Random) -> None:
    m, name = w.m, r.choice(["one", "three", "twenty"])
    r.choice(
        [
            lambda: setattr(m.Thing, "__name__", name),
            lambda: setattr(m.Thing, "__qualname__", name),
            lambda: setattr(m.dispatched, "__name__", name),
            lambda: setattr(m.helper, "__name__", name),
            lambda: setattr(m.helper, "__doc__", r.choice([None, name])),
            lambda: setattr(m.Second, "__name__", name),
        ]
    )()


@mutation("library")
def imported(w: Any, r: random.Random) -> None:
    module = w.m.IMPORTED if r.random() < 0.5 else types.ModuleType(w.m.IMPORTED.__name__)
    module.value = r.choice(TAME)
    sys.modules[w.m.IMPORTED.__name__] = module


@mutation("library")
def state_of_the_thread(w: Any, r: random.Random) -> None:
    r.choice([lambda: setattr(w.m.LOCAL, "rate", r.choice(TAME)), lambda: w.m.VARIABLE.set(r.choice(TAME))])()


@mutation("library")
def weakly_held(w: Any, r: random.Random) -> None:
    """The old object dies; the reference says so, or leads to the new one."""
    w.m.THING = w.m.Thing()
    if r.random() < 0.5:
        w.m.REFERENCE = w.m.weakref.ref(w.m.THING)
