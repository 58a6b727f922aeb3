"""What the region knows about classes that it made, and changes to them. See `classes`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchjit_vm.capture.reasons import CLASS_BODY
from torchjit_vm.capture.stand_in_classes import stand_in_of
from torchjit_vm.capture.types import is_subtype
from torchjit_vm.capture.values import Known, Value
from torchjit_vm.type_labels import type_label

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["delete_from_class", "is_made", "note_change", "store_in_class"]


def is_made(domain: CaptureDomain, value: Value) -> bool:
    """Is the value a class that the region made?"""
    return type(value) is Known and isinstance(value.obj, type) and value.obj in domain.made_classes


def store_in_class(domain: CaptureDomain, cls: type, name: str, content: Value) -> None:
    """`cls.name = content` of a class that the region made."""
    real = stand_in_of(domain, content)
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


def note_change(domain: CaptureDomain, cls: type, entry: tuple[object, ...], *names: str) -> None:
    domain.note_change(domain.interned.get(id(cls)) or Known(cls))
    domain.made_classes[cls].log.append(entry)
    for known, attribute in list(domain.members):
        if is_subtype(known, cls) and (not names or attribute in names):
            del domain.members[known, attribute]
    for made in domain.made_classes:
        if is_subtype(made, cls):
            value = domain.interned.get(id(made))
            if type(value) is Known:
                value.attrs.clear()
