"""The rules of intrinsics: what polyfills ask the domain to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torchjit_core.reasons import GraphBreak
from torchjit_fx.calls.call import Call, call_rule
from torchjit_fx.leaves import Raw
from torchjit_fx.subclasses import refuse_subclasses

__all__ = ["intrinsic_rule"]

_Action = TypeVar("_Action", bound="Callable[..., Raw]")


def intrinsic_rule(intrinsic: object) -> Callable[[_Action], _Action]:
    """Register what the domain does when an intrinsic is called: it is given the domain, the arguments, and the capture. Its breaks get the user's line."""

    def register(action: _Action) -> _Action:
        @call_rule(intrinsic)
        def run(call: Call) -> Raw:
            if call.capture.state("subclasses"):
                refuse_subclasses(call.args, call.capture)
            try:
                return action(call.domain, *call.args, call.capture)
            except GraphBreak as stop:
                if stop.location is None:
                    raise call.broken(stop.reason, stop.detail) from stop
                raise

        return action

    return register
