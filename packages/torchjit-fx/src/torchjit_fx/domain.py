"""`TensorDomain`: torch under an interpreter. One object serves one capture of one region."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, final

import torch
from torch import fx

from torchjit_core.expr import Expr
from torchjit_core.guards import IdIs, SameObject, TensorMatches, TypeIs, ValueEquals
from torchjit_core.location import CodeLocation
from torchjit_core.marks import SizeMark
from torchjit_core.paths import AccessPath, Pinned
from torchjit_core.reasons import GraphBreak, NotYet
from torchjit_core.region import RegionCode
from torchjit_fx import breaks
from torchjit_fx.assertions import CHECK, can_be_tested
from torchjit_fx.assigned_attributes import SETTERS
from torchjit_fx.autograd.differentiation import note_made_leaf
from torchjit_fx.autograd.tensor_hooks import HOOK_DICTS
from torchjit_fx.calls.ambient import Ranges
from torchjit_fx.calls.call import Call
from torchjit_fx.calls.legacy import TELLS_SIZES_FROM_DATA
from torchjit_fx.calls.rules import rule_of_call
from torchjit_fx.calls.second_attempts import SECOND_ATTEMPTS
from torchjit_fx.data_errors import CaughtErrors, may_raise, raises_anything
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.fakes import FakeFactory
from torchjit_fx.flatten import plain_sizes
from torchjit_fx.followed_classes import dispatches, is_followed, is_wrapper
from torchjit_fx.input_memory import InputMemory
from torchjit_fx.known_numbers import KnownNumbers
from torchjit_fx.large_captures import LargeCaptureNotice
from torchjit_fx.leaves import Function, InputLeaf, OpaqueLeaf, Raw, RawArgs, RawKwargs, SymLeaf, TensorLeaf
from torchjit_fx.marks import address_mark, marks_of
from torchjit_fx.metas import MetaCache, MetaService
from torchjit_fx.modes import TorchModes
from torchjit_fx.naming import is_module_state
from torchjit_fx.numpy.arrays import ArrayLeaf, Arrays, holds_array, is_captured
from torchjit_fx.numpy.calls import array_attribute, array_rows, call_arrays
from torchjit_fx.ownership import owns
from torchjit_fx.properties import CONSTANT_PROPERTIES, RECORDED, TENSOR_PROPERTIES, input_attribute
from torchjit_fx.protocols import CaptureContext, SymbolicSizes
from torchjit_fx.records import RecordTable, key_set_of, kind_of
from torchjit_fx.region_end import compile_region
from torchjit_fx.settings import FxSettings
from torchjit_fx.subclasses import (
    as_plain,
    has_default_method,
    has_lost_history,
    is_plain_leaf,
    of_another_class,
    refuse_subclasses,
    see_subclass,
)
from torchjit_fx.symbols.arithmetic import calculate
from torchjit_fx.symbols.float_node import FloatNode
from torchjit_fx.symbols.numbers import SymbolicNumbers
from torchjit_fx.tracing import Recorder
from torchjit_fx.transcripts import TranscriptCache
from torchjit_fx.unit_interval import decided
from torchjit_fx.versions import CaptureFakeMode
from torchjit_fx.wrappers import Wrappers, is_wrapped
from torchjit_torch.layouts import is_leaf

__all__ = ["TensorDomain", "forget_outcomes"]

# Records and outcomes without symbols hold no tensor and no object of a capture, so every capture may use them.
_RECORDS = RecordTable()
_OUTCOMES = MetaCache()
_TRANSCRIPTS = TranscriptCache()
_OBJECT: Any = object
_State = TypeVar("_State")


def forget_outcomes() -> None:
    """Empty the process's caches of what calls return."""
    _OUTCOMES.clear()
    _TRANSCRIPTS.clear()


