"""Changes of objects and of functions."""

# mypy: allow-untyped-calls

from __future__ import annotations

import random
import types
from typing import Any

import torch
import torch.nn.functional as F
from staleness_registry import NUMBERS, TAME, mutation


@mutation("objects")
def object_attribute(w: Any, r: random.Random) -> None:
    m = w.m
    name, obj = r.choice(
        [
            ("hidden", m.CONFIG), ("first", m.SLOTTED), ("second", m.SLOTTED), ("base", m.MEASURED),
            ("gain", m.NAMESPACE), ("level", m.NAMESPACE.inner), ("bonus", m.CONFIG),
        ]
    )  # fmt: skip
    setattr(obj, name, r.choice(NUMBERS))


@mutation("objects")
def object_other(w: Any, r: random.Random) -> None:
    m = w.m
    r.choice(
        [
            lambda: setattr(m.CONFIG, "rates", (r.choice(TAME), 1)),
            lambda: setattr(m.CONFIG, "rates", [r.choice(TAME), 1]),
            lambda: setattr(m.CONFIG, "act", r.choice(["relu", "sin"])),
            lambda: m.CONFIG.table.update(k=r.choice(TAME)),
            lambda: setattr(m.CONFIG, "table", {"k": r.choice(TAME)}),
            lambda: setattr(m.CONFIG, "tensor", r.choice([None, torch.ones(3), torch.ones(1)])),
            lambda: m.CONFIG.__dict__.pop("bonus", None),
            lambda: m.MEASURED.fields.update(z=r.choice(TAME)),
            lambda: m.MEASURED.fields.pop("z", None),
            lambda: setattr(m.MEASURED, "fields", {"z": r.choice(TAME), "w": 1}),
            lambda: setattr(m.NAMESPACE, "name", r.choice(["space", "other"])),
            lambda: setattr(m.NAMESPACE, "inner", types.SimpleNamespace(level=r.choice(TAME))),
            lambda: m.NAMESPACE.__dict__.update(gain=r.choice(TAME)),
            lambda: setattr(w.measured, "base", r.choice(TAME)),
            lambda: setattr(w, "measured", r.choice([m.MEASURED, m.Measured(), m.Slotted()])),
        ]
    )()


@mutation("objects")
def object_replaced(w: Any, r: random.Random) -> None:
    m = w.m
    name, cls = r.choice([("CONFIG", m.Config), ("SLOTTED", m.Slotted), ("MEASURED", m.Measured)])
    setattr(m, name, None)
    setattr(m, name, cls())


@mutation("objects")
def object_dict_replaced(w: Any, r: random.Random) -> None:
    m = w.m
    obj = r.choice([m.CONFIG, m.MEASURED])
    obj.__dict__ = {**obj.__dict__, "base": r.choice(TAME), "hidden": r.choice(TAME)}


@mutation("objects")
def object_class(w: Any, r: random.Random) -> None:
    m = w.m
    r.choice(
        [
            lambda: setattr(m.Measured, "rate", r.choice(TAME)),
            lambda: setattr(m.Measured, "doubled", property(lambda self: 7.0)),
            lambda: setattr(m.Measured, "doubled", w.keep["doubled"]),
            lambda: setattr(m.Measured, "doubled", 4.5),
            lambda: setattr(m.Measured, "__call__", lambda self, x: x - self.base),
            lambda: setattr(m.Measured, "__call__", w.keep["call"]),
            lambda: setattr(m.Measured, "__len__", lambda self: 11),
            lambda: setattr(m.Measured, "__len__", w.keep["len"]),
            lambda: setattr(m.Measured, "__eq__", lambda self, other: False),
            lambda: setattr(m.Measured, "__eq__", w.keep["eq"]),
            lambda: setattr(m.Measured, "__getattr__", lambda self, name: 0.25),
            lambda: setattr(m.Measured, "__getattr__", w.keep["getattr"]),
            lambda: setattr(m.MEASURED, "__class__", w.sub_measured),
            lambda: setattr(m.MEASURED, "__class__", m.Measured),
            lambda: setattr(m.Config, "hidden_default", 1),
            lambda: setattr(w.sub_measured, "rate", r.choice(TAME)),
            lambda: delattr(w.sub_measured, "rate") if "rate" in w.sub_measured.__dict__ else None,
        ]
    )()


