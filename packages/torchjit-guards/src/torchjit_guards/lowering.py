"""From guards and gather paths to the ops of one flat C program.

One register per distinct access path; a path's load comes just before the first op that needs it, so a guard that
fails early saves the walks behind it. The order of guards is free (all must hold, and a walk that fails is a miss):
cheap and telling ones first, those that run Python code last.
"""

from __future__ import annotations

import numbers
import operator
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from torchjit_core.guards import (
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
    Predicate,
    SameObject,
    SymbolicCondition,
    TensorMatches,
    TypeIs,
    ValueEquals,
    distinct,
)
from torchjit_core.location import CodeLocation
from torchjit_core.paths import (
    AccessPath,
    Arg,
    Attr,
    Cell,
    Computed,
    InstanceAttr,
    Item,
    OffsetOf,
    Pinned,
    Referent,
    SizeOf,
    StrideOf,
    TypeOf,
)
from torchjit_guards._c import OPS
from torchjit_guards.condition_code import Unsupported, compile_condition
from torchjit_guards.dict_groups import WALK, Group, Node, build, is_atom
from torchjit_guards.flat import FlatProgram, Op, Whereabouts, noted
from torchjit_guards.tensors import THE_TENSOR

__all__ = ["Lowered", "lower"]

_INT64 = range(-(2**63), 2**63)
_LOADS: dict[type[AccessPath], int] = {
    InstanceAttr: OPS["LOAD_INSTANCE"], Item: OPS["LOAD_ITEM"],
    Attr: OPS["LOAD_ATTR"], Cell: OPS["LOAD_CELL"], TypeOf: OPS["LOAD_TYPE"],
    Referent: OPS["LOAD_REFERENT"], Computed: OPS["LOAD_COMPUTED"], SizeOf: OPS["LOAD_SIZE"],
    StrideOf: OPS["LOAD_STRIDE"], OffsetOf: OPS["LOAD_OFFSET"],
}  # fmt: skip
_OF_TENSORS = frozenset({SizeOf, StrideOf, OffsetOf})


@attrs.frozen(repr=False)
class Lowered:
    """A program, what is told of it beside it, and the guards in about the order in which it tests them."""

    program: FlatProgram
    where: Whereabouts
    guards: tuple[Guard, ...]


def lower(guards: Sequence[Guard], gather: Sequence[AccessPath], nslots: int, are_distinct: bool = False) -> Lowered:
    """Lower guards and gather paths; `are_distinct`: there are no repeats among the guards.

    Raises:
        ValueError: a path starts at a slot that does not exist.
        TypeError: a path of an unknown class.
    """
    stages: tuple[list[Guard], ...] = tuple([] for _ in range(_LAST + 1))
    for guard in guards if are_distinct else distinct(guards):
        stages[_stage(guard)].append(guard)
    modes, slots, ambient, facts, walk = stages[:5]
    late = [guard for stage in stages[5:] for guard in stage]
    ordered = [*modes, *slots, *ambient, *facts, *walk, *late]
    program = _Builder(nslots, _pinned(ordered, gather))
    for guard in (*modes, *slots, *ambient):
        program.add(guard)
    classes: dict[type, list[Any]] = {}
    for fact in facts:
        # one op per class: a version tag vouches for all of its attributes
        classes.setdefault(fact.cls, []).append(fact)  # type: ignore[attr-defined]  # stage 3 has classes
    for group in classes.values():
        program.check("CHECK_CLASS", obj=group[0].cls, aux=tuple(group))
    program.walk(build(walk, [*gather, *(path for guard in late for path in _paths(guard))]))
    for guard in late:
        program.add(guard)
    registers = tuple([program.register(path) for path in gather])
    flat = FlatProgram(tuple([p.key for p in program.pinned]), tuple(program.ops), registers)
    roots = (*(program.args.get(slot) for slot in range(nslots)), *program.pinned)
    return Lowered(flat, noted(roots, program.lines), tuple(ordered))


