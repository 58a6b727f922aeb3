"""The options of one `torchjit.compile` call, as backends take them."""

from __future__ import annotations

import math
from typing import final

import attrs

import torchjit_aot
from torchjit_core.kinds import number

__all__ = ["Options"]


@final
@attrs.frozen
class Options:
    """The options of one `compile` call.

    Attributes:
        max_autotune: on GPUs measure products of 16-bit matrices as generated kernels, into which what follows them is fused, against
            cuBLAS, and take the faster; of convolutions both layouts and all of cuDNN's algorithms. Results are kept on disk per device. Other kernels take their configurations from a table.
            The CPU backend always measures its matrix products and convolutions.
        autotune_in_subproc: products' candidates run in a process of their own first: one that crashes is rejected like a wrong one.
        coordinate_descent_tuning: on GPUs measure each generated kernel of fixed size with neighbouring tiles and numbers of warps, and
            go on from the best for as long as there is a better one; results are kept on disk per device.
        shape_padding: on GPUs multiply large 16-bit matrices whose rows cuBLAS's fast kernels do not take with zeros behind them.
        autotune_seconds: the time that this may take, for each compiled function; products beyond it stay with cuBLAS.
        fallback_random: random numbers exactly as eager draws them, bit for bit. False: computed inside the kernels from
            seeds that each call draws, and again in the backward, which then keeps no masks.
        emulate_precision_casts: round each result of a 16-bit type to it between the operations of one kernel too, as
            eager does by going through memory. False keeps float32 there, which is faster and more exact.
        freezing: graphs without gradients compute once what follows from parameters and buffers alone, and batch norms become part
            of the convolutions before them. In-place writes and new storages are seen; writes through `.data` are not.
        cudagraphs: `triton.cudagraphs`: record and replay CUDA graphs.
        capture_sizes: `triton.cudagraph_capture_sizes`: for inference graphs whose batch (the first dimension) is dynamic: batches are
            filled up with zeros to the next of these sizes, each of which is recorded once. For models whose rows do not depend on one another;
            the first filled batch is compared with the plain result. Upstream's option of this name records these sizes only, without filling.
        epilogue_fusion: compute what reads the result of a reduction or of a generated product in its kernel. False makes it a kernel of its own.
        layout_optimization: convolutions and what lies between them may have their channels innermost in memory where that is faster. False leaves
            every tensor in eager's layout.
        repeated_blocks: where a graph has many equal blocks, a few of them are compiled and what became of one is repeated, if all of it is found to
            be equal. False compiles each block.
        gradient_buckets: below `DistributedDataParallel` the backward gives its gradients in pieces of a bucket's size, so that they are exchanged
            while it goes on. False: all at its end. With CUDA graphs the backward stays whole.
        trace: `trace.enabled`: write each compilation's graphs, host programs and kernels as files into a folder `torchjit_debug/run_...` below the
            current one, or below the folder that TORCHJIT_DEBUG_DIR names.
        graph_diagram: `trace.graph_diagram`: draw the kernels of each graph and what flows between them as an SVG picture into that folder
            (with `trace.enabled`, or alone).
        activation_memory_budget: from 1 to 0: the share of the activations, between what is saved by default and the
            least that can be, that training may save; the backward computes the rest again.
        pre_grad_custom_pass: a change (or a tuple of changes) of the captured graph. Each is a callable of an `fx.Graph` with an `id`
            (see `torchjit_aot.graph_pass`) or, as upstream has it, a method `uuid`: two compilations with the same ids are alike.
        joint_custom_post_pass: such a change of the joint graph of forward and backward.
        post_grad_custom_post_pass: such a change of each final graph.
    """

    max_autotune: bool = False
    autotune_in_subproc: bool = True
    coordinate_descent_tuning: bool = False
    shape_padding: bool = True
    autotune_seconds: float = attrs.field(
        default=120.0, metadata={"upstream": "", "kind": number("a number of seconds", 0, math.inf)}
    )
    fallback_random: bool = True
    emulate_precision_casts: bool = False
    freezing: bool = False
    cudagraphs: bool = attrs.field(default=False, metadata={"name": "triton.cudagraphs"})
    capture_sizes: tuple[int, ...] = attrs.field(default=(), metadata={"name": "triton.cudagraph_capture_sizes"})
    epilogue_fusion: bool = True
    layout_optimization: bool = True
    repeated_blocks: bool = attrs.field(default=True, metadata={"upstream": ""})
    gradient_buckets: bool = attrs.field(default=True, metadata={"upstream": ""})
    trace: bool = attrs.field(default=False, metadata={"name": "trace.enabled"})
    graph_diagram: bool = attrs.field(default=False, metadata={"name": "trace.graph_diagram"})
    activation_memory_budget: float = attrs.field(
        default=1.0, metadata={"upstream": "torch._functorch.config.activation_memory_budget"}
    )
    pre_grad_custom_pass: tuple[torchjit_aot.GraphPass, ...] = ()
    joint_custom_post_pass: tuple[torchjit_aot.GraphPass, ...] = ()
    post_grad_custom_post_pass: tuple[torchjit_aot.GraphPass, ...] = ()

    @property
    def for_one_object(self) -> bool:
        """Are graphs made for the parameters that they have seen?"""
        return self.cudagraphs or self.freezing
