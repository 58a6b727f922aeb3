"""Functions of layers that fakes take otherwise than eager."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from torchjit_fx import breaks
from torchjit_fx.calls.call import Call, call_rule
from torchjit_fx.leaves import Raw, TensorLeaf

__all__: list[str] = []


@call_rule(F.dropout, torch.dropout, F.alpha_dropout, F.feature_alpha_dropout)
def _dropout(call: Call) -> Raw:
    """Outside of training the input itself; torch 2.11 makes a copy of fakes with symbolic sizes."""
    given = dict(zip(("input", "p", "training"), call.args, strict=False)) | call.kwargs
    probability, training = given.get("p", 0.5), given.get("training", given.get("train", True))
    known = type(probability) in (int, float) and 0 <= probability <= 1
    plain = call.function in (F.dropout, torch.dropout) and not given.get("inplace")
    if plain and probability == 1 and training is True and isinstance(given.get("input"), TensorLeaf):
        # Nothing is drawn; tracers of torch draw what they then multiply by zero.
        record = given["input"].record
        zero = call.record(torch.zeros, ((),), {"dtype": record.dtype, "device": record.device})
        return call.record(torch.mul, (given["input"], zero))
    return (
        given["input"] if training is False and known and isinstance(given.get("input"), TensorLeaf) else NotImplemented
    )


@call_rule(torch.fused_moving_avg_obs_fake_quant)
def _observe_and_quantize(call: Call) -> Raw:
    """The first call for each channel gives the observer's buffers their sizes, of which fakes know nothing."""
    seen = call.kwargs.get("running_min", call.args[3] if len(call.args) > 3 else None)
    if isinstance(seen, TensorLeaf) and 0 in seen.record.sizes:
        raise call.broken(breaks.METADATA_MUTATION, "the buffers of an observer that has seen nothing yet")
    return NotImplemented