@mutation("objects")
def object_bases(w: Any, r: random.Random) -> None:
    w.sub_measured.__bases__ = r.choice([(w.m.Measured,), (w.mixin, w.m.Measured)])


def scaled(x: Any, k: Any = 2.5, *, bias: Any = 0.0) -> Any:
    return x * k - bias


@mutation("functions")
def code_or_defaults(w: Any, r: random.Random) -> None:
    h = w.m.helper
    r.choice(
        [
            lambda: setattr(h, "__code__", w.m.other_helper.__code__),
            lambda: setattr(h, "__code__", w.keep["helper"]),
            lambda: setattr(h, "__defaults__", (r.choice(TAME),)),
            lambda: setattr(h, "__kwdefaults__", {"bias": r.choice(TAME)}),
            lambda: h.__kwdefaults__.update(bias=r.choice(TAME)),
            lambda: setattr(w.m, "helper", r.choice([scaled, w.m.other_helper, h])),
        ]
    )()


@mutation("functions")
def compiled_function(w: Any, r: random.Random) -> None:
    """The function that was given to `torchjit.compile`."""
    f = w.m.functions
    r.choice(
        [
            lambda: setattr(f, "__defaults__", (r.choice(TAME),)),
            lambda: setattr(f, "__kwdefaults__", {"lift": r.choice(TAME)}),
            lambda: f.__kwdefaults__.update(lift=r.choice(TAME)),
            lambda: setattr(f, "__code__", w.m.other_functions.__code__),
            lambda: setattr(f, "__code__", w.keep["functions"]),
        ]
    )()


@mutation("functions")
def closure_cell(w: Any, r: random.Random) -> None:
    c = w.m.CLOSURE
    r.choice(
        [
            lambda: c.change(r.choice(NUMBERS), {"c": r.choice(TAME)}),
            lambda: c.change(r.choice(TAME), {"c": r.choice(TAME), "late": 1}),
            lambda: c.change(torch.full((1,), 2.0), {"c": torch.ones(())}),
            lambda: setattr(c.__closure__[0], "cell_contents", r.choice(TAME)),
            lambda: setattr(w.m, "CLOSURE", w.m.make_closure(r.choice(TAME))),
            lambda: c.change(1.0, {"c": 1.0}),
        ]
    )()


@mutation("functions")
def empty_cell(w: Any, r: random.Random) -> None:
    try:
        w.m.CLOSURE.empty()
    except (UnboundLocalError, NameError):
        w.m.CLOSURE.change(2.0, {"c": 1.0})


@mutation("functions")
def other_callables(w: Any, r: random.Random) -> None:
    m = w.m
    r.choice(
        [
            lambda: setattr(w, "inner", m.make_closure(r.choice(TAME))),
            lambda: w.inner.change(r.choice(TAME), {"c": 2.0}),
            # not what `torch_function_patched` patches: torch.fx writes the name of a function into the graph's code
            lambda: setattr(w, "inner", r.choice([torch.tanh, torch.relu, F.silu])),
            lambda: setattr(w, "inner", m.make_closure(2.0)),
            lambda: m.PARTIAL.keywords.update(k=r.choice(TAME)),
            lambda: setattr(m, "PARTIAL", type(m.PARTIAL)(r.choice([m.helper, scaled]), k=r.choice(TAME))),
            lambda: setattr(m.wrapped, "weight", r.choice(TAME)),
            lambda: setattr(
                m.wrapped.__wrapped__, "__code__", r.choice([(lambda x: x - 2).__code__, w.keep["wrapped"]])
            ),
            lambda: setattr(w.holder, "weight", r.choice(TAME)),
            lambda: w.holder.__dict__.pop("weight", None),
            lambda: setattr(m.Holder, "weight", r.choice(TAME)),
            lambda: setattr(m.Holder, "method", r.choice([lambda self, y: y + self.weight, w.keep["method"]])),
            lambda: setattr(w, "method", w.holder.method),
            lambda: setattr(w, "method", m.Holder().method),
        ]
    )()


@mutation("functions")
def torch_function_patched(w: Any, r: random.Random) -> None:
    """Patched in torch itself: the driver patches around the calls of both worlds."""
    w.ambient["patch"] = r.choice([None, None, "softplus", "sigmoid"])
