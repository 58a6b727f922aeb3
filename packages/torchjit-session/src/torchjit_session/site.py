"""A site: one region of the user's code with its front door, its specialisations and its policy on misses.

`capture` makes a specialisation, `sharing` takes one over, `failures` is what errors lead to.
"""

from __future__ import annotations

import contextlib
import itertools
import linecache
import time
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import attrs
import torch

import torchjit_aot
import torchjit_guards
import torchjit_vm
from torchjit_core import events
from torchjit_core.collector import collector_paused, collector_resumed
from torchjit_core.failures import using_policy
from torchjit_core.guards import ClassAttrIs, MroIs
from torchjit_core.location import CodeLocation
from torchjit_core.reasons import NotYet, TorchjitError, UserError
from torchjit_core.showing import shortened
from torchjit_core.storing import collecting_reliance
from torchjit_core.turns import turn
from torchjit_core.user_errors import FailOnRecompile, NotCompiledAhead, RecompileLimitExceeded, Unsupported
from torchjit_frame import Entry, FrontDoor
from torchjit_guards import costs, torch_support
from torchjit_report.recompiles import Recompile, recompile_of
from torchjit_session import inlining
from torchjit_session.backend_calls import is_ours
from torchjit_session.call_chain import CallSite
from torchjit_session.counters import counters
from torchjit_session.failures import Failures
from torchjit_session.first_uses import make_first_uses
from torchjit_session.interrupts import CompilationScope
from torchjit_session.late_imports import import_capture
from torchjit_session.other_compiler import hidden_from_torch_compile
from torchjit_session.plain_calls import holds_proxies, holds_tensors, must_run_eagerly, note_numbers
from torchjit_session.rerun import MOST_CAUGHT, OnRaise
from torchjit_session.sharing import borrowed
from torchjit_session.site_events import described_call, place_fields, symbol_fields, tell_capture
from torchjit_session.size_histories import SizeHistories
from torchjit_session.specialization import Specialization
from torchjit_session.stance import WOULD_COMPILE, current_stance, forced_backend

if TYPE_CHECKING:
    from torchjit_session.capture import CaptureOrigin
    from torchjit_session.compilation import Compilation
    from torchjit_session.storing import Shelf
    from torchjit_store.settings import StoreSettings

__all__ = ["Site"]

FIRST_CALL = "first call"

