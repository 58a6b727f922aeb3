"""What a capture may do, by the terms of its compilation: settings of the VM and of the tensor domain."""

from __future__ import annotations

import torch

import torchjit_fx
import torchjit_vm
from torchjit_core.size_sources import marks_by_source
from torchjit_core.user_warnings import warn_user
from torchjit_frame import TailCall
from torchjit_session import control, disabling, inlining, upstream
from torchjit_session.backend_calls import GraphRaised, is_ours
from torchjit_session.function_marks import Asked
from torchjit_session.substitutes import CLASS_MAKERS, ORDER_FREE, VALUE_TYPES, substitutes
from torchjit_session.terms import Terms

__all__ = ["capture_policy", "fx_settings"]

_FUNCTION_MODES = torchjit_vm.Interception(
    torch._C._push_on_torch_function_stack,
    torch._C._pop_torch_function_stack,
    "__torch_function__",
    torchjit_fx.seen_by_function_modes,
    torchjit_fx.overriding_classes,
)


def capture_policy(terms: Terms, asked: Asked) -> torchjit_vm.CapturePolicy:
    """What the VM may do.

    Args:
        asked: told of each function about which it asks.
    """
    settings = terms.settings
    return torchjit_vm.CapturePolicy(
        fullgraph=terms.fullgraph,
        breaks_are_errors=torchjit_fx.breaks_are_errors(),
        inline=inlining.should_inline,
        disabled=asked.noting(disabling.left_alone),
        disabling_marks=disabling.MARKS,
        allow_in_graph=asked.within(upstream.marked_for_graph(control.ALLOWED_IN_GRAPH)),
        assume_constant=asked.within(upstream.marked_constant(control.CONSTANT_RESULTS)),
        substitutes=substitutes(asked.note),
        reorderable=frozenset(settings.reorderable_logging_functions),
        remade=torchjit_fx.REMADE,
        value_types=VALUE_TYPES,
        plain_number=torchjit_fx.plain_number,
        number_limits=torchjit_fx.number_limits,
        pure=torchjit_fx.NUMPY_PURE,
        may_import=inlining.may_import,
        class_makers=CLASS_MAKERS,
        order_free=ORDER_FREE,
        whole_calls=(torchjit_fx.NUMPY, torchjit_fx.PARAMETER),
        whole_callers={disabling.SHARD_HOOK: inlining.MODULE_CALLS},
        interception=_FUNCTION_MODES,
        is_user_code=inlining.is_user_code,
        step_limit=settings.unroll_limit,
        tail_call=TailCall,
        # Of a backend of somebody else it is not known what its graphs have done when they raise.
        graph_raised=GraphRaised if is_ours(terms.backend) else None,
    )


def fx_settings(terms: Terms, *, errors_in_tries: bool) -> torchjit_fx.FxSettings:
    """What the tensor domain may do."""
    # Our own backends derive the values that they need; a user's may read them on any node.
    settings = terms.settings
    return torchjit_fx.FxSettings(
        node_values=terms.backend_is_users,
        writes_to_shared_inputs=is_ours(terms.backend),
        size_marks=marks_by_source(settings.dynamic_sources, settings.static_sources, settings.unbacked_sources),
        capture_scalar_outputs=settings.capture_scalar_outputs,
        capture_dynamic_output_shape_ops=settings.capture_dynamic_output_shape_ops,
        large_nodes=settings.large_capture_nodes,
        large_seconds=settings.large_capture_seconds,
        tell_large=warn_user,
        errors_in_tries=errors_in_tries,
    )
