"""Compiled modules: the same class, the same state, another `__call__`."""

from __future__ import annotations

import abc
import copy
import copyreg
import functools
import inspect
import re
import sys
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import torch

from torchjit_frame import FrontDoor
from torchjit_session import upstream

__all__ = ["behind_hooks", "class_for_libraries", "compiled_module", "passed_on"]

_M = TypeVar("_M", bound=torch.nn.Module)


def compiled_module(
    module: _M,
    start: Callable[[types.FunctionType, str, tuple[str, ...] | None], FrontDoor],
    again: Callable[[Any], Any],
    arguments: Mapping[str, Any],
) -> _M:
    """A module that shares `module.__dict__` and calls through a front door.

    It is an instance of a subclass of `type(module)` made for it, so `isinstance`, attributes, hooks, `state_dict`
    keys, `train()` and `to()` act on one state; there is no `_orig_mod.` prefix. Inside compiled code `self` is the
    original module, which is also `_orig_mod`. Checkpoints of upstream's wrappers, with `_orig_mod.` in their keys, load.

    What libraries ask of upstream's wrappers is answered: `isinstance(m, torch._dynamo.OptimizedModule)`, `_orig_mod`,
    `dynamo_ctx`, and lightning's `_compile_kwargs`. Calling the class makes a plain module of the class that the program wrote.

    Args:
        module: any module.
        start: makes the front door of the class's `__call__`, given a name for reports and those of the parameters.
        again: compiles something else in the same way.
        arguments: of `compile`, those that were given.
    """
    original_class = type(module)
    if hasattr(original_class, "_torchjit_original"):
        module = module._torchjit_original  # type: ignore[assignment]
        original_class = type(module)
    calls = _calls(module, original_class, start)
    members = {
        **calls,
        "__reduce_ex__": _reduce,
        "__class__": property(class_for_libraries, _set_class),
        "__copy__": _copy,
        "__deepcopy__": _deepcopy,
        "__new__": _new,
        "__setattr__": _setattr,
        "__doc__": original_class.__doc__,
        "__module__": original_class.__module__,
        "__qualname__": original_class.__qualname__,
        "_load_from_state_dict": _load_from_state_dict,
        "_torchjit_original": module,
        "_torchjit_class": original_class,
        "_torchjit_start": (start, again, arguments),
        "_compile_kwargs": dict(arguments),
        "dynamo_ctx": staticmethod(again),
    }
    if not hasattr(module, "_orig_mod"):
        members["_orig_mod"] = module  # the name by which libraries look for it
    members.update({name: _slot(name) for name in _slots(original_class)})
    subclass = _class_below(original_class, _metaclass(cast(Any, type(original_class))), members)
    made: _M = object.__new__(subclass)
    object.__setattr__(made, "__dict__", module.__dict__)
    _share_state(made, module)
    # Weakly: the module may hold what was made of it, which then goes with a collection.
    weakref.finalize(made, _let_go, weakref.ref(subclass)).atexit = False
    return made


_HOLDING = ("__call__", "_torchjit_original", "_torchjit_door", "_torchjit_start", "compiled", "_orig_mod")
"""Members through which a class made for a module holds it, and what was compiled."""


def _let_go(subclass: weakref.ref[type]) -> None:
    """The only instance is gone. A class is in a cycle with itself, and would keep the module until a collection comes."""
    cls = subclass()
    for name in _HOLDING if cls is not None else ():
        if name in cls.__dict__:
            type.__delattr__(cls, name)


def _calls(module: torch.nn.Module, cls: type, start: Callable[..., FrontDoor]) -> dict[str, Any]:
    """The members of the class of a compiled module that are called, and what they lead to.

    Args:
        module: the original.
        cls: the class whose instance is called; that of the original, or one that a library put over it.
        start: as in `compiled_module`.
    """
    name = _first_compiled(module, cls)
    label = type(module).__qualname__
    if name == "__call__":
        door = start(_plain_call(type(module)), label, _parameters(module))
        calls: dict[str, Any] = {}
    else:
        function = getattr(module, name).__func__
        door = start(function, label, _parameters(cast(Any, module.module) if name == _REPLICATED else module))
        calls = {"__call__": _plain_call(type(module))}
    # A bound method is no descriptor of the new instance: `self` in the region is the original module.
    return {
        **calls,
        name: types.MethodType(door, module),
        "_torchjit_door": door,
        "compiled": getattr(door, "compiled"),  # noqa: B009
    }


_REPLICATED = "_run_ddp_forward"


def _first_compiled(module: torch.nn.Module, cls: type) -> str:
    """Where compiled code begins: behind the hooks that gather parameters, and behind what broadcasts buffers.

    Both run in Python before each call and after it, and cannot be captured. What they surround is captured without a break.
    """
    name = "__call__"
    if issubclass(cls, torch.nn.parallel.DistributedDataParallel):
        name = name if module._delay_all_reduce_all_params else _REPLICATED
    elif _is_sharded(cls):
        state = _sharded_state(module)
        # Of modules that are sharded as one, hooks look for the one that was given.
        name = "forward" if state is None or len(state._modules) == 1 else name
    method: Any = getattr(module, name, None)
    plain = isinstance(method, types.MethodType) and isinstance(method.__func__, types.FunctionType)
    return name if plain and name not in module.__dict__ else "__call__"


