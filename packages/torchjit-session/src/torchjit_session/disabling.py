"""`disable`: code that runs as plain Python wherever it is called, and what else captures leave alone."""

from __future__ import annotations

import copy
import functools
import inspect
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import torch

import torchjit_frame
from torchjit_core.kinds import as_switch
from torchjit_core.reasons import UserTypeError, reason
from torchjit_core.user_errors import wrong_type
from torchjit_session import control, upstream

if TYPE_CHECKING:
    from torchjit_vm import LeftAlone

__all__ = [
    "DISABLED",
    "EXPLICIT_BREAK",
    "MARKS",
    "NOT_CALLABLE",
    "SHARD_HOOK",
    "disable",
    "is_disabled",
    "leaves_first_call",
    "left_alone",
    "make_disabled",
]

_F = TypeVar("_F", bound=Callable[..., Any])

DISABLED = reason(
    "TJ-API-010",
    "call of a function under torchjit.disable or torch.compiler.disable",
    "The function asked to run as plain Python, so the graph ends before the call and a new one starts after it.",
    "Remove the decorator, or the call of disable, if the function can be captured.",
)
EXPLICIT_BREAK = reason(
    "TJ-API-011",
    "torchjit.graph_break()",
    "The program asked for a graph break here.",
    "Remove the call when it is no longer needed.",
)
NOT_CALLABLE = reason(
    "TJ-API-040",
    "this object cannot be disabled",
    "torchjit.disable takes a function, a method, a class or an nn.Module.",
)

DISALLOWED = reason(
    "TJ-API-046",
    "call of a function under torchjit.disallow_in_graph",
    "The program asked for a graph break at calls of this function.",
    "Remove the mark if the function can be captured.",
)
FORBIDDEN = reason(
    "TJ-API-047",
    "call of a function under torchjit.forbid_in_graph",
    "The program asked for an error where compiled code calls this function.",
    "Call it outside of compiled code, or below torchjit.disable.",
)
SHARD_HOOK = reason(
    "TJ-API-078",
    "hook of fully_shard inside of a compiled module",
    "Hooks of FSDP gather and free parameters between graphs, so the call of the sharded module is left to Python, and what it computes is a graph of its own.",
    "Nothing: parameters are gathered ahead as in eager mode. Compile each block to have no graph around them.",
)
_DISABLED = "_torchjit_disabled"
MARKS = {_DISABLED: DISABLED}
_ALONE = "_torchjit_alone"


