"""The guard against loss: some of the program's own calls run as eager code and are timed, and what is faster is kept.

Never a second run of a call. Which regions are put on trial, where choices are kept, and who is told: here. What is timed
and how it is decided: `trials` and `trial_samples`. See docs/design/0035-never-slower.md.
"""

from __future__ import annotations

import functools
import hashlib
import json
import traceback
import weakref
from typing import TYPE_CHECKING, Any, final

import attrs
import torch

import torchjit_guards
from torchjit_core import events
from torchjit_core.failures import FailurePolicy, cause_of
from torchjit_core.guards import SymbolicCondition
from torchjit_core.handlers import let_through
from torchjit_core.paths import AccessPath, SizeOf
from torchjit_core.reasons import InvalidIR, reason
from torchjit_core.storing import NotStorable
from torchjit_core.user_warnings import warn_user
from torchjit_frame import Entry
from torchjit_guards import torch_support
from torchjit_session.backend_calls import runs_of
from torchjit_session.counters import counters
from torchjit_session.eager_facts import EagerFacts, facts_of, free_bytes
from torchjit_session.site_keys import key_parts
from torchjit_session.specialization import Specialization
from torchjit_session.trial_samples import TimedCall, clock_for, random_numbers_watched
from torchjit_session.trials import Choice, Clock, Sample, Trial, Trials, TrialTerms, Way
from torchjit_store.choices import ChoiceFolder
from torchjit_store.key import process_parts

if TYPE_CHECKING:
    from torchjit_session.site_facts import SiteFacts

__all__ = ["begin"]

FAULT = reason(
    "TJ-API-077",
    "an error inside torchjit while calls were compared with eager code",
    "Compiled code runs as it would without the setting never_slower, so the program's results are not affected. This is a bug in torchjit.",
    "Report it with the traceback; on_error='raise' shows it where it happens, and TORCHJIT_NEVER_SLOWER=off avoids it.",
)
_MOST_OF_FREE = 0.5
"""The share of the free memory that eager code may need."""
_LITTLE = 1 << 26
"""Bytes that are there in any case: a look at what is free takes as long as many a call."""


def begin(site: SiteFacts, slots: tuple[Any, ...], entry: Entry) -> None:
    """Put an entry on trial that has just been made, if anything may be compared with eager code.

    Raises:
        InvalidIR: something in here failed, and errors are to be seen.
    """
    try:
        _begin(site, slots, entry)
    except Exception as error:  # whatever this is, the entry works
        let_through()
        if events.raised_by_listener(error):
            raise
        tell_fault(site.name, site.terms.failure_policy(), error)


def _begin(site: SiteFacts, slots: tuple[Any, ...], entry: Entry) -> None:
    made: Specialization = entry.data
    if site.terms.host.comparing().mode == "off":
        return
    facts = made.eager_facts or (facts_of(made.graphs) if made.graphs else None)
    clock = None if facts is None else clock_for(frozenset(facts.devices))
    if facts is not None and clock is not None and _may_be_compared(site, made):
        sizes = _varying_sizes(made, len(slots)) if made.symbols else None
        made.trials = Trials(_terms(site, made, _Kept.of(site, slots, facts), facts, clock), sizes)
        made.trials.add(entry)


_MOST_SIZES = 16


def _varying_sizes(made: Specialization, nslots: int) -> torchjit_guards.GuardProgram | None:
    """Gathers the sizes that vary between calls of an entry, each symbol once; numbers, and strides, are none.

    A guard bounds each symbol: sizes 0 and 1 are none.
    """
    found: dict[str, AccessPath] = {}
    for guard in made.guards:
        if isinstance(guard, SymbolicCondition) and len(guard.names) == 1:
            ((name, path),) = guard.names
            if isinstance(path, SizeOf):
                found.setdefault(name, path)
    paths = list(found.values())[:_MOST_SIZES]
    return torchjit_guards.GuardProgram((), paths, nslots) if paths else None


def _terms(site: SiteFacts, made: Specialization, kept: _Kept, facts: EagerFacts, clock: Clock) -> TrialTerms:
    """Of the trials of an entry that may be compared."""
    runs = runs_of(site.terms.backend)
    return TrialTerms(
        functools.partial(_sample, clock),
        functools.partial(_obstacle, facts),
        _teller(site, made),
        functools.partial(tell_fault, site.name, site.terms.failure_policy()),
        kept.choice,
        kept.keep,
        reported_only=site.terms.host.comparing().mode == "report" or site.terms.fullgraph,
        watch=None if runs is not None and runs.draws_as_eager else random_numbers_watched,
    )


