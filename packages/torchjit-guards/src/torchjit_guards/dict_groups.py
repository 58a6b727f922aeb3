"""Guards arranged as a tree of objects, so that everything about one dict stands together.

What only depends on a dict's contents (items found in it, keys that it has or lacks, the identity or immutable value
of an item) cannot change while the dict does not; the program skips such a group as long as the dict's tag is the
one that it saw when the group last held.
"""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, final

import attrs

from torchjit_core.guards import DictContains, DictKeys, Guard, IdIs, InstanceLacks, LengthIs, TypeIs, ValueEquals
from torchjit_core.paths import AccessPath, Arg, Attr, Computed, InstanceAttr, Item

__all__ = ["WALK", "Group", "Node", "build", "is_atom"]

WALK = 4
"""The stage of guards that walk from object to object (`lowering`)."""
INSTANCE, DICT = 0, 1
"""Kinds of groups, as in program.h: of an object's `__dict__`, of the object itself."""
_IMMUTABLE_TYPE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE


def is_atom(value: object) -> bool:
    """Is it of an immutable type whose comparison runs no Python code, or a tuple of such?"""
    if type(value) is tuple:
        return all(map(is_atom, value))
    return value is None or value is Ellipsis or type(value) in (int, bool, float, complex, str, bytes)


@final
class Node:
    """One object: its path, the guards on it, the paths that start from it.

    Attributes:
        path: where it is.
        checks: guards that are tested whenever the program runs.
        frozen: guards on the object that hold as long as the dict that the path reads holds the same object.
        children: in the order of recording.
        instance, members: guards on the object's `__dict__`, and on the object as a dict.
        absorbed: a group loads the object and has taken over `frozen` and what it could of the rest.
    """

    __slots__ = ("absorbed", "checks", "children", "frozen", "instance", "lengths", "members", "path")

    def __init__(self, path: AccessPath) -> None:
        self.path = path
        self.checks: list[Guard] = []
        self.frozen: list[Guard] = []
        self.children: list[Node] = []
        self.instance: list[Guard] = []
        self.members: list[Guard] = []
        self.lengths: list[LengthIs] = []
        self.absorbed = False

    @property
    def runs_python(self) -> bool:
        """May loading the object run Python code?"""
        return type(self.path) in (Attr, Computed)

    def add(self, guard: Guard) -> None:
        """File a guard whose path this node is."""
        place = _PLACES.get(type(guard))
        (self.checks if place is None else place(self, guard)).append(guard)

    @property
    def is_bare_slot(self) -> bool:
        """A slot about which nothing is asked."""
        asked = self.children or self.checks or self.frozen or self.instance or self.members or self.lengths
        return isinstance(self.path, Arg) and not asked

    @property
    def fixed_type(self) -> type | None:
        """The exact type that the object has as long as it is the same object, if a guard says so."""
        return next((g.type for g in self.frozen if isinstance(g, TypeIs)), None)

    def items(self) -> list[Node]:
        """The children under str keys: the object looks like a dict."""
        return [c for c in self.children if type(c.path) is Item and type(c.path.key) is str]

    def remaining(self) -> list[Guard]:
        """What no group tests, types first. Ask before `groups`."""
        guards = self.checks if self.absorbed else [*self.frozen, *self.checks]
        if self.lengths and not (self.members or self.items()):
            guards = [*guards, *self.lengths]
            self.lengths = []
        return sorted(guards, key=lambda guard: type(guard) is not TypeIs) if len(guards) > 1 else guards

    def groups(self) -> list[Group]:
        """The groups of this object, cheapest first."""
        made: list[Group] = []
        attributes = [c for c in self.children if type(c.path) is InstanceAttr]
        items = [c for c in self.items() if not c.absorbed]
        for kind, loads, checks in (
            (INSTANCE, attributes, self.instance),
            (DICT, items, [*self.members, *self.lengths]),
        ):
            if loads or checks:
                group = Group(kind, list(loads), list(checks))
                for node in loads:
                    group.absorb(node)
                made.append(group)
        self.instance, self.members, self.lengths = [], [], []
        return made


_PLACES: dict[type[Guard], Callable[[Node, Any], list[Any]]] = {
    InstanceLacks: lambda node, g: node.instance,
    DictContains: lambda node, g: node.members if is_atom(g.name) else node.checks,
    DictKeys: lambda node, g: node.members if all(map(is_atom, g.keys)) else node.checks,
    LengthIs: lambda node, g: node.lengths,
    IdIs: lambda node, g: node.frozen,
    ValueEquals: lambda node, g: node.frozen if is_atom(g.value) else node.checks,
    TypeIs: lambda node, g: node.frozen if _class_is_fixed(g.type) else node.checks,
}


@attrs.define(eq=False, repr=False)
class Group:
    """Everything about one dict, and about the dicts and tuples in it.

    Attributes:
        kind: INSTANCE or DICT.
        loads: in order; a container comes before what is in it.
        checks: tested when the group is not skipped.
        dicts: of the loads, dicts that must be unchanged too.
        lengths: of the loads, dicts whose length is all that matters.
    """

    kind: int
    loads: list[Node]
    checks: list[Guard]
    dicts: list[Node] = attrs.field(factory=list)
    lengths: list[tuple[Node, int]] = attrs.field(factory=list)

    def absorb(self, node: Node) -> None:
        """Take over what can be said about a loaded object, and load what is in it."""
        node.absorbed = True
        self.checks += node.frozen
        inside: list[Node] = []
        if node.fixed_type is tuple:
            inside = [c for c in node.children if type(c.path) is Item and type(c.path.key) is int]
            self.checks += node.lengths
        elif node.fixed_type is dict and (node.members or node.items()):
            inside = node.items()
            self.dicts.append(node)
            self.checks += [*node.members, *node.lengths]
            node.members = []
        elif node.fixed_type in (dict, OrderedDict):
            self.checks += node.lengths
            self.lengths += [(node, guard.length) for guard in node.lengths]
        else:
            return
        node.lengths = []
        for child in inside:
            self.loads.append(child)
            self.absorb(child)


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
    nodes: dict[AccessPath, Node] = {}
    roots: list[Node] = []
    for guard in guards:
        path: AccessPath = getattr(guard, "path")  # noqa: B009  # not every Guard has one; these do
        (nodes.get(path) or _node(path, nodes, roots)).add(guard)
    for path in paths:
        if path not in nodes:
            _node(path, nodes, roots)
    return [root for root in roots if not root.is_bare_slot]


def _node(path: AccessPath, nodes: dict[AccessPath, Node], roots: list[Node]) -> Node:
    """A new node, hung under that of its base."""
    made = nodes[path] = Node(path)
    base = path.base
    if base is None:
        roots.append(made)
    else:
        (nodes.get(base) or _node(base, nodes, roots)).children.append(made)
    return made
