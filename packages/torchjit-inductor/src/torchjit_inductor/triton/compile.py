"""From kernel text to machine code, with or without a GPU."""

from __future__ import annotations

import hashlib
import linecache
import threading
from collections.abc import Mapping
from typing import Any, final

import attrs
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from torchjit_inductor.triton.source import HEADER

__all__ = ["MachineCode", "argument_type", "compile_text", "jit_function"]

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
}


def argument_type(dtype: torch.dtype) -> str:
    """Triton's name of a pointer to this dtype."""
    return f"*{_TYPES[dtype]}"


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
    """

    name: str
    cubin: bytes
    ptx: str
    threads: int
    shared: int
    parameters: int


def jit_function(source: str, name: str) -> Any:
    """The `triton.JITFunction` (or interpreted function) of a kernel's text.

    Args:
        source: as `kernel_source` gives it.
        name: of the function in it.
    """
    text = HEADER + "\n\n" + source
    # Triton reads a function's source back through `inspect`, which asks linecache: no file is needed.
    filename = f"<torchjit {name} {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {"__name__": "torchjit_inductor.triton.generated"}
    exec(compile(text, filename, "exec"), namespace)
    return namespace[name]


def compile_text(
    source: str,
    name: str,
    arguments: Mapping[str, str],
    aligned: frozenset[str],
    *,
    arch: int,
    num_warps: int,
    num_stages: int,
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
    """
    names = list(arguments)
    attributes = {(names.index(a),): [["tt.divisibility", 16]] for a in aligned}
    ast = ASTSource(jit_function(source, name), signature=dict(arguments), constexprs={}, attrs=attributes)
    # Contracting a*b+c is what nvcc does for eager's kernels, too.
    options: dict[str, Any] = {"num_warps": num_warps, "num_stages": num_stages, "enable_fp_fusion": True}
    if "tl.device_assert" in source:  # assertions are compiled in this mode only; of its other checks we want none
        options |= {"debug": True, "sanitize_overflow": False}
    compiled = _compile(ast, GPUTarget("cuda", arch, 32), options)
    ptx: str = compiled.asm["ptx"]
    entry = ptx[ptx.index(".entry") :]
    return MachineCode(
        name=compiled.metadata.name,
        cubin=compiled.asm["cubin"],
        ptx=ptx,
        threads=num_warps * 32,
        shared=compiled.metadata.shared,
        parameters=entry[: entry.index("{")].count(".param"),
    )


_alone = threading.Lock()


def _compile(source: Any, target: Any, options: dict[str, Any]) -> Any:
    """`triton.compile`, again when two threads of CPython 3.11 or 3.12 were in `ast.parse` at once.

    They share a depth counter there, and the loser gets a SystemError that says nothing about its program.
    """
    for _ in range(3):
        try:
            return triton.compile(source, target=target, options=options)
        except SystemError as error:
            if "recursion depth" not in str(error):
                raise
    with _alone:
        return triton.compile(source, target=target, options=options)
