"""The function that the host program calls for a kernel: picks the right specialisation and enqueues it."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, final

import attrs

from torchjit_core.expr import Expr
from torchjit_inductor.assembly.workers import shared_workers
from torchjit_inductor.indexing import largest
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, iterations
from torchjit_inductor.triton.compile import MachineCode, argument_type, compile_text, descriptor_type, once
from torchjit_inductor.triton.contraction import DotPlan
from torchjit_inductor.triton.cuda import KernelDriver, LoadedKernel
from torchjit_inductor.triton.dot import DESCRIPTORS
from torchjit_inductor.triton.emit import pointer_names
from torchjit_inductor.triton.expressions import host_text
from torchjit_inductor.triton.occupancy import settled
from torchjit_inductor.triton.plan import TilePlan
from torchjit_inductor.triton.source import function_name, kernel_source

__all__ = ["KernelVariants", "Variant", "make_launcher"]

_NARROW = 2**31 - 2**20  # positions of the last tile may lie a little beyond the end
_ALIGNMENT = 16  # bytes, and for sizes elements


@final
@attrs.frozen
class Variant:
    """What one specialisation of a kernel relies on.

    Attributes:
        aligned: every address is a multiple of 16.
        wide: positions need 64 bits.
        divisible: for each size whether it is a multiple of 16.
    """

    aligned: bool
    wide: bool
    divisible: tuple[bool, ...] = ()


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
    """

    kernel: LoopKernel
    buffers: Mapping[str, Buffer]
    plan: TilePlan | DotPlan
    arch: int
    _cache: dict[tuple[object, ...], Future[MachineCode]]

    def source(self, variant: Variant) -> str:
        """The kernel's text."""
        return kernel_source(self.kernel, self.buffers, self._plan_of(variant), wide=variant.wide)

    def _plan_of(self, variant: Variant) -> TilePlan | DotPlan:
        """The plan; descriptors are for aligned addresses only."""
        plan = self.plan
        return attrs.evolve(plan, operands=()) if isinstance(plan, DotPlan) and not variant.aligned else plan

    def settle(self, variant: Variant) -> MachineCode:
        """Machine code of the first specialisation, under the plan that `occupancy` settles for; all others then have it, too."""

        def compiled(plan: TilePlan) -> MachineCode:
            return KernelVariants(self.kernel, self.buffers, plan, self.arch, self._cache).compile(variant)

        if isinstance(self.plan, TilePlan):
            self.plan = settled(self.plan, compiled)
        return self.compile(variant)

    def compile(self, variant: Variant) -> MachineCode:
        """Machine code of a specialisation."""
        pointers = pointer_names(self.kernel)
        arguments = {pointer: argument_type(self.buffers[name].dtype) for name, pointer in pointers.items()}
        aligned = set(arguments) if variant.aligned else set()
        for symbol, divisible in zip(self.kernel.symbols, variant.divisible, strict=True):
            arguments[symbol.name] = "i64" if variant.wide else "i32"
            if divisible:
                aligned.add(symbol.name)
        source, plan = self.source(variant), self._plan_of(variant)
        operands = plan.operands if isinstance(plan, DotPlan) else ()
        arguments.update((n, descriptor_type(o)) for n, o in zip(DESCRIPTORS, operands, strict=False))
        # A text with descriptors does not say what they describe.
        described = tuple((self.kernel.buffers.index(o.buffer), attrs.evolve(o, buffer="")) for o in operands)
        registers = plan.registers if isinstance(plan, TilePlan) else 0
        options = (plan.num_warps, plan.num_stages, registers, self.arch)
        key = (source, tuple(arguments.items()), frozenset(aligned), *options, described)
        make = functools.partial(
            compile_text, source, function_name(self.kernel), arguments, frozenset(aligned), arch=self.arch,
            num_warps=plan.num_warps, num_stages=plan.num_stages, by=shared_workers().assemble,
            operands=dict(zip(DESCRIPTORS, described, strict=False)), registers=registers,
        )  # fmt: skip
        return once(self._cache, key, make)

    def wide(self) -> bool | None:
        """Do positions need 64 bits? None: the sizes decide, see `extents`."""
        found = [e.value if e.value is not None else largest(e) for e in self.extents()]
        if all(e is not None and e < _NARROW for e in found):
            return False
        if any(e is not None and e >= _NARROW for e in found):
            return True
        return None if all(self._from_sizes(e) for e in self.extents()) else True

    def _from_sizes(self, extent: Expr) -> bool:
        return extent.symbols <= set(self.kernel.symbols)

    def extents(self) -> list[Expr]:
        """What must stay below 2**31: the spans of the buffers, the number of iterations, computed positions."""
        spans = [self.buffers[name].span for name in self.kernel.buffers]
        loops = (*self.kernel.outer, *self.kernel.inner)
        ends: dict[Any, Expr | int] = {v.symbol: v.size for v in loops}
        # A position grows with its loop variables: their ends bound it where its coefficients are positive.
        positions = [v.data.index.substitute(ends) for v in self.kernel.values if v.op == "index"]
        return [*spans, iterations(self.kernel.outer), iterations(self.kernel.inner), *positions]


