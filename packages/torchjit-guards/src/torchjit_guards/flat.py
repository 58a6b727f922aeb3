"""Lowered programs: flat lists of ops, and their form on disk.

An op's operands are the program's and torchjit's own objects. Where the C program needs what only one process has (addresses in
libtorch, codes of dtypes, bound methods), the op holds the guard, and `bound` puts that in its place. `raised` is lowering the other way
round: what a program tests, as guards.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast, final

import attrs

from torchjit_core.guards import (
    MISSING,
    Ambient,
    ClassAttrIs,
    DictContains,
    DictKeys,
    Different,
    Guard,
    IdIs,
    InstanceLacks,
    LengthIs,
    MroIs,
    SameObject,
    TypeIs,
    ValueEquals,
)
from torchjit_core.location import CodeLocation
from torchjit_core.paths import AccessPath
from torchjit_guards._c import OPS
from torchjit_guards.tensors import found_out, native_read, prepare_raw_reads, take_over, tensor_test

__all__ = ["Facts", "FlatProgram", "Op", "Whereabouts", "noted"]

Facts: TypeAlias = "tuple[tuple[Guard, ...], tuple[AccessPath, ...]]"
"""Guards and gathered paths."""
Op: TypeAlias = "tuple[int, int, int, int, object, object, int]"
"""Code, register to load, two to read, operand, further operands, number: see program.h."""


@final
@attrs.frozen(eq=False, repr=False)
class FlatProgram:
    """What `_c.Program` is made of, in a form that holds in any process.

    Attributes:
        pinned: objects that are there without a walk.
        ops: in the order in which they run.
        gather: the registers that a hit returns.
    """

    __stored_exactly__ = ("pinned", "same")

    pinned: tuple[object, ...]
    ops: tuple[Op, ...]
    gather: tuple[int, ...]

    def bound(self) -> tuple[Op, ...]:
        """The ops for this process."""
        tests: dict[int, tuple[object, object]] = {}

        def bind(op: Op) -> Op:
            binder = _BINDERS.get(op[0])
            if binder is not None:
                return binder(op)
            known = tests.get(id(op[4]))  # the parameters of equal layers are tested alike
            if known is None:
                facts: Any = op[4]
                known = tests[id(facts)] = (facts.type, tensor_test(facts))
            return (*op[:4], *known, op[6])

        return tuple([bind(op) if op[0] in _BOUND else op for op in self.ops])

    def raised(self, where: Whereabouts) -> Facts:
        """The guards in the order in which they are tested, and the gathered paths."""
        paths: list[Any] = list(where.roots)
        guards: list[Guard] = []
        for op, line in zip(self.ops, _unpacked(where.lines), strict=True):
            step = _STEPS.get(op[0])
            if step is not None:
                paths.append(step(paths[op[2]], op[4]))
            else:
                guards += _raised(op, paths, where.locations[line])
        return tuple(guards), tuple([paths[register] for register in self.gather])

    def __stored_state__(self) -> Mapping[str, object]:
        columns = list(zip(*self.ops, strict=True)) or [()] * 7
        return {
            "pinned": self.pinned,
            "numbers": tuple([_packed(columns[place]) for place in _NUMBERS]),
            "same": tuple([op[4] for op in self.ops if op[0] == _CHECK_IS]),
            "operands": columns[4],
            "further": {i: further for i, further in enumerate(columns[5]) if further is not None},
            "gather": self.gather,
            "torch": found_out() if any(op[0] in _ASKS_TORCH for op in self.ops) else None,
        }

    def __restore_state__(self, state: Mapping[str, Any]) -> None:
        take_over(state["torch"])
        operands, numbers = state["operands"], map(_unpacked, state["numbers"])
        further: list[object] = [None] * len(operands)
        for place, what in state["further"].items():
            further[place] = what
        code, dst, src, src2, imm = numbers
        put: Callable[[str, object], None] = object.__setattr__.__get__(self)
        put("pinned", state["pinned"])
        put("ops", tuple(zip(code, dst, src, src2, operands, further, imm, strict=True)))
        put("gather", state["gather"])


@final
@attrs.frozen(eq=False, repr=False)
class Whereabouts:
    """What `FlatProgram.raised` asks for, and nothing else.

    Attributes:
        roots: paths of the slots (None: no guard is on it), then of the pinned objects.
        lines: for each op, the place in `locations` of the user's line that relied on it; packed.
        locations: None first.
    """

    roots: tuple[AccessPath | None, ...]
    lines: bytes
    locations: tuple[CodeLocation | None, ...]


def noted(roots: tuple[AccessPath | None, ...], lines: list[CodeLocation | None]) -> Whereabouts:
    """The line of each op, as an entry keeps it."""
    places: dict[CodeLocation | None, int] = {None: 0}
    return Whereabouts(roots, _packed([places.setdefault(line, len(places)) for line in lines]), tuple(places))


_NUMBERS: Final = (0, 1, 2, 3, 6)
"""Places of an op that hold numbers."""
_CHECK_IS: Final = OPS["CHECK_IS"]
_WIDTHS: Final = (("b", 7), ("h", 15), ("i", 31), ("q", 63))


def _packed(column: Sequence[Any]) -> bytes:
    """Numbers as bytes, after the type of the array that holds them."""
    most = max(max(column, default=0), ~min(column, default=0))
    kind = next(kind for kind, bits in _WIDTHS if most < 1 << bits)
    return kind.encode() + array(kind, column).tobytes()


def _unpacked(data: bytes) -> list[int]:
    column: array[int] = array(data[:1].decode())
    column.frombytes(data[1:])
    return column.tolist()


# ------------------------------------------------------------------------------------------------------- this process
def _bind_check(op: Op) -> Op:
    guard: Any = op[4]
    return (*op[:4], guard.check, *op[5:])


def _bind_class(op: Op) -> Op:
    guards: Any = op[5]
    return (*op[:5], tuple(map(_class_fact, guards)), op[6])


def _class_fact(guard: ClassAttrIs | MroIs) -> tuple[object, ...]:
    """A name and what it leads to (nothing: it leads nowhere), or None and the mro."""
    if isinstance(guard, MroIs):
        return None, guard.mro
    return (guard.name,) if guard.obj is MISSING else (guard.name, guard.obj)


def _bind_ambient(op: Op) -> Op:
    guard: Any = op[4]
    assert isinstance(guard, Ambient)
    native = native_read(guard.read, guard.value)
    if native is None:
        return (*op[:4], guard.read, guard.value, op[6])
    return (OPS["CHECK_NATIVE"], native.width, 0, native.expected, guard.read, native.address, native.argument)


def _bind_predicate(op: Op) -> Op:
    guard: Any = op[4]
    return (*op[:4], guard.test, *op[5:])


def _raw(op: Op) -> Op:
    prepare_raw_reads()
    return op


_BINDERS: Final[dict[int, Callable[[Op], Op]]] = {
    OPS["CHECK_CLASS"]: _bind_class,
    OPS["CHECK_CALL"]: _bind_check,
    OPS["CHECK_CONDITION"]: _bind_check,
    OPS["CHECK_AMBIENT"]: _bind_ambient,
    OPS["CHECK_PREDICATE"]: _bind_predicate,
    OPS["CHECK_DIFFERENT"]: _raw,
    OPS["CHECK_STORAGES"]: _raw,
    OPS["LOAD_SIZE"]: _raw,
    OPS["LOAD_STRIDE"]: _raw,
    OPS["LOAD_OFFSET"]: _raw,
}
_ASKS_TORCH: Final = frozenset({OPS["CHECK_TENSOR"], *(code for code, binder in _BINDERS.items() if binder is _raw)})
_BOUND: Final = frozenset({*_BINDERS, OPS["CHECK_TENSOR"]})


# ------------------------------------------------------------------------------------------------------------- guards
_STEPS: Final[dict[int, Callable[[Any, Any], AccessPath]]] = {
    OPS["LOAD_INSTANCE"]: lambda base, key: base.instance_attr(key),
    OPS["LOAD_ITEM"]: lambda base, key: base.item(key),
    OPS["LOAD_ATTR"]: lambda base, key: base.attr(key),
    OPS["LOAD_CELL"]: lambda base, key: base.cell(),
    OPS["LOAD_TYPE"]: lambda base, key: base.type_of(),
    OPS["LOAD_REFERENT"]: lambda base, key: base.referent(),
    OPS["LOAD_COMPUTED"]: lambda base, key: base.computed(key),
    OPS["LOAD_SIZE"]: lambda base, key: base.size(key),
    OPS["LOAD_STRIDE"]: lambda base, key: base.stride(key),
    OPS["LOAD_OFFSET"]: lambda base, key: base.offset(),
}
_OF_ONE: Final[dict[int, Callable[[Any, Any, int, Any], Guard]]] = {
    OPS["CHECK_TYPE"]: lambda path, obj, imm, line: TypeIs(path, obj, line),
    OPS["CHECK_IS"]: lambda path, obj, imm, line: IdIs(path, obj, line),
    OPS["CHECK_INT"]: lambda path, obj, imm, line: ValueEquals(path, obj, line),
    OPS["CHECK_STR"]: lambda path, obj, imm, line: ValueEquals(path, obj, line),
    OPS["CHECK_ATOM"]: lambda path, obj, imm, line: ValueEquals(path, obj, line),
    OPS["CHECK_EQUAL"]: lambda path, obj, imm, line: ValueEquals(path, obj, line),
    OPS["CHECK_LENGTH"]: lambda path, obj, imm, line: LengthIs(path, imm, line),
    OPS["CHECK_KEYS"]: lambda path, obj, imm, line: DictKeys(path, obj, line),
    OPS["CHECK_CONTAINS"]: lambda path, obj, imm, line: DictContains(path, obj, bool(imm), line),
    OPS["CHECK_LACKS"]: lambda path, obj, imm, line: InstanceLacks(path, obj, line),
    OPS["CHECK_TENSOR"]: lambda path, obj, imm, line: attrs.evolve(obj, path=path, location=line),
}
_OF_SEVERAL: Final = {OPS["CHECK_DIFFERENT"]: False, OPS["CHECK_STORAGES"]: True}
_GUARDS: Final = frozenset({OPS["CHECK_CALL"], OPS["CHECK_CONDITION"], OPS["CHECK_AMBIENT"], OPS["CHECK_PREDICATE"]})
"""Ops whose operand is the guard."""
_CHECK_CLASS, _CHECK_SAME = OPS["CHECK_CLASS"], OPS["CHECK_SAME"]


def _raised(op: Op, paths: list[Any], line: CodeLocation | None) -> tuple[Guard, ...]:
    """The guards that an op tests: none, of what only marks a group."""
    code, _, src, src2, obj, further, imm = op
    operand, parts = cast(Any, obj), cast(Any, further)
    of_one = _OF_ONE.get(code)
    if of_one is not None:
        return (of_one(paths[src], operand, imm, line),)
    if code in _GUARDS:
        return (operand,)
    if code == _CHECK_CLASS:
        return tuple(parts)
    if code == _CHECK_SAME:
        return (SameObject(paths[src], paths[src2], line),)
    if code in _OF_SEVERAL:
        return (Different(tuple([paths[register] for register in parts]), _OF_SEVERAL[code], line),)
    return ()
