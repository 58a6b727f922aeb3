"""C functions that may run at capture when all their arguments are constants: pure, and quick."""

from __future__ import annotations

import cmath
import functools
import math
import operator
import posixpath
import types
from typing import Any

__all__ = ["is_pure"]

_IMMUTABLE = (int, float, complex, str, bytes, bool, tuple, frozenset, range, type(None))
_FUNCTIONS = (
    abs, ascii, bin, chr, divmod, format, hash, hex, len, max, min, oct, ord, pow, repr, round, sorted, sum,
    callable, issubclass, isinstance, math.prod, str.maketrans, bytes.fromhex, int.from_bytes, float.fromhex,
    types.CodeType.replace, functools.cmp_to_key, posixpath.join,
)  # fmt: skip
_MODULES = (math, cmath, operator)
_EFFECTS = frozenset(
    {"setitem", "delitem", "iadd", "iand", "iconcat", "ifloordiv", "ilshift", "imatmul", "imod", "imul", "ior"}
    | {"ipow", "irshift", "isub", "itruediv", "ixor", "call", "attrgetter", "itemgetter", "methodcaller"}
)


def _collect() -> frozenset[int]:
    found = {id(f) for f in _FUNCTIONS}
    for module in _MODULES:
        for name, function in vars(module).items():
            if isinstance(function, types.BuiltinFunctionType) and name not in _EFFECTS:
                found.add(id(function))
    for cls in _IMMUTABLE:
        for raw in vars(cls).values():
            if isinstance(raw, (types.MethodDescriptorType, types.WrapperDescriptorType)):
                found.add(id(raw))
    return frozenset(found)


_PURE = _collect()


def is_pure(obj: Any) -> bool:
    """Is this C function on the list?"""
    return id(obj) in _PURE
