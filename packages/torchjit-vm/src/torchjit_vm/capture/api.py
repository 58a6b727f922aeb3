"""`capture`: from a region and its slots to guards and a callable."""

from __future__ import annotations

import collections
import functools
import sys
import types
from collections.abc import Callable, Container, Sequence
from types import CodeType, FunctionType
from typing import Any, cast, final

import attrs

from torchjit_core.events import emit_lazy
from torchjit_core.guards import Guard
from torchjit_core.location import CodeLocation
from torchjit_core.paths import AccessPath, Pinned
from torchjit_core.reasons import GraphBreak, NotYet
from torchjit_core.region import RegionCode
from torchjit_vm.capture.closing import must_close
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.emit import emit, write_break, write_raise, write_return
from torchjit_vm.capture.functions import KnownFunctions
from torchjit_vm.capture.interception import leave_no_interceptor
from torchjit_vm.capture.objects.generator import StartedGenerator
from torchjit_vm.capture.policy import BreakForbidden, CapturePolicy, LeafHandler, RegionCompiler
from torchjit_vm.capture.python_semantics import PythonSemantics
from torchjit_vm.capture.raw import has_leaf
from torchjit_vm.capture.reading import known_cell, wrap
from torchjit_vm.capture.reasons import (
    BOUNDARY,
    CLASS_BODY,
    GENERATOR_FUNCTION,
    NO_RESTART,
    OPAQUE_ITERATOR,
    OWN_FRAME,
    RAISED_UNDER_CAPTURE,
    TOO_DEEP,
    UNKNOWN_OPERATION,
)
from torchjit_vm.capture.rebuild import NotRemade, Rebuilder
from torchjit_vm.capture.restart import Restart
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import NEW, CellValue, Known, Leaf, Obj, Value
from torchjit_vm.capture.weak_references import Finalizers
from torchjit_vm.decode import decode
from torchjit_vm.frame import NULL, Frame, Raised
from torchjit_vm.graph_breaks import GraphBreakRecord
from torchjit_vm.interpreter import Interpreter
from torchjit_vm.liveness import blocks_wait, live_locals
from torchjit_vm.region import Region

__all__ = ["Captured", "capture"]

_MAX_ATTEMPTS = 50
_SELDOM_DEEPER = 100
"""Frames of the program; below this many nobody counts those around the capture."""
_MARGIN = 20
"""Frames that are left to the program's own code at the recursion limit, which is met for real."""
_GENERATOR_FLAGS = 0x20 | 0x80 | 0x100 | 0x200


@final
@attrs.frozen
class Captured:
    """A captured region.

    Attributes:
        target: called with the gathered objects.
        gather: their access paths.
        unwrap: take this item of the target's result; -1: the result itself.
        guards: what the region relies on.
        source: the emitted code, "" if the target is the graph itself.
        breaks: the graph break that ended the region, if one did.
        continuations: the regions that it goes on with.
        repeatable: where the target's graph raises, the region's own code may run in its place: the target then raises what the
            policy's `graph_raised` makes of the exception, or the exception itself if the target is the graph.
        functions: what was interpreted, each once: functions, and code objects that were met without a function that is there
            before the region runs (those of functions that it makes, of functions known by their code, of continuations).
    """

    target: Callable[..., Any]
    gather: tuple[AccessPath, ...]
    unwrap: int
    guards: tuple[Guard, ...]
    source: str
    breaks: tuple[GraphBreakRecord, ...]
    continuations: tuple[Region, ...]
    repeatable: bool = False
    functions: tuple[FunctionType | CodeType, ...] = ()


