"""The state of one capture, and what the interpreter's operations and the leaf handler may ask of it.

`CaptureDomain` is abstract: what Python's operations do with values is added by `python_semantics`. The modules of this package take
a `CaptureDomain`, so that they know its operations without importing one another.
"""

from __future__ import annotations

import copy
import operator
import types
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from torchjit_core.location import CodeLocation
from torchjit_core.paths import AccessPath, Drawn
from torchjit_core.reasons import GraphBreak, Reason
from torchjit_vm.capture.effect_barrier import EffectBarrier
from torchjit_vm.capture.effect_records import Prepared, ReorderedCall, Step
from torchjit_vm.capture.guard_recording import GuardRecorder
from torchjit_vm.capture.policy import CapturePolicy, LeafHandler, NewObject
from torchjit_vm.capture.reasons import QUIET, STEP_LIMIT, UNKNOWN_OPERATION
from torchjit_vm.capture.restart import Restart, raised_anew
from torchjit_vm.capture.state import FeatureStates, StateOf
from torchjit_vm.capture.values import (
    NEW,
    CellValue,
    Const,
    DictValue,
    GeneratorValue,
    Known,
    Leaf,
    Obj,
    SliceValue,
    Value,
)
from torchjit_vm.domain import Domain

if TYPE_CHECKING:
    from torchjit_core.guards import Guard
    from torchjit_vm.capture.members import Member
    from torchjit_vm.decode import Decoded
    from torchjit_vm.frame import Raised
    from torchjit_vm.interpreter import Interpreter

__all__ = ["CaptureDomain"]

_UNDONE = (
    "barrier",
    "reordered",
    "prelude",
    "generators",
    "interceptors",
    "mutated_at",
    "nested_stack",
    "overrides",
    "pretended",
    "stored_leaves",
    "thrown",
    "used_leaves",
    "_outer_barriers",
    "_state",
)
"""What `tentative` puts back."""
_TRUE, _FALSE, _NONE = Const(True), Const(False), Const(None)


