"""What eager refuses and fake tensors accept: dtypes that an elementwise operation has no kernel for, or checks for in C++ only.

`1.5 - mask` and `mask.abs()` raise in eager; torch's metadata functions return a tensor. So an elementwise operation runs
once for real, on tensors of one element each, for each combination of dtypes and kinds of numbers. What the kernels
support depends on the device: for other devices than the CPU the operation runs on `meta` tensors, which have the checks
that all devices share.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

__all__ = ["refuse_dtypes"]

_ABOUT_DTYPES = re.compile(r"not implemented for '|dtype|scalar type|[Bb]ool|complex|integ|floating")
_LIMIT = 10_000
_accepted: set[Any] = set()


def refuse_dtypes(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> None:
    """Raise what eager raises, if an ATen operation refuses tensors of these dtypes.

    Args:
        func: an overload. Only elementwise ones are asked.
        args, kwargs: over fake tensors.

    Raises:
        Exception: eager's.
    """
    if not _is_elementwise(func):
        return
    leaves, spec = pytree.tree_flatten((args, kwargs or {}))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if not tensors or any(t.layout is not torch.strided or t.is_quantized for t in tensors):
        return
    key = func, spec, tuple(map(_kind, leaves))
    if key in _accepted or torch._C._len_torch_dispatch_stack():
        return
    # Ambient modes of the program and default devices are not to see these calls.
    with torch._C.DisableTorchFunction(), torch.no_grad():
        try:
            probe_args, probe_kwargs = pytree.tree_unflatten(map(_probe, leaves), spec)
        except Exception:
            return  # a dtype that torch cannot fill
        try:
            func(*probe_args, **probe_kwargs)
        except NotImplementedError:
            raise
        except Exception as error:
            if _ABOUT_DTYPES.search(str(error)):
                raise  # others are about shapes and values, which are not those of the call
    if len(_accepted) >= _LIMIT:
        _accepted.clear()
    _accepted.add(key)


@functools.cache
def _is_elementwise(func: Any) -> bool:
    """The tag is on one overload, for all of them and for the one in place."""
    if func.namespace != "aten" or torch.Tag.nondeterministic_seeded in func.tags:
        return False
    name = func._schema.name.removeprefix("aten::")
    packet: Any = getattr(torch.ops.aten, name.removesuffix("_") or name, func.overloadpacket)
    return any(torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads())


def _kind(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype, leaf.device.type == "cpu", leaf.dim() > 0
    if isinstance(leaf, (str, torch.dtype, torch.device, torch.layout, torch.memory_format)):
        return leaf
    return type(leaf), isinstance(leaf, int | float) and leaf < 0


def _probe(leaf: Any) -> Any:
    """A tensor of one element, or a number that is known."""
    if isinstance(leaf, torch.Tensor):
        device = "cpu" if leaf.device.type == "cpu" else "meta"
        return torch.ones([1] * leaf.dim(), dtype=leaf.dtype, device=device)
    if isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool):
        return {torch.SymInt: 1, torch.SymFloat: 1.0, torch.SymBool: True}[type(leaf)]
    return leaf
