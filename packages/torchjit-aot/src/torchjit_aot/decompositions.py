"""Decompositions: operators written in terms of simpler ones, as a pass over the joint graph.

A decomposition is traced once for each distinct call (operator, kinds of the tensors, other arguments) into a template;
further calls get copies of the template's nodes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeAlias, final

import attrs
import torch
import torch._decomp
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.node import Argument, map_arg

from torchjit_aot.graph_writer import GraphWriter
from torchjit_aot.joint import JointGraph
from torchjit_aot.record import Recorder
from torchjit_aot.symbols import SYMBOLIC_TYPES
from torchjit_core.reasons import GraphBreak

__all__ = ["Table", "decompose", "default_decompositions"]

Decomposition: TypeAlias = Callable[..., Any]
Table: TypeAlias = Mapping[Any, Decomposition]

_SELECTED = """
    _log_softmax _log_softmax_backward_data _safe_softmax _softmax _softmax_backward_data
    _native_batch_norm_legit.no_stats _native_batch_norm_legit_functional _native_batch_norm_legit_no_training
    _fused_rms_norm _fused_rms_norm_backward _prelu_kernel _prelu_kernel_backward _unsafe_index.Tensor
    addcdiv addcmul addr all.dim all.dims aminmax baddbmm binary_cross_entropy_backward
    binary_cross_entropy_with_logits celu clamp_max clamp_max.Tensor clamp_min clamp_min.Tensor count_nonzero
    count_nonzero.dim_IntList cudnn_batch_norm cudnn_batch_norm_backward deg2rad dot elu elu_backward
    embedding_dense_backward fill.Scalar fill.Tensor floor_divide floor_divide.Scalar frac gelu_backward glu glu_backward
    hardshrink hardsigmoid hardsigmoid_backward hardswish hardswish_backward hardtanh hardtanh_backward heaviside
    huber_loss huber_loss_backward isin.Tensor_Tensor
    isneginf isposinf leaky_relu leaky_relu_backward lerp.Scalar lerp.Tensor linalg_vector_norm log_sigmoid_backward
    log_sigmoid_forward logaddexp logaddexp2 logit logit_backward logsumexp masked_fill.Scalar masked_fill.Tensor mish
    mish_backward mse_loss mse_loss_backward mv nan_to_num native_batch_norm_backward native_dropout_backward
    native_group_norm native_group_norm_backward native_layer_norm native_layer_norm_backward new_empty new_full new_ones
    new_zeros nll_loss2d_backward nll_loss2d_forward nll_loss_backward nll_loss_forward norm.Scalar norm.ScalarOpt_dim
    ones_like rad2deg roll rot90 rsub.Scalar rsub.Tensor select_backward select_scatter sgn sigmoid_backward silu
    silu_backward sinc slice_backward smooth_l1_loss smooth_l1_loss_backward soft_margin_loss soft_margin_loss_backward
    softplus softplus_backward softshrink special_entr special_erfcx special_log_ndtr special_xlog1py square stack
    std.correction std_mean.correction sum threshold threshold_backward tanh_backward trace tril triu unfold_backward
    unsafe_split.Tensor unsafe_split_with_sizes upsample_bilinear2d upsample_nearest1d upsample_nearest2d
    upsample_nearest3d value_selecting_reduction_backward var.correction var_mean.correction xlogy.Scalar_Other
    xlogy.Scalar_Self xlogy.Tensor zero zeros_like
"""
"""Functional operators whose parts fuse. Not among them: matrix products, convolutions, attention kernels, embedding,
pooling, and everything random, which a decomposition would make draw other numbers. Nor what would lose a check of the
kernel's: `binary_cross_entropy` of something else than probabilities, negative rows of `index_copy` and `index_add`."""

IN_PARTS_FOR_TRAINING = frozenset(
    {
        torch.ops.aten._log_softmax.default,
        torch.ops.aten.threshold_backward.default,
        torch.ops.aten.hardtanh_backward.default,
    }
)
"""Taken apart in graphs with a backward even if the compiler would keep them.

The log-softmax: the backward computes the large result again from the input and one number per row, and the forward of
a cross entropy need not write it at all. The others: what they read of the forward is a comparison, one byte each."""


def _nll_loss_backward(grad_output: torch.Tensor, input: torch.Tensor, *loss: Any) -> Any:
    """A comparison with the class numbers in place of a scatter: it needs no memory of its own.

    Shapes: input (N, C), target (N); the unbatched form is torch's. `loss` is the rest of what `_classes_hit` takes.
    """
    known = torch._decomp.decomposition_table[torch.ops.aten.nll_loss_backward.default]
    return (_classes_hit if input.dim() == 2 else known)(grad_output, input, *loss)


