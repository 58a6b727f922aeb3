"""What can be compiled, and what it becomes: functions, methods, modules and instances of classes with `__call__`."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from torchjit_core.reasons import UserTypeError, reason
from torchjit_core.user_errors import told
from torchjit_frame import FrontDoor
from torchjit_session import disabling
from torchjit_session.modules import compiled_module, passed_on

if TYPE_CHECKING:
    from torchjit_session.compilation import Compilation

__all__ = ["NOT_CALLABLE", "compilation_of", "compile_any", "doors", "is_compiled"]

NOT_CALLABLE = reason(
    "TJ-API-030",
    "this object cannot be compiled",
    "torchjit.compile takes a Python function, a method or an nn.Module.",
    "Wrap what you have in a Python function: torchjit.compile(lambda *a: obj(*a)).",
)


def compile_any(model: Any, start: Callable[..., FrontDoor], arguments: Mapping[str, Any]) -> Any:
    """What `compile` returns for a function, a method, a module, or another object that can be called.

    Args:
        model: any of these; what is compiled already is compiled anew.
        start: makes the front door of a function, `of_object` where it is called for one object.
        arguments: of `compile`, those that were given.

    Raises:
        UserError: it is none of these.
    """
    if disabling.is_disabled(model):
        return model
    if isinstance(model, torch.nn.Module):
        again = functools.partial(compile_any, start=start, arguments=arguments)
        return compiled_module(model, functools.partial(start, of_object=True), again, arguments)
    if isinstance(model, FrontDoor):
        return compile_any(model.__wrapped__, start, arguments)
    if isinstance(model, types.MethodType) and (method := _compiled_method(model, start)) is not None:
        return method
    if isinstance(model, types.FunctionType):
        return start(model)
    call = type(model).__dict__.get("__call__")  # an instance of a class that defines it
    if isinstance(call, types.FunctionType):
        return types.MethodType(start(call, of_object=True), model)
    if isinstance(model, type):
        name = model.__name__
        raise UserTypeError(NOT_CALLABLE, f"got the class {name}: compile an instance of it, {name}(...)")
    if not callable(model):
        raise UserTypeError(NOT_CALLABLE, f"got {_told(model)}")

    def call_builtin(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    functools.update_wrapper(call_builtin, model, updated=())
    function: Any = call_builtin
    return start(function)


def _compiled_method(method: types.MethodType, start: Callable[..., FrontDoor]) -> Any:
    """A bound method compiled; None where what it binds is no Python function."""
    inner: Any = method.__func__
    inner = inner.__wrapped__ if isinstance(inner, FrontDoor) else inner
    if inner is torch.nn.Module._call_impl and isinstance(method.__self__, torch.nn.Module):
        # Imported here: most programs compile no module in place, and every one imports this.
        from torchjit_session.in_place import compiled_call  # noqa: PLC0415

        return compiled_call(method.__self__, start)
    if isinstance(inner, types.FunctionType):
        return types.MethodType(start(inner, of_object=True), method.__self__)
    return None


def doors(
    make: Callable[[types.FunctionType, str | None, tuple[str, ...] | None, bool], Compilation],
    asked: Mapping[str, Any],
    told: Mapping[str, Any],
) -> Callable[..., FrontDoor]:
    """What `compile_any` starts functions with.

    Args:
        make: makes the compilation of a function: with a label for reports, the names of parameters that it passes on, and whether it
            is called for one object.
        asked: the keywords of `compile` that were given.
        told: how it was asked for, for people.
    """

    def start(
        function: types.FunctionType,
        label: str | None = None,
        forwarded: tuple[str, ...] | None = None,
        *,
        of_object: bool = False,
    ) -> FrontDoor:
        compilation = make(function, label, forwarded or passed_on(function), of_object)
        compilation.asked, compilation.told = dict(asked), dict(told)
        # An attribute for people: `f.compiled`.
        setattr(compilation.root.door, "compiled", compilation)  # noqa: B010
        return compilation.root.door

    return start


def _told(model: object) -> str:
    return "a Tensor: compile the function that makes it" if isinstance(model, torch.Tensor) else told(model)


def compilation_of(compiled: Any) -> Compilation | None:
    """The compilation behind something that `compile` returned, or None."""
    if isinstance(compiled, types.MethodType):
        compiled = compiled.__func__
    door = getattr(compiled, "_torchjit_door", compiled)
    found = getattr(door, "compiled", None)
    loaded: Any = sys.modules.get("torchjit_session.compilation")  # nothing is compiled without it
    return found if loaded is not None and isinstance(found, loaded.Compilation) else None


def is_compiled(model: Any) -> bool:
    """Is it what `compile` returned, or a module on which `nn.Module.compile` was called while `torch.compile` was torchjit's?"""
    in_place = model.__dict__.get("_compiled_call_impl") if isinstance(model, torch.nn.Module) else None
    return compilation_of(model) is not None or compilation_of(in_place) is not None
