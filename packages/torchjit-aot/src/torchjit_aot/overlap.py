"""Inputs that share memory while one of them is written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchjit_aot.joint import JointGraph
from torchjit_aot.refusals import SHARED_STORAGE
from torchjit_core.reasons import GraphBreak

__all__ = ["guard_overlap", "refuse_shared_storage"]


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def refuse_shared_storage(joint: JointGraph) -> None:
    """Look at the real inputs of this call.

    Raises:
        GraphBreak: an input is written to and another one shares its storage.
    """
    if not joint.mutated:
        return
    count: dict[int, int] = {}
    for source in joint.sources:
        if isinstance(source.real, torch.Tensor):
            key = _storage(source.real)
            count[key] = count.get(key, 0) + 1
    for index in joint.mutated:
        source = joint.sources[index]
        if count[_storage(source.real)] > 1:
            raise GraphBreak(SHARED_STORAGE, source.name)


def guard_overlap(joint: JointGraph, compiled: Callable[..., Any], eager: Callable[..., Any]) -> Callable[..., Any]:
    """Look again at each call, where it can happen: a written input that is not static, beside other such tensors."""
    moving = [i for i, s in enumerate(joint.sources) if isinstance(s.real, torch.Tensor) and not s.static]
    written = [i for i in joint.mutated if i in moving]
    if not written or len(moving) < 2:
        return compiled
    others = [i for i in moving if i not in written]

    def checked(*args: Any) -> Any:
        storages = {_storage(args[i]) for i in written}
        if len(storages) < len(written) or not storages.isdisjoint([_storage(args[i]) for i in others]):
            return eager(*args)
        return compiled(*args)

    return checked
