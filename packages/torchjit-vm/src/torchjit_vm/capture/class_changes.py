"""What the region knows about classes that it made, and changes to them. See `classes`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

from torchjit_vm.capture.reasons import CLASS_BODY
from torchjit_vm.capture.twins import twin_of
from torchjit_vm.capture.types import is_subtype
from torchjit_vm.capture.values import Known, Value
from torchjit_vm.type_labels import type_label

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["MadeClass", "delete_from_class", "is_made", "note_change", "store_in_class"]


@final
class MadeClass:
    """How the region made a class, so that emitted code can do it again.

    Attributes:
        make: `make_class` or `make_library_class`; None if `before` was changed into this class by the last of its calls.
        meta, name, bases, namespace, keywords: its arguments.
        log: what happened to the class later, in order: ("set", name, value), ("delete", name) and
            ("call", function, further arguments, keywords, the class in its place or None).
        before: the class that a decorator replaced with this one.
        born: the step of the instruction that made it.
    """

    __slots__ = ("bases", "before", "born", "keywords", "log", "make", "meta", "name", "namespace")

    def __init__(
        self,
        make: Callable[..., Any] | None,
        meta: Value,
        name: str,
        bases: list[Value],
        namespace: dict[str, Value],
        keywords: dict[str, Value],
        before: type | None = None,
        *,
        born: int,
    ) -> None:
        self.make, self.meta, self.name, self.bases = make, meta, name, bases
        self.namespace, self.keywords, self.before = namespace, keywords, before
        self.log: list[tuple[Any, ...]] = []
        self.born = born


def is_made(domain: CaptureDomain, value: Value) -> bool:
    """Is the value a class that the region made?"""
    return type(value) is Known and isinstance(value.obj, type) and value.obj in domain.made_classes


def store_in_class(domain: CaptureDomain, cls: type, name: str, content: Value) -> None:
    """`cls.name = content` of a class that the region made."""
    real = twin_of(domain, content)
    try:
        type.__setattr__(cls, name, real)
    except (TypeError, AttributeError, ValueError) as error:
        raise domain.graph_break(CLASS_BODY, f"store to {name}: {error}") from None
    note_change(domain, cls, ("set", name, content), name)


def delete_from_class(domain: CaptureDomain, cls: type, name: str) -> None:
    """`del cls.name` of a class that the region made."""
    if name not in vars(cls):
        text = f"type object '{type_label(cls)}' has no attribute '{name}'"
        raise domain.error(AttributeError, text)
    type.__delattr__(cls, name)
    note_change(domain, cls, ("delete", name), name)


def note_change(domain: CaptureDomain, cls: type, entry: tuple[Any, ...], *names: str) -> None:
    domain.mutated_at = domain.vm.step
    domain.made_classes[cls].log.append(entry)
    for known, attribute in list(domain.members):
        if is_subtype(known, cls) and (not names or attribute in names):
            del domain.members[known, attribute]
    for made in domain.made_classes:
        if is_subtype(made, cls):
            value = domain.interned.get(id(made))
            if type(value) is Known:
                value.attrs.clear()
