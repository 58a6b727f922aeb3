"""Disassembling and assembling: identity over real code, and the parts one by one."""

from __future__ import annotations

import dis
import glob
import os
import sys
import sysconfig
import types
from collections.abc import Iterator

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchjit_vm.assembly import (
    Handler,
    Instruction,
    Label,
    Listing,
    add_locals,
    assemble,
    check_loads,
    disassemble,
    stack_depths,
    stack_size,
)
from torchjit_vm.assembly.opcodes import CACHES, JUMPS, OPCODES, is_backward
from torchjit_vm.assembly.tables import decode_exception_table, encode_exception_table, encode_locations

STDLIB = sysconfig.get_path("stdlib")


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def _codes(paths: list[str]) -> Iterator[types.CodeType]:
    for path in paths:
        with open(path, "rb") as file:
            source = file.read()
        try:
            top = compile(source, path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue  # lib2to3 and test data that is no Python 3
        yield from _nested(top)


def _assert_identity(code: types.CodeType) -> None:
    again = assemble(disassemble(code))
    where = f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}"
    assert again.co_code == code.co_code, where
    assert again.co_exceptiontable == code.co_exceptiontable, where
    assert again.co_linetable == code.co_linetable, where
    assert again == code, where
    size = stack_size(disassemble(code))
    assert size <= code.co_stacksize, where


SAMPLE = ["argparse", "ast", "asyncio/base_events", "asyncio/streams", "contextlib", "dataclasses", "decimal",
          "_pydecimal", "functools", "inspect", "tarfile", "typing", "zipfile", "zipfile/__init__", "traceback"]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
def test_identity_on_a_sample_of_the_standard_library() -> None:
    paths = [path for name in SAMPLE if os.path.exists(path := os.path.join(STDLIB, f"{name}.py"))]
    count = 0
    for code in _codes(paths):
        _assert_identity(code)
        count += 1
    assert count > 1000


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_identity_on_the_whole_standard_library(request: pytest.FixtureRequest) -> None:
    """And on torch's Python files, where torch is installed. Some minutes."""
    if "slow" not in request.config.getoption("-m"):
        pytest.skip("run with -m slow")
    count = 0
    for code in _codes(sorted(glob.glob(os.path.join(STDLIB, "**", "*.py"), recursive=True))):
        _assert_identity(code)
        count += 1
    for path in {p for p in sys.path if os.path.basename(p) == "site-packages"}:
        for code in _codes(sorted(glob.glob(os.path.join(path, "torch", "**", "*.py"), recursive=True))):
            _assert_identity(code)
    assert count > 10_000


def test_identity_of_wide_code() -> None:
    """Constants, names and jumps beyond 255 and 65,535."""
    body = "".join(f"    x{i} = x + {i}.5\n" for i in range(1500))
    loops = f"def f(x):\n  for y in x:\n    if y:\n      continue\n{body}\n  while x:\n{body}\n"
    huge = "def g(x):\n  while x:\n" + "    x = x[0].a + x\n" * 16_000 + "  return x\n"
    for source in (loops, huge):
        namespace: dict[str, types.FunctionType] = {}
        exec(source, namespace)
        code = (namespace.get("f") or namespace["g"]).__code__
        _assert_identity(code)
    assert any(i.opname == "EXTENDED_ARG" and i.arg is not None and i.arg > 255 for i in dis.get_instructions(code))


def test_widths_adapt_when_code_is_inserted_between_a_jump_and_its_target() -> None:
    def f(values: list[int]) -> int:
        total = 0
        for value in values:
            if value < 0:
                continue
            total += value
        return total

    listing = disassemble(f.__code__)
    nops = (Instruction("NOP"),) * 70_000
    k = next(k for k, i in enumerate(listing.items) if isinstance(i, Instruction) and i.name == "FOR_ITER")
    grown = attrs.evolve(listing, items=(*listing.items[: k + 1], *nops, *listing.items[k + 1 :]))
    code = assemble(grown)
    assert len(code.co_code) > 140_000
    f.__code__ = code
    assert f([1, -5, 10]) == 11
    assert disassemble(code).instructions is not None
    assert [i.name for i in disassemble(code).instructions()] == [i.name for i in grown.instructions()]


