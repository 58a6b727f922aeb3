"""Calls that read and set ambient state: modes, autocast, strictness, ranges of the profiler."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from torchjit_core.guards import Ambient
from torchjit_fx import breaks
from torchjit_fx.calls.call import Call, call_rule
from torchjit_fx.domain_protocol import CallDomain, Feature
from torchjit_fx.inference_state import set_inference_mode
from torchjit_fx.intrinsics import ask_metadata, enter_range, enter_replicas
from torchjit_fx.leaves import Raw, SymLeaf
from torchjit_fx.modes import DEFAULT_DTYPE, GRAD, INFERENCE, MODE_READERS, MODE_SETTERS
from torchjit_fx.protocols import CaptureContext
from torchjit_fx.strictness import breaks_are_errors, set_breaks_are_errors
from torchjit_torch.replicas import active_buckets, buckets_of

__all__ = ["Ranges", "Replicas", "read_mode", "set_mode"]


class Ranges(Feature, list[str]):
    """Of the profiler, that the region enters."""


@call_rule(enter_range)
def _enter_range(call: Call) -> None:
    (name,) = call.args
    ranges = call.domain.of(Ranges)
    if type(name) is str and name not in ranges:
        ranges.append(name)


class Replicas(Feature):
    """The forward of a module that `DistributedDataParallel` replicates.

    Attributes:
        buckets: see `buckets_of`; None outside of one.
    """

    def __init__(self, domain: CallDomain) -> None:
        super().__init__(domain)
        self.buckets = active_buckets()


@call_rule(enter_replicas)
def _enter_replicas(call: Call) -> None:
    (module,) = call.args
    if isinstance(module, DistributedDataParallel):
        call.domain.of(Replicas).buckets = buckets_of(module)


def read_mode(call: Call) -> Raw:
    key = MODE_READERS[call.function](*call.args, **call.kwargs)
    _guard_mode(call.domain, key, call.capture)
    return call.domain.modes.read(key)


_ALWAYS_GUARDED = frozenset({GRAD, INFERENCE, ("autocast", "cpu"), ("autocast", "cuda"), DEFAULT_DTYPE})


def _guard_mode(domain: CallDomain, key: Any, capture: CaptureContext) -> None:
    """Attention kernels, the types and the cache of autocast ... are guarded where a program reads or sets them."""
    if key not in _ALWAYS_GUARDED:
        domain.modes.read(key)
        initial = domain.modes.initial(key)
        capture.guard(Ambient("_".join(key), domain.modes.reader(key), initial, capture.location()))


def _is_condition(value: Raw) -> bool:
    return type(value) is SymLeaf and isinstance(value.value, torch.SymBool)


def set_mode(call: Call) -> Raw:
    domain, modes = call.domain, call.domain.modes
    args = tuple([domain.numbers.truth(a) if _is_condition(a) else a for a in call.args])
    key, value = MODE_SETTERS[call.function](*args, **call.kwargs)
    _guard_mode(domain, key, call.capture)
    if key == GRAD:
        _set_grad(domain, key, value, call.capture)
    elif modes.read(key) != value:
        modes.write(key, value)
        domain.recorder.add_mode_change(call.function, args, (key, value), call.capture)
    return None


@call_rule(set_breaks_are_errors)
def _set_strictness(call: Call) -> Raw:
    """No step: nothing in the graph depends on it, but how the capture ends does."""
    modes, capture, key, value = call.domain.modes, call.capture, ("strict",), bool(call.args[0])
    before = modes.read(key)
    capture.guard(Ambient("error_on_graph_break", breaks_are_errors, modes.initial(key), capture.location()))
    modes.write(key, value)
    capture.set_state("breaks_are_errors", value)
    return before


@call_rule(set_inference_mode)
def _set_inference(call: Call) -> Raw:
    """A graph runs in one mode, see `inference`; its grad mode may change."""
    if call.domain.recorder.scope is not None:
        raise call.broken(breaks.MODE_OBJECT, f"inference_mode({call.args[0]})")
    (value,) = call.args
    wanted = call.domain.numbers.truth(value) if _is_condition(value) else value
    _set_grad(call.domain, INFERENCE, wanted, call.capture)


def _set_grad(domain: CallDomain, key: Any, value: bool, capture: CaptureContext) -> None:
    """Set one of the two modes that say whether autograd records; where it makes a difference, in the graph too."""
    before = domain.modes.graph_grad
    domain.modes.write(key, value)
    now = domain.modes.graph_grad
    if now is not before:
        domain.recorder.add_mode_change(torch._C._set_grad_enabled, (now,), (GRAD, now), capture)


@call_rule(torch.autocast_increment_nesting, torch.autocast_decrement_nesting)
def _nest_autocast(call: Call) -> Raw:
    call.domain.modes.nesting += 1 if call.function is torch.autocast_increment_nesting else -1
    # No step: only the value that this returns has an effect, on whether Python clears the cache.
    base = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return base + call.domain.modes.nesting


@call_rule(torch.clear_autocast_cache)
def _clear_autocast_cache(call: Call) -> Raw:
    call.domain.recorder.add_mode_change(call.function, (), (("clear",), object()), call.capture)


@call_rule(ask_metadata)
def _ask_metadata(call: Call) -> Raw:
    function, args = call.args
    return call.domain.call(function, tuple(args), {}, call.capture)
