"""Runs the random programs of `vm_language_programs` plainly, interpreted and captured, and tells what differs."""

from __future__ import annotations

import contextlib
import io
import linecache
import random
import signal
import sys
import time
import traceback
import types
from collections import deque
from collections.abc import Callable
from typing import Any

from vm_language_programs import write
from vm_lazy import Jit, Num

from torchjit_vm import interpret

__all__ = ["MODES", "difference", "differs", "head", "reduced", "told"]

MODES = ("interpreted", "captured", "called")
"""Over the concrete domain; captured; captured, and no Python function is inlined."""
_CALLS = 3
_NUMBERS = (1, 2, 4, 3, 0, 1), (1.5, 2.5, 0.5, -1.5, 4.5, 2.5), (1, 2.5, True, 3, 2, -1)
"""What programs are given: most get the first ones."""
Describe = Callable[[Any], Any]


class TooSlow(BaseException):
    """A program that takes longer than any should."""


def told(compare: Callable[[], str | None], seconds: float) -> str | None:
    """What a comparison tells, "too slow", or the error that the compiler itself raised."""

    def stop(*_: Any) -> None:
        raise TooSlow

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1)  # again and again: what a callback raises is lost
    try:
        return compare()
    except TooSlow:
        return "too slow"
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        return f"{type(error).__name__}: {str(error)[:300]}\n  " + "\n  ".join(
            f"{f.filename}:{f.lineno} {f.line}" for f in frames
        )
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def describe(value: Any, seen: dict[int, int]) -> Any:
    """Structure, types by name and aliasing, as data that two worlds have in common."""
    if isinstance(value, (int, float, str, bytes, bool, complex, type(None), range)):
        return type(value).__name__, repr(value)
    if isinstance(value, type):
        return "type", value.__qualname__
    if isinstance(value, slice):  # two equal ones may be one
        return "slice", repr(value)
    if id(value) in seen:
        return "seen", seen[id(value)]
    if not isinstance(value, (tuple, frozenset)):
        seen[id(value)] = len(seen)
    name = type(value).__qualname__
    if name == "generator":
        return "generator", value.__name__
    if isinstance(value, Num):
        return "Num", describe(value.value, seen)
    if hasattr(value, "tolist"):
        return name, str(value.dtype), repr(value.tolist())
    attributes = [(k, describe(v, seen)) for k, v in getattr(value, "__dict__", {}).items()]
    if isinstance(value, BaseException):
        chain = [describe(e, seen) for e in (value.__cause__, value.__context__)]
        return name, describe(value.args, seen), chain, value.__suppress_context__, attributes
    if isinstance(value, types.FunctionType):
        cells = [describe(c.cell_contents, seen) if full(c) else None for c in value.__closure__ or ()]
        return "function", value.__qualname__, describe(value.__defaults__, seen), cells
    if isinstance(value, types.MethodType):
        return "method", value.__func__.__qualname__, describe(value.__self__, seen)
    if isinstance(value, dict):
        return name, [(describe(k, seen), describe(v, seen)) for k, v in value.items()], attributes
    if isinstance(value, (set, frozenset)):
        return name, [describe(v, seen) for v in value], attributes
    if isinstance(value, (list, tuple, deque)):
        return name, [describe(v, seen) for v in value], attributes
    return name, attributes