@final
class TensorDomain:
    """Implements the leaf protocol and the end of a region for tensors and symbolic numbers.

    Args:
        compile_graph: the backend: takes the captured GraphModule and this call's real inputs, gives a callable that
            takes the inputs positionally and returns a sequence.
        sizes: which sizes are symbolic.
        settings: see `FxSettings`.
    """

    leaf_types: tuple[type, ...] = (TensorLeaf, InputLeaf, OpaqueLeaf, SymLeaf, ArrayLeaf)

    def __init__(
        self,
        compile_graph: Callable[[fx.GraphModule, list[Any]], Callable[..., Any]],
        sizes: SymbolicSizes,
        settings: FxSettings = FxSettings(),  # noqa: B008  # frozen
    ) -> None:
        self.compile_graph = compile_graph
        self.sizes = sizes
        self.settings = settings
        for cache in (_OUTCOMES, _TRANSCRIPTS):
            cache.limit = max(cache.limit, settings.max_cached_metas)
        self.modes = TorchModes()
        self.mode = CaptureFakeMode()
        self.numbers = SymbolicNumbers(
            sizes,
            self.mode.allow_symbols,
            scalars=settings.capture_scalar_outputs,
            shapes=settings.capture_dynamic_output_shape_ops,
        )
        self.fakes = FakeFactory(self.mode, _RECORDS, self.numbers.sym_int, self.numbers.expression)
        self.metas = MetaService(self.fakes, self.modes, self.numbers)
        self.memory = InputMemory(writes_to_shared=settings.writes_to_shared_inputs)
        notice = LargeCaptureNotice(settings.large_nodes, settings.large_seconds, settings.tell_large)
        self.recorder = Recorder(self.metas, self.modes, _OUTCOMES, _TRANSCRIPTS, self.memory, notice)
        self.known = KnownNumbers(sizes, self.recorder.data)
        self._features: dict[Callable[[CallDomain], Any], Any] = {}
        self.arrays = self.of(Arrays)
        self.caught = self.of(CaughtErrors)
        self.wrappers = self.of(Wrappers)
        self.needs_history = False  # of single operations: no compiled graph can be
        self.writes_outside = False  # of the region's graph
        self._inputs: dict[int, InputLeaf | OpaqueLeaf] = {}
        self._number_inputs: dict[AccessPath, int | Expr] = {}

    def of(self, feature: Callable[[CallDomain], _State]) -> _State:
        """The state of one feature in this capture: made by its class, which is given the domain, when first asked for."""
        state: _State | None = self._features.get(feature)
        if state is None:
            state = self._features[feature] = feature(self)
        return state

    @property
    def ranges(self) -> list[str]:
        """Of the profiler, that the region enters."""
        return self.of(Ranges)

    # ---- the leaf protocol

    def made_of_constants(self, leaf: object) -> bool:
        """Is this leaf made without tensors? A call that is given only such ones may run for real as a whole."""
        return type(leaf) is ArrayLeaf and (leaf.constant or leaf.path is not None)

    def wants(self, obj: object, path: AccessPath | None) -> bool:
        """Is this real object a leaf? Every tensor; an array that torch can see; an int or a float that varies between calls."""
        if issubclass(type(obj), torch.Tensor):  # `isinstance` would ask a `__getattribute__` of the program
            return True
        if path is None or isinstance(path, Pinned):
            return False
        if is_captured(obj):
            return True
        if type(obj) is int and self.settings.symbolic_ints:
            return not isinstance(self._number(obj, path), int)
        if type(obj) is float and self.settings.symbolic_floats:
            varies, mark = self.sizes.varies(obj, path), self._said(path)
            return varies if mark is None else mark.kind != "static"
        return False

    def _number(self, value: int, path: AccessPath) -> int | Expr:
        if path not in self._number_inputs:
            mark = self._said(path)
            wanted = None if mark is None else mark.kind != "static"
            self._number_inputs[path] = self.sizes.size(value, path, dynamic=wanted)
        return self._number_inputs[path]

    def _said(self, path: AccessPath) -> SizeMark | None:
        return None if self.settings.size_marks is None else self.settings.size_marks(path)

    def input(self, obj: object, path: AccessPath | None, capture: CaptureContext) -> object:
        """The leaf of a real object; a tensor gets its guard, the same tensor is the same leaf.

        A tensor at no path is kept alive as a constant of the graph.
        """
        if type(obj) is int or type(obj) is float:
            return obj if path is None else self._number_input(obj, path, capture)
        if isinstance(obj, torch.Tensor):
            return self._tensor_input(obj, path or Pinned.of(obj, "constant"), capture)
        if path is None or not is_captured(obj):
            raise TypeError(f"not a leaf: {type(obj)}")
        return self.arrays.input(obj, path, capture)

    def _number_input(self, obj: int | float, path: AccessPath, capture: CaptureContext) -> Raw:
        capture.guard(TypeIs(path, type(obj), capture.location()))
        if type(obj) is int:
            return self.numbers.plain(self._number(obj, path))
        return self.numbers.plain_float(obj, path)

    def _tensor_input(self, obj: torch.Tensor, path: AccessPath, capture: CaptureContext) -> InputLeaf | OpaqueLeaf:
        found = self._inputs.get(id(obj))
        if found is not None:
            if found.path is not path:
                capture.guard(SameObject(found.path, path, capture.location()))
            return found
        key_set = key_set_of(obj)
        kind = kind_of(obj, key_set)
        if not kind[0] and torch.nn.parameter.is_lazy(obj):
            raise NotYet(breaks.LAZY_PARAMETER, str(path), capture.location())
        if not kind[0] and is_wrapper(type(obj)):
            wrapped = self._inputs[id(obj)] = self.wrappers.input(obj, path, capture)
            return wrapped
        followed = kind[0] and is_followed(type(obj)) and dispatches(type(obj))
        if not kind[0] or (followed and (has_lost_history(obj) or not see_subclass(capture))):
            capture.guard(IdIs(path.type_of(), type(obj), capture.location()))
            leaf: InputLeaf | OpaqueLeaf = OpaqueLeaf(obj, path, breaks.UNSUPPORTED_TENSOR)
        else:
            leaf = self._described_input(obj, path, key_set, kind[1:], capture)
        self._inputs[id(obj)] = leaf
        return leaf

    def fixed_input(self, obj: torch.Tensor, path: AccessPath, capture: CaptureContext) -> InputLeaf | OpaqueLeaf:
        """The leaf of a plain tensor whose sizes are constants of the graph."""
        if id(obj) not in self._inputs:
            key_set = key_set_of(obj)
            kind = kind_of(obj, key_set)[1:]
            self._inputs[id(obj)] = self._described_input(obj, path, key_set, kind, capture, fixed=True)
        return self._tensor_input(obj, path, capture)

    def computed(
        self, example: float, bounds: tuple[int, int] | None, path: AccessPath, capture: CaptureContext
    ) -> SymLeaf | None:
        """The leaf of a number that is computed before the graph runs; no decision may look at it.

        Args:
            example: a value of its type.
            bounds: between which an int lies, neither negative.
            path: where the graph finds it.

        Returns:
            None where the settings do not allow such numbers.
        """
        if type(example) is float:
            return self.numbers.computed(example, None, path) if self.settings.symbolic_floats else None
        return self.numbers.computed(example, bounds, path) if self.settings.symbolic_ints and bounds else None

    def _described_input(
        self,
        given: torch.Tensor,
        path: AccessPath,
        key_set: int,
        kind: tuple[bool, bool, bool],
        capture: CaptureContext,
        fixed: bool = False,
    ) -> InputLeaf:
        location = capture.location()
        cls = type(given)
        obj, at_the_start = (given, is_leaf(given)) if not dispatches(cls) else (as_plain(given), is_plain_leaf(given))
        static = is_module_state(path) or not (cls is torch.Tensor or dispatches(cls))
        sizes: tuple[int | Expr, ...] = tuple(obj.shape)
        strides: tuple[int | Expr, ...] = obj.stride()
        fixed_sizes: Raw = sizes
        fixed_strides: Raw = strides
        if not (static or fixed) and (
            cls is torch.Tensor or has_default_method(cls)
        ):  # else guards would call the program's method
            sizes, strides = self._maybe_symbolic(obj, path, location)
            fixed_sizes = tuple([n if type(n) is int else None for n in sizes])
            fixed_strides = tuple([n if type(n) is int else None for n in strides])
        requires_grad = obj.requires_grad
        record = _RECORDS.get(obj.dtype, obj.device, sizes, strides, 0, (requires_grad, at_the_start, *kind))
        capture.guard(
            TensorMatches(
                path, cls, record.dtype, record.device, requires_grad,
                fixed_sizes, fixed_strides, None, key_set, None, location,
            )
        )  # fmt: skip
        leaf = InputLeaf(record, obj, path, static)
        leaf.object, leaf.cls = given, cls
        said = None if static else address_mark(obj)
        if said is not None:
            leaf.address_stays = True
            if said == "guarded":
                capture.guard(ValueEquals(path.computed(torch.Tensor.data_ptr), obj.data_ptr(), location))
        self.memory.add(leaf, capture)
        return leaf

    def _maybe_symbolic(
        self, obj: torch.Tensor, path: AccessPath, location: CodeLocation
    ) -> tuple[tuple[int | Expr, ...], tuple[int | Expr, ...]]:
        """The sizes and strides, with symbols where they vary or where the program marked them."""
        real: tuple[int, ...] = tuple(obj.shape)
        marks = marks_of(obj)
        if self.settings.size_marks is not None:
            said = {i: mark for i in range(len(real)) if (mark := self._said(path.size(i))) is not None}
            marks = {**said, **marks}
        if marks:
            sizes = tuple([self.sizes.size(n, path.size(i), mark=marks.get(i)) for i, n in enumerate(real)])
            for i, mark in marks.items():
                if mark.kind == "unbacked":
                    self.numbers.unseen(sizes[i])
        else:
            sizes = tuple([self.sizes.size(n, path.size(i)) for i, n in enumerate(real)])
        if all(type(n) is int for n in sizes) and obj.is_contiguous() and 1 not in real:
            return sizes, obj.stride()
        return sizes, tuple(self.numbers.strides(sizes, real, obj.stride(), path, location))

    def type_of(self, leaf: object) -> type:
        """What `type(x)` gives."""
        if isinstance(leaf, TensorLeaf):
            return leaf.cls  # type: ignore[no-any-return]
        if isinstance(leaf, OpaqueLeaf):
            return type(leaf.real)
        if type(leaf) is ArrayLeaf:
            return self.arrays.type_of(leaf)
        return self.numbers.type_of(leaf) if type(leaf) is SymLeaf else torch.Tensor

    def handles(self, fn: Raw) -> bool:
        """Do calls of this callable belong here, whatever the arguments?"""
        return owns(fn)

    def call(self, fn: Raw, args: RawArgs, kwargs: RawKwargs, capture: CaptureContext) -> object:
        """Do a call on raw arguments.

        Raises:
            GraphBreak: it cannot be in a graph.
        """
        self.numbers.context.location = capture.location
        if fn not in TELLS_SIZES_FROM_DATA:
            args = tuple(map(plain_sizes, args))
            kwargs = {name: plain_sizes(arg) for name, arg in kwargs.items()} if kwargs else kwargs
        if self.arrays.used and (holds_array(args) or holds_array(tuple(kwargs.values()))):
            return call_arrays(Call(fn, args, kwargs, self, capture))
        if self.wrappers.used and self.wrappers.among(args, kwargs):
            result = self.wrappers.call(fn, args, kwargs, capture)
            if result is not NotImplemented:
                return result
        if may_raise(fn, args, kwargs):
            if capture.may_catch(raises_anything(fn)):
                return self.caught.call(Call(fn, args, kwargs, self, capture))
            self.caught.in_blocks |= capture.in_block()
        return self.call_plainly(fn, args, kwargs, capture)

    def call_plainly(self, fn: Raw, args: RawArgs, kwargs: RawKwargs, capture: CaptureContext) -> object:
        """Do a call whose errors the program does not catch."""
        rule = rule_of_call(fn)
        if rule is not None:
            result = rule(Call(fn, args, kwargs, self, capture))
            if result is not NotImplemented:
                return result
        try:
            result = self.recorder.call(fn, args, kwargs, capture)
        except GraphBreak as refused:
            attempts = SECOND_ATTEMPTS.get(refused.reason, ())
            call = Call(fn, args, kwargs, self, capture)
            result = next((r for attempt in attempts if (r := attempt(call)) is not NotImplemented), NotImplemented)
            if result is NotImplemented:
                raise
            return result
        if "requires_grad" in kwargs:
            note_made_leaf(self, result, capture)
        return result

    def defines(self, leaf: object, name: str) -> bool:
        """Does a class of the program, rather than torch.Tensor, define this attribute of the tensor?"""
        mro: tuple[type, ...] = self.type_of(leaf).__mro__
        own = mro[: mro.index(torch.Tensor)] if torch.Tensor in mro else ()
        return any(name in vars(cls) for cls in own)

    def owns_attribute(self, leaf: object, name: str) -> bool:
        """Does the attribute say something about the tensor, or is it one that the program put on the object?"""
        if name in HOOK_DICTS and isinstance(leaf, InputLeaf) and leaf.real.is_leaf:
            return False  # dicts of functions, or None
        cls: Raw = self.type_of(leaf)
        plain = cls.__getattribute__ is _OBJECT.__getattribute__ and cls.__setattr__ is _OBJECT.__setattr__
        return isinstance(leaf, SymLeaf) or not plain or hasattr(cls, name)

    def getattr(self, leaf: object, name: str, capture: CaptureContext) -> object:
        """Read a property or an own attribute.

        Raises:
            AttributeError: there is none.
            GraphBreak: it cannot be captured.
        """
        if isinstance(leaf, OpaqueLeaf):
            raise GraphBreak(leaf.reason, f"{leaf.path}.{name}", capture.location())
        if isinstance(leaf, SymLeaf):
            return self.numbers.attribute(leaf, name, capture.location())
        if type(leaf) is ArrayLeaf:
            return array_attribute(self, leaf, name, capture)
        if not isinstance(leaf, TensorLeaf):
            raise TypeError(f"not a leaf: {type(leaf)}")
        read = RECORDED.get(name)
        if read is not None:
            return read(leaf.record)
        if is_wrapped(leaf) and (
            name in _OF_PLAIN_TENSORS or not isinstance(leaf, InputLeaf) or name in leaf.record.wrapping.names  # type: ignore[union-attr]
        ):
            return self._wrapped_attribute(leaf, name, capture)
        if name == "shape":
            return self.call(torch.Tensor.size, (leaf,), {}, capture)
        if name in TENSOR_PROPERTIES or name in CONSTANT_PROPERTIES:
            return self.recorder.call(getattr, (leaf, name), {}, capture)
        if name in _AUTOGRAD_ATTRIBUTES:
            return self._autograd_attribute(leaf, name, capture)
        return input_attribute(leaf, name, capture)

    def _wrapped_attribute(self, leaf: TensorLeaf, name: str, capture: CaptureContext) -> object:
        if name in _OF_PLAIN_TENSORS or name in _AUTOGRAD_ATTRIBUTES:
            raise GraphBreak(breaks.TENSOR_ATTRIBUTE, name, capture.location())
        if name == "shape":
            return self.call(torch.Tensor.size, (leaf,), {}, capture)
        if name in TENSOR_PROPERTIES:
            return self.call(getattr, (leaf, name), {}, capture)
        return self.wrappers.attribute(leaf, name, capture)

    def _autograd_attribute(self, leaf: TensorLeaf, name: str, capture: CaptureContext) -> object:
        if of_another_class(leaf) and name != "is_leaf":
            raise GraphBreak(breaks.TENSOR_ATTRIBUTE, name, capture.location())
        if isinstance(leaf, InputLeaf) and leaf.record.requires_grad:
            capture.guard(leaf.leafness(capture.location()))
        value = _AUTOGRAD_ATTRIBUTES[name](self, leaf, capture)
        if value is NotImplemented:
            raise GraphBreak(breaks.TENSOR_ATTRIBUTE, name, capture.location())
        return value

    def _grad(self, leaf: TensorLeaf, capture: CaptureContext) -> object:
        if not isinstance(leaf, InputLeaf):
            return NotImplemented if leaf.record.requires_grad else None
        if not leaf.real.is_leaf:
            return NotImplemented
        path = leaf.path.attr("grad")
        if leaf.real.grad is not None:
            return self.input(leaf.real.grad, path, capture)
        capture.guard(IdIs(path, None, capture.location()))
        return None

    def dimension(self, leaf: TensorLeaf, dim: int, capture: CaptureContext) -> int | SymLeaf:
        """The size of one dimension: an int, a plain symbol, or a step that reads it."""
        size = leaf.record.sizes[dim]
        if isinstance(size, int) or self.numbers.path(size) is not None:
            return self.numbers.plain(size)  # type: ignore[no-any-return]
        return self.recorder.add_size(leaf, dim, self.numbers.sym_int(size), size, capture)

    def arithmetic(self, fn: Function, args: RawArgs, capture: CaptureContext) -> Raw:
        """Python arithmetic on numbers of which one is a float that varies.

        Raises:
            GraphBreak: the result cannot be followed, or Python raises.
        """
        some = next(a.value.node for a in args if type(a) is SymLeaf and isinstance(a.value, torch.SymFloat))
        wrap = {float: some.wrap_float, int: some.wrap_int, bool: some.wrap_int}
        nodes = [a.value.node if type(a) is SymLeaf else wrap[type(a)](a) for a in args]
        try:
            node, target = calculate(fn, nodes)
        except (ArithmeticError, ValueError, TypeError) as error:
            raise GraphBreak(breaks.META_FAILED, f"{type(error).__name__}: {error}", capture.location()) from error
        constant = node.constant
        if constant is not None:
            return constant
        for arg, operand in zip(args, nodes, strict=True):
            if node is operand:
                return arg
        step = self.recorder.add_number(target, args, capture)
        if isinstance(node, FloatNode):
            return SymLeaf(torch.SymFloat(node), None, step)  # type: ignore[arg-type]
        return SymLeaf(self.numbers.sym_int(node.expression), node.expression, step)

    def concrete(self, leaf: SymLeaf, capture: CaptureContext) -> Raw:
        """The value of a symbolic number at capture; the specialisation then holds for this value only."""
        self.numbers.context.location = capture.location
        return self.numbers.fix(leaf)

    def setattr(self, leaf: object, name: str, value: object, capture: CaptureContext) -> bool:
        """Gradients and `.data` may be assigned: the interpreter stores them at the region's end (True). All else is a break.

        What else can be assigned changes how autograd or a kernel sees the tensor, which the graph would not notice.
        """
        refuse_subclasses(value, capture)
        if is_wrapped(leaf) and name != "grad":
            raise GraphBreak(breaks.TENSOR_ATTRIBUTE_SET, name, capture.location())
        setter = SETTERS.get(name)
        stored = setter(self, leaf, value, capture) if setter is not None and isinstance(leaf, TensorLeaf) else None
        if stored is None:
            raise GraphBreak(breaks.TENSOR_ATTRIBUTE_SET, name, capture.location())
        return stored

    def truth(self, leaf: object, capture: CaptureContext) -> bool:
        """`bool(leaf)`: decided and guarded for symbolic numbers, a break for tensors whose data matters."""
        if isinstance(leaf, SymLeaf):
            self.numbers.context.location = capture.location
            return self.numbers.truth(leaf)
        if type(leaf) is ArrayLeaf:
            return bool(call_arrays(Call(bool, (leaf,), {}, self, capture)))
        if is_wrapped(leaf):
            raise GraphBreak(breaks.DATA_DEPENDENT, "the truth of a tensor", capture.location())
        known = decided(leaf) if isinstance(leaf, TensorLeaf) else None
        if known is None and isinstance(leaf, TensorLeaf):
            known = self.known.value(leaf, capture)
        if known is not None:
            return bool(known)
        raise GraphBreak(breaks.DATA_DEPENDENT, "the truth of a tensor", capture.location())

    def number(self, leaf: object) -> int | float | None:
        """The value at capture of an int or float that varies between calls, without a guard; None if there is none."""
        return self.numbers.seen(leaf) if isinstance(leaf, SymLeaf) else None

    def assume(
        self, leaf: object, truth: bool, message: str | None, capture: CaptureContext, *, in_place: bool = False
    ) -> bool:
        """An assertion about a tensor becomes a step that raises AssertionError; False if it must break the graph."""
        recorder = self.recorder
        if type(leaf) is SymLeaf or not isinstance(leaf, TensorLeaf) or recorder.scope is not None or is_wrapped(leaf):
            return False
        if not can_be_tested(leaf, recorder.writes) or (in_place and not self.caught.may_assert(recorder, capture)):
            return False
        recorder.add_test(CHECK, (leaf, truth, message), capture)
        return True

    def iterate(self, leaf: object, capture: CaptureContext) -> Sequence[object]:
        """The rows of a tensor or an array.

        How many there are is fixed, unless it is known to change: then the break's loop serves every number of rows.
        """
        if type(leaf) is ArrayLeaf:
            return array_rows(self, leaf, capture)
        sizes = leaf.record.sizes if isinstance(leaf, TensorLeaf) else ()
        if not isinstance(leaf, TensorLeaf) or not sizes:
            raise GraphBreak(breaks.META_FAILED, "iteration over this value", capture.location())
        if not (type(sizes[0]) is int or self.numbers.sizes.dynamic):
            raise GraphBreak(breaks.ROWS, f"size(0) is {sizes[0]}", capture.location())
        if is_wrapped(leaf):
            raise GraphBreak(breaks.UNSUPPORTED_TENSOR, f"iteration over a {leaf.cls.__name__}", capture.location())
        seen = of_another_class(leaf) and not capture.state("dispatch_off")
        if seen and not has_default_method(leaf.cls):
            raise GraphBreak(breaks.UNSUPPORTED_TENSOR, f"iteration over a {leaf.cls.__name__}", capture.location())
        rows = self.recorder.call(torch.Tensor.unbind, (leaf, 0), {}, capture)
        for row in rows if seen else ():
            row.cls = leaf.cls
        return rows if isinstance(rows, tuple | list) else ()

    # ---- the end of a region

    def compile_region(self, leaves: Sequence[object], capture: CaptureContext) -> RegionCode:
        """Compile what the asked leaves and the outside world need of the steps recorded so far."""
        return compile_region(self, leaves, capture)

    def release(self) -> None:
        """Forget the steps: the capture is over, and steps and leaves, which name each other, need no collector to go."""
        for step in self.recorder.steps:
            for leaf in step.results:
                if leaf.storage is not None:
                    leaf.storage.leaves = []
            step.results, step.args, step.kwargs = [], (), {}
        for leaf in self.memory.leaves:
            if leaf.storage is not None:
                leaf.storage.leaves = []
        self.recorder.steps.clear()
        self.recorder.writes.clear()
        self._inputs.clear()
        self.memory.forget()
        self.numbers.context.location = lambda: None  # it was the capture's


_OF_PLAIN_TENSORS = frozenset({"data", "real", "imag", *CONSTANT_PROPERTIES})
"""What is not asked of tensors that consist of others."""
_AUTOGRAD_ATTRIBUTES: dict[str, Callable[[TensorDomain, TensorLeaf, CaptureContext], object]] = {
    "is_leaf": lambda domain, leaf, capture: leaf.record.is_leaf,
    "grad_fn": lambda domain, leaf, capture: None if leaf.record.is_leaf else NotImplemented,
    "grad": TensorDomain._grad,
    "_base": lambda domain, leaf, capture: NotImplemented,
    "retains_grad": lambda domain, leaf, capture: (
        NotImplemented if isinstance(leaf, InputLeaf) and not leaf.record.is_leaf else False
    ),
}
"""Of what autograd says about a tensor: its value; NotImplemented: the graph breaks."""
