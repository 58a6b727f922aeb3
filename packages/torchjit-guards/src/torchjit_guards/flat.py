"""Lowered programs: flat lists of ops, and their form on disk.

An op's operands are the program's and torchjit's own objects. Where the C program needs what only one process has (addresses in
libtorch, codes of dtypes, bound methods), the op holds the guard, and `bound` puts that in its place.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, final

import attrs

from torchjit_core.guards import MISSING, Ambient, ClassAttrIs, MroIs
from torchjit_guards._c import OPS
from torchjit_guards.tensors import native_read, prepare_raw_reads, tensor_test

__all__ = ["FlatProgram", "Op"]

Op: TypeAlias = "tuple[int, int, int, int, object, object, int]"
"""Code, register to load, two to read, operand, further operands, number: see program.h."""


@final
@attrs.frozen(eq=False)
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

    def __stored_state__(self) -> Mapping[str, object]:
        columns = list(zip(*self.ops, strict=True)) or [()] * 7
        return {
            "pinned": self.pinned,
            "numbers": tuple([_packed(columns[place]) for place in _NUMBERS]),
            "same": tuple([op[4] for op in self.ops if op[0] == _CHECK_IS]),
            "operands": columns[4],
            "further": {i: further for i, further in enumerate(columns[5]) if further is not None},
            "gather": self.gather,
        }

    def __restore_state__(self, state: Mapping[str, Any]) -> None:
        operands, numbers = state["operands"], map(_unpacked, state["numbers"])
        further: list[object] = [None] * len(operands)
        for place, what in state["further"].items():
            further[place] = what
        code, dst, src, src2, imm = numbers
        put: Callable[[str, object], None] = object.__setattr__.__get__(self)
        put("pinned", state["pinned"])
        put("ops", tuple(zip(code, dst, src, src2, operands, further, imm, strict=True)))
        put("gather", state["gather"])


_NUMBERS: Final = (0, 1, 2, 3, 6)
"""Places of an op that hold numbers."""
_CHECK_IS: Final = OPS["CHECK_IS"]
_WIDTHS: Final = (("b", 7), ("h", 15), ("i", 31), ("q", 63))


def _packed(column: tuple[Any, ...]) -> bytes:
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


def _raw(op: Op) -> Op:
    prepare_raw_reads()
    return op


_BINDERS: Final[dict[int, Callable[[Op], Op]]] = {
    OPS["CHECK_CLASS"]: _bind_class,
    OPS["CHECK_CALL"]: _bind_check,
    OPS["CHECK_CONDITION"]: _bind_check,
    OPS["CHECK_AMBIENT"]: _bind_ambient,
    OPS["CHECK_DIFFERENT"]: _raw,
    OPS["CHECK_STORAGES"]: _raw,
    OPS["LOAD_SIZE"]: _raw,
    OPS["LOAD_STRIDE"]: _raw,
    OPS["LOAD_OFFSET"]: _raw,
}
_BOUND: Final = frozenset({*_BINDERS, OPS["CHECK_TENSOR"]})
