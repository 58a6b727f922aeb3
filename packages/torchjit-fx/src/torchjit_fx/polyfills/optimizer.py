"""Optimizers. `step` is captured as a whole or not at all."""

from __future__ import annotations

from typing import Any

import torch

from torchjit_fx.intrinsics import Value, refuse
from torchjit_fx.leaves import Function

__all__ = [
    "adam_one_by_one",
    "captured_step",
    "group_tensors_by_device_and_dtype",
    "step_of_fused",
    "step_without_gradients",
]


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


def adam_one_by_one(original: Function) -> Function:
    """What is interpreted instead of `_single_tensor_adam`, which `Adam` and `AdamW` call where they do not work on lists.

    With step counts in tensors `original` divides by the learning rate: where a schedule begins with a rate of 0, averages of 0
    (an embedding's row that no token used) would give 0 / 0. Here the rate is a factor, as it is in eager PyTorch.
    """

    def run(
        params: Value,
        grads: Value,
        exp_avgs: Value,
        exp_avg_sqs: Value,
        max_exp_avg_sqs: Value,
        state_steps: Value,
        grad_scale: Value,
        found_inf: Value,
        **settings: Value,
    ) -> None:
        beta1, beta2, lr = settings["beta1"], settings["beta2"], settings["lr"]
        unusual = [settings[name] for name in ("differentiable", "has_complex")] + [not settings["capturable"]]
        if any(unusual) or isinstance(beta1, torch.Tensor) or isinstance(beta2, torch.Tensor):
            original(
                params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, grad_scale, found_inf, **settings
            )
            return
        if isinstance(lr, torch.Tensor) and lr.dim() > 0:
            lr = lr.squeeze()
        for i, param in enumerate(params):
            grad, average, square, step = grads[i], exp_avgs[i], exp_avg_sqs[i], state_steps[i]
            if settings["maximize"]:
                grad = -grad
            step += 1
            decay = settings["weight_decay"]
            if decay != 0 and settings["decoupled_weight_decay"]:
                param.mul_(1 - lr * decay)
            elif decay != 0:
                grad = grad.add(param, alpha=decay)
            average.lerp_(grad, 1 - beta1)
            square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
            if settings["amsgrad"]:
                max_exp_avg_sqs[i].copy_(torch.maximum(max_exp_avg_sqs[i], square))
                square = max_exp_avg_sqs[i]
            count = step.to(torch.promote_types(step.dtype, param.dtype))  # fused optimizers count in float32
            size = lr / (1 - beta1**count)
            width = (square.sqrt() / (1 - beta2**count).sqrt()).add_(settings["eps"])
            param.addcdiv_(average * -size, width)

    return run


def step_of_fused(one_by_one: Function, on_lists: Function) -> Function:
    """What is interpreted instead of `_fused_adam` and `_fused_sgd`: the same step, of which kernels are made.

    The operators that these call take the learning rate as a constant, and nothing is fused with them. Where a `GradScaler` is to be asked,
    and where the original raises, the operator is called, which breaks the graph.
    """

    def run(params: Value, *state: Value, grad_scale: Value, found_inf: Value, **settings: Value) -> None:
        if len(params) == 0:
            return
        unusual = [settings.get(name, False) for name in ("differentiable", "has_complex", "has_sparse_grad")]
        if grad_scale is not None or found_inf is not None or any(unusual):
            refuse("a fused optimizer with a GradScaler, or with gradients that it does not take")
        step = on_lists if params[0].is_cuda else one_by_one
        step(params, *state, grad_scale=None, found_inf=None, **settings)

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
