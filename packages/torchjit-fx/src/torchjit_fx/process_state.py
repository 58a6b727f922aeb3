"""All state of the process and the thread that a capture or a compilation may set, remembered to be brought back.

Each place that sets such state restores it. An exception that may come between any two instructions (a signal's handler, Ctrl-C) finds
places that have set it and not yet begun the block that restores it: inside of an `__enter__`, say.
"""

from __future__ import annotations

import random
import sys
import traceback
import warnings
from typing import Any, final

import torch
from torch.utils import _python_dispatch as dispatch

from torchjit_core import events
from torchjit_fx.modes import autocast_nesting, read_all_modes, write_modes
from torchjit_torch.quiet_fakes import QUIET_FAKES

__all__ = ["ProcessState", "release_frames"]

_C: Any = torch._C
_functorch: Any = _C._functorch
_hooks: Any = _C._autograd
_ATTRIBUTES: tuple[tuple[str, str], ...] = (
    ("torch.utils._python_dispatch", "_is_in_torch_dispatch_mode"),
    ("torch.utils._python_dispatch", "_is_in_non_infra_torch_dispatch_mode"),
    ("torch.utils._python_dispatch", "_is_in_any_mode_without_ignore_compile_internals"),
    ("torch.fx._symbolic_trace", "_is_fx_tracing_flag"),
    ("torch.fx.experimental.proxy_tensor", "_CURRENT_MAKE_FX_TRACER"),
    ("torch.fx.traceback", "current_meta"),
    ("torch.fx.traceback", "current_replay_node"),
    ("torch.fx.traceback", "should_preserve_node_meta"),
    ("torch.autograd.forward_ad", "_current_level"),
    ("warnings", "filters"),
    ("warnings", "showwarning"),
    ("warnings", "_showwarnmsg_impl"),
)
"""Globals of modules that are set for a while."""


@final
class ProcessState:
    """The state when this object was made. Making one changes nothing; it takes some 30 us."""

    def __init__(self) -> None:
        self._modes = read_all_modes()
        self._autocast_nesting = autocast_nesting()
        self._dispatch = _dispatch_modes()
        self._functions = _function_modes()
        self._function_state = _C._get_torch_function_state()
        self._included, self._excluded = _C._dispatch_tls_local_include_set(), _C._dispatch_tls_local_exclude_set()
        self._layers = _functorch.get_dynamic_layer_stack_depth()
        self._lifts_cpu_only = _C._only_lift_cpu_tensors()
        self._meta_included = _C._meta_in_tls_dispatch_include()
        self._deterministic = (_C._get_deterministic_algorithms(), _C._get_deterministic_algorithms_warn_only())
        self._anomaly = (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())
        self._saved_tensor_hooks = _hooks._top_saved_tensors_default_hooks(True)
        self._attributes = [
            (sys.modules[module], name, getattr(sys.modules[module], name, None))
            for module, name in _ATTRIBUTES
            if module in sys.modules
        ]
        self._filters = list(warnings.filters)
        self._contexts = dict(vars(torch._guards._TLS))
        self._compile_id = events.current_compile_id()
        self._quiet = QUIET_FAKES.depth
        self._numbers = torch.default_generator.get_state()
        self._python_numbers = random.getstate()

    def restore(self) -> None:
        """Bring the state back, as often as it is called. What is as it was is not touched."""
        self._restore_dispatch()
        write_modes(self._modes)
        for _ in range(autocast_nesting() - self._autocast_nesting):
            if torch.autocast_decrement_nesting() == 0:
                torch.clear_autocast_cache()
        if (_C._get_deterministic_algorithms(), _C._get_deterministic_algorithms_warn_only()) != self._deterministic:
            _C._set_deterministic_algorithms(self._deterministic[0], warn_only=self._deterministic[1])
        if (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()) != self._anomaly:
            torch.set_anomaly_enabled(*self._anomaly)
        for module, name, value in self._attributes:
            if getattr(module, name, None) is not value:
                setattr(module, name, value)
        if warnings.filters != self._filters:
            warnings.filters[:] = self._filters  # type: ignore[index]
            warnings._filters_mutated()  # type: ignore[attr-defined]
        contexts = vars(torch._guards._TLS)
        if contexts != self._contexts:
            contexts.clear()
            contexts.update(self._contexts)
        events.set_compile_id(self._compile_id)
        QUIET_FAKES.depth = self._quiet
        torch.default_generator.set_state(self._numbers)
        random.setstate(self._python_numbers)

    def _restore_dispatch(self) -> None:
        """What decides where an operator goes. First, since the rest may call some."""
        depth = _functorch.get_dynamic_layer_stack_depth()
        if depth > self._layers:
            _functorch.pop_dynamic_layer_stack_and_undo_to_depth(self._layers)
        while _C._len_torch_function_stack() and not _is_start(_function_modes(), self._functions):
            _C._pop_torch_function_stack()
        for mode in self._functions[_C._len_torch_function_stack() :]:
            _C._push_on_torch_function_stack(mode)
        if list(map(id, _dispatch_modes())) != list(map(id, self._dispatch)):
            _set_dispatch_modes(self._dispatch)
        if _C._get_torch_function_state() != self._function_state:
            _C._set_torch_function_state(self._function_state)
        _C._set_only_lift_cpu_tensors(self._lifts_cpu_only)
        if _C._meta_in_tls_dispatch_include() != self._meta_included:
            _C._set_meta_in_tls_dispatch_include(self._meta_included)
        _restore_keys(self._included, _C._dispatch_tls_local_include_set(), _C._dispatch_tls_set_dispatch_key_included)
        _restore_keys(self._excluded, _C._dispatch_tls_local_exclude_set(), _C._dispatch_tls_set_dispatch_key_excluded)
        hooks = _hooks._top_saved_tensors_default_hooks
        while (top := hooks(True)) is not None and not _same_hooks(top, self._saved_tensor_hooks):
            _hooks._pop_saved_tensors_default_hooks()


