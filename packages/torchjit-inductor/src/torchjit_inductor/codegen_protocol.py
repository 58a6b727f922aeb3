"""What a code generator receives and what the host program does with its result.

**Input.** After lowering and fusion a graph is a list of steps: kernels (`ir.kernel.LoopKernel`), calls of aten ops, and
frees. A backend gets all the kernels of one device at once, and the buffers by name. A `LoopKernel` has `outer` loops
(independent iterations), `inner` loops (reductions run over all of them together; empty for a pointwise kernel) and
`stores`; a store's value is an interned graph of `ir.values.Value` in which a reduction is a node (`op == "reduce"`).
So the same value graph holds the prologue, the reductions and the epilogue: a persistent reduction is one walk
over `kernel.values` (operands come first); a looped one runs the inner loop once per level (`Value.level`).
Examples (x0 outer, r0 inner):

    softmax   stores out[x0*n + r0] = div(exp(sub(v, m)), reduce(exp(sub(v, m)), "sum")), v = load(a, x0*n + r0),
              m = reduce(v, "max"): levels 0 (max), 1 (sum), 2 (store)
    bias grad outer x0 (columns), inner r0 (rows): out[x0] = reduce(load(g, r0*n + x0), "sum"), Store.outer is True

Index expressions are `torchjit_core.expr.Expr`: sums of products (`.terms`) of symbols and of `floordiv`, `mod`, `max`,
`min` operations; non-negative, and within the buffer unless the load is masked. Offsets count elements from the
tensor's first element (`data_ptr()`). Loop symbols carry bounds when sizes are constant; size symbols are at least 2
unless their bounds say otherwise. `indexing.stride(index, symbol)` gives the coefficient of a linear variable.

Backends may reorder and merge outer loops, and inner loops except under argmax/argmin (`indexing.merge_loops` does the
merging), and split a reduction over several programs. Values keep eager's semantics: see `ir/operations.py`.

**Output and call convention.** `compile` gives one `CompiledKernel` per kernel, in order. The host program calls
`launch(*arguments, *sizes)` once per kernel: `arguments` are, for each name of `kernel.buffers`, its `data_ptr()` (the address
of the buffer's first element), or the tensor itself when `CompiledKernel.takes_tensors`; `sizes` are Python ints, the values of
`CompiledKernel.arguments`, or one for each of `kernel.symbols`. It returns nothing. On a GPU it enqueues on the current stream and neither allocates nor synchronises: scratch memory is a buffer of
the program, which `prepare` may add.

Errors: `unsupported(kernel, buffers)` is asked for every kernel, also before two are fused; a text there keeps them apart, and
a single kernel that is refused runs by `ir.evaluate` (slowly, with an event `fallback`).
`compile` raising is a bug, except `CompilerMissing`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, final

import attrs

from torchjit_core.reasons import reason

if TYPE_CHECKING:
    from torchjit_core.expr import Expr, Symbol
    from torchjit_inductor.attention.call import AttentionCall
    from torchjit_inductor.attention.few_queries import FewQueries
    from torchjit_inductor.ir.kernel import Buffer, LoopKernel
    from torchjit_inductor.lowering.contractions import MatrixProduct
    from torchjit_inductor.lowering.sizes import NotLowered
    from torchjit_inductor.lowering.tensors import Strided, TensorMeta
    from torchjit_inductor.passes import Pass
    from torchjit_inductor.steps import Program

__all__ = ["NO_COMPILER", "CompiledKernel", "CompilerMissing", "KernelBackend"]

NO_COMPILER = reason(
    "TJ-IND-003",
    "no compiler for generated kernels",
    "torchjit generates C++ for CPUs and Triton for GPUs. Without a working compiler every op runs as in eager: "
    "results are right, nothing is faster.",
    "Install g++ or clang++ (Debian and Ubuntu: `apt install g++`), or a compiler as a wheel: `pip install ziglang`.",
)


class CompilerMissing(RuntimeError):
    """There is no working compiler for the backend's language on this machine. The graph runs by aten ops."""


@final
@attrs.frozen
class CompiledKernel:
    """A kernel that can be called.

    Attributes:
        name: the kernel's.
        source: readable text for reports; what was compiled.
        launch: see the module's call convention.
        takes_tensors: rather than addresses.
        arguments: what it takes behind the buffers; None: the values of `kernel.symbols`.
    """

    name: str
    source: str
    launch: Callable[..., Any]
    takes_tensors: bool = False
    arguments: tuple[Expr, ...] | None = None


class KernelBackend(Protocol):
    """A code generator for one kind of device. Of what it does not say itself it does nothing."""

    language: str
    """`c` or `triton`, for events."""

    def unsupported(self, kernel: LoopKernel, buffers: Mapping[str, Buffer]) -> str | None:
        """Why this backend cannot compile the kernel, or None when it can."""
        return None

    def unwanted(self, kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int]) -> str | None:
        """What this backend is so bad at in the kernel that two kernels would be better, or None. Asked of fusions."""
        return None

    def shares(self, kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int]) -> bool:
        """See `schedule.fuse.Shares`."""
        return False

    def takes_product(self, product: MatrixProduct) -> bool:
        """May a product of matrices be better computed by a kernel (a `dot`) than by aten? May measure it."""
        return False

    def settle_products(self, program: Program, fused: Callable[[Program], Program]) -> Program:
        """Decide which of `Program.products` stay kernels, when it can be seen what becomes part of them.

        Args:
            program: lowered, not fused.
            fused: what fusion makes of a program.
        """
        return program

    def attention(
        self,
        call: AttentionCall,
        places: Sequence[Strided],
        metas: Sequence[TensorMeta],
        hints: Mapping[Symbol, int],
        *,
        backward: bool,
    ) -> Callable[..., Any]:
        """What computes a call of attention on tensors of this backend's device, from the operands and the values of `symbols_of` them.

        Args:
            call: what it computes.
            places: its operands (see `AttentionOperators`), flat and in memory.
            metas: what its results look like.
            hints: typical values of the size symbols.
            backward: it is the gradient.

        Raises:
            NotLowered: there is no kernel for it.
        """
        raise NotLowered("no kernels of attention for this device")

    def few_queries(self, call: FewQueries, places: Sequence[Strided], meta: TensorMeta) -> Callable[..., Any]:
        """What computes an attention of few queries, from its operands.

        Args:
            places: the operands in memory.
            meta: of the result.

        Raises:
            NotLowered: the library's operator does better, or there is no kernel for it.
        """
        raise NotLowered("no kernels of attention for this device")

    def passes(self, hints: Mapping[Symbol, int]) -> tuple[Pass, ...]:
        """What changes the steps of this backend's devices, after fusion and before kernels are compiled: splits reductions, for example.

        Args:
            hints: as for `compile`.
        """
        return ()

    def overlapped(self, program: Program) -> Program:
        """The program with kernels that overlap in time with those before and behind them, when nothing changes its steps any more."""
        return program

    def compile(
        self,
        kernels: Sequence[LoopKernel],
        buffers: Mapping[str, Buffer],
        *,
        graph: str,
        hints: Mapping[Symbol, int],
    ) -> Sequence[CompiledKernel]:
        """Generate and build all the kernels of one graph.

        Args:
            kernels: in program order.
            buffers: of the graph, by name.
            graph: its name, for comments and file names.
            hints: a typical value for each size symbol (this call's), for heuristics only.

        Raises:
            CompilerMissing: nothing can be compiled on this machine.
        """
        ...
