"""Calls that only report (a warning, a log record): they are put off to the end of the region and made there, in order.

A call is put off only where nobody can tell: its result is None, its arguments are what they were (numbers, strings,
containers of such, copied), and whoever reports does not look at what the region changed before. Otherwise the call breaks.
Reports come after the region's leaf operations, before its stores to real objects, and also when an exception leaves it.
"""

from __future__ import annotations

import io
import logging
import sys
import types
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from torchjit_core.guards import Predicate
from torchjit_core.paths import Pinned
from torchjit_core.reasons import GraphBreak
from torchjit_vm.capture import library, runtime
from torchjit_vm.capture.builtin_table import builtin
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.effect_records import ReorderedCall, Standin
from torchjit_vm.capture.raw import has_leaf
from torchjit_vm.capture.reading import pinned
from torchjit_vm.capture.reasons import QUIET, UNKNOWN_CALL
from torchjit_vm.capture.rebuild import Rebuilder
from torchjit_vm.capture.source import in_frames
from torchjit_vm.capture.type_slots import SLOTS
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import NEW, Const, DictValue, Known, Leaf, Obj, SetValue, TupleValue, Value
from torchjit_vm.frame import Raised

__all__ = ["cached_report", "defer_or_break", "put_off", "write_reordered"]

_Args = list[Value]
_Kwargs = dict[str, Value]


def write_reordered(domain: CaptureDomain, out: Rebuilder, *, early: bool = False) -> None:
    """Write the calls that were put off."""
    after = out.location
    for report in domain.reordered:
        if report.early is not early:
            continue
        function = out.constant(report.function, getattr(report.function, "__name__", "report"))
        texts = [out.expr(a) for a in report.args] + [f"{k}={out.expr(v)}" for k, v in report.kwargs.items()]
        out.flush()
        statement = f"{function}({', '.join(texts)})"
        outermost, *inner = report.frames
        out.location = outermost.location
        for line in in_frames(out, inner, [statement]) if inner else (statement,):
            out.write(line)
    out.location = after


