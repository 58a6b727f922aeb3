"""What a capture relies on, recorded once each, with the instruction that first did; guards are made of it at the end."""

from __future__ import annotations

from collections.abc import Callable, Set
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torchjit_core.guards import (
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
    TypeIs,
    ValueEquals,
)
from torchjit_core.paths import AccessPath, Pinned
from torchjit_vm.capture.members import IMMUTABLE_TYPE, walk

if TYPE_CHECKING:
    from torchjit_core.location import CodeLocation
    from torchjit_vm.capture.effect_records import MadeClass
    from torchjit_vm.capture.values import Const, Value
    from torchjit_vm.decode import Decoded
    from torchjit_vm.interpreter import Interpreter

__all__ = ["GuardRecorder"]


class GuardRecorder:
    """The part of a capture's domain that notes guards.

    Attributes:
        pending: what a guard says to its class, its arguments, and the instruction that needed it.
        extra_guards: those of the leaf handler, and others that are made at once.
        constants_read: constants whose type is relied on if their value is not.
        keys_by_identity: objects that are keys by their identity.
        made_classes: the classes that the region made.
        class_parts: ids of what belongs to one of these to the class, and under what name.
        stand_in_ids: ids of the real objects that stand for values in them.
        computed_ids: ids of objects that the capture computed, of a class whose instances never change: nobody else has them,
            so what is below them is a constant, and no guard.
    """

    vm: Interpreter[Value]

    def __init__(self) -> None:
        self.pending: dict[tuple[object, ...], tuple[type[Guard], tuple[object, ...], Decoded | None, int]] = {}
        self.extra_guards: list[Guard] = []
        self.constants_read: list[Const] = []
        self.keys_by_identity: dict[Value, AccessPath | None] = {}
        self.made_classes: dict[type, MadeClass] = {}
        self.class_parts: dict[int, tuple[type, str]] = {}
        self.stand_in_ids: set[int] = set()
        self.computed_ids: set[int] = set()
        self.root_location: CodeLocation | None = None

    def _record(self, key: tuple[object, ...], kind: type[Guard], *args: object) -> None:
        if key not in self.pending:
            frames = self.vm.frames
            if frames:
                frame = frames[-1]
                self.pending[key] = (kind, args, frame.code, frame.pc - 1)
            else:
                self.pending[key] = (kind, args, None, 0)

    def guard_type(self, path: AccessPath, cls: type) -> None:
        if type(path) is Pinned and cls.__flags__ & IMMUTABLE_TYPE and not issubclass(cls, ModuleType):
            return  # nobody can assign to the `__class__` of this very object
        self._record(("type", path), TypeIs, path, cls)

    def guard_id(self, path: AccessPath, obj: object) -> None:
        self._record(("id", path), IdIs, path, obj)

    def guard_value(self, path: AccessPath, value: object) -> None:
        self._record(("value", path), ValueEquals, path, value)

    def guard_length(self, path: AccessPath, length: int) -> None:
        self._record(("length", path), LengthIs, path, length)

    def guard_keys(self, path: AccessPath, keys: tuple[object, ...]) -> None:
        self._record(("keys", path), DictKeys, path, keys)

    def guard_contains(self, path: AccessPath, key: object, present: bool) -> None:
        self._record(("contains", path, type(key), key), DictContains, path, key, present)

    def guard_lacks(self, path: AccessPath, name: str) -> None:
        self._record(("lacks", path, name), InstanceLacks, path, name)

    def guard_class(self, cls: type, name: str, obj: object) -> None:
        if cls in self.made_classes:
            self._guard_bases(cls, name)
            return
        self._record(("class", cls, name), ClassAttrIs, cls, name, obj)

    def guard_mro(self, cls: type) -> None:
        """Rely on the classes that a class inherits from; those of one that the region made are new, their bases are not."""
        for owner in cls.__mro__ if cls in self.made_classes else (cls,):
            if not owner.__flags__ & IMMUTABLE_TYPE and owner not in self.made_classes:
                self._record(("mro", owner), MroIs, owner, owner.__mro__)

    def _guard_bases(self, cls: type, name: str) -> None:
        """What a class that the region made has under a name can change through its bases only."""
        for owner in cls.__mro__:
            if owner not in self.made_classes:
                if not owner.__flags__ & IMMUTABLE_TYPE:
                    self.guard_class(owner, name, walk(owner.__mro__, name))
            elif name in owner.__dict__:
                return

    def guard_same(self, first: AccessPath, second: AccessPath) -> None:
        self._record(("same", first, second), SameObject, first, second)

    def guard_different(self, *paths: AccessPath) -> None:
        self._record(("different", *paths), Different, paths)

    def guard_test(self, what: object, path: AccessPath, test: Callable[[Any], bool], text: str) -> None:
        """Rely on a test; `what` it says, for leaving out repeats."""
        self._record(("test", what), Predicate, path, test, text)

    def guard_set(self, path: AccessPath, real: Set[object]) -> None:
        """Its elements with their types. Their order: `guard_order`."""
        iterate = frozenset.__iter__ if isinstance(real, frozenset) else set.__iter__  # past a subclass's own
        expected = {(type(element), element) for element in iterate(real)}  # type: ignore[arg-type,var-annotated]
        elements = [element for _, element in expected]

        def same(other: Any) -> bool:
            return {(type(element), element) for element in iterate(other)} == expected

        self._record(("set", path), Predicate, path, same, f"{path} has {elements!r}")

    def guard_order(self, path: AccessPath, real: Set[object]) -> None:
        """The order in which a set iterates: equal sets may have others."""
        iterate = frozenset.__iter__ if isinstance(real, frozenset) else set.__iter__
        expected = list(iterate(real))  # type: ignore[arg-type,var-annotated]

        def same(other: Any) -> bool:
            return list(iterate(other)) == expected

        self._record(("order", path), Predicate, path, same, f"list({path}) == {expected!r}")

    def guards(self) -> tuple[Guard, ...]:
        """Everything recorded, with source locations."""
        for const in self.constants_read:
            if not const.used and const.path is not None and type(const.path) is not Pinned:
                self.guard_type(const.path, type(const.value))
        self.constants_read.clear()
        self._guard_different_keys()
        made: list[Guard] = []
        for kind, args, code, index in self.pending.values():
            if (self.made_classes or self.computed_ids) and self._is_stand_in(args[0]):
                continue
            location = self.root_location if code is None else code.location(index)
            made.append(kind(*args, location=location))  # type: ignore[call-arg]
        seen: set[object] = set()
        for guard in self.extra_guards:
            key = guard.key()
            if key not in seen:
                seen.add(key)
                made.append(guard)
        return tuple(made)

    def _guard_different_keys(self) -> None:
        """Objects that are keys by their identity stay as many objects as they were; those that are guarded singly do."""
        paths = [path for path in self.keys_by_identity.values() if path is not None]
        settled = sum(("id", path) in self.pending for path in paths)
        if len(paths) > max(1, settled):
            self.guard_different(*paths)

    def _is_stand_in(self, what: object) -> bool:
        """Does this path lead into a class that the region made, or into what the capture computed? It holds of this capture only."""
        if not isinstance(what, AccessPath):
            return False
        root = what.root()
        if type(root) is not Pinned:
            return False
        key = id(root.key)
        return key in self.class_parts or key in self.stand_in_ids or key in self.computed_ids
