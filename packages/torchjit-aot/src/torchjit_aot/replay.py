"""Run a torch-level graph, node by node, on fake tensors."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, final

import torch
from torch import fx
from torch.fx.node import map_arg
from torch.overrides import TorchFunctionMode

from torchjit_aot.inputs import no_autocast
from torchjit_aot.recurrent import RECURRENT, run_recurrent
from torchjit_aot.refusals import COMPLEX_DROPOUT, METADATA_MUTATION, TRACE_FAILED
from torchjit_aot.symbols import calculate
from torchjit_aot.upsampling import INTERPOLATIONS, run_interpolation
from torchjit_core.reasons import GraphBreak
from torchjit_core.user_warnings import call_from
from torchjit_torch.graph_calls import attribute_of

__all__ = ["replay", "with_usable_mask"]

_ROW_LOSSES = (torch.nn.functional.multilabel_margin_loss, torch._C._nn.multilabel_margin_loss)


def replay(gm: fx.GraphModule, inputs: Sequence[Any], enter: Callable[[fx.Node], None]) -> Any:
    """Run the graph.

    Args:
        gm: the graph.
        inputs: one value per placeholder.
        enter: called with each node before it runs.

    Returns:
        The output node's argument with the values in place of the nodes.

    Raises:
        GraphBreak: the graph does what a compiled graph cannot do.
    """
    env: dict[fx.Node, Any] = {}
    remaining = iter(inputs)
    for node in gm.graph.nodes:
        enter(node)
        if node.op == "placeholder":
            env[node] = next(remaining)
            continue
        if node.op == "get_attr":
            env[node] = attribute_of(gm, node)
            continue
        args = map_arg(node.args, env.__getitem__)
        kwargs = map_arg(node.kwargs, env.__getitem__)
        if node.op == "output":
            return args[0]
        _refuse(node, args, inputs)
        _refuse_operator(node.target, args)
        with _Watch() if _is_opaque(gm, node) else nullcontext():
            env[node] = _run(gm, node, args, kwargs)
    return None


def _run(gm: fx.GraphModule, node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if node.op == "call_function":
        if not kwargs and (made := calculate(node.target, args)) is not NotImplemented:
            return made
        if node.target is torch.nn.functional.scaled_dot_product_attention:
            args, kwargs = with_usable_mask(args, kwargs)
        if node.target is copy.deepcopy:
            return _copied(args[0])
        if node.target in RECURRENT:
            return run_recurrent(node.target, args, kwargs)  # type: ignore[arg-type]
        if node.target in INTERPOLATIONS:
            return run_interpolation(node.target, args, kwargs)  # type: ignore[arg-type]
        if node.target in _LEFT_ALONE and "out" in kwargs:
            with no_autocast():
                return node.target(*args, **kwargs)  # type: ignore[operator]
        return _call(node, node.target, args, kwargs)  # type: ignore[arg-type]
    if node.op == "call_method":
        return _call(node, getattr(args[0], str(node.target)), args[1:], kwargs)
    return gm.get_submodule(str(node.target))(*args, **kwargs)


def _call(node: fx.Node, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    where = node.meta.get("location")
    return function(*args, **kwargs) if where is None else call_from(where, function, args, kwargs)


def _copied(value: Any) -> Any:
    """`copy.deepcopy`. torch's own would copy all that a fake names: its mode, and the sizes that the mode knows of."""
    if not isinstance(value, torch.Tensor):
        return value  # a symbolic number
    if not value.is_leaf:
        raise GraphBreak(TRACE_FAILED, "copy.deepcopy of a tensor with a history")
    with torch.no_grad():
        made = value.clone()
    return made.requires_grad_() if value.requires_grad else made


_LEFT_ALONE = (torch.matmul, torch.linalg.matmul)
"""Autocast does not touch calls with `out=`; torch's decomposition of these calls operators that it does touch."""


def with_usable_mask(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments of an attention, with a mask that the fused CUDA kernels take.

    They want its last dimension to have stride 1. Eager PyTorch computes with an expanded mask (all keys alike) in single
    steps, in float32 and with the scores in memory: compiled programs meet such masks where a library skips
    them in eager mode. Dimensions of stride 0 before the last two stay expanded.
    """
    mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
    if not isinstance(mask, torch.Tensor) or mask.device.type != "cuda" or mask.dim() < 2:
        return args, kwargs
    if not isinstance(mask.stride(-1), int) or mask.stride(-1) == 1 or mask.size(-1) == 1:
        return args, kwargs
    small = mask
    for dim in range(mask.dim() - 2):
        if mask.stride(dim) == 0:
            small = small.narrow(dim, 0, 1)
    made = small.contiguous().expand(mask.shape)
    if len(args) > 3:
        return (*args[:3], made, *args[4:]), kwargs
    return args, {**kwargs, "attn_mask": made}


def _refuse(node: fx.Node, args: Sequence[Any], inputs: Sequence[Any]) -> None:
    target = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if name == "requires_grad_" and not any(args[0] is value for value in inputs):
        return  # a leaf of the graph's own: gradients end there
    if node.op != "call_module" and name in ("requires_grad_", "retain_grad", "register_hook", "set_"):
        raise GraphBreak(METADATA_MUTATION, name)


def _refuse_operator(func: Any, args: Sequence[Any]) -> None:
    """Look at a call.

    Raises:
        GraphBreak: what torch traces is not what its kernels give: a dropout that draws otherwise, a loss of one row with a dimension
            too many, or (torch 2.11) with labels behind the last one.
    """
    if not args or not isinstance(args[0], torch.Tensor):
        return
    if args[0].is_complex() and "dropout" in (name := getattr(func, "__name__", str(func))):
        raise GraphBreak(COMPLEX_DROPOUT, name)
    if func in _ROW_LOSSES:
        raise GraphBreak(TRACE_FAILED, "torch's formula of multilabel_margin_loss is not its kernel's")


@final
class _Watch(TorchFunctionMode):
    """Sees the torch functions that opaque Python functions call."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in RECURRENT:
            return run_recurrent(func, args, kwargs or {})
        if func in INTERPOLATIONS:
            return run_interpolation(func, args, kwargs or {})
        _refuse_operator(func, args)
        return func(*args, **(kwargs or {}))


def _is_opaque(gm: fx.GraphModule, node: fx.Node) -> bool:
    """Does the node run Python code that may call anything?"""
    if node.op == "call_module":
        return not isinstance(gm.get_submodule(str(node.target)), _LEAF_MODULES)
    return inspect.isfunction(node.target) and not str(node.target.__module__).startswith("torch.")


_LEAF_MODULES = (
    torch.nn.Linear,
    torch.nn.modules.conv._ConvNd,
    torch.nn.modules.batchnorm._NormBase,
    torch.nn.LayerNorm,
)