_STAGES: dict[type[Guard], int] = {
    Ambient: 2, ClassAttrIs: 3, MroIs: 3, SameObject: 5, Different: 5, SymbolicCondition: 5, Predicate: 6,
}  # fmt: skip
_OF_ONE_PATH = frozenset(
    {TypeIs, IdIs, ValueEquals, LengthIs, DictKeys, DictContains, InstanceLacks, TensorMatches, Predicate}
)
_LAST = 6


def _paths(guard: Guard) -> tuple[AccessPath, ...]:
    match guard:
        case _ if type(guard) in _OF_ONE_PATH:
            return (guard.path,)  # type: ignore[attr-defined]  # these have one
        case SameObject():
            return (guard.first, guard.second)
        case Different():
            return guard.paths
        case SymbolicCondition():
            return tuple(path for _, path in guard.names)
        case Ambient() | ClassAttrIs() | MroIs():
            return ()
        case _:
            path = getattr(guard, "path", None)
            return (path,) if isinstance(path, AccessPath) else ()


def _stage(guard: Guard) -> int:
    """0: function modes, which would see how tensors are asked. 1: reads slots only. 2: ambient state (Python code may
    run: nothing is borrowed yet). 3: facts about classes. 4: the walk, object by object. 5: what compares several paths.
    6: user code."""
    cls = type(guard)
    if cls is Ambient and guard.name == "function_mode_count":  # type: ignore[attr-defined]
        return 0
    fixed = _STAGES.get(cls)
    if fixed is not None:
        return fixed
    if cls not in _OF_ONE_PATH or (isinstance(guard, ValueEquals) and not is_atom(guard.value)):
        return _LAST
    return 1 if guard.path.base is None else WALK  # type: ignore[attr-defined]


def _pinned(guards: Sequence[Guard], gather: Sequence[AccessPath]) -> list[Pinned]:
    """The pinned roots, in the order of first use."""
    found: list[Pinned] = []
    seen: set[AccessPath] = set()
    for path in (*(p for guard in guards for p in _paths(guard)), *gather):
        step: AccessPath | None = path
        while step is not None and step not in seen:
            seen.add(step)
            if type(step) is Pinned:
                found.append(step)
            step = step.base
    return found


