"""Settings of the compiler, passed in by whoever wires it."""

from __future__ import annotations

from typing import final

import attrs

__all__ = ["InductorSettings"]


@final
@attrs.frozen
class InductorSettings:
    """How to compile.

    Attributes:
        cache_dir: where compiled kernels are kept; None is the user's cache folder.
        cache_bytes: what the folder of C kernels may hold; the ones that were not used for longest go.
        compiler: the C++ compiler's command, perhaps with arguments; None finds g++, then clang++, then the wheel `ziglang`.
        compiler_named_by: the environment variable that names it: one that does not run is then the user's error.
        compiler_seconds: that one run of it may take.
        fallback_only: run every op by aten (for finding out whether a generated kernel is at fault).
        fusion: fuse kernels.
        epilogue_fusion: compute what reads the result of a reduction or of a generated product in its kernel.
        compile_jobs: C files that are compiled at once; None is the number of processors that may be used, at most 8.
        vector_bytes: width of vectors in C kernels; None asks torch which instructions this machine has.
        race_layouts: time convolutions of inference graphs on the CPU in both layouts and take the faster.
        race_matmuls: time aten's and oneDNN's matrix product for each new shape on the CPU and take the faster.
        emulate_precision_casts: round each result of a 16-bit type to it, as eager does in memory, also between the
            operations of one kernel, which otherwise keeps float32.
        max_autotune: measure products of matrices of 16 and 8 bits on GPUs as generated kernels against the library, and take the faster;
            of convolutions all of cuDNN's algorithms.
        autotune_in_subproc: run what is measured in a process of its own first, so that a candidate that crashes takes only that along.
        coordinate_descent_tuning: on GPUs vary the tiles and warps of each kernel of fixed size, one step at a time, for as long as that
            makes it faster; with `max_autotune` those of products too.
        autotune_seconds: that this may take, over the life of the compiler.
        repeated_blocks: lower and schedule a few of a graph's equal blocks, and repeat what became of one.
        check_strides: test that aten ops return the strides that the graph promises, and copy if they do not.
    """

    cache_dir: str | None = None
    cache_bytes: int = 1 << 30
    compiler: str | None = None
    compiler_named_by: str | None = None
    compiler_seconds: float = 600.0
    fallback_only: bool = False
    fusion: bool = True
    epilogue_fusion: bool = True
    compile_jobs: int | None = None
    vector_bytes: int | None = None
    emulate_precision_casts: bool = False
    max_autotune: bool = False
    autotune_in_subproc: bool = True
    coordinate_descent_tuning: bool = False
    autotune_seconds: float = 120.0
    repeated_blocks: bool = True
    check_strides: bool = True
    race_matmuls: bool = True
    race_layouts: bool = True
