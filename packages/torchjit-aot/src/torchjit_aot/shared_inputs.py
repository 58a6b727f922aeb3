"""Which inputs of a graph share memory while one of them is written to: found for the trace, and looked at again at each call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchjit_aot.compiler_protocol import Run
from torchjit_aot.inputs import GraphInput
from torchjit_aot.joint import JointGraph
from torchjit_aot.refusals import METADATA_MUTATION, SHARED_STORAGE
from torchjit_aot.synthetic_bases import SyntheticBase
from torchjit_core.reasons import GraphBreak
from torchjit_torch.layouts import is_static, overlaps_itself, storage_key

__all__ = ["guard_overlap", "synthetic_bases"]


def synthetic_bases(joint: JointGraph, count: int) -> tuple[SyntheticBase, ...]:
    """Look at the real inputs of this call.

    Args:
        joint: as traced with each input on memory of its own.
        count: the number of inputs that the caller passes; those after them belong to the module.

    Returns:
        A base for each storage that is written through one input and that another one lies on.

    Raises:
        GraphBreak: the group cannot become views of one tensor, or one of several inputs on one storage changes its sizes.
    """
    groups: dict[int, list[int]] = {}
    for i, source in enumerate(joint.sources):
        if isinstance(source.real, torch.Tensor):
            groups.setdefault(storage_key(source.real), []).append(i)
    written = {storage_key(joint.sources[i].real) for i in joint.mutated}
    found = []
    for key, members in groups.items():
        if key in written and len(members) > 1:
            if members[-1] >= count:
                raise GraphBreak(SHARED_STORAGE, joint.sources[members[-1]].name)
            found.append(_base_of([joint.sources[i] for i in members], tuple(members)))
    for i in _reshaped_alone(joint, found):
        if len(groups[storage_key(joint.sources[i].real)]) > 1:
            raise GraphBreak(
                METADATA_MUTATION, f"of {joint.sources[i].name}, which shares its memory with another input"
            )
    return tuple(found)


def _reshaped_alone(joint: JointGraph, bases: Sequence[SyntheticBase]) -> set[int]:
    """Inputs of a graph with a backward, outside the bases, that change their sizes or strides: this moves the version
    counter that they share with other views of their memory, which the backward may have saved."""
    grouped = {i for base in bases for i in base.members}
    return {i for i, _, _ in joint.reshaped if i not in grouped} if joint.has_backward else set()


def _base_of(sources: Sequence[GraphInput], members: tuple[int, ...]) -> SyntheticBase:
    first = sources[0].real
    for source in sources:
        value, real = source.value, source.real
        symbolic = not is_static(value)
        if (
            source.leaf is not None
            or symbolic
            or real.dtype != first.dtype
            or overlaps_itself(real.shape, real.stride())
        ):
            raise GraphBreak(SHARED_STORAGE, source.name)
        if not _share_a_version(first, real):  # eager's backward would not see the writes to what it saved
            raise GraphBreak(SHARED_STORAGE, f"{source.name}, which does not count versions with {sources[0].name}")
    offsets = tuple(int(source.real.storage_offset()) for source in sources)
    extent = max(offset + _span(source.real) for offset, source in zip(offsets, sources, strict=True))
    if extent > _WASTE * sum(source.real.numel() for source in sources) + _SMALL:
        raise GraphBreak(SHARED_STORAGE, f"{sources[0].name}, in a storage that is mostly not used")
    return SyntheticBase(members, offsets, extent)


_WASTE, _SMALL = 2, 4096
"""The graph copies a base once: not for elements that it has no use for, beyond so many times and so many."""


def _span(tensor: torch.Tensor) -> int:
    """The elements from its first to its last one."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))


def _share_a_version(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_inference() or b.is_inference():
        return a.is_inference() and b.is_inference()
    return (a if a._base is None else a._base) is (b if b._base is None else b._base)


def guard_overlap(joint: JointGraph, compiled: Run, eager: Run) -> Run:
    """Look again at each call, where it can happen: inputs that share memory with a written one must be those of the trace."""
    grouped = {i for base in joint.bases for i in base.members}
    firsts = [base.members[0] for base in joint.bases]
    tensors = [
        i for i, s in enumerate(joint.sources) if isinstance(s.real, torch.Tensor) and i not in joint.base_inputs
    ]
    moving = [i for i in tensors if not joint.sources[i].static and i not in grouped]
    single = [i for i in {*joint.mutated, *_reshaped_alone(joint, joint.bases)} if i in moving]
    written = [*firsts, *single]
    others = [i for i in moving if i not in single]
    bases = joint.bases
    if not bases and (not written or len(moving) < 2):
        return compiled

    def checked(*args: Any) -> Any:
        storages = {storage_key(args[i]) for i in written}
        if len(storages) < len(written) or not storages.isdisjoint([storage_key(args[i]) for i in others]):
            return eager(*args)
        for base in bases:
            key = storage_key(args[base.members[0]])
            for i, offset in zip(base.members, base.offsets, strict=True):
                if storage_key(args[i]) != key or args[i].storage_offset() != offset:
                    return eager(*args)
        return compiled(*args)

    return checked
