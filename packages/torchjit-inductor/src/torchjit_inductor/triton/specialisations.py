"""A kernel's machine code by what it relies on, and the function that launches it: all of it plain data, so that it can be stored.

Another process launches the same machine code without Triton. Only a specialisation that was not met is compiled, from its text.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, final

import attrs

from torchjit_core.storing import made_by, maker
from torchjit_inductor.assembly.workers import shared_workers
from torchjit_inductor.triton.compile import MachineCode, Recipe, once
from torchjit_inductor.triton.cuda import KernelDriver, LoadedKernel

__all__ = ["ALIGNMENT", "LaunchFacts", "Specialisations", "Variant", "launcher_of", "specialised"]

ALIGNMENT = 16  # bytes, and for sizes elements


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
@attrs.frozen
class LaunchFacts:
    """How a kernel is called.

    Attributes:
        name: of the kernel.
        device: index of the CUDA device.
        pointers: how many addresses it takes.
        sizes: how many sizes, called `n0`, `n1` ... in the texts.
        programs: how many run: a number, or its text.
        wide: do positions need 64 bits? True, False, or the text of a test.
    """

    name: str
    device: int
    pointers: int
    sizes: int
    programs: int | str
    wide: bool | str


def specialised(base: Recipe, variant: Variant, pointers: int) -> Recipe:
    """The recipe of a specialisation.

    Args:
        base: for its width and for aligned addresses or not; its arguments are the pointers, the sizes, and what describes operands.
        variant: which one.
        pointers: how many.
    """
    names = [name for name, _ in base.arguments]
    aligned = {*names[:pointers]} if variant.aligned else set()
    aligned.update(name for name, divides in zip(names[pointers:], variant.divisible, strict=False) if divides)
    return attrs.evolve(base, aligned=frozenset(aligned))


_codes: dict[Recipe, Future[MachineCode]] = {}
"""Of specialisations that another process has not met."""


@final
class Specialisations:
    """The specialisations of one kernel on one device, each compiled and loaded when it is first needed.

    Args:
        facts: of the kernel.
        driver: of the machine.
        base: for aligned addresses or not, and wide positions or not, what is compiled; see `specialised`.
        compile: gives the machine code of a specialisation.
    """

    def __init__(
        self,
        facts: LaunchFacts,
        driver: KernelDriver,
        base: Callable[[bool, bool], Recipe],
        compile: Callable[[Variant], MachineCode],
    ) -> None:
        self.facts, self.driver = facts, driver
        self._base, self._compile = base, compile
        self.loaded: dict[tuple[object, ...], LoadedKernel] = {}
        self._lock = threading.Lock()

    def load(self, key: tuple[object, ...]) -> LoadedKernel:
        """The kernel for a key: are addresses aligned, are positions wide, which sizes divide."""
        variant = Variant(bool(key[0]), bool(key[1]), tuple(map(bool, key[2:])))
        with self._lock:
            if key not in self.loaded:
                self.loaded[key] = self.driver.load(self._compile(variant), self.facts.device)
        return self.loaded[key]

    def __stored_state__(self) -> Mapping[str, object]:
        widths = (False, True) if isinstance(self.facts.wide, str) else (self.facts.wide,)
        likely = Variant(True, widths[0], (True,) * self.facts.sizes)
        with self._lock:
            codes = {key: kernel.code for key, kernel in self.loaded.items()}
        if not codes:
            codes[likely.aligned, likely.wide, *likely.divisible] = self._compile(likely)
        return {
            "facts": self.facts,
            "driver": self.driver,
            "bases": {(aligned, wide): self._base(aligned, wide) for aligned in (False, True) for wide in widths},
            "codes": codes,
        }

    def __restore_state__(self, state: Mapping[str, Any]) -> None:
        facts, bases, codes = state["facts"], state["bases"], state["codes"]

        def base(aligned: bool, wide: bool) -> Recipe:
            found: Recipe = bases[aligned, wide]
            return found

        def compile(variant: Variant) -> MachineCode:
            code: MachineCode | None = codes.get((variant.aligned, variant.wide, *variant.divisible))
            if code is not None:
                return code
            recipe = specialised(base(variant.aligned, variant.wide), variant, facts.pointers)
            return once(_codes, recipe, lambda: recipe.compile(shared_workers().assemble))

        self.__init__(facts, state["driver"], base, compile)


@maker
def launcher_of(kernels: Specialisations) -> Callable[..., None]:
    """The launcher of a kernel: `launch(*addresses, *sizes)`. Nothing is loaded before its first call."""
    facts, driver = kernels.facts, kernels.driver
    programs, wide, load = facts.programs, facts.wide, kernels.load
    if isinstance(wide, bool) and not facts.sizes and isinstance(programs, int) and programs:
        made = driver.launcher(lambda aligned: load((aligned, wide)), facts.device, facts.pointers, programs)
        if made is not None:
            return made_by(made, launcher_of, kernels)
    pointers, sizes = [f"p{n}" for n in range(facts.pointers)], [f"n{n}" for n in range(facts.sizes)]
    arguments = ", ".join([*pointers, *sizes])
    lines = [f"def launch({arguments}):"]
    if programs == 0:
        lines.append("    return")
    if isinstance(programs, str):
        lines += [f"    programs = {programs}", "    if programs < 1:", "        return"]
        programs = "programs"
    aligned = f"({' | '.join(pointers)}) % {ALIGNMENT} == 0" if pointers else "True"
    key = ", ".join([aligned, str(wide), *(f"{name} % {ALIGNMENT} == 0" for name in sizes)])
    lines += [
        f"    key = ({key},)",
        "    kernel = loaded.get(key) or load(key)",
        f"    kernel({programs}, stream({facts.device}), {arguments})",
    ]
    namespace: dict[str, Any] = {"loaded": kernels.loaded, "load": load, "stream": driver.stream}
    exec(compile("\n".join(lines), f"<launcher of {facts.name}>", "exec"), namespace)
    return made_by(namespace["launch"], launcher_of, kernels)  # type: ignore[no-any-return]
