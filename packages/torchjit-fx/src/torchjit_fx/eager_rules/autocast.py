"""ATen operators whose kernels on CPUs call others that autocast changes.

Autocast stands above operators: of one that it does not know it sees what the kernel calls. So in eager PyTorch a product inside
of the kernel is one of a 16-bit type, or a concatenation raises. Metadata functions do not call it, and in a graph, where the casts
have been made, autocast is off.
"""

from __future__ import annotations

import torch

from torchjit_fx.eager_rules.rule import Inside, OperatorCall, tensors_in

__all__ = ["autocast_on_cpus", "refuse_autocast"]


def autocast_on_cpus() -> torch.dtype | None:
    """The dtype of autocast for CPUs; None while it is off."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None


def refuse_autocast(call: OperatorCall) -> None:
    """Raise if autocast changes what the kernel of this call does.

    Raises:
        RuntimeError: it does.
    """
    if call.rule.inside is None or call.autocast is None:
        return
    for tensor in tensors_in((*call.args, *call.kwargs.values())):
        if tensor.device.type == "cpu" and tensor.is_floating_point():
            other = tensor.dtype.itemsize == 2 and tensor.dtype is not call.autocast
            if other or (call.rule.inside is Inside.PRODUCT and tensor.dtype is not torch.float64):
                raise RuntimeError(f"autocast changes what the kernel of {call.func.overloadpacket} calls")
