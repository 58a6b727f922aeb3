"""What lowering needs to know about tensors, whether torch is there or not.

`torchjit_guards.torch_support` knows torch; it is imported only when torch already is, so that this package works,
and stays light, without it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import attrs
from torchjit_core.guards import TensorMatches
from torchjit_core.paths import Arg

__all__ = ["ambient_address", "tensor_test"]

_TENSOR = Arg.of(0, "tensor")


def tensor_test(guard: TensorMatches) -> tuple[Callable[[Any], bool], tuple[Any, ...] | None]:
    """The slow test of a tensor, by attributes, and what the raw test compares (None: there is no raw test)."""
    test = functools.partial(_matches, attrs.evolve(guard, path=_TENSOR))
    if "torch" not in sys.modules:
        return test, None
    from torchjit_guards import torch_support  # imports torch: only when somebody else already did

    return test, torch_support.tensor_spec(guard)


def _matches(guard: TensorMatches, tensor: Any) -> bool:
    return guard.check((tensor,)) and key_set_holds(guard, tensor)


def key_set_holds(guard: TensorMatches, tensor: Any) -> bool:
    """Does the tensor have the guard's dispatch key set (None: any)?"""
    if guard.key_set is None:
        return True
    from torchjit_guards import torch_support  # key sets are torch's: whoever recorded one has torch

    keys = torch_support.dispatch_keys(tensor)
    return bool(guard.key_set == (keys.raw_repr() if isinstance(guard.key_set, int) else str(keys)))


def ambient_address(read: Callable[[], Any]) -> int | None:
    """The address of a C function `bool f(void)` that answers the same as `read`, if there is one."""
    if "torch" not in sys.modules:
        return None
    from torchjit_guards import torch_support  # imports torch: only when somebody else already did

    return torch_support.ambient_address(read)
