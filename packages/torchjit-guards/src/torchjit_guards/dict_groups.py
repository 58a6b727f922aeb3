"""Guards arranged as a tree of objects, so that everything about one dict stands together.

What only depends on a dict's contents (items found in it, keys that it has or lacks, the identity or immutable value
of an item) cannot change while the dict does not; the program skips such a group as long as the dict's tag is the
one that it saw when the group last held.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import attrs

from torchjit_core.guards import DictContains, DictKeys, Guard, IdIs, InstanceLacks, LengthIs, TypeIs, ValueEquals
from torchjit_core.paths import AccessPath, Arg, Attr, InstanceAttr, Item

__all__ = ["WALK", "Group", "Node", "build", "is_atom"]

WALK = 3
"""The stage of guards that walk from object to object (`lowering`)."""
INSTANCE, DICT = 0, 1
"""Kinds of groups, as in program.h: of an object's `__dict__`, of the object itself."""
_IMMUTABLE_TYPE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE

Group: TypeAlias = "tuple[int, list[Node], list[Guard]]"


def is_atom(value: object) -> bool:
    """Is it of an immutable type whose comparison runs no Python code, or a tuple of such?"""
    if type(value) is tuple:
        return all(map(is_atom, value))
    return value is None or value is Ellipsis or type(value) in (int, bool, float, complex, str, bytes)


@attrs.define(eq=False)
class Node:
    """One object: its path, the guards on it, the paths that start from it.

    Attributes:
        path: where it is.
        checks: guards that are tested whenever the program runs.
        frozen: guards on the object that hold as long as the dict that the path reads holds the same object.
        children: in the order of recording.
        instance, members: guards on the object's `__dict__`, and on the object as a dict.
    """

    path: AccessPath
    checks: list[Guard] = attrs.field(factory=list)
    frozen: list[Guard] = attrs.field(factory=list)
    children: list[Node] = attrs.field(factory=list)
    instance: list[Guard] = attrs.field(factory=list)
    members: list[Guard] = attrs.field(factory=list)

    @property
    def runs_python(self) -> bool:
        """May loading the object run Python code?"""
        return isinstance(self.path, Attr)

    def add(self, guard: Guard) -> None:
        """File a guard whose path this node is."""
        match guard:
            case InstanceLacks():
                self.instance.append(guard)
            case DictContains() if is_atom(guard.name):
                self.members.append(guard)
            case DictKeys() if all(map(is_atom, guard.keys)):
                self.members.append(guard)
            case IdIs():
                self.frozen.append(guard)
            case ValueEquals() if is_atom(guard.value):
                self.frozen.append(guard)
            case TypeIs() if _class_is_fixed(guard.type):
                self.frozen.append(guard)
            case _:
                self.checks.append(guard)

    def groups(self) -> Iterator[Group]:
        """The groups of this object, cheapest first."""
        attributes = [c for c in self.children if isinstance(c.path, InstanceAttr)]
        items = [c for c in self.children if isinstance(c.path, Item) and type(c.path.key) is str]
        for kind, loads, checks in ((INSTANCE, attributes, self.instance), (DICT, items, self.members)):
            if loads or checks:
                yield kind, loads, [*checks, *(guard for node in loads for guard in node.frozen)]

    def is_grouped(self, child: Node) -> bool:
        """Does a group of this object load the child?"""
        return isinstance(child.path, InstanceAttr) or (isinstance(child.path, Item) and type(child.path.key) is str)


def _class_is_fixed(tp: type) -> bool:
    """Can an instance of exactly this type never become one of another (by `x.__class__ = ...`)?"""
    flags: Any = tp.__flags__
    return bool(flags & _IMMUTABLE_TYPE) and not issubclass(tp, types.ModuleType)


def build(guards: Sequence[Guard], paths: Sequence[AccessPath]) -> list[Node]:
    """The forest of the guards' paths and of `paths`, roots in the order of first use.

    Args:
        guards: of one path each (attribute `path`).
        paths: further ones to load.
    """
    nodes: dict[int, Node] = {}
    roots: list[Node] = []
    for guard in guards:
        path: AccessPath = getattr(guard, "path")  # noqa: B009  # not every Guard has one; these do
        _node(path, nodes, roots).add(guard)
    for path in paths:
        _node(path, nodes, roots)
    for node in nodes.values():
        _settle(node)
    return [root for root in roots if root.children or root.checks or not isinstance(root.path, Arg)]


def _node(path: AccessPath, nodes: dict[int, Node], roots: list[Node]) -> Node:
    found = nodes.get(id(path))
    if found is None:
        found = nodes[id(path)] = Node(path)
        if path.base is None:
            roots.append(found)
        else:
            _node(path.base, nodes, roots).children.append(found)
    return found


def _settle(node: Node) -> None:
    """Guards that no group can carry are tested every time."""
    if node.path.base is None:
        node.checks += node.frozen
        node.frozen = []
    for child in node.children:
        if not node.is_grouped(child):
            child.checks = [*child.frozen, *child.checks]
            child.frozen = []
    node.checks = [
        *(g for g in node.checks if isinstance(g, TypeIs)),
        *(g for g in node.checks if not isinstance(g, TypeIs)),
    ]
    # a length is a dict's business when there is evidence of a dict
    if node.members or any(isinstance(c.path, Item) and type(c.path.key) is str for c in node.children):
        node.members += [g for g in node.checks if isinstance(g, LengthIs)]
        node.checks = [g for g in node.checks if not isinstance(g, LengthIs)]
