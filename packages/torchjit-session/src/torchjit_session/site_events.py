"""What a site tells of its captures: the fields of its events."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from torchjit_core import events
from torchjit_core.expr import Symbol
from torchjit_core.guards import Guard
from torchjit_core.paths import AccessPath
from torchjit_core.showing import shortened, shown
from torchjit_report.cures import cures
from torchjit_session.call_chain import chain_of
from torchjit_session.specialization import Specialization

if TYPE_CHECKING:
    from torchjit_session.site import Site

__all__ = ["described_call", "symbol_fields", "tell_capture"]


def described_call(site: Site, cause: str, slots: tuple[Any, ...]) -> dict[str, Any]:
    """What starts to be compiled, and why: the fields of `compile_start`."""
    code = site.code_of(slots)
    try:
        source = "".join(inspect.getsourcelines(code)[0])
    except (OSError, TypeError):
        source = ""
    return {
        "function": site.name,
        "filename": code.co_filename,
        "lineno": code.co_firstlineno,
        "source": source,
        "cause": cause,
        "device": ", ".join(_devices(slots)),
        "follows": [{"filename": at.filename, "lineno": at.lineno} for at in site.follows],
        **site.owner.told,
    }


def tell_capture(site: Site, made: Specialization, gather: Sequence[object]) -> None:
    """Breaks, the emitted code and the guards of a specialisation that has been captured."""
    if not events.listening():
        return
    for record in made.breaks:
        where = record.location
        events.emit(
            "graph_break",
            reason=record.reason.id,
            headline=record.reason.headline,
            detail=shortened(record.detail),
            explanation=record.reason.explanation,
            hints=list(cures(record.reason, record.detail)),
            filename=where.filename if where else None,
            lineno=where.lineno if where else None,
            line=where.line() if where else "",
            function=where.function if where else site.name,
            stack=[{"filename": at.filename, "lineno": at.lineno, "function": at.function} for at in record.stack],
            calls=[call.as_fields() for call in chain_of(record, site.callers)],
        )
    if not made.source:
        events.emit("emitted", source=_call_of_graph(gather))
    events.emit("guards", guards=[_guard_fields(g) for g in made.guards])


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
    where = getattr(guard, "location", None)
    return {
        "text": shortened(str(guard)),
        "filename": where.filename if where else None,
        "lineno": where.lineno if where else None,
    }
