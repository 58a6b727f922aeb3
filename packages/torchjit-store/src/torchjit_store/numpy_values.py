"""Numbers of NumPy, which documents hold as a dtype and bytes. NumPy is never imported for them: it is there or it is not."""

from __future__ import annotations

import sys
from typing import Any

from torchjit_store.document import FormatError
from torchjit_store.stale import Stale

__all__ = ["built", "described", "is_scalar"]

_KINDS = "biufc"


def is_scalar(obj: Any) -> bool:
    """Is it a bool, integer, float or complex number of NumPy, of the exact type?"""
    numpy: Any = sys.modules.get("numpy")
    return (
        numpy is not None
        and isinstance(obj, numpy.generic)
        and obj.dtype.kind in _KINDS
        and type(obj) is obj.dtype.type
    )


def described(obj: Any) -> tuple[str, bytes]:
    """Its dtype and its bytes."""
    return obj.dtype.str, obj.tobytes()


def built(dtype: str, content: bytes) -> Any:
    """The number again.

    Raises:
        Stale: NumPy is not imported.
        FormatError: it is no number.
    """
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        raise Stale("numpy is not imported")
    kind = numpy.dtype(dtype)
    if kind.kind not in _KINDS or len(content) != kind.itemsize:
        raise FormatError(f"{dtype} is no number")
    return numpy.frombuffer(content, kind)[0]
