"""Modes and options of `torchjit.compile`: their names are upstream's, their values are checked here."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

import attrs

import torchjit_aot
from torchjit.exc import UserError, UserTypeError, unknown_name, wrong_type
from torchjit_backends.options import Options
from torchjit_core.described import Described, described_fields, kind_of
from torchjit_core.kinds import SIZES, SWITCH, Kind, number
from torchjit_core.reasons import reason
from torchjit_session.instead import OPTIONS

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


_FIELDS = {f.metadata.get("name", f.name): f for f in attrs.fields(Options)}
_MODES: dict[str, tuple[dict[str, Any], str]] = {
    "default": ({}, "What a program gets that says nothing."),
    "reduce-overhead": (
        {"triton.cudagraphs": True}, "On GPUs kernels are launched by replaying CUDA graphs, where that is faster.",
    ),
    "max-autotune": (
        {"max_autotune": True, "triton.cudagraphs": True},
        "More kernels are measured before one is chosen, which takes longer at the first call; with CUDA graphs.",
    ),
    "max-autotune-no-cudagraphs": ({"max_autotune": True}, "The same without CUDA graphs."),
}  # fmt: skip
_GUARD_FILTER = Described(
    "guard_filter_fn", "a function of guards", "None",
    "Taken for upstream's sake, without effect: every guard is kept, so results stay right. See `torchjit_guards.filters`.",
    "torch.compile(options={\"guard_filter_fn\": ...})",
)  # fmt: skip


def list_options() -> list[str]:
    """The names that `compile(options={...})` takes."""
    return sorted([*_FIELDS, _GUARD_FILTER.name])


def describe_options() -> list[Described]:
    """Every option; what each does is told by the docstring of `Options`."""
    described = described_fields(Options, _KINDS, "torch._inductor.config")
    return sorted([*described, _GUARD_FILTER], key=lambda each: each.name)


def describe_modes() -> list[tuple[str, dict[str, Any], str]]:
    """Name, options and purpose of every mode."""
    return [(name, dict(options), meaning) for name, (options, meaning) in _MODES.items()]


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
        return {name: dict(options) for name, (options, _) in _MODES.items()}
    if mode not in _MODES:
        raise unknown_name("mode", mode, _MODES)
    return dict(_MODES[mode][0])


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
        fields[field.name] = kind_of(field, _KINDS).check(name, value, BAD_VALUE)
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
