"""Process groups: their names, sizes and ranks are constants of a graph, guarded."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist

from torchjit_core.guards import Ambient
from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.intrinsics import group_name, group_rank, group_size, reduction_name, refuse_collective
from torchjit_fx.protocols import CaptureContext

__all__ = ["GROUP_CALLS"]


def _name(domain: CallDomain, group: Any, tag: str, capture: CaptureContext) -> str:
    """The name of a group: a `ProcessGroup`, a name, a mesh of one dimension, or None for the default group."""
    if not dist.is_available() or not dist.is_initialized():
        raise GraphBreak(breaks.COLLECTIVE, "torch.distributed is not initialized")
    if group is None:
        capture.guard(Ambient("default process group", _default, _default(), capture.location()))
        name = _default()
    elif isinstance(group, list):
        raise GraphBreak(breaks.COLLECTIVE, "a group given as a list of ranks")
    else:
        # Imported here: it brings much of torch.distributed, which a program without collectives need not load.
        from torch.distributed._functional_collectives import _resolve_group_name  # noqa: PLC0415

        name = str(_resolve_group_name(group, tag))
    found = _members(name)
    if found is None or found[0] < 0:
        raise GraphBreak(breaks.COLLECTIVE, f"this process is not in the group {name}")
    capture.guard(Ambient(f"process group {name}", _reader(name), found, capture.location()))
    return name


def _default() -> str:
    """The name of the default group; "" where there is none (any more)."""
    group: Any = dist.group.WORLD
    return "" if group is None else str(group.group_name)


def _members(name: str) -> tuple[int, tuple[int, ...]] | None:
    """This process's rank in the group, and the ranks of all its members in the default group; None if it is gone."""
    c10d: Any = dist.distributed_c10d
    try:
        group = c10d._resolve_process_group(name)
        return int(group.rank()), tuple(dist.get_process_group_ranks(group))
    except (RuntimeError, ValueError, KeyError):
        return None


@functools.cache
def _reader(name: str) -> Any:
    return functools.partial(_members, name)


def _known(name: str) -> tuple[int, tuple[int, ...]]:
    found = _members(name)
    if found is None:
        raise GraphBreak(breaks.COLLECTIVE, f"the group {name} is gone")
    return found


def _group_name(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> str:
    try:
        return _name(domain, args[0], args[1] if len(args) > 1 else "", capture)
    except GraphBreak as stop:
        raise GraphBreak(stop.reason, stop.detail, capture.location()) from stop
    except (AssertionError, IndexError, RuntimeError, ValueError) as error:  # eager shows the program its own error
        raise GraphBreak(breaks.COLLECTIVE, str(error), capture.location()) from error


def _group_size(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> int:
    return len(_known(args[0])[1])


def _group_rank(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> int:
    own, ranks = _known(args[0])
    if args[1] is None:
        return own
    if args[1] not in ranks:
        raise GraphBreak(breaks.COLLECTIVE, f"rank {args[1]} is not in the group", capture.location())
    return ranks.index(args[1])


def _reduction_name(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> str:
    operation = args[0]
    if isinstance(operation, str):
        return operation.lower()
    for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"):
        if operation is None or operation == getattr(dist.ReduceOp, name):
            return name.lower()
    raise GraphBreak(breaks.COLLECTIVE, f"the reduction {operation}", capture.location())


def _refuse(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    raise GraphBreak(breaks.COLLECTIVE, args[0], capture.location())


GROUP_CALLS: dict[Any, Any] = {
    group_name: _group_name,
    group_size: _group_size,
    group_rank: _group_rank,
    reduction_name: _reduction_name,
    refuse_collective: _refuse,
}
"""What the domain does when a polyfill asks about a group."""