@final
@attrs.frozen
class _Kept:
    """Where an entry's choices are kept, one for each class of sizes; without a key they are not."""

    folder: ChoiceFolder
    key: str | None

    @staticmethod
    def of(site: SiteFacts, slots: tuple[Any, ...], facts: EagerFacts) -> _Kept:
        comparing = site.terms.host.comparing()
        return _Kept(ChoiceFolder(comparing.cache_dir), _key(site, slots, facts) if comparing.keeps else None)

    def choice(self, size_class: int) -> Choice | None:
        """What an earlier process chose; None where there is nothing, or nothing that can be read."""
        record = None if self.key is None else self.folder.read(f"{self.key}-{size_class}")
        try:
            return None if record is None else Choice.of_record(record)
        except (ValueError, TypeError, KeyError):
            return None

    def keep(self, choice: Choice) -> None:
        """For later processes."""
        if self.key is not None:
            self.folder.write(f"{self.key}-{choice.size_class}", choice.as_record())


def tell_fault(name: str, policy: FailurePolicy, error: Exception) -> None:
    """An error of ours has come while calls were timed; nothing is compared.

    Raises:
        InvalidIR: errors are to be seen.
    """
    detail = f"{name}: {type(error).__name__}: {error}"
    if policy.raises:
        raise InvalidIR(FAULT, detail) from error
    counters["fallback"][FAULT.headline] += 1
    events.emit_fallback(FAULT, detail)
    told = InvalidIR(FAULT, f"{detail}\n{''.join(traceback.format_exception(error))}")
    if policy.reports(cause_of(FAULT, error)):
        warn_user(str(told))


def _may_be_compared(site: SiteFacts, made: Specialization) -> bool:
    """Is the whole of a call known to be the same in eager code, random numbers aside?

    Continuations belong to the call of the function that they are of.
    """
    if site.region.offset is not None or made.used_up or made.forced is not None:
        return False
    if site.terms.host.store().carried is not None or torch.are_deterministic_algorithms_enabled() or _among_ranks():
        return False
    runs = runs_of(site.terms.backend)
    return runs is not None and not runs.records


def _among_ranks() -> bool:
    """Do other processes make the same calls? All would have to choose alike, or collectives would not meet."""
    distributed = torch.distributed
    return bool(distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1)


def _obstacle(facts: EagerFacts, product: int) -> str:
    """Why no call with this product of its varying sizes may run as eager code now; "" where it may."""
    if _among_ranks():
        return "the process is one of several ranks by now"
    if "cuda" in facts.devices and torch.cuda.is_current_stream_capturing():
        return "the program records a CUDA graph"
    needed = facts.nbytes_at(product)
    free = free_bytes(facts.devices) if needed > _LITTLE else None
    if free is not None and needed > _MOST_OF_FREE * free:
        return f"eager code may need {needed / 2**20:.0f} MiB, and {free / 2**20:.0f} MiB are free"
    return ""


def _sample(clock: Clock, trial: Trial, way: Way) -> Sample:
    return TimedCall(trial, way, clock)


def _key(site: SiteFacts, slots: tuple[Any, ...], facts: EagerFacts) -> str | None:
    """Under which the choice is kept; None: another process could not tell that it has the same program."""
    try:
        parts = key_parts(site, slots)
    except NotStorable:
        return None
    process = process_parts(own_code=False)
    ambient = [str(guard) for guard in torch_support.ambient_guards()]
    text = json.dumps([parts, process, facts.program, ambient], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _teller(site: SiteFacts, made: Specialization) -> Any:
    """What tells of a choice. It keeps neither the site nor the specialisation alive."""
    where, name = weakref.ref(made), site.name

    def told(choice: Choice) -> None:
        counted = "not compared" if choice.why_not else "slower than eager" if choice.is_loss else f"kept {choice.kept}"
        counters["never_slower"][counted] += 1
        known = where()
        events.emit(
            "compared_with_eager", compile_id=None if known is None else known.compile_id, function=name,
            choice=str(choice), kept=choice.kept, eager=choice.eager, compiled=choice.compiled,
        )  # fmt: skip

    return told
