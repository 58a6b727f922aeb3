"""Collectives: functional ones wait for their result at once, those that write to an argument are a functional one and a copy.

The group's name, its size and the operation are constants of the graph; that the group is the same one is guarded.
Source: torch/distributed/_functional_collectives.py and distributed_c10d.py (torch 2.15).
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from torchjit_fx.intrinsics import Value, group_name, group_rank, group_size, reduction_name, refuse

__all__ = ["collective_of"]

_ops: Value = torch.ops._c10d_functional


def _wait(result: Value) -> Value:
    return _ops.wait_tensor(result)


def _reduced(x: torch.Tensor, operation: Value, name: str) -> Value:
    return _wait(_ops.all_reduce(x, reduction_name(operation), name))


def _gathered(x: torch.Tensor, dim: int, name: str) -> Value:
    size = group_size(name)
    rows = _wait(_ops.all_gather_into_tensor(x, size, name))
    if dim < 0:
        dim += x.dim()
    return rows if dim == 0 else torch.cat(torch.chunk(rows, size, 0), dim)


def _scattered(x: torch.Tensor, operation: Value, dim: int, name: str) -> Value:
    size = group_size(name)
    if x.size(dim) % size != 0:
        refuse("a dimension that is no multiple of the group's size", True)
    if dim != 0:
        x = torch.cat(torch.chunk(x, size, dim))
    return _wait(_ops.reduce_scatter_tensor(x, reduction_name(operation), size, name))


def _exchanged(x: torch.Tensor, outgoing: Value, incoming: Value, name: str) -> Value:
    if outgoing is None and incoming is None:
        size = group_size(name)
        if x.size(0) % size != 0:
            refuse("a dimension that is no multiple of the group's size", True)
        outgoing = incoming = [x.size(0) // size] * size
    if outgoing is None or incoming is None:
        refuse("sizes of the parts for one direction only", True)
    return _wait(_ops.all_to_all_single(x, list(outgoing), list(incoming), name))


# ---- torch.distributed: these write to an argument and give nothing


def _write(target: Value, value: Value) -> None:
    if torch.is_grad_enabled() and target.requires_grad:
        refuse("a collective that writes to a tensor with a gradient: autograd does not see it", True)
    target.copy_(value)


def _check(async_op: bool, *tensors: Value) -> None:
    if async_op:
        refuse("async_op=True", True)
    for tensor in tensors:
        if tensor.is_complex() or not tensor.is_contiguous():
            refuse("a collective over complex numbers, or over memory that is not contiguous", True)


def all_reduce(tensor: torch.Tensor, op: Value = None, group: Value = None, async_op: bool = False) -> None:
    _check(async_op, tensor)
    _write(tensor, _reduced(tensor, op, group_name(group)))


def broadcast(
    tensor: torch.Tensor,
    src: int | None = None,
    group: Value = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> None:
    _check(async_op, tensor)
    name = group_name(group)
    if (src is None) == (group_src is None):
        refuse("one of src and group_src is needed", True)
    _write(tensor, _wait(_ops.broadcast(tensor, group_rank(name, src) if group_src is None else group_src, name)))


def all_gather_into_tensor(
    output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Value = None, async_op: bool = False
) -> None:
    _check(async_op, output_tensor, input_tensor)
    rows = _gathered(input_tensor.view(-1), 0, group_name(group))
    _write(output_tensor, rows.view(output_tensor.shape))


def all_gather(tensor_list: Value, tensor: torch.Tensor, group: Value = None, async_op: bool = False) -> None:
    _check(async_op, tensor, *tensor_list)
    if any([t.shape != tensor.shape for t in tensor_list]):
        refuse("parts of different sizes", True)
    parts = _gathered(tensor.view(-1), 0, group_name(group)).chunk(len(tensor_list))
    for target, part in zip(tensor_list, parts, strict=True):
        _write(target, part.view(tensor.shape))


def reduce_scatter_tensor(
    output: torch.Tensor, input: torch.Tensor, op: Value = None, group: Value = None, async_op: bool = False
) -> None:
    _check(async_op, output, input)
    part = _scattered(input.view(-1), op, 0, group_name(group))
    _write(output, part.view(output.shape))


def reduce_scatter(
    output: torch.Tensor, input_list: Value, op: Value = None, group: Value = None, async_op: bool = False
) -> None:
    _check(async_op, output, *input_list)
    if (
        output.device.type == "cpu"
    ):  # gloo sends other messages for it than for a tensor, and other ranks may run eagerly
        refuse("reduce_scatter of a list of tensors of a CPU", True)
    if any([t.shape != output.shape for t in input_list]):
        refuse("parts of different sizes", True)
    rows = torch.cat([t.view(-1) for t in input_list])
    _write(output, _scattered(rows, op, 0, group_name(group)).view(output.shape))


def all_to_all_single(
    output: torch.Tensor,
    input: torch.Tensor,
    output_split_sizes: Value = None,
    input_split_sizes: Value = None,
    group: Value = None,
    async_op: bool = False,
) -> None:
    _check(async_op, output, input)
    _write(output, _exchanged(input, output_split_sizes, input_split_sizes, group_name(group)))


_FUNCTIONAL = "torch.distributed._functional_collectives"
_C10D = "torch.distributed.distributed_c10d"
_TABLE: dict[tuple[str, str], Callable[..., Any]] = {
    # their parameters are called as in torch
    (_FUNCTIONAL, "all_reduce"): lambda self, reduceOp, group, tag="": _reduced(self, reduceOp, group_name(group, tag)),
    **dict.fromkeys(
        ((_FUNCTIONAL, "all_gather_tensor"), (_FUNCTIONAL, "all_gather_single")),
        lambda self, gather_dim, group, tag="": _gathered(self, gather_dim, group_name(group, tag)),
    ),
    **dict.fromkeys(
        ((_FUNCTIONAL, "reduce_scatter_tensor"), (_FUNCTIONAL, "reduce_scatter_single")),
        lambda self, reduceOp, scatter_dim, group, tag="": _scattered(
            self, reduceOp, scatter_dim, group_name(group, tag)
        ),
    ),
    (_FUNCTIONAL, "all_to_all_single"): lambda self, output_split_sizes, input_split_sizes, group, tag="": _exchanged(
        self, output_split_sizes, input_split_sizes, group_name(group, tag)
    ),
    (_FUNCTIONAL, "broadcast"): lambda self, src, group, tag="": _wait(
        _ops.broadcast(self, src, group_name(group, tag))
    ),
    (_FUNCTIONAL, "wait_tensor"): lambda tensor: _wait(tensor),
    (_C10D, "all_reduce"): all_reduce,
    (_C10D, "broadcast"): broadcast,
    (_C10D, "all_gather_into_tensor"): all_gather_into_tensor,
    (_C10D, "all_gather_single"): all_gather_into_tensor,
    (_C10D, "_all_gather_base"): all_gather_into_tensor,
    (_C10D, "all_gather"): all_gather,
    (_C10D, "reduce_scatter_tensor"): reduce_scatter_tensor,
    (_C10D, "reduce_scatter_single"): reduce_scatter_tensor,
    (_C10D, "_reduce_scatter_base"): reduce_scatter_tensor,
    (_C10D, "reduce_scatter"): reduce_scatter,
    (_C10D, "all_to_all_single"): all_to_all_single,
    (_C10D, "get_world_size"): lambda group=None: group_size(group_name(group)),
    (_C10D, "get_rank"): lambda group=None: group_rank(group_name(group), None),
}


def collective_of(function: types.FunctionType) -> Callable[..., Any] | None:
    """What is interpreted instead of a function of torch.distributed."""
    return _TABLE.get((function.__module__, function.__qualname__))
