"""The environment variables of torchjit, all read here.

| variable | meaning |
|---|---|
| `TORCHJIT_DISABLE`, `TORCH_COMPILE_DISABLE` | `1`: `compile` returns what it is given |
| `TORCHJIT_LOGS` | `"[+-]name,..."`, as `torchjit.set_logs` |
| `TORCHJIT_TRACE` | a folder: every compilation is appended to a trace file in it, for `torchjit report` |
| `TORCHJIT_CACHE_DIR` | where kernels are kept between processes |
| `TORCHJIT_FORCE_DISABLE_CACHES` | `1`: nothing is kept between processes |
| `TORCHJIT_ON_ERROR` | `raise` or `eager`: what an internal error does, over the call's own `on_error` |
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import final

import attrs

__all__ = ["Environment", "read_environment"]


@final
@attrs.frozen
class Environment:
    """What the variables say. See the table of the module."""

    disable: bool = False
    logs: str = ""
    trace: Path | None = None
    cache_dir: Path | None = None
    caches_off: bool = False
    on_error: str | None = None


def read_environment() -> Environment:
    """Read the variables now."""
    trace = os.environ.get("TORCHJIT_TRACE")
    cache = os.environ.get("TORCHJIT_CACHE_DIR")
    return Environment(
        disable=_flag("TORCHJIT_DISABLE") or _flag("TORCH_COMPILE_DISABLE"),
        logs=os.environ.get("TORCHJIT_LOGS", ""),
        trace=Path(trace) if trace else None,
        cache_dir=Path(cache) if cache else None,
        caches_off=_flag("TORCHJIT_FORCE_DISABLE_CACHES"),
        on_error=os.environ.get("TORCHJIT_ON_ERROR") or None,
    )


def _flag(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() in ("1", "true", "yes", "on")
