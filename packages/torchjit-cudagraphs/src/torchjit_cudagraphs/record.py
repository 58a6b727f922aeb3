"""The recorded callable: which recording fits a call, when to make one, and when to run without."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, final

import attrs
import torch

from torchjit_core.events import activity, current_compile_id, emit, emit_fallback, phase
from torchjit_core.failures import current_policy, degraded
from torchjit_core.reasons import Reason
from torchjit_cudagraphs.holders import describe_holders
from torchjit_cudagraphs.inputs import signature
from torchjit_cudagraphs.padded import Batch, Padded
from torchjit_cudagraphs.pool import GraphPool, pool_of, release_pools, retire
from torchjit_cudagraphs.recordable import (
    CAPTURE_FAILED,
    DOES_NOT_PAY,
    FORWARD_WITHOUT,
    OVERLAPPING_INPUT,
    TOO_MANY_SIZES,
    TOO_MANY_VERSIONS,
    Recordable,
    name_of,
    overlaps,
    refusal,
    run_compiled,
)
from torchjit_cudagraphs.recording import Recording
from torchjit_cudagraphs.settings import CudaGraphSettings

__all__ = ["Recorded", "record", "reset"]

__torchjit_writes_from__ = 0
"""An error that comes through here says nothing about what other pieces, or copies of inputs, have written: `torchjit_core.writing`."""

_Key = tuple[Any, ...]
_NO_SLOWER = 1.02
"""A replay may take this much of the time of the call without a CUDA graph, where it could be the slower one."""
_DISTURBED = 1.3
"""And this much where its copies could not be the reason."""
_COPIED_PER_SECOND = 5e11
"""Bytes: copies take less time than this says."""
_HOST = 2e-5
"""Seconds that a replay takes the host beyond what a call takes it that launches next to nothing."""
_EXPLAINED = 5
"""A loss of more than this many times of what a replay adds comes from other programs."""
_SAVED_ELSEWHERE = 64 << 20
"""Bytes that a backward may copy: what its forward saved outside the pool."""
_NAMED = 3
"""So many inputs are named in a message."""
_TRIALS = 3
"""So many replays must be slower before a recording is dropped: other programs on the device delay single ones."""
_MOST_TRIALS = 16
"""A recording is kept after so many: other programs make a comparison impossible, and launching at once what was launched one by one rarely loses."""


def record(
    compiled: Recordable,
    example_inputs: Sequence[Any],
    settings: CudaGraphSettings | None = None,
    *,
    internal: frozenset[int] = frozenset(),
    fixed_layouts: bool = False,
    pool: GraphPool | None = None,
    batch: Batch | None = None,
    names: Sequence[str] = (),
    name: str = "graph",
    takes_saved: bool = False,
) -> Callable[..., Sequence[Any]]:
    """Make `compiled` replay a CUDA graph after its first calls.

    The first calls with given sizes (`warmup_calls` of them) run `compiled`, the next one captures it, and it and all
    later ones replay. A replay copies the inputs that are neither static nor results of other recordings to fixed
    addresses and launches the whole graph at once. Results lie in a memory pool that all recordings of a device share;
    a result is never overwritten while it is held. Parameters that moved, new sizes and held results are recorded anew,
    up to limits. A replay makes no autograd history: record forward and backward graphs one by one.

    Args:
        compiled: the callable, with the attributes of `Recordable`.
        example_inputs: tensors (real or fake) and numbers, in its order; only their metadata is read.
        settings: choices; the defaults if None.
        internal: positions of results that only other recordings take (tensors saved for the backward, gradients on
            their way): they are never copied for being small.
        fixed_layouts: the caller sees to it that sizes and strides of tensors are those of `example_inputs` at every
            call, so that they need not be compared.
        pool: the memory; the pool of the callable's device if None.
        batch: where the batch is, for `settings.capture_sizes`.
        names: what messages call the inputs.
        name: what events call the callable.
        takes_saved: it is a backward, which takes what a forward saved: where the forward ran without a recording, so that
            much of that lies outside the pool, it runs without one too, rather than to copy it.

    Returns:
        A `Recorded`, with capture sizes a `Padded` around one; or `compiled` itself when it cannot be recorded, after a `fallback` event that says why.
    """
    chosen = settings or CudaGraphSettings()
    if bool(chosen.capture_sizes) is not (batch is not None):
        raise ValueError("capture_sizes and batch go together")
    why = refusal(compiled, example_inputs, "cuda" if pool is None else pool.driver.device_type, names)
    if why is not None:
        emit_fallback(*why)
        return compiled
    recorded = Recorded(compiled, chosen, internal, fixed_layouts, pool, names, name, takes_saved)
    return recorded if batch is None else Padded(recorded, compiled, chosen.capture_sizes, batch)


@final
class Recorded:
    """A compiled callable with its recordings. Calls of one pool, from any thread or stream, run one after the other.

    Args:
        compiled: the callable.
        settings: choices.
        internal: positions of results that only other recordings take.
        fixed_layouts: need sizes and strides of inputs not be compared?
        pool: the memory; that of the callable's device if None.
        names: what messages call the inputs.
        takes_saved: is it a backward?
        name: what events call the callable. They carry the compile id under which it was made.
    """

    def __init__(
        self,
        compiled: Recordable,
        settings: CudaGraphSettings,
        internal: frozenset[int] = frozenset(),
        fixed_layouts: bool = False,
        pool: GraphPool | None = None,
        names: Sequence[str] = (),
        name: str = "graph",
        takes_saved: bool = False,
    ) -> None:
        self._names = tuple(names)
        # Recordings are made and measured by later calls, which belong to no compilation.
        self._of: dict[str, Any] = {"compile_id": current_compile_id(), "graph": name}
        self._name, self._policy = name, current_policy()
        self.compiled = compiled
        self.settings = settings
        self.internal = internal
        self._fixed_layouts = fixed_layouts
        self._given = pool
        self._pool: GraphPool | None = pool
        self._last: Recording | None = None
        self._recordings: dict[_Key, list[Recording]] = {}
        self._warmups: dict[_Key, int] = {}
        self._plain: dict[_Key, float] = {}
        self._useless: set[_Key] = set()
        self._takes_saved = takes_saved
        self._elsewhere: dict[_Key, int] = {}
        self._dropped = False
        self._told: set[str] = set()
        self._broken = False
        _recorded.add(self)
        weakref.finalize(self, _bury, self._recordings)

    def __stored_state__(self) -> Mapping[str, object]:
        """Without recordings: they are of this process's memory."""
        return {
            "compiled": self.compiled, "settings": self.settings, "internal": self.internal, "fixed_layouts": self._fixed_layouts,
            "pool": self._given, "names": self._names, "name": self._name, "takes_saved": self._takes_saved,
        }  # fmt: skip

    def __restore_state__(self, state: Mapping[str, Any]) -> None:
        self.__init__(**state)

    @property
    def recordings(self) -> int:
        """How many recordings exist."""
        return sum(map(len, self._recordings.values()))

    def forget(self) -> None:
        """Drop all recordings; calls begin with warm-ups again."""
        pool = self._pool
        if pool is None:
            return
        with pool.lock:
            self._move()
            self._warmups.clear()
            self._useless.clear()
            self._broken = False

    def _move(self) -> None:
        """Drop all recordings, and look for the pool anew."""
        self._last = None
        _bury(self._recordings)
        self._recordings.clear()
        self._pool = self._given

    def inside_capture(self) -> bool:
        """Is somebody capturing the current stream, so that nothing may wait for the device?"""
        pool = self._pool or _pool_for(self.compiled)
        return pool.driver.capturing()

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        return self.boxed(list(inputs))

    def boxed(self, inputs: list[Any]) -> Sequence[Any]:
        """Call with the inputs in a list, which is emptied: memory of inputs that nobody else holds is reused."""
        pool = self._pool
        if pool is None or (pool.closed and self._given is None):
            if pool is not None:
                with pool.lock:
                    self._move()  # it was closed: a fresh one serves from now on
            pool = self._pool = _pool_for(self.compiled)
        if self._broken or pool.driver.capturing():
            # Inside somebody's capture our kernels become part of theirs.
            return run_compiled(self.compiled, inputs)
        with pool.lock:
            recording = self._last
            if recording is not None and recording.fits(inputs):
                recording.let_go(inputs)
                if recording.admitted() and recording.decided:
                    return recording.run(inputs)
                recording.take_back(inputs)
            results = self._other(pool, inputs)
        if self._dropped:
            # Without the pool's lock: others take it while they hold the one that all pools share.
            self._dropped = False
            retire(pool)
        return results

    # ------------------------------------------------------------------ the slow path
    def _other(self, pool: GraphPool, inputs: list[Any]) -> Sequence[Any]:
        key = signature(inputs, self.compiled.static_inputs)
        versions = self._recordings.get(key, ())
        for recording in versions:
            if recording.fits(inputs):
                recording.let_go(inputs)
                if recording.admitted():
                    self._last = recording
                    return self._replay(pool, key, recording, inputs)
                recording.take_back(inputs)
        if key not in self._recordings and (key in self._useless or self._warming(key)):
            return self._warm_up(pool, key, inputs)
        made = self._make(pool, key, inputs)
        if made is None:
            return run_compiled(self.compiled, inputs)
        self._last = made
        return self._replay(pool, key, made, inputs)

    def _replay(self, pool: GraphPool, key: _Key, recording: Recording, inputs: list[Any]) -> Sequence[Any]:
        plain = self._plain.get(key)
        if recording.decided or plain is None or not self.settings.measure:
            recording.decided = True
            return recording.run(inputs)
        if recording.replays == 0:  # it loads the graph to the device
            return recording.run(inputs)
        results, seconds = pool.driver.timed(lambda: recording.run(inputs))
        copied = recording.inputs.bytes_copied()
        recording.times.append(seconds)
        pays = _pays(plain, recording.times, copied)
        if pays is None:
            return results
        recording.decided = pays
        best = min(recording.times)
        emit("cudagraph_timed", plain=plain, replay=best, bytes_copied=copied, kept=pays, **self._of)
        if not pays:
            self._useless.add(key)
            self._drop(pool, key)
            detail = f"{plain * 1e3:.3f} ms without, {best * 1e3:.3f} ms with one, which copies {copied} bytes"
            self._tell(DOES_NOT_PAY, detail)
        return results

    def _drop(self, pool: GraphPool, key: _Key) -> None:
        """No recordings for these sizes any more."""
        self._last = None
        dropped = self._recordings.pop(key)
        pool.bury([r.replay for r in dropped])
        for recording in dropped:
            pool.lost(recording)
        self._dropped = self._given is None

    def _warming(self, key: _Key) -> bool:
        """Are ordinary calls still due before these sizes are recorded? Never beyond the limit on recordings."""
        done = self._warmups.get(key, 0)
        room = done > 0 or len(self._warmups) < self.settings.max_recordings
        return room and done < self.settings.warmup_calls

    def _warm_up(self, pool: GraphPool, key: _Key, inputs: list[Any]) -> Sequence[Any]:
        if key in self._useless:
            return run_compiled(self.compiled, inputs)
        done = self._warmups[key] = self._warmups.get(key, 0) + 1
        driver = pool.driver
        with _warming_up() as asked:
            if not self.settings.measure or done == 1 or done < self.settings.warmup_calls:
                results = driver.warm_up(lambda: run_compiled(self.compiled, inputs))
            else:
                results, self._plain[key] = driver.timed(lambda: run_compiled(self.compiled, inputs))
        if asked.again:
            self._warmups[key] = done - 1
        return results

    def _make(self, pool: GraphPool, key: _Key, inputs: list[Any]) -> Recording | None:
        if pool.closed or not self._may_record(pool, key, inputs):
            return None
        used = pool.blocks_in_use()
        held = sum(not used.isdisjoint(r.results) for r in self._recordings.get(key, []))
        copy_all, small = held >= self.settings.max_held, self.settings.copy_up_to

        def copy(position: int, nbytes: int) -> bool:
            return copy_all or (nbytes <= small and position not in self.internal)

        with activity("cudagraph", **self._of):
            try:
                with phase("cudagraph_capture"):
                    recording = Recording(self.compiled, inputs, pool, copy, fixed_layouts=self._fixed_layouts)
            except Exception as error:  # anything at all: the graph still runs without a recording
                degraded(CAPTURE_FAILED, f"{type(error).__name__}: {error}", error, self._policy, **self._of)
                self._broken = True
                return None
        emit(
            "cudagraph_captured", recordings=self.recordings + 1, copies=copy_all, kept=len(recording.kept), **self._of
        )
        self._recordings.setdefault(key, []).insert(0, recording)
        return recording

    def _may_record(self, pool: GraphPool, key: _Key, inputs: list[Any]) -> bool:
        """Is another recording allowed and worth it? Tells why not."""
        versions = self._recordings.get(key, [])
        if self._takes_saved and self._saved_elsewhere(pool, inputs):
            self._elsewhere[key] = self._elsewhere.get(key, 0) + 1
            if versions and self._elsewhere[key] == _TRIALS:
                self._drop(pool, key)
            self._tell(FORWARD_WITHOUT, f"more than {_SAVED_ELSEWHERE >> 20} MiB of what was saved lie elsewhere")
            return False
        if not versions and len(self._recordings) >= self.settings.max_recordings:
            self._tell(TOO_MANY_SIZES, f"{len(self._recordings)} combinations of sizes are recorded")
            return False
        if len(versions) >= self.settings.max_versions:
            if TOO_MANY_VERSIONS.id not in self._told:  # the search for who holds what takes its time
                self._tell(TOO_MANY_VERSIONS, self._why_none_fits(pool, versions, inputs))
            return False
        overlapping = next((p for p, v in enumerate(inputs) if self._is_copied(p, v) and overlaps(v)), None)
        if overlapping is not None:  # known before where sizes are fixed
            self._useless.add(key)
            self._tell(OVERLAPPING_INPUT, name_of(overlapping, self._names))
        return overlapping is None

    def _saved_elsewhere(self, pool: GraphPool, inputs: list[Any]) -> bool:
        """Would a replay copy much, because the forward ran without a CUDA graph?"""
        copied = [v for p, v in enumerate(inputs) if self._is_copied(p, v) and pool.block_of(v) is None]
        return bool(sum(v.untyped_storage().nbytes() for v in copied) > _SAVED_ELSEWHERE)

    def _why_none_fits(self, pool: GraphPool, versions: list[Recording], inputs: list[Any]) -> str:
        """What keeps this call from the recordings that exist: parameters that moved, and who holds earlier results."""
        moved = {i for r in versions for i in r.inputs.moved(inputs)}
        unmoved = [r for r in versions if not r.inputs.moved(inputs)]
        parts = [f"{len(versions)} recordings for these sizes exist"]
        if moved and not unmoved:
            names = [name_of(i, self._names) for i in sorted(moved)[:_NAMED]]
            parts.append(f"memory of {', '.join(names)} moved since")
        # What the recording that misses least would overwrite.
        used = pool.blocks_in_use()
        missing = min((used - r.kept for r in unmoved or versions), key=len, default=set())
        held = pool.lent_in(missing)
        templates = [t for lent in held for t in lent.templates]
        parts += describe_holders({lent.cdata for lent in held}, (inputs,), templates)
        return "; ".join(parts)

    def _is_copied(self, position: int, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and position not in self.compiled.static_inputs

    def _tell(self, why: Reason, detail: str) -> None:
        if why.id not in self._told:
            self._told.add(why.id)
            emit_fallback(why, detail, **self._of)


def _pays(plain: float, replays: Sequence[float], copied: int) -> bool | None:
    """Is a recording faster than the call that it replaces? None: another replay has to tell.

    A replay launches the same kernels at once, so it can only lose by its copies and by what it takes the host. Where that is little beside
    the call's time, it is kept whatever was measured; and a loss that this does not explain comes from other programs, so it says nothing.

    Args:
        plain: seconds of a call without a CUDA graph.
        replays: seconds of each replay.
        copied: bytes of inputs that a replay copies.
    """
    copies = copied / _COPIED_PER_SECOND
    little = (_NO_SLOWER - 1) * plain
    if copies + _HOST <= little or min(replays) <= plain * (_NO_SLOWER if copies > little else _DISTURBED):
        return True
    explained = [s for s in replays if s <= plain + _EXPLAINED * (copies + _HOST)]
    if len(explained) >= _TRIALS:
        return False
    return True if len(replays) >= _MOST_TRIALS else None


_recorded: weakref.WeakSet[Recorded] = weakref.WeakSet()


def reset() -> None:
    """Drop all recordings and give the pools' memory back; what is still held stays valid."""
    for recorded in list(_recorded):
        recorded.forget()
    release_pools()


def _pool_for(compiled: Recordable) -> GraphPool:
    if compiled.device is None:
        raise AssertionError("refusal() lets no callable without a device pass")
    return pool_of(compiled.device)


def _bury(recordings: dict[_Key, list[Recording]]) -> None:
    for versions in recordings.values():
        for recording in versions:
            recording.pool.bury([recording.replay])


@attrs.define
class _Warmup:
    """A warm-up call. `again`: code in it asked for another one."""

    again: bool = False


_current = threading.local()


@contextlib.contextmanager
def _warming_up() -> Iterator[_Warmup]:
    before, warmup = getattr(_current, "warmup", None), _Warmup()
    _current.warmup = warmup
    try:
        yield warmup
    finally:
        _current.warmup = before


def mark_warmup_incomplete() -> None:
    """Ask for another ordinary call before the function that is warming up is recorded, such as from a tuner that has not finished.

    To be called in the warm-up itself; elsewhere it does nothing.
    """
    warmup: _Warmup | None = getattr(_current, "warmup", None)
    if warmup is not None:
        warmup.again = True
