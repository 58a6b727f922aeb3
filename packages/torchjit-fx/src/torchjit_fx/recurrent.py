"""What recurrent layers return, without running them step by step: from a layer over one step."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher

from torchjit_fx.leaves import Raw, RawArgs, RawKwargs

__all__ = ["RECURRENT", "layer_result"]

_VF: Any = torch._VF
RECURRENT = frozenset(getattr(_VF, name) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"))
"""The functions that run a whole layer, over all steps."""


def layer_result(function: Raw, args: RawArgs, kwargs: RawKwargs) -> Raw:
    """Call one of them on fakes. All steps after the first have its sizes and its dtype, and the final states those of the initial ones.

    A packed sequence is data: which steps there are only the run knows, and its results have the sizes of its inputs.
    """
    if kwargs or len(args) != 9 or any(isinstance(a, torch.Tensor) and a.is_complex() for a in args):
        return function(*args, **kwargs)
    if not isinstance(args[3], bool):
        return _of_a_packed_sequence(function, *args)
    data, *rest = args
    batch_first = rest[-1]
    steps = data.size(1 if batch_first else 0) if data.dim() == 3 else 0
    if data.dim() != 3 or (isinstance(steps, int) and steps < 2):
        return _run(function, data, *rest)
    short, *states = _run(function, data.narrow(1 if batch_first else 0, 0, 1), *rest)
    return (_repeated(short, steps, bool(batch_first)), *states)


def _run(function: Raw, data: Raw, *rest: Raw) -> Raw:
    # Torch's own function asks where weights lie in memory for cuDNN, which fakes do not know.
    with enable_python_dispatcher() if data.device.type != "cpu" else contextlib.nullcontext():
        made = function(data, *rest)
    kind = data.device.type
    if kind != "cuda" or not torch.is_autocast_enabled(kind) or data.dtype == torch.float64:
        return made
    # There all kernels of these layers are cast to; taken apart, some have states of the dtype that they began with.
    return tuple(t.to(torch.get_autocast_dtype(kind)) for t in made)


def _repeated(step: torch.Tensor, steps: Raw, batch_first: bool) -> torch.Tensor:
    """The result of one step as often as there are steps, laid out as torch does it: step after step."""
    major = step.transpose(0, 1) if batch_first else step
    whole = major.expand(steps, -1, -1).clone(memory_format=torch.contiguous_format)
    return whole.transpose_(0, 1) if batch_first else whole


def _of_a_packed_sequence(function: Raw, data: Raw, batches: Raw, state: Raw, *rest: Raw) -> Raw:
    states = [state] if isinstance(state, torch.Tensor) else list(state)
    if data.dim() != 2 or any(s.dim() != 3 for s in states):
        return function(data, batches, state, *rest)
    rows = states[0].size(1)
    step = data.narrow(0, 0, 1).expand(rows, -1).unsqueeze(0)
    result, *finals = _run(function, step, state, *rest, False)
    whole = result[0].narrow(0, 0, 1).expand(data.size(0), -1).clone(memory_format=torch.contiguous_format)
    return (whole, *finals)
