"""What convolutions gain on a GPU from having their channels innermost: an estimate, or runs of the operator that are remembered.

The estimate is in bytes that cuDNN moves for nothing. Its fast kernels want the channels innermost, and given other images it converts
them and the result; its other kernels take about as much longer. `docs/benchmarks.md` has the times of forty shapes that it was checked against.
Under `max_autotune` the operator is run in both layouts, once for each shape; results are kept with the machine's other measurements, so
that every process decides alike and only the first one pays.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, final

import torch
import torch.fx
from torch.utils._python_dispatch import _disable_current_modes

from torchjit_core.events import activity, emit
from torchjit_inductor.convolution_algorithms import with_measured_algorithm
from torchjit_inductor.ir.dtypes import HALF
from torchjit_inductor.layouts import image_and_weight, typical, value_of
from torchjit_inductor.lowering.window_sums import has_library_kernel
from torchjit_inductor.measurements import Measurements
from torchjit_inductor.triton.timing import device_seconds

__all__ = ["ConvolutionTimes", "contest", "count", "estimated_gain", "pass_seconds"]

BANDWIDTH = 2.9e12
"""Bytes a second of a pass that changes the layout, on an H100: ours and cuDNN's are alike, so that their ratio is what matters."""
LAUNCH = 3e-6
"""Seconds that a pass takes besides."""
OF_HALVES = 1.4
"""cuDNN's passes over elements of two bytes take so many times as long as the bytes."""
OF_GROUPED_PRODUCTS = -1.0
"""Convolutions of single elements in groups take up to two and a half times as long with their channels innermost."""
OF_FEW_CHANNELS = 0.5
FEW_CHANNELS = 8
"""Images of fewer channels have kernels of their own in either layout, and none for the gradients of three dimensions."""
ALIGNED = 4
"""Where their number is no multiple of this, cuDNN converts images of either layout."""
OF_DEPTHWISE = -10.0
"""Depthwise convolutions that cuDNN has no kernel for: their gradients take six to ten times as long with their channels innermost."""
WIDEST_GRADIENT = 5
"""In float32 the gradients of depthwise convolutions with wider windows take twice as long."""
POINTWISE_ROWS = 784
"""Elements of a channel from which a convolution of single elements is a product that is as fast in either layout."""
ODD_CHANNELS = 32
"""In float32, what is left of images' channels by 64 where results of few channels have no kernel that takes them as they are."""
MOST_BYTES = 2**28
"""Of images in a run: more than the cache holds, and no more memory than a model has at hand."""

_CONVOLUTION = torch.ops.aten.convolution.default
_Seconds: TypeAlias = "tuple[float, float]"
"""Row-major and channels-last."""
Timer: TypeAlias = "Callable[[torch.fx.Node, int], _Seconds]"
"""Runs a convolution with so many images."""


def count(val: torch.Tensor) -> float:
    """Elements, by the sizes that symbols were traced with."""
    return float(math.prod(map(typical, val.shape)))


def pass_seconds(moved: float, passes: int) -> float:
    """What so many passes take that together read and write so many bytes."""
    return moved / BANDWIDTH + passes * LAUNCH


def estimated_gain(node: torch.fx.Node) -> float:
    """Seconds that a convolution, or its backward, takes less with its channels innermost; negative: more."""
    forward = node.target is _CONVOLUTION
    x, weight = image_and_weight(node)
    result = value_of(node) if forward else value_of(node.args[0])
    if x is None or weight is None or result is None:
        return 0.0
    share = _share(x, weight, _options(node), forward=forward) * (OF_HALVES if x.dtype in HALF else 1.0)
    # A pass over each image, and over each in a backward's two convolutions.
    passes = 2 if forward else 4
    images = 0.0 if forward and _converts_images(x, weight) else count(x)
    moved = passes * (images + count(result)) * x.element_size()
    return share * moved / BANDWIDTH + (passes * LAUNCH if share > 0 else 0.0)


def _share(x: torch.Tensor, weight: torch.Tensor, options: Sequence[Any], *, forward: bool) -> float:
    """The bytes that channels-last images save, as a share of a pass over each image."""
    stride, _, dilation, _, _, groups = options
    (_, each, *window), channels = [*map(typical, weight.shape)], typical(x.shape[1])
    of_elements = set(window) == {1}
    if groups != 1 and each == 1:  # depthwise
        return _depthwise_share(x.dtype, weight, dilation, groups, forward=forward)
    if groups != 1:
        return OF_GROUPED_PRODUCTS if of_elements else 1.0
    if channels < FEW_CHANNELS or channels % ALIGNED:
        return OF_FEW_CHANNELS if forward and x.dim() == 4 else 0.0
    if of_elements and set(stride) == {1} and math.prod(map(typical, x.shape[2:])) >= POINTWISE_ROWS:
        return 0.0
    return 1.0


def _depthwise_share(
    dtype: torch.dtype, weight: torch.Tensor, dilation: Sequence[int], groups: int, *, forward: bool
) -> float:
    """`_share` of a depthwise convolution."""
    filters = [*map(typical, weight.shape)]
    if not has_library_kernel(filters, dilation, groups):
        return OF_DEPTHWISE
    slow = dtype == torch.float32 and not forward and filters[2] > WIDEST_GRADIENT
    return OF_DEPTHWISE if slow else 1.0


