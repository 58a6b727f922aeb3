"""Snapshots of programs that read tensors inside objects: each change of a tensor in place is seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torchjit_core.guards import Different, Guard, SymbolicCondition, TensorMatches  # noqa: E402
from torchjit_core.paths import AccessPath, Arg  # noqa: E402
from torchjit_guards import GuardProgram  # noqa: E402
from torchjit_guards.torch_support import dispatch_keys  # noqa: E402

X = Arg.of(0, "x")
W, V = X.instance_attr("weight"), X.instance_attr("view")


class Holder:
    """What a module is to a guard program."""

    def __init__(self) -> None:
        self.weight: Any = torch.nn.Parameter(torch.ones(4, 6))
        base = torch.ones(40)
        self.view: Any = base[:24].view(4, 6)
        self.wide: Any = torch.ones(2, 1, 2, 1, 3, 2)


def matches(path: AccessPath, t: Any, leaf: bool | None = None) -> TensorMatches:
    return TensorMatches(
        path, type(t), t.dtype, t.device, t.requires_grad, tuple(t.shape), tuple(t.stride()), int(t.storage_offset()),
        dispatch_keys(t).raw_repr(), leaf,
    )  # fmt: skip


def made(holder: Holder) -> tuple[list[Guard], list[AccessPath], GuardProgram]:
    wide = X.instance_attr("wide")
    guards: list[Guard] = [
        matches(W, holder.weight),
        matches(V, holder.view, leaf=True),
        matches(wide, holder.wide),
        Different((W, V, wide), storages=True),
        SymbolicCondition("a < b", (("a", V.size(0)), ("b", W.size(1)))),
    ]
    gather = [W, V, V.size(1), wide.stride(0)]
    return guards, gather, GuardProgram(guards, gather, 1)


def definition(guards: list[Guard], holder: Holder) -> bool:
    try:
        keys = all(
            guard.key_set == dispatch_keys(guard.path.resolve((holder,))).raw_repr()
            for guard in guards
            if isinstance(guard, TensorMatches)
        )
        return keys and all(guard.check((holder,)) for guard in guards)
    except (RuntimeError, AttributeError):
        return False


def in_place_of(holder: Holder) -> dict[str, Callable[[], Any]]:
    w, v = holder.weight, holder.view

    def alias() -> None:
        holder.view.set_(w.detach())

    def becomes_result() -> None:
        v.mul_(torch.ones(6, requires_grad=True))

    def base_wants_grad() -> None:
        v._base.mul_(torch.ones(40, requires_grad=True))

    return {
        "nothing": lambda: None,
        "values": lambda: v.add_(1),
        "grad assigned": lambda: setattr(w, "grad", torch.ones(4, 6)),
        "requires_grad_": lambda: w.requires_grad_(False),
        "requires_grad_ on the view": lambda: v.requires_grad_(),
        "data, same": lambda: setattr(w, "data", torch.zeros(4, 6)),
        "data, dtype": lambda: setattr(w, "data", torch.zeros(4, 6, dtype=torch.float64)),
        "data, shape": lambda: setattr(w, "data", torch.zeros(6, 4)),
        "data, strides": lambda: setattr(w, "data", torch.zeros(6, 4).t()),
        "data, dims": lambda: setattr(w, "data", torch.zeros(1, 2, 3, 4, 5, 6, 7)),
        "resize": lambda: holder.wide.resize_(2, 1, 2, 1, 3, 3),
        "wide, flattened": lambda: holder.wide.resize_(24),
        "transposed": lambda: holder.wide.t_() if holder.wide.dim() < 3 else holder.wide.transpose_(0, 4),
        "strided": lambda: v.as_strided_((4, 6), (6, 1), 2),
        "alias": alias,
        "becomes a result": becomes_result,
        "the base wants a gradient": base_wants_grad,
        "replaced by an equal one": lambda: setattr(holder, "view", torch.ones(4, 6)),
        "replaced by a subclass": lambda: setattr(holder, "view", torch.ones(4, 6).as_subclass(_Sub)),
        "replaced by a sparse one": lambda: setattr(holder, "view", torch.ones(4, 6).to_sparse()),
        "replaced by a nested one": lambda: setattr(holder, "view", torch.nested.nested_tensor([torch.ones(2)])),
        "replaced by a meta one": lambda: setattr(holder, "view", torch.ones(4, 6, device="meta")),
        "negated lazily": lambda: setattr(holder, "view", torch._neg_view(torch.ones(4, 6))),
        "type": lambda: setattr(w, "__class__", _Sub),
    }


class _Sub(torch.Tensor):  # type: ignore[misc,name-defined]
    pass


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(in_place_of(Holder())))
def test_every_change_of_a_tensor_is_seen(name: str) -> None:
    holder = Holder()
    guards, gather, program = made(holder)
    for _ in range(3):
        assert program(holder) == (holder.weight, holder.view, 6, 12)
    assert program.snapshot is not None and program.snapshot[2] > 0 and program.snapshot[0] > 20
    in_place_of(holder)[name]()
    want = definition(guards, holder)
    for _ in range(3):
        got = program(holder)
        assert (got is not None) is want
        if got is not None:
            assert got[0] is holder.weight and got[1] is holder.view
            assert got[2:] == (holder.view.size(1), holder.wide.stride(0))


def test_an_input_beside_a_snapshot() -> None:
    """The usual call: a module that stays and a tensor that is new each time, compared with the module's."""
    holder, y = Holder(), Arg.of(1, "y")
    guards: list[Guard] = [matches(W, holder.weight), matches(y, torch.ones(3)), Different((W, V, y), storages=True)]
    program = GuardProgram(guards, [W, y], 2)
    for i in range(100):
        t = torch.ones(3) * i
        got = program(holder, t)
        assert got is not None and got[0] is holder.weight and got[1] is t
    assert program.snapshot is not None and program.snapshot[2] > 90
    assert program(holder, torch.ones(4)) is None
    assert program(holder, holder.weight.detach().view(-1)[:3]) is None, "shares its storage with the weight"
    assert program(holder, torch.ones(3)) is not None
