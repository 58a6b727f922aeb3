"""Class methods written in C, bound to a class of the program (`apply` of an autograd function): each read of one gives another object."""

from __future__ import annotations

from types import BuiltinFunctionType, ClassMethodDescriptorType
from typing import Any

from torchjit_store.document import FormatError
from torchjit_store.fingerprints import mro, namespace

__all__ = ["class_method", "is_class_method"]


def class_method(cls: type, name: str) -> Any:
    """The nearest class method of C of this name, bound to the class. No code of the program runs.

    Raises:
        FormatError: there is none.
    """
    for base in mro(cls):
        found = namespace(base).get(name)
        if type(found) is ClassMethodDescriptorType:
            return found.__get__(None, cls)
    raise FormatError(f"no class method {name}")


def is_class_method(obj: BuiltinFunctionType) -> bool:
    """Is it what `class_method` gives?"""
    owner: Any = obj.__self__
    if not issubclass(type(owner), type):
        return False
    try:
        return bool(class_method(owner, obj.__name__) == obj)
    except FormatError:
        return False
