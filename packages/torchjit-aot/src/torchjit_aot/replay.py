"""Run a torch-level graph, node by node, on fake tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

from torchjit_aot.refusals import LSTM_DROPOUT, METADATA_MUTATION
from torchjit_core.reasons import GraphBreak

__all__ = ["module_attribute", "replay"]

_RECURRENT = frozenset(getattr(torch._VF, name) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"))


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
        _refuse(node, args)
        env[node] = _run(gm, node, args, kwargs)
    return None


def _run(gm: fx.GraphModule, node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if node.op == "call_function":
        return node.target(*args, **kwargs)  # type: ignore[operator]
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return gm.get_submodule(str(node.target))(*args, **kwargs)


def _refuse(node: fx.Node, args: Sequence[Any]) -> None:
    target = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if node.op != "call_module" and name in ("requires_grad_", "retain_grad", "register_hook", "set_"):
        raise GraphBreak(METADATA_MUTATION, name)
    if node.op == "call_function" and target in _RECURRENT:
        # (input, hx, params, has_biases, num_layers, dropout, train, ...), or with batch_sizes second
        numbers = [a for a in args if isinstance(a, float)]
        if any(p > 0 for p in numbers) and True in args:
            raise GraphBreak(LSTM_DROPOUT, name)
