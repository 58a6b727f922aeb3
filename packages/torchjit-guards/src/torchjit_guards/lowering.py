"""From guards and gather paths to the ops of one flat C program.

One register per distinct access path; a path's load comes just before the first op that needs it, so a guard that
fails early saves the walks behind it. The order of guards is free (all must hold, and a walk that fails is a miss):
cheap and telling ones first, those that run Python code last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

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
    Predicate,
    SameObject,
    SymbolicCondition,
    TensorMatches,
    TypeIs,
    ValueEquals,
    distinct,
)
from torchjit_core.paths import (
    AccessPath,
    Arg,
    Attr,
    Cell,
    ClassAttr,
    InstanceAttr,
    Item,
    OffsetOf,
    Pinned,
    SizeOf,
    StrideOf,
    TypeOf,
)
from torchjit_guards import _c
from torchjit_guards.condition_code import Unsupported, compile_condition
from torchjit_guards.dict_groups import WALK, Group, Node, build, is_atom
from torchjit_guards.tensors import native_read, prepare_raw_reads, tensor_test

__all__ = ["Lowered", "lower"]

Op: TypeAlias = "tuple[int, int, int, int, object, object, int]"
_INT64 = range(-(2**63), 2**63)
_LOADS: dict[type[AccessPath], str] = {
    InstanceAttr: "LOAD_INSTANCE", ClassAttr: "LOAD_CLASS", Item: "LOAD_ITEM", Attr: "LOAD_ATTR", Cell: "LOAD_CELL",
    TypeOf: "LOAD_TYPE", SizeOf: "LOAD_SIZE", StrideOf: "LOAD_STRIDE", OffsetOf: "LOAD_OFFSET",
}  # fmt: skip


@attrs.frozen
class Lowered:
    """What `_c.Program` takes, and the guards in the order in which the program tests them."""

    pinned: tuple[object, ...]
    ops: tuple[Op, ...]
    gather: tuple[int, ...]
    guards: tuple[Guard, ...]


def lower(guards: Sequence[Guard], gather: Sequence[AccessPath], nslots: int) -> Lowered:
    """Lower guards and gather paths.

    Raises:
        ValueError: a path starts at a slot that does not exist.
        TypeError: a path of an unknown class.
    """
    ordered = sorted(distinct(guards), key=_stage)
    program = _Builder(nslots, _pinned(ordered, gather))
    classes: dict[int, list[ClassAttrIs]] = {}
    for guard in ordered:
        if isinstance(guard, ClassAttrIs):
            classes.setdefault(id(guard.cls), []).append(guard)
    walk = [guard for guard in ordered if _stage(guard) == WALK]
    for guard in ordered:
        if isinstance(guard, ClassAttrIs):
            # one op per class: a version tag vouches for all of its attributes
            if group := classes.pop(id(guard.cls), None):
                program.add_class(group)
        elif _stage(guard) < WALK:
            program.add(guard)
    late = [guard for guard in ordered if _stage(guard) > WALK]
    tree = build(walk, [*gather, *(path for guard in late for path in _paths(guard))])
    program.walk(tree)
    for guard in late:
        program.add(guard)
    registers = tuple(program.register(path) for path in gather)
    return Lowered(tuple(p.key for p in program.pinned), tuple(program.ops), registers, tuple(ordered))


def _paths(guard: Guard) -> tuple[AccessPath, ...]:
    match guard:
        case SameObject():
            return (guard.first, guard.second)
        case Different():
            return guard.paths
        case SymbolicCondition():
            return tuple(path for _, path in guard.names)
        case Ambient() | ClassAttrIs():
            return ()
        case _:
            path = getattr(guard, "path", None)
            return (path,) if isinstance(path, AccessPath) else ()


def _stage(guard: Guard) -> int:
    """0: reads slots only. 1: ambient state (Python code may run: nothing is borrowed yet). 2: facts about classes.
    3: the walk, object by object. 4: what compares several paths. 5: user code."""
    match guard:
        case Ambient():
            return 1
        case ClassAttrIs():
            return 2
        case Different() | SymbolicCondition() | SameObject():
            return 4
        case Predicate():
            return 5
        case ValueEquals() if not is_atom(guard.value):
            return 5
    if type(guard).__module__ != Guard.__module__:
        return 5
    return 0 if all(path.base is None for path in _paths(guard)) else WALK


def _pinned(guards: Sequence[Guard], gather: Sequence[AccessPath]) -> list[Pinned]:
    found: dict[int, Pinned] = {}
    for path in (*(p for guard in guards for p in _paths(guard)), *gather):
        root = path.root()
        if isinstance(root, Pinned):
            found[id(root)] = root
    return list(found.values())


class _Builder:
    """Emits ops, giving each path its register."""

    def __init__(self, nslots: int, pinned: list[Pinned]) -> None:
        self.nslots = nslots
        self.pinned = pinned
        self.ops: list[Op] = []
        # paths are interned: their ids name them as long as the guards hold them
        self.registers: dict[int, int] = {id(path): nslots + i for i, path in enumerate(pinned)}
        self.next = nslots + len(pinned)

    def register(self, path: AccessPath) -> int:
        """The register of a path, loading it and its prefixes if need be."""
        if isinstance(path, Arg):
            if not 0 <= path.key < self.nslots:
                raise ValueError(f"{path} names slot {path.key}; the program has {self.nslots}")
            return int(path.key)
        for step in path.steps()[1:]:
            if id(step) not in self.registers:
                self._load(step)
        return self.registers[id(path)]

    def _load(self, path: AccessPath) -> None:
        name = _LOADS.get(type(path))
        if name is None or path.base is None:
            raise TypeError(f"guard programs do not know the access path class {type(path).__name__}")
        base = self.register(path.base)
        imm = indexed = 0
        if isinstance(path, SizeOf | StrideOf | OffsetOf):
            prepare_raw_reads()
            imm = path.key or 0
        elif isinstance(path, Item) and type(path.key) in (int, bool) and path.key in _INT64:
            imm, indexed = int(path.key), 1
        self.registers[id(path)] = self.next
        self.ops.append((_c.OPS[name], self.next, base, indexed, path.key, None, imm))
        self.next += 1

    def walk(self, roots: Sequence[Node]) -> None:
        """Test and load a forest, object by object; what may run Python code comes when the rest has held."""
        postponed: list[Node] = []
        for node in roots:
            self._visit(node, postponed)
        for node in postponed:
            self._visit(node, [], python=True)

    def _visit(self, node: Node, postponed: list[Node], python: bool = False) -> None:
        if node.runs_python and not python:
            postponed.append(node)
            return
        self.register(node.path)
        for guard in node.remaining():
            self.add(guard)
        for group in node.groups():
            self._group(node.path, group)
        for child in node.children:
            self._visit(child, postponed, python)

    def _group(self, path: AccessPath, group: Group) -> None:
        """Loads from, and checks of, one dict, to be skipped while its tag vouches for them."""
        base = self.register(path)
        header, first = len(self.ops), self.next
        self.check("GROUP", base, src2=group.kind)
        for node in group.loads:
            self._load(node.path)
        for guard in group.checks:
            self.add(guard)
        length = len(self.ops) - header
        dicts = tuple(self.register(node.path) - first for node in group.dicts)
        lengths = tuple((self.register(node.path) - first, n) for node, n in group.lengths)
        aux = (first, len(group.loads), dicts, lengths)
        self.ops[header] = (*self.ops[header][:5], aux, length)
        self.check("GROUP_END", imm=length)

    def check(
        self, name: str, src: int = 0, obj: object = None, aux: object = None, imm: int = 0, src2: int = 0
    ) -> None:
        # an op without a path still names a register; a program without slots or pinned objects has none to name
        self.ops.append((_c.OPS[name], 0, src, src2, obj, aux, imm))

    def add_class(self, group: Sequence[ClassAttrIs]) -> None:
        entries = tuple((g.name,) if g.obj is MISSING else (g.name, g.obj) for g in group)
        self.check("CHECK_CLASS", obj=group[0].cls, aux=entries)

    def add(self, guard: Guard) -> None:
        """Emit the check of one guard."""
        match guard:
            case TypeIs():
                self.check("CHECK_TYPE", self.register(guard.path), guard.type)
            case IdIs():
                self.check("CHECK_IS", self.register(guard.path), guard.obj)
            case ValueEquals():
                self._add_value(guard)
            case LengthIs():
                self.check("CHECK_LENGTH", self.register(guard.path), imm=guard.length)
            case DictKeys():
                self.check("CHECK_KEYS", self.register(guard.path), guard.keys)
            case DictContains():
                self.check("CHECK_CONTAINS", self.register(guard.path), guard.name, imm=guard.present)
            case InstanceLacks():
                self.check("CHECK_LACKS", self.register(guard.path), guard.name)
            case TensorMatches():
                test, spec = tensor_test(guard)
                self.check("CHECK_TENSOR", self.register(guard.path), guard.type, (test, spec))
            case SameObject():
                self.check("CHECK_SAME", self.register(guard.first), src2=self.register(guard.second))
            case Different():
                name = "CHECK_STORAGES" if guard.storages else "CHECK_DIFFERENT"
                self.check(name, aux=tuple(self.register(p) for p in guard.paths))
                prepare_raw_reads()
            case SymbolicCondition():
                self._add_condition(guard)
            case Ambient():
                self._add_ambient(guard)
            case Predicate():
                self.check("CHECK_PREDICATE", self.register(guard.path), guard.test)
            case _:
                self.check("CHECK_CALL", obj=guard.check)

    def _add_value(self, guard: ValueEquals) -> None:
        value, src = guard.value, self.register(guard.path)
        if type(value) is int and value in _INT64:
            self.check("CHECK_INT", src, value, imm=value)
        elif type(value) is str:
            self.check("CHECK_STR", src, value)
        else:
            self.check("CHECK_ATOM" if is_atom(value) else "CHECK_EQUAL", src, value)

    def _add_condition(self, guard: SymbolicCondition) -> None:
        registers = tuple(self.register(path) for _, path in guard.names)
        try:
            code = compile_condition(guard.expression, {name: i for i, (name, _) in enumerate(guard.names)})
        except Unsupported:
            self.check("CHECK_CALL", obj=guard.check)
        else:
            self.check("CHECK_CONDITION", obj=guard.check, aux=(registers, code))

    def _add_ambient(self, guard: Ambient) -> None:
        native = native_read(guard.read, guard.value)
        if native is None:
            self.check("CHECK_AMBIENT", obj=guard.read, aux=guard.value)
        else:
            op = _c.OPS["CHECK_NATIVE"]
            self.ops.append((op, native.width, 0, native.argument, guard.read, native.address, native.expected))


def describe(lowered: Lowered) -> list[str]:
    """The ops as text, one line each, for people and tests."""
    names = {number: name for name, number in _c.OPS.items()}
    lines: list[str] = []
    for code, dst, src, _src2, obj, _aux, imm in lowered.ops:
        name = names[code]
        detail: Any = imm if obj is None else obj
        target = f"r{dst} = " if name.startswith("LOAD") else ""
        lines.append(f"{target}{name} r{src} {detail!r}")
    return lines
