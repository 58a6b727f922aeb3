"""Trials: which of an entry's calls run as eager code and which compiled, what they took, and what follows from that.

Nothing here knows torch. See docs/design/0035-never-slower.md.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, final
from weakref import WeakSet

import attrs

from torchjit_core import events
from torchjit_core.handlers import let_through
from torchjit_frame import Entry

__all__ = ["ORDER", "WARM", "WARM_LATER", "Choice", "Clock", "Sample", "Trial", "TrialTerms", "Trials", "verdict"]

Way = Literal["eager", "compiled"]

WARM = 3
"""The first calls are not timed: these compile, fill caches and reserve memory."""
WARM_LATER = 100
"""The same for each class of sizes after the first of an entry: it has that many calls before one may cost something."""
ORDER: tuple[Way, ...] = (
    "compiled", "compiled", "eager", "compiled", "eager", "compiled", "eager", "compiled", "eager",
)  # fmt: skip
"""What timed calls run. They take turns, so that both ways meet the same noise."""
CLEARLY_SLOWER = {1: 1.6, 2: 1.2}
"""After so many eager calls: compiled is kept at once where the fastest of them took so many times as long. That bounds what trials cost."""
SHORT = 1e-3
"""Seconds of a compiled call below which one eager call, which may have met some noise, decides nothing."""
WINS = 0.97
"""At the end two eager calls must each have taken less than this share of the fastest compiled one."""
ENOUGH_WINS = 2
MOST_LOST = 6
"""Samples that came to nothing, after which the trial ends."""
MOST_INSIDE = 10_000
"""Calls inside of a timed one."""
MOST_WAITS = 512
"""Calls while a backward is awaited."""


@final
@attrs.frozen
class Choice:
    """What a trial ended with.

    Attributes:
        faster: what took less time.
        eager, compiled: seconds of the fastest call of each kind; of training, with its backward. 0 where there was none.
        timed: the calls that were timed, by number.
        eagerly: of these, the ones that ran as eager code.
        decided: the number of the last call before it was decided.
        why_not: why nothing was compared; "" where something was.
        reported_only: compiled code stays, whatever was faster.
        size_class: what it holds for: calls whose varying sizes have a product of so many bits; 0: no size varies.
    """

    faster: Way
    eager: float = 0.0
    compiled: float = 0.0
    timed: tuple[int, ...] = ()
    eagerly: tuple[int, ...] = ()
    decided: int = 0
    why_not: str = ""
    reported_only: bool = False
    size_class: int = 0

    @property
    def kept(self) -> Way:
        """What calls run from now on."""
        return "compiled" if self.reported_only else self.faster

    @property
    def is_loss(self) -> bool:
        """Does compiled code run although eager is faster?"""
        return self.kept != self.faster

    def __str__(self) -> str:
        if not self.size_class:
            return self._told()
        least = 1 << (self.size_class - 1)
        return f"{self._told()} (varying sizes that multiply to {least} to {2 * least - 1})"

    def _told(self) -> str:
        if self.why_not:
            return f"not compared with eager: {self.why_not}"
        eager, compiled = f"{self.eager * 1e3:.3g} ms", f"{self.compiled * 1e3:.3g} ms"
        if self.is_loss:
            return f"slower than eager: {compiled} against {eager}"
        if self.kept == "eager":
            return f"kept eager: {eager} against {compiled} compiled"
        return f"kept compiled: {compiled} against {eager} eager"

    def as_record(self) -> dict[str, Any]:
        """For a file; see `of_record`."""
        return {
            field.name: getattr(self, field.name)
            for field in attrs.fields(Choice)
            if field.name not in ("reported_only", "size_class")
        }

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Choice:
        """What another process has chosen.

        Raises:
            ValueError, TypeError, KeyError: it is no record of one.
        """
        if record["faster"] not in ("eager", "compiled"):
            raise ValueError(record["faster"])
        return cls(
            record["faster"], float(record["eager"]), float(record["compiled"]), tuple(map(int, record["timed"])),
            tuple(map(int, record["eagerly"])), int(record["decided"]), str(record["why_not"]),
        )  # fmt: skip


Timed = tuple[float, int]
"""Seconds of a call, and the product of its varying sizes."""


def verdict(eager: Sequence[Timed], compiled: Sequence[Timed]) -> Way | None:
    """What is faster; None where more calls are needed to tell. Both have been timed at least once.

    A larger call is taken to take no less time, and nothing else is: eager is faster than compiled calls that were not larger, or slower than
    some that were not smaller.
    """
    if len(eager) == 1 and min(compiled)[0] < SHORT:
        return None
    bound = CLEARLY_SLOWER.get(len(eager))
    if bound is not None and all(
        seconds > bound * min((s for s, size in compiled if size >= own), default=math.inf) for seconds, own in eager
    ):
        return "compiled"
    if len(eager) < ORDER.count("eager"):
        return None
    wins = sum(seconds < WINS * min((s for s, size in compiled if size <= own), default=0) for seconds, own in eager)
    return "eager" if wins >= ENOUGH_WINS else "compiled"


class Clock(Protocol):
    """What tells the time where the entry computes."""

    def now(self) -> Any:
        """A moment."""
        ...

    def seconds(self, start: Any, end: Any) -> float | None:
        """Between two moments; None: that cannot be told, and another call is to be timed."""
        ...


class Sample(Protocol):
    """One timed call, until it is known what it took."""

    def done(self, *result: Any) -> None:
        """The call has returned `result`, or raised where there is none."""
        ...

    def give_up(self) -> None:
        """Nothing will come of it any more."""
        ...


class _PerThread(threading.local):
    inside: int = 0
    """0 outside of timed calls; else one more than the calls inside of one that have asked so far."""

    def is_inside(self) -> bool:
        if not self.inside:
            return False
        self.inside += 1
        if self.inside > MOST_INSIDE:  # an interrupt came just before the end of a timed call was noted
            self.inside = 0
        return True


_thread = _PerThread()
_waiting: list[Trial] = []
"""The trial whose sample waits for a backward: at most one in the process, since what else is on trial would be part of what it takes."""


@final
@attrs.frozen
class TrialTerms:
    """What trials of an entry's calls have in common.

    Attributes:
        sample: begins to time a call of a trial that runs in one way.
        obstacle: why no call with this product of its varying sizes may run as eager code now; "".
        told: called with each choice, once.
        fault: told of an error in here or in a sample, which no call of the program is to see; it may raise another one.
        known: what an earlier process has chosen for a class of sizes: the same calls run in the same ways, untimed.
        keep: called with a choice that was not known.
        reported_only: compiled code stays, whatever is faster.
        watch: watches a warm call; its result is called with the call's result, and gives why nothing can be compared, or "".
    """

    sample: Callable[[Trial, Way], Sample]
    obstacle: Callable[[int], str]
    told: Callable[[Choice], None]
    fault: Callable[[Exception], None]
    known: Callable[[int], Choice | None] = lambda size_class: None
    keep: Callable[[Choice], None] = lambda choice: None
    reported_only: bool = False
    watch: Callable[[], Callable[[], str]] | None = None


@final
class Trials:
    """What a front door asks before each call of the entries on trial: `Entry.trial`. Each class of sizes is on a trial of its own.

    Args:
        terms: of all of them.
        sizes: gathers the sizes that vary, for `Entry.sizes`; None: none does.
    """

    def __init__(self, terms: TrialTerms, sizes: object = None) -> None:
        self._terms, self._sizes = terms, sizes
        self._entries: WeakSet[Entry] = WeakSet()
        self.by_class: dict[int, Trial] = {}

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Those that have been made, the smallest sizes first."""
        made = (trial.choice for _, trial in sorted(self.by_class.items()))
        return tuple(choice for choice in made if choice is not None)

    def add(self, entry: Entry) -> None:
        """Put an entry on trial, or let it share what was chosen."""
        self._entries.add(entry)
        entry.sizes = self._sizes
        for choice in self.choices:
            entry.decide(choice.size_class, choice.kept == "eager")
        if self._sizes is not None or not self.choices:
            entry.trial = self

    def __call__(self, entry: Entry, product: int) -> tuple[bool, Callable[..., None]] | None:
        """What this call of the entry runs: see `Entry`."""
        if _thread.is_inside():
            return None  # a call inside of one that is timed
        size_class = product.bit_length()
        trial = self.by_class.get(size_class)
        if trial is None:
            warm = WARM_LATER if self.by_class else WARM
            made = Trial(self._terms, self._settled, size_class, warm)
            trial = self.by_class.setdefault(size_class, made)
        return trial(entry, product)

    def _settled(self, choice: Choice) -> None:
        for entry in list(self._entries):
            entry.decide(choice.size_class, choice.kept == "eager")
            if self._sizes is None:
                entry.trial = None


