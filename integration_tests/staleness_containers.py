"""Changes of globals and of what they hold."""

# mypy: allow-untyped-calls

from __future__ import annotations

import collections
import random
from typing import Any

import torch
from staleness_registry import NUMBERS, TAME, mutation


@mutation("containers")
def global_value(w: Any, r: random.Random) -> None:
    name = r.choice(["SCALE", "COUNT", "FLAG", "MAYBE", "SCALE", "COUNT"])
    setattr(w.m, name, r.choice([*NUMBERS, None] if name in ("MAYBE", "FLAG") else NUMBERS))


@mutation("containers")
def global_name(w: Any, r: random.Random) -> None:
    w.m.NAME = r.choice(["relu", "tanh", "".join(["re", "lu"]), "sig" + "moid"])
    w.m.MODE = r.choice(list(w.m.Mode))


@mutation("containers")
def global_deleted(w: Any, r: random.Random) -> None:
    if "SCALE" in w.m.__dict__:
        del w.m.SCALE
    else:
        w.m.SCALE = r.choice(TAME)


@mutation("containers")
def global_shadows_builtin(w: Any, r: random.Random) -> None:
    if "sum" in w.m.__dict__:
        del w.m.sum
    elif "len" in w.m.__dict__:
        del w.m.len
    elif r.random() < 0.5:
        w.m.sum = lambda it: 100
    else:
        w.m.len = lambda it: 50


@mutation("containers")
def dict_entry(w: Any, r: random.Random) -> None:
    t = w.m.TABLE
    r.choice(
        [
            lambda: t.__setitem__("a", r.choice(NUMBERS)),
            lambda: t.__setitem__("b", r.choice([*NUMBERS, "s", None])),
            lambda: t.__setitem__(7, r.choice(TAME)),
            lambda: t.__setitem__(("t", 1), r.choice(TAME)),
            lambda: t.__setitem__(7.0, r.choice(TAME)),
            lambda: t["nested"]["x"].__setitem__(1, r.choice(NUMBERS)),
            lambda: t["nested"].__setitem__("x", [0, r.choice(TAME)]),
            lambda: t.__setitem__("nested", {"x": (1, r.choice(TAME))}),
            lambda: t.__setitem__("new", 1),
            lambda: t.pop("new", None),
            lambda: t.pop("b", None),
            lambda: setattr(w.m, "TABLE", dict(t)),
            lambda: setattr(w.m, "TABLE", collections.OrderedDict(t)),
            lambda: setattr(w.m, "TABLE", dict(reversed(list(t.items())))),
        ]
    )()


@mutation("containers")
def list_entry(w: Any, r: random.Random) -> None:
    items = w.m.ITEMS
    r.choice(
        [
            lambda: items.__setitem__(0, r.choice(NUMBERS)),
            lambda: items.__setitem__(2, (3, r.choice(NUMBERS))),
            lambda: items[-1].update(deep=r.choice(TAME)),
            lambda: items.insert(1, 9) if len(items) < 6 else items.pop(1),
            lambda: items.reverse() or items.reverse(),
            lambda: setattr(w.m, "ITEMS", list(items)),
            lambda: setattr(w.m, "ITEMS", tuple(items)),
            lambda: setattr(w.m, "ITEMS", [1.0, 2, (3, 4), {"deep": 5}]),
        ]
    )() if isinstance(items, list) else setattr(w.m, "ITEMS", list(items))


@mutation("containers")
def other_containers(w: Any, r: random.Random) -> None:
    m = w.m
    r.choice(
        [
            lambda: m.ORDERED.update(one=r.choice(TAME)),
            lambda: m.ORDERED.update(three=3.0),
            lambda: m.ORDERED.pop("three", None),
            lambda: m.ORDERED.move_to_end(next(iter(m.ORDERED))),
            lambda: m.CHOSEN.add(1) if isinstance(m.CHOSEN, set) else None,
            lambda: m.CHOSEN.discard(1) if isinstance(m.CHOSEN, set) else None,
            lambda: setattr(m, "CHOSEN", frozenset(m.CHOSEN)),
            lambda: setattr(m, "CHOSEN", set(m.CHOSEN)),
            lambda: setattr(m, "FROZEN", frozenset(r.choice(["pq", "q", ""]))),
            lambda: m.DEFAULTED.__setitem__("seen", r.choice(TAME)),
            lambda: m.DEFAULTED.__setitem__("unseen", 1.0),
            lambda: m.DEFAULTED.pop("unseen", None),
            lambda: m.DEFAULTED.pop("seen", None),
        ]
    )()


@mutation("containers")
def global_tensor(w: Any, r: random.Random) -> None:
    m = w.m
    r.choice(
        [
            lambda: setattr(m, "SHARED", torch.arange(float(r.choice([4, 6])))),
            lambda: setattr(m, "SHARED", m.SHARED.double()),
            lambda: setattr(m, "SHARED", m.SHARED.float()),
            lambda: setattr(m.SHARED, "data", m.SHARED.data * 2),
            lambda: setattr(m.SHARED, "data", torch.ones(3, 2, dtype=m.SHARED.dtype)),
            lambda: m.SHARED.requires_grad_(r.random() < 0.5) if m.SHARED.is_leaf else None,
            lambda: setattr(m, "MAYBE", m.SHARED.reshape(-1)[:1]),
            lambda: setattr(m, "MAYBE", 1.5),
            lambda: setattr(m, "SCALE", m.SHARED.reshape(-1)[0]),
        ]
    )()
