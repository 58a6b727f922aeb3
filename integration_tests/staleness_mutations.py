"""What a world can suffer: one function per kind of change, each `(world, random)`.

Both worlds of a pair suffer the same changes with equally seeded random numbers; only one of them is compiled.
"""

from __future__ import annotations

import collections
import copy
import gc
import random
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Mutation = Callable[[Any, random.Random], None]
MUTATIONS: dict[str, list[Mutation]] = {}

NUMBERS = (0, 1, 2, 3, -1, 2.0, 0.5, 0.0, -0.0, 1.0, True, False, 1e300, float("nan"), float("inf"), 2**70, 5, 7, 3.5)
TAME = (1, 2, 2.0, 0.5, 3, True, -1.5, 4.0, 1.0)


def mutation(*entries: str) -> Callable[[Mutation], Mutation]:
    """Register a change that matters to these entries."""

    def add(fn: Mutation) -> Mutation:
        for entry in entries:
            MUTATIONS.setdefault(entry, []).append(fn)
        return fn

    return add


def block(w: Any, r: random.Random) -> Any:
    found = [b for b in w.net.blocks if isinstance(b, w.m.Block)]
    return r.choice(found) if found else w.m.Block(3)


# ---------------------------------------------------------------------- modules
@mutation("modules")
def train_or_eval(w: Any, r: random.Random) -> None:
    r.choice([w.net, block(w, r), block(w, r).norm, block(w, r).drop]).train(r.random() < 0.4)


@mutation("modules")
def training_flag(w: Any, r: random.Random) -> None:
    block(w, r).drop.training = r.random() < 0.3


@mutation("modules")
def plain_attribute(w: Any, r: random.Random) -> None:
    setattr(block(w, r), r.choice(["_gain", "mode", "bonus"]), r.choice([*TAME, "plain", "other"]))


@mutation("modules")
def attribute_through_dict(w: Any, r: random.Random) -> None:
    members = block(w, r).__dict__
    key = r.choice(["_gain", "mode", "bonus", "factor"])
    r.choice(
        [
            lambda: members.__setitem__(key, r.choice(TAME)),
            lambda: members.update({key: r.choice(TAME)}),
            lambda: members.pop(key, None) if key in ("bonus", "factor") else None,
            lambda: members.setdefault(key, r.choice(TAME)),
        ]
    )()


@mutation("modules")
def replace_dict(w: Any, r: random.Random) -> None:
    b = block(w, r)
    members = dict(b.__dict__)
    members["_gain"] = r.choice(TAME)
    object.__setattr__(b, "__dict__", members)


@mutation("modules")
def replace_nested_dict(w: Any, r: random.Random) -> None:
    b = block(w, r)
    name = r.choice(["_parameters", "_buffers", "_modules", "_forward_pre_hooks", "_forward_hooks"])
    held = b.__dict__[name]
    b.__dict__[name] = type(held)(held)


@mutation("modules")
def delete_attribute(w: Any, r: random.Random) -> None:
    b = block(w, r)
    name = r.choice(["bonus", "bonus", "extra", "late", "mode"])
    if r.random() < 0.5:
        b.extra = {"scale": 1.0, "keys": []}
        b.mode = "plain"
        if "late" not in b._parameters:
            b.register_parameter("late", None)
    elif name in b.__dict__ or name in b._parameters:
        delattr(b, name)


@mutation("modules")
def class_attribute(w: Any, r: random.Random) -> None:
    cls = r.choice([w.m.Base, w.m.Block])
    name = r.choice(["factor", "unused"])
    if r.random() < 0.3 and cls is w.m.Block and name in cls.__dict__:
        delattr(cls, name)
    else:
        setattr(cls, name, r.choice(TAME))


@mutation("modules")
def patch_method(w: Any, r: random.Random) -> None:
    cls = r.choice([w.m.Base, w.m.Block])
    choices = {
        "act": [lambda self, x: torch.sigmoid(x), lambda self, x: x.tanh(), w.keep["act"]],
        "shift": [staticmethod(lambda x: x - 1), staticmethod(lambda x: x * 2), w.keep["shift"]],
        "kind": [classmethod(lambda c: 3.0), classmethod(lambda c: c.factor * 2), w.keep["kind"]],
        "gain": [property(lambda self: 0.25), property(lambda self: self._gain), w.keep["gain"]],
        "forward": [lambda self, x, boost=1.0: self.linear(x) * boost, w.keep["forward"], w.keep["forward"]],
    }
    name = r.choice(list(choices))
    if name == "forward":
        cls = w.m.Block
    setattr(cls, name, r.choice(choices[name]))


