"""Entering bytecode in its middle, against running it from its start.

The oracle splits an execution: the function's own bytecode gets a probe before one instruction, which on its nth visit
takes the value stack, the locals and the cells, and returns them. `resume_function` then runs the rest from them. This
is done at every instruction of every function below, and on several visits; results, exceptions and logged effects
must be those of a straight run.
"""

from __future__ import annotations

import contextlib
import copy
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
from torchjit_vm.assembly.opcodes import CHECKED_LOAD, OPCODES
from torchjit_vm.assembly.resume import RESUME_FRAMELESS, RESUME_GENERATOR, resume_function
from torchjit_vm.region import Region, local_names

LOG: list[object] = []


class Boom(Exception):
    pass


@contextlib.contextmanager
def manager(name: str) -> Iterator[str]:
    LOG.append(f"enter {name}")
    try:
        yield name
    finally:
        LOG.append(f"exit {name}")


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
    x = sum(g() for g in functions)
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
                out.append({}["missing"])
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
    with manager("a") as a, Swallow(Boom, KeyError) as s:
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
            return x + y, z
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

            y = super().go(x, z=1) + mine()
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
    variables: dict[str, object]
    cells: tuple[CellType, ...]
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
    return attrs.evolve(listing, items=tuple(items), code=listing.code.replace(co_consts=tuple(constants)), stack_size=None)


def _cell_indices(code: CodeType) -> list[int]:
    return [i for i, name in enumerate(local_names(code)) if name in {*code.co_cellvars, *code.co_freevars}]


def _probe(code: CodeType, k: int, depth: int, due: Callable[[], bool]) -> CodeType:
    """The code with a probe before instruction `k`; when `due()`, it returns (locals(), cells, handled)."""
    temporaries = tuple(f".t{i}" for i in range(depth))
    listing = add_locals(disassemble(code), temporaries)
    first = len(code.co_varnames)
    go_on = Label()
    jump = "POP_JUMP_IF_FALSE" if "POP_JUMP_IF_FALSE" in OPCODES else "POP_JUMP_FORWARD_IF_FALSE"
    probe: list[Item] = [*_call(due), Instruction(jump, target=go_on)]
    probe += [Instruction("STORE_FAST", first + i) for i in reversed(range(depth))]
    probe += _call(locals)
    cells = [i if i < first else i + depth for i in _cell_indices(code)]
    probe += [Instruction(CHECKED_LOAD, i) for i in cells]
    probe += [Instruction("BUILD_TUPLE", len(cells)), *_call(sys.exc_info), Instruction("BUILD_TUPLE", 3)]
    probe += [Instruction("RETURN_VALUE"), go_on]
    place = [n for n, i in enumerate(listing.items) if isinstance(i, Instruction) and i.offset is not None][k]
    return assemble(_with_constants(attrs.evolve(listing, items=(*listing.items[:place], *probe, *listing.items[place:]))))


def _stop(function: FunctionType, args: tuple[Any, ...], k: int, depth: int, visit: int) -> Stopped | None:
    """Run until instruction `k` is met for the `visit`th time; None if it is not."""
    LOG.clear()
    countdown = [visit]

    def due() -> bool:
        countdown[0] -= 1
        return countdown[0] == -1

    probed = FunctionType(
        _probe(function.__code__, k, depth, due), function.__globals__, None, function.__defaults__, function.__closure__
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
    variables, cells, (_, exception, _) = result
    stack = tuple(variables.pop(f".t{i}", MISSING) for i in range(depth))
    return Stopped(stack, variables, cells, exception)


def _region(function: FunctionType, offset: int, at: Stopped, *, throwing: bool = False) -> tuple[Region, list[Any]]:
    code = function.__code__
    cells = _cell_indices(code)
    plain = [i for i, n in enumerate(code.co_varnames) if i not in cells and n in at.variables]
    region = Region(
        code=code,
        globals=function.__globals__,
        offset=offset,
        stack=tuple(v is not MISSING for v in at.stack),
        locals=tuple(plain),
        cells=tuple(cells),
        handled=at.handled is not None,
        throwing=throwing,
    )
    slots = [v for v in at.stack if v is not MISSING]
    slots += [at.variables[code.co_varnames[i]] for i in plain]
    slots += [*at.cells, *([at.handled] if region.handled else [])]
    return region, slots


def _enterable(function: FunctionType) -> Iterator[tuple[int, int, int]]:
    """(k, offset, stack depth) of the instructions to stop at."""
    instructions = list(disassemble(function.__code__).instructions())
    depths = stack_depths(disassemble(function.__code__))
    started = False
    for k, instruction in enumerate(instructions):
        # Nothing must come between KW_NAMES, PRECALL and CALL, nor between LOAD_FAST_AND_CLEAR and MAKE_CELL.
        last = instructions[k - 1].name if k else ""
        split = last in ("KW_NAMES", "PRECALL", "LOAD_FAST_AND_CLEAR") or instruction.name == "MAKE_CELL"
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
        for visit in (0, 1, 4):
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
    listing = disassemble(code)
    go_on = Label()
    jump = "POP_JUMP_IF_FALSE" if "POP_JUMP_IF_FALSE" in OPCODES else "POP_JUMP_FORWARD_IF_FALSE"
    probe: list[Item] = [*_call(due), Instruction(jump, target=go_on)]
    probe += [Instruction("CONST", exception), Instruction("RERAISE"), go_on]  # type: ignore[arg-type]
    place = [n for n, i in enumerate(listing.items) if isinstance(i, Instruction)][k]
    return assemble(_with_constants(attrs.evolve(listing, items=(*listing.items[:place], *probe, *listing.items[place:]))))


CANNOT_RAISE = {"COPY", "SWAP", "NOP", "POP_TOP", "PUSH_NULL", "PUSH_EXC_INFO", "POP_EXCEPT", "RERAISE", "LOAD_CONST",
                "LOAD_FAST", "STORE_FAST", "RETURN_VALUE", "RETURN_CONST", "JUMP_FORWARD", "END_FOR"}  # fmt: skip


@pytest.mark.parametrize("exception", [Boom("thrown"), KeyError("thrown"), TypeError("thrown")], ids=repr)
@pytest.mark.parametrize(("function", "args"), [c for c in CASES if c[0] in (handled, withs, reraises)])
def test_throwing_at_every_instruction(
    function: FunctionType, args: tuple[Any, ...], exception: BaseException
) -> None:
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
