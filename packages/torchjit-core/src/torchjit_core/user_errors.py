"""Errors that users of torchjit may catch and that no package below alone raises, and those for names and arguments that are wrong.

Users know the classes as `torchjit.exc`'s, under which name they are shown and pickled.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import final

from torchjit_core.reasons import TorchjitError, UserError, UserTypeError, reason
from torchjit_core.showing import shortened

__all__ = [
    "UNKNOWN_NAME",
    "BackendCompilerFailed",
    "FailOnRecompile",
    "NotCompiledAhead",
    "RecompileLimitExceeded",
    "Unsupported",
    "told",
    "unknown_name",
    "wrong_type",
]


@final
class Unsupported(TorchjitError, RuntimeError):
    """`fullgraph=True` or `error_on_graph_break(True)` met a graph break."""

    __module__ = "torchjit.exc"


@final
class RecompileLimitExceeded(TorchjitError, RuntimeError):
    """`fullgraph=True` and the recompile limit is reached."""

    __module__ = "torchjit.exc"


@final
class FailOnRecompile(TorchjitError, RuntimeError):
    """Something would have to be compiled under the stance `fail_on_recompile`."""

    __module__ = "torchjit.exc"


@final
class NotCompiledAhead(TorchjitError, RuntimeError):
    """A callable that was loaded from a file met a call that nothing in it fits. The text says why."""

    __module__ = "torchjit.exc"


@final
class BackendCompilerFailed(TorchjitError, RuntimeError):
    """The backend raised while it compiled a graph. Its exception is the cause (`__cause__`)."""

    __module__ = "torchjit.exc"


UNKNOWN_NAME = reason(
    "TJ-API-001",
    "unknown name",
    "A name given to torchjit is not one that it knows.",
    "Compare it with the names listed; the commands torchjit backends, modes, options and logs say what theirs mean.",
)


WRONG_ARGUMENT = reason(
    "TJ-API-063",
    "an argument of a wrong type",
    "Each function of torchjit takes the arguments of its docstring.",
)


def told(value: object) -> str:
    """A value that the user passed, as short text without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", shortened(repr(value)))


def wrong_type(name: str, given: object, wanted: str) -> UserError:
    """The error for an argument of a wrong type.

    Args:
        name: of the argument.
        given: what the user passed.
        wanted: what it takes.
    """
    return UserTypeError(WRONG_ARGUMENT, f"{name}={told(given)}, want {wanted}")


def unknown_name(
    what: str,
    given: object,
    known: Iterable[str],
    error: type[UserError] = UserError,
    instead: Mapping[str, str] | None = None,
) -> UserError:
    """The error for a name that is not known, with the nearest ones that are.

    Args:
        what: kind of the name, such as "backend".
        given: what the user wrote.
        known: every name that would have been right.
        error: its type.
        instead: names of PyTorch's that are none of these, and what to write.
    """
    if instead is not None and isinstance(given, str) and given in instead:
        return error(UNKNOWN_NAME, f"{what} {given!r} is PyTorch's; {instead[given]}")
    names = sorted(known)
    near = difflib.get_close_matches(str(given), names, n=3, cutoff=0.4)
    near = near or [n for n in names if n.lower() == str(given).lower()]
    guess = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    return error(UNKNOWN_NAME, f"{what} {given!r}{guess or '.'} Known: {', '.join(names)}")
