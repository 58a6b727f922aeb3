"""Inputs that share memory while one of them is written to: the graph gets the memory once, as a base.

A *base* is a flat tensor from the start of a storage to the last element of a group of inputs. It takes their place as an
input of the compiled graph, which makes each of them again as a view of it; so a write through one is seen through the others.
It begins where the storage does because `as_strided` counts from there: the copies of the base that a functional graph
makes and the real one then mean the same by an offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import attrs
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchjit_aot.inputs import GraphInput

__all__ = ["SyntheticBase", "fake_views", "real_base"]


@final
@attrs.frozen
class SyntheticBase:
    """The memory of several inputs.

    Attributes:
        members: the inputs' positions.
        offsets: where each begins, in elements.
        extent: the number of elements.
    """

    members: tuple[int, ...]
    offsets: tuple[int, ...]
    extent: int


def fake_views(
    base: SyntheticBase, sources: Sequence[GraphInput], fake_mode: FakeTensorMode, name: str
) -> tuple[GraphInput, list[torch.Tensor]]:
    """The base as an input of the trace, and its members as views of it."""
    first = sources[base.members[0]].real
    with fake_mode:
        flat = torch.empty((base.extent,), dtype=first.dtype, device=first.device)
        views = [
            flat.as_strided(sources[i].value.shape, sources[i].value.stride(), offset)
            for i, offset in zip(base.members, base.offsets, strict=True)
        ]
    return GraphInput(name, flat, None, real_base(first, base), False), views


def real_base(first: torch.Tensor, base: SyntheticBase) -> torch.Tensor:
    """The base of a call, from the group's first member."""
    return first.as_strided((base.extent,), (1,), 0)
