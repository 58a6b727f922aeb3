"""One `torchjit.compile` call: its settings, its backend and all the sites that grew from it."""

from __future__ import annotations

import contextlib
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, final

import attrs

import torchjit_vm
from torchjit_frame import LEAVE_ALL, FrontDoor, TailCall, forget, forget_all, is_eager, set_eager
from torchjit_session import disabling, inlining, upstream
from torchjit_session.backend_calls import Backend
from torchjit_session.call_chain import callers_of
from torchjit_session.entries import CompiledEntry, code_of, original_of
from torchjit_session.other_compiler import hidden_from_torch_compile, torch_compile_is_active
from torchjit_session.settings import Host
from torchjit_session.sharing import Family, all_compilations, register, tell_hits
from torchjit_session.site import Site
from torchjit_session.specialization import Specialization
from torchjit_session.stance import on_change
from torchjit_session.terms import Terms

if TYPE_CHECKING:
    from torchjit_session.dynamic_shapes import DynamicShapes
    from torchjit_session.explanation import Explanation

__all__ = ["Compilation"]


def _follow_stance() -> None:
    for compilation in all_compilations():
        compilation.follow_stance()


on_change(_follow_stance)


@final
class Compilation:
    """The state behind one compiled callable."""

    def __init__(
        self,
        function: types.FunctionType,
        backend: Backend,
        host: Host,
        *,
        backend_is_users: bool = False,
        fullgraph: bool = False,
        dynamic: bool | None = None,
        recompile_limit: int | None = None,
        on_error: str | None = None,
        name: str | None = None,
        forwarded: tuple[str, ...] | None = None,
        shapes: DynamicShapes | None = None,
        family: Family | None = None,
    ) -> None:
        """
        Args:
            function: the Python function to compile.
            backend, host, backend_is_users, fullgraph, dynamic, recompile_limit, on_error: see `Terms`.
            name: for reports.
            forwarded: if the function passes its `*args` on, the names of the parameters behind it, for reports.
            shapes: what `dynamic_shapes=` says of the arguments.
            family: the compilations that may share what they make with this one.
        """
        self.function = function
        self.terms = Terms(backend, host, backend_is_users, fullgraph, dynamic, recompile_limit, on_error)
        self.name = name or function.__qualname__
        self.shapes = shapes
        self._sites: dict[tuple[Any, ...], Site] = {}
        self.asked: dict[str, Any] = {}
        """The keywords of `compile` that were given."""
        self.told: dict[str, Any] = {}
        """How it was asked for, as text: backend, mode, options and the like, for the report."""
        self.exhausted: set[types.CodeType] = set()
        """Code objects whose regions reached the accumulated limit: said once."""
        asked: weakref.WeakValueDictionary[int, types.CodeType] = weakref.WeakValueDictionary()
        self.ask_for_call = _asker(weakref.ref(self), asked)
        """What the frame hook asks; code objects remember it and its answers, so it does not keep this alive."""
        weakref.finalize(self, _forget_answers, asked).atexit = False
        self.root = Site(self, torchjit_vm.Region.of_function(function, forwarded), function, name=self.name)
        self._sites[self.root.region.key] = self.root
        self.measures_guards = False
        self.measured_entries: frozenset[str] = frozenset()
        """Compile ids of what is to be measured."""
        self.family = family
        if family is not None:
            family.add(self)
        register(self)

    # ------------------------------------------------------------------ sites
    @property
    def sites(self) -> tuple[Site, ...]:
        """The entry of the function, then its continuations and what it called, in the order in which they were met.

        Functions that Python called during a break and that were left alone do not count.
        """
        return tuple(s for s in list(self._sites.values()) if s.specializations or not s.only_with_tensors)

    @property
    def specializations(self) -> list[Specialization]:
        """All specialisations of all sites."""
        return [s for site in self.sites for s in site.specializations]

    @property
    def stats(self) -> Explanation:
        """What was compiled and why, as data: see `torchjit.explain`."""
        from torchjit_session.inspection import describe  # noqa: PLC0415  # it explains what this module makes

        return describe(self)

    @property
    def entries(self) -> tuple[CompiledEntry, ...]:
        """What runs in the place of the function while its guards hold, with the bytecode of both; and so of its continuations."""
        sites = self.sites
        ids = {site.region.key: tuple(s.compile_id for s in site.specializations) for site in sites}
        return tuple(
            CompiledEntry(
                made.compile_id, site.name, made.location or site.location, made.guards, tuple(made.graphs),
                original_of(site.region), code_of(entry.target), made.source, entry.hits,
                tuple(name for key in made.continuations for name in ids.get(key, ())),
            )
            for site in sites for entry in site.door.entries() for made in [entry.data]
        )  # fmt: skip

    @contextlib.contextmanager
    def measuring_guards(self) -> Iterator[None]:
        """Measure what the guards of each specialisation that calls inside of the block use cost, for `stats`.

        Not while other threads call the function.
        """
        on = [entry for site in self.sites for entry in site.door.entries() if entry.enabled]
        self.measures_guards, self.measured_entries = True, frozenset(entry.data.compile_id for entry in on)
        try:
            for entry in on:
                entry.enabled = False
            yield
        finally:
            for entry in on:
                entry.enabled = not entry.data.used_up
            self.measures_guards, self.measured_entries = False, frozenset()

    def follow_calls(
        self,
        region: torchjit_vm.Region,
        breaks: tuple[torchjit_vm.GraphBreakRecord, ...],
        before: Site,
    ) -> None:
        """Note for a continuation which calls lead to its frame, and which breaks to it: those of the region before, or before that."""
        site = self._sites.get(region.key)
        if site is None or site.specializations:
            return
        if not site.callers:
            site.callers = callers_of(region, breaks, before.callers)
        places = tuple(b.location for b in breaks if b.location is not None) if breaks else before.follows
        site.follows = tuple(dict.fromkeys((*site.follows, *places)))

    def accumulated(self, code: types.CodeType) -> list[Specialization]:
        """Specialisations of all regions of a code object."""
        return [made for s in list(self._sites.values()) if s.region.code is code for made in s.specializations]

    def follow_stance(self) -> None:
        """Switch what is compiled off or on, as the process's stance says."""
        for site in list(self._sites.values()):
            site.follow_stance()

    def door_for(self, region: torchjit_vm.Region) -> FrontDoor:
        """The front door of a continuation, one per place and layout."""
        site = self._sites.get(region.key)
        if site is None:
            resume = _lazy_resume(region)
            leave = None
            if torchjit_vm.blocks_wait(region):
                leave = _leaving(
                    resume if region.throwing else _lazy_resume(attrs.evolve(region, throwing=True)), region
                )
            site = Site(self, region, resume, leave=leave)
            self._sites[region.key] = site
        return site.door

    def region_behind(self, door: FrontDoor) -> torchjit_vm.Region | None:
        """The continuation that a front door of this compilation is of."""
        found = next((site for site in list(self._sites.values()) if site.door is door), None)
        return found.region if found is not None and found.region.offset is not None else None

    def door_for_call(self, function: types.FunctionType) -> FrontDoor | None:
        """The front door of a function that Python calls during a graph break; None leaves it alone."""
        if upstream.rests_below(function):
            return LEAVE_ALL
        if not inlining.worth_capturing(function) or disabling.left_alone(function) is not None:
            return None
        if any(disabling.leaves_first_call(code) for code in _callers()):
            return None
        region = torchjit_vm.Region.of_function(function)
        site = self._sites.get(region.key)
        if site is None:
            site = Site(self, region, function, only_with_tensors=True)
            self._sites[region.key] = site
        return site.door

    def reset(self) -> None:
        """Forget every specialisation."""
        tell_hits(self)
        forget_all()
        self.exhausted.clear()
        self.terms.reported.clear()
        for site in self._sites.values():
            site.forget()
        for key in [k for k, s in self._sites.items() if s is not self.root]:
            del self._sites[key]


