"""What eager's kernels check of memory before they run, and fake tensors do not: elements that are read and written at once.

Such an operation is not for a graph: there it raises with the program's effects still to come, or is accepted, because a compiler
writes what it computes to memory of its own.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from torchjit_fx.eager_rules.dtype_probe import is_elementwise
from torchjit_fx.eager_rules.known_sizes import holds, seen, unequal
from torchjit_fx.eager_rules.rule import OperatorCall, Overlap, Overload, Sizes, Value, tensors_in
from torchjit_torch.operators import written_arguments

__all__ = ["is_dense", "overlaps_itself", "refuse_memory"]


def overlaps_itself(sizes: Sizes, strides: Sizes) -> bool:
    """May two elements of such a tensor be one in memory? What a write leaves there depends on the order that it is made in.

    Args:
        sizes, strides: ints, and torch.SymInts.
    """
    seen_sizes, seen_strides = [seen(n) for n in sizes], [seen(n) for n in strides]
    if None in seen_sizes or None in seen_strides:
        return any(holds(stride == 0) and not holds(size == 1) for size, stride in zip(sizes, strides, strict=True))
    if 0 in seen_sizes:
        return not holds(sizes[seen_sizes.index(0)] == 0)
    # If each step is found to be beyond what the ones before reach, the order needs no guard.
    order: Value = sorted(range(len(sizes)), key=lambda d: (seen_strides[d], seen_sizes[d]))
    last: Value = 0
    for d in order:
        if seen_sizes[d] == 1 and holds(sizes[d] == 1):
            continue
        if holds(strides[d] <= last):
            return True
        last = last + strides[d] * (sizes[d] - 1)
    return False


def is_dense(sizes: Sizes, strides: Sizes) -> bool:
    """Are its elements, of which there are some, all that is between the first and the last?

    Args:
        sizes, strides: ints, and torch.SymInts.
    """
    if any(holds(n == 0) for n in sizes):
        return False
    expected: Value = 1
    for stride, size in sorted((stride, size) for size, stride in zip(sizes, strides, strict=True) if size != 1):
        if unequal(stride, expected):
            return False
        expected = expected * size
    return True


def refuse_memory(call: OperatorCall) -> None:
    """Raise if eager refuses to write to memory that the operation also reads.

    Raises:
        RuntimeError: it does.
    """
    written, in_full = _checks_memory(call.func, call.rule.overlap)
    if not written:
        return
    named = dict(zip((a.name for a in call.func._schema.arguments), call.args, strict=False)) | dict(call.kwargs)
    for name in written:
        out = named.get(name)
        if not isinstance(out, torch.Tensor):
            continue
        for other, value in named.items():
            if other not in written and any(_overlap(out, t, in_full) for t in tensors_in(value)):
                raise RuntimeError("unsupported operation: some elements are read and written")


@functools.cache
def _checks_memory(func: Overload, overlap: Overlap | None) -> tuple[frozenset[str], bool]:
    """The written arguments, if the kernel looks at their memory, and whether it refuses the same tensor as well."""
    written = frozenset(name for _, name in written_arguments(func))
    if func.namespace != "aten" or not written:
        return frozenset(), False
    if overlap is Overlap.REFUSED:
        return written, True
    elementwise = is_elementwise(func)
    if elementwise or overlap is Overlap.REFUSED_IN_PART:
        return written, False
    # Of others some look, and what the rest leave in their own operand is not defined: `torch.sum(x, 0, out=x)`.
    out = frozenset(a.name for a in func._schema.arguments if a.kwarg_only and a.name in written)
    return out, True


def _overlap(out: torch.Tensor, t: torch.Tensor, in_full: bool) -> bool:
    """As `at::get_overlap_status` has it, which gives up on tensors with gaps."""
    if t is out:
        return in_full
    if t.layout is not torch.strided or t.untyped_storage()._cdata != out.untyped_storage()._cdata:
        return False
    ours, theirs = _extent(out), _extent(t)
    if None in map(seen, (*ours, *theirs, *out.stride(), *t.stride())):
        return False
    if not (holds(ours[0] < theirs[1]) and holds(theirs[0] < ours[1])):
        return False  # nothing is shared, with gaps or without
    if not is_dense(out.shape, out.stride()) or not is_dense(t.shape, t.stride()):
        return False
    if any(unequal(a, b) for a, b in zip((*ours, *out.stride()), (*theirs, *t.stride()), strict=False)):
        return True
    return in_full if out.dim() == t.dim() else True


def _extent(t: torch.Tensor) -> tuple[Any, Any]:
    begin: Value = t.storage_offset() * t.itemsize
    return begin, begin + t.numel() * t.itemsize
