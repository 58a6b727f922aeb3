"""Parameters that a region makes.

A graph cannot make a leaf of autograd. So emitted code makes the parameter, without values, before the graph runs; the graph has it as an
input like any other and writes its values.
"""

from __future__ import annotations

import torch

from torchjit_fx import breaks
from torchjit_fx.calls.call import Call, call_rule
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.eager_rules.memory_checks import is_dense
from torchjit_fx.leaves import InputLeaf, Raw, TensorLeaf
from torchjit_fx.records import TensorRecord

__all__ = ["make_parameter", "new_parameter"]


def new_parameter(
    sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, device: torch.device, requires_grad: bool
) -> torch.nn.Parameter:
    """A parameter without values; what emitted code runs before the graph."""
    with torch.no_grad():
        data = torch.empty_strided(sizes, strides, dtype=dtype, device=device)
    return torch.nn.Parameter(data, requires_grad)


@call_rule(torch.nn.Parameter)
def make_parameter(call: Call) -> Raw:
    """`torch.nn.Parameter(data, requires_grad)`.

    The parameter has memory of its own, and what the program still does to `data` is done to that memory.

    Raises:
        GraphBreak: `data` has a history, or lies on memory that others see, too.
    """
    given = dict(zip(("data", "requires_grad"), call.args, strict=False)) | call.kwargs
    data, requires_grad = given.get("data"), given.get("requires_grad", True)
    if (
        type(data) is not TensorLeaf
        or data.cls is not torch.Tensor
        or type(requires_grad) is not bool
        or not _has_own_memory(call.domain, data)
        or not _can_be_made(call.domain, data.record)
        or call.capture.state("intercepted")
    ):
        raise call.broken(breaks.PARAMETER, "Parameter")
    r = data.record
    facts = (r.sizes, r.strides, r.dtype, r.device, requires_grad)
    flags = (requires_grad, True, False, False, False)
    record = call.domain.fakes.records.get(r.dtype, r.device, r.sizes, r.strides, 0, flags)
    path = call.capture.prepare(new_parameter, facts)
    leaf = InputLeaf(record, new_parameter(*facts), path, True)  # type: ignore[arg-type]
    leaf.new = True
    call.domain.memory.add(leaf, call.capture)
    memory = call.record(torch.Tensor.detach, (leaf,))
    call.record(torch.Tensor.copy_, (memory, data))
    call.domain.recorder.data.replace(data, memory, call.capture.mark())
    return leaf


def _has_own_memory(domain: CallDomain, data: TensorLeaf) -> bool:
    recorder = domain.recorder
    here = recorder.scope is None and not recorder.checkpointed and data.step is not None and data.step.scope is None
    return here and data.is_alone() and id(data) not in recorder.data.values


def _can_be_made(domain: CallDomain, r: TensorRecord) -> bool:
    if r.symbolic or r.requires_grad or r.conj or r.neg or r.inference or r.offset != 0:
        return False
    if domain.modes.inference or domain.modes.inference_changed:
        return False
    return (r.dtype.is_floating_point or r.dtype.is_complex) and is_dense(r.sizes, r.strides)
