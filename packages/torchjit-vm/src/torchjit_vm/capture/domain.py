"""The state of one capture, and the domain that the interpreter runs over."""

from __future__ import annotations

import operator
import random
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, final

from torchjit_core.guards import Guard
from torchjit_core.location import CodeLocation
from torchjit_core.paths import AccessPath, Drawn
from torchjit_core.reasons import GraphBreak, Reason
from torchjit_vm.capture import (
    answers,
    attributes,
    calls,
    comparisons,
    coroutines,
    exceptions,
    formatting,
    functions,
    groups,
    guard_recording,
    iteration,
    lengths,
    made_later,
    members,
    names,
    operators,
    packing,
    stores,
    subscripts,
)
from torchjit_vm.capture.atoms import base_of
from torchjit_vm.capture.class_changes import MadeClass
from torchjit_vm.capture.contexts import ContextStore
from torchjit_vm.capture.deferred import Deferred
from torchjit_vm.capture.draws import Prepared, Step, prepare
from torchjit_vm.capture.policy import CapturePolicy, LeafHandler, NewObject
from torchjit_vm.capture.quiet import Quiet
from torchjit_vm.capture.reasons import STEP_LIMIT, UNKNOWN_OPERATION
from torchjit_vm.capture.restart import Restart, raised_anew
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import (
    NEW,
    AtomObject,
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
from torchjit_vm.decode import Decoded
from torchjit_vm.frame import Raised
from torchjit_vm.interpreter import Interpreter
from torchjit_vm.type_labels import type_label

__all__ = ["CaptureDomain"]

_TRUE, _FALSE, _NONE = Const(True), Const(False), Const(None)


@final
class CaptureDomain:
    """`Domain[Value]`, and the `CaptureContext` of the leaf handler.

    Args:
        leaves: the leaf handler.
        policy: how to capture.
        break_at: a step at which to break, for this reason (found by an earlier attempt).
    """

    vm: Interpreter[Value]

    def __init__(
        self, leaves: LeafHandler, policy: CapturePolicy, break_at: tuple[int, GraphBreak] | None = None
    ) -> None:
        self.leaves = leaves
        self.policy = policy
        self.break_at = break_at
        self.pending: dict[tuple[Any, ...], tuple[type[Guard], tuple[Any, ...], Decoded | None, int]] = {}
        self.extra_guards: list[Guard] = []
        self.constants_read: list[Const] = []
        self.interned: dict[int, Value] = {}
        self.payloads: dict[int, Leaf] = {}
        self.keys_by_identity: dict[Value, None] = {}
        self.has_numbers = False  # are numbers that `id` gave for values keys?
        self.object_numbers: set[int] = set()  # those that it gave for objects that are relied on
        self.members: dict[tuple[type, str], members.Member] = {}
        self.generators: list[GeneratorValue] = []
        self.memos: dict[Value, object] = {}
        self.thrown: set[Value] = set()
        self.origins: dict[Value, Value] = {}  # a part of an exception group: the group, until the part is raised anew
        self.class_stores: dict[tuple[type, str], Value] = {}
        self.made_classes: dict[type, MadeClass] = {}
        self.class_parts: dict[
            int, tuple[type, str]
        ] = {}  # what belongs to a made class: the class, and under what name
        self.twins: dict[Value, Any] = {}
        self.twin_ids: set[int] = set()
        self.namespaces: dict[int, DictValue] = {}
        self.callees: dict[int, calls.Callee] = {}
        self.functions: dict[types.FunctionType, functions.Facts] = {}
        self.passed: dict[types.FunctionType, bool] = {}
        self.touched: dict[Any, None] = {}
        self.restored: set[tuple[Obj, str]] = set()  # attributes that were deleted and stored again
        self.stored_leaves: dict[Leaf, None] = {}
        self.pretended = False  # was the program told that it is compiled?
        self.mutated_at = -1
        self.deferred: list[Deferred] = []
        self.draws: list[Step] = []
        self.documented: set[Value] = set()  # properties whose text is that of their getter
        self.shown: set[Value] = set()  # containers whose text is being made
        self.library_bodies: dict[
            Value, tuple[Any, str, tuple[Any, ...]]
        ] = {}  # namespaces of class bodies of the library's metaclasses
        self.context: dict[Obj, Any] = {}  # context variables to what they hold, DELETED if nothing
        self.context_stores: list[ContextStore] = []
        self.context_tokens: dict[Obj, ContextStore] = {}
        self.caches: dict[Obj, Value] = {}  # functions with an LRU cache that the region made, and what keeps it
        self.cached: dict[tuple[int, Any], Value] = {}  # results that a call in the run will put into a real LRU cache
        self.crowded_caches: set[int] = set()  # ids of functions whose full LRU cache gives up entries in the run
        self.carried: set[int] = set()  # ids of what variables brought into the region that nothing reads any more
        self.watched: list[Value] = []  # what weak references of the region lead to, and those that call something
        self.counted = 0  # calls that were put off, and only count a hit of such a cache
        self.decorators: dict[Obj, tuple[Value, Value]] = {}  # what makes them, and its settings
        self.seeded: dict[Obj, random.Random] = {}  # generators of random numbers whose state is known
        self.library_values = False  # was a number of a library read?
        self.number_leaves: dict[Const, Leaf] = {}  # numbers of a library that vary, and the Python numbers in them
        self.used_leaves = False  # has the leaf handler been asked to do something?
        self.nested_stack: tuple[CodeLocation, ...] | None = None
        self.root_location: CodeLocation | None = None
        self.kept: list[Any] = []
        self.quiet: Quiet | None = None
        self._outer_quiet: list[Quiet | None] = []
        self.interceptors: list[Value] = []
        self.interception_mark = -1
        self.overrides = False  # do calls go to the classes of leaves?
        self._state: dict[str, object] = {}

    # What the interpreter needs.

    def attach(self, vm: Interpreter[Value]) -> None:
        self.vm = vm
        vm.tracebacks = {}

    def forget(self) -> None:
        """Let go of the values of a capture that is over, and of the real objects that they stand for."""
        for table in (
            self.interned,
            self.namespaces,
            self.number_leaves,
            self.functions,
            self.passed,
            self.touched,
            self.stored_leaves,
            self.class_stores,
            self.made_classes,
            self.class_parts,
            self.twins,
            self.memos,
            self.payloads,
            self.keys_by_identity,
        ):
            table.clear()
        self.constants_read.clear()
        self.interceptors = []
        self.thrown.clear()
        self.origins.clear()
        for generator in self.generators:
            generator.frame.forget()
        self.generators.clear()
        self.deferred.clear()
        self.draws.clear()
        self.seeded.clear()
        self.caches.clear()
        self.cached.clear()
        self.crowded_caches.clear()
        self.watched.clear()
        self.context.clear()
        self.context_stores.clear()
        self.context_tokens.clear()
        self.decorators.clear()
        self.vm.forget()
        del self.vm  # the two name each other, and would wait for the collector

    def constants(self, code: Decoded) -> list[Value]:
        found: list[Value] | None = code.boxed.get(CaptureDomain)
        if found is None:
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

    def check_init(self, result: Value) -> None:
        if not (type(result) is Const and result.value is None):
            kind = type_label(type_of(self, result))
            raise self.error(TypeError, f"__init__() should return None, not '{kind}'")

    def error(self, type: type[BaseException], message: str, name: str | None = None) -> Raised:
        """An exception that CPython raises here; `name`: the attribute or variable that is missing."""
        made = exceptions.new_exception(self, type, [Const(message)])
        if name is not None:
            made.attrs["name"] = Const(name)
        return self.raised(made)

    def raised(self, exception: Value) -> Raised:
        """A new exception that is raised here."""
        exceptions.chain(self, exception, self.vm.current)
        return Raised(exception)

    def graph_break(self, why: Reason, detail: str = "") -> GraphBreak:
        return GraphBreak(why, detail, self.location())

    def claimed(self, obj: Any) -> bool:
        """Do calls of this function go somewhere else than into its code?"""
        hashes = type(obj).__hash__
        if isinstance(hashes, types.FunctionType) and self.policy.is_user_code(hashes.__code__):
            return False  # looking it up would run code of the program
        try:
            known = obj in self.policy.substitutes or obj in self.policy.allow_in_graph
        except TypeError:
            return False
        return known or self.leaves.handles(obj)

    def touch(self, value: Any) -> None:
        """Note that a value is about to change; real ones are written back at the end."""
        if self.quiet is not None:
            self.quiet.check(self, value)
        self.mutated_at = self.vm.step
        if value.real is not NEW:
            self.touched[value] = None

    # Guards.

    guard_type = guard_recording.guard_type
    guard_id = guard_recording.guard_id
    guard_value = guard_recording.guard_value
    guard_length = guard_recording.guard_length
    guard_keys = guard_recording.guard_keys
    guard_contains = guard_recording.guard_contains
    guard_lacks = guard_recording.guard_lacks
    guard_class = guard_recording.guard_class
    guard_mro = guard_recording.guard_mro
    guard_same = guard_recording.guard_same
    guard_different = guard_recording.guard_different
    guard_test = guard_recording.guard_test
    guard_set = guard_recording.guard_set
    guards = guard_recording.guards

    def use(self, const: Const | AtomObject) -> Any:
        """The value of a constant, from now on relied on."""
        if type(const) is AtomObject:
            const = base_of(const)
        if not const.used:
            const.used = True
            if const.path is not None:
                self.guard_value(const.path, const.value)
            if const.made is not None:
                made_later.settle(self, const)
        return const.value

    # Constants that operations need.

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

    def index(self, value: Value) -> int:
        """`operator.index(value)` as a constant."""
        if type(value) is AtomObject and issubclass(value.cls, int):
            value = base_of(value)  # C code asks no int for its `__index__`
        if type(value) is Const:
            real = self.use(value)
            if hasattr(type(real), "__index__"):
                return operator.index(real)
            raise self.error(TypeError, f"'{type_label(type(real))}' object cannot be interpreted as an integer")
        if type(value) is Known and isinstance(value.obj, int):
            return int.__index__(value.obj)  # C code asks no int for its `__index__`
        if type(value) is Leaf:
            cls = self.leaves.type_of(value.payload)
            if cls is float or cls is complex:
                raise self.error(TypeError, f"'{type_label(cls)}' object cannot be interpreted as an integer")
            return int(self.leaf_constant(value))
        found = operators.special_call(self, value, "__index__", [])
        if found is None:
            name = type_label(type_of(self, value))
            raise self.error(TypeError, f"'{name}' object cannot be interpreted as an integer")
        found = answers.checked(self, value, "__index__", found, int, operator.index)
        return int(self.use(found)) if type(found) is Const else self.index(found)

    def slice(self, value: SliceValue) -> slice:
        """A slice of constant bounds."""
        step, start, stop = (self._bound(v) for v in (value.step, value.start, value.stop))  # asked in C's order
        if step == 0:
            raise self.error(ValueError, "slice step cannot be zero")
        return slice(start, stop, step)

    def _bound(self, value: Value) -> int | None:
        if type(value) is Const and value.value is None:
            self.use(value)
            return None
        if type(value) in (Const, Leaf) and not hasattr(type_of(self, value), "__index__"):
            raise self.error(TypeError, "slice indices must be integers or None or have an __index__ method")
        return self.index(value)

    def unpack_all(self, value: Value) -> list[Value]:
        """All items of an iterable."""
        return iteration.items_of(self, value)

    # The capture context of the leaf handler.

    def guard(self, guard: Guard) -> None:
        path = getattr(guard, "path", None) if self.draws else None
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
        return self.policy.graph_raised is not None and all(type(step) is Prepared for step in self.draws)

    def in_block(self) -> bool:
        """Is the current instruction in a `try` or `with`, of whatever code?"""
        return any(frame.code.handler_of(frame.pc - 1) is not None for frame in self.vm.frames)

    def names_used(self) -> frozenset[str]:
        """The names of attributes and globals in the code of the frames that have not ended."""
        return frozenset(name for frame in self.vm.frames for name in frame.code.code.co_names)

    def break_at_mark(self, mark: int, why: GraphBreak) -> NoReturn:
        """What was captured at `mark` cannot stay: start again, and break there."""
        raise Restart(mark, why)

    def prepare(self, function: Callable[..., object], args: tuple[object, ...]) -> AccessPath:
        """Where the graph finds what `function(*args)` gives, a new object in each call, made before the graph runs."""
        return prepare(self, function, args)

    def forbid_effects(self, forbid: bool) -> None:
        """From now on what was there before may not change (or may again): the code does not run once, here and now. Nests."""
        if forbid:
            self._outer_quiet.append(self.quiet)
            self.quiet = Quiet(self.vm.frames[:-1])
        else:
            self.quiet = self._outer_quiet.pop()

    # Names and cells.

    load_global = names.load_global
    store_global = names.store_global
    delete_global = names.delete_global
    load_name = names.load_name
    store_name = names.store_name
    delete_name = names.delete_name
    setup_annotations = names.setup_annotations
    import_name = names.import_name
    import_from = names.import_from

    def make_cell(self, content: Value | None) -> Value:
        return CellValue(content)

    def cell_get(self, cell: Value) -> Value | None:
        return names.cell_get(self, cell)

    def cell_set(self, cell: Value, content: Value | None) -> None:
        names.cell_set(self, cell, content)

    # Operators and attributes.

    unary = operators.unary
    binary = operators.binary
    compare = comparisons.compare
    is_ = comparisons.is_
    contains = comparisons.contains
    truth = lengths.truth
    setitem = subscripts.setitem
    delitem = subscripts.delitem
    format = formatting.format_value
    length = lengths.length
    load_attr = attributes.load_attr
    store_attr = stores.store_attr
    delete_attr = stores.delete_attr
    load_special = attributes.load_special
    load_super_attr = attributes.load_super_attr

    def not_(self, value: Value) -> Value:
        return _FALSE if lengths.truth(self, value) else _TRUE

    # Containers.

    build_list = packing.build_list
    build_tuple = packing.build_tuple
    build_set = packing.build_set
    build_map = packing.build_map
    build_slice = packing.build_slice
    build_string = packing.build_string
    list_append = packing.list_append
    list_extend = packing.list_extend
    list_to_tuple = packing.list_to_tuple
    set_add = packing.set_add
    set_update = packing.set_update
    map_add = packing.map_add
    dict_update = packing.dict_update
    dict_merge = packing.dict_merge
    unpack = packing.unpack
    unpack_ex = packing.unpack_ex
    match_sequence = packing.match_sequence
    match_mapping = packing.match_mapping
    match_keys = packing.match_keys
    match_class = packing.match_class

    # Iteration, calls, functions, exceptions.

    iter = iteration.get_iter
    next = iteration.advance
    send = iteration.send
    make_generator = iteration.make_generator
    get_awaitable = coroutines.get_awaitable
    aiter = coroutines.aiter
    anext = coroutines.anext
    ends_async_for = coroutines.ends_async_for
    call = calls.call
    call_ex = calls.call_ex
    keywords = calls.keywords
    make_function = functions.make_function
    set_function_attribute = functions.set_function_attribute
    make_raise = exceptions.make_raise
    chain = exceptions.chain
    exception_matches = exceptions.exception_matches
    match_group = groups.match_group
    prepare_reraise = groups.prepare_reraise
    exception_triple = exceptions.exception_triple
    stop_iteration_error = exceptions.stop_iteration_error

    def build_class(self) -> Value:
        return Known(__build_class__)

    def assertion_error(self) -> Value:
        return Known(AssertionError)
