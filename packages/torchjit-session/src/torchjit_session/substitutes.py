"""What stands for functions of torch, Python and torchjit under capture, and which of torch's values are guarded by value."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, final

import torch
import torch.autograd.function
import torch.nn.attention
from torch.autograd import functional
from torch.nn.utils import stateless

import torchjit_frame
import torchjit_fx
from torchjit_session import control, disabling, inlining, upstream
from torchjit_vm import AtomicPolyfill, DeferredHandle, DictChainGetattr, IsKnownNumber, PassThrough, ReturnConstant

__all__ = ["CLASS_MAKERS", "ORDER_FREE", "VALUE_TYPES", "substitutes"]

VALUE_TYPES = (
    torch.finfo,
    torch.iinfo,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.nn.attention.SDPBackend,
    *filter(None, [getattr(torch._C, "_CudaDeviceProperties", None)]),  # a torch without CUDA has none
    *torchjit_fx.NUMPY_VALUES,
)
"""Immutable values of torch and NumPy with a trustworthy `==`: guarded by value."""

CLASS_MAKERS = (torch.autograd.function.FunctionMeta,)
"""Metaclasses of torch that only prepare the class."""

ORDER_FREE = frozenset(
    {function.__code__ for function in [getattr(stateless, "_untie_named_tensors_map", None)] if function is not None}
)
"""Of torch.func.functional_call: which names are of one tensor, in dicts and sets that are asked by name."""


def _second(first: Any, second: Any) -> Any:
    return second


def _module_calls() -> dict[Any, object]:
    """`nn.Module.__call__` without hooks: the two functions between it and `forward`."""
    asked = inlining.TOLD_OF_TRACING
    if asked is None:
        return {}
    outer, inner = torch.nn.Module._wrapped_call_impl, torch.nn.Module._call_impl
    told_no = (("torch", "_C", asked),)
    return {
        outer: PassThrough(outer.__code__, "_call_impl", none=("_compiled_call_impl",)),
        inner: PassThrough(
            inner.__code__, "forward", empty=inlining.HOOKS, empty_globals=inlining.GLOBAL_HOOKS, told_no=told_no
        ),
    }


_derivatives: Any = functional  # which has no types
_PLAIN = "it runs in eager PyTorch with all that it calls; that of torch.func is captured"


@disabling.disable(reason=_PLAIN)
def _plain_jacobian(*args: Any, **kwargs: Any) -> Any:
    return _derivatives.jacobian(*args, **kwargs)


@disabling.disable(reason=_PLAIN)
def _plain_hessian(*args: Any, **kwargs: Any) -> Any:
    return _derivatives.hessian(*args, **kwargs)


def _jacobian(*args: Any, **kwargs: Any) -> Any:
    """Interpreted instead of `torch.autograd.functional.jacobian`: with `create_graph` its result has derivatives."""
    return _plain_jacobian(*args, **kwargs)


def _hessian(*args: Any, **kwargs: Any) -> Any:
    """Interpreted instead of `torch.autograd.functional.hessian`: a function that it called and that was compiled would have no second derivative."""
    return _plain_hessian(*args, **kwargs)


_DISABLE = AtomicPolyfill(disabling.make_disabled)

_SUBSTITUTES: dict[Any, object] = {
    **_module_calls(),
    **torchjit_fx.REPLACEMENTS,
    control.is_compiling: ReturnConstant(True, pretended=True),
    # A module's call would not run the hooks that are always called when a hook or `forward` raises.
    torch.compiler.is_compiling: ReturnConstant(
        True, pretended=True, unpretended=frozenset({torch.nn.Module._call_impl.__code__}), plain=False
    ),
    torch.compiler.is_dynamo_compiling: ReturnConstant(True, pretended=True),
    control.is_dynamo_compiling: ReturnConstant(True, pretended=True),
    torch.compiler.is_exporting: ReturnConstant(False),
    disabling.disable: _DISABLE,
    functional.jacobian: _jacobian,
    functional.hessian: _hessian,
    torch.compiler.disable: _DISABLE,
    torch._utils.is_compiling: ReturnConstant(True, pretended=True),
    torch._jit_internal.is_scripting: ReturnConstant(False),
    torch.jit.annotate: _second,
    torchjit_fx.is_known_number: IsKnownNumber(),
    torchjit_fx.handle_number: DeferredHandle(torchjit_fx.take_handle_number),
    torch.jit._trace.is_tracing: ReturnConstant(False),
    torch._C._get_tracing_state: ReturnConstant(None),
    torch._C._log_api_usage_once: ReturnConstant(None),
    # Nobody else dispatches while we capture: a site runs eagerly under a dispatch mode.
    torch._C._len_torch_dispatch_stack: ReturnConstant(0),
    **{original: AtomicPolyfill(polyfill) for original, polyfill in torchjit_fx.POLYFILLS.items()},
    torch.nn.Module.__getattr__: DictChainGetattr(("_parameters", "_buffers", "_modules")),
}


_UPSTREAMS: dict[tuple[str | None, str], object] = {
    ("torch._dynamo.external_utils", "is_compiling"): ReturnConstant(True, pretended=True),
    ("torch._dynamo.decorators", "disable"): _DISABLE,
}
"""By name, since nothing of it is imported here."""


@final
class _Substitutes(Mapping[Any, object]):
    """The table above with `more`, and functions that are known by their code or name."""

    def __init__(self, more: dict[Any, object], note: Callable[[object], None]) -> None:
        self._note = note
        self._table = _SUBSTITUTES | more | upstream.substitutes() | control.SUBSTITUTED

    def __getitem__(self, function: Any) -> object:
        self._note(function)
        if function in control.DISALLOWED or function in control.FORBIDDEN:
            raise KeyError(function)
        found = self._table.get(function)
        if found is None and type(function) is torch.jit.ScriptFunction:
            found = getattr(
                function, "_torchdynamo_inline", None
            )  # what it was scripted from, as torch.compile reads it
        if type(function) is torchjit_frame.FrontDoor:
            found = function.__wrapped__  # what was compiled on its own is part of the region that calls it
        if found is None and isinstance(function, type):
            polyfill = torchjit_fx.polyfill_of(function)
            found = None if polyfill is None else AtomicPolyfill(polyfill)
        if found is None and type(function) is types.FunctionType:
            polyfill = torchjit_fx.polyfill_of(function)
            found = AtomicPolyfill(polyfill) if polyfill is not None else torchjit_fx.replacement_of(function)
            if found is None:
                found = _UPSTREAMS.get((function.__module__, function.__qualname__)) or upstream.meaning_of(function)
        if found is None:
            raise KeyError(function)
        return found

    def __iter__(self) -> Iterator[Any]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


def substitutes(note: Callable[[object], None]) -> Mapping[Any, object]:
    """Functions that mean something else under capture, and what stands for them. `note` is told of each that is looked up.

    With the function that tags modules, if torch.compile was used in this process.
    """
    tracker = getattr(sys.modules.get(inlining.TAGGING), "GenerationTracker", None)
    tag = getattr(tracker, "tag", None)
    return _Substitutes({} if tag is None else {getattr(tag, "__func__", tag): ReturnConstant(None)}, note)