def behind_hooks(module: torch.nn.Module) -> str | None:
    """The method behind those hooks, or behind the broadcast; None where a call is compiled as a whole."""
    name = _first_compiled(module, type(module))
    return None if name == "__call__" else name


def _is_sharded(cls: type) -> bool:
    """Is it a class that `fully_shard` makes?"""
    sharded = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", None)
    return sharded is not None and issubclass(cls, sharded)


def _states() -> Any:
    """Of each module what torch.distributed keeps beside it; empty where that is not loaded."""
    return getattr(sys.modules.get("torch.distributed._composable_state"), "_module_state_mapping", {})


def _sharded_state(module: torch.nn.Module) -> Any:
    held = _states().get(module)
    return None if held is None else held()


def _share_state(made: torch.nn.Module, module: torch.nn.Module) -> None:
    """A compiled module is sharded if its original is: methods of `FSDPModule`, and modules around it that are sharded, find that."""
    states = _states()
    if module in states:
        states[made] = states[module]


def _plain_call(cls: type[torch.nn.Module]) -> types.FunctionType:
    call: Any = cls.__call__
    while not isinstance(call, types.FunctionType):
        call = call.__func__ if isinstance(call, types.MethodType) else call.__wrapped__
    return call


def _parameters(module: torch.nn.Module) -> tuple[str, ...] | None:
    """What people call the positional arguments of a call: the parameters of `forward`."""
    if type(module).__call__ is not torch.nn.Module.__call__:
        return None
    forward: Any = module.forward
    if not isinstance(forward, types.MethodType):  # a static method, or what was put on the instance
        return _positional(forward) if isinstance(forward, types.FunctionType) else None
    return _positional(forward.__func__)[1:] if isinstance(forward.__func__, types.FunctionType) else None


def passed_on(function: types.FunctionType) -> tuple[str, ...] | None:
    """What people call the arguments that a wrapper, `def wrapper(*args, **kwargs)`, passes on; None if it wraps nothing."""
    code = function.__code__
    wraps = isinstance(function.__dict__.get("__wrapped__"), types.FunctionType)
    return _positional(function)[code.co_argcount :] if wraps and code.co_flags & inspect.CO_VARARGS else None


def _positional(function: types.FunctionType) -> tuple[str, ...]:
    """The positional parameters of a function, or of what it wraps; with `*args`, if it is there."""
    code = function.__code__
    while code.co_flags & inspect.CO_VARARGS and not code.co_kwonlyargcount:
        wrapped = function.__dict__.get("__wrapped__")
        if not isinstance(wrapped, types.FunctionType):
            break
        function, code = wrapped, wrapped.__code__
    names = code.co_varnames[: code.co_argcount]
    if not code.co_flags & inspect.CO_VARARGS:
        return names
    return (*names, f"*{code.co_varnames[code.co_argcount + code.co_kwonlyargcount]}")


