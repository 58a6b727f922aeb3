"""What CPython's error messages call a class."""

from __future__ import annotations

import types
from typing import Any

__all__ = ["type_label"]

_DESCRIPTORS = (
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
_vars: Any = type.__dict__["__dict__"]
_END = "' objects>"


def type_label(cls: type) -> str:
    """The class's `tp_name`: classes made in C outside of builtins have their module in it, as in `types.SimpleNamespace`.

    Python shows it nowhere but in messages, and in the repr of what C defines in the class.
    """
    for defined in _vars.__get__(cls).values():
        if type(defined) in _DESCRIPTORS and defined.__objclass__ is cls:
            return repr(defined).removesuffix(_END).rpartition(" of '")[2]
    return cls.__name__
