"""C functions that may run at capture when all their arguments are constants: pure, and quick."""

from __future__ import annotations

import binascii
import cmath
import collections
import copyreg
import dataclasses
import datetime
import importlib
import math
import operator
import os
import posixpath
import re
import struct
import sys
import types
import typing
import zlib
from typing import Any

__all__ = ["is_opaque", "is_pure"]

_IMMUTABLE = (re.Pattern, re.Match, int, float, complex, str, bytes, bool, tuple, frozenset, range, type(None))
_FUNCTIONS = (
    abs, ascii, bin, chr, divmod, format, hash, hex, len, max, min, oct, ord, pow, repr, round, sorted, sum,
    callable, issubclass, isinstance, math.prod, str.maketrans,
    types.CodeType.replace, posixpath.join, os.fspath, sys.intern, re.compile, re.match, re.search, re.findall,
    re.split, re.fullmatch, re.escape, struct.pack, struct.unpack, struct.unpack_from, struct.calcsize, zlib.crc32, zlib.adler32,
)  # fmt: skip
_MODULES = (math, cmath, operator, binascii)
_TIMES = (datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone)
_OF_THE_PLACE = frozenset({"__format__", "astimezone", "strftime", "timestamp", "timetuple", "utctimetuple"})
"""Methods of dates that ask for the time zone or the language of the process."""
_CLASS_METHODS = frozenset({"combine", "from_bytes", "fromhex", "fromisocalendar", "fromisoformat", "fromordinal"})
_ITERATORS = frozenset({"__iter__", "__reversed__", "finditer", "scanner"})
"""Methods of immutable objects that give an object with a state, which every call needs anew."""
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
    for cls in (*_IMMUTABLE, *_TIMES):
        for name, raw in vars(cls).items():
            if name not in _ITERATORS | _OF_THE_PLACE and isinstance(
                raw, (types.MethodDescriptorType, types.WrapperDescriptorType)
            ):
                found.add(id(raw))
    return frozenset(found)


_PURE = _collect()


_OPAQUE_MODULES = frozenset(
    {"ast", "json", "linecache", "pickle", "pprint", "random", "secrets", "shutil", "statistics", "subprocess"}
    | {"tempfile", "threading", "timeit", "tokenize", "traceback", "uuid", "warnings", "zipfile"}
)
_OPAQUE_FUNCTIONS: tuple[Any, ...] = (
    collections.namedtuple, dataclasses.dataclass, dataclasses.make_dataclass, dataclasses._process_class,  # type: ignore[attr-defined]
     typing.TypeVar, typing.get_type_hints, typing.NamedTuple,
    importlib.import_module, copyreg.__newobj__, re._compiler.compile,  # type: ignore[attr-defined]
)  # fmt: skip
_OPAQUE_IDS = frozenset(map(id, _OPAQUE_FUNCTIONS))


def is_opaque(function: types.FunctionType | type) -> bool:
    """Does this function, or class, of the standard library run for real in one piece: state, files, new classes, threads?"""
    return id(function) in _OPAQUE_IDS or getattr(function, "__module__", None) in _OPAQUE_MODULES


def is_pure(obj: Any) -> bool:
    """Is this C function on the list, or a class method that makes an immutable object of its arguments?"""
    if id(obj) in _PURE:
        return True
    owner = getattr(obj, "__self__", None) if isinstance(obj, types.BuiltinFunctionType) else None
    return isinstance(owner, type) and owner in (*_IMMUTABLE, *_TIMES) and obj.__name__ in _CLASS_METHODS
