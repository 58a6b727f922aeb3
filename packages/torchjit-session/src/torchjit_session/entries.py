"""What takes the place of a function: its entries, guards with rewritten code, and the bytecode of both."""

from __future__ import annotations

import dis
import types
from typing import Any, final

import attrs
import torch

import torchjit_vm
from torchjit_core.guards import Guard
from torchjit_core.location import CodeLocation
from torchjit_core.reasons import GraphBreak

__all__ = ["CompiledEntry", "code_of", "listing", "original_of"]


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
        return listing(self.original)

    @property
    def bytecode(self) -> str:
        """The instructions that run instead, as `dis` shows them."""
        return "" if self.code is None else listing(self.code)

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


def original_of(region: torchjit_vm.Region) -> types.CodeType:
    """The code object that a region replaces."""
    if region.offset is None:
        return region.code
    try:
        return torchjit_vm.resume_function(region).__code__
    except (GraphBreak, ValueError):
        return region.code  # what cannot be entered in the middle


def code_of(target: Any) -> types.CodeType | None:
    """The code object of what is called instead, if it has one."""
    found = getattr(target, "__code__", None)  # a method's is its function's
    return found if isinstance(found, types.CodeType) else None


def listing(code: types.CodeType) -> str:
    """The instructions."""
    return dis.Bytecode(code).dis()
