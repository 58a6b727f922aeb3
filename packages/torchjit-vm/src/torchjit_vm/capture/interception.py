"""Objects that get to see the calls that would go to the leaf handler, innermost first (torch function modes)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from torchjit_core.reasons import GraphBreak
from torchjit_vm.capture.raw import from_raw, to_raw
from torchjit_vm.capture.reasons import INTERCEPTED
from torchjit_vm.capture.restart import Restart
from torchjit_vm.capture.values import Const, Known, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__ = ["intercept", "leave_no_interceptor", "pop", "push"]

STATE = "intercepted"


def push(domain: CaptureDomain, function: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The program puts an interceptor on the stack."""
    if len(args) != 1 or kwargs:
        raise domain.graph_break(INTERCEPTED, "not one argument")
    if not domain.interceptors:
        domain.interception_mark = domain.vm.step
    _set(domain, [*domain.interceptors, args[0]])
    return Const(None)


def pop(domain: CaptureDomain, function: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """It takes the last one off again. One that was there before the region is no value of it: that breaks."""
    if not domain.interceptors or args or kwargs:
        raise domain.graph_break(INTERCEPTED, "entered outside of the region")
    last = domain.interceptors[-1]
    _set(domain, domain.interceptors[:-1])
    return last


def _set(domain: CaptureDomain, interceptors: list[Value]) -> None:
    domain.interceptors = interceptors
    domain.set_state(STATE, len(interceptors))


def intercept(
    domain: CaptureDomain, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]
) -> Value | None:
    """Let the innermost interceptor answer a call, with the others in force; None if it does not get to see it."""
    rule = domain.policy.interception
    if rule is None:
        return None
    raw, named = tuple([to_raw(domain, a) for a in args]), {k: to_raw(domain, v) for k, v in kwargs.items()}
    seen = rule.seen_as(domain.leaves, function, raw, named)
    if seen is None:
        return None
    before = domain.interceptors
    # The modules know one another: reading an attribute of a leaf may be intercepted.
    from torchjit_vm.capture import attributes  # noqa: PLC0415

    _set(domain, before[:-1])
    try:
        method = domain.vm.finish(attributes.load_attr(domain, before[-1], rule.method))
        result = domain.vm.call(method, [Known(seen[0]), *[from_raw(domain, a) for a in seen[1:]]])
    finally:
        _set(domain, before)
    if type(result) is Known and result.obj is NotImplemented:
        raise domain.graph_break(INTERCEPTED, "it answers NotImplemented")
    return result


def leave_no_interceptor(domain: CaptureDomain, why: GraphBreak | None = None) -> None:
    """The region ends, or breaks because of `why`: with an interceptor in force it must break where the first was entered."""
    if domain.interceptors:
        _restart(domain, why or domain.graph_break(INTERCEPTED, "it is left in force"))


def _restart(domain: CaptureDomain, why: GraphBreak) -> NoReturn:
    raise Restart(domain.interception_mark, why)