def _load_from_state_dict(self: Any, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
    """Of `nn.Module`, after keys that upstream's wrappers gave to checkpoints have got back their plain names."""
    renamed = {k: prefix + _WRAPPED.sub("", k[len(prefix) :]) for k in state_dict if k.startswith(prefix)}
    if any(key != plain for key, plain in renamed.items()) and not any(
        _WRAPPED.search(name + ".") for name, _ in self.named_modules()
    ):
        for key, plain in renamed.items():
            state_dict[plain] = state_dict.pop(key)
    type(self._torchjit_original)._load_from_state_dict(self, state_dict, prefix, *rest)


_WRAPPED = re.compile(r"(?:(?<=\.)|^)_orig_mod\.")


def _reduce(self: Any, protocol: int) -> Any:
    # What was compiled belongs to this process: a pickle holds the plain module.
    return (_plain, (self._torchjit_original,))


def _plain(module: _M) -> _M:
    return module


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    return compiled_module(copy.deepcopy(self._torchjit_original, memo), *self._torchjit_start)


def _copy(self: Any) -> Any:
    return compiled_module(copy.copy(self._torchjit_original), *self._torchjit_start)


def _setattr(self: Any, name: str, value: Any) -> None:
    """Libraries set `_orig_mod` to what they unwrapped: it is no submodule, which would contain itself."""
    original = self._torchjit_original
    if name == "_orig_mod" and "_orig_mod" in type(self).__dict__ and isinstance(value, torch.nn.Module):
        type(self)._orig_mod = value
    else:
        cast(Any, type(original)).__setattr__(self, name, value)


def class_for_libraries(self: Any) -> type:
    """`__class__`: a class that is below upstream's wrapper, too, for `isinstance(m, OptimizedModule)`.

    Torch itself, which then expects `_orig_mod.` in the names of parameters, is told the type, and so is everybody before the
    wrapper's class is loaded.
    """
    wrapper = upstream.wrapper_class()
    if wrapper is None or upstream.asked_by_torch(1):
        return type(self)
    cls = type(self)
    if "_torchjit_below" not in vars(cls):
        cls._torchjit_below = _below(cls, wrapper)
    below: type = cls._torchjit_below
    return below


def _set_class(self: Any, value: Any) -> None:
    """Libraries put a class of their own over the one that they find, as FSDP does.

    What a parametrization's adds, compiled code meets in the original: that gets a like class. Below hooks of FSDP compiled
    code begins elsewhere.
    """
    original = self._torchjit_original
    put = object.__dict__["__class__"].__set__
    put(self, value)
    if _is_sharded(value) and _first_compiled(original, value) != "__call__":
        for name, member in _calls(original, value, self._torchjit_start[0]).items():
            type.__setattr__(value, name, member)
    if getattr(value, "_torchjit_original", None) is not original:
        return  # a class of the program's: it is compiled no more
    if "_torchjit_class" in vars(value):
        put(original, value._torchjit_class)
    elif value.__module__ == "torch.nn.utils.parametrize":
        members = {name: held for name, held in vars(value).items() if name not in ("__dict__", "__weakref__")}
        twin = types.new_class(value.__name__, (type(original),), exec_body=lambda namespace: namespace.update(members))
        type.__setattr__(value, _TWIN, twin)
        put(original, twin)


def _below(cls: Any, wrapper: type) -> type:
    """`cls`, with `wrapper` behind everything that it inherits. It has no instances."""
    members = {"__doc__": cls.__doc__, "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    if "_torchjit_class" in vars(cls):
        members["_torchjit_class"] = cls._torchjit_class
    below: type = _class_below(cls, type(cls), {**members, _WRAPPER: wrapper})
    return below


def _slots(cls: type) -> set[str]:
    """Attributes that do not lie in `__dict__`, which a compiled module shares with its original."""
    return {n for base in cls.__mro__ for n, held in vars(base).items() if isinstance(held, types.MemberDescriptorType)}


def _slot(name: str) -> property:
    def get(self: Any) -> Any:
        return getattr(self._torchjit_original, name)

    def put(self: Any, value: Any) -> None:
        setattr(self._torchjit_original, name, value)

    def remove(self: Any) -> None:
        delattr(self._torchjit_original, name)

    return property(get, put, remove)


# ---------------------------------------------------------------------- classes that the program has not written
_READY, _WRAPPER, _TWIN = "_torchjit_ready", "_torchjit_wrapper", "_torchjit_twin"


class _Quiet:
    """First among the bases while a class is made: no `__init_subclass__` of the program hears of it."""

    def __init_subclass__(cls, **kwargs: Any) -> None: ...


def _class_below(base: type, metaclass: Any, members: dict[str, Any]) -> Any:
    """A subclass that nobody is told of: registries of the program hold the program's classes."""
    make = abc.ABCMeta.__new__ if issubclass(metaclass, abc.ABCMeta) else type.__new__  # not the program's own
    made: Any = make(metaclass, base.__name__, (base,), members)
    type.__setattr__(made, _READY, True)
    made.__bases__ = (base,)  # asks for the order again, see `_metaclass`
    return made


def _new(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Without `__init__`: one of the class that the program wrote."""
    original = type(cls._torchjit_original) if _TWIN in vars(cls) else cls._torchjit_class
    return original.__new__(original, *args, **kwargs)


@functools.cache
def _metaclass(of: Any) -> Any:
    """One for compiled modules' classes. Whoever asks with them, or calls or pickles them, means the class that the program wrote."""

    def call(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return cls._torchjit_class(*args, **kwargs)

    def has_instance(cls: Any, instance: object) -> bool:
        return of.__instancecheck__(cls, instance) or vars(cls).get("_torchjit_class") in type(instance).__mro__

    def has_subclass(cls: Any, other: type) -> bool:
        return of.__subclasscheck__(cls, other) or vars(cls).get("_torchjit_class") in other.__mro__

    def put(cls: Any, name: str, value: Any) -> None:
        of.__setattr__(cls, name, value)
        if _TWIN in vars(cls):
            setattr(vars(cls)[_TWIN], name, value)

    def remove(cls: Any, name: str) -> None:
        of.__delattr__(cls, name)
        if _TWIN in vars(cls):
            delattr(vars(cls)[_TWIN], name)

    def order(made: Any) -> list[type]:
        found: list[type] = of.mro(made)
        if _READY not in vars(made):
            return [found[0], _Quiet, *found[1:]]
        wrapper = vars(made).get(_WRAPPER)
        return found if wrapper is None else [*found[:-1], wrapper, object]

    members = {
        "__call__": call, "__instancecheck__": has_instance, "__subclasscheck__": has_subclass, "__setattr__": put, "__delattr__": remove,
        "mro": order,
    }  # fmt: skip
    made = type(of.__name__, (of,), members)
    copyreg.pickle(made, _reduce_class)  # of classes, too
    return made


def _reduce_class(cls: Any) -> Any:
    plain = vars(cls).get("_torchjit_class")
    return cls.__qualname__ if plain is None else (_plain, (plain,))
