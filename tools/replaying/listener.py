"""Listens to one program's compilation. Kernels are written, not built: graphs run by their operators.

Besides the C kernels of a graph, the Triton kernels that a GPU would get for it: lowered once more with its tensors on a CUDA device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

import torchjit_aot
import torchjit_inductor.compiled
from replaying.texts import Normaliser, stage_of, text_of
from torchjit_core import events
from torchjit_inductor.benchmark_choice import AutotuneCache
from torchjit_inductor.codegen_protocol import CompiledKernel
from torchjit_inductor.compiled import Inductor
from torchjit_inductor.cpp.backend import CBackend
from torchjit_inductor.cpp.depthwise import DepthwiseKernels
from torchjit_inductor.schedule.digits import merged
from torchjit_inductor.triton.backend import TritonBackend
from torchjit_inductor.triton.launch import KernelVariants
from torchjit_inductor.triton.source import kernel_comments
from torchjit_inductor.triton.specialisations import Variant

__all__ = ["Record", "listening", "triton_texts"]


class Record:
    """What is heard, by stage."""

    def __init__(self) -> None:
        self.stages: dict[str, list[str]] = {}
        self.triton = False
        self.normalise = Normaliser()

    def add(self, stage: str, text: str) -> None:
        self.stages.setdefault(stage, []).append(self.normalise(text))

    def hear(self, kind: str, fields: dict[str, Any]) -> None:
        """An event."""
        stage = stage_of(kind, fields, self.triton)
        if stage is not None:
            self.add(stage, text_of(kind, fields))


def _never(*args: Any) -> Any:
    raise AssertionError("kernels are written, not built")


def _c_texts(
    self: CBackend, kernels: Sequence[Any], buffers: Mapping[str, Any], *, graph: str, hints: Mapping[Any, int]
) -> list[CompiledKernel]:
    return [CompiledKernel(k.name, self.source(k, buffers), _never) for k in kernels]


def triton_texts(
    self: TritonBackend, kernels: Sequence[Any], buffers: Mapping[str, Any], *, graph: str, hints: Mapping[Any, int]
) -> list[CompiledKernel]:
    """`TritonBackend.compile` without the compiler."""
    made = []
    for kernel in map(merged, kernels):
        plan = self._plan(kernel, buffers, hints)
        variants = KernelVariants(kernel, buffers, plan, 90, {})
        text = variants.source(Variant(True, bool(variants.wide())))
        made.append(
            CompiledKernel(
                kernel.name, kernel_comments(variants.kernel, buffers, variants.plan, variants.given) + text, _never
            )
        )
    return made


def _first_is_faster(self: AutotuneCache, key: tuple[Any, ...], contest: object) -> tuple[float, float]:
    """Times of a race that is not run; which is faster depends on the key alone, so that both ways are seen."""
    return (1.0, 2.0) if sum(map(len, map(str, key))) % 2 else (2.0, 1.0)


class _NoWorkers:
    count = 0

    def start(self, most: int | None = None) -> None:
        """Nothing."""


@contextlib.contextmanager
def listening(record: Record, *, triton: bool = True) -> Iterator[None]:
    """Events go to the record, and no compiler runs, while the block runs. `triton`: with what a GPU would get."""
    compile_graph = Inductor.__call__
    gpu = TritonBackend(arch=90)

    def compile_both(
        self: Inductor, gm: fx.GraphModule, example_inputs: Sequence[Any], *, kind: Any = "inference",
        static_inputs: frozenset[int] = frozenset(), name: str = "graph",
    ) -> Any:  # fmt: skip
        record.add("final graphs", "\n".join(_facts(gm, kind, static_inputs, name)))
        compile_graph(self, gm, example_inputs, kind=kind, static_inputs=static_inputs, name=name)
        if not triton:
            return torchjit_aot.run_eagerly(gm, example_inputs, kind=kind, static_inputs=static_inputs, name=name)
        other = Inductor(self.settings, cuda_backend=gpu, attention=self._attention_operators)
        record.triton = True
        try:
            moved = on_cuda(gm)
            compile_graph(other, moved, [n.meta["val"] for n in moved.graph.find_nodes(op="placeholder")],
                          kind=kind, static_inputs=static_inputs, name=name)  # fmt: skip
        except Exception as error:
            record.add("Triton kernels", f"none: {type(error).__name__}: {error}")
        finally:
            record.triton = False
        return torchjit_aot.run_eagerly(gm, example_inputs, kind=kind, static_inputs=static_inputs, name=name)

    changes: list[tuple[Any, str, Any]] = [
        (Inductor, "__call__", compile_both),
        (CBackend, "compile", _c_texts),
        (TritonBackend, "compile", triton_texts),
        (AutotuneCache, "times", _first_is_faster),
        (DepthwiseKernels, "gradient", lambda self, taps: None),
        (torchjit_inductor.compiled, "shared_workers", _NoWorkers),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    try:
        with events.listen(record.hear):
            yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


# ------------------------------------------------------------------------------------------------------------- graphs
_SHOWN = ("location", "module_path", "stack_trace", "seq_nr", "nn_module_stack")
"""Node metadata that the `graph` events show, and what only upstream's tools read."""


def _facts(gm: fx.GraphModule, kind: str, static_inputs: frozenset[int], name: str) -> Iterator[str]:
    """A graph that is handed to the compiler, with layouts and the metadata by which packages meet."""
    yield f"[{kind}] {name} static inputs {sorted(static_inputs)}"
    for node in gm.graph.nodes:
        meta = {k: v for k, v in node.meta.items() if isinstance(v, (str, int, bool)) and k not in _SHOWN}
        notes = f"  {dict(sorted(meta.items()))}" if meta else ""
        keys = sorted(k for k in node.meta if k not in ("val", *_SHOWN, *meta))
        yield f"{node.format_node() or node.name} :: {_layout(node.meta.get('val'))}{notes} {keys}"


def _layout(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_layout, value))})"
    if not isinstance(value, torch.Tensor):
        return f"{type(value).__name__} {value}" if isinstance(value, (int, torch.SymInt)) else type(value).__name__
    strided = (
        f"{tuple(value.stride())} from {value.storage_offset()}" if value.layout is torch.strided else str(value.layout)
    )
    grad = " grad" if value.requires_grad else ""
    return f"{str(value.dtype)[6:]}{list(value.shape)} {strided} {value.device}{grad}"


def on_cuda(gm: fx.GraphModule) -> fx.GraphModule:
    """The same graph on a GPU that need not exist."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    output = graph.graph_copy(gm.graph, copies)
    graph.output(output)
    device = torch.device("cuda", 0)

    def moved(value: Any) -> Any:
        return device if isinstance(value, torch.device) and value.type == "cpu" else value

    mode: Any = None
    for node in graph.nodes:
        node.args, node.kwargs = fx.node.map_aggregate(node.args, moved), fx.node.map_aggregate(node.kwargs, moved)
        value = node.meta.get("val")
        mode = mode or next((v.fake_mode for v in _leaves(value) if isinstance(v, FakeTensor)), None)
        if mode is not None:
            with mode:
                node.meta["val"] = _moved(value, lambda t: _on(t, device))
    made = fx.GraphModule(gm, graph)
    made.meta = dict(gm.meta)
    return made


def _on(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)


def _leaves(value: Any) -> list[Any]:
    return [leaf for v in value for leaf in _leaves(v)] if isinstance(value, (tuple, list)) else [value]


def _moved(value: Any, move: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_moved(v, move) for v in value)
    return move(value) if isinstance(value, torch.Tensor) else value
