"""What a compilation tells: the saved tensors with their bytes and reasons, and ranges in the profiler."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aot_harness import STRICT, graph_of
from torch.profiler import ProfilerActivity, profile

import torchjit_aot
from torchjit_aot import JointGraph, Partition, run_eagerly
from torchjit_core.events import listen


def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w).exp().cos().sum(1)


def arguments() -> list[torch.Tensor]:
    return [torch.randn(4, 3, requires_grad=True), torch.randn(3, 5, requires_grad=True)]


def test_the_saved_set_has_bytes_and_reasons() -> None:
    found: list[dict[str, Any]] = []
    with listen(lambda kind, fields: found.append(fields) if kind == "saved_tensors" else None):
        compiled = torchjit_aot.compile(graph_of(f, 2), arguments(), compiler=run_eagerly, settings=STRICT)
    (told,) = found
    by_shape = {tuple(t["shape"]): t for t in told["tensors"]}
    assert set(by_shape) == {(4, 3), (3, 5), (4, 5)}
    assert by_shape[4, 5]["bytes"] == 80 and by_shape[4, 5]["why"] == "mm.default is not computed twice"
    assert by_shape[4, 3]["why"] == by_shape[3, 5]["why"] == "an input"
    result = compiled(*arguments())  # alive: with their result older versions of torch free what was saved for it
    assert sorted(tuple(t.shape) for t in result.grad_fn.saved_tensors) == sorted(by_shape)


@pytest.mark.filterwarnings("ignore")
def test_compiled_graphs_are_ranges_in_the_profiler() -> None:
    args = arguments()
    compiled = torchjit_aot.compile(graph_of(f, 2), args, compiler=run_eagerly, settings=STRICT)
    compiled(*args).sum().backward()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        compiled(*args).sum().backward()
    names = {event.key for event in profiled.key_averages()}
    assert {"## Call CompiledFxGraph graph_forward ##", "## Call CompiledFxGraph graph_backward ##"} <= names
    assert {"CompiledGraphFunction", "CompiledGraphFunctionBackward"} <= names


def test_a_partitioner_of_ones_own_chooses_what_is_saved() -> None:
    def save_the_inputs(joint: JointGraph) -> Partition:
        saved = tuple(joint.inputs)
        return Partition(saved, tuple("because" for _ in saved))

    args = arguments()
    compiled = torchjit_aot.compile(
        graph_of(f, 2), args, compiler=run_eagerly, settings=STRICT, partitioner=save_the_inputs
    )
    result = compiled(*args)
    assert [tuple(t.shape) for t in result.grad_fn.saved_tensors] == [(4, 3), (3, 5)]
    want = torch.autograd.grad(f(*args).sum(), args)
    for a, b in zip(want, torch.autograd.grad(result.sum(), args), strict=True):
        torch.testing.assert_close(b, a)