def _callers() -> Iterator[types.CodeType]:
    """Of the function that the hook asks about, its caller; with our own frames between, as many as there can be."""
    frame: types.FrameType | None = sys._getframe(2)
    for _ in range(3):
        if frame is not None:
            yield frame.f_code
            frame = frame.f_back


def _asker(
    owner: weakref.ref[Compilation], asked: weakref.WeakValueDictionary[int, types.CodeType]
) -> Callable[[types.FunctionType], FrontDoor | None]:
    @hidden_from_torch_compile
    def ask(function: types.FunctionType) -> FrontDoor | None:
        if torch_compile_is_active():
            return None  # it compiles this function itself
        compilation = owner()
        asked[id(function.__code__)] = function.__code__
        return None if compilation is None else compilation.door_for_call(function)

    return ask


def _forget_answers(asked: weakref.WeakValueDictionary[int, types.CodeType]) -> None:
    for code in list(asked.values()):
        forget(code)


def _lazy_resume(region: torchjit_vm.Region) -> Callable[..., Any]:
    """The eager form of a continuation, assembled when it is first needed."""

    made: list[types.FunctionType] = []

    def resume(*slots: Any) -> Any:
        if not made:
            before = is_eager()
            try:
                set_eager(True)  # the assembler is not the user's code: the hook must not capture it
                made.append(torchjit_vm.resume_function(region))
            finally:
                set_eager(before)
        return TailCall(made[0], *slots)

    return resume


def _leaving(resume: Callable[..., Any], region: torchjit_vm.Region) -> Callable[..., Any]:
    """`resume`, the eager form of a throwing continuation, for an exception that came while another one is being handled, or thrown."""
    before = -2 if region.handled else None
    if before is None:
        return resume

    def leave(*slots: Any) -> Any:
        error, handled = slots[-1], slots[before]
        if error.__context__ is None and error is not handled:
            error.__context__ = handled
        return resume(*slots)

    return leave
