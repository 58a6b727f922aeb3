"""Changes of arguments, and of the state of the thread."""

# mypy: allow-untyped-calls

from __future__ import annotations

import random
from typing import Any

import torch
from staleness_registry import mutation
from torch import nn


@mutation("modules", "containers", "objects", "functions", "tensors")
def input_shape(w: Any, r: random.Random) -> None:
    w.x = torch.linspace(-1, 1, 3 * (rows := r.choice([2, 4, 5]))).reshape(rows, 3)


@mutation("modules", "containers", "objects", "functions")
def input_grad(w: Any, r: random.Random) -> None:
    w.x = w.x.detach().clone().requires_grad_(r.random() < 0.5)


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


if torch.accelerator.is_available():

    @mutation("tensors")
    def device(w: Any, r: random.Random) -> None:
        """Another device, or the same kind with another index where there are several."""
        kind = torch.accelerator.current_accelerator().type
        places = [torch.device("cpu"), *(torch.device(kind, i) for i in range(torch.accelerator.device_count()))]
        w.x = w.x.detach().to(r.choice(places))
        w.y = w.y.detach().to(w.x.device if r.random() < 0.7 else r.choice(places))
