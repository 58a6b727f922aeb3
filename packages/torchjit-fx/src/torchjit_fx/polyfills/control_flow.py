"""`torch.cond`, `while_loop` and `scan`: each branch or body is captured once, and the call becomes one node."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from torchjit_fx.intrinsics import Value, enter_body, finish_control_flow, leave_body, refuse
from torchjit_fx.leaves import Function

__all__ = ["cond", "scan", "while_loop"]


def _body(function: Function, flat: list[Value], spec: Value, rows: int) -> tuple[list[Any], Any]:
    """Capture one body: its flat results and their structure."""
    seen = enter_body(flat, rows)
    results, results_spec = tree_flatten(function(*tree_unflatten(seen, spec)))
    leave_body(results)
    return results, results_spec


def _only_tensors(values: list[Value]) -> bool:
    return all([isinstance(v, torch.Tensor) for v in values])


def cond(pred: Value, true_fn: Value, false_fn: Value, operands: Value = ()) -> Value:
    """Interpreted instead of `torch.cond`. Where Python decides the condition, it is the branch itself."""
    if isinstance(pred, (bool, int, float)):
        return true_fn(*operands) if pred else false_fn(*operands)
    if not isinstance(pred, torch.Tensor) or pred.dtype is not torch.bool or pred.numel() != 1:
        refuse("a condition that is no boolean tensor of one element")
    flat, spec = tree_flatten(tuple(operands))
    if not _only_tensors(flat):
        refuse("operands of cond that are no tensors")
    _, true_spec = _body(true_fn, flat, spec, len(flat))
    _, false_spec = _body(false_fn, flat, spec, len(flat))
    if true_spec != false_spec:
        refuse("branches of cond whose results differ in structure")
    return tree_unflatten(finish_control_flow("cond", [pred], flat), true_spec)


def while_loop(cond_fn: Value, body_fn: Value, carried_inputs: Value) -> Value:
    """Interpreted instead of `torch.while_loop`."""
    flat, spec = tree_flatten(carried_inputs)
    if not isinstance(carried_inputs, (tuple, list)) or not _only_tensors(flat):
        refuse("a while_loop whose state holds something that is no tensor")
    decision, _ = _body(cond_fn, flat, spec, len(flat))
    if len(decision) != 1:
        refuse("a while_loop whose condition gives no tensor")
    results, _ = _body(body_fn, flat, spec, len(flat))
    if len(results) != len(flat):
        refuse("a while_loop whose body gives another number of tensors")
    return tuple(finish_control_flow("while_loop", [], flat))


def scan(
    combine_fn: Value, init: Value, xs: Value, *, dim: Value = 0, reverse: Value = False, length: Value = None
) -> tuple[Value, Value]:
    """Interpreted instead of `torch._higher_order_ops.scan`."""
    state, state_spec = tree_flatten(init)
    columns, columns_spec = tree_flatten(xs)
    if length is not None or not state or not columns or not _only_tensors([*state, *columns]):
        refuse("a scan with a length, or over something that is no tensor")
    _check_columns(columns, dim)
    rows = [_turned(torch.movedim(c, dim, 0) if dim != 0 else c, reverse) for c in columns]
    flat, spec = tree_flatten((init, tree_unflatten(rows, columns_spec)))
    _, results_spec = _body(combine_fn, flat, spec, len(state))
    carry, out = tree_unflatten(finish_control_flow("scan", [], flat), results_spec)
    if tree_flatten(carry)[1] != state_spec:
        refuse("a scan whose state changes its structure")
    if reverse or dim != 0:
        out = tree_map(lambda t: _back(_turned(t, reverse), dim), out)
    return carry, out


def _check_columns(columns: list[Value], dim: Value) -> None:
    """Refuse a scan whose tensors cannot be gone through together."""
    if type(dim) is not int or any([not 0 <= dim < c.dim() for c in columns]):
        refuse("a scan over such a dimension")
    length = columns[0].shape[dim]
    if length == 0 or any([c.shape[dim] != length for c in columns]):
        refuse("a scan over tensors of different lengths, or of none")


def _turned(tensor: Value, reverse: Value) -> Value:
    return torch.flip(tensor, [0]) if reverse else tensor


def _back(tensor: Value, dim: int) -> Value:
    return torch.movedim(tensor, 0, dim) if 0 < dim < tensor.dim() else tensor
