"""The calls that lead to a graph break, outermost first, with the modules that they are made on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, final

import attrs

from torchjit_core.location import CodeLocation
from torchjit_fx import module_name
from torchjit_session import inlining
from torchjit_vm.graph_breaks import GraphBreakRecord
from torchjit_vm.region import Region

__all__ = ["CallSite", "callers_of", "chain_of", "shown_calls"]


@final
@attrs.frozen
class CallSite:
    """A line of an active function.

    Attributes:
        receiver: the class of the object whose method this is; "" for a function.
        path: the way to that object from the argument that it was reached from, such as `layers.0.norm`; "" for the argument itself.
    """

    location: CodeLocation
    receiver: str = ""
    path: str = ""

    def as_fields(self) -> dict[str, Any]:
        """For events."""
        at = self.location
        module = f"{self.path or 'self'}: {self.receiver}" if self.receiver else ""
        return {"filename": at.filename, "lineno": at.lineno, "function": at.function, "module": module}

    def __str__(self) -> str:
        where = f" [{self.path or 'self'}: {self.receiver}]" if self.receiver else ""
        return f'File "{self.location.filename}", line {self.location.lineno}, in {self.location.function}{where}'


def shown_calls(calls: tuple[CallSite, ...], location: CodeLocation | None) -> list[str]:
    """Lines of text: the calls, and the code at the last one."""
    if location is None:
        return [str(call) for call in calls]
    head, *code = location.render().splitlines()
    if calls and (calls[-1].location.filename, calls[-1].location.lineno) == (location.filename, location.lineno):
        return [*map(str, calls), *code]
    return [*map(str, calls), head, *code]


def chain_of(record: GraphBreakRecord, callers: tuple[CallSite, ...]) -> tuple[CallSite, ...]:
    """All calls that lead to a break: `callers` of its region, and those in it. The library's own frames are left out."""
    return (*callers, *(site for site in _sites(record) if inlining.is_user_file(site.location.filename)))


def callers_of(
    region: Region, records: Iterable[GraphBreakRecord], callers: tuple[CallSite, ...]
) -> tuple[CallSite, ...]:
    """Of a continuation, whose frame may not be the outermost one of the break that it follows."""
    code = region.code
    for record in records:
        sites = _sites(record)
        for k in reversed(range(len(sites))):
            at = sites[k].location
            if (at.filename, at.function) == (code.co_filename, code.co_qualname):
                return (*callers, *(s for s in sites[:k] if inlining.is_user_file(s.location.filename)))
    return callers


def _sites(record: GraphBreakRecord) -> list[CallSite]:
    receivers: list[Any] = list(record.receivers) or [None] * len(record.stack)
    return [
        CallSite(at) if receiver is None else CallSite(at, receiver[0].__qualname__, module_name(receiver[1]))
        for at, receiver in zip(record.stack, receivers, strict=True)
    ]
