"""Guard programs as entries on disk hold them: lowered once, restored without guards, and with the same answers.

`agree` of `test_guards_program` restores every program of that file, too; here are tensors, ambient state and what asks for guards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from torchjit_core.guards import (
    Ambient,
    ClassAttrIs,
    Different,
    Guard,
    IdIs,
    MroIs,
    Predicate,
    SameObject,
    SymbolicCondition,
    TensorMatches,
    TypeIs,
    ValueEquals,
)
from torchjit_core.location import CodeLocation
from torchjit_core.paths import AccessPath, Arg, Pinned
from torchjit_guards import GuardProgram
from torchjit_guards import flat as flat_module
from torchjit_guards.flat import FlatProgram
from torchjit_guards.tensors import tensor_test

if TYPE_CHECKING:
    import numpy as np
    import torch
else:
    np = pytest.importorskip("numpy")
    torch = pytest.importorskip("torch")

from torchjit_guards.torch_support import ambient_guards  # noqa: E402  # imports torch

X, Y = Arg.of(0, "x"), Arg.of(1, "y")


def restored(program: GuardProgram, nslots: int, facts: Callable[[], Any]) -> GuardProgram:
    """The program, by way of what is stored of it."""
    assert program.flat is not None
    flat = object.__new__(FlatProgram)
    flat.__restore_state__(program.flat.__stored_state__())
    return GuardProgram.of_flat(flat, nslots, facts)


def never() -> Any:
    raise AssertionError("a call reads no guards")


class Box:
    limit = 3

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight


@attrs.frozen(eq=False)
class Even(Guard):
    """A class of guards that lowering does not know."""

    path: AccessPath

    def check(self, slots: Any) -> bool:
        return bool(self.path.resolve(slots).size(0) % 2 == 0)


STATE = [0]


def state() -> int:
    return STATE[0]


def is_long(x: torch.Tensor) -> bool:
    return len(x) > 2


def facts_of(x: torch.Tensor, path: AccessPath) -> TensorMatches:
    return TensorMatches(
        path,
        type(x),
        x.dtype,
        x.device,
        x.requires_grad,
        tuple(x.shape),
        tuple(x.stride()),
        int(x.storage_offset()),
        None,
        x.is_leaf,
    )


WEIGHT = X.instance_attr("weight")
GUARDS: dict[str, Callable[[Box, torch.Tensor], list[Guard]]] = {
    "tensors": lambda box, y: [facts_of(box.weight, WEIGHT), facts_of(y, Y)],
    "free sizes": lambda box, y: [TensorMatches(Y, torch.Tensor, y.dtype, y.device, False, (None, 3), None)],
    "identity": lambda box, y: [
        IdIs(WEIGHT, box.weight),
        SameObject(WEIGHT, Pinned.of(box, "box").instance_attr("weight")),
    ],
    "storages": lambda box, y: [Different((WEIGHT, Y), storages=True)],
    "different": lambda box, y: [Different((WEIGHT, Y), storages=False)],
    "classes": lambda box, y: [ClassAttrIs(Box, "limit", 3), MroIs(Box, Box.__mro__), TypeIs(X, Box)],
    "a condition": lambda box, y: [SymbolicCondition("a <= b + 1", (("a", Y.size(0)), ("b", WEIGHT.size(0))))],
    "a condition for Python": lambda box, y: [SymbolicCondition("a ** 2 < 30", (("a", Y.size(0)),))],
    "values": lambda box, y: [ValueEquals(Y.size(1), 3), ValueEquals(X.attr("limit"), 3), ValueEquals(Y.stride(1), 1)],
    "a number of NumPy": lambda box, y: [ValueEquals(Pinned.of([np.float32(2)], "numbers").item(0), np.float32(2))],
    "of the process": lambda box, y: [*ambient_guards(), Ambient("state", state, 0)],
    "a predicate": lambda box, y: [Predicate(Y, is_long, "is long")],
    "unknown": lambda box, y: [Even(Y)],
}
ALL = tuple(GUARDS)


def calls(box: Box) -> list[tuple[Any, ...]]:
    """Slots, most of which some guards refuse."""
    other = Box(torch.ones(4, 3))
    leaf = torch.ones(4, 3, requires_grad=True)
    tensors = [
        torch.ones(4, 3),
        torch.ones(4, 3)[:2],
        torch.ones(7, 3),
        torch.ones(4, 3, dtype=torch.double),
        torch.ones(3, 4).t(),
        leaf,
        leaf * 1,
        box.weight,
    ]
    return [
        *((box, t) for t in tensors),
        *((other, t) for t in tensors[:2]),
        (box, 3),
        (None, tensors[0]),
        (object(), tensors[0]),
    ]


@pytest.mark.parametrize(
    "kinds", [*((kind,) for kind in ALL), ALL], ids=lambda kinds: kinds[0] if len(kinds) == 1 else "all"
)
def test_a_restored_program_answers_as_the_lowered_one(kinds: tuple[str, ...]) -> None:
    box, y = Box(torch.ones(4, 3)), torch.ones(4, 3)
    guards = [guard for kind in kinds for guard in GUARDS[kind](box, y)]
    program = GuardProgram(guards, [WEIGHT, Y], 2)
    again = restored(program, 2, never)

    def answers(slots: tuple[Any, ...]) -> tuple[bool, bool]:
        one, two = program(*slots), again(*slots)
        assert (one is None) == (two is None)
        assert one is None or all(a is b for a, b in zip(one, two or (), strict=True))
        return program.check(slots), again.check(slots)

    assert program.flat is not None
    assert program.where is not None
    raised, gather = program.flat.raised(program.where)
    assert {g.key() for g in raised} == {g.key() for g in program.guards}
    assert gather == program.gather
    assert answers((box, y)) == (True, True)
    for slots in calls(box):
        for _ in range(2):  # by a walk, and by what a hit has left behind
            assert len(set(answers(slots))) == 1, slots
    restore: list[Callable[[], object]] = []
    try:
        for change, undo in changes(box):
            restore.append(undo)
            change()
            assert len(set(answers((box, y)))) == 1
            undo()
            assert answers((box, y)) == (True, True)
    finally:
        for undo in restore:
            undo()


def changes(box: Box) -> list[tuple[Callable[[], object], Callable[[], object]]]:
    """What may change about the objects, their class and the process, and how it is taken back."""
    weight = box.weight
    grad = torch.is_grad_enabled()
    return [
        (lambda: setattr(box, "weight", torch.ones(4, 3)), lambda: setattr(box, "weight", weight)),
        (lambda: setattr(box, "weight", torch.ones(5, 3)), lambda: setattr(box, "weight", weight)),
        (lambda: setattr(Box, "limit", 4), lambda: setattr(Box, "limit", 3)),
        (lambda: STATE.__setitem__(0, 1), lambda: STATE.__setitem__(0, 0)),
        (lambda: torch.set_grad_enabled(not grad), lambda: torch.set_grad_enabled(grad)),
    ]


@pytest.mark.parametrize(
    ("kind", "change"), [("identity", 0), ("tensors", 1), ("classes", 2), ("of the process", 3), ("of the process", 4)]
)
def test_a_changed_object_is_missed(kind: str, change: int) -> None:
    box, y = Box(torch.ones(4, 3)), torch.ones(4, 3)
    again = restored(GuardProgram(GUARDS[kind](box, y), [Y], 2), 2, never)
    assert again(box, y) is not None
    act, undo = changes(box)[change]
    act()
    try:
        assert again(box, y) is None
    finally:
        undo()
    assert again(box, y) is not None


def test_guards_are_read_when_somebody_asks_why_a_call_missed() -> None:
    asked: list[str] = []
    place = CodeLocation("f.py", "f", 7)
    program = GuardProgram([ValueEquals(X, 3, place)], [X], 1)
    flat, where = program.flat, program.where
    assert flat is not None
    assert where is not None

    def facts() -> Any:
        asked.append("guards")
        return flat.raised(where)

    again = restored(program, 1, facts)
    assert again(3) == (3,)
    assert again(4) is None
    assert not asked
    miss, same = again.explain((4,)), program.explain((4,))
    assert miss is not None
    assert same is not None
    assert (miss.text, miss.location) == (same.text, place)
    assert asked
    assert again.gather == program.gather
    assert again.listing() == program.listing()


def test_tensors_that_are_to_be_alike_share_their_test(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[TensorMatches] = []

    def noted(facts: TensorMatches) -> Any:
        made.append(facts)
        return tensor_test(facts)

    monkeypatch.setattr(flat_module, "tensor_test", noted)
    layers = [torch.ones(2, 2) for _ in range(5)] + [torch.ones(3)]
    program = GuardProgram([facts_of(t, X.item(i)) for i, t in enumerate(layers)], [], 1)
    assert len(made) == 2
    assert program.check((layers,))
    assert not program.check((layers[:4] + layers[5:] + layers[5:],))


@pytest.mark.parametrize(
    "numbers", [(), (0, 1, -1), (127, -128), (128,), (-(2**31),), (2**40, -3), (2**63 - 1, -(2**63))]
)
def test_numbers_come_back(numbers: tuple[int, ...]) -> None:
    assert flat_module._unpacked(flat_module._packed(numbers)) == list(numbers)


def test_a_damaged_program_is_refused() -> None:
    program = GuardProgram([TypeIs(X.item(0), int)], [X.item(0)], 1)
    assert program.flat is not None
    flat = program.flat
    for ops, gather in (
        (flat.ops[1:], flat.gather),
        (flat.ops, (7,)),
        (tuple((op[0], op[1], 9, *op[3:]) for op in flat.ops), ()),
    ):
        with pytest.raises(ValueError, match="malformed|gather"):
            GuardProgram.of_flat(FlatProgram((), ops, gather), 1, never)
