"""The errors that users of torchjit may catch."""

from __future__ import annotations

from torchjit_core.reasons import (
    GraphBreak,
    InvalidIR,
    MissingPackage,
    TorchjitError,
    UserAttributeError,
    UserError,
    UserIndexError,
    UserTypeError,
)
from torchjit_core.user_errors import (
    BackendCompilerFailed,
    FailOnRecompile,
    NotCompiledAhead,
    RecompileLimitExceeded,
    Unsupported,
    told,
    unknown_name,
    wrong_type,
)

__all__ = [
    "BackendCompilerFailed",
    "FailOnRecompile",
    "GraphBreak",
    "InvalidIR",
    "MissingPackage",
    "NotCompiledAhead",
    "RecompileLimitExceeded",
    "TorchjitError",
    "Unsupported",
    "UserAttributeError",
    "UserError",
    "UserIndexError",
    "UserTypeError",
    "told",
    "unknown_name",
    "wrong_type",
]
