"""The recorded callable: which recording fits a call, when to make one, and when to run without."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, final

import torch

from torchjit_core.events import emit, phase
from torchjit_core.reasons import Reason
from torchjit_cudagraphs.buffers import InputBuffers, signature
from torchjit_cudagraphs.driver import GraphDriver, TorchGraphDriver
from torchjit_cudagraphs.outputs import OutputPlan
from torchjit_cudagraphs.recordable import CAPTURE_FAILED, TOO_MANY_SIZES, TOO_MANY_STATICS, Recordable, refusal
from torchjit_cudagraphs.settings import CudaGraphSettings

__all__ = ["Recorded", "record"]


def record(
    compiled: Recordable,
    example_inputs: Sequence[Any],
    settings: CudaGraphSettings | None = None,
    *,
    driver: GraphDriver | None = None,
) -> Callable[..., Sequence[Any]]:
    """Make `compiled` replay a CUDA graph from its second call on.

    The first call with given sizes (`warmup_calls` of them) runs `compiled` on a side stream, the next one captures it,
    and it and all later ones replay. A replay copies the inputs that are not static to fixed addresses, launches the
    whole graph at once and copies the outputs out (see `CudaGraphSettings.reuse_outputs`). Parameters that moved and
    new sizes are recorded anew, up to limits. For inference: a replay makes no autograd history.

    Args:
        compiled: the callable, with the attributes of `Recordable`.
        example_inputs: tensors (real or fake) and numbers, in its order; only their metadata is read.
        settings: choices; the defaults if None.
        driver: for tests; a `TorchGraphDriver` for the callable's device if None.

    Returns:
        A `Recorded`; or `compiled` itself when it cannot be recorded, after a `fallback` event that says why.
    """
    chosen = settings or CudaGraphSettings()
    why = refusal(compiled, example_inputs, "cuda" if driver is None else driver.device_type)
    if why is not None:
        _emit_fallback(*why)
        return compiled
    if driver is None:
        if compiled.device is None:
            raise AssertionError("refusal() lets no callable without a device pass")
        driver = TorchGraphDriver(compiled.device)
    return Recorded(compiled, chosen, driver)


@final
class _Recording:
    """One capture: fixed inputs, the replay, and what its outputs are."""

    def __init__(self, compiled: Recordable, inputs: Sequence[Any], driver: GraphDriver, reuse_outputs: bool) -> None:
        self.buffers = InputBuffers(inputs, compiled.static_inputs)
        arguments = tuple(self.buffers.arguments)
        self.replay, outputs = driver.capture(lambda: compiled(*arguments))
        self._plan = OutputPlan(outputs, arguments, reuse_outputs)

    def fits(self, inputs: Sequence[Any]) -> bool:
        return self.buffers.matches(inputs) and self.buffers.static_unmoved(inputs)

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        # Under grad mode a parameter among the sources must not make history in the buffers.
        with torch.no_grad():
            self.buffers.fill(inputs)
            self.replay()
            return self._plan.make(inputs)


@final
class Recorded:
    """A compiled callable with its recordings. Calls from several threads or streams run one after the other.

    Args:
        compiled: the callable.
        settings: choices.
        driver: capture and replay.
    """

    def __init__(self, compiled: Recordable, settings: CudaGraphSettings, driver: GraphDriver) -> None:
        self.compiled = compiled
        self.settings = settings
        self._driver = driver
        self._lock = threading.Lock()
        self._last: _Recording | None = None
        self._last_stream: int | None = None
        self._recordings: dict[tuple[Any, ...], list[_Recording]] = {}
        self._warmups: dict[tuple[Any, ...], int] = {}
        self._told: set[str] = set()
        self._broken = False

    @property
    def recordings(self) -> int:
        """How many recordings exist."""
        return sum(map(len, self._recordings.values()))

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        if self._broken or self._driver.capturing():
            return self.compiled(*inputs)  # inside somebody's capture our kernels become part of theirs
        with self._lock:
            recording = self._last
            if recording is None or not recording.fits(inputs):
                recording = self._find_or_make(inputs)
            if recording is not None:
                self._last = recording
                return self._replay(recording, inputs)
            if self._warming(inputs):
                return self._warm_up(inputs)
        return self.compiled(*inputs)

    def _replay(self, recording: _Recording, inputs: Sequence[Any]) -> list[Any]:
        stream = self._driver.stream()
        if stream != self._last_stream:
            if self._last_stream is not None:
                self._driver.order_after(self._last_stream)
            self._last_stream = stream
        return recording.run(inputs)

    def _find_or_make(self, inputs: Sequence[Any]) -> _Recording | None:
        key = signature(inputs, self.compiled.static_inputs)
        versions = self._recordings.get(key, [])
        for recording in versions:
            if recording.fits(inputs):
                return recording
        if self._broken or self._warming(inputs):
            return None
        if not versions and len(self._recordings) >= self.settings.max_recordings:
            self._tell(TOO_MANY_SIZES, f"{len(self._recordings)} combinations of sizes are recorded")
            return None
        if len(versions) >= self.settings.max_static_versions:
            self._tell(TOO_MANY_STATICS, f"{len(versions)} sets of addresses are recorded")
            return None
        return self._make(key, inputs)

    def _make(self, key: tuple[Any, ...], inputs: Sequence[Any]) -> _Recording | None:
        try:
            with phase("cudagraph_capture"):
                recording = _Recording(self.compiled, inputs, self._driver, self.settings.reuse_outputs)
        except Exception as error:  # anything at all: the graph still runs without a recording
            self._broken = True
            self._tell(CAPTURE_FAILED, f"{type(error).__name__}: {error}")
            return None
        self._recordings.setdefault(key, []).insert(0, recording)
        return recording

    def _warming(self, inputs: Sequence[Any]) -> bool:
        """Are ordinary calls still due before these sizes are recorded? Never beyond the limit on recordings."""
        key = signature(inputs, self.compiled.static_inputs)
        if key in self._recordings or self._broken:
            return False
        done = self._warmups.get(key, 0)
        room = done > 0 or len(self._warmups) < self.settings.max_recordings
        return room and done < self.settings.warmup_calls

    def _warm_up(self, inputs: Sequence[Any]) -> Sequence[Any]:
        key = signature(inputs, self.compiled.static_inputs)
        self._warmups[key] = self._warmups.get(key, 0) + 1
        return self._driver.warm_up(lambda: self.compiled(*inputs))

    def _tell(self, why: Reason, detail: str) -> None:
        if why.id not in self._told:
            self._told.add(why.id)
            _emit_fallback(why, detail)


def _emit_fallback(why: Reason, detail: str) -> None:
    emit("fallback", reason=why.id, headline=why.headline, detail=detail)
