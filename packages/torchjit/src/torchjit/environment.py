"""The environment variables of torchjit, all read here; `VARIABLES` is the table of them.

A value that a variable of ours cannot have is an error that names it, and so is a name that is nearly one of these.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any, Literal, final, get_args

import attrs

from torchjit.exc import UserError
from torchjit_core.described import Described
from torchjit_core.variables import BAD_VARIABLE, ON, flag, one_of, seconds, wrong_variable
from torchjit_session.settings import ComparingMode
from torchjit_store.settings import Mode

__all__ = ["BAD_VARIABLE", "VARIABLES", "Environment", "read_environment"]

_PREFIX = "TORCHJIT_"
_SWITCH = "`1` or `0` (also `true`, `yes`, `on`, `false`, `no`, `off`)"
VARIABLES = (
    Described(
        "TORCHJIT_DISABLE", _SWITCH, "0", "`compile` returns what it is given.", "TORCH_COMPILE_DISABLE", "by `compile`"
    ),
    Described(
        "TORCHJIT_LOGS", "names of logs, separated by commas; `+` before one tells more, `-` less or nothing; `help` lists them", "", "As `torchjit.set_logs`, over its calls.",
        "TORCH_LOGS", "by `compile`",
    ),
    Described(
        "TORCHJIT_TRACE", "a folder", "", "Every compilation is appended to a trace file in it, for `torchjit report`.", "TORCH_TRACE",
        "by `compile`",
    ),
    Described(
        "TORCHJIT_DEBUG_DIR", "a folder", "torchjit_debug", "Where the option `trace.enabled` writes its folders.",
        "TORCH_COMPILE_DEBUG_DIR", "at each compilation",
    ),
    Described(
        "TORCHJIT_CACHE_DIR", "a folder", "torchjit in the user's cache folder",
        "Where kernels are kept between processes. One that cannot be used is replaced by a temporary folder, with a warning.",
        "TORCHINDUCTOR_CACHE_DIR", "by `compile`",
    ),
    Described(
        "TORCHJIT_FORCE_DISABLE_CACHES", _SWITCH, "0", "Nothing is kept between processes.", "TORCHINDUCTOR_FORCE_DISABLE_CACHES",
        "by `compile`",
    ),
    Described(
        "TORCHJIT_STORE", "`on`, `off`, `read` or `verify`", "", "The setting `store`, and over it.", "", "before each compilation"
    ),
    Described(
        "TORCHJIT_NEVER_SLOWER", "`on`, `off` or `report`", "", "The setting `never_slower`, and over it.", "", "before each compilation"
    ),
    Described(
        "TORCHJIT_REMOTE_CACHE", "a URL that fsspec knows", "", "Compiled entries that are not on this machine are looked for there, and written there.",
        "", "before each compilation",
    ),
    Described(
        "TORCHJIT_BUNDLE_KEY", "a secret", "", "What bundles and remote entries are signed with: they are code, and are taken only with a right signature.",
        "", "before each compilation",
    ),
    Described(
        "TORCHJIT_TRUST_REMOTE", _SWITCH, "0", "Take remote entries without a signature.", "", "before each compilation"
    ),
    Described(
        "TORCHJIT_PROGRESS", _SWITCH, "1", "A line on the terminal says what is being compiled, once that takes longer than a second.", "",
        "by the first `compile`",
    ),
    Described(
        "TORCHJIT_ON_ERROR", "`raise` or `eager`", "", "What an error inside torchjit does where the call's own `on_error` does not say it, "
        "over the setting.", "TORCHDYNAMO_SUPPRESS_ERRORS (as `eager`)", "by `compile`",
    ),
    Described(
        "TORCHJIT_COMPILER_SECONDS", "a positive number, or `inf`", "600", "How long one run of the C++ compiler may take.", "", "by `compile`"
    ),
    Described(
        "TORCH_COMPILE_DISABLE, TORCHDYNAMO_DISABLE", "`1`", "", "As `TORCHJIT_DISABLE`.", "the same", "by `compile`"
    ),
    Described(
        "TORCH_COMPILE_DYNAMIC_SOURCES, TORCH_COMPILE_STATIC_SOURCES, TORCH_COMPILE_UNBACKED_SOURCES", "names of places, separated by commas", "",
        "The settings `dynamic_sources`, `static_sources` and `unbacked_sources`, where the program does not set them.", "the same",
        "at the start of the process",
    ),
    Described(
        "CXX, CC", "a command, perhaps with arguments", "the first of several that is found",
        "The compiler of generated C++. `CC` counts where `CXX` is not set.", "the same", "by `compile`",
    ),
)  # fmt: skip
_NAMES = tuple(v.name.removeprefix(_PREFIX) for v in VARIABLES if v.name.startswith(_PREFIX))


@final
@attrs.frozen
class Environment:
    """What the variables say. See `VARIABLES`."""

    disable: bool = False
    logs: str = ""
    trace: Path | None = None
    debug_dir: Path | None = None
    cache_dir: str | None = None
    caches_off: bool = False
    store: Mode | None = None
    never_slower: ComparingMode | None = None
    remote_cache: str | None = None
    bundle_key: str | None = attrs.field(default=None, repr=False)
    trust_remote: bool = False
    progress: bool = True
    on_error: Literal["raise", "eager"] | None = None
    compiler_seconds: float = 600.0
    compiler: str | None = None
    compiler_named_by: str | None = None


_last: tuple[dict[Any, Any], Environment] | None = None
"""All variables as they were read last, and what was made of them."""


def read_environment() -> Environment:
    """What the variables say now. Each capture asks several times.

    Raises:
        UserError: one has a value that it cannot have, or a name that is nearly right.
    """
    global _last
    encoded = getattr(os.environ, "_data", None)  # to compare this takes a microsecond, to decode it a hundred
    last = _last
    if last is not None and encoded == last[0]:
        return last[1]
    read = dict(encoded) if isinstance(encoded, dict) else None
    made = _read()
    _last = None if read is None else (read, made)
    return made


def _read() -> Environment:
    _refuse_misspelled_names()
    trace, debug = os.environ.get("TORCHJIT_TRACE"), os.environ.get("TORCHJIT_DEBUG_DIR")
    remote, secret, trusts = _remote()
    named_by = next((name for name in ("CXX", "CC") if os.environ.get(name, "").strip()), None)
    return Environment(
        disable=flag("TORCHJIT_DISABLE") or any(map(_is_on, ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"))),
        logs=os.environ.get("TORCHJIT_LOGS", ""),
        trace=Path(trace) if trace else None,
        debug_dir=Path(debug) if debug else None,
        cache_dir=os.environ.get("TORCHJIT_CACHE_DIR") or None,
        caches_off=flag("TORCHJIT_FORCE_DISABLE_CACHES"),
        store=_word("TORCHJIT_STORE", get_args(Mode), "on, off, read or verify"),
        never_slower=_word("TORCHJIT_NEVER_SLOWER", get_args(ComparingMode), "on, off or report"),
        remote_cache=remote,
        bundle_key=secret,
        trust_remote=trusts,
        progress=flag("TORCHJIT_PROGRESS", "1"),
        on_error=_word("TORCHJIT_ON_ERROR", ("raise", "eager"), "'raise' or 'eager'"),
        compiler_seconds=seconds("TORCHJIT_COMPILER_SECONDS", 600.0),
        compiler=os.environ[named_by] if named_by else None,
        compiler_named_by=named_by,
    )


def _word(name: str, words: tuple[str, ...], text: str) -> Any:
    """One of the words; None where the variable is not set."""
    return one_of(name, os.environ.get(name, ""), ("", *words), text) or None


def _is_on(name: str) -> bool:
    """Of a variable that is upstream's, whose other values are no error."""
    return os.environ.get(name, "").strip().lower() in ON


def _remote() -> tuple[str | None, str | None, bool]:
    """Where remote entries are, the secret that signs them, and whether they are taken without."""
    remote, secret = os.environ.get("TORCHJIT_REMOTE_CACHE") or None, os.environ.get("TORCHJIT_BUNDLE_KEY") or None
    trusts = flag("TORCHJIT_TRUST_REMOTE")
    if remote and not secret and not trusts:
        raise wrong_variable(
            "TORCHJIT_REMOTE_CACHE",
            "what lies there is code: set TORCHJIT_BUNDLE_KEY to a secret that signs it, or TORCHJIT_TRUST_REMOTE=1",
        )
    return remote, secret, trusts


def _refuse_misspelled_names() -> None:
    """Other names with our prefix are somebody else's."""
    for name in os.environ:
        rest = name.removeprefix(_PREFIX)
        if rest != name and rest not in _NAMES:
            near = difflib.get_close_matches(rest.upper(), _NAMES, n=1, cutoff=0.7)
            if near:
                raise UserError(BAD_VARIABLE, f"there is no {name}; did you mean {_PREFIX}{near[0]}?")
