"""A site: one region of the user's code with its front door, its specialisations and its policy on misses."""

from __future__ import annotations

import contextlib
import itertools
import linecache
import time
import traceback
import types
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import attrs
import torch

import torchjit_aot
import torchjit_fx
import torchjit_guards
import torchjit_vm
from torchjit_core import events
from torchjit_core.failures import cause_of, has_no_memory, using_policy
from torchjit_core.location import CodeLocation
from torchjit_core.reasons import GraphBreak, InvalidIR, NotYet, Reason, TorchjitError, UserError, reason
from torchjit_core.showing import shortened
from torchjit_core.turns import turn
from torchjit_core.user_errors import BackendCompilerFailed, FailOnRecompile, RecompileLimitExceeded, Unsupported
from torchjit_core.user_warnings import warn_user
from torchjit_frame import Entry, FrontDoor
from torchjit_guards import costs, torch_support
from torchjit_report.cures import cures
from torchjit_report.recompiles import Recompile, ranked, recompile_of
from torchjit_session import entries, inlining
from torchjit_session.backend_calls import aot_eager, call_backend, is_ours
from torchjit_session.call_chain import CallSite
from torchjit_session.collector import collector_paused, collector_resumed
from torchjit_session.counters import counters
from torchjit_session.interrupts import CompilationScope, is_programs
from torchjit_session.other_compiler import hidden_from_torch_compile
from torchjit_session.plain_calls import holds_proxies, holds_tensors, must_run_eagerly, note_numbers
from torchjit_session.rerun import MOST_CAUGHT, OnRaise
from torchjit_session.site_events import described_call, symbol_fields, tell_capture
from torchjit_session.specialization import Specialization
from torchjit_session.stance import WOULD_COMPILE, current_stance, forced_backend

if TYPE_CHECKING:
    from torchjit_session.compilation import Compilation

__all__ = ["Site"]

RECOMPILE_LIMIT = reason(
    "TJ-API-020",
    "the recompile limit is reached",
    "The guards of this region missed as often as the limit allows; it runs eagerly from now on, "
    "because each new specialisation costs time and memory.",
    "Look at the guards that missed (TORCHJIT_LOGS=recompiles): pass what changes as a tensor, or mark it dynamic.",
    "Raise torchjit.config.recompile_limit if the number of variants is small.",
)
FIRST_CALL = "first call"
INTERNAL_ERROR = reason(
    "TJ-API-021",
    "an error inside torchjit",
    "The region runs eagerly instead, so the program's results are not affected. This is a bug in torchjit.",
    "Report it with the traceback; on_error='raise' or TORCHJIT_ON_ERROR=raise shows it where it happens.",
)
BACKEND_FAILED = reason(
    "TJ-API-022",
    "the backend raised while it compiled a graph",
    "The graph was captured; the compiler that it was given to failed. Its own error is the cause of this one.",
    "Try backend='eager' to see whether capture alone works; on_error='eager' falls back to eager.",
)

# Every compiled module starts in the same method of torch; people look for their own forward.
_MODULE_CALL = torch.nn.Module.__call__.__code__

POSTPONE_LIMIT = 4  # calls that a region may turn down as "not yet"
MOST_OUT_OF_MEMORY = 4  # compilations of a region that end for want of memory or stack, until it stays eager

_site_numbers = itertools.count()