@mutation("modules")
def shadow_method(w: Any, r: random.Random) -> None:
    b = block(w, r)
    if "act" in b.__dict__:
        del b.act
    else:
        b.act = r.choice([torch.sigmoid, torch.relu, lambda x: x * 3])


@mutation("modules")
def shadow_forward(w: Any, r: random.Random) -> None:
    b = block(w, r)
    if "forward" in b.__dict__:
        del b.forward
    else:
        b.forward = lambda x, boost=1.0: x * boost


@mutation("modules")
def swap_module(w: Any, r: random.Random) -> None:
    b = block(w, r)
    name = r.choice(["linear", "norm", "drop"])
    new = {
        "linear": [lambda: nn.Linear(3, 3), lambda: nn.Linear(3, 3, bias=False), nn.Identity],
        "norm": [
            lambda: nn.BatchNorm1d(3),
            lambda: nn.LayerNorm(3),
            nn.Identity,
            lambda: nn.BatchNorm1d(3, affine=False),
        ],
        "drop": [lambda: nn.Dropout(r.choice([0.1, 0.5])), nn.Identity],
    }[name]
    torch.manual_seed(r.randrange(5))
    setattr(b, name, r.choice(new)())


@mutation("modules")
def change_module_list(w: Any, r: random.Random) -> None:
    torch.manual_seed(r.randrange(5))
    blocks = w.net.blocks
    kind = r.randrange(5)
    if kind == 0 and len(blocks) < 4:
        blocks.append(w.m.Block(3))
    elif kind == 1 and len(blocks) > 1:
        del blocks[-1]
    elif kind == 2:
        blocks[0] = w.m.Block(3)
    elif kind == 3:
        w.net.blocks = nn.ModuleList(reversed(list(blocks)))
    else:
        blocks[0] = blocks[-1]


@mutation("modules")
def change_module_dict(w: Any, r: random.Random) -> None:
    torch.manual_seed(r.randrange(5))
    named = w.net.named
    r.choice(
        [
            lambda: named.update({"head": nn.Linear(3, 3)}),
            lambda: named.update({"mid": nn.Tanh()}),
            lambda: named.pop("mid") if "mid" in named else None,
            lambda: named._modules.update(tail=nn.ReLU()),
            lambda: setattr(named, "_modules", dict(reversed(list(named._modules.items())))),
        ]
    )()


@mutation("modules")
def change_sequential(w: Any, r: random.Random) -> None:
    stack = w.net.stack
    r.choice(
        [
            lambda: stack.append(nn.ReLU()) if len(stack) < 5 else stack.pop(-1),
            lambda: stack.__setitem__(1, r.choice([nn.GELU, nn.SiLU, nn.ReLU])()),
            lambda: setattr(stack[1], "approximate", "tanh"),
            lambda: setattr(stack[2], "eps", r.choice([1e-5, 0.5])),
        ]
    )()


@mutation("modules")
def module_settings(w: Any, r: random.Random) -> None:
    b = block(w, r)
    b.drop.__dict__["p"] = r.choice([0.1, 0.3, 0.9])
    if isinstance(b.norm, nn.BatchNorm1d):
        b.norm.momentum = r.choice([0.1, 0.5, None])
        b.norm.eps = r.choice([1e-5, 1e-1])
        b.norm.track_running_stats = r.random() < 0.8


@mutation("modules")
def hooks(w: Any, r: random.Random) -> None:
    target = r.choice([w.net, block(w, r), block(w, r).linear])
    if w.handles and r.random() < 0.5:
        w.handles.pop().remove()
        return
    factor = r.choice([2.0, 3.0])
    kind = r.randrange(6)
    if kind == 0:
        handle = target.register_forward_pre_hook(lambda m, args: tuple(a * factor for a in args))
    elif kind == 1 and target is not w.net:
        handle = target.register_forward_hook(lambda m, args, out: out * factor)
    elif kind == 2:
        handle = target.register_forward_pre_hook(lambda m, args, kw: (args, kw), with_kwargs=True)
    elif kind == 3:
        handle = target.register_full_backward_hook(lambda m, into, out: None)
    elif kind == 4:
        handle = r.choice(list(w.net.parameters())).register_hook(lambda g: g * factor)  # a tensor's, run by backward
    else:
        handle = target.register_forward_hook(lambda m, args, out: None)
    w.handles.append(handle)


@mutation("modules")
def global_hook(w: Any, r: random.Random) -> None:
    """Hooks of all modules are the process's: the driver registers them around the calls of both worlds."""
    w.ambient["module_hook"] = r.random() < 0.3


@mutation("modules")
def parameter_data(w: Any, r: random.Random) -> None:
    p = r.choice(list(w.net.parameters()))
    with torch.no_grad():
        r.choice([lambda: p.mul_(0.5), lambda: setattr(p, "data", p.data + 1), lambda: p.data.add_(1)])()