def _classes_hit(
    grad_output: torch.Tensor,
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: torch.Tensor,
) -> torch.Tensor:
    """The gradient of a loss of class numbers. Shapes: input (N, C, ...), target (N, ...)."""
    if reduction == 1:  # mean
        grad_output = grad_output / total_weight
    rows = grad_output if reduction != 0 else grad_output.unsqueeze(1)
    column = target.unsqueeze(1)
    apart = [-1, *[1] * (input.dim() - 2)]
    classes = torch.arange(input.shape[1], device=input.device).reshape(apart)
    hit = (classes == column) & (column != ignore_index)
    amount = -rows if weight is None else -rows * weight.reshape(apart)
    return torch.where(hit, amount, torch.zeros((), dtype=input.dtype, device=input.device)).to(input.dtype)


def _index_fill(self: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor | float) -> Any:
    """As torch's, but that it makes no `index_copy`: this operator may count from the end."""
    if not self.dim():
        return NotImplemented
    rows = index if index.dim() else index.unsqueeze(0)
    if isinstance(value, torch.Tensor):
        number = value.to(self.dtype)
    else:
        number = torch.scalar_tensor(value, dtype=self.dtype, device=self.device)
    return torch.ops.aten.index_put.default(self, [*[None] * (dim % self.dim()), rows], number)


def _but_for_16_bits(op: OpOverload) -> Decomposition:
    """Torch's decomposition; not in 16 bits, where the operator rounds once and its parts in memory would be rounded before."""
    plain = torch._decomp.decomposition_table[op]

    def decomposed(self: torch.Tensor, *args: torch.Tensor, **numbers: float) -> Any:
        return NotImplemented if args[0].dtype in (torch.bfloat16, torch.float16) else plain(self, *args, **numbers)

    return decomposed


