"""What a site tells of its captures: the fields of its events."""

from __future__ import annotations

import inspect
import types
from collections.abc import Sequence
from typing import Any

import torch

import torchjit_vm
from torchjit_core import events
from torchjit_core.expr import Symbol
from torchjit_core.guards import Guard
from torchjit_core.location import CodeLocation
from torchjit_core.paths import AccessPath
from torchjit_core.showing import shortened, shown
from torchjit_report.cures import cures
from torchjit_session.call_chain import CallSite, chain_of
from torchjit_session.entries import code_of, listing, original_of
from torchjit_session.specialization import Specialization

__all__ = ["described_call", "place_fields", "symbol_fields", "tell_capture", "tell_loaded"]


def described_call(code: types.CodeType, slots: tuple[Any, ...]) -> dict[str, Any]:
    """What starts to be compiled: those fields of `compile_start` that follow from the code that people know, and the call."""
    try:
        source = "".join(inspect.getsourcelines(code)[0])
    except (OSError, TypeError):
        source = ""
    return {
        "filename": code.co_filename,
        "lineno": code.co_firstlineno,
        "source": source,
        "device": ", ".join(_devices(slots)),
    }


def tell_capture(
    name: str,
    region: torchjit_vm.Region,
    callers: tuple[CallSite, ...],
    made: Specialization,
    captured: torchjit_vm.Captured,
) -> None:
    """Breaks, the emitted code, the guards, and the bytecode if it is wanted, of a specialisation that has been captured.

    Args:
        name: of the region.
        callers: of its frame.
    """
    if not events.listening():
        return
    _tell_breaks(name, callers, made)
    if not made.source:
        events.emit("emitted", source=_call_of_graph(captured.gather))
    _tell_guards(made.guards)
    if events.bytecode_wanted_by:
        code = code_of(captured.target)
        rewritten = "" if code is None else listing(code)
        events.emit(
            "bytecode", function=name, original=listing(original_of(region)), rewritten=rewritten, source=made.source
        )


def tell_loaded(name: str, callers: tuple[CallSite, ...], made: Specialization, guards: tuple[Guard, ...]) -> None:
    """The same of one that was loaded from disk, as far as it is there, and its graph."""
    _tell_breaks(name, callers, made)
    if made.source:
        events.emit("emitted", source=made.source)
    _tell_guards(guards)
    for code in made.texts:
        events.emit("graph", stage="captured", name=name, code=code, nodes=made.op_count, values={}, lines={})


def _tell_breaks(name: str, callers: tuple[CallSite, ...], made: Specialization) -> None:
    for record in made.breaks:
        where = record.location
        events.emit(
            "graph_break",
            reason=record.reason.id,
            headline=record.reason.headline,
            detail=shortened(record.detail),
            explanation=record.reason.explanation,
            hints=list(cures(record.reason, record.detail)),
            **place_fields(where),
            line=where.line() if where else "",
            function=where.function if where else name,
            stack=[{**place_fields(at), "function": at.function} for at in record.stack],
            calls=[call.as_fields() for call in chain_of(record, callers)],
        )


def _tell_guards(guards: tuple[Guard, ...]) -> None:
    events.emit("guards", guards=[_guard_fields(g) for g in guards])


def _devices(slots: Sequence[Any]) -> list[str]:
    """Of the tensors that a call brings, and of the first parameter of each module."""
    found: dict[str, None] = {}
    for value in slots:
        for item in value if type(value) in (tuple, list) else (value,):
            if issubclass(type(item), torch.nn.Module):
                item = next(iter(torch.nn.Module.parameters(item)), None) if "_parameters" in item.__dict__ else None
            if issubclass(type(item), torch.Tensor):
                found[str(item.device)] = None
    return list(found)


def _call_of_graph(gather: Sequence[object]) -> str:
    """For people: what runs where the graph alone takes the place of the function."""
    return f"# Nothing is left of the function but its graph.\nreturn graph({', '.join(map(str, gather))})"


def symbol_fields(symbol: Symbol, path: AccessPath, slots: tuple[Any, ...]) -> dict[str, Any]:
    try:
        value = shown(path.resolve(slots))
    except Exception:  # what emitted code makes is not there yet
        value = "?"
    bounds = symbol.bounds
    low, high = ("" if b is None else str(b) for b in (bounds.lower, bounds.upper))
    return {"name": symbol.name, "path": shortened(str(path)), "value": value, "range": f"{low}..{high}"}


def _guard_fields(guard: Guard) -> dict[str, Any]:
    return {"text": shortened(str(guard)), **place_fields(getattr(guard, "location", None))}


def place_fields(where: CodeLocation | None) -> dict[str, Any]:
    """The fields of an event for a line, None where it is not known."""
    return {"filename": where and where.filename, "lineno": where and where.lineno}
