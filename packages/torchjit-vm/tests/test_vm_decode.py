"""Decoding: every instruction of this Python is known, and does to the stack what `dis` says."""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import dataclasses
import dis
import functools
import inspect
import json
import opcode
import textwrap
import types
from collections.abc import Iterator
from typing import Any

import pytest

from torchjit_vm.decode import IGNORED, JUMPS, UNSUPPORTED, VERSION, decode, translate
from torchjit_vm.instructions.registry import INSTRUCTIONS

_PSEUDO = 256
REAL = sorted(
    name
    for name, number in opcode.opmap.items()
    if number < _PSEUDO and not name.startswith(("INSTRUMENTED_", "RESERVED", "INTERPRETER_EXIT", "ENTER_EXECUTOR"))
)
# One instruction here, two there: PRECALL takes the arguments and CALL the callable; FOR_ITER leaves to END_FOR what
# our form of it takes off the stack itself; the jump of SEND is counted before END_SEND.
_DIVIDED = {"PRECALL", "CALL", "END_FOR", "KW_NAMES"}
_INTERNAL = {"CACHE", "EXIT_INIT_CHECK"}
if VERSION < (3, 13):
    _DIVIDED.add("RETURN_GENERATOR")  # what is sent first is not counted there


def code_with(count: int) -> types.CodeType:
    """A code object with enough names, locals and constants for any small argument."""
    names = "; ".join(f"g{i}.a{i}" for i in range(count))
    return compile(names, "f.py", "exec")


SAMPLE = code_with(130)


@pytest.mark.parametrize("name", REAL)
def test_known(name: str) -> None:
    """Registered, ignored on purpose, or refused with a reason."""
    if name in IGNORED or name in UNSUPPORTED or name in _INTERNAL:
        return
    for canonical, _ in translate(name, 2, 10, SAMPLE):
        assert canonical in INSTRUCTIONS, name


@pytest.mark.parametrize("name", [n for n in REAL if n not in IGNORED | UNSUPPORTED.keys() | _DIVIDED | _INTERNAL])
@pytest.mark.parametrize("arg", [0, 1, 2, 3, 4, 6])
def test_stack_effect(name: str, arg: int) -> None:
    number = opcode.opmap[name]
    has_argument: list[int] = getattr(dis, "hasarg", [n for n in opcode.opmap.values() if n >= dis.HAVE_ARGUMENT])
    takes_argument = number in has_argument
    if name == "RAISE_VARARGS" and arg > 2 or name == "BUILD_SLICE" and arg not in (2, 3):
        return
    if name in ("BINARY_OP", "COMPARE_OP", "SWAP", "COPY", "CONVERT_VALUE") and arg > 3:
        return
    if name.startswith("CALL_INTRINSIC"):
        return  # a table of its own, tested by running it
    try:
        forms = translate(name, arg, 10, SAMPLE)
    except IndexError:
        return
    for jump in (False, True):
        if jump and not any(op in JUMPS for op, _ in forms):
            continue
        if jump and name in ("FOR_ITER", "SEND"):
            continue
        expected = dis.stack_effect(number, arg if takes_argument else None, jump=jump)
        assert sum(INSTRUCTIONS[op].net(value, jump=jump) for op, value in forms) == expected


def test_call_effect() -> None:
    assert INSTRUCTIONS["CALL"].net((3, ())) == -4


def functions(module: types.ModuleType) -> Iterator[types.CodeType]:
    pending = [compile(inspect.getsource(module), module.__file__ or "", "exec")]
    while pending:
        code = pending.pop()
        yield code
        pending += [c for c in code.co_consts if isinstance(c, types.CodeType)]


@pytest.mark.parametrize(
    "module", [argparse, ast, collections, contextlib, dataclasses, functools, json, textwrap], ids=lambda m: m.__name__
)
def test_decodes_the_standard_library(module: types.ModuleType) -> None:
    """Targets lie inside, handlers cover real ranges, and offsets lead back to their instruction."""
    for code in functions(module):
        decoded = decode(code)
        count = len(decoded.instrs)
        assert count == len(decoded.names) == len(decoded.offsets)
        for index, name in enumerate(decoded.names):
            if name in JUMPS:
                assert 0 <= decoded.instrs[index][1] < count
            assert decoded.index_of[decoded.offsets[index]] <= index
        for row in decoded.handling:
            assert 0 <= row.start <= row.end <= count
            assert row.target < count
        assert decoded.location(count - 1).filename == code.co_filename


def test_refusals_have_reasons() -> None:
    """What is refused is an instruction of some supported Python, or a group of intrinsics, and says why."""
    groups = {"PRINT_EXPR", "IMPORT_STAR", "ASYNC_GEN_WRAP", "TYPE_PARAMETERS"}
    for name, why in UNSUPPORTED.items():
        assert name not in INSTRUCTIONS and why.strip()
        assert name in opcode.opmap or name in groups or VERSION > (3, 11), name


def _bare(x: Any) -> None:
    try:
        x()
    except:  # noqa: E722
        pass


def _named(x: Any) -> None:
    try:
        with x:
            x()
    except (KeyError, ValueError):
        pass


def _second(x: Any) -> None:
    for _ in x:
        try:
            x()
        except KeyError:
            pass
        except x.Error:
            pass


def _other_errors(x: Any) -> None:
    try:
        with x:
            x()
    except (KeyError, TypeError) as error:
        x.error = error
    except x.OutOfMemoryError:
        pass
    except NotImplementedError:
        x()


def _finally(x: Any) -> None:
    with x:
        try:
            x()
        finally:
            x.y = 1


def _generator(x: Any) -> Iterator[Any]:
    with x:
        yield x()


def _says_more(x: Any) -> None:
    try:
        x()
    except IndexError as error:
        raise IndexError(f"the numbers of {x} should be in range") from error
    except RuntimeError:
        raise


def _raises_another(x: Any) -> None:
    try:
        x()
    except IndexError as error:
        raise ValueError("out of range") from error


def _raises_again(x: Any) -> None:
    try:
        x()
    except:  # noqa: E722
        raise


def _logs(x: Any) -> None:
    try:
        x()
    except ValueError as error:
        x.log(error)
        raise


def _raises_perhaps(x: Any) -> None:
    try:
        x()
    except ValueError:
        if x.strict:
            raise


@pytest.mark.parametrize(
    ("function", "catches"),
    [
        (_says_more, 0),
        (_raises_again, 0),
        (_logs, 1),
        (_raises_perhaps, 1),
        (_bare, 1),
        (_named, 1),
        (_second, 1),
        (_other_errors, 0),
        (_finally, 0),
        (_generator, 0),
    ],
)
def test_which_handlers_may_catch_an_error_of_a_computation(function: Any, catches: int) -> None:
    code = decode(function.__code__)
    at = next(i for i, name in enumerate(code.names) if name == "CALL")
    assert code.may_catch(at) == bool(catches)
    of_any_class = function in (
        _says_more,
        _other_errors,
    )  # what catches, or raises another, where it may be an error of any class
    assert code.may_catch(at, anything=True) == (bool(catches) or of_any_class)