@mutation("modules")
def parameter_replaced(w: Any, r: random.Random) -> None:
    b = block(w, r)
    choices = [
        lambda: setattr(b, "late", nn.Parameter(torch.full((3,), r.choice([1.0, 2.0])))),
        lambda: setattr(b, "late", None),
        lambda: setattr(b, "offset", torch.full((3,), r.choice([1.0, 2.0]))),
        lambda: b._buffers.update(offset=torch.ones(1, 3)),
        lambda: setattr(w.net, "plain", torch.full((3,), 4.0)),
        lambda: setattr(w.net.rows, "0", nn.Parameter(torch.ones(3))),
        lambda: w.net.rows.append(nn.Parameter(torch.ones(3))) if len(w.net.rows) < 3 else None,
        lambda: setattr(b, "offset", b.offset.expand(2, 3)) if b.offset.dim() == 1 else None,
    ]
    r.choice(choices)()


@mutation("modules")
def parameter_grad_flag(w: Any, r: random.Random) -> None:
    r.choice(list(w.net.parameters())).requires_grad_(r.random() < 0.5)


@mutation("modules")
def parameter_dtype(w: Any, r: random.Random) -> None:
    dtype = r.choice([torch.float64, torch.float32])
    w.net.to(dtype)
    w.x = w.x.detach().to(dtype)


@mutation("modules")
def one_parameter_dtype(w: Any, r: random.Random) -> None:
    b = block(w, r)
    b.offset.data = b.offset.data.to(r.choice([torch.float64, torch.float32]))


@mutation("modules")
def shared_parameters(w: Any, r: random.Random) -> None:
    a, b = block(w, r), block(w, r)
    if isinstance(a.linear, nn.Linear) and isinstance(b.linear, nn.Linear):
        r.choice([lambda: setattr(a.linear, "weight", b.linear.weight), lambda: setattr(a, "linear", b.linear)])()


@mutation("modules")
def nested_container(w: Any, r: random.Random) -> None:
    b = block(w, r)
    r.choice(
        [
            lambda: b.extra.update(scale=r.choice(TAME)),
            lambda: b.extra.update(keys=[1] * r.randrange(4)),
            lambda: b.extra["keys"].append(1) if "keys" in b.extra else None,
            lambda: setattr(b, "extra", {"scale": r.choice(TAME), "keys": []}),
            lambda: b.steps.append(r.choice(TAME)) if len(b.steps) < 5 else b.steps.clear(),
            lambda: b.steps.__setitem__(0, r.choice(TAME)) if b.steps else None,
            lambda: setattr(b, "steps", tuple(b.steps)[:4]),
            lambda: setattr(b, "steps", list(b.steps)[:4]),
            lambda: setattr(b.options, "hidden", r.choice(TAME)),
        ]
    )()


@mutation("modules")
def change_class(w: Any, r: random.Random) -> None:
    b = block(w, r)
    b.__class__ = r.choice([w.m.Block, w.sub_block])


@mutation("modules")
def whole_module(w: Any, r: random.Random) -> None:
    """The old one dies, and its addresses may be used again."""
    if r.random() < 0.5:
        w.net = copy.deepcopy(w.net)
        w.handles.clear()
    else:
        torch.manual_seed(r.randrange(5))
        w.net = w.m.Net()
        w.handles.clear()
    if r.random() < 0.2:
        gc.collect(1)


@mutation("modules", "containers", "objects", "functions", "tensors")
def input_shape(w: Any, r: random.Random) -> None:
    w.x = torch.linspace(-1, 1, 3 * (rows := r.choice([2, 4, 5]))).reshape(rows, 3)


@mutation("modules", "containers", "objects", "functions")
def input_grad(w: Any, r: random.Random) -> None:
    w.x = w.x.detach().clone().requires_grad_(r.random() < 0.5)


# ---------------------------------------------------------------------- globals and containers
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


# ---------------------------------------------------------------------- objects
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


# ---------------------------------------------------------------------- functions
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


