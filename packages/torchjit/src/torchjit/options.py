"""Modes and options of `torchjit.compile`: their names are upstream's, their values are checked here."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from typing import Any, final

import attrs

import torchjit_aot
from torchjit.described import Described, entries_of
from torchjit.exc import UserError, UserTypeError, unknown_name, wrong_type
from torchjit.instead import OPTIONS
from torchjit_core.kinds import SIZES, SWITCH, Kind, number
from torchjit_core.reasons import reason

__all__ = ["Options", "describe_modes", "describe_options", "list_mode_options", "list_options", "make_options"]

BAD_VALUE = reason(
    "TJ-API-002",
    "an option has a value of the wrong kind",
    "Options take the type of their default.",
    "torchjit.list_options() names the options; `torchjit options` and docs/settings.md tell their values and defaults.",
)
MODE_AND_OPTIONS = reason(
    "TJ-API-003",
    "mode and options were both given",
    "A mode is a set of options, so giving both is ambiguous; upstream refuses it too.",
    "Give options only; torchjit.list_mode_options(mode) shows what the mode stands for.",
)


@final
@attrs.frozen
class Options:
    """The options of one `compile` call.

    Attributes:
        max_autotune: on GPUs measure products of 16-bit matrices as generated kernels, into which what follows them is fused, against
            cuBLAS, and take the faster; results are kept on disk per device. Other kernels take their configurations from a table.
            The CPU backend always measures its matrix products and convolutions.
        autotune_in_subproc: products' candidates run in a process of their own first: one that crashes is rejected like a wrong one.
        coordinate_descent_tuning: on GPUs measure each generated kernel of fixed size with neighbouring tiles and numbers of warps, and
            go on from the best for as long as there is a better one; results are kept on disk per device.
        shape_padding: on GPUs multiply large 16-bit matrices whose rows cuBLAS's fast kernels do not take with zeros behind them.
        autotune_seconds: the time that this may take, for each compiled function; products beyond it stay with cuBLAS.
        fallback_random: random numbers exactly as eager draws them, bit for bit. False: computed inside the kernels from
            seeds that each call draws, and again in the backward, which then keeps no masks.
        emulate_precision_casts: round each result of a 16-bit type to it between the operations of one kernel too, as
            eager does by going through memory. False keeps float32 there, which is faster and more exact.
        freezing: graphs without gradients compute once what follows from parameters and buffers alone, and batch norms become part
            of the convolutions before them. In-place writes and new storages are seen; writes through `.data` are not.
        cudagraphs: `triton.cudagraphs`: record and replay CUDA graphs.
        capture_sizes: `triton.cudagraph_capture_sizes`: for inference graphs whose batch (the first dimension) is dynamic: batches are
            filled up with zeros to the next of these sizes, each of which is recorded once. For models whose rows do not depend on one another;
            the first filled batch is compared with the plain result. Upstream's option of this name records these sizes only, without filling.
        epilogue_fusion: compute what reads the result of a reduction or of a generated product in its kernel. False makes it a kernel of its own.
        layout_optimization: convolutions and what lies between them may have their channels innermost in memory where that is faster. False leaves
            every tensor in eager's layout.
        trace: `trace.enabled`: write each compilation's graphs, host programs and kernels as files into a folder `torchjit_debug/run_...` below the
            current one, or below the folder that TORCHJIT_DEBUG_DIR names.
        graph_diagram: `trace.graph_diagram`: draw the kernels of each graph and what flows between them as an SVG picture into that folder
            (with `trace.enabled`, or alone).
        activation_memory_budget: from 1 to 0: the share of the activations, between what is saved by default and the
            least that can be, that training may save; the backward computes the rest again.
        pre_grad_custom_pass: a change (or a tuple of changes) of the captured graph. Each is a callable of an `fx.Graph` with an `id`
            (see `torchjit_aot.graph_pass`) or, as upstream has it, a method `uuid`: two compilations with the same ids are alike.
        joint_custom_post_pass: such a change of the joint graph of forward and backward.
        post_grad_custom_post_pass: such a change of each final graph.
    """

    max_autotune: bool = False
    autotune_in_subproc: bool = True
    coordinate_descent_tuning: bool = False
    shape_padding: bool = True
    autotune_seconds: float = attrs.field(
        default=120.0, metadata={"upstream": "", "kind": number("a number of seconds", 0, math.inf)}
    )
    fallback_random: bool = True
    emulate_precision_casts: bool = False
    freezing: bool = False
    cudagraphs: bool = attrs.field(default=False, metadata={"name": "triton.cudagraphs"})
    capture_sizes: tuple[int, ...] = attrs.field(default=(), metadata={"name": "triton.cudagraph_capture_sizes"})
    epilogue_fusion: bool = True
    layout_optimization: bool = True
    trace: bool = attrs.field(default=False, metadata={"name": "trace.enabled"})
    graph_diagram: bool = attrs.field(default=False, metadata={"name": "trace.graph_diagram"})
    activation_memory_budget: float = attrs.field(
        default=1.0, metadata={"upstream": "torch._functorch.config.activation_memory_budget"}
    )
    pre_grad_custom_pass: tuple[torchjit_aot.GraphPass, ...] = ()
    joint_custom_post_pass: tuple[torchjit_aot.GraphPass, ...] = ()
    post_grad_custom_post_pass: tuple[torchjit_aot.GraphPass, ...] = ()


_FIELDS = {f.metadata.get("name", f.name): f for f in attrs.fields(Options)}
_MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "reduce-overhead": {"triton.cudagraphs": True},
    "max-autotune": {"max_autotune": True, "triton.cudagraphs": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True},
}
_MODE_MEANINGS = {
    "default": "What a program gets that says nothing.",
    "reduce-overhead": "On GPUs kernels are launched by replaying CUDA graphs, where that is faster.",
    "max-autotune": "More kernels are measured before one is chosen, which takes longer at the first call; with CUDA graphs.",
    "max-autotune-no-cudagraphs": "The same without CUDA graphs.",
}
_GUARD_FILTER = Described(
    "guard_filter_fn", "a function of guards", "None",
    "Taken for upstream's sake, without effect: every guard is kept, so results stay right. See `torchjit.guard_filters`.",
    "torch.compile(options={\"guard_filter_fn\": ...})",
)  # fmt: skip


def list_options() -> list[str]:
    """The names that `compile(options={...})` takes."""
    return sorted([*_FIELDS, _GUARD_FILTER.name])


def describe_options() -> list[Described]:
    """Every option; what each does is told by the docstring of `Options`."""
    meanings = entries_of(Options, "Attributes")
    described = [
        Described(
            name, _kind(f).text, repr(f.default), meanings[f.name].removeprefix(f"`{name}`: "),
            f.metadata.get("upstream", f"torch._inductor.config.{name}"),
        )
        for name, f in _FIELDS.items()
    ]  # fmt: skip
    return sorted([*described, _GUARD_FILTER], key=lambda each: each.name)


def describe_modes() -> list[tuple[str, dict[str, Any], str]]:
    """Name, options and purpose of every mode."""
    return [(name, dict(options), _MODE_MEANINGS[name]) for name, options in _MODES.items()]


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
    """The options that a mode stands for; without a mode, a dict of all modes.

    Args:
        mode: its name.
        dynamic: for sizes that vary a mode stands for the same options; only the value is checked, as `compile` does.

    Raises:
        UserError: there is no such mode, or `dynamic` is neither True, False nor None.
    """
    if dynamic not in (True, False, None):
        raise wrong_type("dynamic", dynamic, "True, False or None")
    if mode is None:
        return {name: dict(options) for name, options in _MODES.items()}
    if mode not in _MODES:
        raise unknown_name("mode", mode, _MODES)
    return dict(_MODES[mode])


def make_options(mode: str | None, options: Mapping[str, Any] | None) -> Options:
    """Check and combine the two arguments of `compile`.

    Raises:
        UserError: both given, an unknown name, or a value of the wrong kind.
    """
    if mode is not None and options:
        raise UserError(MODE_AND_OPTIONS, f"mode={mode!r}, options={dict(options)!r}")
    given = list_mode_options(mode) if mode is not None else dict(options or {})
    fields: dict[str, Any] = {}
    guard_filter = given.pop(_GUARD_FILTER.name, None)
    if guard_filter is not None and not callable(guard_filter):
        raise UserTypeError(BAD_VALUE, f"guard_filter_fn={guard_filter!r}, want a function of guards")
    for name, value in given.items():
        field = _FIELDS.get(name)
        if field is None:
            raise unknown_name("option", name, list_options(), instead=OPTIONS)
        fields[field.name] = _kind(field).check(name, value, BAD_VALUE)
    made = Options(**fields)
    if made.capture_sizes and not made.cudagraphs:
        raise UserError(BAD_VALUE, "triton.cudagraph_capture_sizes needs triton.cudagraphs=True")
    return made


def _passes(value: Any) -> tuple[torchjit_aot.GraphPass, ...]:
    given = value if isinstance(value, (tuple, list)) else () if value is None else (value,)
    return tuple(torchjit_aot.as_graph_pass(each) for each in given)


_KINDS = {
    "bool": SWITCH,
    "float": number("a number from 0 to 1", 0, 1),
    "tuple[int, ...]": SIZES,
    "tuple[torchjit_aot.GraphPass, ...]": Kind(
        "a pass, or a tuple of passes", _passes, types=(types.FunctionType, list, tuple)
    ),
}
"""By the annotations of `Options`."""


def _kind(field: Any) -> Kind:
    found: Kind = field.metadata.get("kind") or _KINDS[str(field.type)]
    return found
