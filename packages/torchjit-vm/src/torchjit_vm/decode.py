"""CPython 3.11, 3.12 and 3.13 bytecode to one canonical instruction set. All version differences live here.

Canonical instructions carry resolved arguments: names instead of name indices, instruction indices instead of jump
offsets, operator functions instead of operator numbers. Two things are made alike:

* `CALL` accepts the NULL on either side of the callable, so both stack orders (3.11-3.12 and 3.13) are one;
* what merely prepares the next instruction is merged into it (`KW_NAMES`, `PRECALL`, a `TO_BOOL` before a jump).

Source: Lib/dis.py, Lib/opcode.py, Python/bytecodes.c (3.12, 3.13) and Python/ceval.c (3.11).
"""

from __future__ import annotations

import opcode as cpython
import operator
import sys
import weakref
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, final

from torchjit_core.location import CodeLocation
from torchjit_vm.instructions.registry import INSTRUCTIONS, Handler
from torchjit_vm.region import local_names

__all__ = [
    "CLOSE_RETURNS",
    "IGNORED",
    "SUBSETS_STOP_EARLY",
    "THROWN_AS_IS",
    "UNSUPPORTED",
    "WARNS_OF_THROW",
    "Decoded",
    "Handling",
    "decode",
    "translate",
]

VERSION = sys.version_info[:2]
CLOSE_RETURNS = VERSION >= (3, 13)
"""Does `generator.close()` give what the generator returns?"""
WARNS_OF_THROW = VERSION >= (3, 12)
"""Is `throw(type, value, traceback)` deprecated?"""
THROWN_AS_IS = VERSION >= (3, 12)
"""Does StopIteration thrown into a generator that has not started leave it as it is?"""
SUBSETS_STOP_EARLY = VERSION >= (3, 12)
"""Does `issubset` take no more of an iterable than it needs?"""

UNSUPPORTED = {
    "PRINT_EXPR": "only the interactive prompt uses it",
    "IMPORT_STAR": "`from m import *` cannot occur in a function",
    "ASYNC_GEN_WRAP": "asynchronous generators are not interpreted",
    "TYPE_PARAMETERS": "type parameter scopes are not interpreted",
    "CHECK_EG_MATCH": "parts of exception groups are told by the tracebacks that CPython gives them",
    "PREP_RERAISE_STAR": "see CHECK_EG_MATCH",
}
"""Operations that the interpreter refuses, with the reason; their canonical instruction is UNSUPPORTED."""

IGNORED = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "RESUME", "PRECALL", "COPY_FREE_VARS", "END_FOR", "KW_NAMES"})
"""Instructions without a canonical form: frames are made ready before their code starts, `FOR_ITER` cleans up."""

_BINARY = [
    operator.add, operator.and_, operator.floordiv, operator.lshift, operator.matmul, operator.mul, operator.mod,
    operator.or_, operator.pow, operator.rshift, operator.sub, operator.truediv, operator.xor,
    operator.iadd, operator.iand, operator.ifloordiv, operator.ilshift, operator.imatmul, operator.imul, operator.imod,
    operator.ior, operator.ipow, operator.irshift, operator.isub, operator.itruediv, operator.ixor,
]  # fmt: skip
_COMPARE = [operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge]
_FREE_FORM = {1: "PRINT_EXPR", 2: "IMPORT_STAR", 3: "STOPITERATION_ERROR", 4: "ASYNC_GEN_WRAP"}
_INTRINSIC_1 = {**_FREE_FORM, 5: "UNARY_POSITIVE", 6: "LIST_TO_TUPLE"}

Canonical = list[tuple[str, Any]]


@final
class Handling:
    """One row of the exception table: instructions `start <= i < end` go to `target` with the stack cut to `depth`."""

    __slots__ = ("depth", "end", "lasti", "start", "target")

    def __init__(self, start: int, end: int, target: int, depth: int, lasti: bool) -> None:
        self.start, self.end, self.target, self.depth, self.lasti = start, end, target, depth, lasti


