"""Who holds memory of the pool: tensors, and the variables, attributes and containers that refer to them. For messages."""

from __future__ import annotations

import gc
import inspect
import sys
import types
from collections.abc import Iterable, Set
from typing import Any, TypeGuard

import torch

__all__ = ["describe_holders"]

_MOST = 3
"""So many tensors are described."""


def describe_holders(storages: Set[int], own: Iterable[Any] = (), templates: Iterable[torch.Tensor] = ()) -> list[str]:
    """What holds storages, a text for each tensor: its kind, and who refers to it, with the line where that is a variable.

    It asks the garbage collector for all objects a few times, which takes a fraction of a second.

    Args:
        storages: ids (`UntypedStorage._cdata`).
        own: objects whose references do not count: those of the call that asks.
        templates: tensors with these storages that nobody is asked to drop.
    """
    if not storages:
        return []
    tensors, places = _living(storages, {id(t) for t in templates})
    ignored = {id(o) for o in (*own, own, tensors)}
    for frame in _frames():
        code = frame.f_code
        place = f"{code.co_qualname} ({code.co_filename}:{frame.f_lineno})"
        for name, value in _variables(frame):
            for tensor, path in _tensors(value, name):
                if id(tensor) in places and name.isidentifier():
                    places[id(tensor)].append(f"{path} of {place}")
    texts = []
    for number in range(min(len(tensors), _MOST)):  # no iterator that holds the tensor in a tuple, and tells of itself
        tensor = tensors[number]
        known, others = places[id(tensor)], _referrers(tensor, ignored)
        told = known + [o for o in others if "." in o or not known] or ["autograd, or C++"]
        kind = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
        texts.append(f"{kind} is held by {', '.join(dict.fromkeys(told[:2]))}")
    if len(tensors) > _MOST:
        texts.append(f"{len(tensors) - _MOST} more")
    return texts


def _living(storages: Set[int], templates: Set[int]) -> tuple[list[torch.Tensor], dict[int, list[str]]]:
    """The tensors with these storages, and for each id what is known of its place: gradients belong to parameters."""
    tensors: dict[int, torch.Tensor] = {}
    places: dict[int, list[str]] = {}
    kinds: dict[type, int] = {}
    for found in gc.get_objects():
        kind = type(found)
        if kind not in kinds:
            kinds[kind] = 1 if issubclass(kind, torch.Tensor) else 2 if issubclass(kind, torch.nn.Module) else 0
        if kinds[kind] == 1 and id(found) not in templates and _storage(found) in storages:
            tensors[id(found)] = found
            places.setdefault(id(found), [])
        elif kinds[kind] == 2:
            for name, parameter in found.__dict__.get("_parameters", {}).items():
                gradient = None if parameter is None else parameter.grad
                if gradient is not None and _storage(gradient) in storages:
                    tensors[id(gradient)] = gradient
                    places.setdefault(id(gradient), []).append(f"the gradient of {kind.__name__}.{name}")
    return list(tensors.values()), places


def _referrers(tensor: torch.Tensor, ignored: Set[int]) -> list[str]:
    """Attributes, globals and containers that refer to a tensor."""
    found = []
    for holder in gc.get_referrers(tensor):
        kind = type(holder)
        if id(holder) in ignored or issubclass(kind, types.FrameType):
            continue
        if kind is dict:
            key = _key_of(holder, tensor)
            owners = [o for o in gc.get_referrers(holder) if _dictionary(o) is holder]
            found += [f"{_owner(o)}.{key}" for o in owners] or [f"a dict's [{key!r}]"]
        else:
            key = _key_of(_dictionary(holder) or {}, tensor)
            found.append(f"a {kind.__name__}" if key is None else f"{_owner(holder)}.{key}")
    return found


def _key_of(held: dict[Any, Any], wanted: Any) -> Any:
    for key, value in held.items():  # a generator would hold `wanted` in a cell, which would then be told of
        if value is wanted:
            return key
    return None


def _dictionary(holder: Any) -> dict[Any, Any] | None:
    try:
        held = object.__getattribute__(holder, "__dict__")
    except AttributeError:
        return None
    return held if type(held) is dict else None


def _owner(holder: Any) -> str:
    return str(holder.__name__) if issubclass(type(holder), types.ModuleType) else type(holder).__name__


def _frames() -> list[types.FrameType]:
    """The frames of the program on all threads, innermost first, without this package's."""
    frames = []
    for top in sys._current_frames().values():
        frame: types.FrameType | None = top
        while frame is not None:
            if not frame.f_globals.get("__name__", "").startswith("torchjit_cudagraphs"):
                frames.append(frame)
            frame = frame.f_back
    return frames


def _variables(frame: types.FrameType) -> list[tuple[str, Any]]:
    """The variables of a frame, which go on living only in it."""
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # of a module or a class: its namespace
        return list(frame.f_locals.items())
    if sys.version_info < (3, 13) and sys.gettrace() is not None:
        return []  # what follows would be written back to the frame
    held = frame.f_locals
    found = list(held.items())
    if sys.version_info < (3, 13):
        held.clear()  # a copy that the frame would keep, and with it what the variables held now
    return found


def _tensors(value: Any, name: str) -> list[tuple[torch.Tensor, str]]:
    """The tensors that a variable is or directly contains, with how one would write them."""
    if _is_tensor(value):
        return [(value, name)]
    if type(value) in (list, tuple):
        made = [(v, f"{name}[{k}]") for k, v in enumerate(value)]
        return [(v, p) for v, p in made if _is_tensor(v)] + [
            (w, f"{p}[{n}]") for v, p in made if type(v) in (list, tuple) for n, w in enumerate(v) if _is_tensor(w)
        ]
    if type(value) is dict:
        return [(v, f"{name}[{k!r}]") for k, v in value.items() if _is_tensor(v)]
    return []


def _is_tensor(value: Any) -> TypeGuard[torch.Tensor]:
    """Like `isinstance`, which would ask objects that compute their class."""
    return issubclass(type(value), torch.Tensor)


def _storage(tensor: torch.Tensor) -> int | None:
    try:
        return int(tensor.untyped_storage()._cdata)
    # Sparse tensors and wrapper subclasses have no storage and raise one of these. Any tensor of the program may be looked at here, and
    # one without a storage cannot hold memory of a graph's pool, so it is passed over: this only words a message.
    except (NotImplementedError, RuntimeError):
        return None