def release_frames(error: BaseException) -> None:
    """Let go of the local variables of what raised.

    Functions of torch's (`Tensor.__repr__`, which its own messages call) keep guards in local variables, and such a guard
    brings back the dispatcher's keys of its time when its frame goes. In the traceback of an error that is kept, that is in
    whatever code runs then: from there on eager PyTorch fails in this thread, too.
    """
    seen: set[int] = set()
    one: BaseException | None = error
    keys = _C._dispatch_tls_local_include_set(), _C._dispatch_tls_local_exclude_set()
    with _C._ForceDispatchKeyGuard(*keys):  # behind it they are what they were
        while one is not None and id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            one = one.__cause__ or one.__context__


def _dispatch_modes() -> list[Any]:
    return [_C._get_dispatch_stack_at(i) for i in range(_C._len_torch_dispatch_stack())]


def _function_modes() -> list[Any]:
    return [_C._get_function_stack_at(i) for i in range(_C._len_torch_function_stack())]


def _is_start(some: list[Any], all_: list[Any]) -> bool:
    """Are `some` the first ones of `all_`?"""
    return len(some) <= len(all_) and all(a is b for a, b in zip(some, all_, strict=False))


def _set_dispatch_modes(wanted: list[Any]) -> None:
    for mode in reversed(_dispatch_modes()):
        if getattr(mode, "_mode_key", None) is not None:
            _C._unset_dispatch_mode(mode._mode_key)
        else:
            _C._pop_torch_dispatch_stack(None)
    for mode in wanted:
        dispatch._push_mode(mode)


def _restore_keys(wanted: Any, now: Any, store: Any) -> None:
    if wanted.raw_repr() == now.raw_repr():
        return
    for key in _C.DispatchKey.__members__.values():
        if key != _C.DispatchKey.Undefined and (before := wanted.has(key)) != now.has(key):
            store(key, before)


def _same_hooks(one: Any, other: Any) -> bool:
    return other is not None and one[0] is other[0] and one[1] is other[1]
