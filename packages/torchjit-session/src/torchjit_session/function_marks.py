"""What a program says of functions (`allow_in_graph`, `disallow_in_graph` ...), and of which functions a capture asked.

An entry on disk holds both. In a process that says something else of one of these functions it is of no use; what is said of others
does not count. Functions are known by their names and their code: objects that have no name of their own are in the key of all entries.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, final

import attrs

from torchjit_session import control, upstream
from torchjit_store.deferred import Deferred
from torchjit_store.fingerprints import class_name, code_digest, namespace

__all__ = ["Asked", "Marks", "differing", "marks_of_nameless", "name_of"]


@final
@attrs.frozen(eq=False, repr=False)
class Marks:
    """Of an entry.

    Attributes:
        said: what the program said of functions that the capture asked about, by name.
        others: digests of the names of those of which it said nothing.
    """

    said: Mapping[str, tuple[str, ...]]
    others: Deferred[tuple[str, ...]]


@final
class Asked:
    """The functions about which a capture asks."""

    def __init__(self) -> None:
        self._functions: dict[int, object] = {}

    def note(self, function: object) -> None:
        self._functions[id(function)] = function

    def noting(self, ask: Callable[[object], Any]) -> Callable[[object], Any]:
        """`ask`, of functions that are noted."""

        def asked(function: object) -> Any:
            self.note(function)
            return ask(function)

        return asked

    def within(self, members: Container[Any]) -> Container[Any]:
        """The container, of functions that are noted."""
        return _Asked(members, self.note)

    def marks(self) -> Marks:
        """What is said of them now."""
        said = _said()
        names = {name for function in self._functions.values() if (name := name_of(function)) is not None}
        others = sorted(map(_short, names - said.keys()))
        return Marks({name: said[name] for name in sorted(names & said.keys())}, Deferred(tuple(others)))


@final
@attrs.frozen(eq=False)
class _Asked(Container[Any]):
    members: Container[Any]
    note: Callable[[object], None]

    def __contains__(self, function: object) -> bool:
        self.note(function)
        return function in self.members


def differing(marks: Marks) -> str | None:
    """Of which function this process says something else than the one of an entry; None: of none.

    Raises:
        Exception: the entry is damaged.
    """
    said = _said()
    for name, was in marks.said.items():
        if said.get(name) != was:
            return f"{name.partition(' ')[0]} was marked ({', '.join(was)}), and is not, or otherwise"
    new = said.keys() - marks.said.keys()
    others = frozenset(marks.others.get()) if new else frozenset()
    found = next((name for name in sorted(new) if _short(name) in others), None)
    return None if found is None else f"{found.partition(' ')[0]} is marked ({', '.join(said[found])}), and was not"


def marks_of_nameless() -> list[str]:
    """What is said of objects that no name tells from others of their class, and how many functions upstream's `allow_in_graph` was given."""
    found = [f"{kind} {_class_of(fn)}" for kind, fn in _each() if name_of(fn) is None]
    return [*sorted(found), str(upstream.marked_count())]


def _said() -> dict[str, tuple[str, ...]]:
    """By name, for what has one."""
    found: dict[str, set[str]] = {}
    for kind, function in _each():
        name = name_of(function)
        if name is not None:
            found.setdefault(name, set()).add(kind)
    return {name: tuple(sorted(kinds)) for name, kinds in found.items()}


def _each() -> Iterator[tuple[str, object]]:
    """What was said, and of what."""
    kinds = {
        "in graph": control.ALLOWED_IN_GRAPH,
        "constant": control.CONSTANT_RESULTS - control.OWN_CONSTANTS,
        "disallowed": control.DISALLOWED,
        "forbidden": control.FORBIDDEN,
    }
    for kind, functions in kinds.items():
        for function in tuple(functions):
            yield kind, function
    for function, substitute in {**control.SUBSTITUTED, **upstream.substitutes()}.items():
        meant = getattr(substitute, "function", substitute)
        yield f"{_class_of(substitute)} {name_of(meant) or _class_of(meant)}", function


def name_of(obj: Any) -> str | None:
    """Module and qualified name, of a function of Python's with its code: two of them may have one name. None for what has no name of its own.

    No code of the program runs.
    """
    exact = type(obj)
    if exact is types.FunctionType:
        return f"{obj.__module__}.{obj.__qualname__} {code_digest(obj.__code__).hex()}"
    if issubclass(exact, type):
        return class_name(obj)
    if exact in _OF_C:
        return f"{class_name(exact)} {getattr(obj, '__module__', None)}.{obj.__qualname__}"
    name = namespace(obj).get("__qualname__")  # of an operator of torch's
    return f"{class_name(exact)} {name}" if type(name) is str else None


_OF_C = frozenset(
    {
        types.BuiltinFunctionType,
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.ClassMethodDescriptorType,
        types.GetSetDescriptorType,
    }
)
"""Types of C whose objects have a name that no code of a program gives."""


def _class_of(obj: object) -> str:
    return class_name(type(obj))


def _short(name: str) -> str:
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
