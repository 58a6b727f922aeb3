"""The host program as data: what happens, in order, between the inputs and the outputs of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, final

import attrs
import torch

from torchjit_core.expr import Expr, Symbol
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, Origin
from torchjit_inductor.ir.rules import check

__all__ = ["ExternStep", "HostNumber", "KernelStep", "Program", "Step", "TensorRef", "leaves", "memory_of"]


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

    def verify(self) -> None:
        """Raises:
        InvalidIR: the name is none of a variable, or an input has operands.
        """
        check(self.name.isidentifier(), self.name, "a number's name is an identifier")
        check(self.function is not None or not self.args, self.name, "an input has no operands")


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

    def verify(self, buffers: Mapping[str, Buffer]) -> None:
        """Raises:
        InvalidIR: there is no such buffer, or sizes and strides are not as many.
        """
        check(self.buffer in buffers, self.buffer, "a view of an unknown buffer")
        check(len(self.sizes) == len(self.strides), self.buffer, "a view with more sizes than strides, or fewer")


@final
@attrs.frozen(eq=False)
class KernelStep:
    """Run a kernel.

    Attributes:
        kernel: perhaps one that other steps run too.
        names: for buffers of the kernel that are others in this step: which.
    """

    kernel: LoopKernel
    names: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def buffers(self) -> tuple[str, ...]:
        """The kernel's arguments."""
        return self._now(self.kernel.buffers)

    @property
    def reads(self) -> tuple[str, ...]:
        """Buffers, and the sizes that it computes with."""
        return (*self.read_buffers, *(s.name for s in self.kernel.symbols))

    @property
    def read_buffers(self) -> tuple[str, ...]:
        """Without the sizes."""
        return self._now(self.kernel.reads)

    @property
    def writes(self) -> tuple[str, ...]:
        return self._now(self.kernel.writes)

    def _now(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self.names.get(n, n) for n in names) if self.names else names

    def kernels_name(self, name: str) -> str:
        """What the kernel calls a buffer of this step."""
        return next((old for old, new in self.names.items() if new == name), name)

    def verify(self, buffers: Mapping[str, Buffer]) -> None:
        """Raises:
        InvalidIR: a rule of the kernel, or of one of its nodes, is broken.
        """
        self.kernel.verify_nodes(buffers)


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

    def verify(self, buffers: Mapping[str, Buffer]) -> None:
        """Check the rules above.

        Raises:
            InvalidIR: one is broken; the message names the node of the graph.
        """
        node = self.origin.node
        check(not self.single or len(self.outputs) == 1, node, f"one result, and {len(self.outputs)} buffers")
        check(self.number is None or self.outputs in ((), (None,)), node, "a number is no tensor")
        for name in (*(o for o in self.outputs if o is not None), *self.mutates, *self.aliases):
            check(name in buffers, node, f"unknown buffer {name}")
        for leaf in leaves((self.args, self.kwargs)):
            if isinstance(leaf, TensorRef):
                leaf.verify(buffers)
                check(leaf.buffer in self.reads, node, f"{leaf.buffer} is an operand, and not read")
            elif isinstance(leaf, HostNumber):
                leaf.verify()
        for name, source, dim in self.sizes:
            known = source in self.outputs and 0 <= dim < len(buffers[source].sizes)
            check(known, node, f"{name} is dimension {dim} of {source}, which is no result with so many")


Step: TypeAlias = KernelStep | ExternStep


def leaves(tree: object) -> Iterator[object]:
    """Of arguments: tuples, lists and dictionaries have none of their own."""
    if isinstance(tree, (tuple, list)):
        for item in tree:
            yield from leaves(item)
    elif isinstance(tree, dict):
        yield from leaves(tuple(tree.values()))
    else:
        yield tree


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

    def mapped(self, change: Callable[[Step], Iterable[Step]]) -> Program:
        """With what takes the place of each step."""
        return attrs.evolve(self, steps=tuple(new for step in self.steps for new in change(step)))

    def verify(self) -> None:
        """Check the rules above, and those of every node: for tests, after each pass.

        Raises:
            InvalidIR: one is broken.
        """
        for name, buffer in self.buffers.items():
            check(buffer.name == name, self.name, f"buffer {buffer.name} is called {name}")
            buffer.verify()
        known = {n for n in self.inputs if isinstance(n, str)}
        check(known <= self.buffers.keys(), self.name, "an input has no buffer")
        known |= self.constants.keys()  # those that nobody reads any more have none
        check(all(0 <= n < len(self.inputs) for n in self.mutated), self.name, "an unknown input is written")
        known |= {s.name for s in self.symbol_sources}
        for step in self.steps:
            step.verify(self.buffers)
            early = [n for n in step.reads if n not in known]
            check(not early, self.name, f"{early} are read before they are written")
            known.update(step.writes)
        for output in self.outputs:
            if isinstance(output, TensorRef):
                output.verify(self.buffers)
                check(output.buffer in known, self.name, f"result {output.buffer} is never written")
