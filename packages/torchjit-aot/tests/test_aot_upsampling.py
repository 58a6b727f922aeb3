"""Nearest neighbours: repeated by views where that is exact, and eager PyTorch's values and layout in each case."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torchjit_aot import AotSettings, aot_function, default_decompositions, joint_graph

SETTINGS = AotSettings(fallback=False, decompositions=default_decompositions())
GIVEN: list[tuple[tuple[int, ...], dict[str, Any], bool]] = [
    ((2, 3, 5), {"scale_factor": 2}, True),
    ((2, 3, 5, 7), {"scale_factor": 2.0}, True),
    ((2, 3, 5, 7), {"scale_factor": (2.0, 4.0)}, True),
    ((1, 2, 3, 4, 5), {"scale_factor": 4}, True),
    ((2, 3, 5, 7), {"size": (10, 28)}, True),
    ((2, 3, 5, 7), {"size": (5, 14)}, True),
    ((2, 3, 5, 7), {"scale_factor": 2.1}, True),  # for eager PyTorch, too, as the result is twice as large
    ((2, 3, 5, 7), {"scale_factor": 4.1}, False),
    ((2, 3, 5, 7), {"scale_factor": 3}, False),
    ((2, 3, 4, 4), {"scale_factor": 1.5}, False),
    ((2, 3, 5, 7), {"scale_factor": 0.5}, False),
    ((2, 3, 5, 7), {"scale_factor": 2, "mode": "nearest-exact"}, False),
    ((2, 3, 5, 7), {"scale_factor": 2, "recompute_scale_factor": True}, False),
]


@pytest.mark.parametrize(("shape", "keywords", "by_views"), GIVEN)
def test_equals_eager(shape: tuple[int, ...], keywords: dict[str, Any], by_views: bool) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, **keywords)

    assert ("expand" in str(joint_graph(f, [torch.randn(shape)]).graph)) == by_views
    for dtype in (torch.float32, torch.bfloat16):
        for layout in (torch.contiguous_format, *([torch.channels_last] if len(shape) == 4 else [])):
            x = torch.randn(shape).to(dtype).contiguous(memory_format=layout)
            ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
            got, wanted = aot_function(f, settings=SETTINGS)(ours), f(theirs)
            assert torch.equal(got, wanted) and got.stride() == wanted.stride() and got.dtype == wanted.dtype
            weights = torch.arange(wanted.numel(), dtype=dtype).reshape(wanted.shape) / wanted.numel()
            torch.autograd.backward(got, weights)
            torch.autograd.backward(wanted, weights)
            assert ours.grad is not None
            torch.testing.assert_close(ours.grad, theirs.grad)


def test_autocast_and_numbers_of_8_bits_are_left_to_torch() -> None:
    image = torch.arange(12, dtype=torch.uint8).reshape(1, 1, 3, 4)
    compiled = aot_function(lambda x: F.interpolate(x, scale_factor=2), settings=SETTINGS)
    assert torch.equal(compiled(image), F.interpolate(image, scale_factor=2))
    half = torch.randn(1, 1, 3, 4).bfloat16()
    with torch.autocast("cpu"):
        got, wanted = compiled(half), F.interpolate(half, scale_factor=2)
    assert got.dtype == wanted.dtype and torch.equal(got, wanted)


SMOOTH: list[tuple[tuple[int, ...], dict[str, Any], str]] = [
    ((2, 3, 9), {"scale_factor": 2, "mode": "linear"}, "upsample_linear1d"),
    ((2, 3, 5, 7), {"scale_factor": 2, "mode": "bilinear"}, "upsample_bilinear2d"),
    ((2, 3, 5, 7), {"size": (9, 4), "mode": "bilinear", "align_corners": True}, "upsample_bilinear2d"),
    ((2, 3, 5, 7), {"scale_factor": 0.5, "mode": "bilinear", "recompute_scale_factor": True}, "upsample_bilinear2d"),
    ((2, 3, 5, 7), {"scale_factor": 0.5, "mode": "bilinear", "antialias": True}, "_upsample_bilinear2d_aa"),
    ((2, 3, 5, 7), {"scale_factor": 1.5, "mode": "bicubic"}, "upsample_bicubic2d"),
    ((1, 2, 3, 4, 5), {"size": (4, 6, 9), "mode": "trilinear", "align_corners": True}, "upsample_trilinear3d"),
    ((2, 3, 5, 7), {"scale_factor": 3}, "upsample_nearest2d"),
    ((2, 3, 5, 7), {"scale_factor": 1.5, "mode": "nearest-exact"}, "_upsample_nearest_exact2d"),
]


@pytest.mark.parametrize(("shape", "keywords", "operator"), SMOOTH)
def test_cpus_interpolate_by_eager_operator_forward_and_backward(
    shape: tuple[int, ...], keywords: dict[str, Any], operator: str
) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x * 2, **keywords).sin()

    for dtype in (torch.float32, *([] if "antialias" in keywords else [torch.bfloat16])):
        for layout in (torch.contiguous_format, *([torch.channels_last] if len(shape) == 4 else [])):
            x = torch.randn(shape).to(dtype).contiguous(memory_format=layout)
            ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
            joint = joint_graph(f, [ours], settings=SETTINGS)
            called = [str(node.target) for node in joint.graph.nodes if "upsample" in str(node.target)]
            assert called == [f"aten.{operator}.default", f"aten.{operator}_backward.default"]
            got, wanted = aot_function(f, settings=SETTINGS)(ours), f(theirs)
            assert torch.equal(got, wanted) and got.stride() == wanted.stride() and got.dtype == wanted.dtype
            for result in (got, wanted):
                result.backward(torch.ones_like(result))
            assert ours.grad is not None
            torch.testing.assert_close(ours.grad, theirs.grad)
