"""The eager fallback of a continuation: a function that enters the original bytecode in its middle.

The function's code is a prologue followed by the whole original bytecode, whose exception table still holds, so `try`
and `with` blocks work as if the frame had run from its start. The prologue puts the slots where the original frame had
them and jumps to the entry:

    LOAD_FAST / PUSH_NULL ...    the value stack, from the bottom up
    LOAD_FAST ...                locals and cells, above it
    STORE_FAST ...               ... into their own places
    DELETE_FAST ...              what the arguments occupied and nothing needs
    RESUME 0
    JUMP_FORWARD entry           or, in a throwing continuation, RERAISE

A frame keeps locals, cells and free variables in one array. Arguments always come first in it, and places must not
move relative to one another: `super()` looks for its object in place 0. Hence the detour over the stack. If there are
more slots than plain locals, further locals are added behind them and the cells move up.

Cells are arguments too: the frame's cell places are filled with the very cells of the interrupted frame, so closures
made before and after the break share their variables, and one function serves every call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import CellType, CodeType, FunctionType
from typing import Any, Final
from weakref import WeakValueDictionary

import attrs

from torchjit_core.reasons import GraphBreak, reason
from torchjit_core.storing import made_by, maker
from torchjit_vm.assembly.assembler import assemble
from torchjit_vm.assembly.disassembler import disassemble
from torchjit_vm.assembly.listing import Handler, Instruction, Item, Label, Listing, Position
from torchjit_vm.assembly.opcodes import jump_if_true
from torchjit_vm.assembly.places import add_locals, check_loads
from torchjit_vm.assembly.stack import handler_nesting
from torchjit_vm.region import Region, local_names

__all__ = ["RESUME_FRAMELESS", "RESUME_GENERATOR", "is_resume_code", "resume", "resume_function", "suspended_function"]

RESUME_GENERATOR = reason(
    "TJ-VM-901",
    "continuation inside a generator or coroutine",
    "A generator's frame belongs to its generator object, so a plain function cannot enter it in its middle.",
    "Break the graph outside the generator, for example by building the list first.",
)
RESUME_FRAMELESS = reason(
    "TJ-VM-902",
    "continuation inside a class body or module",
    "This code keeps its variables in a dict instead of in its frame, and nothing here could restore that.",
    "Move the code into a function.",
)

_CO_OPTIMIZED, _CO_NEWLOCALS = 0x1, 0x2
_CO_VARIADIC: Final = 0x4 | 0x8
_CO_GENERATOR: Final = 0x20
_CO_SUSPENDS: Final = 0x20 | 0x80 | 0x200  # generator, coroutine, asynchronous generator


# By id: equal code objects are not the same, and comparing them is slow.
_made: WeakValueDictionary[int, CodeType] = WeakValueDictionary()


def is_resume_code(code: CodeType) -> bool:
    """Was this code made by `resume_function`? It runs what could not be captured: capturing it would not end."""
    return _made.get(id(code)) is code


def resume(region: Region, slots: Sequence[object]) -> Any:
    """Run a region in CPython, from its start to the return of its function.

    Args:
        region: an entry or a continuation.
        slots: what the region's layout says.

    Raises:
        Whatever the code raises.
    """
    return resume_function(region)(*slots)


def resume_function(region: Region) -> FunctionType:
    """A Python function that runs the rest of the region's code object, without any capture.

    Args:
        region: a continuation. Its slots are the function's positional arguments, laid out as `Region` says. The slots
            of `cells` must be `types.CellType` objects and the thrown one an exception, or CPython may crash.
            A cell variable without a slot starts as a fresh empty cell, a local without one is unbound.

    Returns:
        The function; name, file, line numbers, globals and traceback behaviour are those of the original. Nothing is
        kept between calls. In a throwing continuation the exception gets no further traceback entry for this frame:
        the caller, who caught it, stands for it already.

    Raises:
        GraphBreak: RESUME_GENERATOR, RESUME_FRAMELESS.
        ValueError: the region starts at a function's entry, its offset is not that of an instruction, or its layout
            does not fit the code.
    """
    if region.code.co_flags & _CO_SUSPENDS:
        raise GraphBreak(RESUME_GENERATOR, region.code.co_qualname)
    return _enter_at(region)


@maker
def suspended_function(region: Region) -> FunctionType:
    """A generator function whose generators stand at a `yield` once they have been advanced for the first time.

    Args:
        region: a place inside a generator's code: the offset of the instruction that yields, with what it yields on top
            of the stack. The slots are the function's positional arguments, as for `resume_function`.

    Returns:
        The function. The first `next` of its generators gives the value on top of the stack.

    Raises:
        GraphBreak: RESUME_GENERATOR: a coroutine or an asynchronous generator.
        ValueError: as `resume_function`.
    """
    if region.code.co_flags & _CO_SUSPENDS != _CO_GENERATOR or region.throwing:
        raise GraphBreak(RESUME_GENERATOR, region.code.co_qualname)
    return made_by(_enter_at(region), suspended_function, region)


def _enter_at(region: Region) -> FunctionType:
    code = region.code
    if not (code.co_flags & _CO_OPTIMIZED and code.co_flags & _CO_NEWLOCALS):
        raise GraphBreak(RESUME_FRAMELESS, code.co_qualname)
    frame = _Frame(region)
    # A slot too few must raise, not crash.
    body = check_loads(add_locals(disassemble(code), frame.added), lambda place: place not in frame.bound | frame.cells)
    listing = _join(body, _entry_index(body, region), frame)
    made = assemble(
        listing,
        co_argcount=frame.nslots,
        co_posonlyargcount=frame.nslots,
        co_kwonlyargcount=0,
        co_flags=code.co_flags & ~_CO_VARIADIC,
        co_consts=_constants(region),
    )
    _made[id(made)] = made
    closure = tuple(CellType() for _ in code.co_freevars)
    return FunctionType(made, region.globals, code.co_name, None, closure)


class _Frame:
    """Where the slots go: indices into the frame's array of the new code."""

    def __init__(self, region: Region) -> None:
        code = region.code
        nlocals, total = len(code.co_varnames), len(local_names(code))
        if region.offset is None:
            raise ValueError("a region at a function's entry has no continuation; call the function")
        if not set(region.locals) <= set(range(nlocals)) or not set(region.cells) <= set(range(total)):
            raise ValueError(f"{code.co_qualname} has {total} places for variables, {nlocals} of them plain locals")
        if set(region.locals) & set(region.cells):
            raise ValueError("a variable is listed as a plain local and as a cell")
        self.region = region
        self.nlocals = nlocals
        self.nslots = region.nslots
        self.added = tuple(f".slot{i}" for i in range(nlocals, self.nslots))
        self.nstack = sum(region.stack)
        self.variables = tuple(self.moved(i) for i in region.locals + region.cells)
        self.bound = frozenset(self.variables)
        self.cells = frozenset(self.moved(i) for i in _cell_places(code))

    def moved(self, index: int) -> int:
        """The place in the new frame of the original frame's place `index`."""
        return index if index < self.nlocals else index + len(self.added)