@final
class Site:
    """One region and its front door. `on_miss` is what the door calls, under the door's lock."""

    def __init__(
        self,
        owner: Compilation,
        region: torchjit_vm.Region,
        function: Callable[..., Any],
        *,
        only_with_tensors: bool = False,
        name: str | None = None,
        leave: Callable[..., Any] | None = None,
    ) -> None:
        """
        Args:
            owner: the `torchjit.compile` call that this region belongs to.
            region: where the capture starts.
            function: what runs when the region is not compiled, over the slots of a continuation.
            only_with_tensors: nobody asked for this function by name: leave it alone unless it is given tensors.
            name: in reports, instead of the code's own.
            leave: for a continuation that starts inside of blocks, what runs these for an exception: see `FrontDoor`.
        """
        # Weakly: code objects remember the doors that the frame hook found, and must not keep a compilation alive.
        self._owner = weakref.ref(owner)
        self.only_with_tensors = only_with_tensors
        self.region = region
        self._name = name or region.code.co_qualname
        self.number = next(_site_numbers)
        self.history = torchjit_guards.SizeHistory()
        self.specializations: list[Specialization] = []
        self.given_up: str | None = None  # why it runs eagerly: not the error, whose frames hold what was given
        self.ran_eagerly = False
        self.first_by_aot_eager = False
        self.postponed = 0
        self.ran_out = 0
        self.raised_alone = 0
        self.caught = 0
        self._scope: CompilationScope | None = None
        self._unfinished: Specialization | None = None
        self.callers: tuple[CallSite, ...] = ()  # of a continuation inside of a call
        self.follows: tuple[CodeLocation, ...] = ()  # of a continuation, the breaks behind which it goes on
        slots = None if region.offset is None else region.nslots
        forwards = inlining.forwarding_of(function) if slots is None else {}
        self.door = FrontDoor(function, self.on_miss, slots=slots, leave=leave, thrown=region.throwing, **forwards)

    @property
    def owner(self) -> Compilation:
        """The `torchjit.compile` call that this region belongs to.

        Raises:
            ReferenceError: it is gone; `on_miss` asks first.
        """
        owner = self._owner()
        if owner is None:
            raise ReferenceError(self.name)
        return owner

    @property
    def name(self) -> str:
        """The qualified name of the function or module, with the place of a continuation."""
        offset = self.region.offset
        return self._name if offset is None else f"{self._name} (continuation at line {self.lineno})"

    @property
    def lineno(self) -> int:
        """The first line of the function, or the one where the continuation goes on."""
        code, offset = self.region.code, self.region.offset
        return code.co_firstlineno if offset is None else _line_at(code, offset)

    @property
    def location(self) -> CodeLocation:
        """That line, in its file."""
        return CodeLocation(self.region.code.co_filename, self.region.code.co_qualname, self.lineno)

    # ------------------------------------------------------------------ misses
    @hidden_from_torch_compile
    def on_miss(self, door: FrontDoor, slots: tuple[Any, ...]) -> Entry | BaseException | None:
        """Make a specialisation for these slots, or None to run the function as it is.

        Gives an error of ours back where the blocks that the region is in have been left because of it.
        """
        owner = self._owner()  # held until the end of this call
        if owner is not None and owner.measures_guards and (known := self._measured(slots)) is not None:
            return known
        if owner is None or self.given_up is not None or owner.host.is_off() or must_run_eagerly():
            return None
        if any(map(holds_proxies, slots)):
            return None
        if self.only_with_tensors and not any(map(holds_tensors, slots)):
            door.sealed = True
            return None
        self.first_by_aot_eager = False
        if current_stance() != "default" and not self._stance_allows(slots):
            return None
        try:
            with turn():  # fake tensors and torch's tracing are the process's in practice
                return self._in_turn(slots)
        except TorchjitError as error:
            # What the compiler's own frames did tells the program nothing; those of an error of ours are in its cause.
            return self._leave_blocks(slots, error.with_traceback(None))

    def _measured(self, slots: tuple[Any, ...]) -> Entry | None:
        """The entry for this call, which was passed over, after its guards have been measured over it."""
        for entry in self.door.entries():
            if entry.data.compile_id in self.owner.measured_entries and entry.guard(*slots) is not None:
                entry.data.costs = costs.measure(entry.guard, entry.data.guards, slots)
                entry.enabled = True
                return entry
        return None

    def _in_turn(self, slots: tuple[Any, ...]) -> Entry | None:
        """As `on_miss`, with everything that a compilation changes in the process brought back in every case."""
        self._scope = scope = CompilationScope(_ON_MISS)
        try:
            scope.begin()
            entry = self._try(slots, scope)
            scope.end()
            return entry
        except BaseException as error:
            self._forget_unfinished()
            scope.abandon(error)
            raise
        finally:
            self._scope = None

    def _try(self, slots: tuple[Any, ...], scope: CompilationScope) -> Entry | None:
        """A specialisation, or None where the policy for errors says that the function runs as it is."""
        try:
            with torchjit_aot.saved_tensor_hooks_aside():
                return self._specialize(slots)
        except Unsupported:
            raise
        except RecompileLimitExceeded:
            raise
        except UserError as error:
            raise error
        except NotYet as error:
            if scope.raised:
                raise
            self._forget_unfinished()
            self.postponed += 1
            if self.postponed >= POSTPONE_LIMIT:
                self._run_eagerly(error)
            return None
        except Exception as error:
            if scope.raised or is_programs(error):
                raise
            self._failed(error)
            return None

    def _leave_blocks(self, slots: tuple[Any, ...], error: TorchjitError) -> BaseException:
        """An error of ours leaves a continuation: run the `with` and `finally` blocks that the frame is in.

        They are the rest of code that has started, so grad mode and the like are set as they were when it is left. The front door
        sees to the program's own exceptions, which these blocks may also catch; ours is told in any case.
        """
        region = self.region
        if region.offset is None:
            return error
        thrown = (*(slots[:-1] if region.throwing else slots), error)
        try:
            torchjit_vm.resume_function(attrs.evolve(region, throwing=True))(*thrown)
        except Exception:
            return error  # the frame raises it again, or what its blocks raise instead
        except BaseException as interrupt:
            return interrupt
        return error

    def _stance_allows(self, slots: tuple[Any, ...]) -> bool:
        """May this call be compiled now? Raises where the stance asks for that."""
        stance = current_stance()
        if stance in ("eager_then_compile", "aot_eager_then_compile"):
            first, self.ran_eagerly = not self.ran_eagerly and not self.specializations, True
            self.first_by_aot_eager = first and stance == "aot_eager_then_compile"
            if first and not self.first_by_aot_eager:
                note_numbers(self.history, slots, self.region)
                return False
            return True
        if stance == "fail_on_recompile":
            cause, _ = self._explain_miss(slots)
            raise FailOnRecompile(WOULD_COMPILE, f"{self.name}: {cause}")
        return False

    def follow_stance(self) -> None:
        """Switch what is compiled off or on."""
        on, forced = current_stance() != "force_eager", forced_backend()
        for entry in self.door.entries():
            entry.enabled = on and entry.data.forced == forced and not entry.data.used_up

    def _shared(self, slots: tuple[Any, ...]) -> Entry | None:
        """An entry like the one that an equal module has for such a call, if there is one: nothing is compiled."""
        owner = self.owner
        if owner.family is None or self is not owner.root or not self._has_room():
            return None
        settings = owner.host.settings()
        for lender, entry in owner.family.entries(owner):
            if entry.enabled and entry.data.settings == settings and entry.guard(*slots) is not None:
                return self._take_over(entry, lender, slots)
        return None

    def _take_over(self, entry: Entry, lender: Compilation, slots: tuple[Any, ...]) -> Entry:
        start = time.perf_counter()
        theirs: Specialization = entry.data
        made = Specialization(
            f"{self.number}/{len(self.specializations)}", f"shared with {theirs.compile_id}",
            guards=theirs.guards, graphs=theirs.graphs, breaks=theirs.breaks, source=theirs.source, ranges=theirs.ranges,
            forced=theirs.forced, settings=self.owner.host.settings(),
        )  # fmt: skip
        # What goes on in continuations needs the compilation that has them.
        made.lender = theirs.lender or (lender if entry.hook is not None or theirs.breaks else None)
        note_numbers(self.history, slots, self.region)
        program = torchjit_guards.GuardProgram(theirs.guards, entry.guard.gather, self.region.nslots)
        hook = None if entry.hook is None else self.owner.ask_for_call
        on_raise = entry.on_raise.of(self, made) if isinstance(entry.on_raise, OnRaise) else None
        own = Entry(program, entry.target, entry.unwrap, made, hook, on_raise)
        made.seconds = time.perf_counter() - start
        self.specializations.append(made)
        self.door.append(own)
        return own

    def _specialize(self, slots: tuple[Any, ...]) -> Entry | None:
        shared = self._shared(slots)
        if shared is not None:
            return shared
        cause, recompile = self._explain_miss(slots)
        limit = self.owner.recompile_limit
        if len(self.specializations) >= limit:
            self._give_up(f"{self.name} has {limit} specialisations", self.specializations, recompile)
            return None
        together = self.owner.accumulated(self.region.code)
        if len(together) >= self.owner.host.settings().accumulated_recompile_limit:
            said = f"the regions of {self.region.code.co_qualname} have {len(together)} specialisations together"
            told = self.region.code in self.owner.exhausted
            self.owner.exhausted.add(self.region.code)
            self._give_up(f"{said} (accumulated_recompile_limit)", together, recompile, warn=not told)
            return None
        made = Specialization(
            f"{self.number}/{len(self.specializations)}", cause, recompile, forced=forced_backend(), settings=self.owner.host.settings(),
        )  # fmt: skip
        if self.region.code is _MODULE_CALL:
            made.location = _start_of(getattr(type(slots[0]), "forward", None))
        code = self.code_of(slots)
        made.filename, made.lineno = code.co_filename, code.co_firstlineno
        self._unfinished = made
        self.specializations.append(made)
        if made is not self.specializations[0]:
            counters["recompiles"][self.name] += 1
        start = time.perf_counter()
        ok = False
        policy = using_policy(self.owner.failure_policy())
        with events.using_compile_id(made.compile_id), policy, events.activity("capture"):
            events.emit_lazy("compile_start", lambda: described_call(self, cause, slots))
            try:
                with collector_paused() as collects:
                    entry = self._capture(slots, made, collects)
                if self._scope is not None:
                    self._scope.let_through()  # before an entry raises it at each call
                ok = True
            finally:
                made.seconds = time.perf_counter() - start
                events.emit("compile_end", seconds=made.seconds, ok=ok)
            self.door.append(entry)
            self._unfinished = None
        return entry

    def _capture(self, slots: tuple[Any, ...], made: Specialization, collects: bool) -> Entry:
        owner = self.owner
        ambient = torch_support.ambient_guards()
        sizes = torchjit_guards.ShapeEnv(self.history, dynamic=owner.dynamic)

        def compile_graph(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
            made.graphs.append(gm)
            weakref.finalize(gm, _drop_generated_lines, type(gm)).atexit = False
            with collector_resumed(collects), events.phase("backend"):
                return self._call_backend(gm, example_inputs)

        def start() -> tuple[torchjit_fx.TensorDomain, torchjit_fx.TensorDomain]:
            # A break that cannot be resumed where it lies makes the VM start again and break further out.
            nonlocal sizes
            made.graphs.clear()
            sizes = torchjit_guards.ShapeEnv(self.history, dynamic=owner.dynamic)
            settings = attrs.evolve(owner.fx_settings(), errors_in_tries=self.caught < MOST_CAUGHT)
            domain = torchjit_fx.TensorDomain(compile_graph, sizes, settings)
            domain.needs_history = (
                bool(domains) and domains[-1].needs_history
            )  # the break's own call is not followed again
            domains.append(domain)
            return domain, domain

        domains: list[torchjit_fx.TensorDomain] = []

        leaves, compiler = start()
        try:
            with events.phase("capture"), self._said_shapes(slots):
                captured = torchjit_vm.capture(
                    self.region,
                    slots,
                    leaves=leaves,
                    compiler=compiler,
                    continuations=owner.door_for,
                    policy=owner.policy,
                    restart=start,
                )
        except GraphBreak as error:
            if not owner.fullgraph:
                raise
            raise _unsupported(error) from None
        except torchjit_vm.BreakForbidden as forbidden:
            raise _unsupported(forbidden.why) from None
        finally:
            for domain in domains:
                domain.release()
        counters["stats"]["unique_graphs"] += len(made.graphs)
        made.breaks, made.source = captured.breaks, captured.source
        made.ranges = tuple(domains[-1].ranges)
        made.continuations = tuple(region.key for region in captured.continuations)
        for region in captured.continuations:
            owner.follow_calls(region, captured.breaks, self)
        for record in captured.breaks:
            counters["graph_break"][record.reason.headline] += 1
        made.guards = (*ambient, *captured.guards, *sizes.guards())
        sizes.seal()  # what a lazily compiled backward decides later could not be checked any more
        tell_capture(self, made, captured.gather)
        entries.tell_bytecode(self, made, captured.target)
        if events.listening() and (symbols := sizes.sources()):
            events.emit("symbols", symbols=[symbol_fields(s, path, slots) for s, path in symbols.items()])
        program = torchjit_guards.GuardProgram(made.guards, captured.gather, self.region.nslots)
        if owner.measures_guards:
            made.costs = costs.measure(program, made.guards, slots)
        # What the breaking operation calls is captured in its turn.
        hook = (
            owner.ask_for_call
            if (captured.breaks or captured.continuations) and owner.captures_calls_at_breaks
            else None
        )
        on_raise = None
        if captured.repeatable or is_ours(owner.backend):
            errors = domains[-1].caught
            on_raise = OnRaise(
                self, made, is_graph=not captured.source, catches=bool(errors.marks), in_blocks=errors.in_blocks,
                writes=domains[-1].writes_outside, repeats=captured.repeatable,
            )  # fmt: skip
        entry = Entry(program, captured.target, captured.unwrap, made, hook, on_raise)
        return _for_one_call(entry) if self.first_by_aot_eager else entry

    def _said_shapes(self, slots: tuple[Any, ...]) -> contextlib.AbstractContextManager[None]:
        """The marks that `dynamic_shapes=` puts on the arguments of a call of the function itself."""
        shapes = self.owner.shapes
        if shapes is None or self is not self.owner.root:
            return contextlib.nullcontext()
        return shapes.marked(self.region, slots)

    def _call_backend(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        scope = self._scope
        # A backend of the user's may use signals itself.
        forget = scope.forgives() if scope is not None and self.owner.backend_is_users else None
        try:
            made = call_backend(aot_eager if self.first_by_aot_eager else self.owner.backend, gm, example_inputs)
        except TorchjitError:
            raise
        except Exception as error:
            if (scope is not None and scope.raised) or is_programs(error):
                raise
            if has_no_memory(error) and not self.owner.backend_is_users:
                raise
            raise BackendCompilerFailed(BACKEND_FAILED, f"{type(error).__name__}: {error}") from error
        if forget is not None:
            forget()
        return self.owner.resting(made)

    # ------------------------------------------------------------------ telling
    def _explain_miss(self, slots: tuple[Any, ...]) -> tuple[str, Recompile | None]:
        """The guard that missed in the newest entry, as text and as data, and a `recompile` event."""
        made = self.door.entries()
        if not made:
            return FIRST_CALL, None
        miss = made[-1].guard.explain(slots)
        if miss is None:
            return "no guard misses now: the state changed while the call was checked", None
        if self.region.code is _MODULE_CALL and (miss.location is None or not _is_users(miss.location)):
            miss = attrs.evolve(miss, location=_start_of(slots[0].forward))
        where = miss.location
        recompile = recompile_of(self.name, miss)
        events.emit(
            "recompile",
            function=self.name,
            guard=recompile.guard,
            expected=recompile.expected,
            actual=recompile.actual,
            filename=where.filename if where else None,
            lineno=where.lineno if where else None,
            advice=recompile.advice,
        )
        return shortened(str(miss.text)), recompile

    def code_of(self, slots: tuple[Any, ...]) -> types.CodeType:
        """The code that people know: of a module, its `forward`."""
        code = self.region.code
        if code is _MODULE_CALL:
            found = getattr(getattr(type(slots[0]), "forward", None), "__code__", code)
            return found if isinstance(found, types.CodeType) else code
        return code

    # ------------------------------------------------------------------ giving up
    def _forget_unfinished(self) -> None:
        """What was asked for cannot be, now or ever, or was interrupted: this attempt is no specialisation."""
        made, self._unfinished = self._unfinished, None
        if made in self.specializations and all(entry.data is not made for entry in self.door.entries()):
            self.specializations.remove(made)

    def _run_eagerly(self, error: TorchjitError) -> None:
        self.given_up = str(error)
        self.door.sealed = not self.door.entries()
        events.emit("fallback", reason=error.reason.id, headline=error.reason.headline, detail=error.detail)

    def _give_up(
        self, said: str, made: Sequence[Specialization], missed: Recompile | None, *, warn: bool = True
    ) -> None:
        """Run eagerly from now on, and say what missed, the most frequent first.

        Args:
            said: which limit is reached.
            made: the specialisations that count towards it.
            missed: by the call that found no room.
            warn: another region has not said the same yet.
        """
        causes = [r for r in (*(s.recompile for s in made), missed) if r is not None]
        detail = f"{said}; what missed: {ranked(causes)}" if causes else said
        error = RecompileLimitExceeded(RECOMPILE_LIMIT, detail)
        counters["recompile_limit"][self.name] += 1
        if self.owner.fullgraph:
            raise error
        self.given_up = str(error)
        self.door.sealed = True
        events.emit("fallback", reason=RECOMPILE_LIMIT.id, headline=RECOMPILE_LIMIT.headline, detail=detail)
        if warn:
            warn_user(str(error))

    def _has_room(self) -> bool:
        """Do the limits allow another specialisation?"""
        together = self.owner.accumulated(self.region.code)
        limit = self.owner.host.settings().accumulated_recompile_limit
        return len(self.specializations) < self.owner.recompile_limit and len(together) < limit

    def make_anew(self, made: Specialization) -> None:
        """Another specialisation is to take this one's place, if the limits have room for it."""
        if not self._has_room():
            return
        for entry in self.door.entries():
            if entry.data is made:
                self.door.remove(entry)

    def drop_faulty(self, made: Specialization, why: Reason, detail: str) -> None:
        """What was made has a fault: say so once, and take it away. After the second one the region runs eagerly."""
        self.raised_alone += 1
        if self.raised_alone > 1:
            self.door.clear()
            self._run_eagerly(InvalidIR(why, detail))
            return
        for entry in self.door.entries():
            if entry.data is made:
                self.door.remove(entry)
        counters["fallback"][why.headline] += 1
        events.emit("fallback", reason=why.id, headline=why.headline, detail=detail)
        warn_user(str(InvalidIR(why, detail)))

    def distrust(self, why: Reason, detail: str) -> None:
        """What was made cannot be used, as it turns out: say so, and run eagerly from now on."""
        self.door.clear()
        error = InvalidIR(why, detail)
        self._run_eagerly(error)
        counters["fallback"][why.headline] += 1
        warn_user(str(error))

    def _failed(self, error: Exception) -> None:
        """Apply the failure policy: raise, or warn once and run eagerly from now on.

        Where memory or stack ran out, another call may have enough: the next ones try again.
        """
        user_backend = isinstance(error, BackendCompilerFailed) and self.owner.backend_is_users
        if self.owner.on_error == "raise" or (user_backend and self.owner.on_error is None):
            if isinstance(error, TorchjitError) or has_no_memory(error):
                raise error
            raise InvalidIR(INTERNAL_ERROR, f"{self.name}: {type(error).__name__}: {error}") from error
        if has_no_memory(error):
            self.ran_out += 1
            if self.ran_out < MOST_OUT_OF_MEMORY:
                self._forget_unfinished()
                events.emit("postponed", function=self.name, error=f"{type(error).__name__}: {error}")
                return
        self._unfinished = None
        if not isinstance(error, TorchjitError):
            detail = f"{self.name}: {type(error).__name__}: {error}"
            text = "".join(traceback.format_exception(error))
            wrapped: TorchjitError = InvalidIR(INTERNAL_ERROR, f"{detail}\n{text}")
        else:
            wrapped, detail = error, str(error)
        self.given_up = str(wrapped)
        self.door.sealed = not self.door.entries()
        counters["fallback"][wrapped.reason.headline] += 1
        events.emit("fallback", reason=wrapped.reason.id, headline=wrapped.reason.headline, detail=detail)
        if self.owner.failure_policy().reports(cause_of(wrapped.reason, error)):
            warn_user(str(wrapped))


_ON_MISS = Site.on_miss.__code__


def _for_one_call(entry: Entry) -> Entry:
    """The same, passed over from the second call on."""

    def once(*args: Any) -> Any:
        made.enabled = False
        made.data.used_up = True
        return entry.target(*args)

    made = Entry(entry.guard, once, entry.unwrap, entry.data, entry.hook, entry.on_raise)
    return made


def _unsupported(why: GraphBreak) -> Unsupported:
    """A break as the error that it is where the program allows none."""
    made = Unsupported(why.reason, why.detail, why.location)
    made.hints = cures(why.reason, why.detail)
    return made


def _line_at(code: types.CodeType, offset: int) -> int:
    """The source line of an instruction; the nearest one before it where the compiler gave it none."""
    found = code.co_firstlineno
    for start, _, line in code.co_lines():
        if start > offset:
            break
        found = line or found
    return found


def _start_of(forward: Any) -> CodeLocation | None:
    code = getattr(forward, "__code__", None)
    return None if code is None else CodeLocation(code.co_filename, code.co_qualname, code.co_firstlineno)


def _is_users(where: CodeLocation) -> bool:
    return not where.filename.startswith(str(Path(torch.__file__).parent))


def _drop_generated_lines(graph_class: type[torch.fx.GraphModule]) -> None:
    """Forget the source of a dead graph's code: torch.fx and linecache keep it for ever."""
    code = getattr(graph_class.forward, "__code__", None)
    if code is not None and code.co_filename.startswith("<eval_with_key>"):
        linecache.cache.pop(code.co_filename, None)
        torch.fx.graph_module._loader.eval_cache.pop(code.co_filename, None)
