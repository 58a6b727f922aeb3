"""Backends that import what compiles when the first graph comes: a process whose regions are all on disk does without it."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import attrs

from torchjit_backends.options import Options
from torchjit_session.backend_calls import Backend, Runs

if TYPE_CHECKING:  # what it imports later
    import torch

    from torchjit_inductor import InductorSettings

__all__ = ["LaterBackend", "aot_eager_backend", "inductor_backend"]

_PARTS = ("torchjit_backends", "torchjit_aot", "torchjit_inductor", "torchjit_cudagraphs")


@final
class LaterBackend:
    """A backend whose parts are imported when it is first needed: see `torchjit_session.late_imports.LoadedLater`.

    Args:
        make: imports what it needs, and makes it.
        stored_as: what tells it from others in the keys of entries on disk; None: nothing of it is stored.
        runs: how what it makes runs beside eager code; None: nobody takes it for its speed.
    """

    def __init__(
        self, make: Callable[[], Backend], stored_as: Mapping[str, Any] | None, runs: Runs | None = None
    ) -> None:
        self._make = make
        self._made: Backend | None = None
        self.stored_as = stored_as
        self.runs = runs

    @property
    def is_loaded(self) -> bool:
        """Is there nothing to import any more?"""
        return self._made is not None

    def load(self) -> None:
        """Import its parts."""
        from torchjit_session.reading_ahead import read_ahead  # noqa: PLC0415  # for those who import something

        with read_ahead((*_PARTS, "triton") if _uses_cuda() else _PARTS):
            self._backend()

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """What it makes of a graph."""
        return self._backend()(gm, example_inputs)

    def _backend(self) -> Backend:
        if self._made is None:
            self._made = self._make()
        return self._made


def inductor_backend(options: Options, kernels: InductorSettings) -> LaterBackend:
    """See `pipeline.inductor_backend`."""

    def make() -> Backend:
        from torchjit_backends import pipeline  # noqa: PLC0415  # what compiles

        if _uses_cuda():
            # Whatever is wrong with Triton is said where a graph needs it.
            with contextlib.suppress(Exception):
                importlib.import_module("torchjit_inductor.triton.backend")
        return pipeline.inductor_backend(options, kernels)

    runs = Runs(draws_as_eager=options.fallback_random, records=options.cudagraphs)
    return LaterBackend(make, _stored_as("inductor", options, kernels.compiler), runs)


def aot_eager_backend(options: Options) -> LaterBackend:
    """See `pipeline.aot_eager_backend`."""

    def make() -> Backend:
        from torchjit_backends import pipeline  # noqa: PLC0415  # what compiles

        return pipeline.aot_eager_backend(options)

    return LaterBackend(make, _stored_as("aot_eager", options))


def _uses_cuda() -> bool:
    """Is this a process whose graphs are likely ones of a GPU?"""
    import torch  # noqa: PLC0415  # it is there by now

    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _stored_as(name: str, options: Options, *more: Any) -> Mapping[str, Any] | None:
    """What tells a backend from others in the keys of entries on disk. None: its graphs are for the objects that they have seen."""
    if options.freezing:
        return None
    values = attrs.asdict(options, recurse=False)
    said = {
        k: [p.id for p in v] if k.endswith("_pass") else v
        for k, v in values.items()
        if not k.startswith(("trace", "graph_"))
    }
    return {"name": name, "options": said, "more": more}
