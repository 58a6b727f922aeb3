"""Which subclasses of torch.Tensor a graph can hold as plain tensors, see `subclasses`, or as the tensors they consist of, see `wrappers`."""

from __future__ import annotations

import functools
from typing import Any

import torch

__all__ = ["dispatches", "is_followed", "is_wrapper"]

_C: Any = torch._C
_Tensor: Any = torch.Tensor
_DISABLED = _C._disabled_torch_function_impl
_NO_DISPATCHER = (_C._disabled_torch_dispatch_impl, getattr(_Tensor, "__torch_dispatch__", None))
_PARAMETERS = (torch.nn.Parameter, torch.nn.Buffer)
_PROTOCOLS = frozenset(
    f"__{name}__"
    for name in (
        "getattribute", "getattr", "setattr", "delattr", "class", "del", "slots", "bool", "len", "iter", "hash", "contains", "index", "int", "float",
    )
)  # fmt: skip


@functools.lru_cache(maxsize=1024)
def is_followed(cls: type) -> bool:
    """Is it a class whose tensors are plain ones for the dispatcher, and whose attributes are found as usual?"""
    if issubclass(cls, torch.nn.Parameter) and dispatches(cls):
        return False
    return _has_usual_attributes(cls) and not _has_dispatcher(cls)


@functools.lru_cache(maxsize=1024)
def is_wrapper(cls: type) -> bool:
    """Is it a traceable wrapper subclass: its tensors consist of others, into which `__tensor_flatten__` takes them apart?"""
    if (
        not _has_usual_attributes(cls, slots=True)
        or not _has_dispatcher(cls)
        or cls.__module__.startswith("torch.nested")
    ):
        return False
    return all(callable(getattr(cls, name, None)) for name in ("__tensor_flatten__", "__tensor_unflatten__"))


def _has_dispatcher(cls: type) -> bool:
    return getattr(cls, "__torch_dispatch__", None) not in _NO_DISPATCHER


def _has_usual_attributes(cls: type, *, slots: bool = False) -> bool:
    if type(cls) not in (type(torch.Tensor), type(torch.nn.Parameter)) or cls in (torch.Tensor, *_PARAMETERS):
        return False
    own = [base for base in cls.__mro__[: cls.__mro__.index(torch.Tensor)] if base not in _PARAMETERS]
    unusual = _PROTOCOLS - {"__slots__"} if slots else _PROTOCOLS
    return not any(name in unusual for base in own for name in vars(base))


def dispatches(cls: Any) -> bool:
    """Do calls with tensors of this class go to its `__torch_function__`?"""
    return cls is not torch.Tensor and cls not in _PARAMETERS and cls.__torch_function__ is not _DISABLED
