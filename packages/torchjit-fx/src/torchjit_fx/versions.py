"""Where torch's versions differ, and the fake-tensor mode of a capture.

`FakeTensorMode.__init__` imports two configuration modules of the compiler that this project replaces (1 to 4 s of
import on a cold process) only to copy four flags. `CaptureFakeMode` sets the same attributes itself.
Source: torch/_subclasses/fake_tensor.py, versions 2.11 and 2.15.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch
import torch.nested._internal.nested_tensor as nested_tensor
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorConverter, FakeTensorMode
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.utils._python_dispatch import TorchDispatchMode

from torchjit_core.forks import new_lock
from torchjit_core.writing import NEVER, WRITES_FROM
from torchjit_fx.deferred import defer_dynamo
from torchjit_fx.eager_rules.autocast import refuse_autocast
from torchjit_fx.eager_rules.dtype_probe import refuse_dtypes, refuse_other_dtype
from torchjit_fx.eager_rules.kernel_strides import as_kernels_do, resizable, strides_of_resized, strides_rule
from torchjit_fx.eager_rules.memory_checks import refuse_memory
from torchjit_fx.eager_rules.number_ranges import refuse_numbers
from torchjit_fx.eager_rules.rule import (
    NamedValues,
    OperatorCall,
    OperatorRule,
    Overload,
    Sizes,
    Value,
    Values,
    tensors_in,
)
from torchjit_fx.eager_rules.shape_checks import refuse_shapes
from torchjit_fx.eager_rules.table import rule_of
from torchjit_fx.eager_rules.view_strides import layout_of_view
from torchjit_fx.known_results import UNKNOWN, KnownResults, fake_tensor
from torchjit_fx.simple_results import simple_results
from torchjit_torch.operators import draws, written_arguments

__all__ = ["FIRST_WRITE", "CaptureFakeMode", "FakeTensor", "Watch", "lazy_graph_module"]


@attrs.define(eq=False)
class Watch:
    """What the ATen operations of one torch call did, as far as their results do not show it.

    Attributes:
        written: addresses of the storages that were written.
        random: whether a random number generator advanced.
        beyond: the call reaches what its argument does not, see `FunctionRule.beyond`.
        autocast: see `autocast_on_cpus`; operators do not see it.
        detached, retyped: views were made by `detach` (`.data` too), by `view` with a dtype.
    """

    beyond: bool = False
    autocast: torch.dtype | None = None
    written: set[int] = attrs.field(init=False, factory=set)
    random: bool = False
    detached: bool = False
    retyped: bool = False

    def note(self, written: Value) -> None:
        """The tensors in this were written."""
        self.written.update(t.untyped_storage()._cdata for t in tensors_in(written))


_CHECKS = (refuse_dtypes, refuse_shapes, refuse_memory, refuse_autocast)
"""Before a call, in order: they raise what eager raises, or RuntimeError where no graph can do as eager does."""
_RESULT_CHECKS = (refuse_other_dtype, refuse_numbers)
"""Of its result over fakes, likewise."""
_DETACH, _VIEW_DTYPE = torch.ops.aten.detach.default, torch.ops.aten.view.dtype


class _Converter(FakeTensorConverter):
    """torch's, which imports `torch._dynamo` for each new tensor (seconds on a cold process), only to name it."""

    def from_real_tensor(
        self, fake_mode: Any, t: torch.Tensor, make_constant: bool = False, shape_env: Any = None, **kwargs: Any
    ) -> FakeTensor:
        """The fake of a tensor that the program made from numbers (`torch.tensor`), or of any other as torch does it."""
        if shape_env is not None or any(v is not None for v in kwargs.values()) or not _is_simple(t):
            return super().from_real_tensor(fake_mode, t, make_constant, shape_env, **kwargs)
        if (known := self._get_memo(t)) is not None:
            return known
        fake = FakeTensor(fake_mode, self._like(t), t.device, constant=t if make_constant else None)
        self.set_tensor_memo(t, fake)
        if make_constant:
            self.add_constant_storage_mapping(fake)
        return fake

    def _like(self, t: torch.Tensor) -> torch.Tensor:
        """A meta tensor, on the memory that stands for this tensor's: fakes with values are computed by their values, views too."""
        number = self.meta_converter.describer.get_storage_id(t.untyped_storage())
        memory = self.meta_converter.storage_memo.get(number)
        if memory is None:
            meta = torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device="meta")
            self.meta_converter.storage_memo[number] = meta.untyped_storage()
            return meta
        return torch.empty(0, dtype=t.dtype, device="meta").set_(memory, 0, t.size(), t.stride())


