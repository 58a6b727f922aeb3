"""What a compilation asks of the process that it is in: the settings as a snapshot, whether anything is to be compiled, and backends by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, final

import attrs

from torchjit_core.kinds import choice
from torchjit_session.backend_calls import Backend
from torchjit_store.settings import Mode, StoreSettings

__all__ = ["Comparing", "ComparingMode", "Host", "Settings"]

ComparingMode = Literal["off", "on", "report"]

_OURS = {"upstream": ""}
"""Metadata of settings that upstream does not have."""


def _in_compiler(name: str) -> dict[str, str]:
    """Metadata of a setting of `torch.compiler.config`."""
    return {"upstream": f"torch.compiler.config.{name}"}


@final
@attrs.frozen
class Settings:
    """A snapshot of the settings.

    Attributes:
        recompile_limit: specialisations of one region after which it runs eagerly.
        accumulated_recompile_limit: the same for all regions of one code object together.
        automatic_dynamic_shapes: a size that changed between calls becomes a symbol.
        capture_scalar_outputs: `.item()` becomes a symbol in the graph rather than a graph break.
        capture_dynamic_output_shape_ops: `nonzero` and its kind stay in the graph.
        dynamic_sources: sizes and numbers that are symbols from the first compilation on, by where they are found, over `dynamic=`: entries
            separated by commas, such as `L['x']`, `L['x']:0` for one dimension, or regular expressions of these names; `x` and `self.bias` do, too.
        static_sources: the same for sizes and numbers that stay constants, over `dynamic_sources` and `unbacked_sources`, not over marks of
            tensors.
        unbacked_sources: the same for sizes that no decision may look at, as `mark_unbacked` has it.
        large_capture_nodes: a capture that reaches so many nodes warns once and names the loop that it unrolls.
        large_capture_seconds: the same for a capture that takes so long.
        unroll_limit: instructions interpreted in one region before it is given up.
        capture_calls_at_breaks: functions that Python calls during a graph break are captured too.
        on_error: what an error inside torchjit does: `eager` runs the user's code as it is and warns once, `raise`
            shows it.
        reorderable_logging_functions: functions that only report, such as `print`, whose calls inside a region are made at
            its end, in order, rather than break the graph. Warnings and records of
            `logging` are always treated so where that cannot be told from the outside.
        caches: keep kernels and compiled entries on disk between processes.
        store: compiled entries on disk, which spare a later process capture and compilation: `on` reads and writes them, `read` only reads,
            `verify` also captures and compares what it has read, `off` does nothing.
        never_slower: `on` runs a few of the program's own calls of each compiled function as eager code, times both, and keeps what is
            faster; `report` only tells (`torchjit.explain`, the report, the log `perf_hints`); `off` compares nothing.
        disable: compile nothing: what has no specialisation runs as it is.
        suppress_errors: errors of a backend that the program passed do not reach it either, where nothing else says what
            they do: a warning, and the code runs as it is.
    """

    recompile_limit: int = 8
    accumulated_recompile_limit: int = 256
    automatic_dynamic_shapes: bool = True
    capture_scalar_outputs: bool = False
    capture_dynamic_output_shape_ops: bool = False
    dynamic_sources: str = attrs.field(default="", metadata=_in_compiler("dynamic_sources"))
    static_sources: str = attrs.field(default="", metadata=_in_compiler("static_sources"))
    unbacked_sources: str = attrs.field(default="", metadata=_in_compiler("unbacked_sources"))
    large_capture_nodes: int = attrs.field(default=10_000, metadata=_OURS)
    large_capture_seconds: float = attrs.field(default=30.0, metadata=_OURS)
    unroll_limit: int = attrs.field(default=1_000_000, metadata=_OURS)
    capture_calls_at_breaks: bool = attrs.field(default=True, metadata=_OURS)
    on_error: Literal["eager", "raise"] = attrs.field(
        default="eager",
        metadata={**_OURS, "kind": choice("eager", "raise"), "read": "when something inside torchjit fails"},
    )
    reorderable_logging_functions: set[Any] = attrs.field(factory=set, hash=False)
    caches: bool = attrs.field(
        default=True,
        metadata={"upstream": "torch._inductor.config.force_disable_caches (the opposite)", "read": "by `compile`"},
    )
    store: Mode = attrs.field(
        default="on",
        metadata={**_OURS, "kind": choice("off", "on", "read", "verify"), "read": "before each compilation"},
    )
    never_slower: ComparingMode = attrs.field(
        default="off",
        metadata={**_OURS, "kind": choice("off", "on", "report"), "read": "before each compilation"},
    )
    disable: bool = attrs.field(default=False, metadata={"read": "before each compilation"})
    suppress_errors: bool = attrs.field(default=False, metadata={"read": "when a backend fails"})


@final
@attrs.frozen
class Comparing:
    """How compiled code is compared with eager code.

    Attributes:
        mode: as the setting `never_slower`.
        cache_dir: where choices are kept; None is the user's cache folder.
        keeps: are they kept between processes?
    """

    mode: ComparingMode = "off"
    cache_dir: str | None = None
    keeps: bool = False


@final
@attrs.frozen
class Host:
    """Who owns the settings and the names of backends.

    Attributes:
        settings: those of now, frozen.
        is_off: is nothing to be compiled?
        lookup_backend: the backend of a name, or of what the program passed.
        store: where compiled entries are kept now, and what is done with them.
        comparing: how compiled code is compared with eager code now.
    """

    settings: Callable[[], Settings]
    is_off: Callable[[], bool]
    lookup_backend: Callable[[str | Backend], Backend]
    store: Callable[[], StoreSettings] = StoreSettings
    comparing: Callable[[], Comparing] = Comparing