def full(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  raises when empty
    except ValueError:
        return False
    return True


def rest(value: Any, found: list[Any], seen: set[int]) -> None:
    """The generators that are reachable: each is run to its end afterwards."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if type(value).__qualname__ == "generator":
        found.append(value)
    elif isinstance(value, dict):
        for key in value:
            rest(value[key], found, seen)
    elif isinstance(value, (list, tuple)):
        for item in value:
            rest(item, found, seen)
    elif hasattr(value, "__dict__") and not isinstance(value, type | types.ModuleType):
        rest(vars(value), found, seen)


def passes(want: Any, got: Any) -> bool:
    """Is the traceback right? Frames of continuations stack up in `got` where no front door takes tail calls."""
    if not want or not got:
        return bool(want) == bool(got)
    rest = iter(got)
    return want[-1] == got[-1] and all(frame in rest for frame in want)


class World:
    """One copy of a program, with what it reads and changes."""

    def __init__(self, source: str, filename: str) -> None:
        linecache.cache[filename] = len(source), None, source.splitlines(True), filename
        self.filename = filename
        self.numbers: tuple[Any, ...] = _NUMBERS[0 if len(source) % 4 else 1 + len(source) // 4 % 2]
        self.names: dict[str, Any] = {"__name__": "language_program"}
        sys.modules.setdefault("language_program", types.ModuleType("language_program"))  # dataclasses look for it
        exec(compile(source, filename, "exec"), self.names)

    def call(self, run: Callable[..., Any], number: int, leaf: Callable[[float], Any], show: Any, lines: bool) -> Any:
        names = self.names
        o = names["Sub" if number % 3 == 2 else "Obj"](number + 1, [number, 2])
        args = (
            leaf(3),
            self.numbers[number % 6],
            [1, [2], leaf(5)][: 3 if number < 4 else 2],
            {"a": number, "b": 2},
            o,
        )
        out, where = io.StringIO(), None
        with contextlib.redirect_stdout(out):
            try:
                result: Any = "returned", run(*args)
            except RecursionError:
                raise  # how deep frames nest is not compared
            except Exception as error:
                if lines:
                    frames = traceback.extract_tb(error.__traceback__)
                    where = [(f.name, f.lineno) for f in frames if f.filename == self.filename]
                error.__traceback__ = None
                result = "raised", error
        state = [
            result,
            args,
            names["LOG"],
            names["G"],
            names["TOTAL"],
            names["Obj"].kind,
            names["Obj"].made,
            names["Sub"].kind,
        ]
        shown = show(state), out.getvalue()
        generators: list[Any] = []
        rest(state, generators, set())
        del result, args
        finished = []
        with contextlib.redirect_stdout(out):
            for generator in generators:
                try:
                    finished.append([show(v) for _, v in zip(range(9), generator, strict=False)])
                except Exception as error:
                    finished.append(["raised", type(error).__name__, str(error)])
            generators.clear()
            state.clear()
            names["KEPT"].clear()
            names["G"].pop("g", None)
            names["G"].pop("made", None)
        after = show(names["LOG"]), finished
        names["LOG"].clear()
        return (shown, after), where


def show(state: Any) -> Any:
    return describe(state, {})


def difference(seed: int, mode: str, size: int = 22) -> str | None:
    """What is different from CPython in the program of this seed, in one of `MODES`; None if nothing is."""
    source = write(seed, size)
    return differs(source, f"<program {seed}>", mode)


def differs(source: str, filename: str, mode: str) -> str | None:
    plain, other = World(source, filename), World(source, filename)
    function = other.names["program"]
    jit: Jit | None = None
    if mode == "interpreted":

        def run(*args: Any) -> Any:
            return interpret(function, *args)

    else:
        r = random.Random(filename)
        outside = {n for n in other.names if mode == "called" or r.random() < 0.05} | {"opaque"}
        jit = Jit(function, inline=lambda f: f.__name__ not in outside)
        run = jit
    for call in range(_CALLS):
        try:
            want = plain.call(plain.names["program"], call, Num, show, mode != "interpreted")
            got = other.call(run, call, Num, show, mode != "interpreted")
        except RecursionError:
            return None
        except AssertionError as error:
            if "too many specialisations" in str(error):
                return None
            raise
        if want[0] != got[0]:
            return explain(call, want[0], got[0])
        if not passes(want[1], got[1]):
            return f"call {call}: traceback\n  want {want[1]}\n  got  {got[1]}"
    return None


def explain(call: int, want: Any, got: Any) -> str:
    """The first difference of two nested descriptions."""
    path: list[Any] = []
    while (
        isinstance(want, (list, tuple))
        and isinstance(got, (list, tuple))
        and len(want) == len(got)
        and type(want) is type(got)
    ):
        at = next((i for i in range(len(want)) if want[i] != got[i]), None)
        if at is None:
            break
        path.append(at)
        want, got = want[at], got[at]
    return f"call {call} at {path}:\n  want {want!r}\n  got  {got!r}"


def head(source: str) -> str:
    """What comes before the program itself."""
    return source.split("def program(", 1)[0]


def reduced(source: str, filename: str, told: Callable[[str, str], str | None], seconds: float = 40) -> str:
    """A smaller program that still differs: without blocks of lines, and lines moved out of their block."""
    until = time.monotonic() + seconds
    before = head(source)
    lines = source[len(before) :].split("\n")

    def fails(candidate: list[str]) -> bool:
        text = before + "\n".join(candidate)
        try:
            compile(text, filename, "exec")
        except SyntaxError:
            return False
        try:
            found = told(text, filename)
        except BaseException:
            return False
        return found is not None and found != "too slow"

    changed = True
    while changed and time.monotonic() < until:
        changed = False
        at = 1
        while at < len(lines) and time.monotonic() < until:
            indent = len(lines[at]) - len(lines[at].lstrip())
            end = at + 1
            while end < len(lines) and (len(lines[end]) - len(lines[end].lstrip()) > indent) and lines[end].strip():
                end += 1
            inside = [line[4:] for line in lines[at + 1 : end]]
            for candidate in (
                [*lines[:at], *lines[end:]],
                [*lines[:at], *inside, *lines[end:]],
                [*lines[:at], " " * indent + "pass", *lines[end:]],
                [*lines[:at], *lines[at + 1 :]],
            ):
                if candidate != lines and sum(map(len, candidate)) < sum(map(len, lines)) and fails(candidate):
                    lines, changed = candidate, True
                    break
            else:
                at += 1
    return "\n".join(lines)
