"""The terms of one `torchjit.compile` call: how it was asked for, and what follows from that and the settings of now."""

from __future__ import annotations

from typing import final

import attrs

from torchjit_core.failures import FailurePolicy
from torchjit_session.backend_calls import Backend
from torchjit_session.settings import Host, Settings
from torchjit_session.stance import forced_backend

__all__ = ["Terms"]


@final
@attrs.frozen(eq=False)
class Terms:
    """What was asked for; the properties are read at each compilation.

    Attributes:
        own_backend: takes `(gm, example_inputs)` and returns a callable.
        host: of the settings and the names of backends.
        given_by_user: the user gave the backend, so its errors are the user's to see.
        fullgraph: a graph break is an error.
        own_dynamic: True makes every size symbolic at once, False none, None those that change.
        own_recompile_limit: over the setting of the same name.
        own_on_error: `raise`, `eager`, or None for the setting.
        reported: causes of failures that have been told of.
    """

    own_backend: Backend
    host: Host
    given_by_user: bool
    fullgraph: bool
    own_dynamic: bool | None
    own_recompile_limit: int | None
    own_on_error: str | None
    reported: set[tuple[object, ...]] = attrs.field(factory=set)

    @property
    def settings(self) -> Settings:
        """Those of now."""
        return self.host.settings()

    @property
    def recompile_limit(self) -> int:
        """Specialisations per site."""
        return self.settings.recompile_limit if self.own_recompile_limit is None else self.own_recompile_limit

    @property
    def backend(self) -> Backend:
        """What compiles now: the stance may force another one than this compilation's own."""
        forced = forced_backend()
        return self.own_backend if forced is None else self.host.lookup_backend(forced)

    @property
    def backend_is_users(self) -> bool:
        """Did the program pass it, rather than name it?"""
        forced = forced_backend()
        return self.given_by_user if forced is None else not isinstance(forced, str)

    @property
    def dynamic(self) -> bool | None:
        """True: every size is a symbol; False: none; None: those that change."""
        if self.own_dynamic is None and not self.settings.automatic_dynamic_shapes:
            return False
        return self.own_dynamic

    @property
    def on_error(self) -> str | None:
        """`raise`, `eager`, or None: `eager`, but errors of a backend that the user gave are shown."""
        if self.own_on_error is not None:
            return self.own_on_error
        settings = self.settings
        if settings.on_error == "raise":
            return "raise"
        return "eager" if settings.suppress_errors else None

    def failure_policy(self) -> FailurePolicy:
        """What failures do from now on. Each cause is told of once until `reset`."""
        return FailurePolicy(self.on_error == "raise", self.reported)
