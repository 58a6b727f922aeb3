"""The state of torch's default generators, read, set and seeded inside of a region.

A graph has operators for it, which keep their place among those that draw. They run torch's own functions, so what a generator
holds between and after the calls of a region is what eager PyTorch leaves there.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.calls.call import Call, call_rule
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.leaves import Function, InputLeaf, Raw, SymLeaf, TensorLeaf
from torchjit_fx.protocols import CaptureContext

__all__ = ["RANDOM_STATE_CALLS", "is_seeding"]

_torch: Any = torch

_library: Any = torch.library.Library
_LIBRARY = _library("torchjit_random", "DEF")
_tags = (torch.Tag.nondeterministic_seeded, torch.Tag.cudagraph_unsafe)
_LIBRARY.define("seed(SymInt seed, str which) -> ()", tags=_tags)
_LIBRARY.define("get_state(Device? device) -> Tensor", tags=_tags)
_LIBRARY.define("set_state(Tensor state, Device? device) -> ()", tags=_tags)
_OPERATORS: Any = torch.ops.torchjit_random
_SEEDING = {"all": torch.random.manual_seed, "cuda": torch.cuda.manual_seed, "every cuda": torch.cuda.manual_seed_all}


RANDOM_STATE_CALLS: frozenset[Any] = frozenset(
    {*_SEEDING.values(), torch.get_rng_state, torch.set_rng_state, torch.cuda.get_rng_state, torch.cuda.set_rng_state}
)
"""Functions that read, set or seed the state of a default generator."""


def _seed(seed: int, which: str) -> None:
    _SEEDING[which](int(seed))


def _get_state(device: torch.device | None) -> torch.Tensor:
    return torch.get_rng_state() if device is None else torch.cuda.get_rng_state(device)


def _set_state(state: torch.Tensor, device: torch.device | None) -> None:
    if device is None:
        torch.set_rng_state(state)
    else:
        torch.cuda.set_rng_state(state, device)


@functools.cache
def _length(kind: str) -> int:
    """How many bytes a state has."""
    return torch.Generator(kind).get_state().numel()


def _fake_state(device: torch.device | None) -> torch.Tensor:
    length = _length("cpu" if device is None else "cuda")
    return torch.empty(length, dtype=torch.uint8, device="cpu")


for _name, _function in (("seed", _seed), ("get_state", _get_state), ("set_state", _set_state)):
    _LIBRARY.impl(_name, _function, "CompositeExplicitAutograd")
torch.library.register_fake("torchjit_random::seed", lambda seed, which: None, lib=_LIBRARY)
torch.library.register_fake("torchjit_random::get_state", _fake_state, lib=_LIBRARY)
torch.library.register_fake("torchjit_random::set_state", lambda state, device: None, lib=_LIBRARY)


def _refused(fn: Function, capture: CaptureContext) -> GraphBreak:
    return GraphBreak(breaks.NOT_CAPTURABLE, getattr(fn, "__qualname__", str(fn)), capture.location())


def _check_place(domain: CallDomain, fn: Function, capture: CaptureContext) -> None:
    """A backward pass that runs a checkpointed forward again would set the state once more."""
    if domain.recorder.scope is not None or domain.recorder.checkpointed:
        raise _refused(fn, capture)


def is_seeding(fn: Function) -> bool:
    """Is it `torch.manual_seed`, which is another function once torch's own compiler has been imported?"""
    return fn is _torch.manual_seed


@call_rule(*_SEEDING.values(), is_seeding)
def _manual_seed(call: Call) -> Raw:
    seed: Raw = call.args[0] if call.args else call.kwargs.get("seed")
    _check_place(call.domain, call.function, call.capture)
    known = type(seed) in (int, bool) and -(2**63) <= seed < 2**63
    if not known and not (type(seed) is SymLeaf and seed.expr is not None):
        raise _refused(call.function, call.capture)
    which = next((which for which, function in _SEEDING.items() if function is call.function), "all")
    call.record(_OPERATORS.seed.default, (seed, which))
    return torch.default_generator if which == "all" else None


def _device(fn: Function, given: Raw, capture: CaptureContext) -> torch.device | None:
    if fn in (torch.get_rng_state, torch.set_rng_state):
        return None
    if not torch.cuda.is_available() or type(given) not in (str, int, torch.device):
        raise _refused(fn, capture)
    device = torch.device("cuda", given) if type(given) is int else torch.device(given)
    if device.type != "cuda":
        raise _refused(fn, capture)
    return device


@call_rule(torch.get_rng_state, torch.cuda.get_rng_state)
def _read_state(call: Call) -> Raw:
    _check_place(call.domain, call.function, call.capture)
    device = _device(call.function, call.args[0] if call.args else call.kwargs.get("device", "cuda"), call.capture)
    return call.record(_OPERATORS.get_state.default, (device,))


@call_rule(torch.set_rng_state, torch.cuda.set_rng_state)
def _write_state(call: Call) -> Raw:
    given = dict(zip(("new_state", "device"), call.args, strict=False)) | call.kwargs
    state = given["new_state"]
    _check_place(call.domain, call.function, call.capture)
    device = _device(call.function, given.get("device", "cuda"), call.capture)
    # What is no state raises, in a place where the program may catch it.
    fits = isinstance(state, TensorLeaf) and state.record.dtype is torch.uint8 and state.record.device.type == "cpu"
    made = fits and not isinstance(state, InputLeaf) and getattr(state.step, "target", None)
    if made is not _OPERATORS.get_state.default and not (
        fits and isinstance(state, InputLeaf) and _is_a_state(state, device)
    ):
        raise _refused(call.function, call.capture)
    call.record(_OPERATORS.set_state.default, (state, device))


def _is_a_state(leaf: InputLeaf, device: torch.device | None) -> bool:
    return leaf.record.sizes == (_length("cpu" if device is None else "cuda"),)
