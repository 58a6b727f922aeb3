"""Timed calls: by the clock of the processor or of a GPU, of training with the backward that belongs to the call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, final

import attrs
import torch

from torchjit_session.trials import Clock, Trial, Way

__all__ = ["EventClock", "ThreadClock", "TimedCall", "clock_for", "random_numbers_watched"]

_torch: Any = torch
_MOST_NODES = 64
_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)


@final
@attrs.frozen
class _Moment:
    """Seconds before and after a look at how long this thread has had to wait for a processor, and that time; None: nobody looked."""

    before: float
    waited: float | None
    after: float

    def was_disturbed(self) -> bool:
        """Did the thread lose its processor while it looked?"""
        return self.after - self.before > _LONG_LOOK

    def waited_until(self, end: _Moment) -> float:
        """The time waited from here to there, as far as somebody looked."""
        return 0.0 if self.waited is None or end.waited is None else end.waited - self.waited


_LONG_LOOK = 5e-4
_MOST_DISTURBED = 8
_LONG_CALL = 1e-3
"""Shorter calls seldom lose their processor, and a look would take a part of what they take."""


@final
class ThreadClock:
    """Time that passes without what the thread waits for a processor that others have, where operations are over when they return.

    Where the system does not tell that (Linux does), and of short calls, all the time that passes.
    """

    def __init__(self) -> None:
        self._looks, self._long, self._disturbed = True, False, 0

    def now(self) -> _Moment:
        """A moment of this thread."""
        before = time.perf_counter()
        if not self._looks:
            return _Moment(before, None, before)
        try:
            with open("/proc/thread-self/schedstat", "rb", buffering=0) as file:
                waited: float | None = int(file.read().split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            waited = None
        return _Moment(before, waited, time.perf_counter())

    def seconds(self, start: _Moment, end: _Moment) -> float | None:
        """From the end of the first look to the beginning of the second; None if one of the two was disturbed."""
        passed = end.before - start.after
        self._looks = self._long = self._long or passed > _LONG_CALL
        if self._disturbed < _MOST_DISTURBED and (start.was_disturbed() or end.was_disturbed()):
            self._disturbed += 1
            return None
        return max(passed - start.waited_until(end), 1e-9)


@final
class EventClock:
    """Time that passes on a GPU's current stream. The host waits for the end of each timed call: there are few of them."""

    def now(self) -> Any:
        """An event, recorded on the current stream."""
        event = _torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, start: Any, end: Any) -> float:
        """Between the two."""
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3


def clock_for(device_types: frozenset[str]) -> Clock | None:
    """The clock of what computes on these; None where there is none for them."""
    if "cuda" in device_types:
        return EventClock() if device_types <= {"cuda", "cpu"} else None
    return ThreadClock() if device_types <= {"cpu"} else None


@final
class TimedCall:
    """A call that is timed from now on.

    What it takes is the call itself and, where its results require gradients, their backward: from when the first gradient of a result
    is there until autograd has come to its end.

    Args:
        trial: what the call belongs to.
        way: what it runs.
        clock: what times it.
    """

    def __init__(self, trial: Trial, way: Way, clock: Clock) -> None:
        self._trial, self._way, self._clock = trial, way, clock
        self._calls = trial.calls
        self._handles: list[Any] = []
        self._forward: float | None = 0.0
        self._began: Any = None
        self._start = clock.now()

    def done(self, *result: Any) -> None:
        """The call has returned `result`, or raised where there is none."""
        trial = self._trial
        end = self._clock.now()
        if not result:
            trial.lost("calls raise")
            return
        if trial.calls != self._calls:
            trial.lost("several threads call at the same time")
            return
        self._forward = self._clock.seconds(self._start, end)
        tensors = list(_tensors(result[0]))
        if torch.is_grad_enabled() and any(tensor is None for tensor in tensors):
            trial.end("it returns objects in which results with gradients may be")
            return
        nodes = {id(t.grad_fn): t.grad_fn for t in tensors if t is not None and t.grad_fn is not None}
        if not nodes:
            trial.taken(self._way, self._forward)
        elif trial.wait(self):
            for node in list(nodes.values())[:_MOST_NODES]:
                self._handles.append(node.register_prehook(self._backward_begins))
        else:
            trial.lost("other regions wait for their backward")

    def give_up(self) -> None:
        """No backward came."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

    def _backward_begins(self, _: object) -> None:
        """The first gradient of a result is there."""
        self._trial.guarded(self._begin_backward)

    def _begin_backward(self) -> None:
        if not self._handles:
            return
        self.give_up()
        self._began = self._clock.now()
        _torch.autograd.Variable._execution_engine.queue_callback(self._backward_ends)

    def _backward_ends(self) -> None:
        self._trial.guarded(self._end_backward)

    def _end_backward(self) -> None:
        behind = self._clock.seconds(self._began, self._clock.now())
        self._trial.taken(self._way, None if self._forward is None or behind is None else self._forward + behind)


def _tensors(value: Any, depth: int = 4) -> Iterator[torch.Tensor | None]:
    """The tensors of a result, and None for an object that nobody can look into."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item, depth - 1)
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item, depth - 1)
    elif not isinstance(value, _PLAIN):
        yield None


def random_numbers_watched() -> Callable[[], str]:
    """Notes where the generators are; the result says why nothing can be compared if they are elsewhere then."""
    before = _generators()

    def ask() -> str:
        if all(torch.equal(a, b) for a, b in zip(before, _generators(), strict=True)):
            return ""
        return "it draws random numbers, which are others in eager code"

    return ask


def _generators() -> list[torch.Tensor]:
    states = [torch.get_rng_state()]
    if _torch.cuda.is_initialized():
        states.append(torch.cuda.get_rng_state())
    return states
