"""What others read of a site and of its compilation: keys of stored entries, trials, explanations. They need neither class."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torchjit_vm
    from torchjit_core.location import CodeLocation
    from torchjit_frame import FrontDoor
    from torchjit_session.call_chain import CallSite
    from torchjit_session.specialization import Specialization
    from torchjit_session.terms import Terms

__all__ = ["CompilationFacts", "SiteFacts"]


class SiteFacts(Protocol):
    """What keys, trials and explanations read of a `Site`."""

    number: int
    terms: Terms
    region: torchjit_vm.Region
    door: FrontDoor
    only_with_tensors: bool
    callers: tuple[CallSite, ...]

    @property
    def owner(self) -> CompilationFacts: ...

    @property
    def name(self) -> str: ...

    @property
    def location(self) -> CodeLocation: ...

    @property
    def specializations(self) -> Sequence[Specialization]: ...

    @property
    def misses_on_disk(self) -> Mapping[str, int]: ...

    def code_of(self, slots: tuple[Any, ...]) -> types.CodeType: ...


class CompilationFacts(Protocol):
    """What they read of a `Compilation`."""

    terms: Terms

    @property
    def shapes(self) -> object | None: ...

    @property
    def sites(self) -> Sequence[SiteFacts]: ...