# Every compiled module starts in the same method of torch; people look for their own forward.
_MODULE_CALL = torch.nn.Module.__call__.__code__

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
        self.terms = owner.terms
        self.only_with_tensors = only_with_tensors
        self.region = region
        self._name = name or region.code.co_qualname
        self.number = next(_site_numbers)
        self.histories = SizeHistories()
        self.specializations: list[Specialization] = []
        self.ran_eagerly = False
        self.dropped_outdated = False
        self.first_by_aot_eager = False
        self.shelf: Shelf | None = None
        """What was read from disk, if anything was."""
        self.begins_elsewhere: Callable[[Any], bool] | None = None
        """Of a module's call: has something behind its hooks been compiled, for this module, instead of the call?"""
        self._scope: CompilationScope | None = None
        self._unfinished: Specialization | None = None
        self.callers: tuple[CallSite, ...] = ()  # of a continuation inside of a call
        self.follows: tuple[CodeLocation, ...] = ()  # of a continuation, the breaks behind which it goes on
        slots = None if region.offset is None else region.nslots
        forwards = inlining.forwarding_of(function) if slots is None else {}
        self.door = FrontDoor(function, self.on_miss, slots=slots, leave=leave, thrown=region.throwing, **forwards)
        self.failures = Failures(self.name, self.terms, self.door, self.specializations, self.has_room)

    @property
    def given_up(self) -> str | None:
        """Why it runs eagerly, if it does."""
        return self.failures.given_up

    @property
    def misses_on_disk(self) -> Mapping[str, int]:
        """Why no entry on disk served a call, and how often."""
        return {} if self.shelf is None else self.shelf.missed

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
        if owner is None or self._leaves_alone(slots):
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

    def _leaves_alone(self, slots: tuple[Any, ...]) -> bool:
        """Does this call run as it is, whatever the stance says?"""
        if self.failures.given_up is not None or self.terms.host.is_off() or must_run_eagerly():
            return True
        if any(map(holds_proxies, slots)):
            return True
        if self.only_with_tensors and not any(map(holds_tensors, slots)):
            self.door.sealed = True
            return True
        return self.begins_elsewhere is not None and self.begins_elsewhere(slots[0])

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
        except (RecompileLimitExceeded, NotCompiledAhead):
            raise
        except UserError as error:
            raise error
        except NotYet as error:
            if scope.raised:
                raise
            self._forget_unfinished()
            self.failures.postponed(error)
            return None
        except Exception as error:
            if scope.raised or events.raised_by_listener(error):
                raise
            if self.failures.failed(error):
                self._forget_unfinished()
            self._unfinished = None
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
                note_numbers(self.history_of(slots), slots, self.region)
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

    def _specialize(self, slots: tuple[Any, ...]) -> Entry | None:
        store = self.terms.host.store()
        make_first_uses()
        known = borrowed(self, slots) or self._loaded(slots, store)
        if known is not None:
            return known
        if store.carried is not None:
            # Imported here: most processes neither load nor store anything.
            from torchjit_session import storing  # noqa: PLC0415

            storing.refuse(self, slots, store.carried)
            return None
        with self._compiling(slots, store) as first:
            return (None if first else self._loaded(slots, store)) or self._compiled(slots, store)

    def _compiling(self, slots: tuple[Any, ...], store: StoreSettings) -> contextlib.AbstractContextManager[object]:
        """Inside, other processes wait for what is stored of this site; false: another one has compiled meanwhile."""
        if not self.has_room() or not store.writes or not store.reads or store.verifies:
            return contextlib.nullcontext(True)
        # Imported here: most processes neither load nor store anything.
        from torchjit_session import storing  # noqa: PLC0415

        return storing.compiling_once(self, slots, store)

    def _compiled(self, slots: tuple[Any, ...], store: StoreSettings) -> Entry | None:
        cause, recompile = self._explain_miss(slots)
        if self._limit_reached(recompile):
            return None
        made = Specialization(
            f"{self.number}/{len(self.specializations)}", cause, recompile, forced=forced_backend(), settings=self.terms.settings,
        )  # fmt: skip
        self.place(made, slots)
        code = self.code_of(slots)
        self._unfinished = made
        self.specializations.append(made)
        if made is not self.specializations[0]:
            counters["recompiles"][self.name] += 1
        start = time.perf_counter()
        ok = False
        policy = using_policy(self.terms.failure_policy())
        with events.using_compile_id(made.compile_id), policy, events.activity("capture"):
            events.emit_lazy("compile_start", lambda: self.told_at_start(cause, code, slots))
            try:
                with collector_paused() as collects:
                    entry, origin = self._capture(slots, made, collects)
                if self._scope is not None:
                    self._scope.let_through()  # before an entry raises it at each call
                ok = True
            finally:
                made.seconds = time.perf_counter() - start
                events.emit("compile_end", seconds=made.seconds, ok=ok)
            self.door.append(entry)
            self._unfinished = None
            if store.writes and not self.first_by_aot_eager and not self.owner.measures_guards:
                # Imported here: most processes neither load nor store anything.
                from torchjit_session import storing  # noqa: PLC0415

                storing.save(self, slots, entry, origin)
            self._compare(slots, entry)
        return entry

    def _loaded(self, slots: tuple[Any, ...], store: StoreSettings) -> Entry | None:
        """An entry from disk that holds for this call. A forced backend and a first call by `aot_eager` are compiled anew."""
        if not store.reads:
            return None
        # Imported here: most processes neither load nor store anything.
        from torchjit_session import storing  # noqa: PLC0415

        policy = using_policy(self.terms.failure_policy())
        with policy, events.activity("load"):
            found = storing.load(self, slots, store)
        if found is not None:
            self._compare(slots, found)
        return found

    def _compare(self, slots: tuple[Any, ...], entry: Entry) -> None:
        """Put a new entry on trial beside eager code, if the setting `never_slower` says so."""
        if self.terms.host.comparing().mode == "off" or self.first_by_aot_eager or self.owner.measures_guards:
            return
        # Imported here: a setting that most programs leave alone.
        from torchjit_session import never_slower  # noqa: PLC0415

        never_slower.begin(self, slots, entry)

    def place(self, made: Specialization, slots: tuple[Any, ...]) -> None:
        """Note where the code that people know is."""
        if self.region.code is _MODULE_CALL:
            made.location = _start_of(getattr(type(slots[0]), "forward", None))
        code = self.code_of(slots)
        made.filename, made.lineno = code.co_filename, code.co_firstlineno

    def _limit_reached(self, missed: Recompile | None) -> bool:
        """Is there no room for another specialisation? Then that is told."""
        limit, code = self.terms.recompile_limit, self.region.code
        if not self.has_room():
            self._drop_outdated()
        if len(self.specializations) >= limit:
            self.failures.limit_reached(f"{self.name} has {limit} specialisations", self.specializations, missed)
            return True
        together = self.owner.accumulated(code)
        if len(together) < self.terms.settings.accumulated_recompile_limit:
            return False
        said = f"the regions of {code.co_qualname} have {len(together)} specialisations together"
        first = code not in self.owner.exhausted
        self.owner.exhausted.add(code)
        self.failures.limit_reached(f"{said} (accumulated_recompile_limit)", together, missed, warn=first)
        return True

    def _drop_outdated(self) -> None:
        """What rests on classes as they were before somebody patched them makes room: the first `torch.compile` of a process patches
        `nn.Module`, say. Once: a class that is patched and restored for each call reaches the limit."""
        found = [made for made in self.specializations if not self.dropped_outdated and _is_outdated(made)]
        self.dropped_outdated = self.dropped_outdated or bool(found)
        for entry in self.door.entries():
            if entry.data in found:
                self.door.remove(entry)
        for made in found:
            self.specializations.remove(made)

    def has_room(self) -> bool:
        """Do the limits allow another specialisation?"""
        together = self.owner.accumulated(self.region.code)
        limit = self.terms.settings.accumulated_recompile_limit
        return len(self.specializations) < self.terms.recompile_limit and len(together) < limit

    def _capture(self, slots: tuple[Any, ...], made: Specialization, collects: bool) -> tuple[Entry, CaptureOrigin]:
        """An entry for these slots, and what it was made of."""
        import_capture(self.terms.backend)
        # Imported here: where all is loaded from disk nothing captures. It is there now.
        from torchjit_session.capture import CaptureOrigin, hand_over, interpret  # noqa: PLC0415
        from torchjit_session.function_marks import Asked  # noqa: PLC0415

        owner = self.owner
        ambient, asked = torch_support.ambient_guards(), Asked()

        def compile_graph(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
            made.graphs.append(gm)
            weakref.finalize(gm, _drop_generated_lines, type(gm)).atexit = False
            with collector_resumed(collects), events.phase("backend"):
                return hand_over(self.terms, self._scope, gm, example_inputs, by_aot_eager=self.first_by_aot_eager)

        with events.phase("capture"), self._said_shapes(slots), collecting_reliance() as relied_on:
            captured, domain, sizes = interpret(
                self.region, slots, self.terms, self.history_of(slots), made.graphs, compile_graph, owner.door_for, asked,
                errors_in_tries=self.failures.caught < MOST_CAUGHT,
            )  # fmt: skip
        made.take(captured, domain.ranges, (*ambient, *captured.guards, *sizes.guards()))
        sizes.seal()  # what a lazily compiled backward decides later could not be checked any more
        for region in captured.continuations:
            owner.follow_calls(region, captured.breaks, self)
        tell_capture(self.name, self.region, self.callers, made, captured)
        made.symbols = len(symbols := sizes.sources())
        if symbols and events.listening():
            events.emit("symbols", symbols=[symbol_fields(s, path, slots) for s, path in symbols.items()])
        program = torchjit_guards.GuardProgram(made.guards, captured.gather, self.region.nslots)
        if owner.measures_guards:
            made.costs = costs.measure(program, made.guards, slots)
        on_raise = None
        if captured.repeatable or is_ours(self.terms.backend):
            errors = domain.caught
            on_raise = OnRaise(
                self.failures, made, is_graph=not captured.source, catches=bool(errors.marks), in_blocks=errors.in_blocks,
                writes=domain.writes_outside, repeats=captured.repeatable,
            )  # fmt: skip
        # What the breaking operation calls is captured in its turn.
        breaks = bool(captured.breaks or captured.continuations) and self.terms.settings.capture_calls_at_breaks
        hook = owner.ask_for_call if breaks else None
        entry = Entry(program, captured.target, captured.unwrap, made, hook, on_raise)
        origin = CaptureOrigin(captured, relied_on, asked)
        return _for_one_call(entry) if self.first_by_aot_eager else entry, origin

    def _said_shapes(self, slots: tuple[Any, ...]) -> contextlib.AbstractContextManager[None]:
        """The marks that `dynamic_shapes=` puts on the arguments of a call of the function itself."""
        shapes = self.owner.shapes
        if shapes is None or self is not self.owner.root:
            return contextlib.nullcontext()
        return shapes.marked(self.region, slots)

    # ------------------------------------------------------------------ telling
    def told_at_start(self, cause: str, code: types.CodeType, slots: tuple[Any, ...]) -> dict[str, Any]:
        """Fields of `compile_start`."""
        follows = [place_fields(at) for at in self.follows]
        return described_call(code, slots) | {
            "function": self.name,
            "cause": cause,
            "follows": follows,
            **self.owner.told,
        }

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
        recompile = recompile_of(self.name, miss)
        events.emit(
            "recompile",
            function=self.name,
            guard=recompile.guard,
            expected=recompile.expected,
            actual=recompile.actual,
            **place_fields(miss.location),
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

    def history_of(self, slots: tuple[Any, ...]) -> torchjit_guards.SizeHistory:
        """The sizes that were met at calls with modules like those of this one."""
        return self.histories.of(self.region, slots, self.terms.recompile_limit // 2)

    def forget(self) -> None:
        """Forget every specialisation, and all that failed."""
        self.door.clear()
        self.specializations.clear()
        self.failures.forget()
        self.ran_eagerly = self.dropped_outdated = False
        self.shelf = None
        self.histories = SizeHistories()

    def _forget_unfinished(self) -> None:
        """What was asked for cannot be, now or ever, or was interrupted: this attempt is no specialisation."""
        made, self._unfinished = self._unfinished, None
        if made in self.specializations and all(entry.data is not made for entry in self.door.entries()):
            self.specializations.remove(made)


_ON_MISS = Site.on_miss.__code__


def _for_one_call(entry: Entry) -> Entry:
    """The same, passed over from the second call on."""

    def once(*args: Any) -> Any:
        made.enabled = False
        made.data.used_up = True
        return entry.target(*args)

    made = Entry(entry.guard, once, entry.unwrap, entry.data, entry.hook, entry.on_raise)
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


def _is_outdated(made: Specialization) -> bool:
    """Does it rest on something about a class that is not so any more?"""
    return any(isinstance(guard, ClassAttrIs | MroIs) and not guard.check(()) for guard in made.guards)


def _is_users(where: CodeLocation) -> bool:
    return not where.filename.startswith(str(Path(torch.__file__).parent))


def _drop_generated_lines(graph_class: type[torch.fx.GraphModule]) -> None:
    """Forget the source of a dead graph's code: torch.fx and linecache keep it for ever."""
    code = getattr(graph_class.forward, "__code__", None)
    if code is not None and code.co_filename.startswith("<eval_with_key>"):
        linecache.cache.pop(code.co_filename, None)
        torch.fx.graph_module._loader.eval_cache.pop(code.co_filename, None)