@final
class Trial:
    """Which calls of one class of sizes run as eager code, until it is known what is faster.

    Args:
        terms: what it has in common with the others of its entries.
        settled: called with the choice.
        size_class: see `Choice`.
        warm: how many calls are not timed at first.
    """

    def __init__(
        self, terms: TrialTerms, settled: Callable[[Choice], None], size_class: int = 0, warm: int = WARM
    ) -> None:
        self._terms, self._settled, self._class, self._warm = terms, settled, size_class, warm
        self._known: Choice | None = None
        self._times: dict[Way, list[Timed]] = {"eager": [], "compiled": []}
        self._timed: list[int] = []
        self._eagerly: list[int] = []
        self._lost = self._waits = 0
        self._waiting_for: Sample | None = None
        self._waiting_entry: Entry | None = None
        self._product = 0
        """Of the call that is timed."""
        self.calls = 0
        """Of all its entries, so far."""
        self.choice: Choice | None = None

    def __call__(self, entry: Entry, product: int) -> tuple[bool, Callable[..., None]] | None:
        """What this call of the entry runs: see `Entry`."""
        if self.choice is not None:
            return None  # it was on its way
        try:
            return self._asked(entry, product)
        except BaseException as error:
            _thread.inside = 0
            self.failed(error)
            return None

    def _asked(self, entry: Entry, product: int) -> tuple[bool, Callable[..., None]] | None:
        self.calls += 1
        if self.calls == 1:
            self._known = self._terms.known(self._class)
        if self._known is not None:
            return self._as_known(self._known)
        if self.calls <= self._warm:
            watch = self._terms.watch
            return None if watch is None else (False, self._watched(watch()))
        if _waiting and not self._no_longer_waits(entry):
            return None
        if self.choice is not None:
            return None
        way = ORDER[sum(map(len, self._times.values()))]
        if way == "eager" and (why := self._terms.obstacle(product)):
            self.end(why)
            return None
        self._timed.append(self.calls)
        if way == "eager":
            self._eagerly.append(self.calls)
        self._waiting_entry, self._product = entry, product
        done = self._inside(self._terms.sample(self, way).done)
        return way == "eager", done

    def _as_known(self, known: Choice) -> tuple[bool, Callable[..., None]] | None:
        if self.calls >= known.decided:
            self._settle(known)
        if self.calls not in known.timed:
            return None
        return self.calls in known.eagerly, self._inside(_nothing)

    def _inside(self, done: Callable[..., None]) -> Callable[..., None]:
        """Until `done`, other trials rest in this thread."""
        _thread.inside = 1

        def leave(*result: Any) -> None:
            _thread.inside = 0
            self.guarded(done, *result)

        return leave

    def guarded(self, done: Callable[..., None], *given: Any) -> None:
        """Call a part of a sample. An error in it ends the trial, and nobody else sees it."""
        try:
            done(*given)
        except BaseException as error:
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        """Called in an `except` clause.

        Raises:
            BaseException: again, what a signal's handler or a listener of the program has raised.
        """
        if not isinstance(error, Exception) or events.raised_by_listener(error):
            raise error
        let_through()
        if self.choice is None:
            with contextlib.suppress(Exception):
                self.end("an error inside torchjit")
        self._terms.fault(error)

    def _watched(self, ask: Callable[[], str]) -> Callable[..., None]:
        def done(*result: Any) -> None:
            why = ask() if result else ""
            if why and self.choice is None:
                self.end(why)

        return lambda *result: self.guarded(done, *result)

    def _no_longer_waits(self, entry: Entry) -> bool:
        """Is there no sample any more that waits for a backward? One is given up where its entry is called again."""
        other = _waiting[0]
        other._waits += 1
        if other._waits <= MOST_WAITS and not (other is self and entry is self._waiting_entry):
            return False
        sample = other._waiting_for
        if sample is not None:
            sample.give_up()
        other.lost("no backward followed, or another call came before it")
        return True

    def wait(self, sample: Sample) -> bool:
        """The sample waits for a backward: nothing else is timed until `taken` or `lost`. False: another one waits."""
        if _waiting or self.choice is not None:
            return False
        _waiting.append(self)
        self._waiting_for, self._waits = sample, 0
        return True

    def _leave_waiting(self) -> None:
        self._waiting_for = None
        if _waiting and _waiting[0] is self:
            _waiting.clear()

    def taken(self, way: Way, seconds: float | None) -> None:
        """A call took so long; None: nobody can tell, and the next one takes its place."""
        self._leave_waiting()
        if self.choice is not None or seconds is None:
            return
        self._times[way].append((seconds, self._product))
        eager, compiled = self._times["eager"], self._times["compiled"]
        if way == "eager" and (faster := verdict(eager, compiled)) is not None:
            self._settle(
                Choice(faster, min(eager)[0], min(compiled)[0], tuple(self._timed), tuple(self._eagerly), self.calls)
            )

    def lost(self, why: str) -> None:
        """Nothing is known about a timed call: it raised, another thread called meanwhile, or no backward followed."""
        self._leave_waiting()
        self._lost += 1
        if self._lost >= MOST_LOST and self.choice is None:
            self.end(why)

    def end(self, why: str) -> None:
        """Nothing can be compared: compiled code stays."""
        timed, eagerly = tuple(self._timed), tuple(self._eagerly)
        self._settle(Choice("compiled", timed=timed, eagerly=eagerly, decided=self.calls, why_not=why))

    def _settle(self, choice: Choice) -> None:
        self.choice = choice = attrs.evolve(choice, reported_only=self._terms.reported_only, size_class=self._class)
        self._settled(choice)
        if self._known is None:
            self._terms.keep(choice)
        self._terms.told(choice)


def _nothing(*_: Any) -> None:
    """What becomes of a call that another process has timed."""