@final
class Decoded:
    """A code object as the interpreter runs it.

    Attributes:
        code: the original, which a frame that runs it keeps alive; this does not.
        instrs: `(handler, argument)` per canonical instruction.
        names: the canonical name of each.
        offsets: the bytecode offset of each, where a continuation that starts with it is entered.
        positions: the bytecode offset that its source position belongs to.
        index_of: bytecode offset to index.
        handling: the exception table, innermost row first where rows overlap.
        locals: the names of all locals, cells and free variables.
        nfree: the number of free variables, the last of `locals`.
        boxed: constants wrapped by a domain, per domain class.
        has_groups: it has an `except*`: its frames are left to CPython.
    """

    __slots__ = (
        "_code", "_locations", "boxed", "handling", "has_groups", "index_of", "instrs", "liveness",
        "locals", "names", "nfree", "offsets", "positions",
    )  # fmt: skip

    def __init__(self, code: CodeType, forget: Callable[[weakref.ref[CodeType]], object] | None = None) -> None:
        self._code = weakref.ref(code, forget)
        self.instrs: list[tuple[Handler, Any]] = []
        self.names: list[str] = []
        self.offsets: list[int] = []
        self.positions: list[int] = []
        self.index_of: dict[int, int] = {}
        self.handling: list[Handling] = []
        self.locals = local_names(code)
        self.nfree = len(code.co_freevars)
        self.has_groups = False
        self.boxed: dict[type, Any] = {}
        self.liveness: list[frozenset[int]] | None = None
        self._locations: list[CodeLocation | None] = []
        _fill(self)

    @property
    def code(self) -> CodeType:
        """The original.

        Raises:
            ReferenceError: it is gone.
        """
        found = self._code()
        if found is None:
            raise ReferenceError("the code object of these instructions is gone")
        return found

    def location(self, index: int) -> CodeLocation:
        """Where in the source instruction `index` is."""
        if not self._locations:
            self._locations = [None] * len(self.instrs)
        found = self._locations[index]
        if found is None:
            positions = list(self.code.co_positions())
            for i, offset in enumerate(self.positions):
                line, end_line, col, end_col = positions[offset // 2]
                self._locations[i] = CodeLocation(
                    self.code.co_filename,
                    self.code.co_qualname,
                    line if line is not None else self.code.co_firstlineno,
                    end_line,
                    col,
                    end_col,
                )
            found = self._locations[index]
        if found is None:
            raise IndexError(index)
        return found

    def handler_of(self, index: int) -> Handling | None:
        """The row of the exception table that covers instruction `index`."""
        for row in self.handling:
            if row.start <= index < row.end:
                return row
        return None

    def may_catch(self, index: int, anything: bool = False) -> bool:
        """Is there an `except` around instruction `index` that an error of a computation may go to, and that does not only raise another?

        Args:
            anything: the instruction may raise errors of all classes, and does so once.
        """
        row = self.handler_of(index)
        passed: set[int] = set()
        while row is not None and row.target not in passed:
            passed.add(row.target)
            if self._catches(row.target, anything):
                return True
            row = self.handler_of(row.target)
        return False

    def _catches(self, target: int, anything: bool) -> bool:
        """Is the handler at `target` an `except`? Others are `finally`, exits of `with`, and what restores the exception before."""
        if self.names[target] != "PUSH_EXC_INFO":
            return False
        at, kinds = self._clause(target + 1)
        while self.names[at] == "CHECK_EXC_MATCH":
            passes = bool(kinds) and kinds <= _OF_PYTHON and not anything
            raises = self._only_raises(at + 2, set() if anything else kinds)
            if not self.names[at + 1].startswith("POP_JUMP") or not (passes or raises):
                return True
            at, kinds = self._clause(self.instrs[at + 1][1])
        return self.names[at] == "POP_TOP" and not self._only_raises(at, set())

    def _clause(self, at: int) -> tuple[int, set[Any]]:
        """Behind what stands before the test of an `except` clause, and the names of its classes, as far as they are such."""
        kinds: list[Any] = []
        while self.names[at] in _BEFORE_TESTS:
            if self.names[at] == "LOAD_ATTR":  # of a module
                kinds.pop()
            kinds.append(self.instrs[at][1] if self.names[at] in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR") else None)
            at += 1
        return at, set(kinds) - {None}

    def _only_raises(self, at: int, kinds: set[Any]) -> bool:
        """Does the block of an `except` for `kinds` only raise, the same error or another one of that kind with more to say?"""
        if not self.names[at].startswith(("POP_TOP", "STORE_")):  # where the exception goes
            return False
        made: Any = None
        for name, (_, argument) in zip(self.names[at + 1 :], self.instrs[at + 1 :], strict=True):
            if name == "RAISE_VARARGS":
                return argument == 0 or (made is not None and kinds == {made})
            if made is None and name in ("LOAD_GLOBAL", "LOAD_NAME"):
                made = argument
            if name in _MORE or name.startswith(
                ("JUMP", "POP_JUMP", "RETURN", "YIELD", "STORE", "DELETE", "IMPORT", "FOR_")
            ):
                return False
        return False


_BEFORE_TESTS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_FAST", "LOAD_DEREF", "BUILD_TUPLE"})
"""What stands before the test of an `except` clause."""
_MORE = frozenset({"POP_TOP", "POP_EXCEPT", "RERAISE", "PUSH_EXC_INFO", "SEND", "BEFORE_WITH", "CHECK_EXC_MATCH"})
"""What shows, with jumps and stores, that a block does something else than to raise."""
_OF_PYTHON = {
    "AttributeError", "KeyError", "ImportError", "ModuleNotFoundError", "NameError", "TypeError", "StopIteration",
    "AssertionError", "NotImplementedError", "OutOfMemoryError",
}  # fmt: skip
"""Errors that a computation on tensors does not raise for what is in them (`NotImplementedError`: for where they are)."""


_decoded: dict[int, Decoded] = {}


def decode(code: CodeType) -> Decoded:
    """Decode once per code object; what is known of one goes with it."""
    key = id(code)
    found = _decoded.get(key)
    if found is None:
        found = _decoded[key] = Decoded(code, lambda _: _decoded.pop(key, None))
    return found


def forget_decoded() -> None:
    """Decode every code object anew when it is met again: the table of instructions has changed."""
    _decoded.clear()


def _raw(code: CodeType) -> Iterator[tuple[int, int, str, int, int]]:
    """Yield (offset with prefixes, offset, name, argument, offset of the next instruction)."""
    text = code.co_code
    opname = cpython.opname
    start: int | None = None
    extended = 0
    i, n = 0, len(text)
    while i < n:
        op, arg = text[i], text[i + 1] | extended
        if start is None:
            start = i
        if op == cpython.EXTENDED_ARG:
            extended = arg << 8
            i += 2
            continue
        following = i + 2
        while following < n and text[following] == 0:  # CACHE
            following += 2
        yield start, i, opname[op], arg, following
        start, extended, i = None, 0, following


def _fill(decoded: Decoded) -> None:
    code = decoded.code
    index_of = decoded.index_of
    jumps: list[int] = []
    keywords: tuple[str, ...] = ()
    pending_start: int | None = None
    raw = list(_raw(code))
    for number, (start, offset, name, arg, following) in enumerate(raw):
        index = len(decoded.names)
        index_of[start] = index_of[offset] = index
        if name == "KW_NAMES":
            keywords = code.co_consts[arg]
            continue
        if name in IGNORED:
            continue
        if name == "TO_BOOL" and _takes_any(raw[number + 1][2]):
            pending_start = start
            continue
        decoded.has_groups |= name == "CHECK_EG_MATCH"
        for op, value in translate(name, arg, following, code):
            if op == "CALL":
                value, keywords = (value, keywords), ()
            elif op in JUMPS:
                jumps.append(len(decoded.names))
            decoded.names.append(op)
            decoded.instrs.append((INSTRUCTIONS[op].handler, value))
            decoded.offsets.append(start if pending_start is None else pending_start)
            decoded.positions.append(offset)
        pending_start = None
    for at in jumps:
        handler, value = decoded.instrs[at]
        decoded.instrs[at] = (handler, index_of[value])
    index_of[len(code.co_code)] = len(decoded.names)
    decoded.handling = [
        Handling(index_of[a], index_of[b], index_of[t], depth, lasti)
        for a, b, t, depth, lasti in _exception_table(code)
    ]


def _takes_any(name: str) -> bool:
    """Does this instruction, which 3.13 only gives a bool, test the truth itself in its canonical form?"""
    return name.startswith("POP_JUMP_IF_") or name == "UNARY_NOT"


def _exception_table(code: CodeType) -> Iterator[tuple[int, int, int, int, bool]]:
    """Source: Objects/exception_handling_notes.txt."""
    data = iter(code.co_exceptiontable)

    def number(first: int) -> int:
        value = first & 63
        while first & 64:
            first = next(data)
            value = value << 6 | first & 63
        return value

    for first in data:
        start = number(first) * 2
        length = number(next(data)) * 2
        target = number(next(data)) * 2
        depth_lasti = number(next(data))
        yield start, start + length, target, depth_lasti >> 1, bool(depth_lasti & 1)


JUMPS = frozenset(
    {
        "JUMP", "POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE",
        "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP", "FOR_ITER", "SEND", "SEND_KEEPING",
    }
)  # fmt: skip
"""Canonical instructions whose argument is a target."""


def translate(name: str, arg: int, following: int, code: CodeType) -> Canonical:
    """One instruction of this Python to canonical ones; jump targets are still bytecode offsets."""
    special = _SPECIAL.get(name)
    if special is not None:
        return special(arg, following, code)
    if name in UNSUPPORTED:
        return [("UNSUPPORTED", name)]
    return [(name, arg)]


Translator = Callable[[int, int, CodeType], Canonical]
_SPECIAL: dict[str, Translator] = {}


def _translator(name: str) -> Callable[[Translator], Translator]:
    def register(function: Translator) -> Translator:
        _SPECIAL[name] = function
        return function

    return register


def _named(name: str) -> Translator:
    return lambda arg, following, code: [(name, code.co_names[arg])]


def _jump(canonical: str, sign: int) -> Translator:
    return lambda arg, following, code: [(canonical, following + sign * 2 * arg)]


def _fixed(name: str, argument: Any) -> Translator:
    return lambda arg, following, code: [(name, argument)]


def _renamed(name: str) -> Translator:
    return lambda arg, following, code: [(name, arg)]


def _locals(first: str, second: str) -> Translator:
    return lambda arg, following, code: [(first, arg >> 4), (second, arg & 15)]


_COMPARED = {(3, 11): 0, (3, 12): 4}.get(VERSION, 5)
_SPECIAL |= {
    name: _named(name)
    for name in (
        "STORE_NAME", "DELETE_NAME", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR",
        "IMPORT_NAME", "IMPORT_FROM", "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_METHOD",
    )
}  # fmt: skip
for _test in ("TRUE", "FALSE", "NONE", "NOT_NONE"):
    _SPECIAL[f"POP_JUMP_IF_{_test}"] = _SPECIAL[f"POP_JUMP_FORWARD_IF_{_test}"] = _jump(f"POP_JUMP_IF_{_test}", 1)
    _SPECIAL[f"POP_JUMP_BACKWARD_IF_{_test}"] = _jump(f"POP_JUMP_IF_{_test}", -1)
_SPECIAL |= {
    "JUMP_FORWARD": _jump("JUMP", 1),
    "JUMP_BACKWARD": _jump("JUMP", -1),
    "JUMP_BACKWARD_NO_INTERRUPT": _jump("JUMP", -1),
    "JUMP_IF_TRUE_OR_POP": _jump("JUMP_IF_TRUE_OR_POP", 1),
    "JUMP_IF_FALSE_OR_POP": _jump("JUMP_IF_FALSE_OR_POP", 1),
    "SEND": _jump("SEND" if VERSION < (3, 12) else "SEND_KEEPING", 1),
    "BINARY_OP": lambda arg, following, code: [("BINARY_OP", _BINARY[arg])],
    "COMPARE_OP": lambda arg, following, code: [
        ("COMPARE_OP_BOOL" if VERSION >= (3, 13) and arg & 16 else "COMPARE_OP", _COMPARE[arg >> _COMPARED])
    ],
    "UNARY_NEGATIVE": _fixed("UNARY_OP", operator.neg),
    "UNARY_INVERT": _fixed("UNARY_OP", operator.invert),
    "UNARY_POSITIVE": _fixed("UNARY_OP", operator.pos),
    "RETURN_CONST": lambda arg, following, code: [("LOAD_CONST", arg), ("RETURN_VALUE", 0)],
    "LOAD_FAST_CHECK": _renamed("LOAD_FAST"),
    "LOAD_CLOSURE": _renamed("LOAD_FAST"),
    "LOAD_FAST_LOAD_FAST": _locals("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": _locals("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": _locals("STORE_FAST", "STORE_FAST"),
    "FORMAT_WITH_SPEC": _fixed("FORMAT_WITH_SPEC", 0),
    "CALL_INTRINSIC_2": lambda arg, following, code: [
        ("UNSUPPORTED", "PREP_RERAISE_STAR" if arg == 1 else "TYPE_PARAMETERS")
    ],
    "MAKE_FUNCTION": lambda arg, following, code: [("MAKE_FUNCTION", arg if VERSION < (3, 13) else 0)],
}


@_translator("FOR_ITER")
def _for_iter(arg: int, following: int, code: CodeType) -> Canonical:
    # 3.12 jumps over END_FOR and 3.13 over END_FOR, POP_TOP when the iterator is exhausted, having popped it.
    skip = {(3, 11): 0, (3, 12): 2, (3, 13): 4}[VERSION]
    return [("FOR_ITER", following + 2 * arg + skip)]


@_translator("LOAD_GLOBAL")
def _load_global(arg: int, following: int, code: CodeType) -> Canonical:
    load = ("LOAD_GLOBAL", code.co_names[arg >> 1])
    if not arg & 1:
        return [load]
    return [load, ("PUSH_NULL", 0)] if VERSION >= (3, 13) else [("PUSH_NULL", 0), load]


@_translator("LOAD_ATTR")
def _load_attr(arg: int, following: int, code: CodeType) -> Canonical:
    if VERSION < (3, 12):
        return [("LOAD_ATTR", code.co_names[arg])]
    name = code.co_names[arg >> 1]
    return [(_METHOD, name)] if arg & 1 else [("LOAD_ATTR", name)]


_METHOD = "LOAD_METHOD_NULL_LAST" if VERSION >= (3, 13) else "LOAD_METHOD"


@_translator("LOAD_SUPER_ATTR")
def _load_super_attr(arg: int, following: int, code: CodeType) -> Canonical:
    name = code.co_names[arg >> 2]
    if not arg & 1:
        return [("LOAD_SUPER_ATTR", name)]
    return [("LOAD_SUPER_METHOD_NULL_LAST" if VERSION >= (3, 13) else "LOAD_SUPER_METHOD", name)]


@_translator("FORMAT_VALUE")
def _format_value(arg: int, following: int, code: CodeType) -> Canonical:
    convert = [("CONVERT_VALUE", arg & 3)] if arg & 3 else []
    if arg & 4:  # the conversion applies below the format spec
        return [("FORMAT_WITH_SPEC", arg & 3)]
    return [*convert, ("FORMAT_SIMPLE", 0)]


@_translator("CALL_INTRINSIC_1")
def _intrinsic_1(arg: int, following: int, code: CodeType) -> Canonical:
    name = _INTRINSIC_1.get(arg, "TYPE_PARAMETERS")
    if name == "UNARY_POSITIVE":
        return [("UNARY_OP", operator.pos)]
    return [("UNSUPPORTED", name)] if name in UNSUPPORTED else [(name, 0)]
