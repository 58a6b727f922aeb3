"""The terms of one `torchjit.compile` call: how it was asked for, and what follows from that and the settings of now."""

from __future__ import annotations

from typing import final

import attrs
import torch

import torchjit_fx
import torchjit_vm
from torchjit_core.failures import FailurePolicy
from torchjit_core.size_sources import marks_by_source
from torchjit_core.user_warnings import warn_user
from torchjit_frame import TailCall
from torchjit_session import control, disabling, inlining, upstream
from torchjit_session.backend_calls import Backend, GraphRaised, is_ours
from torchjit_session.settings import Host, Settings
from torchjit_session.stance import forced_backend

__all__ = ["Terms"]

_FUNCTION_MODES = torchjit_vm.Interception(
    torch._C._push_on_torch_function_stack,
    torch._C._pop_torch_function_stack,
    "__torch_function__",
    torchjit_fx.seen_by_function_modes,
    torchjit_fx.overriding_classes,
)


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

    def capture_policy(self) -> torchjit_vm.CapturePolicy:
        """What the VM may do."""
        settings = self.settings
        return torchjit_vm.CapturePolicy(
            fullgraph=self.fullgraph,
            breaks_are_errors=torchjit_fx.breaks_are_errors(),
            inline=inlining.should_inline,
            disabled=disabling.left_alone,
            allow_in_graph=upstream.marked_for_graph(control.ALLOWED_IN_GRAPH),
            assume_constant=upstream.marked_constant(control.CONSTANT_RESULTS),
            substitutes=inlining.substitutes(),
            reorderable=frozenset(settings.reorderable_logging_functions),
            value_types=inlining.VALUE_TYPES,
            plain_number=torchjit_fx.plain_number,
            number_limits=torchjit_fx.number_limits,
            pure=torchjit_fx.NUMPY_METHODS,
            class_makers=inlining.CLASS_MAKERS,
            whole_calls=(torchjit_fx.NUMPY, torchjit_fx.PARAMETER),
            interception=_FUNCTION_MODES,
            is_user_code=inlining.is_user_code,
            step_limit=settings.unroll_limit,
            tail_call=TailCall,
            # Of a backend of somebody else it is not known what its graphs have done when they raise.
            graph_raised=GraphRaised if is_ours(self.backend) else None,
        )

    def fx_settings(self, *, errors_in_tries: bool) -> torchjit_fx.FxSettings:
        """What the tensor domain may do."""
        # Our own backends derive the values that they need; a user's may read them on any node.
        settings = self.settings
        return torchjit_fx.FxSettings(
            node_values=self.backend_is_users,
            writes_to_shared_inputs=is_ours(self.backend),
            size_marks=marks_by_source(settings.dynamic_sources, settings.static_sources, settings.unbacked_sources),
            capture_scalar_outputs=settings.capture_scalar_outputs,
            capture_dynamic_output_shape_ops=settings.capture_dynamic_output_shape_ops,
            large_nodes=settings.large_capture_nodes,
            large_seconds=settings.large_capture_seconds,
            tell_large=warn_user,
            errors_in_tries=errors_in_tries,
        )
