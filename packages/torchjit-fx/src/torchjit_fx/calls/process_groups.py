"""Process groups: their names, sizes and ranks are constants of a graph, guarded."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist

from torchjit_core.guards import Ambient
from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.calls.call import Call, call_rule
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.intrinsics import group_name, group_rank, group_size, reduction_name
from torchjit_fx.leaves import Raw
from torchjit_fx.protocols import CaptureContext

__all__: list[str] = []


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
    if found is None:
        raise GraphBreak(breaks.COLLECTIVE, f"this process is not in the group {name}")
    # Not its own rank, unless that is asked for: entries on disk are for all ranks.
    capture.guard(Ambient(f"process group {name}", _reader(_members, name), found, capture.location()))
    return name


def _default() -> str:
    """The name of the default group; "" where there is none (any more)."""
    group: Raw = dist.group.WORLD
    return "" if group is None else str(group.group_name)


def _members(name: str) -> tuple[int, ...] | None:
    """The ranks of all members of a group in the default group; None if it is gone, or this process is none of them."""
    c10d: Raw = dist.distributed_c10d
    try:
        group = c10d._resolve_process_group(name)
        return tuple(dist.get_process_group_ranks(group)) if group.rank() >= 0 else None
    except (RuntimeError, ValueError, KeyError):
        return None


def _own_rank(name: str) -> int | None:
    """This process's rank in a group; None if that is gone."""
    c10d: Raw = dist.distributed_c10d
    try:
        return int(c10d._resolve_process_group(name).rank())
    except (RuntimeError, ValueError, KeyError):
        return None


@functools.cache
def _reader(read: Raw, name: str) -> Raw:
    return functools.partial(read, name)


def _known(name: str) -> tuple[int, ...]:
    found = _members(name)
    if found is None:
        raise GraphBreak(breaks.COLLECTIVE, f"the group {name} is gone")
    return found


@call_rule(group_name)
def _group_name(call: Call) -> str:
    try:
        return _name(call.domain, call.args[0], call.args[1] if len(call.args) > 1 else "", call.capture)
    except GraphBreak as stop:
        raise call.broken(stop.reason, stop.detail) from stop
    except (AssertionError, IndexError, RuntimeError, ValueError) as error:  # eager shows the program its own error
        raise call.broken(breaks.COLLECTIVE, str(error)) from error


@call_rule(group_size)
def _group_size(call: Call) -> int:
    return len(_known(call.args[0]))


@call_rule(group_rank)
def _group_rank(call: Call) -> int:
    name, ranks = call.args[0], _known(call.args[0])
    if call.args[1] is None:
        own = _own_rank(name)
        if own is None:
            raise call.broken(breaks.COLLECTIVE, f"the group {name} is gone")
        call.capture.guard(
            Ambient(f"rank in process group {name}", _reader(_own_rank, name), own, call.capture.location())
        )
        return own
    if call.args[1] not in ranks:
        raise call.broken(breaks.COLLECTIVE, f"rank {call.args[1]} is not in the group")
    return ranks.index(call.args[1])


@call_rule(reduction_name)
def _reduction_name(call: Call) -> str:
    operation = call.args[0]
    if isinstance(operation, str):
        return operation.lower()
    for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"):
        if operation is None or operation == getattr(dist.ReduceOp, name):
            return name.lower()
    raise call.broken(breaks.COLLECTIVE, f"the reduction {operation}")