def _cell_places(code: CodeType) -> Iterator[int]:
    shared = {*code.co_cellvars, *code.co_freevars}
    return (i for i, name in enumerate(local_names(code)) if name in shared)


def _entry_index(listing: Listing, region: Region) -> int:
    """Index among the items of the instruction to enter at."""
    k = next((k for k, i in enumerate(listing.items) if _is_at(i, region.offset)), None)
    if k is None:
        raise ValueError(f"{region.code.co_qualname}: no instruction starts at byte {region.offset}")
    # KW_NAMES (3.11, 3.12) hands the names to CALL outside of the stack, so a CALL must be entered before it.
    back = k
    while back and _name(listing.items[back]) in ("CALL", "PRECALL"):
        back -= 1
    return back if _name(listing.items[back]) == "KW_NAMES" else k


def _is_at(item: Item, offset: int | None) -> bool:
    """Does the instruction start there? Any of its EXTENDED_ARG prefixes will do, and what they prefix."""
    if type(item) is not Instruction or item.offset is None or offset is None:
        return False
    return offset in range(item.offset, item.offset + 2 * item.width, 2)


def _name(item: Item) -> str:
    return item.name if type(item) is Instruction else ""


def _join(body: Listing, entry: int, frame: _Frame) -> Listing:
    """The prologue before the body, with the jump or the raise that leads from one to the other."""
    region = frame.region
    position = next(i.position for i in body.items[entry:] if type(i) is Instruction)
    nesting = handler_nesting(body)[sum(type(i) is Instruction for i in body.items[:entry])]
    prologue: list[Item] = []
    if region.code.co_flags & _CO_GENERATOR:
        prologue += [Instruction(name, 0, position=position) for name in ("RETURN_GENERATOR", "POP_TOP")]
    prologue += _restore(frame, position, in_handler=bool(nesting))
    start, resumed, end = Label(), Label(), Label()
    # A signal's handler runs at RESUME: what it raises comes into the blocks that wait here.
    prologue += [resumed, Instruction("RESUME", position=position)]
    if region.throwing:
        prologue += [*_raise(region.code, position), end]
    else:
        prologue += [Instruction("JUMP_FORWARD", target=start, position=position), end]
    handlers = (*_covering(body, entry, resumed, end, len(region.stack)), *body.handlers)
    items = (*prologue, *body.items[:entry], start, *body.items[entry:])
    needed = len(region.stack) + 1 + max(2, len(frame.variables))
    return Listing(body.code, items, handlers, max(body.code.co_stacksize, needed))


