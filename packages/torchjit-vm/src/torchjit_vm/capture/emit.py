"""The end of a region as Python code: graph call, rebuilt values, effects, then the return, the raise or the break."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Final, final

import attrs

from torchjit_core.location import CodeLocation
from torchjit_core.paths import AccessPath
from torchjit_core.reasons import GraphBreak
from torchjit_core.region import RegionCode
from torchjit_vm.assembly import resume_function
from torchjit_vm.capture import runtime
from torchjit_vm.capture.attributes import Sought
from torchjit_vm.capture.break_statements import FORMS, Form, Outcome
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.effect_records import Standin
from torchjit_vm.capture.effects import write_back
from torchjit_vm.capture.prelude import write_prelude
from torchjit_vm.capture.reasons import REBUILD
from torchjit_vm.capture.rebuild import Cycle, Line, Rebuilder
from torchjit_vm.capture.reorderable_calls import write_reordered
from torchjit_vm.capture.source import compile_lines, in_frames, places_of
from torchjit_vm.capture.values import CellValue, Leaf, Obj, Value
from torchjit_vm.capture.weak_references import would_be_missed
from torchjit_vm.frame import Completion, Frame
from torchjit_vm.liveness import live_locals
from torchjit_vm.region import Region

__all__ = ["Emitted", "emit", "write_break", "write_raise", "write_return"]

Body = "Callable[[Rebuilder], list[Region]]"

_GRAPH_IS_OVER: Final = "graph_is_over"
"""The front door looks for this variable (`FrontDoor(leave=...)`)."""
_SHOWS: Final = "<effects>"
"""Stands for the lines that come before the first effect: they are known when the graph is compiled."""


@final
@attrs.frozen
class Emitted:
    """An emitted function.

    Attributes:
        target: the function of the gathered objects.
        gather: the access paths of its parameters.
        source: its text.
        continuations: the regions that it continues with.
        rebuilt: the values that it makes again.
        repeatable: what it raises may be the policy's `graph_raised`.
    """

    target: Callable[..., object]
    gather: tuple[AccessPath, ...]
    source: str
    continuations: tuple[Region, ...]
    rebuilt: frozenset[Value]
    repeatable: bool


def emit(
    domain: CaptureDomain,
    code: CodeType,
    module: str,
    location: CodeLocation,
    body: Callable[[Rebuilder], list[Region]],
    compile_leaves: Callable[[Sequence[Leaf]], RegionCode],
    marks: bool = False,
) -> Emitted:
    """Write and compile the code of a region's end.

    Args:
        domain: the capture.
        code: the code object whose region this is, for names and lines.
        module: the name of its module.
        location: of the last instruction, for lines without another.
        body: writes the statements after the graph call, and returns the continuations that they call.
        compile_leaves: compiles the graph for the leaves that the statements need.
        marks: the region starts inside of a `try` or `with`: the function says by a variable when what it does begins to show.
    """
    out, reports, regions = _written(domain, location, body)
    region_code = compile_leaves([leaf for _, leaf in out.leaves.values()])
    repeatable = region_code.target is not None and region_code.repeatable and domain.runs_again()
    repeatable = repeatable and not (reports and region_code.acts)
    prelude = _prelude(out, region_code, repeatable)
    name = code.co_name if code.co_name.isidentifier() else "region"
    lines: list[Line] = [(0, f"def {name}({', '.join(out.gathered.values())}):", location)]
    graph_call = [(1, text, location) for text in prelude]
    # If the region's code runs in place of a graph that raises, it makes its reports itself.
    lines += [*graph_call, *reports] if repeatable else [*reports, *graph_call]
    for line in out.lines:
        if line[1] is _SHOWS:
            texts = _state_calls(out, region_code) + [f"{_GRAPH_IS_OVER} = True"] * marks
            lines += [(line[0], text, line[2]) for text in texts]
        else:
            lines.append(line)
    function, source = compile_lines(lines, code, name, out.constants, module)
    return Emitted(function, tuple(out.gathered), source, tuple(regions), out.rebuilt(), repeatable)


def _written(
    domain: CaptureDomain, location: CodeLocation, body: Callable[[Rebuilder], list[Region]]
) -> tuple[Rebuilder, list[Line], list[Region]]:
    """What the body writes, the reports that are made before the graph runs, and the continuations.

    Objects that hold themselves are met while they are written: then all is written anew, and those are made before their contents.
    """
    early: set[Value] = set()
    while True:
        out = Rebuilder(domain, early)
        out.location = location
        write_reordered(domain, out, early=True)
        reports, out.lines = out.lines, []
        try:
            return out, reports, body(out)
        except Cycle as cycle:
            if cycle.value in early:  # nothing can be made before its contents
                raise GraphBreak(REBUILD, type(cycle.value).__name__, location) from None
            early.add(cycle.value)


def _prelude(out: Rebuilder, code: RegionCode, repeatable: bool) -> list[str]:
    """The graph call, and its outputs under the names that the body uses."""
    names = [name for name, _ in out.leaves.values()]
    lines = write_prelude(out.domain, out)
    if code.target is not None:
        arguments = ", ".join(out.gather(path) for path in code.inputs)
        graph = out.constant(code.target, "graph_")
        used = any(isinstance(o, int) for o in code.outputs)
        call = f"{'out = ' if used else ''}{graph}({arguments})"
        if repeatable:
            raised = out.constant(out.domain.policy.graph_raised, "graph_raised")
            lines += ["try:", f"    {call}", "except Exception as error:", f"    raise {raised}(error)"]
        else:
            lines.append(call)
    for name, where in zip(names, code.outputs, strict=True):
        lines.append(f"{name} = out[{where}]" if isinstance(where, int) else f"{name} = {out.gather(where)}")
    if code.target is not None and any(isinstance(o, int) for o in code.outputs):
        lines.append("del out")
    return lines


def _state_calls(out: Rebuilder, code: RegionCode) -> list[str]:
    """Calls that set ambient state to what the region leaves behind."""
    texts: list[str] = []
    for function, arguments in code.epilogue:
        joined = ", ".join(out.literal(a) for a in arguments)
        texts.append(f"{out.constant(function, getattr(function, '__name__', 'state'))}({joined})")
    return texts


def _write_effects(domain: CaptureDomain, out: Rebuilder) -> None:
    """All that others can see of the region, but its result. An exception from here on does not find it at its start any more."""
    out.write(_SHOWS)
    write_reordered(domain, out)
    write_back(domain, out)


# Ends of a region. Each returns the continuations it calls.


def write_return(domain: CaptureDomain, out: Rebuilder, value: Value) -> list[Region]:
    """Effects, then `return value`."""
    text = out.expr(value)
    out.flush()
    _write_effects(domain, out)
    out.write(f"return {text}")
    return []


def _given_away(out: Rebuilder, exception: str) -> str:
    """An expression for an exception that leaves this frame no variable for it: its traceback leads back to the frame."""
    if not exception.isidentifier() or exception in out.constants:
        return exception
    held = out.assign(f"[{exception}]", "x")
    out.write(f"del {exception}")
    return f"{held}.pop()"


def write_raise(domain: CaptureDomain, out: Rebuilder, exception: Value) -> list[Region]:
    """Effects, then `raise exception`, below stand-ins of the frames that it left."""
    out.raising = exception
    text = out.expr(exception)
    context = exception.attrs.get("__context__") if isinstance(exception, Obj) else None
    before = out.expr(context) if isinstance(context, Obj) else None
    out.flush()
    _write_effects(domain, out)
    places = places_of(domain, exception)
    tail_call = domain.policy.tail_call
    if places:
        out.location = places[0].location
    inner = places[1:]
    leaves_it = not places and tail_call is not None  # to the front door, since its traceback has this frame
    if leaves_it:
        statement = f"return {out.constant(tail_call, 'tail_call')}({text})"
    else:
        statement = f"raise {_given_away(out, text)}"
    # A `raise` while the caller handles an exception would put that one in its place.
    chained = before is not None and not leaves_it
    if chained:
        out.write("try:")
    for line in in_frames(out, inner, [statement]) if inner else (statement,):
        out.write("    " * chained + line)
    if chained:
        out.write("except BaseException as left:")
        out.write(f"    {out.runtime(runtime.chained)}(left, {before})")
        out.write("    raise")
    return []


def write_break(
    domain: CaptureDomain,
    out: Rebuilder,
    frames: list[Frame[Value]],
    doors: Callable[[Region], Callable[..., object]],
    own_frame: bool = False,
) -> list[Region]:
    """Effects, the breaking instruction for real, then the continuation of each frame, innermost first.

    With `own_frame` the innermost frame runs to its end in CPython: the instruction looks at it.
    """
    writer = _BreakWriter(domain, out, frames, doors, own_frame)
    writer.write()
    return writer.regions


class FrameValues:
    """What a frame holds, as expressions: of its locals those in `live`, and those that somebody would miss (`held`)."""

    def __init__(self, out: Rebuilder, frame: Frame[Value], live: frozenset[int]) -> None:
        code = frame.code
        shared = {*code.code.co_cellvars, *code.code.co_freevars}
        self.stack: list[str | None] = [None if v is None else out.expr(v) for v in frame.stack]
        self.cells: dict[int, str] = {}
        self.locals: dict[int, str] = {}
        self.held: set[int] = set()
        for i, value in enumerate(frame.fast):
            if type(value) is CellValue and code.locals[i] in shared:
                self.cells[i] = out.expr(value)
            elif value is not None and (i in live or would_be_missed(out.domain, value)):
                self.locals[i] = out.expr(value)
                if i not in live:
                    self.held.add(i)


def live_behind(frame: Frame[Value]) -> frozenset[int]:
    """The locals that are live behind the current instruction, or in its handler."""
    code, row = frame.code, frame.code.handler_of(frame.pc - 1)
    live = live_locals(code, frame.pc) if frame.pc < len(code.instrs) else frozenset[int]()
    return live if row is None else live | live_locals(code, row.target)


@final
class _State(FrameValues):
    """A frame at the break."""

    def __init__(
        self, out: Rebuilder, frame: Frame[Value], handled: Value | None, innermost: bool, own_frame: bool
    ) -> None:
        self.frame = frame
        self.pc = frame.pc
        self.row = frame.code.handler_of(frame.pc - 1)
        live = live_locals(frame.code, frame.pc - 1) if innermost else live_behind(frame)
        super().__init__(out, frame, frozenset(range(len(frame.fast))) if own_frame else live)
        self.handled = None if handled is None else out.expr(handled)
        lookup = frame.on_raise
        self.sought: tuple[str, str, str | None] | None = None
        if isinstance(lookup, Sought):
            asked = None if lookup.fallback is None else out.expr(lookup.fallback)
            self.sought = out.expr(lookup.value), lookup.name, asked
        self.instead = None if frame.instead is None else out.expr(frame.instead)


@final
class _BreakWriter:
    def __init__(
        self,
        domain: CaptureDomain,
        out: Rebuilder,
        frames: list[Frame[Value]],
        doors: Callable[[Region], Callable[..., object]],
        own_frame: bool,
    ) -> None:
        self.domain, self.out, self.doors, self.own_frame = domain, out, doors, own_frame
        self.regions: list[Region] = []
        handled = [f.handled for f in frames[1:]] + [domain.vm.handled]
        last = len(frames) - 1
        self.states = [_State(out, f, handled[i], i == last, own_frame and i == last) for i, f in enumerate(frames)]

    def write(self) -> None:
        self.out.flush()
        self.out.write(f"return {self._level(0)}")

    def _write_effects(self) -> None:
        """Inside of the blocks that the breaking instruction is in: an interrupt between effects leaves them."""
        out = self.out
        _write_effects(self.domain, out)
        if out.dropped:
            out.write(f"del {', '.join(dict.fromkeys(out.dropped))}")

    def _level(self, i: int) -> str:
        """Write what gives the return value of frame `i`; the name of that value."""
        out, state = self.out, self.states[i]
        innermost = i == len(self.states) - 1
        form = self._form(state) if innermost and not self.own_frame else None
        eager = innermost and form is None
        if state.row is None:
            if eager:
                self._write_effects()
                return self._eager(state)
            return self._go_on(state, self._body(i, form))
        result = out.fresh("r")
        # A call that is left to the front door may be made inside: it only happens after this function has ended.
        inside = i == 0 and self.domain.policy.tail_call is not None
        out.write("try:")
        out.indent += 1
        if eager:
            self._write_effects()
            out.write("pass")
        outcomes = () if eager else self._body(i, form)
        if inside:
            out.write(f"{result} = {self._eager(state) if eager else self._go_on(state, outcomes)}")
        out.indent -= 1
        out.write("except BaseException as error:")
        if inside:
            # At once: a local variable that leads to the error, whose traceback leads to this frame, would be a cycle.
            out.lines.append((out.indent + 1, f"return {self._throw(state, 'error')}", out.location))
            return result
        error = out.fresh("x")
        caught = f"{out.runtime(runtime.drop_entries)}(error, {i})" if i else "error"
        # In a list, which gives it away: a variable that leads to the error would be a cycle, see above.
        out.lines.append((out.indent + 1, f"{error} = [{caught}]", out.location))
        out.write("else:")
        out.lines.append((out.indent + 1, f"{error} = None", out.location))
        out.write(f"if {error} is None:")
        out.indent += 1
        self._write_in_frames(i, f"{result} = {self._eager(state) if eager else self._go_on(state, outcomes)}")
        out.indent -= 1
        out.write("else:")
        out.indent += 1
        self._write_in_frames(i, f"{result} = {self._throw(state, f'{error}.pop()')}")
        out.indent -= 1
        return result

    def _form(self, state: _State) -> Form | None:
        code, index = state.frame.code, state.pc - 1
        maker = FORMS.get(code.names[index])
        return None if maker is None else maker(self.out, state.frame, code.instrs[index][1], state.stack)

    def _body(self, i: int, form: Form | None) -> tuple[Outcome, ...]:
        """Write the instruction of frame `i`: for real, or the rest of the frame that it called."""
        state, out = self.states[i], self.out
        if form is None:
            result = out.fresh("r")
            callee = self.states[i + 1]
            if callee.sought is not None:
                out.write("try:")
                out.indent += 1
            self._write_in_frames(i + 1, f"{result} = {self._level(i + 1)}")
            if callee.sought is not None:
                self._write_sought(i, result, *callee.sought)
            pushes: dict[Completion, tuple[str | None, ...]] = {
                Completion.PUSH: (result,),
                Completion.PUSH_THEN_NULL: (result, None),
                Completion.PUSH_INSTEAD: (callee.instead,),
                Completion.REPLACE: (callee.instead,),
                Completion.DISCARD: (),
            }
            return (Outcome(None, 0, pushes[callee.frame.completion]),)
        self._write_effects()
        if state.handled is not None:
            entries = out.assign(f"{state.handled}.__traceback__", "e")
            out.write("try:")
            out.lines.append((out.indent + 1, f"raise {state.handled}", out.location))
            out.write("except BaseException:")
            out.indent += 1
            out.write(f"{state.handled}.__traceback__ = {entries}")
        for line in self._lines(form) if i else form.lines:
            out.write(line)
        if state.handled is not None:
            out.indent -= 1
        return form.outcomes

    def _write_sought(self, i: int, result: str, obj: str, name: str, fallback: str | None) -> None:
        """What a lookup in frame `i` does with an error that leaves the code that it called."""
        out = self.out
        out.indent -= 1
        sought = out.runtime(runtime.sought)
        if fallback is None:
            out.write("except AttributeError as error:")
            out.write(f"    {sought}(error, {obj}, {name!r})")
            out.write("    raise")
            return
        missing = out.fresh("x")
        out.write("except AttributeError:")
        out.write(f"    {missing} = True")
        out.write("else:")
        out.write(f"    {missing} = False")
        out.write(f"if {missing}:")  # behind the handler: `__getattr__` is not asked while the error is handled
        out.write("    try:")
        out.indent += 2
        self._write_in_frames(i + 1, f"{result} = {fallback}({obj}, {name!r})")
        out.indent -= 2
        out.write("    except AttributeError as error:")
        out.write(f"        {sought}(error, {obj}, {name!r})")
        out.write("        raise")

    def _lines(self, form: Form) -> tuple[str, ...]:
        """The instruction of an inlined frame; a traceback shows every inlined frame."""
        frames = [Standin.of(state.frame) for state in self.states[1:]]
        return in_frames(self.out, frames, form.lines)

    def _go_on(self, state: _State, outcomes: tuple[Outcome, ...]) -> str:
        """An expression for the return value of a frame that goes on after its instruction."""
        *conditional, otherwise = outcomes
        if otherwise.interrupted is not None:
            return self._go_on_in_block(state, otherwise, otherwise.interrupted)
        text = self._continue(state, otherwise)
        for outcome in conditional:
            text = f"{self._continue(state, outcome)} if {outcome.condition} else {text}"
        return text

    def _go_on_in_block(self, state: _State, outcome: Outcome, interrupted: str) -> str:
        """Likewise where the instruction has entered a block: what came as an exception since then, it is left with."""
        out, code = self.out, state.frame.code
        row = code.handler_of(state.pc)
        if row is None:
            raise AssertionError("no block")
        stack = [*state.stack[: len(state.stack) - outcome.pops], *outcome.pushes][: row.depth]
        offset, live = code.offsets[state.pc], live_locals(code, row.target)
        goes_on = self._continue(state, outcome)
        leaves = self._door(state, offset, stack, live, f"{interrupted}.pop()")
        if self.domain.policy.tail_call is None or state is not self.states[0]:
            return f"{goes_on} if {interrupted} is None else {leaves}"
        result = out.fresh("r")  # behind the call that makes a tail call handlers of signals run, too
        out.write("try:")
        out.write(f"    {result} = {goes_on} if {interrupted} is None else None")
        out.write("except BaseException as error:")
        out.write(f"    {interrupted} = [error]")
        out.write(f"if {interrupted} is not None:")
        out.write(f"    {result} = {leaves}")
        return result

    def _continue(self, state: _State, outcome: Outcome) -> str:
        code = state.frame.code
        pc = state.pc if outcome.target is None else outcome.target
        stack = [*state.stack[: len(state.stack) - outcome.pops], *outcome.pushes]
        while code.offsets[pc] == code.offsets[pc - 1] and outcome.target is None:
            # The instruction has a second canonical half, which a continuation cannot start with.
            if code.names[pc] == "PUSH_NULL":
                stack.append(None)
            elif code.names[pc] != "FORMAT_SIMPLE":
                break
            pc += 1
        if code.names[pc] == "RETURN_VALUE" and stack and stack[-1] is not None:
            return stack[-1]
        live = live_locals(code, pc)
        return self._door(state, code.offsets[pc], stack, live, None)

    def _throw(self, state: _State, error: str) -> str:
        code, row = state.frame.code, state.row
        if row is None:
            raise AssertionError("no handler")
        stack = state.stack[: row.depth]
        return self._door(state, code.offsets[state.pc - 1], stack, live_locals(code, row.target), error)

    def _layout(
        self, state: _State, offset: int, stack: list[str | None], live: frozenset[int], error: str | None
    ) -> tuple[Region, list[str]]:
        chosen = [i for i in sorted(state.locals) if i in live or i in state.held]
        cells = sorted(state.cells)
        region = Region(
            code=state.frame.code.code,
            globals=state.frame.globals,
            offset=offset,
            stack=tuple(t is not None for t in stack),
            locals=tuple(chosen),
            cells=tuple(cells),
            handled=state.handled is not None,
            throwing=error is not None,
        )
        arguments = [t for t in stack if t is not None]
        arguments += [state.locals[i] for i in chosen]
        arguments += [state.cells[i] for i in cells]
        arguments += [t for t in (state.handled, error) if t is not None]
        return region, arguments

    def _door(
        self, state: _State, offset: int, stack: list[str | None], live: frozenset[int], error: str | None
    ) -> str:
        region, arguments = self._layout(state, offset, stack, live, error)
        self.regions.append(region)
        kind = "throw" if error is not None else "resume"
        name = self.out.constant(self.doors(region), f"{kind}_{state.frame.code.code.co_name}_{offset}")
        return self._call(state, name, arguments)

    def _call(self, state: _State, name: str, arguments: list[str]) -> str:
        """A call that goes on with a frame; the outermost one's is left to the front door."""
        tail_call = self.domain.policy.tail_call
        if tail_call is not None and state is self.states[0]:
            return f"{self.out.constant(tail_call, 'tail_call')}({', '.join([name, *arguments])})"
        return f"{name}({', '.join(arguments)})"

    def _write_in_frames(self, i: int, statement: str) -> None:
        """A statement that goes on with frame `i`, below stand-ins of the inlined frames that it was called from."""
        frames = [Standin.of(state.frame) for state in self.states[1:i]]
        for line in in_frames(self.out, frames, [statement]) if frames else (statement,):
            self.out.write(line)

    def _eager(self, state: _State) -> str:
        """The rest of the frame in CPython, from the breaking instruction on."""
        code, index = state.frame.code, state.pc - 1
        live = frozenset(state.locals) if self.own_frame else live_locals(code, index)
        region, arguments = self._layout(state, code.offsets[index], state.stack, live, None)
        function = resume_function(region)
        name = self.out.constant(function, f"eager_{code.code.co_name}_{region.offset}")
        return self._call(state, name, arguments)