def test_a_jump_that_fits_both_ways_keeps_its_width() -> None:
    """Backward over 256 units with a prefix, 255 without."""
    body = bytes((OPCODES["NOP"], 0)) * 253
    back = OPCODES["JUMP_BACKWARD"]
    room = bytes(2 * CACHES[back])
    distance = 253 + 2 + CACHES[back]
    for jump in (bytes((OPCODES["EXTENDED_ARG"], distance >> 8, back, distance & 255)), bytes((back, distance - 1))):
        code = (lambda: 0).__code__.replace(co_code=body + jump + room, co_linetable=b"", co_exceptiontable=b"")
        assert assemble(attrs.evolve(disassemble(code), stack_size=1)).co_code == code.co_code


def test_the_opcode_tables_agree_with_dis() -> None:
    """Cache counts and jump targets, as the interpreter's own disassembler sees them."""
    for code in _codes([os.path.join(STDLIB, "contextlib.py"), os.path.join(STDLIB, "asyncio", "streams.py")]):
        shown = list(dis.get_instructions(code))
        plain = [i for i in shown if i.opname != "EXTENDED_ARG"]
        listing = disassemble(code)
        assert [i.name for i in listing.instructions()] == [i.opname for i in plain]
        starts: dict[Label, int | None] = {}
        pending: list[Label] = []
        for item in listing.items:
            if isinstance(item, Label):
                pending.append(item)
            else:
                starts.update((label, item.offset) for label in pending)
                pending.clear()
        for ours, theirs in zip(listing.instructions(), plain, strict=True):
            if theirs.opcode in JUMPS:
                assert ours.target is not None
                assert starts[ours.target] == theirs.argval
                assert ("BACKWARD" in theirs.opname) == is_backward(theirs.opcode)
            else:
                assert ours.arg == (theirs.arg or 0)
        assert sum(CACHES[i.opcode] + 1 for i in shown) * 2 == len(code.co_code)


def _with_try(x: object) -> object:
    try:
        with open(str(x)) as f:
            return f.read()
    except OSError as e:
        return e
    finally:
        print(x)


def test_handlers_are_symbolic() -> None:
    listing = disassemble(_with_try.__code__)
    raw = list(decode_exception_table(_with_try.__code__.co_exceptiontable))
    assert len(listing.handlers) == len(raw) > 3
    offsets: dict[Label, int | None] = {}
    following: int | None = None
    for item in reversed(listing.items):
        if isinstance(item, Label):
            offsets[item] = following
        else:
            following = item.offset
    for handler, (start, _, target, depth, lasti) in zip(listing.handlers, raw, strict=True):
        assert (offsets[handler.start], offsets[handler.target]) == (2 * start, 2 * target)
        assert (handler.depth, handler.lasti) == (depth, lasti)
    text = str(listing)
    assert "PUSH_EXC_INFO" in text
    assert "lasti" in text
    assert text.count("try L") == len(raw)


def test_stack_depths_follow_the_handlers() -> None:
    listing = disassemble(_with_try.__code__)
    depths = stack_depths(listing)
    names = [i.name for i in listing.instructions()]
    assert depths[0] == 0
    assert all(depths[k] == 1 for k, name in enumerate(names) if name == "RETURN_VALUE" and depths[k] is not None)
    for handler in listing.handlers:
        at = sum(isinstance(i, Instruction) for i in listing.items[: listing.items.index(handler.target)])
        assert depths[at] == handler.depth + handler.lasti + 1


def test_moving_cells_up_changes_nothing() -> None:
    def outer(a: int, b: int) -> tuple[int, object]:
        c = a + b
        pairs = [(x, y) for x, y in zip((a, b), (c, a), strict=True)]

        def inner(step: int) -> int:
            nonlocal c
            c += step + b
            return c

        a, b = inner(a), inner(1)
        return a + b + c, pairs

    listing = add_locals(disassemble(outer.__code__), tuple(f"extra{i}" for i in range(300)))
    moved = types.FunctionType(assemble(listing), globals(), None, None, outer.__closure__)
    assert moved(2, 3) == outer(2, 3)
    assert moved.__code__.co_nlocals == outer.__code__.co_nlocals + 300