def capture(
    region: Region,
    slots: Sequence[object],
    *,
    leaves: LeafHandler,
    compiler: RegionCompiler,
    continuations: Callable[[Region], Callable[..., object]],
    policy: CapturePolicy | None = None,
    restart: Callable[[], tuple[LeafHandler, RegionCompiler]] | None = None,
) -> Captured:
    """Interpret a region symbolically.

    Args:
        region: where to start.
        slots: the objects of this call, in the region's layout.
        leaves: the leaf handler.
        compiler: compiles what the leaf handler recorded.
        continuations: the front door of a continuation; called while emitting.
        policy: how to capture.
        restart: a fresh leaf handler and compiler. A break inside a callback or generator can only happen at the
            instruction that called it, which a second capture then does; without `restart` that is an error.

    Raises:
        BreakForbidden: a break where the program, or the policy, says that breaks are errors.
        GraphBreak: `fullgraph` and a break; or a break that nothing can be emitted for. Nothing has been executed.
        ModuleImported: a module that the policy's `may_import` is true for was imported. Nothing else has been executed.
    """
    policy = policy or CapturePolicy()
    break_at: tuple[int, GraphBreak] | None = None
    attempts = 0
    while attempts < _MAX_ATTEMPTS:
        try:
            attempt = _Capture(region, slots, leaves, compiler, continuations, policy, break_at)
            try:
                return attempt.run()
            finally:
                attempt.domain.forget()
        except Restart as again:
            attempts += 1
            if policy.fullgraph:
                raise again.why from None
            if restart is None:
                raise GraphBreak(NO_RESTART, str(again.why.reason.headline), again.why.location) from again.why
            leaves, compiler = restart()
            break_at = again.step, again.why
    raise GraphBreak(NO_RESTART, "too many attempts", None)


