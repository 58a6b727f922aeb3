"""Which calls are left to plain Python: by what they bring, and by what else watches this thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

import torchjit_guards
import torchjit_vm

__all__ = ["holds_proxies", "holds_tensors", "must_run_eagerly", "note_numbers"]


def holds_tensors(value: Any) -> bool:
    return _holds(value, torch.Tensor | torch.nn.Module)


def holds_proxies(value: Any) -> bool:
    """What another tracer follows: operations on it are to reach that tracer one by one."""
    return _holds(value, torch.fx.Proxy)


def _holds(value: Any, classes: Any, depth: int = 2) -> bool:
    """An instance of these classes, or a container with one near its top."""
    if issubclass(type(value), classes):  # which asks no `__getattribute__`
        return True
    if depth and type(value) in (tuple, list):
        return any(_holds(v, classes, depth - 1) for v in value)
    return bool(depth) and type(value) is dict and any(_holds(v, classes, depth - 1) for v in value.values())


_is_fx_tracing: Callable[[], bool] = torch.fx._symbolic_trace.is_fx_symbolic_tracing


def must_run_eagerly() -> bool:
    """Something else in this thread wants to see plain operations: another tracer, or a mode of the program.

    The ambient guards of torchjit_guards are about the same states, so that a hit asks too; a tracer of torch.fx alone
    is asked about here only: it gives proxies, which no guard on tensors lets pass.
    """
    return bool(
        any(
            type(torch._C._get_function_stack_at(i)) is not DeviceContext  # which only adds arguments
            for i in range(torch._C._len_torch_function_stack())
        )
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._get_tracing_state() is not None
        or torch._C._functorch.peek_interpreter_stack() is not None
        or _is_fx_tracing()
        or forward_ad._current_level >= 0  # graphs have no tangents; guards see to it that none runs here
    )


def note_numbers(history: torchjit_guards.SizeHistory, slots: Sequence[Any], region: torchjit_vm.Region) -> None:
    """Remember the sizes and numbers of a call that was not captured, so that what the next one changes is symbolic."""
    history.begin()
    for value, path in zip(slots, region.slot_paths, strict=True):
        if type(value) in (int, float):
            history.observe(path, value)
        # A tuple is *args.
        items = enumerate(value) if type(value) is tuple else [(None, value)]
        for j, item in items:
            if issubclass(type(item), torch.Tensor) and item.layout is torch.strided:
                at = path if j is None else path.item(j)
                for dim, size in enumerate(item.shape):
                    if type(size) is int:
                        history.observe(at.size(dim), size)
