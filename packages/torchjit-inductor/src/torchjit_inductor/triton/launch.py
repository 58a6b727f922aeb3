"""The function that the host program calls for a kernel: picks the right specialisation and enqueues it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import final

import attrs

from torchjit_core.expr import Expr, Symbol, as_expr, constant, maximum
from torchjit_inductor.assembly.workers import shared_workers
from torchjit_inductor.indexing import dividends, largest, magnitude
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, iterations
from torchjit_inductor.ir.values import INDEXED
from torchjit_inductor.triton.compile import MachineCode, Recipe, argument_type, descriptor_type, once
from torchjit_inductor.triton.contraction import DotPlan
from torchjit_inductor.triton.cuda import KernelDriver
from torchjit_inductor.triton.dot import DESCRIPTORS
from torchjit_inductor.triton.emit import pointer_names
from torchjit_inductor.triton.occupancy import settled
from torchjit_inductor.triton.plan import NARROW, TilePlan
from torchjit_inductor.triton.size_arguments import values_of
from torchjit_inductor.triton.source import function_name, kernel_source
from torchjit_inductor.triton.specialisations import (
    LaunchFacts,
    Specialisations,
    Variant,
    launcher_of,
    specialised,
)

__all__ = ["KernelVariants", "make_launcher"]


@final
@attrs.define(eq=False)
class KernelVariants:
    """A kernel's specialisations, each compiled when it is first needed.

    Args:
        kernel: with merged loops.
        buffers: of the graph.
        plan: of the kernel; `settle` may change it.
        arch: compute capability, 90 for sm_90.
        cache: machine code, or who is at it, by text and options: shared by kernels with one text.
        given: what the kernel's size arguments stand for, see `size_arguments`.
        divisible: for each size whether code should rely on its being a multiple of 16.
    """

    kernel: LoopKernel
    buffers: Mapping[str, Buffer]
    plan: TilePlan | DotPlan
    arch: int
    _cache: dict[Recipe, Future[MachineCode]]
    given: Mapping[Symbol, Expr] = attrs.field(factory=dict)
    divisible: tuple[bool, ...] = ()
    _texts: dict[tuple[TilePlan | DotPlan, bool], str] = attrs.field(factory=dict, repr=False)

    def source(self, variant: Variant) -> str:
        """The kernel's text, written once for each plan and width."""
        key = plan, wide = self._plan_of(variant), variant.wide
        if key not in self._texts:
            self._texts[key] = kernel_source(self.kernel, self.buffers, plan, wide=wide)
        return self._texts[key]

    def _plan_of(self, variant: Variant) -> TilePlan | DotPlan:
        """The plan; descriptors are for aligned addresses only."""
        plan = self.plan
        return attrs.evolve(plan, operands=()) if isinstance(plan, DotPlan) and not variant.aligned else plan

    def settle(self, variant: Variant) -> MachineCode:
        """Machine code of the first specialisation, under the plan that `occupancy` settles for; all others then have it, too."""

        def compiled(plan: TilePlan) -> MachineCode:
            return attrs.evolve(self, plan=plan).compile(variant)

        if isinstance(self.plan, TilePlan):
            self.plan = settled(self.plan, compiled)
        return self.compile(variant)

    def compile(self, variant: Variant) -> MachineCode:
        """Machine code of a specialisation."""
        base = self.base(variant.aligned, variant.wide)
        recipe = specialised(base, variant, len(self.kernel.buffers))
        if isinstance(self.plan, TilePlan) and self.plan.by_element:
            recipe = attrs.evolve(
                recipe, aligned=frozenset()
            )  # Triton gives 16 bytes to each thread wherever one access is as wide
        return once(self._cache, recipe, lambda: recipe.compile(shared_workers().assemble))

    def base(self, aligned: bool, wide: bool) -> Recipe:
        """What the specialisations of one width, for aligned addresses or for others, are compiled from."""
        variant = Variant(aligned, wide)
        pointers = pointer_names(self.kernel)
        arguments = {pointer: argument_type(self.buffers[name].dtype) for name, pointer in pointers.items()}
        arguments.update((symbol.name, "i64" if wide else "i32") for symbol in self.kernel.symbols)
        source, plan = self.source(variant), self._plan_of(variant)
        operands = plan.operands if isinstance(plan, DotPlan) else ()
        arguments.update((n, descriptor_type(o)) for n, o in zip(DESCRIPTORS, operands, strict=False))
        # A text with descriptors does not say what they describe.
        described = tuple((self.kernel.buffers.index(o.buffer), attrs.evolve(o, buffer="")) for o in operands)
        return Recipe(
            source, function_name(self.kernel), tuple(arguments.items()), frozenset(), self.arch, plan.num_warps, plan.num_stages,
            plan.registers if isinstance(plan, TilePlan) else 0, tuple(zip(DESCRIPTORS, described, strict=False)),
        )  # fmt: skip

    def wide(self) -> bool | None:
        """Do positions need 64 bits? None: the sizes decide, see `extents`."""
        found = [e.value if e.value is not None else largest(e) for e in self.extents()]
        if all(e is not None and e < NARROW for e in found):
            return False
        if any(e is not None and e >= NARROW for e in found):
            return True
        known = {s for e in values_of(self.kernel, self.given) for s in e.symbols}
        return None if all(e.symbols <= known for e in self.extents()) else True

    @property
    def arguments(self) -> tuple[Expr, ...]:
        """What the host passes behind the addresses: sizes, the number of programs, and the extent that `wide` compares."""
        programs = self.plan.programs.substitute(self.given)
        wide, sizes = self.wide(), values_of(self.kernel, self.given)
        if not sizes and programs.value is not None and wide is not None:
            return ()
        extent = constant(0)
        for each in self.extents() if wide is None else ():
            extent = extent if each.value is not None else maximum(extent, each)
        return (*sizes, programs, extent)

    def extents(self) -> list[Expr]:
        """What must stay below 2**31: the spans of the buffers, the number of iterations, what is computed for positions."""
        spans = [self.buffers[name].span for name in self.kernel.buffers]
        found = [*spans, iterations(self.kernel.outer), iterations(self.kernel.inner), *self._intermediate()]
        return list(dict.fromkeys(e.substitute(self.given) for e in found))

    def _intermediate(self) -> Iterator[Expr]:
        """Bounds on what is computed for positions, and may be larger than these: what is divided, and values of indices.

        A sum of terms that overflows comes back where it ends in a buffer; a quotient of one that has overflowed does not.
        """
        kernel = self.kernel
        most = {s: as_expr(s) for s in kernel.symbols} | {v.symbol: v.size - 1 for v in (*kernel.outer, *kernel.inner)}
        places = [v.data.index for v in kernel.values if v.op in INDEXED] + [s.index for s in kernel.stores]
        values = [v.data.index for v in kernel.values if v.op == "index"]
        for each in dict.fromkeys([*values, *itertools.chain.from_iterable(map(dividends, dict.fromkeys(places)))]):
            bound = magnitude(each, most)
            if bound is not None:
                yield bound


def make_launcher(
    variants: KernelVariants, device: int, driver: KernelDriver, first: tuple[Variant, Callable[[], MachineCode]]
) -> Callable[..., None]:
    """The launcher of a kernel, see `launcher_of`: called with addresses and `variants.arguments`.

    Args:
        variants: of the kernel.
        device: index of the CUDA device.
        driver: of the machine.
        first: the specialisation that was compiled ahead, and how to get its code.
    """
    kernel, varies = variants.kernel, bool(variants.arguments)
    facts = LaunchFacts(
        kernel.name, device, len(kernel.buffers), len(kernel.symbols),
        None if varies else variants.plan.programs.value, variants.wide(), variants.divisible,
        kernel.overlap is not None and kernel.overlap.early,
    )  # fmt: skip

    def compiled(variant: Variant) -> MachineCode:
        return first[1]() if variant == first[0] else variants.compile(variant)

    return launcher_of(Specialisations(facts, driver, variants.base, compiled))
