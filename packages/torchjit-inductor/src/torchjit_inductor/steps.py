"""The host program as data: what happens, in order, between the inputs and the outputs of a graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias, final

import attrs
import torch

from torchjit_core.expr import Expr, Symbol
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, Origin

__all__ = ["ExternStep", "HostNumber", "KernelStep", "Program", "Step", "TensorRef", "memory_of"]


@final
@attrs.frozen(eq=False)
class HostNumber:
    """A Python number that the host program has or computes when it runs.

    Attributes:
        name: of the variable.
        function: what computes it; None for an input of the graph.
        args: of the function: numbers, expressions, `HostNumber`s.
    """

    name: str
    function: Any = None
    args: tuple[Any, ...] = ()


@final
@attrs.frozen
class TensorRef:
    """A strided view of a whole buffer, as an argument of an aten op or as an output of the graph.

    `dtype` differs from the buffer's where the view reinterprets it.
    """

    buffer: str
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    offset: Expr


@final
@attrs.frozen(eq=False)
class KernelStep:
    """Run a kernel."""

    kernel: LoopKernel

    @property
    def reads(self) -> tuple[str, ...]:
        """Buffers, and the sizes that it computes with."""
        return (*self.kernel.reads, *(s.name for s in self.kernel.symbols))

    @property
    def writes(self) -> tuple[str, ...]:
        return self.kernel.writes


@final
@attrs.frozen(eq=False)
class ExternStep:
    """Call an aten op.

    Attributes:
        op: the OpOverload (or Python callable).
        args, kwargs: trees of tuples and lists whose leaves are constants, `TensorRef`s and `Expr`s.
        outputs: the buffer of each tensor result (None for a result that is not used or not a tensor), or a
            single-item tuple with `single` True when the op returns one tensor.
        single: the op returns a tensor, not a tuple.
        reads: buffers among the arguments.
        mutates: buffers that the op writes in place.
        aliases: buffers that the results may share memory with.
        origin: for comments.
        number: the variable that takes the op's result, a Python number.
        sizes: (variable, buffer, dimension) of results whose size only the run knows: read after the call.
        tested: numbers about which the op makes sure of something: what computes with them must come later.
    """

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[str | None, ...]
    single: bool
    reads: tuple[str, ...]
    mutates: tuple[str, ...]
    aliases: tuple[str, ...]
    origin: Origin
    number: str | None = None
    sizes: tuple[tuple[str, str, int], ...] = ()
    tested: tuple[str, ...] = ()

    @property
    def writes(self) -> tuple[str, ...]:
        numbers = (*(name for name, _, _ in self.sizes), *self.tested)
        buffers = (*(o for o in self.outputs if o is not None), *self.mutates)
        return (*buffers, *numbers) if self.number is None else (*buffers, *numbers, self.number)


Step: TypeAlias = KernelStep | ExternStep


def memory_of(steps: Iterable[Step]) -> dict[str, frozenset[str]]:
    """For each buffer that may be a view, since an operator made it that may give views: those whose memory it may be, and itself.

    Every other buffer has memory of its own. Two buffers may share memory if these sets have a common element.
    """
    found: dict[str, frozenset[str]] = {}
    for step in steps:
        if isinstance(step, ExternStep) and step.aliases:
            of_all = frozenset[str]().union(*(found.get(n, frozenset((n,))) for n in step.aliases))
            found.update((o, of_all | {o}) for o in step.outputs if o is not None)
    return found


@final
@attrs.frozen(eq=False)
class Program:
    """A lowered graph.

    Attributes:
        name: of the graph.
        inputs: per placeholder the buffer's name, or the expression that an integer placeholder is, or the number that a
            float placeholder is, or None (unused).
        buffers: by name; inputs, temporaries and results.
        steps: in order.
        outputs: per graph output a view of a buffer, an integer expression, or a constant (None, a number).
        mutated: indices of the inputs that are written.
        symbol_sources: how to read each symbol: (input index, "size" or "stride", dimension), or (input index, "", 0) for an
            int input.
        run_symbols: symbols that steps define: sizes and numbers that only the run knows.
        constants: tensors that the graph holds, by buffer name.
        products: for each buffer that a kernel with a `dot` computes the call of aten that would, too.
    """

    name: str
    inputs: tuple[str | Expr | HostNumber | None, ...]
    buffers: dict[str, Buffer]
    steps: tuple[Step, ...]
    outputs: tuple[Any, ...]
    mutated: frozenset[int]
    symbol_sources: dict[Symbol, tuple[int, str, int]]
    constants: dict[str, torch.Tensor]
    run_symbols: tuple[Symbol, ...] = ()
    products: dict[str, ExternStep] = attrs.field(factory=dict)
