"""What takes the place of a function: its entries, guards with rewritten code, and the bytecode of both."""

from __future__ import annotations

import dis
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

import attrs
import torch

import torchjit_vm
from torchjit_core import events
from torchjit_core.guards import Guard
from torchjit_core.location import CodeLocation
from torchjit_core.reasons import GraphBreak

if TYPE_CHECKING:
    from torchjit_session.compilation import Compilation
    from torchjit_session.site import Site
    from torchjit_session.specialization import Specialization

__all__ = ["CompiledEntry", "entries_of", "tell_bytecode"]


@final
@attrs.frozen
class CompiledEntry:
    """One specialisation: while its guards hold, its code runs in the place of the original.

    Attributes:
        compile_id: such as `0/1`: region and specialisation.
        function: the name of the function, or of the continuation behind a graph break.
        location: where that begins.
        guards: what must hold.
        graphs: what was captured (one, or none).
        original: the code object that is replaced; of a continuation, the one that starts in the middle of the function.
        code: the code object that runs instead.
        source: the same decompiled; "" where nothing is left but the graph, whose code it is then.
        hits: calls that it served.
        continuations: the entries that it goes on in, by their ids.
    """

    compile_id: str
    function: str
    location: CodeLocation
    guards: tuple[Guard, ...]
    graphs: tuple[torch.fx.GraphModule, ...]
    original: types.CodeType
    code: types.CodeType | None
    source: str
    hits: int
    continuations: tuple[str, ...]

    @property
    def original_bytecode(self) -> str:
        """The instructions that are replaced, as `dis` shows them."""
        return _listing(self.original)

    @property
    def bytecode(self) -> str:
        """The instructions that run instead, as `dis` shows them."""
        return "" if self.code is None else _listing(self.code)

    def __str__(self) -> str:
        lines = [
            f"[{self.compile_id}] {self.function} ({self.location.filename}:{self.location.lineno}), {self.hits} calls"
        ]
        lines += [f"    guard: {guard}" for guard in self.guards]
        source = self.source or "".join(graph.code for graph in self.graphs)
        lines += [f"    {line}" for line in source.strip().splitlines()]
        if self.continuations:
            lines.append(f"    goes on in {', '.join(self.continuations)}")
        return "\n".join(lines)


def entries_of(compilation: Compilation) -> tuple[CompiledEntry, ...]:
    """The entries of a function, of its continuations, and of what Python calls at its breaks, in the order of their making."""
    ids = {site.region.key: tuple(s.compile_id for s in site.specializations) for site in compilation.sites}
    return tuple(
        CompiledEntry(
            made.compile_id, site.name, made.location or site.location, made.guards, tuple(made.graphs), _original(site),
            _code(entry.target), made.source, entry.hits,
            tuple(name for key in made.continuations for name in ids.get(key, ())),
        )
        for site in compilation.sites for entry in site.door.entries() for made in [entry.data]
    )  # fmt: skip


def tell_bytecode(site: Site, made: Specialization, target: Callable[..., Any]) -> None:
    """A `bytecode` event about a new specialisation, if it is wanted."""
    if events.bytecode_wanted_by:
        code = _code(target)
        events.emit_lazy(
            "bytecode",
            lambda: {
                "function": site.name,
                "original": _listing(_original(site)),
                "rewritten": "" if code is None else _listing(code),
                "source": made.source,
            },
        )


def _original(site: Site) -> types.CodeType:
    if site.region.offset is None:
        return site.region.code
    try:
        return torchjit_vm.resume_function(site.region).__code__
    except (GraphBreak, ValueError):
        return site.region.code  # what cannot be entered in the middle


def _code(target: Any) -> types.CodeType | None:
    found = getattr(target, "__code__", None)  # a method's is its function's
    return found if isinstance(found, types.CodeType) else None


def _listing(code: types.CodeType) -> str:
    return dis.Bytecode(code).dis()
