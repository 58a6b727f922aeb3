"""Use the package alone: compile a Python function's training step, or look at its joint graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

import torch
from torch import fx

from torchjit_aot.compiler_protocol import CompiledGraph, GraphCompiler, Kind, Run
from torchjit_aot.entry import compile
from torchjit_aot.joint import JointGraph
from torchjit_aot.joint_passes import prepare_joint
from torchjit_aot.partition import Partitioner
from torchjit_aot.run_eagerly import run_eagerly
from torchjit_aot.settings import AotSettings

__all__ = ["PlainCompiler", "aot_function", "joint_graph"]

PlainCompiler: TypeAlias = Callable[[fx.GraphModule, list[Any]], CompiledGraph]
"""`(graph module, example inputs) -> callable`, the convention of torch.compile's backends."""


def _call_graph(f: Run, count: int) -> fx.GraphModule:
    """A graph whose only node calls `f`: the trace looks inside."""
    graph = fx.Graph()
    inputs = [graph.placeholder(f"arg{i}") for i in range(count)]
    graph.output(graph.call_function(f, tuple(inputs)))
    return fx.GraphModule({}, graph)


def joint_graph(f: Run, args: Sequence[Any], *, settings: AotSettings | None = None) -> JointGraph:
    """The functional graph of `f`'s forward and backward.

    Args:
        f: a function of tensors and numbers. Tensors that require grad must be arguments.
        args: what to call it with. Nothing is computed.

    Raises:
        GraphBreak: the function cannot be traced ahead of time.
    """
    return prepare_joint(_call_graph(f, len(args)), args, settings or AotSettings())


def aot_function(
    f: Run,
    fw_compiler: PlainCompiler | None = None,
    bw_compiler: PlainCompiler | None = None,
    *,
    partitioner: Partitioner | None = None,
    settings: AotSettings | None = None,
) -> Run:
    """Compile `f` and its backward, one specialisation for each kind of arguments.

    Args:
        f: a function of tensors and numbers, positional. Tensors that require grad must be arguments.
        fw_compiler: compiles the forward (and inference) graph; by default its operators are called one by one.
        bw_compiler: compiles the backward graph; `fw_compiler` by default.
        partitioner: what the forward saves; `min_cut_partition` by default.
        settings: see `AotSettings`.

    Returns:
        A function that behaves as `f`.
    """
    entries: dict[Hashable, Run] = {}
    forward = _adapt(fw_compiler)
    backward = _adapt(bw_compiler) if bw_compiler is not None else forward

    def compiled(*args: Any) -> Any:
        key = (torch.is_grad_enabled(), *_autocast(), tuple(_kind_of(a) for a in args))
        entry = entries.get(key)
        if entry is None:
            entry = entries[key] = compile(
                _call_graph(f, len(args)),
                args,
                compiler=forward,
                backward_compiler=backward,
                partitioner=partitioner,
                settings=settings or AotSettings(),
            )
        return entry(*args)

    return compiled


def _autocast() -> tuple[Hashable, ...]:
    return tuple((torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda"))


def _kind_of(value: Any) -> Hashable:
    if isinstance(value, torch.Tensor):
        layout = (value.shape, value.stride(), value.storage_offset()) if value.layout == torch.strided else id(value)
        return (
            type(value),
            value.dtype,
            value.device,
            layout,
            value.requires_grad,
            value.is_leaf,
            value.is_conj(),
            value.is_neg(),
            value.is_inference(),
        )
    return (type(value), value)


def _adapt(compiler: PlainCompiler | None) -> GraphCompiler:
    if compiler is None:
        return run_eagerly

    def adapted(
        gm: fx.GraphModule,
        example_inputs: Sequence[Any],
        *,
        kind: Kind,
        static_inputs: frozenset[int] = frozenset(),
        name: str = "graph",
    ) -> CompiledGraph:
        return compiler(gm, list(example_inputs))

    return adapted
