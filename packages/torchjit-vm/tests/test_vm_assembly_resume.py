"""Entering bytecode in its middle, against running it from its start.

The oracle splits an execution: the function's own bytecode gets a probe before one instruction, which on its nth visit
takes the value stack, the locals and the cells, and returns them. `resume_function` then runs the rest from them. This
is done at every instruction of every function below, and on several visits; results, exceptions and logged effects
must be those of a straight run.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType
from typing import Any

import attrs
import pytest

from torchjit_core.reasons import GraphBreak
from torchjit_vm.assembly import Instruction, Item, Label, Listing, add_locals, assemble, disassemble, stack_depths
from torchjit_vm.assembly.opcodes import OPCODES
from torchjit_vm.assembly.resume import RESUME_FRAMELESS, RESUME_GENERATOR, resume_function
from torchjit_vm.region import Region, local_names

LOG: list[object] = []
taken_apart = functools.cache(disassemble)
EMPTY: dict[str, object] = {}


class Boom(Exception):
    pass


class Manager:
    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> str:
        LOG.append(f"enter {self.name}")
        return self.name

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        LOG.append(f"exit {self.name} {kind and kind.__name__}")


class Swallow:
    def __init__(self, *kinds: type[BaseException]) -> None:
        self.kinds = kinds

    def __enter__(self) -> Swallow:
        LOG.append("swallow in")
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, tb: object) -> bool:
        LOG.append(("swallow out", kind and kind.__name__))
        return kind is not None and issubclass(kind, self.kinds)


class Base:
    def __init__(self) -> None:
        self.value = 1

    def go(self, x: int, **options: int) -> int:
        LOG.append(("go", x, options))
        return x + self.value


class Derived(Base):
    pass


def straight(a: int, b: int) -> int:
    c = a * b + 1
    d = c if a > b else -c
    return (c + d) * a - b


def loops(n: int) -> list[int]:
    out = []
    i = 0
    while i < n:
        i += 1
        if i % 3 == 0:
            continue
        for j in range(i):
            if j > 2:
                break
            out.append(i * j)
        else:
            out.append(-i)
    return out


def calls(x: int) -> object:
    base = Derived()
    base.value = max(x, 2, key=lambda v: -v)
    first = base.go(x, p=1, q=base.go(x + 1))
    text = f"{first!r:>4}|{x:03d}|{'a' + str(x)}"
    low, *rest, high = sorted([first, x, 7, 3], reverse=True)
    table = {"x": x, **{str(v): v for v in rest}}
    return text, low, high, table, [*rest, *range(x)], {*rest}, text[1:-1], dict(a=1, b=x)


def stars(*args: int, scale: int = 2, **options: int) -> object:
    total = sum(args) * scale
    options.update(total=total)
    return max(*args, *[total], key=lambda v: -v), dict(**options, scale=scale)


def comprehensions(n: int) -> object:
    k = 3
    squares = [x * x + k for x in range(n) if x % 2]
    nested = [[x * y for y in range(x)] for x in range(n)]
    mapping = {x: [k for _ in range(x)] for x in range(n)}
    functions = [lambda step=1: x + k + step for x in range(n)]
    k += 1
    x = sum(g() for g in functions)  # type: ignore[no-untyped-call]
    return squares, nested, mapping, x, {v for v in squares}


def closures(a: int, b: int) -> object:
    count = 0

    def add(step: int) -> int:
        nonlocal count
        count += step + a
        return count

    add(b)
    a = a + 1
    later = [add(i) for i in range(3)]
    b = count
    return later, a, b, count, add(0)


def handled(kind: int) -> object:
    out: list[object] = []
    for k in (kind, 9):
        try:
            out.append("try")
            if k == 0:
                raise Boom("zero")
            if k == 1:
                out.append(EMPTY["missing"])
            if k == 2:
                return out, "returned"
            out.append(k)
        except Boom as e:
            out.append(str(e))
            out.append(repr(sys.exc_info()[1]))
            try:
                raise ValueError("inner")
            except ValueError as inner:
                out.append((repr(inner.__context__), repr(sys.exc_info()[1])))
            out.append(repr(sys.exc_info()[1]))
        except (KeyError, TypeError):
            out.append("key")
            out.append(repr(sys.exc_info()[1]))
            raise
        else:
            out.append("else")
        finally:
            LOG.append("finally")
            out.append(repr(sys.exc_info()[1]))
    return out


def withs(kind: int) -> object:
    out: list[object] = []
    with Manager("a") as a, Swallow(Boom, KeyError) as s:
        out.append(a)
        with Swallow(ValueError):
            out.append(1)
            if kind == 0:
                raise Boom(str(s is None))
            if kind == 1:
                raise ValueError("v")
            if kind == 2:
                return "early", out
            if kind == 3:
                raise TypeError("t")
        out.append(2)
    out.append(3)
    return out


def reraises(kind: int) -> object:
    try:
        try:
            if kind:
                raise Boom("first")
            LOG.append("no")
        except Boom:
            LOG.append("cleanup")
            raise
        finally:
            LOG.append(("finally", repr(sys.exc_info()[1])))
    except Boom as e:
        raise KeyError("second") from e
    return "fine"


def matches(value: object) -> object:
    match value:
        case {"a": [x, *rest], **others}:
            return x, rest, others
        case [int(x), (y, z)] if x < 5:
            return x + y, z  # type: ignore[operator]
        case Boom(args=(text,)):
            return text
        case _:
            return None


def asserts(n: int, flag: bool = False) -> object:
    assert n < 5, f"too large: {n}"
    del flag
    try:
        return flag  # noqa: F821
    except UnboundLocalError as e:
        return str(e)


def slices(n: int) -> object:
    data = list(range(n))
    data[1:3] = [n, n]
    data[0] += 10
    del data[-1]
    a = b = data
    a[0], b[1] = b[1], a[0]
    return data, a is b, not data, -n, ~n, n in data, 1 < n < 10, n or 3, n and None, n is None


def many(n: int) -> int:
    a, b, c, d, e, f, g, h = range(n, n + 8)
    i, j, k, l, m, o, p, q = a + 1, b + 2, c + 3, d + 4, e + 5, f + 6, g + 7, h + 8
    r, s = (i + j) * k, [l, m, o]
    return sum([a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, *s])


def _method_with_super() -> Callable[..., Any]:
    class Child(Base):
        def go(self, x: int, **options: int) -> int:
            def mine() -> int:
                return self.value + x

            y: int = super().go(x, z=1) + mine()
            return super().go(y) + mine()

    return Child.go


CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (straight, (3, 4)),
    (straight, (4, 3)),
    (loops, (5,)),
    (calls, (2,)),
    (stars, (1, 2, 3)),
    (comprehensions, (4,)),
    (closures, (1, 2)),
    *((handled, (k,)) for k in range(4)),
    *((withs, (k,)) for k in range(5)),
    (reraises, (0,)),
    (reraises, (1,)),
    (matches, ({"a": [1, 2, 3], "b": 4},)),
    (matches, ([2, (3, 4)],)),
    (matches, (Boom("text"),)),
    (asserts, (1,)),
    (asserts, (7,)),
    (slices, (5,)),
    (many, (1,)),
    (_method_with_super(), (Derived(), 4)),
]
IDS = [f"{f.__name__}-{k}" for k, (f, _) in enumerate(CASES)]


def _named(e: BaseException | None) -> object:
    return None if e is None else (type(e), str(e), _named(e.__cause__), _named(e.__context__))


AMBIENT = LookupError("handled by the caller")


def _outcome(run: Callable[[], Any]) -> tuple[object, list[object]]:
    """What a run gave, and what it logged, while the caller handles AMBIENT (and still does afterwards)."""
    LOG.clear()
    try:
        raise AMBIENT
    except LookupError:
        try:
            result: object = ("returned", repr(run()))
        except Exception as e:
            result = ("raised", _named(e))
        assert sys.exc_info()[1] is AMBIENT
    return result, list(LOG)


@attrs.frozen
class Stopped:
    """The state of a frame at a probe."""

    stack: tuple[object, ...]  # MISSING stands for NULL
    variables: dict[int, object]  # what the frame's array holds, cell objects included
    handled: BaseException | None


MISSING = object()


def _call(function: object, nargs: int = 0) -> list[Item]:
    """Placeholder name CONST holds an object; the arguments are not loaded."""
    pair = [Instruction("CONST", function), Instruction("PUSH_NULL")]  # type: ignore[arg-type]
    if sys.version_info < (3, 13):
        pair.reverse()
    return [*pair, *([Instruction("PRECALL", nargs)] if "PRECALL" in OPCODES else []), Instruction("CALL", nargs)]


def _with_constants(listing: Listing) -> Listing:
    constants: list[Any] = list(listing.code.co_consts)
    items: list[Item] = []
    for item in listing.items:
        if isinstance(item, Instruction) and item.name == "CONST":
            items.append(attrs.evolve(item, name="LOAD_CONST", arg=len(constants)))
            constants.append(item.arg)
        else:
            items.append(item)
    return attrs.evolve(
        listing, items=tuple(items), code=listing.code.replace(co_consts=tuple(constants)), stack_size=None
    )


def _cell_indices(code: CodeType) -> list[int]:
    return [i for i, name in enumerate(local_names(code)) if name in {*code.co_cellvars, *code.co_freevars}]


def _probe(code: CodeType, k: int, depth: int, due: Callable[[], bool]) -> CodeType:
    """The code with a probe before instruction `k`; when `due()`, it returns (locals(), exc_info())."""
    first = len(code.co_varnames)
    cells = _cell_indices(code)
    added = tuple(f".stack{i}" for i in range(depth)) + tuple(f".cell{i}" for i in cells)
    listing = add_locals(taken_apart(code), added)
    go_on = Label()
    jump = "POP_JUMP_IF_FALSE" if "POP_JUMP_IF_FALSE" in OPCODES else "POP_JUMP_FORWARD_IF_FALSE"
    probe: list[Item] = [*_call(due), Instruction(jump, target=go_on)]
    probe += [Instruction("STORE_FAST", first + i) for i in reversed(range(depth))]
    # In an inlined comprehension (3.12) the place of a cell can be empty or hold a plain value.
    shared = "LOAD_FAST_AND_CLEAR" if "LOAD_FAST_AND_CLEAR" in OPCODES else "LOAD_FAST"
    for n, i in enumerate(cells):
        load = shared if local_names(code)[i] in code.co_cellvars else "LOAD_FAST"
        probe += [Instruction(load, i if i < first else i + len(added)), Instruction("STORE_FAST", first + depth + n)]
    probe += [*_call(locals), *_call(sys.exc_info), Instruction("BUILD_TUPLE", 2), Instruction("RETURN_VALUE"), go_on]
    place = [n for n, i in enumerate(listing.items) if isinstance(i, Instruction) and i.offset is not None][k]
    return assemble(
        _with_constants(attrs.evolve(listing, items=(*listing.items[:place], *probe, *listing.items[place:])))
    )


def _stop(function: FunctionType, args: tuple[Any, ...], k: int, depth: int, visit: int) -> Stopped | None:
    """Run until instruction `k` is met for the `visit`th time; None if it is not."""
    LOG.clear()
    countdown = [visit]

    def due() -> bool:
        countdown[0] -= 1
        return countdown[0] == -1

    probed = FunctionType(
        _probe(function.__code__, k, depth, due),
        function.__globals__,
        None,
        function.__defaults__,
        function.__closure__,
    )
    probed.__kwdefaults__ = function.__kwdefaults__
    result: Any = None
    try:
        raise AMBIENT  # leaving this handler repairs what a return from inside of the function's handlers leaves behind
    except LookupError:
        with contextlib.suppress(Exception):
            result = probed(*args)
    if countdown[0] >= 0:
        return None
    shown, (_, exception, _) = result
    code = function.__code__
    cells = _cell_indices(code)
    variables = {i: shown[n] for i, n in enumerate(code.co_varnames) if i not in cells and n in shown}
    variables |= {i: shown[f".cell{i}"] for i in cells if f".cell{i}" in shown}
    return Stopped(tuple(shown.get(f".stack{i}", MISSING) for i in range(depth)), variables, exception)


def _region(function: FunctionType, offset: int, at: Stopped, *, throwing: bool = False) -> tuple[Region, list[Any]]:
    places = _cell_indices(function.__code__)
    cells = [i for i in places if isinstance(at.variables.get(i), CellType)]
    plain = [i for i in sorted(at.variables) if i not in cells]
    region = Region(
        code=function.__code__,
        globals=function.__globals__,
        offset=offset,
        stack=tuple(v is not MISSING for v in at.stack),
        locals=tuple(plain),
        cells=tuple(cells),
        handled=at.handled is not None,
        throwing=throwing,
    )
    slots = [v for v in at.stack if v is not MISSING]
    slots += [at.variables[i] for i in (*plain, *cells)]
    return region, [*slots, *([at.handled] if region.handled else [])]


def _enterable(function: FunctionType) -> Iterator[tuple[int, int, int]]:
    """(k, offset, stack depth) of the instructions to stop at."""
    instructions = list(disassemble(function.__code__).instructions())
    depths = stack_depths(disassemble(function.__code__))
    started = False
    for k, instruction in enumerate(instructions):
        # Nothing must come between KW_NAMES, PRECALL and CALL.
        last = instructions[k - 1].name if k else ""
        split = last in ("KW_NAMES", "PRECALL")
        # FOR_ITER jumps over END_FOR (3.12) and the POP_TOP after it (3.13).
        split = split or instruction.name == "END_FOR" or (last == "END_FOR" and instruction.name == "POP_TOP")
        depth, offset = depths[k], instruction.offset
        if started and not split and depth is not None and offset is not None:
            yield k, offset, depth
        started = started or instruction.name == "RESUME"


@pytest.mark.parametrize(("function", "args"), CASES, ids=IDS)
def test_resuming_at_every_instruction(function: FunctionType, args: tuple[Any, ...]) -> None:
    expected = _outcome(lambda: function(*copy.deepcopy(args)))
    count = 0
    for k, offset, depth in _enterable(function):
        for visit in (0, 3):
            at = _stop(function, copy.deepcopy(args), k, depth, visit)
            if at is None:
                break
            before = list(LOG)
            region, slots = _region(function, offset, at)
            resumed = resume_function(region)
            assert resumed.__code__.co_argcount == len(slots) == region.nslots
            result, after = _outcome(lambda: resumed(*slots))
            assert (result, before + after) == expected, f"instruction {k}, visit {visit}"
            count += 1
    assert count > 8


def _raise_before(code: CodeType, k: int, exception: BaseException, due: Callable[[], bool]) -> CodeType:
    """The code, raising `exception` in the place of instruction `k` when `due()`."""
    listing = taken_apart(code)
    go_on = Label()
    jump = "POP_JUMP_IF_FALSE" if "POP_JUMP_IF_FALSE" in OPCODES else "POP_JUMP_FORWARD_IF_FALSE"
    probe: list[Item] = [*_call(due), Instruction(jump, target=go_on)]
    probe += [Instruction("CONST", exception), Instruction("RERAISE"), go_on]  # type: ignore[arg-type]
    place = [n for n, i in enumerate(listing.items) if isinstance(i, Instruction)][k]
    return assemble(
        _with_constants(attrs.evolve(listing, items=(*listing.items[:place], *probe, *listing.items[place:])))
    )


CANNOT_RAISE = {"COPY", "SWAP", "NOP", "POP_TOP", "PUSH_NULL", "PUSH_EXC_INFO", "POP_EXCEPT", "RERAISE", "LOAD_CONST",
                "LOAD_FAST", "STORE_FAST", "RETURN_VALUE", "RETURN_CONST", "JUMP_FORWARD", "END_FOR"}  # fmt: skip


@pytest.mark.parametrize("exception", [Boom("thrown"), KeyError("thrown")], ids=repr)
@pytest.mark.parametrize(("function", "args"), [c for c in CASES if c[0] in (handled, withs, reraises)])
def test_throwing_at_every_instruction(function: FunctionType, args: tuple[Any, ...], exception: BaseException) -> None:
    count = 0
    names = [i.name for i in disassemble(function.__code__).instructions()]
    for k, offset, depth in _enterable(function):
        if names[k] in CANNOT_RAISE or (at := _stop(function, args, k, depth, 0)) is None:
            continue
        before = list(LOG)
        visits = iter([True])
        broken = FunctionType(
            _raise_before(function.__code__, k, exception, lambda: next(visits, False)), globals(), None
        )
        expected = _outcome(lambda: broken(*args))
        exception.__traceback__ = exception.__context__ = exception.__cause__ = None
        region, slots = _region(function, offset, at, throwing=True)
        resumed = resume_function(region)
        result, after = _outcome(lambda: resumed(*slots, exception))
        exception.__traceback__ = exception.__context__ = exception.__cause__ = None
        assert (result, before + after) == expected, f"instruction {k}"
        count += 1
    assert count > 10


def _stopped_after(function: Any, name: str, args: tuple[Any, ...]) -> tuple[Region, list[Any]]:
    """Stop at the instruction after the first one called `name`."""
    names = [i.name for i in disassemble(function.__code__).instructions()]
    k, offset, depth = next(e for e in _enterable(function) if e[0] == names.index(name) + 1)
    at = _stop(function, args, k, depth, 0)
    assert at is not None
    return _region(function, offset, at)


def test_closures_made_before_and_after_share_the_variables() -> None:
    made: list[Callable[[], int]] = []

    def f(n: int) -> int:
        def bump() -> int:
            nonlocal n
            n += 1
            return n

        made.append(bump)
        n = n * 10
        return bump() + n

    region, slots = _stopped_after(f, "POP_TOP", (1,))
    resume = resume_function(region)
    assert resume(*slots) == 22
    assert made[0]() == 12
    assert resume(*slots) == 242, "the same cell, so the second run goes on from 12"


def test_a_missing_local_raises_and_a_missing_cell_is_empty_and_fresh() -> None:
    def f(a: int) -> object:
        b = a

        def g() -> int:
            return b

        a += 1
        return g, a

    region, slots = _stopped_after(f, "MAKE_FUNCTION", (1,))
    bare = attrs.evolve(region, locals=(), cells=(), handled=False)
    resume = resume_function(bare)
    with pytest.raises(UnboundLocalError):
        resume(*slots[: sum(region.stack)])
    region, slots = _stopped_after(f, "BINARY_OP", (1,))
    kept = slots[: sum(region.stack) + len(region.locals)]
    resume = resume_function(attrs.evolve(region, cells=(), handled=False))
    g, two = resume(*kept)
    assert two == 2
    assert g() == 1, "g was made before the break and has the old cell"


def test_tracebacks_and_names_are_those_of_the_original() -> None:
    def f(x: int) -> int:
        x += 1
        return x // 0

    region, slots = _stopped_after(f, "STORE_FAST", (1,))
    resume = resume_function(region)
    assert (resume.__name__, resume.__qualname__) == (f.__name__, f.__qualname__)
    with pytest.raises(ZeroDivisionError) as caught:
        resume(*slots)
    line = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (line.name, line.lineno, line.line) == ("f", f.__code__.co_firstlineno + 2, "return x // 0")
    expected = None
    try:
        f(1)
    except ZeroDivisionError as e:
        expected = traceback.extract_tb(e.__traceback__)[-1]
    assert expected is not None
    assert (line.colno, line.end_colno) == (expected.colno, expected.end_colno)


def test_a_throw_adds_no_traceback_entry_of_its_own() -> None:
    def f() -> str:
        try:
            return str(open("nothing"))
        except OSError as e:
            return f"caught {e}"

    region, slots = _stopped_after(f, "LOAD_CONST", ())
    resume = resume_function(attrs.evolve(region, throwing=True))
    try:
        raise OSError("mine")
    except OSError as e:
        before = e.__traceback__
        assert resume(*slots, e) == "caught mine"
        assert e.__context__ is None
        assert e.__traceback__ is before
    with pytest.raises(Boom) as caught:
        resume(*slots, Boom("not for this handler"))
    assert [t.name for t in traceback.extract_tb(caught.value.__traceback__)][1:] in ([], ["f"])
    with pytest.raises(TypeError, match="must derive from BaseException"):
        resume(*slots, "no exception")


def test_functions_with_more_slots_than_places() -> None:
    """270 stack values and 3 locals: EXTENDED_ARG in the prologue, cells far up."""
    names = ", ".join(f"{i}" for i in range(260))
    namespace: dict[str, Any] = {}
    exec(f"def f(a, b):\n  g = lambda: a + b\n  return [{names}, a, b, g(), a + b]", namespace)
    f = namespace["f"]
    instructions = list(disassemble(f.__code__).instructions())
    last = max(k for k, i in enumerate(instructions) if i.name == "BINARY_OP")
    _, offset, depth = next(e for e in _enterable(f) if e[0] == last)
    at = _stop(f, (3, 4), last, depth, 0)
    assert at is not None
    region, slots = _region(f, offset, at)
    if len(region.stack) > 200:  # 3.12 and earlier build long lists by extending; the stack is short then
        assert region.nslots > 255
    assert resume_function(region)(*slots) == f(3, 4)


def test_an_offset_behind_the_prefixes_will_do() -> None:
    namespace: dict[str, Any] = {}
    assignments = "".join(f"  v{i} = {i}.5\n" for i in range(300))
    exec(f"def f():\n{assignments}  return v1 + v299", namespace)
    f = namespace["f"]
    prefixed = next(i for i in disassemble(f.__code__).instructions() if i.width == 2 and i.name == "LOAD_CONST")
    assert prefixed.offset is not None
    stored = tuple(range(f.__code__.co_varnames.index("v2") + 1))
    for offset in (prefixed.offset, prefixed.offset + 2):
        resume = resume_function(Region(f.__code__, globals(), offset=offset, locals=stored))
        assert resume(*(k + 0.5 for k in stored)) == 301.0


def _generator() -> Iterator[int]:
    yield 1


async def _coroutine() -> None:
    pass


@pytest.mark.parametrize("function", [_generator, _coroutine])
def test_generators_are_refused_with_a_reason(function: FunctionType) -> None:
    with pytest.raises(GraphBreak) as caught:
        resume_function(Region(function.__code__, globals(), offset=4))
    assert caught.value.reason is RESUME_GENERATOR


def test_class_bodies_are_refused_with_a_reason() -> None:
    body = next(c for c in compile("class C:\n  x = 1", "c", "exec").co_consts if isinstance(c, types.CodeType))
    with pytest.raises(GraphBreak) as caught:
        resume_function(Region(body, globals(), offset=2))
    assert caught.value.reason is RESUME_FRAMELESS


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offset": None}, "entry"),
        ({"offset": 3}, "no instruction starts at byte 3"),
        ({"offset": 4, "locals": (9,)}, "places"),
        ({"offset": 4, "cells": (9,)}, "places"),
        ({"offset": 4, "locals": (0,), "cells": (0,)}, "as a plain local and as a cell"),
    ],
)
def test_layouts_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resume_function(Region(straight.__code__, globals(), **changes))


def test_a_throw_with_too_shallow_a_stack_is_refused() -> None:
    def f(x: object) -> None:
        with contextlib.suppress(Exception):
            print(x)

    listing = disassemble(f.__code__)
    calls = [i for i in listing.instructions() if i.name == "CALL"]
    with pytest.raises(ValueError, match="the handler keeps"):
        resume_function(Region(f.__code__, globals(), offset=calls[1].offset, throwing=True))
