"""A graph compiler whose graphs are recorded as CUDA graphs: whole, in pieces, or filled up to chosen batch sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, final

import attrs
import torch

from torchjit_core.events import emit_fallback
from torchjit_cudagraphs.padded import Batch, find_batch
from torchjit_cudagraphs.partition import Chain, Split, line_of, split, tell_split
from torchjit_cudagraphs.record import record
from torchjit_cudagraphs.recordable import NO_BATCH, Recordable
from torchjit_cudagraphs.settings import CudaGraphSettings
from torchjit_torch.node_meta import RESULTS

__all__ = ["RecordingCompiler"]

Kind = Literal["inference", "forward", "backward"]


@final
@attrs.frozen
class RecordingCompiler:
    """`compile`, with what it makes recorded as CUDA graphs. A graph that no CUDA graph can hold as a whole is compiled and recorded in pieces.

    Attributes:
        compile: makes something recordable of a graph, called as this object is.
        capture_sizes: batches of inference graphs are filled up to these.
    """

    compile: Callable[..., Recordable]
    capture_sizes: tuple[int, ...] = ()

    def __call__(
        self,
        gm: torch.fx.GraphModule,
        example_inputs: Sequence[Any],
        *,
        kind: Kind,
        static_inputs: frozenset[int] = frozenset(),
        name: str = "graph",
    ) -> Callable[..., Sequence[Any]]:
        """Compile a graph.

        Args:
            gm: functional, its nodes with fake values; `node_meta.RESULTS` says which outputs of a forward graph users see.
            example_inputs: fakes.
            kind: what the graph is of.
            static_inputs: those whose memory stays where it is.
            name: for messages.
        """
        static_inputs |= _stay(gm)
        parts = split(gm)
        internal = _internal(gm, kind)
        if parts is not None:
            return self._in_pieces(parts, kind, static_inputs, internal, name)
        compiled = self.compile(gm, example_inputs, kind=kind, static_inputs=static_inputs, name=name)
        batch = self._batch(gm, kind, name, static_inputs)
        return self._recorded(compiled, gm, example_inputs, internal, name, batch, takes_saved=kind == "backward")

    def _in_pieces(
        self, parts: Split, kind: Kind, static_inputs: frozenset[int], internal: frozenset[int], name: str
    ) -> Chain:
        tell_split(parts, name)
        if self.capture_sizes:
            _tell_no_batch(name, "it is captured in pieces")
        static = {node for position, node in enumerate(parts.inputs) if position in static_inputs}
        seen = {n for position, n in enumerate(parts.outputs) if position not in internal}
        pieces: list[Any] = []
        for position, piece in enumerate(parts.pieces):
            inputs = [node.meta["val"] for node in piece.inputs]
            fixed = frozenset(k for k, node in enumerate(piece.inputs) if node in static)
            called = f"{name}_piece{position}"
            compiled = self.compile(piece.gm, inputs, kind=kind, static_inputs=fixed, name=called)
            inside = frozenset(k for k, node in enumerate(piece.outputs) if node not in seen)
            pieces.append(self._recorded(compiled, piece.gm, inputs, inside, called) if piece.captured else compiled)
        return Chain(parts, pieces)

    def _recorded(
        self,
        compiled: Recordable,
        gm: torch.fx.GraphModule,
        inputs: Sequence[Any],
        internal: frozenset[int],
        name: str,
        batch: Batch | None = None,
        *,
        takes_saved: bool = False,
    ) -> Callable[..., Sequence[Any]]:
        return record(
            compiled, inputs, CudaGraphSettings(capture_sizes=self.capture_sizes if batch else ()), internal=internal,
            fixed_layouts=not _is_symbolic(inputs), batch=batch, names=_names(gm), name=name, takes_saved=takes_saved,
        )  # fmt: skip

    def _batch(self, gm: torch.fx.GraphModule, kind: Kind, name: str, static_inputs: frozenset[int]) -> Batch | None:
        """Where the batch is, if there are capture sizes and the graph's batches can be filled up to them."""
        if not self.capture_sizes:
            return None
        batch = find_batch(gm) if kind == "inference" else f"it is a {kind} graph"
        if not isinstance(batch, str) and static_inputs & set(batch.inputs):
            batch = "a parameter or buffer runs along the batch"
        if isinstance(batch, str):
            _tell_no_batch(name, batch)
            return None
        return batch


def _tell_no_batch(name: str, detail: str) -> None:
    emit_fallback(NO_BATCH, f"{name}: {detail}")


def _internal(gm: torch.fx.GraphModule, kind: Kind) -> frozenset[int]:
    """The outputs that users do not get to see: what is saved for the backward, and gradients on their way."""
    count = len(gm.graph.output_node().args[0])  # type: ignore[arg-type]
    shown = RESULTS.of(gm)
    return frozenset(range(0 if kind == "backward" else count if shown is None else shown, count))


def _stay(gm: torch.fx.GraphModule) -> frozenset[int]:
    """Inputs of fixed sizes whose memory stays where it is, as the program promised. One of another size begins at the same address."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    marked = (i for i, node in enumerate(placeholders) if node.meta.get("address_stays"))
    return frozenset(i for i in marked if not _is_symbolic((placeholders[i].meta["val"],)))


def _is_symbolic(inputs: Sequence[Any]) -> bool:
    """May sizes change from call to call? Guards see to it that nothing else does."""
    return any(
        not isinstance(value, torch.Tensor) or any(type(n) is not int for n in (*value.shape, *value.stride()))
        for value in inputs
    )


def _names(gm: torch.fx.GraphModule) -> list[str]:
    """What messages call the graph's inputs: their names, and where they are first used."""
    lines = [(n.name, next(map(line_of, n.users), "")) for n in gm.graph.nodes if n.op == "placeholder"]
    return [f"input {name} (used at {line})" if line else f"input {name}" for name, line in lines]