def _restore(frame: _Frame, position: Position, *, in_handler: bool) -> Iterator[Instruction]:
    """Stack, variables and the exception that is being handled; at the end the thrown exception, on top."""
    region = frame.region

    def instruction(name: str, arg: int = 0) -> Instruction:
        return Instruction(name, arg, position=position)

    nvariables = len(frame.variables)
    # Outside of this code's own handlers the caller's exception state is the right one already.
    if region.handled and in_handler:
        yield instruction("LOAD_FAST", frame.nstack + nvariables)
        yield from map(instruction, ("PUSH_EXC_INFO", "POP_TOP", "POP_TOP"))
    slot = 0
    for filled in region.stack:
        yield instruction("LOAD_FAST", slot) if filled else instruction("PUSH_NULL")
        slot += filled
    if region.throwing:
        yield instruction("LOAD_FAST", frame.nslots - 1)
    moves = [(source, place) for source, place in enumerate(frame.variables, slot) if source != place]
    for source, _ in moves:
        yield instruction("LOAD_FAST", source)
    for _, place in reversed(moves):
        yield instruction("STORE_FAST", place)
    for index in sorted(set(range(frame.nslots)) - frame.bound):
        yield instruction("DELETE_FAST", index)
    for index in sorted(frame.cells - frame.bound):
        yield instruction("MAKE_CELL", index)


def _raise(code: CodeType, position: Position) -> Iterator[Item]:
    """Raise the exception on top of the stack. What is no exception raises TypeError instead of crashing CPython."""
    genuine = Label()
    yield Instruction("LOAD_CONST", len(code.co_consts), position=position)  # BaseException, see `_constants`
    yield Instruction("CHECK_EXC_MATCH", position=position)
    yield Instruction(jump_if_true(), target=genuine, position=position)
    yield Instruction("RAISE_VARARGS", 1, position=position)
    yield genuine
    # Unlike RAISE_VARARGS, RERAISE adds neither a traceback entry nor a `__context__`.
    yield Instruction("RERAISE", 0, position=position)


def _constants(region: Region) -> tuple[object, ...]:
    return region.code.co_consts + (BaseException,) * region.throwing


def _covering(body: Listing, entry: int, start: Label, end: Label, depth: int) -> Iterator[Handler]:
    """The handler of the instruction at item `entry`, if it has one, moved to another range."""
    places = {item: k for k, item in enumerate(body.items) if type(item) is Label}
    for handler in body.handlers:
        if places[handler.start] <= entry < places[handler.end]:
            if handler.depth > depth:
                raise ValueError(f"the handler keeps {handler.depth} stack values, but the region has {depth}")
            yield attrs.evolve(handler, start=start, end=end)