def _is_simple(t: torch.Tensor) -> bool:
    """No subclass, no view, nothing beside the elements in dense memory of its own."""
    return (
        type(t) is torch.Tensor
        and t.layout is torch.strided
        and not (t.is_quantized or t.requires_grad or t.is_conj() or t.is_neg() or t.is_inference() or t._is_view())
        and int(t.storage_offset()) == 0
        and t.device.type != "meta"
    )


class CaptureFakeMode(FakeTensorMode):  # type: ignore[no-untyped-call]
    """The fake mode of one capture. `watch`, when set, collects what operations did."""

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)  # type: ignore[no-untyped-call]
        defer_dynamo()
        self.allow_fallback_kernels = True
        self.propagate_real_tensors = False
        self.fake_tensor_converter = _Converter(copy_data=False, export=False)
        self.static_shapes = True
        self.allow_scalar_outputs = False
        self._allow_unsafe_data_ptr_access = True
        self.allow_meta = True
        self.cache_enabled = True
        self.cache_crosscheck_enabled = False
        self.allow_non_fake_inputs = False
        self.in_kernel_invocation = False
        self.enter_stack = []
        self.shape_env = None
        self._stack_trace = []  # type: ignore[assignment]  # an empty traceback.StackSummary
        self._stack = ""
        self._mode_key = torch._C._TorchDispatchModeKey.FAKE
        self.nt_tensor_id_initial_count = nested_tensor._tensor_id_counter
        self.nt_tensor_id_counter = self.nt_tensor_id_initial_count
        self.watch: Watch | None = None
        self._known = KnownResults()

    def allow_symbols(self, shape_env: Any) -> None:
        """From now on sizes may be symbolic. torch's own cache does not know our expressions."""
        self.shape_env = shape_env
        self.static_shapes = False
        self.cache_enabled = False

    def __torch_dispatch__(
        self, func: Overload, types: Sequence[type], args: Values = (), kwargs: Mapping[str, Any] | None = None
    ) -> Value:
        for cls in types:
            if cls is not FakeTensor and hasattr(cls, "__tensor_flatten__"):
                return NotImplemented  # the class sees the call first, and then we its calls on what the tensor consists of
        rule, watch = rule_of(func), self.watch
        call = OperatorCall(func, args, kwargs or {}, rule)
        if watch is not None:
            _watched(watch, call)
        if torch.is_inference_mode_enabled() and _is_composite(func):
            return self._taken_apart(func, args, call.kwargs)
        if rule.prepare is not None:
            call.args, call.kwargs = rule.prepare(args, call.kwargs)
        if rule.is_view and type(args[0]) is FakeTensor and (layout := layout_of_view(args[0], args[1])):
            return self._dispatched(_AS_STRIDED, types, (args[0], *layout, args[0].storage_offset()), {}, rule)
        out = resizable(call) if "out" in call.kwargs else None
        if out is not None:
            return self._written_to(out, call, types)
        results = self._checked(call, types)
        strides = strides_rule(func, rule)
        return results if strides is None else as_kernels_do(strides, call.args, call.kwargs, results, self._fake)

    def _checked(self, call: OperatorCall, types: Sequence[type]) -> Value:
        results = self._dispatched(call.func, types, call.args, call.kwargs, call.rule)
        for check in _RESULT_CHECKS if self.watch is not None else ():
            check(call, results)
        return results

    def _written_to(self, out: torch.Tensor, call: OperatorCall, types: Sequence[type]) -> Value:
        """The call, which may give `out` other sizes, and then strides of its own."""
        before = tuple(out.shape)
        results = self._checked(call, types)
        strides = strides_of_resized(call, out) if _resized(before, out.shape) else None
        if strides is not None:
            place = (out, tuple(out.shape), strides, out.storage_offset())
            self._dispatched(_AS_STRIDED_IN_PLACE, types, place, {}, call.rule)
        return results

    def _fake(self, sizes: Sizes, strides: Sizes, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return fake_tensor(self, sizes, strides, dtype, device)

    def _dispatched(
        self, func: Overload, types: Sequence[type], args: Values, kwargs: NamedValues, rule: OperatorRule
    ) -> Value:
        if self.shape_env is None:
            return self._dispatched_or_known(func, types, args, kwargs)
        ours: Any = self.shape_env
        with ours.general() if rule.any_kernel else ours.operation():
            return self.dispatch(func, types, args, kwargs)

    def _dispatched_or_known(self, func: Overload, types: Sequence[type], args: Values, kwargs: NamedValues) -> Value:
        key = self._known.key(self, func, args, kwargs)
        results = UNKNOWN if key is None else self._known.again(self, key, args)
        if results is not UNKNOWN:
            return results
        known = None if kwargs else simple_results(func, args)
        results = self.dispatch(func, types, args, kwargs) if known is None else known.made(self, args)
        if key is not None:
            self._known.note(self, key, args, results)
        return results

    def _taken_apart(self, func: Overload, args: Values, kwargs: NamedValues) -> Value:
        """A composite operation as eager makes it in inference mode.

        Outside of it operations are taken apart before a mode sees them. What is called from a mode is below the level that tracks
        views: `w.mT` of a parameter would not require grad.
        """
        with self, torch._C._SetExcludeDispatchKeyGuard(_VIEWS, False):
            if func in _UNSAFE_VIEWS:
                return func._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)
            if self.shape_env is None:
                return func._op_dk(_COMPOSITE, *args, **kwargs)
            return func.decompose(*args, **kwargs)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch wraps __torch_dispatch__ in a function that imports its own compiler