def _but_on_cpus(op: OpOverload) -> Decomposition:
    """Torch's decomposition; not on CPUs with known sizes, where the operator's kernel is faster than gathers (see `upsampling`)."""
    plain = torch._decomp.decomposition_table[op]

    def decomposed(image: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        known = all(type(n) is int for n in (*image.shape, *args[0]))
        return NotImplemented if image.device.type == "cpu" and known else plain(image, *args, **kwargs)

    return decomposed


def default_decompositions() -> dict[OpOverload, Decomposition]:
    """The table for a compiler that fuses pointwise operators and reductions.

    The functions are torch's (`torch._decomp`). A compiler that has its own form of some of these operators names them
    in `AotSettings.keep_ops`.
    """
    known = torch._decomp.decomposition_table
    table: dict[OpOverload, Decomposition] = {}
    for name in _SELECTED.split():
        packet, _, overload = name.partition(".")
        found = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if found in known:
            table[found] = known[found]
    table[torch.ops.aten.nll_loss_backward.default] = _nll_loss_backward
    table[torch.ops.aten.nll_loss2d_backward.default] = _classes_hit
    table[torch.ops.aten.index_fill.int_Scalar] = table[torch.ops.aten.index_fill.int_Tensor] = _index_fill
    for op in (torch.ops.aten.baddbmm.default, torch.ops.aten.addr.default):
        table[op] = _but_for_16_bits(op)
    for name in ("upsample_bilinear2d", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"):
        op = getattr(torch.ops.aten, name).default
        table[op] = _but_on_cpus(op)
    return table


@final
@attrs.frozen(eq=False)
class _Template:
    """A traced decomposition: its graph, the placeholders, and the result (nodes in the operator's structure)."""

    graph: fx.Graph
    inputs: list[fx.Node]
    result: Any


def decompose(joint: JointGraph, table: Table, keep: frozenset[object]) -> JointGraph:
    """Replace the operators of `table` that are not in `keep`."""
    if joint.has_backward:
        keep -= IN_PARTS_FOR_TRAINING
    used = {op: fn for op, fn in table.items() if op not in keep}
    if not any(node.target in used for node in joint.graph.nodes):
        return joint
    with joint.fake_mode, enable_python_dispatcher(), torch.no_grad():
        return _Decomposer(joint, used).run()


@final
class _Decomposer:
    def __init__(self, joint: JointGraph, table: Table) -> None:
        self.joint = joint
        self.table = table
        self.templates: dict[Hashable, _Template | None] = {}
        self.writer = GraphWriter()
        self.env: dict[fx.Node, Any] = {}

    def run(self) -> JointGraph:
        for node in self.joint.graph.nodes:
            self.env[node] = self._convert(node)
        return self.joint.moved(self.env.__getitem__, self.writer.graph)

    def _convert(self, node: fx.Node) -> Any:
        if node.op == "placeholder":
            return self.writer.placeholder(node)
        if node.target is operator.getitem and not isinstance(self.env[node.args[0]], fx.Node):  # type: ignore[index]
            return self.env[node.args[0]][node.args[1]]  # type: ignore[index]
        if node.target in self.table:
            template = self._template(node)
            if template is not None:
                return self._paste(template, node)
        return self.writer.copy(node, self.env.__getitem__)

    def _paste(self, template: _Template, node: fx.Node) -> Any:
        given = _inputs_of(node)
        copies = {inner: self.env[outer] for inner, outer in zip(template.inputs, given, strict=True)}
        self.writer.source = node
        for inner in template.graph.nodes:
            if inner.op != "placeholder":
                args, kwargs = map_arg(inner.args, copies.__getitem__), map_arg(inner.kwargs, copies.__getitem__)
                copies[inner] = self.writer.call(inner.target, args, kwargs, value=inner.meta["val"])
        return _map_result(template.result, copies)

    def _template(self, node: fx.Node) -> _Template | None:
        key = _key_of(node)
        if key not in self.templates:
            self.templates[key] = _trace(node, self.table, self.joint.fake_mode)
        return self.templates[key]


def _map_result(result: Any, copies: dict[fx.Node, Any]) -> Any:
    if isinstance(result, (tuple, list)):
        return [_map_result(item, copies) for item in result]
    return copies[result] if isinstance(result, fx.Node) else result


def _inputs_of(node: fx.Node) -> list[fx.Node]:
    """The nodes among the arguments, in order, with repetitions."""
    found: list[fx.Node] = []
    map_arg((node.args, node.kwargs), lambda n: found.append(n))
    return found


def _key_of(node: fx.Node) -> Hashable:
    seen: dict[fx.Node, int] = {}

    def describe(value: Argument) -> Hashable:
        if isinstance(value, fx.Node):
            val = value.meta["val"]
            which = seen.setdefault(value, len(seen))
            if isinstance(val, torch.Tensor):
                return (which, val.dtype, val.device, str(tuple(val.shape)), str(tuple(val.stride())))
            return (which, str(val))
        if isinstance(value, (tuple, list)):
            return tuple(describe(v) for v in value)
        if isinstance(value, dict):
            return tuple((k, describe(v)) for k, v in value.items())
        return (type(value), str(value) if isinstance(value, float) else value)

    return (node.target, describe(node.args), describe(dict(node.kwargs)))


def _trace(node: fx.Node, table: Table, fake_mode: FakeTensorMode) -> _Template | None:
    """Trace one decomposition; None if the operator has to stay (the function declines, writes, or does not fit)."""
    recorder = Recorder(fake_mode, table)
    inputs: list[fx.Node] = []

    def value_of(argument: fx.Node) -> Any:
        value = argument.meta["val"]
        inputs.append(recorder.placeholder(f"x{len(inputs)}", value))
        if isinstance(value, torch.Tensor):
            recorder.symbols.bind_sizes(value, inputs[-1])
        return value

    args, kwargs = map_arg((node.args, dict(node.kwargs)), value_of)
    try:
        with recorder:
            out = table[node.target](*args, **kwargs)
        if out is NotImplemented or recorder.written or recorder.constants or not _fits(out, node.meta["val"]):
            return None
        result = _nodes_of(out, recorder)
    except (GraphBreak, NotImplementedError):
        return None
    return _Template(recorder.graph, inputs, result)


def _nodes_of(out: Any, recorder: Recorder) -> Any:
    if isinstance(out, (tuple, list)):
        return [_nodes_of(item, recorder) for item in out]
    return recorder.node_of(out) if isinstance(out, (torch.Tensor, *SYMBOLIC_TYPES)) else out


def _fits(out: Any, want: Any) -> bool:
    """Same structure, dtypes, sizes and strides? What was traced after the operator relies on them."""
    if isinstance(want, torch.Tensor):
        return (
            isinstance(out, torch.Tensor)
            and out.dtype == want.dtype
            and str(tuple(out.shape)) == str(tuple(want.shape))
            and (out.numel() == 0 or str(tuple(out.stride())) == str(tuple(want.stride())))
        )
    if isinstance(want, (tuple, list)):
        return isinstance(out, (tuple, list)) and len(out) == len(want) and all(map(_fits, out, want))
    return True