@overload
def disable(fn: _F, recursive: bool = True, *, reason: str | None = None) -> _F: ...
@overload
def disable(fn: None = None, recursive: bool = True, *, reason: str | None = None) -> Callable[[_F], _F]: ...
def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Run `fn` as plain Python wherever it is called, also from compiled code.

    Args:
        fn: a function, a method, a class or a module; None to use this as a decorator with arguments.
        recursive: also what `fn` calls is not compiled; else only `fn` itself.
        reason: for people, shown in reports of the graph break.

    Returns:
        For a function, one with the same signature. A module and a class are changed and returned: calls of the module, and
        of instances of the class, run as plain Python, and so does the making of instances. Parameters, `state_dict` keys
        and `isinstance` are as before; copies and pickles of a disabled module are disabled.

    Raises:
        UserError: `fn` cannot be called.
    """
    return make_disabled(fn, recursive, reason=reason)


def make_disabled(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """`disable`, as it is called and as it is interpreted in a region, there instead of `torch.compiler.disable` too."""
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if as_switch(recursive) is None:
        raise wrong_type("recursive", recursive, "True or False")
    if reason is not None and not isinstance(reason, str):
        raise wrong_type("reason", reason, "a str")
    said = reason or ""
    if isinstance(fn, staticmethod | classmethod):
        return type(fn)(_plain(fn.__func__, recursive, said))
    if isinstance(fn, type | torch.nn.Module):
        return disable_object(fn, recursive, said)
    if not callable(fn):
        raise UserTypeError(NOT_CALLABLE, f"got {fn!r}")
    inner = fn.__wrapped__ if isinstance(fn, torchjit_frame.FrontDoor) else fn
    if not recursive and isinstance(inner, types.FunctionType):
        setattr(inner, _DISABLED, said)  # the frame hook meets the function itself, too, as upstream has it
    return _plain(inner, recursive, said)


def _plain(inner: Callable[..., Any], recursive: bool, said: str) -> Callable[..., Any]:
    """A function that calls `inner` as plain Python."""
    if recursive:

        @functools.wraps(inner)
        def disabled(*args: Any, **kwargs: Any) -> Any:
            before = torchjit_frame.is_eager()
            try:
                torchjit_frame.set_eager(True)  # in the block: no handler of a signal raises between the two
                return inner(*args, **kwargs)
            finally:
                torchjit_frame.set_eager(before)

    else:

        @functools.wraps(inner)
        def disabled(*args: Any, **kwargs: Any) -> Any:
            return inner(*args, **kwargs)

    setattr(disabled, _DISABLED, said)
    return disabled


_NOT_RECURSIVE = cast(types.FunctionType, _plain(lambda: None, False, "")).__code__  # of every second wrapper


def disable_object(fn: type | torch.nn.Module, recursive: bool, said: str) -> type | torch.nn.Module:
    """A class or a module is changed itself, which no region follows: calls of this are graph breaks."""
    if isinstance(fn, type):
        return _disable_class(fn, recursive, said)
    return _disable_module(getattr(fn, "_torchjit_original", fn), recursive, said)


def _plain_method(cls: type, method: Callable[..., Any], name: str, recursive: bool, said: str) -> Callable[..., Any]:
    """`method`, which may be inherited, under the name by which `cls` has it."""
    made = _plain(method, recursive, said)
    made.__qualname__ = f"{cls.__qualname__}.{name}"
    return made


def _disable_class(cls: type, recursive: bool, said: str) -> type:
    for name in ("__init__", "__call__", *(("forward",) if issubclass(cls, torch.nn.Module) else ())):
        method = inspect.getattr_static(cls, name, None)
        if isinstance(method, types.FunctionType) and left_alone(method) is None:
            setattr(cls, name, _plain_method(cls, method, name, recursive, said))
    return cls


def _disable_module(module: torch.nn.Module, recursive: bool, said: str) -> torch.nn.Module:
    """Give the module a class of its own, whose calls are plain. What is pickled and copied is a module of the class before."""
    cls = type(module)
    if hasattr(cls, _ALONE) or isinstance(module, torch.jit.ScriptModule):  # which is never captured
        return module
    before = object.__new__(cls)
    object.__setattr__(before, "__dict__", module.__dict__)
    calls = {
        name: _plain_method(cls, method, name, recursive, said)
        for name in ("__call__", "forward")
        if isinstance(method := inspect.getattr_static(cls, name), types.FunctionType)
    }
    members = {
        "__reduce_ex__": _reduce,
        "__copy__": lambda self: _disable_module(copy.copy(before), recursive, said),
        "__deepcopy__": lambda self, memo: _disable_module(copy.deepcopy(before, memo), recursive, said),
        "__doc__": cls.__doc__,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        _ALONE: (before, recursive, said),
    }
    module.__class__ = type(cls.__name__, (cls,), calls | members)
    return module


def _reduce(self: torch.nn.Module, protocol: int) -> Any:
    return _disable_module, getattr(type(self), _ALONE)


def left_alone(fn: object) -> LeftAlone | None:
    """Why calls of `fn` must not be captured, or None."""
    if fn is control.graph_break or fn is control.skip_frame or upstream.asked_break(fn):
        return _left_alone(EXPLICIT_BREAK, says_argument=True)
    if fn is disable_object:
        return _left_alone(DISABLED, says_argument=True, names_argument=True)
    if (control.DISALLOWED or control.FORBIDDEN) and _hashable(fn):
        if fn in control.FORBIDDEN:
            return _left_alone(FORBIDDEN, forbidden=True)
        if fn in control.DISALLOWED:
            return _left_alone(DISALLOWED)
    if type(fn) is types.FunctionType and fn.__module__ == _SHARD_HOOKS:
        return _left_alone(SHARD_HOOK)
    said = upstream.marked(fn, _DISABLED)
    if said is None:
        said = upstream.disabled_message(fn)
    return None if said is None else _left_alone(DISABLED, said)


_SHARD_HOOKS = "torch.distributed.fsdp._fully_shard._fsdp_state"


def _left_alone(*why: Any, **kind: Any) -> LeftAlone:
    import torchjit_vm  # noqa: PLC0415  # the interpreter: an import of torchjit does without it

    return torchjit_vm.LeftAlone(*why, **kind)


def _hashable(fn: object) -> bool:
    """Is it of a type whose hash runs no code of the program?"""
    return not isinstance(type(fn).__hash__, types.FunctionType | type(None))


def leaves_first_call(code: types.CodeType) -> bool:
    """Is it the code of a wrapper whose own call, and nothing below it, is to stay as it is?"""
    return code is _NOT_RECURSIVE or upstream.leaves_first_call(code)


def is_disabled(model: Any) -> bool:
    """Is it a function, method or module whose calls are left alone, so that there is nothing to compile?"""
    if isinstance(model, torch.nn.Module):
        method = (
            model.__dict__.get("forward") or type(model).__call__
        )  # upstream puts its own `forward` on the instance
        return left_alone(method) is not None
    if isinstance(model, types.MethodType):
        model = cast(Any, model.__func__)
    if not isinstance(model, types.FunctionType):
        return False
    alone = left_alone(model)
    return alone is not None and not alone.forbidden