_VIEWS = torch._C.DispatchKey.ADInplaceOrView
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd

_AS_STRIDED = torch.ops.aten.as_strided.default
_AS_STRIDED_IN_PLACE = torch.ops.aten.as_strided_.default
_UNSAFE_VIEWS = frozenset({torch.ops.aten.unsafe_split.Tensor, torch.ops.aten.unsafe_split_with_sizes.default})
"""These make their views by `split`, and autograd knows them as no views."""


@functools.cache
def _is_composite(func: Any) -> bool:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if func in _UNSAFE_VIEWS:
        return True
    return func.namespace == "aten" and has(func.name(), _COMPOSITE) and not has(func.name(), _VIEWS)


def _resized(before: Sizes, after: Sizes) -> bool:
    """Were these the sizes of an `out=` without elements, or of other rank? Nothing else is given other sizes without a warning."""
    if len(before) != len(after):
        return True
    return any(type(n) is int and n == 0 and m != 0 for n, m in zip(before, after, strict=True))


@functools.cache
def _facts(func: Overload) -> tuple[bool, tuple[tuple[int, str], ...]]:
    return draws(func), written_arguments(func)


def _watched(watch: Watch, call: OperatorCall) -> None:
    """Note what a call does, and raise what eager raises."""
    call.beyond, call.autocast = watch.beyond, watch.autocast
    _observe(watch, call)
    for check in _CHECKS:
        check(call)


def _observe(watch: Watch, call: OperatorCall) -> None:
    func, args, trained = call.func, call.args, call.rule.trains
    random, written = _facts(func)
    if random:
        watch.random = True
    if func is _DETACH:
        watch.detached = True
    elif func is _VIEW_DTYPE:
        watch.retyped = True
    for position, name in written:
        watch.note(call.argument(position, name))
    if trained and len(args) > trained[-1] + 1 and args[trained[-1] + 1]:
        watch.note([args[position] for position in trained])


class _CapturedGraph(_LazyGraphModule):
    """torch's lazy module, with its code generated by one thread at a time.

    A backend may return `gm.forward`, which several threads then call first at once; generating the code of one graph
    in two threads mixes up the names of its nodes.
    """

    _generating = new_lock()

    def real_recompile(self) -> None:
        with self._generating:
            super().real_recompile()
            self._note_first_write()

    def _note_first_write(self) -> None:
        """Generated code says where it first writes to memory from outside, see `torchjit_core.writing`."""
        if FIRST_WRITE not in self.meta:
            return
        first: fx.Node | None = self.meta[FIRST_WRITE]
        place = NEVER
        if first is not None:
            nodes = {node: i for i, node in enumerate(self.graph.nodes)}
            text = self._code.split("\n")
            signature = next((i for i, line in enumerate(text, 1) if line.startswith("def forward(")), 0)
            lines = [line for line, i in self._lineno_map.items() if i is not None and i >= nodes.get(first, 0)]
            place = min(lines, default=0) + signature
            if f"{first.name} = " not in "".join(text[place - 1 : place]):
                place = 0  # this version of torch writes another text: nothing is known
        type(self).forward.__globals__[WRITES_FROM] = place

    def _lazy_forward(self, *args: Any, **kwargs: Any) -> Value:
        # torch's would go through `GraphModule.__call__`, which prints an error of the user's program to stderr, with
        # lines of the generated code, and imports torch._dynamo to do so.
        self.real_recompile()
        return type(self).forward(self, *args, **kwargs)

    forward = _lazy_forward


def lazy_graph_module(graph: fx.Graph) -> fx.GraphModule:
    """A GraphModule whose code is generated when somebody asks for it (about 35 us a node)."""
    return _CapturedGraph(torch.nn.Module(), graph)


FIRST_WRITE = "first_write"
"""In the `meta` of a captured graph: the first node that writes to memory from outside, or may do anything; or None."""
