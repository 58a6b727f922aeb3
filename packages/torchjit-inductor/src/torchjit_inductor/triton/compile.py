"""From kernel text to machine code, with or without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar, final

import attrs
import torch

from torchjit_inductor.assembly.assemble import Assembled, assemble, function_of
from torchjit_inductor.triton.descriptors import Descriptor, OperandTiles
from torchjit_inductor.triton.source import HEADER

__all__ = ["MachineCode", "Recipe", "argument_type", "compile_text", "descriptor_type", "jit_function", "once"]

_K = TypeVar("_K")

_TYPES: dict[torch.dtype, str] = {
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.bool: "i1",
    torch.float8_e4m3fn: "fp8e4nv",
    torch.float8_e5m2: "fp8e5",
}


def argument_type(dtype: torch.dtype) -> str:
    """Triton's name of a pointer to this dtype."""
    return f"*{_TYPES[dtype]}"


def descriptor_type(operand: OperandTiles) -> str:
    """Triton's name of a descriptor of this operand."""
    return f"tensordesc<{_TYPES[operand.dtype]}[{operand.tile[0]}, {operand.tile[1]}]>"


@final
@attrs.frozen
class MachineCode:
    """A compiled kernel.

    Attributes:
        name: of the entry point.
        cubin: the binary.
        ptx: the assembly that it was made from.
        threads: per program.
        shared: bytes of dynamic shared memory per program.
        parameters: how many the entry point has; those beyond the kernel's own are null pointers to scratch memory.
        descriptors: behind the addresses, each of five parameters: itself, two sizes, two strides.
    """

    name: str
    cubin: bytes
    ptx: str
    threads: int
    shared: int
    parameters: int
    descriptors: tuple[Descriptor, ...] = ()


@final
@attrs.frozen
class Recipe:
    """What machine code is compiled from.

    Attributes:
        source: as `kernel_source` gives it.
        name: of the function in it.
        arguments: name and type of each parameter, in order: `*bf16`, `i32` ...
        aligned: parameters that are multiples of 16.
        arch: compute capability, 90 for sm_90.
        num_warps: warps per program.
        num_stages: depth of software pipelining.
        registers: see `TilePlan`.
        operands: for each parameter that is a descriptor the position of the address that it is of, and what it says.
    """

    source: str
    name: str
    arguments: tuple[tuple[str, str], ...]
    aligned: frozenset[str]
    arch: int
    num_warps: int
    num_stages: int
    registers: int = 0
    operands: tuple[tuple[str, tuple[int, OperandTiles]], ...] = ()

    def compile(self, by: Callable[..., Assembled]) -> MachineCode:
        """See `compile_text`."""
        return compile_text(
            self.source, self.name, dict(self.arguments), self.aligned, arch=self.arch, num_warps=self.num_warps,
            num_stages=self.num_stages, by=by, operands=dict(self.operands), registers=self.registers,
        )  # fmt: skip


def jit_function(source: str, name: str) -> Any:
    """The `triton.JITFunction` (or interpreted function) of a kernel's text.

    Args:
        source: as `kernel_source` gives it.
        name: of the function in it.
    """
    return function_of(HEADER + "\n\n" + source, name)


def compile_text(
    source: str,
    name: str,
    arguments: Mapping[str, str],
    aligned: frozenset[str],
    *,
    arch: int,
    num_warps: int,
    num_stages: int,
    by: Callable[..., Assembled] = assemble,
    operands: Mapping[str, tuple[int, OperandTiles]] | None = None,
    registers: int = 0,
) -> MachineCode:
    """Compile a kernel for an NVIDIA GPU. Needs no GPU, and may run in several threads at once.

    Args:
        source: as `kernel_source` gives it.
        name: of the function in it.
        arguments: type of each parameter, in order: `*bf16`, `i32` ...
        aligned: parameters that are multiples of 16.
        arch: compute capability, 90 for sm_90.
        num_warps: warps per program.
        num_stages: depth of software pipelining.
        by: what compiles: `assemble`, or `Workers.assemble`.
        operands: for each parameter that is a descriptor the position of the address that it is of, and what it says.
        registers: see `TilePlan`.
    """
    text = HEADER + "\n\n" + source
    entry_name, cubin, ptx, shared, copies = by(
        text, name, dict(arguments), aligned, arch, num_warps, num_stages, registers
    )
    entry = ptx[ptx.index(".entry") :]
    return MachineCode(
        name=entry_name,
        cubin=cubin,
        ptx=ptx,
        threads=num_warps * 32,
        shared=shared,
        parameters=entry[: entry.index("{")].count(".param"),
        descriptors=tuple(
            Descriptor(argument, tiles, box, swizzle)
            for (argument, tiles), (box, swizzle) in zip((operands or {}).values(), copies, strict=True)
        ),
    )


def once(cache: dict[_K, Future[MachineCode]], key: _K, make: Callable[[], MachineCode]) -> MachineCode:
    """The code under a key, made by the thread that asks first; others wait for it."""
    mine: Future[MachineCode] = Future()
    known = cache.setdefault(key, mine)
    if known is not mine:
        return known.result()
    try:
        code = make()
    except BaseException as error:
        del cache[key]
        mine.set_exception(error)
        raise
    mine.set_result(code)
    return code
