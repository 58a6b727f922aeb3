"""Functions of layers that fakes take otherwise than eager."""

from __future__ import annotations

import torch
import torch.nn.functional as F

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


@call_rule(F.multilabel_margin_loss)
def _one_row(call: Call) -> Raw:
    """`multilabel_margin_loss` of one row is a number, reduced or not; on fakes, not reduced, torch gives it a dimension."""
    given = dict(zip(("input", "target", "size_average", "reduce", "reduction"), call.args, strict=False)) | call.kwargs
    deprecated = given.get("size_average") is not None or given.get("reduce") is not None
    whole = given.get("reduce") is False if deprecated else given.get("reduction") == "none"
    leaf = given.get("input")
    if not whole or not isinstance(leaf, TensorLeaf) or len(leaf.record.sizes) > 1:
        return NotImplemented
    return call.record(call.function, (leaf, given.get("target")), {"reduction": "sum"})