@final
class _Capture:
    """One attempt."""

    def __init__(
        self,
        region: Region,
        slots: Sequence[object],
        leaves: LeafHandler,
        compiler: RegionCompiler,
        doors: Callable[[Region], Callable[..., object]],
        policy: CapturePolicy,
        break_at: tuple[int, GraphBreak] | None,
    ) -> None:
        self.region, self.slots = region, slots
        self.compiler, self.doors, self.policy = compiler, doors, policy
        self.domain = PythonSemantics(leaves, policy, break_at)
        limit = policy.step_limit if break_at is None else min(break_at[0], policy.step_limit)
        self.vm: Interpreter[Value] = Interpreter(self.domain, limit=limit)
        self.vm.deep, self.vm.on_deep = _SELDOM_DEEPER, self._deep
        code = region.code
        self.domain.root_location = CodeLocation(code.co_filename, code.co_qualname, code.co_firstlineno)

    def run(self) -> Captured:
        domain, code = self.domain, self.region.code
        if self.region.offset is None and code.co_flags & _GENERATOR_FLAGS:
            raise GraphBreak(GENERATOR_FUNCTION, code.co_qualname, domain.root_location)
        # What is raised from here on, by a backend for instance, did not come while a break or an exception of the region was handled.
        return self._interpreted_to_its_end()()

    def _interpreted_to_its_end(self) -> Callable[[], Captured]:
        """Interpret the region; what makes the result of how that ended."""
        domain, vm = self.domain, self.vm
        frame, thrown = self._frame()
        try:
            result = vm.run(frame, thrown, again=True)
        except Raised as raised:
            leave_no_interceptor(domain)
            exception = raised.value
            if domain.pretended:
                raise NotYet(RAISED_UNDER_CAPTURE, type_of(domain, exception).__name__, domain.root_location) from None
            return functools.partial(self._finish, lambda out: write_raise(domain, out, exception))
        except GraphBreak as why:
            return functools.partial(self._broken, why)
        except RecursionError:
            raise Restart(
                vm.step, GraphBreak(TOO_DEEP, f"limit {sys.getrecursionlimit()}", domain.location())
            ) from None
        return functools.partial(self._returned, result)

    def _returned(self, result: Value) -> Captured:
        domain = self.domain
        leave_no_interceptor(domain)
        quiet = not (
            domain.touched
            or domain.stored_leaves
            or domain.reordered
            or domain.prelude
            or any(map(must_close, domain.generators))
        )
        if type(result) is Leaf and quiet:
            pure = self._pure_graph(result)
            if pure is not None:
                return pure
        return self._finish(lambda out: write_return(domain, out, result))

    def _frame(self) -> tuple[Frame[Value], Value | None]:
        """The first frame, from the slots."""
        region, domain = self.region, self.domain
        values = [wrap(domain, obj, path) for obj, path in zip(self.slots, region.slot_paths, strict=True)]
        if region.offset is None:
            function = region.function
            closure = (function.__closure__ if function else None) or ()
            names = zip(region.code.co_freevars, closure, strict=True)
            cells = [known_cell(domain, cell, f"<cell {name}>") for name, cell in names]
            known = None if function is None else Known(function)
            return self.vm.new_frame(region.code, list(values), cells, region.globals, known), None
        decoded = decode(region.code)
        frame = self.vm.new_frame(decoded, [None] * len(decoded.locals), [], region.globals)
        rest = iter(values)
        frame.stack = [next(rest) if filled else NULL for filled in region.stack]
        for i in (*region.locals, *region.cells):
            frame.fast[i] = next(rest)
        live = live_locals(decoded, decoded.index_of[region.offset])
        domain.of(Finalizers).carried = {id(frame.fast[i]) for i in region.locals if i not in live}
        self.vm.handled = next(rest) if region.handled else None
        frame.pc = decoded.index_of[region.offset]
        return frame, next(rest) if region.throwing else None

    def _deep(self) -> None:
        """Plain Python would be near its recursion limit here: the outermost call of what recurs runs for real."""
        vm, frames = self.vm, self.vm.frames
        limit = sys.getrecursionlimit()
        vm.deep = limit - _frames_around() - _MARGIN
        if len(frames) <= vm.deep:
            return
        times = collections.Counter(id(f.code) for f in frames[1:])
        recurring = next((f for f in frames[1:] if times[id(f.code)] > 1), frames[1])
        raise Restart(recurring.born, GraphBreak(TOO_DEEP, f"limit {limit}", self.domain.location()))

    def _compile_leaves(self, leaves: Sequence[Leaf]) -> RegionCode:
        return self.compiler.compile_region([leaf.payload for leaf in leaves], self.domain)

    def _pure_graph(self, result: Leaf) -> Captured | None:
        code = self._compile_leaves([result])
        where = code.outputs[0]
        if code.target is not None and isinstance(where, int) and not code.epilogue:
            repeatable = code.repeatable and self.domain.runs_again()
            guards, functions = self._guards(), self._interpreted()
            return Captured(code.target, code.inputs, where, guards, "", (), (), repeatable, functions)
        return self._finish(lambda out: write_return(self.domain, out, result), (), lambda _: code)

    def _module(self) -> str:
        return str(self.region.globals.get("__name__", "builtins"))

    def _location(self) -> CodeLocation:
        left = self.vm.left
        if not self.vm.frames and left is not None and left.code.code is self.region.code:
            return left.code.location(left.pc - 1)
        if self.vm.frames:
            root = self.vm.frames[0]
            return root.code.location(max(root.pc - 1, 0))
        return self.domain.root_location or CodeLocation("<unknown>", "<unknown>", 1)

    def _finish(
        self,
        body: Callable[[Rebuilder], list[Region]],
        breaks: tuple[GraphBreakRecord, ...] = (),
        compile_leaves: Callable[[Sequence[Leaf]], RegionCode] | None = None,
    ) -> Captured:
        try:
            emitted = emit(
                self.domain,
                self.region.code,
                self._module(),
                self._location(),
                body,
                compile_leaves or self._compile_leaves,
                marks=blocks_wait(self.region),
            )
        except StartedGenerator as started:
            why = breaks[0] if breaks else None
            if why is None:
                cause = GraphBreak(UNKNOWN_OPERATION, "a started generator leaves the region", self._location())
            else:
                cause = GraphBreak(why.reason, why.detail, why.location)
            raise Restart(started.generator.born, cause) from None
        except NotRemade as error:
            raise Restart(error.made.born, GraphBreak(CLASS_BODY, error.detail, self._location())) from None
        self._check_generators(emitted.rebuilt)
        emit_lazy("emitted", lambda: {"source": emitted.source})
        return Captured(
            emitted.target,
            emitted.gather,
            -1,
            self._guards(),
            emitted.source,
            breaks,
            emitted.continuations,
            emitted.repeatable,
            self._interpreted(),
        )

    def _check_generators(self, rebuilt: frozenset[Value]) -> None:
        """A generator that is left in the middle of a `try` or `with` must be a real one: CPython closes it."""
        for generator in self.domain.generators:
            if generator not in rebuilt and must_close(generator):
                cause = GraphBreak(UNKNOWN_OPERATION, "a generator is left inside a try or with", self._location())
                raise Restart(generator.born, cause)

    def _broken(self, why: GraphBreak) -> Captured:
        domain, vm = self.domain, self.vm
        stack = domain.nested_stack if domain.nested_stack is not None else domain.stack()
        if domain.nested_stack is not None or domain.mutated_at == vm.step:
            raise Restart(vm.step, why)
        if self.policy.fullgraph:
            raise why
        leave_no_interceptor(domain, why)
        told = domain.state("breaks_are_errors")
        if self.policy.breaks_are_errors if told is None else told:
            raise BreakForbidden(why)
        if why.reason in self.policy.whole_calls:
            self._leave_whole_call(why)
        if why.reason in self.policy.whole_callers:
            self._leave_callers(why, self.policy.whole_callers[why.reason])
        record = GraphBreakRecord(why.reason, why.detail, why.location, stack, domain.frame_receivers())
        boundary = why.reason is BOUNDARY or why.reason is OPAQUE_ITERATOR
        frames = list(vm.frames)
        own_frame = why.reason is OWN_FRAME
        return self._finish(
            lambda out: write_break(domain, out, frames, self.doors, own_frame), () if boundary else (record,)
        )

    def _leave_whole_call(self, why: GraphBreak) -> None:
        """Start again and break at the outermost inlined call that holds no leaf, if there is one.

        What the breaking instruction itself is given does not count: it was made for it.
        """
        at = self.domain.break_at
        holds_leaf = functools.partial(_holds_leaf, self.domain)
        if at is not None and at[0] == self.vm.step:
            return  # we are there
        outermost: Frame[Value] | None = None
        for frame in reversed(self.vm.frames[1:]):
            if any(map(holds_leaf, frame.fast)) or (outermost is not None and any(map(holds_leaf, frame.stack))):
                break
            outermost = frame
        if outermost is not None:
            raise Restart(outermost.born, why)

    def _leave_callers(self, why: GraphBreak, callers: Container[CodeType]) -> None:
        """Start again and break at the call of the outermost of these functions, if it is not the region's own."""
        outermost: Frame[Value] | None = None
        for frame in reversed(self.vm.frames[1:]):
            if frame.code.code not in callers:
                break
            outermost = frame
        if outermost is not None:
            raise Restart(outermost.born, why)

    def _interpreted(self) -> tuple[FunctionType | CodeType, ...]:
        functions = list(self.domain.of(KnownFunctions))
        own = cast("FunctionType | None", self.region.function)  # mypy takes a field of this type for a method
        if own is not None and own not in functions:
            functions.insert(0, own)
        theirs = {id(function.__code__) for function in functions}
        return *functions, *(code for code in self.vm.interpreted() if id(code) not in theirs)

    def _guards(self) -> tuple[Guard, ...]:
        _guard_against_aliases(self.domain)
        return self.domain.guards()


def _frames_around() -> int:
    """Python's frames outside of the innermost capture."""
    frame: types.FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not capture.__code__:
        frame = frame.f_back
    count = 0
    while frame is not None:
        count += 1
        frame = frame.f_back
    return count


def _holds_leaf(domain: CaptureDomain, value: Value | None) -> bool:
    content = value.content if isinstance(value, CellValue) else value
    constant = getattr(domain.leaves, "made_of_constants", None)
    if type(content) is Leaf and constant is not None and constant(content.payload):
        return False
    return isinstance(content, Value) and has_leaf(content)


def _guard_against_aliases(domain: CaptureDomain) -> None:
    """What was changed under one path must not be reached under another one that was read as another object."""
    changed = {type(getattr(v, "real", NEW)) for v in domain.touched} - {type(NEW)}
    for cls in changed:
        paths = [
            v.path
            for v in domain.interned.values()
            if isinstance(v, (Obj, CellValue, Leaf)) and v.path is not None and type(v.real) is cls
        ]
        if len(paths) > 1 and any(type(p) is not Pinned for p in paths):
            domain.guard_different(*paths)
