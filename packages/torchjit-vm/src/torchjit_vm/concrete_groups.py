"""`except*` over real exceptions. Source: Objects/exceptions.c."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["match_group", "prepare_reraise"]


def match_group(error: BaseException, wanted: object) -> tuple[BaseException | None, BaseException | None]:
    """What goes on to the next clause, and what a clause of `except* wanted` handles.

    Raises:
        TypeError: `wanted` is nothing that `except*` takes.
    """
    types = wanted if isinstance(wanted, tuple) else (wanted,)
    if not all(isinstance(t, type) and issubclass(t, BaseException) for t in types):
        raise TypeError("catching classes that do not inherit from BaseException is not allowed")
    if any(issubclass(t, BaseExceptionGroup) for t in types):
        raise TypeError("catching ExceptionGroup with except* is not allowed. Use except instead.")
    if isinstance(error, types):
        if isinstance(error, BaseExceptionGroup):
            return None, error
        wrapped = BaseExceptionGroup("", (error,))
        wrapped.__traceback__ = error.__traceback__
        return None, wrapped
    if not isinstance(error, BaseExceptionGroup):
        return error, None
    match, rest = error.split(types)
    return rest, match


def prepare_reraise(error: BaseException, exceptions: list[BaseException | None]) -> BaseException | None:
    """What is raised at the end of `except*` clauses, of what they raised and did not handle."""
    found = [e for e in exceptions if e is not None]
    if not found or not isinstance(error, BaseExceptionGroup):
        return found[0] if found else None
    again = [e for e in found if _same_origin(e, error)]
    new = [e for e in found if not _same_origin(e, error)]
    leaves = {id(leaf) for e in again for leaf in _leaves(e)}
    kept = BaseExceptionGroup.subgroup(error, lambda e: id(e) in leaves) if leaves else None
    if not new:
        return kept
    if kept is not None:
        new.append(kept)
    return new[0] if len(new) == 1 else BaseExceptionGroup("", new)


def _same_origin(error: BaseException, group: BaseException) -> bool:
    """Is it a part of the group, raised again?"""
    names = ("__traceback__", "__cause__", "__context__")
    return isinstance(error, BaseExceptionGroup) and all(getattr(error, n) is getattr(group, n) for n in names)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
