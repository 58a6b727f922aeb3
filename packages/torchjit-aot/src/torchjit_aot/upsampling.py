"""Interpolation on CPUs: nearest neighbours, each repeated so often, as an expanded view, which becomes loops over whole rows; all else as
the operator that eager PyTorch calls, forward and backward.

Traced, torch gathers by indices that it computes as floats, for its backward too, which scatters: for images of 64 channels that takes
1.3 to 12 times as long as the operator's kernels. It stays where a size is a symbol: for the operator itself torch would fix it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._dispatch.python import no_python_dispatcher
from torch._prims_common import suggest_memory_format

__all__ = ["INTERPOLATIONS", "run_interpolation"]

_NEAREST = {getattr(torch._C._nn, f"upsample_nearest{n}d") for n in (1, 2, 3)}
INTERPOLATIONS: frozenset[Any] = frozenset(
    {
        torch.nn.functional.interpolate,
        *_NEAREST,
        *(getattr(torch._C._nn, f"_upsample_nearest_exact{n}d") for n in (1, 2, 3)),
        torch._C._nn.upsample_linear1d,
        torch._C._nn.upsample_bilinear2d,
        torch._C._nn.upsample_trilinear3d,
        torch._C._nn.upsample_bicubic2d,
    }
)
"""torch's functions."""
_EXACT = (1, 2, 4, 8, 16)
"""Scales whose inverse a float holds: where an element of the result comes from is a quotient of whole numbers."""


def run_interpolation(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
    """The call, in the other way where that gives the same.

    Args:
        function: one of `INTERPOLATIONS`.
        args: image (batch, channels, sizes...), sizes of the result or None, scales or None: or a scale for each direction.
        kwargs: the same by name.
    """
    if function is torch.nn.functional.interpolate:
        times = _times_of_interpolate(*args, **kwargs)
    else:
        times = None if kwargs or not args or function not in _NEAREST else _times(*args)
    if times is None:
        with no_python_dispatcher() if _by_the_operator(args, kwargs) else nullcontext():
            result: Tensor = function(*args, **kwargs)
        return result
    image: Tensor = args[0]
    apart, repeated, sizes = list(image.shape[:2]), list(image.shape[:2]), list(image.shape[:2])
    for size, n in zip(image.shape[2:], times, strict=True):
        apart, repeated, sizes = [*apart, size, 1], [*repeated, size, n], [*sizes, size * n]
    result = image.reshape(apart).expand(repeated).reshape(sizes)
    return result.contiguous(memory_format=suggest_memory_format(image)) if image.dim() == 4 else result


def _by_the_operator(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Is the image on a CPU, and is every number known?"""
    image = args[0] if args else kwargs.get("input")
    if not isinstance(image, Tensor) or image.device.type != "cpu":
        return False
    given = [*image.shape, *args[1:], *kwargs.values()]
    numbers = [n for value in given for n in (value if isinstance(value, (list, tuple)) else (value,))]
    return not any(isinstance(n, (torch.SymInt, torch.SymFloat, torch.SymBool)) for n in numbers)


def _times_of_interpolate(
    input: Any = None, size: Any = None, scale_factor: Any = None, mode: Any = "nearest", *more: Any, **others: Any
) -> list[int] | None:
    if (
        mode != "nearest"
        or (size is None) == (scale_factor is None)
        or any(x is not None and x is not False for x in (*more, *others.values()))
    ):
        return None  # errors among them
    directions = input.dim() - 2 if isinstance(input, Tensor) else 0
    given = [value if isinstance(value, (list, tuple)) else [value] * directions for value in (size, scale_factor)]
    return _times(input, *given)


def _times(image: Any, output_size: Any = None, *more: Any) -> list[int] | None:
    """How often elements are repeated in each direction; None where that is not so, or not known."""
    if not _is_image(image):
        return None
    directions = image.dim() - 2
    scales = more[0] if len(more) == 1 and isinstance(more[0], (list, tuple)) else more or [None] * directions
    outputs = [None] * directions if output_size is None else output_size
    if len(scales) != directions or len(outputs) != directions:
        return None
    found = [_repeats(*given) for given in zip(image.shape[2:], outputs, scales, strict=True)]
    known = [n for n in found if n is not None and n in _EXACT]
    return known if len(known) == directions else None


def _is_image(image: Any) -> bool:
    """Are elements of it repeated as they are: floats on a CPU, in one to three directions?"""
    if not isinstance(image, Tensor) or image.dim() not in (3, 4, 5) or image.device.type != "cpu":
        return False
    return not torch.is_autocast_enabled("cpu") and image.dtype.is_floating_point and image.dtype.itemsize > 1


def _repeats(size: Any, output: Any, scale: Any) -> int | None:
    if not isinstance(scale, (int, float, type(None))):
        return None  # a symbol
    if type(size) is not int:
        return int(scale) if output is None and scale is not None and scale in _EXACT else None
    if output is None:
        output = math.floor(size * scale) if scale is not None else None
    if type(output) is not int or not size or output % size:
        return None
    times = output // size
    # Up to twice the size eager PyTorch's kernels do not look at the scale.
    return times if times <= 2 or scale is None or scale == times else None