class _Builder:
    """Emits ops, giving each path its register."""

    def __init__(self, nslots: int, pinned: list[Pinned]) -> None:
        self.nslots = nslots
        self.pinned = pinned
        self.ops: list[Op] = []
        self.lines: list[CodeLocation | None] = []
        """The user's lines that relied on the ops."""
        self.args: dict[int, Arg] = {}
        self.registers: dict[AccessPath, int] = {path: nslots + i for i, path in enumerate(pinned)}
        self.next = nslots + len(pinned)
        self.tensor_facts: dict[tuple[Any, ...], TensorMatches] = {}

    def register(self, path: AccessPath) -> int:
        """The register of a path, loading it and its prefixes if need be."""
        found = self.registers.get(path)
        if found is not None:
            return found
        for step in path.steps():
            if step not in self.registers:
                self._load(step)
        return self.registers[path]

    def _load(self, path: AccessPath) -> None:
        """Give a path a register of its own; a slot has one already."""
        cls = type(path)
        if isinstance(path, Arg):
            if not 0 <= path.key < self.nslots:
                raise ValueError(f"{path} names slot {path.key}; the program has {self.nslots}")
            self.registers[path] = int(path.key)
            self.args.setdefault(path.key, path)
            return
        code = _LOADS.get(cls)
        if code is None or path.base is None:
            raise TypeError(f"guard programs do not know the access path class {cls.__name__}")
        base = self.register(path.base)
        imm = indexed = 0
        if cls in _OF_TENSORS:
            imm = path.key or 0
        elif cls is Item and type(path.key) in (int, bool) and path.key in _INT64:
            imm, indexed = int(path.key), 1
        self.registers[path] = self.next
        self.ops.append((code, self.next, base, indexed, path.key, None, imm))
        self.lines.append(None)
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
        self.ops.append((OPS[name], 0, src, src2, obj, aux, imm))
        self.lines.append(None)

    def add(self, guard: Guard) -> None:
        """Emit the check of one guard."""
        emit = _CHECKS.get(type(guard))
        if emit is None:
            self.check("CHECK_CALL", obj=guard)
        else:
            emit(self, guard)
        self.lines[-1] = getattr(guard, "location", None)

    def _add_different(self, guard: Different) -> None:
        name = "CHECK_STORAGES" if guard.storages else "CHECK_DIFFERENT"
        self.check(name, aux=tuple([self.register(p) for p in guard.paths]))

    def _add_tensor(self, guard: TensorMatches) -> None:
        self.check("CHECK_TENSOR", self.register(guard.path), self._facts(guard))

    def _facts(self, guard: TensorMatches) -> TensorMatches:
        """The guard without its path: one for all tensors that are to be alike."""
        key = (id(guard.type), *_ASKED(guard))
        found = self.tensor_facts.get(key)
        if found is None:
            found = self.tensor_facts[key] = attrs.evolve(guard, path=THE_TENSOR, location=None)
        return found

    def _add_value(self, guard: ValueEquals) -> None:
        value, src = guard.value, self.register(guard.path)
        if type(value) is int and value in _INT64:
            self.check("CHECK_INT", src, value, imm=value)
        elif type(value) is str:
            self.check("CHECK_STR", src, value)
        elif not is_atom(value) and isinstance(value, numbers.Number):
            self.check("CHECK_CALL", obj=guard)  # a number of NumPy: == does not tell 0.0 from -0.0
        else:
            self.check("CHECK_ATOM" if is_atom(value) else "CHECK_EQUAL", src, value)

    def _add_condition(self, guard: SymbolicCondition) -> None:
        registers = tuple(self.register(path) for _, path in guard.names)
        try:
            code = compile_condition(guard.expression, {name: i for i, (name, _) in enumerate(guard.names)})
        except Unsupported:
            self.check("CHECK_CALL", obj=guard)
        else:
            self.check("CHECK_CONDITION", obj=guard, aux=(registers, code))


_ASKED = operator.attrgetter(
    *(f.name for f in attrs.fields(TensorMatches) if f.name not in ("path", "type", "location"))
)
"""What a guard on a tensor compares besides its type."""

_CHECKS: dict[type[Guard], Callable[[_Builder, Any], None]] = {
    TypeIs: lambda out, g: out.check("CHECK_TYPE", out.register(g.path), g.type),
    IdIs: lambda out, g: out.check("CHECK_IS", out.register(g.path), g.obj),
    ValueEquals: _Builder._add_value,
    LengthIs: lambda out, g: out.check("CHECK_LENGTH", out.register(g.path), imm=g.length),
    DictKeys: lambda out, g: out.check("CHECK_KEYS", out.register(g.path), g.keys),
    DictContains: lambda out, g: out.check("CHECK_CONTAINS", out.register(g.path), g.name, imm=g.present),
    InstanceLacks: lambda out, g: out.check("CHECK_LACKS", out.register(g.path), g.name),
    TensorMatches: _Builder._add_tensor,
    SameObject: lambda out, g: out.check("CHECK_SAME", out.register(g.first), src2=out.register(g.second)),
    Different: _Builder._add_different,
    SymbolicCondition: _Builder._add_condition,
    Ambient: lambda out, g: out.check("CHECK_AMBIENT", obj=g),
    Predicate: lambda out, g: out.check("CHECK_PREDICATE", out.register(g.path), g),
}


def describe(program: FlatProgram) -> list[str]:
    """The ops as text, one line each, for people and tests."""
    names = {number: name for name, number in OPS.items()}
    lines: list[str] = []
    for code, dst, src, _src2, obj, _aux, imm in program.bound():
        name = names[code]
        detail: Any = imm if obj is None else obj
        target = f"r{dst} = " if name.startswith("LOAD") else ""
        lines.append(f"{target}{name} r{src} {detail!r}")
    return lines
