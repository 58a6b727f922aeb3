"""The questions which kernel torch would take for attention: what they are asked about is of C, and holds tensors."""

from __future__ import annotations

from collections.abc import Callable

import torch

from torchjit_fx.intrinsics import Value, ask_metadata, refuse

__all__ = ["QUESTIONS", "REMADE", "AttentionParams"]

_C: Value = torch._C


class AttentionParams:
    """Interpreted instead of `torch.backends.cuda.SDPAParams`."""

    def __init__(
        self,
        query: Value,
        key: Value,
        value: Value,
        attn_mask: Value,
        dropout: Value,
        is_causal: Value,
        enable_gqa: Value,
    ) -> None:
        self.query, self.key, self.value, self.attn_mask = query, key, value, attn_mask
        self.dropout, self.is_causal, self.enable_gqa = dropout, is_causal, enable_gqa


REMADE: dict[type, tuple[type, tuple[str, ...]]] = {
    AttentionParams: (
        _C._SDPAParams,
        ("query", "key", "value", "attn_mask", "dropout", "is_causal", "enable_gqa"),
    )
}
"""What leaves a region in the place of such an instance: the class, and the attributes that its constructor is given."""


def _question(asked: Value, enabled: Value) -> Callable[..., Value]:
    def can_use_flash_attention(*given: Value) -> bool:
        # By this name it is known that metadata answers it (see `answers`).
        return bool(asked(_C._SDPAParams(*given), False))

    def ask(params: Value, debug: Value = False) -> Value:
        if debug:
            refuse("a question that warns")
        if not enabled():  # this is guarded
            return False
        given = (
            params.query,
            params.key,
            params.value,
            params.attn_mask,
            params.dropout,
            params.is_causal,
            params.enable_gqa,
        )
        return ask_metadata(can_use_flash_attention, given)

    return ask


QUESTIONS: dict[Value, Callable[..., Value]] = {
    getattr(_C, f"_can_use_{kernel}"): _question(
        getattr(_C, f"_can_use_{kernel}"), getattr(_C, f"_get_{flag}_sdp_enabled")
    )
    for kernel, flag in (
        ("flash_attention", "flash"),
        ("mem_efficient_attention", "mem_efficient"),
        ("cudnn_attention", "cudnn"),
    )
}
