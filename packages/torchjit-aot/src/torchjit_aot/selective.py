"""Selective checkpoints: the program's policy says for each operator what becomes of its result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.utils.checkpoint import CheckpointPolicy, SelectiveCheckpointContext

from torchjit_core.storing import relied_on

__all__ = ["what_to_do"]

_TELLS_OUTPUT = "op_output" in inspect.signature(SelectiveCheckpointContext).parameters
"""Newer releases of torch also tell the policy what the operator gave."""


def what_to_do(
    policy: Callable[..., Any], func: object, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any
) -> CheckpointPolicy:
    """What the policy says about this call, which torch's own selective checkpoint asks in the forward, once."""
    relied_on(policy)
    told = {"op_output": out} if _TELLS_OUTPUT else {}
    said = policy(SelectiveCheckpointContext(is_recompute=False, **told), func, *args, **kwargs)
    if isinstance(said, bool):
        return CheckpointPolicy.MUST_SAVE if said else CheckpointPolicy.PREFER_RECOMPUTE
    return CheckpointPolicy(said)
