"""Depthwise convolutions of one dimension on the CPU, in the layout that oneDNN is fast in; on GPUs some are sums over their windows.

Given rows it takes up to twenty times as long as given images of one row with the channels innermost, into which models that work on
sequences turn their tensors in the first place (docs/benchmarks/cpu.md). All other convolutions are left to aten.
"""

from __future__ import annotations

from typing import Any

import torch

from torchjit_core.expr import constant
from torchjit_inductor.lowering.builder import Builder
from torchjit_inductor.lowering.registry import lowering
from torchjit_inductor.lowering.sizes import NotLowered
from torchjit_inductor.lowering.tensors import Index, Lowered, Strided, TensorMeta
from torchjit_inductor.lowering.window_sums import window_sum

__all__: list[str] = []

_aten = torch.ops.aten
_DTYPES = (torch.float32, torch.bfloat16)


@lowering("convolution")
def _convolution(
    b: Builder, meta: TensorMeta, x: Lowered, weight: Lowered, bias: Lowered | None, *options: Any
) -> Lowered:
    if x.device.type == "cuda":
        return window_sum(b, meta, x, weight, bias, options)
    made = b.extern(
        _aten.convolution.default,
        (*_images(b, options, weight, x), bias, *_planar(options)),
        {},
        _planar_meta(meta, innermost=True),
    )
    return _row(made)


@lowering("convolution_backward")
def _convolution_backward(
    b: Builder,
    metas: tuple[TensorMeta | None, ...],
    gradient: Lowered,
    x: Lowered,
    weight: Lowered,
    biases: Any,
    *options: Any,
) -> tuple[Strided | None, ...]:
    *numbers, wanted = options
    images, gradients, filters = _images(b, numbers, weight, x, gradient)
    of_image, of_weight, of_bias = metas
    planar = (
        None if of_image is None else _planar_meta(of_image, innermost=True),
        None if of_weight is None else _planar_meta(of_weight, innermost=False),
        of_bias,
    )
    arguments = (gradients, images, filters, biases, *_planar(numbers), wanted)
    made = b.extern(_aten.convolution_backward.default, arguments, {}, planar)
    return (*(None if t is None else _row(t) for t in made[:2]), made[2])


def _images(b: Builder, options: Any, weight: Lowered, *sequences: Lowered) -> tuple[Strided, ...]:
    """The sequences as images of one row with their channels innermost, and the weight as one of such.

    Raises:
        NotLowered: it is another convolution.
    """
    *_, transposed, _, groups = options
    if weight.device.type != "cpu" or len(weight.sizes) != 3 or transposed:
        raise NotLowered("not of one dimension on a CPU")
    if any(t.dtype != weight.dtype or t.dtype not in _DTYPES for t in (weight, *sequences)):
        raise NotLowered(f"a convolution of {weight.dtype}")
    if [n.value for n in weight.sizes[:2]] != [groups, 1] or weight.sizes[2].value is None:
        raise NotLowered("not depthwise")
    filters = b.materialize(weight)
    return (*(_image(b.laid_out(s, _rows_strides(s.sizes))) for s in sequences), _image(filters))


def _rows_strides(sizes: Index) -> Index:
    """Of a batch of sequences with the channels innermost."""
    _, channels, length = sizes
    return (channels * length, constant(1), channels)


def _image(tensor: Strided) -> Strided:
    """With a dimension of size 1 before the last."""
    sizes, strides = (
        (*e[:2], one, e[2]) for e, one in ((tensor.sizes, constant(1)), (tensor.strides, tensor.strides[0]))
    )
    return Strided(tensor.buffer, sizes, strides, tensor.offset, tensor.dtype, tensor.device)


def _row(tensor: Strided) -> Strided:
    """Without it."""
    sizes, strides = ((*e[:2], e[3]) for e in (tensor.sizes, tensor.strides))
    return Strided(tensor.buffer, sizes, strides, tensor.offset, tensor.dtype, tensor.device)


def _planar_meta(meta: TensorMeta, *, innermost: bool) -> TensorMeta:
    strides = _rows_strides(meta.sizes) if innermost else meta.strides
    sizes = (*meta.sizes[:2], constant(1), meta.sizes[2])
    return TensorMeta(sizes, (*strides[:2], strides[0], strides[2]), meta.dtype, meta.device)


def _planar(options: Any) -> tuple[Any, ...]:
    """Stride, padding, dilation, transposed, padding of the result, groups: of the image."""
    stride, padding, dilation, transposed, more, groups = options
    return [1, *stride], [0, *padding], [1, *dilation], transposed, [0, *more], groups
