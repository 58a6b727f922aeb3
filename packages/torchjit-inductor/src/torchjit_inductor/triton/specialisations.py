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
from torchjit_inductor.triton.cuda import ALIGNED, DIVISIBLE, WIDE, KernelDriver, LaunchSignature, LoadedKernel
from torchjit_inductor.triton.plan import NARROW

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
    """How a kernel is called: with addresses; where `programs` is None also with sizes, the number of programs, and an extent.

    Attributes:
        name: of the kernel.
        device: index of the CUDA device.
        pointers: how many addresses it takes.
        sizes: how many sizes.
        programs: how many run.
        wide: do positions need 64 bits? None: the extent says so.
        divisible: for each size whether the usual code relies on its being a multiple of 16. Calls with others have code that relies on none.
        early: see `LaunchSignature`.
    """

    name: str
    device: int
    pointers: int
    sizes: int
    programs: int | None
    wide: bool | None
    divisible: tuple[bool, ...] = ()
    early: bool = False

    def variant(self, which: int) -> Variant:
        """What code for this sum of `cuda.ALIGNED`, `WIDE` and `DIVISIBLE` relies on."""
        divisible = self.divisible if which & DIVISIBLE else (False,) * self.sizes
        return Variant(bool(which & ALIGNED), bool(which & WIDE) if self.wide is None else self.wide, divisible)


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
        self.loaded: dict[Variant, LoadedKernel] = {}
        self._lock = threading.Lock()

    def load(self, which: int) -> LoadedKernel:
        """The kernel by what a call may rely on: a sum of `cuda.ALIGNED`, `WIDE` and `DIVISIBLE`."""
        variant = self.facts.variant(which)
        with self._lock:
            if variant not in self.loaded:
                self.loaded[variant] = self.driver.load(self._compile(variant), self.facts.device)
        return self.loaded[variant]

    def __stored_state__(self) -> Mapping[str, object]:
        widths = (False, True) if self.facts.wide is None else (self.facts.wide,)
        likely = self.facts.variant(ALIGNED | DIVISIBLE)
        with self._lock:
            codes = {attrs.astuple(variant): kernel.code for variant, kernel in self.loaded.items()}
        if not codes:
            codes[attrs.astuple(likely)] = self._compile(likely)
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
            code: MachineCode | None = codes.get(attrs.astuple(variant))
            if code is not None:
                return code
            recipe = specialised(base(variant.aligned, variant.wide), variant, facts.pointers)
            return once(_codes, recipe, lambda: recipe.compile(shared_workers().assemble))

        self.__init__(facts, state["driver"], base, compile)


@maker
def launcher_of(kernels: Specialisations) -> Callable[..., None]:
    """The launcher of a kernel: `launch(*addresses)`, for sizes that vary `launch(*addresses, *sizes, programs, extent)`.

    Nothing is loaded before its first call.
    """
    facts, driver = kernels.facts, kernels.driver
    if facts.programs == 0:
        return made_by(lambda *arguments: None, launcher_of, kernels)
    signature = LaunchSignature(facts.pointers, facts.programs or 0, facts.divisible, facts.early)
    made = driver.launcher(kernels.load, facts.device, signature)
    return made_by(made or _slow_launcher(kernels), launcher_of, kernels)


def _slow_launcher(kernels: Specialisations) -> Callable[..., None]:
    """What `csrc/launcher.c` does, in Python."""
    facts, stream, loaded = kernels.facts, kernels.driver.stream, dict[int, LoadedKernel]()

    def launch(*given: int) -> None:
        arguments, (programs, extent) = (given, (facts.programs, 0)) if facts.programs else (given[:-2], given[-2:])
        if programs is None or programs < 1:
            return
        which = 0 if any(address % ALIGNMENT for address in arguments[: facts.pointers]) else ALIGNED
        which |= WIDE if extent >= NARROW else 0
        sizes = zip(arguments[facts.pointers :], facts.divisible, strict=True)
        if any(facts.divisible) and not any(divides and n % ALIGNMENT for n, divides in sizes):
            which |= DIVISIBLE
        kernel = loaded.get(which)
        if kernel is None:
            kernel = loaded[which] = kernels.load(which)
        kernel(programs, stream(facts.device), *arguments)

    return launch