def _converts_images(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Does cuDNN convert the images of a forward in either layout, so that the pass over the result is all that is saved?

    Of 3 x 3 and 5 x 5 windows over 16 to 256 channels those over 96, to less than 64 (`docs/benchmarks/gpu.md`).
    """
    results, channels = typical(weight.shape[0]), typical(x.shape[1])
    odd = channels > ODD_CHANNELS and channels % (2 * ODD_CHANNELS) == ODD_CHANNELS
    return x.dtype == torch.float32 and odd and results < 2 * ODD_CHANNELS


def _options(node: torch.fx.Node) -> Sequence[Any]:
    """Stride, padding, dilation, is it transposed, padding of the result, groups."""
    first = 3 if node.target is _CONVOLUTION else 4
    return node.args[first : first + 6]


# --------------------------------------------------------------------------------------------------------- runs


def _timed(node: torch.fx.Node, images: int) -> _Seconds:
    x, _ = image_and_weight(node)
    assert x is not None
    row_major, last = device_seconds(contest(node, images), cold=False, device=x.device)
    return row_major, last


def _machine(device: torch.device) -> str:
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return f"{torch.cuda.get_device_name(device)} torch {torch.__version__} cudnn {cudnn}"


@final
class ConvolutionTimes:
    """Tells what convolutions gain.

    Args:
        cache_dir: see `InductorSettings.cache_dir`.
        measures: run them instead of estimating.
        timer: for tests.
    """

    def __init__(self, cache_dir: str | None = None, *, measures: bool = False, timer: Timer = _timed) -> None:
        self._cache_dir, self._measures, self._timer = cache_dir, measures, timer
        self._stores: dict[torch.device, Measurements[_Seconds]] = {}

    def gain(self, convolutions: Sequence[torch.fx.Node]) -> float:
        """Seconds that all of them take less with their channels innermost."""
        if not self._may_measure():
            return sum(map(estimated_gain, convolutions))
        shapes = Counter(map(_key, convolutions))
        sample = {_key(node): node for node in convolutions}
        return sum(times * self._measured_gain(key, sample[key]) for key, times in shapes.items())

    def _may_measure(self) -> bool:
        """Results must be alike where that is asked for, whatever the machine does; and a recording has no room for runs."""
        return (
            self._measures
            and not torch.are_deterministic_algorithms_enabled()
            and not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())
        )

    def _measured_gain(self, key: str, node: torch.fx.Node) -> float:
        x, _ = image_and_weight(node)
        images = _fewer_images(node)
        if x is None or images is None:
            return estimated_gain(node)
        store = self._store(x.device)
        found = store.get(key)
        if found is None:
            try:
                with activity("autotuning"), _disable_current_modes(), torch.no_grad():
                    row_major, last = self._timer(node, images)
            except RuntimeError as error:  # no room beside the model, or no such kernel: this one is estimated
                emit("autotune", what=key, choices=[], rejected={"all": str(error)})
                return estimated_gain(node)
            found = (row_major, last)
            store.put(key, found)
            ways = [{"choice": "row-major", "seconds": row_major}, {"choice": "channels-last", "seconds": last}]
            emit("autotune", what=key, choices=ways, rejected={})
        whole = typical(x.shape[0])
        return (found[0] - found[1]) * whole / images

    def _store(self, device: torch.device) -> Measurements[_Seconds]:
        if device not in self._stores:
            self._stores[device] = Measurements(
                self._cache_dir,
                "convolutions",
                lambda: _machine(device),
                lambda pair: (float(pair[0]), float(pair[1])),
            )
        return self._stores[device]


def _key(node: torch.fx.Node) -> str:
    """What a run depends on."""
    forward = node.target is _CONVOLUTION
    x, weight = image_and_weight(node)
    sizes = [None if t is None else [str(n) for n in t.shape] for t in (x, weight)]
    wanted = "" if forward else node.args[10]
    dtype = None if x is None else x.dtype
    return f"{'forward' if forward else 'backward'} {dtype} {sizes} {_options(node)} {wanted} {torch.backends.cudnn.allow_tf32}"


def _fewer_images(node: torch.fx.Node) -> int | None:
    """As many as a run has; None where sizes are not known."""
    x, weight = image_and_weight(node)
    result = value_of(node if node.target is _CONVOLUTION else node.args[0])
    if x is None or weight is None or result is None:
        return None
    if not all(isinstance(n, int) and n > 0 for t in (x, weight, result) for n in t.shape):
        return None
    most = MOST_BYTES * x.shape[0] / ((x.numel() + result.numel()) * x.element_size())
    return max(1, min(x.shape[0], int(most)))


def contest(node: torch.fx.Node, images: int) -> list[Callable[[], object]]:
    """The operator in both layouts, on memory of its own."""
    x, weight = image_and_weight(node)
    assert x is not None and weight is not None
    forward = node.target is _CONVOLUTION
    options = _options(node)
    made = [_numbers(x, images), _numbers(weight, weight.shape[0])]
    if not forward:
        result = value_of(node.args[0])
        assert result is not None
        made.insert(0, _numbers(result, images))
    last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    turned = [each.contiguous(memory_format=last) for each in made]
    extra: tuple[Any, ...] = (None,) if forward else (node.args[3],)
    wanted = () if forward else (node.args[10],)
    run = with_measured_algorithm(node.target)
    return [functools.partial(run, *each, *extra, *options, *wanted) for each in (made, turned)]


def _numbers(like: torch.Tensor, first: int) -> torch.Tensor:
    return torch.full((first, *like.shape[1:]), 0.01, dtype=like.dtype, device=like.device)
