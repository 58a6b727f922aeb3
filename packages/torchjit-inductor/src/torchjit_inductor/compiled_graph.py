"""A compiled graph, as it is called. What compiles it is in `compiled`: a graph that is loaded from disk does without that."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import torch

from torchjit_core.reasons import reason
from torchjit_core.storing import NotYetStorable
from torchjit_inductor.codegen_protocol import CompiledKernel
from torchjit_inductor.launches import Ranged, note_launches, show_kernels, shows_kernels

__all__ = ["CompiledGraph", "show_ranges"]

PROFILED = reason(
    "TJ-STORE-042",
    "a profiler is on",
    "While torch's profiler runs, launches of kernels are ranges of it. Compiled entries are kept on disk without these.",
)


_graphs: weakref.WeakSet[CompiledGraph] = weakref.WeakSet()


def show_ranges(shown: bool) -> None:
    """Are graphs and launches of kernels ranges of torch's profiler? Calls do not look: what they call is replaced."""
    show_kernels(shown)
    for graph in list(_graphs):
        graph.show_range(shown)


@final
class CompiledGraph:
    """A compiled graph: call it with the graph's inputs, get a list of its outputs.

    Attributes:
        source: the host program (Python text), "" when the graph is interpreted or was loaded from disk: nobody runs its text.
        kernels: the generated kernels with their texts.
        static_inputs: inputs whose addresses do not change between calls (parameters).
        mutated_inputs: inputs that a call writes.
        device: of all tensors, or None when there are several or none.
        reason_not_recordable: why a CUDA graph cannot record a call; None when it can.
        calls: how many of torch's operators a call runs, on a CPU, if it does nothing else; None: it does, or it was loaded from disk.
        boxed: the same call with the inputs in one list, which it empties to free them early; None when there is none.
        range_name: of the range of torch's profiler that calls are, if they are to be one.
        writes_last: operators without results run before the first write to an input, and errors tell whether they came before it.
    """

    writes_last = True

    def __init__(
        self,
        call: Callable[..., Sequence[Any]] | None = None,
        *,
        boxed: Callable[[list[Any]], Sequence[Any]] | None = None,
        source: str = "",
        kernels: Sequence[CompiledKernel] = (),
        static_inputs: frozenset[int] = frozenset(),
        mutated_inputs: frozenset[int] = frozenset(),
        device: torch.device | None = None,
        reason_not_recordable: str | None = None,
        calls: int | None = None,
    ) -> None:
        if call is None and boxed is None:
            raise ValueError("a compiled graph needs a call")
        self.boxed = boxed
        self._call: Callable[..., Sequence[Any]] = call if call is not None else self._call_boxed
        self.source, self.kernels = source, tuple(kernels)
        self.static_inputs, self.mutated_inputs, self.device = static_inputs, mutated_inputs, device
        self.reason_not_recordable, self.calls = reason_not_recordable, calls
        self.range_name: str | None = None
        _graphs.add(self)

    def __stored_state__(self) -> Mapping[str, object]:
        if shows_kernels():
            raise NotYetStorable(PROFILED, "")
        named = (
            "boxed", "static_inputs", "mutated_inputs", "device", "reason_not_recordable", "range_name",
        )  # fmt: skip
        return {
            "call": None if self._call == self._call_boxed else self._call,
            "kernels": tuple((kernel.name, kernel.launch) for kernel in self.kernels),
            **{name: getattr(self, name) for name in named},
        }

    def __restore_state__(self, state: Mapping[str, Any]) -> None:
        given = dict(state)
        kernels, range_name = given.pop("kernels"), given.pop("range_name")
        self.__init__(**given)
        self.range_name = range_name
        self.kernels = tuple(CompiledKernel(name, "", launch) for name, launch in kernels)
        if kernels:
            note_launches(self.boxed or self._call, [name for name, _ in kernels], whole=False)

    def show_range(self, shown: bool) -> None:
        """Are calls a range, if this graph has a name for it?"""
        if isinstance(self._call, Ranged):
            self._call = self._call.launch
        if shown and self.range_name is not None:
            self._call = Ranged(self.range_name, self._call)

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        return self._call(*inputs)

    def _call_boxed(self, *inputs: Any) -> Sequence[Any]:
        assert self.boxed is not None
        return self.boxed(list(inputs))