def make_launcher(
    variants: KernelVariants, device: int, driver: KernelDriver, first: tuple[Variant, Callable[[], MachineCode]]
) -> Callable[..., None]:
    """The launcher of a kernel: `launch(*addresses, *sizes)`.

    Args:
        variants: of the kernel.
        device: index of the CUDA device.
        driver: of the machine.
        first: the specialisation that was compiled ahead, and how to get its code.
    """
    kernel, plan = variants.kernel, variants.plan
    loaded: dict[tuple[object, ...], LoadedKernel] = {}
    lock = threading.Lock()

    def load(key: tuple[object, ...]) -> LoadedKernel:
        variant = Variant(bool(key[0]), bool(key[1]), tuple(map(bool, key[2:])))
        with lock:
            if key not in loaded:
                code = first[1]() if variant == first[0] else variants.compile(variant)
                loaded[key] = driver.load(code, device)
        return loaded[key]

    pointers = [f"p{n}" for n in range(len(kernel.buffers))]
    sizes = {s: f"n{n}" for n, s in enumerate(kernel.symbols)}
    arguments = [*pointers, *sizes.values()]
    wide = variants.wide()
    if wide is None:
        wide_text = " or ".join(f"{host_text(e, sizes)} >= {_NARROW}" for e in variants.extents() if e.value is None)
    else:
        wide_text = str(wide)
    if wide is not None and not sizes and plan.programs.value:
        made = driver.launcher(lambda aligned: load((aligned, wide)), device, len(pointers), plan.programs.value)
        if made is not None:
            return made
    divisible = [f"{name} % {_ALIGNMENT} == 0" for name in sizes.values()]
    aligned = f"({' | '.join(pointers)}) % {_ALIGNMENT} == 0" if pointers else "True"
    programs = host_text(plan.programs, sizes)
    lines = [f"def launch({', '.join(arguments)}):"]
    if plan.programs.value == 0:
        lines.append("    return")
    if plan.programs.value is None:
        lines += [f"    programs = {programs}", "    if programs < 1:", "        return"]
        programs = "programs"
    key = ", ".join([aligned, wide_text, *divisible])
    lines += [
        f"    key = ({key},)",
        "    kernel = loaded.get(key) or load(key)",
        f"    kernel({programs}, stream({device}), {', '.join(arguments)})",
    ]
    namespace: dict[str, Any] = {"loaded": loaded, "load": load, "stream": driver.stream}
    exec(compile("\n".join(lines), f"<launcher of {kernel.name}>", "exec"), namespace)
    launch: Callable[..., None] = namespace["launch"]
    return launch