# ---------------------------------------------------------------------- tensors
@mutation("tensors")
def new_input(w: Any, r: random.Random) -> None:
    name = r.choice(["x", "y"])
    base = torch.arange(24.0) / 5
    made = r.choice(
        [
            lambda: base[:6].reshape(2, 3), lambda: base[:6].reshape(3, 2).t(), lambda: base[1:7].reshape(2, 3),
            lambda: base.as_strided((2, 3), (4, 1)), lambda: base[:3].expand(2, 3), lambda: base[:1].reshape(()),
            lambda: base[:0].reshape(0, 3), lambda: base[:12].reshape(2, 2, 3), lambda: base[:6].reshape(2, 3).to("meta"),
            lambda: base[:6].reshape(2, 3).double(), lambda: base[:6].reshape(2, 3).to(torch.bfloat16),
            lambda: base[:6].reshape(2, 3).int(), lambda: nn.Parameter(base[:6].reshape(2, 3).clone()),
            lambda: base[:6].reshape(2, 3).clone().requires_grad_(), lambda: base[:6].reshape(2, 3).clone().requires_grad_() * 2,
            lambda: torch.ones(2, 3, dtype=torch.complex64).real, lambda: base[:6].reshape(2, 3).bool(),
            lambda: base[:6].reshape(1, 1, 1, 1, 2, 3), lambda: base[:6].reshape(1, 1, 1, 1, 3, 2).transpose(4, 5),
        ]
    )()  # fmt: skip
    setattr(w, name, made)


@mutation("tensors")
def odd_input(w: Any, r: random.Random) -> None:
    base = torch.arange(6.0).reshape(2, 3)
    w.y = r.choice(
        [
            lambda: base.clone().as_subclass(w.subclass), lambda: base[0] + 1, lambda: base.clone(),
            lambda: torch.nn.Buffer(base.clone()), lambda: torch._neg_view(base),
        ]
    )()  # fmt: skip


@mutation("tensors")
def alias(w: Any, r: random.Random) -> None:
    r.choice(
        [
            lambda: setattr(w, "y", w.x), lambda: setattr(w, "y", w.x.detach()), lambda: setattr(w, "y", w.x.clone().detach()),
            lambda: setattr(w, "more", [w.x, w.x]), lambda: setattr(w, "more", [w.x, w.y]),
            lambda: setattr(w, "more", [torch.ones(2)]), lambda: setattr(w, "more", (torch.ones(2), w.x)),
            lambda: setattr(w, "more", []),
            lambda: setattr(w, "y", w.x.reshape(-1)) if w.x.is_contiguous() else None,
        ]
    )()  # fmt: skip


@mutation("tensors")
def in_place_metadata(w: Any, r: random.Random) -> None:
    t = r.choice([w.x, w.y])
    if not t.is_leaf or type(t) not in (torch.Tensor, nn.Parameter):
        return
    plain = t.device.type == "cpu" and t.is_floating_point()
    r.choice(
        [
            lambda: t.requires_grad_(r.random() < 0.5) if t.is_floating_point() else None,
            lambda: setattr(t, "data", torch.ones(2, 3)) if plain else None,
            lambda: setattr(t, "data", torch.ones(3, 2).t()) if plain else None,
            lambda: setattr(t, "data", t.data.double()) if plain else None,
            lambda: setattr(t, "data", t.data.to("meta")) if plain and not t.requires_grad else None,
            lambda: t.data.mul_(2) if plain and t.is_contiguous() else None,
            lambda: t.detach_() if not t._is_view() else None,
            lambda: t.resize_(3, 3).fill_(1.0) if plain and not t.requires_grad and not t._is_view() else None,
            lambda: t.as_strided_((2, 2), (1, 1)) if plain and not t.requires_grad and t.numel() >= 4 else None,
            lambda: t.t_() if t.dim() == 2 and not t.requires_grad else None,
            lambda: t.squeeze_() if not t.requires_grad else None,
            lambda: setattr(t, "grad", torch.ones_like(t)) if t.requires_grad else None,
            lambda: setattr(t, "mark", 1),
        ]
    )()


@mutation("tensors")
def write_and_options(w: Any, r: random.Random) -> None:
    r.choice(
        [
            lambda: setattr(w, "write", not w.write),
            lambda: w.options.update(k=r.choice([1, 1.0, True, "s", None])),
            lambda: w.options.pop("k", None),
            lambda: setattr(w, "options", dict(w.options)),
            lambda: setattr(w, "options", {}),
        ]
    )()


@mutation("modules", "tensors", "containers", "functions")
def ambient(w: Any, r: random.Random) -> None:
    """State of the thread: the driver switches it on around the calls."""
    kind = r.randrange(7)
    if kind == 0:
        w.ambient["grad"] = r.random() < 0.5
    elif kind == 1:
        w.ambient["inference"] = r.random() < 0.3
    elif kind == 2:
        w.ambient["autocast"] = r.choice([None, None, torch.bfloat16, torch.float16])
    elif kind == 3:
        w.ambient["default_dtype"] = r.choice([torch.float32, torch.float32, torch.float64])
    elif kind == 4:
        w.ambient["default_device"] = r.choice([None, None, "cpu", "meta"])
    elif kind == 5:
        w.ambient["function_mode"] = r.random() < 0.2
    else:
        w.ambient["deterministic"] = r.random() < 0.3