def put_off(domain: CaptureDomain, function: object, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """Make a call at the end of the region; what it is given must be what it is then."""
    if domain.barrier is not None and not domain.barrier.reports:
        raise domain.graph_break(QUIET, getattr(function, "__qualname__", repr(function)))
    frames = tuple(Standin.of(f) for f in domain.vm.frames if f.code.code.co_filename != library.__file__)
    early = not domain.used_leaves and not any(map(has_leaf, [*args, *kwargs.values()]))
    early = early and all(d.early for d in domain.reordered)
    domain.reordered.append(ReorderedCall(function, tuple(args), dict(kwargs), frames, early))
    domain.mutated_at = domain.vm.step
    return Const(None)


def defer_or_break(domain: CaptureDomain, function: object, args: _Args, kwargs: _Kwargs) -> Value:
    """Put off a call of a function that the policy says only reports; what it is given may be leaves."""
    given = _snapshots(domain, [*args, *kwargs.values()], leaves=True)
    plain = function is not print or ("file" not in kwargs and _plain_stdout(domain))
    if given is None or not plain:
        raise _breaks(domain, function)
    return put_off(domain, function, given[: len(args)], dict(zip(kwargs, given[len(args) :], strict=True)))


def _breaks(domain: CaptureDomain, function: Any) -> GraphBreak:
    return domain.graph_break(UNKNOWN_CALL, f"{function.__module__}.{function.__qualname__}")


def _plain_stdout(domain: CaptureDomain) -> bool:
    """Is `sys.stdout` a file of C, which looks at nothing of the program?"""
    stream = sys.stdout
    if getattr(type(stream), "write", None) not in (io.TextIOWrapper.write, io.StringIO.write):
        return False
    domain.guard_type(Pinned.of(sys, "sys").attr("stdout"), type(stream))
    return not any(isinstance(v, Known) and v.obj is sys for v in domain.touched)


# What arguments are kept as.


def _snapshots(domain: CaptureDomain, values: Sequence[Value], leaves: bool = False) -> list[Value] | None:
    try:
        return [_snapshot(domain, v, leaves) for v in values]
    except _Changing:
        return None


class _Changing(Exception):
    """What a value is later cannot be told."""


def _snapshot(domain: CaptureDomain, value: Value, leaves: bool) -> Value:
    """The value as it is now: itself if it cannot change, a copy of a plain container."""
    if type(value) is Const:
        type_of(domain, value)  # which guards the type, so that it stays a constant
        return value
    if type(value) is Leaf and (leaves or domain.leaves.type_of(value.payload) in (bool, int, float)):
        return value
    cls, copy = getattr(value, "cls", None), SLOTS[type(value)].copy
    plain = cls in (list, dict, set, frozenset) or (isinstance(value, TupleValue) and _shown_by_c(value.cls))
    if copy is None or not plain:
        raise _Changing
    for key in domain.unpack_all(value) if isinstance(value, (DictValue, SetValue)) else ():
        _snapshot(domain, key, leaves)
    return copy(domain, value, lambda part: _snapshot(domain, part, leaves), lambda made: None)


def _shown_by_c(cls: type) -> bool:
    """A tuple, or a subclass such as `torch.Size` whose text is not made by Python code."""
    return not any(isinstance(getattr(cls, n), types.FunctionType) for n in ("__repr__", "__str__", "__format__"))


# Warnings.


def _no_errors(filters: Any) -> bool:
    return all(f[0] != "error" for f in filters)


@builtin(warnings.warn)
def _warn(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    rest = ("message", "category", "stacklevel", "source")[len(args) :]
    fits = set(rest[: not args]) <= set(kwargs) <= set(rest) and len(args) <= 4
    return _put_off_warning(domain, *args, **kwargs) if fits else None


def _put_off_warning(
    domain: CaptureDomain,
    message: Value,
    category: Value | None = None,
    stacklevel: Value | None = None,
    source: Value | None = None,
) -> Value | None:
    """`warnings.warn(message, category, stacklevel)`, as `warn_explicit` with the place that it is about."""
    kind = category.obj if isinstance(category, Known) else UserWarning if _is_none(domain, category) else None
    if type(message) is not Const or type_of(domain, message) is not str or not _is_none(domain, source):
        return None
    if not (isinstance(kind, type) and issubclass(kind, Warning)):
        return None
    depth = 1 if stacklevel is None else max(domain.index(stacklevel), 1)
    frames = [f for f in domain.vm.frames if f.code.code.co_filename != library.__file__]
    if depth > len(frames) or not _warnings_as_usual(domain):
        return None
    about = Standin.of(frames[-depth])
    return put_off(domain, runtime.warn, [message, Known(kind), Known(about.location), Known(about.globals)], {})


def _is_none(domain: CaptureDomain, given: Value | None) -> bool:
    return given is None or (type(given) is Const and domain.use(given) is None)


def _warnings_as_usual(domain: CaptureDomain) -> bool:
    """Do warnings neither raise nor run code of the program?"""
    module = Pinned.of(warnings, "warnings")
    shown = (warnings._showwarning_orig, logging._showwarning)  # type: ignore[attr-defined]
    if not _no_errors(warnings.filters) or warnings.showwarning not in shown:
        return False
    if any(isinstance(v, Known) and v.obj is warnings for v in domain.touched):
        return False
    domain.guard_id(module.attr("showwarning"), warnings.showwarning)
    domain.guard(Predicate(module.attr("filters"), _no_errors, "no warning is an error", domain.location()))
    return True


# Log records.


def _logger_method(function: object, level: int | None) -> None:
    @builtin(function)
    def run(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
        first = 1 if level is not None else 2
        if len(args) <= first or not isinstance(args[0], Obj) or args[0].real is NEW:
            return None
        logger = args[0]
        if type(logger.real).isEnabledFor is not logging.Logger.isEnabledFor or _disturbed(domain):
            return None
        wanted = Const(level) if level is not None else args[1]
        if type(wanted) is not Const or type_of(domain, wanted) is not int:
            return None
        enabled = domain.vm.call(Known(library.log_enabled), [logger, wanted])
        if not domain.truth(enabled):
            return Const(None)
        given = _snapshots(domain, [*args[1:], *kwargs.values()])
        if given is None or not set(kwargs) <= {"stacklevel"}:
            return None
        if domain.touched and not domain.truth(domain.vm.call(Known(library.log_plainly), [logger])):
            return None  # a handler of the program could look at what the region has changed
        rest = len(args) - 1
        return put_off(domain, function, [logger, *given[:rest]], dict(zip(kwargs, given[rest:], strict=True)))


for _name in ("debug", "info", "warning", "error", "critical"):
    _logger_method(getattr(logging.Logger, _name), getattr(logging, _name.upper()))
_logger_method(logging.Logger.log, None)


@builtin(logging.Logger.isEnabledFor)
def _is_enabled_for(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if len(args) != 2 or kwargs or _disturbed(domain):
        return None
    return domain.vm.call(Known(library.log_enabled), args)


def _disturbed(domain: CaptureDomain) -> bool:
    """Has the region changed something of the logging system itself?"""
    for value in domain.touched:
        cls = getattr(value, "cls", None)
        if isinstance(cls, type) and issubclass(cls, (logging.Filterer, logging.Manager, logging.Formatter)):
            return True
        if isinstance(value, Known) and value.obj in (logging, sys):
            return True
    return False


# Functions that report once, because they have a cache.

_REPORTING = frozenset({"debug", "info", "warning", "error", "critical", "log", "warn", "print"})


def cached_report(domain: CaptureDomain, function: object, args: _Args, kwargs: _Kwargs) -> Value | None:
    """A call of a function with a cache that does nothing but report: the call itself is put off, cache and all.

    Returns:
        The result; None if the function does something else, or nothing that can be put off.
    """
    below = getattr(function, "__wrapped__", None)
    if not isinstance(below, types.FunctionType) or _REPORTING.isdisjoint(below.__code__.co_names):
        return None
    if not all(isinstance(a, (Const, Known)) or _is_logger(a) for a in [*args, *kwargs.values()]):
        return None
    with domain.tentative():
        known = len(domain.reordered)
        try:
            result = domain.vm.call(pinned(domain, below, below.__qualname__), args, kwargs)
            reports = len(domain.reordered) > known
        except (GraphBreak, Raised):
            result, reports = None, False
    if not reports or type(result) is not Const:
        return None
    for value in [*args, *kwargs.values()]:
        type_of(domain, value)
    put_off(domain, function, args, kwargs)
    return result


def _is_logger(value: Value) -> bool:
    return isinstance(value, Obj) and value.real is not NEW and issubclass(value.cls, logging.Logger)
