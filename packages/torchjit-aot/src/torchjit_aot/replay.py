"""Run a torch-level graph, node by node, on fake tensors."""

from __future__ import annotations

import copy
import functools
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any, final

import torch
from torch import fx
from torch.fx.node import map_arg
from torch.overrides import TorchFunctionMode

from torchjit_aot.inputs import no_autocast
from torchjit_aot.recurrent import RECURRENT, run_recurrent
from torchjit_aot.refusals import LSTM_DROPOUT, METADATA_MUTATION, TRACE_FAILED
from torchjit_aot.symbols import calculate
from torchjit_core.reasons import GraphBreak

__all__ = ["module_attribute", "replay", "with_usable_mask"]

_ROW_LOSSES = (torch.nn.functional.multilabel_margin_loss, torch._C._nn.multilabel_margin_loss)


def module_attribute(module: torch.nn.Module, target: str) -> Any:
    """`a.b.c` of a module."""
    return operator.attrgetter(target)(module)


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
            env[node] = module_attribute(gm, node.target)
            continue
        args = map_arg(node.args, env.__getitem__)
        kwargs = map_arg(node.kwargs, env.__getitem__)
        if node.op == "output":
            return args[0]
        _refuse(node, args, inputs)
        if node.target not in RECURRENT:
            refuse_recurrent_dropout(node.target, args)
        with _Watch() if _is_opaque(gm, node) else nullcontext():
            env[node] = _run(gm, node, args, kwargs)
        if node.target not in RECURRENT:
            refuse_wrong_shape(node.target, args, env[node])
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
            return _run_layer(node.target, args, kwargs)
        if node.target in _LEFT_ALONE and "out" in kwargs:
            with no_autocast():
                return node.target(*args, **kwargs)  # type: ignore[operator]
        return node.target(*args, **kwargs)  # type: ignore[operator]
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return gm.get_submodule(str(node.target))(*args, **kwargs)


def _run_layer(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A recurrent layer, as one operator if it can be."""
    made = run_recurrent(function, args, kwargs)
    if made is not NotImplemented:
        return made
    refuse_recurrent_dropout(function, args)
    made = function(*(_for_training(args) if function is torch.lstm else args), **kwargs)
    refuse_wrong_shape(function, args, made)
    return made


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


def _for_training(args: Sequence[Any]) -> Sequence[Any]:
    """The arguments of an LSTM on the CPU, so that it can be differentiated.

    torch's decomposition takes oneDNN's kernel where the input requires no gradient, although the weights do, and runs it without
    the workspace that its backward reads. For an input that requires gradient it takes the layer apart.
    """
    data = args[0]
    if not torch.is_grad_enabled() or data.requires_grad or data.device.type != "cpu":
        return args
    if not any(isinstance(t, torch.Tensor) and t.requires_grad for part in args[1:3] for t in part):
        return args
    return (data.detach().requires_grad_(), *args[1:])


def with_usable_mask(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments of an attention, with a mask that the fused CUDA kernels take.

    They want its last dimension to have stride 1. Eager PyTorch computes with an expanded mask (all keys alike) in single
    steps, in float32 and with the scores in memory: compiled programs meet such masks where a library skips
    them in eager mode. Dimensions of stride 0 before the last two stay expanded.
    """
    mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
    if not isinstance(mask, torch.Tensor) or not mask.is_cuda or mask.dim() < 2:
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


def refuse_recurrent_dropout(func: Any, args: Sequence[Any]) -> None:
    """Look at a call of `torch.lstm` and its like, or of a dropout.

    The arguments are (input, hx, params, has_biases, num_layers, dropout, train, ...), with batch sizes second if packed.

    Raises:
        GraphBreak: it applies dropout that draws otherwise than eager PyTorch.
    """
    if func in RECURRENT and any(isinstance(a, float) and a > 0 and b is True for a, b in pairwise(args)):
        raise GraphBreak(LSTM_DROPOUT, getattr(func, "__name__", ""))
    if args and isinstance(args[0], torch.Tensor) and args[0].is_complex():
        name = getattr(func, "__name__", str(func))
        if "dropout" in name:
            raise GraphBreak(LSTM_DROPOUT, f"{name} of complex numbers")


def refuse_wrong_shape(func: Any, args: Sequence[Any], out: Any) -> None:
    """What torch traces with a dimension too many: the final states of a deep LSTM (2.11), a loss of one row (2.15).

    Raises:
        GraphBreak: it did.
    """
    if func in RECURRENT:
        states = next((a for a in args[1:3] if isinstance(a, (tuple, list)) and a), ())
        if len(out) == 1 + len(states) and any(a.dim() != b.dim() for a, b in zip(out[1:], states, strict=True)):
            raise GraphBreak(TRACE_FAILED, "the final states of a recurrent layer have a wrong shape")
    if func in _ROW_LOSSES and isinstance(out, torch.Tensor) and out.dim() > 0 and args[0].dim() < 2:
        raise GraphBreak(TRACE_FAILED, "the loss of one row has a wrong shape")
    if func in _ROW_LOSSES and not _formula_ends_at_the_last_label():
        raise GraphBreak(
            TRACE_FAILED, "the formula that this version of torch has for the loss goes on behind the last label"
        )


@functools.cache
def _formula_ends_at_the_last_label() -> bool:
    """Is torch's own formula of `multilabel_margin_loss` its kernel's? With torch 2.11 it compares with labels behind the first -1, too."""
    formula = torch._decomp.decomposition_table.get(torch.ops.aten.multilabel_margin_loss_forward.default)
    if formula is None:
        return True
    with torch.utils._python_dispatch._disable_current_modes(), torch._C.DisableTorchFunction():
        # The kernel is not asked: while a graph is traced its formula may run in its place.
        loss = formula(torch.tensor([[0.5, 0.25, 0.0]]), torch.tensor([[1, -1, 0]]), 0)[0]
        return abs(float(loss) - 2 / 3) < 1e-3


@final
class _Watch(TorchFunctionMode):
    """Sees the torch functions that opaque Python functions call."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in RECURRENT:
            return _run_layer(func, args, kwargs or {})
        refuse_recurrent_dropout(func, args)
        out = func(*args, **(kwargs or {}))
        refuse_wrong_shape(func, args, out)
        return out


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
