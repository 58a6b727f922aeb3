"""Items of tensors whose place is a number that varies: `x[i]`, `x[:, i] = y`, `x[:t]`.

PyTorch asks an index for its value, which would fix it: one compilation for each `i`. `torch.select` takes it as it is, and selecting first is
what indexing does, too. A slice may be given tensors for its ends: their numbers are read as `item()` reads them.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import attrs
import torch

from torchjit_core.expr import as_expr, conj, ge, lt
from torchjit_fx.calls.call import Call, call_rule
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.flatten import dimensions
from torchjit_fx.leaves import Raw, SymLeaf, TensorLeaf
from torchjit_fx.protocols import CaptureContext
from torchjit_fx.symbols.unbacked import read_number

__all__: list[str] = []

_INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})


@call_rule(operator.getitem, operator.setitem, torch.Tensor.__getitem__, torch.Tensor.__setitem__, on=TensorLeaf)
def _item(call: Call) -> Raw:
    """`x[key]`, and `x[key] = value`."""
    if len(call.args) < 2 or call.kwargs:
        return NotImplemented
    key: list[Raw] = list(call.args[1]) if type(call.args[1]) is tuple else [call.args[1]]
    if not any(type(k) is SymLeaf or type(k) is slice for k in key):
        return NotImplemented
    read: list[Raw] = [_with_numbers(call.domain, k, call.capture) if type(k) is slice else k for k in key]
    parts = _parts(read, len(call.args[0].record.sizes))
    if parts is not None and call.capture.may_catch() and any(map(_is_of_the_run, read)):
        parts = None  # whether it is in range shows behind the program's `except`
    if parts is not None:
        return _by_parts(call, parts)
    same = all(a is b for a, b in zip(read, key, strict=True))
    return NotImplemented if same else call.record(call.function, (call.args[0], tuple(read), *call.args[2:]))


def _is_of_the_run(item: Raw) -> bool:
    return type(item) is SymLeaf and not item.value.node.has_hint()


def _by_parts(call: Call, parts: _Parts) -> Raw:
    base = call.args[0]
    if any(item is not _WHOLE for item in parts.basic):
        base = call.record(operator.getitem, (base, parts.basic))
    if not all(_is_inside(index, base.record.sizes[dim]) for dim, index in parts.selected):
        return NotImplemented  # the number is read, and eager's error raised
    for dim, index in reversed(parts.selected):
        base = call.record(torch.select, (base, dim, index))
    if not parts.tensors and len(call.args) == 2:
        return base
    return call.record(call.function, (base, parts.tensors or Ellipsis, *call.args[2:]))


def _is_inside(index: SymLeaf, size: Raw) -> bool:
    """Is the place in range? A guard of the region says so from here on; what only the run knows, the run finds out."""
    node = index.value.node
    if not node.has_hint():
        return True
    place, length = node.expression, as_expr(size)
    return bool(node.context.decide(conj(ge(place, -length), lt(place, length))))


def _with_numbers(domain: CallDomain, piece: slice, capture: CaptureContext) -> slice:
    """The slice with the numbers that tensors hold."""
    ends = (piece.start, piece.stop, piece.step)
    if not domain.settings.capture_scalar_outputs or not any(isinstance(end, TensorLeaf) for end in ends):
        return piece
    return slice(*[read_number(domain, end, "a slice", capture) if _is_number(end) else end for end in ends])


def _is_number(end: Any) -> bool:
    return isinstance(end, TensorLeaf) and end.record.sizes == () and end.record.dtype in _INTEGERS


_WHOLE = slice(None)


@attrs.frozen
class _Parts:
    """What indexing does one after the other.

    Attributes:
        basic: a key without symbolic integers and tensors, of slices that keep their dimensions.
        selected: dimensions of what that gives, in order, and the integer that chooses from each.
        tensors: a key for what is left, empty where there are none.
    """

    basic: tuple[Any, ...]
    selected: tuple[tuple[int, SymLeaf], ...]
    tensors: tuple[Any, ...]


def _is_usual(key: Sequence[Raw]) -> bool:
    """Are there numbers that vary, all of them ints, no truth values, and one ellipsis at most?"""
    numbers = [item.value for item in key if type(item) is SymLeaf]
    if not numbers or not all(isinstance(n, torch.SymInt) for n in numbers):
        return False
    return sum(item is Ellipsis for item in key) <= 1 and not any(type(item) is bool for item in key)


def _parts(key: Sequence[Any], rank: int) -> _Parts | None:
    """A key with symbolic integers, taken apart; None for others, and for those of an unusual kind."""
    taken = [dimensions(item) for item in key]
    rest = rank - sum(n for n in taken if n is not None)
    if rest < 0 or None in taken or not _is_usual(key):
        return None
    basic: list[Raw] = []
    selected: list[tuple[int, SymLeaf]] = []
    tensors: list[Raw] = []
    dim = 0
    for item, count in zip(key, taken, strict=True):
        if type(item) is SymLeaf:
            selected.append((dim, item))
            basic.append(_WHOLE)
            dim += 1
        elif isinstance(item, TensorLeaf):
            tensors.append(item)
            basic += [_WHOLE] * (count or 0)
            dim += count or 0
        else:
            kept = rest if item is Ellipsis else int(type(item) is not int)
            basic += [_WHOLE] * rest if item is Ellipsis else [item]
            tensors += [_WHOLE] * kept
            dim += kept
    holds_tensors = any(isinstance(item, TensorLeaf) for item in key)
    return _Parts(tuple(basic), tuple(selected), tuple(tensors) if holds_tensors else ())
