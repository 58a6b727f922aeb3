"""The backend `onnxrt`: final graphs are translated to ONNX by torch's own operator library and run by ONNX Runtime.

The imports inside functions are of packages that need not be there. torch's translation of the operators is in modules that
do not import upstream's compiler, as `torch.onnx.export` does.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import fx

import torchjit_aot
from torchjit_backends.others import NOT_TAKEN, refusal_of, tell_refusal
from torchjit_core.reasons import GraphBreak
from torchjit_session.interrupts import compiled_later

__all__ = ["onnxrt"]

_DTYPES = frozenset(
    (torch.float16, torch.float32, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool)
)  # fmt: skip
"""Those that go to and from NumPy."""
_IR_VERSION = 10  # of the file format, as torch.onnx.export writes it


def onnxrt(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """ONNX Runtime, on the CPU, behind AOT autograd; graphs that it cannot run are run by eager operators."""
    known = frozenset(op for op in _registry().functions if isinstance(op, torch._ops.OpOverload))
    settings = torchjit_aot.AotSettings(
        decompositions={**torchjit_aot.default_decompositions(), **_decompositions()},
        keep_ops=known - {*_decompositions()},
        later=compiled_later,
    )
    return torchjit_aot.compile(gm, example_inputs, compiler=_compile, settings=settings)


@functools.cache
def _registry() -> Any:
    from torch.onnx._internal.exporter._registration import ONNXRegistry  # noqa: PLC0415  # see above

    return ONNXRegistry.from_torchlib()


@functools.cache
def _decompositions() -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    """What ONNX has no operator for, or one for a single dtype only."""
    aten = torch.ops.aten
    made: dict[torch._ops.OpOverload, Callable[..., Any]] = {
        aten._scaled_dot_product_flash_attention_for_cpu.default: _attention,
        aten.squeeze.dims: _squeeze,
        aten.sum.dim_IntList: _sum,
    }
    for op in (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor):
        made[op] = functools.partial(_of_one_dtype, op)
    return made


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> Any:
    if dropout_p:
        return NotImplemented
    aten = torch.ops.aten
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = aten.matmul.default(query * factor, aten.transpose.int(key, -2, -1))
    if is_causal:
        rows, columns = torch.arange(query.shape[-2]), torch.arange(key.shape[-2])
        scores = aten.where.ScalarOther(columns <= aten.unsqueeze.default(rows, 1), scores, -math.inf)
    if attn_mask is not None:
        scores = scores + attn_mask
    weights = aten._softmax.default(scores, -1, False)
    seen = aten.amax.default(scores, [-1], True) != -math.inf  # a row that sees nothing gives zeros
    made = aten.matmul.default(aten.where.ScalarOther(seen, weights, 0.0), value)
    order = _order(query)  # the result is laid out as the query
    laid_out = aten.clone.default(aten.permute.default(made, order), memory_format=torch.contiguous_format)
    made = aten.permute.default(laid_out, _inverse(order))
    sums = aten.logsumexp.default(aten.transpose.int(scores, 1, 2), [-1])
    return made, aten.transpose.int(sums, 1, 2)


def _squeeze(x: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    for dim in sorted((d % max(x.dim(), 1) for d in dims), reverse=True):
        x = torch.ops.aten.squeeze.dim(x, dim)
    return x


def _sum(x: torch.Tensor, dim: Any, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    if x.dtype is torch.bool and dtype is None:
        return torch.ops.aten.sum.dim_IntList(_cast(x, torch.int64), dim, keepdim)
    return NotImplemented


def _cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x if x.dtype is dtype else torch.ops.aten._to_copy.default(x, dtype=dtype)


def _of_one_dtype(op: torch._ops.OpOverload, x: Any, y: Any, **keywords: Any) -> Any:
    dtype = torch.result_type(x, y)
    if op is torch.ops.aten.div.Tensor and not (dtype.is_floating_point or dtype.is_complex):
        dtype = torch.get_default_dtype()
    pair = [
        _cast(value, dtype) if isinstance(value, torch.Tensor) else torch.scalar_tensor(value, dtype=dtype)
        if isinstance(value, (torch.SymInt, torch.SymFloat)) else value
        for value in (x, y)
    ]  # fmt: skip
    return NotImplemented if pair[0] is x and pair[1] is y else op(*pair, **keywords)


def _compile(gm: fx.GraphModule, example_inputs: Sequence[Any], **asked: Any) -> Callable[..., Sequence[Any]]:
    """A `GraphCompiler`."""
    name = asked["name"]

    def run_eagerly() -> Callable[..., Sequence[Any]]:
        return torchjit_aot.run_eagerly(gm, example_inputs, **asked)

    try:
        return _Session(gm, run_eagerly, name)
    except GraphBreak as refusal:
        tell_refusal(name, refusal.detail)
    except Exception as error:  # of the two packages, whose exceptions have no common class
        cause = error.__cause__ or error
        tell_refusal(name, f"{type(cause).__name__}: {cause}".partition("\n")[0])
    return run_eagerly()


@final
class _Session:
    """A graph in ONNX Runtime. Parameters are inputs, so new values of them count.

    Raises:
        GraphBreak: the graph does something that ONNX has no words for.
        Exception: of the packages: an operator is unknown to them.
    """

    def __init__(self, gm: fx.GraphModule, run_eagerly: Callable[[], Callable[..., Sequence[Any]]], name: str) -> None:
        import onnxruntime  # noqa: PLC0415  # see above

        _check(gm.graph)
        results = gm.graph.output_node().args[0]
        self._results: list[Any] = list(results)  # type: ignore[arg-type]
        placeholders = gm.graph.find_nodes(op="placeholder")
        self._places = {node: place for place, node in enumerate(placeholders)}
        self._computed = list(
            dict.fromkeys(n for n in self._results if isinstance(n, fx.Node) and n not in self._places)
        )
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # refusals are told by an event
        model = _translated(gm, self._computed)
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._inputs = [(node.name, place) for node, place in self._places.items() if node.users]
        self._run_eagerly = run_eagerly
        self._eager: Callable[..., Sequence[Any]] | None = None
        self._name = name

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        if self._eager is not None:
            return self._eager(*inputs)
        fed = {name: _to_numpy(inputs[place]) for name, place in self._inputs}
        try:
            made = self._session.run(None, fed)
            computed = {node: _from_numpy(value, node) for node, value in zip(self._computed, made, strict=True)}
        except Exception as error:  # the graph writes to nothing, so it can be run once more
            tell_refusal(self._name, f"{type(error).__name__}: {error}".partition("\n")[0])
            self._eager = self._run_eagerly()
            return self._eager(*inputs)
        return tuple(
            node if not isinstance(node, fx.Node) else inputs[self._places[node]] if node in self._places else computed[node]
            for node in self._results
        )  # fmt: skip


def _check(graph: fx.Graph) -> None:
    """
    Raises:
        GraphBreak: the graph writes, draws random numbers, or holds a tensor that NumPy cannot have.
    """
    refusal = refusal_of(graph)
    if refusal is not None:
        raise GraphBreak(NOT_TAKEN, refusal)
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op in ("placeholder", "output") or not isinstance(value, torch.Tensor):
            continue
        if value.dtype not in _DTYPES or value.device.type != "cpu":
            raise GraphBreak(NOT_TAKEN, f"{node} is a tensor of {value.dtype} on {value.device}")


def _translated(gm: fx.GraphModule, computed: Sequence[fx.Node]) -> bytes:
    """The model that computes these nodes, as a file."""
    from onnxscript import ir  # noqa: PLC0415  # see above
    from torch.onnx._internal.exporter import _core, _ir_passes  # noqa: PLC0415

    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    graph.graph_copy(gm.graph, copies)
    for node, copy in copies.items():
        copy.name = node.name
        copy.meta.setdefault("nn_module_stack", {})  # each node without one would be told of by a warning
        if node.op == "get_attr":
            copy.meta["val"] = _attribute(gm, str(node.target))
    graph.output(tuple(copies[node] for node in computed))
    graph.eliminate_dead_code()
    model = ir.Model(ir.Graph([], [], nodes=[], name="main_graph"), ir_version=_IR_VERSION)
    _core._translate_fx_graph(
        graph, model, graph_like=model.graph, owned_graphs={}, lower="at_conversion", registry=_registry()
    )
    _ir_passes.add_opset_imports(model)
    return ir.to_proto(model).SerializeToString()  # type: ignore[no-any-return]


def _attribute(gm: fx.GraphModule, path: str) -> Any:
    return functools.reduce(getattr, path.split("."), gm)


def _to_numpy(value: Any) -> Any:
    tensor = value.detach() if isinstance(value, torch.Tensor) else torch.tensor(value)
    return tensor.contiguous().numpy()


def _from_numpy(value: Any, node: fx.Node) -> Any:
    """A result with the strides that the graph promises; a number where it is one.

    Raises:
        TypeError: it is not what the operator gives in PyTorch.
    """
    meta = node.meta["val"]
    if not isinstance(meta, torch.Tensor):
        return value.item()
    tensor = torch.from_numpy(value)
    if not value.size:
        return torch.empty(tensor.shape, dtype=tensor.dtype)
    if tensor.dtype != meta.dtype or any(
        type(want) is int and want != size for want, size in zip(meta.shape, tensor.shape, strict=True)
    ):
        raise TypeError(f"{node.target} gave {tuple(tensor.shape)} of {tensor.dtype}")
    order = _order(meta)
    return tensor.permute(order).contiguous().permute(_inverse(order))


def _order(tensor: torch.Tensor) -> list[int]:
    """The dimensions from the one with the largest stride to the one with the smallest."""
    return sorted(range(tensor.dim()), key=lambda dim: -_hint(tensor.stride(dim)))


def _inverse(order: Sequence[int]) -> list[int]:
    return [order.index(dim) for dim in range(len(order))]


def _hint(size: Any) -> int:
    return size if type(size) is int else int(size.node.hint)
