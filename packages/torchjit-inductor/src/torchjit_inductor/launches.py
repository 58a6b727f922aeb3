"""What host programs call while they run, and their launches of kernels as ranges of torch's profiler."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, final

import torch

__all__ = ["Ranged", "conformed", "note_launches", "show_kernels", "shows_kernels"]


def note_launches(call: Callable[..., Any], names: Sequence[str], *, whole: bool = True) -> None:
    """Remember which kernels a host program launches: `show_kernels` makes them ranges, at once if it was asked for before.

    Args:
        whole: has the program all that it names? If it gets that later, `show_kernels` is to be called again.
    """
    _launches[call] = tuple(names)
    if _shown and whole:
        _replace_launches(call, True)


_launches: weakref.WeakKeyDictionary[Any, tuple[str, ...]] = weakref.WeakKeyDictionary()
"""The names of the kernels that each program launches."""
_shown: list[bool] = [True] if getattr(torch.autograd.profiler, "_is_profiler_enabled", False) else []


def show_kernels(shown: bool) -> None:
    """Is each launch of a kernel a range of torch's profiler, by the kernel's name?"""
    _shown[:] = [True] if shown else []
    for call in list(_launches):
        _replace_launches(call, shown)


def shows_kernels() -> bool:
    """See `show_kernels`."""
    return bool(_shown)


def _replace_launches(call: Any, shown: bool) -> None:
    names = call.__globals__
    for name in _launches[call]:
        if name not in names:
            continue  # a program that could not be loaded
        launch = names[name]
        launch = launch.launch if isinstance(launch, Ranged) else launch
        names[name] = Ranged(name, launch) if shown else launch


@final
class Ranged:
    """A call as a range."""

    def __init__(self, name: str, launch: Callable[..., Any]) -> None:
        self.__name__ = name
        self.launch = launch

    def __call__(self, *args: Any) -> Any:
        with torch.profiler.record_function(self.__name__):
            return self.launch(*args)


def conformed(tensor: torch.Tensor, sizes: Sequence[int], strides: Sequence[int]) -> torch.Tensor:
    """The tensor with exactly these strides: itself, or a copy. Dimensions of size 1 do not matter.

    An operator may return fewer or more of those than its fake: torch 2.11's norm over a dimension of one element.
    """
    if tensor.dim() != len(sizes) and [n for n in tensor.shape if n != 1] == [n for n in sizes if n != 1]:
        tensor = tensor.reshape(sizes)
    if tensor.numel() == 0 or all(n == 1 or a == b for n, a, b in zip(sizes, tensor.stride(), strides, strict=True)):
        return tensor
    made = torch.empty_strided(sizes, strides, dtype=tensor.dtype, device=tensor.device)
    made.copy_(tensor)
    return made