class CaptureDomain(Domain[Value], GuardRecorder):
    """What every part of a capture has at hand: its values, what was noted so far, and Python's operations.

    It is the `CaptureContext` of the leaf handler. What one feature alone needs is `of(...)`.

    Args:
        leaves: the leaf handler.
        policy: how to capture.
        break_at: a step at which to break, for this reason (found by an earlier attempt).

    Attributes:
        of: the state that one feature owns, see `state`.
        interned: ids of real objects to their values; `payloads` the same for what the leaf handler gives.
        members: what classes have under a name, as far as it was looked up.
        namespaces: ids of the dicts of modules to their values.
        touched: values with real objects that the region changes; `stored_leaves` those that are leaves.
        class_stores: what the region stored in real classes.
        mutated_at: the step of the last instruction that changed something.
        reordered: calls that are made at the end of the region.
        prelude: what emitted code does before the graph.
        generators: those whose body is interpreted.
        thrown: exceptions that were raised.
        pretended: the program was told that it is compiled.
        has_numbers: numbers that `id` gave for values are keys; `object_numbers` those of objects that are relied on.
        library_values: a number of a library was read.
        used_leaves: the leaf handler was asked to do something; `leaf_effects`: how often that was no mere question.
        nested_stack: the active frames where a break was raised in a nested loop.
        barrier: refuses effects, while there is one.
        interceptors: what sees calls of the leaf handler, innermost last.
        overrides: calls go to the classes of leaves.
    """

    def __init__(
        self, leaves: LeafHandler, policy: CapturePolicy, break_at: tuple[int, GraphBreak] | None = None
    ) -> None:
        GuardRecorder.__init__(self)
        self.leaves = leaves
        self.policy = policy
        self.break_at = break_at
        self._states = FeatureStates()
        self.of: StateOf = self._states.__getitem__
        self.interned: dict[int, Value] = {}
        self.payloads: dict[int, Leaf] = {}
        self.members: dict[tuple[type, str], Member] = {}
        self.namespaces: dict[int, DictValue] = {}
        self.touched: dict[Value, None] = {}
        self.stored_leaves: dict[Leaf, None] = {}
        self.class_stores: dict[tuple[type, str], Value] = {}
        self.mutated_at = -1
        self.reordered: list[ReorderedCall] = []
        self.prelude: list[Step] = []
        self.generators: list[GeneratorValue] = []
        self.thrown: set[Value] = set()
        self.pretended = False
        self.has_numbers = False
        self.object_numbers: set[int] = set()
        self.library_values = False
        self.used_leaves = False
        self.leaf_effects = 0
        self.nested_stack: tuple[CodeLocation, ...] | None = None
        self.barrier: EffectBarrier | None = None
        self._outer_barriers: list[EffectBarrier | None] = []
        self.interceptors: list[Value] = []
        self.overrides = False
        self._state: dict[str, object] = {}

    # What the interpreter needs.

    def attach(self, vm: Interpreter[Value]) -> None:
        self.vm = vm
        vm.tracebacks = {}

    def forget(self) -> None:
        """Let go of the values of a capture that is over, and of the real objects that they stand for."""
        for generator in self.generators:
            generator.frame.forget()
        for content in vars(self).values():
            if isinstance(content, (dict, list, set)):
                content.clear()
        self.vm.forget()
        del self.vm  # the two name each other, and would wait for the collector

    def constants(self, code: Decoded) -> list[Value]:
        found: list[Value] | None = code.boxed.get(CaptureDomain)
        if found is None:
            if code.has_groups:
                raise self.graph_break(UNKNOWN_OPERATION, "except*")
            found = code.boxed[CaptureDomain] = [Const(c) for c in code.code.co_consts]
        return found

    def constant(self, value: object) -> Value:
        if value is True:
            return _TRUE
        if value is False:
            return _FALSE
        return _NONE if value is None else Const(value)

    def step_limit(self, vm: Interpreter[Value]) -> int:
        if self.break_at is not None and vm.step == self.break_at[0]:
            raise raised_anew(self.break_at[1])
        if vm.step >= self.policy.step_limit:
            where = self.location()
            warnings.warn(
                f"capture stopped after {vm.step} instructions at {where.filename}:{where.lineno}: "
                "loops are unrolled as often as they run; move a long one out of the compiled region",
                RuntimeWarning,
                stacklevel=2,
            )
            raise self.graph_break(STEP_LIMIT, str(vm.step))
        return self.policy.step_limit

    def nested_error(self, error: Exception, vm: Interpreter[Value]) -> None:
        if isinstance(error, GraphBreak) and self.nested_stack is None:
            self.nested_stack = self.stack()

    def graph_break(self, why: Reason, detail: str = "") -> GraphBreak:
        return GraphBreak(why, detail, self.location())

    def claimed(self, obj: object) -> bool:
        """Do calls of this function go somewhere else than into its code?"""
        hashes = type(obj).__hash__
        if isinstance(hashes, types.FunctionType) and self.policy.is_user_code(hashes.__code__):
            return False  # looking it up would run code of the program
        try:
            known = obj in self.policy.substitutes or obj in self.policy.allow_in_graph
        except TypeError:
            return False
        return known or self.leaves.handles(obj)

    def touch(self, value: Obj | CellValue | Leaf) -> None:
        """Note that a value is about to change; real ones are written back at the end."""
        self.note_change(value)
        if value.real is not NEW:
            self.touched[value] = None

    def note_change(self, value: Value) -> None:
        """A value of the region is about to change.

        Raises:
            GraphBreak: it may not, for it was there before effects were forbidden.
        """
        if self.barrier is not None and self.barrier.refuses(value, self.touched, made=self._made_here(value)):
            cls = getattr(value, "cls", None) or type(getattr(value, "real", value))
            raise self.graph_break(QUIET, f"a {cls.__name__} changes")
        self.mutated_at = self.vm.step

    def _made_here(self, value: Value) -> bool:
        """Does the region make the object?"""
        if type(value) is Known:
            return isinstance(value.obj, type) and value.obj in self.made_classes
        return getattr(value, "real", NEW) is NEW

    # Operations of Python that the interpreter does not ask for by itself.

    @abstractmethod
    def error(self, type: type[BaseException], message: str, name: str | None = None) -> Raised:
        """An exception that CPython raises here; `name`: the attribute or variable that is missing."""

    @abstractmethod
    def raised(self, exception: Value) -> Raised:
        """A new exception that is raised here."""

    @abstractmethod
    def use(self, value: Value) -> Any:
        """The value of a constant, or of what an instance of a class below str, int ... is; from now on relied on."""

    @abstractmethod
    def pinned(self, obj: object, label: str) -> Value:
        """The value of a real object whose identity is settled elsewhere."""

    @abstractmethod
    def wrap(self, obj: object, path: AccessPath) -> Value:
        """The value of a real object that is found at `path`."""

    @abstractmethod
    def index(self, value: Value) -> int:
        """`operator.index(value)` as a constant."""

    @abstractmethod
    def slice(self, value: SliceValue) -> slice:
        """A slice of constant bounds."""

    @abstractmethod
    def unpack_all(self, value: Value) -> list[Value]:
        """All items of an iterable."""

    @abstractmethod
    def leaf_call(
        self, function: Callable[..., object], args: list[Value], kwargs: dict[str, Value] | None = None
    ) -> Value:
        """Hand a call to the leaf handler."""

    @abstractmethod
    def pairs(self, value: DictValue) -> list[tuple[Value, Value]]:
        """All items of a dict."""

    @abstractmethod
    def same_or_equal(self, left: Value, right: Value) -> bool:
        """`left is right or left == right`, as containers compare."""

    @abstractmethod
    def prepare(self, function: Callable[..., object], args: tuple[object, ...]) -> AccessPath:
        """Where the graph finds what `function(*args)` gives, a new object in each call, made before the graph runs."""

    def leaf_constant(self, leaf: Leaf) -> Any:
        """The value of a numeric leaf, if its handler can settle it.

        Raises:
            GraphBreak: it cannot.
        """
        cls = self.leaves.type_of(leaf.payload)
        # float(x) of a float leaf is the leaf; this asks for the number itself
        convert = float.__float__ if cls is float else cls if cls in (bool, complex) else operator.index
        result = self.leaves.call(convert, (leaf.payload,), {}, self)
        if type(result) in self.leaves.leaf_types:
            raise self.graph_break(UNKNOWN_OPERATION, f"the value of a symbolic {cls.__name__} is needed")
        return result

    # The capture context of the leaf handler.

    def guard(self, guard: Guard) -> None:
        path = getattr(guard, "path", None) if self.prelude else None
        if path is None or type(path.root()) is not Drawn:  # what emitted code makes is the same in each call
            self.extra_guards.append(guard)

    def location(self) -> CodeLocation:
        frames = self.vm.frames
        is_user_code = self.policy.is_user_code
        for frame in reversed(frames):
            if is_user_code(frame.code.code):
                return frame.code.location(max(frame.pc - 1, 0))
        if frames:
            return frames[-1].code.location(max(frames[-1].pc - 1, 0))
        return self.root_location or CodeLocation("<unknown>", "<unknown>", 1)

    def stack(self) -> tuple[CodeLocation, ...]:
        return tuple(f.code.location(max(f.pc - 1, 0)) for f in self.vm.frames)

    def receivers(self) -> tuple[tuple[type, AccessPath], ...]:
        return tuple(filter(None, self.frame_receivers()))

    def frame_receivers(self) -> tuple[tuple[type, AccessPath] | None, ...]:
        """For each active frame, outermost first, the class of its `self` and where that is found."""
        found: list[tuple[type, AccessPath] | None] = []
        for frame in self.vm.frames:
            receiver = frame.fast[0] if frame.fast and frame.code.locals[0] == "self" else None
            if isinstance(receiver, Obj) and receiver.path is not None:
                found.append((receiver.cls, receiver.path))
            else:
                found.append(None)
        return tuple(found)

    def new_object(self, type: type, items: Sequence[object]) -> object:
        return NewObject(type, tuple(items))

    def state(self, key: str) -> object:
        return self._state.get(key)

    def set_state(self, key: str, value: object) -> None:
        self._state[key] = value
        self.overrides = bool(self._state.get("subclasses")) and not self._state.get("dispatch_off")

    def mark(self) -> int:
        """The instruction of the outermost frame that is being interpreted, for `break_at_mark`."""
        return self.vm.step

    def call_mark(self) -> int:
        """The instruction that called the innermost frame, for `break_at_mark`."""
        return self.vm.frames[-1].born

    def may_catch(self, anything: bool = False) -> bool:
        """Could the program see an exception of the current instruction before it leaves the region? Not through the library's handlers."""
        user = self.policy.is_user_code
        return any(frame.code.may_catch(frame.pc - 1, anything) and user(frame.code.code) for frame in self.vm.frames)

    def runs_again(self) -> bool:
        """Does the program's own code run in place of the region, where its graph raises? Draws come before the graph."""
        return self.policy.graph_raised is not None and all(type(step) is Prepared for step in self.prelude)

    def in_block(self) -> bool:
        """Is the current instruction in a `try` or `with`, of whatever code?"""
        return any(frame.code.handler_of(frame.pc - 1) is not None for frame in self.vm.frames)

    def has_stores(self, leaf: object) -> bool:
        """Has the program stored attributes on the object of this payload, which get there at the region's end?"""
        return any(value.payload is leaf for value in self.stored_leaves)

    def names_used(self) -> frozenset[str]:
        """The names of attributes and globals in the code of the frames that have not ended."""
        return frozenset(name for frame in self.vm.frames for name in frame.code.code.co_names)

    def break_at_mark(self, mark: int, why: GraphBreak) -> NoReturn:
        """What was captured at `mark` cannot stay: start again, and break there."""
        raise Restart(mark, why)

    def forbid_effects(self, forbid: bool) -> None:
        """From now on what was there before may not change (or may again): the code does not run once, here and now. Nests."""
        if forbid:
            self._outer_barriers.append(self.barrier)
            self.barrier = EffectBarrier(self.vm.frames[:-1])
        else:
            self.barrier = self._outer_barriers.pop()

    @contextmanager
    def without_effects(self, *, reports: bool = False) -> Iterator[None]:
        """What is interpreted inside may change only what it makes; with `reports`, calls that only report may be put off."""
        before = self.barrier
        if before is None:
            self.barrier = EffectBarrier(self.vm.frames, reports)
        try:
            yield
        finally:
            self.barrier = before

    @contextmanager
    def tentative(self) -> Iterator[None]:
        """What is interpreted inside did not happen: at the end the capture's state is what it was before.

        It runs without effects, for what values hold is not put back. What was looked at stays known, and relied on. What the leaf
        handler did cannot be undone.

        Raises:
            GraphBreak: it did something.
        """
        own = {name: copy.copy(getattr(self, name)) for name in _UNDONE}
        states, vm, effects = self._states.saved(), self.vm.exception_state(), self.leaf_effects
        try:
            with self.without_effects(reports=True):
                yield
        finally:
            vars(self).update(own)
            self._states.restore(states)
            self.vm.restore_exception_state(vm)
        if self.leaf_effects != effects:
            self.nested_stack = self.stack()
            raise self.graph_break(QUIET, "an operation of the graph")

    def make_cell(self, content: Value | None) -> Value:
        return CellValue(content)
