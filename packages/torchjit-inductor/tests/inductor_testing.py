"""Building graphs and comparing with eager."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from torchjit_inductor import CompiledGraph, Inductor, InductorSettings


@functools.cache
def cache_dir() -> str:
    """One folder for the kernels of a test run."""
    return tempfile.mkdtemp(prefix="torchjit-inductor-tests-")


def trace(
    fn: Callable[..., Any], inputs: Sequence[Any], mode: str = "fake", functional: bool = True
) -> torch.fx.GraphModule:
    """The ATen graph of a function, with fake tensors in `meta["val"]`."""
    wrapped = torch.func.functionalize(fn, remove="mutations") if functional else fn
    made = make_fx(wrapped, tracing_mode=mode)(*inputs)  # type: ignore[arg-type]
    assert isinstance(made, torch.fx.GraphModule)
    return made


def compiled(fn: Callable[..., Any], inputs: Sequence[Any], mode: str = "fake", **settings: Any) -> CompiledGraph:
    """A function compiled by the inductor for these inputs."""
    settings.setdefault("cache_dir", cache_dir())
    inductor = Inductor(InductorSettings(**settings))
    return inductor(trace(fn, inputs, mode), inputs)


def flat(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def check(
    fn: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    mode: str = "fake",
    kernels: int | None = None,
    aten: int | None = 0,
    tol: dict[str, Any] | None = None,
    **settings: Any,
) -> CompiledGraph:
    """Compile, run and compare with eager: values, dtypes, strides, whose memory it is, and that inputs are left alone.

    Args:
        kernels: the expected number of kernels, if it matters.
        aten: the expected number of aten calls in the host program (None: any).
    """
    graph = compiled(fn, inputs, mode, **settings)
    assert graph.source, f"the graph was interpreted: {graph.reason_not_recordable}"
    before = [i.clone() if isinstance(i, torch.Tensor) else i for i in inputs]
    got, want = flat(graph(*inputs)), flat(fn(*inputs))
    assert len(got) == len(want)
    for g, w in zip(got, want):
        assert isinstance(g, torch.Tensor) == isinstance(w, torch.Tensor)
        torch.testing.assert_close(g, w, equal_nan=True, check_stride=False, **(tol or {}))
        assert [s for s, n in zip(g.stride(), g.shape) if n > 1] == [
            s for s, n in zip(w.stride(), w.shape) if n > 1
        ] or not w.numel()
    assert _shared(inputs, got) <= _shared(inputs, want), "results share memory that are tensors of their own in eager"
    for i, b in zip(inputs, before):
        if isinstance(i, torch.Tensor):
            torch.testing.assert_close(i, b, rtol=0, atol=0, equal_nan=True)
    if kernels is not None:
        assert len(graph.kernels) == kernels, graph.source
    if aten is not None:
        assert f" {aten} aten calls" in graph.source.splitlines()[0], graph.source
    return graph


def _shared(inputs: Sequence[Any], results: Sequence[Any]) -> set[tuple[int, int]]:
    """Which of the inputs and results share memory, as pairs of their numbers."""
    values = enumerate((*inputs, *results))
    memory = {i: t.untyped_storage().data_ptr() for i, t in values if isinstance(t, torch.Tensor) and t.numel()}
    return {(i, j) for i in memory for j in memory if i < j and memory[i] == memory[j]}


def sample(
    *shape: int, dtype: torch.dtype = torch.float32, low: float = -3, high: float = 3, seed: int = 0
) -> torch.Tensor:
    """Deterministic numbers of any dtype in a range."""
    generator = torch.Generator().manual_seed(seed + sum(shape) * 7 + len(shape))
    values = torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low
    if dtype == torch.bool:
        return values > (low + high) / 2
    return (
        values.to(dtype)
        if dtype.is_floating_point
        else values.round().abs().to(dtype)
        if dtype == torch.uint8
        else values.round().to(dtype)
    )
