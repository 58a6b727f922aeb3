"""Changes of modules: attributes, classes, hooks, containers, parameters."""

# mypy: allow-untyped-calls

from __future__ import annotations

import copy
import gc
import random
from typing import Any

import torch
from staleness_registry import TAME, mutation
from torch import nn


def block(w: Any, r: random.Random) -> Any:
    found = [b for b in w.net.blocks if isinstance(b, w.m.Block)]
    return r.choice(found) if found else w.m.Block(3)


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
def patch_how_it_is_called(w: Any, r: random.Random) -> None:
    """What every call and every missing attribute of a module goes through."""
    name = r.choice(["__call__", "__getattr__", "__getattribute__"])
    if name in w.m.Block.__dict__:
        delattr(w.m.Block, name)
        return
    extra = r.choice([0.5, 2.0])
    patched: dict[str, Any] = {
        "__call__": lambda self, x, boost=1.0: self.forward(x, boost=boost) * extra,
        "__getattr__": lambda self, n: extra if n == "bonus" else nn.Module.__getattr__(self, n),
        "__getattribute__": lambda self, n: extra if n == "bonus" else object.__getattribute__(self, n),
    }
    setattr(w.m.Block, name, patched[name])


@mutation("modules")
def submodule_deleted(w: Any, r: random.Random) -> None:
    b = block(w, r)
    if "drop" in b._modules:
        del b.drop
    else:
        b.drop = nn.Dropout(0.3)


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
