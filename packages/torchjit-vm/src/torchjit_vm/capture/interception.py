"""Objects that get to see the calls that would go to the leaf handler, innermost first (torch function modes)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, cast

from torchjit_core.reasons import GraphBreak
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.raw import from_raw, has_leaf, to_raw
from torchjit_vm.capture.reasons import INTERCEPTED
from torchjit_vm.capture.restart import Restart
from torchjit_vm.capture.state import Tentative
from torchjit_vm.capture.values import Args, Const, Known, Kwargs, Leaf, TupleValue, Value

__all__ = ["defined_by_program", "intercept", "leave_no_interceptor", "overridden", "override", "pop", "push"]

STATE = "intercepted"
OFF = "dispatch_off"


class Interceptors(Tentative):
    """`mark`: the step at which the region's first interceptor was entered."""

    def __init__(self) -> None:
        self.mark = -1


def push(domain: CaptureDomain, function: Known, args: Args, kwargs: Kwargs) -> Value:
    """The program puts an interceptor on the stack."""
    if len(args) != 1 or kwargs:
        raise domain.graph_break(INTERCEPTED, "not one argument")
    if not domain.interceptors:
        domain.of(Interceptors).mark = domain.vm.step
    _set(domain, [*domain.interceptors, args[0]])
    return Const(None)


def pop(domain: CaptureDomain, function: Known, args: Args, kwargs: Kwargs) -> Value:
    """It takes the last one off again. One that was there before the region is no value of it: that breaks."""
    if not domain.interceptors or args or kwargs:
        raise domain.graph_break(INTERCEPTED, "entered outside of the region")
    last = domain.interceptors[-1]
    _set(domain, domain.interceptors[:-1])
    return last


def _set(domain: CaptureDomain, interceptors: list[Value]) -> None:
    domain.interceptors = interceptors
    domain.set_state(STATE, len(interceptors))


def intercept(domain: CaptureDomain, function: Callable[..., object], args: Args, kwargs: Kwargs) -> Value | None:
    """Let the innermost interceptor answer a call, with the others in force; None if it does not get to see it."""
    rule = domain.policy.interception
    if rule is None:
        return None
    raw, named = tuple([to_raw(domain, a) for a in args]), {k: to_raw(domain, v) for k, v in kwargs.items()}
    seen = rule.seen_as(domain.leaves, function, raw, named)
    if seen is None:
        return None
    if domain.overrides and rule.overriding is not None and rule.overriding(domain.leaves, raw, named):
        raise domain.graph_break(INTERCEPTED, "beside a class that sees the call")
    before = domain.interceptors
    _set(domain, before[:-1])
    try:
        method = domain.vm.finish(domain.load_attr(before[-1], rule.method))
        result = domain.vm.call(method, [Known(seen[0]), *[from_raw(domain, a) for a in seen[1:]]])
    finally:
        _set(domain, before)
    if _is_not_implemented(result):
        raise domain.graph_break(INTERCEPTED, "it answers NotImplemented")
    return result


def override(domain: CaptureDomain, function: Callable[..., object], args: Args, kwargs: Kwargs) -> Value | None:
    """Let the classes of the leaves answer a call; None if they do not get to see it."""
    rule = domain.policy.interception
    if rule is None or rule.overriding is None or not any(map(has_leaf, (*args, *kwargs.values()))):
        return None
    raw, named = tuple([to_raw(domain, a) for a in args]), {k: to_raw(domain, v) for k, v in kwargs.items()}
    classes = rule.overriding(domain.leaves, raw, named)
    try:
        seen = rule.seen_as(domain.leaves, function, raw, named) if classes else None
    except GraphBreak as stop:
        raise domain.graph_break(stop.reason, stop.detail) from stop
    if seen is None:
        return None
    seers = TupleValue([Known(cls) for cls in classes])
    rest = [from_raw(domain, a) for a in seen[2:]]
    before = domain.state(OFF)
    for cls in classes:
        try:
            method = domain.vm.finish(domain.load_attr(Known(cls), rule.method))
            result = domain.vm.call(method, [Known(seen[0]), seers, *rest])
        finally:
            domain.set_state(OFF, before)
        if not _is_not_implemented(result):
            return result
    raise domain.graph_break(INTERCEPTED, "its classes answer NotImplemented")


def _is_not_implemented(value: Value) -> bool:
    return (type(value) is Known and value.obj is NotImplemented) or (
        type(value) is Const and value.value is NotImplemented
    )


def defined_by_program(domain: CaptureDomain, value: Leaf, name: str) -> bool:
    """Does a class of the program that a leaf has define this attribute, rather than the class that the leaf handler knows?"""
    defines = getattr(domain.leaves, "defines", None)
    return defines is not None and bool(defines(value.payload, name))


def overridden(domain: CaptureDomain, value: Value) -> bool:
    """Does this leaf's class get to see what is done to it?"""
    rule = domain.policy.interception
    if not domain.overrides or rule is None or rule.overriding is None:
        return False
    return bool(rule.overriding(domain.leaves, (to_raw(domain, value),), {}))


def leave_no_interceptor(domain: CaptureDomain, why: GraphBreak | None = None) -> None:
    """The region ends, or breaks because of `why`: with an interceptor in force it must break where the first was entered."""
    left = why or domain.graph_break(INTERCEPTED, "it is left in force")
    if domain.interceptors:
        _restart(domain, left)
    if domain.state(OFF):
        raise Restart(cast(int, domain.state("block")), left)


def _restart(domain: CaptureDomain, why: GraphBreak) -> NoReturn:
    raise Restart(domain.of(Interceptors).mark, why)
