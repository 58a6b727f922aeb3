"""The environment variables of torchjit, all read here.

| variable | meaning |
|---|---|
| `TORCHJIT_DISABLE`, `TORCH_COMPILE_DISABLE`, `TORCHDYNAMO_DISABLE` | `1`: `compile` returns what it is given |
| `TORCHJIT_LOGS` | `"[+-]name,..."`, as `torchjit.set_logs` |
| `TORCHJIT_TRACE` | a folder: every compilation is appended to a trace file in it, for `torchjit report` |
| `TORCHJIT_DEBUG_DIR` | where the option `trace.enabled` writes its folders; default: `torchjit_debug` below the current folder |
| `TORCHJIT_CACHE_DIR` | where kernels are kept between processes; one that cannot be used is replaced by a temporary folder, with a warning |
| `TORCHJIT_FORCE_DISABLE_CACHES` | `1`: nothing is kept between processes |
| `TORCHJIT_ON_ERROR` | `raise` or `eager`: what an internal error does, over the call's own `on_error` |
| `TORCHJIT_COMPILER_SECONDS` | how long one run of the C++ compiler may take: 600; `inf` for no limit |
| `CXX`, else `CC` | the compiler of generated C++, perhaps with arguments |

A value that a variable of ours cannot have is an error that names it, and so is a name that is nearly one of these.
"""

from __future__ import annotations

import difflib
import math
import os
from pathlib import Path
from typing import Literal, final

import attrs

from torchjit.exc import UserError
from torchjit_core.reasons import reason

__all__ = ["BAD_VARIABLE", "Environment", "read_environment"]

BAD_VARIABLE = reason(
    "TJ-API-060",
    "an environment variable has a wrong name or value",
    "The environment variables of torchjit take the values of the table in torchjit.environment, and nothing else.",
    "Correct the variable that is named, or unset it.",
)
_ON = ("1", "true", "yes", "on")
_OFF = ("", "0", "false", "no", "off")
_PREFIX = "TORCHJIT_"
_NAMES = ("DISABLE", "LOGS", "TRACE", "DEBUG_DIR", "CACHE_DIR", "FORCE_DISABLE_CACHES", "ON_ERROR", "COMPILER_SECONDS")


@final
@attrs.frozen
class Environment:
    """What the variables say. See the table of the module."""

    disable: bool = False
    logs: str = ""
    trace: Path | None = None
    debug_dir: Path | None = None
    cache_dir: Path | None = None
    caches_off: bool = False
    on_error: Literal["raise", "eager"] | None = None
    compiler_seconds: float = 600.0
    compiler: str | None = None
    compiler_named_by: str | None = None


def read_environment() -> Environment:
    """Read the variables now.

    Raises:
        UserError: one has a value that it cannot have, or a name that is nearly right.
    """
    _refuse_misspelled_names()
    trace = os.environ.get("TORCHJIT_TRACE")
    debug = os.environ.get("TORCHJIT_DEBUG_DIR")
    cache = os.environ.get("TORCHJIT_CACHE_DIR")
    named_by = next((name for name in ("CXX", "CC") if os.environ.get(name, "").strip()), None)
    return Environment(
        disable=_flag("TORCHJIT_DISABLE")
        or any(
            os.environ.get(name, "").strip().lower() in _ON for name in ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")
        ),
        logs=os.environ.get("TORCHJIT_LOGS", ""),
        trace=Path(trace) if trace else None,
        debug_dir=Path(debug) if debug else None,
        cache_dir=Path(cache) if cache else None,
        caches_off=_flag("TORCHJIT_FORCE_DISABLE_CACHES"),
        on_error=_on_error(),
        compiler_seconds=_seconds("TORCHJIT_COMPILER_SECONDS", 600.0),
        compiler=os.environ[named_by] if named_by else None,
        compiler_named_by=named_by,
    )


def _flag(name: str) -> bool:
    value = os.environ.get(name, "").strip().lower()
    if value not in (*_ON, *_OFF):
        raise _wrong(name, f"want {', '.join(_ON)}, or {', '.join(filter(None, _OFF))}")
    return value in _ON


def _on_error() -> Literal["raise", "eager"] | None:
    match os.environ.get("TORCHJIT_ON_ERROR", ""):
        case "":
            return None
        case "raise" | "eager" as chosen:
            return chosen
        case wrong:
            near = difflib.get_close_matches(wrong, ("raise", "eager"), n=1)
            guess = f"; did you mean {near[0]!r}?" if near else ""
            raise _wrong("TORCHJIT_ON_ERROR", f"want 'raise' or 'eager'{guess}")


def _seconds(name: str, default: float) -> float:
    try:
        seconds = float(os.environ.get(name) or default)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:  # nor is a NaN
        raise _wrong(name, "want a positive number of seconds, or inf")
    return seconds


def _refuse_misspelled_names() -> None:
    """Other names with our prefix are somebody else's."""
    for name in os.environ:
        rest = name.removeprefix(_PREFIX)
        if rest != name and rest not in _NAMES:
            near = difflib.get_close_matches(rest.upper(), _NAMES, n=1, cutoff=0.7)
            if near:
                raise UserError(BAD_VARIABLE, f"there is no {name}; did you mean {_PREFIX}{near[0]}?")


def _wrong(name: str, wanted: str) -> UserError:
    return UserError(BAD_VARIABLE, f"{name}={os.environ.get(name)!r}: {wanted}")