def test_checked_loads_raise_instead_of_crashing() -> None:
    def f(a: int, b: int) -> int:
        return a + b

    code = assemble(check_loads(disassemble(f.__code__), lambda place: place == 1))
    f.__code__ = code
    assert f(1, 2) == 3
    if "LOAD_FAST_CHECK" in OPCODES:
        assert "LOAD_FAST_CHECK" in [i.name for i in disassemble(code).instructions()]


numbers = st.integers(0, 2**24 - 1)


@given(st.lists(st.tuples(numbers, numbers, numbers, st.integers(0, 2**20), st.booleans())))
def test_exception_tables_round_trip(raw: list[tuple[int, int, int, int, bool]]) -> None:
    entries = [(start, start + size, target, depth, lasti) for start, size, target, depth, lasti in raw]
    assert list(decode_exception_table(encode_exception_table(entries))) == entries


def test_a_cut_exception_table_is_refused() -> None:
    table = _with_try.__code__.co_exceptiontable
    with pytest.raises(ValueError, match="ends inside"):
        list(decode_exception_table(table[:-1]))


columns = st.tuples(st.integers(0, 200), st.integers(0, 200)) | st.just((None, None))
places = st.one_of(
    st.just((None, None, None, None)),
    st.builds(
        lambda line, span, c: (line, line + span, *c), st.integers(1, 5000), st.sampled_from([0, 0, 0, 1, 90]), columns
    ).filter(lambda p: p[2] is not None or p[0] == p[1]),
)


@given(st.lists(st.tuples(st.integers(1, 40), places), max_size=30), st.integers(1, 3000), st.booleans())
def test_locations_round_trip(runs: list[tuple[int, tuple[int, int, int, int]]], first: int, merge: bool) -> None:
    units = sum(n for n, _ in runs)
    table = encode_locations(runs, first, merge=merge)
    code = (lambda: 0).__code__.replace(
        co_code=bytes((OPCODES["NOP"], 0)) * units, co_linetable=table, co_firstlineno=first
    )
    assert list(code.co_positions()) == [place for n, place in runs for _ in range(n)]


def _listing(*items: Instruction | Label, handlers: tuple[Handler, ...] = ()) -> Listing:
    return Listing((lambda: 0).__code__, items, handlers)


@pytest.mark.parametrize(
    ("listing", "message"),
    [
        (_listing(Instruction("FLY")), "no instruction"),
        (_listing(Instruction("EXTENDED_ARG", 1)), "adds itself"),
        (_listing(Instruction("JUMP_FORWARD")), "no target"),
        (_listing(Instruction("JUMP_FORWARD", target=Label())), "not in the listing"),
        (_listing(label := Label(), Instruction("JUMP_FORWARD", target=label)), "wrong way"),
        (_listing(Instruction("JUMP_FORWARD", target=(end := Label())), end), "behind the last"),
        (_listing(Instruction("NOP", target=Label())), "is no jump"),
        (_listing(twice := Label(), Instruction("NOP"), twice), "twice"),
        (_listing(Instruction("LOAD_CONST", -1)), "32 bits"),
        (_listing(Instruction("NOP")), "off the end"),
        (_listing(Instruction("POP_TOP"), Instruction("NOP")), "takes more"),
    ],
)
def test_bad_listings_are_refused(listing: Listing, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        assemble(listing)


def test_a_jump_into_an_instruction_is_refused() -> None:
    bad = bytes((OPCODES["JUMP_FORWARD"], 1, OPCODES["EXTENDED_ARG"], 1, OPCODES["LOAD_CONST"], 0))
    with pytest.raises(ValueError, match="no instruction starts at byte 4"):
        disassemble((lambda: 0).__code__.replace(co_code=bad))
