"""Optimizers. `step` is captured as a whole or not at all."""

from __future__ import annotations

from typing import Any

import torch

from torchjit_fx.intrinsics import Value, refuse
from torchjit_fx.leaves import Function

__all__ = ["captured_step", "group_tensors_by_device_and_dtype", "step_without_gradients"]


def captured_step(step: Function) -> Function:
    """What is interpreted instead of the wrapper that every optimizer puts around its `step`.

    The step counts stay in tensors (torch's own `capturable`, which libraries' code under a compiler expects), so that
    no count becomes a constant; the setting is put back before anybody can see it.
    """

    def run(*args: Value, **kwargs: Value) -> Value:
        optimizer = args[0]
        switched = [group for group in optimizer.param_groups if group.get("capturable") is False]
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(optimizer.defaults["differentiable"])
        for group in switched:
            group["capturable"] = True
        result = step(*args, **kwargs)
        for group in switched:
            group["capturable"] = False
        torch.set_grad_enabled(before)
        return result

    return run


def step_without_gradients(step: Function) -> Function:
    """What is interpreted instead of a `step` that is decorated with `torch.no_grad()`."""

    def run(*args: Value, **kwargs: Value) -> Value:
        with torch.no_grad():
            return step(*args, **kwargs)

    return run


def group_tensors_by_device_and_dtype(tensorlists: Value, with_indices: bool = False) -> Value:
    """Interpreted instead of the C function of this name. Source: torch/csrc/Module.cpp, ForeachUtils.h (torch 2.15)."""
    count = len(tensorlists[0]) if len(tensorlists) > 0 else 0
    if count == 0 or any([len(tensors) not in (0, count) for tensors in tensorlists]):
        refuse("lists of tensors of different lengths, or none")
    groups: dict[Any, Any] = {}
    for i, first in enumerate(tensorlists[0]):
        if first is None:
            refuse("a list of tensors with None in it")
        key = (first.device, first.dtype)
        if key not in groups:
            groups[key] = ([[] for _ in tensorlists], [])
        lists, indices = groups[key]
        for target, source in zip(lists, tensorlists, strict=True):
            if len(source) > 0:
                target.append(source[i])
        if with_indices:
            indices.append(i)
    return dict(list(groups.items())[::-1])  # the C++ library's table has its newest key first
